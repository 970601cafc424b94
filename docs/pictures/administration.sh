#!/bin/sh
# Makes the pictures of the administration page from a running server:
#   cargo build --locked --bin strowger && sh docs/pictures/administration.sh
# It takes three minutes. Requires chromium and pngquant (Debian: apt-get install chromium pngquant).
set -eu

pictures=$(cd "$(dirname "$0")" && pwd)
most_bytes=100000

for tool in chromium pngquant cargo; do
  command -v "$tool" >/dev/null || { echo "$0: $tool is missing: apt-get install chromium pngquant" >&2; exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cargo run --locked --quiet -p strowger-interop --bin administration-pictures "$work"
for picture in "$work"/*.png; do
  target=$pictures/$(basename "$picture")
  pngquant --speed 1 --strip --force --output "$target" 64 "$picture"
  bytes=$(wc -c <"$target")
  echo "$target: $bytes bytes"
  [ "$bytes" -le "$most_bytes" ] || { echo "$0: more than $most_bytes bytes" >&2; exit 1; }
done
