# Functions for rocm-root.sh, cuda-root.sh and executor-root.sh, which source this file. They make a Debian root folder with
# programs such as a compiler, and wrappers that run the programs inside it. The caller sets:
#   what        name of the root in messages
#   suite       Debian release
#   components  components of the archive, comma-separated
#   packages    packages to install, comma-separated
#   root        folder to make; the wrappers are in ../bin relative to it
#   programs    wrappers to make: NAME, or NAME=COMMAND if the command in the root has another name

say() { printf '%s\n' "$*" >&2; }

fail() {
    say "$what: $*"
    exit 1
}

need_root() {
    [ "$(id -u)" = 0 ] || fail "making a root folder needs root; run it again with sudo"
}

# need_tools installs the missing tools that make and enter the root.
need_tools() {
    missing=
    command -v mmdebstrap >/dev/null || missing="$missing mmdebstrap"
    command -v bwrap >/dev/null || missing="$missing bubblewrap"
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || missing="$missing debian-archive-keyring"
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null || fail "install$missing first (apt-get is not available)"
    say "$what: installing$missing"
    # shellcheck disable=SC2086 # a list of words
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $missing; } >&2 ||
        fail "apt-get could not install$missing"
}

# complete reports whether the root exists and has all packages.
complete() {
    [ -r "$root/.packages" ] || return 1
    for package in $(printf '%s' "$packages" | tr , ' '); do
        grep -qx "$package" "$root/.packages" || return 1
    done
}

# make_root makes the root under a temporary name and renames it, so that the root is complete or absent.
make_root() {
    mkdir -p "$(dirname "$root")"
    exec 9>"$root.lock"
    flock -n 9 || { say "$what: waiting for another run of this script"; flock 9; }
    if complete; then
        say "$what: $root is complete (remove it to make it again)"
        return 0
    fi
    staging=$root.new.$$
    # A failed run keeps an existing root and removes the new one.
    trap 'rm -rf "$staging"' EXIT
    trap 'exit 130' INT TERM HUP
    say "$what: making $root from Debian $suite: $packages"
    mmdebstrap --quiet --variant=apt --components="$components" --include="$packages" \
        --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --dpkgopt=force-unsafe-io \
        --keyring=/usr/share/keyrings/debian-archive-keyring.gpg \
        "$suite" "$staging" ${AITER_DEBIAN_MIRROR:+"$AITER_DEBIAN_MIRROR"} >&2 ||
        fail "mmdebstrap failed; AITER_DEBIAN_MIRROR names another mirror"
    printf '%s\n' "$packages" | tr , '\n' >"$staging/.packages"
    if [ -e "$root" ]; then
        mv "$root" "$root.old.$$"
    fi
    mv "$staging" "$root"
    rm -rf "$root.old.$$"
}

# write_wrapper makes ../bin/NAME, which runs COMMAND. The wrapper finds the root relative to its own path, so that its text
# and the digest of the toolchain do not depend on the checkout's folder.
write_wrapper() {
    bin=$(dirname "$root")/bin
    mkdir -p "$bin"
    sed -e "s|@ROOT@|../$(basename "$root")|g" -e "s|@PROGRAM@|$2|g" >"$bin/$1.new.$$" <<'WRAPPER'
#!/bin/sh
# Runs @PROGRAM@ inside a root folder. This machine's files have their own paths in it, except for the system's, which are
# the root's: /usr, /bin, /sbin, /lib*, /etc, and /opt/rocm*. Exit status and signals are the program's own.
# aiter-root: @ROOT@
root=$(dirname -- "$(readlink -f -- "$0")")/@ROOT@
[ -d "$root/usr" ] || { echo "$0: no root folder at $root; make it again" >&2; exit 127; }
command -v bwrap >/dev/null || { echo "$0: no bwrap on PATH; install bubblewrap" >&2; exit 127; }
case $PWD/ in
/usr/* | /etc/*) echo "$0: $PWD is hidden by the root's own files; work in another folder" >&2; exit 126 ;;
esac
set -- --chdir "$PWD" --setenv PATH /usr/sbin:/usr/bin:/sbin:/bin --die-with-parent -- @PROGRAM@ "$@"
for folder in /* /opt/*; do
    case $folder in
    /usr | /bin | /sbin | /lib* | /etc | /opt | /opt/rocm* | /dev | /proc | /sys | /boot | '/*' | '/opt/*') continue ;;
    esac
    if [ -L "$folder" ]; then
        set -- --symlink "$(readlink "$folder")" "$folder" "$@"
    elif [ -d "$folder" ]; then
        set -- --bind "$folder" "$folder" "$@"
    fi
done
exec bwrap --ro-bind "$root/usr" /usr --symlink usr/bin /bin --symlink usr/sbin /sbin --symlink usr/lib /lib \
    --symlink usr/lib64 /lib64 --ro-bind "$root/etc" /etc --dev /dev --proc /proc --ro-bind /sys /sys "$@"
WRAPPER
    chmod +x "$bin/$1.new.$$"
    mv "$bin/$1.new.$$" "$bin/$1"
}

# finish makes the wrappers and runs each with --version.
finish() {
    for entry in $programs; do
        program=${entry%%=*}
        write_wrapper "$program" "${entry#*=}"
        "$bin/$program" --version >"$root.log" 2>&1 || fail "$bin/$program does not run: $(tail -n 3 "$root.log")"
        say "$what: $bin/$program: $(grep -m 1 -E '[0-9]+\.[0-9]+' "$root.log")"
    done
    rm -f "$root.log"
}
