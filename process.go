// process.go owns what /proc tells of GPU processes: name, user, job, CPU, memory, and on demand PSS and USS.
//
// Invariants: parsers are pure functions of bytes; a missing field is absent, not 0; a pid is the same process only
// with the same start time, and one that is not ours to name stays unknown.
package main

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// userHZ is the unit of /proc's CPU times per second: fixed at 100 in the kernel's interface.
const userHZ = 100

const (
	factsFor     = 30 * time.Second // exec changes a command, setuid a user
	maxProcFile  = 64 << 10
	maxCommand   = 4 << 10
	initialPidNS = "pid:[4026531836]" // PROC_PID_INIT_INO of include/linux/proc_ns.h
)

// procReader reads facts of processes and remembers what does not change. It belongs to one goroutine.
type procReader struct {
	root    string
	guard   func(func())
	foreign bool // this is not the initial pid namespace: a number may be another process's there
	known   map[uint32]*knownProc
	names   map[uint32]string // user names by uid
	asked   map[uint32]bool
	waiting int // lookups under way
	answers chan userName
	buf     []byte
	round   uint64
}

type userName struct {
	uid  uint32
	name string
}

// knownProc is what was read of a process, identified by its start time.
type knownProc struct {
	start   uint64
	ours    bool // it may be named here
	uid     uint32
	hasUID  bool
	job     string
	command string
	read    time.Time // of the facts above
	cpu     uint64    // clock ticks at the time below
	at      time.Time
	round   uint64    // in which it was last asked for
	told    hostFacts // what was told of it in that round, for a process on several devices
}

// newProcReader reads under root ("/proc"). guard starts the goroutine that looks user names up.
func newProcReader(root string, guard func(func())) *procReader {
	ns, err := os.Readlink(filepath.Join(root, "self/ns/pid"))
	return &procReader{
		root: root, guard: guard, foreign: err != nil || ns != initialPidNS,
		known: map[uint32]*knownProc{}, names: map[uint32]string{}, asked: map[uint32]bool{},
		answers: make(chan userName, 64), buf: make([]byte, maxProcFile),
	}
}

func (r *procReader) read(path string) []byte { return readFile(path, r.buf) }

// fill completes p's facts. now is the time of the tick, for rates.
func (r *procReader) fill(p *process, now time.Time) {
	p.hostFacts = hostFacts{rss: lack(otherHost), cpu: lack(otherHost), cpuTime: lack(otherHost)}
	if k := r.known[p.pid]; k != nil && k.round == r.round && k.told.known {
		p.hostFacts = k.told
		return
	}
	dir := filepath.Join(r.root, strconv.FormatUint(uint64(p.pid), 10))
	st, ok := parseStat(r.read(dir + "/stat"))
	if !ok {
		return
	}
	k := r.known[p.pid]
	if k == nil || k.start != st.start {
		k = &knownProc{start: st.start, ours: !r.foreign || usesNVIDIA(dir)}
		r.known[p.pid] = k
	}
	k.round, k.told = r.round, hostFacts{}
	if !k.ours {
		return
	}
	if k.read.IsZero() || now.Sub(k.read) >= factsFor {
		r.facts(k, dir, st.comm)
		k.read = now
	}
	rss, rssOK := parseStatm(r.read(dir + "/statm"))
	// The start time once more: all of this is of one process, or nothing is told.
	if again, ok := parseStat(r.read(dir + "/stat")); !ok || again.start != st.start {
		return
	}
	p.hostFacts = hostFacts{
		known: true, start: st.start, user: r.userName(k), job: k.job, command: k.command,
		rss: lack(noPermission), cpu: lack(warmingUp), cpuTime: measure(mCPUTime, int64(st.cpu)*1000/userHZ),
	}
	if rssOK {
		p.rss = measure(mRSS, int64(rss)*int64(os.Getpagesize()))
	}
	if dt := now.Sub(k.at); !k.at.IsZero() && dt > 0 && st.cpu >= k.cpu {
		p.cpu = measure(mCPU, int64(float64(st.cpu-k.cpu)/userHZ/dt.Seconds()*10000))
	}
	k.cpu, k.at, k.told = st.cpu, now, p.hostFacts
}

