// value.go owns the numbers: a value knows where it came from and, when there is none, why; a metric
// knows its unit, its valid range and its names; a snapshot is what one collection found.
//
// Invariants: no number exists without its origin (the zero value is absent, never 0); a number gets in
// only through measure, measureFloat or estimate, which check it against the metric's range; it is
// printed only through append. walls_test.go holds the other files to that.
package main

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// origin says how far a number may be trusted, best first after absent.
type origin uint8

const (
	absent    origin = iota // there is no number, only a reason
	measured                // the driver or the kernel answered it for this thing and this tick
	estimated               // derived by a stated rule from something measured elsewhere
	held                    // measured before; the read that was due has failed since
)

// reason says why a value is absent. The word is for machines, the sentence for people.
type reason uint8

const (
	notRead reason = iota
	notSupported
	noPermission
	notVisible
	noSymbol
	gpuLost
	resetRequired
	inUse
	driverSilent
	driverGone
	driverReplaced
	warmingUp
	gap
	released
	gpmOff
	gpmUnsafe
	needsHopper
	noGPM
	badValue
	noData
	onGPU
	onInstances
	noMIG
	eccOff
	counterReset
	severalBusy
	otherHost
	changing
	notRecorded
	unknownError
	reasonCount
)

var reasons = [reasonCount]struct{ word, sentence string }{
	notRead:        {"not_read", "not read"},
	notSupported:   {"not_supported", "the driver does not offer this here"},
	noPermission:   {"no_permission", "no permission: the whole GPU's figures need root or the mig/monitor capability"},
	notVisible:     {"not_visible", "not visible from this container or job: only its own instance is"},
	noSymbol:       {"no_symbol", "the driver is too old to have this call"},
	gpuLost:        {"gpu_lost", "the GPU is lost: it has fallen off the bus (see the kernel log for its XID)"},
	resetRequired:  {"reset_required", "the GPU needs a reset before it answers again"},
	inUse:          {"in_use", "in use, says the driver"},
	driverSilent:   {"driver_silent", "the driver does not answer"},
	driverGone:     {"driver_gone", "the driver is not loaded at the moment"},
	driverReplaced: {"driver_replaced", "the driver was upgraded: this program starts anew as soon as it answers"},
	warmingUp:      {"warming_up", "needs two samples: comes with the next one"},
	gap:            {"gap", "too long since the last sample for a rate"},
	released:       {"released", "the NVML session is released"},
	gpmOff:         {"gpm_off", "GPM is off: by default it is read from driver 550 on, since it was seen to break memory readings on 535; -gpm on tries it from 525 on"},
	gpmUnsafe:      {"gpm_unsafe", "GPM was switched off: memory readings broke after a GPM call on this driver"},
	needsHopper:    {"needs_hopper", "needs Hopper or newer: before, NVML has no activity per instance; DCGM has it: dcgmi dmon -e 1001,1002,1005"},
	noGPM:          {"no_gpm", "this GPU has no GPM counters (data center GPUs from Hopper on do)"},
	badValue:       {"bad_value", "the driver answered a value that cannot be true"},
	noData:         {"no_data", "the driver has no sample for this interval"},
	onGPU:          {"on_gpu", "belongs to the GPU, not to its instances"},
	onInstances:    {"on_instances", "its instances have it"},
	noMIG:          {"not_on_mig", "not under MIG: NVML does not answer it then"},
	eccOff:         {"ecc_off", "ECC is off"},
	counterReset:   {"counter_reset", "a counter started anew"},
	severalBusy:    {"several_busy", "several instances are in use: the GPU's activity cannot be told apart"},
	otherHost:      {"other_namespace", "the process is not visible from here"},
	changing:       {"changing", "the MIG instances are being reconfigured"},
	notRecorded:    {"not_recorded", "the recording does not have it"},
	unknownError:   {"unknown_error", "the driver answers an unknown error"},
}

func (r reason) String() string { return reasons[r].word }

// sentence is the reason in words that help, without a full stop.
func (r reason) sentence() string { return reasons[r].sentence }

