package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The first line names this build, this host and the time; a line tells the time each minute. All else
// of a run is the scenario's.
var (
	firstLine  = regexp.MustCompile(`(?m)^(# mig-gpu-mon )\S+ \S+ (driver \S+) \S+ `)
	minuteLine = regexp.MustCompile(`(?m)^# \d{4}-\d\d-\d\dT\S+\n`)
)

func steady(out string) string {
	return minuteLine.ReplaceAllString(firstLine.ReplaceAllString(out, "${1}VERSION HOST ${2} TIME "), "")
}

// goldenMachines are run with -plain -c 2; the golden file shows what a person sees. exit is the code.
var goldenMachines = []struct {
	name string
	args string
	exit int
}{
	{"h100-535", "", 0},
	{"h200-580", "", 0},
	{"h200-580", "-s umgxpctvei", 0},
	{"a100-470", "", 0},
	{"a100-80", "", 0},
	{"two-whole", "", 0},
	{"two-whole", "-s umgxpcve", 0},
	{"eight-seven", "", 0},
	{"container-slice", "", 0},
	{"gb10", "", 0},
	{"h200-2ci", "", 0},
	{"estimate", "", 0},
	{"rtxpro6000", "", 0},
	{"reconfigure", "-c 4", 0},
	{"lost-one", "-s umv -c 3", 4},
}

func TestGoldenRows(t *testing.T) {
	for _, g := range goldenMachines {
		name := strings.TrimSpace(g.name + " " + g.args)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, g.name)
			args := append([]string{"-plain", "-i", "300", "-c", "2"}, strings.Fields(g.args)...)
			r := m.run(args...)
			if r.code != g.exit || r.stderr != "" {
				t.Errorf("exit %d, want %d; stderr %q", r.code, g.exit, r.stderr)
			}
			golden(t, strings.NewReplacer(" -s ", "+", " -c ", "x").Replace(name)+".txt", steady(r.stdout))
			rows := fieldsOf(r.stdout)
			for _, row := range rows {
				if len(row) != len(rows[0]) {
					t.Errorf("%d fields in %q, %d in the first row", len(row), row, len(rows[0]))
				}
			}
			for _, gauge := range []string{"samples", "sessions", "eventsets", "violations"} {
				if n := m.stat(gauge); n != 0 {
					t.Errorf("%s: %d at the end", gauge, n)
				}
			}
		})
	}
}

