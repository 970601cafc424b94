//! Conversion between table and records: times, listeners, and which bindings of a record still apply.

use core::hash::BuildHasher as _;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;

use strowger_foundation::map::SeededState;
use strowger_foundation::{ConnId, Flow, ListenerId, Timestamp, Transport};

use crate::binding::Preference;
use crate::index::low_half;
use crate::listener_addresses::ListenerAddresses;
use crate::record::{Listener, State};
use crate::register_sequence::RegisterSequence;
use crate::text::Parts;
use crate::version::{MemberId, Version};

/// The address of a listener that was not given.
const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The inputs for writing and applying a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordContext<'g> {
    pub(crate) now: Timestamp,
    /// Nanoseconds of store time at [`Timestamp::ZERO`].
    pub(crate) origin: u64,
    pub(crate) listeners: &'g ListenerAddresses,
    /// This member, if members share registrations.
    pub(crate) member: Option<MemberId>,
    /// The version of staged changes, if they are shared.
    pub(crate) version: Version,
    /// Maximum lifetime of a shared binding.
    pub(crate) max_lifetime: Duration,
}

impl RecordContext<'_> {
    pub(crate) const fn store_time(&self, at: Timestamp) -> u64 {
        self.origin.saturating_add(at.as_nanos())
    }

    pub(crate) const fn process_time(&self, at: u64) -> Timestamp {
        Timestamp::from_nanos(at.saturating_sub(self.origin))
    }

    /// Returns an epoch for new temporary GRUUs that differs from those of other times and processes. `serial` must
    /// differ each time.
    pub(crate) fn new_epoch(&self, hasher: &SeededState, serial: u32) -> u32 {
        low_half(hasher.hash_one((self.store_time(self.now), serial)))
    }

    pub(crate) fn state<'a>(
        &self,
        parts: Parts<'a>,
        call: RegisterSequence,
        expires: u64,
        flow: &Flow,
        preference: Preference,
        fresh: bool,
    ) -> State<'a> {
        let id = flow.listener;
        let address = self.listeners.get(id).map_or(UNKNOWN, |(_, address)| address);
        State {
            expires,
            cseq: call.cseq,
            call_id: call.id,
            is_new: fresh,
            q: preference.q(),
            is_translated: preference.is_translated(),
            reopen: flow.reopen,
            transport: flow.transport,
            peer: flow.peer,
            listener: Listener { id, address },
            connection: flow.connection,
            parts,
            version: self.version,
        }
    }

    /// Returns whether another member made a change.
    pub(crate) fn is_from_other_member(&self, version: Version) -> bool {
        self.member.is_some() && version.member().is_some_and(|member| Some(member) != self.member)
    }

    /// Returns the listener that replaces one of an earlier process: with the same address, else with the same
    /// transport and preferably the same address family.
    fn listener(&self, state: &State<'_>) -> Option<ListenerId> {
        self.closest_listener(state.transport, state.listener.address)
    }

    /// Returns the listener of this process that is most similar to this transport and address.
    pub(crate) fn closest_listener(&self, transport: Transport, address: SocketAddr) -> Option<ListenerId> {
        let fits = [
            |own: SocketAddr, old: SocketAddr| own == old,
            |own: SocketAddr, old: SocketAddr| own.is_ipv4() == old.is_ipv4(),
            |_: SocketAddr, _: SocketAddr| true,
        ];
        let of = |fit: fn(SocketAddr, SocketAddr) -> bool| {
            self.listeners.find(|(of, own)| of == transport && fit(own, address))
        };
        fits.into_iter().find_map(of)
    }

    /// Returns whether a binding of another member is reachable only through that member: over its connection, or
    /// through a NAT binding for that member's address, unless this server has that address too.
    pub(crate) fn is_via_other_member(&self, state: &State<'_>) -> bool {
        let by_address = state.is_translated && !self.shares_address(state);
        state.parts.path.is_empty() && (state.connection.is_some() || by_address)
    }

    /// Returns whether this server has the listener that a REGISTER of another member came in on: an address that
    /// moves between machines, so that datagrams from it reach the phone whichever machine sends them. Loopback
    /// addresses are local to each machine.
    fn shares_address(&self, state: &State<'_>) -> bool {
        let address = state.listener.address;
        let is_own = address.ip().is_unspecified() || address.ip().to_canonical().is_loopback();
        !state.transport.is_reliable() && !is_own && self.listeners.contains(state.transport, address)
    }
}

/// The origin of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    /// This process, just now. `closed` is the connection of the REGISTER, if it has closed meanwhile.
    Local { closed: Option<ConnId> },
    /// An earlier process, whose connections are closed.
    Store,
    /// The process before this one, whose connections and listeners it has taken over.
    Predecessor,
    /// Another member, which holds the connections named in the record.
    Member,
}

impl Origin {
    pub(crate) const fn is_local(self) -> bool {
        matches!(self, Self::Local { .. })
    }

    /// Returns the flow and expiry of a binding; `None` if it has expired or its connection has closed.
    pub(crate) fn resolve(self, context: &RecordContext<'_>, state: &State<'_>) -> Option<(Flow, Timestamp)> {
        let flow = state.flow();
        let bound = flow.connection.filter(|_| !flow.reopen);
        let expires = context.process_time(state.expires);
        match self {
            Self::Local { closed } => (bound.is_none() || bound != closed).then_some((flow, expires)),
            Self::Member | Self::Predecessor if expires <= context.now => None,
            Self::Predecessor => Some((flow, expires)),
            // Only its own member reaches it.
            Self::Member if context.is_via_other_member(state) => Some((flow, expires)),
            Self::Member => {
                let listener = context.listener(state)?;
                Some((Flow::new(listener, flow.transport, flow.peer), expires))
            }
            Self::Store if bound.is_some() || expires <= context.now => None,
            Self::Store => {
                let listener = context.listener(state)?;
                Some((Flow::new(listener, flow.transport, flow.peer), expires))
            }
        }
    }
}
