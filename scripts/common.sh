# Functions for the other scripts, which source this file in a POSIX shell.

cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }
have() { command -v "$1" >/dev/null 2>&1; }
is_root() { [ "$(id -u)" = 0 ]; }
can_apt() { is_root && have apt-get; }

# apt_install PACKAGE…: installs packages; prints the end of the log only on failure.
apt_install() {
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    if ! { apt-get update && apt-get install -y --no-install-recommends "$@"; } >"$log" 2>&1; then
        tail -n 20 "$log"
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}

# Prints cargo's target directory.
target_dir() { printf '%s\n' "${CARGO_TARGET_DIR:-target}"; }

# tool NAME: builds a program from the registry into the target folder, only once, and sets `tool` to its path. Its version is the
# one below; that of gungraun-runner is the library's.
tool() {
    case "$1" in
    cargo-deb) version_of_tool=3.8.0 ;;
    *) version_of_tool=$(sed -n "/^name = \"$1\"\$/{n;s/^version = \"\(.*\)\"\$/\1/p;}" Cargo.lock) ;;
    esac
    folder_of_tool=$(target_dir)/tools/$1-$version_of_tool
    if [ ! -x "$folder_of_tool/bin/$1" ]; then
        say "building $1 $version_of_tool into $folder_of_tool (only once)"
        log=$(mktemp)
        if ! cargo install --locked --quiet --root "$folder_of_tool" --target-dir "$folder_of_tool/build" \
            --version "$version_of_tool" "$1" >"$log" 2>&1; then
            tail -n 20 "$log"
            rm -rf "$log" "$folder_of_tool"
            echo "$1 $version_of_tool cannot be built" >&2
            return 1
        fi
        rm -rf "$log" "$folder_of_tool/build"
    fi
    tool=$(cd "$folder_of_tool/bin" && pwd)/$1
}

# Prints cargo's options for the server's features that need more than Rust: clang compiles the packet probe.
features() { if have clang; then echo "--features strowger/ebpf"; fi; }