// TestStartFailures holds each cause of failure to its exit code and to words that help.
func TestStartFailures(t *testing.T) {
	for _, c := range []struct{ scenario, says, hints string }{
		{"no-gpu", "sees no GPU", "nvidia-smi -L"},
		{"init-9", "DRIVER_NOT_LOADED (9)", "modprobe"},
		{"init-18", "LIB_RM_VERSION_MISMATCH (18)", "reboot"},
		{"init-999", "UNKNOWN (999)", "/dev/nvidiactl"},
	} {
		t.Run(c.scenario, func(t *testing.T) {
			t.Parallel()
			r := newMachine(t, c.scenario).run("-plain", "-c", "1")
			if r.code != exitNoGPU || r.stdout != "" || !strings.Contains(r.stderr, c.says) || !strings.Contains(r.stderr, "hint: ") || !strings.Contains(r.stderr, c.hints) {
				t.Errorf("exit %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
			}
			if lines := strings.Split(r.stderr, "\n"); !strings.HasPrefix(lines[0], "mig-gpu-mon: ") {
				t.Errorf("first line %q", lines[0])
			}
		})
	}
}

// TestNextLibrary: a library whose Init fails must not end the search, and the next one must be the one
// really called.
func TestNextLibrary(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	bad := double(t, "BRANCH=535", "ALWAYS_INIT=18")
	broken, notNVML := t.TempDir(), double(t, "NOT_NVML")
	if err := os.WriteFile(filepath.Join(broken, "libnvidia-ml.so.1"), []byte("not an ELF file"), 0o644); err != nil {
		t.Fatal(err)
	}
	m.env = []string{"LD_LIBRARY_PATH=" + strings.Join([]string{broken, notNVML, bad, m.lib}, ":")}
	rows := m.rows("-plain", "-i", "200", "-c", "1")
	if len(rows) != 4 || rows[0][6] != "gpm" {
		t.Errorf("rows %q", rows)
	}
	m.env = []string{"LD_LIBRARY_PATH=" + bad}
	r := m.run("-plain", "-c", "1")
	if r.code != exitNoGPU || !strings.Contains(r.stderr, "(18)") {
		t.Errorf("exit %d, %q", r.code, r.stderr)
	}
}

func TestNVMLPath(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	good := filepath.Join(m.lib, "libnvidia-ml.so.1")
	broken := filepath.Join(t.TempDir(), "broken.so")
	if err := os.WriteFile(broken, []byte("not an ELF file"), 0o644); err != nil {
		t.Fatal(err)
	}
	notNVML := filepath.Join(double(t, "NOT_NVML"), "libnvidia-ml.so.1")
	m.env = nil
	if rows := m.rows("-plain", "-i", "200", "-c", "1", "-nvml-path", good); len(rows) != 4 {
		t.Errorf("rows %q", rows)
	}
	m.env = []string{"LD_LIBRARY_PATH=" + m.lib} // must not be a way out for a wrong -nvml-path
	for path, says := range map[string]string{
		"/nonexistent/libnvidia-ml.so.1": "cannot open shared object file: No such file",
		broken:                           "file too short",
		notNVML:                          "not an NVML library",
	} {
		r := m.run("-plain", "-c", "1", "-nvml-path", path)
		if r.code != exitNoGPU || !strings.Contains(r.stderr, says) && !strings.Contains(r.stderr, "invalid ELF header") {
			t.Errorf("%s: exit %d, stderr %q", path, r.code, r.stderr)
		}
	}
}

// TestOldDrivers runs against the symbols of every branch: none may end in "symbol lookup error".
func TestOldDrivers(t *testing.T) {
	for _, branch := range []int{450, 470, 510, 520, 525, 535, 550, 555, 570, 590, 595} {
		t.Run(fmt.Sprint(branch), func(t *testing.T) {
			t.Parallel()
			m := scriptMachine(t, fmt.Sprintf(`
lib driver=%d.10.01 cuda=12000 branch=%d
gpu 0 name="NVIDIA H100 PCIe" uuid=GPU-1 pci=00000000:17:00.0 arch=9 cc=9.0 mig=on mem=81559 reserved=479 used=59
mig 0.0 gi=1 ci=0 profile=3g.40gb sm=60 slices=3/3 mem=40448 used=26
gpm 0.0 1=50
gpu 1 name="NVIDIA A100-SXM4-40GB" uuid=GPU-2 pci=00000000:18:00.0 arch=7 cc=8.0 mig=off mem=40960 reserved=0 used=3 util=7 memutil=2
proc 1 pid=4000001 type=C mem=100
`, branch, branch))
			r := m.run("-plain", "-i", "200", "-c", "2", "-gpm", "on", "-s", "umgxkwpctvei")
			if r.code != 0 || r.stderr != "" {
				t.Fatalf("exit %d, stderr %q\n%s", r.code, r.stderr, r.stdout)
			}
			rows := fieldsOf(r.stdout)
			if len(rows) != 6 || rows[1][10] != "26" || rows[2][7] != "7" || rows[2][12] != "1" {
				t.Errorf("rows:\n%s", r.stdout)
			}
			want := "-"
			if branch >= 525 {
				want = "50"
			}
			if got := rows[1][7]; got != want {
				t.Errorf("util %s, want %s", got, want)
			}
		})
	}
}

// TestEarly535 is the driver that writes process entries of 32 bytes: they must be read rightly.
func TestEarly535(t *testing.T) {
	t.Parallel()
	m := scriptMachine(t, `
lib driver=535.54.03 cuda=12020 branch=535
gpu 0 name="NVIDIA H100 PCIe" uuid=GPU-1 pci=00000000:17:00.0 arch=9 cc=9.0 mig=on mem=81559 reserved=479 used=59
mig 0.0 gi=1 ci=0 profile=3g.40gb mem=40448 used=900
mig 0.1 gi=2 ci=0 profile=3g.40gb mem=40448 used=26
proc 0 pid=4000001 type=C mem=300 gi=1 ci=0
proc 0 pid=4000002 type=C mem=200 gi=1 ci=0
proc 0 pid=4000003 type=C mem=100 gi=1 ci=0
`, "EARLY535")
	rows := m.rows("-plain", "-i", "200", "-c", "1")
	if len(rows) != 2 || rows[0][12] != "3" || rows[1][12] != "0" {
		t.Errorf("rows %q", rows)
	}
	rows = m.rows("-procs", "-i", "200", "-c", "1")
	if len(rows) != 3 || rows[0][4] != "4000001" || rows[0][8] != "300" || rows[2][8] != "100" {
		t.Errorf("process rows %q", rows)
	}
	// A new session makes go-nvml choose the lists anew.
	l := m.start("-procs", "-i", "200")
	l.await(`^ +0 +0 +1 +0 +4000001 +C .* 300 `)
	m.tell("gone mig 0.1")
	l.await(`^# instance 0\.1 removed`)
	l.await(`^ +0 +0 +1 +0 +4000001 +C .* 300 `)
	l.await(`^ +0 +0 +1 +0 +4000002 +C .* 200 `)
	l.await(`^ +0 +0 +1 +0 +4000003 +C .* 100 `)
	l.end(syscall.SIGTERM)
}

// TestH100On535MakesNoGPMCall: under auto GPM is not touched where it was seen to break memory.
func TestH100On535MakesNoGPMCall(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h100-535")
	for _, row := range m.rows("-plain", "-i", "200", "-c", "2") {
		if row[6] != "-" || row[7] != "-" || row[10] == "-" {
			t.Errorf("row %q", row)
		}
	}
	for _, f := range []string{"nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleGet", "nvmlGpmMigSampleGet", "nvmlGpmMetricsGet"} {
		if n := m.stat(f); n != 0 {
			t.Errorf("%s was called %d times", f, n)
		}
	}
}

// TestGPMGuard: on 535 with -gpm on memory breaks after the first GPM call. GPM must go off, the session
// start anew, and memory read again in the same tick.
func TestGPMGuard(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h100-535")
	r := m.run("-plain", "-i", "200", "-c", "3", "-gpm", "on")
	rows := fieldsOf(r.stdout)
	if r.code != 0 || len(rows) != 6 || strings.Count(r.stdout, "GPM off for this run") != 1 {
		t.Fatalf("exit %d\n%s", r.code, r.stdout)
	}
	for _, row := range rows {
		if row[7] != "-" || row[10] == "-" {
			t.Errorf("row %q", row)
		}
	}
	if n := m.stat("nvmlGpmMigSampleGet"); n != 1 {
		t.Errorf("GpmMigSampleGet called %d times, want 1", n)
	}
	if n := m.stat("nvmlInit_v2"); n != 2 {
		t.Errorf("Init called %d times, want 2", n)
	}
}

// TestGPMSecondChance: from 550 on GPM is tried once more, and stays on if memory then stays readable.
func TestGPMSecondChance(t *testing.T) {
	t.Parallel()
	const h100 = `
lib driver=550.54.15 cuda=12040 branch=550
gpu 0 name="NVIDIA H100 PCIe" uuid=GPU-1 pci=00000000:17:00.0 arch=9 cc=9.0 mig=on mem=81559 reserved=479 used=59
mig 0.0 gi=1 ci=0 profile=3g.40gb mem=40448 used=900
gpm 0.0 1=61
`
	m := scriptMachine(t, h100+"inuse once\n")
	for _, row := range m.rows("-plain", "-i", "200", "-c", "2") {
		if row[7] != "61" || row[10] != "900" {
			t.Errorf("broken once: row %q", row)
		}
	}
	m = scriptMachine(t, h100+"inuse on\n")
	r := m.run("-plain", "-i", "200", "-c", "2")
	for _, row := range fieldsOf(r.stdout) {
		if row[7] != "-" || row[10] != "900" {
			t.Errorf("broken always: row %q", row)
		}
	}
	if n := m.stat("nvmlInit_v2"); n != 3 || !strings.Contains(r.stdout, "gpm_unsafe") {
		t.Errorf("Init called %d times, want 3\n%s", n, r.stdout)
	}
}

// TestFirstRowCoversAnInterval: the GPM value of the first row must be of one whole interval. The
// scenario answers the window's length in ms / 20.
func TestFirstRowCoversAnInterval(t *testing.T) {
	t.Parallel()
	m := scriptMachine(t, `
lib driver=580.95.05 cuda=13000 branch=590
gpu 0 name="NVIDIA H200" uuid=GPU-1 pci=00000000:17:00.0 arch=9 cc=9.0 mig=on mem=143771 reserved=0 used=59
mig 0.0 gi=1 ci=0 profile=3g.71gb mem=71424 used=900
gpm 0.0 1=window 2=38 10=21
`)
	rows := m.rows("-plain", "-i", "1000", "-c", "1")
	util, err := strconv.Atoi(rows[0][7])
	if len(rows) != 1 || err != nil || util < 50 || util > 60 || rows[0][8] != "38" || rows[0][9] != "21" {
		t.Errorf("rows %q, want util 50 or a little more", rows)
	}
}

// TestReconfiguration destroys an instance between ticks and creates another at the same handle: no
// value of the old one may appear on the new one's row, and unchanged instances keep their numbers.
func TestReconfiguration(t *testing.T) {
	t.Parallel()
	m := scriptMachine(t, `
lib driver=580.95.05 cuda=13000 branch=590
gpu 0 name="NVIDIA H200" uuid=GPU-1 pci=00000000:17:00.0 arch=9 cc=9.0 mig=on mem=143771 reserved=0 used=59
mig 0.0 gi=1 ci=0 profile=3g.71gb mem=71424 used=40000
mig 0.1 gi=5 ci=0 profile=2g.35gb mem=33280 used=20000
gpm 0.0 1=54
gpm 0.1 1=91
proc 0 pid=4000001 type=C mem=19000 gi=5 ci=0
`)
	l := m.start("-plain", "-i", "400", "-s", "umk")
	l.await(`^ +0 +1 +5 +0 +2g\.35gb +busy +gpm +91 .* 20000 +33280 +1 `)
	if n := m.stat("samples"); n != 4 {
		t.Errorf("%d GPM samples alive, want 4", n)
	}
	m.tell("gone proc 0 pid=4000001\ngone mig 0.1\nmig 0.1 gi=5 ci=0 profile=1g.18gb mem=16384 used=17 handle=1\ngpm 0.1 1=3")
	l.await(`^# instance 0\.1 removed \(gi 5, 2g\.35gb\)`)
	l.await(`^# instance 0\.1 added \(gi 5, 1g\.18gb\)`)
	l.await(`^ +0 +0 +1 +0 +3g\.71gb +busy +gpm +54 `)
	l.await(`^ +0 +1 +5 +0 +1g\.18gb +busy +gpm +3 +- +- +17 +16384 +0 +[01] $`)
	m.tell("gone mig 0.1")
	l.await(`^# instance 0\.1 removed \(gi 5, 1g\.18gb\)`)
	l.await(`^ +0 +0 +1 `)
	l.await(`^ +0 +0 +1 `) // with no row of 0.1 between
	if n := m.stat("samples"); n != 2 {
		t.Errorf("%d GPM samples alive, want 2", n)
	}
	if state := l.end(syscall.SIGTERM); state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("ended by %v", state)
	}
	if n := m.stat("samples"); n != 0 {
		t.Errorf("%d GPM samples alive after SIGTERM", n)
	}
}

// TestNoHandleOutlivesItsTick: when the MIG mode cannot be read in the tick in which an instance is replaced,
// the handles of the tick before must not be used (the double complains of a stale one).
func TestNoHandleOutlivesItsTick(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	l := m.start("-plain", "-i", "300")
	l.await(`^ +0 +1 .* gpm `)
	m.tell("fail nvmlDeviceGetMigMode code=999 times=3\ngone proc 0 pid=4000002\ngone mig 0.1\nmig 0.1 gi=5 ci=0 profile=1g.18gb mem=16384 used=17 handle=1")
	l.await(`^# gpu 0: unknown_error`)
	l.await(`^ +0 +1 +3 +0 +2g\.35gb +\? +- +- +- +- +- +- +- $`)
	l.await(`^# instance 0\.1 added \(gi 5, 1g\.18gb\)`)
	l.end(syscall.SIGTERM)
}

// TestIdle counts the seconds since util was last above 0, while it is known.
func TestIdle(t *testing.T) {
	t.Parallel()
	m := scriptMachine(t, oneH100)
	l := m.start("-plain", "-i", "500", "-s", "uk")
	l.await(`^ +0 +0 .* busy +gpm +61 +55 +20 +0 $`)
	l.await(`^ +0 +1 .* free +gpm +0 +0 +0 +[2-9] $`)
	m.tell("gpm 0.0 1=0")
	l.await(`^ +0 +0 .* gpm +0 .* [2-9] $`)
	m.tell("gpm 0.0 1=nan")
	l.await(`^ +0 +0 .* - +- +55 +20 +- $`)
	m.tell("gpm 0.0 1=5")
	l.await(`^ +0 +0 .* gpm +5 .* 0 $`)
	l.end(syscall.SIGTERM)
}

