.PHONY: help run test bench dist package-test clean

help:
	@echo "make run    build, create two demo users the first time, and start on port 5060 (UDP and TCP) with ./data"
	@echo "make test   install missing phones and servers (as root, on Debian) and run all tests"
	@echo "make bench  compare with Kamailio and write bench/RESULTS.md (fifty minutes; QUICK=1: a few minutes, no file)"
	@echo "make dist   make the Debian package, the tarball and the image's files in target/dist (twenty minutes on two cores)"
	@echo "make package-test  install the Debian package in a fresh Debian, call, and purge it (as root)"
	@echo "make clean  remove the build output (keeps ./data)"

run:
	@sh scripts/run.sh

test:
	@sh scripts/test.sh

bench:
	@sh scripts/bench.sh

dist:
	@sh scripts/release.sh

package-test:
	cargo build --locked --bin strowger
	@sh scripts/package-test.sh

clean:
	cargo clean
