//! What the load generator asks of a server.

use std::fmt;

/// Load scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// Stateless Proxy-200: INVITE, 180, 200, ACK, BYE, 200, each forwarded without state.
    Stateless,
    /// Proxy-200 with transactions.
    Stateful,
    /// A REGISTER that refreshes a binding.
    Register,
}

impl Scenario {
    /// All scenarios.
    pub(crate) const ALL: [Self; 3] = [Self::Stateless, Self::Stateful, Self::Register];

    pub(super) const fn workload(self) -> &'static str {
        match self {
            Self::Stateless | Self::Stateful => "proxy-200",
            Self::Register => "registration",
        }
    }

    /// Returns the request whose time to a 2xx is measured.
    pub(super) const fn timed(self) -> &'static str {
        match self {
            Self::Stateless | Self::Stateful => "INVITE",
            Self::Register => "REGISTER",
        }
    }

    /// Returns the number of messages that the server receives per call or registration.
    pub(crate) const fn messages(self) -> f64 {
        match self {
            Self::Stateless | Self::Stateful => 6.0,
            Self::Register => 1.0,
        }
    }

    /// A registrar treats a REGISTER of the same user from another port as another phone.
    pub(super) const fn sockets(self) -> &'static str {
        match self {
            Self::Stateless | Self::Stateful => "8",
            Self::Register => "1",
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stateless => "stateless Proxy-200",
            Self::Stateful => "stateful Proxy-200",
            Self::Register => "REGISTER",
        })
    }
}
