//! Kinds of load sharing: what a user notices of each, and the shares. They run in network namespaces and need root.

use std::thread;
use std::time::Duration;

use strowger_interop::AnswerBehavior;
use strowger_interop::sharing::{Choice, Count, Deployment, Kind, Phone, Testbed, Translator, Trial};

/// Asserts that all calls worked.
fn assert_all(what: &str, count: Count) {
    assert_eq!(count.worked, count.of, "{what}: {count:?}");
}

/// Asserts that all calls worked, each at one server.
fn assert_kept(what: &str, count: Count) {
    assert_all(what, count);
    assert_eq!(count.kept, count.of, "{what}: {count:?}");
}

/// Asserts that some calls failed.
fn assert_breaks(what: &str, count: Count) {
    assert!(count.worked < count.of, "{what}: {count:?}");
}

/// Asserts that the shares are within `tolerance` percent of all calls. As they are random, the tolerance is more
/// than four standard deviations.
fn assert_shares(kind: Kind, share: [usize; 3], tolerance: f64) {
    let sum: usize = share.iter().sum();
    for (calls, wanted) in share.into_iter().zip(kind.wanted()) {
        let measured =
            100.0 * f64::from(u32::try_from(calls).expect("a few")) / f64::from(u32::try_from(sum).expect("a few"));
        assert!((measured - wanted).abs() < tolerance, "{kind}: {share:?}");
    }
}

#[test]
fn dns_keeps_calls_whole_and_fails_over_but_needs_members() {
    if !Kind::DnsWeights.available() {
        return;
    }
    let mut way = Kind::DnsWeights.start(true);
    let trial = Trial::patient(&mut *way);
    assert_shares(Kind::DnsWeights, trial.share(), 10.0);
    assert_kept("an INVITE that is sent twice", trial.retransmitted());
    assert_kept("CANCEL", trial.cancelled());
    assert_kept("requests in a call", trial.dialog());
    assert_all("calls to users who registered at any member", trial.registered(true));
    let [_, new, _] = Trial::new(&mut *way).dies();
    assert_all("calls while a server is dead", new);
}

#[test]
fn without_sharing_dns_finds_only_some_users() {
    if !Kind::DnsWeights.available() {
        return;
    }
    assert_breaks("calls to users", Trial::new(&mut *Kind::DnsWeights.start(false)).registered(false));
}

#[test]
fn identifier_hash_finds_all_users_without_sharing() {
    if !Kind::IdentifierHash.available() {
        return;
    }
    let mut way = Kind::IdentifierHash.start(false);
    let mut trial = Trial::patient(&mut *way);
    assert_shares(Kind::IdentifierHash, trial.share(), 10.0);
    assert_kept("calls to users", trial.registered(false));
    assert_kept("an INVITE that is sent twice", trial.retransmitted());
    assert_kept("CANCEL", trial.cancelled());
    assert_kept("requests in a call", trial.dialog());
    assert_kept("a call on a connection", trial.connection());
    let [calls, users] = trial.added();
    assert_kept("calls when a server is added", calls);
    // A quarter of them should move, within four standard deviations.
    assert!(users.kept >= 17 && users.kept < users.of, "users who stay when a server is added: {users:?}");
}

#[test]
fn letter_ranges_are_uneven() {
    if !Kind::IdentifierRange.available() {
        return;
    }
    let mut way = Kind::IdentifierRange.start(false);
    let trial = Trial::patient(&mut *way);
    let [first, second, third] = trial.share();
    assert!(second > first && first > third && second > 2 * third, "{first}, {second}, {third}");
    assert_kept("calls to users", trial.registered(false));
}

#[test]
fn nat_keeps_a_call_while_its_mapping_lasts() {
    if !Kind::NatTurns.available() {
        return;
    }
    let mut nat = Translator::start(Choice::Turns, true);
    let trial = Trial::patient(&mut nat);
    assert_kept("an INVITE that is sent twice", trial.retransmitted());
    assert_kept("CANCEL", trial.cancelled());
    assert_kept("requests in a call", trial.dialog());
    assert_kept("a call on a connection", trial.connection());
    assert_all("calls to users who registered at any member", trial.registered(true));
    let trial = Trial::new(&mut nat);
    assert_breaks("requests in a call from another port", trial.rebound());

    // The callee answers after the translator has dropped the flow of the requesting server.
    let mut phones = trial.phones(6);
    let rings = AnswerBehavior { ring: Duration::from_secs(2), ..AnswerBehavior::default() };
    let site: &Testbed = nat.site();
    site.callees.iter().for_each(|callee| callee.behave(rings.clone()));
    let ring = |phone: &mut Phone, number| phone.ring(&format!("sip:you@pool{number}.test"));
    assert!(phones.iter_mut().zip(0..).all(|(phone, number)| ring(phone, number)), "they ring");
    nat.forget();
    let answers: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = phones.iter_mut().map(|phone| scope.spawn(|| phone.answer())).collect();
        threads.into_iter().map(|thread| thread.join().expect("a phone does not panic")).collect()
    });
    assert!(answers.contains(&None), "answers come to servers that the translator has forgotten: {answers:?}");
    // Record-Route contains the servers' private addresses.
    site.callees.iter().for_each(|callee| callee.behave(AnswerBehavior::default()));
    let phone = &mut phones[0];
    assert_eq!(phone.call("sip:you@pool0.test"), Some(200));
    phone.follows_route = true;
    assert_eq!(phone.request("BYE"), None, "a phone that goes by Record-Route");
}

#[test]
fn nat_leaves_phones_on_a_dead_server() {
    if !Kind::NatSource.available() {
        return;
    }
    let mut way = Kind::NatSource.start(true);
    let [_, new, old] = Trial::new(&mut *way).dies();
    assert_breaks("calls while a server is dead", new);
    assert_breaks("calls of phones that it had, once it is taken out", old);
}

#[test]
fn shared_address_servers_work_stateless_with_one_key() {
    if !Kind::PacketsStateless.available() {
        return;
    }
    let mut way = Kind::PacketsStateless.start(true);
    let mut trial = Trial::patient(&mut *way);
    let retransmitted = trial.retransmitted();
    assert!(retransmitted.kept < retransmitted.of, "packets go to all of them: {retransmitted:?}");
    assert_all("an INVITE that is sent twice", retransmitted);
    assert_all("CANCEL", trial.cancelled());
    assert_all("requests in a call", trial.dialog());
    assert_all("requests in a call from another port", trial.rebound());
    assert_all("calls to users who registered at any member", trial.registered(true));
    let [calls, _] = trial.added();
    assert_all("calls when a server is added", calls);
    assert_eq!(Trial::new(&mut *way).connection().worked, 0, "a connection needs all its packets at one server");
}

#[test]
fn shared_address_servers_lose_calls_if_stateful() {
    if !Kind::PacketsStateful.available() {
        return;
    }
    let mut way = Kind::PacketsStateful.start(true);
    assert_breaks("CANCEL", Trial::new(&mut *way).cancelled());
}

#[test]
fn shared_address_flows_stay_but_answers_reach_other_servers() {
    if !Kind::FlowsStateless.available() {
        return;
    }
    let mut way = Kind::FlowsStateless.start(true);
    let trial = Trial::patient(&mut *way);
    assert_kept("an INVITE that is sent twice", trial.retransmitted());
    assert_kept("CANCEL", trial.cancelled());
    assert_kept("requests in a call", trial.dialog());
    let connection = Trial::new(&mut *way).connection();
    assert_eq!(connection.kept, connection.of, "{connection:?}");
    assert_breaks("answers come to a server that has not the caller's connection", connection);
}
