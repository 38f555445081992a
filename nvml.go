// nvml.go owns the library: finding and loading it, probing its symbols, making every call, and reading
// what belongs to a whole GPU or is read alike for GPU and instance (memory, processes, sensors).
//
// Invariants: with mig.go it is the sole importer of go-nvml; every call but Init and Shutdown goes through
// try, which makes none whose symbol the driver lacks (such a call would end the process with "symbol
// lookup error", exit 127); all of it runs on one goroutine, since parallel GPM calls crash and the driver
// serialises the rest on one lock anyway.
package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"
)

// call names one question to NVML: a function, or a function with one of its arguments, or one field id.
type call uint8

const (
	cDriver call = iota
	cCuda
	cCount
	cHandle
	cName
	cUUID
	cPci
	cMinor
	cArch
	cCC
	cMigMode
	cMigMax
	cMigHandle
	cGI
	cCI
	cAttributes
	cMem2
	cMem1
	cUtil
	cEnc
	cDec
	cJpg
	cOfa
	cProcUtil
	cSamples
	cCompute
	cGraphics
	cMPS
	cTemp
	cTempSlow
	cTempShut
	cMargin
	cPower
	cLimit
	cClkGfx
	cClkSM
	cClkMem
	cPState
	cEventReasons
	cThrottle
	cPcieGen
	cPcieWidth
	cPcieTx
	cPcieRx
	cSramUE
	cFields
	cGpmSupport
	cGpmAlloc
	cGpmFree
	cGpmGet
	cGpmMigGet
	cGpmMetrics
	cEventCreate
	cEventRegister
	cEventWait
	cEventFree

	fECC // the rest are field ids, asked together by cFields
	fECCCorr
	fECCUncorr
	fMemTemp
	fEnergy
	fPowerAvg
	fPowerNow
	fShutOffset
	fSlowOffset
	fPcieTx
	fPcieRx
	fRecovery
	callCount

	firstField = fECC
)

