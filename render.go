// render.go owns the dashboard's picture: painting a view into cells, and the parts that all views have.
//
// Invariants: with the files of the views (node.go, table.go, detail.go) pure, with no clock, no driver and no
// I/O, so the same view gives the same picture; every panel stays inside its rectangle at every size; absent,
// estimated, held and zero look different in text, bars and charts, and colour is never the only difference.
package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// viewMode is which of the three pictures is shown.
type viewMode uint8

const (
	viewDetail viewMode = iota
	viewNode
	viewTable
	viewModes
)

// listed is one line of the device lists. removed is when an instance went, zero while it is there.
type listed struct {
	device
	removed time.Time
}

// view is everything that a picture is made of.
type view struct {
	snap     *snapshot
	host     *hostState
	past     *history
	now      time.Time
	interval time.Duration
	silent   time.Duration // how long an answer of the driver is overdue, 0: it is not
	paused   bool          // released by key or signal
	closed   bool          // and the session is really closed
	resuming bool          // no more, but nothing was answered since
	notice   string        // in the header for a while
	broken   string        // what went wrong with a file beside, for good
	replay   bool          // a recording is played
	stopped  bool          // it stands still
	speed    int           // at which it is played, as a power of 2
	mode     viewMode
	help     bool
	sort     sortOrder
	pss      bool     // PSS and USS are shown
	rows     []listed // of the lists
	sel      int      // index in rows, -1 without any
	ascii    bool
	buf      []byte
}

// selected is the device whose details are shown, nil without any.
func (v *view) selected() *listed {
	if v.sel < 0 || v.sel >= len(v.rows) {
		return nil
	}
	return &v.rows[v.sel]
}

// shares are p's memory shares if they are not too old to be shown.
func (v *view) shares(p *process) pssState {
	if p.shares.pss.from == absent || v.now.Sub(p.shares.at) <= pssMaxAge {
		return p.shares
	}
	return pssState{}
}

// of is d's value of m as it may be shown now: while the driver is silent nothing is fresh.
func (v *view) of(d *device, m metric) value { return v.aged(d.v[m]) }

// aged is x as it may be shown now.
func (v *view) aged(x value) value {
	if v.silent > 0 {
		return x.hold(v.silent, driverSilent)
	}
	return x
}

// rect is a part of the screen in cells.
type rect struct{ x, y, w, h int }

// paint draws v into g.
func paint(g *grid, v *view) {
	g.clear()
	if g.w < minWidth || g.h < minHeight {
		g.text(0, 0, g.w, fmt.Sprintf("too small: %dx%d, needs %dx%d", g.w, g.h, minWidth, minHeight), 0)
		return
	}
	p := painter{g, v}
	p.header()
	switch {
	case v.help:
		p.help()
	case v.mode == viewNode:
		p.node(rect{0, 1, g.w, g.h - 2})
	case v.mode == viewTable:
		p.table(rect{0, 1, g.w, g.h - 2})
	default:
		p.detailView()
	}
	p.footer()
}

// painter draws panels.
type painter struct {
	g *grid
	v *view
}

// line writes along one line of the screen.
type line struct {
	p         painter
	x, y, end int
}

func (p painter) line(r rect, row int) *line {
	if row >= r.h {
		return &line{p, r.x, r.y, r.x} // takes nothing
	}
	return &line{p, r.x, r.y + row, r.x + r.w}
}

func (l *line) str(s string, st style) *line {
	if l.x < l.end {
		l.x += l.p.g.text(l.x, l.y, l.end-l.x, s, st)
	}
	return l
}

func (l *line) bytes(b []byte, st style) *line {
	if l.x < l.end {
		l.x += l.p.g.bytes(l.x, l.y, l.end-l.x, b, st)
	}
	return l
}

// number writes b whole, or a mark that there was no room for it: the start of a number is another number.
func (l *line) number(b []byte, st style) *line {
	if len(b) <= l.end-l.x {
		return l.bytes(b, st)
	}
	mark := "…"
	if l.p.v.ascii {
		mark = "."
	}
	l.str(mark, grey)
	l.end = l.x
	return l
}

