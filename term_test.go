package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

func TestStyleSGR(t *testing.T) {
	for _, c := range []struct {
		s    style
		want string
	}{
		{0, "\x1b[0m"},
		{red, "\x1b[0;31m"},
		{black | bold, "\x1b[0;1;30m"},
		{grey | dim, "\x1b[0;2;90m"},
		{lightWhite | reverse, "\x1b[0;7;97m"},
		{style(0).on(blue), "\x1b[0;44m"},
		{(green | bold | dim | reverse).on(lightCyan), "\x1b[0;1;2;7;32;106m"},
		{red.on(blue).on(0), "\x1b[0;31m"},
	} {
		if got := string(c.s.appendSGR(nil)); got != c.want {
			t.Errorf("%#x: %q, want %q", c.s, got, c.want)
		}
		if c.s.canonical() != c.s {
			t.Errorf("%#x is not canonical", c.s)
		}
	}
}

// Styles are equal if and only if they look equal, whatever bits put is given.
func TestStyleCanonical(t *testing.T) {
	looks := map[string]style{}
	for i := range 1 << 16 {
		s := style(i).canonical()
		look := string(s.appendSGR(nil))
		if before, ok := looks[look]; ok && before != s {
			t.Fatalf("%#x and %#x both give %q", before, s, look)
		}
		looks[look] = s
	}
	if len(looks) != 17*17*8 {
		t.Errorf("%d looks", len(looks))
	}
}

func TestRuneWidth(t *testing.T) {
	for _, c := range []struct {
		runes string
		want  int
	}{
		{"a~ é§·°±…—←↑→↓●▲▼─│▁▂▃▄▅▆▇█▮▯▒░⠿⣿ßжλ☀⚠✓", 1},
		{"한글漢字カナ。Ａ￦ㄱ㊀😀🚀🀄👍⌚⏰✅🫠𠀀", 2},
		{"\u0300\u200b\u200d\u202e\u2066\ufeff\ufe0f\u00ad\u1160\u11ff\u3164\u0903\U000e0001", 0},
		{"\x00\t\n\r\x1b\x7f\u0085\u009b\u00a0\u2028\u3000\ufffd\ufffe\ue000\U000f0000\U0010ffff", 1},
	} {
		for _, r := range c.runes {
			if got := runeWidth(r); got != c.want {
				t.Errorf("%U %q: width %d, want %d", r, r, got, c.want)
			}
		}
	}
	if !slices.IsSorted(wideEdges[:]) || len(wideEdges)%2 != 0 {
		t.Error("wideEdges are not in order or not paired")
	}
	for _, r := range []rune{-1, 0xd800, utf8.MaxRune + 1} {
		if s, n := shown(r); s != '?' || n != 1 {
			t.Errorf("%#x: shown as %q, %d", r, s, n)
		}
	}
	for i, r := range wideEdges { // a sentinel against typing errors: both sides of every edge that prints
		for _, p := range []struct {
			r    rune
			want int
		}{{r - 1, i%2 + 1}, {r, 2 - i%2}} {
			if s, n := shown(p.r); s == p.r && n != p.want {
				t.Errorf("%U: width %d, want %d", p.r, n, p.want)
			}
		}
	}
}

func TestClip(t *testing.T) {
	for _, c := range []struct {
		in   string
		w    int
		want string
	}{
		{"python", 10, "python"},
		{"python", 6, "python"},
		{"python", 3, "pyt"},
		{"python", 0, ""},
		{"python", -1, ""},
		{"한글", 4, "한글"},
		{"한글", 3, "한"},
		{"한글", 1, ""},
		{"a\u0301b", 1, "a\u0301"},
		{"", 3, ""},
	} {
		if got := clip(c.in, c.w); got != c.want {
			t.Errorf("clip(%q, %d) = %q, want %q", c.in, c.w, got, c.want)
		}
	}
	if n := textWidth("a한\x1bé\u0301"); n != 5 {
		t.Errorf("textWidth = %d", n)
	}
}

// rowText is a row's glyphs, with nothing for the second cell of a wide rune.
func rowText(g *grid, y int) string {
	var b strings.Builder
	for _, c := range g.cells[y*g.w:][:g.w] {
		if c.r != 0 {
			b.WriteRune(c.r)
		}
	}
	return b.String()
}

