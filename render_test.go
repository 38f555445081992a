package main

import (
	"fmt"
	"html"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// clockOf is the time of all test views.
var clockOf = time.Date(2026, 11, 30, 22, 5, 1, 0, time.UTC)

// withValues sets metrics of d, given in base units.
func withValues(d device, set map[metric]int64) device {
	for m, n := range set {
		d.v[m] = measure(m, n)
	}
	return d
}

func testGPU(n, rows int) device {
	d := device{
		uuid: fmt.Sprintf("GPU-0000000%d-aaaa-bbbb-cccc-dddddddddddd", n), gpu: n, mig: -1, gi: -1, ci: -1, rows: rows,
		name: "NVIDIA H200", bus: "0000:3b:00.0", minor: n, arch: "Hopper", cc: "9.0", migOn: 0, migNext: 0,
	}
	if rows > 0 {
		d.migOn, d.migNext = 1, 1
		d.v[mUtil] = lack(onInstances)
	}
	return withValues(d, map[metric]int64{
		mMemUsed: 41250 << 20, mMemTotal: 143771 << 20, mProcs: 3, mTemp: 53, mMemTemp: 61, mTempSlowOffset: -2, mTempMargin: 34,
		mPower: 433780, mPowerLimit: 700000, mClkGfx: 1980, mClkSM: 1980, mClkMem: 3201, mPState: 0, mThrottle: 4, mPcieGen: 5,
		mPcieWidth: 16, mPcieTx: 21_000_000, mPcieRx: 9_000_000, mECC: 1, mECCCorr: 3, mECCUncorr: 0, mXID: 0,
	})
}

func testInstance(gpu, mig int, profile string, util, used, total int64) device {
	d := device{
		uuid: fmt.Sprintf("MIG-%d%d", gpu, mig), gpu: gpu, mig: mig, gi: 7 + mig, ci: 0, name: "NVIDIA H200", profile: profile,
		minor: -1, gSlices: 1, cSlices: 1, sms: 16, src: srcGPM, migOn: -1, migNext: -1,
	}
	d = withValues(d, map[metric]int64{
		mUtil: util * 100, mSMUtil: util * 90, mSMOcc: util * 50, mTensor: util * 30, mDRAM: util * 60,
		mMemUsed: used << 20, mMemTotal: total << 20, mProcs: min(used/1000, 2), mIdle: 3000, mXID: 0,
	})
	for m := range metrics[:deviceMetrics] {
		if metrics[m].gpuOnly {
			d.v[m] = lack(onGPU)
		}
	}
	d.v[mMemUtil] = lack(noMIG)
	return d
}

func testHost() *hostState {
	h := &hostState{
		cpu: measure(mHostCPU, 3400), memTotal: measure(mHostMem, 64<<30), memUsed: measure(mHostMem, 22<<30), memCache: measure(mHostMem, 12<<30),
		memFree: measure(mHostMem, 30<<30), memAvail: measure(mHostMem, 41<<30), swapTotal: measure(mHostMem, 8<<30), swapUsed: measure(mHostMem, 1<<30),
	}
	for i := range 16 {
		h.cores = append(h.cores, measure(mHostCPU, int64(i*631%10001)))
		h.coreIDs = append(h.coreIDs, i)
	}
	h.cores[5] = lack(counterReset)
	return h
}

// testView is a view of devs with a history of 60 ticks in which values rose and once were missing.
func testView(devs []device, procs ...process) *view {
	s := &snapshot{seq: 60, at: clockOf, host: "node17", interval: time.Second, driver: "580.95.05", cuda: "13.0", dev: devs, proc: procs}
	v := &view{snap: s, host: testHost(), past: newHistory(), now: clockOf, interval: time.Second}
	for i := range 60 {
		then := snapshot{dev: append([]device(nil), devs...)}
		for j := range then.dev {
			d := &then.dev[j]
			for _, m := range charted {
				if n, ok := d.v[m].num(); ok && d.v[m].from == measured {
					d.v[m] = measure(m, n*int64(i+1)/60)
				}
				if i == 40 && m == mUtil {
					d.v[m] = lack(inUse)
				}
			}
		}
		host := testHost()
		host.memUsed = measure(mHostMem, int64(i)<<28)
		then.at = clockOf.Add(time.Duration(i-60) * time.Second)
		addTick(v.past, then.at, time.Second, &then, host)
	}
	for _, d := range devs {
		v.rows = append(v.rows, listed{device: d})
	}
	if len(v.rows) == 0 {
		v.sel = -1
	}
	return v
}

// addTick is a tick whose answer comes at once, or not at all.
func addTick(h *history, at time.Time, interval time.Duration, s *snapshot, host *hostState) {
	slot := h.tick(at, interval, host)
	if s != nil {
		h.fill(slot, s)
	}
}

// picture is g as text: the glyphs, then a letter for the style of each cell, then what the letters mean.
func picture(g *grid) string {
	var glyphs, styles, legend strings.Builder
	letters := map[style]byte{0: ' '}
	for y := range g.h {
		var row, st strings.Builder
		for x := range g.w {
			c := g.cells[y*g.w+x]
			if c.r == 0 {
				continue
			}
			row.WriteRune(c.r)
			if letters[c.s] == 0 {
				letters[c.s] = byte('a' + len(letters) - 1)
				fmt.Fprintf(&legend, "%c %s\n", letters[c.s], strings.ReplaceAll(string(c.s.appendSGR(nil)), "\x1b", "ESC"))
			}
			st.WriteByte(letters[c.s])
		}
		glyphs.WriteString(strings.TrimRight(row.String(), " ") + "\n")
		styles.WriteString(strings.TrimRight(st.String(), " ") + "\n")
	}
	return glyphs.String() + "--- styles\n" + styles.String() + "--- legend\n" + legend.String()
}

func fourInstances() []device {
	return []device{
		testGPU(0, 4), testInstance(0, 0, "3g.71gb", 54, 40000, 71424), testInstance(0, 1, "2g.35gb", 0, 1200, 33280),
		testInstance(0, 2, "1g.18gb", 93, 16000, 16384), testInstance(0, 3, "1g.18gb", 0, 9, 16384),
	}
}

func allAbsent() []device {
	devs := fourInstances()
	for i := range devs {
		for m := range devs[i].v {
			devs[i].v[m] = lack(needsHopper)
		}
		devs[i].src = srcNone
	}
	devs[1].v[mMemUsed], devs[1].v[mMemTotal] = lack(noPermission), lack(noPermission)
	return devs
}

func heldAndEstimated() []device {
	devs := fourInstances()
	d := &devs[1]
	d.v[mUtil], d.src = d.v[mUtil].estimate(), srcEst
	d.v[mMemUsed], d.v[mMemTotal] = d.v[mMemUsed].hold(4*time.Second, inUse), d.v[mMemTotal].hold(4*time.Second, inUse)
	d.v[mProcs] = d.v[mProcs].hold(4*time.Second, inUse)
	return devs
}

func eightBySeven() []device {
	var devs []device
	for n := range 8 {
		devs = append(devs, testGPU(n, 7))
		for k := range 7 {
			devs = append(devs, testInstance(n, k, "1g.18gb", int64((n*13+k*17)%101), int64(n*2000+k*100+9), 16384))
		}
	}
	return devs
}

func testProcess(dev int, pid uint32, command string) process {
	return process{dev: dev, pid: pid, kind: "C", mem: measure(mProcMem, int64(pid)<<20), hostFacts: hostFacts{
		known: true, start: 1, user: "alice", job: "job_1234", command: command,
		rss: measure(mRSS, 3<<30), cpu: measure(mCPU, 14250), cpuTime: measure(mCPUTime, 3_723_000),
	}}
}

func TestGoldenFrames(t *testing.T) {
	hangul := testProcess(1, 4001, "python 학습.py --이름 \x1b[2J\x1b]0;pwned\a 끝")
	for _, c := range []struct {
		name string
		w, h int
		devs []device
		sel  int
		edit func(*view)
	}{
		{"none", 80, 24, nil, -1, nil},
		{"waiting", 80, 24, nil, -1, func(v *view) { v.snap, v.rows = nil, nil }},
		{"whole", 120, 35, []device{withValues(testGPU(0, 0), map[metric]int64{mUtil: 9700, mMemUtil: 4400, mEnc: 0, mDec: 300})}, 0, nil},
		{"four-80x24", 80, 24, fourInstances(), 1, nil},
		{"four-120x35", 120, 35, fourInstances(), 1, nil},
		{"four-200x50", 200, 50, fourInstances(), 3, nil},
		{"four-40x12", 40, 12, fourInstances(), 1, nil},
		{"xid", 120, 35, fourInstances(), 1, func(v *view) {
			d := &v.rows[1].device
			d.v[mXID], d.v[mXIDCount], d.xidAt = measure(mXID, 94), measure(mXIDCount, 2), clockOf.Add(-time.Minute)
		}},
		{"four-ascii", 120, 35, fourInstances(), 1, func(v *view) { v.ascii = true }},
		{"four-mono", 120, 35, fourInstances(), 1, nil},
		{"absent", 160, 45, allAbsent(), 1, nil},
		{"held-estimated", 160, 45, heldAndEstimated(), 1, nil},
		{"silent", 120, 35, fourInstances(), 1, func(v *view) { v.silent = 12 * time.Second }},
		{"released", 80, 24, fourInstances(), 1, func(v *view) { v.paused, v.closed, v.silent = true, true, 12*time.Second }},
		{"releasing", 80, 24, fourInstances(), 1, func(v *view) { v.paused = true }},
		{"removed", 120, 35, fourInstances(), 0, func(v *view) { v.rows[4].removed = clockOf.Add(-9 * time.Second) }},
		{"eight-node", 80, 24, eightBySeven(), 9, func(v *view) { v.mode = viewNode }},
		{"eight-table", 120, 35, eightBySeven(), 9, func(v *view) { v.mode = viewTable }},
		{"eight-detail", 160, 45, eightBySeven(), 40, nil},
		{"help", 80, 24, fourInstances(), 1, func(v *view) { v.help = true }},
		{"small", 39, 9, fourInstances(), 1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var procs []process
			if len(c.devs) > 1 {
				procs = []process{hangul, testProcess(1, 4000, "python train.py")}
			}
			v := testView(c.devs, procs...)
			v.sel = c.sel
			if c.edit != nil {
				c.edit(v)
			}
			var g grid
			g.resize(c.w, c.h)
			paint(&g, v)
			if c.name == "four-mono" {
				(&screen{want: g, mono: true}).reduce()
			}
			golden(t, "frame-"+c.name+".txt", picture(&g))
		})
	}
}

