package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// procRootOf makes a /proc for the scenarios' process numbers, which no kernel gives out.
func procRootOf(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "self/ns"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(initialPidNS, filepath.Join(root, "self/ns/pid")); err != nil {
		t.Fatal(err)
	}
	return root
}

// statLine is /proc/PID/stat with what is read of it.
func statLine(comm, utime, start string) string {
	return "4000001 (" + comm + ") R 1 1 1 0 -1 4194304 1 0 0 0 " + utime + " 0 0 0 20 0 9 0 " + start + " 1000 100 18446744073709551615 1 1 0 0\n"
}

// TestProcessRows shows who runs where, with hostile names, and what cannot be named.
func TestProcessRows(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	root := procRootOf(t, map[string]string{
		"4000001/stat":    statLine("python) R 7", "12345", "5000"),
		"4000001/statm":   "100000 51200 100 1 0 1 0\n",
		"4000001/status":  "Name:\tpython\nUid:\t0\t0\t0\t0\n",
		"4000001/cgroup":  "0::/system.slice/slurmstepd.scope/job_1234/step_0/user/task_0\n",
		"4000001/cmdline": "/opt/conda/bin/python\x00train.py\x00--name\x00\x1b[2J\x1b]0;pwned\a\x00",
		"4000002/stat":    statLine("sh", "0", "6000"),
		"4000002/statm":   "100 25 1 1 0 1 0\n",
		"4000002/status":  "Name:\tsh\nUid:\t4294967294\t4294967294\t0\t0\n",
		"4000002/cgroup":  "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1a2b3c4d_5e6f_7a8b_9c0d_1e2f3a4b5c6d.slice/cri-containerd-0123456789ab.scope\n",
	})
	m.env = append(m.env, "MIG_GPU_MON_TEST_PROC="+root)
	r := m.run("-procs", "-i", "300", "-c", "1")
	golden(t, "h200-580-procs.txt", steady(r.stdout))
	r = m.run("-plain", "-i", "300", "-c", "1", "-s", "wu")
	golden(t, "h200-580+wu.txt", steady(r.stdout))
	if strings.ContainsAny(r.stdout, "\x1b\a") {
		t.Errorf("control characters reach the terminal: %q", r.stdout)
	}
}

func TestCSV(t *testing.T) {
	t.Parallel()
	r := newMachine(t, "h200-580").run("-csv", "-i", "300", "-c", "2", "-s", "umv")
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if len(lines) != 1+2*5 {
		t.Fatalf("%d lines:\n%s", len(lines), r.stdout)
	}
	if lines[0] != "time,gpu,mig,gi,ci,profile,state,src,util,smutil,dram,fb,fbtot,procs,thr" {
		t.Errorf("header %s", lines[0])
	}
	for i, want := range []string{
		",0,,,,,mig,,,,,41250,143771,3,sw_power",
		",0,0,2,0,3g.71gb,busy,gpm,54,50,38,40000,71424,1,",
		",0,1,3,0,2g.35gb,held,gpm,0,0,1,1200,33280,2,",
	} {
		stamp, row, _ := strings.Cut(lines[1+i], ",")
		if ","+row != want {
			t.Errorf("row %d: %s, want %s", i, row, want)
		}
		if _, err := time.Parse(isoTime, stamp); err != nil {
			t.Error(err)
		}
	}
}

func TestCSVFieldIsQuoted(t *testing.T) {
	for in, want := range map[string]string{"-": "", "plain": "plain", "a,b": `"a,b"`, `a"b`: `"a""b"`, "": ""} {
		if got := string(csvField([]byte("x,"+in), 2)); got != "x,"+want {
			t.Errorf("csvField(%q) = %q", in, got)
		}
	}
}

