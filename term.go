// term.go owns the terminal, in both directions: cells to bytes (style, grid, screen), bytes to keys
// (parseKey, typed), and the tty itself (terminal: raw mode, the alternate screen, suspending, size).
//
// Invariants: put is the only writer of cells, so that nothing but printable runes of a known width is
// ever in a grid, and a wide rune always has both its cells; after a flush without error the terminal
// shows what the grid holds, and a frame is one Write; while the terminal is not ours (before enter, after
// leave, in the background) no byte goes to it and its modes are not touched; after leave it never
// becomes ours again. No goroutine starts here.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// style is how a cell is drawn: one colour of the 16, or-ed with bold, dim and reverse, on a background
// of on. The zero value is the terminal's default. Styles in a grid are canonical: equal if they look equal.
type style uint16

const (
	black, red, green, yellow, blue, magenta, cyan, white                                   style = 1, 2, 3, 4, 5, 6, 7, 8
	grey, lightRed, lightGreen, lightYellow, lightBlue, lightMagenta, lightCyan, lightWhite style = 9, 10, 11, 12, 13, 14, 15, 16

	colourMask, paperShift = style(31), 5
	bold, dim, reverse     = style(1 << 10), style(1 << 11), style(1 << 12)
	attributes             = bold | dim | reverse
	noStyle                = ^style(0) // no cell has it: the pen when nothing is known of it
)

// on is s with paper's colour as the background.
func (s style) on(paper style) style {
	return s&^(colourMask<<paperShift) | paper&colourMask<<paperShift
}

// canonical is s without bits and colours that mean nothing.
func (s style) canonical() style {
	if s&colourMask > lightWhite {
		s &^= colourMask
	}
	if s>>paperShift&colourMask > lightWhite {
		s = s.on(0)
	}
	return s & (attributes | colourMask | colourMask<<paperShift)
}

// appendSGR appends the sequence that selects s whatever the pen was before.
func (s style) appendSGR(b []byte) []byte {
	b = append(b, "\x1b[0"...)
	if s&bold != 0 {
		b = append(b, ";1"...)
	}
	if s&dim != 0 {
		b = append(b, ";2"...)
	}
	if s&reverse != 0 {
		b = append(b, ";7"...)
	}
	b = appendColour(b, s&colourMask, 30)
	b = appendColour(b, s>>paperShift&colourMask, 40)
	return append(b, 'm')
}

func appendColour(b []byte, c style, base int) []byte {
	if c == 0 {
		return b
	}
	if c >= grey { // the bright half of the palette has codes of its own, 90.. and 100..
		base, c = base+60, c-grey+black
	}
	return strconv.AppendInt(append(b, ';'), int64(base)+int64(c-black), 10)
}

