//! Configuration of a trunk.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;

use strowger_auth::Network;
use strowger_foundation::fnv1a;
use strowger_locate::{Hop, LocateQuery};

/// A carrier, or another server known by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Trunk {
    /// Name in the configuration.
    pub name: Box<str>,
    /// Credentials for the trunk. Without them no challenge is answered.
    pub credentials: Option<Credentials>,
    /// Source addresses of the trunk. Requests from them need no password, except REGISTER.
    pub sources: Vec<Network>,
    /// Domains of the trunk, in lower case. Requests on a connection whose certificate speaks for one of them need no
    /// password, except REGISTER (RFC 5922 §7.4).
    pub domains: Vec<Box<str>>,
    /// How the server registers there; `None` if it does not.
    pub account: Option<Account>,
}

impl Trunk {
    /// Returns an id that identifies the trunk, in Record-Routes too. It is derived from the name, so restarts and
    /// other changes of the configuration do not change it.
    #[must_use]
    pub fn id(&self) -> u32 {
        Self::id_of(&self.name)
    }

    /// Returns the [id](Self::id) of a trunk with this name (FNV-1a).
    #[must_use]
    pub fn id_of(name: &str) -> u32 {
        fnv1a(name.as_bytes())
    }

    /// Whether a request from `source` comes from this trunk.
    #[must_use]
    pub fn is_from(&self, source: IpAddr) -> bool {
        self.sources.iter().any(|network| network.contains(source))
    }
}

/// A user name and its password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub username: Box<[u8]>,
    /// The password.
    pub password: Secret,
    /// Only realm that is answered; any if `None`.
    pub realm: Option<Box<[u8]>>,
}

/// A password. It is never displayed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// Stores `password`.
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
    /// Address of record, such as `sip:account@carrier.example`.
    pub from: Box<[u8]>,
    /// User part of the contact, to which the trunk sends calls.
    pub contact_user: Box<[u8]>,
    /// Request-URI of a REGISTER, without a user part (RFC 3261 §10.2).
    pub registrar: Box<[u8]>,
    /// Next hop of the registrar.
    pub next_hop: NextHop,
    /// Requested registration period, in whole seconds.
    pub expires: Duration,
}

/// Next hop of a configured URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// A fixed address.
    Address(Hop),
    /// A name to locate with the DNS.
    Name(LocateQuery),
}
