//! The operator's settings for registrations.

use core::time::Duration;

/// How the destination for a registered contact is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nat {
    /// The REGISTER's source if it shows NAT: if the address in Via or Contact is not the source. On streams both
    /// name the listening port, so only hosts are compared.
    #[default]
    Auto,
    /// Always the REGISTER's source.
    Always,
    /// Always the contact's own address, except for flows registered as such (RFC 5626).
    Never,
}

/// The keep-alives for bindings behind NAT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepAlive {
    /// None.
    Off,
    /// An empty line (RFC 5626 §3.5.1). Clients may not answer it, so it does not refresh a NAT that counts outbound
    /// packets only.
    #[default]
    Crlf,
    /// An OPTIONS request, which the client answers.
    Options,
}

/// What happens to contacts that lead to this machine itself, registered by a host elsewhere. Through them, strangers
/// would reach services that trust this machine, or let the server call itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalContacts {
    /// They are refused with 403.
    #[default]
    Refuse,
    /// They are registered like any other.
    Accept,
}

/// The guarantee of a 200 to a REGISTER.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The bindings are in memory and lost with the process.
    #[default]
    Memory,
    /// The store will have the bindings soon.
    WriteBehind,
    /// The store has the bindings.
    WriteThrough,
}

/// The operator's settings; durations are whole seconds on the wire.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The default expiry of a contact.
    pub expires_default: Duration,
    /// The minimum expiry; a shorter one is refused with 423.
    pub expires_min: Duration,
    /// The maximum expiry; a longer one is shortened.
    pub expires_max: Duration,
    /// Maximum number of contacts per address of record; more are refused with 403.
    pub max_contacts: usize,
    /// How destinations are chosen.
    pub nat: Nat,
    /// What happens to contacts that lead to this machine itself.
    pub local_contacts: LocalContacts,
    /// The kind of keep-alives for bindings behind NAT.
    pub keep_alive: KeepAlive,
    /// The interval of keep-alives.
    pub keep_alive_interval: Duration,
    /// Whether devices that request one get a GRUU (RFC 5627).
    pub gruu: bool,
    /// Interval at which a client must send keep-alives over the connection that it registered (RFC 5626 §4.4.1); the
    /// idle timeout of connections must be longer.
    pub flow_timer: Duration,
    /// The guarantee of a 200 to a REGISTER. Fixed for the lifetime of the process.
    pub durability: Durability,
    /// The Service-Route for registered clients (RFC 3608), in order: URIs in angle brackets, with `lr`.
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
            local_contacts: LocalContacts::Refuse,
            keep_alive: KeepAlive::Crlf,
            keep_alive_interval: Duration::from_secs(30),
            gruu: true,
            flow_timer: Duration::from_secs(120),
            durability: Durability::default(),
            service_route: Vec::new(),
        }
    }
}
