package opconfig

import (
	"slices"
	"strings"
)

const (
	reasonFile     = "its contents would not be part of the key; write the flags in the configuration"
	reasonOutput   = "the build names its own outputs"
	reasonStep     = "the build chooses the steps of the compiler"
	reasonDeps     = "the build writes the dependency file itself"
	reasonTarget   = "the target comes from the build; use \"targets\" or \"when\""
	reasonLanguage = "the language follows from the target"
	reasonInclude  = "list the folder in \"include\""
	reasonSearch   = "it changes the search for headers in a way that the build does not follow; use \"include\", -isystem, -iquote or " +
		"-idirafter"
	reasonRepeat    = "the build sets it so that equal inputs give identical outputs"
	reasonPaths     = "it writes paths or the command line, which differ from build to build, into the object"
	reasonMachine   = "the result would depend on the machine that compiles, which is not part of the key"
	reasonToolchain = "it would replace a part of the toolchain that the key already identifies; set HIPCC, ROCM_PATH, CUDA_HOME or CXX"
	reasonPlugin    = "it loads code into the toolchain that is not part of the key"
	reasonUnlisted  = "it reads files that the compiler does not report, so the build would not detect their changes"
	reasonNamesFile = "it names a file that the build neither watches nor keeps"
	reasonExtra     = "it writes files beside the object"
	reasonNoFlag    = "it does not start with \"-\"; sources go into [[source]], libraries are written -lNAME"
	reasonCommand   = "a shell may split it, or run a command in it whose result is not part of the key"
	reasonNoNumber  = "its value is not a number of threads"
	reasonUnknown   = "it is not known which files it reads and writes; put it into a wrapper script, whose content is part of the key, " +
		"and set HIPCC, NVCC or CXX to the script"
)

// refusedFlags returns the refused flags of compilers in all known spellings, with the reasons.
// Patterns of allowed flags may match some of them too.
func refusedFlags() []flagRule {
	return []flagRule{
		{reasonFile, "--options-file* -optf --config*"},
		{reasonOutput, "-o* --output*"},
		{reasonStep,
			"-c -S -E -dc -dw -dlink --cuda-host-only --cuda-device-only --offload-host-only --offload-device-only -emit-llvm --compile " +
				"--preprocess --assemble --device-c --device-w --ptx -ptx --cubin -cubin --fatbin -fatbin --dryrun -dryrun -### -fsyntax-only"},
		{reasonDeps, "-M* --dependencies* --write-dependencies* --generate-dependencies* --user-dependencies* --MD* -fdeps-*"},
		{reasonTarget,
			"--offload-arch* --cuda-gpu-arch* --amdgpu-target* -arch* --gpu-architecture* -gencode* --generate-code* -code* --gpu-code* " +
				"-target --target*"},
		{reasonLanguage, "-x* --x* --language*"},
		{reasonInclude, "-I* --include-path* --include-directory*"},
		{reasonSearch,
			"--include* -iprefix* -iwithprefix* -iwithsysroot* -isystem-after* -cxx-isystem* -c-isystem* -stdlib* --stdlib* -nostdinc* " +
				"-nobuiltininc " +
				"-iframework* -imultilib* -imultiarch* -internal-* -ivfsoverlay* --vfsoverlay* -index-header-map* --embed-dir* -fembed-dir* " +
				"--system-include* --pre-include*"},
		{reasonRepeat, "-cuid* -fuse-cuid* -frandom-seed* -ffile-prefix-map* -fdebug-prefix-map* -fmacro-prefix-map*"},
		{reasonPaths, "-frecord-* -grecord-command-line -fdebug-compilation-dir* -fcoverage-*"},
		{reasonMachine, "-march=native -mcpu=native -mtune=native"},
		{reasonPlugin, "-fplugin* -fpass-plugin* -load* -plugin* --plugin* -iplugindir* --load-pass-plugin*"},
		{reasonToolchain,
			"--rocm-path* --hip-path* --cuda-path* --rocm-device-lib* --hip-device-lib* --sysroot* -isysroot* --gcc-toolchain* -gcc-* " +
				"--gcc-install-dir* --gcc-triple* " +
				"-resource-dir* -ccbin* --compiler-bindir* -B* --prefix* -specs* --specs* -wrapper* -fuse-ld* --ld-path* -foffload=* " +
				"--driver-mode* --libdevice-directory*"},
		{reasonUnlisted,
			"-fprofile-* -fauto-profile* -fbranch-probabilities -fcs-profile-* -fmemory-profile* -fmodule* -fno-implicit-modules " +
				"-fimplicit-module* -fprebuilt-module* -fbuiltin-module-map " +
				"-include-pch* -fpch-* -pch* --pch* --use-pch* --create-pch* -fthinlto-index* -mlink-* -mthin* -module-* -fcuda-include-* -fembed-*"},
		{reasonExtra,
			"-save-temps* --save-temps* -save-stats* --save-stats* -keep* --keep* -dumpdir* -dumpbase* -auxbase* -fdump* -ftime-trace* " +
				"-gsplit-dwarf* -ftest-coverage -fprofile-arcs --coverage -coverage " +
				"-fstack-usage -fcallgraph-info* -fsave-optimization-record* -foptimization-record* -fproc-stat-report* -fcrash-diagnostics* " +
				"-gen-* -fcompare-debug*"},
	}
}

