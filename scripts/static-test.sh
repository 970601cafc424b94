#!/bin/sh
# Runs a static binary as root in a folder that has nothing else, in a network of its own: the server starts, stores a user, and
# connects calls. Argument: the binary.
set -eu
binary=$(realpath "$1")
. "$(dirname "$0")/common.sh"

if ! is_root; then
    echo "SKIPPED: the static binary alone: only root can change the root folder"
    exit
fi
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
trap 'exit 1' INT TERM
cp "$binary" "$root/strowger"
cat >"$root/strowger.toml" <<'END'
[server]
listen  = ["udp:127.0.0.1:5060", "tcp:127.0.0.1:5060"]
domains = ["example.com"]
data    = "/data"
workers = 1
END
printf 'alice@example.com,secret-of-alice\nbob@example.com,secret-of-bob\n' >"$root/phones.csv"

# All processes of the namespace end with its first.
unshare --net --pid --fork --kill-child sh -eu -c '
    ip link set lo up
    for user in alice bob; do
        echo "secret-of-$user" | chroot "$1" /strowger user add "$user@example.com" -c /strowger.toml >/dev/null
    done
    chroot "$1" /strowger serve -c /strowger.toml 2>"$1/log" &
    for _ in $(seq 100); do
        chroot "$1" /strowger ctl status -c /strowger.toml >/dev/null 2>&1 && break
        sleep 0.1
    done
    for transport in udp tcp; do
        report=$(chroot "$1" /strowger load run --to "$transport:127.0.0.1:5060" --domain example.com --users-file /phones.csv --calls 20 --rate 20)
        case "$report" in
        *"sent 20 = carried 20"*) ;;
        *) echo "FAILED: calls over $transport: $report" >&2 && cat "$1/log" >&2 && exit 1 ;;
        esac
    done
' sh "$root"
echo "started and connected calls in a folder with nothing else"
