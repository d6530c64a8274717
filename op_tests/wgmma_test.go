package optests_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
	arch "github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/registry"
)

// TestRunningProducts checks that no instruction writes a register that a running wgmma product reads. A product runs
// until its warps wait for it. ptxas does not always find that it runs from one iteration of a loop to the next.
func TestRunningProducts(t *testing.T) {
	testenv.Long(t)
	testenv.SkipRace(t)
	nvcc, cuobjdump := testenv.Tool(t, "nvcc"), testenv.Tool(t, "cuobjdump")
	reg, err := registry.Open(t.Context(), registry.Options{Getenv: func(name string) string {
		if name == "NVCC" {
			return nvcc
		}
		return os.Getenv(name)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer reg.Close()
	results, err := reg.Manager().Build(t.Context(), productRequests(t, reg)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, res := range results {
		text, err := exec.CommandContext(t.Context(), cuobjdump, "-sass", res.Artifact.Path).Output()
		if err != nil {
			t.Fatalf("%s: %v", res.Artifact.Path, err)
		}
		checked := 0
		for name, code := range parseSASS(string(text)) {
			if !slices.ContainsFunc(code, sassInstruction.isProduct) {
				continue
			}
			checked++
			for _, fault := range overwrittenFactors(code) {
				t.Errorf("%s: %s: %s", res.Part, name, fault)
			}
		}
		if checked == 0 {
			t.Errorf("%s: no kernel has wgmma products", res.Part)
		}
	}
}

// productRequests are the parts of wide filters, whose kernels for Hopper have wgmma products.
func productRequests(t *testing.T, reg *registry.Registry) []jit.Request {
	t.Helper()
	hopper, err := arch.ParseList("sm_90")
	if err != nil {
		t.Fatal(err)
	}
	var reqs []jit.Request
	for op, values := range map[string]map[string][]string{
		"causal_conv1d_fwd": {"dtype": {"bfloat16", "float16"}, "width": {"34-"}}, // those of 9 to 33 taps are the same
		"causal_conv1d_bwd": {"dtype": {"bfloat16"}, "width": {"9-33", "34-"}, "layout": {"channel_first"}},
	} {
		mod, _, err := reg.Manager().Config().Op(op)
		if err != nil {
			t.Fatal(err)
		}
		parts, err := mod.Parts(hopper[0], opconfig.Selection{Ops: []string{op}, Values: values})
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range parts {
			reqs = append(reqs, jit.Request{Module: mod.Name, Target: hopper[0], Part: part})
		}
	}
	return reqs
}

// sassInstruction is an instruction of a listing of cuobjdump -sass, without its predicate.
type sassInstruction struct {
	address     uint64
	text        string
	conditional bool
}

var (
	sassFunction = regexp.MustCompile(`^\s*Function : (\S+)`)
	sassLine     = regexp.MustCompile(`^\s+/\*([0-9a-f]{4,6})\*/\s+(@!?U?P\w+\s+)?(.*?)\s*;`)
	sassProduct  = regexp.MustCompile(`^HGMMA\S*\s+R\d+,\s+(?:R(\d+)|gdesc)`)
	sassWait     = regexp.MustCompile(`^WARPGROUP\.DEPBAR\S*\s+gsb0,\s*0x([0-9a-f]+)`)
	sassBranch   = regexp.MustCompile(`^BRA(?:\.\w+)*\s+(!?U?P\w+,\s*)?.*?0x([0-9a-f]+)`)
	sassResult   = regexp.MustCompile(`^\S+\s+(?:P\d|PT)?,?\s*(?:PT,\s*)?R(\d+)`)
	sassNoResult = regexp.MustCompile(`^(ST|BAR|BRA|EXIT|HGMMA|WARPGROUP|DEPBAR|RED|LDGSTS|NOP|MEMBAR|BSSY|BSYNC|R2UR|U|LDGDEPBAR|CALL|` +
		`RET|WARPSYNC|FENCE|ERRBAR|CCTL)`)
)

// parseSASS returns the instructions of each function. A kernel is empty in the shards that do not compile it; of its copies the longest
// counts.
func parseSASS(text string) map[string][]sassInstruction {
	functions, name := map[string][]sassInstruction{}, ""
	var code []sassInstruction
	end := func() {
		if len(code) > len(functions[name]) {
			functions[name] = code
		}
		code = nil
	}
	for line := range strings.Lines(text) {
		if m := sassFunction.FindStringSubmatch(line); m != nil {
			end()
			name = m[1]
		} else if m := sassLine.FindStringSubmatch(line); m != nil && name != "" {
			address, _ := strconv.ParseUint(m[1], 16, 64) // sassLine matches hexadecimal digits
			code = append(code, sassInstruction{address, m[3], m[2] != ""})
		}
	}
	end()
	return functions
}

func (i sassInstruction) isProduct() bool { return strings.HasPrefix(i.text, "HGMMA") }

// written returns the first register that the instruction writes and the number of registers, 0 for none.
func (i sassInstruction) written() (first, count int) {
	m := sassResult.FindStringSubmatch(i.text)
	if m == nil || sassNoResult.MatchString(i.text) {
		return 0, 0
	}
	first, _ = strconv.Atoi(m[1])
	opcode, _, _ := strings.Cut(i.text, " ")
	switch {
	case strings.HasPrefix(opcode, "LDSM"):
		count = map[bool]int{true: 4, false: 2}[strings.Contains(opcode, ".4")]
	case strings.Contains(opcode, ".128"), strings.HasPrefix(opcode, "HMMA"):
		count = 4
	case strings.HasPrefix(opcode, "CS2R.32"):
		count = 1
	case strings.Contains(opcode, ".64"), strings.Contains(opcode, ".WIDE"), strings.HasPrefix(opcode, "CS2R"):
		count = 2
	default:
		count = 1
	}
	return first, count
}

// runningGroup is a group of products that run together. factors has the first of the four registers of each left factor.
type runningGroup struct {
	committed bool
	factors   string
}

// mostGroups is a limit of the groups that are followed; kernels wait for all but one.
const mostGroups = 6

// overwrittenFactors follows all paths through a function and describes the writes to registers that a running product reads.
func overwrittenFactors(code []sassInstruction) []string {
	index := map[uint64]int{}
	for i, in := range code {
		index[in.address] = i
	}
	type path struct {
		at      int
		running []runningGroup
	}
	seen, faults := map[string]bool{}, map[string]bool{}
	for work := []path{{}}; len(work) > 0; {
		p := work[len(work)-1]
		work = work[:len(work)-1]
		for ; p.at < len(code); p.at++ {
			state := fmt.Sprint(p.at, p.running)
			if seen[state] {
				break
			}
			seen[state] = true
			in := code[p.at]
			p.running = in.issue(p.running)
			if first, count := in.written(); overwrites(p.running, first, count) {
				faults[fmt.Sprintf("%x %s writes a register that a running product reads", in.address, in.text)] = true
			}
			if m := sassBranch.FindStringSubmatch(in.text); m != nil {
				to, _ := strconv.ParseUint(m[2], 16, 64)
				if at, ok := index[to]; ok {
					work = append(work, path{at, p.running})
				}
				if !in.conditional && m[1] == "" && !strings.HasPrefix(in.text, "BRA.DIV") {
					break
				}
			}
			if !in.conditional && (strings.HasPrefix(in.text, "EXIT") || strings.HasPrefix(in.text, "RET")) {
				break
			}
		}
	}
	var list []string
	for fault := range faults {
		list = append(list, fault)
	}
	slices.Sort(list)
	return list
}

// issue returns the groups that run after the instruction. It does not change the slice.
func (i sassInstruction) issue(running []runningGroup) []runningGroup {
	if m := sassWait.FindStringSubmatch(i.text); m != nil {
		n, _ := strconv.ParseUint(m[1], 16, 32)
		return running[len(running)-min(int(n), len(running)):]
	}
	m := sassProduct.FindStringSubmatch(i.text)
	if m == nil {
		return running
	}
	running = slices.Clone(running)
	if n := len(running); n == 0 || running[n-1].committed {
		running = append(running, runningGroup{})
	}
	last := &running[len(running)-1]
	if register, err := strconv.Atoi(m[1]); err == nil && !strings.ContainsRune(last.factors, rune(register)) {
		last.factors += string(rune(register))
	}
	last.committed = strings.Contains(i.text, "gsb0")
	return running[max(0, len(running)-mostGroups):]
}

func overwrites(running []runningGroup, first, count int) bool {
	for _, group := range running {
		for _, factor := range group.factors {
			if first < int(factor)+4 && int(factor) < first+count {
				return true
			}
		}
	}
	return false
}

// TestParseSASS parses listings of a kernel whose empty copies are in other shards.
func TestParseSASS(t *testing.T) {
	empty := "\t\tFunction : kernel\n        /*0000*/                   EXIT ;\n"
	code := "\t\tFunction : kernel\n        /*0000*/                   MOV R1, R2 ;\n        /*0010*/                   EXIT ;\n"
	for name, text := range map[string]string{"first": code + empty, "last": empty + code, "between": empty + code + empty} {
		if got := parseSASS(text)["kernel"]; len(got) != 2 || got[0].text != "MOV R1, R2" || got[1].address != 0x10 {
			t.Errorf("code %s: %v", name, got)
		}
	}
}

// TestOverwrittenFactors has a loop whose load writes a factor of the product of the iteration before, and loops that do not.
func TestOverwrittenFactors(t *testing.T) {
	for name, c := range map[string]struct {
		load, wait string
		faults     int
	}{
		"the factor of the running product": {"LDS R5, [R40]", "0x1", 1},
		"two registers, one of the factor":  {"LDS.64 R2, [R40]", "0x1", 0},
		"the last of four registers":        {"LDS.128 R1, [R40]", "0x1", 1},
		"another register":                  {"LDS R8, [R40]", "0x1", 0},
		"after the product":                 {"LDS R5, [R40]", "0x0", 0},
	} {
		listing := "		Function : kernel\n" +
			"        /*0000*/                   " + c.load + " ;  /* 0x1 */\n" +
			"        /*0010*/                   HGMMA.64x32x16.F32.BF16 R64, R4, gdesc[UR4], R64, gsb0 ;  /* 0x1 */\n" +
			"        /*0020*/                   WARPGROUP.DEPBAR.LE gsb0, " + c.wait + " ;  /* 0x1 */\n" +
			"        /*0030*/              @!P0 BRA 0x0 ;  /* 0x1 */\n" +
			"        /*0040*/                   EXIT ;  /* 0x1 */\n"
		if got := overwrittenFactors(parseSASS(listing)["kernel"]); len(got) != c.faults {
			t.Errorf("%s: %q, want %d", name, got, c.faults)
		}
	}
}
