package jit

import "testing"

func TestFlagsNameFiles(t *testing.T) {
	for _, tt := range []struct {
		flags []string
		want  bool
	}{
		{nil, false},
		{[]string{"-pthread", "-static-libgcc", "-flto", "-s"}, false},
		{[]string{"-Wl,--as-needed", "-Wl,-z,now,-z,relro", "-Wl,--build-id=sha1"}, false},
		{[]string{"-Xlinker", "-z", "-Xlinker", "now"}, false},
		{[]string{"-Xlinker=-z,now"}, false},
		{[]string{"-static-libstdc++", "-Wl,--exclude-libs,ALL", "-Wl,-soname,libkernels.so.1"}, false},
		{[]string{"-Wl,--exclude-libs,ALL,script"}, true},
		{[]string{"-lm"}, true},
		{[]string{"-Wl,-lm"}, true},
		{[]string{"-Wl,-l,m"}, true},
		{[]string{"-Wl,--library=m"}, true},
		{[]string{"-Xlinker=-lm"}, true},
		{[]string{"-Xlinker", "-lm"}, true},
		{[]string{"-Xcompiler=-lm"}, true},
		{[]string{"-Llibs"}, true},
		{[]string{"-Wl,-Tscript"}, true},
		{[]string{"-Wl,--version-script,script"}, true},
		{[]string{"-Wl,--dynamic-list=names"}, true},
		{[]string{"libvalue.a"}, true},
		{[]string{"-Wl,a.o"}, true},
		{[]string{"-Wl,-z,now,script"}, true},
	} {
		if got := flagsNameFiles(tt.flags); got != tt.want {
			t.Errorf("%q: %v, want %v", tt.flags, got, tt.want)
		}
	}
}