// TestRelease: SIGUSR1 closes the session so that an administrator can destroy instances; SIGUSR2 takes
// it up again.
func TestRelease(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	l := m.start("-plain", "-i", "300")
	l.await(`^ +0 .* gpm `)
	if err := l.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	l.await(`^# (will be )?released`)
	l.await(`^ +0 .* \? +- +- `)
	if s, b := m.stat("sessions"), m.stat("samples"); s != 0 || b != 0 {
		t.Errorf("released, yet %d sessions and %d samples are held", s, b)
	}
	if err := l.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	l.await(`^# resumed`)
	l.await(`^ +0 .* gpm +[0-9]+ `)
	l.end(syscall.SIGINT)
	if s, b := m.stat("sessions"), m.stat("samples"); s != 0 || b != 0 {
		t.Errorf("after SIGINT %d sessions and %d samples are held", s, b)
	}
}

// TestAppendingRunsTearNoLine: ten runs append to one file at once.
func TestAppendingRunsTearNoLine(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	file := filepath.Join(t.TempDir(), "log")
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if r := m.run("-plain", "-i", "200", "-c", "3", "-f", file); r.code != 0 || r.stdout != "" {
				t.Errorf("exit %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
			}
		})
	}
	wg.Wait()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rows := fieldsOf(string(data))
	if len(rows) != 10*3*4 {
		t.Errorf("%d rows, want %d", len(rows), 10*3*4)
	}
	for _, row := range rows {
		if len(row) != 13 {
			t.Errorf("row %q", row)
		}
	}
}

// TestReadmeExamples runs the README's command lines as they are written, but for what takes long, for three
// seconds each: they must say nothing on stderr, and print something if anything is to be printed.
func TestReadmeExamples(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, block := range regexp.MustCompile("(?ms)^```$(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(block[1]) {
			if !strings.HasPrefix(line, "mig-gpu-mon") && !strings.HasPrefix(line, "zcat") {
				continue
			}
			n++
			t.Run(strings.TrimSpace(line), func(t *testing.T) {
				t.Parallel()
				if strings.Contains(line, "| jq") {
					if _, err := exec.LookPath("jq"); err != nil {
						t.Skip("jq is not installed")
					}
				}
				dir := t.TempDir()
				var packed bytes.Buffer
				z := gzip.NewWriter(&packed)
				_, _ = z.Write([]byte(gpurOld))
				if err := errors.Join(z.Close(), os.WriteFile(dir+"/FILE", []byte(gpurOld), 0o600), os.WriteFile(dir+"/FILE.gz", packed.Bytes(), 0o600)); err != nil {
					t.Fatal(err)
				}
				m := newMachine(t, "h200-580")
				cmd := m.shell(strings.NewReplacer("-i 60s", "-i 1s", "-i 5s", "-i 1s", "/var/log", dir, "mig-gpu-mon", "timeout 3 mig-gpu-mon").Replace(line))
				cmd.Dir = dir
				cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES=MIG-201f3a76-0000-5002-8000-0000201f3876")
				var out, errs bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &errs
				_ = cmd.Run()
				quiet := strings.Contains(line, " -f ") || strings.Contains(line, "> 600")
				if errs.Len() > 0 || out.Len() == 0 && !quiet {
					t.Errorf("stderr %q, stdout %q", errs.String(), out.String())
				}
				if file, err := os.ReadFile(dir + "/mig.csv"); strings.Contains(line, "mig.csv") && (err != nil || !strings.HasPrefix(string(file), "time,gpu,mig,")) {
					t.Errorf("%v: %s", err, file)
				}
			})
		}
	}
	if n < 10 {
		t.Errorf("only %d command lines were found", n)
	}
}

// TestLostGPU: the lost one's rows stay, without numbers and with the reason, the others go on.
func TestLostGPU(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "lost-one")
	debug := filepath.Join(t.TempDir(), "debug")
	r := m.run("-plain", "-i", "200", "-c", "4", "-s", "umv", "-debug", debug)
	if r.code != exitSilent {
		t.Errorf("exit %d, want 4; stderr %q", r.code, r.stderr)
	}
	rows := fieldsOf(r.stdout)
	last := rows[len(rows)-6:]
	for i, want := range []string{"mig", "held|busy|free", "held|busy|free", "lost", "lost|\\?", "lost|\\?"} {
		if !regexp.MustCompile("^(" + want + ")$").MatchString(last[i][5]) {
			t.Errorf("row %d: state %s, want %s", i, last[i][5], want)
		}
	}
	if last[3][13] != "gpu_lost" || last[4][10] != "-" || last[1][10] == "-" {
		t.Errorf("last rows %q", last)
	}
	log, err := os.ReadFile(debug)
	if err != nil || !strings.Contains(string(log), "GPU_IS_LOST (15)") {
		t.Errorf("debug log: %v\n%s", err, log)
	}
}

// TestA100SaysWhy: no NVML call has activity per instance there; never a 0, and the reason is told.
func TestA100SaysWhy(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "a100-470")
	debug := filepath.Join(t.TempDir(), "debug")
	r := m.run("-plain", "-i", "200", "-c", "2", "-debug", debug)
	rows := fieldsOf(r.stdout)
	if len(rows) != 8 {
		t.Fatalf("%d rows\n%s", len(rows), r.stdout)
	}
	for _, row := range rows {
		if row[7] != "-" || row[8] != "-" || row[9] != "-" {
			t.Errorf("row %q", row)
		}
	}
	if !strings.Contains(r.stdout, "needs_hopper") || !strings.Contains(r.stdout, "dcgmi dmon -e 1001,1002,1005") {
		t.Errorf("the rows do not say why:\n%s", r.stdout)
	}
	log, err := os.ReadFile(debug)
	if err != nil || !strings.Contains(string(log), "util absent: needs_hopper") || !strings.Contains(string(log), "GetUtilizationRates: NOT_SUPPORTED (3)") {
		t.Errorf("debug log: %v\n%s", err, log)
	}
	if info, err := os.Stat(debug); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("debug log's mode: %v %v", info.Mode(), err)
	}
}

// TestSharedMemory: two compute instances of one GPU instance show the same memory, its own each.
func TestSharedMemory(t *testing.T) {
	t.Parallel()
	rows := newMachine(t, "h200-2ci").rows("-plain", "-i", "200", "-c", "1")
	if rows[0][10] != "16925" || rows[1][10] != "16925" || rows[0][2] != rows[1][2] || rows[0][3] == rows[1][3] {
		t.Errorf("rows %q", rows)
	}
}

// TestSilentDriver: ticks go on while the driver hangs, with rows of "-" that count, and -c ends.
func TestSilentDriver(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	l := m.start("-plain", "-i", "200", "-c", "20")
	l.await(`^ +0 .* gpm `)
	m.tell("hang nvmlDeviceGetComputeRunningProcesses_v3 s=3 times=1") // after memory was read
	m.tell("at 0.1s mig 0.0 used=41000")
	began := time.Now()
	l.await(`^# driver silent since `)
	l.await(`^ +0 +0 .* \? +- +- +- +- +- +- +- $`)
	l.await(`^# driver back after `)
	l.await(`^ +0 +0 .* gpm +54 +50 +38 +41000 `) // of now, not what was read before the silence
	if took := time.Since(began); took < 2500*time.Millisecond || took > 8*time.Second {
		t.Errorf("back after %v", took)
	}
	if code := l.end(nil).ExitCode(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

func TestDriverNeverAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 30 s")
	}
	t.Parallel()
	m := newMachine(t, "h200-580")
	m.tell("hang nvmlInit_v2 s=forever")
	began := time.Now()
	r := m.run("-plain", "-i", "200", "-c", "1")
	if took := time.Since(began); r.code != exitFailed || !strings.Contains(r.stderr, "does not answer") || took < firstAnswer || took > firstAnswer+15*time.Second {
		t.Errorf("exit %d after %v, stderr %q", r.code, time.Since(began), r.stderr)
	}
}

// TestDriverReloaded: the driver goes away and comes back; rows stay, without numbers meanwhile.
func TestDriverReloaded(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	l := m.start("-plain", "-i", "200")
	l.await(`^ +0 .* gpm `)
	m.tell("unload")
	l.await(`^# the driver is not loaded`)
	l.await(`^ +0 +0 .* \? +- +- +- +- +- +- +- $`)
	m.tell("reload")
	l.await(`^# driver answers again`)
	l.await(`^ +0 +0 .* gpm +[0-9]`)
	l.end(syscall.SIGTERM)
}