// TestLayoutAtAllSizes: panels are inside the screen and apart from each other, whatever is shown.
func TestLayoutAtAllSizes(t *testing.T) {
	for w := minWidth; w <= 300; w++ {
		for h := minHeight; h <= 100; h++ {
			for _, devices := range []int{0, 1, 5, 64} {
				for _, details := range []int{0, 12, 13} {
					checkLayout(t, w, h, layout(w, h, details, devices, details%5*3))
				}
			}
		}
	}
}

func checkLayout(t *testing.T, w, h int, p panels) {
	t.Helper()
	all := []rect{p.cores, p.devices, p.detail, p.procs, p.charts, p.cpu, p.bars, p.ram}
	for i, r := range all {
		if r.w <= 0 || r.h <= 0 {
			if r.h < 0 || r.w < 0 {
				t.Fatalf("%dx%d: panel %d is %+v", w, h, i, r)
			}
			continue
		}
		if r.x < 0 || r.y < 1 || r.x+r.w > w || r.y+r.h > h-1 {
			t.Fatalf("%dx%d: panel %d %+v is not inside", w, h, i, r)
		}
		for j, o := range all[:i] {
			if o.h > 0 && o.w > 0 && r.x < o.x+o.w && o.x < r.x+r.w && r.y < o.y+o.h && o.y < r.y+r.h {
				t.Fatalf("%dx%d: panels %d %+v and %d %+v overlap", w, h, i, r, j, o)
			}
		}
	}
	if p.devices.h < 2 && h >= 14 || p.charts.h < 2 {
		t.Fatalf("%dx%d: devices %+v charts %+v", w, h, p.devices, p.charts)
	}
}

