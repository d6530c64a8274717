// Package opconfig reads config/opt_compiler.toml: which modules there are, the
// sources and flags that they are built from, and the operators that they hold.
//
// The language is TOML and strict. There is nothing to evaluate in it: what depends
// on the target is said with tables and conditions, what depends on the machine with
// ${VARIABLE} from a short list. Every mistake is an *Error with file, line and
// column, and all of a load's mistakes come together.
//
//	include = ["more/*.toml"]           # files, relative to this one
//
//	[module.module_conv]                # module_ and lower-case letters, digits, _
//	doc     = "..."
//	include = ["csrc/include"]          # folders, relative to the root
//	targets = ["hip", "sm_9*", "cpu"]   # vendors or patterns; default: what has sources
//	timeout = "5m"                      # for one compilation
//	flags.common   = ["-O3"]            # for all; for some: flags.hip, .cuda, .cpu
//	link_flags.cpu = ["-lm"]            # with the same keys
//
//	[module.module_conv.flags.arch]     # added after the vendor's, specific ones last
//	"gfx9*" = ["-DWAVE=64"]
//
//	[[module.module_conv.source]]       # compiled in this order: what takes longest first
//	path  = "csrc/kernels/*.hip"        # a file or a glob, relative to the root
//	flags = ["-DX=${AITER_X:-1}"]       # a list or a table of these keys
//	when  = { vendor = ["hip"], arch = ["gfx94?"], toolchain = ">=6.0,<8" }
//	ops   = ["conv_fwd"]                # the operators in it; default: those no source lists
//
//	[[module.module_conv.op]]
//	name   = "conv_fwd"                 # a C identifier, unique in the config
//	schema = "(Tensor(a!) out, Tensor x) -> ()"
//	doc    = "..."
//	# How far results may be apart, where not by what their type gives; or out = "exact".
//	tolerance = { out = { rel = 1e-3, abs = 1e-3 } }
//
//	[module.module_conv.axis.dtype]     # a choice whose values can be built apart
//	argument = "x"                      # the Tensor whose element type chooses at a call
//	values   = ["float32", "float16"]
//	define   = "AITER_DTYPE"            # a unit of one value is compiled with -DAITER_DTYPE=float16
//	targets  = ["hip", "cuda"]          # default: every target
//
//	[module.module_conv.axis.width]
//	argument  = "x"
//	dimension = 1                       # of it, from 0: its size chooses, not the element type
//	values    = ["1-4", "5", "6-"]      # ranges without gaps, the last without an end
//	define    = "AITER_WIDTH"           # -DAITER_WIDTH_LEAST=1 -DAITER_WIDTH_MOST=4; no _MOST for "6-"
//
// A module can be built as one library, or in parts: a [Spec] names some operators, which
// are in the same sources, and a value of each axis that their schemas have the argument
// of. A part is made of the sources that list its operators and of those that list none,
// and a source is compiled for a value where an operator in it has the argument. Sizes
// below the first range are the first's: it starts at the least that the operator takes, which
// itself says what is wrong with the others.
//
// Limits keep a hostile configuration from taking time and memory. All files together:
// 1 MiB, 1000 files, 20,000 names in keys, arrays and array elements, 100,000 folder entries that
// globs look at, 1 MiB of text from variables. A value: 16 levels of tables and arrays,
// a key of 1 KiB with the names of its tables, 16 KiB of text; a path 1 KiB. A module: 500
// sources (a glob is one), 500 operators, 4096 parts. Reading stops after 100 mistakes.
//
// A flag is accepted when its reads and writes are known. One
// that would name outputs, steps, dependency files, the target or parts of the toolchain is
// refused: the build gives those itself. So is one that loads plugins, reads files that no
// report lists, or is unknown; a script named by HIPCC, NVCC or CXX can add such a flag,
// and its content is in the key. Variables stand in paths,
// include folders and flags: AITER_*, ROCM_PATH, ROCM_HOME, CUDA_HOME, CUDA_PATH and
// CK_DIR. "$$" is a dollar sign.
package opconfig
