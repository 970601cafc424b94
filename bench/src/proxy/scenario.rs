//! What is done, and how each server is told.

use std::fmt;
use std::net::SocketAddr;

use super::DOMAIN;

/// What the generator asks of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Proxy-200 between registered users: INVITE, 180, 200, ACK, BYE, 200; the server keeps transactions and stays on the way.
    Call,
    /// A REGISTER that refreshes; nobody is asked for a password.
    Register,
    /// The same, refused for its lack of credentials, and again with them.
    Challenge,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Call, Self::Register, Self::Challenge];

    /// Reads its name.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn parse(text: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name);
        let found = Self::ALL.into_iter().find(|scenario| scenario.name() == text);
        found.ok_or_else(|| format!("no such scenario; there are {}", names.join(", ")))
    }

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Register => "register",
            Self::Challenge => "challenge",
        }
    }

    /// The workload of `strowger load`.
    #[must_use]
    pub const fn workload(self) -> &'static str {
        match self {
            Self::Call => "proxy-200",
            Self::Register | Self::Challenge => "registration",
        }
    }

    /// The request and the answer whose time is shown.
    #[must_use]
    pub const fn timed(self) -> (&'static str, &'static str) {
        match self {
            // The first answer of the callee: 100 Trying is the server's own, and comes before.
            Self::Call => ("INVITE", "2xx"),
            Self::Register | Self::Challenge => ("REGISTER", "2xx"),
        }
    }

    /// Our configuration for it: the defaults, but bindings in memory and one worker, as the other has one receiver.
    #[must_use]
    pub fn configuration(self, address: SocketAddr) -> String {
        let require = if self == Self::Challenge { "[\"REGISTER\"]" } else { "[]" };
        format!(
            "[server]\nlisten = [\"udp:{address}\"]\ndomains = [\"{DOMAIN}\"]\ndata = \"data\"\nworkers = 1\n\
             [store]\nmode = \"memory\"\n[auth]\nrequire = {require}\nrealm = \"{DOMAIN}\"\n[log]\nlevel = \"warn\"\n"
        )
    }

    /// What the other's configuration file is told.
    #[must_use]
    pub const fn defines(self) -> &'static [&'static str] {
        match self {
            Self::Challenge => &["CHALLENGE"],
            Self::Call | Self::Register => &[],
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Call => "stateful Proxy-200",
            Self::Register => "REGISTER",
            Self::Challenge => "REGISTER with challenge",
        })
    }
}