// TestPaintAtAllSizes: no size, view or number of devices makes it panic or leaves a control character.
func TestPaintAtAllSizes(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 7
	}
	views := []*view{testView(nil), testView(eightBySeven()), testView(heldAndEstimated(), testProcess(1, 7, "한글 \x1b[2J"))}
	var g grid
	for w := 1; w <= 300; w += step {
		for _, h := range []int{1, 2, 9, 10, 11, 12, 13, 15, 18, 24, 34, 35, 36, 50, 100} {
			for i, v := range views {
				v.mode = viewMode((w + h + i) % int(viewModes))
				v.help = w%11 == 0
				v.sel = min((w*7+h)%70, len(v.rows)-1)
				g.resize(w, h)
				paint(&g, v)
				for _, c := range g.cells {
					if c.r != 0 && c.r < ' ' {
						t.Fatalf("%dx%d: control character %q", w, h, c.r)
					}
				}
			}
		}
	}
}

// TestFrameAllocatesNothing: history, painting and flushing cost no memory once they run.
func TestFrameAllocatesNothing(t *testing.T) {
	v := testView(eightBySeven(), testProcess(1, 4001, "python train.py"))
	v.sel = 1
	var scr screen
	scr.resize(160, 45)
	at := clockOf
	for mode := range viewModes {
		v.mode = mode
		n := testing.AllocsPerRun(50, func() {
			at = at.Add(time.Second)
			addTick(v.past, at, time.Second, v.snap, v.host)
			paint(&scr.want, v)
			_ = scr.flush(io.Discard)
		})
		if n > 0 {
			t.Errorf("view %d: %v allocations per frame", mode, n)
		}
	}
}

