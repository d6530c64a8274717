#!/usr/bin/env bash
# bench-cold.sh AITERCTL HIPCC compares builds with an empty cache for five GPU targets: by aiterctl, and by plain hipcc of the same units.
# Plain hipcc runs one command for each unit with all targets, one after another, and then links. It is measured with
# the module's flags, and again with HIP's own headers instead of aiter/hip.h. The script measures the three variants one after another,
# ROUNDS times (3), and prints the medians of wall-clock time and of processor time in seconds.
set -euo pipefail
aiterctl=$(realpath "$1")
export HIPCC; HIPCC=$(realpath "$2")
cd "$(dirname "$0")/.."
module=module_causal_conv1d
targets=${TARGETS:-gfx90a,gfx942,gfx950,gfx1100,gfx1201}
rounds=${ROUNDS:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The sources and flags are those of the commands that aiterctl would run.
plan=$("$aiterctl" build "$module" --arch "${targets%%,*}" --root . --cache-dir "$work/plan" --dry-run --json)
mapfile -t sources < <(grep -o '"file": *"[^"]*\.hip"' <<<"$plan" | sort -u | cut -d'"' -f4)
mapfile -t flags < <(grep -oE '"-(I|O|W|f|std=|nogpuinc)[^"]*"' <<<"$plan" | sort -u | tr -d '"' | grep -v -e '^-ffile-prefix-map' -e '^-fno-gnu-unique' -e '^-frandom-seed')
IFS=, read -ra archs <<<"$targets"
test ${#sources[@]} -gt 0

aiterctl() {
  rm -rf "$work/cache" # also removes the recorded toolchain: only the kernel's page cache is warm
  "$aiterctl" build "$module" --arch "$targets" --root . --cache-dir "$work/cache" --quiet >/dev/null
}
plain() { # FLAG...
  local source objects=()
  for source in "${sources[@]}"; do
    objects+=("$work/$(basename "$source").o")
    "$HIPCC" "${archs[@]/#/--offload-arch=}" "$@" -c "$source" -o "${objects[-1]}"
  done
  "$HIPCC" -shared "${objects[@]}" -o "$work/plain.so"
}
hipcc() { plain "${flags[@]}"; }
hipcc-with-headers() {
  local flag own=()
  for flag in "${flags[@]}"; do test "$flag" = -nogpuinc || own+=("$flag"); done
  plain "${own[@]}"
}

TIMEFORMAT='%R %U %S'
for ((i = 1; i <= rounds; i++)); do
  for what in aiterctl hipcc hipcc-with-headers; do
    { time "$what" 2>&3; } 3>&2 2>>"$work/$what.times"
    echo "round $i $what: $(tail -1 "$work/$what.times")" >&2
  done
done
median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
wall() { cut -d' ' -f1 "$work/$1.times" | median; }
cpu() { awk '{ print $2 + $3 }' "$work/$1.times" | median; }
printf '%-20s %10s %10s %8s\n' "$module" 'seconds' 'processor' 'ratio'
for what in aiterctl hipcc hipcc-with-headers; do
  printf '%-20s %10s %10s %8s\n' "$what" "$(wall "$what")" "$(cpu "$what")" "$(awk "BEGIN { printf \"%.2f\", $(wall aiterctl) / $(wall "$what") }")"
done
