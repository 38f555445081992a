package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var soak = flag.Bool("soak", false, "run the long forms of TestNasty and TestSoak (half an hour)")

// nastySeeds have found faults, or are there to find some.
var nastySeeds = []int64{1, 2, 3, 4}

// nastyMachine is a machine on which every number tells when it was read: memory in use grows by 1 MiB, clocks
// by 0.025 MHz, power by 5 mW and GPM's activity by 0.001 % in each millisecond, for an hour. An instance's memory
// tells its incarnation too: it is the number of its profile, in four millions.
const nastyMachine = `
lib driver=580.95.05 cuda=13000 branch=590
gpu 0 name="NVIDIA H100" uuid=GPU-aaaa pci=00000000:17:00.0 arch=9 cc=9.0 mig=on mem=60000000 reserved=0 used=ramp:0:3600000:3600 gfx=ramp:0:90000:3600 power=ramp:0:18000000:3600 ecc=on sbe=0 dbe=0 txbps=1000 rxbps=1000
gpu 1 name="NVIDIA H100" uuid=GPU-bbbb pci=00000000:18:00.0 arch=9 cc=9.0 mig=on mem=60000000 reserved=0 used=ramp:0:3600000:3600 gfx=ramp:0:90000:3600 power=ramp:0:18000000:3600 ecc=on sbe=0 dbe=0 txbps=1000 rxbps=1000
gpu 2 name="NVIDIA H100" uuid=GPU-cccc pci=00000000:19:00.0 arch=9 cc=9.0 mig=off mem=60000000 reserved=0 used=ramp:0:3600000:3600 gfx=ramp:0:90000:3600 power=ramp:0:18000000:3600 util=50 memutil=20 ecc=on sbe=0 dbe=0 txbps=1000 rxbps=1000
gpm 2 1=ramp:0:90:90 2=50 10=3
proc 0 pid=4000001 type=C mem=500 gi=1 ci=0
proc 2 pid=4000002 type=C mem=600
`

// nastyInstance makes instance gpu.slot in its n-th incarnation.
func nastyInstance(gpu, slot, n int) string {
	return fmt.Sprintf("mig %d.%d gi=%d ci=0 profile=%dg.10gb slices=1/1 mem=60000000 used=ramp:%d:%d:3600\ngpm %d.%d 1=ramp:0:90:90 2=50 10=3\n",
		gpu, slot, slot+1, n, n*4_000_000, n*4_000_000+3_600_000, gpu, slot)
}

// nasty drives the source through a machine on which anything may fail or change at any time, and holds
// every snapshot to the truth.
type nasty struct {
	t       *testing.T
	r       *rand.Rand
	control *os.File
	there   [2][3]bool // instances
	count   int        // of incarnations
	away    int        // ticks until the driver is loaded again
	lo, hi  float64    // between which the offset of the double's clock from ours must be, ms
}

// milliseconds is the clock of the double, from another start.
func milliseconds() float64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return float64(ts.Sec)*1000 + float64(ts.Nsec)/1e6
}

func (n *nasty) say(format string, args ...any) {
	if _, err := fmt.Fprintf(n.control, format+"\n", args...); err != nil {
		n.t.Fatal(err)
	}
}

var nastyCalls = []string{
	"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMigMode", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetName",
	"nvmlDeviceGetGpuInstanceId", "nvmlGpmMigSampleGet", "nvmlGpmSampleGet", "nvmlGpmMetricsGet", "nvmlDeviceGetComputeRunningProcesses_v3",
	"nvmlDeviceGetPowerUsage", "nvmlDeviceGetClockInfo", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlEventSetWait_v2",
	"nvmlInit_v2", "nvmlDeviceGetFieldValues", "nvmlSystemGetDriverVersion",
}

var nastyCodes = []int{1, 2, 3, 4, 6, 7, 9, 10, 13, 15, 16, 17, 18, 19, 20, 23, 25, 27, 999}

