package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

var makeDemo = flag.String("make-demo", "", "record the demo into this file (takes a minute and a half)")

const demoTicks = 80

// TestMakeDemo records the machine of testdata/scenarios/demo.txt, whose host is simulated as well, into the
// file that is built into the program. It runs for "make demo.jsonl.gz" only.
func TestMakeDemo(t *testing.T) {
	if *makeDemo == "" {
		t.Skip("only with -make-demo")
	}
	m := newMachine(t, "demo")
	host := newDemoHost(t)
	m.env = append(m.env, "MIG_GPU_MON_TEST_PROC="+host.root)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				host.write(float64(i) / 10)
			}
		}
	}()
	log := filepath.Join(t.TempDir(), "log")
	if r := m.run("-json", "-log", log, "-i", "1s", "-c", fmt.Sprint(demoTicks)); r.code != 0 {
		t.Fatalf("exit %d: %s", r.code, r.stderr)
	}
	in, err := openReplay(log)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	var s snapshot
	var e encoder
	for in.sample(&s) == nil {
		s.backend, s.host = demoLabel, "demo"
		s.system.cpuLimit, s.system.memLimit = lack(noData), lack(noData) // those of the machine that recorded it
		for i := range s.proc {
			for _, p := range demoProcesses {
				if p.pid == fmt.Sprint(s.proc[i].pid) {
					s.proc[i].user = p.user
				}
			}
		}
		_, _ = z.Write(e.encode(&s, nil))
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(*makeDemo, packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// demoHost is a /proc of a busy machine, with the demo's processes.
type demoHost struct {
	t     *testing.T
	root  string
	ticks [16][2]float64 // busy and idle, of each core
	last  float64
}

var demoProcesses = []struct {
	pid, user, job, command string
	rss                     int // MiB
	load                    float64
}{
	{"4000001", "alice", "0::/system.slice/slurmstepd.scope/job_48213/step_0/user/task_0", "python\x00pretrain.py\x00--config\x00llama-8b.yaml\x00", 18400, 1.9},
	{"4000002", "serving", "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1a2b3c4d_5e6f_7a8b_9c0d_1e2f3a4b5c6d.slice/cri-containerd-0123456789ab.scope", "vllm\x00serve\x00mistral-7b\x00", 5200, 0.7},
	{"4000003", "bob", "0::/user.slice/user-1000.slice/session-4.scope", "jupyter-lab\x00", 900, 0},
	{"4000004", "serving", "0::/system.slice/docker-9f8e7d6c5b4a39281706f5e4d3c2b1a0f9e8d7c6b5a493827160f5e4d3c2b1a0.scope", "tritonserver\x00--model-repository=/models\x00", 3300, 0.4},
	{"4000005", "carol", "0::/system.slice/slurmstepd.scope/job_48190/step_0/user/task_0", "python\x00finetune.py\x00--lora\x00", 22100, 2.4},
	{"4000006", "alice", "0::/system.slice/slurmstepd.scope/job_48230/step_0/user/task_0", "python\x00eval.py\x00--split\x00test\x00", 7600, 1.1},
	{"4000007", "bob", "0::/user.slice/user-1000.slice/session-9.scope", "python\x00notebook.py\x00", 1500, 0.5},
}

func newDemoHost(t *testing.T) *demoHost {
	files := map[string]string{}
	for _, p := range demoProcesses {
		files[p.pid+"/status"] = "Name:\tx\nUid:\t0\t0\t0\t0\n"
		files[p.pid+"/cgroup"] = p.job + "\n"
		files[p.pid+"/cmdline"] = p.command
	}
	h := &demoHost{t: t, root: procRootOf(t, files)}
	h.write(0)
	return h
}

// put replaces a file in one step, as /proc does.
func (h *demoHost) put(name, text string) {
	file := filepath.Join(h.root, name)
	if err := os.WriteFile(file+".new", []byte(text), 0o644); err != nil {
		h.t.Error(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		h.t.Error(err)
	}
}

// write moves the machine on to at seconds.
func (h *demoHost) write(at float64) {
	var b strings.Builder
	all := [2]float64{}
	for i := range h.ticks {
		load := min(max(0.45+0.4*math.Sin(at/9+float64(i)*1.7)-0.03*float64(i), 0.01), 0.99)
		h.ticks[i][0] += 100 * (at - h.last) * load
		h.ticks[i][1] += 100 * (at - h.last) * (1 - load)
		all[0] += h.ticks[i][0]
		all[1] += h.ticks[i][1]
	}
	fmt.Fprintf(&b, "cpu  %.0f 0 0 %.0f 0 0 0 0 0 0\n", 1000+all[0], 1000+all[1])
	for i, core := range h.ticks {
		fmt.Fprintf(&b, "cpu%d %.0f 0 0 %.0f 0 0 0 0 0 0\n", i, 1000+core[0], 1000+core[1])
	}
	h.last = at
	h.put("stat", b.String())
	used := int(88e6 + 9e6*math.Sin(at/17))
	h.put("meminfo", fmt.Sprintf("MemTotal: 263766016 kB\nMemFree: %d kB\nMemAvailable: %d kB\nBuffers: 520000 kB\nCached: 96200000 kB\n"+
		"SReclaimable: 3100000 kB\nShmem: 610000 kB\nSwapTotal: 8388604 kB\nSwapFree: 8120000 kB\n", 263766016-used-99210000, 263766016-used-2000000))
	for i, p := range demoProcesses {
		h.put(p.pid+"/stat", statLine("x", fmt.Sprintf("%.0f", 360000*float64(i+1)+100*at*p.load*(1+0.2*math.Sin(at/5))), fmt.Sprint(5000+i)))
		h.put(p.pid+"/statm", fmt.Sprintf("%d %d 100 1 0 1 0\n", 2*p.rss*256, p.rss*256+int(40*256*math.Sin(at/11))))
	}
}

// randomValue is a value as m may have one: in range, or absent.
func randomValue(r *rand.Rand, m metric) value {
	row := &metrics[m]
	n := row.min + r.Int63n(row.max-row.min+1)
	if r.Intn(4) == 0 {
		n = row.min
	}
	v := measure(m, n)
	switch r.Intn(6) {
	case 0:
		return lack(reason(r.Intn(int(reasonCount))))
	case 1:
		return v.estimate()
	case 2:
		return v.hold(time.Duration(r.Intn(100_000))*time.Millisecond, reason(r.Intn(int(reasonCount))))
	}
	return v
}

// randomSnapshot has of everything something.
func randomSnapshot(r *rand.Rand) *snapshot {
	text := func(from ...string) string { return from[r.Intn(len(from))] }
	s := &snapshot{
		seq: uint64(r.Intn(1000)), at: time.UnixMilli(1_700_000_000_000 + r.Int63n(1e12)), window: time.Duration(r.Intn(1e7)) * time.Microsecond,
		interval: time.Duration(200+r.Intn(5000)) * time.Millisecond, backend: "nvml", host: text("node17", "", `a"b\c`), driver: text("580.95.05", ""),
		cuda: text("13.0", ""), hidden: r.Intn(3),
	}
	for gpu := range 1 + r.Intn(3) {
		g := device{
			uuid: fmt.Sprintf("GPU-%d", gpu), gpuUUID: fmt.Sprintf("GPU-%d", gpu), gpu: gpu, mig: -1, gi: -1, ci: -1, born: uint32(r.Intn(5)),
			name: "NVIDIA H200", bus: "0000:3b:00.0", minor: r.Intn(3) - 1, arch: text("Hopper", ""), cc: text("9.0", ""), migOn: r.Intn(3) - 1,
			migNext: r.Intn(3) - 1, fault: reason(r.Intn(2) * r.Intn(int(reasonCount))), src: utilSource(r.Intn(len(srcWords))),
		}
		g.rows = r.Intn(4)
		if r.Intn(3) == 0 {
			g.xidAt = time.UnixMilli(1_700_000_000_000 + r.Int63n(1e12))
		}
		s.dev = append(s.dev, g)
		for i := range g.rows {
			d := g
			d.rows, d.mig, d.gi, d.ci, d.migOn, d.migNext = 0, i, r.Intn(15)-1, r.Intn(8)-1, -1, -1
			d.uuid, d.profile, d.mates, d.shared = fmt.Sprintf("MIG-%d-%d", gpu, i), text("1g.18gb+me", ""), r.Intn(2) == 0, r.Intn(2) == 0
			d.gSlices, d.cSlices, d.sms = r.Intn(8), r.Intn(8), r.Intn(200)
			s.dev = append(s.dev, d)
		}
	}
	for i := range s.dev {
		for m := range s.dev[i].v {
			s.dev[i].v[m] = randomValue(r, metric(m))
		}
		for range r.Intn(3) {
			p := process{dev: i, pid: r.Uint32(), kind: kindNames[1+r.Intn(7)], mem: randomValue(r, mProcMem)}
			p.rss, p.cpu, p.cpuTime = randomValue(r, mRSS), randomValue(r, mCPU), randomValue(r, mCPUTime)
			if p.known = r.Intn(3) > 0; p.known {
				p.start, p.user, p.job = uint64(r.Int63n(maxExact)), text("alice", "1000", ""), text("-", "job_1234", "docker:0123456789ab")
				p.command = text("python train.py", "학습 --이름", `sh -c "echo \n"`, "")
			}
			s.proc = append(s.proc, p)
		}
	}
	for range r.Intn(3) {
		s.notes = append(s.notes, text("gpu 0.1: added", `"quoted"`))
	}
	if r.Intn(4) > 0 {
		s.system = &hostState{}
		for _, k := range systemKeys {
			*k.of(s.system) = randomValue(r, k.m)
		}
		for i := range r.Intn(5) {
			s.system.cores = append(s.system.cores, randomValue(r, mHostCPU))
			s.system.coreIDs = append(s.system.coreIDs, 2*i)
		}
	}
	return s
}

// TestRecordKeepsEverything: what is decoded equals what was encoded, origins, reasons and ages included.
func TestRecordKeepsEverything(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	var e encoder
	for i := range 2000 {
		want := randomSnapshot(r)
		line := e.encode(want, nil)
		if !json.Valid(line) || bytes.Count(line, []byte{'\n'}) != 1 {
			t.Fatalf("not one line of JSON: %s", line)
		}
		got := &snapshot{}
		if err := decode(line, got); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("snapshot %d:\n%+v\nwant\n%+v\nrecord %s", i, got, want, line)
		}
	}
}

// TestRecordIsGpurs: gpur's own readers find what they know, in the types that they demand.
func TestRecordIsGpurs(t *testing.T) {
	s := &snapshot{at: clockOf, driver: "580.95.05", backend: "nvml", dev: fourInstances(), proc: []process{testProcess(1, 4000, "python train.py")}}
	s.proc[0].job = "docker:0123456789ab"
	s.dev[1].v[mDRAM] = lack(gpmOff)
	var got struct {
		TS      uint64 `json:"ts_ms"`
		Backend string `json:"backend"`
		Driver  *string
		GPUs    []struct {
			Name     string   `json:"name"`
			ID       *string  `json:"device_id"`
			Util     *float64 `json:"utilization_pct"`
			Used     *uint64  `json:"vram_used_bytes"`
			Temp     *float64 `json:"temperature_c"`
			Power    *float64 `json:"power_w"`
			Clock    *uint64  `json:"clock_mhz"`
			Gen      *uint8   `json:"pcie_gen"`
			Rx       *uint64  `json:"pcie_rx_kbs"`
			Level    *string  `json:"perf_level"`
			Throttle *string  `json:"throttle"`
		} `json:"gpus"`
		Procs []struct {
			PID       uint32  `json:"pid"`
			Index     int     `json:"gpu_index"`
			Kind      string  `json:"kind"`
			Mem       *uint64 `json:"gpu_mem_bytes"`
			HostMem   *uint64 `json:"host_mem_bytes"`
			Container string  `json:"container"`
		} `json:"processes"`
	}
	var e encoder
	if err := json.Unmarshal(e.encode(s, nil), &got); err != nil {
		t.Fatal(err)
	}
	g, i, p := got.GPUs[0], got.GPUs[1], got.Procs[0]
	if got.TS != uint64(clockOf.UnixMilli()) || *got.Driver != "580.95.05" || g.Name != "NVIDIA H200" || g.Util != nil || *g.Used != 41250<<20 ||
		*g.Power != 433.78 || *g.Clock != 1980 || *g.Gen != 5 || *g.Rx != 8789 || *g.Level != "P0" || *g.Throttle != "sw_power" {
		t.Errorf("GPU %+v", g)
	}
	if *i.ID != "MIG-00" || *i.Util != 54 || i.Temp != nil || *i.Used != 40000<<20 {
		t.Errorf("instance %+v", i)
	}
	if p.PID != 4000 || p.Index != 1 || p.Kind != "Compute" || *p.Mem != 4000<<20 || p.Container != "docker:0123456789ab" {
		t.Errorf("process %+v", p)
	}
}

// TestRecordLeavesOut what -id did not choose, and its processes.
func TestRecordLeavesOut(t *testing.T) {
	s := &snapshot{at: clockOf, dev: fourInstances(), proc: []process{testProcess(1, 1, "a"), testProcess(3, 2, "b")}}
	var e encoder
	var got snapshot
	if err := decode(e.encode(s, func(d *device) bool { return d.mig == 2 }), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.dev) != 1 || got.dev[0].mig != 2 || len(got.proc) != 1 || got.proc[0].pid != 2 || got.proc[0].dev != 0 {
		t.Errorf("%+v", got)
	}
}

// TestExportsAllocateNothing: neither records nor metrics cost memory in the long run.
func TestExportsAllocateNothing(t *testing.T) {
	s := &snapshot{at: clockOf, dev: eightBySeven(), proc: []process{testProcess(1, 4000, "python train.py")}, system: testHost()}
	var e encoder
	p := &promFile{shows: func(*device) bool { return true }}
	version = "test" // as make stamps it; else it is looked up
	for name, f := range map[string]func(){"record": func() { e.encode(s, p.shows) }, "metrics": func() { p.format(s) }} {
		f()
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// replayedRows is what a replay must tell as the run did: all but the first line, which names the run, and the
// times that are told each minute and after a late tick.
func replayedRows(stdout string) string {
	_, rest, _ := strings.Cut(stdout, "\n")
	return minuteLine.ReplaceAllString(rest, "")
}

// TestReplayGivesTheSameRows: for every scenario the rows and the JSON of a recording are those of the run
// that was recorded.
func TestReplayGivesTheSameRows(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		if strings.HasPrefix(name, "init-") || name == "no-gpu" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, name)
			for _, mode := range [][]string{{"-plain", "-s", "umgxkwpctvei"}, {"-procs"}, {"-csv"}, {"-json"}} {
				log := filepath.Join(t.TempDir(), "log.jsonl")
				live := m.run(append(mode, "-i", "300", "-c", "4", "-log", log)...)
				again := m.run(append(mode, "-replay", log)...)
				if live.stderr != "" || again.code != exitOK || again.stderr != "" {
					t.Errorf("%s: exit %d and %d, stderr %q and %q", mode, live.code, again.code, live.stderr, again.stderr)
				}
				a, b := live.stdout, again.stdout
				if mode[0] == "-plain" || mode[0] == "-procs" {
					a, b = replayedRows(a), replayedRows(b)
				}
				if a != b || a == "" {
					t.Errorf("%s: live\n%s\nreplayed\n%s", mode, live.stdout, again.stdout)
				}
				if data, _ := os.ReadFile(log); mode[0] == "-json" && string(data) != live.stdout {
					t.Errorf("the log differs from -json:\n%s\n%s", data, live.stdout)
				}
			}
		})
	}
}

