//! A second proxy with a second database: P1 and D1 die, and P2 with D2 serves the users registered at P1. These
//! tests create networks and need root. Skipped if MariaDB is not installed.

use std::time::Duration;

use strowger_interop::failover::{self, DATABASE, Fault, Load, Method as _};

/// Maximum outage.
const OUTAGE: Duration = Duration::from_secs(2);

#[test]
fn second_proxy_has_all_acknowledged_when_first_and_database_die() {
    after(Fault::ProcessAndEngine);
}

#[test]
fn first_proxy_uses_the_second_database_when_its_own_dies() {
    after(Fault::Engine);
}

fn after(fault: Fault) {
    if !DATABASE.is_available() {
        return;
    }
    let outcome = failover::run(&DATABASE, fault, &Load::SHORT);
    println!("{fault}: {} away, {} lost of {}: {outcome:?}", outcome.away, outcome.lost, outcome.acknowledged);
    assert!(outcome.calls.offered > 100 && outcome.registrations.offered > 50, "{outcome:?}");
    assert_eq!(outcome.calls.failed, 0, "{outcome:?}");
    assert!(outcome.calls.outage <= OUTAGE, "{outcome:?}");
    // Changes not yet sent by D1 are missing until it returns. A few users register per second, and replication takes
    // milliseconds.
    assert!(outcome.away <= 2 && outcome.lost == 0, "{outcome:?}");
}
