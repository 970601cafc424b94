//! Values that the location table takes and returns.

use core::net::SocketAddr;

use smallvec::SmallVec;
use strowger_foundation::Flow;

use crate::version::MemberId;

/// The source of a REGISTER.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The listener and the peer's address; on a stream also the connection.
    pub flow: Flow,
    /// Whether the host of the top Via's sent-by (over UDP also its port) is the packet's source. If not, the client
    /// is behind NAT. On streams the Via has the listening port, which is not compared.
    pub via_sent_by_matches: bool,
}

/// One contact of an address of record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContactTarget {
    /// The contact URI as registered, byte for byte. A `?headers` part is included and must not become headers of a
    /// request. Header parameters (`expires`, `q`) are excluded.
    pub uri: SmallVec<[u8; 64]>,
    /// The preference in thousandths; 1000 if none was given.
    pub q: u16,
    /// Listener and source address of the REGISTER, and the connection on streams. A contact behind NAT, or one that
    /// registered the flow itself, is reachable only over that connection. Otherwise, with [`reopen`](Flow::reopen),
    /// `peer` is the URI's own address, if it has one.
    pub flow: Flow,
    /// Whether to send by `flow` instead of to the URI's address.
    pub is_translated: bool,
    /// Hash of the instance ID, or 0 without one. Targets of one device are tried one after the other (RFC 5626 §7).
    pub instance: u32,
    /// The Route of requests (RFC 3327 §5.4); empty without intermediate proxies. If not empty, its first URI is the
    /// next hop, instead of `flow` or the URI's address.
    pub path: SmallVec<[u8; 24]>,
    /// The address of the member through which alone it is reachable; `flow` is then that member's. `None` if this
    /// member can reach it.
    pub holder: Option<SocketAddr>,
}

/// The result of an update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdateCounts {
    /// Contacts added.
    pub added: u16,
    /// Contacts refreshed.
    pub refreshed: u16,
    /// Bindings removed.
    pub removed: u16,
}

/// A keep-alive to send for a binding behind NAT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingKeepAlive {
    /// The flow to send on.
    pub flow: Flow,
    /// The contact URI as registered.
    pub uri: SmallVec<[u8; 64]>,
    /// The address of record.
    pub aor: SmallVec<[u8; 48]>,
}

/// A binding as shown to the operator.
#[derive(Clone, Copy, Debug)]
pub struct BindingView<'a> {
    /// The address of record.
    pub aor: &'a [u8],
    /// The contact URI as registered.
    pub uri: &'a [u8],
    /// The preference in thousandths, if given.
    pub q: Option<u16>,
    /// Seconds until it expires, rounded up.
    pub expires_in_s: u64,
    /// The source of the REGISTER.
    pub flow: Flow,
    /// Whether requests go by `flow`.
    pub is_translated: bool,
    /// The instance ID; empty if there is none.
    pub instance: &'a [u8],
    /// The reg-id, if the device registered flows.
    pub reg_id: Option<u32>,
    /// The Route of requests; empty without intermediate proxies.
    pub path: &'a [u8],
    /// The member that accepted its last REGISTER, if members share registrations.
    pub member: Option<MemberId>,
}
