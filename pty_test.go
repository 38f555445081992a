package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pty is a pseudo-terminal: the test is the terminal and holds the master; what runs in it has the slave.
// The slave stays open here as well, so that its modes can be asked for after the child is gone.
type pty struct {
	t             *testing.T
	master, slave *os.File
	before        unix.Termios // modes, where a program was started on it

	mu  sync.Mutex
	out bytes.Buffer // all that came from the slave

	forgets bool // only the last of it
}

func openPTY(t *testing.T, w, h int) *pty {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals: ", err)
	}
	var n int
	conn, err := master.SyscallConn()
	if err == nil { // not through Fd, after which Close would wait for the Read in collect
		_ = conn.Control(func(fd uintptr) {
			n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
			err = errors.Join(err, unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0))
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals: ", err)
	}
	p := &pty{t: t, master: master, slave: slave}
	p.resize(w, h)
	go p.collect()
	t.Cleanup(func() { slave.Close(); master.Close() })
	return p
}

func (p *pty) collect() {
	b := make([]byte, 4096)
	for {
		n, err := p.master.Read(b)
		p.mu.Lock()
		if p.forgets && p.out.Len() > 1<<20 {
			p.out.Reset()
		}
		p.out.Write(b[:n])
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *pty) resize(w, h int) {
	p.t.Helper()
	ws := unix.Winsize{Col: uint16(w), Row: uint16(h)}
	if err := unix.IoctlSetWinsize(int(p.slave.Fd()), unix.TIOCSWINSZ, &ws); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pty) modes() unix.Termios {
	p.t.Helper()
	m, err := unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
	if err != nil {
		p.t.Fatal(err)
	}
	return *m
}

func (p *pty) setModes(m unix.Termios) {
	p.t.Helper()
	if err := unix.IoctlSetTermios(int(p.slave.Fd()), unix.TCSETS, &m); err != nil {
		p.t.Fatal(err)
	}
}

func isRaw(m unix.Termios) bool { return m.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) == 0 }

func (p *pty) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// send types s.
func (p *pty) send(s string) {
	p.t.Helper()
	if _, err := p.master.WriteString(s); err != nil {
		p.t.Fatal(err)
	}
}

// eventually waits until ok is true.
func (p *pty) eventually(what string, ok func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: did not come about; the output is %q", what, p.output())
		}
	}
}

// shows waits until s was written n times.
func (p *pty) shows(s string, n int) {
	p.t.Helper()
	p.eventually(fmt.Sprintf("%q %d times", s, n), func() bool { return strings.Count(p.output(), s) >= n })
}

// start runs this test binary in a session of its own on the terminal, as role (see below).
func (p *pty) start(role string, files ...*os.File) *exec.Cmd {
	p.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TERM_TEST_ROLE="+role)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.slave, p.slave, p.slave
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

// exits waits for the end of cmd and answers its exit code, -1 for a signal.
func (p *pty) exits(cmd *exec.Cmd) int {
	p.t.Helper()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		p.t.Fatalf("does not end; the output is %q", p.output())
	}
	return cmd.ProcessState.ExitCode()
}

// The roles that this binary plays when it runs as a child.
func init() {
	switch os.Getenv("TERM_TEST_ROLE") {
	case "dashboard":
		os.Exit(dashboardRole())
	case "shell":
		os.Exit(shellRole())
	}
}

// dashboardRole does with the terminal what the program's loop does.
func dashboardRole() int {
	t := openTerminal(os.Stdin, os.Stdout)
	defer t.leave()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGTERM, unix.SIGHUP)
	cont := make(chan os.Signal, 1)
	signal.Notify(cont, unix.SIGCONT)
	bytes := make(chan []byte)
	go readKeys(t.tty, bytes)
	s, in := new(screen), typed{}
	for tick := time.Tick(20 * time.Millisecond); ; {
		if code := drawRole(t, s); code != 0 {
			return code
		}
		select {
		case <-tick:
		case <-cont:
			t.continued()
		case <-signals:
			return 143
		case b, ok := <-bytes:
			if !ok {
				return 5
			}
			in.add(b)
		}
		for k, _ := in.next(true); k != keyNone; k, _ = in.next(true) {
			switch k {
			case 'q':
				t.leave()
				t.leave()
				fmt.Println("bye")
				return 0
			case 'p':
				go func() {
					defer t.leave()
					panic("on purpose")
				}()
			case keyCtrlZ:
				t.suspend(cont)
			}
		}
	}
}

