package main

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDist looks at what `make release` left in dist/: whether it starts on every glibc from 2.17 on and
// without a driver, tells nothing about the machine that built it, and comes with its sums and licences.
func TestDist(t *testing.T) {
	binaries, err := filepath.Glob("dist/mig-gpu-mon-linux-*")
	if err != nil {
		t.Fatal(err)
	}
	if len(binaries) == 0 {
		t.Skip("dist/ has no binaries: make release")
	}
	sums := ""
	for _, path := range binaries {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sums += fmt.Sprintf("%x  %s\n", sha256.Sum256(data), filepath.Base(path))
		t.Run(filepath.Base(path), func(t *testing.T) { checkRelease(t, path, data) })
	}
	if got, err := os.ReadFile("dist/sha256sums"); err != nil || string(got) != sums {
		t.Errorf("sha256sums: %v\n%swant\n%s", err, got, sums)
	}
	for _, of := range []string{"mig-gpu-mon", "go", "go-nvml", "nvml.h", "sys", "term"} {
		if text, err := os.ReadFile("dist/LICENSE-" + of); err != nil || !bytes.Contains(text, []byte("WARRANT")) {
			t.Errorf("LICENSE-%s is no licence: %v", of, err)
		}
	}
}

func checkRelease(t *testing.T, path string, data []byte) {
	if len(data) > 9<<19 {
		t.Errorf("%d bytes, more than 4.5 MiB", len(data))
	}
	// With -trimpath and without symbols there is no file name from the root.
	if found := regexp.MustCompile(`[^\w./@-]/[\w./@!+-]+\.(go|c|h|s|S)\b`).Find(data); found != nil {
		t.Errorf("a path of the build machine: %q", found)
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	if want := machines[path[strings.LastIndex(path, "-")+1:]]; f.Machine != want {
		t.Errorf("machine %v, want %v", f.Machine, want)
	}
	for _, s := range f.Sections {
		if s.Name == ".symtab" || strings.HasPrefix(s.Name, ".debug") {
			t.Errorf("not stripped: %s", s.Name)
		}
	}
	// A newer glibc's libc.so.6 has all three in it, but an older one looks in each.
	needed, err := f.ImportedLibraries()
	slices.Sort(needed)
	if want := []string{"libc.so.6", "libdl.so.2", "libpthread.so.0"}; err != nil || !slices.Equal(needed, want) {
		t.Errorf("needs %v, want %v: %v", needed, want, err)
	}
	dynamic := func(tag elf.DynTag) (all uint64) {
		values, err := f.DynValue(tag)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			all |= v
		}
		return all
	}
	if values, err := f.DynValue(elf.DT_BIND_NOW); err != nil || len(values) > 0 ||
		dynamic(elf.DT_FLAGS)&uint64(elf.DF_BIND_NOW) != 0 || dynamic(elf.DT_FLAGS_1)&uint64(elf.DF_1_NOW) != 0 {
		t.Error("binds all symbols at start, so it dies where the driver lacks one")
	}
	if size := dynamic(elf.DT_INIT_ARRAYSZ); size != 8 {
		t.Errorf("%d bytes of constructors; only the compiler's frame_dummy, 8, may go without being run", size)
	}
	versions, err := f.DynamicVersionNeeds()
	if err != nil || len(versions) == 0 {
		t.Errorf("symbol versions: %v, %v", versions, err)
	}
	for _, lib := range versions {
		for _, need := range lib.Needs {
			var minor int
			if _, err := fmt.Sscanf(need.Dep, "GLIBC_2.%d", &minor); err != nil || minor > 17 {
				t.Errorf("needs %s of %s", need.Dep, lib.Name)
			}
		}
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		weak := elf.ST_BIND(s.Info) == elf.STB_WEAK && (s.Name == "__gmon_start__" || strings.HasPrefix(s.Name, "_ITM_"))
		if s.Section == elf.SHN_UNDEF && s.Version == "" && !strings.HasPrefix(s.Name, "nvml") && !weak {
			t.Errorf("%s has no version: which library is it from?", s.Name)
		}
	}
}