// allowedFlags are flags of compilers and their drivers, by purpose.
const allowedFlags = "-D -D* -D*=* -U -U* " + // macros
	"-O* -W* -W*=* -w -R* -R*=* -pedantic* -ansi -std=* --std=* -Qunused-arguments -pipe " + // levels, warnings, language
	"-p -pg -g* -g*=* " + // debugging
	"-isystem -isystem* -isystem*=* -iquote -iquote* -iquote*=* -idirafter -idirafter* -idirafter*=* " + // folders of headers
	"-include -include* -include*=* -imacros -imacros* -imacros*=* " +
	"-f* -m* -m*=* --param --param=* " + // code generation; -f with a value below
	"-falign-functions=* -falign-jumps=* -falign-labels=* -falign-loops=* -fabi-version=* -fabi-compat-version=* " +
	"-fbasic-block-sections=* -fbracket-depth=* -fcf-protection=* -fclang-abi-compat=* " +
	"-fcomplex-arithmetic=* -fconstexpr-backtrace-limit=* -fconstexpr-cache-depth=* -fconstexpr-depth=* -fconstexpr-loop-limit=* " +
	"-fconstexpr-ops-limit=* -fconstexpr-steps=* " +
	"-fdenormal-fp-math=* -fdenormal-fp-math-f32=* -fdiagnostics-color=* -fdiagnostics-show-location=* -fdiagnostics-urls=* " +
	"-faligned-new=* -fcaret-diagnostics-max-lines=* -fexcess-precision=* -fexec-charset=* -fwide-exec-charset=* -ffp-contract=* " +
	"-ffp-exception-behavior=* -ffp-eval-method=* -ffp-model=* " +
	"-fgpu-default-stream=* -fgpu-inline-threshold=* -fhip-kernel-arg-name=* -finline-limit=* -finput-charset=* " +
	"-flax-vector-conversions=* -flto=* -flto-partition=* -fmacro-backtrace-limit=* -fmax-errors=* -ferror-limit=* -fmessage-length=* " +
	"-fopenmp=* -fopenmp-targets=* " +
	"-fpatchable-function-entry=* -fsanitize=* -fno-sanitize=* -fsanitize-recover=* -fno-sanitize-recover=* -fsanitize-trap=* " +
	"-fno-sanitize-trap=* -fsimd-cost-model=* -fspell-checking-limit=* -fstack-limit-symbol=* -fstrict-flex-arrays=* " +
	"-ftabstop=* -ftemplate-backtrace-limit=* -ftemplate-depth=* -ftls-model=* -ftrivial-auto-var-init=* -ftree-parallelize-loops=* " +
	"-fvect-cost-model=* -fveclib=* -fvisibility=* -fzero-call-used-regs=* " +
	"--offload-new-driver --no-offload-new-driver --offload-compress --no-offload-compress --offload-compression-level=* " +
	"--gpu-max-threads-per-block=* --gpu-bundle-output --no-gpu-bundle-output --hip-link --hipstdpar --hipcc-func-supp " +
	"--no-hipcc-func-supp -parallel-jobs=* " + // HIP
	"--cuda-noopt-device-debug --cuda-feature=* --no-cuda-version-check --no-default-config -nogpuinc -nogpulib -nogpulibc -nocudainc " +
	"-nocudalib -nohipwrapperinc " +
	"--expt-* -expt-* --extended-lambda -extended-lambda --use_fast_math -use_fast_math --ftz=* -ftz=* -fmad=* --fmad=* -prec-div=* " +
	"--prec-div=* -prec-sqrt=* --prec-sqrt=* --extra-device-vectorization -extra-device-vectorization " + // nvcc
	"-maxrregcount -maxrregcount=* --maxrregcount --maxrregcount=* -lineinfo --generate-line-info -G --device-debug --debug --dopt=* " +
	"-dopt=* --optimize=* -Ofast-compile=* --Ofast-compile=* " +
	"-t -t* -t=* --threads --threads=* -threads -threads=* --split-compile=* -split-compile=* -rdc=* --relocatable-device-code=* -ewp " +
	"--extensible-whole-program -default-stream=* --default-stream=* " +
	"--resource-usage -res-usage --disable-warnings --diag-* -diag-* --diag-*=* -diag-*=* --display-error-number -err-no " +
	"--no-display-error-number -no-err-no --restrict -restrict --source-in-ptx -src-in-ptx " +
	"--allow-unsupported-compiler -allow-unsupported-compiler --compress-mode=* -compress-mode=* --no-compress -no-compress " +
	"-static-global-template-stub=* --static-global-template-stub=* --Werror=* --Wno-* --Wreorder --Wext-lambda-captures-this " +
	"--no-host-device-* -nohdmoveforward -nohdinitlist --device-stack-protector=* -device-stack-protector=* " +
	"--device-entity-has-hidden-visibility=* -device-entity-has-hidden-visibility=* --brief-diagnostics=* -brief-diag=* " +
	"--forward-unknown-* -forward-unknown-* --machine=* --cudart=* -cudart=* --cudadevrt=* -cudadevrt=* " +
	"-pthread -pthreads -static-libgcc -static-libstdc++ -static-libasan -static-libgomp -shared-libgcc -shared-libasan -nostdlib " +
	"-nostdlib++ -nodefaultlibs -nostartfiles -rdynamic -s " + // drivers of linkers
	"-L -L* -L*=* -l -l* -l*=* --library=* --library-path=* -u -u* -z -z* -z*=* -T -T* -T*=* -no-hip-rt --no-hip-rt --rtlib=* -rtlib=* " +
	"--unwindlib=* -unwindlib=*"

