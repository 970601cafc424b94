//! The operator's authentication policy.

use core::net::IpAddr;
use core::time::Duration;

/// A digest algorithm (RFC 7616, RFC 8760).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// MD5.
    Md5,
    /// SHA-256.
    Sha256,
    /// SHA-512/256.
    Sha512_256,
}

impl Algorithm {
    /// Returns the name as spelled in challenges.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Sha256 => "SHA-256",
            Self::Sha512_256 => "SHA-512-256",
        }
    }

    /// Parses a name, in any case.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        [Self::Md5, Self::Sha256, Self::Sha512_256]
            .into_iter()
            .find(|a| a.as_str().as_bytes().eq_ignore_ascii_case(name))
    }
}

/// The quality of protection offered in challenges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Qop {
    /// `auth`: protects the request line.
    #[default]
    Auth,
    /// `auth,auth-int`: the client may protect the body too.
    AuthOrAuthInt,
}

/// A network in CIDR notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Any address in the network.
    pub address: IpAddr,
    /// Number of significant leading bits.
    pub prefix: u8,
}

impl Network {
    /// Whether `ip` is in the network. Never true across address families.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        let (ours, theirs, width) = match (self.address, ip) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32u32),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
            _ => return false,
        };
        let ignored = width.saturating_sub(u32::from(self.prefix));
        ignored >= width || (ours >> ignored) == (theirs >> ignored)
    }
}

/// The authentication policy.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The realm of every challenge; by default the domain.
    pub realm: Option<Box<[u8]>>,
    /// The algorithms offered, one challenge each, in this order.
    pub algorithms: Vec<Algorithm>,
    /// The quality of protection offered.
    pub qop: Qop,
    /// The methods that need credentials, in capitals; empty for none.
    pub require: Vec<Box<[u8]>>,
    /// Whether these methods also need credentials within dialogs, from our users.
    pub in_dialog: bool,
    /// Lifetime of a nonce.
    pub nonce_age: Duration,
    /// Sources that need no credentials and whose asserted identity is accepted.
    pub trusted: Vec<Network>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            realm: None,
            algorithms: vec![Algorithm::Md5],
            qop: Qop::Auth,
            require: vec![(*b"REGISTER").into(), (*b"INVITE").into()],
            in_dialog: false,
            nonce_age: Duration::from_secs(300),
            trusted: Vec::new(),
        }
    }
}

impl Policy {
    /// Whether `method` needs credentials.
    #[must_use]
    pub fn requires(&self, method: &[u8]) -> bool {
        self.require.iter().any(|required| **required == *method)
    }

    /// Whether `source` is trusted.
    #[must_use]
    pub fn trusts(&self, source: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(source))
    }
}
