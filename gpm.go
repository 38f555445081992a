// gpm.go owns GPM (GPU performance monitoring), where Hopper and newer GPUs have the activity of instances:
// samples, the metrics made of two of them, and the guard against drivers on which GPM breaks memory readings.
//
// Invariants: every sample is freed once, before Shutdown; memory is read before the first GPM call of a tick;
// metrics are made of two samples of one instance, or not at all.
package main

import (
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// gpmPolicy is the flag -gpm.
type gpmPolicy uint8

const (
	gpmAuto gpmPolicy = iota // from driver 550 on
	gpmOn                    // from 525 on
	gpmNever
)

// gpmSafety remembers whether GPM calls break the memory readings, as reported of 535.129.03.
type gpmSafety struct {
	checked bool // in this generation
	strikes int  // sessions in which they broke
	broken  bool // in this tick
	off     bool // for the rest of the run
}

// gpmPair is a node's two sample buffers: prev holds the last sample, spare takes the next.
type gpmPair struct {
	prev, spare nvml.GpmSample
	at          time.Duration // when prev was taken on the source's clock, 0: none yet
	ready       bool          // both are there in this tick
	code        nvml.Return   // of taking this tick's
}

// gpmWindow is the least time between two samples: NVML asks for 100 ms, the rest is for the clocks.
const gpmWindow = 110 * time.Millisecond

type gpmRead struct {
	id uint32
	m  metric
}

// gpmReads says which metric takes which GPM number. All are percentages; PCIe and NVLink are not read
// per instance, since DCGM has them on the GPU only.
var gpmReads = [...]gpmRead{
	{uint32(nvml.GPM_METRIC_GRAPHICS_UTIL), mUtil},
	{uint32(nvml.GPM_METRIC_SM_UTIL), mSMUtil},
	{uint32(nvml.GPM_METRIC_SM_OCCUPANCY), mSMOcc},
	{uint32(nvml.GPM_METRIC_ANY_TENSOR_UTIL), mTensor},
	{uint32(nvml.GPM_METRIC_DRAM_BW_UTIL), mDRAM},
	{uint32(nvml.GPM_METRIC_FP64_UTIL), mFP64},
	{uint32(nvml.GPM_METRIC_FP32_UTIL), mFP32},
	{uint32(nvml.GPM_METRIC_FP16_UTIL), mFP16},
}

// readGPM takes a sample of every GPU or instance that has GPM and makes metrics of it and the one
// before. False means that GPM broke the memory readings and the session must end.
func (s *nvmlSource) readGPM() bool {
	s.safety.broken = false
	if !slices.ContainsFunc(gpmReads[:], func(r gpmRead) bool { return s.want[r.m] }) {
		return true
	}
	targets := s.targets[:0]
	for _, g := range s.gpus {
		if g.h == nil || g.gone != nvml.SUCCESS || g.rows == 0 && g.fault != notRead {
			continue
		}
		nodes := g.inst
		why := notRead
		switch {
		case g.rows > 0:
			lackGPM(g, onInstances)
			why = s.gpmRefusal(g)
		case g.migOn == 1:
			lackGPM(g, noMIG)
			continue
		default:
			nodes = []*node{g}
			why = s.gpmRefusal(g)
		}
		for _, n := range nodes {
			if why != notRead || n.h == nil || n.parent != nil && (n.gi < 0 || n.ci < 0) {
				lackGPM(n, why)
				continue
			}
			targets = append(targets, n)
		}
	}
	s.targets = targets
	if s.prime && len(targets) > 0 {
		for _, n := range targets {
			s.takeSample(n)
			if s.safety.broken {
				return s.gpmBroke()
			}
		}
		time.Sleep(gpmWindow)
		if s.changedMeanwhile(targets) {
			return false
		}
	}
	s.prime = false
	for _, n := range targets {
		n.gpm.ready, n.gpm.code = s.takeSample(n)
		if s.safety.broken {
			return s.gpmBroke()
		}
	}
	// What was changed since the tick began may be one of these, and its two samples of two instances. While that
	// cannot be asked there are no metrics, but a driver that never answers it must not cost them for good.
	if len(targets) > 0 && s.readEvents() {
		return false
	}
	s.blinded++
	if !s.blind {
		s.blinded = 0
	}
	for _, n := range targets {
		if s.blinded > 0 && s.blinded <= maxBlinded {
			lackGPM(n, changing)
		} else {
			s.gpmMetrics(n, n.gpm.ready, n.gpm.code)
		}
	}
	return true
}

// maxBlinded is for how many ticks in a row a failing question for events is taken for a passing fault.
const maxBlinded = 10

// changedMeanwhile looks, after priming has let time pass within a tick, whether every instance is still
// the one whose memory was read and whose first sample was taken.
func (s *nvmlSource) changedMeanwhile(targets []*node) bool {
	for _, n := range targets {
		if n.parent == nil {
			continue
		}
		h, uuid, code := s.peek(n)
		if code != nvml.SUCCESS || uuid != n.uuid {
			return true
		}
		n.h = h
	}
	return false
}

// lackGPM makes n's GPM metrics absent, util only if no other source has answered it.
func lackGPM(n *node, why reason) {
	for _, r := range gpmReads {
		if r.m != mUtil || n.src == srcNone && n.rows == 0 {
			n.v[r.m] = lack(why)
		}
	}
}

// gpmRefusal is why GPM is not read on g, notRead if it is.
func (s *nvmlSource) gpmRefusal(g *node) reason {
	old := g.archID > 0 && g.archID < nvml.DEVICE_ARCH_HOPPER
	switch {
	case old && g.rows > 0:
		return needsHopper
	case old:
		return noGPM
	case s.safety.off:
		return gpmUnsafe
	case s.policy == gpmNever || s.policy == gpmAuto && s.major < 550:
		return gpmOff
	case !s.has[cGpmMetrics] || g.rows > 0 && !s.has[cGpmMigGet]:
		return noSymbol
	}
	supported := uint32(0)
	if a := &g.answer[cGpmSupport]; a.asked && a.code == nvml.SUCCESS {
		return g.gpmWhy
	}
	code := s.try(g, cGpmSupport, func() nvml.Return {
		sup, ret := g.h.GpmQueryDeviceSupport()
		supported = sup.IsSupportedDevice
		return ret
	})
	g.gpmWhy = notRead
	if code != nvml.SUCCESS {
		g.gpmWhy = reasonOf(code)
	} else if supported == 0 {
		g.gpmWhy = noGPM
	}
	return g.gpmWhy
}

// takeSample fills n's spare buffer and, if that went well and the pair now spans a window, makes it the
// newer one. It answers what the driver said, and whether there is a pair to make metrics of.
func (s *nvmlSource) takeSample(n *node) (ready bool, code nvml.Return) {
	p := &n.gpm
	for _, buf := range [...]*nvml.GpmSample{&p.prev, &p.spare} {
		if *buf == nil {
			code := s.try(n, cGpmAlloc, func() nvml.Return {
				sample, ret := s.lib.GpmSampleAlloc()
				if ret == nvml.SUCCESS {
					*buf = sample
				}
				return ret
			})
			if code != nvml.SUCCESS {
				return false, code
			}
		}
	}
	if p.at > 0 {
		// Only after a tick that was primed, at the shortest interval, is there anything to wait for.
		time.Sleep(gpmWindow - (time.Since(s.epoch) - p.at))
	}
	code = s.getSample(n, p.spare)
	if n.parent != nil && !s.safety.checked {
		s.safety.broken, s.safety.checked = s.memoryBroke()
	}
	if code != nvml.SUCCESS {
		return false, code
	}
	ready = p.at > 0
	p.prev, p.spare, p.at = p.spare, p.prev, time.Since(s.epoch)
	return ready, code
}

// getSample asks for the GPU instance when n's compute instance is all of it, else for the compute instance
// or GPU. Who else is there cannot be told by the slots: a container sees only its own.
func (s *nvmlSource) getSample(n *node, into nvml.GpmSample) nvml.Return {
	if n.parent != nil && n.gSlices > 0 && n.cSlices == n.gSlices {
		return s.try(n, cGpmMigGet, func() nvml.Return { return n.parent.h.GpmMigSampleGet(n.gi, into) })
	}
	return s.try(n, cGpmGet, func() nvml.Return { return n.h.GpmSampleGet(into) })
}

// memoryBroke reads again, right after the first GPM call, also one that failed, the memory of an instance
// that had answered. Without one it has looked at nothing.
func (s *nvmlSource) memoryBroke() (broke, looked bool) {
	all := instances(s.gpus)
	i := slices.IndexFunc(all, func(n *node) bool { return n.h != nil && n.memAt == s.now })
	if i < 0 {
		return false, false
	}
	canary := all[i].device
	for range 2 {
		code := s.readMemory(all[i])
		if code != nvml.ERROR_IN_USE {
			all[i].device = canary
			return false, true
		}
	}
	return true, true
}

// gpmBroke decides what follows when GPM made memory unreadable: the session ends, which gives memory
// back; drivers from 550 on get a second chance, since one report of one 535 driver is all that is known.
func (s *nvmlSource) gpmBroke() bool {
	s.safety.strikes++
	if s.safety.strikes >= 2 || s.major < 550 {
		s.safety.off = true
		s.note("GPM off for this run: %s", gpmUnsafe.sentence())
	} else {
		s.note("GPM: memory readings broke after a GPM call; the session starts anew and tries once more")
	}
	return false
}

// gpmMetrics makes metrics of n's two samples, given what taking the newer one said. After the swap in
// takeSample spare holds the older.
func (s *nvmlSource) gpmMetrics(n *node, ready bool, code nvml.Return) {
	if ready {
		s.req.NumMetrics = uint32(len(gpmReads))
		s.req.Sample1, s.req.Sample2 = n.gpm.spare, n.gpm.prev
		for i, r := range gpmReads {
			s.req.Metrics[i] = nvml.GpmMetric{MetricId: r.id}
		}
		code = s.try(n, cGpmMetrics, func() nvml.Return { return s.lib.GpmMetricsGet(&s.req) })
	} else if code == nvml.SUCCESS {
		lackGPM(n, warmingUp)
		return
	}
	if code != nvml.SUCCESS {
		lackGPM(n, reasonOf(code))
		return
	}
	for i, r := range gpmReads {
		got := s.req.Metrics[i]
		v := lack(reasonOf(nvml.Return(got.NvmlReturn)))
		if nvml.Return(got.NvmlReturn) == nvml.SUCCESS {
			v = measureFloat(r.m, got.Value)
		}
		if r.m != mUtil {
			n.v[r.m] = v
		} else if n.src == srcNone {
			n.v[mUtil] = v
			if v.fresh() {
				n.src = srcGPM
			}
		}
	}
}

// freeGPM gives n's buffers back.
func (s *nvmlSource) freeGPM(n *node) {
	for _, buf := range [...]nvml.GpmSample{n.gpm.prev, n.gpm.spare} {
		if buf != nil {
			s.try(n, cGpmFree, func() nvml.Return { return buf.Free() })
		}
	}
	n.gpm = gpmPair{}
}
