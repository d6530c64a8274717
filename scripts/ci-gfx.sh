#!/usr/bin/env bash
# Real hipcc builds: all targets compile, a second build compiles nothing, one
# more target compiles that one alone, and two clean builds are byte-identical.
set -euo pipefail
aiterctl=$(realpath "$1")
export HIPCC; HIPCC=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

compiled() { grep -o '"action": *"compiled"' <<<"$1" | wc -l; }
digests() { grep -o '"digest": *"[0-9a-f]*"' <<<"$1"; }
build() { AITER_JIT_DIR="$work/$1" "$aiterctl" build module_causal_conv1d --arch "$2" --json; }
expect() { test "$2" = "$3" || { echo "$1: $2, expected $3"; exit 1; }; echo "$1: $2"; }

first=$(build a gfx90a,gfx942,gfx1100,gfx1201,cpu)
units=$(grep -o '"action"' <<<"$first" | wc -l)
each=$(($(grep -o '"source": *"[^"]*\.hip"' <<<"$first" | wc -l) / 4)) # GPU units a target
expect 'cold: compiled units' "$(compiled "$first")" "$units"
expect 'again: compiled units' "$(compiled "$(build a gfx90a,gfx942,gfx1100,gfx1201,cpu)")" 0
more=$(build a gfx90a,gfx942,gfx950,gfx1100,gfx1201,cpu)
expect 'one more target: compiled units' "$(compiled "$more")" "$each"
expect 'another cache, one target: digest' "$(digests "$(build b gfx950)" | head -1)" "$(digests "$(build a gfx950)" | head -1)"
