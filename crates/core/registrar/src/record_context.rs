//! Between the table and the records: times, listeners, and what of a record still counts.

use core::hash::BuildHasher as _;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;

use strowger_foundation::map::SeededState;
use strowger_foundation::{ConnId, Flow, ListenerId, Timestamp, Transport};

use crate::binding::Preference;
use crate::plan::RegisterSequence;
use crate::record::{Listener, State};
use crate::stripe::low_half;
use crate::text::Parts;
use crate::version::{MemberId, Version};

/// A listener whose address nobody told.
const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// What a record is made and read with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordContext<'g> {
    pub(crate) now: Timestamp,
    /// Nanoseconds of store time at [`Timestamp::ZERO`].
    pub(crate) origin: u64,
    pub(crate) listeners: &'g [(Transport, SocketAddr)],
    /// This server, where it shares registrations with others.
    pub(crate) member: Option<MemberId>,
    /// Of what is staged, where it is shared.
    pub(crate) version: Version,
    /// How long a binding lasts at most that is shared.
    pub(crate) max_lifetime: Duration,
}

impl RecordContext<'_> {
    pub(crate) const fn store_time(&self, at: Timestamp) -> u64 {
        self.origin.saturating_add(at.as_nanos())
    }

    pub(crate) const fn process_time(&self, at: u64) -> Timestamp {
        Timestamp::from_nanos(at.saturating_sub(self.origin))
    }

    /// Names the temporary GRUUs that begin now, unlike those of other times and processes. `serial` is another one each time.
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
        let address = self.listeners.get(usize::from(id.0)).map_or(UNKNOWN, |(_, address)| *address);
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

    /// Whether a change was made by another server.
    pub(crate) fn is_from_other_member(&self, version: Version) -> bool {
        self.member.is_some() && version.member().is_some_and(|member| Some(member) != self.member)
    }

    /// The listener of this process that stands for one of an earlier: the same address, else one of the same transport, of
    /// the same family if there is one.
    fn listener(&self, state: &State<'_>) -> Option<ListenerId> {
        self.closest_listener(state.transport, state.listener.address)
    }

    /// The listener of this process that is most like one of this transport and address.
    pub(crate) fn closest_listener(&self, transport: Transport, address: SocketAddr) -> Option<ListenerId> {
        let fits = [
            |own: SocketAddr, old: SocketAddr| own == old,
            |own: SocketAddr, old: SocketAddr| own.is_ipv4() == old.is_ipv4(),
            |_: SocketAddr, _: SocketAddr| true,
        ];
        let of = |fit: fn(SocketAddr, SocketAddr) -> bool| {
            let is = |(of, own): &(Transport, SocketAddr)| *of == transport && fit(*own, address);
            self.listeners.iter().position(is)
        };
        u16::try_from(fits.into_iter().find_map(of)?).ok().map(ListenerId)
    }

    /// Whether a binding of another server is reached through that server only: by its connection, or through a translation
    /// that is open for its address, where that address is not ours too.
    pub(crate) fn is_via_other_member(&self, state: &State<'_>) -> bool {
        let by_address = state.is_translated && !self.shares_address(state);
        state.parts.path.is_empty() && (state.connection.is_some() || by_address)
    }

    /// Whether this server listens where a REGISTER came in at another one: at an address that goes from one machine to another,
    /// so that datagrams from there reach the phone whoever sends them. Loopback addresses are each machine's own.
    fn shares_address(&self, state: &State<'_>) -> bool {
        let address = state.listener.address;
        let is_own = address.ip().is_unspecified() || address.ip().to_canonical().is_loopback();
        !state.transport.is_reliable() && !is_own && self.listeners.contains(&(state.transport, address))
    }
}

/// Where a record comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    /// From this process, a moment ago; the connection that its REGISTER came on, where that is closed meanwhile.
    Local { closed: Option<ConnId> },
    /// From an earlier process, whose connections are closed.
    Store,
    /// From another server, which has the connections that it names.
    Member,
}

impl Origin {
    pub(crate) const fn is_local(self) -> bool {
        matches!(self, Self::Local { .. })
    }

    /// The flow and the expiry of a binding; `None` where it is over, or its connection is.
    pub(crate) fn resolve(self, ground: &RecordContext<'_>, state: &State<'_>) -> Option<(Flow, Timestamp)> {
        let flow = state.flow();
        let bound = flow.connection.filter(|_| !flow.reopen);
        let expires = ground.process_time(state.expires);
        match self {
            Self::Local { closed } => (bound.is_none() || bound != closed).then_some((flow, expires)),
            Self::Member if expires <= ground.now => None,
            // Only its own server reaches it.
            Self::Member if ground.is_via_other_member(state) => Some((flow, expires)),
            Self::Member => {
                let listener = ground.listener(state)?;
                Some((Flow::new(listener, flow.transport, flow.peer), expires))
            }
            Self::Store if bound.is_some() || expires <= ground.now => None,
            Self::Store => {
                let listener = ground.listener(state)?;
                Some((Flow::new(listener, flow.transport, flow.peer), expires))
            }
        }
    }
}
