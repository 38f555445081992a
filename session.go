// session.go owns the one event loop, between a source of snapshots and the front that shows them: the grid of ticks,
// the sampler and its orders, a silent driver, release and resume, signals, and the files of -log and -prom.
//
// Invariants: the loop never waits for the driver: the sampler answers when it can, and a tick without an answer is
// a tick without an answer; while released, nothing touches the driver; a front sees ticks, snapshots, silence and
// what the session did in order, from one goroutine.
package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
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

// front is what shows snapshots: rows (stream) or the full screen (display). What it answers is what it wants.
type front interface {
	// tick is a point of the grid. An answer of the driver will come for it, unless it owes one still.
	tick(now time.Time, host *hostState, asked bool) orders
	// snapshot is an answer, or the next record. What is between belongs to no tick: no row, no record.
	snapshot(now time.Time, s *snapshot, between bool) orders
	// silence is a tick without an answer: s has the devices without numbers.
	silence(s *snapshot) orders
	// say tells what the session did, or what happened to it.
	say(text string) orders
	// release says that the driver was given up, or is taken up again.
	release(yes bool) orders
	// ended says that a recording has no other record (io.EOF), or none that can be read.
	ended(err error) orders
	// due is when wake is to be called, zero for never.
	due() time.Time
	wake(now time.Time) orders
	// close gives the terminal back, and may be called again.
	close()
}

// orders are what a front wants of the session.
type orders struct {
	done     bool // the program ends, with code
	code     int
	next     time.Duration // the next tick is so far away, and the grid with it; 0: as it was
	interval time.Duration // ticks are so far apart from now on; 0: as they were
	sample   bool          // a snapshot of no tick, or the next record
	back     bool          // and that is the record before
	release  bool
	resume   bool
	walk     bool     // memory shares of processes,
	first    deviceID // of this device's first
}

// end is the program's end with code.
func end(code int) orders { return orders{done: true, code: code} }

// session runs the program. It owns everything but what the sampler has in hand.
type session struct {
	*sampler
	c       *config
	x       *exports
	front   front
	display *display // the front, if that is the full screen
	stderr  io.Writer
	next    successor
	tape    bool        // a recording is played, and the clock is its own
	hosts   *hostReader // nil if nobody wants the host
	host    *hostState
	pss     *pssSampler // started by the first wish for it
	walked  map[procID]pssState

	primed   bool // the first snapshot is there
	between  bool // what was asked for is of no tick
	silent   bool // ticks without an answer are being shown
	paused   bool // released
	resumeAt time.Time
	grid     time.Time // from which ticks are whole intervals away
	due      time.Time // when the next tick is; of a recording there are none
	quiet    snapshot  // what a tick without an answer shows
	notes    []string  // what happened here and no record has carried yet
	trouble  string    // with the files beside, as told last
}

// newSession is a session that shows what src has on f.
func newSession(c *config, src source, f front, x *exports, stderr io.Writer) *session {
	s := &session{c: c, x: x, front: f, stderr: stderr, next: successor{handover: &c.from}}
	s.display, _ = f.(*display)
	_, s.tape = src.(*replaySource)
	if !s.tape && (s.display != nil || c.kind == jsonRows || x.any()) {
		s.hosts, s.host = newHostReader(procRoot, cgroupRoot), &hostState{}
	}
	s.sampler = startSampler(src)
	return s
}

