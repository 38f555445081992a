package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// walls says which files may use a name. A flat package has no private fields between files, so a test
// has to keep the numbers behind their constructors and the driver behind its four files.
var walls = map[string][]string{
	".raw":          {"value.go"},
	"value{":        {"value.go"},
	"measure(":      {"value.go", "gpu.go", "mig.go", "sysmem.go", "process.go", "record.go"},
	"measureFloat(": {"value.go", "gpm.go"},
	".estimate(":    {"mig.go", "record.go"},
	".hold(":        {"gpu.go", "mig.go", "render.go", "record.go"}, // render: while the driver is silent
	"nvml.":         nvmlFiles,
	"os.Exit":       {"main.go"},
	"fmt.Print":     {},
	"fmt.Println":   {},
	"fmt.Printf":    {},
	"flag.":         {"flags.go"},
	"time.Now":      {"session.go", "stream.go", "display.go", "nvml.go", "gpu.go", "mig.go", "gpm.go", "process.go"},
	"time.Since":    {"session.go", "nvml.go", "gpu.go", "mig.go", "gpm.go"},
	"paint(":        {"display.go"},
	".flush(":       {"plain.go", "display.go"}, // rows, and frames: each has one way out
	"go":            {"main.go"},
	"signal.Ignore": {"term.go", "successor.go"}, // successor: until a new process is ready for them
}

// nvmlFiles are those that know the driver's library.
var nvmlFiles = []string{"nvml.go", "gpu.go", "mig.go", "gpm.go"}

func sources(t *testing.T) (map[string]*ast.File, *token.FileSet) {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	set, files := token.NewFileSet(), map[string]*ast.File{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = f
	}
	return files, set
}

// uses are the names of walls that node n uses.
func uses(n ast.Node) []string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return []string{"go"}
	case *ast.CompositeLit:
		if id, ok := n.Type.(*ast.Ident); ok {
			return []string{id.Name + "{"}
		}
	case *ast.CallExpr:
		if id, ok := n.Fun.(*ast.Ident); ok {
			return []string{id.Name + "("}
		}
		if sel, ok := n.Fun.(*ast.SelectorExpr); ok {
			return []string{"." + sel.Sel.Name + "("}
		}
	case *ast.SelectorExpr:
		names := []string{"." + n.Sel.Name}
		if id, ok := n.X.(*ast.Ident); ok {
			names = append(names, id.Name+"."+n.Sel.Name, id.Name+".")
		}
		return names
	}
	return nil
}

func TestWalls(t *testing.T) {
	files, set := sources(t)
	used := map[string]bool{}
	for name, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			for _, u := range uses(n) {
				allowed, walled := walls[u]
				if walled && !slices.Contains(allowed, name) {
					t.Errorf("%s: %s is only for %v", set.Position(n.Pos()), u, allowed)
				}
				used[u] = true
			}
			return true
		})
	}
	for name, allowed := range walls {
		if len(allowed) > 0 && !used[name] {
			t.Errorf("%s is walled but nobody uses it: is it still called that?", name)
		}
	}
}

// TestPure: what is seen is a function of what came in, so its files cannot ask the machine anything.
func TestPure(t *testing.T) {
	files, _ := sources(t)
	for _, name := range []string{"value.go", "ring.go", "render.go", "node.go", "table.go", "detail.go", "screen.go"} {
		for _, i := range files[name].Imports {
			path := strings.Trim(i.Path.Value, `"`)
			if strings.Contains(path, ".") || slices.Contains([]string{"os", "os/exec", "os/signal", "os/user", "net", "syscall", "unsafe", "runtime"}, path) {
				t.Errorf("%s imports %s", name, path)
			}
		}
	}
}