// room says that n more cells fit.
func (l *line) room(n int) bool { return n <= l.end-l.x }

func (l *line) int(n int, st style) *line {
	l.p.v.buf = strconv.AppendInt(l.p.v.buf[:0], int64(n), 10)
	return l.number(l.p.v.buf, st)
}

// to moves on to column x of the panel, and at least one cell.
func (l *line) to(x int) *line {
	l.x = max(l.x+1, x)
	return l
}

// value writes v in its metric's unit, with its mark, in st if it is fresh.
func (l *line) value(v value, u unit, st style) *line {
	l.p.v.buf = v.show(l.p.v.buf[:0], u)
	return l.number(l.p.v.buf, markStyle(v, st))
}

// right writes v so that it ends before column x.
func (l *line) right(v value, u unit, st style, x int) *line {
	l.p.v.buf = v.show(l.p.v.buf[:0], u)
	l.x = max(l.x, x-len(l.p.v.buf))
	return l.number(l.p.v.buf, markStyle(v, st))
}

// markStyle is st for a fresh value, dim for an estimate, and grey for what is not of this tick.
func markStyle(v value, st style) style {
	switch v.from {
	case measured:
		return st
	case estimated:
		return st | dim
	}
	return grey
}

// why writes, in words, why v is absent; without the part after the colon where there is no room for it.
func (l *line) why(v value) *line {
	if v.from != absent || v.why == notRead {
		return l
	}
	words := v.why.sentence()
	if short := strings.IndexByte(words, ':'); short > 0 && len(words)+len("  ()") > l.end-l.x {
		words = words[:short]
	}
	return l.str("  (", grey).str(words, grey).str(")", grey)
}

const (
	titleStyle  = cyan | bold
	labelStyle  = style(0)
	chosenStyle = green | bold
)

// band is the style of a number in percent of its scale: low below warn, mid below bad, high from there.
func band(v value, warn, bad int64, low, mid, high style) style {
	n, ok := v.num()
	switch {
	case !ok:
		return grey
	case n < warn*100:
		return low
	case n < bad*100:
		return mid
	}
	return high
}

// utilStyle is the detail text's: green below 70 %, yellow below 90.
func utilStyle(v value) style { return band(v, 70, 90, green, yellow, red) }

// hostStyle is the CPU's and RAM's: green below 50 %, yellow below 80.
func hostStyle(v value) style { return band(v, 50, 80, green, yellow, red) }

// share is used as a percentage of total.
func share(used, total value) value { return used.percentOf(total) }

// header says whose picture this is, and in its place what has to be known first.
func (p painter) header() {
	v := p.v
	const clock = len("15:04:05")
	l := p.line(rect{0, 0, p.g.w - clock - 1, 1}, 0)
	p.tape(l)
	if p.warning(l); l.x > 0 {
		l.str("  ", 0)
	}
	gpus, inst := 0, 0
	if v.snap != nil {
		for i := range v.snap.dev {
			if v.snap.dev[i].isGPU() {
				gpus++
			} else {
				inst++
			}
		}
		l.str(v.snap.host, titleStyle).str(" ", 0).str(p.backend(), 0).str(" driver ", 0).str(v.snap.driver, titleStyle)
		if l.room(len("  CUDA ") + len(v.snap.cuda)) {
			l.str("  CUDA ", 0).str(v.snap.cuda, titleStyle)
		}
		if l.room(len("  ,  GPUs instances") + digits(gpus) + digits(inst)) {
			l.str("  ", 0).int(gpus, titleStyle).str(" GPU", 0).str(plural(gpus), 0).str(", ", 0).int(inst, titleStyle).str(" instance", 0).str(plural(inst), 0)
		}
		if n := v.snap.hidden; n > 0 && l.room(len(",  not visible here")+digits(n)) {
			l.str(", ", 0).int(n, titleStyle).str(" not visible here", 0)
		}
	}
	if v.buf = append(appendInterval(append(v.buf[:0], "  every "...), v.interval), ' '); l.room(len(v.buf)) {
		l.bytes(v.buf, 0)
	}
	if v.snap != nil || !v.replay {
		v.buf = v.now.AppendFormat(v.buf[:0], "15:04:05")
		p.g.bytes(p.g.w-clock, 0, clock, v.buf, titleStyle)
	}
}