// run is the event loop: whatever happened is handled, then one frame is drawn. It answers the exit code.
func (s *session) run() (code int) {
	ending := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) { // nohup stays in force
		ending = append(ending, syscall.SIGHUP)
	}
	urgent, driver := s.relay(ending...), s.relay(syscall.SIGUSR1, syscall.SIGUSR2)
	var in inputs
	if s.display != nil {
		in = s.display.listen()
	}
	s.begin(time.Now())
	timer, armed := time.NewTimer(time.Hour), time.Time{}
	for code = goOn; code < 0; {
		if wake := earliest(s.due, s.resumeAt, s.front.due()); wake != armed {
			armed = wake
			timer.Reset(until(wake))
		}
		waits := false // for an answer, with the frame
		select {
		case <-s.next.ready:
			code = s.handOver()
		case a := <-s.answers:
			code = s.answered(a)
		case <-timer.C:
			armed = time.Time{}
			code, waits = s.wake(time.Now())
		case known := <-s.walks():
			s.walked = known
			s.share(s.last)
		case sig := <-driver:
			code = s.signalled(sig)
		case sig := <-urgent:
			code = 128 + int(sig.(syscall.Signal))
		case b, ok := <-in.keys:
			if code = 128 + int(syscall.SIGHUP); ok { // without a terminal it ends as by its SIGHUP
				s.display.typing.add(b)
				code = s.typed(false)
			}
		case <-in.resized:
			s.display.resize()
		case <-in.continued:
			s.display.term.continued()
		}
		if code < 0 && s.display != nil && !waits && len(s.answers) == 0 {
			code = s.display.draw(time.Now(), s.late(), s.closed.Load(), s.trouble)
		}
	}
	s.end()
	return code
}

// goOn stands for an exit code while there is none.
const goOn = -1

// earliest is the first of times, of which zero ones do not count.
func earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if first.IsZero() || !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first
}

// until is how long it is to t, for ever if that is zero.
func until(t time.Time) time.Duration {
	if t.IsZero() {
		return math.MaxInt64
	}
	return time.Until(t)
}

// passed says that t is set and not after now.
func passed(t, now time.Time) bool { return !t.IsZero() && !now.Before(t) }

// begin asks for the first snapshot.
func (s *session) begin(now time.Time) {
	if !s.tape {
		s.startGrid(now, s.c.interval)
		s.readHost(now)
		s.between = true
		s.do(s.front.tick(now, s.host, true))
	}
	s.ask()
}

// end gives back what is held, the terminal first.
func (s *session) end() {
	s.front.close()
	if s.display != nil && s.trouble != "" {
		fmt.Fprintln(s.stderr, "mig-gpu-mon: "+s.trouble)
	}
	s.close()
}

// startGrid has the next tick be first from now, and the others whole intervals from it.
func (s *session) startGrid(now time.Time, first time.Duration) {
	s.due = now.Add(first)
	s.grid = s.due.Add(-s.c.interval)
}

// do carries out what a front wants; it answers the exit code, goOn without one.
func (s *session) do(o orders) int {
	switch {
	case o.done:
		return o.code
	case o.interval > 0:
		s.c.interval = o.interval
		s.startGrid(time.Now(), o.interval)
	case o.next > 0:
		s.startGrid(time.Now(), o.next)
	}
	if o.walk {
		s.walk(o.first)
	}
	if o.release || o.resume {
		return s.release(o.release, "released: the NVML session is closed")
	}
	if o.sample && s.asked.IsZero() && (!o.back || s.order(orderBack)) {
		s.between = !s.tape
		s.ask()
	}
	return goOn
}

// wake does what is due; waits says that the driver was asked, and the frame may wait for its answer.
func (s *session) wake(now time.Time) (code int, waits bool) {
	code = goOn
	if passed(s.resumeAt, now) {
		code = s.release(false, "")
	}
	if code < 0 && s.display != nil && passed(s.display.escapeAt, now) {
		code = s.typed(true)
	}
	if code < 0 && passed(s.front.due(), now) {
		code = s.do(s.front.wake(now))
	}
	if code < 0 && passed(s.due, now) {
		code, waits = s.tick(now)
	}
	return code, waits || code < 0 && s.tape && !s.asked.IsZero()
}

// typed handles the keys that have come; final when no more is coming.
func (s *session) typed(final bool) int {
	for {
		o, more := s.display.typed(time.Now(), final)
		if code := s.do(o); code >= 0 || !more {
			return code
		}
	}
}