func blankGrid(w, h int) *grid {
	g := new(grid)
	g.resize(w, h)
	return g
}

func TestPutWide(t *testing.T) {
	for _, c := range []struct {
		name string
		draw func(*grid)
		want string
	}{
		{"two cells", func(g *grid) { g.put(0, 0, '한', 0) }, "한    "},
		{"at the margin", func(g *grid) { g.put(5, 0, '한', 0) }, "      "},
		{"overwritten left", func(g *grid) { g.put(1, 0, '한', 0); g.put(1, 0, 'a', 0) }, " a    "},
		{"overwritten right", func(g *grid) { g.put(1, 0, '한', 0); g.put(2, 0, 'a', 0) }, "  a   "},
		{"by a wide one, shifted left", func(g *grid) { g.put(2, 0, '한', 0); g.put(1, 0, '글', 0) }, " 글   "},
		{"by a wide one, shifted right", func(g *grid) { g.put(2, 0, '한', 0); g.put(3, 0, '글', 0) }, "   글 "},
		{"between two", func(g *grid) { g.text(0, 0, 6, "한글한", 0); g.put(1, 0, '漢', 0) }, " 漢 한"},
		{"text's end", func(g *grid) { g.text(0, 0, 3, "한글", 0) }, "한    "},
		{"text at the margin", func(g *grid) { g.text(4, 0, 99, "a한", 0) }, "    a "},
		{"text's end does not eat the neighbour", func(g *grid) { g.put(3, 0, 'x', 0); g.text(0, 0, 3, "한글", 0) }, "한 x  "},
		{"beyond every side", func(g *grid) {
			for _, p := range [][2]int{{-1, 0}, {6, 0}, {0, -1}, {0, 1}, {1 << 40, 1 << 40}} {
				g.put(p[0], p[1], '한', 0)
			}
		}, "      "},
		{"fill beyond every side", func(g *grid) { g.fill(-5, -5, 8, 100, '#', 0) }, "###   "},
	} {
		g := blankGrid(6, 1)
		c.draw(g)
		if got := rowText(g, 0); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if err := gridFault(g); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// gridFault says how g breaks the invariants of a grid.
func gridFault(g *grid) error {
	for i, c := range g.cells {
		wide := runeWidth(c.r) == 2
		half := i%g.w+1 < g.w && g.cells[i+1].r == 0
		switch {
		case c.r == 0 && (i%g.w == 0 || runeWidth(g.cells[i-1].r) != 2 || c.s != g.cells[i-1].s):
			return fmt.Errorf("cell %d is the second half of nothing", i)
		case c.r != 0 && wide != half:
			return fmt.Errorf("cell %d: %q has lost its second half", i, c.r)
		case c.r != 0 && (!unicode.IsPrint(c.r) || unicode.In(c.r, unicode.M, unicode.Cf)):
			return fmt.Errorf("cell %d: %q must not be in a grid", i, c.r)
		case c.s != c.s.canonical():
			return fmt.Errorf("cell %d: style %#x", i, c.s)
		}
	}
	return nil
}

var hostileTexts = []struct{ in, want string }{
	{"\x1b[2J\x1b]0;pwned\a", "?[2J?]0;pwned?"},
	{"\u009b2J\u0090q\u009c", "?2J?q?"},
	{"a\xff\xfeb\xe2\x96", "a??b??"},
	{"py\x00-c\x00x=1\n\ty", "py -c x=1  y"},
	{"ab\u202ecd\u2066ef\u200bg\ufeff", "abcdefg"},
	{"e\u0301\u0300x", "ex"},
	{"\u00ad\u2028\u3000\ue0b0\U0001f1f0", "  ?\U0001f1f0"},
	{"👩\u200d💻", "👩💻"},
	{"\x7f\x08\x0e", "???"},
}

func TestHostileText(t *testing.T) {
	for _, c := range hostileTexts {
		for _, how := range []string{"text", "bytes"} {
			g := blankGrid(30, 1)
			var n int
			if how == "text" {
				n = g.text(0, 0, 30, c.in, 0)
			} else {
				n = g.bytes(0, 0, 30, []byte(c.in), 0)
			}
			if got := strings.TrimRight(rowText(g, 0), " "); got != strings.TrimRight(c.want, " ") {
				t.Errorf("%s %q: %q, want %q", how, c.in, got, c.want)
			}
			if n != textWidth(c.in) || n != textWidth(c.want) {
				t.Errorf("%s %q: took %d cells; textWidth %d, %d", how, c.in, n, textWidth(c.in), textWidth(c.want))
			}
			if err := gridFault(g); err != nil {
				t.Errorf("%s %q: %v", how, c.in, err)
			}
		}
	}
}

func blankScreen(w, h int) *screen {
	s := new(screen)
	s.resize(w, h)
	return s
}

// The bytes of pen and cursor, one frame after another.
func TestFlushBytes(t *testing.T) {
	const start, end = "\x1b[?2026h\x1b[?7l", "\x1b[m\x1b[?7h\x1b[?2026l"
	s := blankScreen(12, 3)
	var out bytes.Buffer
	step := func(name, want string, draw func(g *grid)) {
		t.Helper()
		out.Reset()
		draw(&s.want)
		if err := s.flush(&out); err != nil {
			t.Fatal(err)
		}
		if want != "" {
			want = start + want + end
		}
		if got := out.String(); got != want {
			t.Errorf("%s:\n got %q\nwant %q", name, got, want)
		}
	}
	step("first", "\x1b[?25l\x1b[m\x1b[H\x1b[2J\x1b[1;2H\x1b[0mab", func(g *grid) { g.text(1, 0, 9, "ab", 0) })
	step("nothing", "", func(g *grid) { g.text(1, 0, 9, "ab", 0) })
	step("one cell", "\x1b[1;3H\x1b[0;31mx", func(g *grid) { g.put(2, 0, 'x', red) })
	step("pen stays over a gap", "\x1b[2;1H\x1b[0;1ma\x1b[1Cb\x1b[4Cc", func(g *grid) {
		for _, p := range []int{0, 2, 7} {
			g.put(p, 1, rune("a_b____c"[p]), bold)
		}
	})
	step("pen changes", "\x1b[1;1H\x1b[0;32mgrgg\x1b[0;1;33mY\x1b[0mz", func(g *grid) {
		g.text(0, 0, 4, "grgg", green)
		g.put(4, 0, 'Y', yellow|bold)
		g.put(5, 0, 'z', 0)
	})
	step("addressed anew after the last column", "\x1b[1;11H\x1b[0myz\x1b[2;1HA", func(g *grid) {
		g.text(10, 0, 2, "yz", 0)
		g.put(0, 1, 'A', 0)
	})
	step("wide, and wide in dispute", "\x1b[3;1H\x1b[0m한a  \x1b[3;4H😀\x1b[3;6Hb", func(g *grid) {
		g.text(0, 2, 12, "한a😀b", 0)
	})
	step("space over wide", "\x1b[3;1H\x1b[0mx ", func(g *grid) { g.put(0, 2, 'x', 0) })
	s.lost = true
	s.want.clear()
	step("lost", "\x1b[?25l\x1b[m\x1b[H\x1b[2J", func(*grid) {})
}

type brokenTTY struct{ err error }

func (w brokenTTY) Write(b []byte) (int, error) { return len(b) / 2, w.err }

func TestFlushError(t *testing.T) {
	for _, c := range []struct{ err, want error }{{unix.EIO, unix.EIO}, {unix.EAGAIN, nil}, {io.ErrShortWrite, io.ErrShortWrite}} {
		s := blankScreen(10, 2)
		e := newEmulator(10, 2)
		if err := s.flush(e); err != nil {
			t.Fatal(err)
		}
		s.want.text(0, 0, 10, "abc", red)
		if err := s.flush(brokenTTY{c.err}); !errors.Is(err, c.want) || !s.lost {
			t.Errorf("%v: flush answers %v, lost %v", c.err, err, s.lost)
		}
		if err := errors.Join(s.flush(e), e.differs(&s.want)); err != nil {
			t.Errorf("after %v: %v", c.err, err)
		}
	}
}

func TestFlushReduced(t *testing.T) {
	s := blankScreen(20, 1)
	s.mono, s.ascii = true, true
	var out bytes.Buffer
	s.want.text(0, 0, 20, "a한▁é", (red | bold).on(blue))
	for range 2 {
		if err := s.flush(&out); err != nil {
			t.Fatal(err)
		}
	}
	want := frameStart + frameClear + "\x1b[1;1H\x1b[0;1ma? ??" + frameEnd
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// FuzzScreen draws what the bytes say and compares the emulator's screen after every flush.
func FuzzScreen(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		b := make([]byte, 400)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(drawAndCompare)
}

func TestScreenRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		program := make([]byte, 3000)
		for i := range program {
			program[i] = byte(rng.Uint32())
		}
		drawAndCompare(t, program)
	}
}

var fuzzRunes = []rune("ab 한글漢▁█▮é😀👍\x1b\x00\u0301\u202e\u009b\ufffd⚠🀄€")

func drawAndCompare(t *testing.T, program []byte) {
	next := func() int {
		if len(program) == 0 {
			return 0
		}
		b := program[0]
		program = program[1:]
		return int(b)
	}
	s := new(screen)
	mode := next()
	s.mono, s.ascii = mode&1 != 0, mode&2 != 0
	s.resize(30, 8)
	e := newEmulator(30, 8)
	e.narrow = mode&4 != 0
	for len(program) > 0 {
		switch op := next() % 32; {
		case op < 16:
			s.want.put(next()%40-2, next()%12-2, fuzzRunes[next()%len(fuzzRunes)], style(next()|next()<<8))
		case op < 18:
			s.want.put(next()%40, next()%12, rune(next()|next()<<8|next()%3<<16), style(next()))
		case op < 23:
			n, y := next()%12, next()%12
			text := string(program[:min(len(program), n)])
			if op == 22 {
				text = "한글한글한글"
			}
			if x, w := next()%40-2, next()%20; s.want.text(x, y, w, text, style(op)) > w {
				t.Fatalf("text took more than %d cells", w)
			}
		case op < 25:
			s.want.fill(next()%30-5, next()%12-5, next()%20, next()%9, fuzzRunes[next()%len(fuzzRunes)], style(next()))
		case op < 26:
			w, h := next()%40, next()%12
			if s.resize(w, h); e.w != w || e.h != h {
				e = newEmulator(w, h)
				e.narrow = mode&4 != 0
			}
		case op < 27:
			if next()%2 == 0 {
				s.lost = true
			} else if s.flush(brokenTTY{unix.EIO}) == nil && s.lost {
				t.Fatal("an error was lost")
			}
		default:
			flushAndCompare(t, s, e)
		}
	}
	flushAndCompare(t, s, e)
}

func flushAndCompare(t *testing.T, s *screen, e *emulator) {
	t.Helper()
	if err := gridFault(&s.want); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		before := e.writes
		if err := s.flush(e); err != nil {
			t.Fatal(err)
		}
		if s.want.w*s.want.h > 0 {
			if err := e.differs(&s.want); err != nil {
				t.Fatal(err)
			}
		}
		if e.writes > before+1 {
			t.Fatalf("%d writes in a frame", e.writes-before)
		}
	}
	before := e.writes
	if err := s.flush(e); err != nil || e.writes != before {
		t.Fatalf("a third flush of the same grid wrote something: %v", err)
	}
}

