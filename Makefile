.PHONY: help run test bench clean

help:
	@echo "make run    build, start on port 5060 (UDP and TCP) with ./data, make two demo users the first time"
	@echo "make test   install the phones it needs (as root, on Debian) and run every test"
	@echo "make bench  measure beside Kamailio and write bench/RESULTS.md, fifty minutes; QUICK=1 tries it in minutes"
	@echo "make clean  remove what was built (./data stays)"

run:
	@sh scripts/run.sh

test:
	@sh scripts/test.sh

bench:
	@sh scripts/bench.sh

clean:
	cargo clean