// TestSelection binds -id to devices in every spelling.
func TestSelection(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	all := m.rows("-plain", "-i", "200", "-c", "1", "-s", "i")
	uuid, gpuBus := all[1][7], all[1][5]
	for id, want := range map[string]int{
		"0": 4, "0.1": 1, uuid: 1, uuid[:12]: 1, "0.0,0.2": 2, gpuBus: 4, " 0.1 , 0.1 ": 1, "GPU-": 4,
	} {
		if rows := m.rows("-plain", "-i", "200", "-c", "1", "-id", id); len(rows) != want {
			t.Errorf("-id %q: %d rows, want %d", id, len(rows), want)
		}
	}
	r := m.run("-plain", "-c", "1", "-id", "7")
	if r.code != exitNoGPU || !strings.Contains(r.stderr, uuid) || r.stdout != "" {
		t.Errorf("no match: exit %d, stderr %q", r.code, r.stderr)
	}
}

// TestEstimate: with one instance running, the GPU's activity is that instance's; with two it is unknown.
func TestEstimate(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "estimate")
	l := m.start("-plain", "-i", "300")
	l.await(`^ +0 +0 .* busy +est +[1-9][0-9]* `)
	l.await(`^ +0 +1 .* free +est +0 `)
	m.tell("proc 0 pid=4000099 type=C mem=100 gi=2 ci=0")
	l.await(`^ +0 +0 .* used +- +- `)
	l.end(syscall.SIGTERM)
}

// TestCallBudget counts NVML calls of a steady tick on 8 GPUs with 7 instances each, everything shown.
func TestCallBudget(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "eight-seven")
	l := m.start("-plain", "-i", "1000", "-s", "umgxkpcve")
	for range 3 {
		l.await(`^ +7 +6 `)
	}
	before := m.stat("calls")
	l.await(`^ +7 +6 `)
	calls := m.stat("calls") - before
	l.end(syscall.SIGTERM)
	if budget := 8*16 + 56*8; calls > budget {
		t.Errorf("%d calls in a tick, budget %d", calls, budget)
	}
	t.Logf("%d calls in a tick, %.1f per GPU and instance", calls, float64(calls)/64)
}

const oneH100 = `
lib driver=580.95.05 cuda=13000 branch=590
gpu 0 name="NVIDIA H100 PCIe" uuid=GPU-1 pci=00000000:17:00.0 arch=9 cc=9.0 mig=on mem=81559 reserved=479 used=59 ecc=on sbe=0 dbe=0
mig 0.0 gi=1 ci=0 profile=3g.40gb mem=40448 used=900
mig 0.1 gi=2 ci=0 profile=3g.40gb mem=40448 used=26
gpm 0.0 1=61 2=55 10=20
gpm 0.1 1=0 2=0 10=0
`

// TestXID: an XID is told once, and stays as the last of its instance and its GPU.
func TestXID(t *testing.T) {
	t.Parallel()
	m := scriptMachine(t, oneH100)
	l := m.start("-plain", "-i", "200", "-s", "e")
	l.await(`^ +0 +0 .* 0 +0 $`)
	m.tell("xid 0 code=94 gi=2 ci=0")
	l.await(`^# gpu 0: XID 94`)
	l.await(`^# gpu 0\.1: XID 94`)
	l.await(`^ +0 +- +- +- +- +0 +0 +94 $`)
	l.await(`^ +0 +0 +1 +0 +3g\.40gb +- +0 +0 $`)
	l.await(`^ +0 +1 +2 +0 +3g\.40gb +- +0 +94 $`)
	l.await(`^ +0 +1 +2 +0 +3g\.40gb +- +0 +94 $`)
	l.end(syscall.SIGTERM)
}

// TestPCIe: byte counters where the driver has them; else one GPU's blocking call per tick, in turn, and
// only if somebody looks. A counter of 32 bits is no basis for a rate on a fast link.
func TestPCIe(t *testing.T) {
	t.Parallel()
	two := func(branch int, more string) string {
		text := fmt.Sprintf("lib driver=%d.1 cuda=13000 branch=%d\n", branch, branch)
		for n := range 2 {
			text += fmt.Sprintf("gpu %d name=\"NVIDIA L40S\" uuid=GPU-%d arch=8 cc=8.9 mem=46068 reserved=1 used=1 util=3 memutil=1 txbps=%d000000 rxbps=%d000000 %s\n", n, n, n+1, n+5, more)
		}
		return text
	}
	m := scriptMachine(t, two(590, ""))
	for i, row := range m.rows("-plain", "-i", "500", "-c", "2", "-s", "t") {
		if want := []string{"5", "1", "6", "2"}[i%2*2 : i%2*2+2]; row[5] != want[0] || row[6] != want[1] {
			t.Errorf("counters: row %q, want %q", row, want)
		}
	}
	if n := m.stat("nvmlDeviceGetPcieThroughput"); n != 0 {
		t.Errorf("%d blocking calls although there are counters", n)
	}
	m = scriptMachine(t, two(550, ""))
	rows := m.rows("-plain", "-i", "200", "-c", "4", "-s", "t")
	for i, row := range rows[2:] {
		if want := []string{"5", "1", "6", "2"}[i%2*2 : i%2*2+2]; row[5] != want[0] || row[6] != want[1] {
			t.Errorf("in turn: row %q, want %q", row, want)
		}
	}
	if n := m.stat("nvmlDeviceGetPcieThroughput"); n > 2*5 {
		t.Errorf("%d blocking calls in 5 ticks, want 2 per tick", n)
	}
	m.rows("-plain", "-i", "200", "-c", "1")
	if n := m.stat("nvmlDeviceGetPcieThroughput"); n > 2*5 {
		t.Error("blocking calls although nobody looks at PCIe")
	}
	m = scriptMachine(t, two(590, "pciewrap=1"))
	for _, row := range m.rows("-plain", "-i", "500", "-c", "3", "-s", "t")[4:] {
		if row[5] != "5" && row[5] != "6" {
			t.Errorf("wrapping counter: row %q", row)
		}
	}
	if n := m.stat("nvmlDeviceGetPcieThroughput"); n == 0 {
		t.Error("a wrapping counter was believed")
	}
}

// TestHeldIsNotFresh: after a passing failure the memory of the tick before is not this tick's, and rows
// do not show it.
func TestHeldIsNotFresh(t *testing.T) {
	t.Parallel()
	m := scriptMachine(t, oneH100)
	l := m.start("-plain", "-i", "200")
	l.await(`^ +0 +0 .* busy +gpm +61 +55 +20 +900 `)
	m.tell("fail nvmlDeviceGetMemoryInfo_v2 code=19 mig=0.0 times=2")
	l.await(`^ +0 +0 .* busy +gpm +61 +55 +20 +- +- +0 $`)
	l.await(`^ +0 +0 .* busy +gpm +61 +55 +20 +900 `)
	m.tell("fail nvmlDeviceGetComputeRunningProcesses_v3 code=999 times=3")
	l.await(`^ +0 +0 .* 40448 +- $`)
	l.await(`^ +0 +0 .* 40448 +0 $`)
	l.end(syscall.SIGTERM)
}

// TestProcessWithoutIDs: where the driver does not say on which instance a process runs, the instances
// are asked; what none of them claims is the GPU's alone.
func TestProcessWithoutIDs(t *testing.T) {
	t.Parallel()
	m := scriptMachine(t, oneH100+"proc 0 pid=4000001 type=C mem=100\nproc 0 pid=4000002 type=C mem=50 gi=2 ci=0\n")
	rows := m.rows("-procs", "-i", "200", "-c", "1")
	if len(rows) != 2 || rows[0][1] != "-" || rows[0][4] != "4000001" || rows[1][1] != "1" || rows[1][4] != "4000002" {
		t.Errorf("rows %q", rows)
	}
	rows = m.rows("-plain", "-i", "200", "-c", "1")
	if rows[0][12] != "0" || rows[1][12] != "1" {
		t.Errorf("rows %q", rows)
	}
}

// TestMIGModeSwitched while running: the GPU's row gives way to its instances' and back.
func TestMIGModeSwitched(t *testing.T) {
	t.Parallel()
	m := scriptMachine(t, strings.Replace(oneH100, "mig=on", "mig=off util=7 memutil=1", 1))
	l := m.start("-plain", "-i", "200")
	l.await(`^ +0 +- +- +- +- +busy +nvml +7 `)
	m.tell("migmode 0 on")
	l.await(`^ +0 +0 +1 +0 +3g\.40gb +busy +gpm +61 `)
	m.tell("gone mig 0.0\ngone mig 0.1")
	l.await(`^ +0 +- +- +- +- empty +- +- `)
	m.tell("migmode 0 off")
	l.await(`^ +0 +- +- +- +- +busy +nvml +7 `)
	l.end(syscall.SIGTERM)
	if n := m.stat("samples"); n != 0 {
		t.Errorf("%d samples are alive", n)
	}
}

