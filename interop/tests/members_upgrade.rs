//! A member of a cluster is upgraded while phones call each other through both members. A test whose programs are not
//! installed is skipped.

use strowger_interop::operate::Upgrades;
use strowger_interop::{Config, Database, PATIENCE, Phone, Program, Registrant, Server, free_port, wait_until};

const KEY: [u8; 16] = *b"a key of members";
const ROUNDS: usize = 3;

/// Returns the configuration of a member with this section, which also listens on TCP.
fn member(cluster: &str, store: &'static str) -> Config {
    let more = format!("[cluster]\n{cluster}\n");
    Config { more, store, key: Some(KEY), require: Vec::new(), tcp: true, ..Config::default() }
}

fn wait_until_ready(server: &Server) {
    wait_until("it sees the other one", || is_other_alive(server));
    wait_until("it takes REGISTERs", || server.status()["cluster"]["warm"] == true);
}

fn is_other_alive(server: &Server) -> bool {
    server.status()["cluster"]["members"][0]["alive"] == true
}

/// The phone of a member is called through the other one, over the connection that the first process has accepted.
fn phones_do_not_notice(one: Server, two: &Server) {
    [&one, two].into_iter().for_each(wait_until_ready);
    let upgrades = Upgrades::of(one);
    let one = upgrades.server();
    let (mut alice, mut bob) = (Phone::start("alice"), Phone::start("bob"));
    assert_eq!(bob.register_over("tcp", one.address()).kind, "REGISTER_OK");
    wait_until("the other member has it", || two.registrations() == 1);
    assert_eq!(alice.register_over("tcp", two.address()).kind, "REGISTER_OK");
    wait_until("this member has hers", || one.registrations() == 2);
    for round in 0..ROUNDS {
        upgrades.upgrade();
        // Her connection is the other member's, whom the new process must know at once.
        bob.call(&mut alice);
        let mut carol = Registrant::new("carol");
        assert_eq!(carol.register(one.address(), 600, PATIENCE), Some(200), "it takes REGISTERs at once");
        alice.call(&mut bob);
        wait_until("the other member has hers too", || two.registrations() == 3 + round as u64);
        for server in [one, two] {
            let cluster = &server.status()["cluster"];
            assert_eq!(cluster["conflict"], serde_json::Value::Null, "one process is the member: {cluster}");
            assert_eq!(cluster["refused"], 0);
        }
        assert!(is_other_alive(two), "it misses nobody");
        wait_until_ready(one);
        bob.call(&mut alice);
    }
    assert_eq!(one.registrations(), two.registrations());
}

#[test]
fn of_an_engine() {
    if !Program::Redis.available() || !Program::Baresip.available() {
        return;
    }
    let redis = Database::start(Program::Redis);
    for store in ["write-through", "memory"] {
        // The second pair is another cluster in the same engine.
        let section = |number| format!("store = \"{}\"\nmember = {number}\nname = \"{store}\"", redis.url());
        let [one, two] = [1, 2].map(|number| member(&section(number), store).start());
        phones_do_not_notice(one, &two);
    }
}

#[test]
fn of_peers() {
    if !Program::Baresip.available() {
        return;
    }
    let listen = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
    let section = |number: usize| {
        let own = &listen[number - 1];
        format!("peers = {listen:?}\nlisten = \"{own}\"\nmember = {number}")
    };
    let [one, two] = [1, 2].map(|number| member(&section(number), "write-through").start());
    phones_do_not_notice(one, &two);
}

#[test]
fn another_member_number_is_refused_and_the_member_goes_on() {
    let [port, nobody] = [free_port(), free_port()];
    let section = format!("peers = [\"127.0.0.1:{nobody}\"]\nlisten = \"127.0.0.1:{port}\"\nmember = 1");
    let server = member(&section, "write-through").start();
    wait_until("it takes REGISTERs", || server.status()["cluster"]["warm"] == true);
    let file = std::fs::read_to_string(server.file()).expect("the configuration can be read");
    let (alone, _) = file.split_once("[cluster]").expect("its section is the last one");
    for (other, reason) in [
        (file.replace("member = 1", "member = 2"), "cluster.member: the running server is member 1"),
        (file.replace("member = 1", "member = 1\nname = \"x\""), "cluster.name: the running server is in \"strowger\""),
        (
            file.replace(&format!("\"127.0.0.1:{port}\"\nmember"), &format!("\"127.0.0.1:{}\"\nmember", free_port())),
            "cluster.listen: the running server listens on 127.0.0.1:",
        ),
        (alone.to_owned(), "cluster: the running server shares registrations"),
    ] {
        assert_ne!(other, file);
        std::fs::write(server.file(), other).expect("the configuration can be written");
        let why = server.refused_command(&["upgrade"]);
        assert!(why.contains(reason), "{why}");
        std::fs::write(server.file(), &file).expect("the configuration can be written");
        let mut carol = Registrant::new("carol");
        assert_eq!(carol.register(server.address(), 600, PATIENCE), Some(200), "it goes on");
    }
}
