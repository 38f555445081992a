package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// emulator is the smallest terminal that can show our frames, and a strict one: what a real terminal may
// do in one way or another is an error here, as is everything that term.go has no reason to send. Its
// screen is a grid that it writes itself, not through put.
type emulator struct {
	grid
	narrow bool // emoji take one cell, as on a terminal with old tables

	x, y                     int
	pen                      style
	adrift                   bool // nobody can say where the cursor is: it must be addressed
	frame, noWrap, alt, bare bool // in a frame; autowrap off; alternate screen; cursor hidden
	writes                   int
	err                      error
}

// tornHalf is what the other half of an overwritten wide rune turns into: it must not stay on the screen.
const tornHalf = utf8.RuneError

func newEmulator(w, h int) *emulator {
	e := &emulator{adrift: true}
	e.resize(w, h)
	for i := range e.cells {
		e.cells[i].r = tornHalf
	}
	return e
}

func (e *emulator) fail(format string, args ...any) {
	if e.err == nil {
		e.err = fmt.Errorf(format, args...)
	}
}

func (e *emulator) Write(b []byte) (int, error) {
	e.writes++
	for rest := b; len(rest) > 0; {
		n := 1
		switch c := rest[0]; {
		case c == 0x1b:
			n = e.sequence(rest)
		case c == '\r' && !e.frame:
			e.x = 0
		case c == '\n' && !e.frame:
			e.y = min(e.y+1, e.h-1)
		case c < ' ' || c == 0x7f:
			e.fail("control character %#x", c)
		default:
			r, size := utf8.DecodeRune(rest)
			if r == utf8.RuneError || 0x80 <= r && r < 0xa0 {
				e.fail("not to be sent: % x", rest[:size])
			}
			e.print(r)
			n = size
		}
		rest = rest[n:]
	}
	if e.frame {
		e.fail("a write ends within a frame")
	}
	return len(b), e.err
}

func (e *emulator) sequence(b []byte) int {
	end := bytes.IndexFunc(b, func(r rune) bool { return r >= '@' && r != '[' })
	if len(b) < 3 || b[1] != '[' || end < 0 {
		e.fail("not a CSI sequence: %q", b[:min(len(b), 12)])
		return len(b)
	}
	params, last := string(b[2:end]), b[end]
	if mode, ok := strings.CutPrefix(params, "?"); ok {
		e.mode(mode, last)
		return end + 1
	}
	var p []int
	for s := range strings.SplitSeq(params, ";") {
		n, err := strconv.Atoi(s)
		if s != "" && err != nil {
			e.fail("parameters %q", params)
		}
		p = append(p, n)
	}
	e.control(last, p)
	return end + 1
}

func (e *emulator) control(last byte, p []int) {
	switch {
	case last == 'm':
		for _, n := range p {
			e.sgr(n)
		}
	case last == 'H' && len(p) == 2:
		e.x, e.y, e.adrift = p[1]-1, p[0]-1, false
		if e.frame && (e.x < 0 || e.y < 0 || e.x >= e.w || e.y >= e.h) {
			e.fail("cursor to %d, %d of %dx%d", e.x, e.y, e.w, e.h)
		}
		e.x, e.y = min(e.x, e.w-1), min(e.y, e.h-1)
	case last == 'H' && p[0] == 0:
		e.x, e.y, e.adrift = 0, 0, false
	case last == 'C' && len(p) == 1:
		if e.x += max(p[0], 1); e.adrift || e.x >= e.w {
			e.fail("cursor right by %d, from nowhere or to beyond the margin", p[0])
			e.x = 0
		}
	case last == 'J' && len(p) == 1 && p[0] == 2:
		if e.pen != 0 {
			e.fail("clearing with a pen: terminals differ")
		}
		e.clear()
	default:
		e.fail("unexpected sequence %v %c", p, last)
	}
}

func (e *emulator) mode(mode string, last byte) {
	set := last == 'h'
	switch {
	case last != 'h' && last != 'l':
		e.fail("unexpected sequence ?%s%c", mode, last)
	case mode == "2026":
		if e.frame == set && set {
			e.fail("a frame within a frame")
		}
		if e.frame = set; set {
			e.adrift, e.pen = true, noStyle
		}
	case mode == "7":
		e.noWrap = !set
	case mode == "25":
		e.bare = !set
	case mode == "1049":
		e.alt = set
	default:
		e.fail("unexpected mode %s", mode)
	}
}

func (e *emulator) sgr(n int) {
	colour := func(n int) style { return style(n%10) + black }
	if n != 0 && e.pen == noStyle {
		e.fail("SGR %d on an unknown pen", n)
	}
	switch {
	case n == 0:
		e.pen = 0
	case n == 1:
		e.pen |= bold
	case n == 2:
		e.pen |= dim
	case n == 7:
		e.pen |= reverse
	case 30 <= n && n <= 37:
		e.pen = e.pen&^colourMask | colour(n)
	case 90 <= n && n <= 97:
		e.pen = e.pen&^colourMask | colour(n) + 8
	case 40 <= n && n <= 47:
		e.pen = e.pen.on(colour(n))
	case 100 <= n && n <= 107:
		e.pen = e.pen.on(colour(n) + 8)
	default:
		e.fail("unexpected SGR %d", n)
	}
}

func (e *emulator) print(r rune) {
	n := runeWidth(r)
	if e.narrow && r > 0x1f000 {
		n = 1
	}
	switch {
	case !e.frame || !e.noWrap:
		e.fail("printing %q outside a frame or with autowrap on", r)
	case e.adrift || e.pen == noStyle:
		e.fail("printing %q with an unknown cursor or pen", r)
	case n == 0 || e.x+n > e.w:
		e.fail("printing %q of width %d in column %d of %d", r, n, e.x, e.w)
	default:
		e.place(r, n)
	}
}

func (e *emulator) place(r rune, n int) {
	at := e.y*e.w + e.x
	for i := at; i < at+n; i++ {
		if e.cells[i].r == 0 && i == at {
			e.cells[i-1].r = tornHalf
		}
		if i+1 < len(e.cells) && e.cells[i+1].r == 0 {
			e.cells[i+1].r = tornHalf
		}
		e.cells[i] = cell{0, e.pen}
	}
	e.cells[at].r = r
	e.x += n
	e.adrift = e.x >= e.w || e.narrow && r > 0x1f000
}

// differs says in what the screen is not g.
func (e *emulator) differs(g *grid) error {
	if e.err != nil {
		return e.err
	}
	if e.frame || e.noWrap || e.pen != 0 || !e.bare {
		return fmt.Errorf("after the frame: in frame %v, autowrap off %v, pen %#x, cursor hidden %v", e.frame, e.noWrap, e.pen, e.bare)
	}
	for i, want := range g.cells {
		if e.narrow && want.r == 0 && g.cells[i-1].r > 0x1f000 {
			want.r = ' '
		}
		if e.cells[i] != want {
			return fmt.Errorf("row %d, column %d of %dx%d: shows %q %#x, should %q %#x",
				i/g.w, i%g.w, g.w, g.h, e.cells[i].r, e.cells[i].s, want.r, want.s)
		}
	}
	return nil
}
