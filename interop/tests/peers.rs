//! Servers that forward registrations to each other without an engine, and phones that call each other through them.
//! A test whose programs are not installed is skipped.

use std::net::UdpSocket;
use std::time::Duration;

use strowger_interop::{Config, PATIENCE, Phone, Program, Registrant, Server, free_port, wait_until};

const KEY: [u8; 16] = *b"a key of members";

/// Returns the configurations of members 1, 2, … that forward changes to each other.
fn members(count: u16) -> Vec<Config> {
    let listen: Vec<String> = (0..count).map(|_| format!("127.0.0.1:{}", free_port())).collect();
    let member = |(number, own): (u16, &String)| {
        let more = format!("[cluster]\npeers = {listen:?}\nlisten = {own:?}\nmember = {number}\n");
        Config { more, key: Some(KEY), require: Vec::new(), ..Config::default() }
    };
    (1..).zip(&listen).map(member).collect()
}

fn start<const COUNT: usize>(configs: Vec<Config>) -> [Server; COUNT] {
    let servers: Vec<Server> = configs.into_iter().map(Config::start).collect();
    servers.iter().for_each(|server| wait_until_ready(server, COUNT - 1));
    servers.try_into().expect("as many as were asked for")
}

/// Waits until the server accepts REGISTERs and sees this many other members.
fn wait_until_ready(server: &Server, others: usize) {
    wait_until("it sees the others", || alive(server) == others);
    wait_until("it takes REGISTERs", || server.status()["cluster"]["warm"] == true);
}

fn alive(server: &Server) -> usize {
    let status = server.status();
    let members = status["cluster"]["members"].as_array().expect("a list");
    members.iter().filter(|member| member["alive"] == true).count()
}

/// Returns the status of the final response to a REGISTER. There must be one.
fn register(registrant: &mut Registrant, server: &Server, expires: u32) -> u16 {
    registrant.register(server.address(), expires, PATIENCE).expect("an answer")
}

#[test]
fn phone_is_called_through_the_other_member_even_if_its_own_is_dead() {
    if !Program::Baresip.available() {
        return;
    }
    let [mut one, two] = start(members(2));
    let (mut alice, mut bob) = (Phone::start("alice"), Phone::start("bob"));
    assert_eq!(bob.register_over("udp", one.address()).kind, "REGISTER_OK");
    wait_until("the other member has it", || two.registrations() == 1);
    assert_eq!(alice.register_over("udp", two.address()).kind, "REGISTER_OK");
    for is_dead in [false, true] {
        if is_dead {
            one.kill();
        }
        alice.call(&mut bob);
    }
    wait_until("the other one is missed", || alive(&two) == 0);
}

#[test]
fn phone_on_tcp_is_called_through_its_member_while_that_is_alive() {
    if !Program::Baresip.available() {
        return;
    }
    let [mut one, two] = start(members(2).into_iter().map(|config| Config { tcp: true, ..config }).collect());
    let (mut alice, mut bob) = (Phone::start("alice"), Phone::start("bob"));
    assert_eq!(bob.register_outbound(one.address()).kind, "REGISTER_OK");
    assert_eq!(alice.register_over("udp", two.address()).kind, "REGISTER_OK");
    wait_until("the other member has it", || two.registrations() == 2);
    alice.call(&mut bob);
    // Only its own member can reach the phone, so it is unreachable while that member is down.
    one.kill();
    wait_until("the other one is missed", || alive(&two) == 0);
    alice.dial("sip:bob@example.com");
    let closed = alice.expect_closed();
    assert!(closed.contains("480"), "{closed}");
}

#[test]
fn three_members_share_changes_and_a_returning_one_gets_all() {
    let [mut one, two, mut three] = start(members(3));
    let mut carol = Registrant::new("carol");
    assert_eq!(register(&mut carol, &one, 600), 200);
    wait_until("all have it", || [&two, &three].iter().all(|server| server.registrations() == 1));
    assert_eq!(register(&mut carol, &two, 1_200), 200, "refreshed at another one");
    assert_eq!(register(&mut carol, &three, 0), 200, "removed at a third");
    wait_until("all know", || [&one, &two, &three].iter().all(|server| server.registrations() == 0));
    // One dead member misses a registration. The member that received it never comes back.
    one.kill();
    assert_eq!(register(&mut Registrant::new("bob"), &three, 600), 200);
    wait_until("who is there has it", || two.registrations() == 1);
    three.kill();
    one.restart();
    wait_until_ready(&one, 1);
    wait_until("who comes back has it, though its member is dead", || one.registrations() == 1);
    assert_eq!(register(&mut Registrant::new("alice"), &one, 600), 200);
    wait_until("and tells of its own", || two.registrations() == 2);
}

