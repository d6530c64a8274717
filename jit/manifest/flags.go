package manifest

import (
	"slices"
	"strings"
)

// flagSet reads flags by what they apply to, and checks them.
func (d *decoder) flagSet(n *node, where string, rules flagRules) FlagSet {
	var f FlagSet
	list := func(to *[]string) func(*node) {
		return func(n *node) { *to = d.flagList(n, where, rules) }
	}
	d.table(n, where, map[string]func(*node){
		"common": list(&f.Common),
		"hip":    list(&f.HIP),
		"cuda":   list(&f.CUDA),
		"cpu":    list(&f.CPU),
		"arch":   func(n *node) { f.Arch = d.archFlags(n, where+".arch", rules) },
	})
	return f
}

// sourceFlags reads what flagSet does, or a plain list for common flags.
func (d *decoder) sourceFlags(n *node, where string) FlagSet {
	if _, ok := n.value.([]any); ok {
		return FlagSet{Common: d.flagList(n, where, compilerFlags())}
	}
	return d.flagSet(n, where, compilerFlags())
}

func (d *decoder) archFlags(n *node, where string, rules flagRules) map[string][]string {
	if _, ok := n.value.(map[string]any); !ok {
		d.wrongType(n, where, "a table of patterns, such as \"gfx9*\" = [\"-DX\"]")
		return nil
	}
	flags := map[string][]string{}
	for _, name := range n.order {
		list := n.fields[name]
		if pattern, ok := d.checkPattern(name, list.key, false); ok {
			flags[pattern] = append(flags[pattern], d.flagList(list, where, rules)...)
		}
	}
	return flags
}

// flagList reads a list of arguments. One that a variable leaves empty is dropped.
func (d *decoder) flagList(n *node, where string, rules flagRules) []string {
	var flags []string
	var nodes []*node
	d.strings(n, where, func(s string, n *node) {
		if s, ok := d.expand(s, n); ok && s != "" {
			flags, nodes = append(flags, s), append(nodes, n)
		}
	})
	for i := 0; i < len(flags); i++ {
		if reason := rules.refuse(flags[i]); reason != "" {
			d.fail(nodes[i].at, "flag %q is not allowed: %s", flags[i], reason)
			continue
		}
		if !takesValue(flags[i]) {
			continue
		}
		i++
		if i == len(flags) {
			d.fail(nodes[i-1].at, "flag %q needs a value after it in the same list", flags[i-1])
		} else if reason := rules.refuseInner(flags[i-1], flags[i]); reason != "" {
			d.fail(nodes[i].at, "flag %q is not allowed: %s", flags[i], reason)
		}
	}
	return flags
}

// takesValue reports whether the next argument belongs to the flag.
func takesValue(flag string) bool {
	return slices.Contains([]string{
		"-D", "-U", "-L", "-l", "-u", "-z", "-T", "-isystem", "-iquote", "-idirafter", "-include", "-imacros",
		"-mllvm", "-Xclang", "-Xptxas", "-Xcompiler", "-Xlinker", "-Xcuda-ptxas", "-Xnvlink", "-Xassembler",
		"-Xpreprocessor", "-Xarch_host", "-Xarch_device", "-Xoffload-linker", "-diag-suppress", "--diag-suppress",
		"-maxrregcount", "--maxrregcount", "--param",
	}, flag)
}

// flagRules are the flags that a config may not give, each with the reason. A
// pattern that ends in "*" is a prefix.
type flagRules []flagRule

type flagRule struct{ reason, patterns string }

const (
	reasonFile      = "its contents would not be part of the key; write the flags in the config"
	reasonOutput    = "the build names its own outputs"
	reasonStep      = "the build chooses the steps of the compiler"
	reasonDeps      = "the build writes the dependency file itself"
	reasonTarget    = "the target comes from the build; use \"targets\" or \"when\""
	reasonLanguage  = "the language follows from the target"
	reasonInclude   = "list the folder in \"include\""
	reasonRepeat    = "the build sets it so that equal inputs give equal bytes"
	reasonMachine   = "the result would depend on the machine that compiles, which the key does not hold"
	reasonToolchain = "it would swap a part of the toolchain that the key has already identified; set HIPCC, ROCM_PATH, CUDA_HOME or CXX"
	reasonExtra     = "it writes files beside the object"
)

