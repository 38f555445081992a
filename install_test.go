package main

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// checkout is a copy of what install.sh builds from, so that it leaves nothing here. run runs install.sh in it,
// with a home of its own but Go's caches of this one, and with path as its PATH, if not empty.
func checkout(t *testing.T) (dir string, run func(path string, args ...string) (string, error)) {
	t.Helper()
	dir = t.TempDir()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(names, "go.mod", "go.sum", "demo.jsonl.gz", "Makefile", "install.sh", "mig-gpu-mon.1") {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	caches, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(caches), "\n")
	env := append(os.Environ(), "HOME="+t.TempDir(), "GOCACHE="+lines[0], "GOMODCACHE="+lines[1])
	return dir, func(path string, args ...string) (string, error) {
		cmd := exec.Command("/bin/sh", append([]string{filepath.Join(dir, "install.sh")}, args...)...)
		cmd.Env = env
		if path != "" {
			cmd.Env = append(cmd.Env, "PATH="+path)
		}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

// filesIn are the files below dir, with the time when each was written.
func filesIn(t *testing.T, dir string) map[string]time.Time {
	t.Helper()
	files := map[string]time.Time{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		files[strings.TrimPrefix(path, dir)] = info.ModTime()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestInstall: install.sh leaves the program and its man page and nothing else, and a second run changes nothing.
func TestInstall(t *testing.T) {
	t.Parallel()
	dir, run := checkout(t)
	prefix := filepath.Join(t.TempDir(), "a prefix")
	bin := filepath.Join(prefix, "bin")
	out, err := run("", "--prefix", prefix)
	if err != nil || !strings.Contains(out, bin+" is not in PATH; add this line") {
		t.Fatalf("%v\n%s", err, out)
	}
	first := filesIn(t, prefix)
	if len(first) != 2 || first["/bin/mig-gpu-mon"].IsZero() || first["/share/man/man1/mig-gpu-mon.1"].IsZero() {
		t.Errorf("it left %v", first)
	}
	if out, err := exec.Command(filepath.Join(bin, "mig-gpu-mon"), "-version").Output(); err != nil || !strings.HasPrefix(string(out), "mig-gpu-mon ") {
		t.Errorf("-version: %v, %q", err, out)
	}
	out, err = run(bin+":"+os.Getenv("PATH"), "--prefix="+prefix)
	if err != nil || strings.Contains(out, "PATH") {
		t.Errorf("again, with the folder in PATH: %v\n%s", err, out)
	}
	if again := filesIn(t, prefix); !maps.Equal(first, again) {
		t.Errorf("before the second run %v, after it %v", first, again)
	}

	// What cannot be installed whole is not installed at all.
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "share"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err = run("", "--prefix", broken)
	if err == nil || !strings.Contains(out, "installing to "+broken+" failed") || len(filesIn(t, broken)) != 1 {
		t.Errorf("%v, left %v\n%s", err, filesIn(t, broken), out)
	}

	// A new version takes the place of the old one; packages put it under another root.
	if err := os.WriteFile(filepath.Join(dir, "mig-gpu-mon"), []byte("new"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dest := range []string{"", t.TempDir()} {
		if out, err := exec.Command("make", "-C", dir, "install", "PREFIX="+prefix, "DESTDIR="+dest).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if data, _ := os.ReadFile(filepath.Join(dest, bin, "mig-gpu-mon")); string(data) != "new" || len(filesIn(t, dest+prefix)) != 2 {
			t.Errorf("under %q: %v", dest, filesIn(t, dest+prefix))
		}
	}
}

// TestInstallRefuses: without a Go that is new enough, one line says where to get it, and nothing is installed.
func TestInstallRefuses(t *testing.T) {
	t.Parallel()
	dir, run := checkout(t)
	if out, err := run("", "--help"); err != nil || !strings.Contains(out, "--prefix DIR") {
		t.Errorf("--help: %v\n%s", err, out)
	}
	if out, err := run("", "--nonsense"); err == nil || !strings.Contains(out, "unknown argument: --nonsense") {
		t.Errorf("--nonsense: %v\n%s", err, out)
	}

	// Newer than any Go that this machine may have where install.sh looks beside PATH.
	mod := filepath.Join(dir, "go.mod")
	if err := os.WriteFile(mod, []byte("module mig-gpu-mon\n\ngo 99.1.0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	bin, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	for _, tool := range []string{"cat", "cut", "dirname", "env", "gcc", "git", "head", "id", "make", "sed", "sort", "tail", "true"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	script := func(name, text string) {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(want string) {
		t.Helper()
		prefix := t.TempDir()
		out, err := run(bin, "--prefix", prefix)
		if err == nil || out != want || len(filesIn(t, prefix)) > 0 {
			t.Errorf("%v\n%swant:\n%s", err, out, want)
		}
	}
	script("go", "echo go version go1.19.8 linux/amd64")
	const missing = "install.sh: missing: Go 99.1.0 or newer (found 1.19.8)"
	refused(missing + ". Install it (Go from https://go.dev/dl/) and run this again\n")

	// A package manager that has an older one installs nothing.
	script("sudo", `shift; exec "$@"`)
	script("apt-get", `echo "$1" >>`+log)
	script("apt-cache", "echo '  Candidate: 2:1.19~1'")
	refused(missing + "; asking apt-get\n" + missing + ", and apt-get has no such Go. Get it from https://go.dev/dl/ and run this again\n")
	if ran, _ := os.ReadFile(log); string(ran) != "update\n" {
		t.Errorf("apt-get ran for %q", ran)
	}
}

// TestInstallIsClean: what shellcheck says of install.sh.
func TestInstallIsClean(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("shellcheck"); err != nil {
		t.Skip(err)
	}
	if out, err := exec.Command("shellcheck", "install.sh", ".ci/run").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
