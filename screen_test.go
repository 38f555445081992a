package main

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startDashboard runs the program full screen on a new terminal of w by h, in a session of its own.
func startDashboard(t *testing.T, m *machine, w, h int, args ...string) (*pty, *exec.Cmd) {
	t.Helper()
	p := openPTY(t, w, h)
	p.before = p.modes()
	cmd := m.command(args...)
	cmd.Env = append(cmd.Env, "TERM=xterm-256color", "LC_ALL=C.UTF-8", "NO_COLOR=", "COLUMNS=", "LINES=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.slave, p.slave, p.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return p, cmd
}

// screenText is what a terminal of w by h shows after all that was written to p.
func screenText(p *pty, w, h int) string {
	e := newEmulator(w, h)
	_, _ = e.Write([]byte(p.output()))
	var b strings.Builder
	for y := range h {
		b.WriteString(rowText(&e.grid, y) + "\n")
	}
	return b.String()
}

// TestDashboardShowsEverything: every panel with live values, at the common sizes.
func TestDashboardShowsEverything(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{80, 24}, {160, 45}} {
		p, cmd := startDashboard(t, newMachine(t, "h200-580"), size[0], size[1])
		if size[1] == 24 {
			p.eventually("the table view", func() bool { return strings.Contains(screenText(p, size[0], size[1]), "PROFILE") })
			p.send("\r")
		}
		want := []string{"Devices", "Detail", "3g.71gb", "util 54% gpm", "SM active 50%", "GPU 0 H200", "temp 53 C", "Top processes 1", "GPU util 54%", "DRAM bandwidth 38%", "VRAM 39.1G / 69.8G", "CPU ", "RAM ", "SWP ", "used", "avl:", "quit"}
		if size[1] == 45 {
			want = append(want, "CPU cores", "clocks gfx 1980", "ECC corrected 3", "used and cached", "MIG-")
		}
		p.eventually("all panels", func() bool {
			text := screenText(p, size[0], size[1])
			for _, s := range want {
				if !strings.Contains(text, s) {
					return false
				}
			}
			return true
		})
		p.send("q")
		if code := p.exits(cmd); code != 0 {
			t.Errorf("exit %d", code)
		}
	}
}

// TestDashboardRestores: whatever ends it, the terminal is as before and the exit code right.
func TestDashboardRestores(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(*pty, *exec.Cmd)
		code int // -1: by a signal
	}{
		"q":                    {func(p *pty, _ *exec.Cmd) { p.send("q") }, 0},
		"ctrl-c":               {func(p *pty, _ *exec.Cmd) { p.send("\x03") }, 0},
		"sigterm":              {func(_ *pty, cmd *exec.Cmd) { _ = cmd.Process.Signal(syscall.SIGTERM) }, -1},
		"sigint":               {func(_ *pty, cmd *exec.Cmd) { _ = cmd.Process.Signal(syscall.SIGINT) }, -1},
		"sighup":               {func(_ *pty, cmd *exec.Cmd) { _ = cmd.Process.Signal(syscall.SIGHUP) }, -1},
		"panic in a goroutine": {func(*pty, *exec.Cmd) {}, 1},
		"panic in the loop":    {func(*pty, *exec.Cmd) {}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, "h200-580")
			where, panics := strings.CutPrefix(name, "panic in ")
			if panics {
				m.env = append(m.env, "MIG_GPU_MON_TEST_PANIC="+strings.Fields(where)[1])
			}
			p, cmd := startDashboard(t, m, 100, 30)
			p.shows("\x1b[?1049h", 1)
			p.eventually("raw mode", func() bool { return isRaw(p.modes()) })
			c.end(p, cmd)
			// 130: where this test was started with SIGINT ignored (sh -c "... &") it cannot die of it.
			if code := p.exits(cmd); code != c.code && !(name == "sigint" && code == 130) {
				t.Errorf("exit %d, want %d; output %q", code, c.code, p.output())
			}
			if p.modes() != p.before {
				t.Error("the terminal's modes are not as before")
			}
			p.shows("\x1b[?1049l", 1) // the last bytes may still be on their way
			if panics {
				p.shows("panic: test", 1)
			}
			out := p.output()
			if strings.LastIndex(out, "\x1b[?25h") < strings.LastIndex(out, "\x1b[?25l") {
				t.Errorf("the cursor is not restored: %q", out[max(len(out)-300, 0):])
			}
			if panics && !strings.Contains(out[strings.LastIndex(out, "\x1b[?1049l"):], "panic: test") {
				t.Error("the trace is not on the normal screen")
			}
			if !panics && m.stat("samples")+m.stat("sessions") != 0 {
				t.Errorf("%d samples, %d sessions are held at the end", m.stat("samples"), m.stat("sessions"))
			}
		})
	}
}

// TestDashboardWithoutDriver says so on the normal screen and never enters the other one.
func TestDashboardWithoutDriver(t *testing.T) {
	t.Parallel()
	p, cmd := startDashboard(t, newMachine(t, "init-9"), 80, 24)
	code := p.exits(cmd)
	p.shows("hint: ", 1)
	if code != exitNoGPU || strings.Contains(p.output(), "\x1b[?1049h") {
		t.Errorf("exit %d, output %q", code, p.output())
	}
}

