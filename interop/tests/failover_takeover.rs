//! Two registrars, one address: the registrar holding the address dies, and its phones can be called again within two
//! seconds. keepalived moves the address with the configuration shipped to operators. These tests create networks and
//! need root. Skipped if keepalived is not installed.

use std::time::Duration;

use strowger_interop::failover::{self, Deployment, Fault, Load, Method as _, Outcome, Phones, TAKEOVER, Takeover};
use strowger_interop::{PATIENCE, poll};

/// Maximum outage.
const OUTAGE: Duration = Duration::from_secs(2);
const BEHIND_NAT: &str = "translated";

#[test]
fn phones_are_reachable_after_the_registrar_is_killed() {
    let Some((mut pair, phone)) = start() else { return };
    let outcome = failover::observe(&mut pair, Fault::Process, &load());
    assert_all_is_well(&outcome);
    pair.mend(Fault::Process);
    assert_nothing_is_split(&pair);
    drop(phone);
}

#[test]
fn phones_are_reachable_after_a_cut_off_and_nothing_stays_split() {
    let Some((mut pair, phone)) = start() else { return };
    let outcome = failover::observe(&mut pair, Fault::Machine, &load());
    assert_all_is_well(&outcome);
    assert_eq!(pair.holders(), [0, 1], "who is cut off keeps the address for itself");
    pair.mend(Fault::Machine);
    assert_nothing_is_split(&pair);
    drop(phone);
}

#[test]
fn phones_stay_reachable_when_the_address_is_moved() {
    let Some((mut pair, phone)) = start() else { return };
    let outcome = failover::observe(&mut OnPurpose(&mut pair), Fault::Process, &load());
    assert_all_is_well(&outcome);
    drop(phone);
}

/// Starts both registrars with their phones, and one phone behind NAT.
fn start() -> Option<(Takeover, Phones)> {
    if !TAKEOVER.is_available() {
        return None;
    }
    let pair = Takeover::with_phones();
    let phone = Phones::translated(pair.clients(), BEHIND_NAT, Takeover::address());
    let has_it =
        || pair.both().iter().all(|server| server.registered().contains("translated@example.com")).then_some(());
    assert!(poll(PATIENCE, has_it).is_some(), "both have it");
    Some((pair, phone))
}

fn load() -> Load {
    Load { callee: Some(BEHIND_NAT), ..Load::SHORT }
}

fn assert_all_is_well(outcome: &Outcome) {
    println!("{outcome:?}");
    assert!(outcome.calls.offered > 100 && outcome.registrations.offered > 50, "{outcome:?}");
    assert_eq!((outcome.calls.failed, outcome.registrations.failed), (0, 0), "{outcome:?}");
    assert!(outcome.calls.outage.max(outcome.registrations.outage) <= OUTAGE, "{outcome:?}");
    assert_eq!(outcome.away, 0, "{outcome:?}");
}

/// Asserts that one machine holds the address and both servers have the same registrations.
fn assert_nothing_is_split(pair: &Takeover) {
    let is_one = || (pair.holders().len() == 1).then_some(());
    assert!(poll(PATIENCE, is_one).is_some(), "the address is at {:?}", pair.holders());
    let [one, two] = pair.both() else { panic!("there are two") };
    let are_same = || (one.registered() == two.registered()).then_some(());
    assert!(poll(PATIENCE, are_same).is_some(), "{:?} and {:?}", one.registered(), two.registered());
    for server in [one, two] {
        // The command exits with 1 if something is wrong.
        let said = server.control(&["members"]);
        assert!(said.contains("2 of 2 alive"), "{said}");
    }
}

/// A planned handover of the address, without a failure.
#[derive(Debug)]
struct OnPurpose<'a>(&'a mut Takeover);

impl Deployment for OnPurpose<'_> {
    fn clients(&self) -> &strowger_interop::Machine {
        self.0.clients()
    }

    fn servers(&self) -> Vec<std::net::SocketAddr> {
        self.0.servers()
    }

    fn phones(&self) -> &Phones {
        self.0.phones()
    }

    fn strike(&mut self, _: Fault) {
        self.0.hand_over();
    }

    fn survivor(&self) -> &strowger_interop::Server {
        self.0.survivor()
    }

    fn mend(&mut self, _: Fault) {}
}
