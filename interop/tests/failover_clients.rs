//! What callers notice when a server dies whose clients know another one. Networks of their own are made, so only root can run these;
//! skipped where a program is not installed.

use std::time::Duration;

use strowger_interop::failover::{self, Fault, Load, METHODS, Outcome};

#[test]
fn all() {
    for method in METHODS {
        for fault in method.faults() {
            let outcome: Outcome = failover::run(method, *fault, &Load::SHORT);
            println!("{} {fault}: {outcome:?}", method.name());
        }
    }
    let _ = Duration::ZERO;
}
