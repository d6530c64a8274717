package opconfig_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/testenv"
)

const (
	costFile = "AITER_TEST_COST_FILE" // set in the process that loads
	hostile  = 1_000_000              // bytes of a hostile configuration
	mostCPU  = 2 * time.Second        // on a busy machine; below one second on an idle one
	mostRAM  = 100 << 10              // KiB
)

// TestCost checks that no configuration takes much processor time, or more than 100 MB. Each is
// loaded by a new process with a limited address space.
func TestCost(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads the peak of memory from /proc")
	}
	if file := os.Getenv(costFile); file != "" {
		loadLimited(t, file)
		return
	}
	root := hostileTree(t)
	for name, text := range hostileTexts() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(root, strings.NewReplacer(" ", "_", ":", "").Replace(name)+".toml")
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			out, cpu, ram := loadElsewhere(t, file)
			if cpu > mostCPU*slower() || ram > mostRAM*int(slower()) {
				t.Errorf("%d bytes took %s and %d KiB; expected at most %s and %d KiB", len(text), cpu, ram, mostCPU*slower(), mostRAM*int(slower()))
			}
			t.Logf("%d bytes: %s, %d KiB, %s", len(text), cpu.Round(time.Millisecond), ram, out)
		})
	}
}

// slower is the factor by which the race detector may be slower.
func slower() time.Duration {
	if testenv.Race {
		return 20
	}
	return 1
}

// hostileTree returns a folder with a source, a folder of 1000 sources, and a folder of symlinks that
// lead back to that folder.
func hostileTree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	errs := []error{
		os.Mkdir(filepath.Join(root, "many"), 0o755), os.Mkdir(filepath.Join(root, "loop"), 0o755),
		os.Symlink(".", filepath.Join(root, "loop/a")), os.Symlink(".", filepath.Join(root, "loop/b")),
		os.WriteFile(filepath.Join(root, "a.cpp"), nil, 0o644),
	}
	for i := range 1000 {
		errs = append(errs, os.WriteFile(filepath.Join(root, "many", strconv.Itoa(i)+".cpp"), nil, 0o644))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return root
}

func loadElsewhere(t *testing.T, file string) (out string, cpu time.Duration, ram int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestCost$", "-test.v")
	cmd.Env = append(os.Environ(), costFile+"="+file)
	text, err := cmd.CombinedOutput()
	_, result, found := strings.Cut(string(text), "LOADED ")
	result, _, _ = strings.Cut(result, "\n")
	field, out, _ := strings.Cut(result, " ")
	ram, bad := strconv.Atoi(field)
	if err := errors.Join(err, bad); err != nil || !found {
		t.Fatalf("%v\n%.2000s", err, text)
	}
	return out, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), ram
}

// loadLimited prints the cost of loading. It reads the process's peak memory from /proc, because
// the peak in rusage includes the parent's.
func loadLimited(t *testing.T, file string) {
	if !testenv.Race { // it maps terabytes
		limitMemory(t, 4<<30)
	}
	time.AfterFunc(30*time.Second, func() { panic("the load does not end") })
	_, err := opconfig.Load(os.DirFS(filepath.Dir(file)), filepath.Base(file), opconfig.Options{
		Env: func(string) (string, bool) { return strings.Repeat("v", 100_000), true },
	})
	status, readErr := os.ReadFile("/proc/self/status")
	if readErr != nil {
		t.Fatal(readErr)
	}
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	fmt.Printf("LOADED %s %.200q\n", strings.Fields(peak)[0], fmt.Sprint(err))
}

