// session.go owns what runs between a source of snapshots and what is shown: the sampler and its orders, the
// files of -log and -prom, signals, and handing over to a new process when the driver was upgraded.
//
// Invariants: a loop never waits for the driver: the sampler answers when it can, and a tick without an answer is
// a tick without an answer. While released, nothing touches the driver.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	firstAnswer = 30 * time.Second // how long the driver may take to give anything at all
	closeWait   = 200 * time.Millisecond
	releaseFor  = 60 * time.Second // after SIGUSR1
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

// untilNext is the time from now to the next point of the grid that start and interval make.
func untilNext(start, now time.Time, interval time.Duration) time.Duration {
	left := interval - now.Sub(start)%interval
	if left < interval/4 { // it was late, and the next would follow at once
		left += interval
	}
	return left
}