// TestCallsAreProbed holds every go-nvml method to its row in calls: the function that uses it must name a
// call constant whose row has that method, so that it can ask try.
func TestCallsAreProbed(t *testing.T) {
	files, set := sources(t)
	constants := map[string]call{}
	for c, name := range callNames(t, files["nvml.go"]) {
		constants[name] = call(c)
	}
	methods := map[string]bool{}
	for _, row := range calls {
		methods[row.method] = true
	}
	// These need no symbol of their own: Init and Shutdown are what load looks up first.
	free := map[string]bool{"Init": true, "Shutdown": true}
	for name, f := range files {
		for _, decl := range f.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			named := map[string]bool{} // methods whose constants this function mentions
			ast.Inspect(fn, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					if c, ok := constants[id.Name]; ok {
						named[calls[c].method] = true
					}
				}
				return true
			})
			ast.Inspect(fn, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok || !methods[sel.Sel.Name] || free[sel.Sel.Name] {
					return true
				}
				if !slices.Contains(nvmlFiles, name) {
					return true
				}
				if !named[sel.Sel.Name] {
					t.Errorf("%s: %s is called in %s without its call constant", set.Position(sel.Pos()), sel.Sel.Name, fn.Name.Name)
				}
				return true
			})
		}
	}
	for c, row := range calls {
		if row.method == "" || row.field == 0 && len(row.symbols) == 0 {
			t.Errorf("call %d has no row in calls", c)
		}
	}
}

// callNames are the constants of type call, in order.
func callNames(t *testing.T, f *ast.File) []string {
	t.Helper()
	for _, decl := range f.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.CONST {
			continue
		}
		var names []string
		for _, spec := range gen.Specs {
			v := spec.(*ast.ValueSpec)
			if v.Names[0].Name == "callCount" {
				return names
			}
			names = append(names, v.Names[0].Name)
		}
	}
	t.Fatal("no call constants found")
	return nil
}

// TestGoNVMLMethodsAreInCalls keeps the table whole from the other side: any method called on a device
// handle, library, event set or sample must have a row, so that its symbol is probed.
func TestGoNVMLMethodsAreInCalls(t *testing.T) {
	files, set := sources(t)
	methods := map[string]bool{
		"Init": true, "Shutdown": true, "Lookup": true, "Open": true, "Close": true, "Path": true,
	}
	for _, row := range calls {
		methods[row.method] = true
	}
	for _, name := range nvmlFiles {
		ast.Inspect(files[name], func(n ast.Node) bool {
			c, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := c.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			receiver := ""
			switch x := sel.X.(type) {
			case *ast.SelectorExpr:
				receiver = x.Sel.Name
			case *ast.Ident:
				receiver = x.Name
			}
			if slices.Contains([]string{"h", "lib", "events", "buf", "sample"}, receiver) && !methods[sel.Sel.Name] {
				t.Errorf("%s: %s.%s has no row in calls", set.Position(c.Pos()), receiver, sel.Sel.Name)
			}
			return true
		})
	}
}

// TestSymbolsAreThoseOfGoNVML reads go-nvml's own source: what a method of calls really calls must be what
// its row has looked up, whatever the version of the symbol.
func TestSymbolsAreThoseOfGoNVML(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		t.Fatal(err)
	}
	base := func(s string) string {
		s = strings.TrimSuffix(s, "Stub")
		if i := strings.LastIndex(s, "_v"); i > 0 {
			s = s[:i]
		}
		return strings.TrimPrefix(strings.TrimPrefix(s, "nvml"), "device")
	}
	called := map[string][]string{} // method -> symbols without version
	for _, name := range []string{"device.go", "system.go", "gpm.go", "event_set.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(dir)), "pkg/nvml", name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range f.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv == nil {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				c, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				if id, ok := c.Fun.(*ast.Ident); ok && (strings.HasPrefix(id.Name, "nvml") && id.Name != "nvmlDeviceHandle" || strings.HasPrefix(id.Name, "deviceGet")) {
					called[fn.Name.Name] = append(called[fn.Name.Name], strings.TrimPrefix(base(id.Name), "Device"))
				}
				return true
			})
		}
	}
	found := 0
	for _, row := range calls {
		if row.field != 0 || len(called[row.method]) == 0 {
			continue
		}
		found++
		want := strings.TrimPrefix(base(row.symbols[0]), "Device")
		if !slices.Contains(called[row.method], want) {
			t.Errorf("%s calls %v, looked up is %s", row.method, called[row.method], want)
		}
	}
	if found < 45 {
		t.Errorf("only %d methods were found in go-nvml", found)
	}
}

// TestPromisesHaveTests: the tests that the README names exist.
func TestPromisesHaveTests(t *testing.T) {
	names, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(text)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`Test[A-Z]\w+`).FindAllString(string(readme), -1)
	if len(named) < 20 {
		t.Errorf("the README names %d tests", len(named))
	}
	for _, name := range named {
		if !strings.Contains(tests.String(), "\nfunc "+name+"(t *testing.T)") {
			t.Errorf("the README names %s, which does not exist", name)
		}
	}
}
