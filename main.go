// mig-gpu-mon shows activity, memory and processes of every NVIDIA MIG instance, live.
//
// main.go owns the command line, the modes, the event loop, signals and exit codes.
//
// Invariants: only main calls os.Exit; every goroutine starts through guard; the loop never waits for
// the driver: the sampler answers when it can, and a tick without an answer is a tick without an answer.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Exit codes. A signal ends the program as that signal does by default (130, 143, 129 in a shell).
const (
	exitOK     = 0
	exitFailed = 1 // while running
	exitUsage  = 2
	exitNoGPU  = 3 // no usable NVML, no GPU, or -id matched nothing
	exitSilent = 4 // with -c: a selected device gave no reading in the last tick
)

// procRoot is where the kernel shows processes; tests put a folder in its place.
var procRoot = "/proc"

// version is stamped by make; a plain go build takes it from the build's own information.
var version string

func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func main() {
	code := run(os.Args[1:], os.Stdout, os.Stderr)
	if code > 128 {
		// Die by the signal itself, so that a shell loop around this program ends too.
		sig := syscall.Signal(code - 128)
		signal.Reset(sig)
		_ = unix.Kill(unix.Getpid(), sig)
		time.Sleep(time.Second)
	}
	os.Exit(code)
}

// config is the command line, checked.
type config struct {
	kind      rowKind
	interval  time.Duration
	count     int // ticks, 0 for no end
	ids       []string
	columns   []column
	gpuRows   bool
	stamp     stamp
	file      string
	nvmlPath  string
	policy    gpmPolicy
	debugFile string
}

const (
	minInterval = 200 * time.Millisecond // twice what GPM needs between two samples
	maxInterval = time.Hour
	firstAnswer = 30 * time.Second // how long the driver may take to give anything at all
	closeWait   = 200 * time.Millisecond
)

const usage = `Usage: mig-gpu-mon [-plain | -csv | -procs] [options]

Activity, memory and processes of every NVIDIA MIG instance, one row per tick.

  -plain          rows in the manner of nvidia-smi dmon (the default)
  -csv            the same as csv, ISO time first, empty for unknown
  -procs          a row for each process instead
  -i TIME         interval: milliseconds or 2s, 1m ... (1000; 200ms to 1h)
  -c N            end after N ticks
  -id LIST        only these: 0, 0.1, PCI bus id, UUID (or its start)
  -s LETTERS      column groups in order, default um; -s help lists them
  -o D|T|DT|I|E   time in front: date, time, both, ISO 8601, epoch seconds
  -f FILE         append to FILE instead of standard output
  -gpm MODE       auto: GPM from driver 550 on; on: from 525 on; off
  -nvml-path F    the libnvidia-ml.so.1 to use, instead of searching
  -debug FILE     log each NVML call's answer when it changes
  -version, -h

Exit: 0 ok, 1 failed, 2 usage, 3 no driver or GPU, 4 (-c) a device was silent.
SIGUSR1 releases the driver for 60 s, SIGUSR2 takes it up again.
`

// usageError is a mistake on the command line, with hints.
type usageError struct {
	text  string
	hints []string
}

func (e *usageError) Error() string { return e.text }

func badUsage(hint, format string, args ...any) error {
	e := &usageError{text: fmt.Sprintf(format, args...)}
	if hint != "" {
		e.hints = []string{hint}
	}
	return e
}

var errShown = errors.New("shown") // -h, -version, -s help: answered, exit 0

