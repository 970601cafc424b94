//! What the operator decides about authentication.

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
    /// The name as challenges spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Sha256 => "SHA-256",
            Self::Sha512_256 => "SHA-512-256",
        }
    }

    /// Reads a name, in any case.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        [Self::Md5, Self::Sha256, Self::Sha512_256]
            .into_iter()
            .find(|a| a.as_str().as_bytes().eq_ignore_ascii_case(name))
    }
}

/// The quality of protection that challenges offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Qop {
    /// `auth`: the request line is covered.
    #[default]
    Auth,
    /// `auth,auth-int`: the client may cover the body too.
    AuthOrAuthInt,
}

/// A network in CIDR notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Any address in it.
    pub address: IpAddr,
    /// The number of leading bits that count.
    pub prefix: u8,
}

impl Network {
    /// Whether `ip` lies in the network. Families do not mix.
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

/// The operator's decisions.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The realm of every challenge; by default each domain is its own.
    pub realm: Option<Box<[u8]>>,
    /// What challenges offer, one each, in this order.
    pub algorithms: Vec<Algorithm>,
    /// The quality of protection offered.
    pub qop: Qop,
    /// The methods that need credentials, in capitals; no method when empty.
    pub require: Vec<Box<[u8]>>,
    /// Whether those methods need them inside dialogs too, of users of ours.
    pub in_dialog: bool,
    /// How long a nonce is good for.
    pub nonce_age: Duration,
    /// Sources that need no credentials and whose asserted identity is believed.
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