// TestHistoryKeepsTime: a slot per interval by the clock, gaps for what was missed, late answers in the
// slot of the tick that asked, and nothing inherited by an instance with another birth.
func TestHistoryKeepsTime(t *testing.T) {
	h := newHistory()
	d := testInstance(0, 0, "1g.18gb", 50, 100, 1000)
	at := func(ms int) time.Time { return clockOf.Add(time.Duration(ms) * time.Millisecond) }
	tick := func(ms int) int { return h.tick(at(ms), time.Second, testHost()) }
	answer := func(slot, ms int, util int64) {
		one := d
		one.v[mUtil] = measure(mUtil, util)
		h.fill(slot, &snapshot{at: at(ms), dev: []device{one}})
	}
	line := func() string {
		var b strings.Builder
		r := h.devices[d.id()].ring(mUtil)
		for i := 5; i >= 0; i-- {
			p := r.ago(i)
			if p.from() == absent {
				b.WriteString("_ ")
			} else {
				fmt.Fprintf(&b, "%.0f ", p.num())
			}
		}
		return b.String()
	}
	expect := func(what, want string) {
		t.Helper()
		if got := line(); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	answer(tick(0), 60, 1)
	slot := tick(1000)
	tick(1990) // jitter
	expect("unanswered", "_ _ _ 1 _ _ ")
	answer(slot, 2100, 2)
	expect("late answer", "_ _ _ 1 2 _ ")
	answer(tick(5020), 5060, 3) // two slots were missed
	expect("gap", "1 2 _ _ _ 3 ")
	d.born = 7
	answer(tick(6010), 6020, 9)
	expect("another birth", "_ _ _ _ _ 9 ")
	d.born = 0
	expect("the old one", "2 _ _ _ 3 _ ")
	for i := range 40 {
		tick(7000 + i*1000)
	}
	if len(h.devices) != 2 {
		t.Errorf("silence forgot devices: %d are left", len(h.devices))
	}
	d.born = 7
	answer(tick(47000), 47000, 5)
	if len(h.devices) != 1 {
		t.Errorf("%d series are kept of devices that are gone", len(h.devices))
	}
	expect("after the silence", "_ _ _ _ _ 5 ")
	h.tick(at(47500), 200*time.Millisecond, testHost())
	h.tick(at(47700), 200*time.Millisecond, testHost())
	expect("another interval", "_ _ _ 5 _ _ ")
}

// TestOriginsLookDifferent in text, bars and charts, also without colour.
func TestOriginsLookDifferent(t *testing.T) {
	seen := map[string]string{}
	for name, v := range map[string]value{
		"absent": lack(inUse), "zero": measure(mUtil, 0), "measured": measure(mUtil, 5000),
		"estimated": measure(mUtil, 5000).estimate(), "held": measure(mUtil, 5000).hold(time.Second, inUse),
	} {
		var g grid
		g.resize(20, 6)
		vw := &view{past: newHistory()}
		p := painter{&g, vw}
		p.line(rect{0, 0, 20, 1}, 0).value(v, percent, green).str(" ", 0).bar(v, measure100, 8, green)
		n, _ := v.num()
		p.chart(rect{0, 1, 1, 5}, measure100, green, func(i int) point {
			if i > 0 {
				return 0
			}
			return newPoint(float32(n), v.from)
		})
		for i := range g.cells {
			g.cells[i].s &= attributes
		}
		text := fmt.Sprint(g.cells[:20])
		chart := fmt.Sprint(g.cells[20:])
		for part, look := range map[string]string{"text": text, "chart": chart} {
			if other, ok := seen[part+look]; ok {
				t.Errorf("%s of %s looks like %s", part, name, other)
			}
			seen[part+look] = name
		}
	}
}

func TestShowSize(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0M", 1 << 20: "1M", 999 << 20: "999M", 1000 << 20: "1.0G", 1 << 30: "1.0G", 40000 << 20: "39.1G", 100 << 30: "100G", 1024 << 30: "1024G",
	} {
		if got := string(measure(mMemUsed, bytes).showSize(nil)); got != want {
			t.Errorf("%d: %s, want %s", bytes, got, want)
		}
	}
	v := measure(mMemUsed, 40000<<20)
	if a, b, c := string(v.hold(0, inUse).showSize(nil)), string(v.estimate().showSize(nil)), string(lack(inUse).showSize(nil)); a != "39.1G*" || b != "~39.1G" || c != "-" {
		t.Errorf("%s %s %s", a, b, c)
	}
}

