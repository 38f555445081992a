// record.go owns snapshots as JSON lines: encoding and decoding them, and the file of -log.
//
// Invariants: decode(encode(snapshot)) equals the snapshot, origins and reasons included (times to the
// millisecond); encoding allocates nothing in the long run; a number from a recording passes the gate of its
// metric like one from a driver, and what a recording lacks stays unknown; a reader of a file finds whole lines.
package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// schema is the number of this form of record, its key v. gpur's records, of which ours are a superset, have none.
const schema = 1

// named is a value and its key in a record.
type named struct {
	key string
	u   unit
	v   value
}

// encoder writes snapshots as JSON lines. What it works with is kept from tick to tick.
type encoder struct {
	b      []byte
	values []named
	place  []int // of each device of the snapshot in gpus[], -1 if it is left out
}

// encode is s as one line, of its devices those that shows (nil: all). It is valid until the next call.
func (e *encoder) encode(s *snapshot, shows func(*device) bool) []byte {
	e.b = append(e.b[:0], '{')
	e.int("v", schema)
	e.int("ts_ms", s.at.UnixMilli())
	e.str("backend", s.backend)
	e.str("driver", s.driver)
	e.str("host", s.host)
	e.str("cuda", s.cuda)
	e.count("seq", int(s.seq))
	e.millis("interval_ms", s.interval)
	e.millis("window_ms", s.window)
	e.count("hidden_gpus", s.hidden)
	e.open("gpus", '[')
	e.place = e.place[:0]
	n := 0
	for i := range s.dev {
		if shows != nil && !shows(&s.dev[i]) {
			e.place = append(e.place, -1)
			continue
		}
		e.place = append(e.place, n)
		n++
		e.device(&s.dev[i])
	}
	e.close(']')
	e.open("processes", '[')
	for i := range s.proc {
		if p := &s.proc[i]; e.place[p.dev] >= 0 {
			e.process(p, &s.dev[p.dev])
		}
	}
	e.close(']')
	if s.system != nil {
		e.system(s.system)
	}
	if len(s.notes) > 0 {
		e.open("notes", '[')
		for _, n := range s.notes {
			e.comma()
			e.b = appendQuoted(e.b, n)
		}
		e.close(']')
	}
	e.close('}')
	e.b = append(e.b, '\n')
	return e.b
}

// comma parts what follows from what stands before it.
func (e *encoder) comma() {
	if last := e.b[len(e.b)-1]; last != '{' && last != '[' {
		e.b = append(e.b, ',')
	}
}

func (e *encoder) key(k string) {
	e.comma()
	e.b = append(append(append(e.b, '"'), k...), '"', ':')
}

// open begins an object or array under key k, in an array if k is empty.
func (e *encoder) open(k string, bracket byte) {
	if k == "" {
		e.comma()
	} else {
		e.key(k)
	}
	e.b = append(e.b, bracket)
}

func (e *encoder) close(bracket byte) { e.b = append(e.b, bracket) }

func (e *encoder) int(k string, n int64) {
	e.key(k)
	e.b = strconv.AppendInt(e.b, n, 10)
}

// known writes n unless it is unknown, which is -1.
func (e *encoder) known(k string, n int) {
	if n >= 0 {
		e.int(k, int64(n))
	}
}

// count writes n unless it is 0, which says no more than leaving it out.
func (e *encoder) count(k string, n int) {
	if n != 0 {
		e.int(k, int64(n))
	}
}

// millis writes a time span, null for none.
func (e *encoder) millis(k string, d time.Duration) {
	e.key(k)
	if d == 0 {
		e.b = append(e.b, "null"...)
		return
	}
	e.b = appendDecimal(e.b, d.Microseconds(), 3)
}

// str writes text, null for none.
func (e *encoder) str(k, s string) {
	e.key(k)
	if s == "" {
		e.b = append(e.b, "null"...)
		return
	}
	e.b = appendQuoted(e.b, s)
}

func (e *encoder) yes(k string, is bool) {
	if is {
		e.key(k)
		e.b = append(e.b, "true"...)
	}
}

