#!/bin/sh
# Builds the server, creates two demo users on the first run, and starts it on port 5060 with its data in ./data.
# STROWGER_ADDRESS sets the address that is shown for this machine.
set -eu
. "$(dirname "$0")/common.sh"
. scripts/bootstrap.sh

# Commands would use the configuration and the users of the installed server.
if [ ! -e strowger.toml ] && [ -d /etc/strowger ]; then
    echo "Strowger is installed on this machine, with its configuration in /etc/strowger." >&2
    echo "To try this one beside it, write a strowger.toml here, with other ports in server.listen." >&2
    exit 1
fi

say "building (takes some minutes the first time)"
# shellcheck disable=SC2046  # two words, or none
cargo build --locked --release -p strowger $(features)
strowger="$(target_dir)/release/strowger"

# The address that other machines see. The route lookup sends no packet.
own_address() {
    address=$(ip -4 route get 192.0.2.1 2>/dev/null | sed -n 's/.* src \([0-9.]*\).*/\1/p')
    [ -n "$address" ] || address=$(hostname -I 2>/dev/null | tr ' ' '\n' | grep -m 1 -E '^[0-9]+(\.[0-9]+){3}$' || true)
    printf '%s\n' "${address:-127.0.0.1}"
}

random_password() { LC_ALL=C tr -dc 'a-hj-km-np-z2-9' </dev/urandom | head -c 12; }

show_account() {
    printf '  %s\n' "$1"
    printf '    user name            %s\n' "$1"
    printf '    password             %s\n' "$2"
    printf '    domain (SIP server)  %s\n' "$address"
    printf '    transport            UDP or TCP, port 5060\n\n'
}

# Shows where the API is, and on the first run a token for it.
show_administration() {
    echo "  Administration: http://127.0.0.1:8060/ (docs/operating/api.md)"
    if [ ! -e data/tokens.json ]; then
        printf '    token (administrator), shown only once  %s\n\n' "$("$strowger" token add first --role administrator 2>/dev/null)"
    else
        printf '    to make another token: %s token add NAME --role administrator\n\n' "$strowger"
    fi
}

if [ -e strowger.toml ]; then
    say "starting with strowger.toml (no demo users: add your own with '$strowger user add NAME@DOMAIN')"
    exec "$strowger" serve
fi

(umask 077 && mkdir -p data)
address=${STROWGER_ADDRESS:-$(own_address)}
users=$("$strowger" user list --json 2>/dev/null || true) # fails on the first run
if printf '%s' "$users" | grep -qF "\"alice@localhost\""; then
    say "the demo users alice and bob already exist; their domain (SIP server) is $address"
    echo "  To set a new password: $strowger user passwd alice"
else
    alice=$(random_password)
    bob=$(random_password)
    printf '%s\n' "$alice" | "$strowger" user add alice >/dev/null
    printf '%s\n' "$bob" | "$strowger" user add bob >/dev/null
    say "created two demo users; their passwords are shown only once"
    show_account alice "$alice"
    show_account bob "$bob"
    echo "  Configure each on a softphone, on this machine or on another that reaches $address. In Linphone, choose \"Use"
    echo "  a SIP account\" (third-party) and enter the values above. Then call sip:bob@$address as alice."
    echo "  README.md has the steps for Linphone, and for two baresip phones in two terminals."
fi

show_administration
say "starting on port 5060 (UDP and TCP); press Ctrl-C to stop"
exec "$strowger" serve
