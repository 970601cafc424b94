//! Somebody who asks one thing at a time.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use super::message::{Answer, Template};

/// A socket that asks a server for OPTIONS, and which contacts users have.
#[derive(Debug)]
pub struct Probe {
    socket: UdpSocket,
    server: SocketAddr,
    number: u32,
}

impl Probe {
    /// Nothing is sent yet.
    ///
    /// # Panics
    /// When there is no socket.
    #[must_use]
    pub fn new(server: SocketAddr) -> Probe {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        Probe { socket, server, number: 0 }
    }

    /// Sends one OPTIONS, and says the status of what is answered within 10 ms, be it to this one or to one before.
    pub fn options(&mut self) -> Option<u16> {
        self.ask_options();
        status(&self.receive(Duration::from_millis(10))?)
    }

    /// Asks until there is an answer, at most for `patience`; `check` says why there will be none.
    ///
    /// # Errors
    /// What `check` said, or that the time is over.
    pub fn wait(&mut self, patience: Duration, mut check: impl FnMut() -> Result<(), String>) -> Result<(), String> {
        let deadline = Instant::now() + patience;
        while self.options().is_none() {
            check()?;
            if Instant::now() > deadline {
                return Err("it does not answer".to_owned());
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

    /// Sends what an answer is not waited for.
    pub fn send(&self, message: &[u8]) {
        // A server that is not there yet is asked again later.
        let _ = self.socket.send_to(message, self.server);
    }

    /// The next datagram that arrives within `time`.
    ///
    /// # Panics
    /// When `time` is zero.
    pub fn receive(&self, time: Duration) -> Option<Vec<u8>> {
        self.socket.set_read_timeout(Some(time)).expect("a time-out can be set");
        let mut answer = vec![0; 2048];
        let length = self.socket.recv(&mut answer).ok()?;
        answer.truncate(length);
        Some(answer)
    }

    /// Whether a user has a contact.
    ///
    /// # Errors
    /// When that is refused, with the status, or never answered.
    pub fn has_contact(&mut self, user: u32) -> Result<bool, String> {
        let local = self.socket.local_addr().expect("a bound socket has an address");
        self.number += 1;
        // Below every CSeq of the user itself; a question changes nothing anyway.
        let cseq = self.number % 1_000_000;
        let mut request = Vec::new();
        Template::query(local).write(user, cseq, &mut request);
        // A server that was asked while it began may have much to answer first.
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

/// The status of an answer.
#[must_use]
pub fn status(answer: &[u8]) -> Option<u16> {
    std::str::from_utf8(answer.strip_prefix(b"SIP/2.0 ")?.get(..3)?).ok()?.parse().ok()
}
