package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// seat is a person before the full screen without a terminal: a dashboard with a clock that the test has in hand,
// and a source that is asked when the dashboard wants it to be.
type seat struct {
	t    *testing.T
	b    *dashboard
	now  time.Time
	host hostState
	tape *replaySource // nil: snapshots come by take
	snap [3]snapshot   // as many as a session has
	n    int
	want orders // what was wanted last, but for what the tape gives
}

func sit(t *testing.T, c *config, w, h int) *seat {
	t.Helper()
	s := &seat{t: t, now: clockOf}
	if c.shows == nil {
		c.shows = func(*device) bool { return true }
	}
	if c.interval == 0 {
		c.interval = time.Second
	}
	s.b = newDashboard(c, false, s.now)
	s.b.w, s.b.h = w, h
	return s
}

// sitBefore is sit with the recording at path.
func sitBefore(t *testing.T, path string, w, h int) *seat {
	t.Helper()
	s := sit(t, &config{replay: path}, w, h)
	var err error
	if s.tape, err = openReplay(path); err != nil {
		t.Fatal(err)
	}
	s.do(orders{sample: true})
	return s
}

// do carries out what is wanted of a recording, as a session does.
func (s *seat) do(o orders) {
	s.want = o
	if s.tape == nil || !o.sample {
		return
	}
	if o.back {
		s.tape.obey(orderBack)
	}
	s.n++
	snap := &s.snap[s.n%len(s.snap)]
	if err := s.tape.sample(snap); err != nil {
		s.do(s.b.ended(err))
		return
	}
	s.do(s.b.snapshot(s.now, snap, false))
}

// take has snap answer a tick.
func (s *seat) take(snap *snapshot) {
	s.now = s.now.Add(time.Second)
	snap.at, snap.interval, snap.system = s.now, time.Second, &s.host
	s.do(s.b.tick(s.now, &s.host, true))
	s.do(s.b.snapshot(s.now, snap, false))
}

// press types keys, one byte each.
func (s *seat) press(keys string) {
	for _, k := range []byte(keys) {
		s.do(s.b.key(s.now, key(k), nil))
	}
}

// pass lets time go by, in which what is due is done.
func (s *seat) pass(d time.Duration) {
	for until := s.now.Add(d); s.now.Before(until); {
		s.now = s.now.Add(10 * time.Millisecond)
		if passed(s.b.due(), s.now) {
			s.do(s.b.wake(s.now))
		}
	}
}

// sees is what the screen shows.
func (s *seat) sees() string {
	var g grid
	g.resize(s.b.w, s.b.h)
	paint(&g, s.b.show(s.now, 0, false, ""))
	var b strings.Builder
	for y := range g.h {
		b.WriteString(rowText(&g, y) + "\n")
	}
	return b.String()
}

// expect fails unless the screen shows all of what.
func (s *seat) expect(when string, what ...string) {
	s.t.Helper()
	text := s.sees()
	for _, w := range what {
		if !strings.Contains(text, w) {
			s.t.Errorf("%s: no %q on the screen:\n%s", when, w, text)
		}
	}
}

// demoRecord is the n-th record of the demo, as a driver would have answered it.
func demoRecord(t *testing.T, n int) *snapshot {
	t.Helper()
	src, err := openDemo(false)
	if err != nil {
		t.Fatal(err)
	}
	var s snapshot
	for range n + 1 {
		if err := src.sample(&s); err != nil {
			t.Fatal(err)
		}
	}
	s.tape, s.notes = tape{}, nil
	return &s
}