// sampleSnapshot is a snapshot like the one in the README.
func sampleSnapshot() *snapshot {
	s := &snapshot{seq: 1, at: time.Date(2026, 11, 30, 22, 5, 1, 0, time.FixedZone("KST", 9*3600)), host: "node17", interval: time.Second, driver: "580.95.05"}
	inst := func(mig, gi int, profile string, util, sm, dram, used, total, procs int64) device {
		d := device{mig: mig, gi: gi, profile: profile, uuid: profile, src: srcGPM}
		d.v[mUtil], d.v[mSMUtil], d.v[mDRAM] = measure(mUtil, util*100), measure(mSMUtil, sm*100), measure(mDRAM, dram*100)
		d.v[mMemUsed], d.v[mMemTotal], d.v[mProcs] = measure(mMemUsed, used<<20), measure(mMemTotal, total<<20), measure(mProcs, procs)
		return d
	}
	s.dev = append(s.dev, device{mig: -1, gi: -1, ci: -1, rows: 2},
		inst(0, 1, "3g.71gb", 54, 50, 38, 40000, 71424, 1), inst(1, 5, "2g.35gb", 0, 0, 1, 1200, 33280, 1))
	g := device{gpu: 1, mig: -1, gi: -1, ci: -1, src: srcNVML}
	g.v[mUtil], g.v[mMemUsed], g.v[mMemTotal], g.v[mProcs] = measure(mUtil, 0), measure(mMemUsed, 700<<20), measure(mMemTotal, 24564<<20), measure(mProcs, 0)
	g.v[mMemUsed] = measure(mMemUsed, 60<<20)
	s.dev = append(s.dev, g)
	return s
}

func sampleWriter(t testing.TB, out io.Writer, letters string) *textWriter {
	t.Helper()
	cols, gpuRows, err := chooseColumns(letters)
	if err != nil {
		t.Fatal(err)
	}
	return &textWriter{
		out: out, columns: cols, gpuRows: gpuRows, zone: time.FixedZone("KST", 9*3600),
		shows: func(*device) bool { return true },
	}
}

// TestRowFormat is the specification's picture of the rows, byte for byte.
func TestRowFormat(t *testing.T) {
	var b bytes.Buffer
	version = "1.0.0"
	if err := sampleWriter(t, &b, "um").tick(sampleSnapshot()); err != nil {
		t.Fatal(err)
	}
	want := `# mig-gpu-mon 1.0.0 node17 driver 580.95.05 2026-11-30T22:05:01+09:00 every 1s
# gpu  mig  gi  ci    profile state  src util smutil dram     fb  fbtot procs 
# Idx  Idx   #   #       name     -    -    %      %    %    MiB    MiB     # 
    0    0   1   0    3g.71gb  busy  gpm   54     50   38  40000  71424     1 
    0    1   5   0    2g.35gb  held  gpm    0      0    1   1200  33280     1 
    1    -   -   -          -  free nvml    0      -    -     60  24564     0 
`
	if b.String() != want {
		t.Errorf("got:\n%swant:\n%s", b.String(), want)
	}
}

// TestStamps are dmon's date and time columns, and ours.
func TestStamps(t *testing.T) {
	for st, want := range map[stamp][3]string{
		stampDate:     {"#Date        gpu  mig ", "#YYYYMMDD   Idx  Idx ", " 20261130     0    0 "},
		stampTime:     {"#Time        gpu  mig ", "#HH:MM:SS    Idx  Idx ", " 22:05:01      0    0 "},
		stampDateTime: {"#Date       Time        gpu  mig ", "#YYYYMMDD   HH:MM:SS    Idx  Idx ", " 20261130   22:05:01      0    0 "},
		stampISO:      {"#Time                       gpu  mig ", "#ISO-8601                   Idx  Idx ", " 2026-11-30T22:05:01+09:00     0    0 "},
		stampEpoch:    {"#Epoch        gpu  mig ", "#seconds      Idx  Idx ", " 1796043901     0    0 "},
	} {
		var b bytes.Buffer
		w := sampleWriter(t, &b, "um")
		w.stamp = st
		if err := w.tick(sampleSnapshot()); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(b.String(), "\n")
		for i := range want {
			if got := lines[1+i]; !strings.HasPrefix(got, want[i]) {
				t.Errorf("stamp %d, line %d: %q, want %q", st, i, got, want[i])
			}
		}
		if a, b := len(strings.Fields(lines[1])), len(strings.Fields(lines[3])); a != b {
			t.Errorf("stamp %d: %d words in the header, %d fields in the row", st, a, b)
		}
	}
}