// disturb changes the machine, at times.
func (n *nasty) disturb(tick int) {
	r := n.r
	if tick < 5 {
		return
	}
	if n.away > 0 {
		if n.away--; n.away == 0 {
			n.say("reload")
		}
	}
	g, k := r.Intn(2), r.Intn(3)
	switch r.Intn(60) {
	case 0, 1: // one goes
		if n.there[g][k] {
			n.there[g][k] = false
			n.say("gone mig %d.%d", g, k)
		}
	case 2, 3: // one comes
		if !n.there[g][k] {
			n.there[g][k] = true
			n.count++
			n.say("%s", nastyInstance(g, k, n.count%12+1))
		}
	case 4: // one takes another's place, and its handle
		if n.there[g][k] {
			n.count++
			n.say("gone mig %d.%d\n%s", g, k, nastyInstance(g, k, n.count%12+1))
		}
	case 5:
		n.say("lost %d", r.Intn(3))
	case 6, 19, 20, 21:
		n.say("unlost 0\nunlost 1\nunlost 2")
	case 7:
		n.say("resetreq %d", r.Intn(3))
	case 8:
		if n.away == 0 {
			n.away = 1 + r.Intn(5)
			n.say("unload code=%d", []int{1, 9, 18, 999}[r.Intn(4)])
		}
	case 9, 10, 11:
		n.say("fail %s code=%d times=%d", nastyCalls[r.Intn(len(nastyCalls))], nastyCodes[r.Intn(len(nastyCodes))], 1+r.Intn(4))
	case 12:
		n.say("hang %s s=0.0%d times=1", nastyCalls[r.Intn(len(nastyCalls))], 1+r.Intn(9))
	case 13:
		n.say("gpu 2 handle=%d", []int{0, 4, 15, 999}[r.Intn(4)])
	case 14, 22:
		n.say("gpu 2 handle=0")
	case 15:
		n.say("migmode 2 %s", []string{"on", "off"}[r.Intn(2)])
	case 16:
		n.say("proc %d pid=%d type=C mem=%d gi=%d ci=0", g, 4000010+r.Intn(20), 100+r.Intn(9000), 1+k)
	case 17:
		n.say("gone proc %d pid=%d", g, 4000010+r.Intn(20))
	case 18:
		n.say("xid %d code=%d", r.Intn(3), 13+r.Intn(80))
	}
	if tick == 10 {
		n.say("chaos seed=%d rate=10 hard=1", 1+r.Intn(1e6))
	}
}

// readAt holds a number that grows by one every per milliseconds to having been read from from to to: then all
// readings agree on the offset of the clocks.
func (n *nasty) readAt(what string, number, per, from, to float64) {
	lo, hi := from-number*per-per-1, to-number*per+per+1
	if lo > n.hi || hi < n.lo {
		n.t.Errorf("%s was read %.0f ms before the tick that shows it, or %.0f ms after it", what, lo-n.hi, n.lo-hi)
	}
	n.lo, n.hi = max(n.lo, lo), min(n.hi, hi)
}

