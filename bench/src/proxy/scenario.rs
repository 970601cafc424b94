//! The scenarios, and the configuration of each server for them.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::DOMAIN;
use serde::{Deserialize, Serialize};
use strowger_traffic::meter::ResponseClass;
use strowger_traffic::script::MethodId;

/// A scenario of the generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Scenario {
    /// Proxy-200 between registered users: INVITE, 180, 200, ACK, BYE, 200. The server is stateful and record-routes.
    Call,
    /// The same through a stateless server.
    Stateless,
    /// A REGISTER that refreshes a binding, without authentication.
    Register,
    /// A REGISTER that is challenged and repeated with credentials.
    Challenge,
}

/// T1 of RFC 3261 in milliseconds.
pub const T1_MS: u32 = 500;

impl Scenario {
    /// All scenarios.
    pub const ALL: [Self; 4] = [Self::Call, Self::Stateless, Self::Register, Self::Challenge];

    /// Parses a scenario's name.
    ///
    /// # Errors
    /// If there is no scenario of this name.
    pub fn parse(text: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name);
        let found = Self::ALL.into_iter().find(|scenario| scenario.name() == text);
        found.ok_or_else(|| format!("no such scenario; choose one of {}", names.join(", ")))
    }

    /// Returns the name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Stateless => "stateless",
            Self::Register => "register",
            Self::Challenge => "challenge",
        }
    }

    /// Returns whether it consists of calls.
    #[must_use]
    pub const fn is_call(self) -> bool {
        matches!(self, Self::Call | Self::Stateless)
    }

    /// Returns the workload of `strowger load`.
    #[must_use]
    pub const fn workload(self) -> &'static str {
        if self.is_call() { "proxy-200" } else { "registration" }
    }

    /// Returns the request and the response whose time is reported.
    #[must_use]
    pub const fn timed(self) -> (MethodId, ResponseClass) {
        match self {
            // The callee's first response: 100 Trying is the server's own and does not count.
            Self::Call | Self::Stateless => (MethodId::Invite, ResponseClass::Provisional),
            Self::Register | Self::Challenge => (MethodId::Register, ResponseClass::Success),
        }
    }

    /// Returns the same in words.
    #[must_use]
    pub const fn timed_words(self) -> &'static str {
        if self.is_call() { "INVITE to 180" } else { "REGISTER to 200" }
    }

    /// Returns the packets that the server receives and sends per unit.
    #[must_use]
    pub const fn packets(self) -> (u32, u32) {
        match self {
            Self::Call => (6, 7),
            Self::Stateless => (6, 6),
            Self::Register => (1, 1),
            Self::Challenge => (2, 2),
        }
    }

    /// Returns the number of caller ports. A registrar treats a REGISTER of the same user from another port as
    /// another phone.
    #[must_use]
    pub const fn sockets(self) -> usize {
        if self.is_call() { 8 } else { 1 }
    }

    /// Returns the number of concurrent registrations at saturation per call. A registration has a sixth of the
    /// packets of a call; with as few registrations as calls, the server and the generator would wait for each other
    /// alternately with both cores half idle.
    #[must_use]
    pub const fn crowd(self) -> u32 {
        if self.is_call() { 1 } else { 4 }
    }

    /// Returns Strowger's configuration: the defaults, but with bindings in memory and one worker, as Kamailio has
    /// one receiver, plus the lines of `[server]` in `set`.
    #[must_use]
    pub fn configuration(self, address: SocketAddr, t1_ms: u32, set: &str) -> String {
        let require = if self == Self::Challenge { "[\"REGISTER\"]" } else { "[]" };
        let route = if self == Self::Stateless {
            format!(
                "\n[proxy]\nstateless = \"when-possible\"\n\n[[route]]\nmatch = {{ domain = \"{DOMAIN}\" }}\n\
                 stateless = \"when-possible\"\n"
            )
        } else {
            String::new()
        };
        let timers = if t1_ms == T1_MS { String::new() } else { format!("\n[timers]\nt1 = \"{t1_ms}ms\"\n") };
        format!(
            "[server]\nlisten = [\"udp:{address}\"]\ndomains = [\"{DOMAIN}\"]\ndata = \"data\"\nworkers = 1\n{set}\n\
             [store]\nmode = \"memory\"\n\n[auth]\nrequire = {require}\nrealm = \"{DOMAIN}\"\n\n[log]\nlevel = \"warn\"\n{timers}{route}"
        )
    }

    /// Returns the definitions for Kamailio's configuration file.
    #[must_use]
    pub const fn defines(self) -> &'static [&'static str] {
        match self {
            Self::Stateless => &["STATELESS"],
            Self::Challenge => &["CHALLENGE"],
            Self::Call | Self::Register => &[],
        }
    }

    /// Returns the time until transactions end at the rate at which they begin: over UDP they live for 64·T1. Below
    /// saturation, where a server sleeps, calls take twice that: the kernel moves the memory of a process that has
    /// grown to huge pages, 16 MiB every ten seconds and several milliseconds at a time, on the idle core. A
    /// stateless server needs no such time. For REGISTER, where only one of the servers keeps transactions, it is
    /// skipped except before saturation: loads come in ascending order there, so none pays for an earlier one.
    pub(super) const fn fill(self, is_saturation: bool) -> Duration {
        Duration::from_secs(match (self, is_saturation) {
            (Self::Call, false) => 66,
            (Self::Call | Self::Register | Self::Challenge, true) => 33,
            (Self::Stateless, _) | (Self::Register | Self::Challenge, false) => 2,
        })
    }

    /// Returns the time before the steady state: from the server's start for calls, from the beginning of saturation
    /// for registrations, until transactions end at the rate at which they begin.
    #[must_use]
    pub const fn beginning(self) -> Duration {
        if self.is_call() { Duration::from_secs(10) } else { self.fill(true) }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Call => "stateful Proxy-200",
            Self::Stateless => "stateless Proxy-200",
            Self::Register => "REGISTER",
            Self::Challenge => "REGISTER with challenge",
        })
    }
}