// parse checks the command line.
func parse(args []string, stdout io.Writer) (*config, error) {
	fs := flag.NewFlagSet("mig-gpu-mon", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	plain, csv, procs := fs.Bool("plain", false, ""), fs.Bool("csv", false, ""), fs.Bool("procs", false, "")
	interval := fs.String("i", "1000", "")
	fs.StringVar(interval, "interval", "1000", "")
	delay := fs.String("d", "", "")
	count := fs.Int("c", 0, "")
	ids := fs.String("id", "", "")
	letters := fs.String("s", "um", "")
	stampName := fs.String("o", "", "")
	gpm := fs.String("gpm", "auto", "")
	showVersion := fs.Bool("version", false, "")
	c := &config{}
	fs.StringVar(&c.file, "f", "", "")
	fs.StringVar(&c.nvmlPath, "nvml-path", "", "")
	fs.StringVar(&c.debugFile, "debug", "", "")
	err := fs.Parse(args)
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = io.WriteString(stdout, usage)
		return nil, errShown
	case err != nil:
		return nil, badUsage("mig-gpu-mon -h lists the flags", "%v", err)
	case *showVersion:
		fmt.Fprintf(stdout, "mig-gpu-mon %s\n", versionText())
		return nil, errShown
	case given["s"] && *letters == "help":
		_, _ = io.WriteString(stdout, groupHelp())
		return nil, errShown
	case fs.NArg() > 0:
		return nil, badUsage("mig-gpu-mon -h lists the flags", "unexpected argument %q", fs.Arg(0))
	case given["d"]:
		return nil, badUsage(intervalHint, "-d %s: there is no -d", *delay)
	case given["i"] && given["interval"]:
		return nil, badUsage("", "-i and -interval are the same flag")
	case *plain && *csv || *plain && *procs || *csv && *procs:
		return nil, badUsage("choose one of -plain, -csv and -procs", "more than one mode given")
	case given["c"] && *count < 1:
		return nil, badUsage("leave -c out to go on for ever", "-c %d: must be at least 1", *count)
	case *procs && given["s"]:
		return nil, badUsage("-s chooses columns of -plain and -csv", "-procs has its own columns")
	case *csv && given["o"]:
		return nil, badUsage("csv rows always start with the ISO time", "-csv and -o exclude each other")
	case given["id"] && strings.Trim(*ids, ", ") == "":
		return nil, badUsage("leave -id out to see all", "-id is empty")
	}
	c.count = *count
	switch {
	case *csv:
		c.kind = csvRows
	case *procs:
		c.kind = procRows
	}
	for _, id := range strings.Split(*ids, ",") {
		if id = strings.TrimSpace(id); id != "" {
			c.ids = append(c.ids, id)
		}
	}
	if c.interval, err = parseInterval(*interval); err != nil {
		return nil, err
	}
	if c.columns, c.gpuRows, err = chooseColumns(*letters); err != nil {
		return nil, badUsage("mig-gpu-mon -s help lists the groups", "-s %s: %v", *letters, err)
	}
	var ok bool
	if c.stamp, ok = map[string]stamp{"": stampNone, "D": stampDate, "T": stampTime, "DT": stampDateTime, "I": stampISO, "E": stampEpoch}[*stampName]; !ok || given["o"] && *stampName == "" {
		return nil, badUsage("-o takes D, T, DT, I or E", "-o %s: no such time format", *stampName)
	}
	if c.policy, ok = map[string]gpmPolicy{"auto": gpmAuto, "on": gpmOn, "off": gpmNever}[*gpm]; !ok {
		return nil, badUsage("-gpm takes auto, on or off", "-gpm %s: no such mode", *gpm)
	}
	return c, nil
}

const intervalHint = "-i is the interval (-i 5s for five seconds); devices are chosen with -id"

// parseInterval takes milliseconds or a duration.
func parseInterval(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if ms, e := strconv.Atoi(text); e == nil {
		d, err = time.Duration(ms)*time.Millisecond, nil
		if ms > int(maxInterval/time.Millisecond) {
			d = 2 * maxInterval
		}
	}
	switch {
	case err != nil:
		return 0, badUsage(intervalHint, "-i %s: not a time", text)
	case d < minInterval:
		return 0, badUsage(intervalHint, "-i %s: the interval is at least 200 ms", text)
	case d > maxInterval:
		return 0, badUsage(intervalHint, "-i %s: the interval is at most 1 h", text)
	}
	return d, nil
}

