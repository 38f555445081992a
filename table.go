// table.go owns the view with a line for each instance, and its order.
package main

import (
	"cmp"
	"slices"
)

// sortOrder is the table's.
type sortOrder uint8

const (
	byID sortOrder = iota
	byUtil
	byVRAM
	byIdle
	sortOrders
)

var sortWords = [...]string{"id", "util", "VRAM", "idle"}

// table is one line per instance and per GPU without any.
func (p painter) table(r rect) {
	v := p.v
	p.line(r, 0).str("ID    PROFILE        STATE  UTIL             VRAM               IDLE  USER      JOB          COMMAND", titleStyle)
	first := window(v.sel, len(v.rows), r.h-1)
	for i := first; i < len(v.rows) && i-first < r.h-1; i++ {
		p.tableRow(p.line(r, i-first+1), r.x, &v.rows[i], p.chosen(i))
	}
}

func (p painter) tableRow(l *line, x int, d *listed, st style) {
	v := p.v
	l.int(d.gpu, st)
	if !d.isGPU() {
		l.str(".", st).int(d.mig, st)
	}
	name := d.profile
	if d.isGPU() {
		name = shortName(d.name)
	}
	if st == chosenStyle {
		l.str(" >", st)
	}
	l.to(x+6).str(clip(name, 14), st).to(x + 21)
	if !d.removed.IsZero() {
		l.str("removed ", grey).str(d.removed.Format("15:04:05"), grey)
		return
	}
	l.str(p.note(&d.device), 0)
	util, used, total := v.of(&d.device, mUtil), v.of(&d.device, mMemUsed), v.of(&d.device, mMemTotal)
	l.to(x+28).right(util, percent, utilStyle(util), x+32)
	p.spark(l.to(x+33), v.past.devices[d.id()].ring(mUtil), 10)
	mem := share(used, total)
	l.to(x+45).bar(mem, measure100, 10, utilStyle(mem)).right(mem, percent, utilStyle(mem), x+60).percentSign(mem)
	l.right(v.of(&d.device, mIdle), seconds, 0, x+69)
	if list := ownProcesses(v.snap, v.inSnapshot(d)); len(list) > 0 {
		l.to(x+71).str(clip(known(&list[0], list[0].user), 9), 0)
		l.to(x+81).str(clip(known(&list[0], list[0].job), 12), 0)
		l.to(x+94).str(known(&list[0], list[0].command), 0)
	}
}

// inSnapshot is d as the snapshot has it, to which its processes point.
func (v *view) inSnapshot(d *listed) *device {
	for i := range v.snap.dev {
		if v.snap.dev[i].id() == d.id() && v.snap.dev[i].mig == d.mig {
			return &v.snap.dev[i]
		}
	}
	return nil
}

// spark is a chart of one line.
func (p painter) spark(l *line, past *ring, w int) {
	p.chart(rect{l.x, l.y - 1, min(w, max(l.end-l.x, 0)), 2}, measure100, green, func(i int) point { return past.ago(i) })
}

// sortRows orders rows for the table; ties and byID stay in the order of devices.
func sortRows(rows []listed, order sortOrder) {
	value := func(d *listed) (int64, bool) {
		switch order {
		case byUtil:
			return d.v[mUtil].num()
		case byVRAM:
			return d.v[mMemUsed].num()
		case byIdle:
			return d.v[mIdle].num()
		}
		return 0, false
	}
	slices.SortStableFunc(rows, func(a, b listed) int {
		x, xok := value(&a)
		y, yok := value(&b)
		if xok != yok {
			if xok {
				return -1
			}
			return 1
		}
		return cmp.Compare(y, x)
	})
}