func compilerFlags() flagRules {
	return flagRules{
		{reasonFile, "@* --options-file* -optf --config*"},
		{reasonOutput, "-o* --output*"},
		{reasonStep, "-c -S -E -emit-llvm --compile --preprocess --assemble --ptx -ptx --cubin -cubin --fatbin -fatbin --dryrun -dryrun -### -fsyntax-only"},
		{reasonDeps, "-M* --dependencies* --write-dependencies* --generate-dependencies* --user-dependencies*"},
		{reasonTarget, "--offload-arch* --cuda-gpu-arch* --amdgpu-target* -arch* --gpu-architecture* -gencode* --generate-code* -code* --gpu-code* -target --target*"},
		{reasonLanguage, "-x*"},
		{reasonInclude, "-I* --include-path*"},
		{reasonRepeat, "-cuid* -fuse-cuid* -frandom-seed* -ffile-prefix-map* -fdebug-prefix-map* -fmacro-prefix-map*"},
		{reasonMachine, "-march=native -mcpu=native -mtune=native"},
		{reasonToolchain, "--rocm-path* --hip-path* --cuda-path* --rocm-device-lib* --hip-device-lib* --sysroot* -isysroot* --gcc-toolchain* --gcc-install-dir* " +
			"-resource-dir* -ccbin* --compiler-bindir* -B -B/* -B.* -specs* -wrapper -fuse-ld* --ld-path* -fplugin* -fpass-plugin* -load"},
		{reasonExtra, "-save-temps* --save-temps* -keep* --keep* -dumpdir* -ftime-trace* -gsplit-dwarf* -ftest-coverage -fprofile-arcs --coverage -coverage " +
			"-fstack-usage -fdump-* -fsave-optimization-record* -foptimization-record-file*"},
	}
}

func linkerFlags() flagRules {
	return append(compilerFlags(), flagRule{reasonFile, "--retain-symbols-file* -retain-symbols-file*"}, flagRule{reasonExtra, "--Map* --dependency-file* --out-implib* --print-map-file*"})
}

// refuse says why an argument may not be given, "" if it may.
func (r flagRules) refuse(flag string) string {
	if why := r.find(flag); why != "" {
		return why
	}
	if !strings.HasPrefix(flag, "-") {
		return "it does not start with \"-\"; sources go into [[source]], libraries are written -lNAME"
	}
	for _, p := range []string{"-Wp,", "-Wa,", "-Wl,", "-Xcompiler=", "-Xptxas=", "-Xlinker=", "-Xnvlink="} {
		if inner, ok := strings.CutPrefix(flag, p); ok {
			return r.refuseInner(p, inner)
		}
	}
	return ""
}

// refuseInner looks at what outer passes on to another program.
func (r flagRules) refuseInner(outer, flags string) string {
	if !strings.HasPrefix(outer, "-X") && !strings.HasPrefix(outer, "-W") {
		return ""
	}
	for inner := range strings.SplitSeq(flags, ",") {
		// For a linker -x, -S and -E mean something else, and harmless.
		toLinker := strings.HasPrefix(outer, "-Wl") || strings.HasPrefix(outer, "-Xl")
		if toLinker && slices.Contains([]string{"-x", "-S", "-E"}, inner) {
			continue
		}
		if why := r.find(inner); why != "" {
			return why
		}
	}
	return ""
}

func (r flagRules) find(flag string) string {
	for _, rule := range r {
		for pattern := range strings.FieldsSeq(rule.patterns) {
			prefix, open := strings.CutSuffix(pattern, "*")
			if flag == pattern || open && strings.HasPrefix(flag, prefix) {
				return rule.reason
			}
		}
	}
	return ""
}
