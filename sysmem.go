// sysmem.go owns what the host tells: facts of GPU processes, CPU, memory and cgroup limits, from /proc.
//
// Invariants: parsers are pure functions of bytes under a root folder; a missing field is absent, not 0;
// a pid is the same process only with the same start time, and one that is not ours to name stays unknown.
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

	"golang.org/x/sys/unix"
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

// onWSL says that this is a Linux under Windows, where the driver is the host's.
func onWSL() bool {
	b, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return bytes.Contains(bytes.ToLower(b), []byte("microsoft"))
}

// inContainer says that this looks like a container, where the host's runtime must pass the GPU in.
func inContainer() bool {
	for _, f := range []string{"/.dockerenv", "/run/.containerenv", "/run/secrets/kubernetes.io"} {
		if _, err := os.Stat(f); err == nil {
			return true
		}
	}
	return os.Getenv("KUBERNETES_SERVICE_HOST") != "" || os.Getenv("container") != ""
}

// hostState is what the whole machine, or the part of it that a cgroup leaves to us, is doing.
type hostState struct {
	cpu                                  value
	cores                                []value
	coreIDs                              []int // the kernel's numbers; cores can be unplugged
	memTotal, memUsed, memCache, memFree value // as htop counts; within a cgroup's limit if there is one
	memAvail, swapTotal, swapUsed        value
	memLimit, cpuLimit                   value // of the cgroup (CPU: 100 % is one core), absent without one below the machine
	order                                []int
}

// noSwap says that it is known that there is no swap.
func (h *hostState) noSwap() bool {
	n, ok := h.swapTotal.num()
	return ok && n == 0
}

// byLoad is the positions in cores, the busiest first, those without a number last.
func (h *hostState) byLoad() []int {
	h.order = h.order[:0]
	for i := range h.cores {
		h.order = append(h.order, i)
	}
	slices.SortStableFunc(h.order, func(a, b int) int {
		x, xok := h.cores[a].num()
		y, yok := h.cores[b].num()
		if xok != yok {
			if xok {
				return -1
			}
			return 1
		}
		return cmp.Compare(y, x)
	})
	return h.order
}

// cpuTimes are the times of a line of /proc/stat in clock ticks: user nice system idle iowait irq softirq
// steal. What follows there, guest time, is in user already (proc(5)).
type cpuTimes [8]uint64

const cpuIdle, cpuIOWait = 3, 4

// coreTimes are a core's at the read of that number.
type coreTimes struct {
	cpuTimes
	read uint64
}

// hostReader reads the host. It belongs to one goroutine.
type hostReader struct {
	proc, cgroup string
	buf          []byte
	all          cpuTimes
	core         map[int]coreTimes
	reads        uint64
	allowed      func() int // CPUs that this process may run on (cpuset, taskset)
	limitsAt     time.Time
	memLimit     int64 // bytes, 0 none
	cpuLimit     int64 // 1/100 % of a core, 0 none
	usage        string
}

// newHostReader reads under proc ("/proc") and cgroup ("/sys/fs/cgroup").
func newHostReader(proc, cgroup string) *hostReader {
	return &hostReader{proc: proc, cgroup: cgroup, buf: make([]byte, 256<<10), core: map[int]coreTimes{}, allowed: allowedCPUs}
}

// read fills h for the time now.
func (r *hostReader) read(h *hostState, now time.Time) {
	r.readCPU(h)
	m := parseMeminfo(readFile(r.proc+"/meminfo", r.buf))
	h.memTotal, h.memFree, h.memAvail = m.total, m.free, m.avail
	h.memCache, h.memUsed = m.cached(), m.used()
	h.swapTotal, h.swapUsed = m.swapTotal, m.swapTotal.minus(m.swapFree)
	if r.limitsAt.IsZero() || now.Sub(r.limitsAt) >= 10*time.Second {
		r.limitsAt = now
		r.readLimits()
	}
	r.applyLimits(h)
}

// readCPU makes loads of the differences to the read before.
func (r *hostReader) readCPU(h *hostState) {
	h.cpu, h.cores, h.coreIDs = lack(notRead), h.cores[:0], h.coreIDs[:0]
	r.reads++
	stat := readFile(r.proc+"/stat", r.buf)
	for len(stat) > 0 {
		line, rest, whole := bytes.Cut(stat, []byte{'\n'})
		stat = rest
		id, now, ok := parseCPULine(line)
		switch {
		case !ok || !whole:
		case id < 0:
			h.cpu = load(r.all, now)
			r.all = now
		default:
			before := r.core[id]
			if before.read != r.reads-1 { // new, or unplugged meanwhile
				before.cpuTimes = cpuTimes{}
			}
			h.cores = append(h.cores, load(before.cpuTimes, now))
			h.coreIDs = append(h.coreIDs, id)
			r.core[id] = coreTimes{now, r.reads}
		}
	}
}