// compilerFlags returns the rules for the flags of sources.
func compilerFlags() *flagRules { return &flagRules{refused: refusedFlags(), allowed: allowedFlags} }

// linkerFlags returns the rules for the flags of a link, which a compiler driver runs.
func linkerFlags() *flagRules { return compilerFlags() }

// innerWords returns the rules for flags that one compiler passes to another. The build follows
// flags for the search of headers only if the config gives them directly.
func innerWords() *flagRules {
	direct := flagRule{"give it directly, so that the build can follow the search for headers",
		"-isystem* -iquote* -idirafter* -include* -imacros* -l* -L* -T*"}
	return &flagRules{refused: append(refusedFlags(), direct), allowed: allowedFlags}
}

// cc1Words returns the rules for Clang's front end.
func cc1Words() *flagRules {
	rules := innerWords()
	files := flagRule{reasonUnlisted,
		"-module-* -main-file-name* -mt-* -stats-file* -header-include-file* -diagnostic-log-file* -opt-record-* -ast-* -add-plugin*"}
	rules.refused = append(rules.refused, files)
	rules.allowed += " -target-feature -mllvm -disable-llvm-passes -disable-O0-optnone -no-opaque-pointers -opaque-pointers " +
		"-menable-unsafe-fp-math"
	return rules
}

