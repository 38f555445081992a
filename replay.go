// replay.go owns playing recordings: ours, gpur's, and the demonstration that is built in.
//
// Invariants: nothing of this host is mixed in; what is no record is skipped and counted; a recording that can be
// read again can be stepped through backwards.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// replaySource plays a recording: each sample is its next record. What is no record is skipped and counted.
type replaySource struct {
	label   string
	name    string // for errors
	in      io.Reader
	seeker  io.Seeker // nil if in cannot be read again
	size    int64     // 0 unknown
	loops   bool      // after the last record comes the first
	r       *bufio.Reader
	long    []byte // a line longer than r's buffer
	pos     int64  // of what r gives next
	seen    int64  // how far skipped counts
	skipped int
	newer   bool // lines were skipped because they are of a newer program
	bad     error
	starts  []int64       // of the records read so far, the newest last; at most maxSteps
	shift   time.Duration // added to times, so that they go on when it loops
	first   time.Time     // of the first record
	ahead   snapshot      // the record that is sampled next
	ended   bool          // there is none
	anew    bool          // and it is the first one again
}

const (
	maxLine  = 8 << 20 // bytes; gpur's limit too
	maxSteps = 1 << 16
)

//go:embed demo.jsonl.gz
var demoRecording []byte

const demoLabel = "demo (simulated)"

// openReplay opens the recording at path, which has at least one record; "-" is standard input.
func openReplay(path string) (*replaySource, error) {
	f := os.Stdin
	if path != "-" {
		var err error
		if f, err = os.Open(path); err != nil {
			return nil, fmt.Errorf("opening recording: %w", err)
		}
	}
	s := &replaySource{label: "replay", name: path, in: f}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		s.seeker, s.size = f, info.Size()
	}
	return s, s.begin()
}

// openDemo opens the recording that is built in.
func openDemo(loops bool) (*replaySource, error) {
	z, err := gzip.NewReader(bytes.NewReader(demoRecording))
	if err != nil {
		return nil, fmt.Errorf("unpacking the demo: %w", err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("unpacking the demo: %w", err)
	}
	in := bytes.NewReader(text)
	s := &replaySource{label: demoLabel, name: "demo", in: in, seeker: in, size: in.Size(), loops: loops}
	return s, s.begin()
}

// begin finds the first record.
func (s *replaySource) begin() error {
	s.r = bufio.NewReaderSize(s.in, 64<<10)
	start, _ := s.r.Peek(2)
	packed := string(start) == "\x1f\x8b"
	s.read()
	switch {
	case !s.ended:
		s.first = s.ahead.at
		return nil
	case s.bad != nil:
		return s.trouble()
	case s.newer:
		return fmt.Errorf("reading recording %s: %w", s.name, errNewer)
	case packed:
		return fmt.Errorf("reading recording %s: it is compressed; try zcat %s | mig-gpu-mon -replay -", s.name, s.name)
	}
	return fmt.Errorf("reading recording %s: no record of mig-gpu-mon or gpur in it (lines skipped: %d)", s.name, s.skipped)
}

// trouble is what kept the recording from being read on, nil if it just ended.
func (s *replaySource) trouble() error {
	if s.bad == nil {
		return nil
	}
	return fmt.Errorf("reading recording %s: %w", s.name, s.bad)
}

// sample gives the next record; io.EOF if there is none.
func (s *replaySource) sample(into *snapshot) error {
	if s.ended {
		return cmp.Or(s.trouble(), io.EOF)
	}
	*into, s.ahead = s.ahead, *into
	into.tape = tape{label: s.label, back: s.seeker != nil && len(s.starts) > 1, anew: s.anew, percent: -1}
	if into.backend == demoLabel && s.label != demoLabel {
		into.tape.label += " " + demoLabel
	}
	s.anew = false
	s.read()
	if s.ended && s.loops && s.bad == nil {
		s.shift = into.at.Add(max(into.interval, time.Second)).Sub(s.first)
		s.starts, s.anew = nil, true
		s.seek(0)
	}
	into.tape.skipped = s.skipped
	switch {
	case s.ended:
		into.tape.percent = 100
		return nil
	case s.anew:
		into.tape.percent, into.tape.back = 100, false
	case s.size > 0:
		into.tape.percent = int(min(s.starts[len(s.starts)-1]*100/s.size, 99))
	}
	into.tape.next = max(s.ahead.at.Sub(into.at), time.Millisecond)
	return nil
}

// obey carries out what of a loop's orders means something to a recording: orderBack makes the record before
// the one sampled last the next.
func (s *replaySource) obey(o order) {
	shown := len(s.starts) - 1
	if !s.ended {
		shown--
	}
	if o != orderBack || s.seeker == nil || shown < 0 {
		return
	}
	i := max(shown-1, 0)
	from := s.starts[i]
	s.starts = s.starts[:i]
	s.seek(from)
}

// seek makes the record at offset the next.
func (s *replaySource) seek(offset int64) {
	if _, err := s.seeker.Seek(offset, io.SeekStart); err != nil {
		s.bad, s.ended = err, true
		return
	}
	s.r.Reset(s.in)
	s.pos, s.ended = offset, false
	s.read()
}

// read looks for the record after ahead, which is skipping what is none.
func (s *replaySource) read() {
	for {
		start := s.pos
		line, err := s.line()
		if start == 0 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			bad := decode(line, &s.ahead)
			if bad == nil {
				s.ahead.at = s.ahead.at.Add(s.shift)
				s.keep(start)
				return
			}
			s.newer = s.newer || errors.Is(bad, errNewer)
			if start >= s.seen {
				s.skipped++
			}
		}
		s.seen = max(s.seen, s.pos)
		if err != nil {
			s.ended = true
			if !errors.Is(err, io.EOF) {
				s.bad = err
			}
			return
		}
	}
}

// keep remembers where a record starts, to step back to.
func (s *replaySource) keep(start int64) {
	if len(s.starts) == maxSteps {
		s.starts = append(s.starts[:0], s.starts[maxSteps/2:]...)
	}
	s.starts = append(s.starts, start)
	s.seen = max(s.seen, s.pos)
}

// line reads one line, or the end of the file without a newline. Of a line that is too long it gives so much
// that it is no record, and holds no more.
func (s *replaySource) line() ([]byte, error) {
	line, err := s.r.ReadSlice('\n')
	s.pos += int64(len(line))
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	s.long = append(s.long[:0], line...)
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = s.r.ReadSlice('\n')
		s.pos += int64(len(line))
		if len(s.long)+len(line) > maxLine {
			line = nil
			s.long = append(s.long[:0], "too long"...)
		}
		s.long = append(s.long, line...)
	}
	return s.long, err
}