// tape says that this is a recording, and how it is played.
func (p painter) tape(l *line) {
	v := p.v
	if v.snap == nil || v.snap.live() {
		return
	}
	t := &v.snap.tape
	l.str(t.label, yellow|bold)
	switch {
	case t.next == 0:
		l.str(" end", yellow|bold)
	case v.stopped:
		l.str(" stopped", yellow|bold)
	}
	if v.speed > 0 {
		l.str(" x", yellow).int(1<<v.speed, yellow)
	} else if v.speed < 0 {
		l.str(" x1/", yellow).int(1<<-v.speed, yellow)
	}
	if t.percent >= 0 {
		l.str(" ", 0).int(t.percent, yellow).str("%", yellow)
	}
	if t.skipped > 0 {
		l.str(" ", 0).int(t.skipped, red|bold).str(" line", red|bold).str(plural(t.skipped), red|bold).str(" skipped", red|bold)
	}
	l.str("  ", 0)
}

// backend is what a recording was made with; live there is one only.
func (p painter) backend() string {
	if s := p.v.snap; !s.live() && s.backend != s.tape.label {
		return s.backend
	}
	return ""
}

// appendInterval is "500ms", "2s" or "1m".
func appendInterval(b []byte, d time.Duration) []byte {
	switch {
	case d%time.Minute == 0:
		return append(strconv.AppendInt(b, int64(d/time.Minute), 10), 'm')
	case d%time.Second == 0:
		return append(strconv.AppendInt(b, int64(d/time.Second), 10), 's')
	}
	return append(strconv.AppendInt(b, d.Milliseconds(), 10), "ms"...)
}

// plural is the ending of a noun for n things.
func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// warning writes what has to be known first, nothing if all is well.
func (p painter) warning(l *line) {
	const loud = red | bold
	v := p.v
	if v.broken != "" {
		l.str(v.broken, loud).str("  ", 0)
	}
	switch {
	case v.paused && !v.closed:
		l.str("releasing: the driver has the session still", loud)
		return
	case v.paused:
		l.str("RELEASED: p resumes", loud)
		return
	case v.resuming && v.silent > 0:
		l.str("resuming", loud)
		return
	case v.silent > 0:
		l.str("driver silent for ", loud).int(int(v.silent.Seconds()), loud).str(" s", loud)
		return
	case v.snap == nil && v.replay:
		l.str("reading the recording", loud)
		return
	case v.snap == nil:
		l.str("waiting for the driver", loud)
		return
	}
	full := 0
	for i := range v.snap.dev {
		d := &v.snap.dev[i]
		if d.isGPU() && d.fault != notRead && d.fault != notVisible {
			l.str("GPU ", loud).int(d.gpu, loud)
			switch d.fault {
			case gpuLost:
				l.str(" lost", loud)
			case resetRequired:
				l.str(" needs a reset", loud)
			default:
				l.str(": ", loud).str(d.fault.sentence(), loud)
			}
			return
		}
		if d.v[mSMUtil].from == absent && d.v[mSMUtil].why == gpmUnsafe {
			l.str("GPM off: it broke memory readings", loud)
			return
		}
		if n, ok := share(d.v[mMemUsed], d.v[mMemTotal]).num(); ok && n > 9500 && d.rows == 0 {
			full++
		}
	}
	if v.notice != "" {
		l.str(v.notice, loud)
	} else if full > 0 {
		l.int(full, loud).str(" over 95 % memory", loud)
	}
}

