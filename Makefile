.PHONY: help run test bench clean

help:
	@echo "make run    build, create two demo users the first time, and start on port 5060 (UDP and TCP) with ./data"
	@echo "make test   install missing phones and servers (as root, on Debian) and run all tests"
	@echo "make bench  compare with Kamailio and write bench/RESULTS.md (fifty minutes; QUICK=1: a few minutes, no file)"
	@echo "make clean  remove the build output (keeps ./data)"

run:
	@sh scripts/run.sh

test:
	@sh scripts/test.sh

bench:
	@sh scripts/bench.sh

clean:
	cargo clean
