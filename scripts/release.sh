#!/bin/sh
# Makes everything that is published of a version, in target/dist: the Debian package and its debug symbols, the tarball with the
# static binary and its debug symbols, the folder of the container image, the bill of materials, and checksums.
# scripts/release.sh deb makes only the Debian package, scripts/release.sh tarball only the tarball and the image.
# With STROWGER_BINARY=FILE, either packages this binary instead of building one; the Debian package without debug symbols: for tests.
set -eu
what=${1:-all}
case "$what" in
all | deb | tarball) ;;
*)
    sed -n '2,5s/^# //p' "$0"
    exit 2
    ;;
esac
. "$(dirname "$0")/common.sh"
. scripts/bootstrap.sh

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
machine=$(uname -m)
target=$(mkdir -p "$(target_dir)" && cd "$(target_dir)" && pwd)
dist=$target/dist
# Files in packages have the time of the last commit, so that equal sources make equal packages.
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH

need() { have "$1" || { echo "$1 is missing (sudo apt-get install $2)" >&2 && exit 1; }; }
need dpkg-shlibdeps dpkg-dev
need objcopy binutils
need xz xz-utils

# build [TARGET]: builds the binary, without the names of this machine's folders in it, and sets `binary`.
build() {
    home=$(cd "${CARGO_HOME:-$HOME/.cargo}" && pwd)
    # The standard library's own sources, if they are installed.
    library=$(rustc --print sysroot)/lib/rustlib/src/rust
    RUSTFLAGS="--remap-path-prefix=$PWD=/strowger --remap-path-prefix=$home=/cargo --remap-path-prefix=$target=/target"
    RUSTFLAGS="$RUSTFLAGS --remap-path-prefix=$library=/rust"
    CFLAGS="-ffile-prefix-map=$PWD=/strowger -ffile-prefix-map=$home=/cargo -ffile-prefix-map=$target=/target"
    export RUSTFLAGS CFLAGS
    # shellcheck disable=SC2046,SC2086  # words, or none
    cargo build --locked --profile dist -p strowger $(features) ${1:+--target $1} --target-dir "$target/release-build"
    unset RUSTFLAGS CFLAGS
    binary=$target/release-build/${1:+$1/}dist/strowger
}

# binary_for TARGET: sets `binary` to the given one, or builds it.
binary_for() {
    if [ -n "${STROWGER_BINARY:-}" ]; then
        binary=$STROWGER_BINARY
        return
    fi
    if [ -n "$1" ]; then
        need musl-gcc musl-tools
        ! have rustup || rustup target add "$1"
    fi
    build "$1"
    check_paths "$binary"
}

# check_paths FILE: refuses a binary that names folders of this machine.
check_paths() {
    for path in "$PWD" "${CARGO_HOME:-$HOME/.cargo}" "${RUSTUP_HOME:-$HOME/.rustup}" "$target"; do
        if strings -a "$1" | grep -F -m 3 "$path/"; then
            echo "$1 names folders of this machine (above)" >&2
            exit 1
        fi
    done
}

