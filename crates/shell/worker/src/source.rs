//! Senders of messages.

use std::net::IpAddr;

use strowger_foundation::{Flow, HostId};

/// What a sender is known by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) ip: IpAddr,
    /// The name of the trunk that its certificate proves; usually none.
    pub(crate) trunk: HostId,
}

impl Source {
    /// Returns the sender of a received message.
    pub(crate) const fn of(flow: &Flow) -> Self {
        Self { ip: flow.peer.ip(), trunk: flow.host }
    }

    /// Returns a sender that is known by its address only.
    pub(crate) const fn at(ip: IpAddr) -> Self {
        Self { ip, trunk: HostId::NONE }
    }
}