// sweep ends a tick: processes that were not asked for are forgotten.
func (r *procReader) sweep() {
	for pid, k := range r.known {
		if k.round != r.round {
			delete(r.known, pid)
		}
	}
	r.round++
}

// facts reads what seldom changes.
func (r *procReader) facts(k *knownProc, dir, comm string) {
	k.hasUID, k.job, k.command = false, "-", printable(comm)
	var st syscall.Stat_t
	if syscall.Stat(dir, &st) == nil {
		k.uid, k.hasUID = st.Uid, true // the effective uid; root for processes that are not dumpable
	}
	if uid, ok := parseUID(r.read(dir + "/status")); ok {
		k.uid, k.hasUID = uid, true
	}
	k.job = parseJob(r.read(dir + "/cgroup"))
	if c := parseCommand(r.read(dir + "/cmdline")); c != "" {
		k.command = c
	}
}

// userName is the name of k's user, the number until the lookup, which may ask a directory server, answers.
func (r *procReader) userName(k *knownProc) string {
	if !k.hasUID {
		return ""
	}
	uid := k.uid
	for {
		select {
		case a := <-r.answers:
			r.names[a.uid] = a.name
			r.waiting--
			continue
		default:
		}
		break
	}
	number := strconv.FormatUint(uint64(uid), 10)
	if name, ok := r.names[uid]; ok {
		return name
	}
	if !r.asked[uid] && r.waiting < cap(r.answers) {
		r.asked[uid] = true
		r.waiting++
		r.guard(func() {
			name := number
			if u, err := user.LookupId(number); err == nil {
				name = printable(u.Username)
			}
			r.answers <- userName{uid, name}
		})
	}
	return number
}

// usesNVIDIA says that the process has an NVIDIA device open or mapped: only then is a pid that NVML gave
// us in another namespace's numbering believed to be this process.
func usesNVIDIA(dir string) bool {
	fds, _ := os.ReadDir(dir + "/fd")
	for _, fd := range fds {
		if to, err := os.Readlink(dir + "/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, "/dev/nvidia") {
			return true
		}
	}
	maps, _ := os.ReadFile(dir + "/maps")
	return bytes.Contains(maps, []byte(" /dev/nvidia"))
}

// procStat is what is needed of /proc/PID/stat.
type procStat struct {
	comm  string
	cpu   uint64 // utime + stime, clock ticks
	start uint64 // clock ticks since boot
}

// parseStat takes the fields of proc(5). The name in parentheses may hold anything, also ") R 1".
func parseStat(b []byte) (procStat, bool) {
	from, to := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if from < 0 || to < from {
		return procStat{}, false
	}
	f := bytes.Fields(b[to+1:]) // f[0] is field 3, the state
	if len(f) < 20 {
		return procStat{}, false
	}
	utime, err1 := strconv.ParseUint(string(f[11]), 10, 62)
	stime, err2 := strconv.ParseUint(string(f[12]), 10, 62)
	start, err3 := strconv.ParseUint(string(f[19]), 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return procStat{}, false
	}
	return procStat{string(b[from+1 : to]), utime + stime, start}, true
}

// parseStatm is the resident size in pages.
func parseStatm(b []byte) (uint64, bool) {
	f := bytes.Fields(b)
	if len(f) < 2 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(f[1]), 10, 50)
	return n, err == nil
}

// parseUID is the effective user of /proc/PID/status.
func parseUID(b []byte) (uint32, bool) {
	_, rest, ok := bytes.Cut(b, []byte("\nUid:"))
	f := bytes.Fields(rest)
	if !ok || len(f) < 2 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(f[1]), 10, 32)
	return uint32(n), err == nil
}

