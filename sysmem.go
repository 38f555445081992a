// sysmem.go owns what the host tells of itself: CPU, memory and cgroup limits, from /proc.
//
// Invariants: parsers are pure functions of bytes under a root folder; a missing field is absent, not 0.
package main

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

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
