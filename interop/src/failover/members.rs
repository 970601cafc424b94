//! Servers that share registrations, each on a machine of its own.

use crate::machine::Machine;
use crate::{Config, PATIENCE, Server, free_port, poll};

const KEY: [u8; 16] = *b"a key of members";
/// Where they take requests, and what they forward to each other.
pub(super) const PORT: u16 = 5060;
const PEERS: u16 = 5064;

/// What a member's section `[cluster]` says besides its number.
#[derive(Clone, Debug)]
enum Sharing<'a> {
    /// They forward to each other: the machines of all.
    Peers(&'a [Machine]),
    /// Through an engine.
    Engine(String),
}

/// Member `number` on a machine.
fn config(number: u16, machine: &Machine, sharing: &Sharing<'_>) -> Config {
    let own = machine.address();
    let how = match sharing {
        Sharing::Peers(all) => {
            let peers: Vec<String> = all.iter().map(|machine| format!("{}:{PEERS}", machine.address())).collect();
            format!("peers = {peers:?}\nlisten = \"{own}:{PEERS}\"")
        }
        Sharing::Engine(url) => format!("store = {url:?}"),
    };
    let more = format!("[cluster]\n{how}\nmember = {number}\n");
    Config { host: own.into(), port: PORT, more, key: Some(KEY), users: Vec::new(), ..Config::open() }
}

/// Members 1, 2, … on these machines, which forward to each other.
pub(super) fn start_peers(machines: &[Machine]) -> Vec<Server> {
    start_peers_with(machines, |config| config)
}

/// The same, with something changed.
pub(super) fn start_peers_with(machines: &[Machine], change: impl Fn(Config) -> Config) -> Vec<Server> {
    start_all(machines, |number, machine| change(config(number, machine, &Sharing::Peers(machines))))
}

/// Members 1, 2, … on these machines, which share registrations through this engine.
pub(super) fn start(machines: &[Machine], url: impl Fn(u16) -> String) -> Vec<Server> {
    start_all(machines, |number, machine| config(number, machine, &Sharing::Engine(url(number))))
}

/// Two members on this machine that forward to each other, take connections, and ask phones for no password.
///
/// # Panics
/// When they do not start.
#[must_use]
pub fn members_on_this_machine() -> [Server; 2] {
    let listen = [(); 2].map(|()| format!("127.0.0.1:{}", free_port()));
    let start = |number: usize| {
        let own = &listen[number - 1];
        let more = format!("[cluster]\npeers = {listen:?}\nlisten = {own:?}\nmember = {number}\n");
        Config { more, tcp: true, key: Some(KEY), require: Vec::new(), ..Config::default() }.start()
    };
    let servers = [1, 2].map(start);
    servers.iter().for_each(|server| wait_until_ready(server, 1));
    servers
}

fn start_all(machines: &[Machine], config: impl Fn(u16, &Machine) -> Config) -> Vec<Server> {
    let begin = |(number, machine): (u16, &Machine)| config(number, machine).start_in(machine.network());
    let servers: Vec<Server> = (1..).zip(machines).map(begin).collect();
    servers.iter().for_each(|server| wait_until_ready(server, machines.len() - 1));
    servers
}

/// Waits until it takes REGISTERs, and sees so many others.
pub(super) fn wait_until_ready(server: &Server, others: usize) {
    let mut status = server.status();
    let is_ready = poll(PATIENCE, || {
        status = server.status();
        let cluster = &status["cluster"];
        let alive =
            cluster["members"].as_array().map_or(0, |all| all.iter().filter(|one| one["alive"] == true).count());
        (cluster["warm"] == true && alive == others).then_some(())
    });
    assert!(is_ready.is_some(), "it does not see {others} others: {}", status["cluster"]);
}

/// Waits until a server has the phones that others have registered.
pub(super) fn wait_until_registered(server: &Server, contacts: usize) {
    let has_all = || (server.registrations() >= contacts as u64).then_some(());
    assert!(poll(PATIENCE, has_all).is_some(), "it has {} of {contacts} contacts", server.registrations());
}
