#!/bin/sh
# The part of package-test.sh that runs inside of the fresh Debian, as root, with systemd as its first process.
set -eu
fail() { echo "FAILED: $*" >&2 && exit 1; }
expect() { [ "$2" = "$3" ] || fail "$1: expected '$2', found '$3'"; }
# Everything that a package can leave behind.
list_files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /var/tmp -o -path /root -o -path /srv -o -path /run -o -path /var/cache \
        -o -path /var/log/journal -o -path /var/log/apt -o -path /var/lib/apt -o -path /var/lib/dpkg \) -prune -o -print | sort
}
# wait_for COMMAND…: repeats the command until it succeeds, at most 20 seconds.
wait_for() {
    for _ in $(seq 200); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    journalctl --unit strowger --no-pager --lines 30 >&2
    fail "not within 20 s: $*"
}
apt() { apt-get --quiet --yes "$@" >/srv/log 2>&1 || { cat /srv/log && fail "apt-get $*"; }; }
of_service() { systemctl show --property "$1" --value strowger; }
call() {
    report=$(strowger load run --to udp:127.0.0.1:5060 --domain example.com --users-file /srv/phones.csv --calls 1)
    case "$report" in *"sent 1 = carried 1"*) ;; *) fail "the call: $report" ;; esac
}

list_files >/srv/before
apt install --no-install-recommends /srv/strowger.deb

# What the package promises about its files.
expect "the shell" /usr/sbin/nologin "$(getent passwd strowger | cut -d: -f7)"
expect "the configuration" "640 root strowger" "$(stat -c '%a %U %G' /etc/strowger/strowger.toml)"
for folder in /var/lib/strowger /var/log/strowger; do
    expect "$folder" "750 strowger strowger" "$(stat -c '%a %U %G' $folder)"
done
man -w strowger strowger-ctl-drain >/dev/null || fail "manual pages are missing"
man strowger-ctl-drain | grep -q "Stops sending new calls" || fail "a manual page is empty"
bash -c '. /usr/share/bash-completion/completions/strowger && complete -p strowger' >/dev/null || fail "completions"

# The service runs, as its user, and only this machine reaches it.
wait_for strowger ctl status
expect "the service" "enabled active" "$(systemctl is-enabled strowger) $(systemctl is-active strowger)"
expect "its user" strowger "$(ps -o user= -p "$(of_service MainPID)")"
expect "strowger-watch" "disabled inactive" "$(systemctl is-enabled strowger-watch || true) $(systemctl is-active strowger-watch || true)"
ss -Hlnut | grep -q "127.0.0.1:5060" || fail "nothing listens: $(ss -Hlnut)"
! ss -Hlnut | grep 5060 | grep -v "127.0.0.1:5060" || fail "a public listener, unasked (above)"

# The first steps of docs/operating/install.md, without the public address.
sed -i -e 's/^domains = .*/domains = ["example.com"]/' -e 's/^# file = /file = /' /etc/strowger/strowger.toml
systemctl restart strowger
for user in alice bob; do echo "secret-of-$user" | strowger user add "$user@example.com" >/dev/null; done
printf 'alice@example.com,secret-of-alice\nbob@example.com,secret-of-bob\n' >/srv/phones.csv
wait_for strowger ctl status
call
wait_for grep -q '"callee":"sip:bob@example.com"' /var/log/strowger/cdr.jsonl

# Rotation: the next record is in a new file.
logrotate --force /etc/logrotate.d/strowger
wait_for test -e /var/log/strowger/cdr.jsonl
call
wait_for grep -q '"callee"' /var/log/strowger/cdr.jsonl
expect "records after rotation" 1 "$(wc -l </var/log/strowger/cdr.jsonl)"
systemctl reload strowger || fail "the reload"

# An upgrade replaces the process while the service stays active. A stop ends the earlier process too.
main_process_is() { [ "$(of_service MainPID)" = "$1" ]; }
before=$(of_service MainPID)
since=$(of_service ActiveEnterTimestampMonotonic)
strowger upgrade --json >/srv/log 2>&1 || fail "the upgrade: $(cat /srv/log)"
after=$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' /srv/log)
[ "$before" != "$after" ] || fail "the upgrade starts no process: $(cat /srv/log)"
wait_for main_process_is "$after"
expect "the service" "active $since" "$(systemctl is-active strowger) $(of_service ActiveEnterTimestampMonotonic)"
expect "the process that answers" "$after" "$(strowger ctl status --json | sed -n 's/^ *"pid": *\([0-9]*\).*/\1/p' | head -n 1)"
expect "the processes" "$(printf '%s\n' "$before" "$after" | sort)" "$(pgrep -x -u strowger strowger | sort)"
call
systemctl stop strowger
expect "the stopped service" "inactive success" "$(systemctl is-active strowger || true) $(of_service Result)"
! pgrep -x strowger || fail "processes are left after the stop (above)"
systemctl start strowger
wait_for strowger ctl status

# An update upgrades the running service, and keeps the configuration and the users.
before=$(of_service MainPID)
since=$(of_service ActiveEnterTimestampMonotonic)
apt install --reinstall /srv/strowger.deb
[ "$before" != "$(of_service MainPID)" ] || fail "the update does not upgrade the service: $(cat /srv/log)"
expect "the service" "active $since" "$(systemctl is-active strowger) $(of_service ActiveEnterTimestampMonotonic)"
call
# One that cannot be upgraded is restarted.
sed -i -e 's/^\[server\]/[server]\nworkers = 3/' /etc/strowger/strowger.toml
apt install --reinstall /srv/strowger.deb
grep -q "server.workers: .*restart the server" /srv/log || fail "the update does not say why it restarts: $(cat /srv/log)"
wait_for strowger ctl status
[ "$since" != "$(of_service ActiveEnterTimestampMonotonic)" ] || fail "the update does not restart the service"
expect "the configuration" "640 root strowger" "$(stat -c '%a %U %G' /etc/strowger/strowger.toml)"
grep -q '^domains = \["example.com"\]' /etc/strowger/strowger.toml || fail "the operator's configuration is lost"
strowger user list | grep -q alice@example.com || fail "the users are lost"
expect "crashes" 0 "$(of_service NRestarts)"

# As after a database that root has made before the first start.
systemctl stop strowger
rm -r /var/lib/strowger/*
for user in alice bob; do echo "secret-of-$user" | strowger user add "$user@example.com" >/dev/null; done
systemctl start strowger
wait_for strowger ctl status
call

apt purge strowger
grep -q "/var/lib/strowger has data and is kept" /srv/log || fail "the purge does not say what it keeps: $(cat /srv/log)"
expect "the service" inactive "$(systemctl is-active strowger || true)"
left=$(list_files | comm -13 /srv/before - | grep -v -x -e '/var/lib/strowger\(/.*\)\?' -e '/var/log/strowger\(/.*\)\?' \
    -e '/var/lib/logrotate/status' -e '/var/log/dpkg.log' -e '/etc/\(passwd\|group\|shadow\|gshadow\|subuid\|subgid\)-' || true)
[ -z "$left" ] || fail "the purged package leaves $left"
lost=$(list_files | comm -23 /srv/before -)
[ -z "$lost" ] || fail "the purge removes files of others: $lost"
echo "installed, called, rotated, upgraded, updated and purged: all as promised"