// value is a number in its metric's base unit together with its origin and, when absent, the reason.
// The zero value is absent (notRead). It is comparable and holds no pointer.
type value struct {
	raw  int64
	from origin
	why  reason
	age  uint32 // milliseconds since it was measured, only when held
}

// measure is a number that the driver or the kernel answered, in m's base unit. A number outside m's
// valid range, and with that every sentinel (-1, 0x7ff..., 2^47), is absent with badValue.
func measure(m metric, n int64) value {
	if n < metrics[m].min || n > metrics[m].max {
		return lack(badValue)
	}
	return value{raw: n, from: measured}
}

// measureFloat is measure for a percentage as GPM answers it (0..100, a double; NaN and Inf occur).
func measureFloat(m metric, f float64) value {
	if math.IsNaN(f) || math.Abs(f) > 1e6 {
		return lack(badValue)
	}
	return measure(m, int64(math.Round(f*100)))
}

// lack is no number, for the reason why.
func lack(why reason) value { return value{why: why} }

// estimate is v, known by a rule rather than read for the thing itself.
func (v value) estimate() value {
	if v.from == measured {
		v.from = estimated
	}
	return v
}

// hold is v as last read, age ago, now that a read that was due has failed for the reason why. Absent
// stays absent.
func (v value) hold(age time.Duration, why reason) value {
	if v.from == absent {
		return v
	}
	v.from, v.why, v.age = held, why, uint32(min(age.Milliseconds(), math.MaxUint32))
	return v
}

// larger is the greater of two readings of one thing; an absent one yields to the other.
func larger(a, b value) value {
	if a.from == absent || b.from != absent && b.raw > a.raw {
		return b
	}
	return a
}

// perSecond is the rate of a counter that grew by grown in dt.
func perSecond(m metric, grown uint64, dt time.Duration) value {
	if dt <= 0 {
		return lack(gap)
	}
	return measure(m, int64(min(float64(grown)/dt.Seconds(), math.MaxInt64/2)))
}

// unread says that nothing was asked for v in this tick.
func (v value) unread() bool { return v.from == absent && v.why == notRead }

// num is the number for arithmetic on scales and thresholds; ok is false when there is none.
func (v value) num() (n int64, ok bool) { return v.raw, v.from != absent }

// fresh says that the number was answered for this tick (or estimated from such answers).
func (v value) fresh() bool { return v.from == measured || v.from == estimated }

// append writes the number as a plain integer in u's printed unit, rounded to nearest, or "-" unless
// it is fresh.
func (v value) append(b []byte, u unit) []byte {
	if !v.fresh() {
		return append(b, '-')
	}
	d := units[u].div
	n := v.raw
	if n >= 0 {
		n = (n + d/2) / d
	} else {
		n = (n - d/2) / d
	}
	return strconv.AppendInt(b, n, 10)
}

// show is append for the screen: an estimate is marked with ~ before it, a held number with * after it.
func (v value) show(b []byte, u unit) []byte {
	switch v.from {
	case estimated:
		b = append(b, '~')
	case held:
		fresh := v
		fresh.from = measured
		return append(fresh.append(b, u), '*')
	}
	return v.append(b, u)
}

// showSize is show for bytes in a unit that fits: "512M", "39.1G".
func (v value) showSize(b []byte) []byte {
	const tenth = 1 << 30 / 10
	if v.from == absent || v.raw < 1000<<20 {
		if b = v.show(b, memBytes); v.from == absent {
			return b
		}
		if v.from == held {
			return append(b[:len(b)-1], 'M', '*')
		}
		return append(b, 'M')
	}
	if v.from == estimated {
		b = append(b, '~')
	}
	tenths := (v.raw + tenth/2) / tenth
	b = strconv.AppendInt(b, tenths/10, 10)
	if tenths < 1000 {
		b = append(b, '.', byte('0'+tenths%10))
	}
	if b = append(b, 'G'); v.from == held {
		b = append(b, '*')
	}
	return b
}