// appendDecimal writes n * 10^-decimals, without zeros at the end of a fraction.
func appendDecimal(b []byte, n int64, decimals int) []byte {
	for ; decimals < 0; decimals++ {
		n *= 10
	}
	if n < 0 {
		b, n = append(b, '-'), -n
	}
	scale := int64(1)
	for range decimals {
		scale *= 10
	}
	b = strconv.AppendInt(b, n/scale, 10)
	if n %= scale; n > 0 {
		b = append(b, '.')
		for scale /= 10; n > 0; scale /= 10 {
			b = append(b, byte('0'+n/scale))
			n %= scale
		}
	}
	return b
}

// appendQuoted writes s as a JSON string.
func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ':
			const hex = "0123456789abcdef"
			b = append(b, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			b = utf8.AppendRune(b, r) // what is no UTF-8 becomes U+FFFD
		}
	}
	return append(b, '"')
}

// onOff names a MIG mode; unknown is left out.
func (e *encoder) onOff(k string, mode int) {
	if mode == 0 || mode == 1 {
		e.str(k, [...]string{"off", "on"}[mode])
	}
}

func (e *encoder) device(d *device) {
	e.open("", '{')
	e.int("gpu", int64(d.gpu))
	e.str("name", d.name)
	e.str("device_id", d.uuid)
	e.str("gpu_uuid", d.gpuUUID)
	e.int("generation", int64(d.born))
	if !d.isGPU() {
		e.open("mig", '{')
		e.int("gpu", int64(d.gpu))
		e.int("index", int64(d.mig))
		e.known("gi", d.gi)
		e.known("ci", d.ci)
		e.str("profile", d.profile)
		e.str("uuid", d.uuid)
		e.close('}')
	}
	e.str("state", d.state())
	e.str("src", d.src.String())
	if d.fault != notRead {
		e.str("fault", d.fault.String())
	}
	e.str("bus", d.bus)
	e.known("minor", d.minor)
	e.str("arch", d.arch)
	e.str("compute_capability", d.cc)
	e.count("gi_slices", d.gSlices)
	e.count("ci_slices", d.cSlices)
	e.count("sms", d.sms)
	e.onOff("mig_mode", d.migOn)
	e.onOff("mig_pending", d.migNext)
	e.yes("memory_shared", d.mates)
	e.yes("memory_repeated", d.shared)
	if !d.xidAt.IsZero() {
		e.int("xid_ms", d.xidAt.UnixMilli())
	}
	e.values = e.values[:0]
	for i := range d.v {
		if m := metric(i); d.v[m] != implied(d, m) {
			e.values = append(e.values, named{metrics[m].key, metrics[m].unit, d.v[m]})
		}
	}
	e.origins()
	e.gpurs(d)
	e.close('}')
}

// gpursRates are those that gpur has in KiB/s.
var gpursRates = [...]struct {
	key string
	m   metric
}{{"pcie_rx_kbs", mPcieRx}, {"pcie_tx_kbs", mPcieTx}}

// gpurs writes what gpur has under other keys or in other forms, for its readers.
func (e *encoder) gpurs(d *device) {
	for _, k := range gpursRates {
		if n, ok := fresh(d.v[k.m]); ok {
			e.int(k.key, n/1024)
		}
	}
	if n, ok := fresh(d.v[mPState]); ok {
		e.key("perf_level")
		e.b = append(strconv.AppendInt(append(e.b, '"', 'P'), n, 10), '"')
	}
	if d.v[mThrottle].fresh() && d.fault == notRead {
		e.key("throttle")
		e.b = append(appendThrottle(append(e.b, '"'), nil, d), '"')
	}
}

// origins writes e.values and what their origins and reasons are.
func (e *encoder) origins() {
	some := [4]bool{}
	for _, n := range e.values {
		e.key(n.key)
		some[n.v.from] = true
		if number, ok := n.v.num(); ok {
			e.b = appendDecimal(e.b, number, units[n.u].decimals)
		} else {
			e.b = append(e.b, "null"...)
		}
	}
	if some[absent] {
		e.whys("absent", absent)
	}
	if some[held] {
		e.open("held", '{')
		for _, n := range e.values {
			if n.v.from == held {
				e.int(n.key, int64(n.v.age))
			}
		}
		e.close('}')
		e.whys("held_why", held)
	}
	if some[estimated] {
		e.open("estimated", '[')
		for _, n := range e.values {
			if n.v.from == estimated {
				e.comma()
				e.b = appendQuoted(e.b, n.key)
			}
		}
		e.close(']')
	}
}

