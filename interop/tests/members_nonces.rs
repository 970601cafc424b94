//! Members that share nonces: the challenge of one member is valid at another, and a nonce count accepted at one is
//! accepted at no other. A test whose programs are not installed is skipped.

use std::net::UdpSocket;
use std::time::Duration;

use strowger_interop::operate::Upgrades;
use strowger_interop::{Config, Database, PATIENCE, Program, Server, free_port, poll, registration_credentials, wire};

const KEY: [u8; 16] = *b"a key of members";

/// Starts two members with the settings that `cluster` returns for each number.
fn two_members(cluster: impl Fn(u16) -> String) -> [Server; 2] {
    let member = |number| {
        let more = format!("[cluster]\nmember = {number}\n{}", cluster(number));
        Config { more, key: Some(KEY), ..Config::default() }.start()
    };
    let servers = [member(1), member(2)];
    for server in &servers {
        let is_ready = || {
            let cluster = &server.status()["cluster"];
            (cluster["members"][0]["alive"] == true && cluster["warm"] == true).then_some(())
        };
        assert!(poll(PATIENCE, is_ready).is_some(), "they see each other");
    }
    servers
}

/// A client that registers Carol.
struct Client {
    socket: UdpSocket,
    cseq: u32,
}

impl Client {
    fn new() -> Client {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a sound socket");
        Client { socket, cseq: 0 }
    }

    /// Sends a new REGISTER and returns the response.
    fn register(&mut self, server: &Server, authorization: &str) -> String {
        self.cseq += 1;
        let (cseq, own) = (self.cseq, self.socket.local_addr().expect("bound"));
        let request = format!(
            "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK-carol-{cseq}\r\nMax-Forwards: 70\r\n\
             From: <sip:carol@example.com>;tag=1\r\nTo: <sip:carol@example.com>\r\nCall-ID: carol@{own}\r\n\
             CSeq: {cseq} REGISTER\r\nContact: <sip:carol@{own}>;expires=600\r\n{authorization}Content-Length: 0\r\n\r\n"
        );
        self.socket.send_to(request.as_bytes(), server.address()).expect("sent");
        let mut answer = [0; 4_096];
        loop {
            let length = self.socket.recv(&mut answer).expect("an answer");
            let text = String::from_utf8_lossy(&answer[..length]).into_owned();
            if wire::value(&text, "CSeq").starts_with(&format!("{cseq} ")) {
                return text;
            }
        }
    }

    /// Returns a challenge of `server`.
    fn challenge(&mut self, server: &Server) -> String {
        let answer = self.register(server, "");
        assert_eq!(wire::status(&answer), Some(401));
        wire::value(&answer, "WWW-Authenticate").to_owned()
    }
}

/// Builds Carol's Authorization line for a challenge.
fn authorization(challenge: &str, count: u32) -> String {
    registration_credentials(challenge, ("carol", "secret of carol"), count)
}

/// Until the members know each other, the challenge of one is stale at the other. Then the next one is tried.
fn answered_at_the_other_and_replayed(servers: &[Server; 2]) {
    let [one, two] = servers;
    let mut client = Client::new();
    let accepted = poll(PATIENCE, || {
        let answer = authorization(&client.challenge(one), 1);
        (wire::status(&client.register(two, &answer)) == Some(200)).then_some(answer)
    });
    let answer = accepted.expect("the other one accepts it");
    assert_eq!(wire::status(&client.register(two, &answer)), Some(401), "a replay at the same one");
    // The issuing member learns of the use with a short delay.
    let mut challenge = None;
    let is_refused = poll(PATIENCE, || {
        let replayed = client.register(one, &answer);
        challenge = Some(wire::value(&replayed, "WWW-Authenticate").to_owned());
        (wire::status(&replayed) == Some(401)).then_some(())
    });
    assert!(is_refused.is_some(), "a replay at who has issued it");
    assert!(challenge.expect("it was refused").contains("stale=true"), "the password was right");
    // The reverse case: accepted by the issuing member and replayed at the other.
    let mut another = Client::new();
    let known = two.registrations();
    let answer = authorization(&another.challenge(one), 1);
    assert_eq!(wire::status(&another.register(one, &answer)), Some(200));
    // The use of the nonce precedes the registration, so it has arrived as well.
    assert!(poll(PATIENCE, || (two.registrations() > known).then_some(())).is_some());
    assert_eq!(wire::status(&another.register(two, &answer)), Some(401), "a replay at the other one");
}

#[test]
fn peers_share_nonces() {
    let listen = [1, 2].map(|_| format!("127.0.0.1:{}", free_port()));
    let mut servers =
        two_members(|number| format!("peers = {listen:?}\nlisten = {:?}\n", listen[usize::from(number) - 1]));
    answered_at_the_other_and_replayed(&servers);
    // A restarted process accepts no nonce of the previous one, and neither does the other member.
    let mut client = Client::new();
    let answer = authorization(&client.challenge(&servers[0]), 1);
    assert_eq!(wire::status(&client.register(&servers[0], &answer)), Some(200));
    servers[0].kill();
    servers[0].restart();
    let is_warm = || (servers[0].status()["cluster"]["warm"] == true).then_some(());
    assert!(poll(PATIENCE, is_warm).is_some());
    for server in &servers {
        assert_eq!(wire::status(&client.register(server, &answer)), Some(401));
    }
}

#[test]
fn challenges_of_a_member_are_valid_after_its_upgrade() {
    let listen = [1, 2].map(|_| format!("127.0.0.1:{}", free_port()));
    let [one, two] =
        two_members(|number| format!("peers = {listen:?}\nlisten = {:?}\n", listen[usize::from(number) - 1]));
    let upgrades = Upgrades::of(one);
    let one = upgrades.server();
    let mut clients = [Client::new(), Client::new()];
    let is_known = || {
        let answer = authorization(&clients[1].challenge(one), 1);
        (wire::status(&clients[1].register(&two, &answer)) == Some(200)).then_some(())
    };
    assert!(poll(PATIENCE, is_known).is_some(), "the other member knows its nonces");
    let answers = clients.each_mut().map(|client| authorization(&client.challenge(one), 1));
    upgrades.upgrade();
    for ((client, answer), server) in clients.iter_mut().zip(&answers).zip([one, &two]) {
        assert_eq!(wire::status(&client.register(server, answer)), Some(200));
    }
}

#[test]
fn members_share_nonces_through_redis() {
    if !Program::Redis.available() {
        return;
    }
    let redis = Database::start(Program::Redis);
    answered_at_the_other_and_replayed(&two_members(|_| format!("store = \"{}\"\n", redis.url())));
}

#[test]
fn members_share_nonces_through_mariadb() {
    if !Program::MariaDb.available() {
        return;
    }
    let engine = Database::start(Program::MariaDb);
    answered_at_the_other_and_replayed(&two_members(|_| format!("store = \"{}\"\n", engine.url())));
}
