// plain.go owns the text modes: one row per MIG instance per tick in the manner of nvidia-smi dmon, the
// same as csv, one row per process, and record.go's objects where those are asked for.
//
// Invariants: one write per tick; the number of fields of a row is that of the header and never changes
// within a run (in -procs the command, last, may hold blanks); "-" means unknown and only that; a held
// value is not fresh and prints as unknown.
package main

import (
	"cmp"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// column is one field of a text row: a metric, or a word made by text.
type column struct {
	name  string
	unit  string
	width int // at least; a wider value pushes
	m     metric
	text  func(b []byte, s *snapshot, d *device) []byte
}

// metricColumn is the column of m, of width w or of its name's length, at least 6.
func metricColumn(m metric, w int) column {
	if w == 0 {
		w = max(6, len(metrics[m].col))
	}
	return column{name: metrics[m].col, unit: units[metrics[m].unit].name, width: w, m: m}
}

func wordColumn(name, unit string, w int, text func([]byte, *snapshot, *device) []byte) column {
	return column{name: name, unit: unit, width: w, text: text}
}

var idColumns = []column{
	wordColumn("gpu", "Idx", 5, func(b []byte, _ *snapshot, d *device) []byte { return appendID(b, d.gpu) }),
	wordColumn("mig", "Idx", 4, func(b []byte, _ *snapshot, d *device) []byte { return appendID(b, d.mig) }),
	wordColumn("gi", "#", 3, func(b []byte, _ *snapshot, d *device) []byte { return appendID(b, d.gi) }),
	wordColumn("ci", "#", 3, func(b []byte, _ *snapshot, d *device) []byte { return appendID(b, d.ci) }),
}

// group is a set of columns chosen by one letter of -s.
type group struct {
	letter  byte
	help    string
	columns []column
}

var groups = []group{
	{'u', "activity: state, source of util, GPU/SM busy, DRAM bandwidth", []column{
		wordColumn("state", "-", 5, func(b []byte, _ *snapshot, d *device) []byte { return append(b, d.state()...) }),
		wordColumn("src", "-", 4, func(b []byte, _ *snapshot, d *device) []byte { return append(b, d.src.String()...) }),
		metricColumn(mUtil, 4), metricColumn(mSMUtil, 6), metricColumn(mDRAM, 4),
	}},
	{'m', "memory used and total, number of processes", []column{
		metricColumn(mMemUsed, 6), metricColumn(mMemTotal, 6), metricColumn(mProcs, 5),
	}},
	{'g', "more GPM: SM occupancy, tensor, fp64, fp32, fp16", []column{
		metricColumn(mSMOcc, 0), metricColumn(mTensor, 0), metricColumn(mFP64, 0), metricColumn(mFP32, 0), metricColumn(mFP16, 0),
	}},
	{'x', "memory controller and engines of whole GPUs", []column{
		metricColumn(mMemUtil, 0), metricColumn(mEnc, 0), metricColumn(mDec, 0), metricColumn(mJpg, 0), metricColumn(mOfa, 0),
	}},
	{'k', "seconds since util was above 0", []column{metricColumn(mIdle, 0)}},
	{'w', "owner (+N: other users) and pid of the process with most memory", []column{
		wordColumn("user", "name", 6, appendOwner),
		wordColumn("pid", "#", 6, appendOwnerPID),
	}},
	{'p', "power, temperatures (GPU)", []column{metricColumn(mPower, 0), metricColumn(mTemp, 0), metricColumn(mMemTemp, 0)}},
	{'c', "clocks (GPU)", []column{metricColumn(mClkMem, 0), metricColumn(mClkGfx, 0)}},
	{'t', "PCIe received and sent (GPU)", []column{metricColumn(mPcieRx, 0), metricColumn(mPcieTx, 0)}},
	{'v', "throttle reasons (GPU)", []column{wordColumn("thr", "-", 6, appendThrottle)}},
	{'e', "ECC errors since the driver was loaded, last XID", []column{
		metricColumn(mECCCorr, 0), metricColumn(mECCUncorr, 0), metricColumn(mXID, 0),
	}},
	{'i', "PCI bus id, minor number, UUID", []column{
		wordColumn("bus", "-", 6, func(b []byte, _ *snapshot, d *device) []byte { return appendWord(b, d.bus) }),
		wordColumn("minor", "#", 6, func(b []byte, _ *snapshot, d *device) []byte { return appendID(b, d.minor) }),
		wordColumn("uuid", "-", 6, func(b []byte, _ *snapshot, d *device) []byte { return appendWord(b, d.uuid) }),
	}},
}

// gpuGroups are those whose columns a GPU with instances carries in a row of its own.
const gpuGroups = "pctve"

func appendID(b []byte, n int) []byte {
	if n < 0 {
		return append(b, '-')
	}
	return strconv.AppendInt(b, int64(n), 10)
}

// appendWord is text as one field.
func appendWord(b []byte, s string) []byte {
	if s == "" {
		return append(b, '-')
	}
	for i := range len(s) {
		if s[i] == ' ' {
			b = append(b, '_')
		} else {
			b = append(b, s[i])
		}
	}
	return b
}

// throttleWords are NVML's clocks event reasons by bit.
var throttleWords = [...]string{
	"idle", "app_clocks", "sw_power", "hw_slowdown", "sync_boost", "sw_thermal", "hw_thermal", "hw_brake", "display",
}

// appendThrottle writes the reasons joined by '+', "none" for none; for a GPU that does not answer at
// all, why.
func appendThrottle(b []byte, _ *snapshot, d *device) []byte {
	v := d.v[mThrottle]
	if d.isGPU() && d.fault != notRead {
		return append(b, d.fault.String()...)
	}
	if !v.fresh() {
		return append(b, '-')
	}
	n, _ := v.num()
	if n == 0 {
		return append(b, "none"...)
	}
	start := len(b)
	for left := uint64(n); left != 0; left &= left - 1 {
		if len(b) > start {
			b = append(b, '+')
		}
		if i := bits.TrailingZeros64(left); i < len(throttleWords) {
			b = append(b, throttleWords[i]...)
		} else {
			b = strconv.AppendInt(append(b, "bit"...), int64(i), 10)
		}
	}
	return b
}

// ownProcesses are d's processes; of a GPU whose instances have rows, those that no instance claims.
func ownProcesses(s *snapshot, d *device) []process {
	from := slices.IndexFunc(s.proc, func(p process) bool { return &s.dev[p.dev] == d })
	if from < 0 {
		return nil
	}
	to := from
	for to < len(s.proc) && &s.dev[s.proc[to].dev] == d {
		to++
	}
	return s.proc[from:to]
}

// appendOwner is the user of the process with most memory, with the number of other users.
func appendOwner(b []byte, s *snapshot, d *device) []byte {
	list := ownProcesses(s, d)
	if len(list) == 0 || !d.v[mProcs].fresh() {
		return append(b, '-')
	}
	b = appendUser(b, &list[0])
	others := 0
	for i := range list {
		first := slices.IndexFunc(list, func(p process) bool { return p.user == list[i].user && p.known == list[i].known })
		if first == i && i > 0 {
			others++
		}
	}
	if others > 0 {
		b = strconv.AppendInt(append(b, '+'), int64(others), 10)
	}
	return b
}

// appendUser is p's user, "?" for a process that cannot be named from here.
func appendUser(b []byte, p *process) []byte {
	if !p.known {
		return append(b, '?')
	}
	return appendWord(b, p.user)
}

func appendOwnerPID(b []byte, s *snapshot, d *device) []byte {
	list := ownProcesses(s, d)
	if len(list) == 0 || !d.v[mProcs].fresh() {
		return append(b, '-')
	}
	return strconv.AppendUint(b, uint64(list[0].pid), 10)
}

// stamp is the time in front of a row, flag -o.
type stamp uint8

const (
	stampNone stamp = iota
	stampDate
	stampTime
	stampDateTime
	stampISO
	stampEpoch
)

// stamps gives for each what stands above it in the two header lines, as dmon has it, and the time's
// format. The rows start with a blank where the header has '#'.
var stamps = [...]struct{ head, unit, format string }{
	stampDate:     {"#Date      ", "#YYYYMMDD ", " 20060102 "},
	stampTime:     {"#Time      ", "#HH:MM:SS  ", " 15:04:05  "},
	stampDateTime: {"#Date       Time      ", "#YYYYMMDD   HH:MM:SS  ", " 20060102   15:04:05  "},
	stampISO:      {"#Time                     ", "#ISO-8601                 ", " " + isoTime + " "},
	stampEpoch:    {"#Epoch      ", "#seconds    ", ""},
}

const isoTime = "2006-01-02T15:04:05-07:00"

// rowKind is what a row stands for and how it is written.
type rowKind uint8

const (
	plainRows rowKind = iota
	csvRows
	procRows
	jsonRows
)

// textWriter turns snapshots into rows. It keeps what was already said: header, column reasons, minute.
type textWriter struct {
	out     io.Writer
	kind    rowKind
	columns []column
	gpuRows bool // a GPU with instances has a row of its own
	stamp   stamp
	zone    *time.Location
	height  int                // of the terminal, 0 if out is none
	shows   func(*device) bool // whether -id chose it

	started bool
	headed  bool // what is written to has a csv header already
	skipped bool // a tick went by without a row
	minute  int64
	lines   int // since the last header
	row     int // lines in b
	b       []byte
	enc     encoder
}

// chooseColumns makes the columns of -s, ids first. The error names the letter.
func chooseColumns(letters string) (cols []column, gpuRows bool, err error) {
	cols = append(cols, idColumns...)
	cols = append(cols, wordColumn("profile", "name", 10, func(b []byte, _ *snapshot, d *device) []byte { return appendWord(b, d.profile) }))
	for i := range len(letters) {
		j := slices.IndexFunc(groups, func(g group) bool { return g.letter == letters[i] })
		if j < 0 {
			return nil, false, fmt.Errorf("no column group %q", letters[i:i+1])
		}
		if strings.IndexByte(letters, letters[i]) < i {
			return nil, false, fmt.Errorf("column group %q is given twice", letters[i:i+1])
		}
		cols = append(cols, groups[j].columns...)
		gpuRows = gpuRows || strings.IndexByte(gpuGroups, letters[i]) >= 0
	}
	return cols, gpuRows, nil
}

// groupHelp is the table that -s help prints.
func groupHelp() string {
	var b strings.Builder
	b.WriteString("Column groups for -s (default um), in the order given; ids always come first:\n")
	for _, g := range groups {
		var names []string
		for _, c := range g.columns {
			names = append(names, c.name)
		}
		fmt.Fprintf(&b, "  %c  %-34s %s\n", g.letter, strings.Join(names, " "), g.help)
	}
	return b.String()
}

// wanted says which metrics w's rows show, so that nothing else is asked of the driver.
func (w *textWriter) wanted() (want [deviceMetrics]bool) {
	want[mUtil], want[mMemUsed], want[mMemTotal], want[mProcs] = true, true, true, true // state and the exit code need them
	for _, c := range w.columns {
		if c.text == nil {
			want[c.m] = true
		} else if c.name == "thr" {
			want[mThrottle] = true
		}
	}
	want[mECC] = want[mECCCorr] // counts mean nothing while ECC is off
	return want
}

// tick writes s's rows, with whatever is due before them, in one write.
func (w *textWriter) tick(s *snapshot) error {
	w.b, w.row = w.b[:0], 0
	switch w.kind {
	case csvRows:
		w.csv(s)
	case jsonRows:
		w.b = append(w.b, w.enc.encode(s, w.shows)...)
	default:
		w.plain(s)
	}
	w.started, w.skipped = true, false
	return w.flush()
}

// comment writes lines that are no rows, each once, between ticks. In csv and JSON there are none.
func (w *textWriter) comment(lines ...string) error {
	if w.kind == csvRows || w.kind == jsonRows || !w.started {
		return nil
	}
	w.b, w.row = w.b[:0], 0
	for _, l := range lines {
		w.remark(l)
	}
	return w.flush()
}

func (w *textWriter) flush() error {
	w.lines += w.row
	if len(w.b) == 0 {
		return nil
	}
	_, err := w.out.Write(w.b)
	return err
}

func (w *textWriter) remark(line string) {
	w.b = append(append(append(w.b, "# "...), printable(line)...), '\n')
	w.row++
}

func (w *textWriter) plain(s *snapshot) {
	at := s.at.In(w.zone)
	if !w.started {
		w.title(s, at)
		w.explain(s)
	} else if minute := at.Unix() / 60; w.stamp == stampNone && w.height == 0 && (minute != w.minute || w.skipped) {
		w.remark(at.Format(isoTime))
	}
	w.minute = at.Unix() / 60
	for _, n := range s.notes {
		w.remark(n)
	}
	if !w.started || w.height > 0 && w.lines+w.rowCount(s) >= w.height {
		w.lines = -w.row // the header starts a new screenful
		w.header()
	}
	for i := range s.dev {
		d := &s.dev[i]
		if !w.hasRow(d) {
			continue
		}
		if w.kind == procRows {
			w.processRows(s, d)
			continue
		}
		w.appendStamp(at)
		w.fields(s, d)
	}
}

// title is the first line: who saw this, where and when.
func (w *textWriter) title(s *snapshot, at time.Time) {
	line := fmt.Sprintf("mig-gpu-mon %s %s driver %s %s", versionText(), cmp.Or(s.host, "-"), cmp.Or(s.driver, "-"), at.Format(isoTime))
	if s.interval > 0 {
		line += " every " + s.interval.String()
	}
	if !s.live() {
		line += " " + s.tape.label
	}
	w.remark(line)
}

func (w *textWriter) rowCount(s *snapshot) int {
	n := 0
	for i := range s.dev {
		if w.hasRow(&s.dev[i]) {
			n++
		}
	}
	return n
}

// hasRow says that d has rows: an instance, a GPU without instances, and, where GPU columns are shown,
// any GPU that is visible here or was asked for by -id.
func (w *textWriter) hasRow(d *device) bool {
	if !w.shows(d) {
		return false
	}
	return d.rows == 0 || w.gpuRows || w.kind == procRows
}

// explain says, once, what this job cannot see and why a column is "-" in every row.
func (w *textWriter) explain(s *snapshot) {
	if s.hidden == 1 {
		w.remark("1 GPU not visible here")
	} else if s.hidden > 1 {
		w.remark(fmt.Sprintf("%d GPUs not visible here", s.hidden))
	}
	if w.kind == procRows {
		return
	}
	names := map[reason][]string{}
	var order []reason
	for _, c := range w.columns {
		if c.text != nil {
			continue
		}
		why, ok := w.alwaysAbsent(s, c.m)
		if !ok {
			continue
		}
		if names[why] == nil {
			order = append(order, why)
		}
		names[why] = append(names[why], c.name)
	}
	for _, why := range order {
		w.remark(fmt.Sprintf("%s: - (%s) %s", strings.Join(names[why], " "), why, why.sentence()))
	}
}

// alwaysAbsent is the reason why m has no number in any row, if that is so: the first row's that is not
// just that the number belongs to another row.
func (w *textWriter) alwaysAbsent(s *snapshot, m metric) (reason, bool) {
	why, found := notRead, false
	for i := range s.dev {
		d := &s.dev[i]
		if !w.hasRow(d) {
			continue
		}
		v := d.v[m]
		if v.fresh() {
			return 0, false
		}
		if !found || why == onGPU || why == onInstances {
			why, found = v.why, true
		}
	}
	return why, found
}

func (w *textWriter) header() {
	cols := w.columns
	for line := range 2 {
		first := true
		if w.stamp != stampNone {
			w.b = append(w.b, [...]string{stamps[w.stamp].head, stamps[w.stamp].unit}[line]...)
		}
		for _, c := range cols {
			text := [...]string{c.name, c.unit}[line]
			if first && w.stamp == stampNone {
				text = "# " + text
			}
			first = false
			w.b = pad(append(w.b, text...), len(text), c.width)
			w.b = append(w.b, ' ')
		}
		w.b = append(w.b, '\n')
		w.row++
	}
}

// pad moves the last n bytes of b to the right, so that they fill width.
func pad(b []byte, n, width int) []byte {
	if n >= width {
		return b
	}
	start := len(b) - n
	for range width - n {
		b = append(b, ' ')
	}
	copy(b[start+width-n:], b[start:start+n])
	for i := start; i < start+width-n; i++ {
		b[i] = ' '
	}
	return b
}

func (w *textWriter) appendStamp(at time.Time) {
	switch w.stamp {
	case stampNone:
	case stampEpoch:
		w.b = strconv.AppendInt(append(w.b, ' '), at.Unix(), 10)
		w.b = append(w.b, ' ')
	default:
		w.b = at.AppendFormat(w.b, stamps[w.stamp].format)
	}
}

// fields writes d's row.
func (w *textWriter) fields(s *snapshot, d *device) {
	for i := range w.columns {
		c := &w.columns[i]
		start := len(w.b)
		w.b = c.append(w.b, s, d)
		w.b = pad(w.b, len(w.b)-start, c.width)
		w.b = append(w.b, ' ')
	}
	w.b = append(w.b, '\n')
	w.row++
}

func (c *column) append(b []byte, s *snapshot, d *device) []byte {
	if c.text != nil {
		return c.text(b, s, d)
	}
	return d.v[c.m].append(b, metrics[c.m].unit)
}

// csvHeader is the first line of a csv file.
func (w *textWriter) csvHeader() string {
	header := "time"
	for _, c := range w.columns {
		header += "," + c.name
	}
	return header + "\n"
}

// csv writes the rows comma-separated, the time first, nothing for unknown.
func (w *textWriter) csv(s *snapshot) {
	if !w.started && !w.headed {
		w.b = append(w.b, w.csvHeader()...)
	}
	at := s.at.In(w.zone)
	for i := range s.dev {
		d := &s.dev[i]
		if !w.hasRow(d) {
			continue
		}
		w.b = at.AppendFormat(w.b, isoTime)
		for j := range w.columns {
			w.b = append(w.b, ',')
			start := len(w.b)
			w.b = w.columns[j].append(w.b, s, d)
			w.b = csvField(w.b, start)
		}
		w.b = append(w.b, '\n')
	}
}

// csvField makes what follows start one csv field: empty for "-", quoted if it needs to be.
func csvField(b []byte, start int) []byte {
	field := b[start:]
	if len(field) == 1 && field[0] == '-' {
		return b[:start]
	}
	if !slices.ContainsFunc(field, func(c byte) bool { return c == ',' || c == '"' }) {
		return b
	}
	quoted := `"` + strings.ReplaceAll(string(field), `"`, `""`) + `"`
	return append(b[:start], quoted...)
}

// procColumns stand above process rows.
var procColumns = append(slices.Clone(idColumns),
	column{name: "pid", unit: "#", width: 8}, column{name: "type", unit: "C/G/M", width: 5},
	column{name: "user", unit: "name", width: 10}, column{name: "job", unit: "id", width: 19},
	column{name: "fb", unit: "MiB", width: 6}, column{name: "rss", unit: "MiB", width: 7},
	column{name: "cpu", unit: "%", width: 5}, column{name: "time", unit: "s", width: 7},
	column{name: "command", unit: "name", width: 7})

// processRows writes a row for each of d's processes; if the list is unknown, one row of "-", so that
// no process and no knowledge look different.
func (w *textWriter) processRows(s *snapshot, d *device) {
	if !d.v[mProcs].fresh() {
		if d.rows == 0 { // else its instances say so themselves
			w.processRow(s, d, nil)
		}
		return
	}
	list := ownProcesses(s, d)
	for i := range list {
		w.processRow(s, d, &list[i])
	}
}

func (w *textWriter) processRow(s *snapshot, d *device, p *process) {
	w.appendStamp(s.at.In(w.zone))
	for i := range procColumns {
		c := &procColumns[i]
		start := len(w.b)
		switch {
		case c.text != nil:
			w.b = c.text(w.b, s, d)
		case p == nil:
			w.b = append(w.b, '-')
		default:
			w.b = appendProcess(w.b, c.name, p)
		}
		if i == len(procColumns)-1 {
			break
		}
		w.b = append(pad(w.b, len(w.b)-start, c.width), ' ')
	}
	w.b = append(w.b, '\n')
	w.row++
}

// appendProcess writes p's field of a column. What is not known of a process that cannot be named from
// here is "?", never a local process of the same number.
func appendProcess(b []byte, name string, p *process) []byte {
	switch name {
	case "pid":
		return strconv.AppendUint(b, uint64(p.pid), 10)
	case "type":
		return append(b, p.kind...)
	case "fb":
		return p.mem.append(b, memBytes)
	case "rss":
		return p.rss.append(b, memBytes)
	case "cpu":
		return p.cpu.append(b, percent)
	case "time":
		return p.cpuTime.append(b, seconds)
	case "user":
		return appendUser(b, p)
	}
	if !p.known {
		return append(b, '?')
	}
	if name == "job" {
		return appendWord(b, p.job)
	}
	return append(b, p.command...)
}