// drawBusy draws something like the dashboard: charts, bars, text that changes from frame to frame.
func drawBusy(g *grid, frame int) {
	g.clear()
	for y := range g.h {
		n := g.text(0, y, 24, "python3 train.py 학습", cyan|bold)
		for x := range g.w/2 - n {
			g.put(n+x, y, blockGlyphs.level[(x*x+y+frame)%8], green)
		}
		g.bytes(g.w/2, y, g.w/2, []byte{byte('0' + frame%10), '%'}, yellow)
		g.fill(g.w/2+4, y, 9, 1, blockGlyphs.full, red.on(blue))
	}
}

func TestFlushAllocs(t *testing.T) {
	s := blankScreen(160, 45)
	frame := 0
	draw := func() {
		frame++
		drawBusy(&s.want, frame)
		if err := s.flush(io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	draw()
	if n := testing.AllocsPerRun(100, draw); n != 0 {
		t.Errorf("%v allocations a frame", n)
	}
}

func BenchmarkFlush(b *testing.B) {
	for _, c := range []struct {
		name  string
		paint func(g *grid, frame int)
	}{
		{"still", func(*grid, int) {}},
		{"charts", drawBusy},
		{"all", func(g *grid, frame int) { g.fill(0, 0, g.w, g.h, rune('a'+frame%2), red) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := blankScreen(160, 45)
			var bytes byteCount
			frame := 0
			b.ReportAllocs()
			for b.Loop() {
				c.paint(&s.want, frame)
				frame++
				if err := s.flush(&bytes); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(bytes)/float64(b.N), "bytes/frame")
		})
	}
}

type byteCount int

func (w *byteCount) Write(b []byte) (int, error) {
	*w += byteCount(len(b))
	return len(b), nil
}

// A real terminal's idea of widths and of our sequences: random frames in tmux.
func TestTmux(t *testing.T) {
	tmux, err := exec.LookPath("tmux")
	if err != nil {
		t.Skip("no tmux")
	}
	const w, h = 80, 24
	s := blankScreen(w, h)
	rng := rand.New(rand.NewPCG(3, 4))
	runes := []rune("abc xyz한글사용자漢字カナ▁▂▃█▮▯·é😀🚀👍✅⚠…")
	var frames bytes.Buffer
	for range 40 {
		for range 60 {
			r := runes[rng.IntN(len(runes))]
			s.want.put(rng.IntN(w), rng.IntN(h), r, style(rng.IntN(17)))
		}
		s.want.text(rng.IntN(w), rng.IntN(h), 20, hostileTexts[rng.IntN(len(hostileTexts))].in, reverse)
		if err := s.flush(&frames); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	file, done := filepath.Join(dir, "frames"), filepath.Join(dir, "done")
	if err := os.WriteFile(file, frames.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(tmux, append([]string{"-u", "-f", "/dev/null", "-S", filepath.Join(dir, "tmux")}, args...)...)
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TERM=xterm-256color", "SHELL=/bin/sh")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Skipf("tmux %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	run("new-session", "-d", "-x", fmt.Sprint(w), "-y", fmt.Sprint(h+1), "cat "+file+"; : >"+done+"; sleep 100")
	defer run("kill-server")
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(done); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Skip("tmux did not start")
		}
	}
	time.Sleep(200 * time.Millisecond) // tmux has the bytes, but may still be reading them
	shown := strings.Split(run("capture-pane", "-p"), "\n")
	for y := range h {
		if want := strings.TrimRight(rowText(&s.want, y), " "); strings.TrimRight(shown[y], " ") != want {
			t.Errorf("row %d:\n shows %q\nshould %q", y, shown[y], want)
		}
	}
}

// keysOf is what is typed when chunks come in, one after another, and then nothing more.
func keysOf(t *testing.T, chunks ...[]byte) (keys []key) {
	t.Helper()
	var in typed
	drain := func(final bool) {
		for {
			k, seq := in.next(final)
			if k == keyNone {
				break
			}
			keys = append(keys, k)
			if len(seq) == 0 {
				t.Fatalf("key %#x without bytes", k)
			}
		}
		if len(in.buf) > maxSequence || final && in.waits() {
			t.Fatalf("%d bytes wait, final %v", len(in.buf), final)
		}
	}
	for _, c := range chunks {
		in.add(c)
		drain(false)
	}
	drain(true)
	return keys
}

func TestKeys(t *testing.T) {
	long := strings.Repeat("1;", 4000)
	for _, c := range []struct {
		in   string
		want []key
	}{
		{"q", []key{'q'}},
		{"jkvs,. ?[]", []key{'j', 'k', 'v', 's', ',', '.', ' ', '?', '[', ']'}},
		{"\t\r\n\x03\x0c\x1a", []key{keyTab, keyEnter, keyEnter, keyCtrlC, keyCtrlL, keyCtrlZ}},
		{"\x1b", []key{keyEsc}},
		{"\x1b\x1b", []key{keyEsc, keyEsc}},
		{"\x1bq", []key{keyEsc, 'q'}},
		{"\x1b\x1b[A", []key{keyEsc, keyUp}},
		{"\x1b[A\x1b[B\x1b[C\x1b[D", []key{keyUp, keyDown, keyRight, keyLeft}},
		{"\x1bOA\x1bOB\x1bOC\x1bOD", []key{keyUp, keyDown, keyRight, keyLeft}},
		{"\x1b[1;5A\x1b[1;2B\x1bO5C", []key{keyUp, keyDown, keyRight}},
		{"\x1b[H\x1b[F\x1bOH\x1bOF", []key{keyHome, keyEnd, keyHome, keyEnd}},
		{"\x1b[1~\x1b[4~\x1b[7~\x1b[8~\x1b[1;5H", []key{keyHome, keyEnd, keyHome, keyEnd, keyHome}},
		{"\x1b[5~\x1b[6~\x1b[5;5~\x1b[6;2~", []key{keyPgUp, keyPgDn, keyPgUp, keyPgDn}},
		{"\x1b[Z\x1b[1;2Z", []key{keyShiftTab, keyShiftTab}},
		{"\x1bOM", []key{keyEnter}},
		{"\x1b[2;3R", []key{keyReport}},
		{"한é", []key{'한', 'é'}},
		{"\x00a", []key{'a'}},
		{"\xffa\xe2\x82b\xed\xa0\x80c\x9bd", []key{'a', 'b', 'c', 'd'}},
		{"\xe2\x82", nil},

		// Nothing of ours, and never letters out of the middle of it.
		{"\x1b[2~\x1b[3~\x1b[15~\x1b[200~x\x1b[201~", []key{'x'}},
		{"\x1bOP\x1bOQ\x1b[P\x1b[[A\x1b[[Eq", []key{'q'}},
		{"\x1b[?62;22c\x1b[>0;276;0c\x1b[?2026;2$yq", []key{'q'}},
		{"\x1b[<0;81;12M\x1b[<0;81;12mq", []key{'q'}},
		{"\x1b[I\x1b[O\x1b[Mq", []key{'q'}},
		{"\x1b[27;5;113~\x1b[113;5uq", []key{'q'}},
		{"\x1b]11;rgb:0000/0000/0000\x07q", []key{'q'}},
		{"\x1b]0;quit\x1b\\q", []key{'q'}},
		{"\x1bP>|tmux 3.3a\x1b\\q", []key{'q'}},
		{"\x1b_Gi=1;OK\x1b\\\x1b^pm\x1b\\\x1bXsos\x1b\\q", []key{'q'}},
		{"\x1b[" + long + "Aq", []key{'q'}},
		{"\x1b[" + strings.Repeat("5", 70) + "~q", []key{'q'}},
		{"\x1b]" + long + "\x1b\\q", []key{'q'}},
		{"\x1bP" + long + "\x07q", []key{'q'}},

		// Unfinished: dropped when the time is up, broken off by what cannot be part of it.
		{"\x1b[", nil},
		{"\x1bO", nil},
		{"\x1b[1;5", nil},
		{"\x1b]0;q", nil},
		{"\x1b]" + long, nil},
		{"\x1b]0;q\x1b", nil},
		{"\x1b]0;q\x03", []key{keyCtrlC}},
		{"\x1bPq\x1a", []key{keyCtrlZ}},
		{"\x1b]0;q\x1b[A", []key{keyUp}},
		{"\x1b[1;\x03", []key{keyCtrlC}},
		{"\x1b[1\x1b[B", []key{keyDown}},
		{"\x1b[[\x03", []key{keyCtrlC}},
		{"\x1bO\x1b", []key{keyEsc}},
		{"\x1b[1\xea\xb0\x80q", []key{'가', 'q'}},
	} {
		name := fmt.Sprintf("%.40q", c.in)
		if got := keysOf(t, []byte(c.in)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %#x, want %#x", name, got, c.want)
		}
		if got := keysOf(t, slices.Collect(slices.Chunk([]byte(c.in), 1))...); !slices.Equal(got, c.want) {
			t.Errorf("%s byte by byte: %#x, want %#x", name, got, c.want)
		}
	}
}

// FuzzKeys: however a stream is cut, the keys are the same; every byte is used up; what waits is bounded.
func FuzzKeys(f *testing.F) {
	for _, s := range []string{
		"q\x1b[A\x1bOB\x1b[5~\x1b", "\x1b]0;a\x1b\\q", "\x1bPa\x1b", "한\xe2\x82\x1b[1;", "\x1b[[A\x1b[2;3R",
		"\x1b[" + strings.Repeat("1", 80) + "A", "\x1b]" + strings.Repeat("x", 61) + "\x1b\\q", "\x1b_" + strings.Repeat("x", 70) + "\x1b",
	} {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		in = in[:min(len(in), 2000)]
		want := keysOf(t, in)
		rng := rand.New(rand.NewPCG(seed, 0))
		for range 3 {
			var chunks [][]byte
			for rest := in; len(rest) > 0; {
				n := 1 + rng.IntN(min(len(rest), 1+rng.IntN(100)))
				chunks, rest = append(chunks, rest[:n]), rest[n:]
			}
			if got := keysOf(t, chunks...); !slices.Equal(got, want) {
				t.Fatalf("%q: %#x\n%q: %#x", in, want, chunks, got)
			}
		}
		for rest := in; len(rest) > 0; {
			k, n := parseKey(rest, true)
			if n <= 0 || n > len(rest) || k < 0 || k > keyReport {
				t.Fatalf("%q: key %#x of %d bytes", rest, k, n)
			}
			if k2, n2 := parseKey(rest, false); n2 != 0 && (k2 != k || n2 != n) {
				t.Fatalf("%q: %#x of %d, final %#x of %d", rest, k2, n2, k, n)
			}
			rest = rest[n:]
		}
	})
}

func TestTypedGivesBytes(t *testing.T) {
	in := typed{}
	in.add([]byte("a\x1b[2;3Rb"))
	for _, want := range []struct {
		k   key
		seq string
	}{{'a', "a"}, {keyReport, "\x1b[2;3R"}, {'b', "b"}, {keyNone, ""}} {
		if k, seq := in.next(false); k != want.k || string(seq) != want.seq {
			t.Errorf("%#x %q, want %#x %q", k, seq, want.k, want.seq)
		}
	}
}

func TestProbeReply(t *testing.T) {
	for _, c := range []struct {
		in         string
		narrow, ok bool
	}{
		{"\x1b[2;2R", true, true},
		{"\x1b[2;3R", false, true},
		{"\x1b[2;4R", false, true},
		{"\x1b[1;2R", false, false},
		{"\x1b[12;2R", false, false},
		{"", false, false},
	} {
		if narrow, ok := probeReply([]byte(c.in)); narrow != c.narrow || ok != c.ok {
			t.Errorf("%q: %v %v", c.in, narrow, ok)
		}
	}
}

func fakeEnv(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestLooks(t *testing.T) {
	for _, c := range []struct {
		env               []string
		colourless, ascii bool
	}{
		{nil, false, true},
		{[]string{"LANG", "ko_KR.UTF-8", "TERM", "xterm"}, false, false},
		{[]string{"LANG", "C.utf8", "TERM", "dumb"}, true, false},
		{[]string{"LANG", "en_US.UTF-8", "LC_ALL", "C"}, false, true},
		{[]string{"LANG", "C", "LC_CTYPE", "de_DE.UTF8"}, false, false},
		{[]string{"LANG", "ko_KR.eucKR"}, false, true},
		{[]string{"LANG", "en_US.UTF-8", "TERM", "linux", "NO_COLOR", "1"}, true, true},
		{[]string{"LANG", "en_US.UTF-8", "NO_COLOR", ""}, false, false},
	} {
		if got := colourless(fakeEnv(c.env...)); got != c.colourless {
			t.Errorf("%v: colourless %v", c.env, got)
		}
		if got := asciiOnly(fakeEnv(c.env...)); got != c.ascii {
			t.Errorf("%v: ascii %v", c.env, got)
		}
	}
	for _, g := range []glyphs{blockGlyphs, asciiGlyphs} {
		seen := map[rune]bool{}
		for _, r := range g.level {
			if seen[r] || runeWidth(r) != 1 || r == ' ' {
				t.Errorf("level %q", r)
			}
			seen[r] = true
		}
		if g.full == g.empty || runeWidth(g.full) != 1 || runeWidth(g.empty) != 1 {
			t.Errorf("bar %q %q", g.full, g.empty)
		}
	}
}

func TestDimension(t *testing.T) {
	for _, c := range []struct {
		n    int
		env  string
		want int
	}{{120, "90", 120}, {0, "90", 90}, {0, "", 80}, {0, "-3", 80}, {0, "x", 80}, {0, "99999999999999999999", maxColumns}, {65535, "", maxColumns}, {1, "", 1}} {
		if got := dimension(c.n, c.env, 80, maxColumns); got != c.want {
			t.Errorf("dimension(%d, %q) = %d, want %d", c.n, c.env, got, c.want)
		}
	}
}