// parseCommand is the program's base name and its arguments, "" for a kernel thread or zombie.
func parseCommand(b []byte) string {
	b = bytes.TrimRight(b, "\x00")
	if len(b) == 0 {
		return ""
	}
	program, args, _ := bytes.Cut(b, []byte{0})
	path, _, _ := bytes.Cut(program, []byte{' '}) // a title that the process gave itself is no path
	if i := bytes.LastIndexByte(path, '/'); i >= 0 && i+1 < len(program) {
		program = program[i+1:]
	}
	text := string(program)
	if len(args) > 0 {
		text += " " + strings.ReplaceAll(string(args), "\x00", " ")
	}
	if len(text) > maxCommand {
		text = strings.ToValidUTF8(text[:maxCommand], "") // not half a character
	}
	return printable(text)
}

// parseJob names who started a process, from its cgroup paths (v1 has a line per controller, v2 one):
// Slurm's job_1234, a pod by the start of its uid, or a container by the start of its id.
func parseJob(b []byte) string {
	for line := range bytes.Lines(b) {
		parts := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte{':'}, 3)
		if len(parts) < 3 {
			continue
		}
		path := string(parts[2])
		inPod := strings.Contains(path, "kubepods")
		for step := range strings.SplitSeq(path, "/") {
			if id, ok := strings.CutPrefix(step, "job_"); ok && id != "" && strings.Trim(id, "0123456789") == "" {
				return step
			}
			// kubepods-burstable-pod1a2b3c4d_5e6f_... of systemd, pod1a2b3c4d-5e6f-... of cgroupfs
			if i := strings.LastIndex(step, "pod"); inPod && i >= 0 && hexStart(step[i+3:]) >= 8 {
				return "pod:" + step[i+3:i+11]
			}
		}
		// docker-ID.scope, /docker/ID, cri-containerd-ID.scope, crio-ID.scope, libpod-ID.scope
		for step := range strings.SplitSeq(path, "/") {
			id := step[strings.LastIndexByte(step, '-')+1:]
			if hexStart(id) == 64 {
				return "docker:" + id[:12]
			}
		}
	}
	return "-"
}

// hexStart is the number of lower-case hex digits that s starts with.
func hexStart(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789abcdef"))
}

// procID is a process over time: a pid is the same process only with the same start time.
type procID struct {
	pid   uint32
	start uint64
}

// pssWant is a process whose memory shares are wanted.
type pssWant struct {
	id     procID
	rss    int64
	chosen bool // of the selected device: first
}

// pssState is what a walk through a process's page tables found, and when.
type pssState struct {
	pss, uss value // proportional share of shared pages; pages of its own
	at       time.Time
	took     time.Duration
}

const (
	pssBudget  = 150 * time.Millisecond // of walks per tick, checked before each
	pssFresh   = 2 * time.Second        // not walked again before, nor before pssRest times a walk's length
	pssRest    = 50
	pssRefused = 30 * time.Second // a process that cannot be walked is not tried again before
	pssMaxAge  = 10 * time.Second // older values are not shown
)

// pssSampler walks page tables (/proc/PID/smaps_rollup) on its own goroutine, since a walk holds the mmap
// lock of the watched process, and takes seconds for one that maps hundreds of GB.
type pssSampler struct {
	root   string
	clock  func() time.Time
	walk   func(path string) ([]byte, error)
	wants  chan []pssWant
	states chan map[procID]pssState
	known  map[procID]pssState
}

// startPSS starts the sampler for processes under root ("/proc").
func startPSS(root string, guard func(func())) *pssSampler {
	s := newPSS(root)
	guard(func() {
		for list := range s.wants {
			s.states <- s.round(list)
		}
	})
	return s
}

func newPSS(root string) *pssSampler {
	return &pssSampler{
		root: root, clock: time.Now, walk: os.ReadFile, known: map[procID]pssState{},
		wants: make(chan []pssWant, 1), states: make(chan map[procID]pssState, 1),
	}
}

// ask hands list over, in the place of one that still waits. It belongs to one goroutine.
func (s *pssSampler) ask(list []pssWant) {
	select {
	case <-s.wants:
	default:
	}
	s.wants <- list
}