// worst is the origin of what is made of a and b; with an absent one there is no number.
func worst(a, b value) (from origin, age uint32, missing bool) {
	return max(a.from, b.from), max(a.age, b.age), a.from == absent || b.from == absent
}

// percentOf is v as a share of total, as trusted as the worse of both. A part of nothing is absent.
func (v value) percentOf(total value) value {
	from, age, missing := worst(v, total)
	switch {
	case v.from == absent:
		return v
	case missing || total.raw <= 0:
		return lack(total.why)
	}
	return value{raw: int64(float64(v.raw) / float64(total.raw) * 10000), from: from, age: age}
}

// minus is v - w, as trusted as the worse of both.
func (v value) minus(w value) value {
	from, age, missing := worst(v, w)
	switch {
	case v.from == absent:
		return v
	case missing:
		return w
	}
	return value{raw: v.raw - w.raw, from: from, age: age}
}

// plus is v + w, as trusted as the worse of both.
func (v value) plus(w value) value {
	w.raw = -w.raw
	return v.minus(w)
}

// atLeast0 is v, or 0 where counters that were not read at one instant make it negative.
func (v value) atLeast0() value {
	v.raw = max(v.raw, 0)
	return v
}

// unit is a base unit, in which values are kept, and the unit printed in text rows.
type unit uint8

const (
	percent   unit = iota // 1/100 % -> %
	memBytes              // bytes -> MiB
	byteRate              // bytes/s -> MB/s, as dmon
	milliwatt             // mW -> W
	joule                 // mJ -> J
	megahertz             // MHz
	celsius               // degrees
	count                 // a number
	seconds               // ms -> s
)

var units = [...]struct {
	div      int64  // base units per printed unit
	name     string // as in the second header line
	decimals int    // in records, where the unit is as in the key: a base unit is 10^-decimals of it
	exported int    // the same for Prometheus' base units, of which 100 % is 1
}{
	percent:   {100, "%", 2, 4},
	memBytes:  {1 << 20, "MiB", 0, 0},
	byteRate:  {1_000_000, "MB/s", 0, 0},
	milliwatt: {1000, "W", 3, 3},
	joule:     {1000, "J", 3, 3},
	megahertz: {1, "MHz", 0, -6},
	celsius:   {1, "C", 0, 0},
	count:     {1, "#", 0, 0},
	seconds:   {1000, "s", 3, 3},
}

// metric names one quantity. Adding one takes a constant, a row in metrics and a read.
type metric uint8

const (
	mUtil metric = iota
	mSMUtil
	mSMOcc
	mTensor
	mDRAM
	mFP64
	mFP32
	mFP16
	mMemUtil // from here to mOfa: what the driver itself does not answer under MIG
	mEnc
	mDec
	mJpg
	mOfa
	mMemUsed
	mMemTotal
	mMemReserved
	mProcs
	mIdle
	mTemp
	mMemTemp
	mTempSlow
	mTempShut
	mTempSlowOffset
	mTempShutOffset
	mTempMargin
	mPower
	mPowerLimit
	mEnergy
	mClkGfx
	mClkSM
	mClkMem
	mPState
	mThrottle
	mPcieGen
	mPcieWidth
	mPcieRx
	mPcieTx
	mECC
	mECCCorr
	mECCUncorr
	mXID
	mXIDCount
	mRecovery
	deviceMetrics // metrics of a device end here; those of a process follow

	mProcMem
	mRSS
	mCPU
	mCPUTime
	mHostCPU
	mHostMem
	metricCount
)

const (
	maxBytes = 1 << 46 // 64 TiB: above any GPU or host, below the 2^47 seen as a sentinel
	maxGPM   = 20000   // GPM answers up to 200 % on some instances; kept as it is
	maxExact = 1 << 50 // with three decimals, what a reader of JSON keeps exactly
)

