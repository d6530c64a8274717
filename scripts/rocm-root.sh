#!/bin/sh
# Makes a root folder with a real hipcc, and wrappers "hipcc" and "llvm-objdump" that run it; no AMD GPU is needed.
#
#   scripts/rocm-root.sh [--with-python] [DIR]
#
# DIR is .toolchain/rocm of this checkout by default; the wrapper goes to ../bin/hipcc beside it. --with-python adds torch,
# numpy and tvm-ffi, and a wrapper "python3". Run it as root; about half a minute and 1 GB. Run again, it does nothing.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
what='ROCm root'
suite=${AITER_ROCM_SUITE:-forky}
components=main
packages=ca-certificates,hipcc
programs=hipcc
root=
for argument in "$@"; do
    case $argument in
    --with-python)
        packages=$packages,libtvm-ffi-dev,python3-tvm-ffi,python3-torch,python3-numpy
        programs="$programs python3"
        ;;
    -h | --help)
        sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0"
        exit 0
        ;;
    -*)
        echo "rocm-root.sh: unknown option $argument; see --help" >&2
        exit 2
        ;;
    *) root=$argument ;;
    esac
done
root=$(readlink -m -- "${root:-$here/../.toolchain/rocm}")

. "$here/root.sh"
complete && command -v bwrap >/dev/null || { need_root; need_tools; }
make_root
for tool in "$root"/usr/lib/llvm-*/bin/llvm-objdump; do
    [ ! -e "$tool" ] || programs="$programs llvm-objdump=${tool#"$root"}"
done
finish
say "$what: use it with  export HIPCC=$bin/hipcc"
