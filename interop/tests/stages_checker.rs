//! Servers of both stages are killed and isolated, and the clusters' shares of the users change, while phones
//! register, refresh and unregister through any first-stage server. Registered users must be reached through all of
//! these, others must not.
//!
//! This is a short run. `cargo run -p strowger-interop --bin checker -- --stages` does a full one, whose size is set
//! by `STROWGER_CHECKER_REBALANCINGS` and similar variables.

use strowger_interop::checker::stages::{Size, check};

#[test]
fn nothing_is_lost_or_returns_when_servers_die_and_users_move() {
    let size = Size::SMALL.or_as_the_environment_says();
    let outcome = check(&size);
    assert!(outcome.told.is_empty(), "{outcome}\n{}", outcome.told.join("\n"));
    assert!(outcome.acknowledged >= size.acknowledged, "{outcome}");
}
