// nvml.go owns the library: finding and loading it, probing its symbols, making every call, opening sessions and
// ending them.
//
// Invariants: with gpu.go, mig.go and gpm.go it is the sole importer of go-nvml; every call but Init and Shutdown
// goes through try, which makes none whose symbol the driver lacks (such a call would end the process with "symbol
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

// nvmlSource collects snapshots from NVML. All its methods belong to one goroutine.
type nvmlSource struct {
	path   string // -nvml-path
	host   string // this machine's name
	policy gpmPolicy
	want   [deviceMetrics]bool // what some reader shows; the rest is not asked
	debug  *callLog
	procs  *procReader

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
	leaveTerminal()
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

// ready opens the first session, or a new one in place of one that was closed or has ended, with
// growing pauses while the driver is away.
func (s *nvmlSource) ready() error {
	if s.isOpen || s.paused {
		return nil
	}
	s.gone = nvml.SUCCESS
	if s.lib == nil {
		if err := s.load(); err != nil {
			return err
		}
		if code := s.enumerate(); code != nvml.SUCCESS || len(s.gpus) == 0 {
			return s.noGPU(code)
		}
		return nil
	}
	if s.now < s.retryAt {
		s.gone = s.away
		return nil
	}
	code := s.session()
	if code == nvml.SUCCESS {
		code = s.enumerate()
	}
	if code != nvml.SUCCESS {
		s.ended(code)
		return nil
	}
	if s.gone == nvml.SUCCESS && s.backoff > 0 {
		s.note("driver answers again")
		s.backoff = 0
	}
	return nil
}

func (s *nvmlSource) noGPU(code nvml.Return) error {
	s.close()
	if code != nvml.SUCCESS {
		return initError(attempt{code, s.file})
	}
	return &startError{
		text:  "the driver (" + s.driver + ") sees no GPU",
		hints: []string{"nvidia-smi -L should list one; in a container, start it with --gpus; in a job, ask for a GPU", demoHint},
	}
}

// obey carries out a loop's order. It can hang in a sick driver.
func (s *nvmlSource) obey(o order) {
	switch o {
	case orderRelease:
		s.release()
	case orderResume:
		s.resume()
	case orderClose:
		s.close()
	}
}

// release ends the session until resume: an open one can keep an administrator from destroying
// instances and from resetting GPUs.
func (s *nvmlSource) release() {
	s.close()
	s.paused, s.prime = true, true
}

// resume lets the next tick open a session. What the devices did meanwhile nobody knows, so idle time
// starts anew.
func (s *nvmlSource) resume() {
	s.paused = false
	for _, n := range append(instances(s.gpus), s.gpus...) {
		n.busyAt = time.Since(s.epoch)
	}
}

// ended closes a session that the driver has ended and sets when to try again: after 1 s, growing to 30.
func (s *nvmlSource) ended(code nvml.Return) {
	if s.backoff == 0 || code != s.away {
		s.note("%s: %s", reasonOf(code).sentence(), codeText(code))
	}
	s.close()
	s.gone, s.away, s.prime = code, code, true
	s.backoff = min(max(2*s.backoff, time.Second), 30*time.Second)
	s.retryAt = s.now + s.backoff
}
