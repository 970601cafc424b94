//! A socket that sends REGISTERs and questions for contacts to a server, and reads the answers.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use memchr::memmem;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::register::message::{Answer, Template};

/// The largest answer.
const LARGEST: usize = 4_096;

/// A socket and the server that it asks.
#[derive(Debug)]
pub struct Client {
    socket: UdpSocket,
    server: SocketAddr,
    register: Template,
    query: Template,
    bytes: Vec<u8>,
}

/// A final answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinalAnswer {
    /// The user's number, its CSeq and the status.
    pub answer: Answer,
    /// Whether it names a contact.
    pub has_contact: bool,
}

impl Client {
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// When there is no socket.
    pub fn new(server: SocketAddr) -> Result<Self, String> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.to_string())?;
        socket.set_nonblocking(true).map_err(|error| error.to_string())?;
        let local = socket.local_addr().map_err(|error| error.to_string())?;
        let (register, query) = (Template::register(local), Template::query(local));
        Ok(Self { socket, server, register, query, bytes: Vec::new() })
    }

    /// Registers a user. What the kernel has no room for is as good as lost.
    pub fn register(&mut self, user: u32, cseq: u32) {
        self.bytes.clear();
        self.register.write(user, cseq, &mut self.bytes);
        let _ = self.socket.send_to(&self.bytes, self.server);
    }

    /// Asks which contacts a user has.
    pub fn ask(&mut self, user: u32, cseq: u32) {
        self.bytes.clear();
        self.query.write(user, cseq, &mut self.bytes);
        let _ = self.socket.send_to(&self.bytes, self.server);
    }

    /// The next final answer that is there already.
    pub fn answer(&self) -> Option<FinalAnswer> {
        let mut bytes = [0; LARGEST];
        loop {
            let length = match self.socket.recv(&mut bytes) {
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                // A server that is not there: its port says so.
                Err(_) => continue,
            };
            let Some(text) = bytes.get(..length) else { continue };
            let Some(answer) = Answer::read(text).filter(|answer| answer.status >= 200) else { continue };
            let has_contact = memmem::find(text, b"\r\nContact:").is_some();
            return Some(FinalAnswer { answer, has_contact });
        }
    }
}

/// Waits until one of them has an answer, for `time` at most.
pub fn wait(askers: &[&Client], time: Duration) {
    let mut sockets: Vec<PollFd<'_>> = askers.iter().map(|asker| PollFd::new(&asker.socket, PollFlags::IN)).collect();
    if let Ok(time) = Timespec::try_from(time) {
        // An interrupted wait is a short one.
        let _ = poll(&mut sockets, Some(&time));
    }
}
