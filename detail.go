// detail.go owns the view of one device and the host: its panels, where they are, and what they say.
//
// Invariant: a value that belongs to the GPU stands under the GPU's name, also where an instance is chosen.
package main

import "slices"

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