// TestReplayOfSilence: ticks without an answer are in the recording as what they were.
func TestReplayOfSilence(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	log := filepath.Join(t.TempDir(), "log")
	l := m.start("-plain", "-i", "300", "-log", log)
	l.await("3g.71gb")
	m.tell("hang nvmlDeviceGetMemoryInfo_v2 s=4")
	l.await("driver silent since")
	l.await("3g.71gb +[?] +-")
	l.end(syscall.SIGTERM)
	r := m.run("-plain", "-replay", log)
	if !strings.Contains(r.stdout, "# driver silent since") || !strings.Contains(r.stdout, "3g.71gb     ?    -    -      -    -      -      -     -") {
		t.Error(r.stdout)
	}
}

// gpurOld is a recording by an early gpur: no ids, no users, no null for memory; gpurNew one by a late one.
const (
	gpurOld = `{"ts_ms":1753000000000,"backend":"nvml","driver":"550.54","gpus":[{"name":"NVIDIA RTX 4090","integrated":false,"utilization_pct":37.5,"mem_util_pct":null,"vram_used_bytes":0,"vram_total_bytes":25757220864,"temperature_c":41.0,"power_w":55.2,"power_limit_w":450.0,"fan_pct":30.0,"clock_mhz":210,"mem_clock_mhz":405,"pcie_gen":4,"pcie_width":16,"pcie_rx_kbs":1000,"pcie_tx_kbs":null}],"processes":[{"pid":1,"gpu_index":0,"kind":"Compute","gpu_util_pct":null,"gpu_mem_bytes":0},{"pid":2,"gpu_index":1,"kind":"Compute","gpu_util_pct":null,"gpu_mem_bytes":5}]}
{"ts_ms":1753000001000,"backend":"nvml","driver":"550.54","gpus":[{"name":"NVIDIA RTX 4090","utilization_pct":0.0,"vram_used_bytes":1073741824,"vram_total_bytes":25757220864}],"processes":[]}
`
	gpurNew = `{"ts_ms":1753000000000,"backend":"nvml","driver":null,"gpus":[{"name":"NVIDIA RTX 4090","device_id":"GPU-1","integrated":false,"utilization_pct":null,"mem_util_pct":3.0,"video_util_pct":null,"enc_util_pct":0.0,"dec_util_pct":null,"throttle":"thermal","perf_level":"P2","vram_used_bytes":null,"vram_total_bytes":null,"gtt_used_bytes":null,"temperature_c":41.0,"temp_slowdown_c":90.0},{"name":"AMD Radeon","device_id":"0000:03:00.0","utilization_pct":12.0,"vram_used_bytes":1048576,"vram_total_bytes":8589934592}],"processes":[{"pid":1,"gpu_index":1,"kind":"Graphics","gpu_util_pct":2.0,"gpu_mem_bytes":1048576,"user":"carol","cpu_pct":12.5,"host_mem_bytes":2097152,"command":"game --fast","container":"docker:0123456789ab"}]}
`
)

