#!/usr/bin/env bash
# Runs every fuzz target of the module for FUZZTIME (default 5s).
set -euo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT

fuzz() { go test -run '^$' -fuzz "^$1\$" -fuzztime "${FUZZTIME:-5s}" -fuzzminimizetime 10x "$2" >"$log" 2>&1 </dev/null; }
# On a loaded machine Go may report the end of FUZZTIME as an error although no input failed (golang/go#75804). The target then
# runs again.
out_of_time() { grep -qx ' *context deadline exceeded' "$log" && ! grep -qE 'Failing input|panic|hung|terminated' "$log"; }

grep -rl --include='*_test.go' '^func Fuzz' . | sort | while read -r file; do
  for name in $(grep -oE '^func Fuzz[A-Za-z0-9_]+' "$file" | cut -d' ' -f2); do
    echo "$name ($(dirname "$file"))"
    for try in 1 2 3; do
      fuzz "$name" "./$(dirname "$file")" && break
      if ! out_of_time || [ "$try" = 3 ]; then
        cat "$log"
        exit 1
      fi
      echo "the time limit interrupted an input: running the target again"
    done
  done
done