func drawRole(t *terminal, s *screen) int {
	fresh, err := t.enter()
	if fresh {
		s.lost = true
	}
	s.resize(t.size(os.Getenv))
	s.want.clear()
	s.want.text(0, 0, 80, fmt.Sprintf("frame %dx%d", s.want.w, s.want.h), bold)
	switch {
	case errors.Is(err, errBackground), errors.Is(err, errNotOurs):
		return 0
	case err != nil:
		return 4
	}
	if err := s.flush(t); err != nil && !errors.Is(err, errNotOurs) {
		return 4
	}
	return 0
}

// shellRole is a shell with job control that has one job, the dashboard. It takes orders from file 3 and
// answers on file 4, a line each.
func shellRole() int {
	orders, answers := bufio.NewScanner(os.NewFile(3, "orders")), os.NewFile(4, "answers")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TERM_TEST_ROLE=dashboard")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Foreground: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(answers, err)
		return 1
	}
	job := cmd.Process.Pid
	signal.Ignore(unix.SIGTTOU) // as every shell does; not before the start, since the job would inherit it
	for orders.Scan() {
		answer := "ok"
		switch orders.Text() {
		case "pid":
			answer = strconv.Itoa(job)
		case "wait":
			var ws unix.WaitStatus
			if _, err := unix.Wait4(job, &ws, unix.WUNTRACED, nil); err != nil {
				answer = err.Error()
			} else if ws.Stopped() {
				answer = "stopped"
			} else {
				answer = fmt.Sprintf("exited %d", ws.ExitStatus())
			}
			_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, unix.Getpgrp())
		case "fg":
			_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, job)
			_ = unix.Kill(-job, unix.SIGCONT)
		case "fg a running job":
			_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, job)
		case "bg":
			_ = unix.Kill(-job, unix.SIGCONT)
		case "stop":
			_ = unix.Kill(-job, unix.SIGSTOP)
		case "term":
			_ = unix.Kill(-job, unix.SIGTERM)
		}
		fmt.Fprintln(answers, answer)
	}
	_ = unix.Kill(-job, unix.SIGKILL)
	return 0
}

// jobShell is the test's end of a shellRole.
type jobShell struct {
	*pty
	orders  *os.File
	answers *bufio.Scanner
}

func startShell(t *testing.T) *jobShell {
	t.Helper()
	p := openPTY(t, 80, 24)
	ordersOut, ordersIn, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	answersOut, answersIn, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := p.start("shell", ordersOut, answersIn)
	ordersOut.Close()
	answersIn.Close()
	sh := &jobShell{p, ordersIn, bufio.NewScanner(answersOut)}
	t.Cleanup(func() {
		ordersIn.Close()
		_ = cmd.Process.Kill() // the kernel then sends SIGHUP to the job
		answersOut.Close()
	})
	return sh
}

func (s *jobShell) order(order, want string) string {
	s.t.Helper()
	done := make(chan string, 1)
	go func() {
		fmt.Fprintln(s.orders, order)
		s.answers.Scan()
		done <- s.answers.Text()
	}()
	select {
	case got := <-done:
		if want != "" && got != want {
			s.t.Fatalf("%s: %s, want %s; the output is %q", order, got, want, s.output())
		}
		return got
	case <-time.After(10 * time.Second):
		s.t.Fatalf("%s: no answer; the output is %q", order, s.output())
	}
	return ""
}

func TestEnterLeave(t *testing.T) {
	p := openPTY(t, 80, 24)
	before := p.modes()
	cmd := p.start("dashboard")
	p.shows("frame 80x24", 1)
	if !isRaw(p.modes()) {
		t.Error("keys come by lines")
	}
	p.resize(100, 30)
	p.shows("frame 100x30", 1)
	p.resize(0, 0)
	p.eventually("the fallback size", func() bool { return strings.Count(p.output(), "80x24") == 2 })
	p.send("xyz\x1b[Aq")
	if code := p.exits(cmd); code != 0 {
		t.Errorf("exit code %d", code)
	}
	p.shows("bye", 1)
	if p.modes() != before {
		t.Errorf("modes %+v\nbefore %+v", p.modes(), before)
	}
	out := p.output()
	if !strings.HasPrefix(out, enterModes) || strings.Count(out, enterModes) != 1 {
		t.Errorf("output %q does not begin with entering once", out)
	}
	if !strings.HasSuffix(out, leaveModes+"bye\r\n") || strings.Count(out, "\x1b[?1049l") != 1 {
		t.Errorf("output %q does not end with leaving once", out)
	}
}