#[test]
fn a_memory_member_gets_its_own_registrations_from_the_others() {
    let [mut one, two] = start(members(2).into_iter().map(|config| Config { store: "memory", ..config }).collect());
    assert_eq!(register(&mut Registrant::new("bob"), &one, 600), 200);
    wait_until("the other member has it", || two.registrations() == 1);
    one.kill();
    one.restart();
    wait_until_ready(&one, 1);
    assert_eq!(one.registrations(), 1, "before it takes a REGISTER");
}

#[test]
fn a_terminated_member_forwards_its_last_registration() {
    let [mut one, two] = start(members(2).into_iter().map(|config| Config { store: "memory", ..config }).collect());
    assert_eq!(register(&mut Registrant::new("bob"), &one, 600), 200);
    one.terminate();
    wait_until("the other member has it", || two.registrations() == 1);
}

#[test]
fn a_lone_member_serves_after_two_seconds_and_names_the_missing() {
    let mut configs = members(2);
    let second = configs.pop().expect("two");
    let one = configs.pop().expect("two").start();
    wait_until("it serves", || one.status()["cluster"]["warm"] == true);
    assert_eq!(register(&mut Registrant::new("bob"), &one, 600), 200);
    let failure = one.status()["cluster"]["trouble"].to_string();
    assert!(failure.contains("sends no heartbeat"), "{failure}");
    let two = second.start();
    wait_until_ready(&two, 1);
    assert_eq!(two.registrations(), 1);
    wait_until("it is well", || one.status()["cluster"]["trouble"].is_null());
}

#[test]
fn a_differing_key_or_taken_number_is_reported() {
    let mut configs = members(3);
    let strange = Config { key: Some(*b"a key of others!"), ..configs.pop().expect("three") };
    let mut twin = configs.pop().expect("three");
    twin.more = twin.more.replace("member = 2", "member = 1");
    let one = configs.pop().expect("three").start();
    let (twin, strange) = (twin.start(), strange.start());
    let conflict = |server: &Server| server.status()["cluster"]["conflict"].as_str().unwrap_or_default().to_owned();
    wait_until("both say so", || {
        [&one, &twin].iter().all(|server| conflict(server).contains("another server is member 1 too"))
    });
    wait_until("it says so", || conflict(&strange).contains("another key"));
    assert_eq!(register(&mut Registrant::new("bob"), &one, 600), 503, "nobody knows which of the two is right");
}

#[test]
fn a_forwarded_register_without_the_key_is_rejected() {
    let [one, two] = start(members(2));
    let mut bob = Registrant::new("bob");
    assert_eq!(register(&mut bob, &one, 600), 200);
    wait_until("the other member has it", || two.registrations() == 1);
    let listen = two.file();
    let text = std::fs::read_to_string(listen).expect("a configuration");
    let listen = text.lines().find_map(|line| line.strip_prefix("listen = \"")).expect("where it listens");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a sound socket");
    let own = socket.local_addr().expect("bound");
    let forged = format!(
        "REGISTER sip:member SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK-forged\r\nMax-Forwards: 0\r\n\
         From: <sip:member-1@{own}>;tag=1\r\nTo: <sip:mallory@example.com>\r\nCall-ID: forged@{own}\r\n\
         CSeq: 1 REGISTER\r\nContact: <sip:mallory@{own}>;expires=600\r\n\
         Strowger-Member: 1-1764104993000;number=1;address={own};tag=AAAAAAAAAAAAAAAA\r\nContent-Length: 0\r\n\r\n"
    );
    socket.send_to(forged.as_bytes(), listen.trim_end_matches('"')).expect("sent");
    let mut answer = [0; 2_048];
    let length = socket.recv(&mut answer).expect("an answer");
    assert!(answer[..length].starts_with(b"SIP/2.0 403 "), "{}", String::from_utf8_lossy(&answer[..length]));
    assert_eq!(two.registrations(), 1);
}
