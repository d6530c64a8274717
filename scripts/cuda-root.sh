#!/bin/sh
# Makes a Debian root folder with nvcc, and wrappers "nvcc" and "cuobjdump" that run its programs. It needs no NVIDIA GPU.
#
#   scripts/cuda-root.sh [DIR]
#
# DIR is .toolchain/cuda of this checkout by default. The wrappers are in DIR/../bin. Run the script as root. It takes
# about 90 seconds and 5 GB, and does nothing if DIR is complete. The packages are non-free: NVIDIA's licence applies.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
what='CUDA root'
suite=${AITER_CUDA_SUITE:-trixie}
components=main,contrib,non-free
packages=ca-certificates,nvidia-cuda-toolkit
programs='nvcc cuobjdump'
root=
for argument in "$@"; do
    case $argument in
    -h | --help)
        sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0"
        exit 0
        ;;
    -*)
        echo "cuda-root.sh: unknown option $argument; see --help" >&2
        exit 2
        ;;
    *) root=$argument ;;
    esac
done
root=$(readlink -m -- "${root:-$here/../.toolchain/cuda}")

. "$here/root.sh"
complete && command -v bwrap >/dev/null || { need_root; need_tools; }
make_root
finish
say "$what: use it with  export NVCC=$bin/nvcc"