// TestGPUVanishes: a GPU that is gone stays as lost until a new session no longer has it.
func TestGPUVanishes(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "two-whole")
	l := m.start("-plain", "-i", "200")
	l.await(`^ +1 .* busy `)
	m.tell("gone gpu 1")
	l.await(`^# gpu 1: gpu_lost`)
	l.await(`^ +1 +- +- +- +- +lost +- +- `)
	l.end(syscall.SIGTERM)
}

const twoH100 = `
lib driver=580.95.05 cuda=13000 branch=590
gpu 0 name="NVIDIA H100 PCIe" uuid=GPU-aaaa pci=00000000:17:00.0 arch=9 cc=9.0 mig=on mem=81559 reserved=479 used=2100
gpu 1 name="NVIDIA H100 PCIe" uuid=GPU-bbbb pci=00000000:18:00.0 arch=9 cc=9.0 mig=on mem=81559 reserved=479 used=9100
mig 0.0 gi=1 ci=0 profile=3g.40gb mem=40448 used=2026
mig 0.1 gi=2 ci=0 profile=3g.40gb mem=40448 used=26
mig 1.0 gi=1 ci=0 profile=3g.40gb mem=40448 used=9026
mig 1.1 gi=2 ci=0 profile=3g.40gb mem=40448 used=27
gpm 0.0 1=10 2=9 10=3
gpm 0.1 1=20 2=9 10=3
gpm 1.0 1=30 2=9 10=3
gpm 1.1 1=40 2=9 10=3
`

// TestFailingTopologyKeepsRows: whatever of the topology cannot be read, the rows stay, without numbers
// and without news of instances that never went.
func TestFailingTopologyKeepsRows(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		ends   string // utils of the last tick's rows
		inits  int    // at most
	}{
		"mode refused":                        {"at tick 3 fail nvmlDeviceGetMigMode gpu=1 code=4 times=1\n", "10 20 30 40", 1},
		"mode refused while an instance goes": {"at tick 3 gone mig 0.1\nat tick 3 fail nvmlDeviceGetMigMode gpu=1 code=999 times=2\n", "10 30 40", 2},
		"mode not supported for once":         {"at tick 3 gone mig 0.1\nat tick 3 fail nvmlDeviceGetMigMode gpu=1 code=3 times=2\n", "10 30 40", 2},
		"mode fails for ever":                 {"at tick 3 gone mig 0.1\nat tick 3 fail nvmlDeviceGetMigMode gpu=1 code=999\n", "10 - -", 2},
		"lost from the start":                 {"fail nvmlDeviceGetMigMode gpu=1 code=15\n", "10 20 -", 1},
		"count fails":                         {"at tick 3 gone mig 0.1\nat tick 3 fail nvmlDeviceGetCount_v2 code=4 times=1 every=2\n", "10 30 40", 4},
		"name fails":                          {"at tick 3 gone mig 0.1\nat tick 3 fail nvmlDeviceGetName mig=1.0 code=999 times=1\n", "10 30 40", 2},
		"ids fail":                            {"fail nvmlDeviceGetGpuInstanceId gpu=0 code=999 times=4\n", "10 20 30 40", 1},
		"version fails":                       {"fail nvmlSystemGetDriverVersion code=999 times=1\n", "10 20 30 40", 1},
		"slot fails":                          {"at tick 3 gone mig 0.1\nat tick 3 fail nvmlDeviceGetMigDeviceHandleByIndex mig=1.0 arg=1 code=999\nat tick 3 fail nvmlDeviceGetMigDeviceHandleByIndex gpu=1 arg=1 code=999\n", "10 30 -", 2},
		"GPU does not open":                   {"at tick 3 gone mig 0.1\nat tick 3 gpu 1 handle=4\n", "10 - -", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := scriptMachine(t, twoH100+c.script)
			r := m.run("-plain", "-i", "200", "-c", "12")
			rows := fieldsOf(r.stdout)
			n := len(strings.Fields(c.ends))
			if len(rows) < n {
				t.Fatalf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
			}
			var utils []string
			for _, row := range rows[len(rows)-n:] {
				utils = append(utils, row[7])
			}
			if got := strings.Join(utils, " "); got != c.ends || rows[len(rows)-n][0] != "0" {
				t.Errorf("last utils %s, want %s\n%s", got, c.ends, r.stdout)
			}
			if strings.Contains(r.stdout, "instance 1.") {
				t.Errorf("news of instances that did not change:\n%s", r.stdout)
			}
			if got := m.stat("nvmlInit_v2"); got > c.inits {
				t.Errorf("%d sessions, at most %d expected", got, c.inits)
			}
		})
	}
}

// TestSelectionIsOfADevice: -id by UUID stays with that GPU, not with the one that takes its index.
func TestSelectionIsOfADevice(t *testing.T) {
	t.Parallel()
	m := scriptMachine(t, twoH100+"at tick 3 gone gpu 0\nat tick 4 gone mig 1.1\n")
	r := m.run("-plain", "-i", "200", "-c", "6", "-id", "GPU-aaaa")
	if r.code != exitSilent || strings.Contains(r.stdout, "9026") || !strings.Contains(r.stdout, "# gpu 0 removed") {
		t.Errorf("exit %d\n%s", r.code, r.stdout)
	}
}

// TestChangeWhilePriming: an instance that is replaced again while its first GPM samples are taken, in the
// tick that found it replaced, shows nothing of either under the other's name.
func TestChangeWhilePriming(t *testing.T) {
	t.Parallel()
	text := oneH100
	for i, at := range []string{"tick 3", "2.09s", "2.2s"} { // the samples are taken in the first 110 ms of tick 3
		text += fmt.Sprintf("at %s gone mig 0.1\nat %s mig 0.1 gi=2 ci=0 profile=%dg.40gb mem=40448 used=%d00\nat %s gpm 0.1 1=%d\n", at, at, i+1, i+1, at, i+1)
	}
	m := scriptMachine(t, text)
	rows := fieldsOf(m.run("-plain", "-i", "1000", "-c", "4").stdout)
	for _, row := range rows {
		n := strings.TrimSuffix(row[4], "g.40gb")
		if row[1] == "1" && row[10] != "-" && row[10] != n+"00" && row[10] != "26" || row[1] == "1" && row[7] != "-" && row[7] != n && row[7] != "0" {
			t.Errorf("another's numbers: %q", row)
		}
	}
	if last := rows[len(rows)-1]; last[4] != "3g.40gb" || last[7] != "3" || last[10] != "300" {
		t.Errorf("the last one does not show: %q", last)
	}
}

// TestRateOverTrueTime: a call that takes long before a counter is read must not bend the counter's rate.
func TestRateOverTrueTime(t *testing.T) {
	t.Parallel()
	m := scriptMachine(t, `
lib driver=580.95.05 cuda=13000 branch=590
gpu 0 name="NVIDIA L40S" uuid=GPU-0 arch=8 cc=8.9 mem=46068 reserved=1 used=1 util=3 memutil=1 txbps=100000000 rxbps=100000000
at tick 4 hang nvmlDeviceGetMemoryInfo_v2 s=1.2 times=1
`)
	for _, row := range m.rows("-plain", "-i", "500", "-c", "5", "-s", "t") {
		for _, rate := range row[5:7] {
			if n, err := strconv.Atoi(rate); err != nil || n < 90 || n > 110 {
				t.Errorf("row %q, want about 100", row)
			}
		}
	}
}

// TestSignalsGetThrough: whatever holds the loop or the sampler, TERM ends the program.
func TestSignalsGetThrough(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	l := m.start("-plain", "-i", "300")
	l.await(`^ +0 .* gpm `)
	m.tell("hang nvmlShutdown s=forever")
	for range 40 {
		_ = l.cmd.Process.Signal(syscall.SIGUSR1)
		time.Sleep(5 * time.Millisecond)
	}
	began := time.Now()
	l.end(syscall.SIGTERM)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("TERM took %v", took)
	}

	m = newMachine(t, "eight-seven")
	cmd := m.command("-plain", "-i", "200")
	out, err := cmd.StdoutPipe() // that nobody reads
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Second) // 64 KiB are full by then
	_ = cmd.Process.Signal(syscall.SIGTERM)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		_ = cmd.Process.Kill()
		t.Error("TERM does not end a program whose reader is stalled")
	}
}

// TestOddPaths: a folder in LD_LIBRARY_PATH may have any name, and files that would hang are refused.
func TestOddPaths(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	odd := filepath.Join(t.TempDir(), "line\nbreak \"quoted")
	if err := os.Rename(double(t, "BRANCH=535", "ALWAYS_INIT=999"), odd); err != nil {
		t.Fatal(err)
	}
	m.env = []string{"LD_LIBRARY_PATH=" + odd + ":" + m.lib}
	if rows := m.rows("-plain", "-i", "200", "-c", "1"); len(rows) != 4 {
		t.Errorf("rows %q", rows)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"-f", "-debug"} {
		if r := m.run("-plain", "-c", "1", flag, fifo); r.code != exitFailed {
			t.Errorf("%s on a FIFO without a reader: exit %d, %q", flag, r.code, r.stderr)
		}
	}
}

