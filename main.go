// mig-gpu-mon shows activity, memory and processes of every NVIDIA MIG instance, live.
//
// main.go owns the command line, the modes, the event loops, signals and exit codes, and handing over to a new
// process when the driver was upgraded.
//
// Invariants: os.Exit is called in this file alone; every goroutine starts through guard; a loop never waits for the
// driver: the sampler answers when it can, and a tick without an answer is a tick without an answer. While released,
// nothing touches the driver.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
	return builtVersion()
}

var builtVersion = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
})

func main() {
	defer crash()
	if os.Getenv(probeEnv) != "" {
		os.Exit(probe(os.Args[1:]))
	}
	if os.Getenv(handoverEnv) != "" || os.Getenv(triedEnv) != "" {
		// Started as /proc/self/exe, it would be called exe, and pkill would not find it.
		_ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0)
	}
	code := run(os.Args[1:], os.Stdout, os.Stderr)
	removeProm()
	if code > 128 {
		die(syscall.Signal(code - 128))
	}
	os.Exit(code)
}

// die ends the program by sig itself, so that a shell loop around it ends too.
func die(sig syscall.Signal) {
	if sig == syscall.SIGQUIT {
		os.Exit(128 + int(sig)) // by itself it would have Go print all stacks and exit with 2
	}
	signal.Reset(sig)
	_ = unix.Kill(unix.Getpid(), sig)
	time.Sleep(time.Second)
	os.Exit(128 + int(sig))
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
	logFile   string
	promFile  string
	replay    string // recording to play
	demo      bool
	paced     bool // the interval was given
	from      handover
	text      bool // rows were asked for; else a terminal gets the dashboard
	ascii     bool
	pss       bool
	noColor   bool
	shows     func(*device) bool // what -id chose, once the first snapshot is there
}

const (
	maxInterval = time.Hour
	firstAnswer = 30 * time.Second // how long the driver may take to give anything at all
	closeWait   = 200 * time.Millisecond
	releaseFor  = 60 * time.Second // after SIGUSR1
)

// minInterval is twice what GPM needs between two samples. Tests of many ticks make it shorter.
var minInterval = 200 * time.Millisecond

// options are the flags, in the order of -h and of the man page. A row without help shares the next row's line
// in -h; a second name is for the man page alone. text becomes OPTIONS of mig-gpu-mon.1, by
// go test -run TestManPage -update, which also holds this table to what register has.
var options = []struct{ names, arg, help, text string }{
	{"plain", "", "", `
One row per instance and tick, in aligned columns like those of nvidia-smi dmon.
Whole GPUs have rows where they have no instances, or numbers that instances lack (see -s).`},
	{"csv", "", "a row per instance per tick, as nvidia-smi dmon; or as csv", `
The same columns as comma-separated values: ISO time first, one header line, an empty field for what is unknown.`},
	{"procs", "", "", `
One row per process on a GPU or instance: its user, job, memory, CPU share and command.`},
	{"json", "", "a row per process; or a JSON object per tick", `
One JSON object per tick, which -replay can play.`},
	{"i interval", "TIME", "interval: milliseconds or 2s, 1m ... (1000; 200ms to 1h)", `
The interval between ticks: a number of milliseconds, or a duration such as 2s or 1m, from 200ms to 1h.
The default is 1000.
With -replay or -demo on the screen it sets one pace for all records.`},
	{"c", "N", "end after N ticks", `
End after N ticks, or at the latest N intervals and 10 seconds after the driver's first answer, for which it has 30
seconds.
Rows of a recording end with it, whatever N is.
Without -c the program goes on until a key or a signal ends it.`},
	{"id", "LIST", "only these: 0, 0.1, PCI bus id, UUID (or its start)", `
Show these devices only, separated by commas: a GPU index, GPU.INSTANCE as in 0.1, a PCI bus id, or a UUID or its
first letters.
CUDA_VISIBLE_DEVICES can be passed as it is where it names MIG UUIDs.
A number stands for the instance that has it at the start of the run.`},
	{"s", "LETTERS", "column groups in order, default um; -s help lists them", `
The groups of columns of -plain and -csv, in this order.
The default is um: utilization and memory.
-s help lists all groups.
With one of the groups p, c, t, v and e, a GPU with instances has a row of its own.`},
	{"o", "D|T|DT|I|E", "time in front: date, time, both, ISO 8601, epoch seconds", `
Put the time in front of the rows of -plain and -procs: the date, the time, both, ISO 8601, or seconds since 1970.`},
	{"f", "FILE", "append to FILE instead of standard output", `
Append to FILE instead of writing to standard output.
A csv file gets one header line, however many runs append to it.`},
	{"log", "FILE", "append a JSON object per tick beside whatever is shown", `
Append what -json writes to FILE, beside the screen or rows.
A new file can be read by its owner only.
Symbolic links, files of other users and what is no regular file are refused.`},
	{"prom", "F.prom", "keep F.prom up to date for Prometheus' node_exporter", `
Keep F.prom up to date for the textfile collector of Prometheus' node_exporter.
The file is replaced in one step at each tick, and removed at the end of a run without -c.`},
	{"replay", "FILE", "play what -log or gpur recorded, on the screen or as rows", `
Play a recording of -log, -json or gpur, on the screen or as rows; no GPU is needed.
FILE may be - for standard input.`},
	{"demo", "", "play a simulated machine; needs no GPU", `
Play a recording of a simulated machine, which is built in.
It goes with all modes and with -prom.
What asks this machine (-log, -debug, -gpm, -pss) is refused.`},
	{"gpm", "auto|on|off", "GPM from driver 550 on, from 525 on, or not at all", `
When to use GPU performance monitoring, which is where Hopper and newer GPUs have the utilization of instances.
The default, auto, uses it from driver 550 on, since memory readings were seen to break after it on 535;
on tries it from 525 on; off never does.`},
	{"nvml-path", "F", "the libnvidia-ml.so.1 to use, instead of searching", `
Load the library F instead of searching for libnvidia-ml.so.1.`},
	{"debug", "FILE", "log each NVML call's answer when it changes", `
Append to FILE which library was loaded, and the answer of each NVML call whenever it changes.
The file stops growing at 10 MiB, and is as private as that of -log.`},
	{"pss", "", "PSS and USS of processes on the screen, as key m", `
Show proportional and unique memory (PSS and USS) of processes on the screen, as the key m does.
That takes a walk through their page tables, so it is done on demand only.`},
	{"ascii", "", "", `
Draw with ASCII characters only.
This is the default where the locale is not UTF-8, and on the Linux console.`},
	{"no-color", "", "for terminals without these", `
Use no colours.`},
	{"version", "", "", `
Print the version and exit.`},
	{"h help", "", "the version; this text (man mig-gpu-mon has more)", `
Print a list of the flags and exit.`},
}

// usage is what -h prints.
func usage() string {
	var b strings.Builder
	b.WriteString(`Usage: mig-gpu-mon [-plain | -csv | -procs | -json] [options]
Activity, memory and processes of every NVIDIA MIG instance, live. Full screen
on a terminal (? shows the keys), rows in a pipe or with one of these:
`)
	var names []string
	for _, o := range options {
		name, _, _ := strings.Cut(o.names, " ")
		names = append(names, strings.TrimSpace("-"+name+" "+o.arg))
		if o.help != "" {
			fmt.Fprintf(&b, "  %-14s  %s\n", strings.Join(names, ", "), o.help)
			names = nil
		}
	}
	b.WriteString(`Exit: 0 ok, 1 failed, 2 usage, 3 no driver or GPU, 4 (-c) a device was silent.
SIGUSR1 releases the driver for 60 s, SIGUSR2 takes it up again.
`)
	return b.String()
}

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

// show answers a question of the command line.
func show(stdout io.Writer, text string) error {
	if _, err := io.WriteString(stdout, text); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return errShown
}

// words are the flags that say more than their text when all are known.
type words struct {
	modes                                     map[string]*bool
	interval, delay, ids, letters, stamp, gpm string
	version                                   bool
}