// TestNumbersAreWhole: a number that does not fit is left out, not cut to another number.
func TestNumbersAreWhole(t *testing.T) {
	devs := fourInstances()
	devs[0] = withValues(devs[0], map[metric]int64{mPcieTx: 63_123_000_000, mPcieRx: 61_999_000_000, mPower: 434_000})
	devs[0].name = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
	procs := []process{testProcess(1, 4001, "x")}
	procs[0].cpuTime = measure(mCPUTime, 30720*3600*1000)
	v := testView(devs, procs...)
	v.sel = 1
	var g grid
	for w := minWidth; w <= 200; w++ {
		g.resize(w, 50)
		paint(&g, v)
		for y := range g.h {
			for _, word := range strings.FieldsFunc(rowText(&g, y), func(r rune) bool { return strings.ContainsRune(" :/()", r) }) {
				for _, whole := range []string{"63123", "61999", "434", "1280d"} {
					if len(word) > 1 && len(word) < len(whole) && strings.HasPrefix(whole, word) && word != "61" && word != "43" && word != "12" && word != "128" {
						t.Fatalf("%d columns: %q of %s in %q", w, word, whole, rowText(&g, y))
					}
				}
			}
		}
	}
}

// BenchmarkFrame paints and flushes a frame in which the charts move.
func BenchmarkFrame(b *testing.B) {
	v := testView(eightBySeven())
	v.sel = 1
	var scr screen
	scr.resize(160, 45)
	var out countingWriter
	at := clockOf
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		at = at.Add(time.Second)
		for j := range v.snap.dev {
			v.snap.dev[j].v[mUtil] = measure(mUtil, int64((i*i+j*7)%30+40)*100)
			v.snap.dev[j].v[mDRAM] = measure(mDRAM, int64((i*i+j*7)%20+30)*100)
			v.rows[j].device = v.snap.dev[j]
		}
		v.host.cpu = measure(mHostCPU, int64(i*i%20+10)*100)
		v.now = at
		addTick(v.past, at, time.Second, v.snap, v.host)
		paint(&scr.want, v)
		_ = scr.flush(&out)
	}
	b.ReportMetric(float64(out)/float64(b.N), "bytes/frame")
}

