#!/bin/sh
# Makes a Debian root folder with BuildBox, whose buildbox-casd is a server of the Bazel Remote Execution API, and wrappers
# "buildbox-casd" and "buildbox-run-hosttools" that run it on this machine's own files. The tests use it as a build farm.
#
#   scripts/executor-root.sh [DIR]
#
# DIR is .toolchain/buildbox of this checkout by default. The wrappers are in DIR/bin. Run the script as root. It takes about
# 30 seconds and 0.4 GB, and does nothing if DIR is complete.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
what='BuildBox root'
suite=forky
components=main
packages=ca-certificates,buildbox
case ${1:-} in
-h | --help)
    sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0"
    exit 0
    ;;
-*)
    echo "executor-root.sh: unknown option $1; see --help" >&2
    exit 2
    ;;
esac
root=$(readlink -m -- "${1:-$here/../.toolchain/buildbox}")

. "$here/root.sh"
complete && command -v bwrap >/dev/null || { need_root; need_tools; }
make_root

# The programs run with the libraries of their root, but see the folders of the machine or root in which they are started.
mkdir -p "$root/run-on-host"
for program in buildbox-casd buildbox-run-hosttools; do
    cat >"$root/run-on-host/$program.new" <<'WRAPPER'
#!/bin/sh
root=$(dirname -- "$(readlink -f -- "$0")")/..
exec "$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" "$root/usr/bin/@PROGRAM@" "$@"
WRAPPER
    sed -i "s|@PROGRAM@|$program|" "$root/run-on-host/$program.new"
    chmod +x "$root/run-on-host/$program.new"
    mv "$root/run-on-host/$program.new" "$root/run-on-host/$program"
done
"$root/run-on-host/buildbox-casd" --version >&2 || fail "$root/run-on-host/buildbox-casd does not run"