// whys writes the reasons of those of e.values that have the origin from.
func (e *encoder) whys(key string, from origin) {
	e.open(key, '{')
	for _, n := range e.values {
		if n.v.from == from {
			e.str(n.key, n.v.why.String())
		}
	}
	e.close('}')
}

func (e *encoder) process(p *process, d *device) {
	e.open("", '{')
	e.int("pid", int64(p.pid))
	e.int("gpu_index", int64(e.place[p.dev]))
	e.str("uuid", d.uuid)
	kind := "Compute" // gpur knows only these two
	if p.kind == "G" {
		kind = "Graphics"
	}
	e.str("kind", kind)
	e.str("type", p.kind)
	if p.known {
		e.key("user")
		e.b = appendQuoted(e.b, p.user)
		if p.job != "-" {
			e.str("job", p.job)
		}
		e.str("command", p.command)
		e.int("start_ticks", int64(p.start))
		if strings.HasPrefix(p.job, "docker:") {
			e.str("container", p.job)
		}
	}
	e.values = e.values[:0]
	for _, k := range processValues {
		e.values = append(e.values, named{metrics[k.m].key, metrics[k.m].unit, *k.of(p)})
	}
	e.origins()
	e.close('}')
}

// processValues are a process's in records, under their metrics' keys.
var processValues = [...]struct {
	m  metric
	of func(*process) *value
}{
	{mProcMem, func(p *process) *value { return &p.mem }},
	{mRSS, func(p *process) *value { return &p.rss }},
	{mCPU, func(p *process) *value { return &p.cpu }},
	{mCPUTime, func(p *process) *value { return &p.cpuTime }},
}

const coreKey = "cpu_pct" // of a core, and of all of them

// systemKeys are the host's values in records.
var systemKeys = [...]struct {
	key string
	m   metric
	of  func(*hostState) *value
}{
	{coreKey, mHostCPU, func(h *hostState) *value { return &h.cpu }},
	{"cpu_limit_pct", mCPU, func(h *hostState) *value { return &h.cpuLimit }},
	{"mem_total_bytes", mHostMem, func(h *hostState) *value { return &h.memTotal }},
	{"mem_used_bytes", mHostMem, func(h *hostState) *value { return &h.memUsed }},
	{"mem_cache_bytes", mHostMem, func(h *hostState) *value { return &h.memCache }},
	{"mem_free_bytes", mHostMem, func(h *hostState) *value { return &h.memFree }},
	{"mem_available_bytes", mHostMem, func(h *hostState) *value { return &h.memAvail }},
	{"mem_limit_bytes", mHostMem, func(h *hostState) *value { return &h.memLimit }},
	{"swap_total_bytes", mHostMem, func(h *hostState) *value { return &h.swapTotal }},
	{"swap_used_bytes", mHostMem, func(h *hostState) *value { return &h.swapUsed }},
}

func (e *encoder) system(h *hostState) {
	e.open("system", '{')
	e.values = e.values[:0]
	for _, k := range systemKeys {
		e.values = append(e.values, named{k.key, metrics[k.m].unit, *k.of(h)})
	}
	e.origins()
	e.open("cores", '[')
	for i, v := range h.cores {
		e.open("", '{')
		e.int("core", int64(h.coreIDs[i]))
		e.values = append(e.values[:0], named{coreKey, percent, v})
		e.origins()
		e.close('}')
	}
	e.close(']')
	e.close('}')
}

// object is a JSON object of a recording, taken apart as far as is needed. Nothing in it is trusted: what has
// another type than it should is as if it were not there.
type object map[string]json.RawMessage

func (o object) text(k string) string {
	var s string
	if json.Unmarshal(o[k], &s) != nil {
		return ""
	}
	return printable(s)
}

// number is the JSON number under k; text that looks like one is none.
func (o object) number(k string) (float64, bool) {
	f, err := strconv.ParseFloat(string(o[k]), 64)
	return f, err == nil
}