// linkerWords returns the rules for GNU ld and LLD, which report the files that they read. A
// word without "-" is such a file, or the value of the word before it.
func linkerWords() *flagRules {
	return &flagRules{
		refused: []flagRule{
			{reasonOutput, "-o* --output*"},
			{reasonFile, "--retain-symbols-file* -retain-symbols-file* -c --mri-script* --options*"},
			{reasonDeps, "--dependency-file* -dependency-file*"},
			{reasonPlugin, "-plugin --plugin --plugin=* -plugin=* -load* --load-pass-plugin*"},
			{reasonToolchain, "--sysroot*"},
			{reasonExtra,
				"--Map* -Map* --out-implib* --print-map-file* --cref-file* --reproduce* --save-temps* --time-trace* --why-extract* --thinlto-* " +
					"--lto-obj-path* --emit-* --pdb*"},
		},
		allowed: "-z -z* -z*=* -l* -L* -l*=* -L*=* --library=* --library-path=* -( -) --start-group --end-group --whole-archive " +
			"--no-whole-archive --as-needed --no-as-needed --push-state --pop-state --start-lib --end-lib " +
			"-Bstatic -Bdynamic -Bsymbolic -Bsymbolic-functions -Bsymbolic-non-weak -Bsymbolic-non-weak-functions -Bno-symbolic -Bgroup -E " +
			"--export-dynamic --no-export-dynamic --export-dynamic-symbol --export-dynamic-symbol=* " +
			"-x -X -S -s --strip-all --strip-debug --discard-all --discard-locals --discard-none --gc-sections --no-gc-sections " +
			"--print-gc-sections --icf=* --hash-style --hash-style=* " +
			"--exclude-libs --exclude-libs=* --no-undefined --no-allow-shlib-undefined --allow-shlib-undefined --allow-multiple-definition " +
			"--unresolved-symbols --unresolved-symbols=* --no-undefined-version --undefined-version " +
			"-u -u* --undefined --undefined=* --undefined-glob=* --require-defined --require-defined=* --defsym --defsym=* --wrap --wrap=* " +
			"--version-script --version-script=* --dynamic-list --dynamic-list=* --dynamic-list-data -T -T* --script --script=* " +
			"-rpath -rpath=* --rpath --rpath=* -R -rpath-link --rpath-link -rpath-link=* --rpath-link=* -soname -soname=* --soname --soname=* " +
			"-h --build-id --build-id=* -e --entry --entry=* -init -init=* -fini -fini=* " +
			"-O* --optimize --sort-section --sort-section=* --sort-common --sort-common=* --relax --no-relax --eh-frame-hdr --no-eh-frame-hdr " +
			"--pack-dyn-relocs=* --compress-debug-sections=* --section-start --section-start=* --image-base=* " +
			"--enable-new-dtags --disable-new-dtags --enable-non-contiguous-regions --no-copy-dt-needed-entries --copy-dt-needed-entries " +
			"--no-dynamic-linker --no-ld-generated-unwind-info --no-rosegment --rosegment --apply-dynamic-relocs --no-apply-dynamic-relocs " +
			"--warn-* --no-warn-* --error-unresolved-symbols --fatal-warnings --no-fatal-warnings --error-limit=* --color-diagnostics " +
			"--color-diagnostics=* --demangle --no-demangle --noinhibit-exec --no-keep-memory --reduce-memory-overheads --stats --verbose -t " +
			"--trace -v --version " +
			"--print-map --print-memory-usage --cref --threads --threads=* --no-threads -q --emit-relocs -m --lto-O* --lto-partitions=* " +
			"--lto-CGO* -mllvm",
		bare: func(string) bool { return true },
	}
}

func assemblerWords() *flagRules {
	return &flagRules{
		refused: []flagRule{
			{reasonOutput, "-o*"},
			{reasonDeps, "-M* --M*"},
			{reasonInclude, "-I*"},
			{"it writes a listing to the output or a file", "-a*"},
		},
		allowed: "--noexecstack --execstack -g* --gdwarf* --gstabs* -W --warn --no-warn --fatal-warnings -m* -m*=* --64 --32 " +
			"--compress-debug-sections --compress-debug-sections=* --nocompress-debug-sections -L --keep-locals --elf-stt-common=* " +
			"--generate-missing-build-notes=* --divide",
	}
}