// TestSlowDriver: samples slower than the interval are rows when they come; a run that had to be ended
// before -c was reached says so.
func TestSlowDriver(t *testing.T) {
	t.Parallel()
	m := scriptMachine(t, oneH100+"lat nvmlDeviceGetMigMode us=300000\n")
	r := m.run("-plain", "-i", "200", "-c", "100")
	if rows := fieldsOf(r.stdout); r.code != exitSilent || len(rows) < 20 || rows[len(rows)-2][7] != "61" {
		t.Errorf("exit %d\n%s", r.code, r.stdout)
	}
}

// TestChaos: any call may fail with any code, instances come and go. The rows must stay rows, and the
// double must have nothing to complain of; it is asked in scriptMachine.
func TestChaos(t *testing.T) {
	for seed := 1; seed <= 4; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			text := twoH100 + fmt.Sprintf("at tick 2 chaos seed=%d rate=%d hard=1\n", seed, 15*seed)
			for i := range 12 {
				text += fmt.Sprintf("at tick %d gone mig 0.1\nat tick %d mig 0.1 gi=2 ci=0 profile=%dg.10gb mem=9984 used=%d00 handle=1\n", 2*i+3, 2*i+4, i+1, i+1)
			}
			m := scriptMachine(t, text)
			r := m.run("-plain", "-i", "200", "-c", "25", "-s", "umgpv")
			if r.code != 0 && r.code != exitSilent || r.stderr != "" {
				t.Errorf("exit %d, stderr %q", r.code, r.stderr)
			}
			for _, row := range fieldsOf(r.stdout) {
				if len(row) != 22 {
					t.Errorf("%d fields: %q", len(row), row)
					continue
				}
				// The profile's number times 100 is what an incarnation of 0.1 has in use.
				n := strings.TrimSuffix(row[4], "g.10gb")
				if row[0] == "0" && row[1] == "1" && n != row[4] && row[10] != "-" && row[10] != n+"00" {
					t.Errorf("another's memory: %q", row)
				}
			}
		})
	}
}

// TestFaultsOfOneCall: an answer that a call may give has no effect beyond what it says.
func TestFaultsOfOneCall(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		args   string
		ends   string // states of the last tick's rows
		code   int
	}{
		"event wait says lost":        {"at tick 3 fail nvmlEventSetWait_v2 code=15 times=1\nat tick 5 gone mig 1.1\n", "-s ue", "mig busy busy mig busy", 0},
		"slots unreadable from start": {"fail nvmlDeviceGetMigDeviceHandleByIndex gpu=1 code=999\n", "-s u", "busy busy used", 4},
		"UUID refused for once":       {"at tick 4 fail nvmlDeviceGetUUID mig=0.1 code=2 times=1\n", "-s u", "busy busy busy busy", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := scriptMachine(t, twoH100+c.script)
			r := m.run(append([]string{"-plain", "-i", "200", "-c", "8"}, strings.Fields(c.args)...)...)
			rows := fieldsOf(r.stdout)
			var states []string
			for _, row := range rows[max(len(rows)-len(strings.Fields(c.ends)), 0):] {
				states = append(states, row[5])
			}
			if got := strings.Join(states, " "); got != c.ends || r.code != c.code {
				t.Errorf("exit %d, states %s, want %s\n%s", r.code, got, c.ends, r.stdout)
			}
		})
	}
}

// TestHiddenSibling: a container that sees one compute instance of a GPU instance must not be shown the mean
// of all of them.
func TestHiddenSibling(t *testing.T) {
	t.Parallel()
	m := scriptMachine(t, `
lib driver=580.95.05 cuda=13000 branch=590
gpu 0 name="NVIDIA H200" uuid=GPU-1 arch=9 cc=9.0 mig=on perm=instance grant=0 mem=143771 reserved=650 used=16950
mig 0.0 gi=2 ci=0 profile=1c.3g.71gb slices=3/1 mem=71424 used=5000
mig 0.1 gi=2 ci=1 profile=2c.3g.71gb slices=3/2 mem=71424 used=5000
gpm 0.0 1=12 2=11 10=5
gpm 0.1 1=88 2=80 10=40
`)
	rows := m.rows("-plain", "-i", "200", "-c", "1")
	if len(rows) != 1 || rows[0][7] != "12" || rows[0][8] != "11" {
		t.Errorf("rows %q, want 12 and 11", rows)
	}
}

// TestGuardAfterFailedGPMCall: also a GPM call that fails may have broken the memory readings.
func TestGuardAfterFailedGPMCall(t *testing.T) {
	t.Parallel()
	m := scriptMachine(t, oneH100+"inuse on\nfail nvmlGpmMigSampleGet code=19\n")
	r := m.run("-plain", "-i", "200", "-c", "2")
	for _, row := range fieldsOf(r.stdout) {
		if row[7] != "-" || row[10] == "-" {
			t.Errorf("row %q\n%s", row, r.stdout)
		}
	}
}

// TestReplacedByItsLike: an instance makes way, within a tick, for one with the same placement and so with the
// same UUID, ids and name. Only an event tells; no GPM difference may span both, and neighbours go on.
func TestReplacedByItsLike(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	m.tell("at tick 4 gone mig 0.0\nat tick 4 mig 0.0 gi=2 ci=0 profile=3g.71gb sm=60 slices=3/3 ce=3 dec=3 jpg=3 mem=71424 used=12\nat tick 4 gpm 0.0 1=7 2=6 10=5")
	rows := m.rows("-plain", "-i", "300", "-c", "5")
	for i, want := range []string{"54", "54", "7", "7", "7"} {
		if row := rows[4*i]; row[7] != want {
			t.Errorf("tick %d: %q, want util %s", i, row, want)
		}
		if row := rows[4*i+1]; row[7] != "0" {
			t.Errorf("tick %d: the neighbour: %q", i, row)
		}
	}
	if n := m.stat("nvmlInit_v2"); n != 2 {
		t.Errorf("%d sessions", n)
	}
}

// TestDestroyedButAnswering: handles of destroyed instances were once seen to answer until the session ended.
func TestDestroyedButAnswering(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	m.tell("gpu 0 ancient=1\nat tick 4 gone mig 0.3")
	rows := m.rows("-plain", "-i", "300", "-c", "4")
	if last := rows[len(rows)-1]; len(rows) != 4+4+3+3 || last[1] != "2" {
		t.Errorf("%d rows, last %q", len(rows), last)
	}
}

// TestDriverUpgraded: the module is replaced by one of another version, which the library of this process
// cannot speak to. The program takes its own place with the new library, and goes on counting rows.
func TestDriverUpgraded(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"-plain", "-csv"} {
		m := newMachine(t, "h200-580")
		log := filepath.Join(t.TempDir(), "log")
		l := m.start(mode, "-i", "300", "-c", "50", "-log", log)
		l.await("3g.71gb")
		m.tell("unload code=1")
		l.await("3g.71gb[ ,]+[?]")
		m.tell("reload\nlib init=18 stale=1")
		time.Sleep(4 * time.Second) // the first new process finds no driver either
		m.tell("lib init=0 driver=590.1")
		rest := []string{l.await("3g.71gb[ ,]+busy")}
		if comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", l.cmd.Process.Pid)); !strings.HasPrefix(string(comm), "mig-gpu-mon") {
			t.Errorf("pkill does not find it: it is called %s", comm)
		}
		for line := range l.lines {
			rest = append(rest, line)
		}
		state := l.end(nil)
		data, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(data), "\n"); state.ExitCode() != 0 || n != 50 || !strings.Contains(string(data), `"driver":"590.1"`) ||
			!strings.Contains(string(data), `"fault":"driver_replaced"`) {
			t.Errorf("%s: %v, stderr %q, %d records", mode, state, l.errs.String(), n)
		}
		if mode == "-csv" && slices.ContainsFunc(rest, func(s string) bool { return strings.HasPrefix(s, "time,") }) {
			t.Errorf("a second header: %q", rest)
		}
		if m.stat("samples")+m.stat("sessions") != 0 {
			t.Errorf("%d samples, %d sessions are held at the end", m.stat("samples"), m.stat("sessions"))
		}
	}
}

// TestDriverUpgradedForGood: a run with -c ends in time although no process finds a driver any more.
func TestDriverUpgradedForGood(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	l := m.start("-plain", "-i", "300", "-c", "10")
	l.await("3g.71gb")
	m.tell("unload code=1")
	l.await("3g.71gb +[?]")
	m.tell("reload\nlib init=18 stale=1")
	began := time.Now()
	for range l.lines {
	}
	if state := l.end(nil); state.ExitCode() != exitSilent || time.Since(began) > 15*time.Second {
		t.Errorf("%v after %v, stderr %q", state, time.Since(began), l.errs.String())
	}
}