// round walks what is due of list within the budget and answers what is known of it, a copy.
func (s *pssSampler) round(list []pssWant) map[procID]pssState {
	began := s.clock()
	s.order(list, began)
	known := map[procID]pssState{}
	for _, w := range list {
		one, ok := s.known[w.id]
		if s.due(one, ok, s.clock()) && s.clock().Sub(began) < pssBudget {
			one = s.look(w.id)
		} else if !ok {
			continue
		}
		known[w.id] = one
	}
	s.known = known // what was not asked for is forgotten
	return maps.Clone(known)
}

// due says whether a process may be walked now.
func (s *pssSampler) due(one pssState, walked bool, now time.Time) bool {
	age := now.Sub(one.at)
	switch {
	case !walked:
		return true
	case one.pss.from == absent:
		return age >= pssRefused
	}
	return age >= max(pssFresh, pssRest*one.took)
}

// order sorts list: the chosen device's processes, then those never walked by their size, then the others,
// oldest first.
func (s *pssSampler) order(list []pssWant, now time.Time) {
	rank := func(w pssWant) (group int, key int64) {
		one, walked := s.known[w.id]
		switch {
		case w.chosen:
			return 0, -w.rss
		case !walked:
			return 1, -w.rss
		}
		return 2, one.at.Sub(now).Milliseconds()
	}
	slices.SortStableFunc(list, func(a, b pssWant) int {
		ga, ka := rank(a)
		gb, kb := rank(b)
		return cmp.Or(cmp.Compare(ga, gb), cmp.Compare(ka, kb))
	})
}

// look walks one process. It is the same process only if its start time is still the same afterwards.
func (s *pssSampler) look(id procID) pssState {
	dir := filepath.Join(s.root, strconv.FormatUint(uint64(id.pid), 10))
	began := s.clock()
	b, err := s.walk(dir + "/smaps_rollup")
	one := pssState{at: s.clock()}
	one.took = one.at.Sub(began)
	switch {
	case errors.Is(err, os.ErrPermission):
		one.pss, one.uss = lack(noPermission), lack(noPermission)
	case err != nil:
		one.pss, one.uss = lack(notSupported), lack(notSupported) // no address space, or gone
	default:
		one.pss, one.uss = parseRollup(b)
	}
	stat, _ := os.ReadFile(dir + "/stat")
	if st, ok := parseStat(stat); !ok || st.start != id.start {
		one.pss, one.uss = lack(otherHost), lack(otherHost)
	}
	return one
}

// parseRollup is PSS and USS of smaps_rollup (proc(5)): USS is what is private, clean, dirty or huge.
func parseRollup(b []byte) (pss, uss value) {
	pss, uss = lack(noData), lack(noData)
	var private int64
	found := map[string]bool{}
	kbLines(b, func(name []byte, size int64) {
		switch string(name) {
		case "Pss":
			pss = measure(mRSS, size)
		case "Private_Clean", "Private_Dirty", "Private_Hugetlb":
			private += size
			found[string(name)] = true
		}
	})
	if found["Private_Clean"] && found["Private_Dirty"] {
		uss = measure(mRSS, private)
	}
	return pss, uss
}

// process is one process on one device. A process of an instance points to the instance.
type process struct {
	dev  int // index in snapshot.dev
	pid  uint32
	kind string // "C", "G", "M" (MPS) and combinations like "C+G"
	mem  value
	hostFacts
	shares pssState // PSS and USS, where they are asked for
}

// hostFacts is what /proc tells of a process; all of it unknown when the pid is not ours to name.
type hostFacts struct {
	known   bool
	start   uint64 // clock ticks since boot: with the pid, the identity of a process
	user    string
	job     string // "job_1234", "pod:8hex", "docker:12hex" or "-"
	command string
	rss     value
	cpu     value // since the last tick, 100 % is one core
	cpuTime value
}

// byMemory orders processes by GPU memory, most first and unknown last, then by pid.
func byMemory(a, b process) int {
	am, aok := a.mem.num()
	bm, bok := b.mem.num()
	switch {
	case aok != bok && aok:
		return -1
	case aok != bok:
		return 1
	case aok && am != bm:
		return cmp.Compare(bm, am)
	}
	return cmp.Compare(a.pid, b.pid)
}
