package aitercmd

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version and revision are set by the linker for releases (-ldflags "-X main.version=...").
var version, revision string

// versionInfo identifies this program.
type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision"` // "" if the program was built outside of a repository
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func (v versionInfo) String() string {
	return fmt.Sprintf("aiterctl %s %s %s/%s", v.Version, v.Go, v.OS, v.Arch)
}

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			v := thisVersion()
			if a.json {
				return a.writeJSON(v)
			}
			_, err := fmt.Fprintln(a.out, v)
			return err
		},
	}
}

// thisVersion returns the version of this program.
func thisVersion() versionInfo {
	v := versionInfo{Version: cmp.Or(version, "(devel)"), Revision: revision, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = cmp.Or(version, info.Main.Version, v.Version)
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value
		}
	}
	return v
}