// TestScreenReplay: the keys of a recording, its label, its end, its gaps and the lines that were skipped.
func TestScreenReplay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.jsonl")
	var b strings.Builder
	for i := range 40 {
		at := 1753000000000 + 200*i
		if i >= 20 {
			at += 10_400
		}
		fmt.Fprintf(&b, `{"v":1,"ts_ms":%d,"backend":"nvml","driver":"550.1","host":"far","interval_ms":200,"gpus":[{"gpu":0,"name":"X","utilization_pct":%d}],`+
			`"processes":[{"pid":1,"gpu_index":0,"kind":"Compute","gpu_mem_bytes":1048576}]}`+"\nrubbish\n", at, i+10)
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	s := sitBefore(t, file, 160, 40)
	s.expect("the first", "replay", "far nvml driver 550.1", "1 GPU")
	s.press(" ")
	s.expect("stopped", "replay stopped", "util 10%")
	s.pass(5 * time.Second)
	s.expect("still stopped", "util 10%")
	s.press("..........,,,,,,,,,,,,,,,,,,,,")
	s.expect("forth and back", "util 10%", "replay stopped 2%", "08:26:40", "every 200ms", "goes back no further")
	s.press(".")
	s.expect("the second", "util 11%")
	s.press(".")
	s.expect("the third", "util 12%")
	s.press(",")
	s.expect("the second again", "util 11%")
	s.press("m")
	s.expect("no PSS", "a recording has no PSS", "1       ?        1M      -")
	s.press("+++ ")
	s.pass(5 * time.Second)
	s.expect("the end", "replay end x8 100%", "40 lines skipped", "util 49%", "08:26:58")
	gap := regexp.MustCompile(`[▁-█] {52}[▁-█]`) // of 10.4 s, in columns of 0.2 s
	if text := s.sees(); !gap.MatchString(text) {
		t.Errorf("no gap in the charts:\n%s", text)
	}
	s.press(" ,")
	s.expect("a step back", "util 48%")
	s.press(".")
	s.press(".")
	s.expect("no more than there is", "util 49%")
}

// TestScreenPace: records come at their own times, gaps are shortened, and + and - change the pace.
func TestScreenPace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.jsonl")
	var b strings.Builder
	for i, at := range []int{0, 1000, 2000, 62000, 63000} {
		fmt.Fprintf(&b, `{"v":1,"ts_ms":%d,"interval_ms":1000,"gpus":[{"gpu":0,"name":"X","utilization_pct":%d}]}`+"\n", 1753000000000+at, i+10)
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		keys string
		at   []time.Duration // of the records after the first
	}{
		"as it was": {"", []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second}},
		"twice":     {"+", []time.Duration{500 * time.Millisecond, time.Second, 1500 * time.Millisecond, 2 * time.Second}},
		"half":      {"-", []time.Duration{2 * time.Second, 4 * time.Second, 6 * time.Second, 8 * time.Second}},
	} {
		s := sitBefore(t, file, 100, 30)
		s.press(c.keys)
		began := s.now
		for i, at := range c.at {
			s.pass(began.Add(at - 30*time.Millisecond).Sub(s.now))
			if util, _ := s.b.v.snap.dev[0].v[mUtil].num(); util != int64(i+10)*100 {
				t.Errorf("%s: record %d came early: %d", name, i+1, util)
			}
			s.pass(60 * time.Millisecond)
			if util, _ := s.b.v.snap.dev[0].v[mUtil].num(); util != int64(i+11)*100 {
				t.Errorf("%s: record %d did not come: %d", name, i+1, util)
			}
		}
	}
}

// TestScreenSelectionFollows: a removed instance stays a while as removed, and the selection goes to
// its GPU, not to what takes its row.
func TestScreenSelectionFollows(t *testing.T) {
	s := sit(t, &config{}, 160, 45)
	s.take(demoRecord(t, 5))
	s.expect("the start", ">0.0 3g.71gb")
	s.press("j")
	s.expect("the next", ">0.1 2g.35gb")
	other := demoRecord(t, 6)
	for i := range other.dev {
		if d := &other.dev[i]; d.gpu == 0 && d.mig == 1 {
			d.uuid, d.profile, d.born = "MIG-other", "1g.35gb", d.born+1
		}
	}
	s.take(other)
	s.expect("the removed one", "0.1 2g.35gb removed", " 0.1 1g.35gb", ">0 H200")
	s.now = s.now.Add(keepRemoved)
	s.take(other)
	if text := s.sees(); strings.Contains(text, "removed") {
		t.Errorf("it is told of for too long:\n%s", text)
	}
}