func TestPanicRestores(t *testing.T) {
	p := openPTY(t, 80, 24)
	before := p.modes()
	cmd := p.start("dashboard")
	p.shows("frame", 1)
	p.send("p")
	if code := p.exits(cmd); code != 2 {
		t.Errorf("exit code %d", code)
	}
	p.shows("goroutine", 1)
	_, trace, _ := strings.Cut(p.output(), leaveModes)
	if p.modes() != before || !strings.HasPrefix(trace, "panic: on purpose") || strings.Contains(trace, "\x1b[") {
		t.Errorf("modes %+v\nbefore %+v\nafter leaving %q", p.modes(), before, trace)
	}
}

func TestTerminalGone(t *testing.T) {
	p := openPTY(t, 80, 24)
	cmd := p.start("dashboard")
	p.shows("frame", 1)
	p.slave.Close()
	p.master.Close()
	if code := p.exits(cmd); code != 5 && code != 4 && code != 143 {
		t.Errorf("exit code %d", code)
	}
}

// In an orphaned process group the kernel discards SIGTSTP.
func TestSuspendOrphaned(t *testing.T) {
	p := openPTY(t, 80, 24)
	cmd := p.start("dashboard") // the leader of its session: its parent is in another
	p.shows("frame", 1)
	start := time.Now()
	p.send("\x1a")
	p.shows(leaveModes+enterModes, 1)
	p.shows("frame", 2)
	if d := time.Since(start); d < 200*time.Millisecond || d > 5*time.Second {
		t.Errorf("came back after %v", d)
	}
	if !isRaw(p.modes()) {
		t.Error("keys come by lines")
	}
	p.send("q")
	if code := p.exits(cmd); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestSuspend(t *testing.T) {
	s := startShell(t)
	before := s.modes()
	s.shows("frame", 1)
	for round := 1; round <= 2; round++ {
		s.send("\x1a")
		s.order("wait", "stopped")
		s.shows(leaveModes, round)
		if s.modes() != before || !strings.HasSuffix(s.output(), leaveModes) {
			t.Errorf("stopped: modes %+v, before %+v, output %q", s.modes(), before, s.output())
		}
		s.order("fg", "ok")
		s.shows("frame", round+1)
		s.eventually("raw mode", func() bool { return isRaw(s.modes()) })
	}
	s.send("q")
	s.order("wait", "exited 0")
	s.shows("bye", 1)
	if s.modes() != before {
		t.Errorf("modes %+v, before %+v", s.modes(), before)
	}
}

// In the background it goes on without a byte to the terminal or a change of its modes, heeds SIGTERM,
// and draws again when it is brought back, although a shell sends no SIGCONT to a job that runs.
func TestBackground(t *testing.T) {
	s := startShell(t)
	s.shows("frame", 1)
	s.send("\x1a")
	s.order("wait", "stopped")
	s.shows(leaveModes, 1)
	shells := s.modes()
	shells.Lflag &^= unix.ICANON | unix.ECHO // as a shell that edits its line has them
	s.setModes(shells)
	for range 2 {
		before := s.output()
		s.order("bg", "ok")
		time.Sleep(500 * time.Millisecond)
		if s.output() != before || s.modes() != shells {
			t.Fatalf("in the background: modes %+v, before %+v, output %q", s.modes(), shells, s.output()[len(before):])
		}
	}
	n := strings.Count(s.output(), "frame")
	s.order("fg a running job", "ok")
	s.shows("frame", n+1)
	s.send("\x1a")
	s.order("wait", "stopped")
	s.shows(leaveModes, 2)
	s.order("bg", "ok")
	before := s.output()
	s.order("term", "ok")
	s.order("wait", "exited 143")
	if s.output() != before || s.modes() != shells {
		t.Errorf("ended in the background: modes %+v, before %+v, output %q", s.modes(), shells, s.output()[len(before):])
	}
}

// After a stop from outside the shell has put its own modes on the terminal, or none.
func TestStoppedFromOutside(t *testing.T) {
	for _, shellSets := range []bool{true, false} {
		s := startShell(t)
		before := s.modes()
		s.shows("frame", 1)
		s.order("stop", "ok")
		s.order("wait", "stopped")
		if shellSets {
			s.setModes(before)
		}
		s.order("fg", "ok")
		s.shows("frame", 2)
		if !isRaw(s.modes()) {
			t.Error("keys come by lines")
		}
		s.send("q")
		s.order("wait", "exited 0")
		if s.modes() != before {
			t.Errorf("modes %+v, before %+v", s.modes(), before)
		}
	}
}

// Ended in the background after a stop from outside: the terminal is the shell's.
func TestStoppedThenEnded(t *testing.T) {
	s := startShell(t)
	shells := s.modes()
	s.shows(frameEnd, 1)
	s.order("stop", "ok")
	s.order("wait", "stopped")
	shells.Lflag &^= unix.ICANON
	s.setModes(shells)
	before := s.output()
	s.order("bg", "ok")
	time.Sleep(100 * time.Millisecond)
	s.order("term", "ok")
	s.order("wait", "exited 143")
	if s.output() != before || s.modes() != shells {
		t.Errorf("modes %+v, before %+v, output %q", s.modes(), shells, s.output()[len(before):])
	}
}

// Whatever goes on in other goroutines, the last bytes are those of leave, and the modes are the old ones.
func TestLeaveRace(t *testing.T) {
	for range 50 {
		p := openPTY(t, 80, 24)
		before := p.modes()
		term := openTerminal(p.slave, p.slave)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for range 20 {
					_, _ = term.enter()
					_, _ = term.Write([]byte("frame"))
				}
				if i == 0 {
					term.leave()
				}
			})
		}
		wg.Wait()
		term.leave()
		if fresh, err := term.enter(); fresh || !errors.Is(err, errNotOurs) {
			t.Fatalf("entered after leave: %v %v", fresh, err)
		}
		_, _ = p.slave.WriteString("end")
		p.shows("end", 1)
		if out := p.output(); !strings.HasSuffix(out, leaveModes+"end") || p.modes() != before {
			t.Fatalf("output %q, modes %+v, before %+v", out, p.modes(), before)
		}
	}
}

