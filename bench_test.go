package main

import (
	"io"
	"path/filepath"
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
	b.Setenv("FAKENVML_SCENARIO", "testdata/scenarios/eight-seven.txt")
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
	b.Setenv("FAKENVML_SCENARIO", "testdata/scenarios/eight-seven.txt")
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
