#!/bin/sh
# Runs the benchmarks: parsing a message, then calls and registrations compared with Debian's Kamailio and a bare relay. The second
# part writes bench/RESULTS.md and takes about fifty minutes. QUICK=1 runs everything in a few minutes and writes nothing.
# Arguments are passed to the second part: scripts/bench.sh --scenarios call --rounds 3
# Close other programs first: wall time on a busy machine is unreliable.
set -eu
case "${1:-}" in
-h | --help)
    sed -n '2,5s/^# //p' "$0"
    echo "All options: cargo run --release -p strowger-bench --bin proxy -- --help"
    exit
    ;;
esac
. "$(dirname "$0")/common.sh"
. scripts/bootstrap.sh

# Server programs are in sbin, which the PATH of ordinary users may lack.
PATH="$PATH:/usr/sbin:/sbin"
export PATH

missing=""
for needed in kamailio valgrind; do have "$needed" || missing="$missing $needed"; done
if [ -n "$missing" ] && can_apt; then
    say "installing$missing"
    # Keeps the package from starting a server.
    policy=/usr/sbin/policy-rc.d
    if [ -e "$policy" ]; then policy=""; else (printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"); fi
    # shellcheck disable=SC2086  # several packages
    apt_install $missing || echo "could not install$missing"
    [ -z "$policy" ] || rm -f "$policy"
fi
have kamailio || echo "SKIPPED: Kamailio: it is not installed, and only root can install it (sudo apt-get install kamailio)"
have valgrind || echo "SKIPPED: instruction counts: valgrind is not installed (sudo apt-get install valgrind)"

say "building"
cargo build --locked --release -p strowger -p strowger-bench --bin strowger --bin bench --bin proxy
built="$(target_dir)/release"

say "parsing a message"
"$built/bench" parse

say "calls and registrations"
STROWGER_BENCH_COMMAND="make bench"
[ $# = 0 ] || STROWGER_BENCH_COMMAND="scripts/bench.sh $*"
[ -z "${QUICK:-}" ] || STROWGER_BENCH_COMMAND="QUICK=1 $STROWGER_BENCH_COMMAND"
export STROWGER_BENCH_COMMAND
if [ -n "${QUICK:-}" ]; then
    exec "$built/proxy" --quick "$@"
fi
exec "$built/proxy" "$@"