// A terminal that takes no more bytes must not keep a panic from ending the process.
func TestLeaveWhileWriteHangs(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	term := openTerminal(r, w)
	term.up = true
	wrote := make(chan error)
	go func() {
		_, err := term.Write(make([]byte, 1<<20))
		wrote <- err
	}()
	time.Sleep(50 * time.Millisecond)
	start := time.Now()
	term.leave()
	if d := time.Since(start); d < 500*time.Millisecond || d > 5*time.Second {
		t.Errorf("leave took %v", d)
	}
	r.Close()
	if err := <-wrote; err == nil {
		t.Error("the write did not hang")
	}
}

// The first write to a terminal asks about its width; the answer is no key.
func TestProbeBytes(t *testing.T) {
	e := bytes.Count([]byte(widthProbe), []byte("\x1b[6n"))
	if e != 1 || !strings.HasPrefix(widthProbe, "\x1b[2;1H") {
		t.Errorf("%q", widthProbe)
	}
}

// A screen is redrawn once for each time that the terminal was taken.
func TestEnterFresh(t *testing.T) {
	p := openPTY(t, 80, 24)
	term := openTerminal(p.slave, p.slave)
	for _, step := range []struct {
		name  string
		do    func()
		fresh bool
	}{
		{"first", func() {}, true},
		{"again", func() {}, false},
		{"continued", term.continued, true},
		{"after that", func() {}, false},
		{"suspended", func() { term.lock <- struct{}{}; term.release(); term.unlock() }, true},
		{"after that", func() {}, false},
	} {
		step.do()
		if fresh, err := term.enter(); fresh != step.fresh || err != nil {
			t.Errorf("%s: fresh %v, %v", step.name, fresh, err)
		}
	}
	term.leave()
	if fresh, err := term.enter(); fresh || !errors.Is(err, errNotOurs) {
		t.Errorf("after leave: %v, %v", fresh, err)
	}
}

func TestEnterAllocs(t *testing.T) {
	p := openPTY(t, 80, 24)
	term := openTerminal(p.slave, p.slave)
	defer term.leave()
	if fresh, err := term.enter(); !fresh || err != nil {
		t.Fatal(fresh, err)
	}
	info, _ := debug.ReadBuildInfo()
	if slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("the race detector makes x/sys's ioctl allocate")
	}
	if n := testing.AllocsPerRun(100, func() {
		_, _ = term.enter()
		_, _ = term.Write([]byte("x"))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestReadKeysEnds(t *testing.T) {
	p := openPTY(t, 80, 24)
	m := p.modes()
	m.Lflag &^= unix.ICANON | unix.ECHO
	p.setModes(m)
	keys := make(chan []byte)
	go readKeys(p.slave, keys)
	p.send("\x1b[A")
	if got := <-keys; string(got) != "\x1b[A" {
		t.Errorf("read %q", got)
	}
	p.master.Close()
	select {
	case _, ok := <-keys:
		if ok {
			t.Error("read something from a terminal that is gone")
		}
	case <-time.After(10 * time.Second):
		t.Error("does not end")
	}
}
