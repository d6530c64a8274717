#!/usr/bin/env bash
# Runs every fuzz target of the module for FUZZTIME (default 5s).
set -euo pipefail
cd "$(dirname "$0")/.."
grep -rl --include='*_test.go' '^func Fuzz' . | sort | while read -r file; do
  for name in $(grep -oE '^func Fuzz[A-Za-z0-9_]+' "$file" | cut -d' ' -f2); do
    echo "$name ($(dirname "$file"))"
    go test -run '^$' -fuzz "^$name\$" -fuzztime "${FUZZTIME:-5s}" -fuzzminimizetime 10x "./$(dirname "$file")" >/tmp/fuzz.$$ 2>&1 </dev/null ||
      { cat /tmp/fuzz.$$; rm -f /tmp/fuzz.$$; exit 1; }
  done
done
rm -f /tmp/fuzz.$$
