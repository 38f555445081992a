// gpu.go owns the readings: what a whole GPU answers (facts, sensors, fields, PCIe rates, events), and what is
// read alike for a GPU and an instance (memory, processes).
//
// Invariants: nothing that is refused for good is asked each tick; what only a GPU has is read once, on the GPU; a
// value that could not be read is absent with the reason.
package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

var archNames = map[int]string{
	nvml.DEVICE_ARCH_KEPLER: "Kepler", nvml.DEVICE_ARCH_MAXWELL: "Maxwell", nvml.DEVICE_ARCH_PASCAL: "Pascal",
	nvml.DEVICE_ARCH_VOLTA: "Volta", nvml.DEVICE_ARCH_TURING: "Turing", nvml.DEVICE_ARCH_AMPERE: "Ampere",
	nvml.DEVICE_ARCH_ADA: "Ada", nvml.DEVICE_ARCH_HOPPER: "Hopper", nvml.DEVICE_ARCH_BLACKWELL: "Blackwell",
	nvml.DEVICE_ARCH_BLACKWELL + 1: "Rubin",
}

// openGPU fetches g's handle, which makes the driver initialise that GPU, and its facts.
func (s *nvmlSource) openGPU(g *node) {
	code := s.try(g, cHandle, func() nvml.Return {
		h, ret := s.lib.DeviceGetHandleByIndex(g.gpu)
		if ret == nvml.SUCCESS {
			g.h = h
		}
		return ret
	})
	if code != nvml.SUCCESS {
		g.answer[cHandle].again = s.now + askAgain
		return
	}
	s.readFacts(g)
}

// readFacts reads what does not change while a GPU is there.
func (s *nvmlSource) readFacts(g *node) {
	text := func(c call, into *string, f func() (string, nvml.Return)) {
		s.try(g, c, func() nvml.Return {
			v, ret := f()
			if ret == nvml.SUCCESS {
				*into = printable(v)
			}
			return ret
		})
	}
	text(cName, &g.name, func() (string, nvml.Return) { return g.h.GetName() })
	text(cUUID, &g.uuid, func() (string, nvml.Return) { return g.h.GetUUID() })
	g.gpuUUID = g.uuid
	text(cPci, &g.bus, func() (string, nvml.Return) {
		pci, ret := g.h.GetPciInfo()
		return busID(pci), ret
	})
	text(cCC, &g.cc, func() (string, nvml.Return) {
		major, minor, ret := g.h.GetCudaComputeCapability()
		return fmt.Sprintf("%d.%d", major, minor), ret
	})
	s.try(g, cMinor, func() nvml.Return {
		minor, ret := g.h.GetMinorNumber()
		if ret == nvml.SUCCESS {
			g.minor = minor
		}
		return ret
	})
	s.try(g, cArch, func() nvml.Return {
		arch, ret := g.h.GetArchitecture()
		if ret == nvml.SUCCESS {
			g.archID, g.arch = int(arch), archNames[int(arch)]
		}
		return ret
	})
}

