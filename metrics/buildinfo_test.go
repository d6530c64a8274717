package metrics

import (
	"runtime/debug"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/aiter-go/aiter"
)

func TestModuleVersion(t *testing.T) {
	own := debug.Module{Path: aiter.ModulePath, Version: "v0.2.0"}
	for _, c := range []struct {
		name              string
		info              *debug.BuildInfo
		version, revision string
	}{
		{"no table", nil, "unknown", ""},
		{"its own program", &debug.BuildInfo{Main: own, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}}}, "v0.2.0", "abc"},
		{"a program that requires it", &debug.BuildInfo{
			Main: debug.Module{Path: "example.org/service", Version: "v9.0.0"}, Deps: []*debug.Module{{Path: "example.org/x", Version: "v1.0.0"},
				&own},
			Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "of the service"}},
		}, "v0.2.0", ""},
		{"a fork", &debug.BuildInfo{Deps: []*debug.Module{{Path: aiter.ModulePath, Version: "v0.2.0",
			Replace: &debug.Module{Path: "example.org/fork", Version: "v0.3.0"}}}}, "v0.3.0", ""},
		{"a checkout", &debug.BuildInfo{Deps: []*debug.Module{{Path: aiter.ModulePath, Version: "v0.2.0",
			Replace: &debug.Module{Path: "../aiter"}}}},
			"unknown", ""},
	} {
		if version, revision := moduleVersion(c.info); version != c.version || revision != c.revision {
			t.Errorf("%s: %s, %q, want %s, %q", c.name, version, revision, c.version, c.revision)
		}
	}
	if v := testutil.ToFloat64(buildInfo()); v != 1 {
		t.Errorf("the gauge is %g", v)
	}
}