// calls names for each call the go-nvml method and the symbols of which the method needs one (it takes
// the newest that the library has), or the field id. walls_test.go checks methods against their use.
var calls = [callCount]struct {
	method  string
	symbols []string
	field   uint32
}{
	cDriver:        {method: "SystemGetDriverVersion", symbols: []string{"nvmlSystemGetDriverVersion"}},
	cCuda:          {method: "SystemGetCudaDriverVersion_v2", symbols: []string{"nvmlSystemGetCudaDriverVersion_v2"}},
	cCount:         {method: "DeviceGetCount", symbols: []string{"nvmlDeviceGetCount_v2"}},
	cHandle:        {method: "DeviceGetHandleByIndex", symbols: []string{"nvmlDeviceGetHandleByIndex_v2"}},
	cName:          {method: "GetName", symbols: []string{"nvmlDeviceGetName"}},
	cUUID:          {method: "GetUUID", symbols: []string{"nvmlDeviceGetUUID"}},
	cPci:           {method: "GetPciInfo", symbols: []string{"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2"}},
	cMinor:         {method: "GetMinorNumber", symbols: []string{"nvmlDeviceGetMinorNumber"}},
	cArch:          {method: "GetArchitecture", symbols: []string{"nvmlDeviceGetArchitecture"}},
	cCC:            {method: "GetCudaComputeCapability", symbols: []string{"nvmlDeviceGetCudaComputeCapability"}},
	cMigMode:       {method: "GetMigMode", symbols: []string{"nvmlDeviceGetMigMode"}},
	cMigMax:        {method: "GetMaxMigDeviceCount", symbols: []string{"nvmlDeviceGetMaxMigDeviceCount"}},
	cMigHandle:     {method: "GetMigDeviceHandleByIndex", symbols: []string{"nvmlDeviceGetMigDeviceHandleByIndex"}},
	cGI:            {method: "GetGpuInstanceId", symbols: []string{"nvmlDeviceGetGpuInstanceId"}},
	cCI:            {method: "GetComputeInstanceId", symbols: []string{"nvmlDeviceGetComputeInstanceId"}},
	cAttributes:    {method: "GetAttributes", symbols: []string{"nvmlDeviceGetAttributes_v2", "nvmlDeviceGetAttributes"}},
	cMem2:          {method: "GetMemoryInfo_v2", symbols: []string{"nvmlDeviceGetMemoryInfo_v2"}},
	cMem1:          {method: "GetMemoryInfo", symbols: []string{"nvmlDeviceGetMemoryInfo"}},
	cUtil:          {method: "GetUtilizationRates", symbols: []string{"nvmlDeviceGetUtilizationRates"}},
	cEnc:           {method: "GetEncoderUtilization", symbols: []string{"nvmlDeviceGetEncoderUtilization"}},
	cDec:           {method: "GetDecoderUtilization", symbols: []string{"nvmlDeviceGetDecoderUtilization"}},
	cJpg:           {method: "GetJpgUtilization", symbols: []string{"nvmlDeviceGetJpgUtilization"}},
	cOfa:           {method: "GetOfaUtilization", symbols: []string{"nvmlDeviceGetOfaUtilization"}},
	cProcUtil:      {method: "GetProcessUtilization", symbols: []string{"nvmlDeviceGetProcessUtilization"}},
	cSamples:       {method: "GetSamples", symbols: []string{"nvmlDeviceGetSamples"}},
	cCompute:       {method: "GetComputeRunningProcesses", symbols: procSymbols("Compute")},
	cGraphics:      {method: "GetGraphicsRunningProcesses", symbols: procSymbols("Graphics")},
	cMPS:           {method: "GetMPSComputeRunningProcesses", symbols: procSymbols("MPSCompute")},
	cTemp:          {method: "GetTemperature", symbols: []string{"nvmlDeviceGetTemperature"}},
	cTempSlow:      {method: "GetTemperatureThreshold", symbols: []string{"nvmlDeviceGetTemperatureThreshold"}},
	cTempShut:      {method: "GetTemperatureThreshold", symbols: []string{"nvmlDeviceGetTemperatureThreshold"}},
	cMargin:        {method: "GetMarginTemperature", symbols: []string{"nvmlDeviceGetMarginTemperature"}},
	cPower:         {method: "GetPowerUsage", symbols: []string{"nvmlDeviceGetPowerUsage"}},
	cLimit:         {method: "GetEnforcedPowerLimit", symbols: []string{"nvmlDeviceGetEnforcedPowerLimit"}},
	cClkGfx:        {method: "GetClockInfo", symbols: []string{"nvmlDeviceGetClockInfo"}},
	cClkSM:         {method: "GetClockInfo", symbols: []string{"nvmlDeviceGetClockInfo"}},
	cClkMem:        {method: "GetClockInfo", symbols: []string{"nvmlDeviceGetClockInfo"}},
	cPState:        {method: "GetPerformanceState", symbols: []string{"nvmlDeviceGetPerformanceState"}},
	cEventReasons:  {method: "GetCurrentClocksEventReasons", symbols: []string{"nvmlDeviceGetCurrentClocksEventReasons"}},
	cThrottle:      {method: "GetCurrentClocksThrottleReasons", symbols: []string{"nvmlDeviceGetCurrentClocksThrottleReasons"}},
	cPcieGen:       {method: "GetCurrPcieLinkGeneration", symbols: []string{"nvmlDeviceGetCurrPcieLinkGeneration"}},
	cPcieWidth:     {method: "GetCurrPcieLinkWidth", symbols: []string{"nvmlDeviceGetCurrPcieLinkWidth"}},
	cPcieTx:        {method: "GetPcieThroughput", symbols: []string{"nvmlDeviceGetPcieThroughput"}},
	cPcieRx:        {method: "GetPcieThroughput", symbols: []string{"nvmlDeviceGetPcieThroughput"}},
	cSramUE:        {method: "GetMemoryErrorCounter", symbols: []string{"nvmlDeviceGetMemoryErrorCounter"}},
	cFields:        {method: "GetFieldValues", symbols: []string{"nvmlDeviceGetFieldValues"}},
	cGpmSupport:    {method: "GpmQueryDeviceSupport", symbols: []string{"nvmlGpmQueryDeviceSupport"}},
	cGpmAlloc:      {method: "GpmSampleAlloc", symbols: []string{"nvmlGpmSampleAlloc"}},
	cGpmFree:       {method: "Free", symbols: []string{"nvmlGpmSampleFree"}},
	cGpmGet:        {method: "GpmSampleGet", symbols: []string{"nvmlGpmSampleGet"}},
	cGpmMigGet:     {method: "GpmMigSampleGet", symbols: []string{"nvmlGpmMigSampleGet"}},
	cGpmMetrics:    {method: "GpmMetricsGet", symbols: []string{"nvmlGpmMetricsGet"}},
	cEventCreate:   {method: "EventSetCreate", symbols: []string{"nvmlEventSetCreate"}},
	cEventRegister: {method: "RegisterEvents", symbols: []string{"nvmlDeviceRegisterEvents"}},
	cEventWait:     {method: "Wait", symbols: []string{"nvmlEventSetWait_v2", "nvmlEventSetWait"}},
	cEventFree:     {method: "Free", symbols: []string{"nvmlEventSetFree"}},

	fECC:        {method: "field ECC_CURRENT", field: nvml.FI_DEV_ECC_CURRENT},
	fECCCorr:    {method: "field ECC_SBE_VOL_TOTAL", field: nvml.FI_DEV_ECC_SBE_VOL_TOTAL},
	fECCUncorr:  {method: "field ECC_DBE_VOL_TOTAL", field: nvml.FI_DEV_ECC_DBE_VOL_TOTAL},
	fMemTemp:    {method: "field MEMORY_TEMP", field: nvml.FI_DEV_MEMORY_TEMP},
	fEnergy:     {method: "field TOTAL_ENERGY_CONSUMPTION", field: nvml.FI_DEV_TOTAL_ENERGY_CONSUMPTION},
	fPowerAvg:   {method: "field POWER_AVERAGE", field: nvml.FI_DEV_POWER_AVERAGE},
	fPowerNow:   {method: "field POWER_INSTANT", field: nvml.FI_DEV_POWER_INSTANT},
	fShutOffset: {method: "field TEMPERATURE_SHUTDOWN_TLIMIT", field: nvml.FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT},
	fSlowOffset: {method: "field TEMPERATURE_SLOWDOWN_TLIMIT", field: nvml.FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT},
	fPcieTx:     {method: "field PCIE_COUNT_TX_BYTES", field: nvml.FI_DEV_PCIE_COUNT_TX_BYTES},
	fPcieRx:     {method: "field PCIE_COUNT_RX_BYTES", field: nvml.FI_DEV_PCIE_COUNT_RX_BYTES},
	fRecovery:   {method: "field GET_GPU_RECOVERY_ACTION", field: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION},
}

