package main

import (
	"math"
	"testing"
	"time"
)

func TestMeasureRefusesSentinels(t *testing.T) {
	for _, c := range []struct {
		m    metric
		n    int64
		want string
	}{
		{mMemUsed, 0, "0"},
		{mMemUsed, 1 << 20, "1"},
		{mMemUsed, 1<<20 + 1<<19, "2"},
		{mMemUsed, 1<<20 + 1<<19 - 1, "1"},
		{mMemUsed, -1, "-"},
		{mMemUsed, 1 << 47, "-"},
		{mMemUsed, math.MaxInt64, "-"},
		{mMemUsed, signed(math.MaxUint64), "-"},
		{mMemTotal, 0, "-"}, // unified memory answers a total of 0
		{mUtil, 20000, "200"},
		{mUtil, 20001, "-"},
		{mUtil, 49, "0"},
		{mUtil, 50, "1"},
		{mMemUtil, 10001, "-"},
		{mPower, 433_780, "434"},
		{mPower, math.MaxInt32, "-"},
		{mTemp, 53, "53"},
		{mTemp, -1, "-"},
		{mTemp, 0x7fffffff, "-"},
		{mTempSlowOffset, -2, "-2"},
		{mPState, 32, "-"},
	} {
		got := string(measure(c.m, c.n).append(nil, metrics[c.m].unit))
		if got != c.want {
			t.Errorf("measure(%s, %d) prints %s, want %s", metrics[c.m].key, c.n, got, c.want)
		}
	}
	for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 1e300, 200.02} {
		if v := measureFloat(mUtil, f); v != lack(badValue) {
			t.Errorf("measureFloat(%v) = %+v, want absent with bad_value", f, v)
		}
	}
	if v := measureFloat(mUtil, 130.5); v.raw != 13050 || v.from != measured {
		t.Errorf("130.5 %% is kept as it is, got %+v", v)
	}
}

func TestZeroValueIsAbsent(t *testing.T) {
	var v value
	if _, ok := v.num(); ok || v.fresh() || !v.unread() {
		t.Errorf("the zero value has a number: %+v", v)
	}
	if got := string(v.append(nil, percent)); got != "-" {
		t.Errorf("the zero value prints %q", got)
	}
}

// TestOriginsOnlyGetWorse walks the transformations: none makes a number out of nothing or trusts one
// more than before.
func TestOriginsOnlyGetWorse(t *testing.T) {
	m := measure(mUtil, 4200)
	a := lack(inUse)
	e := m.estimate()
	h := m.hold(1500*time.Millisecond, inUse)
	if e.from != estimated || e.raw != 4200 || string(e.append(nil, percent)) != "42" {
		t.Errorf("estimate: %+v", e)
	}
	if h.from != held || h.age != 1500 || string(h.append(nil, percent)) != "-" {
		t.Errorf("hold: %+v", h)
	}
	if h.estimate().from != held {
		t.Error("a held value must not become an estimate")
	}
	if a.estimate() != a || a.hold(time.Second, gap) != a {
		t.Error("absent must stay absent with its reason")
	}
	if larger(a, m) != m || larger(m, a) != m || larger(m, measure(mUtil, 4300)).raw != 4300 {
		t.Error("larger")
	}
}

func TestPerSecond(t *testing.T) {
	for _, c := range []struct {
		grown uint64
		dt    time.Duration
		want  value
	}{
		{3_000_000, 2 * time.Second, measure(mPcieTx, 1_500_000)},
		{1, 0, lack(gap)},
		{1, -time.Second, lack(gap)},
		{math.MaxUint64, time.Second, lack(badValue)},
	} {
		if got := perSecond(mPcieTx, c.grown, c.dt); got != c.want {
			t.Errorf("%d in %v: %+v", c.grown, c.dt, got)
		}
	}
}

func TestTablesAreWhole(t *testing.T) {
	keys := map[string]bool{}
	for m, row := range metrics {
		if m == int(deviceMetrics) {
			continue
		}
		if row.key == "" || row.max <= row.min || keys[row.key] {
			t.Errorf("metric %d: key %q, range %d..%d", m, row.key, row.min, row.max)
		}
		keys[row.key] = true
	}
	words := map[string]bool{}
	for r, row := range reasons {
		if row.word == "" || row.sentence == "" || words[row.word] {
			t.Errorf("reason %d: %q %q", r, row.word, row.sentence)
		}
		words[row.word] = true
	}
}

func TestState(t *testing.T) {
	dev := func(util, procs, mem value) *device {
		d := &device{mig: 0}
		d.v[mUtil], d.v[mProcs], d.v[mMemUsed] = util, procs, mem
		return d
	}
	n := lack(notSupported)
	util := func(pct int64) value { return measure(mUtil, pct*100) }
	procs := func(n int64) value { return measure(mProcs, n) }
	mib := func(n int64) value { return measure(mMemUsed, n<<20) }
	for _, c := range []struct {
		d    *device
		want string
	}{
		{dev(util(1), procs(0), mib(0)), "busy"},
		{dev(util(1), n, n), "busy"},
		{dev(util(0), procs(1), mib(0)), "held"},
		{dev(util(0), procs(0), mib(65)), "held"},
		{dev(util(0), procs(0), mib(64)), "free"},
		{dev(n, procs(0), mib(64)), "free"},
		{dev(n, procs(0), mib(65)), "used"},
		{dev(n, procs(2), n), "used"},
		{dev(util(0), n, mib(3)), "?"},
		{dev(util(0), procs(0), n), "?"},
		{dev(n, n, n), "?"},
		{dev(util(50).hold(time.Second, gap), n, n), "?"},
		{&device{mig: -1, rows: 2}, "mig"},
		{&device{mig: -1, migOn: 1}, "empty"},
		{&device{mig: -1, migOn: 1, fault: gpuLost}, "lost"},
		{&device{mig: -1, rows: 2, fault: resetRequired}, "lost"},
		{&device{mig: 0, fault: driverSilent}, "?"},
	} {
		if got := c.d.state(); got != c.want {
			t.Errorf("state of %+v is %s, want %s", c.d.v[mUtil], got, c.want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"python train.py":         "python train.py",
		"\x1b[2J\x1b]0;pwned\a":   "?[2J?]0;pwned?",
		"a\nb\tc\x00":             "a?b?c?",
		"bad\xffutf8":             "bad?utf8",
		"\u009b31m":               "?31m",
		"rtl\u202eevil":           "rtl?evil",
		"zero\u200bwidth\ufeff":   "zero?width?",
		"학습 프로세스":                 "학습 프로세스",
		"combining e\u0301 stays": "combining e\u0301 stays",
	} {
		if got := printable(in); got != want {
			t.Errorf("printable(%q) = %q, want %q", in, got, want)
		}
	}
}
