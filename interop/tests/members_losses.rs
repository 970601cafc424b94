//! What is lost if a member and the engine's master die at the same moment, before a replica has the change: what the
//! table in docs/operating/members.md says, and what prevents the loss.

use strowger_interop::{Arrangement, Config, Engines, Lan, Machine, PATIENCE, Registrant, Server, poll};

const KEY: [u8; 16] = *b"a key of members";
/// Machines of the master and its replica.
const MASTER: usize = 0;
const REPLICA: usize = 1;

/// The client's response, and the number of registrations that members have afterwards.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    told: u16,
    left: u64,
}

/// A phone registers at the only running member. That member and the master then die at the same time, and the
/// replica takes over.
fn both_die(arrangement: Arrangement, store: &'static str, more: &str, is_replica_cut_off: bool) -> Option<Found> {
    if !arrangement.available() {
        return None;
    }
    let machines = arrangement.machines();
    let lan = Lan::new(machines + 2);
    if !lan.can_cut_off() {
        return None;
    }
    let mut engines = Engines::start(arrangement, &lan);
    let member = |number: u16| {
        let machine = lan.machine(usize::from(machines) + usize::from(number) - 1);
        let more = format!("[cluster]\nstore = \"{}\"\nmember = {number}\n{more}\n", engines.url(number));
        let host = machine.address().into();
        (Config { host, more, store, key: Some(KEY), require: Vec::new(), ..Config::default() }, machine)
    };
    let (one, two) = (member(1), member(2));
    let (mut one, machine) = start(one);
    if is_replica_cut_off {
        lan.cut_off(REPLICA);
    }
    let mut phone = Registrant::on(lan.clients(), "bob");
    let told = phone.register(one.address(), 600, PATIENCE).expect("an answer");
    one.kill();
    engines.kill(MASTER);
    // Data still in the send queues of its kernel must not get through either.
    lan.cut_off(MASTER);
    if is_replica_cut_off {
        lan.heal(REPLICA);
    }
    engines.fail_over(MASTER);
    lan.heal(MASTER);
    engines.start_again(MASTER);
    engines.restore();
    one.restart_on(&machine);
    wait_until_warm(&one);
    let (two, _) = start(two);
    let left = poll(PATIENCE, || (one.registrations() == two.registrations()).then(|| one.registrations()));
    Some(Found { told, left: left.expect("both have the same") })
}

fn start((config, machine): (Config, Machine)) -> (Server, Machine) {
    let server = config.start_in(machine.network());
    wait_until_warm(&server);
    (server, machine)
}

fn wait_until_warm(server: &Server) {
    let is_warm = || (server.status()["cluster"]["warm"] == true).then_some(());
    assert!(poll(PATIENCE, is_warm).is_some(), "a member does not get warm");
}

fn assert_found(found: Option<Found>, told: u16, left: u64) {
    if let Some(found) = found {
        assert_eq!(found, Found { told, left });
    }
}

#[test]
fn redis_and_memory_member_lose_unreplicated_registrations() {
    assert_found(both_die(Arrangement::RedisSentinel, "memory", "", true), 200, 0);
}

#[test]
fn with_a_required_replica_redis_acknowledges_nothing_unreplicated() {
    let found = both_die(Arrangement::RedisSentinel, "memory", "replicas = 1", true);
    assert_found(found, 503, 0);
    let found = both_die(Arrangement::RedisSentinel, "memory", "replicas = 1", false);
    assert_found(found, 200, 1);
}

#[test]
fn data_lost_by_redis_is_on_its_members_disk() {
    assert_found(both_die(Arrangement::RedisSentinel, "write-through", "", true), 200, 1);
}

#[test]
fn postgres_and_memory_member_lose_unreplicated_registrations() {
    assert_found(both_die(Arrangement::PostgresStandby, "memory", "", true), 200, 0);
}

#[test]
fn synchronous_postgres_acknowledges_nothing_unreplicated() {
    assert_found(both_die(Arrangement::PostgresSynchronous, "memory", "", true), 503, 0);
    assert_found(both_die(Arrangement::PostgresSynchronous, "memory", "", false), 200, 1);
}