// testOnlyTick lets a test make the loop itself panic.
var testOnlyTick = func() {}

// tick is a point of the grid: the driver is asked, unless it owes an answer still. Once that is overdue, what
// there is to show is that there is none.
func (s *session) tick(now time.Time) (code int, asked bool) {
	testOnlyTick()
	s.due = now.Add(untilNext(s.grid, now, s.c.interval))
	s.readHost(now)
	if asked = s.asked.IsZero(); asked {
		s.between = false
		code = s.do(s.front.tick(now, s.host, true))
		s.ask()
		return code, true
	}
	if code = s.do(s.front.tick(now, s.host, false)); code >= 0 || !s.primed || !s.overdue(now) {
		return code, false
	}
	s.quiet.quiet(s.last, driverSilent, now)
	if !s.silent {
		s.silent = true
		s.quiet.notes = append(s.quiet.notes, "driver silent since "+s.asked.Format(isoTime))
	}
	return s.recorded(&s.quiet, s.front.silence(&s.quiet)), false
}

// overdue says that an answer is late beyond patience.
func (s *session) overdue(now time.Time) bool {
	return !s.asked.IsZero() && now.Sub(s.asked) >= patience(s.c.interval)
}

// late is how long an answer of the driver is overdue. A disk that is slow is no silent driver.
func (s *session) late() time.Duration {
	if now := time.Now(); !s.tape && s.overdue(now) {
		return now.Sub(s.asked)
	}
	return 0
}

// readHost reads the host, if somebody wants it.
func (s *session) readHost(now time.Time) {
	if s.hosts != nil {
		s.hosts.read(s.host, now)
	}
}

// answered takes what the sampler answered.
func (s *session) answered(a sampled) int {
	early := s.next.early
	if s.next.watch(a) {
		if !early && s.display == nil {
			fmt.Fprintln(s.stderr, "mig-gpu-mon: waiting for the driver: "+printable(a.err.Error()))
		}
		return goOn
	}
	switch {
	case a.err != nil && s.tape && s.primed:
		s.asked = time.Time{}
		return s.do(s.front.ended(a.err))
	case a.err != nil:
		return s.fail(a.err)
	}
	return s.answer(a.snap)
}

// fail is the end for the reason err, told on the normal screen.
func (s *session) fail(err error) int {
	s.front.close()
	return fail(s.stderr, err)
}

// answer hands a snapshot to the front and to the files beside. Part of what comes after a silence was read before
// it, so it belongs to no tick.
func (s *session) answer(snap *snapshot) int {
	asked, between := s.asked, s.between || s.silent
	if s.asked = (time.Time{}); !s.paused { // what is shown stays, and so do its values
		s.take(snap)
	}
	if !s.tape {
		snap.interval, snap.system = s.c.interval, s.host
	}
	if !s.primed {
		s.primed = true
		shows, err := chooseDevices(snap, s.c.ids, &s.c.from.bound)
		if err != nil {
			return s.fail(err)
		}
		s.c.shows = shows
	}
	s.share(snap)
	if s.silent {
		s.silent = false
		if code := s.say(fmt.Sprintf("driver back after %s", time.Since(asked).Round(100*time.Millisecond))); code >= 0 {
			return code
		}
	}
	o := s.front.snapshot(time.Now(), snap, between)
	if between {
		s.notes = append(s.notes, snap.notes...)
		return s.do(o)
	}
	return s.recorded(snap, o)
}

