//! The media engine `rtpengine`, without its kernel module.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use strowger_media::bencode::{DictWriter, Value};
use tempfile::TempDir;

use crate::namespace::Namespace;
use crate::process::{Process, tail};
use crate::{PATIENCE, Program, free_port, poll};

/// Ports for media. Several engines share them: each takes free ones.
const MEDIA_PORTS: [u16; 2] = [33_000, 39_998];

/// A running engine.
#[derive(Debug)]
pub struct Rtpengine {
    process: Process,
    address: SocketAddr,
    socket: UdpSocket,
    folder: TempDir,
}

/// The packets that an engine has relayed for a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relayed {
    /// The tag of the party that sent them.
    pub tag: String,
    /// The number of RTP packets.
    pub packets: u64,
    /// The port of the engine that received them.
    pub port: u16,
}

impl Rtpengine {
    /// Starts an engine on a loopback address.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start() -> Rtpengine {
        Rtpengine::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())), Ipv4Addr::LOCALHOST, None)
    }

    /// Starts an engine that takes commands at `address` and relays media at `media`, optionally in a network
    /// namespace.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start_at(address: SocketAddr, media: Ipv4Addr, network: Option<&Namespace>) -> Rtpengine {
        let folder = tempfile::Builder::new().prefix("rtpengine-").tempdir().expect("a temporary folder");
        let [low, high] = MEDIA_PORTS;
        // Without a file of its own it reads that of the system, which opens more ports.
        let config = folder.path().join("rtpengine.conf");
        std::fs::write(&config, "[rtpengine]\n").expect("the configuration can be written");
        let arguments = [
            format!("--config-file={}", config.display()),
            "--foreground".to_owned(),
            "--log-stderr".to_owned(),
            "--log-level=6".to_owned(),
            // Relays packets itself, without the kernel module.
            "--table=-1".to_owned(),
            // Forgets a call at once when it ends.
            "--delete-delay=0".to_owned(),
            "--num-threads=2".to_owned(),
            format!("--listen-ng={address}"),
            format!("--interface={media}"),
            format!("--port-min={low}"),
            format!("--port-max={high}"),
        ];
        let log = folder.path().join("rtpengine.log");
        let process = Process::start_in(network, &Program::Rtpengine.path(), &arguments, log);
        let bind = || UdpSocket::bind((address.ip(), 0)).expect("a socket");
        let socket = network.map_or_else(bind, |network| network.inside(bind));
        socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a time-out can be set");
        let mut engine = Rtpengine { process, address, socket, folder };
        let answers = poll(PATIENCE, || {
            assert!(engine.process.ended().is_none(), "rtpengine ended:\n{}", engine.process.errors());
            engine.ask("ping", None)
        });
        assert!(answers.is_some(), "rtpengine does not answer:\n{}", engine.process.errors());
        engine
    }

    /// Returns the address for commands, as in `media.engines`.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("udp:{}", self.address)
    }

    /// Kills the engine.
    ///
    /// # Panics
    /// If it does not end.
    pub fn kill(&mut self) {
        self.process.signal("KILL");
        assert!(self.process.wait(PATIENCE).is_some(), "rtpengine does not end");
    }

    /// Starts a killed engine again, at the same address.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_again(&mut self) {
        *self = Rtpengine::start_at(self.address, Ipv4Addr::LOCALHOST, None);
    }

    /// Returns the Call-IDs that the engine knows.
    ///
    /// # Panics
    /// If it does not answer.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        let answer = self.ask("list", None).expect("rtpengine answers");
        let value = Value::parse(&answer).expect("rtpengine speaks bencode");
        let Some(Value::List(calls)) = value.get("calls") else { panic!("no list of calls: {value:?}") };
        calls.iter().filter_map(Value::as_bytes).map(|id| String::from_utf8_lossy(id).into_owned()).collect()
    }

    /// Returns what the engine has relayed for its only call: the RTP packets of each party with at least one stream.
    ///
    /// # Panics
    /// If it has not exactly one call.
    #[must_use]
    pub fn relayed(&self) -> Vec<Relayed> {
        let calls = self.calls();
        let [call] = &calls[..] else { panic!("not one call: {calls:?}") };
        let answer = self.ask("query", Some(call)).expect("rtpengine answers");
        let value = Value::parse(&answer).expect("rtpengine speaks bencode");
        let Some(Value::Dict(tags)) = value.get("tags") else { panic!("no parties: {value:?}") };
        let stream = |party: &Value<'_>| {
            let Some(Value::List(medias)) = party.get("medias") else { return None };
            let Some(Value::List(streams)) = medias.first()?.get("streams") else { return None };
            let first = streams.first()?;
            let port = first.get("local port")?.as_int()?;
            Some((u16::try_from(port).ok()?, first.get("stats")?.get("packets")?.as_int()?))
        };
        let relayed = tags.iter().filter_map(|(tag, party)| {
            let (port, packets) = stream(party)?;
            let tag = String::from_utf8_lossy(tag).into_owned();
            Some(Relayed { tag, packets: packets.unsigned_abs(), port })
        });
        relayed.collect()
    }

    /// Sends a command and returns the answer without its cookie.
    fn ask(&self, command: &str, call_id: Option<&str>) -> Option<Vec<u8>> {
        // The engine repeats its answer to a known cookie.
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let cookie = format!("{}x{number} ", std::process::id());
        let mut message = cookie.clone().into_bytes();
        let mut dict = DictWriter::new(&mut message);
        dict.optional("call-id", call_id.map(str::as_bytes)).bytes("command", command.as_bytes()).finish();
        self.socket.send_to(&message, self.address).ok()?;
        let mut buffer = vec![0; 65_535];
        loop {
            let length = self.socket.recv(&mut buffer).ok()?;
            // An answer to an earlier command may have come late.
            if let Some(answer) = buffer.get(..length)?.strip_prefix(cookie.as_bytes()) {
                return Some(answer.to_vec());
            }
        }
    }
}

impl Drop for Rtpengine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- rtpengine in {} ---\n{}", self.folder.path().display(), tail(&self.process.errors(), 150));
        }
    }
}
