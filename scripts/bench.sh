#!/bin/sh
# Runs the benchmarks. Close other programs first: wall time on a busy machine says little.
set -eu
. "$(dirname "$0")/common.sh"
. scripts/bootstrap.sh
exec cargo run --locked --release -p strowger-bench --bin bench -- parse