# lay_out FOLDER BINARY [OPTIONS]: writes what packages contain besides the binary. OPTIONS are those of the build.
lay_out() {
    into=$1
    program=$2
    shift 2
    rm -rf "$into"
    mkdir -p "$into/man" "$into/completions" "$into/systemd" "$into/doc"
    "$program" man "$into/man"
    "$program" completions bash >"$into/completions/strowger"
    "$program" completions zsh >"$into/completions/_strowger"
    "$program" completions fish >"$into/completions/strowger.fish"
    cargo run --locked --quiet -p xtask -- sbom "$@" >"$into/doc/strowger.cdx.json"
    cargo run --locked --quiet -p xtask -- notices "$@" >"$into/doc/third-party-notices"
    cp packaging/systemd/*.service "$into/systemd"
}

make_deb() {
    tool cargo-deb
    # cargo-deb takes files that are built from its target folder.
    stage=$target/package
    # shellcheck disable=SC2046  # words, or none
    lay_out "$stage/release" "$1" $(features)
    cp "$1" "$stage/release/strowger"
    # The package has its own place for the binary, and its scripts create the user.
    for unit in "$stage"/release/systemd/*.service; do
        sed -i -e '1,/^$/d' -e 's|/usr/local/bin/|/usr/bin/|' "$unit"
    done
    gzip -9n "$stage"/release/man/* "$stage/release/doc/third-party-notices"
    gzip -9nc CHANGELOG.md >"$stage/release/doc/changelog.gz"
    date=$(date -u -R -d "@$SOURCE_DATE_EPOCH")
    printf 'strowger (%s-1) unstable; urgency=medium\n\n  * Version %s. The changes are in changelog.gz.\n\n -- %s  %s\n' \
        "$version" "$version" "The Strowger developers <strowger@example.invalid>" "$date" | gzip -9n >"$stage/release/doc/changelog.Debian.gz"
    symbols="--dbgsym"
    [ -z "${STROWGER_BINARY:-}" ] || symbols="--fast"
    # shellcheck disable=SC2154  # the function sets it
    CARGO_TARGET_DIR=$stage "$tool" deb --no-build --locked -p strowger $symbols --output "$dist/"
    # Debian's own name of a package with debug symbols.
    for symbols in "$dist"/*.ddeb; do
        [ ! -e "$symbols" ] || mv "$symbols" "${symbols%.ddeb}.deb"
    done
}

make_tarball() {
    name=strowger-$version-linux-$machine
    folder=$target/tarball/$name
    parts=$target/tarball/parts
    # shellcheck disable=SC2046
    lay_out "$parts" "$1" $(features) --target "$musl"
    rm -rf "$folder"
    mkdir -p "$folder/bin" "$folder/share/man/man1" "$folder/share/bash-completion/completions" \
        "$folder/share/zsh/site-functions" "$folder/share/fish/vendor_completions.d" "$folder/lib/systemd/system" \
        "$folder/share/doc/strowger"
    strip --strip-unneeded -o "$folder/bin/strowger" "$1"
    mkdir -p "$target/tarball/$name-debug"
    (
        cd "$target/tarball/$name-debug"
        objcopy --only-keep-debug --compress-debug-sections "$1" strowger.debug
        objcopy --add-gnu-debuglink=strowger.debug "$folder/bin/strowger"
    )
    cp "$parts"/man/* "$folder/share/man/man1"
    cp "$parts/completions/strowger" "$folder/share/bash-completion/completions"
    cp "$parts/completions/_strowger" "$folder/share/zsh/site-functions"
    cp "$parts/completions/strowger.fish" "$folder/share/fish/vendor_completions.d"
    cp "$parts"/systemd/* "$folder/lib/systemd/system"
    cp "$parts"/doc/* README.md CHANGELOG.md LICENSE-* packaging/strowger.toml packaging/logrotate "$folder/share/doc/strowger"
    cp -r docs/operating packaging/fail2ban "$folder/share/doc/strowger"
    pack "$name" "$target/tarball"
    pack "$name-debug" "$target/tarball"
}

# pack NAME FOLDER: packs the folder NAME in FOLDER, equal for equal contents.
pack() {
    tar --create --directory "$2" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --mode=u+rw,go+r-w "$1" | xz -9 -T1 >"$dist/$1.tar.xz"
}

# The image's files; `podman build` in this folder makes the image.
make_image() {
    image=$dist/image
    root=$image/root
    rm -rf "$image"
    mkdir -p "$root/usr/bin" "$root/usr/share/doc/strowger" "$root/etc/strowger" "$root/tmp" "$image/data"
    cp packaging/container/Containerfile "$image"
    strip --strip-unneeded -o "$root/usr/bin/strowger" "$1"
    cp packaging/container/strowger.toml "$root/etc/strowger"
    cp "$target"/tarball/parts/doc/* LICENSE-* "$root/usr/share/doc/strowger"
    printf 'strowger:x:5060:5060::/var/lib/strowger:/sbin/nologin\n' >"$root/etc/passwd"
    printf 'strowger:x:5060:\n' >"$root/etc/group"
    chmod 1777 "$root/tmp"
}

mkdir -p "$dist"
if [ "$what" != tarball ]; then
    say "the Debian package"
    rm -f "$dist"/*.deb
    binary_for ""
    make_deb "$binary"
fi
if [ "$what" != deb ]; then
    say "the tarball and the image"
    rm -rf "$dist"/*.tar.xz "$dist/image"
    musl=$machine-unknown-linux-musl
    binary_for "$musl"
    make_tarball "$binary"
    make_image "$binary"
    say "the static binary alone"
    scripts/static-test.sh "$dist/image/root/usr/bin/strowger"
fi
say "checksums"
cd "$dist"
find . -maxdepth 1 \( -name '*.deb' -o -name '*.tar.xz' \) -printf '%P\n' | sort | xargs sha256sum | tee SHA256SUMS