// wideEdges are the runes at which two-cell runes begin and end, by turns: East Asian Wide and Fullwidth
// of Unicode 15, the version of Go's tables. Runes that shown refuses may lie on either side.
var wideEdges = [...]rune{
	0x1100, 0x1160, 0x231a, 0x231c, 0x2329, 0x232b, 0x23e9, 0x23ed, 0x23f0, 0x23f1, 0x23f3, 0x23f4, 0x25fd, 0x25ff,
	0x2614, 0x2616, 0x2648, 0x2654, 0x267f, 0x2680, 0x2693, 0x2694, 0x26a1, 0x26a2, 0x26aa, 0x26ac, 0x26bd, 0x26bf,
	0x26c4, 0x26c6, 0x26ce, 0x26cf, 0x26d4, 0x26d5, 0x26ea, 0x26eb, 0x26f2, 0x26f4, 0x26f5, 0x26f6, 0x26fa, 0x26fb,
	0x26fd, 0x26fe, 0x2705, 0x2706, 0x270a, 0x270c, 0x2728, 0x2729, 0x274c, 0x274d, 0x274e, 0x274f, 0x2753, 0x2756,
	0x2757, 0x2758, 0x2795, 0x2798, 0x27b0, 0x27b1, 0x27bf, 0x27c0, 0x2b1b, 0x2b1d, 0x2b50, 0x2b51, 0x2b55, 0x2b56,
	0x2e80, 0x303f, 0x3041, 0x3248, 0x3250, 0x4dc0, 0x4e00, 0xa4c7, 0xa960, 0xa97d, 0xac00, 0xd7a4, 0xf900, 0xfada,
	0xfe10, 0xfe6c, 0xff01, 0xff61, 0xffe0, 0xffe7, 0x16fe0, 0x1b2fc, 0x1f004, 0x1f005, 0x1f0cf, 0x1f0d0, 0x1f18e,
	0x1f18f, 0x1f191, 0x1f19b, 0x1f200, 0x1f321, 0x1f32d, 0x1f336, 0x1f337, 0x1f37d, 0x1f37e, 0x1f394, 0x1f3a0,
	0x1f3cb, 0x1f3cf, 0x1f3d4, 0x1f3e0, 0x1f3f1, 0x1f3f4, 0x1f3f5, 0x1f3f8, 0x1f43f, 0x1f440, 0x1f441, 0x1f442,
	0x1f4fd, 0x1f4ff, 0x1f53e, 0x1f54b, 0x1f54f, 0x1f550, 0x1f568, 0x1f57a, 0x1f57b, 0x1f595, 0x1f597, 0x1f5a4,
	0x1f5a5, 0x1f5fb, 0x1f650, 0x1f680, 0x1f6c6, 0x1f6cc, 0x1f6cd, 0x1f6d0, 0x1f6d3, 0x1f6d5, 0x1f6e0, 0x1f6eb,
	0x1f6ed, 0x1f6f4, 0x1f6fd, 0x1f7e0, 0x1f7f1, 0x1f90c, 0x1f93b, 0x1f93c, 0x1f946, 0x1f947, 0x1fa00, 0x1fa70,
	0x1faf9, 0x20000, 0x323b0,
}

// shown is the rune that stands for r in a cell and its width: white space is a space, marks and
// invisible runes (zero width, bidi overrides) are dropped with width 0, and what must not or cannot be
// printed (controls, invalid UTF-8, private use, unassigned) is a question mark.
func shown(r rune) (rune, int) {
	switch {
	case ' ' <= r && r <= '~', '\u2500' <= r && r < '\u25fd': // the second: lines, blocks, shapes
		return r, 1
	case r == 0, unicode.IsSpace(r): // NUL parts the arguments in /proc/PID/cmdline
		return ' ', 1
	case unicode.In(r, unicode.M, unicode.Cf),
		0x115f <= r && r < 0x1200, 0xd7b0 <= r && r < 0xd800, r == 0x3164, r == 0xffa0: // joining jamo, fillers
		return 0, 0
	case r == utf8.RuneError, !strconv.IsPrint(r):
		return '?', 1
	}
	if i, at := slices.BinarySearch(wideEdges[:], r); at == (i%2 == 0) {
		return r, 2
	}
	return r, 1
}

// runeWidth is the number of cells that put uses for r: 0, 1 or 2. Ambiguous width is 1.
func runeWidth(r rune) int {
	_, n := shown(r)
	return n
}

// textWidth is the number of cells that t takes.
func textWidth(t string) int {
	n := 0
	for _, r := range t {
		n += runeWidth(r)
	}
	return n
}

// clip is the longest start of t that fits in w cells.
func clip(t string, w int) string {
	for i, r := range t {
		if w -= runeWidth(r); w < 0 {
			return t[:i]
		}
	}
	return t
}

// cell is one position of the screen. r is 0 only in the second cell of a wide rune.
type cell struct {
	r rune
	s style
}

// grid is a screenful of cells, row by row. Everything that does not fit is clipped.
type grid struct {
	w, h  int
	cells []cell
}

// resize makes g w by h cells and blank.
func (g *grid) resize(w, h int) {
	g.w, g.h = max(w, 0), max(h, 0)
	g.cells = slices.Grow(g.cells[:0], g.w*g.h)[:g.w*g.h]
	g.clear()
}

