//! What the operator says of a trunk.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;

use strowger_auth::Network;
use strowger_foundation::fnv1a;
use strowger_locate::{Hop, LocateQuery};

/// One carrier, or another server that is known by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Trunk {
    /// What the operator calls it.
    pub name: Box<str>,
    /// What proves the server to the trunk; without them no challenge is answered.
    pub credentials: Option<Credentials>,
    /// The addresses that the trunk sends from: requests from there need no password, but for REGISTER.
    pub sources: Vec<Network>,
    /// How the server registers there; `None` where it does not.
    pub account: Option<Account>,
}

impl Trunk {
    /// What tells the trunk from others, in Record-Routes too: a number made from its name, so that it is the same after a
    /// restart, and whatever else the configuration gains or loses.
    #[must_use]
    pub fn id(&self) -> u32 {
        Self::id_of(&self.name)
    }

    /// The [id](Self::id) of a trunk with this name (FNV-1a).
    #[must_use]
    pub fn id_of(name: &str) -> u32 {
        fnv1a(name.as_bytes())
    }

    /// Whether a request from `source` is this trunk's.
    #[must_use]
    pub fn is_from(&self, source: IpAddr) -> bool {
        self.sources.iter().any(|network| network.contains(source))
    }
}

/// A user and what proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub username: Box<[u8]>,
    /// The password.
    pub password: Secret,
    /// The only realm that is answered; any where it is `None`.
    pub realm: Option<Box<[u8]>>,
}

/// A password. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// Keeps `password`.
    #[must_use]
    pub fn new(password: impl Into<Box<[u8]>>) -> Self {
        Self(password.into())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What is registered at the trunk, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// The address of record, as `sip:account@carrier.example`.
    pub from: Box<[u8]>,
    /// The user part of the contact: what calls from the trunk are sent to.
    pub contact_user: Box<[u8]>,
    /// The Request-URI of a REGISTER, without a user part (RFC 3261 §10.2).
    pub registrar: Box<[u8]>,
    /// Where that is.
    pub next_hop: NextHop,
    /// How long a registration is asked for, in whole seconds.
    pub expires: Duration,
}

/// Where a configured URI leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// To this address.
    Address(Hop),
    /// Where the DNS says.
    Name(LocateQuery),
}
