package main

import (
	"io"
	"path/filepath"
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
