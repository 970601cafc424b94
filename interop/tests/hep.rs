//! Copies of messages for collectors of HEP: `sngrep` is one, and writes what it gets to a packet capture; another one
//! is played by the test.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use strowger_interop::{
    Callee, Caller, Certificate, Config, PATIENCE, Process, Program, Route, SeenMessage, Server, Tshark,
    call_over_all_transports, free_port, have_both_calls_ended, poll, traced_messages,
};

/// Starts `sngrep` as a collector that writes to this capture.
fn sngrep(address: SocketAddr, capture: &Path) -> Process {
    let arguments =
        ["-F", "-N", "-L", &format!("udp:{address}"), "-O", &capture.display().to_string()].map(str::to_owned);
    let process = Process::start(&Program::Sngrep.path(), &arguments, capture.with_extension("log"));
    let is_there = poll(PATIENCE, || UdpSocket::bind(address).is_err().then_some(()));
    assert!(is_there.is_some(), "sngrep does not listen: {}", process.errors());
    process
}

#[test]
fn a_collector_gets_the_messages_of_all_transports() {
    let needed = [Program::Sngrep, Program::Tshark, Program::Baresip, Program::OpenSsl];
    if !needed.into_iter().all(Program::available) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let capture = folder.path().join("hep.pcap");
    let collector = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let mut sngrep = sngrep(collector, &capture);
    let certificate = Certificate::new("example.com", Ipv4Addr::LOCALHOST.into());
    let secure = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let more = format!("{}\n[trace.hep]\nto = \"udp:{collector}\"\nexcept = [\"OPTIONS\"]\n", certificate.section());
    let server = Config { tcp: true, listeners: vec![format!("tls:{secure}")], more, ..Config::default() }.start();
    let trace = server.trace(&["--ip", "127.0.0.1", "--json"]);

    let _phones = call_over_all_transports(&server, secure);
    let found = poll(PATIENCE, || Some(Tshark::read(&capture).messages()).filter(|found| have_both_calls_ended(found)));
    let found = found.unwrap_or_else(|| panic!("two calls: {:#?}", Tshark::read(&capture).messages()));
    sngrep.signal("TERM");
    assert!(sngrep.wait(PATIENCE).is_some());

    let mut expected = traced_messages(&trace.output());
    expected.truncate(found.len());
    let without_time =
        |messages: &[SeenMessage]| messages.iter().map(|message| message[1..].to_vec()).collect::<Vec<_>>();
    assert_eq!(without_time(&found), without_time(&expected));
    let seconds = |message: &SeenMessage| message[0].parse::<f64>().expect("a number");
    // Each tool reads the clocks by itself.
    for (found, expected) in found.iter().zip(&expected) {
        assert!((seconds(found) - seconds(expected)).abs() < 0.001, "{found:?} {expected:?}");
    }
    let shown = fs::read(&capture).expect("the capture");
    assert!(shown.windows(11).any(|window| window == b"Digest ***\r"), "a REGISTER with masked credentials");
    let counters = server.status()["counters"]["hep"].clone();
    assert_eq!((&counters["dropped"], &counters["failed"]), (&0.into(), &0.into()), "{counters}");
}

/// A collector played by the test.
struct Collector {
    address: SocketAddr,
    packets: Arc<Mutex<Vec<Packet>>>,
}

/// The chunks of a packet, by type.
type Packet = BTreeMap<u16, Vec<u8>>;

impl Collector {
    fn start() -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = socket.local_addr().expect("bound");
        let packets = Arc::<Mutex<Vec<Packet>>>::default();
        let taken = Arc::clone(&packets);
        thread::spawn(move || {
            let mut packet = [0; 65_536];
            while let Ok(length) = socket.recv(&mut packet) {
                taken.lock().unwrap_or_else(PoisonError::into_inner).push(decoded(&packet[..length]));
            }
        });
        Self { address, packets }
    }

    fn packets(&self) -> Vec<Packet> {
        self.packets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for this many packets.
    fn wait(&self, count: usize) -> Vec<Packet> {
        let found = poll(PATIENCE, || Some(self.packets()).filter(|packets| packets.len() >= count));
        found.unwrap_or_else(|| panic!("{} of {count} packets", self.packets().len()))
    }
}

