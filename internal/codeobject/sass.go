package codeobject

import (
	"bufio"
	"io"
	"slices"
	"strconv"
	"strings"
)

// ParseSASS reads the output of `cuobjdump -sass` for a cubin: "Function : NAME", then lines such as
// "/*0050*/  @P0 BRA 0x1a0 ;  /* 0x000000000000094d */". It skips lines that it does not understand, and fails only if r
// does.
func ParseSASS(r io.Reader) (Disassembly, error) {
	d := Disassembly{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	symbol := ""
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if name, ok := strings.CutPrefix(line, "Function : "); ok {
			symbol = name
			continue
		}
		if in, ok := sassLine(line); ok && symbol != "" {
			d[symbol] = append(d[symbol], in)
		}
	}
	return d, lines.Err()
}

func sassLine(line string) (in Instruction, ok bool) {
	rest, ok := strings.CutPrefix(line, "/*")
	address, rest, found := strings.Cut(rest, "*/")
	text, _, ends := strings.Cut(rest, ";")
	if !ok || !found || !ends {
		return in, false
	}
	at, err := strconv.ParseUint(address, 16, 64)
	if err != nil {
		return in, false
	}
	in.Address = at
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "@") {
		in.Guard, text, _ = strings.Cut(text, " ")
	}
	in.Mnemonic, in.Operands, _ = strings.Cut(strings.TrimSpace(text), " ")
	if name, _, _ := strings.Cut(in.Mnemonic, "."); name == "BRA" {
		last := in.Operands[strings.LastIndexByte(in.Operands, ' ')+1:]
		if n, err := strconv.ParseUint(strings.TrimPrefix(last, "0x"), 16, 64); err == nil {
			in.Target = n
		}
	}
	return in, in.Mnemonic != ""
}

// isSASS reports whether the instruction is NVIDIA's, whose mnemonics have capital letters.
func (in Instruction) isSASS() bool { return in.Mnemonic[0] >= 'A' && in.Mnemonic[0] <= 'Z' }

// sassMatrix are products of matrix cores, sassShared accesses of shared memory and shuffles, sassVector the beginnings of
// arithmetic of vector units. Instructions that begin with U are those of the scalar unit.
var (
	sassMatrix = []string{"HMMA", "IMMA", "BMMA", "DMMA", "QMMA", "OMMA", "HGMMA", "IGMMA", "QGMMA", "BGMMA", "UTCHMMA", "UTCQMMA", "UTCIMMA"}
	sassShared = []string{"LDS", "STS", "LDSM", "STSM", "ATOMS", "SHFL"}
	sassVector = []string{"FADD", "FMUL", "FFMA", "FMNMX", "FSEL", "FSET", "FSETP", "FCHK", "FSWZADD", "MUFU", "HADD2", "HMUL2",
		"HFMA2", "HMNMX2",
		"HSET2", "HSETP2", "DADD", "DMUL", "DFMA", "DSETP", "DMNMX", "IADD", "IADD3", "IMAD", "IMUL", "IMNMX", "IABS", "ISETP", "ISET",
		"IDP", "LEA",
		"LOP", "LOP3", "SHF", "SHL", "SHR", "PRMT", "SEL", "MOV", "POPC", "FLO", "BREV", "BMSK", "SGXT", "VIADD", "VIMNMX", "VIADDMNMX",
		"VABSDIFF",
		"F2F", "F2FP", "F2I", "I2F", "I2FP", "I2I", "FRND", "P2R", "R2P", "PLOP3", "PSETP", "CS2R", "VOTE", "FADD2", "FMUL2", "FFMA2",
		"FMNMX3", "VIMNMX3"}
)

// addSASS counts an instruction of NVIDIA.
func (c *Counts) addSASS(in Instruction) {
	name, how, _ := strings.Cut(in.Mnemonic, ".")
	switch {
	case slices.Contains(sassMatrix, name):
		c.Matrix++
	case slices.Contains(sassShared, name):
		c.LDS++
	case slices.Contains(sassVector, name):
		c.VALU++
	case name == "LDL" || name == "STL":
		c.Scratch++
	case name == "LDG" || name == "LD" || name == "LDGSTS":
		c.access(&c.WideLoads, &c.Loads, &c.LoadBytes, sassBytes(how))
	case name == "STG" || name == "ST":
		c.access(&c.WideStores, &c.Stores, &c.StoreBytes, sassBytes(how))
	}
}

func (c *Counts) access(wide, narrow, sum *int, bytes int) {
	if bytes >= 16 {
		*wide++
	} else {
		*narrow++
	}
	*sum += bytes
}

// sassBytes returns the size in the words after a mnemonic: E.128 is 16 bytes, E.U16 two, none four.
func sassBytes(how string) int {
	for word := range strings.SplitSeq(how, ".") {
		if bits, err := strconv.Atoi(strings.TrimLeft(word, "USB")); err == nil && bits >= 8 && bits <= 256 && (bits&(bits-1)) == 0 {
			return bits / 8
		}
	}
	return 4
}
