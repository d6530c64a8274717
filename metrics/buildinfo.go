package metrics

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/aiter-go/aiter"
)

// buildInfo returns a gauge of value 1 whose labels describe the module in the program.
func buildInfo() prometheus.Gauge {
	info, _ := debug.ReadBuildInfo() // nil in a program without the table
	version, revision := moduleVersion(info)
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "aiter", Name: "build_info", Help: "1; the labels are the versions of the module and of Go in the program.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision, "goversion": runtime.Version()},
	})
	g.Set(1)
	return g
}

// moduleVersion returns the version of this module in a program, "unknown" if the program does not have one. revision is the
// commit if the program belongs to this module, else "".
func moduleVersion(info *debug.BuildInfo) (version, revision string) {
	version = "unknown"
	if info == nil {
		return version, ""
	}
	if info.Main.Path == aiter.ModulePath {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path != aiter.ModulePath {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		if m.Version != "" {
			version = m.Version
		}
	}
	return version, revision
}
