//! One TLS session between a connection's bytes and its socket.

use std::io::{self, Read, Write as _};
use std::net::IpAddr;

use rustls::Connection;
use rustls::pki_types::ServerName;
use webpki::EndEntityCert;

use super::reason::reason_of;
use super::records::RecordTracker;
use crate::stream::progress::Progress;
use crate::stream::tcp::{IoOutcome, TcpStream};

/// Maximum bytes encrypted before they are written: one record.
const RECORD: usize = 16 * 1024;

/// The TLS of one connection. An idle one has no buffers of its own.
#[derive(Debug)]
pub(crate) struct TlsSession {
    connection: Connection,
    /// Ciphertext for the socket; the first `written` bytes have been sent.
    out: Vec<u8>,
    written: usize,
    /// Whether the last read has emptied the socket.
    is_drained: bool,
    /// The records of the peer.
    records: RecordTracker,
    /// Number of bytes received after the handshake without any plaintext: they may be parts of one long message of
    /// TLS itself.
    silent: usize,
}

impl TlsSession {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection,
            out: Vec::new(),
            written: 0,
            is_drained: false,
            records: RecordTracker::default(),
            silent: 0,
        }
    }

    /// Continues the handshake with what has arrived.
    ///
    /// # Errors
    /// Why it failed; the peer has been told.
    pub(crate) fn advance(&mut self, stream: &TcpStream) -> io::Result<Progress> {
        loop {
            self.flush(stream)?;
            if !self.connection.is_handshaking() {
                return Ok(Progress::Open);
            }
            // Until the socket is empty for sure: an end that has come already is reported only once.
            if !self.receive(stream)? {
                return Ok(Progress::Opening);
            }
        }
    }

    /// Reads what the peer has sent.
    pub(crate) fn read(&mut self, stream: &TcpStream, buffer: &mut [u8]) -> io::Result<IoOutcome> {
        self.is_drained = false;
        let mut filled = 0;
        loop {
            let rest = buffer.get_mut(filled..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(IoOutcome::Bytes(filled));
            }
            match self.connection.reader().read(rest) {
                // The peer has said that it ends, or has gone without a word. Messages say where they end.
                Ok(0) => return Ok(self.at_end(filled)),
                Ok(count) => {
                    filled += count;
                    self.silent = 0;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(self.at_end(filled)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            // After a short read without plaintext, the end of the stream may follow, and nothing would report it again.
            let is_more = (!self.is_drained || filled == 0)
                && match self.receive(stream) {
                    Ok(is_more) => is_more,
                    // What came before the fault is handled first.
                    Err(_) if filled > 0 => return Ok(self.at_end(filled)),
                    Err(error) => return Err(error),
                };
            if !is_more {
                return Ok(if filled > 0 { IoOutcome::Bytes(filled) } else { IoOutcome::Blocked });
            }
        }
    }

    /// Returns the last bytes before the end, which the next read reports.
    const fn at_end(&mut self, filled: usize) -> IoOutcome {
        self.is_drained = false;
        if filled > 0 { IoOutcome::Bytes(filled) } else { IoOutcome::Eof }
    }

    /// Returns the number of received bytes that cannot be read yet: of an incomplete record.
    pub(crate) fn held(&self) -> usize {
        self.records.incomplete().max(self.silent)
    }

    /// Whether the peer has begun a record that it has not ended.
    pub(crate) const fn is_midway(&self) -> bool {
        self.records.incomplete() > 0 || self.silent > RECORD
    }

    /// Whether more may be waiting, even after a read that did not fill its buffer.
    pub(crate) const fn has_input(&self) -> bool {
        !self.is_drained
    }

    /// Encrypts and sends `bytes`, which is not empty. Takes them only once earlier ones have been sent.
    pub(crate) fn write(&mut self, stream: &TcpStream, bytes: &[u8]) -> io::Result<IoOutcome> {
        self.flush(stream)?;
        if self.pending() > 0 {
            return Ok(IoOutcome::Blocked);
        }
        let record = bytes.get(..RECORD).unwrap_or(bytes);
        let count = self.connection.writer().write(record)?;
        self.flush(stream)?;
        Ok(if count == 0 { IoOutcome::Blocked } else { IoOutcome::Bytes(count) })
    }

    /// Returns the number of bytes that wait for the socket.
    pub(crate) const fn pending(&self) -> usize {
        self.out.len().saturating_sub(self.written)
    }

    /// Sends waiting ciphertext as far as the socket takes it.
    pub(crate) fn flush(&mut self, stream: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut self.out)?;
        }
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            match stream.write(rest)? {
                IoOutcome::Bytes(count) => self.written += count,
                IoOutcome::Blocked => return Ok(()),
                IoOutcome::Eof => return Err(io::ErrorKind::WriteZero.into()),
            }
        }
        if self.written > 0 {
            (self.out, self.written) = (Vec::new(), 0);
        }
        Ok(())
    }

    /// Tells the peer that nothing follows.
    pub(crate) fn end(&mut self, stream: &TcpStream) {
        self.connection.send_close_notify();
        // Whoever does not take it learns from the end of the connection.
        let _ = self.flush(stream);
    }

    /// Returns the domains that the peer's certificate speaks for; none without a certificate.
    pub(crate) fn domains(&self) -> Vec<String> {
        let leaf = self.connection.peer_certificates().and_then(<[_]>::first);
        leaf.map(|leaf| super::files::names(leaf).0).unwrap_or_default()
    }

    /// Whether the session continues an earlier one.
    pub(crate) fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }

    /// Returns whether the peer has a certificate.
    pub(crate) fn has_certificate(&self) -> bool {
        self.connection.peer_certificates().is_some()
    }

    /// Returns whether the peer's certificate has an address.
    pub(crate) fn has_address(&self, ip: IpAddr) -> bool {
        let leaf = self.connection.peer_certificates().and_then(<[_]>::first);
        let leaf = leaf.and_then(|leaf| EndEntityCert::try_from(leaf).ok());
        leaf.is_some_and(|leaf| leaf.verify_is_valid_for_subject_name(&ServerName::from(ip)).is_ok())
    }

    /// Reads from the socket and decrypts; returns whether there was anything.
    fn receive(&mut self, stream: &TcpStream) -> io::Result<bool> {
        let mut socket = Socket { stream, records: &mut self.records, is_drained: false };
        let outcome = self.connection.read_tls(&mut socket);
        self.is_drained = socket.is_drained;
        match outcome {
            Ok(0) if self.connection.is_handshaking() => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) if !self.connection.is_handshaking() => self.silent += count,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        let processed = self.connection.process_new_packets();
        // The answer, or the alert that says what was wrong.
        let flushed = self.flush(stream);
        processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, reason_of(&error)))?;
        flushed?;
        Ok(true)
    }
}

/// The socket as a reader that notes when it is empty.
struct Socket<'a> {
    stream: &'a TcpStream,
    records: &'a mut RecordTracker,
    is_drained: bool,
}

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.stream.read(buffer)? {
            IoOutcome::Bytes(count) => {
                self.is_drained = count < buffer.len();
                self.records.advance(buffer.get(..count).unwrap_or_default());
                Ok(count)
            }
            IoOutcome::Blocked => {
                self.is_drained = true;
                Err(io::ErrorKind::WouldBlock.into())
            }
            IoOutcome::Eof => Ok(0),
        }
    }
}
