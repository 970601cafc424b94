//! Servers that share registrations through a real Redis, PostgreSQL or MariaDB, and phones that call each other
//! through them. A test whose programs are not installed is skipped.

use std::net::{Ipv4Addr, SocketAddr};

use strowger_interop::{
    Authority, Config, Database, PATIENCE, Phone, Program, Registrant, Server, free_port, wait_until,
};

const KEY: [u8; 16] = *b"a key of members";

/// Returns the configuration of member `number`, which shares registrations through `engine`.
fn member(engine: &Database, number: u16, durability: &str) -> Config {
    let store = engine.url();
    let more = format!("[cluster]\nstore = \"{store}\"\nmember = {number}\ndurability = \"{durability}\"\n");
    Config { more, key: Some(KEY), ..Config::default() }
}

/// Starts two members without passwords, and their engine.
fn two_members(engine: Program) -> Option<(Database, Server, Server)> {
    if !engine.available() {
        return None;
    }
    let engine = Database::start(engine);
    let [one, two] = [1, 2].map(|number| Config { require: Vec::new(), ..member(&engine, number, "engine") }.start());
    wait_until_ready(&[&one, &two]);
    Some((engine, one, two))
}

/// Returns the status of the final response to a REGISTER. There must be one.
fn register(registrant: &mut Registrant, server: &Server, expires: u32) -> u16 {
    registrant.register(server.address(), expires, PATIENCE).expect("an answer")
}

/// Waits until each server accepts REGISTERs and knows of another member.
fn wait_until_ready(servers: &[&Server]) {
    for server in servers {
        wait_until("it sees the other one", || server.status()["cluster"]["members"][0]["alive"] == true);
        wait_until("it takes REGISTERs", || server.status()["cluster"]["warm"] == true);
    }
}

#[test]
fn phone_is_called_through_the_other_member_even_if_its_own_is_dead() {
    if !Program::Redis.available() || !Program::Baresip.available() {
        return;
    }
    let redis = Database::start(Program::Redis);
    let mut one = member(&redis, 1, "engine").start();
    let two = member(&redis, 2, "engine").start();
    wait_until_ready(&[&one, &two]);
    let mut bob = Phone::start("bob");
    assert_eq!(bob.register(&one, "secret of bob").kind, "REGISTER_OK");
    wait_until("the other member has it", || two.registrations() == 1);
    for server in [&one, &two] {
        let listed = server.control(&["registrations"]);
        let row = listed.lines().nth(1).expect("a row");
        assert!(listed.starts_with("ADDRESS") && row.ends_with(" 1"), "by member 1: {listed}");
    }
    let mut alice = Phone::start("alice");
    assert_eq!(alice.register(&two, "secret of alice").kind, "REGISTER_OK");
    for is_dead in [false, true] {
        if is_dead {
            one.kill();
        }
        alice.call(&mut bob);
    }
    wait_until("the other one is missed", || two.status()["cluster"]["members"][0]["alive"] == false);
}

#[test]
fn phone_on_a_connection_is_called_through_the_member_that_has_it() {
    if !Program::Redis.available() || !Program::Baresip.available() {
        return;
    }
    let redis = Database::start(Program::Redis);
    let with_tcp = |number| Config { tcp: true, require: Vec::new(), ..member(&redis, number, "engine") };
    let (mut one, two) = (with_tcp(1).start(), with_tcp(2).start());
    wait_until_ready(&[&one, &two]);
    let (mut alice, mut bob) = (Phone::start("alice"), Phone::start("bob"));
    assert_eq!(bob.register_outbound(one.address()).kind, "REGISTER_OK");
    assert_eq!(alice.register_over("udp", two.address()).kind, "REGISTER_OK");
    wait_until("the other member has it", || two.registrations() == 2);
    alice.call(&mut bob);
    // Only its own member can reach the phone, so it is unreachable while that member is down.
    one.kill();
    wait_until("the other one is missed", || two.status()["cluster"]["members"][0]["alive"] == false);
    alice.dial("sip:bob@example.com");
    let closed = alice.expect_closed();
    assert!(closed.contains("480"), "{closed}");
}

#[test]
fn phone_on_tcp_is_called_through_the_member_that_has_its_connection() {
    if !Program::Redis.available() || !Program::Baresip.available() {
        return;
    }
    let redis = Database::start(Program::Redis);
    let with_tcp = |number| Config { tcp: true, require: Vec::new(), ..member(&redis, number, "engine") };
    let (one, two) = (with_tcp(1).start(), with_tcp(2).start());
    wait_until_ready(&[&one, &two]);
    let (mut alice, mut bob) = (Phone::start("alice"), Phone::start("bob"));
    assert_eq!(bob.register_over("tcp", one.address()).kind, "REGISTER_OK");
    assert_eq!(alice.register_over("udp", two.address()).kind, "REGISTER_OK");
    wait_until("the other member has it", || two.registrations() == 2);
    alice.call(&mut bob);
}

