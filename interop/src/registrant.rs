//! A minimal client that registers, without a phone behind it.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::machine::Machine;
use crate::wire;

/// A client's socket and the number of its last REGISTER.
#[derive(Debug)]
pub struct Registrant {
    socket: UdpSocket,
    cseq: u32,
    user: String,
    domain: &'static str,
    /// Contact address. `None` means the client's own socket.
    contact: Option<SocketAddr>,
}

impl Registrant {
    /// Creates a client for a user of `example.com`.
    ///
    /// # Panics
    /// If there is no free port.
    #[must_use]
    pub fn new(user: &str) -> Registrant {
        Registrant::on(&Machine::local(), user)
    }

    /// Like [`Registrant::new`], on the given machine.
    ///
    /// # Panics
    /// If there is no free port.
    #[must_use]
    pub fn on(machine: &Machine, user: &str) -> Registrant {
        let socket = machine.socket();
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a sound socket");
        Registrant { socket, cseq: 0, user: user.to_owned(), domain: "example.com", contact: None }
    }

    /// Changes the domain and the contact address.
    #[must_use]
    pub fn called_at(self, domain: &'static str, contact: SocketAddr) -> Registrant {
        Registrant { domain, contact: Some(contact), ..self }
    }

    /// Registers for `expires` seconds, or unregisters with 0, and retransmits for up to `patience`. Returns the
    /// status of the final response, or `None` if there is none.
    ///
    /// # Panics
    /// If the client's socket is gone.
    pub fn register(&mut self, server: SocketAddr, expires: u32, patience: Duration) -> Option<u16> {
        self.cseq += 1;
        let (user, cseq, own) = (&self.user, self.cseq, self.socket.local_addr().expect("bound"));
        let (domain, contact) = (self.domain, self.contact.unwrap_or(own));
        let request = format!(
            "REGISTER sip:{domain} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK-{user}-{cseq}\r\nMax-Forwards: 70\r\n\
             From: <sip:{user}@{domain}>;tag=1\r\nTo: <sip:{user}@{domain}>\r\nCall-ID: {user}@{own}\r\n\
             CSeq: {cseq} REGISTER\r\nContact: <sip:{user}@{contact}>;expires={expires}\r\nContent-Length: 0\r\n\r\n"
        );
        let (deadline, mut next) = (Instant::now() + patience, Instant::now());
        let mut answer = [0; 2_048];
        while Instant::now() < deadline {
            if Instant::now() >= next {
                // A dead server is no reason to give up.
                let _ = self.socket.send_to(request.as_bytes(), server);
                next = Instant::now() + Duration::from_millis(500);
            }
            let Ok((length, _)) = self.socket.recv_from(&mut answer) else { continue };
            let text = String::from_utf8_lossy(answer.get(..length).unwrap_or_default());
            if wire::value(&text, "CSeq").starts_with(&format!("{cseq} "))
                && let Some(status) = wire::status(&text).filter(|status| *status >= 200)
            {
                return Some(status);
            }
        }
        None
    }
}
