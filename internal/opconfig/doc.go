// Package opconfig reads opt_compiler.toml: the modules, the sources and flags from
// which they are built, and the operators in them.
//
// The language is strict TOML without expressions. Tables and conditions select by target;
// ${VARIABLE}, from a short list, inserts settings of the machine. Each mistake is reported as an
// *Error with file, line and column. A load reports all mistakes together.
//
//	include = ["more/*.toml"]           # files, relative to this one
//
//	builtin = false                     # these modules replace those of aiter; only in the first file
//
//	[defaults]                          # for all modules of all files; only in the first file
//	include = ["csrc/include"]          # include, targets, timeout, flags, link_flags, axis: as in a module
//	flags.common = ["-std=c++17"]
//
//	[defaults.axis.index]
//	argument = "i"
//	values   = ["int32", "int64"]
//	define   = "AITER_INDEX"
//
//	[module.module_conv]                # module_ and lower-case letters, digits, _
//	doc     = "..."
//	include = ["csrc/include", "${CK_DIR}/include"] # folders, relative to the root or absolute
//	targets = ["hip", "sm_9*", "cpu"]   # vendors or patterns; default: targets with sources
//	timeout = "5m"                      # for one compilation
//	defaults = true                     # false: the module inherits nothing
//	flags.common   = ["-O3"]            # for all vendors; for one: flags.hip, .cuda, .cpu
//	link_flags.cpu = ["-lm"]            # with the same keys
//
//	[module.module_conv.flags.arch]     # after the vendor's flags; specific patterns last
//	"gfx9*" = ["-DWAVE=64"]
//
//	[module.module_conv.assembly]       # code objects that the library contains, for targets of AMD (aiter/assembly.h)
//	root   = "${AITER_CHECKOUT}/hsa"    # absolute; has a folder for each architecture
//	tables = ["gemm"]                   # folders gfx942/gemm: CSV files name code objects, and become the header asm_gemm_configs.hpp
//	files  = ["more/*.co"]              # globs of further code objects in the folder gfx942
//	absent = ["gfx942/gemm/x.co"]       # globs of code objects that a table names and the folder does not have
//
//	[[module.module_conv.source]]       # compiled in this order; put slow ones first
//	path  = "csrc/kernels/*.hip"        # a file or a glob, relative to the root
//	flags = ["-DX=${AITER_X:-1}"]       # a list or a table of these keys
//	when  = { vendor = ["hip"], arch = ["gfx94?"], toolchain = ">=6.0,<8" }
//	ops   = ["conv_fwd"]                # operators in it; default: those that no source lists
//	axes  = ["dtype", "width"]          # on which its code depends; default: those of its operators; [] for none
//
//	[[module.module_conv.source]]
//	path = "csrc/wide/*.hip"
//	when.axis.width = ["6-"]            # parts of other values leave the source out
//
//	[[module.module_conv.op]]
//	name   = "conv_fwd"                 # a C identifier, unique in the config
//	schema = "(Tensor(a!) out, Tensor x) -> ()"
//	doc    = "..."
//	# Bounds on differences between results, instead of those of the type; or out = "exact".
//	tolerance = { out = { rel = 1e-3, abs = 1e-3 } }
//	# Calls check these before they run, and aiterctl describe prints them. A name in a shape is one size in all
//	# arguments; "..." stands for any leading dimensions. A type may be that of another argument.
//	# The operator writes all elements of an output and reads none.
//	args.out = { shape = "(B, D, L)", dtype = ["x"], output = true, doc = "..." }
//	args.x   = { shape = "(B, D, L)", dtype = ["float32", "float16"], strides = "row-major" }
//
//	# Sizes along which a call on host memory is split, preferred ones first. "D G" splits both in the same proportion.
//	split = ["B", "D"]
//
//	# Launch parameters: values that aiterctl tune measures in place of the operator's launch plan (aiter/tuning.h), on these targets.
//	# It varies only those that a call reads if each has its first value.
//	tune.strip = { values = [16, 32, 64], targets = ["hip", "cuda"], doc = "..." }
//
//	[module.module_conv.axis.dtype]     # a property whose values are built separately
//	argument = "x"                      # the Tensor whose element type selects the code
//	values   = ["float32", "float16"]
//	define   = "AITER_DTYPE"            # a unit of one value is compiled with -DAITER_DTYPE=float16
//	targets  = ["hip", "cuda"]          # default: every target
//
//	[module.module_conv.axis.width]
//	argument  = "x"
//	dimension = 1                       # of x, from 0: its size selects, not the element type
//	values    = ["1-4", "5", "6-"]      # ranges without gaps, the last one open
//	define    = "AITER_WIDTH"           # -DAITER_WIDTH_LEAST=1 -DAITER_WIDTH_MOST=4; no _MOST for "6-"
//
//	[module.module_conv.axis.layout]
//	argument = "x"
//	adjacent = [2, 1]                   # a dimension for each value: the one whose elements are nearest in memory selects
//	values   = ["channel_first", "channel_last"] # C identifiers
//	define   = "AITER_LAYOUT"           # -DAITER_LAYOUT=channel_last
//
// The table flags.optional has flags that a unit gets only if the compiler accepts them, with the same keys as
// flags, such as flags.optional.hip = ["-mllvm", "-amdgpu-coerce-illegal-types=1"]. The build tries each of
// them, with its value, by a compile of an empty file, once for a toolchain. It puts them behind the other flags
// of the unit. A misspelled flag is thus left out without an error.
//
// An include folder may be absolute, or begin with a variable whose value is absolute. The keys of the module's
// units then contain its path, and the content of each file that a compile reads from it. Only a build needs the
// variable and the folder: if one is missing, the build fails, but [Load] does not.
//
// Modules of all files inherit the defaults. Each list in a module's flags and link_flags follows
// the default list with the same key. The include, the targets, the timeout or an axis of a module
// replaces the default as a whole. A default axis applies to modules with an operator that has the
// argument, and precedes the module's own axes.
//
// A module can be built as one library, or in parts. A [Part] names operators that share their
// sources, and a value of each axis whose argument is in their schemas. A part consists of the
// sources that list its operators and of those that list none. A source is compiled for one value
// if an operator in it has the axis's argument. The first range starts at the smallest size that
// the operator accepts; smaller sizes select it too, and the operator reports the error.
//
// A source may name the axes on which its code depends. It is then compiled without the macros of other axes,
// so that all their values share its objects. It may have a condition on any axis: the condition selects the
// whole source.
//
// For an axis by layout the dimensions of size above 1 are compared. The one with the smallest absolute stride
// selects its value, for equal strides the first in the list. If there is none, or if the tensor has fewer
// dimensions, the first value is selected. An argument has at most one axis by layout.
//
// A condition on an axis lists values of the axis. A part with another value is built without the
// source. The conditions on all listed axes must hold. A condition does not apply on targets that the
// axis does not list, or in a part with all values. The whole module thus has the sources of all
// values: they must link together, and a file may be a source only once for each target, also with
// conditions on axes. An operator with a source for a target must have one there for each value.
//
// Limits bound the time and the memory that a hostile configuration can take:
//   - all files together: 1 MiB, 1000 files, 20,000 names in keys, arrays and array elements,
//     100,000 folder entries that globs read, 1 MiB of text from variables, 1,048,576 inherited flags
//   - a value: 16 levels of tables and arrays, a key of 1 KiB with the names of its tables, 16 KiB of
//     text, 1 KiB of a path
//   - a module: 500 sources (a glob is one), 500 operators, 4096 parts
//   - an operator: 8 launch parameters, 512 combinations of their values on a target
//
// Reading stops after 100 mistakes.
//
// A flag is accepted if it is known which files it reads and writes. Flags for outputs, steps,
// dependency files, the target or parts of the toolchain are refused, because the build sets those
// itself. Unknown flags are refused, and so are flags that load plugins or read files that the compiler
// does not report. A script that HIPCC, NVCC or CXX names can add such a flag; keys contain the content
// of the script. Variables may be used in paths, include folders and flags: AITER_*, ROCM_PATH,
// ROCM_HOME, CUDA_HOME, CUDA_PATH and CK_DIR. "$$" is a dollar sign.
package opconfig