// TestDashboardDriverUpgraded: the same on the screen, which is left and taken again.
func TestDashboardDriverUpgraded(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	p, cmd := startDashboard(t, m, 160, 45)
	p.eventually("values", func() bool { return strings.Contains(screenText(p, 160, 45), "util 54% gpm") })
	m.tell("unload code=1")
	p.eventually("it is gone", func() bool { return strings.Contains(screenText(p, 160, 45), "driver is not loaded") })
	m.tell("reload\nlib init=18 stale=1")
	p.eventually("the reason", func() bool { return strings.Contains(screenText(p, 160, 45), "driver was upgraded") })
	time.Sleep(3 * time.Second) // as long as there is no driver for it, no new process begins
	if strings.Contains(p.output(), "\x1b[?1049l") {
		t.Error("the screen was left too early")
	}
	m.tell("lib init=0 driver=590.1")
	p.eventually("the new driver", func() bool {
		s := screenText(p, 160, 45)
		return strings.Contains(s, "driver 590.1") && strings.Contains(s, "util 54% gpm")
	})
	p.send("q")
	if code := p.exits(cmd); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// silences are calls that may hang, each at another point of a tick or of a session.
var silences = []string{
	"nvmlDeviceGetCount_v2", "nvmlDeviceGetMigMode", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3",
	"nvmlEventSetWait_v2", "nvmlGpmMigSampleGet", "nvmlGpmMetricsGet",
}

// TestSilences: whatever call hangs, a tick without an answer is one row of "-" per instance, never two ticks' at
// once, and when the driver answers again so do the rows.
func TestSilences(t *testing.T) {
	t.Parallel()
	for _, call := range silences {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, "h200-580")
			l := m.start("-json", "-i", "500")
			l.await(`"utilization_pct":54`)
			m.tell("hang " + call + " s=4 times=1")
			seen := []string{l.await(`"notes":\["driver silent since`)}
			for !strings.Contains(seen[len(seen)-1], `"utilization_pct":54`) && len(seen) < 50 {
				seen = append(seen, l.await("."))
			}
			l.end(syscall.SIGTERM)
			if len(seen) < 4 || len(seen) > 10 || !strings.Contains(seen[len(seen)-1], "driver back after") {
				t.Errorf("%d records:\n%s", len(seen), strings.Join(seen, "\n"))
			}
			var last, s snapshot
			for i, line := range seen {
				if err := decode([]byte(line), &s); err != nil {
					t.Fatal(err)
				}
				if d := s.at.Sub(last.at); i > 0 && d < 250*time.Millisecond {
					t.Errorf("record %d comes %v after the one before", i, d)
				}
				if silent := s.dev[1].fault == driverSilent; silent != (i < len(seen)-1) || silent && s.dev[1].v[mMemUsed].from != absent {
					t.Errorf("record %d: %s, memory %+v", i, s.dev[1].fault, s.dev[1].v[mMemUsed])
				}
				last.at = s.at
			}
		})
	}
}

// TestDashboardSilences: whatever call hangs for ever, keys work, the age of the data is told, and q ends it.
func TestDashboardSilences(t *testing.T) {
	t.Parallel()
	for _, call := range append(silences, "nvmlShutdown") {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, "h200-580")
			p, cmd := startDashboard(t, m, 160, 45, "-i", "300")
			text := func() string { return screenText(p, 160, 45) }
			p.eventually("values", func() bool { return strings.Contains(text(), "util 54% gpm") })
			m.tell("hang " + call + " s=forever")
			if call == "nvmlShutdown" {
				p.send("p")
				p.eventually("that it is not released yet", func() bool { return strings.Contains(text(), "releasing: the driver has the session still") })
			} else {
				p.eventually("silence", func() bool {
					return strings.Contains(text(), "driver silent for") && strings.Contains(text(), "util 54*%")
				})
			}
			p.send("?")
			p.eventually("the help", func() bool { return strings.Contains(text(), "Ctrl-L repaint") })
			p.resize(100, 30)
			p.eventually("the other size", func() bool {
				out := p.output()
				return strings.Contains(out[strings.LastIndex(out, "\x1b[2J"):], "\x1b[30;1H")
			})
			p.send("xq")
			began := time.Now()
			if code := p.exits(cmd); code != 0 || time.Since(began) > 2*time.Second {
				t.Errorf("exit %d after %v", code, time.Since(began))
			}
		})
	}
}

// TestSessionRefused: when no session can be had any more (the module gone, or a container that lost its device
// rules), rows say why and have no numbers, and a later session has them again.
func TestSessionRefused(t *testing.T) {
	t.Parallel()
	for code, why := range map[string]string{"1": "driver_gone", "4": "no_permission", "9": "driver_gone", "999": "unknown_error"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, "h200-580")
			l := m.start("-json", "-i", "300")
			l.await(`"utilization_pct":54`)
			m.tell("fail nvmlInit_v2 code=" + code + " times=2\nfail nvmlDeviceGetCount_v2 code=1 times=1")
			line := l.await(`"fault":"` + why)
			if strings.Contains(line, `"vram_used_bytes":4`) {
				t.Errorf("numbers without a session: %s", line)
			}
			l.await("driver answers again")
			l.await(`"utilization_pct":54`)
			l.end(syscall.SIGTERM)
		})
	}
}

// TestResetRequired: such a GPU is lost, with its own reason, and comes back after the reset.
func TestResetRequired(t *testing.T) {
	t.Parallel()
	m := scriptMachine(t, twoH100)
	l := m.start("-plain", "-i", "300", "-s", "umv")
	l.await("^ +1 +1 .* busy +gpm +40 ")
	m.tell("resetreq 1")
	l.await("# gpu 1: reset_required: the GPU needs a reset")
	l.await("^ +1 +- .* lost .* reset_required $")
	l.await("^ +1 +1 +2 +0 +3g.40gb +lost +- +- +- +- +- +- +- +- $")
	m.tell("unlost 1")
	l.await("# gpu 1: answers again")
	l.await("^ +1 +1 .* busy +gpm +40 ")
	l.end(syscall.SIGTERM)
}

// TestMoreGPUs: a GPU that is added while the program runs has rows from the next session on.
func TestMoreGPUs(t *testing.T) {
	t.Parallel()
	m := scriptMachine(t, twoH100)
	l := m.start("-plain", "-i", "300")
	l.await("^ +1 +1 .* busy +gpm +40 ")
	m.tell(`gpu 2 name="NVIDIA H100" uuid=GPU-cccc pci=00000000:19:00.0 arch=9 cc=9.0 mig=off mem=81559 reserved=479 used=700 util=12`)
	_ = l.cmd.Process.Signal(syscall.SIGUSR1) // the driver tells a session of what was there when it began
	_ = l.cmd.Process.Signal(syscall.SIGUSR2)
	l.await("^ +2 +- +- +- +- +busy +nvml +12 ")
	l.await("^ +1 +1 .* busy +gpm +40 ")
	l.end(syscall.SIGTERM)
}

// TestThousandsOfProcesses: all are listed and counted, and cost the program no more than they must.
func TestThousandsOfProcesses(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString(oneH100)
	for i := range 2000 {
		fmt.Fprintf(&text, "proc 0 pid=%d type=C mem=%d gi=%d ci=0\n", 5_000_000+i, i%900, 1+i%2)
	}
	m := scriptMachine(t, text.String())
	rows := m.rows("-procs", "-i", "1500", "-c", "1")
	if len(rows) != 2000 || rows[0][8] != "898" || rows[0][5] != "C" {
		t.Errorf("%d rows, first %q", len(rows), rows[0])
	}
	if rows := m.rows("-plain", "-i", "1500", "-c", "1"); rows[0][12] != "1000" {
		t.Errorf("%q", rows[0])
	}
	p, cmd := startDashboard(t, m, 160, 45)
	p.eventually("the list", func() bool { return strings.Contains(screenText(p, 160, 45), "Top processes 1000") })
	p.send("q")
	p.exits(cmd)
}