// metrics is the one table of metrics. key names it in records, col is the text column (empty: none); gpuOnly
// marks readings that exist for a whole GPU only, which its instances never repeat; prom and help are its name
// for Prometheus after promPrefix and what it is (empty: not exported so).
var metrics = [metricCount]struct {
	key      string
	col      string
	unit     unit
	min, max int64
	gpuOnly  bool
	prom     string
	help     string
}{
	mUtil: {
		key: "utilization_pct", col: "util", unit: percent, max: maxGPM,
		prom: "utilization_ratio", help: "Share of time in which the device was busy; src of the info metric says how it is known.",
	},
	mSMUtil: {
		key: "smutil_pct", col: "smutil", unit: percent, max: maxGPM,
		prom: "sm_active_ratio", help: "Share of time in which multiprocessors were active, their mean (GPM).",
	},
	mSMOcc: {
		key: "smocc_pct", col: "smocc", unit: percent, max: maxGPM,
		prom: "sm_occupancy_ratio", help: "Warps resident, of those that fit (GPM).",
	},
	mTensor: {
		key: "mmaact_pct", col: "mmaact", unit: percent, max: maxGPM,
		prom: "tensor_active_ratio", help: "Share of time in which tensor pipes were active (GPM).",
	},
	mDRAM: {
		key: "dram_pct", col: "dram", unit: percent, max: maxGPM,
		prom: "dram_bandwidth_ratio", help: "DRAM bandwidth used (GPM).",
	},
	mFP64: {
		key: "fp64_pct", col: "fp64", unit: percent, max: maxGPM,
		prom: "fp64_active_ratio", help: "Share of time in which FP64 pipes were active (GPM).",
	},
	mFP32: {
		key: "fp32_pct", col: "fp32", unit: percent, max: maxGPM,
		prom: "fp32_active_ratio", help: "Share of time in which FP32 pipes were active (GPM).",
	},
	mFP16: {
		key: "fp16_pct", col: "fp16", unit: percent, max: maxGPM,
		prom: "fp16_active_ratio", help: "Share of time in which FP16 pipes were active (GPM).",
	},
	mMemUtil: {
		key: "mem_util_pct", col: "mem", unit: percent, max: 10000,
		prom: "memory_controller_busy_ratio", help: "Share of time in which device memory was read or written.",
	},
	mEnc: {
		key: "enc_util_pct", col: "enc", unit: percent, max: 10000,
		prom: "encoder_busy_ratio", help: "Share of time in which the video encoder was busy.",
	},
	mDec: {
		key: "dec_util_pct", col: "dec", unit: percent, max: 10000,
		prom: "decoder_busy_ratio", help: "Share of time in which the video decoder was busy.",
	},
	mJpg: {
		key: "jpg_util_pct", col: "jpg", unit: percent, max: 10000,
		prom: "jpeg_busy_ratio", help: "Share of time in which the JPEG engine was busy.",
	},
	mOfa: {
		key: "ofa_util_pct", col: "ofa", unit: percent, max: 10000,
		prom: "optical_flow_busy_ratio", help: "Share of time in which the optical flow engine was busy.",
	},
	mMemUsed: {
		key: "vram_used_bytes", col: "fb", unit: memBytes, max: maxBytes,
		prom: "memory_used_bytes", help: "Device memory in use; of a GPU instance that several compute instances share, once.",
	},
	mMemTotal: {
		key: "vram_total_bytes", col: "fbtot", unit: memBytes, min: 1, max: maxBytes,
		prom: "memory_total_bytes", help: "Device memory.",
	},
	mMemReserved: {
		key: "vram_reserved_bytes", unit: memBytes, max: maxBytes,
		prom: "memory_reserved_bytes", help: "Device memory that the driver keeps for itself.",
	},
	mProcs: {
		key: "procs", col: "procs", unit: count, max: 1 << 20,
		prom: "processes", help: "Processes on the device.",
	},
	mIdle: {
		key: "idle_s", col: "idle", unit: seconds, max: maxExact,
		prom: "idle_seconds", help: "Time since utilization was last above 0, from the start of the run.",
	},
	mTemp: {
		key: "temperature_c", col: "gtemp", unit: celsius, max: 200, gpuOnly: true,
		prom: "temperature_celsius", help: "GPU temperature.",
	},
	mMemTemp: {
		key: "temp_mem_c", col: "mtemp", unit: celsius, min: 1, max: 200, gpuOnly: true,
		prom: "memory_temperature_celsius", help: "Memory temperature.",
	},
	mTempSlow: {
		key: "temp_slowdown_c", unit: celsius, min: 1, max: 200, gpuOnly: true,
		prom: "slowdown_temperature_celsius", help: "Temperature at which the hardware slows down.",
	},
	mTempShut: {
		key: "temp_shutdown_c", unit: celsius, min: 1, max: 200, gpuOnly: true,
		prom: "shutdown_temperature_celsius", help: "Temperature at which the GPU shuts down.",
	},
	mTempSlowOffset: {
		key: "tlimit_slowdown_c", unit: celsius, min: -100, max: 100, gpuOnly: true,
		prom: "slowdown_margin_celsius", help: "Margin at which the hardware slows down (Hopper and newer).",
	},
	mTempShutOffset: {
		key: "tlimit_shutdown_c", unit: celsius, min: -100, max: 100, gpuOnly: true,
		prom: "shutdown_margin_celsius", help: "Margin at which the GPU shuts down (Hopper and newer).",
	},
	mTempMargin: {
		key: "temp_margin_c", unit: celsius, min: -100, max: 200, gpuOnly: true,
		prom: "temperature_margin_celsius", help: "Margin to the temperature limit (Hopper and newer).",
	},
	mPower: {
		key: "power_w", col: "pwr", unit: milliwatt, max: 20_000_000, gpuOnly: true,
		prom: "power_watts", help: "Board power.",
	},
	mPowerLimit: {
		key: "power_limit_w", unit: milliwatt, min: 1, max: 20_000_000, gpuOnly: true,
		prom: "power_limit_watts", help: "Enforced power limit.",
	},
	mEnergy: {
		key: "energy_j", unit: joule, max: maxExact, gpuOnly: true,
		prom: "energy_joules_total", help: "Energy used since the driver was loaded.",
	},
	mClkGfx: {
		key: "clock_mhz", col: "pclk", unit: megahertz, max: 100_000, gpuOnly: true,
		prom: "graphics_clock_hertz", help: "Graphics clock.",
	},
	mClkSM: {
		key: "sm_clock_mhz", unit: megahertz, max: 100_000, gpuOnly: true,
		prom: "sm_clock_hertz", help: "Multiprocessor clock.",
	},
	mClkMem: {
		key: "mem_clock_mhz", col: "mclk", unit: megahertz, max: 100_000, gpuOnly: true,
		prom: "memory_clock_hertz", help: "Memory clock.",
	},
	mPState: {
		key: "pstate", unit: count, max: 15, gpuOnly: true,
		prom: "performance_state", help: "Performance state, 0 the fastest.",
	},
	mThrottle: {key: "throttle_bits", unit: count, max: maxExact, gpuOnly: true},
	mPcieGen: {
		key: "pcie_gen", unit: count, min: 1, max: 16, gpuOnly: true,
		prom: "pcie_link_generation", help: "PCIe generation of the link as it is.",
	},
	mPcieWidth: {
		key: "pcie_width", unit: count, min: 1, max: 64, gpuOnly: true,
		prom: "pcie_link_lanes", help: "PCIe lanes of the link as it is.",
	},
	mPcieRx: {
		key: "pcie_rx_bytes_per_s", col: "rxpci", unit: byteRate, max: 1 << 41, gpuOnly: true,
		prom: "pcie_receive_bytes_per_second", help: "Bytes received over PCIe.",
	},
	mPcieTx: {
		key: "pcie_tx_bytes_per_s", col: "txpci", unit: byteRate, max: 1 << 41, gpuOnly: true,
		prom: "pcie_transmit_bytes_per_second", help: "Bytes sent over PCIe.",
	},
	mECC: {
		key: "ecc_mode", unit: count, max: 1, gpuOnly: true,
		prom: "ecc_enabled", help: "Whether ECC is on.",
	},
	mECCCorr: {
		key: "ecc_corrected", col: "sbecc", unit: count, max: 1 << 46, gpuOnly: true,
		prom: "ecc_corrected_errors_total", help: "Memory errors corrected since the driver was loaded.",
	},
	mECCUncorr: {
		key: "ecc_uncorrected", col: "dbecc", unit: count, max: 1 << 46,
		prom: "ecc_uncorrected_errors_total", help: "Memory errors not corrected since the driver was loaded; of an instance, in its SRAM.",
	},
	mXID: {
		key: "xid", col: "xid", unit: count, max: 1 << 31,
		prom: "last_xid", help: "Number of the last XID since the start of the run, 0 for none.",
	},
	mXIDCount: {
		key: "xid_count", unit: count, max: 1 << 46,
		prom: "xids_total", help: "XIDs since the start of the run.",
	},
	mRecovery: {
		key: "recovery_action", unit: count, max: 100, gpuOnly: true,
		prom: "recovery_action", help: "What the driver wants done: 0 nothing, 1 GPU reset, 2 reboot, 3 drain, 4 drain and reset.",
	},
	mProcMem: {key: "gpu_mem_bytes", col: "fb", unit: memBytes, max: maxBytes},
	mRSS:     {key: "host_mem_bytes", col: "rss", unit: memBytes, max: maxBytes},
	mCPU:     {key: "cpu_pct", col: "cpu", unit: percent, max: 100 * 100 * 100_000},
	mCPUTime: {key: "cpu_time_s", col: "time", unit: seconds, max: maxExact},
	mHostCPU: {key: "host_cpu_pct", unit: percent, max: 10000},
	mHostMem: {key: "host_bytes", unit: memBytes, max: maxBytes},
}

