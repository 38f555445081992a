// sysmem.go owns what the host tells: facts of GPU processes from /proc.
//
// Invariants: parsers are pure functions of bytes under a root folder; a missing field is absent, not 0;
// a pid is the same process only with the same start time, and one that is not ours to name stays unknown.
package main

import (
	"bytes"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
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
	job     string
	command string
	read    time.Time // of the facts above
	cpu     uint64    // clock ticks at the time below
	at      time.Time
	round   uint64
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

// fill completes p's facts. now is the time of the tick, for rates.
func (r *procReader) fill(p *process, now time.Time) {
	p.hostFacts = hostFacts{rss: lack(otherHost), cpu: lack(otherHost), cpuTime: lack(otherHost)}
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
	k.round = r.round
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
		known: true, start: st.start, user: r.userName(k.uid), job: k.job, command: k.command,
		rss: lack(noPermission), cpu: lack(warmingUp), cpuTime: measure(mCPUTime, int64(st.cpu)*1000/userHZ),
	}
	if rssOK {
		p.rss = measure(mRSS, int64(rss)*int64(os.Getpagesize()))
	}
	if dt := now.Sub(k.at); !k.at.IsZero() && dt > 0 && st.cpu >= k.cpu {
		p.cpu = measure(mCPU, int64(float64(st.cpu-k.cpu)/userHZ/dt.Seconds()*10000))
	}
	k.cpu, k.at = st.cpu, now
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
	k.uid, k.job, k.command = 0, "-", printable(comm)
	var st syscall.Stat_t
	if syscall.Stat(dir, &st) == nil {
		k.uid = st.Uid // the effective uid; root for processes that are not dumpable
	}
	if uid, ok := parseUID(r.read(dir + "/status")); ok {
		k.uid = uid
	}
	k.job = parseJob(r.read(dir + "/cgroup"))
	if c := parseCommand(r.read(dir + "/cmdline")); c != "" {
		k.command = c
	}
}

// userName is the uid's name, its number until the lookup, which may ask a directory server, answers.
func (r *procReader) userName(uid uint32) string {
	for {
		select {
		case a := <-r.answers:
			r.names[a.uid] = a.name
			continue
		default:
		}
		break
	}
	number := strconv.FormatUint(uint64(uid), 10)
	if name, ok := r.names[uid]; ok {
		return name
	}
	if !r.asked[uid] && len(r.asked) < cap(r.answers) {
		r.asked[uid] = true
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

// read returns a file's first bytes, nil if it cannot be read. The buffer is the reader's: the bytes hold
// until the next read. /proc knows no sizes, so one read must do, and does for these files.
func (r *procReader) read(path string) []byte {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	n, err := syscall.Read(fd, r.buf)
	if err != nil || n <= 0 {
		return nil
	}
	return r.buf[:n]
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
	if i := bytes.LastIndexByte(program, '/'); i >= 0 && i+1 < len(program) {
		program = program[i+1:]
	}
	text := string(program)
	if len(args) > 0 {
		text += " " + strings.ReplaceAll(string(args), "\x00", " ")
	}
	if len(text) > maxCommand {
		text = text[:maxCommand]
	}
	return printable(text)
}

var (
	slurmJob  = regexp.MustCompile(`/(job_\d+)(?:/|$)`)
	podUID    = regexp.MustCompile(`pod([0-9a-f]{8})[-_]?[0-9a-f]{4}`)
	container = regexp.MustCompile(`(?:/docker/|/lxc/|docker-|cri-containerd-|crio-|libpod-)([0-9a-f]{12})[0-9a-f]{52}`)
)

// parseJob names who started a process, from its cgroup paths (v1 has a line per controller, v2 one).
func parseJob(b []byte) string {
	for line := range bytes.Lines(b) {
		parts := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte{':'}, 3)
		if len(parts) < 3 {
			continue
		}
		path := parts[2]
		if m := slurmJob.FindSubmatch(path); m != nil {
			return string(m[1])
		}
		if m := podUID.FindSubmatch(path); m != nil && bytes.Contains(path, []byte("kubepods")) {
			return "pod:" + string(m[1])
		}
		if m := container.FindSubmatch(path); m != nil {
			return "docker:" + string(m[1])
		}
	}
	return "-"
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
