#!/bin/sh
# Boots a fresh Debian 12 in a folder and namespaces of its own, without a network, and installs the Debian package there: the service
# starts, two phones call, call records are rotated, the running server is upgraded, the package is updated and purged. Nothing but data
# may remain.
# Argument: the package. Without one, it makes one from the binary of `cargo build`.
set -eu
. "$(dirname "$0")/common.sh"

skip() {
    echo "SKIPPED: the Debian package: $1"
    [ "${STROWGER_REQUIRE_INTEROP:-}" != 1 ]
    exit
}
is_root || skip "only root can make a root folder of Debian"
for needed in mmdebstrap lintian systemd-nspawn; do
    have "$needed" || skip "$needed is not installed (sudo apt-get install mmdebstrap lintian systemd-container)"
done

deb=${1:-}
if [ -z "$deb" ]; then
    STROWGER_BINARY=$(target_dir)/debug/strowger scripts/release.sh deb
    deb=$(ls "$(target_dir)"/dist/strowger_*.deb)
fi

say "lintian"
lintian --fail-on error,warning --allow-root "$deb"

work=$(mktemp -d)
machine=""
first=""
clean_up() {
    # All processes of a process namespace end with its first.
    for process in $first $machine; do kill -KILL "$process" 2>/dev/null || true; done
    if [ -n "$machine" ]; then wait "$machine" 2>/dev/null || true; fi
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

say "the bill of materials"
dpkg-deb --extract "$deb" "$work/files"
if ! { python3 -m venv "$work/venv" && "$work/venv/bin/pip" install --quiet 'cyclonedx-python-lib[json-validation]==11.12.0'; }; then
    skip "the validator of CycloneDX cannot be installed (sudo apt-get install python3-venv)"
fi
"$work/venv/bin/python" - "$work/files/usr/share/doc/strowger/strowger.cdx.json" <<'END'
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

error = JsonStrictValidator(SchemaVersion.V1_5).validate_str(open(sys.argv[1]).read())
sys.exit(f"the bill of materials is not CycloneDX 1.5: {error}" if error else 0)
END

say "the jail of fail2ban"
if have fail2ban-client; then
    # The machine's own configuration with the package's files, of which fail2ban only prints what it would do.
    cp -r /etc/fail2ban "$work/fail2ban"
    rm -f "$work"/fail2ban/*/strowger.*
    cp -r "$work/files/etc/fail2ban/." "$work/fail2ban"
    jails() { fail2ban-client -c "$work/fail2ban" -d; }
    jails >"$work/jails"
    ! grep "'strowger'" "$work/jails" || { echo "FAILED: the jail is on, unasked (above)" && exit 1; }
    printf '[strowger]\nenabled = true\n' >"$work/fail2ban/jail.d/strowger.local"
    jails >"$work/jails"
    for expected in "\['add', 'strowger', 'systemd'\]" "'strowger', 'addjournalmatch', .*_SYSTEMD_UNIT=strowger.service" \
        "'strowger', 'addfailregex'.*wrong-password"; do
        grep -q "$expected" "$work/jails" || { grep strowger "$work/jails" && echo "FAILED: no $expected" && exit 1; }
    done
else
    echo "SKIPPED: the jail: fail2ban is not installed (sudo apt-get install fail2ban)"
    [ "${STROWGER_REQUIRE_INTEROP:-}" != 1 ]
fi

say "a fresh Debian in $work"
# With the packages that ours needs, because the installation has no network.
root=$work/root
mmdebstrap --quiet --variant=apt --include=systemd-sysv,adduser,ca-certificates,iproute2,logrotate,man-db,procps \
    --aptopt='Acquire::Check-Valid-Until "false"' bookworm "$root" 2>"$work/log" ||
    { tail -n 20 "$work/log" && skip "mmdebstrap cannot make a root folder"; }
cp "$deb" "$root/srv/strowger.deb"
cp scripts/package-test-inside.sh "$root/srv/inside.sh"

say "booting it"
systemd-nspawn --quiet --register=no --keep-unit --private-network --console=read-only --directory "$root" --boot \
    >"$work/log" 2>&1 </dev/null &
machine=$!
inside() { nsenter --target "$first" --all /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C.UTF-8 "$@"; }
for _ in $(seq 100); do
    first=$(pgrep --parent "$machine" --oldest || true)
    [ -n "$first" ] && inside systemctl is-system-running 2>/dev/null | grep -q "running\|degraded" && break
    kill -0 "$machine" 2>/dev/null || { cat "$work/log" && skip "systemd-nspawn cannot boot it"; }
    sleep 0.2
done

say "in it"
inside timeout 180 sh /srv/inside.sh
