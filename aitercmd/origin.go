package aitercmd

import (
	"os"
	"strings"
	"time"

	"github.com/aiter-go/aiter/internal/report"
	"github.com/aiter-go/aiter/tensor"
)

// origin returns the machine, the time, the driver, the compiler and the program of the measurements.
func (b *opSession) origin() report.Origin {
	v := b.app.version()
	o := report.Origin{
		Date: time.Now().UTC().Format(time.RFC3339), Driver: driverVersion(b.device.Type), Compiler: b.progress.compiler(b.targetName()),
		Program: v.Version, Commit: v.Revision,
	}
	if name, err := os.Hostname(); err == nil {
		o.Host = name
	}
	return o
}

// driverVersion returns the version of the kernel driver of a kind of device, "" if it is unknown.
// The driver of the CPU is the operating system's kernel.
func driverVersion(kind tensor.DeviceType) string {
	module := map[tensor.DeviceType]string{tensor.CUDA: "nvidia", tensor.ROCM: "amdgpu"}[kind]
	path := "/sys/module/" + module + "/version"
	if module == "" {
		module, path = "Linux", "/proc/sys/kernel/osrelease"
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return module + " " + strings.TrimSpace(string(text))
}

// compiler returns the version of the compiler for a target, "" if no build looked for it.
func (p *progress) compiler(target string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.compilers[target]
}
