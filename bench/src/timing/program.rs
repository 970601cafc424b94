//! The measured programs.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::SERVER_CORE;
use super::echo::{EchoArguments, EchoProcess};
use crate::models::server::{Kind, Programs, Server};

/// Address of the echo program.
pub const ECHO: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 5_070);

/// A program that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
pub enum Program {
    /// Strowger with one worker.
    Strowger,
    /// Kamailio with one process that receives.
    Kamailio,
    /// A program that sends each packet back.
    Echo,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strowger => "Strowger",
            Self::Kamailio => "Kamailio",
            Self::Echo => "echo",
        })
    }
}

impl Program {
    /// All programs, in the order of the page.
    pub const ALL: [Self; 3] = [Self::Strowger, Self::Kamailio, Self::Echo];

    /// Returns the SIP server that it is, if any.
    #[must_use]
    pub const fn kind(self) -> Option<Kind> {
        match self {
            Self::Strowger => Some(Kind::Strowger),
            Self::Kamailio => Some(Kind::ProbedKamailio(1)),
            Self::Echo => None,
        }
    }

    /// Returns its name in file names.
    #[must_use]
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Strowger => "strowger",
            Self::Kamailio => "kamailio",
            Self::Echo => "echo",
        }
    }
}

/// Starts a SIP server.
///
/// # Errors
/// If it does not answer.
pub fn start_server(kind: Kind, strowger: &Path) -> Result<Server, String> {
    Server::start(kind, &Programs { strowger: strowger.to_owned(), architectures: PathBuf::new() })
}

/// Starts the plain echo program on the servers' core, with work of `micros` on each packet.
///
/// # Errors
/// If it does not listen.
pub fn start_echo(micros: u64) -> Result<EchoProcess, String> {
    let core = SERVER_CORE.to_string();
    EchoProcess::start(&["taskset", "-c", &core], EchoArguments { address: ECHO, stage: None, micros })
}