// int is the whole number under k, or missing.
func (o object) int(k string, missing int64) int64 {
	if f, ok := o.number(k); ok && math.Abs(f) <= maxExact {
		return int64(f)
	}
	return missing
}

// small is int for what counts or numbers things.
func (o object) small(k string, missing int) int {
	if n := o.int(k, -1); n >= 0 && n < 1<<20 {
		return int(n)
	}
	return missing
}

func (o object) object(k string) object {
	var sub object
	if json.Unmarshal(o[k], &sub) != nil {
		return nil
	}
	return sub
}

func (o object) list(k string) []json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal(o[k], &list) != nil {
		return nil
	}
	return list
}

// values is an object with what it says of the origins of its values.
type values struct {
	object
	absent, held, heldWhy object
	estimated             []string
	gpur                  bool // written by gpur, which knows no reasons
}

func newValues(o object, gpur bool) values {
	v := values{object: o, absent: o.object("absent"), held: o.object("held"), heldWhy: o.object("held_why"), gpur: gpur}
	for _, raw := range o.list("estimated") {
		var key string
		if len(v.estimated) < int(metricCount) && json.Unmarshal(raw, &key) == nil {
			v.estimated = append(v.estimated, key)
		}
	}
	return v
}

// value is what stands under key, as a value of m; missing where nothing is said of it.
func (o *values) value(key string, m metric, missing value) value {
	if _, ok := o.absent[key]; ok {
		return lack(o.absent.reason(key))
	}
	raw, ok := o.object[key]
	switch {
	case o.gpur && (!ok || string(raw) == "null"):
		return lack(notRecorded)
	case !ok:
		return missing
	case string(raw) == "null":
		return lack(notRecorded)
	}
	f, ok := o.number(key)
	if f *= math.Pow10(units[metrics[m].unit].decimals); !ok || math.Abs(f) > 1<<62 {
		return lack(badValue)
	}
	v := measure(m, int64(math.Round(f)))
	if slices.Contains(o.estimated, key) {
		v = v.estimate()
	}
	if age, ok := o.held.number(key); ok {
		v = v.hold(time.Duration(min(max(age, 0), math.MaxUint32))*time.Millisecond, o.heldWhy.reason(key))
	}
	return v
}

// reason is the one whose word stands under k.
func (o object) reason(k string) reason {
	word := o.text(k)
	for r, known := range reasons {
		if known.word == word {
			return reason(r)
		}
	}
	return notRecorded
}

// Limits of what one record may hold, far above any machine.
const (
	maxDevices   = 4096
	maxProcesses = 1 << 16
	maxNotes     = 1000
)

var (
	errNoRecord = errors.New("not a record")
	errNewer    = fmt.Errorf("recorded by a newer mig-gpu-mon (this one knows records up to version %d)", schema)
)

// decode reads one line into s. gpur's records count as well. The error is errNewer, or says that the line is
// no record.
func decode(line []byte, s *snapshot) error {
	var top object
	if err := json.Unmarshal(line, &top); err != nil {
		return err
	}
	_, ours := top["v"]
	if version := top.int("v", 0); ours && version > schema {
		return errNewer
	} else if ours && version != schema {
		return errNoRecord
	}
	const lastMilli = 253402300799999 // of the year 9999
	at := top.int("ts_ms", -1)
	gpus, procs := top.list("gpus"), top.list("processes")
	if at < 0 || at > lastMilli || gpus == nil || len(gpus) > maxDevices || len(procs) > maxProcesses {
		return errNoRecord
	}
	s.reset()
	s.at = time.UnixMilli(at)
	s.seq = uint64(top.int("seq", 0))
	s.backend, s.driver, s.host, s.cuda = top.text("backend"), top.text("driver"), top.text("host"), top.text("cuda")
	s.interval, s.window = top.millis("interval_ms"), top.millis("window_ms")
	if s.interval < time.Millisecond || s.interval > 24*time.Hour {
		s.interval = 0
	}
	s.hidden = top.small("hidden_gpus", 0)
	for i, raw := range gpus {
		var o object
		if json.Unmarshal(raw, &o) != nil || o == nil {
			return errNoRecord
		}
		d, err := decodeDevice(newValues(o, !ours), i)
		if err != nil {
			return err
		}
		s.dev = append(s.dev, d)
	}
	countRows(s.dev)
	for _, raw := range procs {
		var o object
		if json.Unmarshal(raw, &o) != nil {
			return errNoRecord
		}
		if p, ok := decodeProcess(newValues(o, !ours), len(gpus)); ok {
			s.proc = append(s.proc, p)
		}
	}
	slices.SortStableFunc(s.proc, func(a, b process) int { return a.dev - b.dev })
	if !ours {
		countProcesses(s)
	}
	if o := top.object("system"); o != nil {
		s.system = decodeSystem(o)
	}
	for _, raw := range top.list("notes") {
		var text string
		if len(s.notes) < maxNotes && json.Unmarshal(raw, &text) == nil {
			s.notes = append(s.notes, printable(text))
		}
	}
	return nil
}

