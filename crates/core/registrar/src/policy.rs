//! What the operator decides about registrations.

use core::time::Duration;

/// Where a request for a registered contact is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nat {
    /// To the REGISTER's source wherever it shows a translation: the Via's or the Contact's address is not the source's.
    /// On a stream both name the port that is listened on, so that only their hosts say something.
    #[default]
    Auto,
    /// Always to the REGISTER's source.
    Always,
    /// Always to the contact's own address, but for flows that the client registered as such (RFC 5626).
    Never,
}

/// How a translated binding is kept open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepAlive {
    /// Not by the server.
    Off,
    /// An empty line (RFC 5626 §3.5.1): opens the pinhole from inside only where the client answers nothing.
    #[default]
    Crlf,
    /// An OPTIONS request, which the client answers.
    Options,
}

/// What a 200 to a REGISTER promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The bindings are in memory, and gone with the process.
    #[default]
    Memory,
    /// The store will have them soon.
    WriteBehind,
    /// The store has them.
    WriteThrough,
}

/// The operator's decisions; durations are whole seconds on the wire.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The expiry of a contact that asks for none.
    pub expires_default: Duration,
    /// A shorter one is refused with 423.
    pub expires_min: Duration,
    /// A longer one is shortened.
    pub expires_max: Duration,
    /// Contacts of one address of record; one more is refused with 403.
    pub max_contacts: usize,
    /// Where requests go.
    pub nat: Nat,
    /// How bindings behind a translation are kept open.
    pub keep_alive: KeepAlive,
    /// How often.
    pub keep_alive_interval: Duration,
    /// Whether devices that ask for it get a GRUU (RFC 5627).
    pub gruu: bool,
    /// How often at least a client sends a keep-alive over the connection that it registered (RFC 5626 §4.4.1); a connection
    /// that is silent must be left open for longer.
    pub flow_timer: Duration,
    /// What the answer to a REGISTER promises. Fixed for the life of the process.
    pub durability: Durability,
    /// What registered clients are told to put into Route (RFC 3608), in that order: URIs in angle brackets, with `lr`.
    pub service_route: Vec<Box<[u8]>>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            expires_default: Duration::from_secs(3600),
            expires_min: Duration::from_secs(60),
            expires_max: Duration::from_secs(7200),
            max_contacts: 10,
            nat: Nat::Auto,
            keep_alive: KeepAlive::Crlf,
            keep_alive_interval: Duration::from_secs(30),
            gruu: true,
            flow_timer: Duration::from_secs(120),
            durability: Durability::default(),
            service_route: Vec::new(),
        }
    }
}
