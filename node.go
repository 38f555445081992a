// node.go owns the view of all GPUs at once, a line for each.
package main

// node is all GPUs at once, one line each: "profile util/VRAM%" for every instance.
func (p painter) node(r rect) {
	v := p.v
	p.line(r, 0).str("GPU  temp power  profile util/VRAM % of each instance", titleStyle)
	gpus, chosenRow := 0, 0
	for i := range v.rows {
		if v.rows[i].isGPU() {
			gpus++
		}
		if i == v.sel {
			chosenRow = gpus - 1
		}
	}
	row := 1 - window(chosenRow, gpus, r.h-1)
	for i := range v.rows {
		if v.rows[i].isGPU() {
			if row >= 1 && row < r.h {
				p.nodeLine(p.line(r, row), r, i)
			}
			row++
		}
	}
}

// nodeLine is the GPU in row i of the list and the instances after it.
func (p painter) nodeLine(l *line, r rect, i int) {
	v := p.v
	d := &v.rows[i].device
	l.int(d.gpu, p.chosen(i)).str(p.mark(i), chosenStyle)
	if d.fault != notRead {
		l.to(r.x+3).str(d.fault.sentence(), red|bold)
		return
	}
	l.to(r.x+3).right(v.of(d, mTemp), celsius, tempStyle(d.v[mTemp], d.v[mTempSlow]), r.x+5).str("C", 0)
	l.right(v.of(d, mPower), milliwatt, 0, r.x+11).str("W", 0).to(r.x + 14)
	if d.rows == 0 {
		p.nodeCell(l, d, shortName(d.name), p.chosen(i))
		l.str(" ", 0).str(p.note(d), grey)
		return
	}
	cell := min(max((r.w-14)/max(v.mostInstances(), 1), 9), 16)
	for i++; i < len(v.rows) && !v.rows[i].isGPU(); i++ {
		if v.rows[i].removed.IsZero() {
			next := l.x + cell
			l.str(p.mark(i), chosenStyle)
			p.nodeCell(l, &v.rows[i].device, shortProfile(v.rows[i].profile), p.chosen(i))
			l.to(next)
		}
	}
}

// mark stands before or after the name of the selected row, where there is little room.
func (p painter) mark(i int) string {
	if i == p.v.sel {
		return ">"
	}
	return ""
}

// chosen is the style of row i's name.
func (p painter) chosen(i int) style {
	if i == p.v.sel {
		return chosenStyle
	}
	return 0
}

// mostInstances is the number of instances of the GPU that has most.
func (v *view) mostInstances() int {
	most := 0
	for i := range v.rows {
		most = max(most, v.rows[i].rows)
	}
	return most
}

func (p painter) nodeCell(l *line, d *device, name string, st style) {
	util, mem := p.v.of(d, mUtil), share(p.v.of(d, mMemUsed), p.v.of(d, mMemTotal))
	l.str(name, st).str(" ", 0).value(util, percent, utilStyle(util)).str("/", 0).value(mem, percent, utilStyle(mem))
}

// shortProfile is "3g" of "3g.40gb", "1c.3g" of "1c.3g.40gb".
func shortProfile(s string) string {
	for i := len(s) - 1; i > 0; i-- {
		if s[i] == '.' && i > 0 && s[i-1] == 'g' {
			return s[:i]
		}
	}
	return s
}
