// stream.go owns the front that writes rows: when there is a row, and when a run ends.
//
// Invariants: one write per tick; a run with -c ends, by its last row or by its deadline.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/term"
)

// stream shows snapshots as rows.
type stream struct {
	c       *config
	w       *textWriter
	stderr  io.Writer
	tape    bool      // a recording is written as fast as it can be read
	began   time.Time // when the run did
	primed  bool      // the first snapshot, which starts the first interval, is there
	ticked  time.Time // when the last tick was, or the last record
	pending []string  // what no row has told yet
	skipped int       // lines of the recording that are no records
}

// newStream makes the rows that c asks for, written to out.
func newStream(c *config, out, stdout, stderr *os.File) (*stream, error) {
	w := &textWriter{out: out, kind: c.kind, columns: c.columns, gpuRows: c.gpuRows, stamp: c.stamp, zone: time.Local}
	if out == stdout && term.IsTerminal(int(stdout.Fd())) {
		if _, rows, err := term.GetSize(int(stdout.Fd())); err == nil {
			w.height = max(rows, 10)
		}
	}
	if info, err := out.Stat(); err == nil && c.file != "" && info.Mode().IsRegular() && info.Size() > 0 {
		w.headed = true // a csv file has one header, however many runs append to it
		if c.kind == csvRows && !hasHeader(c.file, w.csvHeader()) {
			return nil, badUsage("write to another file, or choose the columns that it has with -s", "-f %s: has other columns", c.file)
		}
	}
	w.headed = w.headed || c.from.ticks > 0
	if c.kind == procRows {
		w.columns = procColumns
	}
	s := &stream{c: c, w: w, stderr: stderr, tape: c.replay != "" || c.demo, began: time.Now()}
	s.expire()
	return s, nil
}

// hasHeader says that the file begins with header.
func hasHeader(path, header string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	start := make([]byte, len(header))
	_, err = io.ReadFull(f, start)
	return err == nil && string(start) == header
}

// expire sees to it that the run ends at its deadline also while it is held in a write.
func (s *stream) expire() {
	if at := s.c.from.deadline; !at.IsZero() {
		endAt(at.Add(time.Second), exitSilent)
	}
}

// due is the run's deadline, or before the first answer when that should be there.
func (s *stream) due() time.Time {
	if !s.primed && !s.tape && s.c.from.tries == 0 && !s.began.IsZero() {
		return earliest(s.began.Add(firstAnswer), s.c.from.deadline)
	}
	return s.c.from.deadline
}

// wake ends a run whose -c was not reached, or says that the driver does not answer.
func (s *stream) wake(now time.Time) orders {
	switch {
	case passed(s.c.from.deadline, now):
		return end(exitSilent)
	case s.c.count > 0:
		return end(fail(s.stderr, errors.New("the driver does not answer")))
	}
	s.began = time.Time{}
	fmt.Fprintln(s.stderr, "mig-gpu-mon: the driver has not answered for 30 s; still waiting")
	return orders{}
}

// tick notes how regular ticks are: stopped, or suspended with the machine, or without an answer they leave out rows.
func (s *stream) tick(now time.Time, _ *hostState, asked bool) orders {
	if !asked || !s.ticked.IsZero() && now.Sub(s.ticked) > s.c.interval*3/2 {
		s.w.skipped = true
	}
	s.ticked = now
	return orders{}
}

// snapshot writes rows. The first of a driver is none: it starts the first interval, which the first row covers
// whole.
func (s *stream) snapshot(now time.Time, snap *snapshot, between bool) (o orders) {
	s.skipped = snap.tape.skipped
	s.w.shows = s.c.shows
	switch {
	case s.tape:
		s.w.skipped = !s.ticked.IsZero() && snap.interval > 0 && snap.at.Sub(s.ticked) > snap.interval*3/2
		s.ticked = snap.at
		o = s.rows(snap)
		o.sample = true
		return o
	case !between:
		return s.rows(snap)
	}
	s.pending = append(s.pending, snap.notes...)
	if s.primed {
		return orders{}
	}
	s.primed, s.ticked = true, now
	if n := time.Duration(s.c.count); s.c.from.deadline.IsZero() && n > 0 && n <= (1<<62)/s.c.interval {
		s.c.from.deadline = now.Add(n*s.c.interval + 10*time.Second)
		s.expire()
	}
	return orders{next: s.c.interval}
}

func (s *stream) silence(snap *snapshot) orders { return s.rows(snap) }

// say writes a line between rows; before the first, and where there are no such lines, it goes with the next rows.
func (s *stream) say(text string) orders {
	if !s.w.started || s.w.kind == jsonRows {
		s.pending = append(s.pending, text)
		return orders{}
	}
	return s.written(s.w.comment(text))
}

func (s *stream) release(bool) orders { return orders{} }

func (s *stream) ended(err error) orders {
	if errors.Is(err, io.EOF) {
		return end(exitOK)
	}
	return end(fail(s.stderr, err))
}

func (s *stream) close() {
	if n := s.skipped; n > 0 {
		s.skipped = 0
		fmt.Fprintf(s.stderr, "mig-gpu-mon: skipped %d line%s of the recording: not records\n", n, plural(n))
	}
}

// rows writes snap and counts the tick.
func (s *stream) rows(snap *snapshot) orders {
	own := snap.notes
	snap.notes = append(s.pending, own...)
	o := s.written(s.w.tick(snap))
	if snap.notes, s.pending = own, nil; o.done {
		return o
	}
	s.c.from.ticks++
	switch {
	case s.c.count == 0 || s.c.from.ticks < s.c.count:
		return orders{}
	case s.lacking(snap):
		return end(exitSilent)
	}
	return end(exitOK)
}

// lacking says that a selected device gave no reading in snap: it is lost or silent, or memory is refused.
func (s *stream) lacking(snap *snapshot) bool {
	seen := 0
	for i := range snap.dev {
		d := &snap.dev[i]
		if !s.c.shows(d) {
			continue
		}
		seen++
		mem := d.v[mMemUsed]
		if d.fault != notRead || d.rows == 0 && !mem.fresh() && mem.why != notSupported {
			return true
		}
	}
	return seen == 0
}

// written is the end of the run if err is one, of a write. A reader that has gone is no error.
func (s *stream) written(err error) orders {
	switch {
	case err == nil:
		return orders{}
	case errors.Is(err, syscall.EPIPE):
		return end(exitOK)
	}
	return end(fail(s.stderr, fmt.Errorf("writing rows: %w", err)))
}