var (
	footerKeys = [...][2]string{{"q", "quit"}, {"?", "help"}, {"Tab", "next"}, {"v", "view"}, {"s", "sort"}, {"m", "PSS"}, {"p", "release"}, {"+-", "interval"}}
	tapeKeys   = [...][2]string{{"q", "quit"}, {"?", "help"}, {"Tab", "next"}, {"v", "view"}, {"s", "sort"}, {"Space", "stop"}, {",.", "step"}, {"+-", "speed"}}
)

func (p painter) footer() {
	l := p.line(rect{0, p.g.h - 1, p.g.w, 1}, 0)
	keys := &footerKeys
	if p.v.replay {
		keys = &tapeKeys
	}
	for _, k := range keys {
		if p.v.stopped && k[1] == "stop" {
			k[1] = "go"
		}
		l.str(k[0], bold).str(" ", 0).str(k[1], 0).str("  ", 0)
	}
	v := p.v
	v.buf = append(v.buf[:0], '[')
	v.buf = strconv.AppendInt(v.buf, int64(v.sel+1), 10)
	v.buf = append(v.buf, '/')
	v.buf = strconv.AppendInt(v.buf, int64(len(v.rows)), 10)
	v.buf = append(v.buf, ']')
	p.g.bytes(p.g.w-len(v.buf), p.g.h-1, len(v.buf), v.buf, titleStyle)
}

var helpLines = [...]string{
	"Tab Down j Right   next device            Shift-Tab Up k Left   previous",
	"PgDn PgUp Home End  move in the list       [ ]  previous, next GPU",
	"v   detail, node, table                   Enter detail   Esc back",
	"s   sort the table by id, util, VRAM, idle",
	"m   PSS and USS of processes              + -  interval",
	"p   release the driver, and take it up again: an open session can keep",
	"    nvidia-smi mig -dci and GPU resets from working",
	"In a recording: Space p stop, go   , . step   + - speed",
	"Ctrl-L repaint   Ctrl-Z suspend   q Ctrl-C quit",
	"",
	"-      unknown; the reason stands beside it in the detail panel",
	"~43    estimated: the GPU's activity while one instance runs",
	"43*    held: as last read; the last read failed",
	"0      measured zero. In charts: gap unknown, lowest mark zero,",
	"       hollow held, dim estimated",
}

func (p painter) help() {
	r := rect{2, 2, p.g.w - 4, p.g.h - 4}
	for i, s := range helpLines {
		p.line(r, i).str(s, 0)
	}
}

func digits(n int) int {
	d := 1
	for ; n > 9; n /= 10 {
		d++
	}
	return d
}

const measure100 = 10000 // a bar's full length for percentages

// bar draws v as a part of full in w cells: a held value hollow, an unknown one blank.
func (l *line) bar(v value, full int64, w int, st style) *line {
	gl := l.p.glyphs()
	n, ok := v.num()
	filled := 0
	if ok && full > 0 {
		filled = int(min(max((n*int64(w)+full/2)/full, 0), int64(w)))
	}
	for i := range w {
		if l.x >= l.end {
			break
		}
		r, s := gl.empty, grey
		switch {
		case !ok:
			r = ' '
		case i < filled && v.from == held:
			r, s = heldMark, grey
		case i < filled:
			r, s = gl.full, markStyle(v, st)
		}
		l.x += l.p.g.put(l.x, l.y, r, s)
	}
	return l
}

// heldMark fills what is not of this tick, in bars and charts. It is ASCII, for all terminals.
const heldMark = ':'

func (p painter) glyphs() *glyphs {
	if p.v.ascii {
		return &asciiGlyphs
	}
	return &blockGlyphs
}

// window is the first of n lines to show in h so that line sel is among them.
func window(sel, n, h int) int {
	return min(max(sel-h/2, 0), max(n-h, 0))
}

func (l *line) percentSign(v value) *line {
	if v.from != absent {
		l.str("%", 0)
	}
	return l
}

// shortName drops what every GPU's name begins with.
func shortName(s string) string {
	for _, prefix := range []string{"NVIDIA ", "GeForce "} {
		if len(s) > len(prefix) && s[:len(prefix)] == prefix {
			s = s[len(prefix):]
		}
	}
	return s
}