// TestScreenKeysAskNothing: a key neither collects nor adds to history, whatever it is and whatever is shown.
func TestScreenKeysAskNothing(t *testing.T) {
	s := sit(t, &config{}, 100, 30)
	s.take(demoRecord(t, 5))
	slot, ticks := s.b.past.slot, s.b.past.ticks
	var all []key
	for k := range key(128) {
		all = append(all, k)
	}
	for k := keyUp; k <= keyReport; k++ {
		all = append(all, k)
	}
	for _, k := range all {
		for range 2 {
			o := s.b.key(s.now, k, []byte("\x1b[2;2R"))
			if o.sample || o.back || o.next != 0 || o.done != (k == 'q' || k == keyCtrlC) || (o.release || o.resume) != (k == 'p') {
				t.Errorf("key %d wants %+v", k, o)
			}
			s.sees()
		}
	}
	if s.b.past.slot != slot || s.b.past.ticks != ticks {
		t.Error("a key made history")
	}
}

// TestScreenReleases: what is shown when the driver is given up stays, with its age, until it has answered again.
func TestScreenReleases(t *testing.T) {
	s := sit(t, &config{}, 160, 45)
	s.take(demoRecord(t, 5))
	s.press("p")
	if s.want != (orders{release: true}) {
		t.Errorf("p wants %+v", s.want)
	}
	s.do(s.b.release(true))
	quiet := demoRecord(t, 6)
	for i := range quiet.dev {
		quiet.dev[i].fault = released
	}
	s.take(quiet)
	s.expect("released", "releasing", "util 96*%")
	s.press("p")
	if s.want != (orders{resume: true}) {
		t.Errorf("p wants %+v then", s.want)
	}
	s.do(s.b.release(false))
	if !s.want.sample {
		t.Error("nothing is asked for when it is resumed")
	}
	s.expect("resuming", "resuming", "util 96*%")
	s.do(s.b.snapshot(s.now, demoRecord(t, 7), true))
	if text := s.sees(); strings.Contains(text, "resuming") || strings.Contains(text, "*%") {
		t.Errorf("resumed:\n%s", text)
	}
}

// TestScreenStart: the selection starts on the person's own instance, then on one that the job was given, then on the
// first; a recording knows no person.
func TestScreenStart(t *testing.T) {
	for name, c := range map[string]struct {
		mine, visible string
		tape          bool
		want          string
	}{
		"own":       {mine: "bob", visible: "MIG-79a5", want: ">0.2 1g.18gb"},
		"given":     {mine: "nobody", visible: "MIG-79a50359", want: ">0.1 2g.35gb"},
		"neither":   {mine: "nobody", want: ">0.0 3g.71gb"},
		"recording": {mine: "bob", visible: "MIG-79a50359", tape: true, want: ">0.0 3g.71gb"},
	} {
		s := sit(t, &config{demo: c.tape}, 160, 45)
		s.b.mine, s.b.visible = func() []string { return []string{c.mine} }, c.visible
		s.take(demoRecord(t, 5))
		if text := s.sees(); !strings.Contains(text, c.want) {
			t.Errorf("%s: no %s:\n%s", name, c.want, text)
		}
	}
}

