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
