package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	for in, want := range map[string]procStat{
		statLine("python", "12", "5000"):   {"python", 12, 5000},
		statLine("a) R 1 (b", "7", "6000"): {"a) R 1 (b", 7, 6000},
		"":                                 {},
		"1 (x":                             {},
		"1 (x) R 1 2 3":                    {},
		"1 )x( R":                          {},
		strings.Repeat("(", 5000):          {},
		statLine("x", "-1", "5"):           {},
		statLine("x", "99999999999999999999", ""): {},
	} {
		got, ok := parseStat([]byte(in))
		if ok != (want != procStat{}) || ok && got != want {
			t.Errorf("%.40q: %+v %v", in, got, ok)
		}
	}
}

func TestParseJob(t *testing.T) {
	hex64 := strings.Repeat("0123456789abcdef", 4)
	for in, want := range map[string]string{
		"0::/system.slice/slurmstepd.scope/job_1234/step_0/user/task_0\n":                                  "job_1234",
		"9:memory:/slurm/uid_1000/job_77/step_batch/task_0\n8:cpu:/\n":                                     "job_77",
		"4:memory:/slurm_node17/uid_0/job_5\n":                                                             "job_5",
		"0::/kubepods.slice/kubepods-pod1a2b3c4d_5e6f_7a8b_9c0d_1e2f3a4b5c6d.slice/cri-containerd-x.scope": "pod:1a2b3c4d",
		"3:cpu:/kubepods/burstable/pod1a2b3c4d-5e6f-7a8b-9c0d-1e2f3a4b5c6d/" + hex64 + "\n":                "pod:1a2b3c4d",
		"0::/system.slice/docker-" + hex64 + ".scope\n":                                                    "docker:0123456789ab",
		"5:devices:/docker/" + hex64 + "\n":                                                                "docker:0123456789ab",
		"0::/user.slice/user-1000.slice/session-3.scope\n":                                                 "-",
		"0::/job_/x\n":   "-",
		"0::/myjob_12\n": "-",
		"":               "-",
		"nonsense\n\n::": "-",
	} {
		if got := parseJob([]byte(in)); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestParseCommand(t *testing.T) {
	for in, want := range map[string]string{
		"/usr/bin/python3\x00train.py\x00--lr\x000.1\x00": "python3 train.py --lr 0.1",
		"nginx: master process\x00\x00\x00":               "nginx: master process",
		"":                                                "",
		"\x00\x00":                                        "",
		"/bin/":                                           "/bin/",
		"sshd: bob@pts/0\x00":                             "sshd: bob@pts/0",
		"x\x00\x1b[2J\xff":                                "x ?[2J?",
	} {
		if got := parseCommand([]byte(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := parseCommand([]byte("x\x00" + strings.Repeat("한", 4000))); len(got) > maxCommand || strings.Contains(got, "?") {
		t.Errorf("%d bytes, ends %q", len(got), got[len(got)-9:])
	}
}

// TestProcessIsTheSame: rates need the same process, and a number that another process took tells nothing
// of the old one.
func TestProcessIsTheSame(t *testing.T) {
	root := procRootOf(t, map[string]string{
		"4000001/stat": statLine("a", "100", "5000"), "4000001/statm": "10 5 1\n", "4000001/cmdline": "a\x00", "4000001/status": "\nUid:\t7\t4294967294\t0\n",
	})
	r := newProcReader(root, func(f func()) { f() })
	now := clockOf
	p := process{pid: 4000001}
	r.fill(&p, now)
	if !p.known || p.command != "a" || p.cpu != lack(warmingUp) || p.cpuTime != measure(mCPUTime, 1000) || p.rss != measure(mRSS, 5*int64(os.Getpagesize())) {
		t.Errorf("first: %+v", p)
	}
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("4000001/stat", statLine("a", "250", "5000"))
	r.fill(&p, now.Add(time.Second))
	if p.cpu != lack(warmingUp) {
		t.Errorf("twice in one tick: %+v", p)
	}
	r.sweep()
	r.fill(&p, now.Add(time.Second))
	again := process{pid: 4000001}
	r.fill(&again, now.Add(time.Second)) // on another device
	if again.hostFacts != p.hostFacts {
		t.Errorf("on two devices: %+v and %+v", p.hostFacts, again.hostFacts)
	}
	if p.cpu != measure(mCPU, 15000) || p.user != "4294967294" {
		t.Errorf("150 ticks in a second: %+v", p)
	}
	r.sweep()
	write("4000001/stat", statLine("b", "3", "9000"))
	write("4000001/cmdline", "b\x00")
	r.fill(&p, now.Add(2*time.Second))
	if p.command != "b" || p.cpu != lack(warmingUp) {
		t.Errorf("another process: %+v", p)
	}
	r.sweep()
	os.RemoveAll(filepath.Join(root, "4000001"))
	r.fill(&p, now.Add(3*time.Second))
	if p.known || p.rss.from != absent || p.command != "" {
		t.Errorf("gone: %+v", p)
	}
	r.sweep()
	r.sweep()
	if len(r.known) != 0 {
		t.Errorf("%d processes are remembered", len(r.known))
	}
}

// TestUserNames: every user gets a name in the end, however many there are, and a number until then.
func TestUserNames(t *testing.T) {
	r := newProcReader(procRootOf(t, nil), func(f func()) { f() })
	for uid := range uint32(200) {
		r.userName(&knownProc{uid: 4_000_000_000 + uid, hasUID: true})
	}
	r.userName(&knownProc{uid: 1, hasUID: true})
	if len(r.names) < 199 {
		t.Errorf("%d users were looked up", len(r.names))
	}
	if got := r.userName(&knownProc{}); got != "" {
		t.Errorf("an unknown user is %q", got)
	}
}

// TestForeignNamespace: outside the initial pid namespace a number names a process only if that has an
// NVIDIA device open.
func TestForeignNamespace(t *testing.T) {
	root := procRootOf(t, map[string]string{
		"4000001/stat": statLine("a", "1", "5"), "4000002/stat": statLine("b", "1", "5"), "4000002/statm": "1 1\n",
	})
	ns := filepath.Join(root, "self/ns/pid")
	os.Remove(ns)
	if err := os.Symlink("pid:[4026532001]", ns); err != nil {
		t.Fatal(err)
	}
	for pid, target := range map[string]string{"4000001": "/dev/null", "4000002": "/dev/nvidia0"} {
		os.MkdirAll(filepath.Join(root, pid, "fd"), 0o755)
		if err := os.Symlink(target, filepath.Join(root, pid, "fd/3")); err != nil {
			t.Fatal(err)
		}
	}
	r := newProcReader(root, func(f func()) { f() })
	a, b := process{pid: 4000001}, process{pid: 4000002}
	r.fill(&a, clockOf)
	r.fill(&b, clockOf)
	if a.known || !b.known {
		t.Errorf("%+v %+v", a, b)
	}
}

func TestMeminfo(t *testing.T) {
	m := parseMeminfo([]byte("MemTotal: 1000 kB\nMemFree: 300 kB\nMemAvailable: 800 kB\nBuffers: 50 kB\nCached: 200 kB\nSReclaimable: 30 kB\nShmem: 20 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"))
	kb := func(n int64) value { return measure(mHostMem, n<<10) }
	if m.cached() != kb(260) || m.used() != kb(440) || m.avail != kb(800) || m.swapTotal != kb(0) {
		t.Errorf("cached %+v used %+v", m.cached(), m.used())
	}
	for _, missing := range []string{"Buffers", "Cached", "SReclaimable", "Shmem", "MemFree", "MemTotal"} {
		text := "MemTotal: 1000 kB\nMemFree: 300 kB\nBuffers: 50 kB\nCached: 200 kB\nSReclaimable: 30 kB\nShmem: 20 kB\n"
		m := parseMeminfo([]byte(strings.Replace(text, missing+":", "X"+missing+":", 1)))
		if m.used().from != absent {
			t.Errorf("used is known without %s: %+v", missing, m.used())
		}
	}
}

func TestCPULoad(t *testing.T) {
	root := procRootOf(t, map[string]string{"stat": "cpu  10 0 10 80 0 0 0 0 5 5\ncpu0 10 0 10 80 0 0 0 0 5 5\ncpu7 1 1 1 1 1 1 1 1 0 0\nintr 1\n", "meminfo": ""})
	r := newHostReader(root, t.TempDir())
	var h hostState
	r.read(&h, clockOf)
	if h.cpu != lack(warmingUp) || len(h.cores) != 2 || !slices.Equal(h.coreIDs, []int{0, 7}) {
		t.Errorf("first: %+v", h)
	}
	next := "cpu  40 0 20 130 10 0 0 0 30 5\ncpu0 40 0 20 130 10 0 0 0 5 5\ncpu7 1 1 1 9 0 1 1 1 0 0\ncpu9 5 5 5 5 5 5 5 5 0 0\ncpu11 5 5 5 5 5 5 5 5 0 0"
	os.WriteFile(filepath.Join(root, "stat"), []byte(next), 0o644)
	r.read(&h, clockOf.Add(time.Second))
	if h.cpu != measure(mHostCPU, 4000) || h.cores[0] != measure(mHostCPU, 4000) || h.cores[1] != lack(counterReset) || h.cores[2] != lack(warmingUp) {
		t.Errorf("second: %+v", h)
	}
	if len(h.cores) != 3 {
		t.Errorf("a line that is cut off was read: %+v", h.coreIDs)
	}
	if h.memTotal.from != absent || h.memUsed.from != absent {
		t.Errorf("memory of an empty meminfo: %+v", h)
	}
	if n := testing.AllocsPerRun(20, func() { r.readCPU(&h) }); n > 2 { // the two of opening a file
		t.Errorf("%v allocations per read", n)
	}
}

// TestCgroupLimits of both versions, from the process's own cgroup up, also where a container sees only
// its own as the root.
func TestCgroupLimits(t *testing.T) {
	meminfo := "MemTotal: 64000000 kB\nMemFree: 30000000 kB\nBuffers: 0 kB\nCached: 0 kB\nSReclaimable: 0 kB\nShmem: 0 kB\n"
	stat := "cpu 1 1 1 1 1 1 1 1\n" + func() (s string) {
		for i := range 8 {
			s += fmt.Sprintf("cpu%d 1 1 1 1 1 1 1 1\n", i)
		}
		return s
	}()
	for name, c := range map[string]struct {
		self  string
		files map[string]string
		mem   int64 // MiB, 0 none
		cpu   int64 // cores × 100, 0 none
		used  int64
	}{
		"v2":        {"0::/a/b\n", map[string]string{"a/memory.max": "4294967296", "a/memory.current": "1073741824", "a/memory.stat": "anon 5\ninactive_file 104857600\n", "a/b/memory.max": "max", "a/b/cpu.max": "150000 100000", "a/cpu.max": "max 100000"}, 4096, 150, 924},
		"v1":        {"9:memory:/x\n3:cpu,cpuacct:/x\n", map[string]string{"memory/x/memory.limit_in_bytes": "2147483648", "memory/x/memory.usage_in_bytes": "1048576", "memory/x/memory.stat": "cache 1\ntotal_inactive_file 0\n", "cpu,cpuacct/x/cpu.cfs_quota_us": "400000", "cpu,cpuacct/x/cpu.cfs_period_us": "100000", "memory/memory.limit_in_bytes": "9223372036854771712"}, 2048, 400, 1},
		"container": {"0::/../../host/path\n", map[string]string{"memory.max": "1073741824", "memory.current": "1048576", "memory.stat": "anon 1\ninactive_file 0\n"}, 1024, 0, 1},
		"missing":   {"0::/a/b\n", map[string]string{"a/memory.max": "1048576", "a/memory.current": "1"}, 0, 0, 0},
		"RHEL 7":    {"3:cpuacct,cpu:/x\n", map[string]string{"cpu,cpuacct/x/cpu.cfs_quota_us": "200000", "cpu,cpuacct/x/cpu.cfs_period_us": "100000"}, 0, 200, 0},
		"cpuset":    {"0::/a\n", map[string]string{"a/cpu.max": "700000 100000"}, 0, 600, 0},
		"none":      {"0::/a\n", map[string]string{"a/memory.max": "max", "a/cpu.max": "max 100000"}, 0, 0, 0},
		"larger":    {"0::/a\n", map[string]string{"a/memory.max": "922337203685477", "a/cpu.max": "9900000 100000"}, 0, 0, 0},
	} {
		root := procRootOf(t, map[string]string{"stat": stat, "meminfo": meminfo, "self/cgroup": c.self})
		cgroup := procRootOf(t, c.files)
		r := newHostReader(root, cgroup)
		r.allowed = func() int {
			if name == "cpuset" {
				return 6
			}
			return 8
		}
		var h hostState
		r.read(&h, clockOf)
		mem, hasMem := h.memLimit.num()
		cpu, hasCPU := h.cpuLimit.num()
		if hasMem != (c.mem > 0) || mem != c.mem<<20 || hasCPU != (c.cpu > 0) || cpu != c.cpu*100 {
			t.Errorf("%s: memory %v, CPU %v", name, h.memLimit, h.cpuLimit)
		}
		if used, _ := h.memUsed.num(); c.mem > 0 && used != c.used<<20 {
			t.Errorf("%s: used %d MiB, want %d", name, used>>20, c.used)
		}
	}
}

// pssWorld is a PSS sampler on a clock of its own, in which each walk takes its time.
type pssWorld struct {
	*pssSampler
	now    time.Time
	takes  map[string]time.Duration
	denied map[string]bool
	walked []string
}

func newPSSWorld(t *testing.T, pids ...uint32) *pssWorld {
	files := map[string]string{}
	for _, pid := range pids {
		files[fmt.Sprintf("%d/stat", pid)] = statLine("x", "1", "5")
	}
	w := &pssWorld{pssSampler: newPSS(procRootOf(t, files)), now: clockOf, takes: map[string]time.Duration{}, denied: map[string]bool{}}
	w.clock = func() time.Time { return w.now }
	w.walk = func(path string) ([]byte, error) {
		pid := filepath.Base(filepath.Dir(path))
		w.walked = append(w.walked, pid)
		w.now = w.now.Add(w.takes[pid])
		if w.denied[pid] {
			return nil, os.ErrPermission
		}
		return []byte("Pss: 10 kB\nPrivate_Clean: 1 kB\nPrivate_Dirty: 2 kB\nPrivate_Hugetlb: 4 kB\n"), nil
	}
	return w
}

func (w *pssWorld) tick(after time.Duration, list ...pssWant) string {
	w.now = w.now.Add(after)
	w.walked = nil
	w.round(list)
	return strings.Join(w.walked, " ")
}

func want(pid uint32, rss int64, chosen bool) pssWant {
	return pssWant{procID{pid, 5}, rss, chosen}
}

// TestPSSRules: who is walked, in which order, how often, and what is left for the next tick.
func TestPSSRules(t *testing.T) {
	w := newPSSWorld(t, 1, 2, 3, 4)
	list := []pssWant{want(1, 10, false), want(2, 30, false), want(3, 20, false), want(4, 5, true)}
	if got := w.tick(0, list...); got != "4 2 3 1" {
		t.Errorf("first tick: %s", got)
	}
	if got := w.tick(time.Second, list...); got != "" {
		t.Errorf("after 1 s: %s", got)
	}
	if got := w.tick(time.Second, list...); got != "4 1 2 3" && got != "4 2 3 1" {
		t.Errorf("after 2 s: %s", got)
	}
	// A walk of 100 ms: two of them use the budget up, and each rests for 50 times its length.
	w.takes = map[string]time.Duration{"1": 100 * time.Millisecond, "2": 100 * time.Millisecond, "3": 100 * time.Millisecond}
	w.tick(3*time.Second, list...)
	if len(w.walked) != 3 {
		t.Errorf("budget: %v", w.walked)
	}
	left := w.tick(10*time.Millisecond, list...)
	if len(w.walked) != 1 {
		t.Errorf("the one that was left: %s", left)
	}
	if got := w.tick(3*time.Second, list...); got != "4" {
		t.Errorf("after 3 s the slow ones rest: %s", got)
	}
	w.denied["4"] = true
	w.tick(3*time.Second, want(4, 5, true))
	if got := w.tick(29*time.Second, want(4, 5, true)); got != "" {
		t.Errorf("denied: %s", got)
	}
	if got := w.tick(time.Second, want(4, 5, true)); got != "4" {
		t.Errorf("denied, after 30 s: %s", got)
	}
	if one := w.known[procID{4, 5}]; one.pss != lack(noPermission) {
		t.Errorf("%+v", one)
	}
	if len(w.known) != 1 {
		t.Errorf("%d processes are remembered, 1 was asked for", len(w.known))
	}
}

// TestPSSOfAnother: a walk whose process has gone meanwhile, or is another by now, tells nothing.
func TestPSSOfAnother(t *testing.T) {
	w := newPSSWorld(t, 1)
	w.tick(0, pssWant{procID{1, 4}, 1, false}, want(2, 1, false))
	for id, one := range w.known {
		if one.pss.from != absent || one.uss.from != absent {
			t.Errorf("%+v: %+v", id, one)
		}
	}
}

// TestPSSDelaysNobody: while a walk takes long, asking does not wait.
func TestPSSDelaysNobody(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	s := newPSS(procRootOf(t, nil))
	s.walk = func(string) ([]byte, error) { <-hang; return nil, errors.New("gone") }
	go func() {
		for list := range s.wants {
			s.states <- s.round(list)
		}
	}()
	done := make(chan bool)
	go func() {
		for range 100 {
			s.ask([]pssWant{want(1, 1, false)})
		}
		done <- true
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("asking waits for a walk")
	}
}

func TestParseRollup(t *testing.T) {
	pss, uss := parseRollup([]byte("5581 rollup\nRss: 100 kB\nPss: 60 kB\nPss_Anon: 1 kB\nPrivate_Clean: 1 kB\nPrivate_Dirty: 2 kB\nPrivate_Hugetlb: 4 kB\n"))
	if pss != measure(mRSS, 60<<10) || uss != measure(mRSS, 7<<10) {
		t.Errorf("%+v %+v", pss, uss)
	}
	if _, uss := parseRollup([]byte("Pss: 60 kB\nPrivate_Clean: 1 kB\n")); uss.from != absent {
		t.Errorf("half of the private pages: %+v", uss)
	}
	if pss, uss = parseRollup(nil); pss.from != absent || uss.from != absent {
		t.Errorf("%+v %+v", pss, uss)
	}
}

// FuzzProc feeds every parser of /proc; none may panic or make a number that is out of range.
func FuzzProc(f *testing.F) {
	f.Add([]byte(statLine("x) (y", "1", "2")))
	f.Add([]byte("MemTotal: 1 kB\nCached: 99999999999999999999 kB\nShmem:\n"))
	f.Add([]byte("cpu  1 2 3\ncpu99999999999 1 2 3 4 5 6 7 8\n"))
	f.Add([]byte("Pss: 18446744073709551615 kB\nPrivate_Dirty: -1 kB\n"))
	f.Add([]byte("0::/kubepods/pod/x\n1:2:3:4\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := parseMeminfo(b)
		pss, uss := parseRollup(b)
		for _, v := range []value{m.used(), m.cached(), m.total, m.avail, pss, uss} {
			if n, ok := v.num(); ok && (n < 0 || n > 3*maxBytes) {
				t.Errorf("%d of %q", n, b)
			}
		}
		for line := range strings.Lines(string(b)) {
			parseCPULine([]byte(line))
		}
		parseStat(b)
		parseStatm(b)
		parseUID(b)
		if c := parseCommand(b); strings.ContainsAny(c, "\x00\x1b\n") {
			t.Errorf("%q", c)
		}
		parseJob(b)
	})
}
