//! What callers notice when a server dies and the sender knows another one: the client itself, or a proxy in front of
//! the servers. Skipped if a program is not installed. Tests without a phone create networks and need root.

use std::time::Duration;

use strowger_interop::bind9::Bind9;
use strowger_interop::failover::{
    self, Fault, Load, Method, RETRY, SECOND_BY_ENGINE, SECOND_BY_PEERS, SRV, members_on_this_machine,
};
use strowger_interop::{Phone, Program, Server, wait_until};

/// Maximum outage: the timeout for an unresponsive server, plus the interval between attempts.
const OUTAGE: Duration = Duration::from_secs(2);

#[test]
fn client_uses_its_second_registrar_when_the_firsts_machine_is_silent() {
    nobody_fails(&SECOND_BY_PEERS, Fault::Machine);
}

#[test]
fn proxy_tries_the_next_srv_server_when_the_first_is_silent() {
    nobody_fails(&SRV, Fault::Machine);
}

#[test]
fn calls_continue_while_sentinels_replace_the_redis_master() {
    if !SECOND_BY_ENGINE.is_available() {
        return;
    }
    let outcome = failover::run(&SECOND_BY_ENGINE, Fault::Engine, &Load::SHORT);
    assert_eq!((outcome.calls.failed, outcome.calls.late), (0, 0), "{outcome:?}");
    // A REGISTER that no engine can store is refused, and nothing acknowledged is lost.
    assert!(outcome.refused.keys().all(|status| *status == 503), "{outcome:?}");
    assert_eq!((outcome.away, outcome.lost), (0, 0), "{outcome:?}");
}

fn nobody_fails(method: &dyn Method, fault: Fault) {
    if !method.is_available() {
        return;
    }
    let outcome = failover::run(method, fault, &Load::SHORT);
    assert!(outcome.calls.offered > 100 && outcome.registrations.offered > 50, "{outcome:?}");
    // A call that got 100 Trying keeps waiting for the server that sent it.
    assert!(outcome.calls.failed <= 1 && outcome.registrations.failed == 0, "{outcome:?}");
    assert!(outcome.calls.longest >= RETRY, "somebody met the silence: {outcome:?}");
    assert!(outcome.calls.outage.max(outcome.registrations.outage) <= OUTAGE, "{outcome:?}");
    assert_eq!(outcome.away, 0, "{outcome:?}");
}

#[test]
fn a_phone_falls_back_to_the_second_server_of_its_domain() {
    if !Program::Baresip.available() || !Bind9::available() {
        return;
    }
    let [mut one, two] = members_on_this_machine();
    let record =
        |(priority, server): (u8, &Server)| format!("_sip._tcp IN SRV {priority} 0 {} m\n", server.address().port());
    let records: String = [(1, &one), (2, &two)].into_iter().map(record).collect();
    let named = Bind9::start("example.com", 5, &format!("{records}m IN A 127.0.0.1\n"));
    let (mut alice, mut bob) = (phone("alice", &named), phone("bob", &named));
    wait_until("both members have both", || [&one, &two].iter().all(|server| server.registrations() == 2));
    assert!(one.control(&["registrations"]).lines().skip(1).all(|row| row.ends_with(" 1")), "at the first server");
    alice.call(&mut bob);
    one.kill();
    wait_until("the other member knows", || two.status()["cluster"]["members"][0]["alive"] == false);
    // Bob has lost his connection and registers again. A phone that does not is unreachable, since it depends on its
    // connection.
    let mut bob = {
        drop(bob);
        phone("bob", &named)
    };
    alice.call(&mut bob);
}

/// Starts a phone of `example.com` that resolves its servers by DNS.
fn phone(name: &'static str, named: &Bind9) -> Phone {
    let mut phone = Phone::start_asking(name, named.address());
    let account = format!("<sip:{name}@example.com;transport=tcp>;auth_pass=\"secret of {name}\";regint=600");
    assert_eq!(phone.register_account(&account).kind, "REGISTER_OK");
    phone
}