// hostileTexts returns configurations that need many resources. Those named "within" stay just
// within the limits on text.
func hostileTexts() map[string]string {
	const n = hostile
	return map[string]string{
		"arrays":        "x = " + strings.Repeat("[", n/2) + strings.Repeat("]", n/2),
		"inline tables": "x = " + strings.Repeat("{a=", n/4) + "1" + strings.Repeat("}", n/4),
		"mixed":         "x = " + strings.Repeat("[{a=", n/6) + "1" + strings.Repeat("}]", n/6),
		"dotted key":    strings.Repeat("a.", n/2) + "a = 1",
		"dotted header": "[" + strings.Repeat("a.", n/2) + "a]",
		"dotted in table": "[" + strings.Repeat("a.", 10) + "a]\n" + strings.Repeat("b.", 10) + "b = " + strings.Repeat("{c.d=", n/8) +
			"1" + strings.Repeat("}", n/8),
		"headers":         repeated(n, func(i int) string { return fmt.Sprintf("[%sa%d]\n", strings.Repeat("a.", 100), i) }),
		"array headers":   repeated(n, func(i int) string { return "[[" + strings.Repeat("a.", i) + "a]]\n" }),
		"array of tables": strings.Repeat("[[a]]\n", n/6),
		"one string":      "x = \"" + strings.Repeat("a", n) + "\"",
		"escapes":         "x = \"" + strings.Repeat("\\\\", n/2) + "\"",
		"one name":        "[module.module_x]\n" + strings.Repeat("a", n) + " = 1\n",
		"name in table":   "[" + strings.Repeat("a", n/2) + "]\n" + repeated(n/2, func(i int) string { return fmt.Sprintf("k%d=1\n", i) }),
		"keys":            repeated(n, func(i int) string { return fmt.Sprintf("k%d=1\n", i) }),
		"elements":        "x = [" + strings.Repeat("1,", n/2) + "]",
		"comments":        strings.Repeat("#\n", n/2),
		"defaults": "[defaults]\nflags.common=[" + strings.Repeat("\"-DA\",", 9000) + "]\n" + repeated(n/2, func(i int) string {
			return fmt.Sprintf("[module.module_%d]\nflags.common=[\"-DA\"]\nsource=[{path=\"a.cpp\"}]\n", i)
		}),
		"variables":   withModule("flags.common=[" + strings.Repeat("\"-D${AITER_X}\",", n/16) + "]\n"),
		"expansion":   withModule("flags.common=[\"-D" + strings.Repeat("${AITER_X}", n/11) + "\"]\n"),
		"dollars":     withModule("flags.common=[\"-D" + strings.Repeat("$$", n/3) + "\"]\n"),
		"long target": withModule("targets=[\"" + strings.Repeat("a", n) + "\"]\n"),
		"unknown ops": withModule("") + "ops=[" + repeated(n, func(i int) string { return fmt.Sprintf("\"f%d\",", i) }) +
			"]\n[[module.module_x.op]]\nname=\"f1\"\nschema=\"(Tensor a) -> ()\"\n",
		"deep glob": "[[module.module_x.source]]\npath=\"" + strings.Repeat("*/", n/2) + "*\"\n",

		"within: long keys":  "[" + strings.Repeat("a", 990) + "]\n" + times(19_000, func(i int) string { return fmt.Sprintf("k%d=1\n", i) }),
		"within: deep keys":  times(19_000, func(i int) string { return fmt.Sprintf("%sk%d=1\n", strings.Repeat("a.", 15), i) }),
		"within: variables":  withModule("flags.common=[" + strings.Repeat("\"-D${AITER_X}\",", 19_000) + "]\n"),
		"within: dollars":    withModule("flags.common=[" + strings.Repeat("\"-"+strings.Repeat("$$", 8000)+"\",", 60) + "]\n"),
		"within: targets":    withModule("targets=[" + strings.Repeat("\""+strings.Repeat("a", 16_000)+"\",", 60) + "]\n"),
		"within: words":      withModule("targets=[" + strings.Repeat("\"gfx943\",", 19_000) + "]\n"),
		"within: flag words": withModule("flags.common=[" + strings.Repeat("\"a\",", 19_000) + "]\n"),
		"within: folders":    withModule("include=[" + strings.Repeat("\"many\",", 19_000) + "]\n"),
		"within: no folders": withModule("include=[" + strings.Repeat("\"many/none\",", 19_000) + "]\n"),
		"within: includes":   "include=[" + strings.Repeat("\"many/*.toml\",", 19_000) + "]\n",
		"within: globs":      strings.Repeat("[[module.module_x.source]]\npath=\"many/*.cpp\"\nwhen={arch=[\"tpu?!\"]}\n", 4000),
		"within: loops":      "[[module.module_x.source]]\npath=\"loop/" + strings.Repeat("*/", 35) + "*\"\n",
		"within: deep globs": strings.Repeat("[[module.module_x.source]]\npath=\""+strings.Repeat("*/", 500)+"*\"\n", 900),
		"within: operators": withModule("") + "ops=[\"g\"]\n" + times(6000, func(i int) string {
			return fmt.Sprintf("[[module.module_x.op]]\nname=\"f%d\"\nschema=\"(Tensor a) -> ()\"\n", i)
		}),
		"within: sources": times(3900, func(i int) string {
			return fmt.Sprintf("[[module.module_x.source]]\npath=\"many/%d.cpp\"\nops=[\"f%d\",\"g%d\"]\n", i%1000, i, i)
		}),
		"within: ranges": withModule("") + "[[module.module_x.op]]\nname=\"f\"\nschema=\"(Tensor a) -> ()\"\n" + times(4, func(i int) string {
			return fmt.Sprintf("[module.module_x.axis.w%d]\nargument=\"a\"\ndimension=%d\ndefine=\"D%d\"\nvalues=[%s\"4000-\"]\n", i, i, i,
				times(4000, func(i int) string { return fmt.Sprintf("\"%d\",", i) }))
		}),
		"within: axes of sources": times(500, func(i int) string {
			return fmt.Sprintf("[[module.module_x.source]]\npath=\"many/%d.cpp\"\naxes=[\"w0\",\"w1\",\"w2\"]\n", i)
		}) + times(500, func(i int) string {
			return fmt.Sprintf("[[module.module_x.op]]\nname=\"f%d\"\nschema=\"(%sTensor a) -> ()\"\n", i,
				times(100, func(i int) string { return fmt.Sprintf("Tensor a%d,", i) }))
		}) + times(3, func(i int) string {
			return fmt.Sprintf("[module.module_x.axis.w%d]\nargument=\"a%d\"\nadjacent=[%d,9]\ndefine=\"D%d\"\nvalues=[\"p\",\"q\"]\n",
				i, 97+i, i, i)
		}),
		"within: conditions": times(3, func(i int) string { return conditionedModule(fmt.Sprintf("module_x%d", i)) }),
		"within: values": withModule("") +
			"[[module.module_x.op]]\nname=\"f\"\nschema=\"(Tensor a) -> " +
			"()\"\n[module.module_x.axis.w]\nargument=\"a\"\ndimension=0\ndefine=\"D\"\nvalues=[" +
			times(4000, func(i int) string { return fmt.Sprintf("\"%d\",", i) }) + "\"4000-\"]\n" +
			times(3, func(i int) string {
				return fmt.Sprintf("[[module.module_x.source]]\npath=\"many/%d.cpp\"\nwhen.axis.w=[%s]\n", i,
					times(4000, func(i int) string { return fmt.Sprintf("\"%d\",", i) }))
			}),
		"within: schemas": withModule("") + times(60, func(i int) string {
			return fmt.Sprintf("[[module.module_x.op]]\nname=\"f%d\"\nschema=\"(%sint[] b=[]) -> ()\"\n", i,
				times(700, func(i int) string { return fmt.Sprintf("int[] a%d=[1,2,3],", i) }))
		}),
	}
}