// note is d's note; while nothing is fresh its state is not known.
func (p painter) note(d *device) string {
	if word := d.note(); p.v.silent == 0 || word != d.state() || word == "mig" || word == "empty" {
		return word
	}
	return "?"
}

// note says about a device what its numbers do not.
func (d *device) note() string {
	switch {
	case d.fault != notRead:
		return d.fault.String()
	case d.isGPU() && d.migNext >= 0 && d.migOn != d.migNext:
		return [...]string{"MIG on -> off, needs reset", "MIG off -> on, needs reset"}[d.migNext]
	case d.isGPU() && d.migOn == 1 && d.rows == 0:
		return "MIG on, no instances"
	}
	return d.state()
}

// age says how old a held value is.
func (l *line) age(v value) *line {
	if v.from == held {
		l.str("  as of ", grey).int(int(v.age/1000), grey).str(" s ago", grey)
		if v.why != notRead && v.why != driverSilent { // the header tells of that
			l.str(": ", grey).str(v.why.sentence(), grey)
		}
	}
	return l
}

// size writes bytes in GiB or MiB.
func (l *line) size(v value, st style) *line {
	l.p.v.buf = v.showSize(l.p.v.buf[:0])
	return l.number(l.p.v.buf, markStyle(v, st))
}

// known is text of a process that can be named from here, "?" of another.
func known(p *process, text string) string {
	if !p.known {
		return "?"
	}
	return text
}

// duration writes CPU time as h:mm:ss, from 100 hours on in hours, from 10,000 on in days.
func (l *line) duration(v value) *line {
	ms, ok := v.num()
	if !ok {
		return l.str("-", grey)
	}
	s, b := ms/1000, l.p.v.buf[:0]
	switch h := s / 3600; {
	case h >= 10000:
		b = append(strconv.AppendInt(b, h/24, 10), 'd')
	case h >= 100:
		b = append(strconv.AppendInt(b, h, 10), 'h')
	default:
		b = strconv.AppendInt(b, h, 10)
		b = append(b, ':', byte('0'+s/600%6), byte('0'+s/60%10), ':', byte('0'+s%60/10), byte('0'+s%10))
	}
	if v.from == held {
		b = append(b, '*')
	}
	l.p.v.buf = b
	return l.number(b, markStyle(v, 0))
}

func (p painter) percentChart(r rect, title string, v value, past *ring, st style) {
	p.line(r, 0).str(title, titleStyle).value(v, percent, st).percentSign(v).why(v)
	p.chart(r, measure100, st, func(i int) point { return past.ago(i) })
}

// roundScale is the next of 1, 2, 5, 10 ... MB/s above most.
func roundScale(most float32) float32 {
	scale := float32(1e6)
	for i := 0; scale < most && i < 40; i++ {
		scale *= [...]float32{2, 2.5, 2}[i%3]
	}
	return scale
}

// chart draws points below the title line of r, the newest at the right, full being the whole height. An
// unknown point is a gap; zero is the lowest mark; a held one is hollow, an estimated one dim.
func (p painter) chart(r rect, full float32, st style, at func(i int) point) {
	if r.h < 2 || full <= 0 {
		return
	}
	rows := r.h - 1
	gl := p.glyphs()
	for i := range r.w {
		pt := at(i)
		if pt.from() == absent {
			continue
		}
		s := st
		if pt.from() == estimated {
			s |= dim
		}
		level := max(int(math.Ceil(float64(min(pt.num()/full, 1)*float32(8*rows)))), 1)
		if pt.num() == 0 {
			s = grey
		}
		for row := range rows {
			eighths := min(max(level-8*row, 0), 8)
			top := eighths > 0 && level <= 8*(row+1)
			x, y := r.x+r.w-1-i, r.y+r.h-1-row
			switch {
			case pt.from() == held && top:
				p.g.put(x, y, heldMark, grey)
			case pt.from() != held && eighths > 0:
				p.g.put(x, y, gl.level[eighths-1], s)
			}
		}
	}
}
