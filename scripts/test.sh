#!/bin/sh
# Everything that has to be true before a change goes in. Ends with the output of `cargo test`.
set -eu
. "$(dirname "$0")/common.sh"
. scripts/bootstrap.sh

# The real phones. linphone-cli pulls in a desktop: it is used where it is there and never installed.
missing=""
have sipp || missing="$missing sip-tester"
have baresip || missing="$missing baresip"
if [ -n "$missing" ] && can_apt; then
    say "installing$missing"
    # shellcheck disable=SC2086  # several packages
    apt_install $missing || echo "could not install$missing"
fi
have sipp || echo "SKIPPED: the SIPp scenarios, for sipp is not installed (sudo apt-get install sip-tester)"
have baresip || echo "SKIPPED: the calls between phones, for baresip is not installed (sudo apt-get install baresip)"
have linphonec || echo "SKIPPED: the tests with linphonec, which is not installed (sudo apt-get install linphone-cli)"

# RFC 4475's messages are not part of this repository.
if [ -z "${STROWGER_CORPUS:-}" ] && [ -d ../shared/corpus ]; then
    STROWGER_CORPUS=$(cd ../shared/corpus && pwd)
    export STROWGER_CORPUS
fi
[ -n "${STROWGER_CORPUS:-}" ] || echo "SKIPPED: RFC 4475's messages, for STROWGER_CORPUS names no folder that has them"

say "format"
cargo fmt --all --check
say "lints"
cargo clippy --locked --workspace --all-targets -- -D warnings
say "rules of the repository"
cargo run --locked --quiet -p xtask -- check
if have cargo-deny; then
    say "licences and sources of dependencies"
    cargo deny check licenses bans sources
else
    echo "SKIPPED: licences of dependencies, for cargo-deny is not installed (cargo install --locked cargo-deny)"
fi
say "the server"
cargo build --locked --bin strowger
say "tests"
cargo test --locked --workspace