// run is the program: it answers the exit code, above 128 to die of that signal.
func run(args []string, stdout *os.File, stderr io.Writer) int {
	debug.SetGCPercent(20) // a small heap: what is collected here lives for one tick
	c, err := parse(args, stdout)
	if errors.Is(err, errShown) {
		return exitOK
	}
	if err != nil {
		return fail(stderr, err)
	}
	out := stdout
	if c.file != "" {
		if out, err = os.OpenFile(c.file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644); err != nil {
			return fail(stderr, fmt.Errorf("opening -f file: %w", err))
		}
	}
	src := &nvmlSource{path: c.nvmlPath, policy: c.policy}
	if secureExec() && (c.nvmlPath != "" || os.Getenv("LD_LIBRARY_PATH") != "") {
		src.path = ""
		fmt.Fprintln(stderr, "mig-gpu-mon: running with more rights than its user: -nvml-path and LD_LIBRARY_PATH are ignored")
	}
	if c.debugFile != "" {
		if src.debug, err = openCallLog(c.debugFile); err != nil {
			return fail(stderr, err)
		}
	}
	host, _ := os.Hostname()
	w := &textWriter{
		out: out, kind: c.kind, columns: c.columns, gpuRows: c.gpuRows, stamp: c.stamp, zone: time.Local,
		host: printable(host), interval: c.interval, shows: func(int, *device) bool { return true },
	}
	if out == stdout && term.IsTerminal(int(stdout.Fd())) {
		if _, rows, err := term.GetSize(int(stdout.Fd())); err == nil {
			w.height = max(rows, 10)
		}
	}
	src.procs = newProcReader(procRoot, guard)
	src.want = w.wanted()
	if c.kind == procRows {
		w.columns = procColumns
	}
	return newTextLoop(c, src, w, stderr).run()
}

// fail says what is wrong in one line, hints after it, and answers the exit code for it.
func fail(stderr io.Writer, err error) int {
	code, hints := exitFailed, []string(nil)
	var use *usageError
	var start *startError
	switch {
	case errors.As(err, &use):
		code, hints = exitUsage, use.hints
	case errors.As(err, &start):
		code, hints = exitNoGPU, start.hints
	}
	fmt.Fprintf(stderr, "mig-gpu-mon: %s\n", printable(err.Error()))
	for _, h := range hints {
		fmt.Fprintf(stderr, "hint: %s\n", printable(h))
	}
	return code
}

// guard runs f on its own goroutine. All goroutines start here, so that one place can undo what the
// program did to the terminal before a panic ends it.
func guard(f func()) { go f() }

// order is what the loop asks of the sampler.
type order uint8

const (
	orderSample order = iota
	orderRelease
	orderResume
	orderClose
)

// request is an order, with the snapshot to fill for orderSample.
type request struct {
	order order
	snap  *snapshot
}

// answer of the sampler to orderSample (err ends the program) and to orderClose.
type sampled struct {
	snap *snapshot
	err  error
}

// serve carries out orders until orderClose. It may hang in the driver for any time.
func serve(src *nvmlSource, orders <-chan request, answers chan<- sampled) {
	for r := range orders {
		switch r.order {
		case orderSample:
			err := src.sample(r.snap)
			answers <- sampled{r.snap, err}
		case orderRelease:
			src.release()
		case orderResume:
			src.resume()
		case orderClose:
			src.close()
			answers <- sampled{}
			return
		}
	}
}

// textLoop paces the text modes. It owns everything but what the sampler has in hand.
type textLoop struct {
	c       *config
	w       *textWriter
	stderr  io.Writer
	orders  chan request
	answers chan sampled

	last    *snapshot // the last rows' snapshot
	spare   *snapshot
	asked   time.Time // when the sampler was asked for what it has not answered yet; zero if idle
	silent  bool      // rows of "-" are being written
	primed  bool      // the first snapshot, which starts the first interval, is there
	ticks   int       // rows' ticks so far
	chosen  []string  // identities that -id named
	pending []string  // notes that no row has carried yet
}

func newTextLoop(c *config, src *nvmlSource, w *textWriter, stderr io.Writer) *textLoop {
	l := &textLoop{
		c: c, w: w, stderr: stderr,
		orders: make(chan request, 16), answers: make(chan sampled, 1),
		last: &snapshot{}, spare: &snapshot{},
	}
	guard(func() { serve(src, l.orders, l.answers) })
	return l
}

// patience is how late an answer may be before its ticks count as silent.
func (l *textLoop) patience() time.Duration {
	return max(2*time.Second, l.c.interval*5/2)
}