// implied is m's value on d where nothing is said of it.
func implied(d *device, m metric) value {
	switch {
	case d.isGPU():
		return value{}
	case metrics[m].gpuOnly:
		return lack(onGPU)
	case m >= mMemUtil && m <= mOfa: // the driver's own utilization, unless it does answer
		return lack(noMIG)
	}
	return value{}
}

// signed makes NVML's unsigned 64-bit answers fit: what does not (the sentinel 0xFFFFFFFFFFFFFFFF) is
// -1, which every metric's range refuses.
func signed(u uint64) int64 {
	if u > math.MaxInt64 {
		return -1
	}
	return int64(u)
}

// utilSource names the call that answered a device's util.
type utilSource uint8

const (
	srcNone utilSource = iota
	srcNVML
	srcProc
	srcGPM
	srcEst
)

var srcWords = [...]string{srcNone: "-", srcNVML: "nvml", srcProc: "proc", srcGPM: "gpm", srcEst: "est"}

func (s utilSource) String() string { return srcWords[s] }

// device is a whole GPU or one MIG instance (a compute instance in its GPU instance) at one tick.
type device struct {
	uuid    string    // NVML's, of the GPU or of the MIG device; empty if not even that could be read
	gpuUUID string    // of its GPU, of a GPU its own
	born    uint32    // generation in which it was first seen: uuid and born are its identity over time
	gpu     int       // NVML index of the GPU
	mig     int       // index as nvidia-smi -L counts instances, -1 for a GPU
	gi, ci  int       // GPU instance and compute instance id, -1 for a GPU
	name    string    // product name, without " MIG ..."
	profile string    // "3g.40gb", "1c.3g.71gb", "1g.10gb+me"; empty for a GPU
	bus     string    // PCI address as 0000:17:00.0
	minor   int       // N of /dev/nvidiaN, -1 unknown
	arch    string    // "Hopper"; empty unknown
	cc      string    // CUDA compute capability "9.0"; empty unknown
	gSlices int       // slices of its GPU instance, 0 unknown
	cSlices int       // slices of its compute instance, 0 unknown
	sms     int       // multiprocessors, 0 unknown
	migOn   int       // current MIG mode: 1, 0, -1 unknown or none
	migNext int       // pending MIG mode, same coding
	rows    int       // of a GPU: instances that have rows
	mates   bool      // other compute instances are in its GPU instance, and its memory is theirs too
	shared  bool      // one of them is listed before it
	xidAt   time.Time // of the last XID, zero without one
	fault   reason    // what keeps the whole device from answering (gpuLost ...), else notRead
	src     utilSource
	v       [deviceMetrics]value
}