func (o object) millis(k string) time.Duration {
	f, ok := o.number(k)
	if !ok || f < 0 || f > float64(100*365*24*time.Hour/time.Millisecond) {
		return 0
	}
	return time.Duration(math.Round(f*1000)) * time.Microsecond
}

// decodeDevice reads the i-th element of gpus[].
func decodeDevice(o values, i int) (device, error) {
	d := device{
		gpu: o.small("gpu", i), mig: -1, gi: -1, ci: -1, name: o.text("name"), uuid: o.text("device_id"), gpuUUID: o.text("gpu_uuid"),
		born: uint32(o.small("generation", 0)), bus: o.text("bus"), minor: o.small("minor", -1), arch: o.text("arch"),
		cc: o.text("compute_capability"), gSlices: o.small("gi_slices", 0), cSlices: o.small("ci_slices", 0), sms: o.small("sms", 0),
		migOn: o.mode("mig_mode"), migNext: o.mode("mig_pending"),
		mates: string(o.object["memory_shared"]) == "true", shared: string(o.object["memory_repeated"]) == "true",
	}
	if mig := o.object.object("mig"); mig != nil {
		if d.mig = mig.small("index", -1); d.mig < 0 {
			return d, errNoRecord
		}
		d.gi, d.ci, d.profile = mig.small("gi", -1), mig.small("ci", -1), mig.text("profile")
	}
	if at := o.int("xid_ms", -1); at >= 0 {
		d.xidAt = time.UnixMilli(at)
	}
	if _, ok := o.object["fault"]; ok {
		d.fault = o.reason("fault")
	}
	d.src = utilSource(max(slices.Index(srcWords[:], o.text("src")), 0))
	for i := range d.v {
		m := metric(i)
		d.v[m] = o.value(metrics[m].key, m, implied(&d, m))
	}
	if o.gpur {
		o.gpurs(&d)
	}
	return d, nil
}

// mode is a MIG mode: 1, 0, or -1 for unknown.
func (o values) mode(k string) int {
	return slices.Index([]string{"off", "on"}, o.text(k))
}

// gpurs takes what gpur writes in other forms than we do.
func (o *values) gpurs(d *device) {
	for _, k := range gpursRates {
		if n := o.int(k.key, -1); n >= 0 {
			d.v[k.m] = measure(k.m, min(n, maxBytes)*1024)
		}
	}
	d.gpuUUID = d.uuid
	if n, err := strconv.Atoi(strings.TrimPrefix(o.text("perf_level"), "P")); err == nil {
		d.v[mPState] = measure(mPState, int64(n))
	}
}

// countRows tells each GPU how many instances follow it.
func countRows(dev []device) {
	gpu := map[int]*device{}
	for i := range dev {
		d := &dev[i]
		if d.isGPU() {
			gpu[d.gpu] = d
		} else if g := gpu[d.gpu]; g != nil {
			g.rows++
		}
	}
}

// countProcesses counts those that a record of gpur lists for each GPU. An empty list may also mean that it
// could not be read, so it tells nothing.
func countProcesses(s *snapshot) {
	for i := range s.proc {
		v := &s.dev[s.proc[i].dev].v[mProcs]
		n, _ := v.num()
		*v = measure(mProcs, n+1)
	}
}

