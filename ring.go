// ring.go owns history: what was seen of each device and of the host at each of the last ticks.
//
// Invariant: one slot per tick by the clock, also when the value is absent or the tick was missed, so that a
// column of a chart is a time, the same in all charts; an answer belongs to the tick that asked for it. A series
// belongs to a device's identity, never to its number: an instance that takes another's place starts an empty one.
package main

import (
	"math"
	"time"
)

const (
	historyLen  = 300 // ticks
	keepRemoved = 30 * time.Second
)

// point is a value in history: a float32 in its metric's base unit, whose two lowest bits are the origin.
// Half the size, of several hundred kB on a large machine, for a precision that no chart shows. The zero
// value is absent.
type point uint32

func newPoint(n float32, from origin) point { return point(math.Float32bits(n)&^3 | uint32(from)) }

func (p point) num() float32 { return math.Float32frombits(uint32(p) &^ 3) }

func (p point) from() origin { return origin(p & 3) }

// ring holds the last historyLen points.
type ring struct {
	p    [historyLen]point
	next int
	n    int
}

// advance makes an unknown point the newest.
func (r *ring) advance() {
	r.p[r.next] = 0
	r.next = (r.next + 1) % historyLen
	r.n = min(r.n+1, historyLen)
}

// retreat forgets the newest point.
func (r *ring) retreat() {
	if r.n > 0 {
		r.n--
		r.next = (r.next - 1 + historyLen) % historyLen
	}
}

// set makes v the value of i ticks ago.
func (r *ring) set(i int, v value) {
	if i < 0 || i >= historyLen {
		return
	}
	n, _ := v.num()
	r.p[(r.next-1-i+2*historyLen)%historyLen] = newPoint(float32(n), v.from)
	r.n = max(r.n, i+1)
}

// ago is the point of i ticks ago, 0 the newest; absent before the first.
func (r *ring) ago(i int) point {
	if r == nil || i < 0 || i >= r.n {
		return 0
	}
	return r.p[(r.next-1-i+2*historyLen)%historyLen]
}

// charted are the device metrics of which there are charts.
var charted = [...]metric{mUtil, mDRAM, mMemUtil, mMemUsed, mPcieTx, mPcieRx}

// deviceID is a device over time. born tells apart two instances that had the same UUID in turn.
type deviceID struct {
	uuid string
	gpu  int
	born uint32
}

func (d *device) id() deviceID { return deviceID{d.uuid, d.gpu, d.born} }

// series is the history of one device. A ring comes with its metric's first number.
type series struct {
	rings [len(charted)]*ring
	seen  time.Time // when a snapshot last had it
}

// ring is the history of m, nil without any.
func (s *series) ring(m metric) *ring {
	for i, c := range charted {
		if c == m && s != nil {
			return s.rings[i]
		}
	}
	return nil
}

// history is the past of all devices and of the host, in slots of one interval each.
type history struct {
	devices  map[deviceID]*series
	cpu      ring
	memUsed  ring
	memCache ring
	interval time.Duration
	base     time.Time // the middle of slot first
	first    int
	slot     int                // the newest
	last     time.Time          // of the newest tick
	ticks    uint32             // so far
	made     [historyLen]uint32 // by which tick each of the last slots was, the newest at slot % historyLen; 0 none
}

func newHistory() *history { return &history{devices: map[deviceID]*series{}} }

// tick begins the slot of time at, with the host's values, and answers its number. Slots that went by
// become gaps.
func (h *history) tick(at time.Time, interval time.Duration, host *hostState) int {
	if interval != h.interval || at.Before(h.last) { // a clock that was set back, in a recording
		h.interval, h.base, h.first = interval, at, h.slot+1
	}
	slot := max(h.first+int((at.Sub(h.base)+interval/2)/interval), h.slot+1)
	h.ticks++
	for i := range min(slot-h.slot, historyLen) {
		h.advance()
		h.made[(slot-i)%historyLen] = h.ticks // of a gap too: it goes with the tick that ended it
	}
	h.slot, h.last = slot, at
	h.cpu.set(0, host.cpu)
	h.memUsed.set(0, host.memUsed)
	h.memCache.set(0, host.memCache)
	return slot
}

// fill puts the answer to what was asked at slot into that slot. Devices that have not been in an answer
// for a while are forgotten; silence is no reason to.
func (h *history) fill(slot int, s *snapshot) {
	ago := h.slot - slot
	for i := range s.dev {
		d := &s.dev[i]
		one := h.devices[d.id()]
		if one == nil {
			one = &series{}
			h.devices[d.id()] = one
		}
		one.seen = s.at
		for j, m := range charted {
			if one.rings[j] == nil && d.v[m].from != absent {
				one.rings[j] = &ring{}
			}
			if one.rings[j] != nil {
				one.rings[j].set(ago, d.v[m])
			}
		}
	}
	crowd := len(h.devices) > 2*len(s.dev)+1000 // a recording in which time stands still
	for id, one := range h.devices {
		if s.at.Sub(one.seen) > keepRemoved || crowd && one.seen != s.at {
			delete(h.devices, id)
		}
	}
}

// advance begins a slot of which nothing is known yet.
func (h *history) advance() { h.each((*ring).advance) }

// each calls f for every ring there is.
func (h *history) each(f func(*ring)) {
	f(&h.cpu)
	f(&h.memUsed)
	f(&h.memCache)
	for _, one := range h.devices {
		for _, r := range one.rings {
			if r != nil {
				f(r)
			}
		}
	}
}

// undo forgets the newest tick; the one before it, of the time at, is the newest then, if it is there still.
func (h *history) undo(at time.Time) (there bool) {
	tick := h.made[h.slot%historyLen]
	for tick != 0 && h.made[h.slot%historyLen] == tick {
		h.made[h.slot%historyLen] = 0
		h.slot--
		h.each((*ring).retreat)
	}
	if h.last = at; h.slot < h.first {
		h.base, h.first = at, h.slot
	}
	return h.made[h.slot%historyLen] != 0
}