// isGPU says that d is a whole GPU, not an instance.
func (d *device) isGPU() bool { return d.mig < 0 }

const idleBytes = 64 << 20 // an instance without a process has up to 59 MiB in use (H100, A100)

// state is the device's state in one word, from fresh values only; "?" when not enough is known.
func (d *device) state() string {
	util, uok := fresh(d.v[mUtil])
	procs, pok := fresh(d.v[mProcs])
	mem, mok := fresh(d.v[mMemUsed])
	if d.mates {
		mem = 0 // what others use says nothing of this one
	}
	idle := int64(idleBytes)
	if d.isGPU() && d.v[mMemReserved].from == absent {
		idle += 1 << 30 // before R510 used includes what the driver reserves, some 450 MiB
	}
	taken := pok && procs > 0 || mok && mem > idle
	switch {
	case d.fault == gpuLost || d.fault == resetRequired:
		return "lost"
	case d.isGPU() && d.rows > 0:
		return "mig"
	case d.isGPU() && d.migOn == 1 && d.fault == notRead:
		return "empty"
	case uok && util > 0:
		return "busy"
	case uok && taken:
		return "held"
	case taken:
		return "used"
	case pok && mok:
		return "free"
	}
	return "?"
}

func fresh(v value) (int64, bool) { return v.raw, v.fresh() }

