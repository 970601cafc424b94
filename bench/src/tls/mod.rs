//! Cost of TLS beside Kamailio: memory of idle connections, handshakes, calls over open connections, and what other
//! callers notice of handshakes.
//!
//! The server has core 0, `strowger load` core 1. Generator and server do the same amount of cryptography, so the
//! generator is often the limit; what one core of the server carries is computed from its CPU time.

pub mod calls;
pub mod contender;
pub mod generator;
pub mod idle;

use std::net::Ipv4Addr;
use std::path::PathBuf;

/// Core of the server.
pub const SERVER_CORE: &str = "0";
/// Core of the generator.
pub const GENERATOR_CORE: &str = "1";

/// A certificate for this machine.
#[derive(Debug)]
pub struct Certificate {
    /// The certificate, which is its own authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    _files: strowger_interop::Certificate,
}

impl Certificate {
    /// Makes one with a P-256 key, removed with the value.
    ///
    /// # Panics
    /// If `openssl` is not installed or fails.
    #[must_use]
    pub fn make() -> Self {
        let files = strowger_interop::Certificate::new("bench.invalid", Ipv4Addr::LOCALHOST.into());
        Self { certificate: files.file(), key: files.key(), _files: files }
    }
}