func TestHeaderAgainPerScreenful(t *testing.T) {
	var b bytes.Buffer
	w := sampleWriter(t, &b, "um")
	w.height = 12
	for range 9 {
		if err := w.tick(sampleSnapshot()); err != nil {
			t.Fatal(err)
		}
	}
	since := 0
	for i, line := range strings.Split(strings.TrimSpace(b.String()), "\n") {
		if strings.HasPrefix(line, "# gpu") {
			since = 0
		}
		if since++; since > w.height {
			t.Errorf("line %d is %d lines below its header", i, since)
		}
	}
	if n := strings.Count(b.String(), "# gpu "); n != 3 {
		t.Errorf("%d headers in 27 rows on 12 lines", n)
	}
}

// TestThrottleWords: also bits that this program does not know.
func TestThrottleWords(t *testing.T) {
	for bits, want := range map[int64]string{0: "none", 1: "idle", 0x24: "sw_power+sw_thermal", 0x8000: "bit15", 0x1ff: strings.Join(throttleWords[:], "+")} {
		d := &device{mig: -1}
		d.v[mThrottle] = measure(mThrottle, bits)
		if got := string(appendThrottle(nil, nil, d)); got != want {
			t.Errorf("%#x: %s, want %s", bits, got, want)
		}
	}
}

// TestRowsAllocateNothing: steady ticks of the text modes cost no memory.
func TestRowsAllocateNothing(t *testing.T) {
	for _, kind := range []rowKind{plainRows, csvRows} {
		w := sampleWriter(t, io.Discard, "umgxkpctvei")
		w.kind, w.gpuRows = kind, true
		s := sampleSnapshot()
		_ = w.tick(s)
		if n := testing.AllocsPerRun(100, func() { _ = w.tick(s) }); n != 0 {
			t.Errorf("kind %d: %v allocations per tick", kind, n)
		}
	}
}

// TestUsage: bad command lines are refused with a hint, good ones answered, before any driver is touched.
func TestUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"-h":                   {0, "Usage: mig-gpu-mon"},
		"--help":               {0, "Usage: mig-gpu-mon"},
		"-version":             {0, "mig-gpu-mon test"},
		"-s help":              {0, "smocc mmaact"},
		"-i 5":                 {2, "hint: -i is the interval"},
		"-i 0,1":               {2, "hint: -i is the interval"},
		"-d 5":                 {2, "hint: -i is the interval"},
		"-i 199":               {2, "at least 200 ms"},
		"-i 61m":               {2, "at most 1 h"},
		"-i 99999999999999999": {2, "at most 1 h"},
		"-i -18446744072709":   {2, "at least 200 ms"},
		"-i 1s -interval 2s":   {2, "same flag"},
		"-c 0":                 {2, "at least 1"},
		"-c x":                 {2, "invalid value"},
		"-s q":                 {2, "no column group"},
		"-s uu":                {2, "given twice"},
		"-o X":                 {2, "no such time format"},
		"-gpm maybe":           {2, "auto, on or off"},
		"-plain -csv":          {2, "more than one mode"},
		"-procs -s u":          {2, "columns of its own"},
		"-csv -o D":            {2, "exclude each other"},
		"-nonsense":            {2, "not defined"},
		"extra":                {2, "unexpected argument"},
		"-id ,":                {2, "-id is empty"},
		"-f /nonexistent/x":    {1, "opening -f file"},
		"-debug /nonexist/x":   {1, "opening -debug file"},
	} {
		cmd := exec.Command(os.Args[0], strings.Fields(args)...)
		cmd.Env = append(os.Environ(), runAsProgram+"=1")
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		_ = cmd.Run()
		text := errs.String()
		if want.code == 0 {
			text = out.String()
		}
		if cmd.ProcessState.ExitCode() != want.code || !strings.Contains(text, want.says) {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", args, cmd.ProcessState.ExitCode(), out.String(), errs.String())
		}
		if want.code != 0 && !strings.HasPrefix(errs.String(), "mig-gpu-mon: ") {
			t.Errorf("%s: stderr %q", args, errs.String())
		}
	}
}

