//! A minimal client that registers, without a phone behind it.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::machine::Machine;
use crate::md5::md5;
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
        Registrant::with(machine.socket(), user)
    }

    /// Like [`Registrant::new`], on an address of this machine.
    ///
    /// # Panics
    /// If the machine does not have that address.
    #[must_use]
    pub fn at(address: IpAddr, user: &str) -> Registrant {
        Registrant::with(UdpSocket::bind((address, 0)).expect("an address of this machine"), user)
    }

    fn with(socket: UdpSocket, user: &str) -> Registrant {
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
        wire::status(&self.ask(server, expires, "", patience)?)
    }

    /// Registers for an hour and answers the challenge with this password. Returns the status of the response to that.
    ///
    /// # Panics
    /// If the client's socket is gone, or the server does not ask for a password.
    pub fn log_in(&mut self, server: SocketAddr, password: &str, patience: Duration) -> Option<u16> {
        let refusal = self.ask(server, 3600, "", patience)?;
        let challenge = wire::value(&refusal, "WWW-Authenticate");
        let fields = registration_credentials(challenge, (&self.user, password), 1);
        wire::status(&self.ask(server, 3600, &fields, patience)?)
    }

    /// Registers with additional header fields, each with its line end. Otherwise like [`Registrant::register`], but returns
    /// the response.
    ///
    /// # Panics
    /// If the client's socket is gone.
    pub fn ask(&mut self, server: SocketAddr, expires: u32, fields: &str, patience: Duration) -> Option<String> {
        self.cseq += 1;
        let (user, cseq, own) = (&self.user, self.cseq, self.socket.local_addr().expect("bound"));
        let (domain, contact) = (self.domain, self.contact.unwrap_or(own));
        let request = format!(
            "REGISTER sip:{domain} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK-{user}-{cseq}\r\nMax-Forwards: 70\r\n\
             From: <sip:{user}@{domain}>;tag=1\r\nTo: <sip:{user}@{domain}>\r\nCall-ID: {user}@{own}\r\n\
             CSeq: {cseq} REGISTER\r\nContact: <sip:{user}@{contact}>;expires={expires}\r\n{fields}Content-Length: 0\r\n\r\n"
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
                && wire::status(&text).is_some_and(|status| status >= 200)
            {
                return Some(text.into_owned());
            }
        }
        None
    }
}

/// Builds the Authorization line with which a user of `example.com` answers a challenge (RFC 2617 §3.2.2). `count` is the
/// nonce count.
///
/// # Panics
/// If the challenge has no nonce.
#[must_use]
pub fn registration_credentials(challenge: &str, (user, password): (&str, &str), count: u32) -> String {
    let nonce = challenge.split("nonce=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a nonce");
    let secret = md5(&format!("{user}:example.com:{password}"));
    let what = md5("REGISTER:sip:example.com");
    let response = md5(&format!("{secret}:{nonce}:{count:08x}:c0ffee:auth:{what}"));
    format!(
        "Authorization: Digest username=\"{user}\", realm=\"example.com\", nonce=\"{nonce}\", uri=\"sip:example.com\", \
         response=\"{response}\", algorithm=MD5, cnonce=\"c0ffee\", qop=auth, nc={count:08x}\r\n"
    )
}
