//! Messages to one peer leave as one packet, unless a packet capture is open.

mod common;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use common::server::Server;
use socket2::{Domain, Protocol, Socket, Type};

/// Number of requests that wait for the server at the same time.
const CROWD: usize = 30;

/// A phone with the number of responses received.
struct Phone {
    socket: UdpSocket,
    heard: u64,
}

impl Phone {
    fn new() -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("settable");
        Self { socket, heard: 0 }
    }

    /// Sends a crowd of requests and receives as many responses. Returns the number of messages joined since the
    /// server's start.
    fn crowd(&mut self, server: &Server) -> u64 {
        let local = self.socket.local_addr().expect("bound");
        // Everything that arrives while it is stopped forms one batch.
        server.signal("STOP");
        let asked: BTreeSet<String> =
            (0..CROWD).map(|number| format!("{}", 1000 + self.heard as usize + number)).collect();
        for id in &asked {
            let request = format!(
                "OPTIONS sip:{to} SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch=z9hG4bK-{id}\r\nMax-Forwards: 70\r\n\
                 From: <sip:a@b>;tag=1\r\nTo: <sip:x@y>\r\nCall-ID: {id}\r\nCSeq: 1 OPTIONS\r\n\
                 Content-Length: 0\r\n\r\n",
                to = server.address
            );
            self.socket.send_to(request.as_bytes(), server.address).expect("sent");
        }
        server.signal("CONT");
        let answered: BTreeSet<String> = (0..CROWD).map(|_| self.hear(server)).collect();
        assert_eq!(answered, asked, "each is answered by itself");
        self.heard += CROWD as u64;
        let counter = |name: &str| server.status()["counters"]["sockets"][name].as_u64().expect("a number");
        server.until("the counters are posted", || counter("sent") >= self.heard);
        counter("segmented")
    }

    /// Returns the Call-ID of the next response.
    fn hear(&self, server: &Server) -> String {
        let mut buffer = [0; 2048];
        let length = self.socket.recv(&mut buffer).unwrap_or_else(|error| panic!("{error}: {}", server.log()));
        let response = String::from_utf8_lossy(&buffer[..length]).into_owned();
        assert!(response.starts_with("SIP/2.0 200 "), "{response}");
        response.lines().find_map(|line| line.strip_prefix("Call-ID: ")).expect("a Call-ID").to_owned()
    }
}

/// Opens a socket like tcpdump's.
fn capture() -> std::io::Result<Socket> {
    let everything = u16::try_from(libc::ETH_P_ALL).expect("a protocol").to_be();
    Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(i32::from(everything))))
}

#[test]
fn segmentation_stops_while_packets_are_captured() {
    if !matches!(strowger_net::count_captures(), Ok(0)) {
        return eprintln!("skipped: somebody captures packets on this machine");
    }
    let server = Server::start("");
    let mut phone = Phone::new();
    let joined = phone.crowd(&server);
    assert!(joined > 1, "none of {CROWD} answers to one peer left joined: {joined}");

    let watcher = match capture() {
        Ok(watcher) => watcher,
        Err(error) => return eprintln!("skipped: no packet socket: {error}"),
    };
    server.until("it is seen", || server.log().contains("a packet capture is active"));
    assert_eq!(phone.crowd(&server), joined, "each leaves by itself, so that it is seen");
    drop(watcher);
    server.until("it is seen to go", || server.log().contains("no packet capture is active"));
    assert!(phone.crowd(&server) > joined);
}

#[test]
fn a_reload_changes_segmentation() {
    let server = Server::start("server.segmentation = \"always\"\n");
    let mut phone = Phone::new();
    assert!(phone.crowd(&server) > 1);
    let file = server.folder.path().join("strowger.toml");
    let first = std::fs::read_to_string(&file).expect("the configuration");
    server.folder.write("strowger.toml", &first.replace("\"always\"", "\"never\""));
    server.folder.run(&["ctl", "reload"]).ok();
    let joined = phone.crowd(&server);
    assert_eq!(phone.crowd(&server), joined);
}
