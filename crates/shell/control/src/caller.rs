//! Who asks for a change.

use std::fmt;
use std::net::IpAddr;

/// A client of the server, for the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A process on this machine, which opened the control socket.
    Process {
        /// Its user id; none if the system does not tell.
        uid: Option<u32>,
        /// Its process id.
        pid: Option<i32>,
    },
    /// The bearer of a token.
    Token {
        /// The token's name.
        name: String,
        /// The client's address.
        address: IpAddr,
    },
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { uid: Some(uid), pid: Some(pid) } => write!(f, "uid {uid}, process {pid}"),
            Self::Process { uid: Some(uid), pid: None } => write!(f, "uid {uid}"),
            Self::Process { .. } => f.write_str("an unknown process"),
            Self::Token { name, address } => write!(f, "token {name}, address {address}"),
        }
    }
}
