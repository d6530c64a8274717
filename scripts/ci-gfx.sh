#!/usr/bin/env bash
# Checks builds with hipcc: all targets compile; a second build compiles nothing; a build for
# one more target compiles only the device code for it; and two clean builds are
# byte-identical. The host pass of a unit is compiled once for all GPU targets.
set -euo pipefail
aiterctl=$(realpath "$1")
export HIPCC; HIPCC=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

compiled() { grep -o '"status": *"compiled"' <<<"$1" | wc -l; }
digests() { grep -o '"digest": *"[0-9a-f]*"' <<<"$1"; }
build() { AITER_JIT_DIR="$work/$1" "$aiterctl" build module_causal_conv1d --arch "$2" --json; }
expect() { test "$2" = "$3" || { echo "$1: $2, expected $3"; exit 1; }; echo "$1: $2"; }

first=$(build a gfx90a,gfx942,gfx1100,gfx1201,cpu)
count() { grep -oE "$2" <<<"$1" | wc -l; }
units=$(count "$first" '"status"')
hosts=$(count "$first" '"pass": *"host"')
each=$((($(count "$first" '"source": *"[^"]*\.hip"') - hosts) / 4)) # GPU units of each target
shared=$((hosts * 3 / 4)) # 3 of 4 targets reuse the host passes of the first
expect 'cold: compiled units' "$(compiled "$first")" "$((units - shared))"
expect 'again: compiled units' "$(compiled "$(build a gfx90a,gfx942,gfx1100,gfx1201,cpu)")" 0
more=$(build a gfx90a,gfx942,gfx950,gfx1100,gfx1201,cpu)
expect 'additional target: compiled units' "$(compiled "$more")" "$each"
expect 'another cache, one target: digest' "$(digests "$(build b gfx950)" | head -1)" "$(digests "$(build a gfx950)" | head -1)"

echo 'machine code of all kernels'
go test ./op_tests -count=1 -run '^TestMachineCode$' -args -machinecode.cache="$work/a" -machinecode.targets=gfx90a,gfx942,gfx950,gfx1100,gfx1201