// load is the share of time between two reads that was not idle. A counter that fell (the kernel corrects
// iowait at times) tells nothing.
func load(before, now cpuTimes) value {
	if before == (cpuTimes{}) {
		return lack(warmingUp)
	}
	var total uint64
	for i := range now {
		if now[i] < before[i] {
			return lack(counterReset)
		}
		total += now[i] - before[i]
	}
	if total == 0 {
		return lack(noData)
	}
	idle := now[cpuIdle] - before[cpuIdle] + now[cpuIOWait] - before[cpuIOWait]
	return measure(mHostCPU, int64((total-idle)*10000/total))
}

// parseCPULine reads "cpu ..." (id -1) or "cpuN ...".
func parseCPULine(b []byte) (id int, t cpuTimes, ok bool) {
	if !bytes.HasPrefix(b, []byte("cpu")) {
		return 0, t, false
	}
	b = b[3:]
	id = -1
	if len(b) > 0 && b[0] != ' ' {
		n, rest, ok := leadingNumber(b)
		if !ok || n > 1<<20 {
			return 0, t, false
		}
		id, b = int(n), rest
	}
	for i := range t {
		n, rest, ok := leadingNumber(bytes.TrimLeft(b, " "))
		if !ok {
			return 0, cpuTimes{}, false
		}
		t[i], b = n, rest
	}
	return id, t, true
}

// leadingNumber reads a decimal number that fits 62 bits.
func leadingNumber(b []byte) (n uint64, rest []byte, ok bool) {
	i := 0
	for ; i < len(b) && '0' <= b[i] && b[i] <= '9'; i++ {
		if n > 1<<58 {
			return 0, b, false
		}
		n = n*10 + uint64(b[i]-'0')
	}
	return n, b[i:], i > 0
}

// kbLines calls each with every "name: N kB" line of b, N in bytes; other lines, and sizes that no machine
// has, are passed over.
func kbLines(b []byte, each func(name []byte, size int64)) {
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		name, rest, ok := bytes.Cut(line, []byte{':'})
		kb, _, isNumber := leadingNumber(bytes.TrimLeft(rest, " \t"))
		if !ok || !isNumber || kb > 1<<40 {
			continue
		}
		each(name, int64(kb)<<10)
	}
}

// meminfo is what is needed of /proc/meminfo; a line that is missing is absent.
type meminfo struct {
	total, free, avail, buffers, cachedPages, reclaimable, shmem, swapTotal, swapFree value
}

func parseMeminfo(b []byte) meminfo {
	gone := lack(noData)
	m := meminfo{gone, gone, gone, gone, gone, gone, gone, gone, gone}
	kbLines(b, func(name []byte, size int64) {
		v := measure(mHostMem, size)
		switch string(name) {
		case "MemTotal":
			m.total = v
		case "MemFree":
			m.free = v
		case "MemAvailable":
			m.avail = v
		case "Buffers":
			m.buffers = v
		case "Cached":
			m.cachedPages = v
		case "SReclaimable":
			m.reclaimable = v
		case "Shmem":
			m.shmem = v
		case "SwapTotal":
			m.swapTotal = v
		case "SwapFree":
			m.swapFree = v
		}
	})
	return m
}

// cached and used are as htop has them: shared memory is in Cached, but cannot be given back.
func (m *meminfo) cached() value {
	return m.buffers.plus(m.cachedPages).plus(m.reclaimable).minus(m.shmem).atLeast0()
}

func (m *meminfo) used() value { return m.total.minus(m.free).minus(m.cached()).atLeast0() }

// readLimits finds the smallest limits of this process's cgroups, from its own up to the root.
func (r *hostReader) readLimits() {
	r.memLimit, r.cpuLimit, r.usage = 0, 0, ""
	text := string(readFile(r.proc+"/self/cgroup", r.buf))
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) < 3 {
			continue
		}
		if f[1] == "" {
			r.limitsIn(r.cgroup, f[2])
			continue
		}
		r.limitsIn(filepath.Join(r.cgroup, f[1]), f[2]) // v1: one hierarchy per controller
		if f[1] == "cpuacct,cpu" {                      // as RHEL 7 names what it mounts under other names
			r.limitsIn(filepath.Join(r.cgroup, "cpu,cpuacct"), f[2])
			r.limitsIn(filepath.Join(r.cgroup, "cpu"), f[2])
		}
	}
}

