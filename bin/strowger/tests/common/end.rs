//! A caller or callee with its own socket.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::PATIENCE;
use super::server::Server;

/// Time to wait for one of two sockets that are read in turn.
const GLANCE: Duration = Duration::from_millis(10);

/// One end of a call: the caller, a gateway or a target.
pub(crate) struct End {
    pub(crate) socket: UdpSocket,
    pub(crate) address: SocketAddr,
}

impl End {
    pub(crate) fn new() -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = socket.local_addr().expect("bound");
        socket.set_read_timeout(Some(GLANCE)).expect("settable");
        Self { socket, address }
    }

    pub(crate) fn uri(&self) -> String {
        format!("sip:{}", self.address)
    }

    /// Returns a message if one arrives soon.
    pub(crate) fn glance(&self) -> Option<(String, SocketAddr)> {
        let mut buffer = [0; 4096];
        let (length, from) = self.socket.recv_from(&mut buffer).ok()?;
        Some((String::from_utf8_lossy(&buffer[..length]).into_owned(), from))
    }

    /// Returns the next message whose first line contains `what`.
    pub(crate) fn receive(&self, what: &str) -> (String, SocketAddr) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some((text, from)) = self.glance()
                && text.lines().next().is_some_and(|start| start.contains(what))
            {
                return (text, from);
            }
        }
        panic!("no {what} in time");
    }

    /// Returns the index of the one of `ends` that the INVITE of the call `id` reaches, and the INVITE.
    pub(crate) fn reached(server: &Server, ends: &[&Self], id: &str) -> (usize, (String, SocketAddr)) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            for (index, end) in ends.iter().enumerate() {
                if let Some(message) = end.glance()
                    && message.0.starts_with("INVITE")
                    && message.0.contains(&format!("Call-ID: {id}\r\n"))
                {
                    return (index, message);
                }
            }
        }
        panic!("the call reaches nobody\n{}", server.log());
    }

    pub(crate) fn send(&self, to: SocketAddr, text: &str) {
        self.socket.send_to(text.replace('\n', "\r\n").as_bytes(), to).expect("sent");
    }

    /// Sends a request of the caller in the call `id`.
    pub(crate) fn request(&self, server: &Server, start: &str, to_tag: &str, id: &str, cseq: &str, more: &str) {
        let branch = format!("{id}{}", cseq.replace(' ', ""));
        self.send(
            server.address,
            &format!(
                "{start} SIP/2.0\nVia: SIP/2.0/UDP {};branch=z9hG4bK{branch}\nMax-Forwards: 70\n\
                 From: <sip:alice@example.com>;tag=a\nTo: <sip:+431@pstn.example>{to_tag}\nCall-ID: {id}\nCSeq: {cseq}\n\
                 Contact: <sip:alice@{}>\n{more}Content-Length: 0\n\n",
                self.address, self.address
            ),
        );
    }

    /// Answers a request with its own Via, Record-Route, From, To, Call-ID and CSeq.
    pub(crate) fn answer(&self, (request, from): &(String, SocketAddr), status: &str) {
        let kept = ["Via", "Record-Route", "From", "To", "Call-ID", "CSeq"];
        let lines = request.lines().filter(|line| kept.iter().any(|name| line.starts_with(&format!("{name}:"))));
        let tagged = |line: &str| {
            let needs_tag = line.starts_with("To:") && !line.contains("tag=");
            if needs_tag { format!("{line};tag=g\n") } else { format!("{line}\n") }
        };
        let head: String = lines.map(tagged).collect();
        self.send(*from, &format!("SIP/2.0 {status}\n{head}Contact: <{}>\nContent-Length: 0\n\n", self.uri()));
    }
}
