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
    keepalived:keepalived kamailio:kamailio rtpengine:rtpengine-daemon redis-server:redis-server mariadbd:mariadb-server \
    mmdebstrap:mmdebstrap lintian:lintian systemd-nspawn:systemd-container prometheus:prometheus rsync:rsync lsof:lsof clang:clang openssl:openssl chromium:chromium npm:npm haproxy:haproxy \
    fail2ban-regex:fail2ban systemd-analyze:systemd strace:strace tshark:tshark sngrep:sngrep; do
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
# Kamailio's module for TLS.
ls /usr/lib/*/kamailio/modules/tls.so >/dev/null 2>&1 || missing="$missing kamailio-tls-modules"
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
have chromium || echo "SKIPPED: calls from a web page: chromium is not installed (sudo apt-get install chromium)"
have npm || echo "SKIPPED: calls from a web page: npm is not installed (sudo apt-get install npm)"
is_there haproxy || echo "SKIPPED: connections through a balancer: haproxy is not installed (sudo apt-get install haproxy)"
is_there named || echo "SKIPPED: calls to host names: named is not installed (sudo apt-get install bind9)"
if ! is_root; then
    echo "SKIPPED: phones behind NAT, calls across address families and takeovers: only root can create network namespaces"
    echo "SKIPPED: registrations on a full disk: only root can mount a small one"
elif ! { is_there ip && is_there nft && is_there conntrack; }; then
    echo "SKIPPED: phones behind NAT: a program is missing (sudo apt-get install iproute2 nftables conntrack)"
elif ! is_there keepalived; then
    echo "SKIPPED: takeover between two balancers: keepalived is not installed (sudo apt-get install keepalived)"
fi
have clang || echo "SKIPPED: the packet probe: clang is not installed (sudo apt-get install clang)"
have prometheus || echo "SKIPPED: metrics in Prometheus: prometheus is not installed (sudo apt-get install prometheus)"
have openssl || echo "SKIPPED: TLS with real peers: openssl is not installed (sudo apt-get install openssl)"
have tshark || echo "SKIPPED: packet captures in Wireshark: tshark is not installed (sudo apt-get install tshark)"
have sngrep || echo "SKIPPED: a collector of HEP: sngrep is not installed (sudo apt-get install sngrep)"
have rtpengine || echo "SKIPPED: media engines: rtpengine is not installed (sudo apt-get install rtpengine-daemon)"
have fail2ban-regex || echo "SKIPPED: log lines for fail2ban: fail2ban is not installed (sudo apt-get install fail2ban)"
{ have systemd-analyze && have strace; } || echo "SKIPPED: the confinement by systemd: a program is missing (sudo apt-get install systemd strace)"
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
    if ! tool gungraun-runner; then
        skip "the instruction counts: gungraun-runner cannot be built"
        return
    fi
    PATH="$(dirname "$tool"):$PATH" cargo bench --locked -p strowger-balancer -p strowger-shard --bench instructions
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
# shellcheck disable=SC2046  # two words, or none
cargo clippy --locked --workspace --all-targets $(features) -- -D warnings
say "rules of the repository"
cargo run --locked --quiet -p xtask -- check
if have cargo-deny; then
    say "licences and sources of dependencies"
    cargo deny check licenses bans sources
else
    echo "SKIPPED: licences of dependencies: cargo-deny is not installed (cargo install --locked cargo-deny)"
fi
say "the server"
# shellcheck disable=SC2046
cargo build --locked --bin strowger $(features)
say "the Debian package"
scripts/package-test.sh
say "instruction counts"
count_instructions
say "tests"
# shellcheck disable=SC2046
cargo test --locked --workspace $(features)
