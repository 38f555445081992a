// mig-gpu-mon shows activity, memory and processes of every NVIDIA MIG instance, live.
//
// main.go owns the choice of mode, exit codes and how the program ends.
//
// Invariants: os.Exit is called in this file alone; every goroutine starts through guard, so that a panic in any of
// them finds the terminal restored.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync"
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

// run is the program: it answers the exit code, above 128 to die of that signal.
func run(args []string, stdout, stderr *os.File) int {
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
	s, err := open(c, stdout, stderr)
	if err != nil {
		return fail(stderr, err)
	}
	return s.run()
}

// open makes the session that c asks for: what is written to, where snapshots come from, and what shows them.
func open(c *config, stdout, stderr *os.File) (*session, error) {
	out, err := openOutput(c, stdout)
	if err != nil {
		return nil, err
	}
	screen := !c.text && term.IsTerminal(int(stdout.Fd())) && os.Getenv("TERM") != "" && os.Getenv("TERM") != "dumb"
	c.from = takeHandover()
	var x exports
	if err := x.open(c); err != nil {
		return nil, err
	}
	var rows *stream
	want := everything()
	if !screen {
		if rows, err = newStream(c, out, stdout, stderr); err != nil {
			return nil, err
		}
		if c.kind != jsonRows && !x.any() {
			want = rows.w.wanted()
		}
	}
	var src source
	if c.replay != "" || c.demo {
		src, err = openRecording(c, out, screen, stderr)
	} else {
		src, err = openDriver(c, want, stderr)
	}
	if err != nil {
		return nil, err
	}
	if screen {
		return newSession(c, src, newDisplay(c, openTerminal(os.Stdin, stdout)), &x, stderr), nil
	}
	return newSession(c, src, rows, &x, stderr), nil
}

// openOutput is the file of -f, or else standard output.
func openOutput(c *config, stdout *os.File) (*os.File, error) {
	if c.file == "" {
		return stdout, nil
	}
	mode := os.FileMode(0o644)
	if c.kind == jsonRows {
		mode = 0o600 // as -log: it has the command lines of all
	}
	// Not blocking, so that a FIFO that nobody reads is an error now and not a program that hangs.
	out, err := os.OpenFile(c.file, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NONBLOCK, mode)
	if err != nil {
		return nil, fmt.Errorf("opening -f file: %w", err)
	}
	return out, nil
}

// openDriver is NVML, not loaded yet, asked for what is in want.
func openDriver(c *config, want [deviceMetrics]bool, stderr io.Writer) (src *nvmlSource, err error) {
	src = &nvmlSource{path: c.nvmlPath, policy: c.policy, want: want}
	if secureExec() && (c.nvmlPath != "" || os.Getenv("LD_LIBRARY_PATH") != "") {
		src.path = ""
		fmt.Fprintln(stderr, "mig-gpu-mon: running with more rights than its user: -nvml-path and LD_LIBRARY_PATH are ignored")
	}
	if c.debugFile != "" {
		if src.debug, err = openCallLog(c.debugFile); err != nil {
			return nil, err
		}
	}
	host, _ := os.Hostname()
	src.host = printable(host)
	src.procs = newProcReader(procRoot, guard)
	return src, nil
}

const cgroupRoot = "/sys/fs/cgroup"

// everything is all metrics.
func everything() (want [deviceMetrics]bool) {
	for m := range want {
		want[m] = true
	}
	return want
}

// openRecording is the recording that c names.
func openRecording(c *config, out *os.File, screen bool, stderr io.Writer) (src *replaySource, err error) {
	if c.demo {
		src, err = openDemo(screen || c.count > 0)
	} else {
		src, err = openReplay(c.replay)
	}
	switch {
	case err != nil:
		return nil, err
	case sameFile(src.in, out):
		return nil, badUsage("write to another file", "-replay %s: would be read and written at once", c.replay)
	case c.text && c.kind == csvRows && c.demo:
		fmt.Fprintln(stderr, "mig-gpu-mon: "+demoLabel) // there are no # lines to say so
	}
	return src, nil
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

// endAt ends the program at the time at, if nothing else has, also while it is held in a write.
func endAt(at time.Time, code int) {
	guard(func() {
		time.Sleep(time.Until(at))
		os.Exit(code)
	})
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
