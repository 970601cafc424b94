//! Phones with a flow to each of two servers (RFC 5626), of which one dies. Skipped if a program is not installed.
//! The test without a phone creates networks and needs root.

use std::time::Duration;

use strowger_interop::failover::{self, Fault, Load, Method as _, SECOND_FLOW, members_on_this_machine};
use strowger_interop::{Phone, Program, wait_until};

/// Maximum wait of a caller, and maximum time during which calls are late.
const GOAL: Duration = Duration::from_secs(2);

#[test]
fn calls_use_the_second_flow_when_the_firsts_machine_is_silent() {
    if !SECOND_FLOW.is_available() {
        return;
    }
    let outcome = failover::run(&SECOND_FLOW, Fault::Machine, &Load::SHORT);
    assert!(outcome.calls.offered > 100, "{outcome:?}");
    // A call that got 100 Trying from the isolated member keeps waiting for it.
    assert!(outcome.calls.failed <= 1, "{outcome:?}");
    assert_eq!((outcome.registrations.failed, outcome.away), (0, 0), "{outcome:?}");
    assert!(outcome.calls.longest <= GOAL && outcome.calls.outage <= GOAL, "{outcome:?}");
}

#[test]
fn phone_is_called_by_one_flow_when_the_others_member_is_killed() {
    if !Program::Baresip.available() {
        return;
    }
    for killed in [0, 1] {
        let mut servers = members_on_this_machine();
        let addresses = [0, 1].map(|number: usize| servers[number].address());
        let (mut alice, mut bob) = (Phone::start("alice"), Phone::start("bob"));
        bob.register_flows(addresses);
        assert_eq!(alice.register_over("udp", addresses[1 - killed]).kind, "REGISTER_OK");
        wait_until("both members have both flows", || servers.iter().all(|server| server.registrations() == 3));
        alice.call(&mut bob);
        servers[killed].kill();
        alice.call(&mut bob);
    }
}
