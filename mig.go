// mig.go owns who exists and how busy each is: the topology of MIG instances and its generations, the
// utilization cascade, and with them the order of a whole collection.
//
// Invariants: no MIG handle outlives the tick in which it was fetched and its UUID checked, since a
// handle may silently name another instance after a reconfiguration; an estimate states its rule.
package main

import (
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// maxSlots stands in when the driver does not say how many instances a GPU can have.
const maxSlots = 7

// sample makes one collection into snap. The error is a *startError when there is nothing to watch, at
// the first call only; later failures are data.
func (s *nvmlSource) sample(snap *snapshot) error {
	at := time.Now()
	if s.epoch.IsZero() {
		s.epoch = at.Add(-time.Millisecond) // so that no time of a tick is 0, which means never
		s.last = 0
	}
	s.since = uint64(at.Add(min(s.now-at.Sub(s.epoch), -time.Millisecond)).UnixMicro())
	if s.now == 0 {
		s.since = uint64(at.Add(-time.Second).UnixMicro())
	}
	s.last, s.now = s.now, at.Sub(s.epoch)
	s.seq++
	s.notes = s.notes[:0]
	// A change of the topology or an unsafe GPM starts the tick over in a new session; a machine that
	// changes faster than that gets what the last round found.
	for round := 0; round < 4; round++ {
		if err := s.ready(); err != nil {
			return err
		}
		if !s.isOpen || s.collect(round < 3) {
			break
		}
		s.close()
		s.prime = true
	}
	s.fill(snap, at)
	return nil
}

// enumerate starts a generation: it fetches every GPU anew and carries over what unchanged GPUs and
// instances have to remember. Nothing of an instance that went is inherited by one that came. If not even
// the GPUs can be counted, the rows stay and that is why this session is of no use.
func (s *nvmlSource) enumerate() nvml.Return {
	s.gen++
	s.sys.answer = [callCount]answer{}
	s.sys.gpu, s.sys.mig = -1, -1
	s.safety.checked, s.evAsked = false, false
	count, code := s.countGPUs()
	if code != nvml.SUCCESS {
		return code
	}
	s.readVersions()
	old := s.gpus
	s.gpus = make([]*node, count)
	for i := range s.gpus {
		s.gpus[i] = newNode(i, -1)
		s.openGPU(s.gpus[i])
	}
	known := map[*node]bool{}
	for _, g := range s.gpus {
		before := g.predecessor(old, s.gpus)
		known[before] = true
		g.born, g.busyAt = s.gen, s.now
		if before != nil {
			g.inherit(before)
		} else if s.gen > 1 {
			s.note("gpu %d added (%s)", g.gpu, g.name)
		}
		switch {
		case g.h != nil:
			s.discover(g, before)
		case before != nil:
			g.recall(before)
		default:
			g.hidden = g.answer[cHandle].code == nvml.ERROR_NO_PERMISSION
		}
	}
	for _, o := range old {
		if !known[o] {
			s.note("gpu %d removed (%s)", o.gpu, o.name)
		}
	}
	return nvml.SUCCESS
}

// predecessor is g in the generation before: by its UUID, or, if it does not open, the one that had its
// index, unless that is another GPU now. A GPU that was hidden is new when it opens.
func (g *node) predecessor(old, now []*node) *node {
	for _, o := range old {
		if g.uuid != "" && o.uuid == g.uuid {
			return o
		}
	}
	for _, o := range old {
		moved := slices.ContainsFunc(now, func(n *node) bool { return n != g && n.uuid == o.uuid && o.uuid != "" })
		if o.gpu == g.gpu && !moved && (g.uuid == "" || o.uuid == "") {
			return o
		}
	}
	return nil
}

// recall keeps the facts and rows of a GPU that does not open, or whose MIG mode cannot be read, in this
// session.
func (g *node) recall(o *node) {
	gpu := g.gpu
	g.device, g.archID, g.hidden, g.inst = o.device, o.archID, o.hidden, o.inst
	g.gpu = gpu
	for _, n := range g.inst {
		n.parent, n.h, n.gpu = g, nil, gpu
	}
}

func newNode(gpu, mig int) *node {
	return &node{device: device{gpu: gpu, mig: mig, gi: -1, ci: -1, minor: -1, migOn: -1, migNext: -1}}
}

// inherit carries over what outlives a session.
func (n *node) inherit(o *node) {
	n.born, n.busyAt, n.memory, n.memAt, n.told = o.born, o.busyAt, o.memory, o.memAt, o.told
	n.xid, n.xidSum, n.xidAt, n.seenTS = o.xid, o.xidSum, o.xidAt, o.seenTS
	n.procs, n.procAt = o.procs, o.procAt
}

// adopt lets every instance of a GPU inherit from its like before, and tells what went and came.
func (s *nvmlSource) adopt(before, after []*node) {
	for _, o := range before {
		if !slices.ContainsFunc(after, o.same) {
			s.note("instance %d.%d removed (gi %d, %s)", o.gpu, o.mig, o.gi, o.profile)
		}
	}
	for _, n := range after {
		if i := slices.IndexFunc(before, n.same); i >= 0 {
			n.inherit(before[i])
			continue
		}
		n.born, n.busyAt = s.gen, s.now
		if s.gen > 1 {
			s.note("instance %d.%d added (gi %d, %s)", n.gpu, n.mig, n.gi, n.profile)
		}
	}
}

// same says that o is the same instance. UUIDs are made from the placement, so they are not enough; what
// could not be read of one of the two does not tell them apart.
func (n *node) same(o *node) bool {
	id := func(a, b int) bool { return a == b || a < 0 || b < 0 }
	return n.uuid == o.uuid && id(n.gi, o.gi) && id(n.ci, o.ci) &&
		(n.profile == o.profile || n.profile == "" || o.profile == "")
}

func instances(gpus []*node) []*node {
	var all []*node
	for _, g := range gpus {
		all = append(all, g.inst...)
	}
	return all
}

func (s *nvmlSource) countGPUs() (count int, code nvml.Return) {
	code = s.try(&s.sys, cCount, func() nvml.Return {
		var ret nvml.Return
		count, ret = s.lib.DeviceGetCount()
		return ret
	})
	return count, code
}

// migMode reads g's MIG mode, -1 for a GPU that has none. A mode that was known once is not taken back
// by a refusal, which is then an error like any other.
func (s *nvmlSource) migMode(g *node, known bool) (on, next int, code nvml.Return) {
	code = s.try(g, cMigMode, func() nvml.Return {
		var ret nvml.Return
		on, next, ret = g.h.GetMigMode()
		return ret
	})
	if code != nvml.SUCCESS && code != nvml.ERROR_NO_PERMISSION && permanent(code) && !known {
		g.answer[cMigMode].again = s.now + askAgain
		return -1, -1, nvml.SUCCESS
	}
	return on, next, code
}

// discover makes g's rows for this generation. before is the same GPU as last known, or nil. A slot is
// empty, and MIG is off, only when the driver says so: while the mode cannot be read g is not settled,
// its rows stay, with that reason, and each tick tries again.
func (s *nvmlSource) discover(g, before *node) {
	known := before != nil && before.migOn >= 0
	on, next, code := s.migMode(g, known)
	if code != nvml.SUCCESS {
		g.fault = reasonOf(code)
		if before != nil && before != g {
			g.recall(before)
		}
		return
	}
	var rows []*node
	if before != nil {
		rows = before.inst
	}
	g.settled, g.migOn, g.migNext, g.rows, g.slot, g.inst = true, on, next, 0, nil, nil
	if on == 1 {
		s.makeSlots(g)
		for _, n := range g.slot {
			s.fillSlot(n, rows)
		}
		g.settle()
	}
	s.adopt(rows, g.inst)
}

// topology compares g with what this generation knows of it; changed means that it is another. Whatever
// cannot be read keeps its rows, with that reason.
func (s *nvmlSource) topology(g *node) (changed bool) {
	on, next, code := s.migMode(g, g.migOn >= 0)
	if code != nvml.SUCCESS {
		g.fault = reasonOf(code)
		return false
	}
	if on != g.migOn {
		return true
	}
	g.migNext = next
	for _, n := range g.slot {
		if s.lookSlot(n) {
			changed = true
		}
	}
	return changed
}

// makeSlots makes a node for each instance that g can have.
func (s *nvmlSource) makeSlots(g *node) {
	most := maxSlots
	s.try(g, cMigMax, func() nvml.Return {
		n, ret := g.h.GetMaxMigDeviceCount()
		if ret == nvml.SUCCESS && n > 0 && n <= 64 {
			most = n
		}
		return ret
	})
	for i := range most {
		n := newNode(g.gpu, i)
		n.parent, n.archID, n.gpuUUID = g, g.archID, g.uuid
		s.begin(n)
		n.arch, n.cc, n.bus, n.minor = g.arch, g.cc, g.bus, g.minor
		g.slot = append(g.slot, n)
	}
}

// peek fetches the handle in n's slot and its UUID. Without an error an empty UUID is an empty slot.
func (s *nvmlSource) peek(n *node) (h nvml.Device, uuid string, code nvml.Return) {
	code = s.try(n, cMigHandle, func() nvml.Return {
		var ret nvml.Return
		h, ret = n.parent.h.GetMigDeviceHandleByIndex(n.mig)
		return ret
	})
	if code == nvml.ERROR_NOT_FOUND || code == nvml.ERROR_INVALID_ARGUMENT {
		return nil, "", nvml.SUCCESS
	}
	if code == nvml.SUCCESS {
		code = s.try(n, cUUID, func() nvml.Return {
			var ret nvml.Return
			uuid, ret = h.GetUUID()
			return ret
		})
	}
	return h, printable(uuid), code
}

// fillSlot finds out who is in n's slot at the start of a generation. If that fails it is taken to be who
// was there before, without a handle.
func (s *nvmlSource) fillSlot(n *node, before []*node) {
	h, uuid, code := s.peek(n)
	if code != nvml.SUCCESS {
		if i := slices.IndexFunc(before, func(o *node) bool { return o.mig == n.mig }); i >= 0 {
			n.device = before[i].device
		}
		n.failed(code)
		return
	}
	if uuid != "" {
		n.h, n.uuid = h, uuid
		s.readInstance(n)
	}
}

// failed notes that it cannot be told who is in n's slot; if nobody was known there, the GPU is not known
// to be empty either.
func (n *node) failed(code nvml.Return) {
	n.fault = reasonOf(code)
	if n.uuid == "" {
		n.parent.fault = n.fault
	}
}

// lookSlot takes the handle in n's slot for this tick if whoever is known to be there still is.
func (s *nvmlSource) lookSlot(n *node) (changed bool) {
	n.h = nil
	h, uuid, code := s.peek(n)
	switch {
	case code != nvml.SUCCESS:
		n.failed(code)
		return false
	case uuid != n.uuid:
		n.fault = changing
		return true
	case uuid == "":
		return false
	}
	n.h = h
	if n.gi < 0 || n.ci < 0 || n.profile == "" {
		s.readInstance(n)
	}
	return false
}

// readInstance reads what does not change while an instance lives.
func (s *nvmlSource) readInstance(n *node) {
	id := func(c call, into *int, f func() (int, nvml.Return)) {
		s.try(n, c, func() nvml.Return {
			v, ret := f()
			if ret == nvml.SUCCESS && uint32(v) != noID {
				*into = v
			}
			return ret
		})
	}
	id(cGI, &n.gi, func() (int, nvml.Return) { return n.h.GetGpuInstanceId() })
	id(cCI, &n.ci, func() (int, nvml.Return) { return n.h.GetComputeInstanceId() })
	s.try(n, cName, func() nvml.Return {
		name, ret := n.h.GetName()
		if ret == nvml.SUCCESS {
			name = printable(name)
			if i := strings.LastIndex(name, " MIG "); i >= 0 {
				n.name, n.profile = name[:i], name[i+len(" MIG "):]
			}
			n.profile = strings.ReplaceAll(n.profile, " ", "_") // one field in text rows
		}
		return ret
	})
	s.try(n, cAttributes, func() nvml.Return {
		a, ret := n.h.GetAttributes()
		if ret == nvml.SUCCESS {
			n.sms, n.gSlices, n.cSlices = int(a.MultiprocessorCount), int(a.GpuInstanceSliceCount), int(a.ComputeInstanceSliceCount)
		}
		return ret
	})
}

// settle fixes g's instances for the generation.
func (g *node) settle() {
	g.inst = nil
	for _, n := range g.slot {
		if n.uuid == "" {
			continue
		}
		n.shared = n.gi >= 0 && slices.ContainsFunc(g.inst, func(o *node) bool { return o.gi == n.gi })
		g.inst = append(g.inst, n)
	}
	for _, n := range g.inst {
		n.mates = n.cSlices < n.gSlices || slices.ContainsFunc(g.inst, func(o *node) bool { return o != n && o.gi == n.gi && n.gi >= 0 })
	}
	g.rows = len(g.inst)
}

// collect reads everything once. False means that this session must end and the tick start over: the
// topology is another one, or GPM has broken the memory readings.
func (s *nvmlSource) collect(mayRestart bool) bool {
	same := s.lookAround()
	s.blind = false
	if changed := s.readEvents(); (changed || !same) && mayRestart {
		return false
	}
	if s.gone != nvml.SUCCESS {
		s.ended(s.gone)
		return true
	}
	s.eachNode(func(n *node) { s.readMemory(n) })
	for _, g := range s.gpus {
		if g.h == nil {
			continue
		}
		s.readProcesses(g)
		s.readGPU(g)
		s.readUtil(g)
		for _, n := range g.inst {
			s.readInstanceECC(n)
		}
	}
	s.nextTurn()
	if !s.readGPM() {
		return false
	}
	for _, g := range s.gpus {
		s.estimate(g)
	}
	if s.gone != nvml.SUCCESS {
		s.ended(s.gone)
	}
	return true
}

// lookAround begins a tick for every node and compares the topology; false if it changed.
func (s *nvmlSource) lookAround() bool {
	same := true
	count, code := s.countGPUs()
	if code == nvml.SUCCESS && count != len(s.gpus) {
		same = false
	}
	for _, g := range s.gpus {
		s.begin(g)
		nodes := g.slot
		if len(nodes) == 0 { // of a GPU that did not open, or whose mode cannot be read, rows may be left
			nodes = g.inst
		}
		for _, n := range nodes {
			s.begin(n)
		}
		switch {
		case g.hidden:
			g.fault = notVisible
		case g.h == nil:
			same = same && !s.opensAgain(g)
		case !g.settled:
			s.discover(g, g)
		case s.topology(g):
			same = false
		}
		if g.h != nil && g.uuid == "" {
			s.readFacts(g)
		}
	}
	if s.driver == "" {
		s.readVersions()
	}
	return same
}

// opensAgain says whether a GPU that did not open does now: only then is a new session worth its price,
// since without persistence it makes the driver initialise every GPU anew.
func (s *nvmlSource) opensAgain(g *node) bool {
	if g.answer[cHandle].again > s.now {
		return false
	}
	code := s.try(g, cHandle, func() nvml.Return {
		_, ret := s.lib.DeviceGetHandleByIndex(g.gpu)
		return ret
	})
	g.answer[cHandle].again = s.now + askAgain
	return code == nvml.SUCCESS
}

// begin clears n for a tick: every value is absent until something answers it.
func (s *nvmlSource) begin(n *node) {
	n.gone, n.fault, n.src, n.procHeld = nvml.SUCCESS, notRead, srcNone, 0
	if n.parent != nil {
		n.h = nil // until this tick has fetched it and seen whose it is
	}
	for m := range n.v {
		n.v[m] = implied(&n.device, metric(m))
	}
	if n.rows > 0 {
		n.v[mUtil] = lack(onInstances)
	}
}

// eachNode calls f for every GPU and instance that has a handle in this tick.
func (s *nvmlSource) eachNode(f func(*node)) {
	for _, g := range s.gpus {
		if g.h == nil {
			continue
		}
		f(g)
		for _, n := range g.inst {
			if n.h != nil {
				f(n)
			}
		}
	}
}

// readUtil reads g's activity and its instances' by the calls made for it. Under MIG every driver up to
// 595 refuses them; they are asked once per generation, in case one does answer.
func (s *nvmlSource) readUtil(g *node) {
	if g.rows > 0 {
		for m := mMemUtil; m <= mOfa; m++ {
			g.v[m] = lack(noMIG)
		}
		for _, n := range g.inst {
			if n.h != nil && s.readRates(n) != nvml.SUCCESS {
				s.readProcUtil(n)
			}
		}
		return
	}
	s.readRates(g)
	engine := func(m metric, c call, f func() (uint32, uint32, nvml.Return)) {
		s.read(g, m, c, func() (int64, nvml.Return) {
			pct, _, ret := f()
			return int64(pct) * 100, ret
		})
	}
	engine(mEnc, cEnc, func() (uint32, uint32, nvml.Return) { return g.h.GetEncoderUtilization() })
	engine(mDec, cDec, func() (uint32, uint32, nvml.Return) { return g.h.GetDecoderUtilization() })
	engine(mJpg, cJpg, func() (uint32, uint32, nvml.Return) { return g.h.GetJpgUtilization() })
	engine(mOfa, cOfa, func() (uint32, uint32, nvml.Return) { return g.h.GetOfaUtilization() })
}

// readRates is source nvml: busy time of GPU and memory controller over the driver's own last second.
func (s *nvmlSource) readRates(n *node) nvml.Return {
	var u nvml.Utilization
	code := s.try(n, cUtil, func() nvml.Return {
		var ret nvml.Return
		u, ret = n.h.GetUtilizationRates()
		return ret
	})
	if code != nvml.SUCCESS {
		s.refuseForGood(n, cUtil, code)
		n.v[mUtil], n.v[mMemUtil] = lack(reasonOf(code)), lack(reasonOf(code))
		if n.parent != nil || n.migOn == 1 {
			n.v[mUtil], n.v[mMemUtil] = lack(noMIG), lack(noMIG)
		}
		return code
	}
	n.v[mUtil], n.v[mMemUtil] = percentValue(mUtil, u.Gpu), percentValue(mMemUtil, u.Memory)
	if n.v[mUtil].fresh() {
		n.src = srcNVML
	}
	return code
}

// percentValue is a whole percentage that cannot be above 100.
func percentValue(m metric, pct uint32) value {
	if pct > 100 {
		return lack(badValue)
	}
	return measure(m, int64(pct)*100)
}

// refuseForGood keeps a call that MIG makes refused from being asked again in this generation.
func (s *nvmlSource) refuseForGood(n *node, c call, code nvml.Return) {
	if permanent(code) && (n.parent != nil || n.rows > 0) {
		n.answer[c].again = never
	}
}

// readProcUtil is source proc: the sum over the processes' SM shares newer than the last tick's, at most
// 100. go-nvml answers nil and SUCCESS when the size query alone succeeds, as R535 does on MIG handles,
// and panics if the list grows between its two calls.
func (s *nvmlSource) readProcUtil(n *node) {
	n.seenTS = max(n.seenTS, s.since)
	var list []nvml.ProcessUtilizationSample
	code := s.try(n, cProcUtil, func() (ret nvml.Return) {
		defer func() {
			if recover() != nil {
				ret = nvml.ERROR_UNKNOWN
			}
		}()
		list, ret = n.h.GetProcessUtilization(n.seenTS)
		return ret
	})
	if code == nvml.SUCCESS && len(list) == 0 || code == nvml.ERROR_NOT_FOUND {
		n.answer[cProcUtil].again = s.now + askAgain
	}
	s.refuseForGood(n, cProcUtil, code)
	if code != nvml.SUCCESS {
		return
	}
	var sum uint32
	newest := n.seenTS
	for _, p := range list {
		if p.TimeStamp > n.seenTS && p.SmUtil <= 100 {
			sum += p.SmUtil
			newest = max(newest, p.TimeStamp)
		}
	}
	if newest > n.seenTS {
		n.seenTS = newest
		n.v[mUtil], n.src = percentValue(mUtil, min(sum, 100)), srcProc
	}
}

// estimate is source est: while exactly one instance of g has processes, and it is known that the others
// have none, the GPU's busy time is that instance's busy time, and the others' is 0. A share of time
// needs no slice arithmetic. With several it cannot be told apart and stays absent.
func (s *nvmlSource) estimate(g *node) {
	var owner *node
	running := 0
	for _, n := range g.inst {
		procs, ok := n.v[mProcs].num()
		if n.src != srcNone || !ok || !n.v[mProcs].fresh() {
			return
		}
		if procs > 0 {
			running++
			owner = n
		}
	}
	if running == 0 || len(g.procs) > 0 { // a process that no instance claims may be on any
		return
	}
	util, code := s.parentUtil(g)
	if code != nvml.SUCCESS {
		return
	}
	for _, n := range g.inst {
		switch {
		case running > 1:
			n.v[mUtil] = lack(severalBusy)
			continue
		case n == owner:
			n.v[mUtil] = util.estimate()
		default:
			n.v[mUtil] = measure(mUtil, 0).estimate()
		}
		if n.v[mUtil].fresh() {
			n.src = srcEst
		}
	}
}

// parentUtil is the mean of g's utilization samples since the last tick. Type 1 is GPU utilization; the
// type 0 that the predecessor asked for is board power in mW.
func (s *nvmlSource) parentUtil(g *node) (value, nvml.Return) {
	g.seenTS = max(g.seenTS, s.since)
	var kind nvml.ValueType
	var list []nvml.Sample
	code := s.try(g, cSamples, func() nvml.Return {
		var ret nvml.Return
		kind, list, ret = g.h.GetSamples(nvml.GPU_UTILIZATION_SAMPLES, g.seenTS)
		return ret
	})
	s.refuseForGood(g, cSamples, code)
	if code != nvml.SUCCESS {
		return lack(reasonOf(code)), code
	}
	var sum, n int64
	newest := g.seenTS
	for _, p := range list {
		if p.TimeStamp <= g.seenTS {
			continue
		}
		x, _ := fieldInt(nvml.FieldValue{ValueType: uint32(kind), Value: p.SampleValue})
		if x < 0 || x > 100 {
			return lack(badValue), code
		}
		sum += x
		n++
		newest = max(newest, p.TimeStamp)
	}
	g.seenTS = newest
	if n == 0 {
		return lack(noData), nvml.ERROR_NO_DATA
	}
	return measure(mUtil, sum*100/n), code
}

// fill makes the snapshot of what the nodes have.
func (s *nvmlSource) fill(snap *snapshot, at time.Time) {
	snap.reset()
	snap.seq, snap.at = s.seq, at
	if s.last > 0 {
		snap.window = s.now - s.last
	}
	snap.replaced = !s.isOpen && s.gone == nvml.ERROR_LIB_RM_VERSION_MISMATCH
	snap.backend, snap.host, snap.driver, snap.cuda = "nvml", s.host, s.driver, s.cuda
	for _, g := range s.gpus {
		if g.hidden {
			snap.hidden++
		}
		s.finish(g)
		snap.dev = append(snap.dev, g.device)
		s.fillProcesses(snap, g)
		for _, n := range g.inst {
			s.finish(n)
			snap.dev = append(snap.dev, n.device)
			s.fillProcesses(snap, n)
		}
	}
	s.procs.sweep()
	snap.notes = append(snap.notes, s.notes...)
}

// finish completes n's values: what keeps the whole device from answering, idle time, XIDs.
func (s *nvmlSource) finish(n *node) {
	if !s.isOpen {
		n.fault = s.closedWhy()
		for m := range n.v {
			if n.parent == nil || !metrics[m].gpuOnly {
				n.v[m] = lack(n.fault)
			}
		}
		n.src = srcNone
	} else if g := n.root(); g.gone != nvml.SUCCESS {
		n.fault = reasonOf(g.gone)
	} else if n.h == nil && n.fault == notRead {
		n.fault = g.fault
		if g.h == nil && !g.hidden {
			n.fault = reasonOf(g.answer[cHandle].code)
		}
	}
	// A GPU that was lost before and now only says that it does not know is lost still.
	if n.fault == unknownError && n.root().h == nil && n.root().told == gpuLost {
		n.fault = gpuLost
	}
	n.tell(s)
	if n.fault != notRead {
		lost := n.fault == gpuLost || n.fault == resetRequired // what was read before it went is no use
		for m := range n.v {
			if n.v[m].unread() || lost && (n.parent == nil || !metrics[m].gpuOnly) {
				n.v[m] = lack(n.fault)
			}
		}
		if lost {
			n.src = srcNone
		}
	}
	if why := n.v[mUtil].why; !n.v[mUtil].fresh() && why != n.utilWhy {
		s.debug.printf("%s util absent: %s: %s", n.label(), why, why.sentence())
		n.utilWhy = why
	}
	if util, ok := n.v[mUtil].num(); ok && n.v[mUtil].fresh() {
		n.utilWhy = notRead
		if util > 0 {
			n.busyAt = s.now
		}
		n.v[mIdle] = measure(mIdle, (s.now - n.busyAt).Milliseconds())
	} else {
		n.v[mIdle], n.busyAt = lack(n.v[mUtil].why), s.now // what it did meanwhile nobody knows
	}
	if n.fault == notRead && s.want[mXID] {
		n.v[mXID], n.v[mXIDCount] = n.xid, lack(n.xid.why)
		if n.xid.fresh() {
			n.v[mXIDCount] = measure(mXIDCount, n.xidSum)
		}
	}
}

// closedWhy is why there is no session at the end of a tick.
func (s *nvmlSource) closedWhy() reason {
	switch {
	case s.paused:
		return released
	case s.gone == nvml.SUCCESS:
		return changing // in every round of the tick something was found that takes a new session
	}
	return reasonOf(s.gone)
}

// tell notes a GPU's change between answering and not; its instances share its fate.
func (n *node) tell(s *nvmlSource) {
	if n.fault == n.told || n.fault == notVisible || !s.isOpen {
		return
	}
	if n.parent == nil || n.fault != notRead && n.parent.fault == notRead {
		if n.fault == notRead {
			s.note("%s: answers again", n.label())
		} else {
			s.note("%s: %s: %s", n.label(), n.fault, n.fault.sentence())
		}
	}
	n.told = n.fault
}

// fillProcesses appends n's processes, most memory first, unknown memory last, then by pid.
func (s *nvmlSource) fillProcesses(snap *snapshot, n *node) {
	from := len(snap.proc)
	for _, e := range n.procs {
		if n.fault != notRead {
			break
		}
		p := process{dev: len(snap.dev) - 1, pid: e.pid, kind: kindNames[e.kinds&7], mem: e.mem}
		if n.procHeld > 0 {
			p.mem = p.mem.hold(n.procHeld, n.procWhy)
		}
		s.procs.fill(&p, time.Now()) // the tick may have been held since it began
		snap.proc = append(snap.proc, p)
	}
	slices.SortFunc(snap.proc[from:], byMemory)
}
