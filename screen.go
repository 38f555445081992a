// screen.go owns the state of the full screen: keys, views, selection, history, and how a recording is played.
//
// Invariant: a state machine without I/O and without a clock: what happened goes in, with the time that it is, and
// what is wanted of the session comes out. What is drawn is a function of its view alone.
package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// dashboard is the state of the full screen.
type dashboard struct {
	c    *config
	past *history
	v    view
	now  time.Time // of what happens at the moment
	host hostState // of the record that is shown

	chosen     deviceID // of the selection, which follows the device and not its number
	known      []listed // rows of the snapshot before
	gone       []listed // instances that were removed lately
	listMode   viewMode // of the lists, the one that Esc goes back to
	noticeTill time.Time
	slot       int             // of history, of the tick that asked
	picked     bool            // the view was chosen by key
	mine       func() []string // names of the user whose screen this is
	visible    string          // CUDA_VISIBLE_DEVICES
	w, h       int             // of the screen
	entered    bool            // something may be drawn
	began      time.Time
	drawn      time.Time // the last frame
	asked      bool      // for a record that has not come yet

	cueAt time.Time     // when the next record is due; zero: not by itself
	pace  time.Duration // between two records, if it was given
	back  bool          // what was asked for is the record before
}

// intervals are the steps of the keys + and -.
var intervals = [...]time.Duration{
	200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
}

const (
	firstPaint = 300 * time.Millisecond // then a frame is shown even if there is no answer yet
	secondRead = 250 * time.Millisecond // after the first sample, for values that need two
	noticeFor  = 5 * time.Second
)

func newDashboard(c *config, ascii bool, now time.Time) *dashboard {
	b := &dashboard{c: c, past: newHistory(), listMode: viewNode, mine: func() []string { return nil }, began: now, asked: true}
	b.v = view{past: b.past, interval: c.interval, sel: -1, ascii: ascii, pss: c.pss, replay: c.replay != "" || c.demo}
	b.v.host = &b.host
	if c.paced {
		b.pace = c.interval
	}
	return b
}

// tick begins a slot of history, also if the driver owes an answer still, which makes it a gap.
func (b *dashboard) tick(now time.Time, host *hostState, asked bool) orders {
	b.now, b.v.host = now, host
	slot := b.past.tick(now, b.v.interval, host)
	if asked {
		b.slot = slot
	}
	return orders{walk: b.v.pss, first: b.chosen}
}

func (b *dashboard) silence(*snapshot) orders { return orders{} }

// say shows text in the header for a while, or until the next key.
func (b *dashboard) say(text string) orders {
	b.v.notice, b.noticeTill = text, b.now.Add(noticeFor)
	return orders{}
}

// release leaves what is shown as it is. What is there after it is asked for at once.
func (b *dashboard) release(yes bool) orders {
	b.v.paused, b.v.resuming = yes, !yes
	if yes {
		return orders{}
	}
	b.slot = b.past.slot
	return orders{sample: true}
}

// due is when the next record is to be shown, when a frame without an answer is, and, where ticks do not repaint often
// enough for the clock and the ages, each second.
func (b *dashboard) due() time.Time {
	switch {
	case !b.entered:
		return earliest(b.cueAt, b.began.Add(firstPaint))
	case !b.v.replay && b.v.interval > time.Second:
		return b.drawn.Add(time.Second)
	}
	return b.cueAt
}

func (b *dashboard) wake(now time.Time) orders {
	b.now = now
	b.entered = b.entered || passed(b.began.Add(firstPaint), now)
	b.drawn = now
	if passed(b.cueAt, now) {
		b.cueAt, b.asked = time.Time{}, true
		return orders{sample: true}
	}
	return orders{}
}

// snapshot takes s into history and lists. What is answered while the driver is released tells nothing.
func (b *dashboard) snapshot(now time.Time, s *snapshot, _ bool) (o orders) {
	b.now, b.asked = now, false
	if b.v.paused {
		return orders{}
	}
	if b.v.replay {
		b.play(s)
	}
	b.past.fill(b.slot, s)
	b.v.resuming = false
	if b.v.snap == nil {
		b.begin(s)
	}
	if !b.entered && !b.v.replay {
		o.next = secondRead
		b.past.interval = 0 // the grid of slots starts anew with that of the ticks
	}
	b.entered = true
	b.v.snap = s
	b.list(s)
	if n := len(s.notes); n > 1 {
		b.say(fmt.Sprintf("%s (and %d more)", s.notes[n-1], n-1))
	} else if n == 1 {
		b.say(s.notes[0])
	}
	return o
}

// play takes the record s: the host and the place in history are its own, and so is the time of the next.
func (b *dashboard) play(s *snapshot) {
	b.host = hostState{}
	if s.system != nil {
		b.host = *s.system
	}
	there := false
	switch {
	case b.back:
		there = b.past.undo(s.at)
		b.known, b.gone = b.known[:0], nil
	case s.tape.anew:
		*b.past = *newHistory()
		b.known, b.gone = b.known[:0], nil
		b.say("the demo begins again")
	}
	b.back = false
	if s.interval > 0 {
		b.v.interval = s.interval
	} else if b.v.snap == nil && s.tape.next > 0 { // gpur does not tell it
		b.v.interval = min(max(s.tape.next, minInterval), maxInterval)
	}
	if b.slot = b.past.slot; !there {
		b.slot = b.past.tick(s.at, b.v.interval, &b.host)
	}
	b.cue(s)
}

