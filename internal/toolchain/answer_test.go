package toolchain

import (
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/jit/target"
)

func TestSplitWords(t *testing.T) {
	for line, want := range map[string][]string{
		``:                               nil,
		` "/usr/bin/clang" "-cc1"`:       {"/usr/bin/clang", "-cc1"},
		` /usr/cc1plus -D "A=1" -o x`:    {"/usr/cc1plus", "-D", "A=1", "-o", "x"},
		` "a b" c\ d 'e "f'`:             {"a b", "c d", `e "f`},
		` "quoted \"twice\"" ""`:         {`quoted "twice"`, ""},
		` --flag="-ftz=0 -fmad=1 " next`: {"--flag=-ftz=0 -fmad=1 ", "next"},
		` "left open`:                    {"left open"},
	} {
		if got := splitWords(line); !slices.Equal(got, want) {
			t.Errorf("splitWords(%q) = %q, want %q", line, got, want)
		}
	}
}

func TestParseAnswer(t *testing.T) {
	a := parseAnswer(strings.Join([]string{
		"clang version 21", "Target: x86_64-pc-linux-gnu",
		"#include <...> search starts here:", " /usr/include", "End of search list.",
		"COMPILER_PATH=/a/:/b/", "COLLECT_GCC_OPTIONS='-v' '-o' 'x'",
		"#$ CICC_PATH=/cuda/nvvm/bin", `#$ "$CICC_PATH/cicc" -arch compute_90`, "#$ -- Filter Dependencies -- > x.d",
		` "/usr/bin/ld" "-o" "x"`,
	}, "\n"))
	want := [][]string{{"/cuda/nvvm/bin/cicc", "-arch", "compute_90"}, {"/usr/bin/ld", "-o", "x"}}
	if !slices.EqualFunc(a.commands, want, func(x, y []string) bool { return slices.Equal(x, y) }) {
		t.Errorf("commands are %q, want %q", a.commands, want)
	}
	if got := a.list("COMPILER_PATH"); !slices.Equal(got, []string{"/a/", "/b/"}) {
		t.Errorf("COMPILER_PATH is %q", got)
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add(" \"/usr/bin/ld\" \"-o\" \"x\\\"\"\n#$ A=b\n#$ $A\n")
	f.Add("#include <...> search starts here:\n /x\nEnd of search list.\n")
	f.Fuzz(func(t *testing.T, out string) {
		for _, c := range parseAnswer(out).commands {
			if len(c) == 0 {
				t.Error("a command without a program")
			}
		}
		includeDirs(out)
		versionNumber(versionLine(target.HIP, out))
	})
}

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		vendor    target.Vendor
		out, want string
	}{
		{target.HIP, "HIP version: 6.4.43484-9999\nDebian clang version 21.1.8 (13)\nTarget: x86_64\n", "6.4.43484"},
		{target.HIP, "HIP version: 5.2.21153-0\nDebian clang version 15.0.6\nTraceback 3.11\n", "5.2.21153"},
		{target.CUDA, "nvcc: NVIDIA\nCopyright 2024\nCuda compilation tools, release 12.4, V12.4.131\nBuild x\n", "12.4.131"},
		{target.CPU, "g++ (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright 2022\n", "12.2.0"},
		{target.CPU, "Ubuntu clang version 18.1.3 (1ubuntu1)\n", "18.1.3"},
		{target.CPU, "Apple clang version 15.0.0 (clang-1500.3.9.4)\n", "15.0.0"},
		{target.CPU, "hello\n", ""},
		{target.HIP, "", ""},
	} {
		if got := versionNumber(versionLine(c.vendor, c.out)); got != c.want {
			t.Errorf("version in %q is %q, want %q", c.out, got, c.want)
		}
	}
}
