// screen.go owns the dashboard's run: keys, views, selection, and when a frame is drawn.
package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

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