#[test]
fn phone_on_tls_is_called_through_the_member_that_has_its_connection() {
    if !Program::Redis.available() || !Program::Baresip.available() {
        return;
    }
    let Some(authority) = Authority::new() else { return };
    let own = authority.issue("server", "DNS:example.com");
    let redis = Database::start(Program::Redis);
    let with_tls = |number| {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let config = member(&redis, number, "engine");
        let more = config.more.clone() + &authority.section(&own, "");
        let listeners = vec![format!("tls:{address}")];
        (Config { listeners, more, require: Vec::new(), ..config }.start(), address)
    };
    let ((one, first), (two, second)) = (with_tls(1), with_tls(2));
    wait_until_ready(&[&one, &two]);
    let (mut alice, mut bob) = (Phone::start("alice"), Phone::start("bob"));
    assert_eq!(bob.register_over("tls", first).kind, "REGISTER_OK");
    assert_eq!(alice.register_over("tls", second).kind, "REGISTER_OK");
    wait_until("the other member has it", || two.registrations() == 2);
    alice.call(&mut bob);
    bob.call(&mut alice);
}

#[test]
fn a_duplicate_member_serves_nobody_and_both_report_it() {
    let Some((redis, one, _two)) = two_members(Program::Redis) else { return };
    let mut twin = Config { require: Vec::new(), ..member(&redis, 1, "engine") }.start();
    let conflict = |server: &Server| server.status()["cluster"]["conflict"].as_str().unwrap_or_default().to_owned();
    wait_until("both say so", || {
        [&one, &twin].iter().all(|server| conflict(server).contains("another server is member 1 too"))
    });
    assert_eq!(register(&mut Registrant::new("bob"), &twin, 600), 503);
    assert_eq!(register(&mut Registrant::new("carol"), &one, 600), 200);
    twin.kill();
    wait_until("it is over", || conflict(&one).is_empty());
}

#[test]
fn a_differing_key_is_reported() {
    let Some((redis, one, _two)) = two_members(Program::Redis) else { return };
    let other = Config { require: Vec::new(), key: Some(*b"a key of others!"), ..member(&redis, 3, "engine") };
    let other = other.start();
    for server in [&one, &other] {
        wait_until("they say so", || {
            server.status()["cluster"]["conflict"].as_str().is_some_and(|why| why.contains("has another key"))
        });
    }
}

#[test]
fn redis_shares_removal_and_refresh() {
    removal_and_refresh_are_heard_of(Program::Redis);
}

#[test]
fn postgres_shares_removal_and_refresh() {
    removal_and_refresh_are_heard_of(Program::Postgres);
}

#[test]
fn mariadb_shares_removal_and_refresh() {
    removal_and_refresh_are_heard_of(Program::MariaDb);
}

fn removal_and_refresh_are_heard_of(engine: Program) {
    let Some((engine, mut one, two)) = two_members(engine) else { return };
    let mut client = Registrant::new("carol");
    assert_eq!(register(&mut client, &one, 600), 200);
    wait_until("the other member has it", || two.registrations() == 1);
    assert_eq!(register(&mut client, &two, 1_200), 200, "refreshed at the other one");
    assert_eq!(register(&mut client, &one, 0), 200, "removed at the first");
    wait_until("both know", || one.registrations() == 0 && two.registrations() == 0);
    // A member that joins or returns finds the existing registrations.
    assert_eq!(register(&mut Registrant::new("bob"), &two, 600), 200);
    one.kill();
    one.restart();
    let three = Config { require: Vec::new(), ..member(&engine, 3, "engine") }.start();
    wait_until("all have it", || one.registrations() == 1 && three.registrations() == 1);
    wait_until("it takes REGISTERs", || one.status()["cluster"]["warm"] == true);
    assert_eq!(register(&mut Registrant::new("alice"), &one, 600), 200);
    wait_until("all hear of it", || two.registrations() == 2 && three.registrations() == 2);
}

#[test]
fn a_frozen_redis_blocks_acknowledgements() {
    frozen(Program::Redis);
}

#[test]
fn a_frozen_postgres_blocks_acknowledgements() {
    frozen(Program::Postgres);
}

#[test]
fn a_frozen_mariadb_blocks_acknowledgements() {
    frozen(Program::MariaDb);
}

fn frozen(engine: Program) {
    let Some((redis, one, two)) = two_members(engine) else { return };
    let mut client = Registrant::new("carol");
    assert_eq!(register(&mut client, &one, 600), 200);
    wait_until("the other member has it", || two.registrations() == 1);
    redis.freeze();
    assert_eq!(register(&mut Registrant::new("bob"), &one, 600), 503);
    assert_eq!(two.registrations(), 1, "what is known stays");
    redis.go_on();
    wait_until("what waited is there", || two.registrations() == 2 && one.registrations() == 2);
    wait_until("it is well again", || one.status()["cluster"]["trouble"].is_null());
    assert_eq!(register(&mut client, &two, 600), 200);
}

#[test]
fn lost_engine_data_is_written_again() {
    let Some((mut redis, one, two)) = two_members(Program::Redis) else { return };
    assert_eq!(register(&mut Registrant::new("bob"), &one, 600), 200);
    assert_eq!(register(&mut Registrant::new("carol"), &two, 600), 200);
    wait_until("both have both", || one.registrations() == 2 && two.registrations() == 2);
    redis.start_again();
    // A joining member finds the registrations in the engine only if the others have announced them again.
    wait_until("they have told it again", || {
        [&one, &two].iter().all(|server| server.status()["cluster"]["announced"].as_u64() >= Some(1))
    });
    let three = Config { require: Vec::new(), ..member(&redis, 3, "engine") }.start();
    wait_until("who joins has all", || three.registrations() == 2);
}