// recorded passes snap, which was shown, to the files beside, with what happened here, and does what the front
// wants then. Rows that are whole do not make up for files that are not.
func (s *session) recorded(snap *snapshot, o orders) int {
	if s.x.any() {
		snap.notes = append(s.notes, snap.notes...)
		s.x.write(snap, s.c.shows)
	}
	s.notes = nil
	if says := s.x.trouble(); says != s.trouble {
		s.trouble = says
		if says == "" {
			says = "-prom file is back"
		}
		if s.display == nil { // which has it in the header
			fmt.Fprintln(s.stderr, "mig-gpu-mon: "+says)
			if code := s.say(says); code >= 0 && !o.done {
				return code
			}
		}
	}
	if o.done && o.code == exitOK && s.trouble != "" {
		o.code = exitFailed
	}
	return s.do(o)
}

// say tells what happened here, now and in the next record.
func (s *session) say(text string) int {
	s.notes = append(s.notes, text)
	return s.do(s.front.say(text))
}

// signalled gives the driver up for a while, or takes it up again.
func (s *session) signalled(sig os.Signal) int {
	if sig == syscall.SIGUSR2 {
		return s.release(false, "")
	}
	says := "released: the NVML session is closed for 60 s (SIGUSR2 resumes)"
	if !s.asked.IsZero() {
		says = "will be released as soon as the driver answers, for 60 s (SIGUSR2 resumes)"
	}
	code := s.release(true, says)
	if s.paused {
		s.resumeAt = time.Now().Add(releaseFor)
	}
	return code
}

// release gives the driver up and says so, or takes it up again. What a signal began ends with any other word.
func (s *session) release(yes bool, says string) int {
	s.resumeAt = time.Time{}
	if s.tape || !yes && !s.paused {
		return goOn // there is nothing to release, or to resume
	}
	o := orderRelease
	if !yes {
		o, says = orderResume, "resumed"
	}
	if !s.order(o) {
		return s.say("the driver does not answer: ignored")
	}
	s.paused = yes
	s.next.rest(yes)
	if code := s.say(says); code >= 0 {
		return code
	}
	return s.do(s.front.release(yes))
}

// walks is where the PSS sampler answers, nil before it was started.
func (s *session) walks() chan map[procID]pssState {
	if s.pss == nil {
		return nil
	}
	return s.pss.states
}

// walk asks for PSS and USS of the processes there are, those of the device first before the others.
func (s *session) walk(first deviceID) {
	if s.pss == nil {
		s.pss = startPSS(procRoot, guard)
	}
	var list []pssWant
	for i := range s.last.proc {
		p := &s.last.proc[i]
		if rss, ok := p.rss.num(); ok && p.known {
			list = append(list, pssWant{procID{p.pid, p.start}, rss, s.last.dev[p.dev].id() == first})
		}
	}
	s.pss.ask(list)
}

// share puts what is known of the processes' memory shares into snap.
func (s *session) share(snap *snapshot) {
	for i := range snap.proc {
		p := &snap.proc[i]
		p.shares = s.walked[procID{p.pid, p.start}]
	}
}

// handOver puts a new process in this one's place.
func (s *session) handOver() int {
	s.front.close()
	return fail(s.stderr, fmt.Errorf("%s (%w)", restartHint, s.next.exec(s.x)))
}

// order is what the session asks of the sampler.
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

// sampler is the session's side of the goroutine that has the source in hand.
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

// relay has signals come to the loop through forward.
func (s *sampler) relay(signals ...os.Signal) chan os.Signal {
	from, to := make(chan os.Signal, 8), make(chan os.Signal)
	signal.Notify(from, signals...)
	guard(func() { s.forward(from, to) })
	return to
}

// forward passes signals on to the loop. Should that be held in a write, by a pipe or a terminal that nobody
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

// patience is how late an answer may be before the driver counts as silent.
func patience(interval time.Duration) time.Duration {
	return max(2*time.Second, interval*5/2)
}

// untilNext is the time from now to the next point of the grid that start and interval make.
func untilNext(start, now time.Time, interval time.Duration) time.Duration {
	left := interval - now.Sub(start)%interval
	if left < interval/4 { // it was late, and the next would follow at once
		left += interval
	}
	return left
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
