//! A server that is upgraded, and what talks to it.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::end::End;
use super::server::Server;
use super::{CommandResult, PATIENCE, free_address};

/// A server that is upgraded, and all its processes.
pub(crate) struct Chain {
    pub(crate) server: Server,
    /// All its processes so far, the first one first.
    pub(crate) pids: Vec<u64>,
}

impl Chain {
    pub(crate) fn start(more: &str) -> Self {
        Self::of(Server::start(more))
    }

    pub(crate) fn of(server: Server) -> Self {
        server.until("registrations are loaded", || server.status()["store"]["state"] == "ok");
        let pids = vec![u64::from(server.child.id())];
        Self { server, pids }
    }

    /// Makes the server listen on TCP too; returns the address.
    pub(crate) fn listen_on_tcp(&self) -> SocketAddr {
        let (tcp, folder) = (free_address(), &self.server.folder);
        let config = folder.read("strowger.toml").replace("\"udp:", &format!("\"tcp:{tcp}\", \"udp:"));
        folder.write("strowger.toml", &config);
        folder.run(&["ctl", "reload"]).ok();
        tcp
    }

    /// Returns the earlier processes in `ctl status`.
    pub(crate) fn earlier(&self) -> Vec<Value> {
        self.server.status()["takeover"]["predecessors"].as_array().cloned().unwrap_or_default()
    }

    /// Upgrades the server; returns the report.
    pub(crate) fn upgrade(&mut self, arguments: &[&str]) -> Value {
        let report = self.server.folder.run(&[&["upgrade", "--json"], arguments].concat()).json();
        let pid = report["pid"].as_u64().expect("a process");
        assert_ne!(Some(&pid), self.pids.last());
        self.pids.push(pid);
        let status = self.server.status();
        assert_eq!(status["pid"], pid, "it answers at the control socket");
        assert_eq!(status["takeover"]["from_pid"], self.pids[self.pids.len() - 2]);
        report
    }

    /// Tries an upgrade that fails; returns the reason.
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        // The configuration may be at fault.
        let status = || self.server.folder.run(&["ctl", "--socket", "data/control.sock", "status", "--json"]).json();
        let before = status();
        let ran: CommandResult = self.server.folder.run(&[&["upgrade"], arguments].concat());
        let reason = ran.refused(1);
        assert!(reason.starts_with("not upgraded: ") && reason.ends_with("; the server goes on as before"), "{reason}");
        assert_eq!(status()["pid"], before["pid"]);
        assert!(self.server.ask(&phone(), &options(&self.server)).starts_with("SIP/2.0 200 "), "it serves");
        reason
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        // The first one is the child of the test.
        for pid in self.pids.iter().skip(1) {
            let kill = Command::new("kill").args(["-s", "KILL", &pid.to_string()]).stderr(Stdio::null()).status();
            kill.expect("kill runs");
        }
    }
}

/// An OPTIONS to the server itself.
pub(crate) fn options(server: &Server) -> String {
    let address = server.address;
    format!("OPTIONS sip:{address} SIP/2.0\nFrom: <sip:a@b>;tag=1\nTo: <sip:x@y>\nCall-ID: options\nCSeq: 1 OPTIONS")
}

pub(crate) fn phone() -> UdpSocket {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port")
}

/// A server that sends calls to a gateway, the gateway, and a caller.
pub(crate) fn with_gateway(more: &str) -> (Chain, End, End) {
    let gateway = End::new();
    let route = format!("[[route]]\ntargets = [\"{}\"]\n", gateway.uri());
    let more = format!("server.domains = [\"example.com\"]\ncdr.file = \"calls.json\"\n{more}");
    (Chain::start(&format!("{more}{route}")), gateway, End::new())
}

/// Sends a request on a connection; returns the response.
pub(crate) fn ask_on(mut stream: &TcpStream, head: &str) -> String {
    stream.set_read_timeout(Some(PATIENCE)).expect("settable");
    let (start, rest) = head.split_once('\n').expect("a start line");
    let local = stream.local_addr().expect("connected");
    let via = format!("Via: SIP/2.0/TCP {local};branch=z9hG4bK-{}", head.len());
    let text = format!("{start}\n{via}\n{rest}\nMax-Forwards: 70\nContent-Length: 0\n\n").replace('\n', "\r\n");
    stream.write_all(text.as_bytes()).expect("sent");
    let mut buffer = [0; 4096];
    let length = stream.read(&mut buffer).expect("a response");
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}
