#!/bin/sh
# Runs all checks that a change must pass. Ends with the output of `cargo test`.
set -eu
. "$(dirname "$0")/common.sh"
. scripts/bootstrap.sh

# Server programs are in sbin, which the PATH of ordinary users may lack.
is_there() { have "$1" || [ -x "/usr/sbin/$1" ]; }

# Phones, servers and network tools. linphone-cli depends on a desktop, so it is used if present but never installed.
missing=""
for needed in sipp:sip-tester baresip:baresip named:bind9 ip:iproute2 nft:nftables conntrack:conntrack \
    keepalived:keepalived kamailio:kamailio redis-server:redis-server mariadbd:mariadb-server \
    rsync:rsync lsof:lsof; do
    is_there "${needed%:*}" || missing="$missing ${needed#*:}"
done
# The library for MariaDB's multi-primary replication; it copies servers with rsync.
[ -e /usr/lib/galera/libgalera_smm.so ] || missing="$missing galera-4"
# Debian installs it into a folder named after its version.
ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || is_there postgres || missing="$missing postgresql"
# Kamailio's table definitions and client module for each database.
for needed in mysql:mysql postgres:postgres db_sqlite:sqlite; do
    [ -d "/usr/share/kamailio/${needed%:*}" ] || missing="$missing kamailio-${needed#*:}-modules"
done
if [ -n "$missing" ] && can_apt; then
    say "installing$missing"
    # Keeps the packages from starting their servers.
    policy=/usr/sbin/policy-rc.d
    if [ -e "$policy" ]; then policy=""; else (printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"); fi
    # shellcheck disable=SC2086  # several packages
    apt_install $missing || echo "could not install$missing"
    [ -z "$policy" ] || rm -f "$policy"
fi
have sipp || echo "SKIPPED: the SIPp scenarios: sipp is not installed (sudo apt-get install sip-tester)"
have baresip || echo "SKIPPED: the calls between phones: baresip is not installed (sudo apt-get install baresip)"
is_there named || echo "SKIPPED: calls to host names: named is not installed (sudo apt-get install bind9)"
if ! is_root; then
    echo "SKIPPED: phones behind NAT, calls across address families and takeovers: only root can create network namespaces"
    echo "SKIPPED: registrations on a full disk: only root can mount a small one"
elif ! { is_there ip && is_there nft && is_there conntrack; }; then
    echo "SKIPPED: phones behind NAT: a program is missing (sudo apt-get install iproute2 nftables conntrack)"
elif ! is_there keepalived; then
    echo "SKIPPED: takeover between two balancers: keepalived is not installed (sudo apt-get install keepalived)"
fi
have linphonec || echo "SKIPPED: the tests with linphonec: it is not installed (sudo apt-get install linphone-cli)"

# skip TEXT: reports that a step is skipped; fails if STROWGER_REQUIRE_INTEROP=1 requires all of them.
skip() {
    echo "SKIPPED: $1"
    [ "${STROWGER_REQUIRE_INTEROP:-}" != 1 ]
}

# Counts the core's instructions with callgrind. The limits are in the benchmarks.
count_instructions() {
    if ! have valgrind && ! { can_apt && apt_install valgrind; }; then
        skip "the instruction counts: valgrind is not installed (sudo apt-get install valgrind)"
        return
    fi
    # The runner must have the version of the library. It takes minutes to build, so it is kept.
    version=$(sed -n '/^name = "gungraun-runner"$/{n;s/^version = "\(.*\)"$/\1/p;}' Cargo.lock)
    tools=$(target_dir)/tools/gungraun-runner-$version
    if [ ! -x "$tools/bin/gungraun-runner" ]; then
        say "building gungraun-runner $version into $tools (only once)"
        log=$(mktemp)
        if ! cargo install --locked --quiet --root "$tools" --target-dir "$tools/build" \
            --version "$version" gungraun-runner >"$log" 2>&1; then
            tail -n 20 "$log"
            rm -rf "$log" "$tools"
            skip "the instruction counts: gungraun-runner $version cannot be built"
            return
        fi
        rm -rf "$log" "$tools/build"
    fi
    PATH="$(cd "$tools/bin" && pwd):$PATH" cargo bench --locked -p strowger-balancer -p strowger-shard --bench instructions
}

# The messages of RFC 4475 are not part of this repository.
if [ -z "${STROWGER_CORPUS:-}" ] && [ -d ../shared/corpus ]; then
    STROWGER_CORPUS=$(cd ../shared/corpus && pwd)
    export STROWGER_CORPUS
fi
[ -n "${STROWGER_CORPUS:-}" ] || echo "SKIPPED: the messages of RFC 4475: STROWGER_CORPUS does not name their folder"

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
    echo "SKIPPED: licences of dependencies: cargo-deny is not installed (cargo install --locked cargo-deny)"
fi
say "the server"
cargo build --locked --bin strowger
say "instruction counts"
count_instructions
say "tests"
cargo test --locked --workspace
