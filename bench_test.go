package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// BenchmarkCollect is one steady tick of the largest machine, 8 GPUs with 7 instances each, with every
// metric wanted and the double answering as slowly as real GPUs were seen to. GPM needs time between two
// samples, so each tick is waited for outside the measure.
func BenchmarkCollect(b *testing.B) {
	lib := filepath.Join(double(b, "BRANCH=590"), "libnvidia-ml.so.1")
	stats := filepath.Join(b.TempDir(), "stats")
	b.Setenv("FAKENVML_SCENARIO", benchScenario())
	b.Setenv("FAKENVML_STATS", stats)
	s := &nvmlSource{path: lib, procs: newProcReader("/proc", guard)}
	for m := range s.want {
		s.want[m] = true
	}
	var snap snapshot
	for range 2 {
		if err := s.sample(&snap); err != nil {
			b.Fatal(err)
		}
		time.Sleep(120 * time.Millisecond)
	}
	calls := statIn(b, stats, "calls")
	ticks := 0
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		if err := s.sample(&snap); err != nil {
			b.Fatal(err)
		}
		ticks++
		b.StopTimer()
		time.Sleep(120 * time.Millisecond)
		b.StartTimer()
	}
	b.StopTimer()
	b.ReportMetric(float64(statIn(b, stats, "calls")-calls)/float64(ticks), "calls/op")
	if len(snap.dev) != 64 {
		b.Fatalf("%d devices", len(snap.dev))
	}
	s.close()
}

// BenchmarkOwnCPU compares the processor time of a dashboard's tick, from collection to the bytes of a
// frame of 160x45, with that of the bare collection, in one run: "ratio" is the one over the other.
func BenchmarkOwnCPU(b *testing.B) {
	lib := filepath.Join(double(b, "BRANCH=590"), "libnvidia-ml.so.1")
	b.Setenv("FAKENVML_SCENARIO", benchScenario())
	s := &nvmlSource{path: lib, procs: newProcReader("/proc", guard)}
	for m := range s.want {
		s.want[m] = true
	}
	v := &view{past: newHistory(), host: &hostState{}, interval: time.Second}
	hosts := newHostReader("/proc", "/sys/fs/cgroup")
	var snap snapshot
	var scr screen
	scr.resize(160, 45)
	var bare, whole time.Duration
	for b.Loop() {
		for _, paints := range []bool{false, true} {
			time.Sleep(120 * time.Millisecond)
			before := ownCPU(b)
			if err := s.sample(&snap); err != nil {
				b.Fatal(err)
			}
			if !paints {
				bare += ownCPU(b) - before
				continue
			}
			hosts.read(v.host, snap.at)
			v.snap, v.now, v.rows = &snap, snap.at, v.rows[:0]
			for i := range snap.dev {
				v.rows = append(v.rows, listed{device: snap.dev[i]})
			}
			v.sel = 1
			addTick(v.past, snap.at, 300*time.Millisecond, &snap, v.host)
			paint(&scr.want, v)
			_ = scr.flush(io.Discard)
			whole += ownCPU(b) - before
		}
	}
	b.ReportMetric(float64(whole)/float64(bare), "ratio")
	b.ReportMetric(float64(bare.Microseconds())/float64(b.N), "bare-us/tick")
	s.close()
}

// ownCPU is the processor time that this process has used.
func ownCPU(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRows writes the rows of 56 instances.
func BenchmarkRows(b *testing.B) {
	w := sampleWriter(b, io.Discard, "umgxkpctvei")
	one := sampleSnapshot()
	s := &snapshot{at: one.at}
	for range 14 {
		s.dev = append(s.dev, one.dev...)
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = w.tick(s)
	}
}

// BenchmarkRecord writes and reads records of 56 instances, and writes their metrics for Prometheus.
func BenchmarkRecord(b *testing.B) {
	s := &snapshot{at: clockOf, dev: eightBySeven(), system: testHost()}
	var e encoder
	line := e.encode(s, nil)
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(int64(len(line)))
		b.ReportAllocs()
		for b.Loop() {
			e.encode(s, nil)
		}
	})
	b.Run("decode", func(b *testing.B) {
		var into snapshot
		b.SetBytes(int64(len(line)))
		b.ReportAllocs()
		for b.Loop() {
			if err := decode(line, &into); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("metrics", func(b *testing.B) {
		version = "test"
		p := &promFile{shows: func(*device) bool { return true }}
		b.ReportAllocs()
		for b.Loop() {
			p.format(s)
		}
	})
}

var budgets = flag.Bool("budgets", false, "print the table of make bench")

// benchmark runs one of this file's benchmarks in a process of its own, since a process can have one driver
// library only, and returns its figures by unit.
func benchmark(t *testing.T, name, scenario, times string) map[string]float64 {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^$", "-test.bench", "^"+name+"$", "-test.benchtime", times, "-test.benchmem")
	cmd.Env = append(os.Environ(), "MIG_GPU_MON_TEST_SCENARIO="+scenario)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	figures := map[string]float64{}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); strings.HasPrefix(line, "Benchmark") {
			for i := 2; i+1 < len(f); i += 2 {
				figures[f[i+1]], _ = strconv.ParseFloat(f[i], 64)
			}
		}
	}
	return figures
}