fn decoded(packet: &[u8]) -> Packet {
    let number = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    assert_eq!((&packet[..4], usize::from(number(4))), (&b"HEP3"[..], packet.len()));
    let (mut chunks, mut at) = (Packet::new(), 6);
    while at < packet.len() {
        let length = usize::from(number(at + 4));
        assert_eq!(number(at), 0, "the generic vendor");
        chunks.insert(number(at + 2), packet[at + 6..at + length].to_vec());
        at += length;
    }
    chunks
}

/// Starts a server with a callee for every domain.
fn start() -> (Server, Callee) {
    let callee = Callee::start((Ipv4Addr::LOCALHOST, free_port()).into());
    let route = Route { domain: "pool.test", action: "proxy", targets: vec![callee.uri()] };
    (Config { routes: vec![route], ..Config::open() }.start(), callee)
}

/// Makes these calls and waits until the server has nothing left of them.
fn make(server: &Server, names: &[String]) {
    Caller::new(server.address()).make(names, PATIENCE);
}

fn sent(server: &Server) -> u64 {
    server.status()["counters"]["hep"]["sent"].as_u64().expect("a count")
}

/// Reloads the server with this text after its own configuration.
fn reload(server: &Server, own: &str, more: &str) {
    fs::write(server.file(), format!("{own}\n{more}")).expect("written");
    server.control(&["reload"]);
}

#[test]
fn a_reload_turns_copies_on_and_off() {
    let (server, _callee) = start();
    let own = fs::read_to_string(server.file()).expect("the configuration");
    let collector = Collector::start();
    make(&server, &["before".to_owned()]);
    let section = format!(
        "[trace]\nnode = \"edge-1\"\n[trace.hep]\nto = \"udp:{}\"\ncapture_id = 2001\nauth_key = \"shared\"\n",
        collector.address
    );
    reload(&server, &own, &section);
    make(&server, &["during".to_owned()]);
    // INVITE, 200, ACK, BYE and 200, each received and sent, and a 100.
    let packets = collector.wait(11);
    for packet in &packets {
        let text = |kind: u16| String::from_utf8_lossy(&packet[&kind]).into_owned();
        assert_eq!((&packet[&1][..], &packet[&2][..], &packet[&11][..]), (&[2_u8][..], &[17_u8][..], &[1_u8][..]));
        assert_eq!(packet[&12], 2001_u32.to_be_bytes());
        assert_eq!((text(14), text(17), text(19)), ("shared".to_owned(), "during".to_owned(), "edge-1".to_owned()));
        assert!(text(15).contains("Call-ID: during\r\n"), "{}", text(15));
    }
    reload(&server, &own, "");
    make(&server, &["after".to_owned()]);
    assert_eq!((sent(&server), collector.packets().len()), (11, 11), "nothing is sent any more, and the count stays");
}

#[test]
fn a_sampled_call_is_whole() {
    let (server, _callee) = start();
    let own = fs::read_to_string(server.file()).expect("the configuration");
    let collector = Collector::start();
    let section = format!("[trace.hep]\nto = \"udp:{}\"\nsample = 0.5\n", collector.address);
    reload(&server, &own, &section);
    let names: Vec<String> = (0..40).map(|number| format!("call-{number}")).collect();
    // Few at a time, so that the collector's socket has room for all packets.
    for few in names.chunks(5) {
        make(&server, few);
        let are_there = || (collector.packets().len() as u64 >= sent(&server)).then_some(());
        assert!(poll(PATIENCE, are_there).is_some(), "{} of {}", collector.packets().len(), sent(&server));
    }
    // What waits is sent.
    reload(&server, &own, "");
    let calls = || {
        let mut calls: BTreeMap<String, u32> = BTreeMap::new();
        for packet in collector.packets() {
            *calls.entry(String::from_utf8_lossy(&packet[&17]).into_owned()).or_default() += 1;
        }
        calls
    };
    // INVITE, 200, ACK, BYE and 200, each received and sent, and a 100; more if something was repeated.
    let is_whole = |calls: &BTreeMap<String, u32>| !calls.is_empty() && calls.values().all(|messages| *messages >= 11);
    let whole = poll(PATIENCE, || Some(calls()).filter(is_whole)).unwrap_or_else(|| panic!("parts: {:?}", calls()));
    assert!((5..35).contains(&whole.len()), "about a half: {whole:?}");
}
