#!/bin/sh
# The picture of a load report in the README:
#   sh docs/pictures/make.sh REPORT.html [HEIGHT]
# REPORT.html is what `strowger load run --html` or `strowger load compare --html` wrote; HEIGHT is how much of it is shown, in pixels: 1231 is a
# run's page as far as its second row of plots, 1412 the three rows of a comparison.
# A comparison is two such runs, here of a server on the first core and the generator on the second, and what lays them beside each other:
#   taskset -c 1 strowger load run --to udp:127.0.0.1:5060 --rate 1000 --busy-poll --users 1000 --sockets 8 --warm-up 35s --time 30s --json NAME.json
#   strowger load compare kamailio.json strowger.json --html REPORT.html
# Needs chromium and pngquant (Debian: apt-get install chromium pngquant).
set -eu

report=${1:?usage: sh docs/pictures/make.sh REPORT.html [HEIGHT]}
height=${2:-1231}
picture=$(dirname "$0")/load-report.png
most_bytes=300000

for tool in chromium pngquant; do
  command -v "$tool" >/dev/null || { echo "$0: $tool is missing: apt-get install chromium pngquant" >&2; exit 1; }
done
folder=$(cd "$(dirname "$report")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/profile" \
  --window-size="1280,$height" --screenshot="$work/page.png" "file://$folder/$(basename "$report")" 2>"$work/log" ||
  { cat "$work/log" >&2; exit 1; }
pngquant --speed 1 --strip --force --output "$picture" 128 "$work/page.png"
bytes=$(wc -c <"$picture")
echo "$picture: $bytes bytes"
[ "$bytes" -le "$most_bytes" ] || { echo "$0: more than $most_bytes bytes; show less of it" >&2; exit 1; }