// benchScenario is the machine of a benchmark: the largest, or what the table asks for.
func benchScenario() string {
	if s := os.Getenv("MIG_GPU_MON_TEST_SCENARIO"); s != "" {
		return s
	}
	return "testdata/scenarios/eight-seven.txt"
}

// TestBudgets prints what the program costs beside what it may cost, as a table. It needs ./mig-gpu-mon.
func TestBudgets(t *testing.T) {
	if !*budgets {
		t.Skip("only with -budgets")
	}
	row := func(what, got, may string) { fmt.Printf("%-58s %14s   %s\n", what, got, may) }
	row("what", "measured", "budget")
	tick := benchmark(t, "BenchmarkCollect", "", "20x")
	row("steady tick, 8 GPUs x 7 instances", fmt.Sprintf("%.0f ms", tick["ns/op"]/1e6), "80 ms")
	row("NVML calls of it", fmt.Sprintf("%.0f", tick["calls/op"]), "576 (16 per GPU and 8 per instance)")
	row("own CPU / bare collection, 8x7", fmt.Sprintf("%.2f", benchmark(t, "BenchmarkOwnCPU", "", "20x")["ratio"]), "1.5")
	row("own CPU / bare collection, 2 GPUs without MIG", fmt.Sprintf("%.2f", benchmark(t, "BenchmarkOwnCPU", "testdata/scenarios/two-whole.txt", "20x")["ratio"]), "1.5")
	for _, name := range []string{"BenchmarkRows", "BenchmarkFrame", "BenchmarkFlush", "BenchmarkRecord/encode", "BenchmarkRecord/metrics"} {
		f := benchmark(t, strings.ReplaceAll(name, "/", "$/^"), "", "3000x")
		row(strings.TrimPrefix(name, "Benchmark")+": allocations, time", fmt.Sprintf("%.0f, %.0f us", f["allocs/op"], f["ns/op"]/1e3), "0 allocations")
	}
	for _, name := range []string{"eight-seven", "two-whole"} {
		m := newMachine(t, name)
		p := openPTY(t, 160, 45)
		cmd := m.command()
		cmd.Path, cmd.Args = "./mig-gpu-mon", []string{"mig-gpu-mon"}
		cmd.Env = append(cmd.Env, "TERM=xterm-256color", "LC_ALL=C.UTF-8")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = p.slave, p.slave, p.slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		start := time.Now()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for !strings.Contains(p.output(), "\x1b[?2026l") {
			time.Sleep(time.Millisecond)
		}
		row("start to first frame, "+name, fmt.Sprintf("%d ms", time.Since(start).Milliseconds()), "350 ms")
		time.Sleep(10 * time.Second)
		bytes := len(p.output())
		time.Sleep(10 * time.Second)
		row("terminal bytes per tick, 160x45, "+name, fmt.Sprint((len(p.output())-bytes)/10), "6000")
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		peak := regexp.MustCompile(`VmHWM:\s+(\d+)`).FindSubmatch(status)
		row("peak resident memory with the stand-in driver, "+name, string(peak[1])+" kB", "10240 kB")
		p.send("q")
		p.exits(cmd)
	}
	info, err := os.Stat("mig-gpu-mon")
	if err != nil {
		t.Fatal(err)
	}
	row("binary", fmt.Sprintf("%.2f MiB", float64(info.Size())/(1<<20)), "4 MiB, 4.5 at most")
}
