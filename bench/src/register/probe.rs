//! A client with one request at a time.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use super::message::{Answer, Template};

/// A socket that sends OPTIONS and queries for contacts to a server.
#[derive(Debug)]
pub struct Probe {
    socket: UdpSocket,
    server: SocketAddr,
    number: u32,
}

impl Probe {
    /// Creates a probe without sending anything.
    ///
    /// # Panics
    /// If no socket is available.
    #[must_use]
    pub fn new(server: SocketAddr) -> Probe {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        Probe { socket, server, number: 0 }
    }

    /// Sends one OPTIONS and returns the status of a response within 10 ms, to this or an earlier request.
    pub fn options(&mut self) -> Option<u16> {
        self.ask_options();
        status(&self.receive(Duration::from_millis(10))?)
    }

    /// Sends OPTIONS until there is a response, for at most `patience`. `check` returns an error if no response can
    /// come.
    ///
    /// # Errors
    /// The error of `check`, or a time-out.
    pub fn wait(&mut self, patience: Duration, mut check: impl FnMut() -> Result<(), String>) -> Result<(), String> {
        let deadline = Instant::now() + patience;
        while self.options().is_none() {
            check()?;
            if Instant::now() > deadline {
                return Err("the server does not answer".to_owned());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Sends one OPTIONS.
    pub fn ask_options(&mut self) {
        self.number += 1;
        let (number, server) = (self.number, self.server);
        let local = self.socket.local_addr().expect("a bound socket has an address");
        let request = format!(
            "OPTIONS sip:{server} SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch=z9hG4bK-ready-{number};rport\r\n\
             Max-Forwards: 70\r\nFrom: <sip:ready@{local}>;tag=r\r\nTo: <sip:{server}>\r\nCall-ID: r{number}@{local}\r\n\
             CSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
        );
        self.send(request.as_bytes());
    }

    /// Sends a message without waiting for a response.
    pub fn send(&self, message: &[u8]) {
        // The request is repeated if the server is not listening yet.
        let _ = self.socket.send_to(message, self.server);
    }

    /// Returns the next datagram that arrives within `time`.
    ///
    /// # Panics
    /// If `time` is zero.
    pub fn receive(&self, time: Duration) -> Option<Vec<u8>> {
        self.socket.set_read_timeout(Some(time)).expect("a time-out can be set");
        let mut answer = vec![0; 2048];
        let length = self.socket.recv(&mut answer).ok()?;
        answer.truncate(length);
        Some(answer)
    }

    /// Returns whether a user has a contact.
    ///
    /// # Errors
    /// If the query is refused, with the status, or never answered.
    pub fn has_contact(&mut self, user: u32) -> Result<bool, String> {
        let local = self.socket.local_addr().expect("a bound socket has an address");
        self.number += 1;
        // Below every CSeq of the user itself; a query does not change it.
        let cseq = self.number % 1_000_000;
        let mut request = Vec::new();
        Template::query(local).write(user, cseq, &mut request);
        // A server that received requests during its start may have a backlog.
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            self.send(&request);
            let Some(bytes) = self.receive(Duration::from_secs(1)) else { continue };
            match Answer::read(&bytes) {
                Some(answer) if (answer.user, answer.cseq) == (user, cseq) && answer.status == 200 => {
                    return Ok(String::from_utf8_lossy(&bytes).lines().any(|line| line.starts_with("Contact:")));
                }
                Some(answer) if (answer.user, answer.cseq) == (user, cseq) => return Err(answer.status.to_string()),
                _ => {}
            }
        }
        Err("no answer".to_owned())
    }
}

/// Returns the status of a response.
#[must_use]
pub fn status(answer: &[u8]) -> Option<u16> {
    std::str::from_utf8(answer.strip_prefix(b"SIP/2.0 ")?.get(..3)?).ok()?.parse().ok()
}
