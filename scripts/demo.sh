#!/usr/bin/env bash
# Builds module_causal_conv1d for the best target of this machine with an empty cache
# and again with the filled cache, runs forward and backward on random input, and
# compares the results with a float64 reference.
set -euo pipefail
aiterctl=$(realpath "$1")
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
export AITER_JIT_DIR="$cache/jit"

shape=(--batch 2 --dim 256 --seqlen 2048 --width 4 --use_silu)
echo '== cold: the cache is empty'
time "$aiterctl" build module_causal_conv1d --arch native
echo
echo '== cached: the same build again'
time "$aiterctl" build module_causal_conv1d --arch native
for op in causal_conv1d_fwd causal_conv1d_bwd; do
  for dtype in float32 bfloat16; do
    echo
    echo "== $op, $dtype, ${shape[*]}"
    "$aiterctl" run "$op" "${shape[@]}" --dtype "$dtype" --verify --repeat 20
  done
done
