//! Servers that share registrations, each on a separate machine.

use crate::machine::Machine;
use crate::{Config, PATIENCE, Server, free_port, poll};

const KEY: [u8; 16] = *b"a key of members";
/// Port for SIP, and for what members forward to each other.
pub(super) const PORT: u16 = 5060;
const PEERS: u16 = 5064;

/// Keys of a member's section `[cluster]` besides its number.
#[derive(Clone, Debug)]
enum Sharing<'a> {
    /// Direct forwarding between these machines.
    Peers(&'a [Machine]),
    /// Sharing through an engine.
    Engine(String),
}

/// Returns the configuration of member `number` on a machine.
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

/// Starts members 1, 2, … on these machines, which forward changes to each other.
pub(super) fn start_peers(machines: &[Machine]) -> Vec<Server> {
    start_peers_with(machines, |config| config)
}

/// Like [`start_peers`], with a changed configuration.
pub(super) fn start_peers_with(machines: &[Machine], change: impl Fn(Config) -> Config) -> Vec<Server> {
    start_all(machines, |number, machine| change(config(number, machine, &Sharing::Peers(machines))))
}

/// Starts members 1, 2, … on these machines, which share registrations through this engine.
pub(super) fn start(machines: &[Machine], url: impl Fn(u16) -> String) -> Vec<Server> {
    start_all(machines, |number, machine| config(number, machine, &Sharing::Engine(url(number))))
}

/// Starts two members on this machine that forward changes to each other, accept TCP connections, and ask for no
/// passwords.
///
/// # Panics
/// If they do not start.
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

/// Waits until the member accepts REGISTERs and sees this many other members.
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

/// Waits until a server has the registrations made at the others.
pub(super) fn wait_until_registered(server: &Server, contacts: usize) {
    let has_all = || (server.registrations() >= contacts as u64).then_some(());
    assert!(poll(PATIENCE, has_all).is_some(), "it has {} of {contacts} contacts", server.registrations());
}