// TestReplayOfGpur: both forms play; what they lack is unknown, a recorded 0 stays 0, and their process
// numbers, of which 1 is a process here, are looked up nowhere.
func TestReplayOfGpur(t *testing.T) {
	t.Parallel()
	m := scriptMachine(t, "")
	file := filepath.Join(t.TempDir(), "gpur.jsonl")
	play := func(text string, args ...string) string {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := m.run(append(args, "-replay", file)...)
		if r.code != 0 || r.stderr != "" {
			t.Errorf("exit %d, stderr %q", r.code, r.stderr)
		}
		return r.stdout
	}
	for _, c := range []struct{ text, args, want string }{
		{gpurOld, "-plain -s umxpct", `
    0    -   -   -          -  busy    -   38      -    -      0  24564     1      -      -      -      -      -     55     41      -    405    210      1      - 
    0    -   -   -          -     ?    -    0      -    -   1024  24564     -      -      -      -      -      -      -      -      -      -      -      -      - 
`},
		{gpurOld, "-procs", `
    0    -   -   -        1     C          ?                   ?      0       -     -       - ?
    0    -   -   -        -     -          -                   -      -       -     -       - -
`},
		{gpurNew, "-plain -s umx", `
    0    -   -   -          -     ?    -    -      -    -      -      -     -      3      0      -      -      - 
    1    -   -   -          -  busy    -   12      -    -      1   8192     1      -      -      -      -      - 
`},
		{gpurNew, "-procs", `
    0    -   -   -        -     -          -                   -      -       -     -       - -
    1    -   -   -        1     G      carol docker:0123456789ab      1       2    13       - game --fast
`},
	} {
		var rows strings.Builder
		for line := range strings.Lines(play(c.text, strings.Fields(c.args)...)) {
			if !strings.HasPrefix(line, "#") {
				rows.WriteString(line)
			}
		}
		if "\n"+rows.String() != c.want {
			t.Errorf("%s:\n%swant%s", c.args, rows.String(), c.want)
		}
	}
	if out := play(gpurNew, "-plain", "-s", "umxg"); !strings.Contains(out, "smutil dram dec jpg ofa smocc mmaact fp64 fp32 fp16: - (not_recorded)") ||
		!strings.Contains(out, "# mig-gpu-mon test - driver - 2025-") {
		t.Error(out)
	}
}

