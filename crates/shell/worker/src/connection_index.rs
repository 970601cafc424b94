//! Index of the connections of all workers, with limits on their number.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use strowger_auth::Network;
use strowger_foundation::{ConnId, HostId, ListenerId, Transport};

use crate::limits::StreamLimits;

/// Number of lock stripes of the index.
const STRIPES: usize = 64;

/// One in this many connections is reserved for outgoing ones.
pub(crate) const RESERVED: usize = 16;

/// Key of a connection: listener, far end, and the name that it has proven or must prove.
pub(crate) type PeerKey = (ListenerId, SocketAddr, HostId);

/// Why another connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitExceeded {
    /// The total limit is reached.
    Total,
    /// The limit for this source is reached.
    Source,
}

/// The connections of all workers.
///
/// A connection opened by a peer is indexed only under its true source address, never under one claimed in its
/// messages: nothing proves that the claimed address belongs to the peer, and requests to its real owner would be
/// misdirected.
//= rfc5923#8.2
#[derive(Debug)]
pub(crate) struct ConnectionIndex {
    limit: AtomicUsize,
    per_source: AtomicUsize,
    /// Peers whose connections begin with the address of a client.
    balancers: RwLock<Vec<Network>>,
    open: AtomicUsize,
    /// Accepted ones over TLS, and WebSockets.
    accepted: [AtomicUsize; 2],
    handshakes: AtomicUsize,
    stripes: Vec<Mutex<Stripe>>,
}

#[derive(Debug, Default)]
struct Stripe {
    connections: HashMap<PeerKey, ConnId>,
    sources: HashMap<IpAddr, u32>,
    /// Handshakes in progress.
    handshakes: HashMap<IpAddr, u32>,
}

impl ConnectionIndex {
    /// Creates an index for at most `limit` connections, of which one source may open `per_source`.
    pub(crate) fn new(limit: usize, per_source: usize) -> Self {
        let stripes = (0..STRIPES).map(|_| Mutex::default()).collect();
        let (open, handshakes, balancers) = (AtomicUsize::new(0), AtomicUsize::new(0), RwLock::default());
        let (limit, per_source) = (AtomicUsize::new(limit), AtomicUsize::new(per_source));
        Self { limit, per_source, balancers, open, accepted: Default::default(), handshakes, stripes }
    }

    /// Sets the peers whose connections begin with a PROXY header.
    pub(crate) fn with_balancers(self, balancers: Vec<Network>) -> Self {
        Self { balancers: RwLock::new(balancers), ..self }
    }

    /// Sets the limits and the balancers for connections to come.
    pub(crate) fn configure(&self, limits: &StreamLimits, balancers: Vec<Network>) {
        self.limit.store(limits.connections, Ordering::Relaxed);
        self.per_source.store(limits.per_source, Ordering::Relaxed);
        *self.balancers.write().unwrap_or_else(PoisonError::into_inner) = balancers;
    }

    /// Returns whether connections of a peer begin with a PROXY header.
    pub(crate) fn is_balancer(&self, peer: IpAddr) -> bool {
        let balancers = self.balancers.read().unwrap_or_else(PoisonError::into_inner);
        balancers.iter().any(|balancer| balancer.contains(peer))
    }

    /// Returns the connection to a peer.
    pub(crate) fn find(&self, way: PeerKey) -> Option<ConnId> {
        self.stripe(way.1.ip()).connections.get(&way).copied()
    }

    /// Registers `id`. If another connection is registered already, returns that one, which must be used instead.
    pub(crate) fn claim(&self, way: PeerKey, id: ConnId) -> Result<(), ConnId> {
        match self.stripe(way.1.ip()).connections.entry(way) {
            Entry::Occupied(other) if *other.get() != id => Err(*other.get()),
            Entry::Occupied(_) => Ok(()),
            Entry::Vacant(vacant) => {
                vacant.insert(id);
                Ok(())
            }
        }
    }

