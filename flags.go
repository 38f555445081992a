// flags.go owns the command line: the table of options, what -h prints, the checks, and what -id names.
//
// Invariant: a config that left parse is consistent; no other file reads the command line.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

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
	paced     bool     // the interval was given
	from      handover // what a process before this one left, and the next one needs
	text      bool     // rows were asked for; else a terminal gets the dashboard
	ascii     bool
	pss       bool
	noColor   bool
	shows     func(*device) bool // what -id chose, once the first snapshot is there
}

const maxInterval = time.Hour

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
	case given["id"] && strings.Trim(w.ids, ", ") == "":
		return nil, badUsage("leave -id out to see all", "-id is empty")
	}
	if err := cmp.Or(c.chooseMode(w, given), checkFiles(c, given), playable(c, given)); err != nil {
		return nil, err
	}
	c.paced = given["i"] || given["interval"]
	if !given["o"] {
		w.stamp = "-"
	} else if w.stamp == "-" {
		w.stamp = "?"
	}
	return c, c.choose(w)
}

// chooseMode takes the mode, and refuses flags that do not go with it or with each other.
func (c *config) chooseMode(w *words, given map[string]bool) error {
	mode, modes := "", 0
	for name, on := range w.modes {
		if *on {
			mode, c.kind, modes = name, modeKinds[name], modes+1
		}
	}
	c.text = modes > 0 || given["c"] || given["s"] || given["o"] || given["f"]
	switch {
	case given["d"]:
		return badUsage(intervalHint, "-d %s: there is no -d", w.delay)
	case given["i"] && given["interval"]:
		return badUsage("", "-i and -interval are the same flag")
	case modes > 1:
		return badUsage("choose one of -plain, -csv, -procs and -json", "more than one mode given")
	case given["c"] && c.count < 1:
		return badUsage("leave -c out to go on for ever", "-c %d: must be at least 1", c.count)
	case given["s"] && (c.kind == procRows || c.kind == jsonRows):
		return badUsage("-s chooses columns of -plain and -csv", "-%s has columns of its own", mode)
	case given["o"] && (c.kind == csvRows || c.kind == jsonRows):
		return badUsage("each row has its time anyway", "-%s and -o exclude each other", mode)
	}
	return nil
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