// TestDashboardWhileDriverHangs: keys, resize and quitting work while a call does not return.
func TestDashboardWhileDriverHangs(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	p, cmd := startDashboard(t, m, 100, 30)
	p.eventually("values", func() bool { return strings.Contains(screenText(p, 100, 30), "54") })
	m.tell("hang nvmlDeviceGetMemoryInfo_v2 s=forever")
	p.eventually("silence told", func() bool { return strings.Contains(screenText(p, 100, 30), "driver silent for") })
	p.send("?")
	p.eventually("the help", func() bool { return strings.Contains(screenText(p, 100, 30), "Ctrl-L repaint") })
	p.send("xq")
	began := time.Now()
	if code := p.exits(cmd); code != 0 || time.Since(began) > 2*time.Second {
		t.Errorf("exit %d after %v", code, time.Since(began))
	}
}

// TestDashboardInitHangs: a frame comes although Init does not return, and q ends it.
func TestDashboardInitHangs(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	m.tell("hang nvmlInit_v2 s=forever")
	p, cmd := startDashboard(t, m, 100, 30)
	p.eventually("a frame", func() bool { return strings.Contains(screenText(p, 100, 30), "waiting for the driver") })
	p.send("q")
	if code := p.exits(cmd); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// TestDashboardSizes survives a storm of sizes, the absurd among them, and ends drawn for the last.
func TestDashboardSizes(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	p, cmd := startDashboard(t, m, 160, 45)
	p.shows("Devices", 1)
	for i := range 60 {
		p.resize(i*13%200, i*7%60)
		time.Sleep(2 * time.Millisecond)
	}
	p.resize(1, 1)
	time.Sleep(50 * time.Millisecond)
	p.resize(100, 30)
	p.eventually("the last size", func() bool {
		out := p.output()
		e := newEmulator(100, 30)
		whole := out[:max(strings.LastIndex(out, "\x1b[2J"), 0)] // the last frame that draws everything
		_, _ = e.Write([]byte(out[max(strings.LastIndex(whole, "\x1b[?2026h"), 0):]))
		return strings.Contains(rowText(&e.grid, 29), "q quit")
	})
	p.send("q")
	if code := p.exits(cmd); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// TestDashboardReleases: p closes the session and takes it up again.
func TestDashboardReleases(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	p, cmd := startDashboard(t, m, 160, 45)
	text := func() string { return screenText(p, 160, 45) }
	p.eventually("values", func() bool { return strings.Contains(text(), "util 54% gpm") })
	p.send("p")
	p.eventually("released", func() bool {
		return strings.Contains(text(), "RELEASED") && strings.Contains(text(), "util 54*%") && m.stat("sessions") == 0 && m.stat("samples") == 0
	})
	p.send("p")
	p.eventually("resumed", func() bool { return strings.Contains(text(), "util 54% gpm") && m.stat("sessions") == 1 })
	p.send("q")
	p.exits(cmd)
}

// TestDashboardTerminalGone: a terminal that hangs up ends it, without a busy loop.
func TestDashboardTerminalGone(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	p, cmd := startDashboard(t, m, 100, 30)
	p.shows("\x1b[?1049h", 1)
	p.slave.Close()
	p.master.Close()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("still running")
	}
}

// TestDumbTerminalGetsRows: without a usable terminal the rows are what is wanted.
func TestDumbTerminalGetsRows(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	p := openPTY(t, 80, 24)
	cmd := m.command("-i", "200")
	cmd.Env = append(cmd.Env, "TERM=dumb")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.slave, p.slave, p.slave
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.shows("3g.71gb  busy  gpm", 2)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	p.exits(cmd)
	if strings.Contains(p.output(), "\x1b") {
		t.Error("escape sequences on a dumb terminal")
	}
}

// TestPSSDenied: where smaps_rollup may not be read there is RSS and "-" for PSS.
func TestPSSDenied(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	files := map[string]string{
		"stat": "cpu  1 1 1 1 1 1 1 1 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n", "meminfo": "MemTotal: 100000 kB\nMemFree: 1 kB\n",
	}
	for _, pid := range []string{"4000001", "4000002"} {
		files[pid+"/stat"] = statLine("train", "1", "5000")
		files[pid+"/statm"] = "100000 51200 1 1 0 1 0\n"
		files[pid+"/status"] = "Name:\ttrain\nUid:\t0\t0\t0\t0\n"
		files[pid+"/cmdline"] = "train" + pid + "\x00"
	}
	files["4000002/smaps_rollup"] = "Rss: 200 kB\nPss: 102400 kB\nPrivate_Clean: 0 kB\nPrivate_Dirty: 51200 kB\n"
	m.env = append(m.env, "MIG_GPU_MON_TEST_PROC="+procRootOf(t, files))
	p, cmd := startDashboard(t, m, 160, 45, "-pss")
	text := func() string { return screenText(p, 160, 45) }
	p.eventually("no PSS", func() bool {
		return strings.Contains(text(), "4000001 root     38.0G   200M    -       -")
	})
	p.send("j")
	p.eventually("PSS", func() bool {
		return strings.Contains(text(), "4000002 root     1.1G    200M    100M    50M")
	})
	p.send("q")
	p.exits(cmd)
}
