//! A million users at once, each a session that thinks for an hour, in less than a gigabyte.

use std::net::SocketAddr;
use std::sync::Arc;

use strowger_foundation::Timestamp;
use strowger_traffic::driver::{Driver, Outbox, Setup};
use strowger_traffic::law::Law;
use strowger_traffic::population::Users;
use strowger_traffic::script::ScriptBuilder;

#[derive(Default)]
struct Nowhere(Vec<u8>);

impl Outbox for Nowhere {
    fn slot(&mut self, _: u32) -> &mut Vec<u8> {
        self.0.clear();
        &mut self.0
    }

    fn commit(&mut self, _: u32, _: SocketAddr) {}

    fn connect(&mut self, _: SocketAddr, _: bool) -> Option<u32> {
        None
    }

    fn close(&mut self, _: u32) {}
}

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4096
}

#[test]
fn a_million_users_fit_into_a_gibibyte() {
    let mut script = ScriptBuilder::new("user");
    let again = script.mark();
    script.place(again).pause(Law::parse("exp(mean=1h)").expect("a law")).jump(again);
    let scripts = vec![script.build().expect("a script")];
    let users = Arc::new(Users::generated("user%7", "secret%", "example.com", 1_000_000));
    let at = SocketAddr::from(([127, 0, 0, 1], 5060));
    let before = resident();
    let mut driver = Driver::new(Setup::new(scripts.into(), users, at, at));
    let mut nowhere = Nowhere::default();
    for user in 0..1_000_000 {
        driver.begin(Timestamp::from_millis(1), 0, (user, user), &mut nowhere).expect("no limit is near");
    }
    assert_eq!(driver.running(), 1_000_000);
    let bytes = (resident() - before) / 1_000_000;
    println!("{bytes} bytes a user");
    assert!(bytes < 600, "{bytes} bytes a user");
    // An hour later most have thought.
    driver.handle_timeout(Timestamp::from_millis(3_600_000), &mut nowhere);
    assert_eq!(driver.running(), 1_000_000);
}