// TestHostileDriver: nothing but visible text of a driver's strings gets anywhere.
func TestHostileDriver(t *testing.T) {
	t.Parallel()
	evil := "\x1b[2J\x1b]0;pwned\a\u009b31m\u202e"
	m := scriptMachine(t, "lib driver=580."+evil+" cuda=13000 branch=590\n"+
		`gpu 0 name="NVIDIA `+evil+`" uuid=GPU-`+evil+` arch=9 cc=9.0 mig=on mem=81559 used=700`+"\n"+
		"mig 0.0 gi=1 ci=0 profile=3g"+evil+" uuid=MIG-"+evil+" mem=40448 used=9\n")
	dir := t.TempDir()
	var all strings.Builder
	for _, mode := range []string{"-plain", "-csv", "-procs", "-json"} {
		r := m.run(mode, "-i", "200", "-c", "1", "-log", dir+"/log", "-prom", dir+"/x.prom", "-debug", dir+"/debug")
		all.WriteString(r.stdout + r.stderr)
	}
	r := m.run("-id", "nothing", "-c", "1")
	all.WriteString(r.stdout + r.stderr)
	for _, file := range []string{"log", "x.prom", "debug"} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Error(err)
		}
		all.Write(data)
	}
	if s := all.String(); strings.ContainsAny(s, "\x1b\a\u009b\u202e") || !strings.Contains(s, "?[2J?]0;pwned") {
		t.Errorf("%q", s)
	}
	p, cmd := startDashboard(t, m, 160, 45)
	p.eventually("the name", func() bool { return strings.Contains(screenText(p, 160, 45), "]0;pwned") })
	p.send("q")
	p.exits(cmd)
	if out := p.output(); strings.Contains(out, "\x1b]0;") || strings.ContainsAny(out, "\a\u009b\u202e") {
		t.Errorf("%q", out)
	}
}

// TestSetuid: a program with more rights than its user takes no library from that user. Needs root.
func TestSetuid(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make a setuid copy")
	}
	dir, err := os.MkdirTemp("", "mig-gpu-mon-setuid-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil || fs.Flags&2 != 0 { // ST_NOSUID
		t.Skip("the temporary folder is mounted nosuid")
	}
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "mig-gpu-mon")
	if err := errors.Join(os.WriteFile(file, program, 0o755), os.Chmod(dir, 0o755), os.Chmod(file, os.ModeSetuid|0o755)); err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, "h200-580")
	cmd := m.command("-plain", "-i", "200", "-c", "1", "-nvml-path", m.lib+"/libnvidia-ml.so.1")
	cmd.Path = file
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run()
	if s := out.String(); cmd.ProcessState.ExitCode() != exitNoGPU || !strings.Contains(s, "-nvml-path and LD_LIBRARY_PATH are ignored") || strings.Contains(s, "3g.71gb") {
		t.Errorf("%v: %s", cmd.ProcessState, s)
	}
}

// TestUpgradeWaitsForTheAdministrator: while released, no process takes this one's place and no session is
// opened; and -id stays with the devices that it was bound to, not with those that took their numbers.
func TestUpgradeWaitsForTheAdministrator(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	l := m.start("-plain", "-i", "300", "-id", "0.1")
	l.await("2g.35gb  held")
	m.tell("unload code=1")
	l.await("2g.35gb +[?]")
	m.tell("reload\nlib init=18 stale=1")
	l.await("# the driver was upgraded")
	_ = l.cmd.Process.Signal(syscall.SIGUSR1)
	l.await("# released")
	m.tell("lib init=0 driver=590.1\ngone mig 0.1\nmig 0.1 gi=7 ci=0 profile=1g.18gb mem=16384 used=5000")
	for range 15 {
		if line := l.await("."); strings.Contains(line, "590.1") {
			t.Errorf("a new process although released: %s", line)
		}
	}
	if n := m.stat("sessions"); n != 0 {
		t.Errorf("%d sessions while released", n)
	}
	_ = l.cmd.Process.Signal(syscall.SIGUSR2)
	l.await("driver 590.1")
	m.tell("gone mig 0.1\nmig 0.1 gi=3 ci=0 profile=2g.35gb sm=32 slices=2/2 mem=33280 used=777")
	if line := l.await("^ +0 +1 "); !strings.Contains(line, "2g.35gb") {
		t.Errorf("another instance took its row: %s", line)
	}
	l.end(syscall.SIGTERM)
}

// TestReleaseWhileOutputIsBlocked: a pipe that nobody reads keeps rows, not the driver.
func TestReleaseWhileOutputIsBlocked(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	cmd := m.command("-plain", "-i", "200", "-s", "umgxkwpctvei")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, _ = unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096)
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	time.Sleep(3 * time.Second)
	if m.stat("sessions") != 1 {
		t.Fatal("no session")
	}
	_ = cmd.Process.Signal(syscall.SIGUSR1)
	await(t, "the release", func() bool { return m.stat("sessions") == 0 && m.stat("samples") == 0 })
}

// TestDashboardResumes: what was read before a release is shown as old until something was answered after it.
func TestDashboardResumes(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	p, cmd := startDashboard(t, m, 160, 45, "-i", "20s")
	text := func() string { return screenText(p, 160, 45) }
	p.eventually("values", func() bool { return strings.Contains(text(), "util 54% gpm") })
	p.send("p")
	p.eventually("released", func() bool { return strings.Contains(text(), "RELEASED") })
	m.tell("hang nvmlInit_v2 s=3 times=1")
	p.send("p")
	p.eventually("resuming, with old numbers", func() bool {
		return strings.Contains(text(), "resuming") && strings.Contains(text(), "util 54*%")
	})
	p.eventually("new numbers, long before the next tick", func() bool { return strings.Contains(text(), "util 54% gpm") })
	p.send("q")
	p.exits(cmd)
}

// TestQuit: SIGQUIT ends it as a signal does, without a trace.
func TestQuit(t *testing.T) {
	t.Parallel()
	l := newMachine(t, "h200-580").start("-plain", "-i", "300")
	l.await("3g.71gb")
	if state := l.end(syscall.SIGQUIT); state.ExitCode() != 131 || l.errs.String() != "" {
		t.Errorf("%v, stderr %q", state, l.errs.String())
	}
}

// TestUpgradeProbesEnd: those who look for the new driver end with the wish for it, though they hang in it.
func TestUpgradeProbesEnd(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	l := m.start("-plain", "-i", "300")
	l.await("3g.71gb  busy")
	m.tell("unload code=1")
	l.await("3g.71gb +[?]")
	m.tell("reload\nlib stale=1 initdelay=60000")
	children := func() string {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", l.cmd.Process.Pid, l.cmd.Process.Pid))
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", l.cmd.Process.Pid))
		for _, task := range tasks {
			more, _ := os.ReadFile(task)
			text = append(text, more...)
		}
		return strings.TrimSpace(string(text))
	}
	await(t, "a child that hangs", func() bool { return children() != "" })
	_ = l.cmd.Process.Signal(syscall.SIGUSR1)
	l.await("# released")
	await(t, "its end", func() bool { return children() == "" })
	_ = l.cmd.Process.Signal(syscall.SIGUSR2)
	await(t, "another child", func() bool { return children() != "" })
	child := strings.Fields(children())[0]
	l.end(syscall.SIGTERM)
	await(t, "its end with the program", func() bool {
		stat, err := os.ReadFile("/proc/" + child + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

// TestBlindTick: an instance makes way for its like while the event that tells of it cannot be asked for: there is
// no activity rather than that of two instances. A driver that never answers costs it for ten ticks only.
func TestBlindTick(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h200-580")
	m.tell("at tick 4 fail nvmlEventSetWait_v2 code=999 times=3\nat tick 4 gone mig 0.0\n" +
		"at tick 4 mig 0.0 gi=2 ci=0 profile=3g.71gb sm=60 slices=3/3 ce=3 dec=3 jpg=3 mem=71424 used=12\nat tick 4 gpm 0.0 1=7 2=6 10=5")
	rows := m.rows("-plain", "-i", "300", "-c", "7")
	var utils []string
	for i := 0; i < len(rows); i += 4 {
		utils = append(utils, rows[i][7])
	}
	if got := strings.Join(utils, " "); got != "54 54 - - 7 7 7" && got != "54 54 - 7 7 7 7" {
		t.Errorf("util %s", got)
	}
	// A refusal is not believed for longer than it is given: the next event is heard.
	m = newMachine(t, "h200-580")
	m.tell("at tick 3 fail nvmlEventSetWait_v2 code=3 times=2\nat tick 5 gone mig 0.0\n" +
		"at tick 5 mig 0.0 gi=2 ci=0 profile=3g.71gb sm=60 slices=3/3 ce=3 dec=3 jpg=3 mem=71424 used=12\nat tick 5 gpm 0.0 1=7 2=6 10=5")
	utils = nil
	for i, row := range m.rows("-plain", "-i", "300", "-c", "6") {
		if i%4 == 0 {
			utils = append(utils, row[7])
		}
	}
	if got := strings.Join(utils, " "); got != "54 - 54 7 7 7" {
		t.Errorf("util %s", got)
	}
	m = newMachine(t, "h200-580")
	m.tell("fail nvmlEventSetWait_v2 code=999")
	if rows := m.rows("-plain", "-i", "200", "-c", "12"); rows[0][7] != "-" || rows[len(rows)-4][7] != "54" {
		t.Errorf("%q", rows)
	}
}