// register makes the flags of options, and -d, which is there to be told from -i.
func register(c *config) (*flag.FlagSet, *words) {
	fs := flag.NewFlagSet("mig-gpu-mon", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	w := &words{modes: map[string]*bool{}}
	for name := range modeKinds {
		w.modes[name] = fs.Bool(name, false, "")
	}
	fs.StringVar(&w.interval, "i", "1000", "")
	fs.StringVar(&w.interval, "interval", "1000", "")
	fs.StringVar(&w.delay, "d", "", "")
	fs.StringVar(&w.ids, "id", "", "")
	fs.StringVar(&w.letters, "s", "um", "")
	fs.StringVar(&w.stamp, "o", "", "")
	fs.StringVar(&w.gpm, "gpm", "auto", "")
	fs.BoolVar(&w.version, "version", false, "")
	fs.IntVar(&c.count, "c", 0, "")
	fs.StringVar(&c.file, "f", "", "")
	fs.StringVar(&c.nvmlPath, "nvml-path", "", "")
	fs.StringVar(&c.debugFile, "debug", "", "")
	fs.StringVar(&c.logFile, "log", "", "")
	fs.StringVar(&c.promFile, "prom", "", "")
	fs.StringVar(&c.replay, "replay", "", "")
	fs.BoolVar(&c.demo, "demo", false, "")
	fs.BoolVar(&c.ascii, "ascii", false, "")
	fs.BoolVar(&c.pss, "pss", false, "")
	fs.BoolVar(&c.noColor, "no-color", false, "")
	return fs, w
}

// parse checks the command line.
func parse(args []string, stdout io.Writer) (*config, error) {
	c := &config{}
	fs, w := register(c)
	err := fs.Parse(args)
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	var chosen []string
	for name, on := range w.modes {
		if *on {
			chosen = append(chosen, name)
		}
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return nil, show(stdout, usage())
	case err != nil:
		return nil, badUsage("mig-gpu-mon -h lists the flags", "%v", err)
	case w.version:
		return nil, show(stdout, "mig-gpu-mon "+versionText()+"\n")
	case given["s"] && w.letters == "help":
		return nil, show(stdout, groupHelp())
	case fs.NArg() > 0:
		return nil, badUsage("mig-gpu-mon -h lists the flags; -replay FILE plays a recording", "unexpected argument %q", fs.Arg(0))
	case given["d"]:
		return nil, badUsage(intervalHint, "-d %s: there is no -d", w.delay)
	case given["i"] && given["interval"]:
		return nil, badUsage("", "-i and -interval are the same flag")
	case len(chosen) > 1:
		return nil, badUsage("choose one of -plain, -csv, -procs and -json", "more than one mode given")
	case given["c"] && c.count < 1:
		return nil, badUsage("leave -c out to go on for ever", "-c %d: must be at least 1", c.count)
	case (*w.modes["procs"] || *w.modes["json"]) && given["s"]:
		return nil, badUsage("-s chooses columns of -plain and -csv", "-%s has columns of its own", chosen[0])
	case (*w.modes["csv"] || *w.modes["json"]) && given["o"]:
		return nil, badUsage("each row has its time anyway", "-%s and -o exclude each other", chosen[0])
	case given["id"] && strings.Trim(w.ids, ", ") == "":
		return nil, badUsage("leave -id out to see all", "-id is empty")
	}
	if err := cmp.Or(checkFiles(c, given), playable(c, given)); err != nil {
		return nil, err
	}
	c.paced = given["i"] || given["interval"]
	c.text = len(chosen) > 0 || given["c"] || given["s"] || given["o"] || given["f"]
	if len(chosen) > 0 {
		c.kind = modeKinds[chosen[0]]
	}
	if !given["o"] {
		w.stamp = "-"
	} else if w.stamp == "-" {
		w.stamp = "?"
	}
	return c, c.choose(w)
}

// checkFiles refuses the empty text as the name of a file, which a script gives that has not set its variable,
// and one file for two flags, of which one would spoil what the other writes or reads.
func checkFiles(c *config, given map[string]bool) error {
	seen := map[string]string{}
	for _, f := range [...]struct{ flag, file string }{
		{"nvml-path", c.nvmlPath}, {"f", c.file}, {"log", c.logFile}, {"prom", c.promFile}, {"debug", c.debugFile}, {"replay", c.replay},
	} {
		if given[f.flag] && f.file == "" {
			return badUsage("it takes the name of a file", "-%s is empty", f.flag)
		}
		path, err := filepath.Abs(f.file)
		if f.file == "" || f.flag == "nvml-path" || err != nil || strings.HasPrefix(path, "/dev/") {
			continue
		}
		if other := seen[path]; other != "" {
			return badUsage("each needs a file of its own", "-%s and -%s are the same file", other, f.flag)
		}
		seen[path] = f.flag
	}
	if given["prom"] && !strings.HasSuffix(c.promFile, ".prom") {
		return badUsage("node_exporter reads files that are called *.prom only", "-prom %s: not called *.prom", c.promFile)
	}
	return nil
}

// playable refuses what makes no sense when a recording is played.
func playable(c *config, given map[string]bool) error {
	if given["replay"] && c.demo {
		return badUsage("choose one of -replay and -demo", "more than one recording given")
	}
	if !given["replay"] && !c.demo {
		return nil
	}
	for _, live := range []string{"nvml-path", "gpm", "debug", "pss"} {
		if given[live] {
			return badUsage("a recording has what it has; leave the flag out", "-%s asks this machine, which -replay and -demo never do", live)
		}
	}
	if given["log"] {
		return badUsage("-json -f FILE writes a recording anew", "-log does not record recordings")
	}
	return nil
}

// choose takes what the flags that are words mean.
func (c *config) choose(w *words) (err error) {
	for _, id := range strings.Split(w.ids, ",") {
		if id = strings.TrimSpace(id); id != "" {
			c.ids = append(c.ids, id)
		}
	}
	if c.interval, err = parseInterval(w.interval); err != nil {
		return err
	}
	if c.columns, c.gpuRows, err = chooseColumns(w.letters); err != nil {
		return badUsage("mig-gpu-mon -s help lists the groups", "-s %s: %v", w.letters, err)
	}
	var ok bool
	if c.stamp, ok = stampNames[w.stamp]; !ok {
		return badUsage("-o takes D, T, DT, I or E", "-o %s: no such time format", w.stamp)
	}
	if c.policy, ok = gpmNames[w.gpm]; !ok {
		return badUsage("-gpm takes auto, on or off", "-gpm %s: no such mode", w.gpm)
	}
	return nil
}

var (
	modeKinds  = map[string]rowKind{"plain": plainRows, "csv": csvRows, "procs": procRows, "json": jsonRows}
	stampNames = map[string]stamp{"-": stampNone, "D": stampDate, "T": stampTime, "DT": stampDateTime, "I": stampISO, "E": stampEpoch}
	gpmNames   = map[string]gpmPolicy{"auto": gpmAuto, "on": gpmOn, "off": gpmNever}
)

const intervalHint = "-i is the interval (-i 5s for five seconds); devices are chosen with -id"

// parseInterval takes milliseconds or a duration.
func parseInterval(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if ms, e := strconv.Atoi(text); e == nil {
		ms = min(max(ms, 0), int(2*maxInterval/time.Millisecond)) // far from overflowing
		d, err = time.Duration(ms)*time.Millisecond, nil
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
	debug.SetGCPercent(10) // a small heap: what is collected here lives for one tick
	// A limit on the size of files is an error of a write then, and does not end the program.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGXFSZ)
	c, err := parse(args, stdout)
	if errors.Is(err, errShown) {
		return exitOK
	}
	if err != nil {
		return fail(stderr, err)
	}
	out := stdout
	if c.file != "" {
		mode := os.FileMode(0o644)
		if c.kind == jsonRows {
			mode = 0o600 // as -log: it has the command lines of all
		}
		// Not blocking, so that a FIFO that nobody reads is an error now and not a program that hangs.
		if out, err = os.OpenFile(c.file, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NONBLOCK, mode); err != nil {
			return fail(stderr, fmt.Errorf("opening -f file: %w", err))
		}
	}
	screen := !c.text && term.IsTerminal(int(stdout.Fd())) && os.Getenv("TERM") != "" && os.Getenv("TERM") != "dumb"
	c.from = takeHandover()
	var x exports
	if err := x.open(c); err != nil {
		return fail(stderr, err)
	}
	if c.replay != "" || c.demo {
		return play(c, out, stdout, stderr, screen, &x)
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
	src.host = printable(host)
	src.procs = newProcReader(procRoot, guard)
	if screen {
		src.want = everything()
		t := openTerminal(os.Stdin, stdout)
		src.leave = t.leave
		return newScreenLoop(c, t, &x, stderr).run(src)
	}
	l, err := newTextLoop(c, out, stdout, &x, stderr)
	if err != nil {
		return fail(stderr, err)
	}
	src.want = l.w.wanted()
	if c.kind == jsonRows || x.any() {
		src.want = everything()
		l.hosts, l.system = newHostReader(procRoot, cgroupRoot), &hostState{}
	}
	l.sampler = startSampler(src)
	return l.run()
}

const cgroupRoot = "/sys/fs/cgroup"

// everything is all metrics.
func everything() (want [deviceMetrics]bool) {
	for m := range want {
		want[m] = true
	}
	return want
}

// play is run for recordings.
func play(c *config, out, stdout *os.File, stderr io.Writer, screen bool, x *exports) int {
	var src *replaySource
	var err error
	if c.demo {
		src, err = openDemo(screen || c.count > 0)
	} else {
		src, err = openReplay(c.replay)
	}
	if err != nil {
		return fail(stderr, err)
	}
	if sameFile(src.in, out) {
		return fail(stderr, badUsage("write to another file", "-replay %s: would be read and written at once", c.replay))
	}
	if screen {
		return newScreenLoop(c, openTerminal(os.Stdin, stdout), x, stderr).run(src)
	}
	l, err := newTextLoop(c, out, stdout, x, stderr)
	if err != nil {
		return fail(stderr, err)
	}
	if c.kind == csvRows && c.demo {
		fmt.Fprintln(stderr, "mig-gpu-mon: "+demoLabel) // there are no # lines to say so
	}
	return l.replay(src)
}

// sameFile says that in is the regular file out.
func sameFile(in io.Reader, out *os.File) bool {
	f, ok := in.(*os.File)
	if !ok {
		return false
	}
	a, aerr := f.Stat()
	b, berr := out.Stat()
	return aerr == nil && berr == nil && a.Mode().IsRegular() && os.SameFile(a, b)
}

// handover is what a process hands to the one that takes its place when the driver was replaced under it by
// another version, whose library a process that has had one cannot load.
type handover struct {
	tries    int       // processes so far that found no driver
	ticks    int       // rows' ticks written
	deadline time.Time // of a run with -c, zero if it has none yet
	wrote    bool      // the file of -prom
	logOff   bool      // the log was given up
	bound    []string  // the devices that -id was bound to, by identity
}

const (
	handoverEnv = "MIG_GPU_MON_HANDOVER"
	probeEnv    = "MIG_GPU_MON_PROBE"
)

// takeHandover reads what the process before this one left, if there was one. It stays in the environment, for
// the process that takes over should this one have to try another library.
func takeHandover() (h handover) {
	var deadline int64
	head, bound, _ := strings.Cut(os.Getenv(handoverEnv), ";")
	if n, _ := fmt.Sscan(head, &h.tries, &h.ticks, &deadline, &h.wrote, &h.logOff); n < 5 || h.tries < 1 || h.ticks < 0 {
		return handover{}
	}
	if deadline > 0 {
		h.deadline = time.UnixMilli(deadline)
	}
	if bound != "" {
		h.bound = strings.Split(bound, ";")
	}
	return h
}

// wait is how long to wait before the next try: 1 s, growing to 30.
func (h handover) wait() time.Duration { return min(time.Second<<min(h.tries, 5), 30*time.Second) }

// exec puts a new process in this one's place, with what the files of x are like; it returns only if that fails.
func (h handover) exec(x *exports) error {
	deadline := int64(0)
	if !h.deadline.IsZero() {
		deadline = h.deadline.UnixMilli()
	}
	signal.Ignore(syscall.SIGUSR1, syscall.SIGUSR2) // which would end a process that has not set them up yet
	os.Unsetenv(handoverEnv)
	env := append(os.Environ(), fmt.Sprintf("%s=%d %d %d %t %t;%s", handoverEnv, h.tries+1, h.ticks, deadline,
		x.prom != nil && x.prom.wrote, x.logOff != "", strings.Join(h.bound, ";")))
	return syscall.Exec("/proc/self/exe", os.Args, env)
}

// probe is the exit code of a process that only tells whether the driver lets itself be used.
func probe(args []string) int {
	c, err := parse(args, io.Discard)
	if err != nil {
		return exitUsage
	}
	src := &nvmlSource{path: c.nvmlPath}
	if secureExec() {
		src.path = ""
	}
	if src.load() != nil {
		return exitNoGPU
	}
	src.close()
	return exitOK
}

// probed runs such a process. One that hangs, or is not wanted any more, is killed; so it is when the calling
// thread ends.
func probed(stop <-chan struct{}) bool {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer null.Close()
	p, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{
		Env: append(os.Environ(), probeEnv+"=1"), Files: []*os.File{null, null, null}, Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return true // then handing over fails too, and says why
	}
	done := make(chan bool, 1)
	guard(func() {
		state, err := p.Wait()
		done <- err == nil && state.ExitCode() == exitOK
	})
	select {
	case ok := <-done:
		return ok
	case <-stop:
	case <-time.After(firstAnswer):
	}
	_ = p.Kill()
	return false
}

const restartHint = "the driver was upgraded: restart mig-gpu-mon"

// successor is a loop's watch over whether a new process has to take this one's place.
type successor struct {
	handover
	replaced bool            // the driver was, as the last answer says
	early    bool            // this is such a process, and found no driver yet
	resting  bool            // released: the driver is to be left alone
	ready    <-chan struct{} // when to hand over
	stop     chan struct{}   // closed to look no more; nil if nobody looks
}

// watch looks at an answer; wait says that there is nothing in it but the need for a new process.
func (w *successor) watch(a sampled) (wait bool) {
	was := w.replaced || w.early
	w.early = a.err != nil && w.tries > 0
	w.replaced = a.err == nil && a.snap.replaced
	switch {
	case w.early || w.replaced && !was:
		w.look()
	case a.err == nil && !w.replaced:
		w.tries = 0
		w.cancel()
	}
	return w.early
}

// look has child processes look for the driver until one finds it.
func (w *successor) look() {
	if w.cancel(); w.resting {
		return
	}
	ready, stop, h := make(chan struct{}, 1), make(chan struct{}), w.handover
	w.ready, w.stop = ready, stop
	guard(func() {
		runtime.LockOSThread() // the children live as long as this thread
		for ; ; h.tries++ {
			select {
			case <-stop:
				return
			case <-time.After(h.wait()):
			}
			if probed(stop) {
				ready <- struct{}{}
				return
			}
		}
	})
}

// cancel ends look.
func (w *successor) cancel() {
	if w.stop != nil {
		close(w.stop)
	}
	w.stop, w.ready = nil, nil
}

// rest leaves the driver alone, or no more.
func (w *successor) rest(yes bool) {
	w.cancel()
	if w.resting = yes; !yes && (w.replaced || w.early) {
		w.look()
	}
}

// exports are the files that take every snapshot beside what is shown.
type exports struct {
	log     *logFile
	prom    *promFile
	logOff  string // why the log was given up
	promOff string // why there is no file for Prometheus at the moment
}

// open opens what c names.
func (x *exports) open(c *config) (err error) {
	began := c.from.tries == 0 // else a process before this one did, and what fails now fails in the middle
	if c.logFile != "" && c.from.logOff {
		x.logOff = "logging stopped"
	} else if c.logFile != "" {
		if x.log, err = openLog(c.logFile); err != nil && began {
			return err
		} else if err != nil {
			x.logOff = "logging stopped: " + cause(err)
		}
	}
	if c.promFile != "" {
		x.prom, err = openProm(c.promFile)
		if err != nil && began {
			return err
		}
		x.prom.wrote = c.from.wrote
		if c.count == 0 {
			removeProm = func() { _ = x.prom.remove() }
			// A pipe that was closed is an error of a write then, and does not end the program before this.
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		}
	}
	return nil
}

func (x *exports) any() bool { return x.log != nil || x.prom != nil }

// trouble is what is wrong with the files, empty if nothing is.
func (x *exports) trouble() string {
	return strings.Trim(x.logOff+"; "+x.promOff, "; ")
}

// write passes s on. A log that cannot be written is given up; a file for Prometheus is taken away, since it
// would tell of old times, and tried again each time.
func (x *exports) write(s *snapshot, shows func(*device) bool) {
	if x.log != nil {
		if err := x.log.write(s, shows); err != nil {
			x.log.f.Close()
			x.log, x.logOff = nil, "logging stopped: "+cause(err)
		}
	}
	if x.prom != nil {
		x.promOff = ""
		if err := x.prom.write(s, shows); err != nil {
			x.promOff = "-prom file removed: " + cause(err)
			if x.prom.remove() != nil {
				x.promOff = "-prom file is out of date: " + cause(err)
			}
		}
	}
}

// cause is err without the names of files, for a line that has little room.
func cause(err error) string {
	var code syscall.Errno
	if errors.As(err, &code) {
		return code.Error()
	}
	return err.Error()
}

// removeProm takes the file of -prom away. A run without -c sets it when it has one.
var removeProm = func() {}

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

// leaveTerminal undoes what the program did to the terminal. The dashboard sets it before it starts a
// goroutine.
var leaveTerminal = func() {}

// guard runs f on its own goroutine. All goroutines start here, so that a panic in any of them finds the
// terminal restored and its trace is seen.
func guard(f func()) {
	go func() {
		defer crash()
		f()
	}()
}

// crash, deferred, turns a panic into a restored terminal, the trace on stderr and exit code 1.
func crash() {
	if p := recover(); p != nil {
		leaveTerminal()
		removeProm()
		fmt.Fprintf(os.Stderr, "mig-gpu-mon: panic: %v\n%s", p, debug.Stack())
		os.Exit(exitFailed)
	}
}

// order is what the loop asks of the sampler.
type order uint8

const (
	orderSample order = iota
	orderRelease
	orderResume
	orderBack // to the record before, of a recording
	orderClose
)

// request is an order, with the snapshot to fill for orderSample.
type request struct {
	order order
	snap  *snapshot
}

// sampled is the answer of the sampler to orderSample (err ends the program) and to orderClose.
type sampled struct {
	snap *snapshot
	err  error
}

// source is where snapshots come from: a driver or a recording. It belongs to one goroutine, and may hang.
type source interface {
	// sample makes one collection, or takes the next record. Its error ends the program.
	sample(into *snapshot) error
	// obey carries out orders other than orderSample, as far as they mean something to it.
	obey(o order)
}

// sampler is a loop's side of the goroutine that has the source in hand.
type sampler struct {
	orders  chan request
	answers chan sampled
	closed  atomic.Bool // released, and the session is closed
	asked   time.Time   // when it was asked for what it has not answered yet; zero if it is idle
	last    *snapshot   // the last answer
	spare   *snapshot
}

func startSampler(src source) *sampler {
	s := &sampler{
		orders: make(chan request, 16), answers: make(chan sampled, 1),
		last: &snapshot{}, spare: &snapshot{},
	}
	guard(func() { s.serve(src) })
	return s
}

// serve carries out orders until orderClose. It may hang in the driver for any time.
func (s *sampler) serve(src source) {
	for r := range s.orders {
		switch r.order {
		case orderSample:
			err := src.sample(r.snap)
			s.answers <- sampled{r.snap, err}
			continue
		case orderResume:
			s.closed.Store(false)
		}
		src.obey(r.order)
		switch r.order {
		case orderRelease:
			s.closed.Store(true)
		case orderClose:
			s.answers <- sampled{}
			return
		}
	}
}

// ask has the sampler collect, if it is idle.
func (s *sampler) ask() {
	if s.asked.IsZero() {
		s.asked = time.Now()
		s.orders <- request{orderSample, s.spare}
	}
}

// take makes snap, which was answered, the last one.
func (s *sampler) take(snap *snapshot) {
	s.last, s.spare = snap, s.last
	s.asked = time.Time{}
}

// order passes o on; false when the sampler hangs and its queue is as full as it may be: two places are
// kept for a sample and for closing, so that neither ever waits.
func (s *sampler) order(o order) bool {
	kept := 2
	if o == orderClose {
		kept = 0
	}
	if len(s.orders) >= cap(s.orders)-kept {
		return false
	}
	s.orders <- request{order: o}
	return true
}

// close has the sampler give back what it holds, unless it is in the driver's hands.
func (s *sampler) close() {
	if !s.order(orderClose) || !s.asked.IsZero() && time.Since(s.asked) > closeWait {
		return // it hangs in the driver
	}
	wait := time.After(closeWait)
	for {
		select {
		case a := <-s.answers:
			if a.snap == nil {
				return
			}
		case <-wait:
			return
		}
	}
}

// patience is how late an answer may be before the driver counts as silent.
func patience(interval time.Duration) time.Duration {
	return max(2*time.Second, interval*5/2)
}

// textLoop paces the text modes. It owns everything but what the sampler has in hand.
type textLoop struct {
	*sampler
	c      *config
	w      *textWriter
	x      *exports
	stderr io.Writer
	hosts  *hostReader // nil if nobody records the host
	system *hostState

	silent  bool // rows of "-" are being written
	next    successor
	trouble string    // with the files beside, as told last
	quiet   snapshot  // what a tick without an answer shows
	lacked  bool      // the last rows lacked a reading
	ticked  time.Time // when the last tick was
	primed  bool      // the first snapshot, which starts the first interval, is there
	ticks   int       // rows' ticks so far
	end     time.Time // of a run with -c, once it is known
	pending []string  // notes that no row has carried yet
	told    []string  // lines written between rows, which no record has carried yet
}

// newTextLoop makes the rows that c asks for, written to out. It has no source yet.
func newTextLoop(c *config, out, stdout *os.File, x *exports, stderr io.Writer) (*textLoop, error) {
	w := &textWriter{
		out: out, kind: c.kind, columns: c.columns, gpuRows: c.gpuRows, stamp: c.stamp, zone: time.Local,
		shows: func(*device) bool { return true },
	}
	if out == stdout && term.IsTerminal(int(stdout.Fd())) {
		if _, rows, err := term.GetSize(int(stdout.Fd())); err == nil {
			w.height = max(rows, 10)
		}
	}
	if info, err := out.Stat(); err == nil && c.file != "" && info.Mode().IsRegular() && info.Size() > 0 {
		w.headed = true // a csv file has one header, however many runs append to it
		if c.kind == csvRows && !hasHeader(c.file, w.csvHeader()) {
			return nil, badUsage("write to another file, or choose the columns that it has with -s", "-f %s: has other columns", c.file)
		}
	}
	w.headed = w.headed || c.from.ticks > 0
	if c.kind == procRows {
		w.columns = procColumns
	}
	return &textLoop{c: c, w: w, x: x, stderr: stderr, ticks: c.from.ticks, next: successor{handover: c.from}}, nil
}

// hasHeader says that the file begins with header.
func hasHeader(path, header string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	start := make([]byte, len(header))
	_, err = io.ReadFull(f, start)
	return err == nil && string(start) == header
}

// replay writes the rows of a recording as fast as it can be read; it answers the exit code.
func (l *textLoop) replay(src *replaySource) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	guard(func() {
		sig := <-signals
		removeProm()
		die(sig.(syscall.Signal))
	})
	var s snapshot
	var last time.Time
	for {
		err := src.sample(&s)
		if err == nil && !l.primed {
			l.primed = true
			err = l.begin(&s)
		}
		code := exitOK
		switch {
		case errors.Is(err, io.EOF):
		case err != nil:
			code = fail(l.stderr, err)
		default:
			l.w.skipped = !last.IsZero() && s.interval > 0 && s.at.Sub(last) > s.interval*3/2
			last = s.at
			code = l.rows(&s)
		}
		if code < 0 {
			continue
		}
		if src.skipped > 0 {
			fmt.Fprintf(l.stderr, "mig-gpu-mon: skipped %d line%s of the recording: not records\n", src.skipped, plural(src.skipped))
		}
		return code
	}
}

// run is the loop of the text modes; it answers the exit code.
func (l *textLoop) run() int {
	ending := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) { // nohup stays in force
		ending = append(ending, syscall.SIGHUP)
	}
	urgent, usr := l.relay(ending...), l.relay(syscall.SIGUSR1, syscall.SIGUSR2)
	start := time.Now()
	l.readHost(start)
	l.ask()
	tick, first, resume := time.NewTimer(l.c.interval), time.NewTimer(firstAnswer), time.NewTimer(time.Hour)
	resume.Stop()
	if l.next.tries > 0 {
		first.Stop() // it did answer, to the process before
	}
	end := l.deadline(l.c.from.deadline)
	for {
		code := -1
		select {
		case <-end:
			code = exitSilent // -c was not reached
		case <-l.next.ready:
			l.next.ticks, l.next.deadline = l.ticks, l.end
			code = fail(l.stderr, fmt.Errorf("%s (%w)", restartHint, l.next.exec(l.x)))
		case a := <-l.answers:
			early := l.next.early
			if l.next.watch(a) {
				if !early {
					fmt.Fprintln(l.stderr, "mig-gpu-mon: waiting for the driver: "+printable(a.err.Error()))
				}
				continue
			}
			if a.err != nil {
				return fail(l.stderr, a.err)
			}
			wasPrimed := l.primed
			code = l.answer(a.snap)
			if !wasPrimed && l.primed {
				// The grid starts where the first sample ended, so that the first row covers a whole interval.
				start = time.Now()
				l.ticked = start
				tick.Reset(l.c.interval)
				if l.end.IsZero() {
					end = l.deadline(start.Add(time.Duration(l.c.count)*l.c.interval + 10*time.Second))
				}
			}
		case <-tick.C:
			code = l.tick()
			tick.Reset(untilNext(start, time.Now(), l.c.interval))
		case <-first.C:
			code = l.stillNothing()
		case <-resume.C:
			code = l.signalled(orderResume, "resumed")
		case sig := <-usr:
			code = l.signal(sig, resume)
		case sig := <-urgent:
			code = l.signal(sig, resume)
		}
		if code >= 0 {
			l.close()
			return code
		}
	}
}

// signal is what a signal does; the answer is the exit code, -1 to go on.
func (l *textLoop) signal(sig os.Signal, resume *time.Timer) int {
	switch sig {
	case syscall.SIGUSR1:
		resume.Reset(releaseFor)
		says := "released: the NVML session is closed for 60 s (SIGUSR2 resumes)"
		if !l.asked.IsZero() {
			says = "will be released as soon as the driver answers, for 60 s (SIGUSR2 resumes)"
		}
		return l.signalled(orderRelease, says)
	case syscall.SIGUSR2:
		if !resume.Stop() {
			return -1
		}
		return l.signalled(orderResume, "resumed")
	}
	return 128 + int(sig.(syscall.Signal))
}

// deadline fires at the time at, when a run with -c has to end by itself. Should the loop be held in a write
// then, the program ends all the same. A zero time is none.
func (l *textLoop) deadline(at time.Time) <-chan time.Time {
	if at.IsZero() || l.c.count == 0 || time.Duration(l.c.count) > (1<<62)/l.c.interval {
		return nil
	}
	l.end = at
	guard(func() {
		time.Sleep(time.Until(at) + time.Second)
		os.Exit(exitSilent)
	})
	return time.After(time.Until(at))
}

// relay has signals come to a loop through forward.
func (s *sampler) relay(signals ...os.Signal) chan os.Signal {
	from, to := make(chan os.Signal, 8), make(chan os.Signal)
	signal.Notify(from, signals...)
	guard(func() { s.forward(from, to) })
	return to
}

// forward passes signals on to a loop. Should that be held in a write, by a pipe or a terminal that nobody
// reads, those that end the program end it all the same, and those about the driver reach the sampler first.
func (s *sampler) forward(from <-chan os.Signal, to chan<- os.Signal) {
	for sig := range from {
		select {
		case to <- sig:
			continue
		case <-time.After(time.Second):
		}
		switch sig {
		case syscall.SIGUSR1:
			s.order(orderRelease)
		case syscall.SIGUSR2:
			s.order(orderResume)
		default:
			leaveTerminal()
			removeProm()
			die(sig.(syscall.Signal))
		}
		to <- sig
	}
}

// stillNothing is what firstAnswer without an answer means.
func (l *textLoop) stillNothing() int {
	switch {
	case l.primed:
		return -1
	case l.c.count > 0:
		return l.noAnswer()
	}
	fmt.Fprintln(l.stderr, "mig-gpu-mon: the driver has not answered for 30 s; still waiting")
	return -1
}

func (l *textLoop) noAnswer() int {
	return fail(l.stderr, errors.New("the driver does not answer"))
}

// untilNext is the time from now to the next point of the grid that start and interval make.
func untilNext(start, now time.Time, interval time.Duration) time.Duration {
	left := interval - now.Sub(start)%interval
	if left < interval/4 { // it was late, and the next would follow at once
		left += interval
	}
	return left
}

// signalled passes on what a signal asked for and says so in the rows.
func (l *textLoop) signalled(o order, says string) int {
	if l.order(o) {
		l.next.rest(o == orderRelease)
	} else {
		says = "the driver does not answer: ignored"
	}
	if !l.w.started {
		l.pending = append(l.pending, says)
		return -1
	}
	return l.tell(says)
}

// tell writes a line between rows. The next record carries it too.
func (l *textLoop) tell(says string) int {
	l.told = append(l.told, says)
	return l.written(l.w.comment(says))
}

// readHost reads the host, if somebody records it.
func (l *textLoop) readHost(now time.Time) {
	if l.hosts != nil {
		l.hosts.read(l.system, now)
	}
}

// overdue says that an answer is late beyond patience.
func (l *textLoop) overdue() bool {
	return !l.asked.IsZero() && time.Since(l.asked) >= patience(l.c.interval)
}

// tick asks for the next sample; while one is overdue it writes rows of "-".
func (l *textLoop) tick() int {
	now := time.Now()
	if now.Sub(l.ticked) > l.c.interval*3/2 {
		l.w.skipped = true // stopped, or suspended with the machine
	}
	l.ticked = now
	l.readHost(now)
	if l.asked.IsZero() {
		l.ask()
		return -1
	}
	l.w.skipped = true
	if !l.primed || !l.overdue() {
		return -1
	}
	l.quiet.quiet(l.last, driverSilent, now)
	if !l.silent {
		l.silent = true
		l.quiet.notes = append(l.quiet.notes, "driver silent since "+l.asked.In(l.w.zone).Format(isoTime))
	}
	return l.rows(&l.quiet)
}

// answer receives a snapshot: the first starts the first interval, the others are rows, unless rows of "-"
// were written in their place.
func (l *textLoop) answer(s *snapshot) int {
	asked := l.asked
	l.take(s)
	s.interval, s.system = l.c.interval, l.system
	if !l.primed {
		l.primed = true
		l.pending = append(l.pending, s.notes...)
		if err := l.begin(s); err != nil {
			return fail(l.stderr, err)
		}
		return -1
	}
	if l.silent {
		l.silent = false
		// Part of what it says was read before the silence, so it makes no row.
		l.pending = append(l.pending, s.notes...)
		return l.tell(fmt.Sprintf("driver back after %s", time.Since(asked).Round(100*time.Millisecond)))
	}
	return l.rows(s)
}

// begin binds -id to the devices that are there now.
func (l *textLoop) begin(s *snapshot) error {
	shows, err := chooseDevices(s, l.c.ids, &l.next.bound)
	if err == nil {
		l.w.shows = shows
	}
	return err
}

// chooseDevices is which devices are shown: without ids all that are visible here. bound are the devices that
// ids were bound to, here or by a process before this one; then they may be away at the moment.
func chooseDevices(s *snapshot, ids []string, bound *[]string) (func(*device) bool, error) {
	if len(ids) == 0 {
		return func(d *device) bool { return d.fault != notVisible }, nil
	}
	chosen := *bound
	if len(chosen) > 0 {
		ids = nil
	}
	for _, id := range ids {
		found := matchID(s, id)
		if len(found) == 0 {
			return nil, &startError{"-id " + id + ": no such device here", knownIDs(s)}
		}
		chosen = append(chosen, found...)
	}
	*bound = chosen
	return func(d *device) bool {
		return slices.Contains(chosen, identity(d)) || d.gpuUUID != "" && slices.Contains(chosen, d.gpuUUID)
	}, nil
}

// identity is what -id binds to: the UUID, so that a device which takes another's number is not taken for
// it; the index of a GPU that does not tell its UUID.
func identity(d *device) string {
	if d.uuid == "" {
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
		old := !d.isGPU() && id == fmt.Sprintf("MIG-%s/%d/%d", d.gpuUUID, d.gi, d.ci)
		if id == own || bus || uuid || old {
			found = append(found, identity(d))
		}
	}
	return found
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
	recorded := append(l.told, s.notes...)
	l.pending, l.told = nil, nil
	if l.w.kind == jsonRows {
		s.notes = recorded
	}
	if code := l.written(l.w.tick(s)); code >= 0 {
		return code
	}
	s.notes = recorded
	l.x.write(s, l.w.shows)
	if says := l.x.trouble(); says != l.trouble {
		l.trouble = says
		if says == "" {
			says = "-prom file is back"
		}
		fmt.Fprintln(l.stderr, "mig-gpu-mon: "+says)
		l.pending = append(l.pending, says)
	}
	l.ticks++
	l.lacked = l.lacking(s)
	switch {
	case l.c.count == 0 || l.ticks < l.c.count:
		return -1
	case l.lacked:
		return exitSilent
	case l.trouble != "":
		return exitFailed // the rows are whole, what was asked for beside them is not
	}
	return exitOK
}

// lacking says that a selected device gave no reading in s: it is lost or silent, or memory is refused.
func (l *textLoop) lacking(s *snapshot) bool {
	seen := 0
	for i := range s.dev {
		d := &s.dev[i]
		if !l.w.shows(d) {
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

// screenLoop runs the dashboard. It owns the view, the history and the screen; the sampler and the
// reader of keys only send.
type screenLoop struct {
	*sampler
	c      *config
	x      *exports
	stderr io.Writer
	term   *terminal
	scr    screen
	typed  typed
	host   hostState
	hosts  *hostReader
	pss    *pssSampler // started by the first wish for it
	past   *history
	v      view

	chosen     deviceID // of the selection, which follows the device and not its number
	known      []listed // rows of the snapshot before
	gone       []listed // instances that were removed lately
	quiet      snapshot // what is recorded of a tick without an answer
	notes      []string // events of which only this loop knows, not recorded yet
	between    bool     // what was asked for is of no tick: it is shown, not recorded
	listMode   viewMode // of the lists, the one that Esc goes back to
	primed     bool     // the first snapshot is there
	noticeTill time.Time
	slot       int  // of history, of the tick that asked
	picked     bool // the view was chosen by key
	usr, winch chan os.Signal
	resume     *time.Timer // after SIGUSR1
	entered    bool        // something may be drawn

	next successor

	grid time.Time     // from which ticks are whole intervals away
	due  time.Time     // when the next tick is, or the next record; zero: not by itself
	tape bool          // a recording is played, and the clock is its own
	pace time.Duration // between two records, if it was given
	back bool          // what was asked for is the record before
}

// intervals are the steps of the keys + and -.
var intervals = [...]time.Duration{
	200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
}

func newScreenLoop(c *config, t *terminal, x *exports, stderr io.Writer) *screenLoop {
	l := &screenLoop{next: successor{handover: c.from}, c: c, x: x, stderr: stderr, term: t, past: newHistory(), hosts: newHostReader(procRoot, cgroupRoot)}
	l.scr.mono = c.noColor || colourless(os.Getenv)
	l.scr.ascii = c.ascii || asciiOnly(os.Getenv)
	l.listMode = viewNode
	l.v = view{host: &l.host, past: l.past, interval: c.interval, sel: -1, ascii: l.scr.ascii, pss: c.pss}
	if c.paced {
		l.pace = c.interval
	}
	return l
}

const (
	firstPaint = 300 * time.Millisecond // then a frame is shown even if the driver has not answered
	secondRead = 250 * time.Millisecond // after the first sample, for values that need two
	escapeWait = 50 * time.Millisecond
	noticeFor  = 5 * time.Second
)

// start sets all that sends to the loop going: signals, keys, the sampler with its first order.
func (l *screenLoop) start(src source) (urgent, cont chan os.Signal, keys chan []byte) {
	leaveTerminal = l.term.leave
	l.winch, cont, keys = make(chan os.Signal, 1), make(chan os.Signal, 1), make(chan []byte)
	signal.Notify(l.winch, syscall.SIGWINCH)
	signal.Notify(cont, syscall.SIGCONT)
	l.sampler = startSampler(src)
	urgent = l.relay(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	l.usr = l.relay(syscall.SIGUSR1, syscall.SIGUSR2)
	if l.term.tty != nil {
		guard(func() { readKeys(l.term.tty, keys) })
	}
	l.resume = time.NewTimer(time.Hour)
	l.resume.Stop()
	if _, l.tape = src.(*replaySource); l.tape {
		l.v.replay = true
	} else {
		now := time.Now()
		l.hosts.read(&l.host, now)
		l.slot = l.past.tick(now, l.v.interval, &l.host)
		l.between = true // for what needs two samples; the tick follows at once
	}
	l.ask()
	return urgent, cont, keys
}

// run is the event loop: whatever happened is handled, then everything that waits, then one frame.
func (l *screenLoop) run(src source) (code int) {
	defer func() {
		l.term.leave()
		if says := l.x.trouble(); says != "" {
			fmt.Fprintln(l.stderr, "mig-gpu-mon: "+says)
		}
	}()
	urgent, cont, keys := l.start(src)
	tick, paint, escape := time.NewTimer(0), time.NewTimer(firstPaint), time.NewTimer(0)
	<-tick.C
	<-escape.C
	second := time.NewTicker(time.Second) // for the clock and ages, where the ticks do not repaint often enough
	var armed time.Time
	for code = -1; code < 0; {
		l.regrid(second)
		if armed != l.due {
			if armed = l.due; armed.IsZero() {
				tick.Stop()
			} else {
				tick.Reset(time.Until(armed))
			}
		}
		if l.typed.waits() {
			escape.Reset(escapeWait)
		}
		waits := false // for an answer, with the frame
		select {
		case <-l.next.ready:
			l.term.leave()
			code = fail(l.stderr, fmt.Errorf("%s (%w)", restartHint, l.next.exec(l.x)))
		case a := <-l.answers:
			code = l.answered(a)
		case <-tick.C:
			armed = time.Time{}
			waits = l.tick()
		case <-paint.C:
			l.entered = true
		case b, ok := <-keys:
			if !ok {
				code = 128 + int(syscall.SIGHUP) // the terminal is gone
				break
			}
			l.typed.add(b)
			code = l.keys(false, cont)
		case <-escape.C:
			code = l.keys(true, cont)
		case <-l.resume.C:
			l.release(false)
		case <-cont:
			l.term.continued()
		case l.v.walked = <-l.walks():
		case <-second.C:
		case <-l.winch:
			l.resize()
		case sig := <-l.usr:
			if l.release(sig == syscall.SIGUSR1); l.v.paused && sig == syscall.SIGUSR1 {
				l.resume.Reset(releaseFor)
			}
		case sig := <-urgent:
			code = 128 + int(sig.(syscall.Signal))
		}
		if code < 0 && !waits && len(l.answers) == 0 && len(keys) == 0 {
			code = l.draw()
		}
	}
	l.term.leave()
	l.close()
	return code
}

// regrid begins a new grid of ticks after the interval was changed, and at the start.
func (l *screenLoop) regrid(second *time.Ticker) {
	if l.tape {
		second.Stop()
	} else if l.v.interval != l.c.interval || l.grid.IsZero() {
		l.c.interval, l.grid = l.v.interval, time.Now()
		l.due = l.grid.Add(l.v.interval)
		if second.Stop(); l.v.interval > time.Second {
			second.Reset(time.Second)
		}
	}
}

// answered takes what the sampler answered; it answers the exit code, -1 to go on.
func (l *screenLoop) answered(a sampled) int {
	switch {
	case l.next.watch(a):
		return -1
	case l.tape && a.err != nil && l.v.snap != nil:
		l.ends(a.err)
		return -1
	case a.err != nil:
		l.term.leave()
		return fail(l.stderr, a.err)
	}
	code := l.answer(a.snap)
	if !l.entered && !l.tape {
		l.due = time.Now().Add(secondRead)
		l.grid = l.due.Add(-l.v.interval)
		l.past.interval = 0 // the grid of slots starts anew with that of the ticks
	}
	l.entered = true
	return code
}

// release gives the driver up or takes it up again.
func (l *screenLoop) release(yes bool) {
	l.resume.Stop() // what a signal began ends with it, or with any other word
	if l.tape || !yes && !l.v.paused {
		return // there is nothing to release, or to resume
	}
	o := orderResume
	if yes {
		o = orderRelease
	}
	if !l.order(o) {
		l.say("the driver does not answer")
		return
	}
	l.v.paused, l.v.resuming = yes, !yes
	l.next.rest(yes)
	if !yes && l.asked.IsZero() {
		l.slot, l.between = l.past.slot, true
		l.ask()
	}
	l.notes = append(l.notes, map[bool]string{true: "released: the NVML session is closed", false: "resumed"}[yes])
}

// testOnlyTick lets a test make the loop itself panic.
var testOnlyTick = func() {}

// tick is a point of the grid: the driver is asked, and the frame waits for its answer. If it still owes
// the one before, a gap is what history gets, and the frame is drawn at once. Of a recording it is the time of the
// next record.
func (l *screenLoop) tick() (wait bool) {
	testOnlyTick()
	if l.tape {
		l.due = time.Time{}
		l.ask()
		return true
	}
	now := time.Now()
	l.due = now.Add(untilNext(l.grid, now, l.v.interval))
	l.hosts.read(&l.host, now)
	l.askShares()
	slot := l.past.tick(now, l.v.interval, &l.host)
	if l.v.paused || !l.asked.IsZero() {
		l.recordQuiet(now)
		return false
	}
	l.slot, l.between = slot, false
	l.ask()
	return true
}

// recordQuiet records that there is no answer, once the driver counts as silent or is released.
func (l *screenLoop) recordQuiet(now time.Time) {
	why := driverSilent
	if l.v.paused {
		why = released
	}
	if l.primed && (l.v.paused || now.Sub(l.asked) >= patience(l.v.interval)) {
		l.quiet.quiet(l.last, why, now)
		l.record(&l.quiet)
	}
}

// record passes s to the files beside, with what happened in this loop.
func (l *screenLoop) record(s *snapshot) {
	if l.x.any() {
		s.notes = append(l.notes, s.notes...)
		l.x.write(s, l.c.shows)
	}
	l.notes = nil
	l.v.broken = l.x.trouble()
}

// walks is where the PSS sampler answers, nil before it was started.
func (l *screenLoop) walks() chan map[procID]pssState {
	if l.pss == nil {
		return nil
	}
	return l.pss.states
}

// askShares asks for PSS and USS of the processes there are, while they are shown.
func (l *screenLoop) askShares() {
	if !l.v.pss || l.v.snap == nil {
		return
	}
	if l.pss == nil {
		l.pss = startPSS(procRoot, guard)
	}
	var list []pssWant
	for i := range l.v.snap.proc {
		p := &l.v.snap.proc[i]
		if rss, ok := p.rss.num(); ok && p.known {
			list = append(list, pssWant{procID{p.pid, p.start}, rss, l.v.snap.dev[p.dev].id() == l.chosen})
		}
	}
	l.pss.ask(list)
}

// answer takes a snapshot into history and lists.
func (l *screenLoop) answer(s *snapshot) int {
	l.take(s)
	if l.tape {
		l.play(s)
	} else {
		s.interval, s.system = l.v.interval, &l.host
	}
	l.past.fill(l.slot, s)
	l.v.resuming = l.v.paused
	if !l.primed {
		l.primed = true
		if code := l.begin(s); code >= 0 {
			return code
		}
	}
	l.v.snap = s
	l.list(s)
	if n := len(s.notes); n > 1 {
		l.say(fmt.Sprintf("%s (and %d more)", s.notes[n-1], n-1))
	} else if n == 1 {
		l.say(s.notes[0])
	}
	if l.between {
		l.notes = append(l.notes, s.notes...)
	} else {
		l.record(s)
	}
	return -1
}

// play takes the record s: the host and the place in history are its own, and so is the time of the next.
func (l *screenLoop) play(s *snapshot) {
	l.host = hostState{}
	if s.system != nil {
		l.host = *s.system
	}
	there := false
	switch {
	case l.back:
		there = l.past.undo(s.at)
		l.known, l.gone = l.known[:0], nil
	case s.tape.anew:
		*l.past = *newHistory()
		l.known, l.gone = l.known[:0], nil
		l.say("the demo begins again")
	}
	l.back = false
	if s.interval > 0 {
		l.v.interval = s.interval
	} else if l.v.snap == nil && s.tape.next > 0 { // gpur does not tell it
		l.v.interval = min(max(s.tape.next, minInterval), maxInterval)
	}
	if l.slot = l.past.slot; !there {
		l.slot = l.past.tick(s.at, l.v.interval, &l.host)
	}
	l.cue(s)
}

// ends keeps the last record on the screen when there is no other, or none that can be read.
func (l *screenLoop) ends(err error) {
	l.asked, l.back, l.due = time.Time{}, false, time.Time{}
	l.v.snap.tape.next = 0
	if !errors.Is(err, io.EOF) {
		l.say(err.Error())
	}
}

// cue sets when the record after s is shown.
func (l *screenLoop) cue(s *snapshot) {
	l.due = time.Time{}
	if l.v.stopped || s == nil || s.tape.next == 0 {
		return
	}
	const longest, shortened, shortest = 10 * time.Second, time.Second, 20 * time.Millisecond
	wait := s.tape.next
	if wait > longest {
		wait = shortened
	}
	if l.pace > 0 {
		wait = l.pace
	}
	l.due = time.Now().Add(max(time.Duration(float64(wait)*math.Pow(2, float64(-l.v.speed))), shortest))
}

// control is a key that means something else, or something at all, when a recording is played; false if it
// has its usual meaning.
func (l *screenLoop) control(k key) bool {
	if !l.tape {
		return false
	}
	s := l.v.snap
	switch k {
	case ' ', 'p':
		l.v.stopped = !l.v.stopped
	case '+':
		l.v.speed = min(l.v.speed+1, 6)
	case '-':
		l.v.speed = max(l.v.speed-1, -3)
	case '.', ',':
		l.v.stopped = true
		if s == nil || !l.asked.IsZero() || k == '.' && s.tape.next == 0 {
			break
		}
		if k == ',' && !s.tape.back {
			l.say("this recording goes back no further")
			break
		}
		l.back = k == ',' && l.order(orderBack)
		if l.back || k == '.' {
			l.ask()
		}
	case 'm':
		l.say("a recording has no PSS")
	default:
		return false
	}
	l.cue(s)
	return true
}

// clock is the time of what is shown.
func (l *screenLoop) clock() time.Time {
	if l.tape {
		return l.last.at
	}
	return time.Now()
}

// say shows text in the header for a while, or until the next key.
func (l *screenLoop) say(text string) {
	l.v.notice, l.noticeTill = text, time.Now().Add(noticeFor)
}

// begin finds where the selection starts: on an instance that runs a process of this user, else on one
// named in CUDA_VISIBLE_DEVICES, else on the first instance or whole GPU.
func (l *screenLoop) begin(s *snapshot) int {
	shows, err := chooseDevices(s, l.c.ids, &l.next.bound)
	if err != nil {
		l.term.leave()
		return fail(l.stderr, err)
	}
	l.c.shows = shows
	if !l.picked {
		l.v.mode = l.firstMode(s)
	}
	if l.tape {
		l.chosen = firstChoice(s, shows) // who watches is not who was watched
		return -1
	}
	// The number too: names are looked up in the background and seldom there yet.
	mine := []string{strconv.Itoa(os.Getuid())}
	if u, err := user.Current(); err == nil {
		mine = append(mine, u.Username)
	}
	for _, p := range s.proc {
		if p.known && slices.Contains(mine, p.user) && shows(&s.dev[p.dev]) {
			l.chosen = s.dev[p.dev].id()
			return -1
		}
	}
	for _, id := range strings.Split(os.Getenv("CUDA_VISIBLE_DEVICES"), ",") {
		for i := range s.dev {
			if id != "" && slices.Contains(matchID(s, id), identity(&s.dev[i])) && shows(&s.dev[i]) {
				l.chosen = s.dev[i].id()
				return -1
			}
		}
	}
	l.chosen = firstChoice(s, shows)
	return -1
}

// firstChoice is the first instance or GPU without any: a GPU with instances has the least to show.
func firstChoice(s *snapshot, shows func(*device) bool) deviceID {
	for i := range s.dev {
		if d := &s.dev[i]; shows(d) && d.rows == 0 {
			return d.id()
		}
	}
	return deviceID{}
}

// firstMode is the view to start with: detail if its list has room for all devices, else the table if
// that has, else all GPUs at once.
func (l *screenLoop) firstMode(s *snapshot) viewMode {
	devices, rows := 0, 0
	for i := range s.dev {
		if d := &s.dev[i]; l.c.shows(d) {
			devices++
			if d.rows == 0 {
				rows++
			}
		}
	}
	w, h := l.term.size(os.Getenv)
	switch {
	case devices <= layout(w, h, len(allLinesInstance)+1, devices, 0).devices.h-1:
		return viewDetail
	case rows <= h-3:
		return viewTable
	}
	return viewNode
}

// list makes the rows of the lists: the devices there are, and for a while those that were removed.
func (l *screenLoop) list(s *snapshot) {
	now := l.clock()
	for _, old := range l.known {
		if !old.isGPU() && !slices.ContainsFunc(s.dev, func(d device) bool { return d.id() == old.id() }) {
			old.removed = now
			l.gone = append(l.gone, old)
		}
	}
	l.gone = slices.DeleteFunc(l.gone, func(d listed) bool { return now.Sub(d.removed) > keepRemoved })
	l.known, l.v.rows = l.known[:0], l.v.rows[:0]
	for i := range s.dev {
		d := &s.dev[i]
		if !l.c.shows(d) {
			continue
		}
		l.known = append(l.known, listed{device: *d})
		l.v.rows = append(l.v.rows, listed{device: *d})
		if i+1 == len(s.dev) || s.dev[i+1].isGPU() {
			for _, g := range l.gone {
				if g.gpu == d.gpu {
					l.v.rows = append(l.v.rows, g)
				}
			}
		}
	}
	l.arrange()
}

// arrange sorts the rows as the view wants them and finds the selected one. One that was removed is
// followed to its GPU, never to what took its row.
func (l *screenLoop) arrange() {
	if l.v.mode == viewTable {
		l.v.rows = slices.DeleteFunc(l.v.rows, func(d listed) bool { return d.isGPU() && d.rows > 0 })
		sortRows(l.v.rows, l.v.sort)
	}
	at := slices.IndexFunc(l.v.rows, func(d listed) bool { return d.id() == l.chosen && d.removed.IsZero() })
	if at < 0 {
		at = slices.IndexFunc(l.v.rows, func(d listed) bool { return d.gpu == l.chosen.gpu && d.isGPU() })
	}
	l.choose(max(at, 0))
}

// choose selects row i, or the nearest there is.
func (l *screenLoop) choose(i int) {
	l.v.sel = min(max(i, 0), len(l.v.rows)-1)
	if d := l.v.selected(); d != nil {
		l.chosen = d.id()
	}
}

// keys handles what was typed; final when no more is coming.
func (l *screenLoop) keys(final bool, cont <-chan os.Signal) int {
	for {
		k, seq := l.typed.next(final)
		if k == keyNone {
			return -1
		}
		l.v.notice = ""
		if code := l.key(k, seq, cont); code >= 0 {
			return code
		}
	}
}

func (l *screenLoop) key(k key, seq []byte, cont <-chan os.Signal) int {
	if l.v.help && k != keyReport && k != 'q' && k != keyCtrlC && k != keyCtrlZ {
		l.v.help = false
		return -1
	}
	if l.control(k) {
		return -1
	}
	switch k {
	case 'q', keyCtrlC:
		return exitOK
	case keyCtrlZ:
		l.term.suspend(cont)
	case keyCtrlL:
		l.scr.lost = true
	case keyReport:
		if narrow, ok := probeReply(seq); ok && !narrow {
			l.scr.ascii, l.v.ascii, l.scr.lost = true, true, true
		}
	case '?', 'h':
		l.v.help = true
	case 'v':
		l.setMode((l.v.mode + 1) % viewModes)
	case keyEnter:
		l.setMode(viewDetail)
	case keyEsc:
		if l.v.mode == viewDetail {
			l.setMode(l.listMode)
		}
	case 's':
		l.v.sort = (l.v.sort + 1) % sortOrders
		l.say("table sorted by " + sortWords[l.v.sort])
		l.relist()
	case 'm':
		l.v.pss = !l.v.pss
		l.askShares()
	case 'p':
		l.release(!l.v.paused)
	case '+', '-':
		l.step(k == '+')
	default:
		l.move(k)
	}
	return -1
}

func (l *screenLoop) setMode(m viewMode) {
	l.picked = true
	if l.v.mode != viewDetail {
		l.listMode = l.v.mode
	}
	l.v.mode = m
	l.relist()
}

// relist makes the rows anew after a change of how they are shown.
func (l *screenLoop) relist() {
	if l.v.snap != nil {
		l.list(l.v.snap)
	}
}

// step takes the next longer or shorter interval.
func (l *screenLoop) step(longer bool) {
	for i, d := range intervals {
		if longer && d > l.v.interval || !longer && d < l.v.interval && (i+1 == len(intervals) || intervals[i+1] >= l.v.interval) {
			l.v.interval = d
			return
		}
	}
}

// move changes the selection.
func (l *screenLoop) move(k key) {
	page := max(l.scr.want.h/3, 1)
	switch k {
	case keyTab, keyDown, keyRight, 'j':
		l.stepRow(1)
	case keyShiftTab, keyUp, keyLeft, 'k':
		l.stepRow(-1)
	case keyPgDn:
		l.choose(l.v.sel + page)
	case keyPgUp:
		l.choose(l.v.sel - page)
	case keyHome:
		l.choose(0)
	case keyEnd:
		l.choose(len(l.v.rows) - 1)
	case '[', ']':
		l.moveGPU(k == ']')
	}
}

// stepRow selects the next row up or down of a device that is there.
func (l *screenLoop) stepRow(by int) {
	for i := l.v.sel + by; i >= 0 && i < len(l.v.rows); i += by {
		if l.v.rows[i].removed.IsZero() {
			l.choose(i)
			return
		}
	}
}

// moveGPU selects the next or previous GPU.
func (l *screenLoop) moveGPU(next bool) {
	gpu := -1
	if d := l.v.selected(); d != nil {
		gpu = d.gpu
	}
	best := -1 // the first row of the GPU with the nearest number
	for i := range l.v.rows {
		g := l.v.rows[i].gpu
		if next && g > gpu && (best < 0 || g < l.v.rows[best].gpu) || !next && g < gpu && (best < 0 || g > l.v.rows[best].gpu) {
			best = i
		}
	}
	if best >= 0 {
		l.choose(best)
	}
}

func (l *screenLoop) resize() {
	l.scr.resize(l.term.size(os.Getenv))
	l.scr.lost = true
}

// draw paints and flushes one frame, if the terminal is ours. A terminal that is gone ends the program, as
// its SIGHUP would; whoever reads keys learns of it sooner.
func (l *screenLoop) draw() int {
	if !l.entered {
		return -1
	}
	fresh, err := l.term.enter()
	if err != nil {
		return gone(err)
	}
	if fresh {
		l.resize()
		if !l.scr.ascii {
			_, _ = l.term.Write([]byte(widthProbe))
		}
	}
	l.v.now = l.clock()
	if time.Now().After(l.noticeTill) {
		l.v.notice = ""
	}
	l.v.silent, l.v.closed = 0, l.closed.Load()
	if l.tape {
		// A disk that is slow is no silent driver.
	} else if late := time.Since(l.asked); !l.asked.IsZero() && late >= patience(l.v.interval) {
		l.v.silent = late
	} else if (l.v.paused || l.v.resuming) && l.v.snap != nil {
		l.v.silent = time.Since(l.v.snap.at)
	}
	paint(&l.scr.want, &l.v)
	return gone(l.scr.flush(l.term)) // after any other error the next frame draws everything again
}

// gone is the exit code if err says that the terminal is no more, else -1.
func gone(err error) int {
	if errors.Is(err, syscall.EIO) {
		return 128 + int(syscall.SIGHUP)
	}
	return -1
}
