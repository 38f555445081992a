// render.go owns the dashboard's picture: the rectangles of its panels, and painting a view into cells.
//
// Invariants: pure, with no clock, no driver and no I/O, so the same view gives the same picture; every
// panel stays inside its rectangle at every size; absent, estimated, held and zero look different in
// text, bars and charts, and colour is never the only difference.
package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
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

// sortOrder is the table's.
type sortOrder uint8

const (
	byID sortOrder = iota
	byUtil
	byVRAM
	byIdle
	sortOrders
)

var sortWords = [...]string{"id", "util", "VRAM", "idle"}

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
	pss      bool // PSS and USS are shown
	walked   map[procID]pssState
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

// shares is what is known of p's memory shares and not too old to be shown.
func (v *view) shares(p *process) pssState {
	if one, ok := v.walked[procID{p.pid, p.start}]; ok && (one.pss.from == absent || v.now.Sub(one.at) <= pssMaxAge) {
		return one
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

// panels are where the detail view's parts are; a panel that dropped out has no height.
type panels struct {
	cores, devices, detail, procs, charts, cpu, bars, ram rect
}

const (
	minWidth, minHeight = 40, 10
	coresFrom           = 120 // columns below which the cores yield their half
	ramFrom             = 35  // lines below which the RAM chart drops out
	minPanel            = 3   // lines of devices and processes, title included
)

// layout divides a screen of w by h. details is the number of lines that the detail panel would like,
// listed the number of devices.
func layout(w, h, details, devices, procs int) panels {
	var p panels
	body := h - 2
	least := max(min(9, body/2), 2) // for the charts
	want := details + max(minPanel, min(procs+2, 8)) + max(minPanel, min(devices+1, 10))
	top := min(max(body*45/100, min(want, body*2/3), details+2*minPanel), body-least)
	x := 0
	if w >= coresFrom {
		x = w / 2
		p.cores = rect{0, 1, x - 1, top}
	}
	right := rect{x, 1, w - x, top}
	shown := minPanel // lines of processes
	if top < 2*minPanel+3 {
		shown = 0
	}
	detail := min(details, max(top-minPanel-shown, 0))
	list := top - shown - detail
	if list > minPanel && shown > 0 {
		list = min(list, max(minPanel, devices+1))
		shown = top - detail - list
	}
	p.devices = rect{right.x, right.y, right.w, list}
	p.detail = rect{right.x, right.y + list, right.w, detail}
	p.procs = rect{right.x, right.y + list + detail, right.w, shown}
	p.bottom(w, h, rect{0, 1 + top, w, body - top})
	return p
}

// bottom divides the lower part: charts of the device left, the host right.
func (p *panels) bottom(w, h int, b rect) {
	half := w / 2
	p.charts = rect{b.x, b.y, half - 1, b.h}
	bars := min(4, max(b.h-2, 0))
	cpu, ram := b.h-bars, 0
	if h >= ramFrom {
		cpu = max(b.h*40/100, 2)
		ram = b.h - bars - cpu
	}
	p.cpu = rect{half, b.y, w - half, cpu}
	p.bars = rect{half, b.y + cpu, w - half, bars}
	p.ram = rect{half, b.y + cpu + bars, w - half, ram}
}

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

// detailView is the picture of one device and the host.
func (p painter) detailView() {
	lines := p.detailLines()
	at := layout(p.g.w, p.g.h, len(lines)+1, len(p.v.rows), p.v.processCount())
	p.cores(at.cores)
	p.devices(at.devices)
	p.detail(at.detail, lines)
	p.processes(at.procs)
	p.charts(at.charts)
	p.cpuChart(at.cpu)
	p.bars(at.bars)
	p.ramChart(at.ram)
}

// processCount is the number of processes to list for the chosen device.
func (v *view) processCount() int {
	n := 0
	for i := 0; v.snap != nil && i < len(v.snap.proc); i++ {
		if v.lists(&v.snap.proc[i]) {
			n++
		}
	}
	return n
}

// lists says that p runs on the chosen device; a GPU's are also those of its instances.
func (v *view) lists(p *process) bool {
	d, on := v.selected(), &v.snap.dev[p.dev]
	return d != nil && (on.id() == d.id() || d.isGPU() && on.gpu == d.gpu)
}

// cores draws every core's load, the busiest first, in as many columns as fit.
func (p painter) cores(r rect) {
	const cell = 15 // "123 ▮▮▮▯▯ 34%  "
	if r.h < 2 || r.w < cell || p.v.host == nil {
		return
	}
	h := p.v.host
	if len(h.cores) == 0 {
		return
	}
	p.line(r, 0).str("CPU cores ", titleStyle).int(len(h.cores), titleStyle)
	order := h.byLoad()
	for i, core := range order {
		col, row := i/(r.h-1), i%(r.h-1)
		if (col+1)*cell > r.w {
			break
		}
		v := h.cores[core]
		l := p.line(rect{r.x + col*cell, r.y + 1, cell - 1, r.h - 1}, row)
		l.x += 3 - digits(h.coreIDs[core])
		l.int(h.coreIDs[core], grey).str(" ", 0)
		l.bar(v, measure100, 5, hostStyle(v))
		l.right(v, percent, hostStyle(v), l.x+4)
		if v.from != absent {
			l.str("%", 0)
		}
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

// devices lists GPUs and their instances.
func (p painter) devices(r rect) {
	v := p.v
	p.line(r, 0).str("Devices", titleStyle)
	first := window(v.sel, len(v.rows), r.h-1)
	for i := first; i < len(v.rows) && i-first < r.h-1; i++ {
		d := &v.rows[i]
		l := p.line(r, i-first+1)
		p.deviceName(l, d, p.chosen(i))
		if !d.removed.IsZero() {
			l.str(" removed ", grey).str(d.removed.Format("15:04:05"), grey)
			continue
		}
		util, mem := v.of(&d.device, mUtil), share(v.of(&d.device, mMemUsed), v.of(&d.device, mMemTotal))
		l.to(r.x+22).str("GPU:", 0).value(util, percent, utilStyle(util)).percentSign(util)
		l.to(r.x+32).str("Mem:", 0).value(mem, percent, utilStyle(mem)).percentSign(mem)
		l.to(r.x+42).str(p.note(&d.device), grey)
	}
}

func (l *line) percentSign(v value) *line {
	if v.from != absent {
		l.str("%", 0)
	}
	return l
}

// deviceName writes "0 NVIDIA H200" or "0.1 3g.40gb", marked if it is the chosen one.
func (p painter) deviceName(l *line, d *listed, st style) {
	mark := " "
	if st == chosenStyle {
		mark = ">"
	}
	l.str(mark, st).int(d.gpu, st)
	if d.isGPU() {
		l.str(" ", st).str(clip(shortName(d.name), 18), st)
		return
	}
	l.str(".", st).int(d.mig, st).str(" ", st).str(d.profile, st)
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

// detailLine is one line of the detail panel.
type detailLine uint8

const (
	lineName detailLine = iota
	lineUUID
	lineVRAM
	lineUtil
	lineSM
	lineGPU
	lineEngines
	lineClocks
	lineTemp
	linePcie
	lineECC
	lineThrottle
)

// dropOrder is what the detail panel does without when it is short of lines, first first.
var dropOrder = [...]detailLine{lineUUID, lineECC, lineEngines, linePcie, lineClocks, lineName}

// detailLines are the lines that the chosen device has.
func (p painter) detailLines() []detailLine {
	d := p.v.selected()
	switch {
	case d == nil:
		return nil
	case d.isGPU():
		return allLines[:len(allLines)-1]
	}
	return allLinesInstance[:]
}

var (
	allLinesInstance = [...]detailLine{lineName, lineUUID, lineVRAM, lineUtil, lineSM, lineGPU, lineEngines, lineClocks, lineTemp, linePcie, lineECC, lineThrottle}
	allLines         = [...]detailLine{lineName, lineUUID, lineVRAM, lineUtil, lineSM, lineEngines, lineClocks, lineTemp, linePcie, lineECC, lineThrottle, lineGPU}
)

// detail draws the chosen device's numbers.
func (p painter) detail(r rect, lines []detailLine) {
	d := p.v.selected()
	if d == nil || r.h < 1 {
		return
	}
	l := p.line(r, 0).str("Detail ", titleStyle)
	p.deviceName(l, d, 0)
	l.str(" ", 0).str(p.note(&d.device), grey)
	drop := max(len(lines)-(r.h-1), 0)
	row := 1
	for _, k := range lines {
		if i := slices.Index(dropOrder[:], k); i >= 0 && i < drop {
			continue
		}
		p.detailLine(p.line(r, row), d, k)
		row++
	}
}

// gpu is the GPU of d, d itself for a GPU.
func (p painter) gpu(d *listed) *device {
	if d.isGPU() || p.v.snap == nil {
		return &d.device
	}
	for i := range p.v.snap.dev {
		if g := &p.v.snap.dev[i]; g.isGPU() && g.gpu == d.gpu {
			return g
		}
	}
	// A recording of chosen instances lacks their GPU.
	g := &device{gpu: d.gpu, mig: -1, minor: -1, migOn: -1, migNext: -1}
	for m := range g.v {
		g.v[m] = lack(notRecorded)
	}
	return g
}

func (p painter) detailLine(l *line, d *listed, k detailLine) {
	v, g := p.v, p.gpu(d)
	of := func(m metric) value { return v.of(&d.device, m) }
	ofGPU := func(m metric) value { return v.of(g, m) }
	switch k {
	case lineName:
		l.str(d.name, 0).str(" ", 0).str(d.profile, cyan)
		if d.sms > 0 {
			l.str("  ", 0).int(d.sms, 0).str(" SMs", 0)
		}
	case lineUUID:
		l.str(d.uuid, 0).str("  ", 0).str(g.bus, 0).str("  ", 0).str(g.arch, 0).str(" ", 0).str(g.cc, 0)
		if g.minor >= 0 {
			l.str("  minor ", 0).int(g.minor, 0)
		}
	case lineVRAM:
		p.vramLine(l, d)
	case lineUtil:
		util := of(mUtil)
		l.str("util ", 0).value(util, percent, utilStyle(util)).percentSign(util)
		if d.src != srcNone {
			l.str(" ", 0).str(d.src.String(), grey)
		}
		if d.isGPU() {
			l.metric("  mem ctrl ", of(mMemUtil), percent)
		}
		l.metric("  dram ", of(mDRAM), percent).why(util)
	case lineSM:
		l.metric("SM active ", of(mSMUtil), percent).metric("  occupancy ", of(mSMOcc), percent).metric("  tensor ", of(mTensor), percent).why(of(mSMUtil))
	case lineGPU:
		l.str("GPU ", titleStyle).int(d.gpu, titleStyle).str(" ", 0).str(shortName(g.name), 0).str(" ", 0).str(p.note(g), grey)
	case lineEngines:
		l.metric("enc ", ofGPU(mEnc), percent).metric("  dec ", ofGPU(mDec), percent).metric("  jpg ", ofGPU(mJpg), percent).metric("  ofa ", ofGPU(mOfa), percent).why(ofGPU(mEnc))
	case lineClocks:
		p.clockLine(l, ofGPU)
	case lineTemp:
		p.tempLine(l, ofGPU)
	case linePcie:
		l.str("PCIe gen ", 0).value(ofGPU(mPcieGen), count, 0).str(" x", 0).value(ofGPU(mPcieWidth), count, 0)
		l.str("  tx ", 0).value(ofGPU(mPcieTx), byteRate, lightCyan).str("  rx ", 0).value(ofGPU(mPcieRx), byteRate, lightCyan).str(" MB/s", 0).why(ofGPU(mPcieTx))
	case lineECC:
		p.eccLine(l, d, ofGPU)
	case lineThrottle:
		p.throttleLine(l, d, g)
	}
}

// metric writes a label and a percentage.
func (l *line) metric(label string, v value, u unit) *line {
	return l.str(label, 0).value(v, u, utilStyle(v)).percentSign(v)
}

func (p painter) vramLine(l *line, d *listed) {
	used, total := p.v.of(&d.device, mMemUsed), p.v.of(&d.device, mMemTotal)
	pct := share(used, total)
	l.str("VRAM ", 0).size(used, utilStyle(pct)).str(" / ", 0).size(total, 0).str("  ", 0)
	l.bar(pct, measure100, 10, utilStyle(pct)).str(" ", 0).value(pct, percent, utilStyle(pct)).percentSign(pct)
	if d.shared {
		l.str("  shared with the compute instance above", grey)
	}
	l.age(used).why(used)
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

func (p painter) clockLine(l *line, of func(metric) value) {
	l.str("clocks gfx ", 0).value(of(mClkGfx), megahertz, cyan).str(" SM ", 0).value(of(mClkSM), megahertz, cyan).str(" mem ", 0).value(of(mClkMem), megahertz, cyan).str(" MHz", 0)
	state := of(mPState)
	st := red
	if n, ok := state.num(); ok && n == 0 {
		st = green
	} else if ok && n <= 4 {
		st = yellow
	}
	l.str("  P", 0).value(state, count, st).why(of(mClkGfx))
}

// tempStyle is by the distance to slowdown where that is known, else by degrees.
func tempStyle(t, slow value) style {
	n, ok := t.num()
	if limit, known := slow.num(); ok && known {
		switch {
		case limit-n > 20:
			return green
		case limit-n > 5:
			return yellow
		}
		return red
	}
	switch {
	case !ok:
		return grey
	case n < 60:
		return green
	case n < 80:
		return yellow
	}
	return red
}

func (p painter) tempLine(l *line, of func(metric) value) {
	t, slow := of(mTemp), of(mTempSlow)
	l.str("temp ", 0).value(t, celsius, tempStyle(t, slow)).str(" C", 0)
	if slow.from != absent {
		l.str(" (slows at ", 0).value(slow, celsius, 0).str(")", 0)
	} else if off := of(mTempSlowOffset); off.from != absent {
		if left := of(mTempMargin).minus(off); left.from != absent {
			l.str(" (", 0).value(left, celsius, tempStyle(t, slow)).str(" left to slowdown)", 0)
		} else {
			l.str(" (T.Limit ", 0).value(off, celsius, 0).str(")", 0)
		}
	}
	l.str("  mem ", 0).value(of(mMemTemp), celsius, 0).str(" C  power ", 0).value(of(mPower), milliwatt, 0).str(" / ", 0).value(of(mPowerLimit), milliwatt, 0).str(" W", 0).why(t)
}

func (p painter) eccLine(l *line, d *listed, of func(metric) value) {
	on := of(mECC)
	l.str("ECC ", 0)
	switch n, ok := on.num(); {
	case !ok:
		l.str("-", grey).why(on)
	case n == 0:
		l.str("off", 0)
	default:
		bad := of(mECCUncorr)
		st := green
		if n, ok := bad.num(); ok && n > 0 {
			st = red | bold
		}
		l.str("corrected ", 0).value(of(mECCCorr), count, 0).str(" uncorrected ", 0).value(bad, count, st)
	}
	x := p.v.of(&d.device, mXID)
	l.str("  XID ", 0)
	if n, ok := x.num(); ok && n == 0 {
		l.str("none", markStyle(x, green))
		if x.from == held {
			l.str("*", grey)
		}
	} else {
		l.value(x, count, red|bold)
	}
	if !d.xidAt.IsZero() {
		p.v.buf = d.xidAt.AppendFormat(append(p.v.buf[:0], " at "...), "15:04:05, ")
		l.bytes(p.v.buf, 0).value(d.v[mXIDCount], count, 0).str(" in all", 0)
	}
}

func (p painter) throttleLine(l *line, d *listed, g *device) {
	procs := p.v.of(&d.device, mProcs)
	l.str("processes ", 0).value(procs, count, 0).why(procs).str("  throttle ", 0)
	bits := p.v.of(g, mThrottle)
	p.v.buf = appendThrottle(p.v.buf[:0], nil, g)
	st := red | bold
	if n, ok := bits.num(); ok && n <= 1 { // idle is no throttling
		st = green
	} else if !ok {
		st = grey
	}
	l.bytes(p.v.buf, markStyle(bits, st))
	if bits.from == held {
		l.str("*", grey)
	}
}

// processColumn is one column of the process list. They are dropped from a narrow panel by rank, highest
// first.
type processColumn struct {
	title string
	w     int
	rank  int
}

const (
	colPID = iota
	colUser
	colVRAM
	colRSS
	colPSS
	colUSS
	colCPU
	colTime
	colJob
	colCommand
)

var processColumns = [...]processColumn{
	colPID: {"PID", 8, 0}, colUser: {"USER", 9, 2}, colVRAM: {"VRAM", 8, 1}, colRSS: {"RSS", 8, 3}, colPSS: {"PSS", 8, 4},
	colUSS: {"USS", 8, 5}, colCPU: {"CPU%", 6, 6}, colTime: {"TIME", 10, 8}, colJob: {"JOB", 13, 7}, colCommand: {"COMMAND", 12, 0},
}

// process writes pr's field of column i.
func (l *line) process(i int, pr *process) {
	switch i {
	case colPID:
		l.int(int(pr.pid), 0)
	case colUser:
		l.str(clip(known(pr, pr.user), 8), 0)
	case colVRAM:
		l.size(l.p.v.aged(pr.mem), magenta)
	case colRSS:
		l.size(l.p.v.aged(pr.rss), 0)
	case colPSS:
		l.size(l.p.v.shares(pr).pss, 0)
	case colUSS:
		l.size(l.p.v.shares(pr).uss, 0)
	case colCPU:
		l.value(l.p.v.aged(pr.cpu), percent, cyan)
	case colTime:
		l.duration(l.p.v.aged(pr.cpuTime))
	case colJob:
		l.str(clip(known(pr, pr.job), 12), 0)
	case colCommand:
		l.str(known(pr, pr.command), 0)
	}
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

// processes lists the chosen device's processes; a GPU's with those of its instances.
func (p painter) processes(r rect) {
	d := p.v.selected()
	if r.h < 2 || d == nil || p.v.snap == nil {
		return
	}
	procs := p.v.of(&d.device, mProcs)
	p.line(r, 0).str("Top processes ", titleStyle).value(procs, count, titleStyle).age(procs).why(procs)
	most := p.shownRank(r.w)
	head := p.line(r, 1)
	x := r.x
	for i, c := range processColumns {
		if p.columnShown(i, most) {
			head.x = x
			head.str(c.title, bold)
			x += c.w
		}
	}
	row := 2
	for i := range p.v.snap.proc {
		pr := &p.v.snap.proc[i]
		if row >= r.h || !p.v.lists(pr) {
			continue
		}
		l, x := p.line(r, row), r.x
		for j, c := range processColumns {
			if p.columnShown(j, most) {
				l.x, l.end = x, min(x+c.w-1, r.x+r.w)
				if j == colCommand {
					l.end = r.x + r.w
				}
				l.process(j, pr)
				x += c.w
			}
		}
		row++
	}
}

// shownRank is the highest rank of column that w cells have room for.
func (p painter) shownRank(w int) int {
	for most := 8; most > 0; most-- {
		need := 0
		for i, c := range processColumns {
			if p.columnShown(i, most) {
				need += c.w
			}
		}
		if need <= w {
			return most
		}
	}
	return 0
}

func (p painter) columnShown(i, most int) bool {
	return processColumns[i].rank <= most && (p.v.pss || i != colPSS && i != colUSS)
}

// charts draws the chosen device's history.
func (p painter) charts(r rect) {
	d := p.v.selected()
	if d == nil || r.h < 2 {
		return
	}
	past := p.v.past.devices[d.id()]
	of := func(m metric) value { return p.v.of(&d.device, m) }
	pcie := d.isGPU() && (of(mPcieTx).from != absent || past.ring(mPcieTx) != nil)
	n := 3
	if pcie {
		n = 4
	}
	n = max(min(n, r.h/2), 1)
	part := func(i int) rect { return rect{r.x, r.y + i*r.h/n, r.w, (i+1)*r.h/n - i*r.h/n} }
	p.percentChart(part(0), "GPU util ", of(mUtil), past.ring(mUtil), green)
	if n > 1 {
		m, title := mDRAM, "DRAM bandwidth "
		if of(mDRAM).from == absent && of(mMemUtil).from != absent {
			m, title = mMemUtil, "memory controller "
		}
		p.percentChart(part(1), title, of(m), past.ring(m), blue)
	}
	if n > 2 {
		p.vramChart(part(2), of(mMemUsed), of(mMemTotal), past.ring(mMemUsed))
	}
	if n > 3 {
		p.pcieChart(part(3), of(mPcieTx), of(mPcieRx), past)
	}
}

func (p painter) percentChart(r rect, title string, v value, past *ring, st style) {
	p.line(r, 0).str(title, titleStyle).value(v, percent, st).percentSign(v).why(v)
	p.chart(r, measure100, st, func(i int) point { return past.ago(i) })
}

func (p painter) vramChart(r rect, used, total value, past *ring) {
	p.line(r, 0).str("VRAM ", titleStyle).size(used, magenta).str(" / ", 0).size(total, 0).age(used).why(used)
	full, _ := total.num()
	p.chart(r, float32(full), magenta, func(i int) point { return past.ago(i) })
}

// pcieChart is sent and received together, on a scale that fits what is visible and is printed.
func (p painter) pcieChart(r rect, tx, rx value, past *series) {
	a, b := past.ring(mPcieTx), past.ring(mPcieRx)
	sum := func(i int) point {
		x, y := a.ago(i), b.ago(i)
		if x.from() == absent || y.from() == absent {
			return 0
		}
		return newPoint(x.num()+y.num(), max(x.from(), y.from()))
	}
	var most float32
	for i := range r.w {
		most = max(most, sum(i).num())
	}
	scale := roundScale(most)
	l := p.line(r, 0).str("PCIe tx ", titleStyle).value(tx, byteRate, lightCyan).str(" rx ", titleStyle).value(rx, byteRate, lightCyan)
	l.str(" MB/s, scale ", 0).int(int(scale/1e6), 0).why(tx)
	p.chart(r, scale, lightCyan, sum)
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

func (p painter) cpuChart(r rect) {
	h := p.v.host
	if h == nil || r.h < 1 {
		return
	}
	l := p.line(r, 0).str("CPU ", titleStyle).value(h.cpu, percent, cyan).percentSign(h.cpu)
	if limit, ok := h.cpuLimit.num(); ok {
		l.str("  ", 0).int(int(limit/10000), 0).str(" of ", 0).int(len(h.cores), 0)
	}
	l.why(h.cpu)
	p.chart(r, measure100, cyan, func(i int) point { return p.v.past.cpu.ago(i) })
}

// bars draws RAM and swap as segments, and what they mean.
func (p painter) bars(r rect) {
	h := p.v.host
	if h == nil || r.h < 1 {
		return
	}
	used, cache := share(h.memUsed, h.memTotal), share(h.memCache, h.memTotal)
	p.segments(p.line(r, 0).str("RAM ", titleStyle), used, cache, hostStyle(used))
	swap := share(h.swapUsed, h.swapTotal)
	if l := p.line(r, 1).str("SWP ", titleStyle); h.noSwap() {
		l.str("none", grey)
	} else {
		p.segments(l, swap, lack(notRead), band(swap, 20, 50, grey, yellow, red))
	}
	marks := p.segmentGlyphs()
	l := p.line(r, 2)
	l.rune(marks[0], hostStyle(used)).str("used ", 0).rune(marks[1], blue).str("cached ", 0).rune(marks[2], grey).str("free  RAM ", 0)
	l.size(h.memUsed, hostStyle(used)).str("/", 0).size(h.memTotal, 0)
	if h.memLimit.from != absent {
		l.str(" (cgroup)", yellow)
	}
	l.str(" (", 0).value(used, percent, hostStyle(used)).str("%)", 0).why(h.memUsed)
	l = p.line(r, 3)
	l.str("u", 0).size(h.memUsed, hostStyle(used)).str("/c", 0).size(h.memCache, blue).str("/f", 0).size(h.memFree, grey)
	l.str(" avl:", 0).size(h.memAvail, white).str("  SWP ", 0).size(h.swapUsed, 0).str("/", 0).size(h.swapTotal, 0)
}

func (l *line) rune(r rune, st style) *line {
	if l.x < l.end {
		l.x += l.p.g.put(l.x, l.y, r, st)
	}
	return l
}

// segmentGlyphs are the marks of used, cached and free, told apart without colour.
func (p painter) segmentGlyphs() [3]rune {
	if p.v.ascii {
		return [3]rune{'#', '=', '.'}
	}
	return [3]rune{'█', '▓', '░'}
}

// segments fills the rest of l with a bar of used, cached and free.
func (p painter) segments(l *line, used, cache value, st style) {
	w := l.end - l.x
	u, ok := used.num()
	c, _ := cache.num()
	if !ok || w <= 0 {
		l.str("-", grey).why(used)
		return
	}
	marks := p.segmentGlyphs()
	a := int(u) * w / measure100
	b := max(int(u+c)*w/measure100, a)
	for i := range w {
		switch {
		case i < a:
			l.rune(marks[0], st)
		case i < b:
			l.rune(marks[1], blue)
		default:
			l.rune(marks[2], grey)
		}
	}
}

// ramChart stacks used and cached memory. In the cell that both share used is drawn on a background of
// cached, so that there is no gap between them.
func (p painter) ramChart(r rect) {
	h := p.v.host
	if h == nil || r.h < 2 {
		return
	}
	pct := share(h.memUsed, h.memTotal)
	p.line(r, 0).str("RAM ", titleStyle).value(pct, percent, hostStyle(pct)).percentSign(pct).str("  used and cached", 0)
	total, ok := h.memTotal.num()
	if !ok {
		return
	}
	rows := r.h - 1
	for i := range r.w {
		u, c := p.v.past.memUsed.ago(i), p.v.past.memCache.ago(i)
		if u.from() == absent {
			continue
		}
		scale := float32(8*rows) / float32(total)
		used := max(int(u.num()*scale+0.5), 1)
		all := used
		if c.from() != absent {
			all = max(int((u.num()+c.num())*scale+0.5), used)
		}
		st := red
		if u.num() < 0.5*float32(total) {
			st = green
		} else if u.num() < 0.8*float32(total) {
			st = yellow
		}
		p.stack(r.x+r.w-1-i, r.y+r.h-1, rows, used, all, st)
	}
}

// stack draws one column of used and all eighths, upwards from y.
func (p painter) stack(x, y, rows, used, all int, st style) {
	gl, marks := p.glyphs(), p.segmentGlyphs()
	for row := range rows {
		u, a := min(max(used-8*row, 0), 8), min(max(all-8*row, 0), 8)
		switch {
		case u == 8:
			p.g.put(x, y-row, gl.level[7], st)
		case u > 0 && a > u && !p.v.ascii:
			p.g.put(x, y-row, gl.level[u-1], st.on(blue))
		case u > 0:
			p.g.put(x, y-row, gl.level[u-1], st)
		case a == 8:
			p.g.put(x, y-row, marks[1], blue)
		case a > 0:
			p.g.put(x, y-row, gl.level[a-1], blue)
		}
	}
}

// node is all GPUs at once, one line each: "profile util/VRAM%" for every instance.
func (p painter) node(r rect) {
	v := p.v
	p.line(r, 0).str("GPU  temp power  profile util/VRAM % of each instance", titleStyle)
	gpus, chosenRow := 0, 0
	for i := range v.rows {
		if v.rows[i].isGPU() {
			gpus++
		}
		if i == v.sel {
			chosenRow = gpus - 1
		}
	}
	row := 1 - window(chosenRow, gpus, r.h-1)
	for i := range v.rows {
		if v.rows[i].isGPU() {
			if row >= 1 && row < r.h {
				p.nodeLine(p.line(r, row), r, i)
			}
			row++
		}
	}
}

// nodeLine is the GPU in row i of the list and the instances after it.
func (p painter) nodeLine(l *line, r rect, i int) {
	v := p.v
	d := &v.rows[i].device
	l.int(d.gpu, p.chosen(i)).str(p.mark(i), chosenStyle)
	if d.fault != notRead {
		l.to(r.x+3).str(d.fault.sentence(), red|bold)
		return
	}
	l.to(r.x+3).right(v.of(d, mTemp), celsius, tempStyle(d.v[mTemp], d.v[mTempSlow]), r.x+5).str("C", 0)
	l.right(v.of(d, mPower), milliwatt, 0, r.x+11).str("W", 0).to(r.x + 14)
	if d.rows == 0 {
		p.nodeCell(l, d, shortName(d.name), p.chosen(i))
		l.str(" ", 0).str(p.note(d), grey)
		return
	}
	cell := min(max((r.w-14)/max(v.mostInstances(), 1), 9), 16)
	for i++; i < len(v.rows) && !v.rows[i].isGPU(); i++ {
		if v.rows[i].removed.IsZero() {
			next := l.x + cell
			l.str(p.mark(i), chosenStyle)
			p.nodeCell(l, &v.rows[i].device, shortProfile(v.rows[i].profile), p.chosen(i))
			l.to(next)
		}
	}
}

// mark stands before or after the name of the selected row, where there is little room.
func (p painter) mark(i int) string {
	if i == p.v.sel {
		return ">"
	}
	return ""
}

// chosen is the style of row i's name.
func (p painter) chosen(i int) style {
	if i == p.v.sel {
		return chosenStyle
	}
	return 0
}

// mostInstances is the number of instances of the GPU that has most.
func (v *view) mostInstances() int {
	most := 0
	for i := range v.rows {
		most = max(most, v.rows[i].rows)
	}
	return most
}

func (p painter) nodeCell(l *line, d *device, name string, st style) {
	util, mem := p.v.of(d, mUtil), share(p.v.of(d, mMemUsed), p.v.of(d, mMemTotal))
	l.str(name, st).str(" ", 0).value(util, percent, utilStyle(util)).str("/", 0).value(mem, percent, utilStyle(mem))
}

// shortProfile is "3g" of "3g.40gb", "1c.3g" of "1c.3g.40gb".
func shortProfile(s string) string {
	for i := len(s) - 1; i > 0; i-- {
		if s[i] == '.' && i > 0 && s[i-1] == 'g' {
			return s[:i]
		}
	}
	return s
}

// table is one line per instance and per GPU without any.
func (p painter) table(r rect) {
	v := p.v
	p.line(r, 0).str("ID    PROFILE        STATE  UTIL             VRAM               IDLE  USER      JOB          COMMAND", titleStyle)
	first := window(v.sel, len(v.rows), r.h-1)
	for i := first; i < len(v.rows) && i-first < r.h-1; i++ {
		p.tableRow(p.line(r, i-first+1), r.x, &v.rows[i], p.chosen(i))
	}
}

func (p painter) tableRow(l *line, x int, d *listed, st style) {
	v := p.v
	l.int(d.gpu, st)
	if !d.isGPU() {
		l.str(".", st).int(d.mig, st)
	}
	name := d.profile
	if d.isGPU() {
		name = shortName(d.name)
	}
	if st == chosenStyle {
		l.str(" >", st)
	}
	l.to(x+6).str(clip(name, 14), st).to(x + 21)
	if !d.removed.IsZero() {
		l.str("removed ", grey).str(d.removed.Format("15:04:05"), grey)
		return
	}
	l.str(p.note(&d.device), 0)
	util, used, total := v.of(&d.device, mUtil), v.of(&d.device, mMemUsed), v.of(&d.device, mMemTotal)
	l.to(x+28).right(util, percent, utilStyle(util), x+32)
	p.spark(l.to(x+33), v.past.devices[d.id()].ring(mUtil), 10)
	mem := share(used, total)
	l.to(x+45).bar(mem, measure100, 10, utilStyle(mem)).right(mem, percent, utilStyle(mem), x+60).percentSign(mem)
	l.right(v.of(&d.device, mIdle), seconds, 0, x+69)
	if list := ownProcesses(v.snap, v.inSnapshot(d)); len(list) > 0 {
		l.to(x+71).str(clip(known(&list[0], list[0].user), 9), 0)
		l.to(x+81).str(clip(known(&list[0], list[0].job), 12), 0)
		l.to(x+94).str(known(&list[0], list[0].command), 0)
	}
}

// inSnapshot is d as the snapshot has it, to which its processes point.
func (v *view) inSnapshot(d *listed) *device {
	for i := range v.snap.dev {
		if v.snap.dev[i].id() == d.id() && v.snap.dev[i].mig == d.mig {
			return &v.snap.dev[i]
		}
	}
	return nil
}

// spark is a chart of one line.
func (p painter) spark(l *line, past *ring, w int) {
	p.chart(rect{l.x, l.y - 1, min(w, max(l.end-l.x, 0)), 2}, measure100, green, func(i int) point { return past.ago(i) })
}

// sortRows orders rows for the table; ties and byID stay in the order of devices.
func sortRows(rows []listed, order sortOrder) {
	value := func(d *listed) (int64, bool) {
		switch order {
		case byUtil:
			return d.v[mUtil].num()
		case byVRAM:
			return d.v[mMemUsed].num()
		case byIdle:
			return d.v[mIdle].num()
		}
		return 0, false
	}
	slices.SortStableFunc(rows, func(a, b listed) int {
		x, xok := value(&a)
		y, yok := value(&b)
		if xok != yok {
			if xok {
				return -1
			}
			return 1
		}
		return cmp.Compare(y, x)
	})
}
