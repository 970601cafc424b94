//! Servers of both stages are killed and cut off, and clusters get other shares of the users, while phones register, refresh and unregister by
//! any entrance: who is registered is reached by all of them, and who is not is not.
//!
//! Here of everything a little. `cargo run -p strowger-interop --bin checker -- --stages` does it at length; `STROWGER_CHECKER_REBALANCINGS` and
//! others of that kind say how much.

use strowger_interop::checker::stages::{Size, check};

#[test]
fn nothing_is_lost_and_nothing_returns_where_servers_die_and_users_move() {
    let size = Size::SMALL.or_as_the_environment_says();
    let outcome = check(&size);
    assert!(outcome.told.is_empty(), "{outcome}\n{}", outcome.told.join("\n"));
    assert!(outcome.acknowledged >= size.acknowledged, "{outcome}");
}
