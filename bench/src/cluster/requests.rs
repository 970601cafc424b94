//! A socket that sends REGISTERs and queries for contacts to a server and reads the responses.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use memchr::memmem;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::register::message::{Answer, Template};

/// Maximum size of a response.
const LARGEST: usize = 4_096;

/// A client socket and the address of its server.
#[derive(Debug)]
pub struct Client {
    socket: UdpSocket,
    server: SocketAddr,
    register: Template,
    query: Template,
    bytes: Vec<u8>,
}

/// A final response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinalAnswer {
    /// User number, CSeq and status.
    pub answer: Answer,
    /// Whether it has a contact.
    pub has_contact: bool,
}

impl Client {
    /// Creates a client without sending anything.
    ///
    /// # Errors
    /// If no socket is available.
    pub fn new(server: SocketAddr) -> Result<Self, String> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.to_string())?;
        socket.set_nonblocking(true).map_err(|error| error.to_string())?;
        let local = socket.local_addr().map_err(|error| error.to_string())?;
        let (register, query) = (Template::register(local), Template::query(local));
        Ok(Self { socket, server, register, query, bytes: Vec::new() })
    }

    /// Sends a REGISTER of a user. If the kernel's buffer is full, the message is lost.
    pub fn register(&mut self, user: u32, cseq: u32) {
        self.bytes.clear();
        self.register.write(user, cseq, &mut self.bytes);
        let _ = self.socket.send_to(&self.bytes, self.server);
    }

    /// Queries the contacts of a user.
    pub fn ask(&mut self, user: u32, cseq: u32) {
        self.bytes.clear();
        self.query.write(user, cseq, &mut self.bytes);
        let _ = self.socket.send_to(&self.bytes, self.server);
    }

    /// Returns the next final response that has arrived.
    pub fn answer(&self) -> Option<FinalAnswer> {
        let mut bytes = [0; LARGEST];
        loop {
            let length = match self.socket.recv(&mut bytes) {
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                // The port of a stopped server is unreachable.
                Err(_) => continue,
            };
            let Some(text) = bytes.get(..length) else { continue };
            let Some(answer) = Answer::read(text).filter(|answer| answer.status >= 200) else { continue };
            let has_contact = memmem::find(text, b"\r\nContact:").is_some();
            return Some(FinalAnswer { answer, has_contact });
        }
    }
}

/// Waits until one of the clients has a response, for at most `time`.
pub fn wait(askers: &[&Client], time: Duration) {
    let mut sockets: Vec<PollFd<'_>> = askers.iter().map(|asker| PollFd::new(&asker.socket, PollFlags::IN)).collect();
    if let Ok(time) = Timespec::try_from(time) {
        // An interrupted wait is only shorter.
        let _ = poll(&mut sockets, Some(&time));
    }
}