func (g *grid) clear() {
	for i := range g.cells {
		g.cells[i] = cell{r: ' '}
	}
}

// put draws r at x, y and answers how many cells it takes, drawn or clipped away. At the margin a wide
// rune becomes a space.
func (g *grid) put(x, y int, r rune, s style) int {
	return g.putBefore(g.w, x, y, r, s)
}

// putBefore is put where a wide rune that would reach into column end becomes a space.
func (g *grid) putBefore(end, x, y int, r rune, s style) int {
	r, n := shown(r)
	if n == 2 && x+n > min(end, g.w) {
		r, n = ' ', 1
	}
	if n == 0 || x < 0 || x >= g.w || y < 0 || y >= g.h {
		return n
	}
	i := y*g.w + x
	s = s.canonical()
	g.part(i)
	g.cells[i] = cell{r, s}
	if n == 2 {
		g.part(i + 1)
		g.cells[i+1] = cell{0, s}
	}
	return n
}

// part blanks the other half of the wide rune of which cell i, about to be overwritten, is a half.
func (g *grid) part(i int) {
	if g.cells[i].r == 0 {
		g.cells[i-1].r = ' '
	} else if i+1 < len(g.cells) && g.cells[i+1].r == 0 {
		g.cells[i+1].r = ' '
	}
}

// text draws t from x on, in at most w cells, and answers how many cells it took. It does not fill the rest.
func (g *grid) text(x, y, w int, t string, s style) int {
	end, at := x+w, x
	for _, r := range t {
		if at >= end {
			break
		}
		at += g.putBefore(end, at, y, r, s)
	}
	return at - x
}

// bytes is text for a scratch buffer.
func (g *grid) bytes(x, y, w int, t []byte, s style) int {
	end, at := x+w, x
	for i := 0; i < len(t) && at < end; {
		r, n := utf8.DecodeRune(t[i:])
		at += g.putBefore(end, at, y, r, s)
		i += n
	}
	return at - x
}

// fill draws r, which should be one cell wide, all over the rectangle.
func (g *grid) fill(x, y, w, h int, r rune, s style) {
	for row := max(y, 0); row < min(y+h, g.h); row++ {
		for col := max(x, 0); col < min(x+w, g.w); col++ {
			g.put(col, row, r, s)
		}
	}
}

// screen is the wanted grid and what the terminal is known to show. The caller draws on want and flushes.
type screen struct {
	want, have grid
	mono       bool // no colours; bold, dim and reverse stay
	ascii      bool // nothing but ASCII reaches the terminal, which may not read UTF-8
	lost       bool // what the terminal shows is not known: the next flush draws everything

	buf  []byte
	pen  style
	x, y int // the terminal's cursor; x is -1 when it is not known
}

const (
	frameStart = "\x1b[?2026h\x1b[?7l"
	frameClear = "\x1b[?25l\x1b[m\x1b[H\x1b[2J"
	frameEnd   = "\x1b[m\x1b[?7h\x1b[?2026l"
)

// resize makes both grids w by h and blank if that is a change. Terminals differ in what they then show.
func (s *screen) resize(w, h int) {
	if s.want.w != w || s.want.h != h {
		s.want.resize(w, h)
		s.have.resize(w, h)
		s.lost = true
	}
}

// flush makes the terminal show want, in one Write or none. After an error the screen is lost. A tty
// that another process made non-blocking and that is full loses a frame; that is no error.
func (s *screen) flush(w io.Writer) error {
	s.reduce()
	s.buf = append(s.buf[:0], frameStart...)
	s.x, s.pen = -1, noStyle // what happened between two frames is not known either
	if s.lost {
		s.buf = append(s.buf, frameClear...)
		s.have.clear()
	}
	start := len(s.buf)
	for y := range s.want.h {
		s.row(y)
	}
	if !s.lost && len(s.buf) == start {
		return nil
	}
	s.buf = append(s.buf, frameEnd...)
	s.lost = true
	if _, err := w.Write(s.buf); errors.Is(err, unix.EAGAIN) {
		return nil
	} else if err != nil {
		return fmt.Errorf("writing to the terminal: %w", err)
	}
	s.lost = false
	copy(s.have.cells, s.want.cells)
	return nil
}