// printable makes text from outside (driver, process, recording) safe for a terminal: control characters,
// C1 codes, invalid UTF-8, and characters that reorder or hide text become '?'.
func printable(s string) string {
	clean := func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}
	return strings.Map(clean, s)
}

// snapshot is what one collection found. dev is in display order, each GPU before its instances; it is
// written by the source alone and read-only once handed on, but for what only the loop knows (interval,
// system, and the notes of what it did).
type snapshot struct {
	seq      uint64
	at       time.Time     // when the collection began
	window   time.Duration // time since the collection before, 0 for the first
	interval time.Duration // of the ticks, 0 unknown
	backend  string        // "nvml", or what the recording says
	host     string        // the machine's name
	driver   string
	cuda     string // "12.4"; empty unknown
	hidden   int    // GPUs that this job or container may not open
	dev      []device
	proc     []process
	notes    []string   // events since the last snapshot, one line each
	system   *hostState // nil: not read
	replaced bool       // the driver is not this library's any more: only a new process can read it
	tape     tape
}

// quiet makes q what s is when there is no answer, for the reason why: the same devices without numbers.
func (q *snapshot) quiet(s *snapshot, why reason, at time.Time) {
	dev, notes := append(q.dev[:0], s.dev...), q.notes[:0]
	*q = *s
	q.dev, q.proc, q.notes = dev, nil, notes
	q.seq, q.at, q.window, q.hidden = 0, at, 0, 0
	for i := range q.dev {
		d := &q.dev[i]
		d.src, d.fault = srcNone, why
		for m := range d.v {
			d.v[m] = lack(why)
		}
	}
}

// answered says that a driver or a recording of one stands behind s.
func (s *snapshot) answered() bool {
	for i := range s.dev {
		switch s.dev[i].fault {
		case driverSilent, driverGone, driverReplaced, released, changing:
		default:
			return true
		}
	}
	return false
}

// tape is what a snapshot that was recorded knows of its recording; the zero value is a live one's.
type tape struct {
	label   string        // "replay", "demo (simulated)", or both if a recording of the demo is played
	back    bool          // there is a record before, to step back to
	anew    bool          // the demo begins again with it
	next    time.Duration // until the next record, 0 for the last one
	percent int           // of the recording that was read, -1 unknown
	skipped int           // lines so far that are no records
}

// live says that s was not recorded.
func (s *snapshot) live() bool { return s.tape.label == "" }

// reset empties s for the next collection and keeps its memory.
func (s *snapshot) reset() {
	*s = snapshot{dev: s.dev[:0], proc: s.proc[:0], notes: s.notes[:0]}
}