// decodeProcess reads an element of processes[]; false if it names no device of its record.
func decodeProcess(o values, devices int) (process, bool) {
	p := process{dev: o.small("gpu_index", -1), kind: o.text("type")}
	if p.dev < 0 && devices == 1 {
		p.dev = 0 // there is no other
	}
	pid := o.int("pid", -1)
	if p.dev < 0 || p.dev >= devices || pid < 0 || pid > math.MaxUint32 {
		return p, false
	}
	p.pid = uint32(pid)
	if p.kind == "" {
		p.kind = map[string]string{"Compute": "C", "Graphics": "G"}[o.text("kind")]
	}
	if !slices.Contains(kindNames[:], p.kind) || p.kind == "" {
		p.kind = "-"
	}
	p.user, p.job, p.command = o.text("user"), o.text("job"), o.text("command")
	if p.job == "" {
		p.job = o.text("container")
	}
	_, started := o.object["start_ticks"]
	if p.known = started || p.user+p.job+p.command != ""; p.known && p.job == "" {
		p.job = "-"
	}
	if o.gpur && p.user == "" {
		p.user = "-"
	}
	p.start = uint64(max(o.int("start_ticks", 0), 0))
	for _, k := range processValues {
		*k.of(&p) = o.value(metrics[k.m].key, k.m, lack(notRead))
	}
	return p, true
}

func decodeSystem(o object) *hostState {
	h := &hostState{}
	all := newValues(o, false)
	for _, k := range systemKeys {
		*k.of(h) = all.value(k.key, k.m, lack(notRead))
	}
	for _, raw := range o.list("cores") {
		var core object
		if json.Unmarshal(raw, &core) != nil || len(h.cores) == maxDevices {
			break
		}
		one := newValues(core, false)
		h.cores = append(h.cores, one.value(coreKey, mHostCPU, lack(notRead)))
		h.coreIDs = append(h.coreIDs, core.small("core", 0))
	}
	return h
}

// openPrivate opens a file that a flag names, to append to it. A new one is for its owner's eyes only. A
// symbolic link is refused, since in a folder like /tmp it may be another user's, and so are, for the same
// reason, another user's file and what is no regular file.
func openPrivate(path, name string) (*os.File, error) {
	const flags = os.O_RDWR | os.O_APPEND | unix.O_NOFOLLOW | unix.O_NONBLOCK
	f, err := os.OpenFile(path, flags|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		return f, nil
	}
	if errors.Is(err, os.ErrExist) {
		f, err = os.OpenFile(path, flags, 0)
	}
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("opening %s %s: it is a symbolic link", name, path)
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	var info unix.Stat_t
	switch err := unix.Fstat(int(f.Fd()), &info); {
	case err != nil || info.Mode&unix.S_IFMT != unix.S_IFREG:
		err = fmt.Errorf("opening %s %s: not a regular file", name, path)
		return nil, errors.Join(err, f.Close())
	case int(info.Uid) != os.Geteuid():
		err = fmt.Errorf("opening %s %s: it belongs to another user", name, path)
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// logFile is the target of -log.
type logFile struct {
	f   *os.File
	enc encoder
}

// openLog continues the log at path. If its last line was cut, a new one is begun, so that nothing is joined
// to it.
func openLog(path string) (*logFile, error) {
	f, err := openPrivate(path, "-log file")
	if err != nil {
		return nil, err
	}
	end := make([]byte, 1)
	info, err := f.Stat()
	if err == nil && info.Size() > 0 {
		if _, err = f.ReadAt(end, info.Size()-1); err == nil && end[0] != '\n' {
			_, err = f.Write([]byte{'\n'})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("opening -log file: %w", err)
	}
	return &logFile{f: f}, nil
}

var errDeleted = errors.New("the file was deleted")

// write appends s in one write. A file that nobody can find any more is an error too.
func (l *logFile) write(s *snapshot, shows func(*device) bool) error {
	var info unix.Stat_t
	if err := unix.Fstat(int(l.f.Fd()), &info); err == nil && info.Nlink == 0 {
		return errDeleted
	}
	_, err := l.f.Write(l.enc.encode(s, shows))
	return err
}