// TestReplaySurvives whatever a file holds: no value is made up, what is no record is counted.
func TestReplaySurvives(t *testing.T) {
	t.Parallel()
	good := strings.SplitAfter(gpurOld, "\n")[0]
	record := func(fields string) string {
		return `{"v":1,"ts_ms":1753000000000,"gpus":[{"gpu":0,"name":"X",` + fields + `}]}` + "\n"
	}
	values := "-s um"
	for name, c := range map[string]struct {
		text, rows string
		skipped    int
	}{
		"cut in the middle":  {good + good[:300], "0 - - - - busy - 38 - - 0 24564 1", 1},
		"cut at the start":   {good[300:] + good, "0 - - - - busy - 38 - - 0 24564 1", 1},
		"no newline":         {strings.TrimSuffix(good, "\n"), "0 - - - - busy - 38 - - 0 24564 1", 0},
		"NULs":               {"\x00\x00\x00\n" + good + "\x00\x00", "0 - - - - busy - 38 - - 0 24564 1", 2},
		"CRLF, BOM, blanks":  {"\xef\xbb\xbf" + strings.ReplaceAll(good, "\n", "\r\n") + "\r\n  \n\n", "0 - - - - busy - 38 - - 0 24564 1", 0},
		"9 MiB":              {`{"v":1,"ts_ms":1,"gpus":[` + strings.Repeat(" ", 9<<20) + "]}\n" + good, "0 - - - - busy - 38 - - 0 24564 1", 1},
		"7 MiB":              {strings.Replace(good, "{", "{"+strings.Repeat(" ", 7<<20), 1), "0 - - - - busy - 38 - - 0 24564 1", 0},
		"other JSON":         {"[]\n1\nnull\n\"x\"\n{}\n{\"ts_ms\":1}\n{\"gpus\":[]}\n" + good, "0 - - - - busy - 38 - - 0 24564 1", 7},
		"wrong types":        {`{"v":1,"ts_ms":1,"gpus":{}}` + "\n" + `{"v":1,"ts_ms":"1","gpus":[]}` + "\n" + `{"v":1,"ts_ms":1,"gpus":[1]}` + "\n" + `{"v":1,"ts_ms":1,"gpus":[null]}` + "\n" + good, "0 - - - - busy - 38 - - 0 24564 1", 4},
		"newer":              {`{"v":2,"ts_ms":1,"gpus":[]}` + "\n" + good, "0 - - - - busy - 38 - - 0 24564 1", 1},
		"odd version":        {`{"v":"1","ts_ms":1,"gpus":[]}` + "\n" + `{"v":-1,"ts_ms":1,"gpus":[]}` + "\n" + good, "0 - - - - busy - 38 - - 0 24564 1", 2},
		"text for numbers":   {record(`"utilization_pct":"54","vram_used_bytes":"0","procs":true`), "0 - - - - ? - - - - - - -", 0},
		"negative":           {record(`"utilization_pct":-1,"vram_used_bytes":-1048576,"procs":-2`), "0 - - - - ? - - - - - - -", 0},
		"huge":               {record(`"utilization_pct":1e308,"vram_used_bytes":18446744073709551615,"procs":99999999999999999999999`), "0 - - - - ? - - - - - - -", 0},
		"unknown fields":     {record(`"utilization_pct":7,"new_in_2030":{"a":[1]}`), "0 - - - - busy - 7 - - - - -", 0},
		"absent wins":        {record(`"utilization_pct":7,"absent":{"utilization_pct":"in_use"}`), "0 - - - - ? - - - - - - -", 0},
		"unknown reason":     {record(`"utilization_pct":null,"absent":{"utilization_pct":"new_in_2030"}`), "0 - - - - ? - - - - - - -", 0},
		"held is not fresh":  {record(`"utilization_pct":7,"held":{"utilization_pct":4000}`), "0 - - - - ? - - - - - - -", 0},
		"odd held":           {record(`"utilization_pct":7,"held":{"utilization_pct":-1e300},"estimated":{"x":1},"absent":[]`), "0 - - - - ? - - - - - - -", 0},
		"fault":              {record(`"fault":"gpu_lost"`), "0 - - - - lost - - - - - - -", 0},
		"unknown fault":      {record(`"utilization_pct":7,"fault":5`), "0 - - - - busy - 7 - - - - -", 0},
		"orphan":             {record(`"mig":{"index":3,"gi":1,"ci":"x","profile":"1g"}`), "0 3 1 - 1g ? - - - - - - -", 0},
		"MIG without index":  {record(`"mig":{}`) + good, "0 - - - - busy - 38 - - 0 24564 1", 1},
		"control characters": {record(`"name":"\u001b[2J","mig":{"index":0,"gi":0,"ci":0,"profile":"a b\u001b]0;x\u0007"}`), "0 0 0 0 a_b?]0;x? ? - - - - - - -", 0},
		"far index":          {record(`"gpu":1e9`), "0 - - - - ? - - - - - - -", 0},
		"many GPUs":          {`{"v":1,"ts_ms":1,"gpus":[` + strings.Repeat("{},", 5000) + `{}]}` + "\n" + good, "0 - - - - busy - 38 - - 0 24564 1", 1},
		"backwards": {
			record(`"utilization_pct":1`) + strings.Replace(record(`"utilization_pct":2`), "1753", "1752", 1),
			"0 - - - - busy - 1 - - - - -|0 - - - - busy - 2 - - - - -", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "x.jsonl")
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			r := scriptMachine(t, "").run(append(strings.Fields(values), "-replay", file)...)
			var rows []string
			for _, f := range fieldsOf(r.stdout) {
				rows = append(rows, strings.Join(f, " "))
			}
			if got := strings.Join(rows, "|"); got != c.rows || r.code != 0 {
				t.Errorf("exit %d, rows %s, want %s; stderr %s", r.code, got, c.rows, r.stderr)
			}
			want := ""
			if c.skipped > 0 {
				want = fmt.Sprintf("skipped %d line", c.skipped)
			}
			if !strings.Contains(r.stderr, want) || want == "" && r.stderr != "" {
				t.Errorf("stderr %q, want %q", r.stderr, want)
			}
			if strings.ContainsAny(r.stdout+r.stderr, "\x1b\a") {
				t.Errorf("control characters: %q", r.stdout)
			}
		})
	}
}

// TestReplayRefuses what cannot be played, with a reason.
func TestReplayRefuses(t *testing.T) {
	t.Parallel()
	m := scriptMachine(t, "")
	dir := t.TempDir()
	put := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	good, link := put("good", gpurOld), filepath.Join(dir, "link")
	if err := os.Link(good, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"-replay " + put("empty", ""), 1, "no record"},
		{"-replay " + put("text", "hello\nworld\n"), 1, "lines skipped: 2"},
		{"-replay " + put("newer", `{"v":2,"ts_ms":1,"gpus":[]}`+"\n"), 1, "newer mig-gpu-mon"},
		{"-replay " + dir, 1, "is a directory"},
		{"-replay " + dir + "/none", 1, "no such file"},
		{"-replay " + good + " -demo", 2, "choose one"},
		{"-replay " + good + " -log " + dir + "/x", 2, "-json -f FILE"},
		{"-replay " + good + " -pss", 2, "asks this machine"},
		{"-demo -gpm on", 2, "asks this machine"},
		{"-demo -nvml-path x", 2, "asks this machine"},
		{"-replay " + good + " -json -f " + good, 2, "are the same file"},
		{"-replay " + good + " -json -f " + link, 2, "read and written at once"},
		{"-replay " + good + " -plain -id 7", 3, "no such device"},
		{"-prom " + dir + "/x.txt", 2, "*.prom only"},
		{"-prom " + dir + "/none/x.prom", 1, "opening -prom file"},
		{"-json -s u", 2, "columns of its own"},
		{"-json -o D", 2, "exclude each other"},
		{"-json -procs", 2, "more than one mode"},
		{"-log /dev/null", 1, "not a regular file"},
		{"-replay " + put("x.gz", "\x1f\x8b\x08\x00packed"), 1, "zcat"},
		{"-prom " + dir + "/none/x.prom", 1, "none/x.prom: no such file"},
		{"-demo -csv -s u -f " + put("old.csv", "time,gpu,mig\n"), 2, "other columns"},
		{"x.jsonl", 2, "-replay FILE"},
		{"-log " + dir, 1, "is a directory"},
	} {
		r := m.run(strings.Fields(c.args)...)
		if r.code != c.code || !strings.Contains(r.stderr, c.says) || !strings.HasPrefix(r.stderr, "mig-gpu-mon: ") || r.stdout != "" {
			t.Errorf("%s: exit %d, stderr %q, stdout %q", c.args, r.code, r.stderr, r.stdout)
		}
	}
	for _, flag := range []string{"-f", "-log", "-prom", "-replay", "-debug", "-nvml-path"} {
		if r := m.run("-plain", "-c", "1", flag, ""); r.code != exitUsage || !strings.Contains(r.stderr, flag+" is empty") {
			t.Errorf("%s with nothing: exit %d, %q", flag, r.code, r.stderr)
		}
	}
	if data, _ := os.ReadFile(good); string(data) != gpurOld {
		t.Error("the recording was changed")
	}
}

// TestReplayFromPipe: a recording need not be a file.
func TestReplayFromPipe(t *testing.T) {
	t.Parallel()
	cmd := scriptMachine(t, "").command("-plain", "-replay", "-")
	cmd.Stdin = strings.NewReader(gpurOld)
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "24564") != 2 {
		t.Errorf("%v: %s", err, out)
	}
}