func procSymbols(kind string) []string {
	s := "nvmlDeviceGet" + kind + "RunningProcesses"
	return []string{s + "_v3", s + "_v2", s}
}

const (
	askAgain  = 60 * time.Second // after a refusal that will hardly change
	slowEvery = 10 * time.Second // limits, link, thresholds: values that change by an administrator's hand
	holdFor   = 10 * time.Second // how long memory used and process lists are shown after a failed read
	never     = time.Duration(math.MaxInt64)
)

// answer is what a device said to a call, and until when it need not be asked again.
type answer struct {
	code  nvml.Return
	asked bool
	again time.Duration // on the source's clock
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

// nvmlSource collects snapshots from NVML. All its methods belong to one goroutine.
type nvmlSource struct {
	path   string // -nvml-path
	host   string // this machine's name
	policy gpmPolicy
	want   [deviceMetrics]bool // what some reader shows; the rest is not asked
	debug  *callLog
	procs  *procReader
	leave  func() // gives the terminal back before another process image takes over; nil without one

	lib      nvml.Interface
	keep     *dl.DynamicLibrary // our own reference: Shutdown must not unload, see nvml-facts on upgrades
	file     string             // the library really loaded
	has      [callCount]bool
	early    bool // the newest process lists are misread, see probe
	oldLists [3]processList
	driver   string
	major    int // 535 of 535.129.03
	cuda     string

	isOpen  bool
	gone    nvml.Return // what ended the session in this tick
	away    nvml.Return // what ended the last session, while there is none
	paused  bool        // released: no session until resumed
	retryAt time.Duration
	backoff time.Duration
	sys     node // what calls on no device are made on
	gpus    []*node
	gen     uint32
	prime   bool // this session replaces one: GPM is primed within the tick
	safety  gpmSafety
	req     nvml.GpmMetricsGetType // reused: 19 kB
	fields  []nvml.FieldValue
	targets []*node // of GPM in this tick
	events  nvml.EventSet
	evOn    bool
	evAsked bool // in this session
	blind   bool // in this tick events could not be asked for
	blinded int  // ticks in a row that were so
	turn    int  // GPU whose blocking PCIe throughput is read in this tick

	epoch time.Time
	now   time.Duration // begin of this tick since epoch, monotonic
	since uint64        // begin of the tick before in us of the wall clock: what samples must be newer than
	last  time.Duration // of the tick before
	seq   uint64
	notes []string
}

// startError is why there is nothing to watch: exit 3. hints are for the person, one line each.
type startError struct {
	text  string
	hints []string
}

func (e *startError) Error() string { return e.text }

// candidates are the libraries to try, in order. Each entry is a path or a name for the linker's search.
func candidates(path, ldPath string) []string {
	if path != "" {
		return []string{path}
	}
	var c []string
	for _, dir := range strings.Split(ldPath, ":") {
		if dir != "" {
			c = append(c, filepath.Join(dir, "libnvidia-ml.so.1"))
		}
	}
	c = append(c, "libnvidia-ml.so.1", "libnvidia-ml.so")
	for _, dir := range []string{
		"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/aarch64-linux-gnu",
		"/usr/local/nvidia/lib64", "/usr/local/nvidia/lib",
		"/run/nvidia/driver/usr/lib/x86_64-linux-gnu", "/run/nvidia/driver/usr/lib64", // GPU operator
		"/usr/lib/wsl/lib",
	} {
		c = append(c, dir+"/libnvidia-ml.so.1")
	}
	return c
}

// triedEnv hands the libraries that failed on to the next process image, a line `code "path"` each.
const triedEnv = "MIG_GPU_MON_TRIED"

// attempt is one library whose Init failed.
type attempt struct {
	code nvml.Return
	path string
}

func parseAttempts(env string) []attempt {
	var a []attempt
	for _, line := range strings.Split(env, "\n") {
		code, path, ok := strings.Cut(line, " ")
		n, err1 := strconv.Atoi(code)
		path, err2 := strconv.Unquote(path)
		if ok && err1 == nil && err2 == nil {
			a = append(a, attempt{nvml.Return(n), path})
		}
	}
	return a
}

// loadable is a candidate that the loader accepts and that is NVML.
type loadable struct {
	name string
	file string // resolved, to know it again under another name
	lib  *dl.DynamicLibrary
}

// openCandidate opens name without calling into it. The error is the loader's own words.
func openCandidate(name string) (loadable, error) {
	l := dl.New(name, dl.RTLD_LAZY|dl.RTLD_LOCAL)
	if err := l.Open(); err != nil {
		return loadable{}, err
	}
	if l.Lookup("nvmlInit_v2") != nil {
		_ = l.Close()
		return loadable{}, fmt.Errorf("%s: not an NVML library (no nvmlInit_v2)", name)
	}
	file, err := l.Path()
	if err != nil {
		file = name
	}
	if real, err := filepath.EvalSymlinks(file); err == nil {
		file = real
	}
	return loadable{name, file, l}, nil
}

// load finds a library whose Init succeeds. After one library's Init was called, go-nvml's calls stay
// bound to it, so the next candidate is tried in a fresh process image; what failed is handed on.
func (s *nvmlSource) load() error {
	tried := parseAttempts(os.Getenv(triedEnv))
	os.Unsetenv(triedEnv)
	ldPath := os.Getenv("LD_LIBRARY_PATH")
	if secureExec() {
		ldPath = ""
	}
	all := candidates(s.path, ldPath)
	l, rest, words := nextCandidate(all, tried)
	if l.lib == nil {
		if len(tried) > 0 {
			return initError(tried[0])
		}
		return loadError(s.path, words)
	}
	s.lib, s.keep, s.file = nvml.New(nvml.WithLibraryPath(l.name)), l.lib, l.file
	v1 := [...]processList{computeList, graphicsList, mpsList} // as set before Init has chosen newer ones
	code := s.lib.Init()
	s.debug.printf("loading %s: Init %s", l.file, codeText(code))
	if code == nvml.SUCCESS {
		s.probe()
		s.oldLists = v1
		s.bindLists()
		s.isOpen = true
		return nil
	}
	tried = append(tried, attempt{code, l.file})
	next, _, _ := nextCandidate(rest, tried)
	if next.lib == nil {
		return initError(tried[0])
	}
	var env strings.Builder
	for _, a := range tried {
		fmt.Fprintf(&env, "%d %q\n", int(a.code), a.path)
	}
	os.Setenv(triedEnv, env.String())
	if s.leave != nil {
		s.leave()
	}
	err := syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	return &startError{text: fmt.Sprintf("starting anew to try %s: %v", next.file, err)}
}

// nextCandidate opens the first of names that the loader accepts, that is NVML, and that was not tried
// under another name; rest follow it. Without one, words are the loader's most telling.
func nextCandidate(names []string, tried []attempt) (l loadable, rest []string, words error) {
	const missing = "No such file"
	for i, name := range names {
		l, err := openCandidate(name)
		if err != nil {
			if words == nil || strings.Contains(words.Error(), missing) && !strings.Contains(err.Error(), missing) {
				words = err
			}
			continue
		}
		if !slices.ContainsFunc(tried, func(a attempt) bool { return a.path == l.file }) {
			return l, names[i+1:], nil
		}
		_ = l.lib.Close()
	}
	return loadable{}, nil, words
}

// secureExec says that the program was started with more rights than its user has (setuid, file
// capabilities): then no path from the environment or the command line may choose the library.
func secureExec() bool {
	const atSecure = 23 // AT_SECURE of getauxval(3)
	aux, err := unix.Auxv()
	if err != nil {
		return false
	}
	for _, a := range aux {
		if a[0] == atSecure {
			return a[1] != 0
		}
	}
	return false
}

// probe looks every symbol up, once, before any of them is called.
func (s *nvmlSource) probe() {
	look := func(name string) bool { return s.keep.Lookup(name) == nil }
	for c := range calls {
		s.has[c] = calls[c].field != 0 || slices.ContainsFunc(calls[c].symbols, look)
	}
	// Early R535 (535.43 to 535.86) writes 32-byte entries through the _v3 lists, of which go-nvml
	// allocates 24. It is known by having the confidential-computing query but not yet the detail list.
	s.early = look("nvmlDeviceGetConfComputeMemSizeInfo") && !look("nvmlDeviceGetRunningProcessDetailList") &&
		look("nvmlDeviceGetComputeRunningProcesses_v3")
	if s.early {
		s.debug.printf("process lists: early 535 layout, using version 1")
		for _, c := range [...]call{cCompute, cGraphics, cMPS} {
			s.has[c] = look(calls[c].symbols[len(calls[c].symbols)-1])
		}
	}
	for c := range calls {
		if !s.has[c] {
			s.debug.printf("symbol missing for %s: %s", calls[c].method, strings.Join(calls[c].symbols, ", "))
		}
	}
}

// bindLists puts version 1 of the process lists, which names no instances, in the place of a version that
// would be misread. Every Init makes go-nvml choose anew, so it follows every Init. (Version 2 would name
// instances, but go-nvml keeps it in no variable.)
func (s *nvmlSource) bindLists() {
	if s.early {
		computeList, graphicsList, mpsList = s.oldLists[0], s.oldLists[1], s.oldLists[2]
	}
}

const demoHint = "see it without a GPU: mig-gpu-mon -demo"

// loadError is that no library could be loaded at all; words are the loader's.
func loadError(path string, words error) error {
	e := &startError{text: "loading NVML: " + words.Error()}
	switch {
	case path != "":
		e.text = fmt.Sprintf("loading -nvml-path %s: %v", path, words)
		e.hints = []string{"-nvml-path takes the file libnvidia-ml.so.1 of the NVIDIA driver; without it the usual places are searched"}
	case onWSL():
		e.hints = []string{"on WSL2 the library comes from the Windows driver as /usr/lib/wsl/lib/libnvidia-ml.so.1: install or update that driver"}
	case inContainer():
		e.hints = []string{"this looks like a container without GPU access: start it with --gpus or the nvidia runtime, and NVIDIA_DRIVER_CAPABILITIES including utility"}
	default:
		e.hints = []string{"no NVIDIA driver library was found: install the NVIDIA driver, or name its libnvidia-ml.so.1 with -nvml-path"}
	}
	e.hints = append(e.hints, demoHint)
	return e
}

// initError explains why Init of a library failed.
func initError(a attempt) error {
	e := &startError{text: fmt.Sprintf("initialising NVML (%s): %s", a.path, codeText(a.code))}
	switch a.code {
	case nvml.ERROR_DRIVER_NOT_LOADED:
		e.hints = []string{"the kernel module is not loaded: try modprobe nvidia, and see dmesg"}
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		e.hints = []string{"the driver was upgraded but the old kernel module still runs: reboot, or stop all GPU programs and reload the nvidia modules"}
	case nvml.ERROR_NO_PERMISSION:
		e.hints = []string{"this user may not open /dev/nvidiactl: see its mode and group"}
	case nvml.ERROR_UNKNOWN:
		e.hints = []string{"mostly /dev/nvidiactl cannot be opened: not permitted to this user, or the container lost its device rules (after systemd's daemon-reload: restart the container)"}
	}
	e.hints = append(e.hints, demoHint)
	return e
}

// session starts NVML anew after a close, in the library already loaded: another file would not match
// the running kernel module.
func (s *nvmlSource) session() nvml.Return {
	code := s.lib.Init()
	s.debug.printf("Init %s", codeText(code))
	s.isOpen = code == nvml.SUCCESS
	s.bindLists()
	return code
}

// close frees what the session holds and ends it. It can hang in a sick driver.
func (s *nvmlSource) close() {
	if !s.isOpen {
		return
	}
	for _, g := range s.gpus {
		s.freeGPM(g)
		for _, n := range g.inst {
			s.freeGPM(n)
		}
	}
	if s.evOn {
		s.try(&s.sys, cEventFree, func() nvml.Return { return s.events.Free() })
		s.evOn = false
	}
	s.debug.printf("Shutdown %s", codeText(s.lib.Shutdown()))
	s.isOpen = false
}

// try makes one NVML call on n, unless the driver lacks it, the device or the session is gone in this
// tick, or a refusal that will hardly change is still fresh: then it repeats that answer.
func (s *nvmlSource) try(n *node, c call, f func() nvml.Return) nvml.Return {
	freeing := c == cGpmFree || c == cEventFree // memory only: wanted most when all else is gone
	switch {
	case !s.has[c]:
		return nvml.ERROR_FUNCTION_NOT_FOUND
	case freeing:
	case s.gone != nvml.SUCCESS:
		return s.gone
	case n.root().gone != nvml.SUCCESS:
		return n.root().gone
	case n.answer[c].again > s.now:
		return n.answer[c].code
	}
	code := f()
	if !freeing {
		s.noteAnswer(n, c, code)
	}
	return code
}

// noteAnswer keeps what n answered to c: for the debug log, for not asking again too soon, and for what
// concerns the whole GPU or session.
func (s *nvmlSource) noteAnswer(n *node, c call, code nvml.Return) {
	a := &n.answer[c]
	if !a.asked || a.code != code {
		s.debug.printf("%s %s: %s", n.label(), calls[c].method, codeText(code))
	}
	a.asked, a.code = true, code
	switch code {
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED, nvml.ERROR_GPU_NOT_FOUND:
		if n.gpu >= 0 { // a call on no device, like the wait for events, may speak of any
			n.root().gone = code
		}
	case nvml.ERROR_UNINITIALIZED, nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		s.gone = code
	}
	switch c {
	case cCount, cMigMode, cMigHandle, cUUID, cEventWait: // who is there is asked anew in each tick
	default:
		if permanent(code) {
			a.again = s.now + askAgain
		}
	}
}

// permanent says that asking again at once is useless.
func permanent(code nvml.Return) bool {
	switch code {
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NO_PERMISSION, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_DEPRECATED,
		nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_ARGUMENT_VERSION_MISMATCH:
		return true
	}
	return false
}

// reasonOf is why a value is absent after code.
func reasonOf(code nvml.Return) reason {
	switch code {
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_DEPRECATED, nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_ARGUMENT_VERSION_MISMATCH:
		return notSupported
	case nvml.ERROR_NO_PERMISSION:
		return noPermission
	case nvml.ERROR_FUNCTION_NOT_FOUND:
		return noSymbol
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_GPU_NOT_FOUND:
		return gpuLost
	case nvml.ERROR_RESET_REQUIRED:
		return resetRequired
	case nvml.ERROR_IN_USE:
		return inUse
	case nvml.ERROR_NO_DATA, nvml.ERROR_NOT_FOUND, nvml.ERROR_TIMEOUT, nvml.ERROR_NOT_READY:
		return noData
	case nvml.ERROR_UNINITIALIZED, nvml.ERROR_DRIVER_NOT_LOADED:
		return driverGone
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return driverReplaced
	}
	return unknownError
}

var codeWords = map[nvml.Return]string{
	0: "SUCCESS", 1: "UNINITIALIZED", 2: "INVALID_ARGUMENT", 3: "NOT_SUPPORTED", 4: "NO_PERMISSION",
	6: "NOT_FOUND", 7: "INSUFFICIENT_SIZE", 9: "DRIVER_NOT_LOADED", 10: "TIMEOUT", 12: "LIBRARY_NOT_FOUND",
	13: "FUNCTION_NOT_FOUND", 15: "GPU_IS_LOST", 16: "RESET_REQUIRED", 17: "OPERATING_SYSTEM",
	18: "LIB_RM_VERSION_MISMATCH", 19: "IN_USE", 20: "MEMORY", 21: "NO_DATA", 23: "INSUFFICIENT_RESOURCES",
	25: "ARGUMENT_VERSION_MISMATCH", 26: "DEPRECATED", 27: "NOT_READY", 28: "GPU_NOT_FOUND",
	29: "INVALID_STATE", 999: "UNKNOWN",
}

// codeText is "DRIVER_NOT_LOADED (9)". Not nvmlErrorString: that calls into the library that failed.
func codeText(code nvml.Return) string {
	if w, ok := codeWords[code]; ok {
		return fmt.Sprintf("%s (%d)", w, int(code))
	}
	return fmt.Sprintf("code %d", int(code))
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

// go-nvml picks the newest process list that the library has and keeps it in these variables. They are
// touched only for early R535 (see probe), and never called through this type: the real parameter is
// go-nvml's own device struct, one pointer.
type processList = func(unsafe.Pointer) ([]nvml.ProcessInfo, nvml.Return)

//go:linkname computeList github.com/NVIDIA/go-nvml/pkg/nvml.deviceGetComputeRunningProcesses
var computeList processList

//go:linkname graphicsList github.com/NVIDIA/go-nvml/pkg/nvml.deviceGetGraphicsRunningProcesses
var graphicsList processList

//go:linkname mpsList github.com/NVIDIA/go-nvml/pkg/nvml.deviceGetMPSComputeRunningProcesses
var mpsList processList

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

// note records an event for the readers, one line.
func (s *nvmlSource) note(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	s.notes = append(s.notes, line)
	s.debug.printf("event: %s", line)
}

// callLog is the -debug file: one line per change of an answer. A nil callLog writes nothing.
type callLog struct {
	f    *os.File
	size int64
}

const debugLimit = 10 << 20

// openCallLog creates or continues path.
func openCallLog(path string) (*callLog, error) {
	f, err := openPrivate(path, "-debug file")
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("opening -debug file: %w", errors.Join(err, f.Close()))
	}
	return &callLog{f, info.Size()}, nil
}

func (l *callLog) printf(format string, args ...any) {
	if l == nil || l.f == nil {
		return
	}
	line := time.Now().Format("2006-01-02T15:04:05.000 ") + printable(fmt.Sprintf(format, args...)) + "\n"
	if l.size+int64(len(line)) > debugLimit {
		_, _ = l.f.WriteString("log is full (10 MiB): nothing more is written\n")
		l.f.Close()
		l.f = nil
		return
	}
	n, err := l.f.WriteString(line)
	l.size += int64(n)
	if err != nil {
		l.f.Close()
		l.f = nil
	}
}
