#!/usr/bin/env bash
# Compares the times of the CPU operators with PyTorch: scripts/bench-cpu.sh [arguments of bench_cpu.py].
# Needs bin/aiterctl (`make build`) and a python3 with torch and tvm_ffi (`make python`).
set -euo pipefail
cd "$(dirname "$0")/.."
artifact=$(bin/aiterctl build module_causal_conv1d --arch cpu --json | sed -n 's/.*"artifact": *"\([^"]*\)".*/\1/p' | head -n 1)
[ -n "$artifact" ] || { echo 'no artifact of module_causal_conv1d for cpu' >&2; exit 1; }
exec "${PYTHON3:-.toolchain/bin/python3}" scripts/bench_cpu.py "$artifact" "$@"
