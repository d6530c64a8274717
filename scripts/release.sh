#!/usr/bin/env bash
# Makes the files of a release in a new folder: archives of aiterctl for linux/amd64 and linux/arm64, a list of components of each
# (CycloneDX, written by the program of scripts/sbom), and the checksums of all files. The bytes depend on the commit and the Go version
# only. No network is needed if the modules are in Go's module cache.
#
#   scripts/release.sh VERSION [FOLDER [ARCHITECTURE...]]     default: bin/release amd64 arm64
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1:?usage: scripts/release.sh VERSION [FOLDER [ARCHITECTURE...]]}
out=$(realpath -m "${2:-bin/release}")
architectures=("${@:3}")
[[ $# -gt 2 ]] || architectures=(amd64 arm64)
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+ ]] || { echo "version $version: expected vMAJOR.MINOR.PATCH, such as v0.1.0" >&2; exit 2; }
[[ ! -e $out ]] || { echo "$out exists; remove it, or name another folder" >&2; exit 2; }

date=$(git log -1 --format=%ct)
revision=$(git rev-parse HEAD)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$out"

umask 022
for arch in "${architectures[@]}"; do
	name=aiterctl_${version}_linux_$arch
	mkdir "$tmp/$name"
	# -buildvcs would store whether the checkout has other changes; the revision is enough.
	GOOS=linux GOARCH=$arch CGO_ENABLED=0 GOFLAGS='' go build -trimpath -buildvcs=false \
		-ldflags "-s -w -buildid= -X main.version=$version -X main.revision=$revision" -o "$tmp/$name/aiterctl" ./cmd/aiterctl
	cp LICENSE README.md CHANGELOG.md SECURITY.md "$tmp/$name/"
	tar --sort=name --mtime="@$date" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --format=gnu -C "$tmp" -cf - "$name" |
		gzip -n -9 >"$out/$name.tar.gz"
	GOFLAGS='' go -C scripts/sbom tool cyclonedx-gomod bin -json -noserial -std -version "$version" -output "$out/$name.cdx.json" "$tmp/$name/aiterctl" 2>"$tmp/sbom.log" ||
		{ cat "$tmp/sbom.log" >&2; exit 1; }
	# The list gets the time of the commit instead of the present time, and loses the digests of the program that wrote it, which
	# depend on this machine.
	sed -i -e '/^        "hashes": \[/,/^        \],/d' -e "s/\"timestamp\": \"[^\"]*\"/\"timestamp\": \"$(date -u -d "@$date" +%FT%TZ)\"/" "$out/$name.cdx.json"
done
(cd "$out" && sha256sum -- * >"$tmp/SHA256SUMS" && mv "$tmp/SHA256SUMS" .)
echo "$out:"
ls -l "$out"
