//! A phone that registers with a password, from an address of its own.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use strowger_auth::client::{self, Request, Secret};
use strowger_message::AuthParams;

/// Time after which silence counts as no answer.
const SILENCE: Duration = Duration::from_millis(300);

pub(crate) struct Phone {
    socket: UdpSocket,
    pub(crate) server: SocketAddr,
    user: String,
    requests: u32,
}

impl Phone {
    /// Creates a phone of `user` at the local address `ip`.
    pub(crate) fn new(server: SocketAddr, ip: impl Into<IpAddr>, user: &str) -> Self {
        let socket = UdpSocket::bind((ip.into(), 0)).expect("a loopback address");
        socket.set_read_timeout(Some(super::PATIENCE)).expect("settable");
        Self { socket, server, user: user.to_owned(), requests: 0 }
    }

    /// Returns a REGISTER with these header lines.
    pub(crate) fn register(&mut self, more: &str) -> String {
        self.requests += 1;
        let (local, user, number) = (self.socket.local_addr().expect("bound"), &self.user, self.requests);
        format!(
            "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch=z9hG4bK-{local}-{number}\r\n\
             Max-Forwards: 70\r\nFrom: <sip:{user}@example.com>;tag=a\r\nTo: <sip:{user}@example.com>\r\n\
             Call-ID: {user}-{local}\r\nCSeq: {number} REGISTER\r\nContact: <sip:{user}@{local}>\r\nExpires: 600\r\n\
             {more}Content-Length: 0\r\n\r\n"
        )
    }

    pub(crate) fn send(&self, text: &str) {
        self.socket.send_to(text.as_bytes(), self.server).expect("sent");
    }

    /// Returns the next response.
    pub(crate) fn receive(&self) -> String {
        let mut buffer = [0; 4096];
        let length = self.socket.recv(&mut buffer).expect("a response in time");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    /// Returns whether nothing arrives for a while.
    pub(crate) fn is_silent(&self) -> bool {
        self.socket.set_read_timeout(Some(SILENCE)).expect("settable");
        let is_silent = self.socket.recv(&mut [0; 4096]).is_err();
        self.socket.set_read_timeout(Some(super::PATIENCE)).expect("settable");
        is_silent
    }

    /// Sends a REGISTER without credentials; returns the response.
    pub(crate) fn ask(&mut self) -> String {
        let text = self.register("");
        self.send(&text);
        self.receive()
    }

    /// Sends a REGISTER that answers the challenge in `refusal` with this password; returns the response.
    pub(crate) fn answer(&mut self, refusal: &str, password: &str) -> String {
        let text = self.register(&authorization(refusal, &self.user, password));
        self.send(&text);
        self.receive()
    }
}

/// Returns the header line that answers the challenge in a response.
pub(crate) fn authorization(refusal: &str, user: &str, password: &str) -> String {
    let line = refusal.lines().find_map(|line| line.strip_prefix("WWW-Authenticate: ")).expect("a challenge");
    let challenge = AuthParams::parse(line.as_bytes()).expect("a valid challenge");
    let mut out = Vec::new();
    let request = Request {
        username: user.as_bytes(),
        secret: Secret::Password(password.as_bytes()),
        method: b"REGISTER",
        uri: b"sip:example.com",
        body: b"",
        cnonce: b"c",
        nc: 1,
        cover_body: false,
    };
    client::respond(&mut out, &challenge, &request).expect("an answer");
    format!("Authorization: {}\r\n", String::from_utf8(out).expect("ASCII"))
}