// ended keeps the last record on the screen when there is no other, or none that can be read.
func (b *dashboard) ended(err error) orders {
	b.back, b.asked, b.cueAt = false, false, time.Time{}
	b.v.snap.tape.next = 0
	if !errors.Is(err, io.EOF) {
		b.say(err.Error())
	}
	return orders{}
}

// cue sets when the record after s is shown.
func (b *dashboard) cue(s *snapshot) {
	b.cueAt = time.Time{}
	if b.v.stopped || s == nil || s.tape.next == 0 {
		return
	}
	const longest, shortened, shortest = 10 * time.Second, time.Second, 20 * time.Millisecond
	wait := s.tape.next
	if wait > longest {
		wait = shortened
	}
	if b.pace > 0 {
		wait = b.pace
	}
	b.cueAt = b.now.Add(max(time.Duration(float64(wait)*math.Pow(2, float64(-b.v.speed))), shortest))
}

// clock is the time of what is shown.
func (b *dashboard) clock() time.Time {
	if b.v.replay && b.v.snap != nil {
		return b.v.snap.at
	}
	return b.now
}

// show readies the view for a frame at now. late is how long an answer of the driver is overdue, closed that its
// session is, broken what is wrong with the files beside.
func (b *dashboard) show(now time.Time, late time.Duration, closed bool, broken string) *view {
	b.now, b.drawn = now, now
	b.v.now = b.clock()
	if now.After(b.noticeTill) {
		b.v.notice = ""
	}
	b.v.silent, b.v.closed, b.v.broken = late, closed, broken
	if (b.v.paused || b.v.resuming) && b.v.snap != nil {
		b.v.silent = now.Sub(b.v.snap.at)
	}
	return &b.v
}

