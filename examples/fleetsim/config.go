package main

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"time"
)

const (
	megabyte = 1e6
	gigabit  = 1e9 / 8

	clientWait     = 20.0 // seconds; the default of AITER_JIT_REMOTE_WAIT
	fewConnections = 500
)

// config has the assumptions of a run in seconds, bytes and bytes per second.
type config struct {
	nodes, processes              int
	spread, processSpread         float64
	shared                        bool
	slots                         int
	modules                       []module
	moduleSize                    float64
	parts, targets                int
	uplink, nic                   float64
	latency, discovery            float64
	downloads, uploads            int
	piece, unpackRate             float64
	wait                          float64 // 0: for ever
	connections                   int     // 0: any number
	seed                          int
	slack                         float64
	divided, allTargets, oneLayer bool // of a scenario
	shuffled                      bool
}

// assumption is a value that a flag changes.
type assumption struct {
	name    string
	value   flag.Getter
	meaning string
	source  string
}

// assumptions returns those of c, which have their defaults after the call.
func (c *config) assumptions() []assumption {
	*c = config{
		nodes: 1000, processes: 8, spread: 1, processSpread: 1, shared: true, slots: 4, modules: aiter(), moduleSize: 20 * megabyte, parts: 32,
		targets: 2, uplink: 10 * gigabit, nic: 25 * gigabit, latency: 0.001, discovery: 0.02, downloads: 1, uploads: 8, piece: 4 * megabyte,
		unpackRate: 200 * megabyte, seed: 1, slack: 0.001,
	}
	return []assumption{
		{"nodes", &number{&c.nodes, 1}, "nodes", "a large fleet"},
		{"processes", &number{&c.processes, 1}, "processes of a node, each of which needs all modules", "one for each GPU"},
		{"shared", &yes{&c.shared}, "the processes of a node share a cache and its locks", "the cache of this module"},
		{"spread", &duration{&c.spread}, "nodes start within this time", "all at once"},
		{"process-spread", &duration{&c.processSpread}, "processes of a node start within this time", "assumed"},
		{"modules", &modules{&c.modules, ""}, "file with a line for each module: name, seconds of a compile, MB",
			"ROCm/aiter issue 2336: 23 modules, 943.8 s, the longest 551.1 s; ten times are published, the other modules share the rest"},
		{"module-size", &unit{&c.moduleSize, megabyte, "MB"}, "layer of a module for one target", "assumed; AIter publishes no sizes"},
		{"targets", &number{&c.targets, 1}, "targets of the set", "gfx942 and gfx950"},
		{"slots", &number{&c.slots, 1}, "compilers of a node at a time", "AIter's fastest published run"},
		{"parts", &number{&c.parts, 1}, "parts of the longest module, where a scenario divides it", "assumed"},
		{"uplink", &unit{&c.uplink, gigabit, "Gb/s"}, "of the registry or the cache's server", "one network card"},
		{"nic", &unit{&c.nic, gigabit, "Gb/s"}, "of a node, in each direction", "assumed"},
		{"latency", &duration{&c.latency}, "from a request to the first byte", "assumed"},
		{"discovery", &duration{&c.discovery}, "from the question for nodes with a layer to the answer", "spegel's limit for an answer"},
		{"downloads", &number{&c.downloads, 1}, "modules that a node loads at a time", "the client of package fleet"},
		{"piece", &unit{&c.piece, megabyte, "MB"}, "size of pieces", "Dragonfly"},
		{"uploads", &number{&c.uploads, 1}, "pieces that a node sends at a time", "assumed"},
		{"unpack", &unit{&c.unpackRate, megabyte, "MB/s"}, "a node checks and unpacks one layer at a time",
			"a pull of 20 MB from a registry on the same machine takes 0.1 s"},
		{"seed", &number{&c.seed, 0}, "of the random times and choices", ""},
		{"slack", &fraction{&c.slack}, "a transfer ends when this share of it is missing", "speed; 0 is exact, and changes no time by 1%"},
	}
}

// units returns what each node needs.
func (c config) units() []module {
	list := slices.Clone(c.modules)
	for i := range list {
		if list[i].bytes == 0 {
			list[i].bytes = c.moduleSize
		}
	}
	if c.divided {
		list = split(list, c.parts)
	}
	if c.allTargets {
		for i := range list {
			list[i].bytes *= float64(c.targets)
		}
	}
	if c.oneLayer {
		whole := module{name: "image"}
		for _, m := range list {
			whole.seconds += m.seconds
			whole.bytes += m.bytes
		}
		list = []module{whole}
	}
	return list
}

// number is a flag for an integer.
type number struct {
	to    *int
	least int
}

func (v *number) Get() any { return *v.to }
func (v *number) String() string {
	if v.to == nil {
		return ""
	}
	return strconv.Itoa(*v.to)
}
func (v *number) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < v.least || n > 1e6 {
		return fmt.Errorf("expected an integer from %d to 1000000", v.least)
	}
	*v.to = n
	return nil
}

// unit is a flag for a number above 0 in a unit.
type unit struct {
	to   *float64
	size float64
	name string
}

func (v *unit) Get() any { return *v.to }
func (v *unit) String() string {
	if v.to == nil {
		return ""
	}
	return strconv.FormatFloat(*v.to/v.size, 'g', 6, 64) + " " + v.name
}
func (v *unit) Set(s string) error {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || !(x > 0 && x < 1e9) {
		return fmt.Errorf("expected a number above 0, in %s", v.name)
	}
	*v.to = x * v.size
	return nil
}

// fraction is a flag for a number from 0 to 0.1.
type fraction struct{ to *float64 }

func (v *fraction) Get() any { return *v.to }
func (v *fraction) String() string {
	if v.to == nil {
		return ""
	}
	return strconv.FormatFloat(*v.to, 'g', -1, 64)
}
func (v *fraction) Set(s string) error {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || !(x >= 0 && x <= 0.1) {
		return fmt.Errorf("expected a number from 0 to 0.1")
	}
	*v.to = x
	return nil
}

// duration is a flag for a time, in seconds.
type duration struct{ to *float64 }

func (v *duration) Get() any { return *v.to }
func (v *duration) String() string {
	if v.to == nil {
		return ""
	}
	return time.Duration(*v.to * float64(time.Second)).String()
}
func (v *duration) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return fmt.Errorf("expected a duration such as 20ms")
	}
	*v.to = d.Seconds()
	return nil
}

// yes is a flag for a bool.
type yes struct{ to *bool }

func (v *yes) Get() any         { return *v.to }
func (v *yes) IsBoolFlag() bool { return true }
func (v *yes) String() string   { return strconv.FormatBool(v.to != nil && *v.to) }
func (v *yes) Set(s string) (err error) {
	*v.to, err = strconv.ParseBool(s)
	return err
}

// modules is a flag for a file with modules.
type modules struct {
	to   *[]module
	file string
}

func (v *modules) Get() any { return v.String() }
func (v *modules) String() string {
	switch {
	case v.to == nil:
		return ""
	case v.file == "":
		return "AIter's"
	}
	return v.file
}
func (v *modules) Set(s string) (err error) {
	v.file = s
	*v.to, err = readModules(s)
	return err
}