// reduce takes from want what this terminal does not get.
func (s *screen) reduce() {
	if !s.mono && !s.ascii {
		return
	}
	for i := range s.want.cells {
		c := &s.want.cells[i]
		if s.mono {
			c.s &= attributes
		}
		if s.ascii && c.r == 0 {
			c.r = ' '
		} else if s.ascii && c.r > '~' {
			c.r = '?'
		}
	}
}

// row appends the cells of row y that changed. The second cell of a wide rune comes with its first.
func (s *screen) row(y int) {
	want := s.want.cells[y*s.want.w:][:s.want.w]
	have := s.have.cells[y*s.have.w:][:s.have.w]
	for x, c := range want {
		if c == have[x] || c.r == 0 {
			continue
		}
		s.move(x, y)
		if c.s != s.pen {
			s.buf, s.pen = c.s.appendSGR(s.buf), c.s
		}
		s.write(c.r, x+1 < len(want) && want[x+1].r == 0)
	}
}

// write appends r. All terminals agree on the width of Latin, line, block, braille, Han and Hangul runes;
// of others (emoji above all; tmux asks libc) the cursor may be anywhere after it, so it is addressed
// anew, and the second cell is blanked first for a terminal that will not draw on it.
func (s *screen) write(r rune, wide bool) {
	agreed := r < 0x300 || 0x2500 <= r && r < 0x25fd || 0x2800 <= r && r < 0x2900 || 0x4e00 <= r && r < 0xd7a4
	next := s.x + 1
	if wide {
		next++
	}
	if wide && !agreed {
		s.buf = append(s.buf, "  "...)
		s.x = -1
		s.move(next-2, s.y)
	}
	s.buf = utf8.AppendRune(s.buf, r)
	if s.x = next; !agreed {
		s.x = -1
	}
}

// move appends what brings the cursor to x, y. After the last column, where some terminals wait to wrap
// and some do not, the next cell is in another row and addressed absolutely.
func (s *screen) move(x, y int) {
	switch {
	case s.x == x && s.y == y:
	case s.x < x && s.x >= 0 && s.y == y:
		s.buf = append(strconv.AppendInt(append(s.buf, "\x1b["...), int64(x-s.x), 10), 'C')
	default:
		s.buf = append(strconv.AppendInt(append(s.buf, "\x1b["...), int64(y+1), 10), ';')
		s.buf = append(strconv.AppendInt(s.buf, int64(x+1), 10), 'H')
	}
	s.x, s.y = x, y
}

// glyphs are the runes that charts and bars are made of, each one cell wide.
type glyphs struct {
	level       [8]rune // a chart's cell, lowest first
	full, empty rune    // a bar's cells
}

var (
	blockGlyphs = glyphs{[8]rune{'▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'}, '▮', '▯'}
	asciiGlyphs = glyphs{[8]rune{'.', ':', '-', '=', '+', '*', '#', '@'}, '#', '.'}
)

// colourless tells whether the environment asks for no colours (no-color.org: set and not empty).
func colourless(getenv func(string) string) bool {
	return getenv("NO_COLOR") != "" || getenv("TERM") == "dumb"
}

// asciiOnly tells whether the terminal shows nothing but ASCII well: the locale is not UTF-8, or it is
// the Linux console (TERM=linux), whose font of 256 or 512 glyphs lacks most of the blocks.
func asciiOnly(getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(getenv(name)); v != "" {
			utf := strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
			return !utf || getenv("TERM") == "linux"
		}
	}
	return true
}

// widthProbe asks where the cursor is after a block glyph, whose width is ambiguous. The answer comes as
// keyReport, or never. It is asked in row 2, since in row 1 the answer `CSI 1;2R` is Shift-F3 as well.
const widthProbe = "\x1b[2;1H▁\x1b[6n"