// begin finds the view to start with and where the selection starts: on an instance that runs a process of this
// user, else on one named in CUDA_VISIBLE_DEVICES, else on the first instance or whole GPU.
func (b *dashboard) begin(s *snapshot) {
	if !b.picked {
		b.v.mode = b.firstMode(s)
	}
	b.chosen = firstChoice(s, b.c.shows)
	if b.v.replay {
		return // who watches is not who was watched
	}
	mine := b.mine()
	for _, p := range s.proc {
		if p.known && slices.Contains(mine, p.user) && b.c.shows(&s.dev[p.dev]) {
			b.chosen = s.dev[p.dev].id()
			return
		}
	}
	for _, id := range strings.Split(b.visible, ",") {
		for i := range s.dev {
			if id != "" && slices.Contains(matchID(s, id), identity(&s.dev[i])) && b.c.shows(&s.dev[i]) {
				b.chosen = s.dev[i].id()
				return
			}
		}
	}
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
func (b *dashboard) firstMode(s *snapshot) viewMode {
	devices, rows := 0, 0
	for i := range s.dev {
		if one := &s.dev[i]; b.c.shows(one) {
			devices++
			if one.rows == 0 {
				rows++
			}
		}
	}
	switch {
	case devices <= layout(b.w, b.h, len(allLinesInstance)+1, devices, 0).devices.h-1:
		return viewDetail
	case rows <= b.h-3:
		return viewTable
	}
	return viewNode
}

// list makes the rows of the lists: the devices there are, and for a while those that were removed.
func (b *dashboard) list(s *snapshot) {
	now := b.clock()
	for _, old := range b.known {
		if !old.isGPU() && !slices.ContainsFunc(s.dev, func(d device) bool { return d.id() == old.id() }) {
			old.removed = now
			b.gone = append(b.gone, old)
		}
	}
	b.gone = slices.DeleteFunc(b.gone, func(d listed) bool { return now.Sub(d.removed) > keepRemoved })
	b.known, b.v.rows = b.known[:0], b.v.rows[:0]
	for i := range s.dev {
		d := &s.dev[i]
		if !b.c.shows(d) {
			continue
		}
		b.known = append(b.known, listed{device: *d})
		b.v.rows = append(b.v.rows, listed{device: *d})
		if i+1 == len(s.dev) || s.dev[i+1].isGPU() {
			for _, g := range b.gone {
				if g.gpu == d.gpu {
					b.v.rows = append(b.v.rows, g)
				}
			}
		}
	}
	b.arrange()
}

// arrange sorts the rows as the view wants them and finds the selected one. One that was removed is
// followed to its GPU, never to what took its row.
func (b *dashboard) arrange() {
	if b.v.mode == viewTable {
		b.v.rows = slices.DeleteFunc(b.v.rows, func(d listed) bool { return d.isGPU() && d.rows > 0 })
		sortRows(b.v.rows, b.v.sort)
	}
	at := slices.IndexFunc(b.v.rows, func(d listed) bool { return d.id() == b.chosen && d.removed.IsZero() })
	if at < 0 {
		at = slices.IndexFunc(b.v.rows, func(d listed) bool { return d.gpu == b.chosen.gpu && d.isGPU() })
	}
	b.choose(max(at, 0))
}

// choose selects row i, or the nearest there is.
func (b *dashboard) choose(i int) {
	b.v.sel = min(max(i, 0), len(b.v.rows)-1)
	if d := b.v.selected(); d != nil {
		b.chosen = d.id()
	}
}

// key does what one means.
func (b *dashboard) key(now time.Time, k key, seq []byte) orders {
	b.now, b.v.notice = now, ""
	if b.v.help && k != keyReport && k != 'q' && k != keyCtrlC && k != keyCtrlZ {
		b.v.help = false
		return orders{}
	}
	if b.v.replay {
		if o, taken := b.control(k); taken {
			return o
		}
	}
	switch k {
	case 'q', keyCtrlC:
		return end(exitOK)
	case keyReport:
		if narrow, ok := probeReply(seq); ok && !narrow {
			b.v.ascii = true
		}
	case 'm':
		b.v.pss = !b.v.pss
		return orders{walk: b.v.pss, first: b.chosen}
	case 'p':
		return orders{release: !b.v.paused, resume: b.v.paused}
	case '+', '-':
		return b.step(k == '+')
	default:
		b.turn(k)
	}
	return orders{}
}

// turn is a key that changes only what is seen.
func (b *dashboard) turn(k key) {
	switch k {
	case '?', 'h':
		b.v.help = true
	case 'v':
		b.setMode((b.v.mode + 1) % viewModes)
	case keyEnter:
		b.setMode(viewDetail)
	case keyEsc:
		if b.v.mode == viewDetail {
			b.setMode(b.listMode)
		}
	case 's':
		b.v.sort = (b.v.sort + 1) % sortOrders
		b.say("table sorted by " + sortWords[b.v.sort])
		b.relist()
	default:
		b.move(k)
	}
}

// control is a key that means something else, or something at all, when a recording is played; not taken, it has
// its usual meaning.
func (b *dashboard) control(k key) (o orders, taken bool) {
	s := b.v.snap
	switch k {
	case ' ', 'p':
		b.v.stopped = !b.v.stopped
	case '+':
		b.v.speed = min(b.v.speed+1, 6)
	case '-':
		b.v.speed = max(b.v.speed-1, -3)
	case '.', ',':
		b.v.stopped = true
		o = b.stepTape(k == ',')
	case 'm':
		b.say("a recording has no PSS")
	default:
		return o, false
	}
	b.cue(s)
	return o, true
}

// stepTape asks for the next record, or for the one before.
func (b *dashboard) stepTape(back bool) orders {
	s := b.v.snap
	switch {
	case s == nil || b.asked || !back && s.tape.next == 0:
		return orders{}
	case back && !s.tape.back:
		b.say("this recording goes back no further")
		return orders{}
	}
	b.back, b.asked = back, true
	return orders{sample: true, back: back}
}

func (b *dashboard) setMode(m viewMode) {
	b.picked = true
	if b.v.mode != viewDetail {
		b.listMode = b.v.mode
	}
	b.v.mode = m
	b.relist()
}

// relist makes the rows anew after a change of how they are shown.
func (b *dashboard) relist() {
	if b.v.snap != nil {
		b.list(b.v.snap)
	}
}

// step takes the next longer or shorter interval.
func (b *dashboard) step(longer bool) orders {
	for i, one := range intervals {
		if longer && one > b.v.interval || !longer && one < b.v.interval && (i+1 == len(intervals) || intervals[i+1] >= b.v.interval) {
			b.v.interval = one
			return orders{interval: one}
		}
	}
	return orders{}
}

// move changes the selection.
func (b *dashboard) move(k key) {
	page := max(b.h/3, 1)
	switch k {
	case keyTab, keyDown, keyRight, 'j':
		b.stepRow(1)
	case keyShiftTab, keyUp, keyLeft, 'k':
		b.stepRow(-1)
	case keyPgDn:
		b.choose(b.v.sel + page)
	case keyPgUp:
		b.choose(b.v.sel - page)
	case keyHome:
		b.choose(0)
	case keyEnd:
		b.choose(len(b.v.rows) - 1)
	case '[', ']':
		b.moveGPU(k == ']')
	}
}

// stepRow selects the next row up or down of a device that is there.
func (b *dashboard) stepRow(by int) {
	for i := b.v.sel + by; i >= 0 && i < len(b.v.rows); i += by {
		if b.v.rows[i].removed.IsZero() {
			b.choose(i)
			return
		}
	}
}

// moveGPU selects the next or previous GPU.
func (b *dashboard) moveGPU(next bool) {
	gpu := -1
	if d := b.v.selected(); d != nil {
		gpu = d.gpu
	}
	best := -1 // the first row of the GPU with the nearest number
	for i := range b.v.rows {
		g := b.v.rows[i].gpu
		if next && g > gpu && (best < 0 || g < b.v.rows[best].gpu) || !next && g < gpu && (best < 0 || g > b.v.rows[best].gpu) {
			best = i
		}
	}
	if best >= 0 {
		b.choose(best)
	}
}