// TestReplaySteps: forth and back, also over lines that are no records, and at both ends.
func TestReplaySteps(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x")
	var text strings.Builder
	for i := range 5 {
		fmt.Fprintf(&text, `{"v":1,"ts_ms":%d,"gpus":[]}`+"\n"+"rubbish\n", 1000*(i+1))
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := openReplay(file)
	if err != nil {
		t.Fatal(err)
	}
	var snap snapshot
	for i, step := range []struct {
		back bool
		want int64
		next time.Duration
	}{
		{true, 1, 1e9},
		{true, 1, 1e9},
		{false, 2, 1e9},
		{false, 3, 1e9},
		{true, 2, 1e9},
		{true, 1, 1e9},
		{true, 1, 1e9},
		{false, 2, 1e9},
		{false, 3, 1e9},
		{false, 4, 1e9},
		{false, 5, 0},
		{true, 4, 1e9},
		{false, 5, 0},
		{true, 4, 1e9},
	} {
		if i == 0 {
			_ = s.sample(&snap)
		}
		if step.back {
			s.obey(orderBack)
		}
		if err := s.sample(&snap); err != nil || snap.at.Unix() != step.want || snap.tape.next != step.next {
			t.Fatalf("step %d: record %d, next in %v, %v", i, snap.at.Unix(), snap.tape.next, err)
		}
	}
	if s.skipped != 5 {
		t.Errorf("%d lines skipped", s.skipped)
	}
	_ = s.sample(&snap)
	if err := s.sample(&snap); !errors.Is(err, io.EOF) || snap.at.Unix() != 5 {
		t.Errorf("after the end: %v", err)
	}
}

// TestDemoLoops: after its last record comes the first, and time goes on.
func TestDemoLoops(t *testing.T) {
	s, err := openDemo(true)
	if err != nil {
		t.Fatal(err)
	}
	var snap snapshot
	var last time.Time
	for i := range 3 * demoTicks {
		if err := s.sample(&snap); err != nil {
			t.Fatal(err)
		}
		if d := snap.at.Sub(last); i > 0 && (d < 900*time.Millisecond || d > 1100*time.Millisecond) {
			t.Errorf("record %d comes after %v", i, d)
		}
		if snap.tape.next < 900*time.Millisecond || snap.tape.next > 1100*time.Millisecond {
			t.Errorf("record %d is shown for %v", i, snap.tape.next)
		}
		last = snap.at
	}
}

// TestDemoShows what the tool is for.
func TestDemoShows(t *testing.T) {
	s, err := openDemo(false)
	if err != nil {
		t.Fatal(err)
	}
	var snap snapshot
	seen := map[string]int{}
	n := 0
	for ; s.sample(&snap) == nil; n++ {
		if snap.backend != demoLabel || snap.system == nil || snap.host != "demo" {
			t.Errorf("backend %q, host %q", snap.backend, snap.host)
		}
		for i := range snap.dev {
			d := &snap.dev[i]
			for m, v := range d.v {
				switch {
				case v.from == held && metric(m) == mMemUsed:
					seen["held memory"]++
				case v.from == estimated:
					seen["estimate"]++
				case metric(m) == mUtil && v.why == severalBusy:
					seen["several busy"]++
				case metric(m) == mSMUtil && v.why == needsHopper:
					seen["needs Hopper"]++
				case metric(m) == mSMUtil && v.fresh():
					seen["GPM"]++
				}
			}
		}
		for _, note := range snap.notes {
			for _, word := range []string{"added", "removed"} {
				if strings.Contains(note, word) {
					seen[word]++
				}
			}
		}
		if p := snap.proc[0]; p.user == "alice" && p.job == "job_48213" {
			seen["user and job"]++
		}
	}
	if n != demoTicks {
		t.Errorf("%d records", n)
	}
	for _, what := range []string{"held memory", "estimate", "several busy", "needs Hopper", "GPM", "added", "removed", "user and job"} {
		if seen[what] == 0 {
			t.Errorf("the demo has no %s: %v", what, seen)
		}
	}
}

// TestDemoNeedsNothing: it runs without any driver, as long as asked, or once.
func TestDemoNeedsNothing(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "init-9")
	for args, want := range map[string]int{"-plain -c 3": 3, "-plain": demoTicks, "-csv -c 200": 200} {
		r := m.run(append(strings.Fields(args), "-demo", "-id", "2")...)
		rows := strings.Count(r.stdout, "nvml")
		if r.code != 0 || rows != want {
			t.Errorf("%s: exit %d, %d rows; %s", args, r.code, rows, r.stderr)
		}
		if !strings.HasPrefix(args, "-csv") && !strings.Contains(r.stdout, "every 1s demo (simulated)") {
			t.Errorf("%s: not labelled: %s", args, r.stdout[:200])
		}
	}
	if r := m.run("-json", "-demo", "-c", "1"); !strings.Contains(r.stdout, `"backend":"demo (simulated)"`) {
		t.Error(r.stdout)
	}
}