func (l *textLoop) run() int {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	if !signal.Ignored(syscall.SIGHUP) { // nohup stays in force
		signal.Notify(signals, syscall.SIGHUP)
	}
	start := time.Now()
	l.ask()
	tick := time.NewTimer(l.c.interval)
	first := time.NewTimer(firstAnswer)
	var end <-chan time.Time
	if l.c.count > 0 {
		end = time.After(time.Duration(l.c.count)*l.c.interval + 10*time.Second)
	}
	resume := time.NewTimer(time.Hour)
	resume.Stop()
	for {
		code := -1
		select {
		case a := <-l.answers:
			if a.err != nil {
				return fail(l.stderr, a.err)
			}
			wasPrimed := l.primed
			code = l.take(a.snap)
			if !wasPrimed && l.primed {
				// The grid starts where the first sample ended, so that the first row covers a whole interval.
				start = time.Now()
				tick.Reset(l.c.interval)
			}
		case <-tick.C:
			code = l.tick()
			tick.Reset(untilNext(start, time.Now(), l.c.interval))
		case <-first.C:
			if !l.primed && l.c.count > 0 {
				code = l.noAnswer()
			} else if !l.primed {
				fmt.Fprintln(l.stderr, "mig-gpu-mon: the driver has not answered for 30 s; still waiting")
			}
		case <-end:
			code = exitSilent
			if !l.primed {
				code = l.noAnswer()
			}
		case <-resume.C:
			code = l.order(orderResume, "resumed")
		case sig := <-signals:
			switch sig {
			case syscall.SIGUSR1:
				code = l.order(orderRelease, "released: the NVML session is closed for 60 s (SIGUSR2 resumes)")
				resume.Reset(60 * time.Second)
			case syscall.SIGUSR2:
				if resume.Stop() {
					code = l.order(orderResume, "resumed")
				}
			default:
				code = 128 + int(sig.(syscall.Signal))
			}
		}
		if code >= 0 {
			l.close()
			return code
		}
	}
}

func (l *textLoop) noAnswer() int {
	return fail(l.stderr, errors.New("the driver does not answer"))
}

// untilNext is the time from now to the next point of the grid that start and interval make.
func untilNext(start, now time.Time, interval time.Duration) time.Duration {
	gone := now.Sub(start)
	return interval - gone%interval
}

// ask has the sampler collect, if it is idle.
func (l *textLoop) ask() {
	if l.asked.IsZero() {
		l.asked = time.Now()
		l.orders <- request{orderSample, l.spare}
	}
}

// order passes on what a signal asked for and says so in the rows.
func (l *textLoop) order(o order, says string) int {
	select {
	case l.orders <- request{order: o}:
	default:
		says = "the driver does not answer: ignored"
	}
	return l.written(l.w.comment(says))
}

// tick asks for the next sample; while one is overdue for longer than patience, it writes rows of "-".
func (l *textLoop) tick() int {
	if l.asked.IsZero() {
		l.ask()
		return -1
	}
	l.w.skipped = true
	late := time.Since(l.asked)
	if !l.primed || late < l.patience() {
		return -1
	}
	if !l.silent {
		l.silent = true
		l.blank(l.last)
		l.last.notes = append(l.last.notes[:0], "driver silent since "+l.asked.In(l.w.zone).Format(isoTime))
	} else {
		l.last.notes = l.last.notes[:0]
	}
	l.last.at = time.Now()
	return l.rows(l.last)
}

// blank makes every value of s absent: these rows have no answer behind them.
func (l *textLoop) blank(s *snapshot) {
	for i := range s.dev {
		d := &s.dev[i]
		d.src = srcNone
		if d.fault == notRead {
			d.fault = driverSilent
		}
		for m := range d.v {
			d.v[m] = lack(driverSilent)
		}
	}
	s.proc = s.proc[:0]
}

// take receives a snapshot: the first starts the first interval, the others are rows, unless rows of "-"
// were written in their place.
func (l *textLoop) take(s *snapshot) int {
	l.last, l.spare = s, l.last
	asked := l.asked
	l.asked = time.Time{}
	if !l.primed {
		return l.begin(s)
	}
	if l.silent {
		l.silent = false
		notes := append(slices.Clone(s.notes), fmt.Sprintf("driver back after %s", time.Since(asked).Round(100*time.Millisecond)))
		return l.written(l.w.comment(notes...))
	}
	return l.rows(s)
}