// busID is the PCI address with a domain of four digits where that is enough, as lspci has it.
func busID(pci nvml.PciInfo) string {
	var b []byte
	for _, c := range pci.BusId {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	id := strings.ToLower(string(b))
	if domain, rest, ok := strings.Cut(id, ":"); ok && len(domain) == 8 {
		return strings.TrimPrefix(domain, "0000") + ":" + rest
	}
	return id
}

// readMemory fills used, total and reserved memory of n. Version 1 counts reserved memory as used.
func (s *nvmlSource) readMemory(n *node) nvml.Return {
	var used, total, reserved uint64
	code := s.try(n, cMem2, func() nvml.Return {
		m, ret := n.h.GetMemoryInfo_v2()
		used, total, reserved = m.Used, m.Total, m.Reserved
		return ret
	})
	res := measure(mMemReserved, signed(reserved))
	if code == nvml.ERROR_FUNCTION_NOT_FOUND || code == nvml.ERROR_ARGUMENT_VERSION_MISMATCH {
		code = s.try(n, cMem1, func() nvml.Return {
			m, ret := n.h.GetMemoryInfo()
			used, total = m.Used, m.Total
			return ret
		})
		res = lack(noSymbol)
	}
	if code == nvml.SUCCESS {
		n.v[mMemUsed], n.v[mMemTotal], n.v[mMemReserved] = measure(mMemUsed, signed(used)), measure(mMemTotal, signed(total)), res
		if used > total {
			n.v[mMemUsed] = lack(badValue)
		}
		n.memory, n.memAt = [2]value{n.v[mMemUsed], n.v[mMemTotal]}, s.now
		return code
	}
	why := reasonOf(code)
	n.v[mMemUsed], n.v[mMemTotal], n.v[mMemReserved] = lack(why), lack(why), lack(why)
	if age := s.now - n.memAt; n.memAt > 0 && !permanent(code) {
		n.v[mMemTotal] = n.memory[1].hold(age, why)
		if age <= holdFor {
			n.v[mMemUsed] = n.memory[0].hold(age, why)
		}
	}
	return code
}

// procEntry is one process as the driver's lists have it.
type procEntry struct {
	pid    uint32
	kinds  uint8 // bits of kindNames
	mem    value
	gi, ci uint32 // noID outside MIG
}

const noID = 0xFFFFFFFF

var kindNames = [...]string{1: "C", 2: "G", 3: "C+G", 4: "M", 5: "C+M", 6: "G+M", 7: "C+G+M"}

// listProcesses reads n's compute, graphics and MPS lists into one list without doubles.
func (s *nvmlSource) listProcesses(n *node, into []procEntry) ([]procEntry, nvml.Return) {
	into = into[:0]
	for i, c := range [...]call{cCompute, cGraphics, cMPS} {
		var list []nvml.ProcessInfo
		code := s.try(n, c, func() nvml.Return {
			var ret nvml.Return
			list, ret = s.processCall(n, c)
			return ret
		})
		if code != nvml.SUCCESS {
			// Without the compute list nothing is known; the others may be refused for good.
			if c == cCompute || !permanent(code) {
				return into, code
			}
			continue
		}
		for _, p := range list {
			into = addProcess(into, p, 1<<i)
		}
	}
	return into, nvml.SUCCESS
}

// processCall is one list read. go-nvml indexes an empty slice, and panics, if the driver says that the
// buffer is too small while asking for none.
func (s *nvmlSource) processCall(n *node, c call) (list []nvml.ProcessInfo, ret nvml.Return) {
	defer func() {
		if recover() != nil {
			list, ret = nil, nvml.ERROR_UNKNOWN
		}
	}()
	switch c {
	case cCompute:
		return n.h.GetComputeRunningProcesses()
	case cGraphics:
		return n.h.GetGraphicsRunningProcesses()
	case cMPS:
		return n.h.GetMPSComputeRunningProcesses()
	}
	return nil, nvml.ERROR_INVALID_ARGUMENT
}

func addProcess(list []procEntry, p nvml.ProcessInfo, kind uint8) []procEntry {
	mem := lack(notSupported)
	if p.UsedGpuMemory != math.MaxUint64 {
		mem = measure(mProcMem, signed(p.UsedGpuMemory))
	}
	for i := range list {
		e := &list[i]
		if e.pid == p.Pid && e.gi == p.GpuInstanceId && e.ci == p.ComputeInstanceId {
			e.kinds |= kind
			e.mem = larger(e.mem, mem) // each list has all of the process's memory, not a share
			return list
		}
	}
	return append(list, procEntry{p.Pid, kind, mem, p.GpuInstanceId, p.ComputeInstanceId})
}

// readProcesses reads who runs on g and its instances. The GPU's own list is the cheaper (one read for
// all instances) but needs privilege under MIG and ids; else each instance is asked.
func (s *nvmlSource) readProcesses(g *node) {
	var code nvml.Return
	g.list, code = s.listProcesses(g, g.list)
	if len(g.inst) == 0 {
		s.keepProcesses(g, g.list, code)
		return
	}
	idsKnown := code == nvml.SUCCESS && !slices.ContainsFunc(g.list, func(e procEntry) bool { return g.owner(e) == nil })
	for _, n := range g.inst {
		if n.h == nil { // it is not known who is there in this tick
			n.procs, n.procAt = n.procs[:0], 0
			continue
		}
		if !idsKnown {
			var own nvml.Return
			n.list, own = s.listProcesses(n, n.list)
			s.keepProcesses(n, n.list, own)
			continue
		}
		n.list = n.list[:0]
		for _, e := range g.list {
			if g.owner(e) == n {
				n.list = append(n.list, e)
			}
		}
		s.keepProcesses(n, n.list, code)
	}
	g.v[mProcs] = lack(reasonOf(code))
	if code == nvml.SUCCESS {
		g.v[mProcs] = measure(mProcs, countPids(g.list))
	}
	// What no instance claims is shown on the GPU alone, never on every instance.
	g.procs = g.procs[:0]
	for _, e := range g.list {
		if code == nvml.SUCCESS && !slices.ContainsFunc(g.inst, func(n *node) bool { return n.runs(e.pid) }) {
			g.procs = append(g.procs, e)
		}
	}
}

// owner is the instance that e's ids name, nil if they name none.
func (n *node) owner(e procEntry) *node {
	var found *node
	for _, in := range n.inst {
		if in.gi < 0 || in.ci < 0 || uint32(in.gi) != e.gi {
			continue
		}
		if uint32(in.ci) == e.ci {
			return in
		}
		if e.ci == noID && found == nil && in.cSlices == in.gSlices {
			found = in // the only compute instance there
		}
	}
	return found
}

func (n *node) runs(pid uint32) bool {
	return slices.ContainsFunc(n.procs, func(e procEntry) bool { return e.pid == pid })
}

func countPids(list []procEntry) int64 {
	var n int64
	for i, e := range list {
		if !slices.ContainsFunc(list[:i], func(o procEntry) bool { return o.pid == e.pid }) {
			n++
		}
	}
	return n
}

// keepProcesses makes list n's processes if the read went well; after a passing failure the last ones
// stay for holdFor, held.
func (s *nvmlSource) keepProcesses(n *node, list []procEntry, code nvml.Return) {
	if code == nvml.SUCCESS {
		n.procs, n.procAt = append(n.procs[:0], list...), s.now
		n.v[mProcs] = measure(mProcs, countPids(list))
		n.procHeld = 0
		return
	}
	n.v[mProcs] = lack(reasonOf(code))
	age := s.now - n.procAt
	if n.procAt == 0 || permanent(code) || age > holdFor {
		n.procs, n.procAt = n.procs[:0], 0
		return
	}
	n.procHeld, n.procWhy = age, reasonOf(code)
	n.v[mProcs] = measure(mProcs, countPids(n.procs)).hold(age, reasonOf(code))
}

// read fills metric m of n from one call.
func (s *nvmlSource) read(n *node, m metric, c call, f func() (int64, nvml.Return)) nvml.Return {
	if !s.want[m] {
		return nvml.ERROR_NO_DATA
	}
	var x int64
	code := s.try(n, c, func() nvml.Return {
		var ret nvml.Return
		x, ret = f()
		return ret
	})
	n.v[m] = lack(reasonOf(code))
	if code == nvml.SUCCESS {
		n.v[m] = measure(m, x)
	}
	return code
}

// readGPU reads what only a whole GPU has. Power, clocks and temperature go on under MIG.
func (s *nvmlSource) readGPU(g *node) {
	s.read(g, mTemp, cTemp, func() (int64, nvml.Return) {
		t, ret := g.h.GetTemperature(nvml.TEMPERATURE_GPU)
		return int64(int32(t)), ret
	})
	clock := func(m metric, c call, t nvml.ClockType) {
		s.read(g, m, c, func() (int64, nvml.Return) {
			mhz, ret := g.h.GetClockInfo(t)
			return int64(mhz), ret
		})
	}
	clock(mClkGfx, cClkGfx, nvml.CLOCK_GRAPHICS)
	clock(mClkSM, cClkSM, nvml.CLOCK_SM)
	clock(mClkMem, cClkMem, nvml.CLOCK_MEM)
	s.read(g, mPState, cPState, func() (int64, nvml.Return) {
		p, ret := g.h.GetPerformanceState()
		return int64(p), ret
	})
	s.read(g, mTempMargin, cMargin, func() (int64, nvml.Return) {
		m, ret := g.h.GetMarginTemperature()
		return int64(m.MarginTemperature), ret
	})
	s.readThrottle(g)
	s.readFields(g)
	s.readSlow(g)
	s.readPcie(g)
}

// readThrottle reads the clocks' event reasons, by their old name before R535.
func (s *nvmlSource) readThrottle(g *node) {
	code := s.read(g, mThrottle, cEventReasons, func() (int64, nvml.Return) {
		bits, ret := g.h.GetCurrentClocksEventReasons()
		return signed(bits), ret
	})
	if code == nvml.ERROR_FUNCTION_NOT_FOUND {
		s.read(g, mThrottle, cThrottle, func() (int64, nvml.Return) {
			bits, ret := g.h.GetCurrentClocksThrottleReasons()
			return signed(bits), ret
		})
	}
}

// readSlow reads every slowEvery what changes by an administrator's hand or never, and repeats it between.
func (s *nvmlSource) readSlow(g *node) {
	slow := [...]metric{mPowerLimit, mPcieGen, mPcieWidth, mTempSlow, mTempShut}
	if g.slowAt > 0 && s.now-g.slowAt < slowEvery && g.gone == nvml.SUCCESS {
		for i, m := range slow {
			g.v[m] = g.slow[i]
		}
		return
	}
	s.read(g, mPowerLimit, cLimit, func() (int64, nvml.Return) {
		mw, ret := g.h.GetEnforcedPowerLimit()
		return int64(mw), ret
	})
	s.read(g, mPcieGen, cPcieGen, func() (int64, nvml.Return) {
		n, ret := g.h.GetCurrPcieLinkGeneration()
		return int64(n), ret
	})
	s.read(g, mPcieWidth, cPcieWidth, func() (int64, nvml.Return) {
		n, ret := g.h.GetCurrPcieLinkWidth()
		return int64(n), ret
	})
	threshold := func(m metric, c call, t nvml.TemperatureThresholds) {
		s.read(g, m, c, func() (int64, nvml.Return) {
			deg, ret := g.h.GetTemperatureThreshold(t)
			return int64(deg), ret
		})
	}
	if g.archID < nvml.DEVICE_ARCH_ADA { // from Ada on these are offsets, read as fields
		threshold(mTempSlow, cTempSlow, nvml.TEMPERATURE_THRESHOLD_SLOWDOWN)
		threshold(mTempShut, cTempShut, nvml.TEMPERATURE_THRESHOLD_SHUTDOWN)
	}
	g.slowAt = s.now
	for i, m := range slow {
		g.slow[i] = g.v[m]
	}
}

// readInstanceECC reads, every slowEvery, the one error count that an instance has: uncorrectable errors
// of its SRAM since the driver was loaded.
func (s *nvmlSource) readInstanceECC(n *node) {
	if n.h == nil {
		return
	}
	if n.slowAt > 0 && s.now-n.slowAt < slowEvery {
		n.v[mECCUncorr] = n.slow[0]
		return
	}
	s.read(n, mECCUncorr, cSramUE, func() (int64, nvml.Return) {
		c, ret := n.h.GetMemoryErrorCounter(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC, nvml.MEMORY_LOCATION_SRAM)
		return signed(c), ret
	})
	n.slowAt, n.slow[0] = s.now, n.v[mECCUncorr]
}

// fieldUse says which metric needs which field.
var fieldUse = [callCount - firstField]metric{
	fECC - firstField: mECC, fECCCorr - firstField: mECCCorr, fECCUncorr - firstField: mECCUncorr,
	fMemTemp - firstField: mMemTemp, fEnergy - firstField: mEnergy,
	fPowerAvg - firstField: mPower, fPowerNow - firstField: mPower,
	fShutOffset - firstField: mTempShutOffset, fSlowOffset - firstField: mTempSlowOffset,
	fPcieTx - firstField: mPcieTx, fPcieRx - firstField: mPcieRx, fRecovery - firstField: mRecovery,
}

// readFields asks for all wanted fields of g in one call and fills what they answer.
func (s *nvmlSource) readFields(g *node) {
	s.fields = s.fields[:0]
	for c := firstField; c < callCount; c++ {
		if s.want[fieldUse[c-firstField]] && g.answer[c].again <= s.now {
			// Entries of ECC counters were seen left unwritten when ECC is off, so none starts as a success.
			s.fields = append(s.fields, nvml.FieldValue{FieldId: calls[c].field, NvmlReturn: uint32(nvml.ERROR_NO_DATA)})
		}
	}
	whole, at := nvml.ERROR_NOT_SUPPORTED, time.Since(s.epoch)
	if len(s.fields) > 0 {
		whole = s.try(g, cFields, func() nvml.Return { return g.h.GetFieldValues(s.fields) })
	}
	for c := firstField; c < callCount; c++ {
		m := fieldUse[c-firstField]
		i := slices.IndexFunc(s.fields, func(f nvml.FieldValue) bool { return f.FieldId == calls[c].field })
		if !s.want[m] || c == fPowerNow && g.v[mPower].fresh() || c == fPcieTx || c == fPcieRx {
			continue
		}
		code := g.answer[c].code
		if i >= 0 && whole != nvml.SUCCESS {
			code = whole
		} else if i >= 0 {
			code = nvml.Return(int32(s.fields[i].NvmlReturn))
			s.noteAnswer(g, c, code)
		}
		g.v[m] = lack(reasonOf(code))
		if i >= 0 && code == nvml.SUCCESS {
			x, _ := fieldInt(s.fields[i])
			g.v[m] = measure(m, x)
		}
	}
	if ecc, ok := g.v[mECC].num(); ok && ecc == 0 {
		g.v[mECCCorr], g.v[mECCUncorr] = lack(eccOff), lack(eccOff)
	}
	if !g.v[mPower].fresh() {
		// The fields came with R535; the call is three times slower (3.6 ms on an H100).
		s.read(g, mPower, cPower, func() (int64, nvml.Return) {
			mw, ret := g.h.GetPowerUsage()
			return int64(mw), ret
		})
	}
	s.pcieCounters(g, whole, at)
}

// fieldInt is a field's value in its own type, and that type's width in bits.
func fieldInt(f nvml.FieldValue) (x int64, width uint) {
	u := *(*uint64)(unsafe.Pointer(&f.Value))
	switch nvml.ValueType(f.ValueType) {
	case nvml.VALUE_TYPE_DOUBLE:
		d := math.Float64frombits(u)
		if !(math.Abs(d) < 1<<53) {
			return -1, 0
		}
		return int64(d), 0
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return int64(uint32(u)), 32
	case nvml.VALUE_TYPE_SIGNED_INT:
		return int64(int32(u)), 32
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		return int64(uint16(u)), 16
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return int64(u), 64
	}
	return signed(u), 64
}

// pcieCounter is one direction's byte counter (field 197 or 198, R555+).
type pcieCounter struct {
	last uint64
	at   time.Duration // 0: none yet
}

// pcieCounters makes rates of the byte counters that were read at time at, if this GPU has them.
func (s *nvmlSource) pcieCounters(g *node, whole nvml.Return, at time.Duration) {
	g.pcieByField = false
	for dir, c := range [...]call{fPcieTx, fPcieRx} {
		i := slices.IndexFunc(s.fields, func(f nvml.FieldValue) bool { return f.FieldId == calls[c].field })
		if i < 0 || whole != nvml.SUCCESS {
			g.pcie[dir].at = 0
			continue
		}
		code := nvml.Return(int32(s.fields[i].NvmlReturn))
		s.noteAnswer(g, c, code)
		if code != nvml.SUCCESS {
			g.pcie[dir].at = 0
			continue
		}
		x, width := fieldInt(s.fields[i])
		now := uint64(x)
		before := g.pcie[dir]
		g.pcie[dir] = pcieCounter{now, at}
		dt := at - before.at
		// A counter of 32 bits wraps several times a second on a fast link: its difference would be a
		// made-up number unless the window is short.
		if width < 64 && dt.Seconds()*64e9 >= math.Exp2(float64(width)) && before.at > 0 {
			continue
		}
		g.pcieByField = true
		m := fieldUse[c-firstField]
		if before.at == 0 {
			g.v[m] = lack(warmingUp)
			continue
		}
		grown := now - before.last
		if width < 64 {
			grown &= 1<<width - 1
		}
		g.v[m] = perSecond(m, grown, dt)
	}
}

// readPcie asks for the 20 ms throughput windows of one GPU without counters per tick, in turn, since
// each blocks. A rate stays until the GPU's next turn is twice overdue.
func (s *nvmlSource) readPcie(g *node) {
	if !s.want[mPcieTx] || g.pcieByField || g.gone != nvml.SUCCESS {
		return
	}
	if s.turn == g.gpu {
		rate := func(dir int, m metric, c call, counter nvml.PcieUtilCounter) {
			s.read(g, m, c, func() (int64, nvml.Return) {
				kb, ret := g.h.GetPcieThroughput(counter)
				return int64(kb) * 1024, ret
			})
			g.rate[dir] = g.v[m]
		}
		rate(0, mPcieTx, cPcieTx, nvml.PCIE_UTIL_TX_BYTES)
		rate(1, mPcieRx, cPcieRx, nvml.PCIE_UTIL_RX_BYTES)
		g.rateTick = s.seq
	}
	g.v[mPcieTx], g.v[mPcieRx] = g.rate[0], g.rate[1]
	if g.rateTick == 0 || s.seq-g.rateTick >= 2*uint64(len(s.gpus)) {
		g.v[mPcieTx], g.v[mPcieRx] = lack(warmingUp), lack(warmingUp)
	}
}

// nextTurn moves the rotation to the next GPU that needs it.
func (s *nvmlSource) nextTurn() {
	for range s.gpus {
		s.turn = (s.turn + 1) % len(s.gpus)
		if g := s.gpus[s.turn]; !g.hidden && !g.pcieByField {
			return
		}
	}
}

// readEvents takes the events that have come, without waiting; changed says that one of them is a change of
// MIG instances. It may be one that no handle or id shows: an instance that made way for its like, or, as was
// seen once (libcudacxx#224), one that answers although it was destroyed. An XID is delivered once, so it is
// kept as the device's last.
func (s *nvmlSource) readEvents() (changed bool) {
	if !s.evOn && !s.evAsked {
		s.openEvents()
	}
	for i := 0; s.evOn && i < 64; i++ { // bounded: a storm of XIDs must not keep the tick
		var ev nvml.EventData
		code := s.try(&s.sys, cEventWait, func() nvml.Return {
			var ret nvml.Return
			ev, ret = s.events.Wait(0)
			return ret
		})
		if code != nvml.SUCCESS {
			// One lost GPU makes this fail for all; the others must not lose their numbers with it.
			lost := code == nvml.ERROR_GPU_IS_LOST && slices.ContainsFunc(s.gpus, func(g *node) bool { return g.gone == code })
			s.blind = s.blind || code != nvml.ERROR_TIMEOUT && !lost
			break
		}
		for _, g := range s.gpus {
			if g.h == nil || ev.Device != g.h {
				continue
			}
			if ev.EventType == nvml.EventMigConfigChange {
				changed = true
				continue
			}
			s.keepXID(g, ev)
			for _, n := range g.inst {
				if n.gi >= 0 && uint32(n.gi) == ev.GpuInstanceId && (uint32(n.ci) == ev.ComputeInstanceId || ev.ComputeInstanceId == noID) {
					s.keepXID(n, ev)
				}
			}
		}
	}
	return changed
}

func (s *nvmlSource) keepXID(n *node, ev nvml.EventData) {
	n.xid = measure(mXID, signed(ev.EventData))
	n.xidSum++
	n.xidAt = time.Now()
	s.note("%s: XID %d", n.label(), ev.EventData)
}

// openEvents registers for XIDs on every GPU, and for changes of its instances where there can be any; where
// that is refused the last XID is absent.
func (s *nvmlSource) openEvents() {
	s.evAsked = true
	code := s.try(&s.sys, cEventCreate, func() nvml.Return {
		var ret nvml.Return
		s.events, ret = s.lib.EventSetCreate()
		return ret
	})
	s.evOn = code == nvml.SUCCESS
	for _, g := range s.gpus {
		if g.h == nil {
			continue
		}
		if s.evOn {
			register := func(types uint64) nvml.Return {
				return s.try(g, cEventRegister, func() nvml.Return { return g.h.RegisterEvents(types, s.events) })
			}
			code = nvml.ERROR_NOT_SUPPORTED
			if g.migOn >= 0 {
				code = register(nvml.EventTypeXidCriticalError | nvml.EventMigConfigChange)
			}
			if code != nvml.SUCCESS { // before 525 a GPU whose MIG mode is off refuses both for the one
				g.answer[cEventRegister].again = 0
				code = register(nvml.EventTypeXidCriticalError)
			}
		}
		for _, n := range append([]*node{g}, g.inst...) {
			switch {
			case code != nvml.SUCCESS:
				n.xid = lack(reasonOf(code))
			case !n.xid.fresh():
				n.xid = measure(mXID, 0) // none since the start
			}
		}
	}
}

// node is what NVML is asked about: a GPU, or one MIG instance of it. Its device is the template of the
// snapshot's: facts of this generation and the values of this tick.
type node struct {
	device
	h       nvml.Device
	parent  *node   // nil for a GPU
	slot    []*node // of a GPU in MIG mode: one for each index, whether occupied or not
	inst    []*node // the occupied ones
	hidden  bool    // a GPU that may not be opened
	settled bool    // a GPU whose MIG mode this generation knows
	archID  int     // nvml.DEVICE_ARCH_..., 0 unknown
	answer  [callCount]answer
	gone    nvml.Return // GPU_IS_LOST, RESET_REQUIRED ... in this tick: nothing more is asked
	told    reason      // the fault last told in a note

	utilWhy reason // why util is absent, as last told in the debug log

	memory [2]value      // used and total as last answered
	memAt  time.Duration // when that was, 0 never
	busyAt time.Duration // when util was last above 0, or the node's birth
	seenTS uint64        // newest process or parent sample already used, us since the epoch

	list     []procEntry // as read in this tick
	procs    []procEntry // as last answered, for its device only
	procAt   time.Duration
	procHeld time.Duration // age of procs, 0 when of this tick
	procWhy  reason        // why they are held

	slowAt      time.Duration
	slow        [5]value
	pcie        [2]pcieCounter // tx, rx
	pcieByField bool
	rate        [2]value // tx, rx as last asked in rotation
	rateTick    uint64
	xid         value
	xidSum      int64

	gpm    gpmPair
	gpmWhy reason // of a GPU: why its GPM is not read, notRead if it is
}

// label names the node in the debug log and in notes: "gpu 0" or "gpu 0.1".
func (n *node) label() string {
	if n.gpu < 0 {
		return "driver" // of calls on no device
	}
	if n.isGPU() {
		return "gpu " + strconv.Itoa(n.gpu)
	}
	return "gpu " + strconv.Itoa(n.gpu) + "." + strconv.Itoa(n.mig)
}

// root is the GPU of n.
func (n *node) root() *node {
	if n.parent != nil {
		return n.parent
	}
	return n
}

func (s *nvmlSource) readVersions() {
	s.try(&s.sys, cDriver, func() nvml.Return {
		v, ret := s.lib.SystemGetDriverVersion()
		if ret == nvml.SUCCESS {
			s.driver = printable(v)
			s.major, _ = strconv.Atoi(strings.SplitN(v, ".", 2)[0])
		}
		return ret
	})
	s.try(&s.sys, cCuda, func() nvml.Return {
		v, ret := s.lib.SystemGetCudaDriverVersion_v2()
		if ret == nvml.SUCCESS {
			s.cuda = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
		}
		return ret
	})
}