// promLines is what a run with -c leaves in its -prom file.
func promLines(t *testing.T, m *machine, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.prom")
	if r := m.run(append(args, "-plain", "-prom", file)...); r.stderr != "" {
		t.Errorf("exit %d, stderr %q", r.code, r.stderr)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	return string(data)
}

// TestMetrics: the file for Prometheus, byte for byte, with shared memory, throttling and an estimate; and
// promtool has nothing to say against it.
func TestMetrics(t *testing.T) {
	t.Parallel()
	stamp := regexp.MustCompile(`(?m)^(mig_gpu_mon_snapshot_timestamp_seconds|mig_gpu_mon_pcie_\S+|mig_gpu_mon_idle_seconds\S*) [0-9.]+$`)
	for _, name := range []string{"h200-580", "h200-2ci", "estimate", "two-whole", "container-slice", "lost-one"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"-i", "300", "-c", "3"}
			text := promLines(t, newMachine(t, name), args...)
			golden(t, name+".prom", stamp.ReplaceAllString(text, "$1 N"))
			tool, err := exec.LookPath("promtool")
			if err != nil {
				t.Skip("promtool is not installed: the metrics were not checked by it")
			}
			cmd := exec.Command(tool, "check", "metrics")
			cmd.Stdin = strings.NewReader(text)
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// TestMetricsEscape what a driver may put into a name.
func TestMetricsEscape(t *testing.T) {
	s := &snapshot{at: clockOf, dev: []device{{mig: -1, gi: -1, ci: -1, name: `a"b\c`}}}
	p := &promFile{shows: func(*device) bool { return true }}
	p.format(s)
	if want := `mig_gpu_mon_device_info{gpu="0",name="a\"b\\c"} 1` + "\n"; !strings.Contains(string(p.b), want) {
		t.Errorf("%s", p.b)
	}
}

// TestMetricsChosen: with -id only what it chose, whose memory is there although it comes second.
func TestMetricsChosen(t *testing.T) {
	t.Parallel()
	text := promLines(t, newMachine(t, "h200-2ci"), "-i", "300", "-c", "1", "-id", "0.1")
	if !strings.Contains(text, `memory_used_bytes{gpu="0",gpu_uuid="GPU-1c2d3e4f-5a6b-4c7d-8e9f-a0b1c2d3e4f5",gi="2"} 17747148800`) || strings.Contains(text, `mig="0"`) {
		t.Error(text)
	}
}

// TestMetricsFileIsWhole: a reader who opens it a thousand times a second never finds half a file; all may
// read it; it goes with the program.
func TestMetricsFileIsWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "x.prom")
	m := newMachine(t, "h200-580")
	cmd := m.command("-plain", "-i", "200", "-prom", file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	reads, different := 0, map[string]bool{}
	for began := time.Now(); len(different) < 10 && time.Since(began) < 20*time.Second; time.Sleep(time.Millisecond) {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		reads++
		text := string(data)
		different[text] = true
		if !strings.HasPrefix(text, "# HELP mig_gpu_mon_build_info") || !strings.HasSuffix(text, `reason="display"} 0`+"\n") {
			t.Fatalf("half a file: %q", text)
		}
	}
	if len(different) < 10 {
		t.Errorf("%d reads of %d files", reads, len(different))
	}
	if info, err := os.Stat(file); err != nil {
		t.Error(err)
	} else if info.Mode() != 0o644 {
		t.Errorf("mode %v", info.Mode())
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestMetricsOfSilence: while the driver is silent there are no samples, and the time of the last answer.
func TestMetricsOfSilence(t *testing.T) {
	t.Parallel()
	for _, screen := range []bool{false, true} {
		m := newMachine(t, "h200-580")
		file := filepath.Join(t.TempDir(), "x.prom")
		if screen {
			p, cmd := startDashboard(t, m, 100, 30, "-i", "300", "-prom", file)
			defer func() {
				p.send("q")
				p.exits(cmd)
				if _, err := os.Stat(file); err == nil {
					t.Error("the file outlives the dashboard")
				}
			}()
		} else {
			l := m.start("-plain", "-i", "300", "-prom", file)
			defer l.end(syscall.SIGTERM)
			go func() {
				for range l.lines {
				}
			}()
		}
		has := func(what string) func() bool {
			return func() bool {
				data, _ := os.ReadFile(file)
				return strings.Contains(string(data), what)
			}
		}
		await(t, "metrics", has("utilization_ratio"))
		m.tell("hang nvmlDeviceGetMemoryInfo_v2 s=6 times=1")
		await(t, "none", func() bool {
			return !has("utilization_ratio")() && has(`profile="3g.71gb",uuid="MIG-201f3a76-0000-5002-8000-0000201f3876"} 0`)()
		})
		before, _ := os.ReadFile(file)
		stamp := regexp.MustCompile(`timestamp_seconds [0-9.]+`)
		time.Sleep(time.Second)
		after, _ := os.ReadFile(file)
		if a, b := stamp.Find(before), stamp.Find(after); len(a) == 0 || string(a) != string(b) {
			t.Errorf("time of the last answer %s, then %s", a, b)
		}
		await(t, "metrics again", has("utilization_ratio"))
	}
}

// await waits until ok.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// TestLogFile: for its owner's eyes, never through a link, never into another's file; a cut last line is
// ended first.
func TestLogFile(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "log"), filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if _, err := openLog(link); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a link: %v", err)
	}
	s := &snapshot{at: clockOf}
	for _, cut := range []bool{false, true} {
		l, err := openLog(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.write(s, nil); err != nil {
			t.Error(err)
		}
		if !cut {
			if _, err := l.f.WriteString(`{"v":1,"ts`); err != nil {
				t.Error(err)
			}
		}
		l.f.Close()
	}
	data, _ := os.ReadFile(file)
	if lines := strings.Split(string(data), "\n"); len(lines) != 4 || lines[0] != lines[2] || lines[1] != `{"v":1,"ts` {
		t.Errorf("%q", data)
	}
	if info, _ := os.Stat(file); info.Mode() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(file, 1234, 1234); err != nil {
			t.Skip(err)
		}
		if _, err := openLog(file); err == nil || !strings.Contains(err.Error(), "another user") {
			t.Errorf("another's file: %v", err)
		}
	}
}

// TestLogStops: when the disk is full or the file is gone, rows and screen go on and say so; the exit code of
// a run with -c tells it.
func TestLogStops(t *testing.T) {
	t.Parallel()
	// The shell's limit on file sizes, in blocks of 512 or 1,024 bytes, stands in for a full disk.
	limited := func(m *machine, args ...string) *exec.Cmd {
		cmd := m.command(args...)
		sh := exec.Command("sh", append([]string{"-c", `ulimit -f 16; exec "$0" "$@"`}, cmd.Args...)...)
		sh.Env = cmd.Env
		return sh
	}
	log := filepath.Join(t.TempDir(), "log")
	cmd := limited(newMachine(t, "h200-580"), "-plain", "-i", "200", "-c", "8", "-log", log)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	if n := strings.Count(out.String(), "3g.71gb"); cmd.ProcessState.ExitCode() != exitFailed || n != 8 ||
		strings.Count(out.String(), "# logging stopped: file too large") != 1 || strings.Count(errs.String(), "logging stopped: file too large") != 1 {
		t.Errorf("exit %d, %d ticks, stderr %q, stdout\n%s", cmd.ProcessState.ExitCode(), n, errs.String(), out.String())
	}
	if r := newMachine(t, "h200-580").run("-plain", "-replay", log); r.code != 0 || !strings.Contains(r.stderr, "skipped 1 line") || !strings.Contains(r.stdout, "3g.71gb") {
		t.Errorf("replay: exit %d, %q", r.code, r.stderr)
	}

	dir := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p, dashboard := startDashboard(t, newMachine(t, "h200-580"), 100, 30, "-i", "300", "-log", filepath.Join(dir, "log"), "-prom", filepath.Join(dir, "x.prom"))
	text := func() string { return screenText(p, 100, 30) }
	p.eventually("values", func() bool { return strings.Contains(text(), "54") })
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	p.eventually("both notes", func() bool {
		return strings.Contains(text(), "logging stopped: the file was deleted; -prom file removed: no such file or directory")
	})
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p.eventually("the file is back", func() bool {
		_, err := os.Stat(filepath.Join(dir, "x.prom"))
		return err == nil && strings.Contains(text(), "logging stopped: the file was deleted  ") && !strings.Contains(text(), "-prom")
	})
	p.send("q")
	if code := p.exits(dashboard); code != 0 {
		t.Errorf("exit %d", code)
	}
	p.shows("mig-gpu-mon: ", 1)
}

// TestLogAfterKill: whatever moment SIGKILL comes at, all lines but the last are whole.
func TestLogAfterKill(t *testing.T) {
	t.Parallel()
	for i := range 5 {
		m := newMachine(t, "h200-580")
		log := filepath.Join(t.TempDir(), "log")
		l := m.start("-plain", "-i", "200", "-log", log)
		l.await("3g.71gb")
		time.Sleep(time.Duration(150+i*37) * time.Millisecond)
		l.end(syscall.SIGKILL)
		data, _ := os.ReadFile(log)
		lines := strings.Split(string(data), "\n")
		if len(lines) < 2 {
			t.Errorf("%d lines", len(lines))
		}
		for _, line := range lines[:len(lines)-1] {
			var s snapshot
			if err := decode([]byte(line), &s); err != nil || len(s.dev) != 5 {
				t.Errorf("%v in %s", err, line)
			}
		}
	}
}

// TestDashboardDemo says that it is one, on a machine without any driver.
func TestDashboardDemo(t *testing.T) {
	t.Parallel()
	p, cmd := startDashboard(t, newMachine(t, "init-9"), 160, 45, "-demo")
	p.eventually("the demo", func() bool {
		s := screenText(p, 160, 45)
		return strings.HasPrefix(s, "demo (simulated)") && strings.Contains(s, "3g.71gb") && strings.Contains(s, "alice") && strings.Contains(s, "CPU cores 16")
	})
	_ = cmd.Process.Signal(syscall.SIGUSR1) // there is nothing to release
	time.Sleep(100 * time.Millisecond)
	if s := screenText(p, 160, 45); strings.Contains(s, "RELEASED") || strings.Contains(s, "releasing") {
		t.Error(s)
	}
	p.send("q")
	if code := p.exits(cmd); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// FuzzDecode: whatever a line holds, decoding it does not panic, its numbers are within their metrics' ranges,
// what it decodes to is encoded and decoded to the same, and rows and frames can be made of it.
func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewSource(2))
	var e encoder
	for range 5 {
		f.Add(bytes.Clone(e.encode(randomSnapshot(r), nil)))
	}
	for line := range strings.Lines(gpurOld + gpurNew) {
		f.Add([]byte(line))
	}
	for _, text := range []string{
		"", "{}", "null", `{"v":1,"ts_ms":1,"gpus":[{"mig":{"index":1}}]}`, `{"v":1,"ts_ms":1e3,"gpus":[{"utilization_pct":1e400}],"processes":[{"pid":-1}]}`,
		`{"v":1,"ts_ms":1,"gpus":[{"gpu":3,"mig":{"index":0}},{"gpu":3},{"gpu":3}],"system":{"cores":[{},null,{"core":-1,"cpu_pct":5}]},"notes":["\u001b"]}`,
		`{"ts_ms":1,"gpus":[{"perf_level":"P99","pcie_rx_kbs":1e300}],"processes":[{"pid":7,"kind":7}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var s, again snapshot
		if decode(line, &s) != nil {
			return
		}
		for i := range s.dev {
			for m, v := range s.dev[i].v {
				if n, ok := v.num(); ok && (n < metrics[m].min || n > metrics[m].max) {
					t.Errorf("metric %d: %d", m, n)
				}
			}
		}
		var e encoder
		if err := decode(e.encode(&s, nil), &again); err != nil {
			t.Fatal(err)
		}
		var top object
		_ = json.Unmarshal(line, &top)
		if _, ours := top["v"]; ours && !reflect.DeepEqual(s, again) {
			t.Errorf("%+v\nagain\n%+v", s, again)
		}
		w := sampleWriter(t, io.Discard, "umgxkwpctvei")
		_ = w.tick(&s)
		for _, kind := range []rowKind{csvRows, procRows, jsonRows} {
			w.kind = kind
			_ = w.tick(&s)
		}
		(&promFile{shows: w.shows}).format(&s)
		v := &view{snap: &s, host: &hostState{}, past: newHistory(), now: s.at, interval: time.Second}
		if s.system != nil {
			v.host = s.system
		}
		for i := range s.dev {
			v.rows = append(v.rows, listed{device: s.dev[i]})
		}
		v.sel = len(v.rows) - 1
		addTick(v.past, s.at, time.Second, &s, v.host)
		var g grid
		g.resize(100, 30)
		for mode := range viewModes {
			v.mode = mode
			paint(&g, v)
		}
	})
}

// shell is a shell on m in which mig-gpu-mon is the program.
func (m *machine) shell(script string) *exec.Cmd {
	m.t.Helper()
	bin := m.t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "mig-gpu-mon"), []byte("#!/bin/sh\nexec '"+os.Args[0]+"' \"$@\"\n"), 0o755); err != nil {
		m.t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", script)
	cmd.Env = append(m.command().Env, "PATH="+bin+":"+os.Getenv("PATH"))
	return cmd
}

// readmeLine is the line of README.md that matches.
func readmeLine(t *testing.T, pattern string) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile("(?m)^.*" + pattern + ".*$").FindString(string(text))
	if line == "" {
		t.Fatalf("README.md has no line %q", pattern)
	}
	return line
}

// TestReadmePrometheus runs the README's cron line as it is written, but for the folder, and node_exporter,
// where it is installed, with the flag of the README.
func TestReadmePrometheus(t *testing.T) {
	t.Parallel()
	const folder = "/var/lib/prometheus/node-exporter"
	flags := regexp.MustCompile("--collector[^`]*").FindString(readmeLine(t, "`--collector"))
	command, ok := strings.CutPrefix(readmeLine(t, "root /usr/local/bin/mig-gpu-mon"), "* * * * * root /usr/local/bin/")
	if !ok || !strings.HasSuffix(flags, "="+folder) || !strings.Contains(command, " "+folder+"/") {
		t.Fatalf("%q, %q", command, flags)
	}
	dir := t.TempDir()
	cmd := newMachine(t, "h200-580").shell(strings.ReplaceAll(command, folder, dir))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v: %s", err, out)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	rule := regexp.MustCompile("(?s)```\n(- alert: .*?)```").FindSubmatch(readme)
	rules := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(rules, append([]byte("groups:\n- name: x\n  rules:\n"), bytes.ReplaceAll(append([]byte("\n"), rule[1]...), []byte("\n"), []byte("\n  "))...), 0o600); err != nil {
		t.Fatal(err)
	}
	if tool, err := exec.LookPath("promtool"); err != nil {
		t.Log("promtool is not installed: the alert was not checked by it")
	} else if out, err := exec.Command(tool, "check", "rules", rules).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	const want = `mig_gpu_mon_utilization_ratio{ci="0",gi="2",gpu="0",gpu_uuid="GPU-9d0f5b1e-6c1d-4d7c-8f4e-7b1f0c2d3e4f",mig="0",profile="3g.71gb",uuid="MIG-201f3a76-0000-5002-8000-0000201f3876"} 0.54`
	exporter, err := exec.LookPath("prometheus-node-exporter")
	if err != nil {
		t.Skip("prometheus-node-exporter is not installed: the file was not read by it")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	node := exec.Command(exporter, "--web.listen-address="+address, "--collector.disable-defaults", "--collector.textfile", strings.ReplaceAll(flags, folder, dir))
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = node.Process.Kill()
		_ = node.Wait()
	}()
	var page []byte
	await(t, "node_exporter", func() bool {
		answer, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		page, _ = io.ReadAll(answer.Body)
		return true
	})
	if !strings.Contains(string(page), want) || !strings.Contains(string(page), "node_textfile_scrape_error 0") {
		t.Errorf("%s", page)
	}
}

// TestUndo: stepping back leaves history as it was before the tick that is undone, wherever that was put.
func TestUndo(t *testing.T) {
	at := func(s float64) time.Time { return clockOf.Add(time.Duration(s * float64(time.Second))) }
	value := func(n int64) *hostState { return &hostState{cpu: measure(mHostCPU, n)} }
	past := func(h *history, n int) []float32 {
		var list []float32
		for i := range n {
			list = append(list, h.cpu.ago(i).num())
		}
		return list
	}
	for name, ticks := range map[string][]struct {
		at       float64
		interval time.Duration
	}{
		"regular":          {{0, time.Second}, {1, time.Second}, {2, time.Second}, {3, time.Second}},
		"an early one":     {{0, time.Second}, {.25, time.Second}, {1.25, time.Second}, {2.25, time.Second}, {3.25, time.Second}},
		"a gap":            {{0, time.Second}, {1, time.Second}, {9, time.Second}, {10, time.Second}},
		"another interval": {{0, time.Second}, {1, time.Second}, {11, 10 * time.Second}, {21, 10 * time.Second}},
		"a clock set back": {{100, time.Second}, {101, time.Second}, {3, time.Second}, {4, time.Second}},
		"the same time":    {{0, time.Second}, {1, time.Second}, {1, time.Second}, {2, time.Second}},
	} {
		h := newHistory()
		var before, again [][]float32
		for i, tick := range ticks {
			h.tick(at(tick.at), tick.interval, value(int64(i+1)*100))
			before = append(before, past(h, 20))
		}
		for i := len(ticks) - 1; i > 0; i-- {
			if !h.undo(at(ticks[i-1].at)) {
				t.Errorf("%s: tick %d is gone", name, i-1)
			}
			if got := past(h, 20); !slices.Equal(got, before[i-1]) {
				t.Errorf("%s: after a step back to tick %d: %v, want %v", name, i-1, got, before[i-1])
			}
		}
		again = append(again, past(h, 20))
		for i, tick := range ticks[1:] {
			h.tick(at(tick.at), tick.interval, value(int64(i+2)*100))
			again = append(again, past(h, 20))
		}
		if !slices.EqualFunc(again, before, slices.Equal[[]float32]) {
			t.Errorf("%s: forth again: %v, want %v", name, again, before)
		}
	}
}

// TestReplayCannotGoBack: in a pipe, and where the file has been cut meanwhile, the last record stays.
func TestReplayCannotGoBack(t *testing.T) {
	var s snapshot
	for name, cut := range map[string]bool{"pipe": false, "cut": true} {
		file := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(file, []byte(gpurOld), 0o600); err != nil {
			t.Fatal(err)
		}
		src, err := openReplay(file)
		if err != nil {
			t.Fatal(err)
		}
		if !cut {
			src.seeker = nil
		}
		_, _ = src.sample(&s), src.sample(&s)
		if s.tape.back != cut {
			t.Errorf("%s: way back %v", name, s.tape.back)
		}
		if err := os.Truncate(file, 0); cut && err != nil {
			t.Fatal(err)
		}
		src.obey(orderBack)
		if err := src.sample(&s); !errors.Is(err, io.EOF) || len(s.dev) != 1 {
			t.Errorf("%s: %v, %+v", name, err, s)
		}
	}
}

// TestDashboardReplayOfPipe: there is no step back, and the end is no error.
func TestDashboardReplayOfPipe(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p, cmd := startDashboard(t, scriptMachine(t, ""), 120, 40, "-replay", fifo)
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.WriteString(gpurOld)
	w.Close()
	text := func() string { return screenText(p, 120, 40) }
	p.eventually("the end", func() bool { return strings.Contains(text(), "replay end") })
	p.send(",.,")
	p.eventually("no way back", func() bool { return strings.Contains(text(), "goes back no further") })
	p.send("q")
	if code := p.exits(cmd); code != 0 {
		t.Errorf("exit %d: %s", code, p.output())
	}
}

// TestUnknownIsNull: what gpur does not tell is null in a record of ours.
func TestUnknownIsNull(t *testing.T) {
	var s snapshot
	var e encoder
	if err := decode([]byte(strings.SplitAfter(gpurOld, "\n")[0]), &s); err != nil {
		t.Fatal(err)
	}
	if line := string(e.encode(&s, nil)); !strings.Contains(line, `"interval_ms":null,"window_ms":null`) || strings.Contains(line, "seq") {
		t.Error(line)
	}
}

// TestMetricsOfMates: memory that only one of two compute instances could read is there.
func TestMetricsOfMates(t *testing.T) {
	devs := fourInstances()[:3]
	devs[1].gi, devs[1].mates, devs[2].gi, devs[2].mates, devs[2].shared = 3, true, 3, true, true
	devs[1].v[mMemUsed] = lack(inUse)
	p := &promFile{shows: func(*device) bool { return true }}
	p.format(&snapshot{at: clockOf, dev: devs})
	if !strings.Contains(string(p.b), `memory_used_bytes{gpu="0",gi="3"} 1258291200`) {
		t.Errorf("%s", p.b)
	}
}

// TestMetricsTellTheLastAnswer: without a session, released or with the driver gone, time stands still.
func TestMetricsTellTheLastAnswer(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"released", "gone"} {
		m := newMachine(t, "h200-580")
		file := filepath.Join(t.TempDir(), "x.prom")
		l := m.start("-plain", "-i", "300", "-prom", file)
		go func() {
			for range l.lines {
			}
		}()
		read := func() string {
			data, _ := os.ReadFile(file)
			return string(data)
		}
		await(t, "metrics", func() bool { return strings.Contains(read(), "utilization_ratio") })
		if how == "gone" {
			m.tell("unload")
		} else {
			_ = l.cmd.Process.Signal(syscall.SIGUSR1)
		}
		stamp := regexp.MustCompile(`timestamp_seconds [0-9.]+`)
		await(t, "none", func() bool { return !strings.Contains(read(), "utilization_ratio") && read() != "" })
		before := stamp.FindString(read())
		time.Sleep(time.Second)
		if after := stamp.FindString(read()); after != before || after == "" || strings.Contains(read(), "hidden") {
			t.Errorf("%s: %s, then %s", how, before, after)
		}
		_ = l.cmd.Process.Signal(syscall.SIGTERM)
		_ = l.cmd.Wait()
	}
}

// TestDashboardLog: silence and release are in the record of the screen as in that of rows, each tick once.
func TestDashboardLog(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	log := filepath.Join(t.TempDir(), "log")
	p, cmd := startDashboard(t, m, 100, 30, "-i", "300", "-log", log)
	has := func(what string) func() bool {
		return func() bool {
			data, _ := os.ReadFile(log)
			return strings.Contains(string(data), what)
		}
	}
	p.eventually("a record", has(`"utilization_pct":54`))
	p.send("p")
	p.eventually("release", has(`"fault":"released"`))
	p.eventually("its note", has("released: the NVML session is closed"))
	p.send("p")
	p.eventually("its end", has(`"resumed"`))
	m.tell("hang nvmlDeviceGetMemoryInfo_v2 s=4 times=1")
	p.eventually("silence", has(`"fault":"driver_silent"`))
	p.send("q")
	p.exits(cmd)
	src, err := openReplay(log)
	if err != nil {
		t.Fatal(err)
	}
	var s snapshot
	for n := 0; src.sample(&s) == nil; n++ {
		if n == 0 && !s.dev[1].v[mUtil].fresh() {
			t.Error("the first record lacks what needs two samples")
		}
		if s.tape.next > 0 && s.tape.next < 150*time.Millisecond {
			t.Errorf("record %d is followed after %v", n, s.tape.next)
		}
	}
}

// TestReplaySignal: a text replay that waits for more ends by a signal, and leaves nothing.
func TestReplaySignal(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x.prom")
	cmd := scriptMachine(t, "").command("-plain", "-replay", "-", "-prom", file)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(in, gpurOld+gpurOld)
	await(t, "metrics", func() bool {
		data, _ := os.ReadFile(file)
		return strings.Contains(string(data), `replay_info{recording="replay"} 1`)
	})
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
	if _, err := os.Stat(file); err == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Errorf("%v, the file: %v", cmd.ProcessState, err)
	}
}

// TestOneFileEach: no file is the target of two flags, and none is removed that this run has not written.
func TestOneFileEach(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	dir := t.TempDir()
	file := filepath.Join(dir, "x.prom")
	for _, pair := range [][2]string{{"-f", "-log"}, {"-log", "-debug"}, {"-prom", "-f"}, {"-replay", "-prom"}} {
		if r := m.run("-plain", "-c", "1", pair[0], file, pair[1], dir+"/./x.prom"); r.code != exitUsage || !strings.Contains(r.stderr, "are the same file") {
			t.Errorf("%v: exit %d, %q", pair, r.code, r.stderr)
		}
	}
	if err := os.WriteFile(file, []byte("another's"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"-replay /nonexistent", "-nvml-path /nonexistent", "-id 7 -i 200"} {
		if r := m.run(append(strings.Fields(args), "-plain", "-prom", file)...); r.code == 0 {
			t.Errorf("%s: exit 0", args)
		}
		if data, _ := os.ReadFile(file); string(data) != "another's" {
			t.Errorf("%s: the file has %q", args, data)
		}
	}
	if err := os.Mkdir(dir+"/d.prom", 0o755); err != nil {
		t.Fatal(err)
	}
	if r := m.run("-plain", "-c", "1", "-prom", dir+"/d.prom"); r.code != exitFailed || !strings.Contains(r.stderr, "is a directory") {
		t.Errorf("a directory: exit %d, %q", r.code, r.stderr)
	}
}

// TestMetricsGoWithThePipe: also when the reader of the rows goes, the file goes.
func TestMetricsGoWithThePipe(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x.prom")
	cmd := newMachine(t, "h200-580").shell("mig-gpu-mon -json -i 200 -prom " + file + " | head -1 | wc -l")
	if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "1" {
		t.Errorf("%v: %s", err, out)
	}
	await(t, "its end", func() bool {
		_, err := os.Stat(file)
		return err != nil
	})
}

// TestOrphanHasNoGPU: of a GPU that the recording lacks nothing is shown.
func TestOrphanHasNoGPU(t *testing.T) {
	v := testView(fourInstances()[1:2])
	v.sel = 0
	var g grid
	g.resize(120, 40)
	paint(&g, v)
	text := picture(&g)
	if !strings.Contains(text, "GPU 0  ?") || !strings.Contains(text, "(the recording does not have it)") || strings.Contains(text, "GPU 0 H200") {
		t.Error(text)
	}
}

// TestRecordsTellEvents: what rows tell between ticks is in the records too, once.
func TestRecordsTellEvents(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	log := filepath.Join(t.TempDir(), "log")
	l := m.start("-plain", "-i", "300", "-log", log)
	l.await("3g.71gb")
	_ = l.cmd.Process.Signal(syscall.SIGUSR1)
	l.await("# released")
	_ = l.cmd.Process.Signal(syscall.SIGUSR2)
	l.await("# resumed")
	l.await("3g.71gb  busy")
	m.tell("hang nvmlDeviceGetMemoryInfo_v2 s=4 times=1")
	l.await("driver silent since")
	l.await("driver back after")
	l.await("3g.71gb  busy")
	l.await("3g.71gb  busy")
	l.end(syscall.SIGTERM)
	out := m.run("-plain", "-replay", log).stdout
	for _, what := range []string{"# released: ", "# resumed", "# driver silent since ", "# driver back after "} {
		if strings.Count(out, what) != 1 {
			t.Errorf("%q is told %d times in\n%s", what, strings.Count(out, what), out)
		}
	}
}
