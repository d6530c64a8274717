#!/bin/sh
# Makes a Debian root folder with hipcc, and wrappers "hipcc" and "llvm-objdump" that run in it. It needs no AMD GPU.
#
#   scripts/rocm-root.sh [--with-python] [DIR]
#
# DIR is .toolchain/rocm of this checkout by default. The wrappers are in DIR/../bin. --with-python adds torch, numpy and
# tvm-ffi, and a wrapper "python3". Run the script as root. It takes about 30 seconds and 1 GB, and does nothing if DIR is
# complete.
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