// check holds a snapshot made from from to to to what the machine can have answered in that time.
func (n *nasty) check(s *snapshot, from, to float64) {
	for i := range s.dev {
		d := &s.dev[i]
		what := fmt.Sprintf("tick %d: %d.%d %s: ", s.seq, d.gpu, d.mig, d.profile)
		for m, v := range d.v {
			if number, ok := v.num(); ok && (number < metrics[m].min || number > metrics[m].max) || v.from == held && v.age > 10_500 && metric(m) != mMemTotal {
				n.t.Errorf("%s%s is %+v", what, metrics[m].key, v)
			}
			if v.fresh() && d.fault == gpuLost && (d.isGPU() || !metrics[m].gpuOnly) {
				n.t.Errorf("%slost, with %s %+v", what, metrics[m].key, v)
			}
		}
		used, ok := d.v[mMemUsed].num()
		if ok {
			mib := float64(used) / (1 << 20)
			if number, ok := strings.CutSuffix(d.profile, "g.10gb"); ok {
				n, _ := strconv.Atoi(number)
				mib -= float64(n) * 4e6
			} else if !d.isGPU() {
				continue // its name could not be read
			}
			if mib < 0 || mib >= 4e6 {
				n.t.Errorf("%sthe memory of another instance: %d MiB", what, used>>20)
			}
			age := float64(d.v[mMemUsed].age)
			slack := 0.0
			if d.v[mMemUsed].from == held {
				slack = 1500 // its age counts from the begin of its tick, in which calls may have hung
			}
			n.readAt(what+"memory", mib, 1, from-age-50, to-age+slack)
		}
		if v, ok := fresh(d.v[mPower]); ok {
			n.readAt(what+"power", float64(v)/5, 1, from, to)
		}
		if v, ok := fresh(d.v[mClkGfx]); ok {
			n.readAt(what+"clock", float64(v), 40, from, to)
		}
		if util, ok := fresh(d.v[mUtil]); ok && d.src == srcGPM && !math.IsInf(n.lo, -1) {
			const period = 90_000 // after which the ramp starts anew
			at := float64(util) * 10
			for n.lo+at < from-period/2 {
				at += period
			}
			n.readAt(what+"GPM", at/10, 10, from, to)
		}
		if d.src != srcNone && !d.v[mUtil].fresh() {
			n.t.Errorf("%ssource %s of no util", what, d.src)
		}
	}
}

// TestNasty: 250 ticks for each seed, ten thousand with -soak, in a process of their own. No number may
// be older than its tick, of another instance or another GPU, or out of range; the double must have nothing to
// complain of and hold nothing in the end; rows, records and frames can be made of whatever is found.
func TestNasty(t *testing.T) {
	if seed, err := strconv.ParseInt(os.Getenv("MIG_GPU_MON_TEST_NASTY"), 10, 64); err == nil {
		runNasty(t, seed)
		return
	}
	for _, seed := range nastySeeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			m := scriptMachine(t, nastyMachine)
			args := []string{"-test.run", "^TestNasty$", "-test.v", "-test.timeout", "30m"}
			if *soak {
				args = append(args, "-soak")
			}
			cmd := exec.Command(os.Args[0], args...)
			cmd.Env = append(os.Environ(), m.command().Env...)
			cmd.Env = append(cmd.Env, runAsProgram+"=", fmt.Sprintf("MIG_GPU_MON_TEST_NASTY=%d", seed), "MIG_GPU_MON_TEST_LIB="+m.lib)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("seed %d: %v\n%s", seed, err, out)
			}
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "ticks") {
					t.Log(strings.TrimSpace(line))
				}
			}
			t.Logf("%d sessions, %d calls", m.stat("nvmlInit_v2"), m.stat("calls"))
			if m.stat("samples")+m.stat("sessions") != 0 {
				t.Errorf("%d samples, %d sessions are held at the end", m.stat("samples"), m.stat("sessions"))
			}
		})
	}
}