    /// Removes `id` if it is the registered one; returns whether it was.
    pub(crate) fn withdraw(&self, way: PeerKey, id: ConnId) -> bool {
        if let Entry::Occupied(entry) = self.stripe(way.1.ip()).connections.entry(way)
            && *entry.get() == id
        {
            entry.remove();
            return true;
        }
        false
    }

    /// Counts one more connection; with `source`, an accepted one from there. Each must be [released](Self::release).
    pub(crate) fn acquire(&self, source: Option<IpAddr>) -> Result<(), LimitExceeded> {
        // Accepted connections cannot use up the limit; otherwise the server could not open any of its own.
        let all = self.limit.load(Ordering::Relaxed);
        let limit = if source.is_some() { all - all / RESERVED } else { all };
        if self.open.fetch_add(1, Ordering::Relaxed) >= limit {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Err(LimitExceeded::Total);
        }
        let Some(source) = source else { return Ok(()) };
        self.acquire_source(source).inspect_err(|_| {
            self.open.fetch_sub(1, Ordering::Relaxed);
        })
    }

    /// Counts a connection that is counted already as one of `source`, the client of a balancer.
    pub(crate) fn acquire_source(&self, source: IpAddr) -> Result<(), LimitExceeded> {
        // Balancers have no limit of their own, also not one behind another.
        if self.is_balancer(source)
            || count_one(&mut self.stripe(source).sources, source, self.per_source.load(Ordering::Relaxed))
        {
            return Ok(());
        }
        Err(LimitExceeded::Source)
    }

    /// Counts one more accepted connection of a transport that has its own limit; returns whether it may stay. Each that
    /// may must be [released](Self::release_transport).
    pub(crate) fn acquire_transport(&self, transport: Transport, limits: &StreamLimits) -> bool {
        let Some(accepted) = self.accepted_of(transport) else { return true };
        let limit = if transport.is_web_socket() { limits.web_sockets } else { limits.tls };
        let may_stay = accepted.fetch_add(1, Ordering::Relaxed) < limit;
        if !may_stay {
            accepted.fetch_sub(1, Ordering::Relaxed);
        }
        may_stay
    }

    /// Counts one accepted connection of a transport less.
    pub(crate) fn release_transport(&self, transport: Transport) {
        if let Some(accepted) = self.accepted_of(transport) {
            accepted.fetch_sub(1, Ordering::Relaxed);
        }
    }

    const fn accepted_of(&self, transport: Transport) -> Option<&AtomicUsize> {
        let [tls, web_sockets] = &self.accepted;
        match transport {
            Transport::Udp | Transport::Tcp => None,
            Transport::Tls => Some(tls),
            Transport::Ws | Transport::Wss => Some(web_sockets),
        }
    }

    /// Counts one more handshake of a peer that connected to us, which must be [ended](Self::end_handshake).
    pub(crate) fn begin_handshake(&self, source: IpAddr, all: usize, per_source: usize) -> Result<(), LimitExceeded> {
        let per_source = if self.is_balancer(source) { usize::MAX } else { per_source };
        if self.handshakes.fetch_add(1, Ordering::Relaxed) >= all {
            self.handshakes.fetch_sub(1, Ordering::Relaxed);
            return Err(LimitExceeded::Total);
        }
        if count_one(&mut self.stripe(source).handshakes, source, per_source) {
            return Ok(());
        }
        self.handshakes.fetch_sub(1, Ordering::Relaxed);
        Err(LimitExceeded::Source)
    }

    /// Counts one handshake less.
    pub(crate) fn end_handshake(&self, source: IpAddr) {
        self.handshakes.fetch_sub(1, Ordering::Relaxed);
        discount_one(&mut self.stripe(source).handshakes, source);
    }