func ptxasWords() *flagRules {
	return &flagRules{
		refused: []flagRule{{reasonOutput, "-o* --output*"}, {reasonFile, "-optf* --options-file*"}, {reasonTarget, "-arch* --gpu-name*"}},
		allowed: "-v --verbose -O* --opt-level -opt-level --opt-level=* -opt-level=* -dlcm=* --def-load-cache=* -dscm=* " +
			"--def-store-cache=* -flcm=* -fscm=* --force-load-cache=* --force-store-cache=* -maxrregcount -maxrregcount=* --maxrregcount " +
			"--maxrregcount=* " +
			"-warn-* --warn-* -w --disable-warnings --suppress-* -suppress-* -Werror --Werror --warning-as-error " +
			"--allow-expensive-optimizations=* -allow-expensive-optimizations=* --fmad=* -fmad=* --register-usage-level=* " +
			"-register-usage-level=* -lineinfo --generate-line-info " +
			"-g --device-debug --disable-optimizer-constants --preserve-relocs -preserve-relocs --return-at-end --position-independent-code " +
			"-pic --sp-bounds-check --device-function-maxrregcount=* --split-compile=* -split-compile=* --cloning=* --optimize-float-atomics",
		bare: isPlainWord,
	}
}

// toolWords returns the rules for the smaller programs that nvcc runs.
func toolWords() *flagRules {
	return &flagRules{
		refused: []flagRule{{reasonOutput, "-o* --output*"}, {reasonFile, "-optf* --options-file*"}},
		allowed: "-v --verbose -w -O* -O*=* -Werror -Werror=* --diag_* --diag_*=* --display_error_number --promote_warnings --no_warnings " +
			"--disable-warnings -lineinfo --generate-line-info -use-host-info -ignore-host-info -compress* -compress*=* --compress* " +
			"--compress*=* -no-compress --maxrregcount=* -maxrregcount=* -suppress-* --suppress-* -dump-callgraph",
		bare: isPlainWord,
	}
}

// isPlainWord reports whether a word is a number or a name, not a file.
func isPlainWord(word string) bool {
	return !strings.ContainsFunc(word, func(c rune) bool {
		return c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	})
}

// llvmWords returns the rules for LLVM's thousands of options. Words in the name of an option tell
// whether its value is a file; see namesFile.
func llvmWords() *flagRules {
	plugins := flagRule{reasonPlugin,
		"-load=* --load=* -load -load-pass-plugin* --load-pass-plugin* -exec-on-* --exec-on-* -print-changed-* --print-changed-*"}
	files := flagRule{reasonNamesFile,
		"-print-changed=dot* --print-changed=dot* -use-ctx-profile* --use-ctx-profile* -cs-profile-path* --cs-profile-path* " +
			"-codegen-data-use-path* --codegen-data-use-path* -forceattrs-csv-path* --forceattrs-csv-path* " +
			"-instrument-cold-function-only-path* --instrument-cold-function-only-path* " +
			"-ir2vec-vocab-path* --ir2vec-vocab-path* -chr-function-list* --chr-function-list* -chr-module-list* --chr-module-list* " +
			"-dataflow-log* --dataflow-log* " +
			"-thinlto-workload-def* --thinlto-workload-def*"}
	return &flagRules{refused: []flagRule{plugins, files}, files: namesFile, allowed: "-* -*=*", bare: isPlainWord}
}

// namesFile reports whether an option of LLVM takes a file, which words in the name of the option tell.
func namesFile(option string) bool {
	name, _, _ := strings.Cut(option, "=")
	for word := range strings.SplitSeq(name, "-") {
		if slices.Contains([]string{"o", "file", "filename", "filepath", "files", "output", "dir", "directory", "dot", "dotcfg", "view",
			"trace", "plugin", "model", "replay", "abilist", "summary", "summaries", "channel", "fresolution"}, word) {
			return true
		}
	}
	return false
}