// probeReply reads the sequence of a keyReport. Not narrow means ASCII: the glyph took two cells, or the
// terminal took the bytes of its UTF-8 for characters. ok is false if it is no answer to widthProbe.
func probeReply(seq []byte) (narrow, ok bool) {
	column, ok := strings.CutPrefix(string(seq), "\x1b[2;")
	return column == "2R", ok
}

// key is a rune that was typed, control characters included, or one of the constants.
type key rune

const (
	keyNone  key = 0 // nothing, or something that is not a key of ours
	keyCtrlC key = 0x03
	keyTab   key = '\t'
	keyCtrlL key = 0x0c
	keyEnter key = '\r'
	keyCtrlZ key = 0x1a
	keyEsc   key = 0x1b
)

const (
	keyUp key = unicode.MaxRune + 1 + iota // these seven in the order of controlKey's letters
	keyDown
	keyRight
	keyLeft
	keyHome
	keyEnd
	keyShiftTab
	keyPgUp
	keyPgDn
	keyReport // not a key: the terminal's answer to `CSI 6n`
)

// maxSequence is the number of bytes kept of a sequence that does not end; maxParams is the length of the
// parameters beyond which a sequence is none of ours. The first must be larger by 4 at least.
const (
	maxSequence = 64
	maxParams   = 32
)

// parseKey reads the first key of b and answers how many bytes it is. 0 bytes: more must come to tell.
// With final nothing more is awaited: a lone ESC is then the key, and an unfinished sequence is no key.
// Sequences that are no keys of ours are swallowed whole.
func parseKey(b []byte, final bool) (k key, n int) {
	switch {
	case len(b) == 0:
		return keyNone, 0
	case b[0] != 0x1b:
		return parseRune(b, final)
	case len(b) == 1 && final:
		return keyEsc, 1
	case len(b) == 1:
		return keyNone, 0
	}
	switch b[1] {
	case '[', 'O':
		k, n = parseControl(b)
	case ']', 'P', 'X', '^', '_': // OSC, DCS, SOS, PM, APC
		n = stringLen(b)
	default: // Alt and a key is ESC and that key, as is typing them fast over a slow line
		return keyEsc, 1
	}
	if n == 0 && final {
		return keyNone, len(b)
	}
	return k, n
}

func parseRune(b []byte, final bool) (key, int) {
	if !final && !utf8.FullRune(b) {
		return keyNone, 0
	}
	r, n := utf8.DecodeRune(b)
	switch {
	case r == utf8.RuneError && n == 1:
		return keyNone, 1
	case r == '\n':
		return keyEnter, 1
	}
	return key(r), n
}

// parseControl reads CSI and SS3 sequences. Another control character in the middle breaks one off.
func parseControl(b []byte) (key, int) {
	i := 2
	if b[1] == '[' && len(b) > 2 && b[2] == '[' { // the Linux console's F1 is ESC [ [ A
		i = 3
	}
	for i < len(b) && ' ' <= b[i] && b[i] < '@' {
		i++
	}
	switch {
	case i == len(b):
		return keyNone, 0
	case b[i] < '@' || b[i] > '~':
		return keyNone, i
	}
	return controlKey(b[1], string(b[2:i]), b[i]), i + 1
}

// controlKey is the key of a sequence that starts with ESC and intro. A modifier does not change it.
func controlKey(intro byte, params string, last byte) key {
	if len(params) > maxParams || strings.Trim(params, "0123456789;") != "" {
		return keyNone
	}
	switch last {
	case 'A', 'B', 'C', 'D', 'H', 'F', 'Z':
		return keyUp + key(strings.IndexByte("ABCDHFZ", last))
	case 'M': // the keypad's Enter; after CSI it is a mouse report
		if intro == 'O' {
			return keyEnter
		}
	case 'R':
		if intro == '[' && strings.Count(params, ";") == 1 {
			return keyReport
		}
	case '~':
		first, _, _ := strings.Cut(params, ";")
		return tildeKeys[first]
	}
	return keyNone
}

// tildeKeys: 1 and 4 are the Linux console's, screen's and tmux's, 7 and 8 rxvt's.
var tildeKeys = map[string]key{"1": keyHome, "7": keyHome, "4": keyEnd, "8": keyEnd, "5": keyPgUp, "6": keyPgDn}

