package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The tests see NVML only through the true loader: the double in testdata/fakenvml is compiled once per
// driver branch, and the program, which is this test binary run again, finds it by LD_LIBRARY_PATH.

var update = flag.Bool("update", false, "rewrite the golden files")

const runAsProgram = "MIG_GPU_MON_TEST_RUN"

var workDir string // for doubles, removed at the end

func TestMain(m *testing.M) {
	if os.Getenv(runAsProgram) != "" {
		if root := os.Getenv("MIG_GPU_MON_TEST_PROC"); root != "" {
			procRoot = root
		}
		version = "test"
		switch os.Getenv("MIG_GPU_MON_TEST_PANIC") {
		case "goroutine":
			time.AfterFunc(time.Second, func() { guard(func() { panic("test") }) })
		case "loop":
			testOnlyTick = func() { panic("test") }
		}
		if d, err := time.ParseDuration(os.Getenv("MIG_GPU_MON_TEST_INTERVAL")); err == nil {
			minInterval = d
		}
		if file := os.Getenv("MIG_GPU_MON_TEST_HELD"); file != "" {
			n := 0
			testOnlyTick = func() {
				if n++; n%100 == 0 {
					_ = os.WriteFile(file, []byte(strconv.Itoa(runtime.NumGoroutine())), 0o600)
				}
			}
		}
		main()
	}
	flag.Parse()
	dir, err := os.MkdirTemp("", "mig-gpu-mon-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	workDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

var doubles sync.Map // variant -> func() (dir, error)

// double is a folder with a libnvidia-ml.so.1 compiled with the given -D flags.
func double(t testing.TB, defines ...string) string {
	t.Helper()
	key := strings.Join(defines, " ")
	build, _ := doubles.LoadOrStore(key, sync.OnceValues(func() (string, error) { return compileDouble(defines) }))
	dir, err := build.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func compileDouble(defines []string) (string, error) {
	header, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		return "", fmt.Errorf("finding go-nvml: %w", err)
	}
	// Read here so that go test's cache knows the file.
	source, err := os.ReadFile("testdata/fakenvml/fakenvml.c")
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(workDir, "double-")
	if err != nil {
		return "", err
	}
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	args := []string{
		"-x", "c", "-shared", "-fPIC", "-O1", "-g", "-Wall", "-Wextra", "-Werror",
		"-I", filepath.Join(strings.TrimSpace(string(header)), "pkg/nvml"),
		"-o", filepath.Join(dir, "libnvidia-ml.so.1"), "-Wl,-soname,libnvidia-ml.so.1",
	}
	for _, d := range defines {
		args = append(args, "-D"+d)
	}
	cmd := exec.Command(cc, append(args, "-", "-lpthread")...)
	cmd.Stdin = bytes.NewReader(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling the double: %w\n%s", err, out)
	}
	return dir, nil
}

var branchLine = regexp.MustCompile(`(?m)^\s*lib\b.*\bbranch=(\d+)`)

// machine is one scenario and everything that a run against it leaves behind.
type machine struct {
	t          testing.TB
	lib        string // folder of the double
	scenario   string
	control    string
	stats      string
	violations string
	env        []string
}

// newMachine is the machine of testdata/scenarios/name.txt.
func newMachine(t testing.TB, name string) *machine {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata/scenarios", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return scriptMachine(t, string(text))
}

// scriptMachine is a machine of a scenario given as text. When the test ends, the double must have
// nothing to complain of.
func scriptMachine(t testing.TB, text string, defines ...string) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{
		t: t, scenario: filepath.Join(dir, "scenario"), control: filepath.Join(dir, "control"),
		stats: filepath.Join(dir, "stats"), violations: filepath.Join(dir, "violations"),
	}
	branch := "BRANCH=595"
	if f := branchLine.FindStringSubmatch(text); f != nil {
		branch = "BRANCH=" + f[1]
	}
	m.lib = double(t, append([]string{branch}, defines...)...)
	for file, content := range map[string]string{m.scenario: text, m.control: ""} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m.env = []string{"LD_LIBRARY_PATH=" + m.lib}
	t.Cleanup(func() {
		if v, err := os.ReadFile(m.violations); err == nil && len(v) > 0 && !t.Failed() {
			t.Errorf("the double complains:\n%s", v)
		}
	})
	return m
}

// command is the program with args on this machine.
func (m *machine) command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), runAsProgram+"=1", "TZ=UTC", "FAKENVML_SCENARIO="+m.scenario, "FAKENVML_CONTROL="+m.control,
		"FAKENVML_STATS="+m.stats, "FAKENVML_VIOLATIONS="+m.violations)
	cmd.Env = append(cmd.Env, m.env...)
	return cmd
}

