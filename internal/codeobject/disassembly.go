package codeobject

import (
	"bufio"
	"io"
	"strconv"
	"strings"
)

// Instruction is one line of a disassembly: llvm-objdump's for AMD GPUs, cuobjdump's for NVIDIA's.
type Instruction struct {
	Address  uint64
	Guard    string // "@!P0": the predicate of an instruction of NVIDIA; or ""
	Mnemonic string
	Operands string
	Target   uint64 // of a branch; 0: none
}

// Disassembly holds the instructions of each function, by symbol.
type Disassembly map[string][]Instruction

const maxLine = 1 << 20

// ParseDisassembly reads the output of `llvm-objdump -d` for a code object. It skips lines that it does not understand,
// and fails only if r does.
func ParseDisassembly(r io.Reader) (Disassembly, error) {
	d := Disassembly{}
	starts := map[string]uint64{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	symbol := ""
	for lines.Scan() {
		line := lines.Text()
		if name, at, ok := functionLine(line); ok {
			symbol, starts[name] = name, at
			continue
		}
		if in, ok := instructionLine(line, starts); ok && symbol != "" {
			d[symbol] = append(d[symbol], in)
		}
	}
	return d, lines.Err()
}

// functionLine reads "0000000000006d00 <symbol>:".
func functionLine(line string) (symbol string, at uint64, ok bool) {
	address, rest, ok := strings.Cut(line, " <")
	symbol, end, closed := strings.Cut(rest, ">:")
	at, err := strconv.ParseUint(address, 16, 64)
	return symbol, at, ok && closed && end == "" && err == nil
}

// instructionLine reads "\ts_branch 3   // 000000006F68: BF870003 <symbol+0x21ec>".
func instructionLine(line string, starts map[string]uint64) (in Instruction, ok bool) {
	text, comment, ok := strings.Cut(line, "//")
	if !ok || !strings.HasPrefix(text, "\t") {
		return in, false
	}
	in.Mnemonic, in.Operands, _ = strings.Cut(strings.TrimSpace(text), " ")
	address, rest, ok := strings.Cut(strings.TrimSpace(comment), ":")
	at, err := strconv.ParseUint(address, 16, 64)
	if !ok || err != nil {
		return in, false
	}
	in.Address = at
	if _, where, ok := strings.Cut(rest, "<"); ok && in.branches() {
		in.Target = branchTarget(strings.TrimSuffix(strings.TrimSpace(where), ">"), starts)
	}
	return in, in.Mnemonic != ""
}

// branchTarget returns the address of "symbol+0x1f0", 0 if it is unknown.
func branchTarget(where string, starts map[string]uint64) uint64 {
	symbol, offset, _ := strings.Cut(where, "+0x")
	start, known := starts[symbol]
	n, err := strconv.ParseUint(offset, 16, 64)
	if !known || err != nil && offset != "" {
		return 0
	}
	return start + n
}

func (in Instruction) branches() bool {
	return in.Mnemonic == "s_branch" || strings.HasPrefix(in.Mnemonic, "s_cbranch")
}