type countingWriter int

func (n *countingWriter) Write(b []byte) (int, error) {
	*n += countingWriter(len(b))
	return len(b), nil
}

// svgColours are a terminal's 16 colours, and its own two.
var svgColours = [...]string{
	"#d8dee9", "#2e3440", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dee9",
	"#7f8794", "#ff7b85", "#b5e890", "#ffd68a", "#7cc4ff", "#e08cf5", "#6fd6e3", "#ffffff",
}

// svg is g as a picture. Blocks are drawn, since fonts leave gaps between them.
func svg(g *grid) string {
	const cw, ch = 8, 17
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="13" shape-rendering="crispEdges">`+"\n",
		g.w*cw+16, g.h*ch+16)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="6" fill="#1b1f27"/>`+"\n")
	rect := func(x, y, w, h float64, fill, more string) {
		fmt.Fprintf(&b, `<rect x="%g" y="%g" width="%g" height="%g" fill="%s"%s/>`+"\n", 8+x*cw, 8+y*ch, w*cw, h*ch, fill, more)
	}
	for y := range g.h {
		row := g.cells[y*g.w : (y+1)*g.w]
		for x := 0; x < g.w; {
			c := row[x]
			n := 1
			for x+n < g.w && row[x+n] == c && strings.ContainsRune("▁▂▃▄▅▆▇█▓░", c.r) {
				n++
			}
			fill, paper := svgColours[c.s&colourMask], c.s>>paperShift&colourMask
			if paper != 0 {
				rect(float64(x), float64(y), float64(n), 1, svgColours[paper], "")
			}
			if level := strings.Index("▁▂▃▄▅▆▇█", string(c.r)) / len("▁"); level >= 0 && strings.ContainsRune("▁▂▃▄▅▆▇█", c.r) {
				h := float64(level+1) / 8
				rect(float64(x), float64(y)+1-h, float64(n), h, fill, "")
			} else if c.r == '▓' || c.r == '░' {
				rect(float64(x), float64(y), float64(n), 1, fill, map[rune]string{'▓': ` opacity=".75"`, '░': ` opacity=".3"`}[c.r])
			} else if c.r > ' ' {
				for x+n < g.w && row[x+n].s == c.s && (row[x+n].r == ' ' && x+n+1 < g.w && row[x+n+1].s == c.s && row[x+n+1].r > ' ' || row[x+n].r > ' ' && row[x+n].r < 0x2500) {
					n++
				}
				var text strings.Builder
				for _, c := range row[x : x+n] {
					text.WriteRune(c.r)
				}
				more := ""
				if c.s&bold != 0 {
					more = ` font-weight="bold"`
				}
				if c.s&dim != 0 {
					more += ` opacity=".65"`
				}
				fmt.Fprintf(&b, `<text x="%d" y="%d" textLength="%d" xml:space="preserve" fill="%s"%s>%s</text>`+"\n",
					8+x*cw, 8+y*ch+13, n*cw, fill, more, html.EscapeString(text.String()))
			}
			x += n
		}
	}
	return b.String() + "</svg>\n"
}

// TestPicture keeps the README's picture, which is a frame of the demo, true.
func TestPicture(t *testing.T) {
	s, err := openDemo(false)
	if err != nil {
		t.Fatal(err)
	}
	var snap snapshot
	v := &view{past: newHistory(), replay: true, interval: time.Second}
	for range 30 {
		if err := s.sample(&snap); err != nil {
			t.Fatal(err)
		}
		addTick(v.past, snap.at, time.Second, &snap, snap.system)
	}
	v.snap, v.host, v.now, v.sel = &snap, snap.system, snap.at.UTC(), 1
	for i := range snap.dev {
		v.rows = append(v.rows, listed{device: snap.dev[i]})
	}
	var g grid
	g.resize(132, 42)
	paint(&g, v)
	picture := svg(&g)
	if *update {
		if err := os.WriteFile("screen.svg", []byte(picture), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if file, err := os.ReadFile("screen.svg"); err != nil || string(file) != picture {
		t.Errorf("screen.svg is not the picture of the demo: %v (go test -run TestPicture -update rewrites it)", err)
	}
}
