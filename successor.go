// successor.go owns handing over to a new process: when the driver was upgraded under this one, its library can
// never be used here again.
//
// Invariant: what the run has done so far goes along, so that rows, -c and -id go on as if nothing had been.
package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

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

// successor is the session's watch over whether a new process has to take this one's place.
type successor struct {
	*handover
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
	ready, stop, h := make(chan struct{}, 1), make(chan struct{}), *w.handover
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