// result is what a run of the program said.
type result struct {
	stdout, stderr string
	code           int
}

func (m *machine) run(args ...string) result {
	m.t.Helper()
	var out, errs bytes.Buffer
	cmd := m.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// rows is run, of which only the exit code 0 and the rows matter: the lines that are no comments, split
// into fields.
func (m *machine) rows(args ...string) [][]string {
	m.t.Helper()
	r := m.run(args...)
	if r.code != 0 || r.stderr != "" {
		m.t.Fatalf("exit %d, stderr %q, stdout:\n%s", r.code, r.stderr, r.stdout)
	}
	return fieldsOf(r.stdout)
}

func fieldsOf(stdout string) [][]string {
	var rows [][]string
	for line := range strings.Lines(stdout) {
		if !strings.HasPrefix(line, "#") {
			rows = append(rows, strings.Fields(line))
		}
	}
	return rows
}

// stat reads one of the double's counters: calls of a function, or a gauge like samples.
func (m *machine) stat(name string) int {
	m.t.Helper()
	return statIn(m.t, m.stats, name)
}

func statIn(t testing.TB, file, name string) int {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for ; len(data) >= 64; data = data[64:] {
		if string(bytes.TrimRight(data[:56], "\x00")) == name {
			return int(binary.LittleEndian.Uint64(data[56:64]))
		}
	}
	return 0
}

// tell gives the double statements in the middle of a run.
func (m *machine) tell(lines string) {
	m.t.Helper()
	f, err := os.OpenFile(m.control, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(lines + "\n"); err != nil {
		m.t.Fatal(err)
	}
}

// live is the program running, its output read line by line.
type live struct {
	t     testing.TB
	cmd   *exec.Cmd
	lines chan string
	errs  lockedBuffer
}

// lockedBuffer may be read while a process writes to it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (m *machine) start(args ...string) *live {
	m.t.Helper()
	cmd := m.command(args...)
	l := &live{t: m.t, cmd: cmd, lines: make(chan string, 1000)}
	cmd.Stderr = &l.errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	go func() {
		var rest []byte
		buf := make([]byte, 64<<10)
		for {
			n, err := out.Read(buf)
			rest = append(rest, buf[:n]...)
			for {
				line, after, ok := bytes.Cut(rest, []byte("\n"))
				if !ok {
					break
				}
				l.lines <- string(line)
				rest = after
			}
			if err != nil {
				close(l.lines)
				return
			}
		}
	}()
	m.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return l
}

// await reads lines until one matches and returns it.
func (l *live) await(pattern string) string {
	l.t.Helper()
	re := regexp.MustCompile(pattern)
	var seen []string
	timeout := time.After(20 * time.Second)
	for {
		select {
		case line, ok := <-l.lines:
			if !ok {
				l.t.Fatalf("output ended without %q; stderr %q; lines:\n%s", pattern, l.errs.String(), strings.Join(seen, "\n"))
			}
			seen = append(seen, line)
			if re.MatchString(line) {
				return line
			}
		case <-timeout:
			l.t.Fatalf("no line matches %q; lines:\n%s", pattern, strings.Join(seen, "\n"))
		}
	}
}

// end signals the program, unless sig is nil, and returns how it ended.
func (l *live) end(sig os.Signal) *os.ProcessState {
	l.t.Helper()
	if sig != nil {
		if err := l.cmd.Process.Signal(sig); err != nil {
			l.t.Fatal(err)
		}
	}
	for range l.lines {
	}
	_ = l.cmd.Wait()
	return l.cmd.ProcessState
}

// golden compares got with testdata/golden/name, or writes it with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata/golden", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got:\n%swant:\n%s(go test -update rewrites it)", file, got, want)
	}
}
