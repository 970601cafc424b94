//! A client that registers, without a phone behind it.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::machine::Machine;
use crate::wire;

/// The client's socket, and the number of its last REGISTER.
#[derive(Debug)]
pub struct Registrant {
    socket: UdpSocket,
    cseq: u32,
    user: String,
    domain: &'static str,
    /// Where it wants its calls; at its own socket where there is none.
    contact: Option<SocketAddr>,
}

impl Registrant {
    /// A user of `example.com`.
    ///
    /// # Panics
    /// When there is no free port.
    #[must_use]
    pub fn new(user: &str) -> Registrant {
        Registrant::on(&Machine::local(), user)
    }

    /// The same on a machine.
    ///
    /// # Panics
    /// When there is no free port.
    #[must_use]
    pub fn on(machine: &Machine, user: &str) -> Registrant {
        let socket = machine.socket();
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a sound socket");
        Registrant { socket, cseq: 0, user: user.to_owned(), domain: "example.com", contact: None }
    }

    /// The same of another domain, who is called at `contact`.
    #[must_use]
    pub fn called_at(self, domain: &'static str, contact: SocketAddr) -> Registrant {
        Registrant { domain, contact: Some(contact), ..self }
    }

    /// Registers for so many seconds, 0 to unregister, and sends that again for as long as `patience`. The status of the final answer;
    /// `None` where there is none.
    ///
    /// # Panics
    /// When its socket is gone.
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
                // A server that is dead is no reason to give up.
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
