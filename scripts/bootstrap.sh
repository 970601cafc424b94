#!/bin/sh
# Checks for a Rust toolchain and a C compiler, and installs missing ones if it can.
# The other scripts source this file after common.sh, so that they inherit the extended PATH.

rust_wanted=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml)

# A cargo without rustup ignores rust-toolchain.toml, so its version must be recent enough.
rust_is_there() {
    have cargo || return 1
    have rustup && return 0
    found=$(rustc --version 2>/dev/null | cut -d' ' -f2)
    [ "$(printf '%s\n%s\n' "$rust_wanted" "${found:-0}" | sort -V | head -n 1)" = "$rust_wanted" ]
}

if ! have cargo && [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]; then
    PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    export PATH
fi

if ! have cc; then
    if can_apt; then
        say "installing a C compiler (SQLite is built from source)"
        apt_install gcc libc6-dev
    else
        echo "There is no C compiler (cc); SQLite is built from source and needs one." >&2
        echo "Install one and try again. On Debian or Ubuntu: sudo apt-get install gcc libc6-dev" >&2
        exit 1
    fi
fi

if ! rust_is_there; then
    if ! have curl; then
        if can_apt; then
            apt_install curl ca-certificates
        else
            echo "Rust $rust_wanted is missing, and so is curl to download it." >&2
            echo "Install rustup from https://rustup.rs/, or curl (sudo apt-get install curl), and try again." >&2
            exit 1
        fi
    fi
    say "installing Rust $rust_wanted with rustup into ${CARGO_HOME:-$HOME/.cargo}"
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
        sh -s -- -y --no-modify-path --profile minimal -c rustfmt -c clippy --default-toolchain "$rust_wanted"
    PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    export PATH
fi
