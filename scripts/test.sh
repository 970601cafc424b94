#!/bin/sh
# Everything that has to be true before a change goes in. Ends with the output of `cargo test`.
set -eu
. "$(dirname "$0")/common.sh"
. scripts/bootstrap.sh

# Programs of servers lie where the PATH of people who are not root does not lead.
is_there() { have "$1" || [ -x "/usr/sbin/$1" ]; }

# The real phones, the name server, and what makes networks. linphone-cli pulls in a desktop: it is used where it is there and
# never installed.
missing=""
for needed in sipp:sip-tester baresip:baresip named:bind9 ip:iproute2 nft:nftables conntrack:conntrack \
    keepalived:keepalived kamailio:kamailio redis-server:redis-server mariadbd:mariadb-server \
    rsync:rsync lsof:lsof; do
    is_there "${needed%:*}" || missing="$missing ${needed#*:}"
done
# A library that MariaDB commits on several servers with; it copies servers by rsync.
[ -e /usr/lib/galera/libgalera_smm.so ] || missing="$missing galera-4"
# Debian has it in a folder of its version.
ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || is_there postgres || missing="$missing postgresql"
# Kamailio's tables for each database, and what it speaks to that with.
for needed in mysql:mysql postgres:postgres db_sqlite:sqlite; do
    [ -d "/usr/share/kamailio/${needed%:*}" ] || missing="$missing kamailio-${needed#*:}-modules"
done
if [ -n "$missing" ] && can_apt; then
    say "installing$missing"
    # bind9 would start a name server for this machine, and the others their own.
    policy=/usr/sbin/policy-rc.d
    if [ -e "$policy" ]; then policy=""; else (printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"); fi
    # shellcheck disable=SC2086  # several packages
    apt_install $missing || echo "could not install$missing"
    [ -z "$policy" ] || rm -f "$policy"
fi
have sipp || echo "SKIPPED: the SIPp scenarios, for sipp is not installed (sudo apt-get install sip-tester)"
have baresip || echo "SKIPPED: the calls between phones, for baresip is not installed (sudo apt-get install baresip)"
is_there named || echo "SKIPPED: calls to host names, for named is not installed (sudo apt-get install bind9)"
if ! is_root; then
    echo "SKIPPED: phones behind NAT, calls across address families and takeovers, for only root may make network namespaces"
    echo "SKIPPED: registrations on a full disk, for only root may mount a small one"
elif ! { is_there ip && is_there nft && is_there conntrack; }; then
    echo "SKIPPED: phones behind NAT, for a program is missing (sudo apt-get install iproute2 nftables conntrack)"
elif ! is_there keepalived; then
    echo "SKIPPED: one balancer taking over from another, for keepalived is not installed (sudo apt-get install keepalived)"
fi
have linphonec || echo "SKIPPED: the tests with linphonec, which is not installed (sudo apt-get install linphone-cli)"

# What is left out; a failure where everything has to be there.
skip() {
    echo "SKIPPED: $1"
    [ "${STROWGER_REQUIRE_INTEROP:-}" != 1 ]
}

# The instructions of the core's work, by callgrind; the limits stand in the benchmark itself.
count_instructions() {
    if ! have valgrind && ! { can_apt && apt_install valgrind; }; then
        skip "the instruction counts, for valgrind is not installed (sudo apt-get install valgrind)"
        return
    fi
    # The runner has to be of the library's version. It is kept, for it takes minutes to build.
    version=$(sed -n '/^name = "gungraun-runner"$/{n;s/^version = "\(.*\)"$/\1/p;}' Cargo.lock)
    tools=$(target_dir)/tools/gungraun-runner-$version
    if [ ! -x "$tools/bin/gungraun-runner" ]; then
        say "building gungraun-runner $version into $tools (this once)"
        log=$(mktemp)
        if ! cargo install --locked --quiet --root "$tools" --target-dir "$tools/build" \
            --version "$version" gungraun-runner >"$log" 2>&1; then
            tail -n 20 "$log"
            rm -rf "$log" "$tools"
            skip "the instruction counts, for gungraun-runner $version cannot be built"
            return
        fi
        rm -rf "$log" "$tools/build"
    fi
    PATH="$(cd "$tools/bin" && pwd):$PATH" cargo bench --locked -p strowger-balancer -p strowger-shard --bench instructions
}

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
say "instructions of the core's work"
count_instructions
say "tests"
cargo test --locked --workspace
