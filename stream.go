// stream.go owns the text modes' run: when rows are written, and when the run ends.
//
// Invariants: one write per tick; a run with -c ends.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"
)

// textLoop paces the text modes. It owns everything but what the sampler has in hand.
type textLoop struct {
	*sampler
	c      *config
	w      *textWriter
	x      *exports
	stderr io.Writer
	hosts  *hostReader // nil if nobody records the host
	system *hostState

	silent  bool // rows of "-" are being written
	next    successor
	trouble string    // with the files beside, as told last
	quiet   snapshot  // what a tick without an answer shows
	lacked  bool      // the last rows lacked a reading
	ticked  time.Time // when the last tick was
	primed  bool      // the first snapshot, which starts the first interval, is there
	ticks   int       // rows' ticks so far
	end     time.Time // of a run with -c, once it is known
	pending []string  // notes that no row has carried yet
	told    []string  // lines written between rows, which no record has carried yet
}

// newTextLoop makes the rows that c asks for, written to out. It has no source yet.
func newTextLoop(c *config, out, stdout *os.File, x *exports, stderr io.Writer) (*textLoop, error) {
	w := &textWriter{
		out: out, kind: c.kind, columns: c.columns, gpuRows: c.gpuRows, stamp: c.stamp, zone: time.Local,
		shows: func(*device) bool { return true },
	}
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
	return &textLoop{c: c, w: w, x: x, stderr: stderr, ticks: c.from.ticks, next: successor{handover: c.from}}, nil
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

// replay writes the rows of a recording as fast as it can be read; it answers the exit code.
func (l *textLoop) replay(src *replaySource) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	guard(func() {
		sig := <-signals
		removeProm()
		die(sig.(syscall.Signal))
	})
	var s snapshot
	var last time.Time
	for {
		err := src.sample(&s)
		if err == nil && !l.primed {
			l.primed = true
			err = l.begin(&s)
		}
		code := exitOK
		switch {
		case errors.Is(err, io.EOF):
		case err != nil:
			code = fail(l.stderr, err)
		default:
			l.w.skipped = !last.IsZero() && s.interval > 0 && s.at.Sub(last) > s.interval*3/2
			last = s.at
			code = l.rows(&s)
		}
		if code < 0 {
			continue
		}
		if src.skipped > 0 {
			fmt.Fprintf(l.stderr, "mig-gpu-mon: skipped %d line%s of the recording: not records\n", src.skipped, plural(src.skipped))
		}
		return code
	}
}

// run is the loop of the text modes; it answers the exit code.
func (l *textLoop) run() int {
	ending := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) { // nohup stays in force
		ending = append(ending, syscall.SIGHUP)
	}
	urgent, usr := l.relay(ending...), l.relay(syscall.SIGUSR1, syscall.SIGUSR2)
	start := time.Now()
	l.readHost(start)
	l.ask()
	tick, first, resume := time.NewTimer(l.c.interval), time.NewTimer(firstAnswer), time.NewTimer(time.Hour)
	resume.Stop()
	if l.next.tries > 0 {
		first.Stop() // it did answer, to the process before
	}
	end := l.deadline(l.c.from.deadline)
	for {
		code := -1
		select {
		case <-end:
			code = exitSilent // -c was not reached
		case <-l.next.ready:
			l.next.ticks, l.next.deadline = l.ticks, l.end
			code = fail(l.stderr, fmt.Errorf("%s (%w)", restartHint, l.next.exec(l.x)))
		case a := <-l.answers:
			early := l.next.early
			if l.next.watch(a) {
				if !early {
					fmt.Fprintln(l.stderr, "mig-gpu-mon: waiting for the driver: "+printable(a.err.Error()))
				}
				continue
			}
			if a.err != nil {
				return fail(l.stderr, a.err)
			}
			wasPrimed := l.primed
			code = l.answer(a.snap)
			if !wasPrimed && l.primed {
				// The grid starts where the first sample ended, so that the first row covers a whole interval.
				start = time.Now()
				l.ticked = start
				tick.Reset(l.c.interval)
				if l.end.IsZero() {
					end = l.deadline(start.Add(time.Duration(l.c.count)*l.c.interval + 10*time.Second))
				}
			}
		case <-tick.C:
			code = l.tick()
			tick.Reset(untilNext(start, time.Now(), l.c.interval))
		case <-first.C:
			code = l.stillNothing()
		case <-resume.C:
			code = l.signalled(orderResume, "resumed")
		case sig := <-usr:
			code = l.signal(sig, resume)
		case sig := <-urgent:
			code = l.signal(sig, resume)
		}
		if code >= 0 {
			l.close()
			return code
		}
	}
}

// signal is what a signal does; the answer is the exit code, -1 to go on.
func (l *textLoop) signal(sig os.Signal, resume *time.Timer) int {
	switch sig {
	case syscall.SIGUSR1:
		resume.Reset(releaseFor)
		says := "released: the NVML session is closed for 60 s (SIGUSR2 resumes)"
		if !l.asked.IsZero() {
			says = "will be released as soon as the driver answers, for 60 s (SIGUSR2 resumes)"
		}
		return l.signalled(orderRelease, says)
	case syscall.SIGUSR2:
		if !resume.Stop() {
			return -1
		}
		return l.signalled(orderResume, "resumed")
	}
	return 128 + int(sig.(syscall.Signal))
}