// limitsIn walks from path up. In a container path is the host's, of which only the mount's root is there;
// another folder on the way to it would be somebody else's.
func (r *hostReader) limitsIn(mount, path string) {
	own := filepath.Join(mount, filepath.Clean("/"+path))
	if _, err := os.Stat(own); err != nil {
		own = mount
	}
	for dir := own; ; dir = filepath.Dir(dir) {
		r.limitAt(dir)
		if dir == mount || len(dir) < len(mount) {
			return
		}
	}
}

// limitAt takes the limits of one cgroup if they are smaller than those so far: v2's memory.max and
// cpu.max ("max" is none), v1's limit_in_bytes (a huge number is none) and quota (-1 is none).
func (r *hostReader) limitAt(dir string) {
	for _, f := range [...][2]string{{"memory.max", "memory.current"}, {"memory.limit_in_bytes", "memory.usage_in_bytes"}} {
		n, err := strconv.ParseInt(r.word(dir, f[0], 0), 10, 64)
		if err == nil && n > 0 && n < maxBytes && (r.memLimit == 0 || n < r.memLimit) {
			r.memLimit, r.usage = n, filepath.Join(dir, f[1])
		}
	}
	quota, period := r.word(dir, "cpu.max", 0), r.word(dir, "cpu.max", 1)
	if quota == "" {
		quota, period = r.word(dir, "cpu.cfs_quota_us", 0), r.word(dir, "cpu.cfs_period_us", 0)
	}
	q, err1 := strconv.ParseInt(quota, 10, 40)
	p, err2 := strconv.ParseInt(period, 10, 40)
	if err1 == nil && err2 == nil && q > 0 && p > 0 {
		if n := q * 10000 / p; r.cpuLimit == 0 || n < r.cpuLimit {
			r.cpuLimit = n
		}
	}
}

// word is the i-th word of a small file, "" if there is none.
func (r *hostReader) word(dir, name string, i int) string {
	f := strings.Fields(string(readFile(filepath.Join(dir, name), r.buf)))
	if i >= len(f) {
		return ""
	}
	return f[i]
}

// allowedCPUs is the number of CPUs that this process may run on, 0 if that cannot be told. Slurm confines
// jobs so rather than by a quota.
func allowedCPUs() int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return 0
	}
	return set.Count()
}

// applyLimits shows memory within the cgroup's limit, where that is below the machine's memory: used is
// then the cgroup's, without the file pages that it can give back, which are the cache.
func (r *hostReader) applyLimits(h *hostState) {
	h.memLimit, h.cpuLimit = lack(noData), lack(noData)
	limit, cores := int64(r.allowed())*10000, int64(len(h.cores))*10000
	if r.cpuLimit > 0 && (limit == 0 || r.cpuLimit < limit) {
		limit = r.cpuLimit
	}
	if limit > 0 && limit < cores {
		h.cpuLimit = measure(mCPU, limit)
	}
	total, ok := h.memTotal.num()
	if r.memLimit == 0 || !ok || r.memLimit >= total {
		return
	}
	h.memLimit = measure(mHostMem, r.memLimit)
	h.memTotal = h.memLimit
	n, _, isNumber := leadingNumber(readFile(r.usage, r.buf))
	current := lack(noData)
	if isNumber {
		current = measure(mHostMem, signed(n))
	}
	h.memCache = lack(noData)
	stat := readFile(filepath.Join(filepath.Dir(r.usage), "memory.stat"), r.buf)
	for _, name := range []string{"\ntotal_inactive_file ", "\ninactive_file "} {
		if _, rest, ok := bytes.Cut(stat, []byte(name)); ok {
			if n, _, isNumber := leadingNumber(rest); isNumber {
				h.memCache = measure(mHostMem, signed(n))
				break
			}
		}
	}
	h.memUsed = current.minus(h.memCache).atLeast0() // unknown if the cache is
	h.memFree = h.memTotal.minus(current).atLeast0()
	h.memAvail = h.memTotal.minus(h.memUsed).atLeast0()
}

// readFile returns a file's first bytes in buf, nil if it cannot be read. /proc/stat of a large machine
// comes in several reads.
func readFile(path string, buf []byte) []byte {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	n := 0
	for n < len(buf) {
		k, err := syscall.Read(fd, buf[n:])
		if err != nil || k <= 0 {
			break
		}
		n += k
	}
	return buf[:n]
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