// withModule begins a module with the given keys, and its source.
func withModule(keys string) string {
	return "[module.module_x]\n" + keys + "[[module.module_x.source]]\npath=\"a.cpp\"\n"
}

// repeated joins pieces until there are size bytes.
func repeated(size int, piece func(i int) string) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		b.WriteString(piece(i))
	}
	return b.String()
}

func times(n int, piece func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(piece(i))
	}
	return b.String()
}

// conditionedModule returns a module with as many sources and parts as possible, each of which has a source.
func conditionedModule(name string) string {
	text := times(500, func(i int) string {
		values := []string{"0", "1", "2", "3", "4", "5", "6", "7-"}
		return fmt.Sprintf("[[module.%s.source]]\npath=\"many/%d.cpp\"\nwhen.axis.w%d=[\"%s\"]\n", name, i, i%4, values[i/4%8])
	})
	return text + fmt.Sprintf("[[module.%s.op]]\nname=\"f_%s\"\nschema=\"(Tensor a) -> ()\"\n", name, name) + times(4, func(i int) string {
		return fmt.Sprintf("[module.%s.axis.w%d]\nargument=\"a\"\ndimension=%d\ndefine=\"D%d\"\n"+
			"values=[\"0\",\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7-\"]\n", name, i, i, i)
	})
}