// deadline fires at the time at, when a run with -c has to end by itself. Should the loop be held in a write
// then, the program ends all the same. A zero time is none.
func (l *textLoop) deadline(at time.Time) <-chan time.Time {
	if at.IsZero() || l.c.count == 0 || time.Duration(l.c.count) > (1<<62)/l.c.interval {
		return nil
	}
	l.end = at
	endAt(at.Add(time.Second), exitSilent)
	return time.After(time.Until(at))
}

// stillNothing is what firstAnswer without an answer means.
func (l *textLoop) stillNothing() int {
	switch {
	case l.primed:
		return -1
	case l.c.count > 0:
		return l.noAnswer()
	}
	fmt.Fprintln(l.stderr, "mig-gpu-mon: the driver has not answered for 30 s; still waiting")
	return -1
}

func (l *textLoop) noAnswer() int {
	return fail(l.stderr, errors.New("the driver does not answer"))
}

// signalled passes on what a signal asked for and says so in the rows.
func (l *textLoop) signalled(o order, says string) int {
	if l.order(o) {
		l.next.rest(o == orderRelease)
	} else {
		says = "the driver does not answer: ignored"
	}
	if !l.w.started {
		l.pending = append(l.pending, says)
		return -1
	}
	return l.tell(says)
}

// tell writes a line between rows. The next record carries it too.
func (l *textLoop) tell(says string) int {
	l.told = append(l.told, says)
	return l.written(l.w.comment(says))
}

// readHost reads the host, if somebody records it.
func (l *textLoop) readHost(now time.Time) {
	if l.hosts != nil {
		l.hosts.read(l.system, now)
	}
}

// overdue says that an answer is late beyond patience.
func (l *textLoop) overdue() bool {
	return !l.asked.IsZero() && time.Since(l.asked) >= patience(l.c.interval)
}

// tick asks for the next sample; while one is overdue it writes rows of "-".
func (l *textLoop) tick() int {
	now := time.Now()
	if now.Sub(l.ticked) > l.c.interval*3/2 {
		l.w.skipped = true // stopped, or suspended with the machine
	}
	l.ticked = now
	l.readHost(now)
	if l.asked.IsZero() {
		l.ask()
		return -1
	}
	l.w.skipped = true
	if !l.primed || !l.overdue() {
		return -1
	}
	l.quiet.quiet(l.last, driverSilent, now)
	if !l.silent {
		l.silent = true
		l.quiet.notes = append(l.quiet.notes, "driver silent since "+l.asked.In(l.w.zone).Format(isoTime))
	}
	return l.rows(&l.quiet)
}

// answer receives a snapshot: the first starts the first interval, the others are rows, unless rows of "-"
// were written in their place.
func (l *textLoop) answer(s *snapshot) int {
	asked := l.asked
	l.take(s)
	s.interval, s.system = l.c.interval, l.system
	if !l.primed {
		l.primed = true
		l.pending = append(l.pending, s.notes...)
		if err := l.begin(s); err != nil {
			return fail(l.stderr, err)
		}
		return -1
	}
	if l.silent {
		l.silent = false
		// Part of what it says was read before the silence, so it makes no row.
		l.pending = append(l.pending, s.notes...)
		return l.tell(fmt.Sprintf("driver back after %s", time.Since(asked).Round(100*time.Millisecond)))
	}
	return l.rows(s)
}

// begin binds -id to the devices that are there now.
func (l *textLoop) begin(s *snapshot) error {
	shows, err := chooseDevices(s, l.c.ids, &l.next.bound)
	if err == nil {
		l.w.shows = shows
	}
	return err
}

// rows writes s and counts the tick.
func (l *textLoop) rows(s *snapshot) int {
	s.notes = append(l.pending, s.notes...)
	recorded := append(l.told, s.notes...)
	l.pending, l.told = nil, nil
	if l.w.kind == jsonRows {
		s.notes = recorded
	}
	if code := l.written(l.w.tick(s)); code >= 0 {
		return code
	}
	s.notes = recorded
	l.x.write(s, l.w.shows)
	if says := l.x.trouble(); says != l.trouble {
		l.trouble = says
		if says == "" {
			says = "-prom file is back"
		}
		fmt.Fprintln(l.stderr, "mig-gpu-mon: "+says)
		l.pending = append(l.pending, says)
	}
	l.ticks++
	l.lacked = l.lacking(s)
	switch {
	case l.c.count == 0 || l.ticks < l.c.count:
		return -1
	case l.lacked:
		return exitSilent
	case l.trouble != "":
		return exitFailed // the rows are whole, what was asked for beside them is not
	}
	return exitOK
}

// lacking says that a selected device gave no reading in s: it is lost or silent, or memory is refused.
func (l *textLoop) lacking(s *snapshot) bool {
	seen := 0
	for i := range s.dev {
		d := &s.dev[i]
		if !l.w.shows(d) {
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

// written turns a write's outcome into an exit code, -1 to go on. A reader that has gone is no error.
func (l *textLoop) written(err error) int {
	switch {
	case err == nil:
		return -1
	case errors.Is(err, syscall.EPIPE):
		return exitOK
	}
	return fail(l.stderr, fmt.Errorf("writing rows: %w", err))
}
