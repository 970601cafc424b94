//! The header that a balancer writes before everything else on a connection: the client's address (PROXY protocol).

use std::io;
use std::net::SocketAddr;

use strowger_wire::proxy_header::{MAX_HEADER, ProxyHeader, read_proxy_header};

use super::tcp::{IoOutcome, TcpStream};

/// The header of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Preface {
    /// The peer is no balancer; its address is its own.
    #[default]
    None,
    /// It has not arrived.
    Expected,
    /// It has arrived; `None` if the balancer speaks for itself.
    Received(Option<SocketAddr>),
}

impl Preface {
    /// Reads an expected header, and no byte of what follows it. Returns whether there is none to wait for.
    ///
    /// # Errors
    /// The connection begins otherwise, or is broken.
    pub(super) fn receive(&mut self, stream: &TcpStream) -> io::Result<bool> {
        if *self != Self::Expected {
            return Ok(true);
        }
        let mut buffer = [0; MAX_HEADER];
        let seen = match stream.peek(&mut buffer)? {
            IoOutcome::Bytes(count) => buffer.get(..count).unwrap_or_default(),
            IoOutcome::Blocked => return Ok(false),
            IoOutcome::Eof => return Err(io::ErrorKind::UnexpectedEof.into()),
        };
        let header =
            read_proxy_header(seen).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        let ProxyHeader::Complete { length, addresses } = header else { return Ok(false) };
        let mut rest = buffer.get_mut(..length).unwrap_or_default();
        while !rest.is_empty() {
            match stream.read(rest)? {
                IoOutcome::Bytes(count) => rest = rest.get_mut(count..).unwrap_or_default(),
                // The bytes were there a moment ago.
                IoOutcome::Blocked | IoOutcome::Eof => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        *self = Self::Received(addresses.map(|addresses| addresses.source));
        Ok(true)
    }
}