func runNasty(t *testing.T, seed int64) {
	control, err := os.OpenFile(os.Getenv("FAKENVML_CONTROL"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := &nasty{t: t, r: rand.New(rand.NewSource(seed)), control: control, lo: math.Inf(-1), hi: math.Inf(1)}
	for g := range n.there {
		for k := range n.there[g] {
			n.there[g][k] = true
			n.count++
			n.say("%s", nastyInstance(g, k, n.count))
		}
	}
	src := &nvmlSource{path: filepath.Join(os.Getenv("MIG_GPU_MON_TEST_LIB"), "libnvidia-ml.so.1"), procs: newProcReader(procRoot, guard), want: everything()}
	var s, again snapshot
	var e encoder
	v := &view{past: newHistory(), host: &hostState{}, interval: time.Second}
	w := sampleWriter(t, io.Discard, "umgxkwpctvei")
	var scr screen
	terminal := newEmulator(120, 40)
	scr.resize(120, 40)
	ticks := 250
	if *soak {
		ticks = 10_000
	}
	numbers, fromGPM := 0, 0
	for tick := 1; tick <= ticks && !t.Failed(); tick++ {
		n.disturb(tick)
		src.retryAt = 0 // nobody waits here
		if tick%50 == 0 {
			src.epoch = src.epoch.Add(-askAgain - time.Second) // a minute goes by: what was refused is asked anew
			time.Sleep(115 * time.Millisecond)                 // and two samples for GPM are apart in truth
		}
		from := milliseconds()
		if err := src.sample(&s); err != nil {
			t.Fatal(err)
		}
		n.check(&s, from, milliseconds())
		for i := range s.dev {
			if s.dev[i].v[mMemUsed].fresh() {
				numbers++
			}
			if s.dev[i].src == srcGPM {
				fromGPM++
			}
		}
		line := e.encode(&s, nil)
		if err := decode(line, &again); err != nil || !bytes.Equal(line, new(encoder).encode(&again, nil)) {
			t.Errorf("tick %d: %v: %s", tick, err, line)
		}
		_ = w.tick(&s)
		v.snap, v.now, v.rows, v.mode = &s, s.at, v.rows[:0], viewMode(tick)%viewModes
		for i := range s.dev {
			v.rows = append(v.rows, listed{device: s.dev[i]})
		}
		v.sel = n.r.Intn(len(v.rows)+1) - 1
		addTick(v.past, s.at, time.Second, &s, v.host)
		paint(&scr.want, v)
		if err := scr.flush(terminal); err != nil || terminal.err != nil {
			t.Errorf("tick %d: %v %v", tick, err, terminal.err)
		}
		if n.r.Intn(4) == 0 {
			time.Sleep(115 * time.Millisecond) // for GPM
		}
	}
	src.close()
	t.Logf("%d ticks, %d fresh memory readings, %d GPM readings, %d incarnations", ticks, numbers, fromGPM, n.count)
	if numbers < ticks || fromGPM < ticks/20 {
		t.Error("hardly anything could be read: the machine is too nasty to tell")
	}
}

// holding is what a process holds.
type holding struct {
	rssAnon, hwm, threads, fds, goroutines, samples, ticks int // memory in kB
}

// TestSoak runs the dashboard for 1,000 ticks of a few ms, 100,000 with -soak, on a machine that changes all
// the time: instances and processes come and go, the driver is reloaded, calls fail. What the program holds
// must not grow. Memory is only judged with -soak.
func TestSoak(t *testing.T) {
	ticks, settled := 1000, 300
	if *soak {
		ticks, settled = 100_000, 20_000 // at 4 ms it takes that long until histories and threads are all there
	}
	m := scriptMachine(t, nastyMachine)
	dir := t.TempDir()
	held := filepath.Join(dir, "held")
	m.env = append(m.env, "MIG_GPU_MON_TEST_INTERVAL=4ms", "MIG_GPU_MON_TEST_HELD="+held)
	p, cmd := startDashboard(t, m, 160, 45, "-i", "4ms", "-prom", filepath.Join(dir, "x.prom"))
	p.mu.Lock()
	p.forgets = true
	p.mu.Unlock()
	control, err := os.OpenFile(m.control, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := &nasty{t: t, r: rand.New(rand.NewSource(7)), control: control}
	for g := range n.there {
		for k := range n.there[g] {
			n.there[g][k] = true
			n.count++
			n.say("%s", nastyInstance(g, k, n.count))
		}
	}
	await(t, "the first call", func() bool {
		_, err := os.Stat(m.stats)
		return err == nil
	})
	read := func() (u holding) {
		text, _ := os.ReadFile(held)
		u.goroutines, _ = strconv.Atoi(string(text))
		u.ticks = m.stat("nvmlDeviceGetCount_v2") // one call each
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		if err != nil {
			t.Fatal("the program has ended: ", p.output())
		}
		for line := range strings.Lines(string(status)) {
			for key, into := range map[string]*int{"RssAnon:": &u.rssAnon, "VmHWM:": &u.hwm, "Threads:": &u.threads} {
				if rest, ok := strings.CutPrefix(line, key); ok {
					_, _ = fmt.Sscan(rest, into)
				}
			}
		}
		u.fds = 1000
		for range 5 { // the double opens a file for a moment, at times
			fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", cmd.Process.Pid))
			u.fds = min(u.fds, len(fds))
		}
		u.samples = m.stat("samples")
		return u
	}
	var before, after holding
	most := holding{}
	last, mark := 0, 0
	for i := 0; ; i++ {
		u := read()
		if i%300 == 299 {
			if u.ticks < last+100 {
				t.Fatalf("no more than %d ticks in a minute", u.ticks-last)
			}
			last = u.ticks
		}
		// Histories of instances that were removed stay for half a minute by the clock.
		if before.ticks == 0 && u.ticks >= settled {
			before = u
		}
		if u.ticks/10_000 > mark {
			mark = u.ticks / 10_000
			t.Logf("after %d ticks: RssAnon %d kB", u.ticks, u.rssAnon)
		}
		if u.samples > most.samples {
			most.samples = u.samples
		}
		if after = u; u.ticks >= ticks {
			break
		}
		switch { // less often than in TestNasty: a tick that fails is soon over
		case i%100 == 99:
			n.say("unload code=%d", []int{1, 9}[n.r.Intn(2)])
			time.Sleep(20 * time.Millisecond)
			n.say("reload")
		case i%3 == 0:
			g, k := n.r.Intn(2), n.r.Intn(3)
			n.count++
			n.say("gone mig %d.%d\n%s", g, k, nastyInstance(g, k, n.count%12+1))
		case i%3 == 1:
			n.say("proc %d pid=%d type=C mem=%d gi=%d ci=0", n.r.Intn(2), 4000010+n.r.Intn(50), 100+n.r.Intn(9000), 1+n.r.Intn(3))
		default:
			n.say("gone proc %d pid=%d", n.r.Intn(2), 4000010+n.r.Intn(50))
			soft := []int{2, 3, 4, 6, 10, 15, 17, 19, 20, 23, 27, 999} // those that end the session cost a second of waiting
			n.say("fail %s code=%d times=%d", nastyCalls[n.r.Intn(len(nastyCalls)-3)], soft[n.r.Intn(len(soft))], 1+n.r.Intn(4))
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Logf("after %d ticks: RssAnon %d kB, %d threads, %d files, %d goroutines", before.ticks, before.rssAnon, before.threads, before.fds, before.goroutines)
	t.Logf("after %d ticks: RssAnon %d kB (peak RSS %d kB), %d threads, %d files, %d goroutines; at most %d GPM samples; %d sessions, %d calls",
		after.ticks, after.rssAnon, after.hwm, after.threads, after.fds, after.goroutines, most.samples, m.stat("nvmlInit_v2"), m.stat("calls"))
	if after.fds > before.fds || after.threads > before.threads+2 || after.goroutines > before.goroutines || most.samples > 2*7 {
		t.Errorf("it holds more and more: %+v, then %+v, at most %d samples", before, after, most.samples)
	}
	if *soak && after.rssAnon > before.rssAnon+512 {
		t.Errorf("memory grew by %d kB", after.rssAnon-before.rssAnon)
	}
	p.send("q")
	if code := p.exits(cmd); code != 0 {
		t.Errorf("exit %d", code)
	}
	if m.stat("samples")+m.stat("sessions") != 0 {
		t.Errorf("%d samples, %d sessions are held at the end", m.stat("samples"), m.stat("sessions"))
	}
}
