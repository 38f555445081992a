// prom.go owns the file for Prometheus: the text format that node_exporter's textfile collector reads.
//
// Invariants: a reader finds a whole file or none; unknown is no sample; a file that this run has not written is
// not removed.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// promFile is the target of -prom: a file for node_exporter's textfile collector.
type promFile struct {
	path, temp string
	b          []byte
	shows      func(*device) bool
	wrote      bool      // the file there is ours
	answered   time.Time // when the newest answer was asked for
}

// openProm makes sure that path can be written, without touching what it holds. With an error the file can be
// tried again all the same.
func openProm(path string) (*promFile, error) {
	p := &promFile{path: path}
	// The collector reads *.prom only, so it never sees this one.
	p.temp = filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%d", filepath.Base(path), os.Getpid()))
	err := p.create(nil)
	if err == nil {
		err = os.Remove(p.temp)
	}
	if info, statErr := os.Lstat(path); err == nil && statErr == nil && info.IsDir() {
		err = unix.EISDIR
	}
	if err != nil {
		return p, fmt.Errorf("opening -prom file %s: %s", path, cause(err))
	}
	return p, nil
}

// create writes b to a new temporary file, for all to read.
func (p *promFile) create(b []byte) error {
	_ = os.Remove(p.temp) // left by a killed run that had the same number
	f, err := os.OpenFile(p.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	// Whatever the umask: node_exporter is another user.
	return errors.Join(err, f.Chmod(0o644), f.Close())
}

// write puts s in the file's place in one step. Without an answer behind it it holds no samples, and the time
// stays that of the last answer.
func (p *promFile) write(s *snapshot, shows func(*device) bool) error {
	if s.answered() {
		p.answered = s.at
	}
	p.shows = shows
	p.format(s)
	err := p.create(p.b)
	if err == nil {
		err = os.Rename(p.temp, p.path)
	}
	if err != nil {
		_ = os.Remove(p.temp)
		return err
	}
	p.wrote = true
	return nil
}

// remove takes the file away if this run has written it; an error says that there is one still.
func (p *promFile) remove() error {
	_, err := os.Lstat(p.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case !p.wrote:
		return os.ErrExist
	default:
		if err := os.Remove(p.path); err != nil {
			return err
		}
	}
	p.wrote = false
	return nil
}

const promPrefix = "mig_gpu_mon_"

// format makes p.b the metrics of s, family by family, as the format demands.
func (p *promFile) format(s *snapshot) {
	p.b = p.b[:0]
	p.family("build_info", "gauge", "The program's version.")
	p.sample("build_info")
	p.label("version", versionText())
	p.number(1, 0)
	if !p.answered.IsZero() {
		p.family("snapshot_timestamp_seconds", "gauge", "When the driver last answered.")
		p.sample("snapshot_timestamp_seconds")
		p.number(p.answered.UnixMilli(), 3)
	}
	p.family("driver_info", "gauge", "The driver's version and the CUDA version that it supports.")
	p.sample("driver_info")
	p.label("backend", s.backend)
	p.label("driver", s.driver)
	p.label("cuda", s.cuda)
	p.number(1, 0)
	if !s.live() {
		p.family("replay_info", "gauge", "These are numbers of a recording, or simulated.")
		p.sample("replay_info")
		p.label("recording", s.tape.label)
		p.number(1, 0)
	}
	if s.answered() {
		p.family("hidden_gpus", "gauge", "GPUs that are not visible to this process.")
		p.sample("hidden_gpus")
		p.number(int64(s.hidden), 0)
	}
	p.family("device_info", "gauge", "A GPU or an instance, and the source of its utilization.")
	for i := range s.dev {
		if d := &s.dev[i]; p.shows(d) {
			p.sample("device_info")
			p.device(d)
			p.label("name", d.name)
			if d.src != srcNone {
				p.label("src", d.src.String())
			}
			p.number(1, 0)
		}
	}
	p.family("device_up", "gauge", "Whether the device answers.")
	for i := range s.dev {
		if d := &s.dev[i]; p.shows(d) {
			p.sample("device_up")
			p.device(d)
			up := int64(0)
			if d.fault == notRead {
				up = 1
			}
			p.number(up, 0)
		}
	}
	for i := range deviceMetrics {
		p.metric(s, i)
	}
	p.throttle(s)
}

// metric writes the family of m, if any device has a sample: nothing stands for unknown.
func (p *promFile) metric(s *snapshot, m metric) {
	row, begun := &metrics[m], false
	if row.prom == "" {
		return
	}
	memory := m == mMemUsed || m == mMemTotal || m == mMemReserved
	for i := range s.dev {
		d := &s.dev[i]
		if !p.shows(d) || !d.v[m].fresh() || memory && p.repeated(s, i, m) {
			continue
		}
		if !begun {
			begun = true
			kind := "gauge"
			if strings.HasSuffix(row.prom, "_total") {
				kind = "counter"
			}
			p.family(row.prom, kind, row.help)
		}
		p.sample(row.prom)
		if memory && d.mates {
			p.gpuInstance(d)
		} else {
			p.device(d)
		}
		n, _ := d.v[m].num()
		p.number(n, units[row.unit].exported)
	}
}

// repeated says that the memory of the i-th device has been written with another of its GPU instance.
func (p *promFile) repeated(s *snapshot, i int, m metric) bool {
	d := &s.dev[i]
	for j := range s.dev[:i] {
		if o := &s.dev[j]; d.mates && o.mates && o.gpu == d.gpu && o.gi == d.gi && o.v[m].fresh() && p.shows(o) {
			return true
		}
	}
	return false
}

// throttle writes one sample for each reason of each GPU, 1 where it is in force.
func (p *promFile) throttle(s *snapshot) {
	begun := false
	for i := range s.dev {
		d := &s.dev[i]
		bits, ok := d.v[mThrottle].num()
		if !p.shows(d) || !ok || !d.v[mThrottle].fresh() {
			continue
		}
		if !begun {
			begun = true
			p.family("throttle", "gauge", "Whether the clocks are held down for this reason.")
		}
		for bit, word := range throttleWords {
			p.sample("throttle")
			p.device(d)
			p.label("reason", word)
			p.number(bits>>bit&1, 0)
		}
	}
}

func (p *promFile) family(name, kind, help string) {
	p.b = append(append(append(append(p.b, "# HELP "...), promPrefix...), name...), ' ')
	p.b = append(append(p.b, help...), "\n# TYPE "...)
	p.b = append(append(append(append(p.b, promPrefix...), name...), ' '), kind...)
	p.b = append(p.b, '\n')
}

func (p *promFile) sample(name string) {
	p.b = append(append(p.b, promPrefix...), name...)
}

// label adds a label to the sample begun last; an empty one is none.
func (p *promFile) label(name, text string) {
	if text != "" {
		p.open(name)
		for i := range len(text) {
			if c := text[i]; c == '"' || c == '\\' {
				p.b = append(p.b, '\\', c)
			} else {
				p.b = append(p.b, c) // names are printable, so there is no newline
			}
		}
		p.b = append(p.b, '"')
	}
}

func (p *promFile) idLabel(name string, n int) {
	if n >= 0 {
		p.open(name)
		p.b = append(strconv.AppendInt(p.b, int64(n), 10), '"')
	}
}

func (p *promFile) open(name string) {
	if p.b[len(p.b)-1] == '"' {
		p.b = append(p.b, ',')
	} else {
		p.b = append(p.b, '{')
	}
	p.b = append(append(p.b, name...), '=', '"')
}

// device names d in the labels.
func (p *promFile) device(d *device) {
	p.idLabel("gpu", d.gpu)
	p.label("gpu_uuid", d.gpuUUID)
	p.idLabel("mig", d.mig)
	p.idLabel("gi", d.gi)
	p.idLabel("ci", d.ci)
	p.label("profile", d.profile)
	if !d.isGPU() {
		p.label("uuid", d.uuid)
	}
}

// gpuInstance names the GPU instance that d is a part of.
func (p *promFile) gpuInstance(d *device) {
	p.idLabel("gpu", d.gpu)
	p.label("gpu_uuid", d.gpuUUID)
	p.idLabel("gi", d.gi)
}

// number ends a sample with n * 10^-decimals.
func (p *promFile) number(n int64, decimals int) {
	if p.b[len(p.b)-1] == '"' {
		p.b = append(p.b, '}')
	}
	p.b = append(appendDecimal(append(p.b, ' '), n, decimals), '\n')
}