// begin binds -id to the devices that are there now.
func (l *textLoop) begin(s *snapshot) int {
	l.primed = true
	l.pending = slices.Clone(s.notes)
	if len(l.c.ids) == 0 {
		l.w.shows = func(_ int, d *device) bool { return d.fault != notVisible }
		return -1
	}
	for _, id := range l.c.ids {
		found := matchID(s, id)
		if len(found) == 0 {
			return fail(l.stderr, &startError{"-id " + id + ": no such device here", knownIDs(s)})
		}
		l.chosen = append(l.chosen, found...)
	}
	l.w.shows = func(_ int, d *device) bool {
		return slices.Contains(l.chosen, identity(d)) || !d.isGPU() && slices.Contains(l.chosen, "gpu "+strconv.Itoa(d.gpu))
	}
	return -1
}

// identity is what -id binds to: the UUID, so that an instance which takes another's number is not taken
// for it; of a GPU also its index, for its instances.
func identity(d *device) string {
	if d.isGPU() {
		return "gpu " + strconv.Itoa(d.gpu)
	}
	return d.uuid
}

// matchID finds the devices that id names: GPU index, gpu.mig, PCI bus id, UUID or its start, or the old
// MIG-GPU-UUID/gi/ci.
func matchID(s *snapshot, id string) []string {
	var found []string
	for i := range s.dev {
		d := &s.dev[i]
		own := strconv.Itoa(d.gpu)
		if !d.isGPU() {
			own += "." + strconv.Itoa(d.mig)
		}
		low := strings.ToLower(id)
		bus := d.isGPU() && d.bus != "" && (low == d.bus || low == "0000"+d.bus || "0000:"+low == d.bus)
		uuid := d.uuid != "" && len(id) >= 4 && strings.HasPrefix(strings.ToLower(d.uuid), low) ||
			d.uuid == id
		old := !d.isGPU() && id == fmt.Sprintf("MIG-%s/%d/%d", s.dev[gpuOf(s, d)].uuid, d.gi, d.ci)
		if id == own || bus || uuid || old {
			found = append(found, identity(d))
		}
	}
	return found
}

// gpuOf is the index in s.dev of d's GPU.
func gpuOf(s *snapshot, d *device) int {
	return slices.IndexFunc(s.dev, func(g device) bool { return g.isGPU() && g.gpu == d.gpu })
}

func knownIDs(s *snapshot) []string {
	var lines []string
	for i := range s.dev {
		d := &s.dev[i]
		line := fmt.Sprintf("%d  %s  %s %s", d.gpu, d.uuid, d.bus, d.name)
		if !d.isGPU() {
			line = fmt.Sprintf("%d.%d  %s  %s", d.gpu, d.mig, d.uuid, d.profile)
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// rows writes s and counts the tick.
func (l *textLoop) rows(s *snapshot) int {
	s.notes = append(l.pending, s.notes...)
	l.pending = nil
	if code := l.written(l.w.tick(s)); code >= 0 {
		return code
	}
	l.ticks++
	if l.c.count == 0 || l.ticks < l.c.count {
		return -1
	}
	if l.lacking(s) {
		return exitSilent
	}
	return exitOK
}

// lacking says that a selected device gave no reading in s: it is lost or silent, or memory is refused.
func (l *textLoop) lacking(s *snapshot) bool {
	seen := 0
	for i := range s.dev {
		d := &s.dev[i]
		if !l.w.shows(i, d) {
			continue
		}
		seen++
		mem := d.v[mMemUsed]
		if d.fault != notRead || d.rows == 0 && !mem.fresh() && mem.why != notSupported {
			return true
		}
	}
	return seen == 0
}

// written turns a write's outcome into an exit code, -1 to go on. A reader that has gone is no error.
func (l *textLoop) written(err error) int {
	switch {
	case err == nil:
		return -1
	case errors.Is(err, syscall.EPIPE):
		return exitOK
	}
	return fail(l.stderr, fmt.Errorf("writing rows: %w", err))
}

// close has the sampler give back what it holds, unless it is in the driver's hands.
func (l *textLoop) close() {
	select {
	case l.orders <- request{order: orderClose}:
	default:
		return
	}
	wait := time.After(closeWait)
	for {
		select {
		case a := <-l.answers:
			if a.snap == nil {
				return
			}
		case <-wait:
			return
		}
	}
}
