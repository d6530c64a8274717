#!/usr/bin/env bash
# Makes a release of the commit twice, in two checkouts whose users have another home, time zone and umask, and compares
# the files. It takes under a minute and writes nothing to the checkout.
set -euo pipefail
cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
git clone -q --no-hardlinks . "$tmp/other checkout"
git -C "$tmp/other checkout" checkout -q "$(git rev-parse HEAD)"
GOMODCACHE=$(go env GOMODCACHE) GOCACHE=$(go env GOCACHE)
export GOMODCACHE GOCACHE

scripts/release.sh v0.0.0-test "$tmp/one" amd64
mkdir "$tmp/home"
(umask 077 && HOME="$tmp/home" TZ=Asia/Kolkata LC_ALL=C "$tmp/other checkout/scripts/release.sh" v0.0.0-test "$tmp/two" amd64)
diff -r "$tmp/one" "$tmp/two"
(cd "$tmp/two" && sha256sum --check --quiet SHA256SUMS)
[[ $(ls "$tmp/two") == $'SHA256SUMS\naiterctl_v0.0.0-test_linux_amd64.cdx.json\naiterctl_v0.0.0-test_linux_amd64.tar.gz' ]]
tar -xzf "$tmp/two/aiterctl_v0.0.0-test_linux_amd64.tar.gz" -C "$tmp"
[[ $(uname -m) != x86_64 ]] || "$tmp/aiterctl_v0.0.0-test_linux_amd64/aiterctl" --version | grep v0.0.0-test
echo 'the releases are equal'
