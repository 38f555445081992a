// display.go owns the terminal's side of the full screen: what comes from the terminal goes to the dashboard, and what
// its view shows goes to the terminal as frames.
//
// Invariant: nothing is written to the terminal but whole frames of what is painted.
package main

import (
	"errors"
	"os"
	"os/signal"
	"os/user"
	"strconv"
	"syscall"
	"time"
)

// display is the front that is full screen.
type display struct {
	*dashboard
	term     *terminal
	scr      screen
	typing   typed
	escapeAt time.Time // when what is half typed is taken as it is
	cont     chan os.Signal
}

// escapeWait is how long the rest of a key's sequence may take.
const escapeWait = 50 * time.Millisecond

// inputs are where the terminal's events come from.
type inputs struct {
	keys               <-chan []byte // closed when the terminal is gone
	resized, continued <-chan os.Signal
}

func newDisplay(c *config, t *terminal) *display {
	d := &display{term: t, cont: make(chan os.Signal, 1)}
	d.scr.mono = c.noColor || colourless(os.Getenv)
	d.scr.ascii = c.ascii || asciiOnly(os.Getenv)
	d.dashboard = newDashboard(c, d.scr.ascii, time.Now())
	d.w, d.h = t.size(os.Getenv)
	d.visible = os.Getenv("CUDA_VISIBLE_DEVICES")
	d.mine = func() []string {
		// The number too: names are looked up in the background and seldom there yet.
		names := []string{strconv.Itoa(os.Getuid())}
		if u, err := user.Current(); err == nil {
			names = append(names, u.Username)
		}
		return names
	}
	leaveTerminal = t.leave
	return d
}

// listen sets going what the terminal sends.
func (d *display) listen() inputs {
	resized, keys := make(chan os.Signal, 1), make(chan []byte)
	signal.Notify(resized, syscall.SIGWINCH)
	signal.Notify(d.cont, syscall.SIGCONT)
	if d.term.tty != nil {
		guard(func() { readKeys(d.term.tty, keys) })
	}
	return inputs{keys, resized, d.cont}
}

// due is also when an Esc counts as a key of its own.
func (d *display) due() time.Time { return earliest(d.dashboard.due(), d.escapeAt) }

// typed handles the next key of what was typed, and says whether there may be more; final when no more is coming.
func (d *display) typed(now time.Time, final bool) (o orders, more bool) {
	k, seq := d.typing.next(final)
	if d.escapeAt = (time.Time{}); k == keyNone {
		if d.typing.waits() {
			d.escapeAt = now.Add(escapeWait)
		}
		return orders{}, false
	}
	d.scr.lost = d.scr.lost || k == keyCtrlL && !d.v.help
	o = d.key(now, k, seq)
	if k == keyCtrlZ {
		d.term.suspend(d.cont)
	}
	return o, true
}

func (d *display) resize() {
	d.w, d.h = d.term.size(os.Getenv)
	d.scr.resize(d.w, d.h)
	d.scr.lost = true
}

// draw paints and flushes one frame, if the terminal is ours. A terminal that is gone ends the program, as its SIGHUP
// would; whoever reads keys learns of it sooner.
func (d *display) draw(now time.Time, late time.Duration, closed bool, broken string) int {
	if !d.entered {
		return goOn
	}
	fresh, err := d.term.enter()
	if err != nil {
		return gone(err)
	}
	if fresh {
		d.resize()
		if !d.scr.ascii {
			_, _ = d.term.Write([]byte(widthProbe))
		}
	}
	if d.v.ascii != d.scr.ascii {
		d.scr.ascii, d.scr.lost = d.v.ascii, true
	}
	paint(&d.scr.want, d.show(now, late, closed, broken))
	return gone(d.scr.flush(d.term)) // after any other error the next frame draws everything again
}

func (d *display) close() { d.term.leave() }

// gone is the exit code if err says that the terminal is no more, else goOn.
func gone(err error) int {
	if errors.Is(err, syscall.EIO) {
		return 128 + int(syscall.SIGHUP)
	}
	return goOn
}