// stringLen is the length of the control string at the start of b, 0 if it has no end yet. Alt-] starts
// one, too, so Ctrl-C, CAN and SUB (Ctrl-Z) and any sequence but its terminator break it off.
func stringLen(b []byte) int {
	for i := 2; i < len(b); i++ {
		switch b[i] {
		case 0x07:
			return i + 1
		case 0x03, 0x18, 0x1a:
			return i
		case 0x1b:
			if i+1 == len(b) {
				return 0
			}
			if b[i+1] == '\\' {
				return i + 2
			}
			return i
		}
	}
	return 0
}

// typed holds what has come from the keyboard and is not a key yet. If something waits after next, the
// caller lets 50 ms pass without further bytes and then calls next with final.
type typed struct{ buf []byte }

func (t *typed) add(b []byte) { t.buf = append(t.buf, b...) }

func (t *typed) waits() bool { return len(t.buf) > 0 }

// next is the next key and its bytes, which are good until the next call; keyNone if there is none now.
func (t *typed) next(final bool) (key, []byte) {
	for {
		k, n := parseKey(t.buf, final)
		if n == 0 {
			t.shorten()
			return keyNone, nil
		}
		seq := t.buf[:n]
		t.buf = t.buf[n:]
		if k != keyNone {
			return k, seq
		}
	}
}

// shorten drops the middle of a sequence that does not end, and keeps what it begins with, so that its
// rest is not taken for keys, and an ESC at its end, which may be half of its terminator.
func (t *typed) shorten() {
	n := len(t.buf)
	if n <= maxSequence {
		return
	}
	if t.buf[n-1] == 0x1b {
		t.buf = append(t.buf[:maxSequence-1], 0x1b)
	} else {
		t.buf = t.buf[:maxSequence]
	}
}

// readKeys sends what is typed until the terminal is gone, then closes out. It blocks in read for good,
// so that it ends only with the process. A read in the background fails, since SIGTTIN is ignored. tty
// is not nil.
func readKeys(tty *os.File, out chan<- []byte) {
	defer close(out)
	fd := int(tty.Fd())
	for {
		b := make([]byte, 256)
		n, err := tty.Read(b)
		if n > 0 {
			out <- b[:n]
		}
		switch {
		case err == nil:
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EIO) && inBackground(fd):
			time.Sleep(200 * time.Millisecond)
		default:
			return
		}
	}
}

// terminal is the tty that frames go to and keys come from. All its methods may be called from any goroutine.
type terminal struct {
	out *os.File
	tty *os.File // where keys come from; nil: nowhere
	fd  int      // of tty, or else of out

	lock  chan struct{} // held by whoever writes to the terminal or changes its modes
	up    bool          // it is in our modes
	stale bool          // another process may have changed its modes since
	done  atomic.Bool   // leave was called
	found atomic.Pointer[term.State]
}

const (
	enterModes = "\x1b[?1049h\x1b[?25l"
	// Without an alternate screen (GNU screen's default) the prompt comes below the last frame.
	leaveModes = "\x1b[?2026l\x1b[m\x1b[?25h\x1b[?7h\x1b[999;1H\r\n\x1b[?1049l"
)

var (
	errNotOurs    = errors.New("the terminal is not ours")
	errBackground = errors.New("in the background")
)

// openTerminal is the terminal out, with keys from in if that is a terminal, too, or else from /dev/tty.
// It makes the process deaf to SIGTTIN: in the background it is to go on without drawing and to heed
// SIGTERM, and not to be stopped by its own read. (SIGTSTP must never be notified: it would not stop again.)
func openTerminal(in, out *os.File) *terminal {
	t := &terminal{out: out, fd: int(out.Fd()), lock: make(chan struct{}, 1)}
	if term.IsTerminal(int(in.Fd())) {
		t.tty = in
	} else if f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		t.tty = f
	}
	if t.tty != nil {
		t.fd = int(t.tty.Fd())
	}
	signal.Ignore(unix.SIGTTIN)
	return t
}