    /// Counts one connection less.
    pub(crate) fn release(&self, source: Option<IpAddr>) {
        let before = self.open.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "more given back than taken");
        // A balancer has no count, unless it has become one since.
        if let Some(source) = source {
            discount_one(&mut self.stripe(source).sources, source);
        }
    }

    fn stripe(&self, ip: IpAddr) -> MutexGuard<'_, Stripe> {
        // Only needs to spread; the maps themselves have keys that cannot be guessed.
        let number = match network(ip) {
            IpAddr::V4(ip) => u128::from(ip.to_bits()),
            IpAddr::V6(ip) => ip.to_bits() >> 64,
        };
        let stripe = (number % 61) as usize % self.stripes.len();
        #[expect(clippy::indexing_slicing, reason = "the remainder is within")]
        self.stripes[stripe].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts one more of `source`, unless it has `limit` already.
fn count_one(counts: &mut HashMap<IpAddr, u32>, source: IpAddr, limit: usize) -> bool {
    let count = counts.entry(network(source)).or_default();
    if usize::try_from(*count).unwrap_or(usize::MAX) < limit {
        *count += 1;
        return true;
    }
    if *count == 0 {
        counts.remove(&network(source));
    }
    false
}

fn discount_one(counts: &mut HashMap<IpAddr, u32>, source: IpAddr) {
    if let Entry::Occupied(mut count) = counts.entry(network(source)) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

/// Returns what counts as one source: an IPv4 address, or the /64 of an IPv6 address, from which one host may choose
/// addresses.
fn network(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAY: PeerKey =
        (ListenerId(0), SocketAddr::V4(std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 5060)), HostId::NONE);

    #[test]
    fn a_peer_has_one_connection_until_it_is_withdrawn() {
        let index = ConnectionIndex::new(10, 10);
        let [first, second] = [ConnId::new(0, 1, 1), ConnId::new(1, 1, 1)];
        assert_eq!(index.find(WAY), None);
        assert_eq!(index.claim(WAY, first), Ok(()));
        assert_eq!(index.claim(WAY, second), Err(first));
        assert_eq!(index.find((ListenerId(1), WAY.1, WAY.2)), None, "another listener is another way");
        assert_eq!(index.find((WAY.0, WAY.1, HostId(1))), None, "another name is another peer");
        index.withdraw(WAY, second);
        assert_eq!(index.find(WAY), Some(first));
        index.withdraw(WAY, first);
        assert_eq!(index.claim(WAY, second), Ok(()));
    }

    #[test]
    fn accepting_leaves_room_for_outgoing() {
        let index = ConnectionIndex::new(2 * RESERVED, 10 * RESERVED);
        let source = Some(WAY.1.ip());
        assert_eq!((0..100).filter(|_| index.acquire(source).is_ok()).count(), 2 * RESERVED - 2);
        assert_eq!(index.acquire(source), Err(LimitExceeded::Total));
        assert_eq!([(); 3].map(|()| index.acquire(None)), [Ok(()), Ok(()), Err(LimitExceeded::Total)]);
    }

    #[test]
    fn connections_are_limited_per_source_and_in_total() {
        let index = ConnectionIndex::new(5, 2);
        let ip = |text: &str| Some(text.parse().expect("an address"));
        assert_eq!(index.acquire(ip("2001:db8::1")), Ok(()));
        assert_eq!(index.acquire(ip("2001:db8::2")), Ok(()));
        assert_eq!(index.acquire(ip("2001:db8::3")), Err(LimitExceeded::Source), "one network is one source");
        assert_eq!(index.acquire(ip("2001:db8:0:1::1")), Ok(()));
        assert_eq!(index.acquire(ip("192.0.2.1")), Ok(()));
        assert_eq!(index.acquire(None), Ok(()), "what we open has no source");
        assert_eq!(index.acquire(ip("192.0.2.2")), Err(LimitExceeded::Total));
        assert_eq!(index.acquire(None), Err(LimitExceeded::Total));
        index.release(ip("2001:db8::2"));
        assert_eq!(index.acquire(ip("2001:db8::4")), Ok(()));
    }
}