// TestScreenIntervals: + and - go through the steps and stop at the ends; a new one begins a grid of its own.
func TestScreenIntervals(t *testing.T) {
	s := sit(t, &config{interval: 3 * time.Second}, 100, 30)
	var got []time.Duration
	for _, k := range "+-" {
		for range 8 {
			s.want = orders{}
			s.press(string(k))
			got = append(got, s.want.interval)
		}
	}
	want := []time.Duration{
		5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 0, 0, 0, 0,
		30 * time.Second, 10 * time.Second, 5 * time.Second, 2 * time.Second, time.Second, 500 * time.Millisecond, 200 * time.Millisecond, 0,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

// TestScreenFirstFrame: it comes after 300 ms without an answer, and with the answer before; the tick for what needs
// two samples follows a quarter second later, unless ticks go on already.
func TestScreenFirstFrame(t *testing.T) {
	s := sit(t, &config{}, 100, 30)
	s.pass(firstPaint - 20*time.Millisecond)
	if s.b.entered {
		t.Error("a frame came too early")
	}
	s.pass(40 * time.Millisecond)
	s.expect("without an answer", "waiting for the driver")
	if !s.b.entered {
		t.Error("no frame came")
	}
	if o := s.b.snapshot(s.now, demoRecord(t, 5), true); o.next != 0 {
		t.Errorf("late: %+v", o)
	}
	s = sit(t, &config{}, 100, 30)
	if o := s.b.snapshot(s.now, demoRecord(t, 5), true); o.next != secondRead || !s.b.entered {
		t.Errorf("at once: %+v", o)
	}
}

// TestScreenHostileNames: nothing but visible text of a process's name reaches the terminal.
func TestScreenHostileNames(t *testing.T) {
	evil := "\x1b[2J\x1b]0;pwned\a"
	r := newProcReader(procRootOf(t, map[string]string{
		"4000001/stat": statLine(evil, "1", "5000"), "4000001/statm": "100 25 1 1 0 1 0\n",
		"4000001/status": "Uid:\t0\t0\t0\t0\n", "4000001/cmdline": evil + "\x00--x\x00", "4000001/cgroup": "0::/" + evil + "\n",
	}), guard)
	r.foreign = false
	snap := demoRecord(t, 5)
	p := process{dev: 1, pid: 4000001, kind: "C"}
	r.fill(&p, clockOf)
	snap.proc = []process{p}
	s := sit(t, &config{}, 160, 45)
	s.take(snap)
	s.expect("the process", "]0;pwned")
	var out bytes.Buffer
	var scr screen
	scr.resize(160, 45)
	paint(&scr.want, s.b.show(s.now, 0, false, ""))
	if err := scr.flush(&out); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Contains(text, "\x1b]0;") || strings.Contains(text, "\a") || strings.Count(text, "\x1b[2J") > 1 {
		t.Errorf("%q", text)
	}
}

// TestScreenShares: PSS and USS are asked for while they are shown, and not shown when they are too old.
func TestScreenShares(t *testing.T) {
	s := sit(t, &config{}, 160, 45)
	snap := demoRecord(t, 5)
	s.take(snap)
	s.press("m")
	if !s.want.walk || s.want.first != snap.dev[1].id() {
		t.Errorf("m wants %+v", s.want)
	}
	snap.proc[0].shares = pssState{pss: measure(mRSS, 100<<20), uss: measure(mRSS, 50<<20), at: s.now}
	s.expect("PSS", "PSS", "USS", "100M    50M")
	s.now = s.now.Add(pssMaxAge + time.Second)
	if text := s.sees(); strings.Contains(text, "100M") {
		t.Errorf("old values are shown:\n%s", text)
	}
	snap.proc[0].shares = pssState{pss: lack(noPermission), uss: lack(noPermission), at: s.now}
	s.expect("denied", "-       -")
	if o := s.b.tick(s.now, &s.host, true); !o.walk {
		t.Errorf("a tick wants %+v", o)
	}
	s.press("m")
	if s.want.walk {
		t.Error("m wants walks of which nothing is shown")
	}
}

// TestScreenEndOfTape: what cannot be read on is told, and the last record stays.
func TestScreenEndOfTape(t *testing.T) {
	s := sit(t, &config{demo: true}, 100, 30)
	s.do(s.b.snapshot(s.now, demoRecord(t, 5), false))
	s.do(s.b.ended(errors.New("reading recording x: input/output error")))
	s.expect("an error", "input/output error", "3g.71gb")
	if s.do(s.b.ended(io.EOF)); s.want.done {
		t.Error("the end of a recording ends the program")
	}
}