// enter makes the terminal ours if it is not, and is to be called before each flush. fresh: it has just
// become ours (again), so the screen is lost and the size unknown. Fails with errBackground while
// another job has the terminal, and with errNotOurs after leave; neither is a fault.
func (t *terminal) enter() (fresh bool, err error) {
	t.lock <- struct{}{}
	defer t.unlock()
	switch {
	case t.done.Load():
		return false, errNotOurs
	case inBackground(t.fd):
		t.stale = true
		return false, errBackground
	case t.up && !t.stale:
		return false, nil
	}
	if t.tty != nil {
		found, err := term.MakeRaw(t.fd)
		if err != nil {
			return false, fmt.Errorf("setting the terminal to raw mode: %w", err)
		}
		if !t.up { // else they may be our own
			t.found.Store(found)
		}
	}
	t.up, t.stale = true, false
	_, err = t.out.WriteString(enterModes)
	return true, err
}

// leave gives the terminal back as it was found, for good. It is for every way out: the end of the loop,
// a guard around a panic in any goroutine, before exec. Errors are of no use: the tty may be gone. A
// Write that hangs delays it by a second at most; then only the tty's modes are restored.
func (t *terminal) leave() {
	t.done.Store(true)
	select {
	case t.lock <- struct{}{}:
		defer t.unlock()
		t.release()
	case <-time.After(time.Second):
		t.restore()
	}
}

// suspend gives the terminal back, stops the process group, and returns when it was continued; the next
// enter takes the terminal again. cont gets SIGCONT and nothing else. The kernel does not stop an
// orphaned group (docker run -it, tmux new-window PROGRAM, ssh -t host PROGRAM): it goes on after 250 ms.
func (t *terminal) suspend(cont <-chan os.Signal) {
	t.lock <- struct{}{}
	t.release()
	t.unlock()
	if unix.Kill(0, unix.SIGTSTP) != nil {
		return
	}
	select {
	case <-cont:
	case <-time.After(250 * time.Millisecond):
	}
}

// continued notes that a SIGCONT came. If it ended a stop from outside (kill -STOP), the shell has set its
// own modes meanwhile.
func (t *terminal) continued() {
	t.lock <- struct{}{}
	t.stale = true
	t.unlock()
}

// Write writes to the terminal if it is ours.
func (t *terminal) Write(b []byte) (int, error) {
	t.lock <- struct{}{}
	defer t.unlock()
	if !t.up || t.done.Load() {
		return 0, errNotOurs
	}
	return t.out.Write(b)
}

func (t *terminal) unlock() { <-t.lock }

// release, with the lock held, puts modes and screen back, unless another job has the terminal now.
func (t *terminal) release() {
	if t.up && !inBackground(t.fd) {
		_, _ = t.out.WriteString(leaveModes)
	}
	if t.up {
		t.restore()
	}
	t.up = false
}

func (t *terminal) restore() {
	if found := t.found.Load(); found != nil && !inBackground(t.fd) {
		_ = term.Restore(t.fd, found)
	}
}

// inBackground tells whether another job of the session has the terminal. It has not if this terminal
// is not the session's, or is gone.
func inBackground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && group != unix.Getpgrp()
}

// The largest screen that is drawn, in cells: a tty can claim to be 65535 by 65535.
const (
	maxColumns = 1024
	maxLines   = 512
)

// size is the terminal's size in cells. A serial line or a pipe's pty claims 0 by 0.
func (t *terminal) size(getenv func(string) string) (w, h int) {
	w, h, _ = term.GetSize(int(t.out.Fd()))
	return dimension(w, getenv("COLUMNS"), 80, maxColumns), dimension(h, getenv("LINES"), 24, maxLines)
}

// dimension is n, or else what env says, or else usual.
func dimension(n int, env string, usual, most int) int {
	if n <= 0 {
		n, _ = strconv.Atoi(env)
	}
	if n <= 0 {
		n = usual
	}
	return min(n, most)
}
