package aitercmd

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter"
)

// versionInfo identifies this program.
type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision"` // "" if the program was built outside of a repository
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	Aiter    string `json:"aiter,omitempty"` // version of aiter in another program

	name string
}

func (v versionInfo) String() string {
	if v.Aiter != "" {
		return fmt.Sprintf("%s %s with aiter %s %s %s/%s", v.name, v.Version, v.Aiter, v.Go, v.OS, v.Arch)
	}
	return fmt.Sprintf("%s %s %s %s/%s", v.name, v.Version, v.Go, v.OS, v.Arch)
}

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			v := a.version()
			if a.json {
				return a.writeJSON(v)
			}
			_, err := fmt.Fprintln(a.out, v)
			return err
		},
	}
}

// version returns the version of this program.
func (a *app) version() versionInfo {
	p := a.program
	v := versionInfo{name: p.Name, Version: cmp.Or(p.Version, "(devel)"), Revision: p.Revision, Go: runtime.Version(), OS: runtime.GOOS,
		Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = cmp.Or(p.Version, info.Main.Version, v.Version)
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && p.Revision == "" {
			v.Revision = s.Value
		}
	}
	for _, m := range info.Deps {
		if m.Path == aiter.ModulePath {
			v.Aiter = m.Version
		}
	}
	return v
}