func TestUsageFitsAScreen(t *testing.T) {
	lines := strings.Split(strings.TrimSuffix(usage(), "\n"), "\n")
	if len(lines) > 24 {
		t.Errorf("%d lines", len(lines))
	}
	for _, l := range lines {
		if len(l) > 79 {
			t.Errorf("%d columns: %s", len(l), l)
		}
	}
}

// TestFlagsHaveRows: the table that -h and the man page are made of has the flags that there are.
func TestFlagsHaveRows(t *testing.T) {
	fs, _ := register(&config{})
	rows := map[string]bool{}
	for _, o := range options {
		for _, name := range strings.Fields(o.names) {
			rows[name] = true
			f := fs.Lookup(name)
			if name == "h" || name == "help" {
				continue // package flag has them
			}
			if f == nil {
				t.Errorf("-%s has a row, but is no flag", name)
				continue
			}
			if b, ok := f.Value.(interface{ IsBoolFlag() bool }); (ok && b.IsBoolFlag()) != (o.arg == "") {
				t.Errorf("-%s: its row says that it takes %q", name, o.arg)
			}
		}
		if !strings.HasPrefix(o.text, "\n") {
			t.Errorf("-%s: its text for the man page has to begin on a new line", o.names)
		}
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range rows {
		if !regexp.MustCompile("[`( ]-"+name+`\b`).Match(readme) && name != "help" && name != "interval" {
			t.Errorf("the README does not mention -%s", name)
		}
	}
	fs.VisitAll(func(f *flag.Flag) {
		if !rows[f.Name] && f.Name != "d" { // -d is there only to be refused
			t.Errorf("-%s has no row", f.Name)
		}
	})
	if last := options[len(options)-1]; last.help == "" {
		t.Errorf("-h leaves out -%s: no row after it has help", last.names)
	}
}

// TestManPage holds OPTIONS of the man page to the table of flags, and the page to what formatters accept.
func TestManPage(t *testing.T) {
	const page, begin, end = "mig-gpu-mon.1", "\n.SH OPTIONS\n", ".SH EXIT STATUS\n"
	var want strings.Builder
	flagName := regexp.MustCompile(`\B\\-[a-z]+(\\-[a-z]+)*`)
	escape := strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace
	for _, o := range options {
		fmt.Fprintf(&want, ".TP\n\\fB\\-%s\\fR", strings.ReplaceAll(escape(o.names), " ", `\fR, \fB\-`))
		if o.arg != "" {
			fmt.Fprintf(&want, " \\fI%s\\fR", o.arg)
		}
		want.WriteString(flagName.ReplaceAllString(escape(o.text), `\fB${0}\fR`) + "\n")
	}
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(data), begin)
	got, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no OPTIONS before EXIT STATUS", page)
	}
	switch {
	case got == want.String():
	case *update:
		if err := os.WriteFile(page, []byte(head+begin+want.String()+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("OPTIONS of %s differs from the table in main.go (go test -run TestManPage -update rewrites it)", page)
	}
	for _, formatter := range [][]string{{"groff", "-man", "-ww", "-z"}, {"mandoc", "-T", "lint", "-W", "warning"}} {
		t.Run(formatter[0], func(t *testing.T) {
			if _, err := exec.LookPath(formatter[0]); err != nil {
				t.Skip(err)
			}
			if out, err := exec.Command(formatter[0], append(formatter[1:], page)...).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestDebugFile is never written through a link, and never into something else than a file.
func TestDebugFile(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "target"), link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, "/dev/null", dir} {
		if l, err := openCallLog(path); err == nil {
			t.Errorf("%s was opened: %+v", path, l)
		}
	}
	l, err := openCallLog(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	l.size = debugLimit - 60
	for range 3 {
		l.printf("a line with \x1b[2J in it")
	}
	data, _ := os.ReadFile(filepath.Join(dir, "log"))
	if !strings.Contains(string(data), "log is full") || strings.Count(string(data), "a line with ?[2J") != 1 {
		t.Errorf("%q", data)
	}
}

func TestFileErrors(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	r := m.run("-plain", "-i", "200", "-c", "2", "-f", "/dev/full")
	if r.code != exitFailed || !strings.Contains(r.stderr, "no space left") {
		t.Errorf("exit %d, stderr %q", r.code, r.stderr)
	}
}
