//! Sending: datagrams wait in buffers that are used again, and leave up to [`SEND_BATCH`] at a time.

use std::io;
use std::iter::{Chain, Take};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::slice::Iter;

use crate::counters::Counters;
use crate::error::{Cause, PeerError, may_be_pending};

/// Datagrams sent by one system call.
pub const SEND_BATCH: usize = 64;

/// Datagrams that wait at most while the socket's send buffer is full; past it new ones are dropped and counted.
pub const SEND_QUEUE: usize = 512;

/// A buffer that has grown past this is freed after its datagram has left, so that rare large messages do not hold
/// memory in every slot.
const KEEP_BYTES: usize = 8 * 1024;

/// Datagrams of one length to one peer leave as one, which the kernel cuts apart, where they are no longer than this: no path of
/// IPv6 is too narrow for it (RFC 8200 §5), for what is cut apart is not fragmented besides.
pub(crate) const MAX_SEGMENT_BYTES: usize = 1200;

/// So many leave as one at most.
pub(crate) const MAX_SEGMENTS: u8 = 32;

/// A datagram is joined to one of the last so many groups at most: to look through more would cost more than it saves, where there are
/// many peers.
const LOOK_BACK: usize = 16;

/// How often one datagram is offered to the kernel when the answers may be about others. Each such answer uses up an
/// ICMP error that was pending, so a second one is rare already.
const ATTEMPTS: u32 = 4;

/// What became of the datagrams that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flush {
    /// None waits any more: each was sent, or refused and reported.
    Done,
    /// The socket's send buffer is full. The rest waits; send again when mio says that the socket is writable.
    Blocked,
}

/// Datagrams on their way out of one socket.
///
/// Write a message into [`next_slot`](Self::next_slot), or swap a filled buffer with it, and
/// [`commit`](Self::commit) it; then [`UdpSocket::send`](crate::UdpSocket::send) when [`is_full`](Self::is_full) and at
/// the end of each round of work. Order is kept, but for what may be joined: then that within each [`Strand`] is.
#[derive(Debug)]
pub struct SendBatch {
    /// A ring. The slot behind the last waiting one is the next to fill, so one slot never waits. The ring starts over
    /// whenever it is empty: without congestion only the first few buffers are used, and those stay in the cache.
    slots: Vec<Slot>,
    head: usize,
    waiting: usize,
    overflow: u64,
    /// Where slots are put while they change places; nothing waits here.
    aside: Vec<Slot>,
}

#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) bytes: Vec<u8>,
    pub(crate) peer: SocketAddr,
    ordering_key: OrderingKey,
}

/// Which datagrams keep their order on the way to a peer: those of one strand. Of different strands one may overtake another, so that
/// what is of one length can leave together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderingKey(u64);

impl OrderingKey {
    /// Of all strands: neither overtakes nor is overtaken.
    pub const ALL: Self = Self(u64::MAX);

    /// One of 64: numbers that are further apart may mean the same.
    #[must_use]
    pub const fn new(number: u16) -> Self {
        Self(1 << (number % 64))
    }
}

/// Datagrams of one length to one peer, while they are gathered.
#[derive(Clone, Copy, Default)]
struct Group {
    /// What tells most peers apart at once.
    mark: u32,
    /// The slot of the first.
    first: u8,
    size: u8,
    /// All strands that are in it.
    strands: u64,
}

/// What is offered to the kernel: the first datagrams that wait, at most [`SEND_BATCH`].
pub(crate) type Window<'a> = Take<Chain<Iter<'a, Slot>, Iter<'a, Slot>>>;

impl Default for SendBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl SendBatch {
    /// A batch in which nothing waits.
    #[must_use]
    pub fn new() -> Self {
        let nowhere = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        let empty = Slot { bytes: Vec::new(), peer: nowhere, ordering_key: OrderingKey::ALL };
        let aside = vec![empty.clone(); SEND_BATCH];
        Self { slots: vec![empty; SEND_QUEUE + 1], head: 0, waiting: 0, overflow: 0, aside }
    }

    /// An empty buffer for the next datagram. Until it is committed it is given again.
    pub fn next_slot(&mut self) -> &mut Vec<u8> {
        let slot = self.open_slot();
        slot.bytes.clear();
        &mut slot.bytes
    }

    /// Lets what was written into [`next_slot`](Self::next_slot) wait to be sent to `peer`, or drops and counts it where
    /// [`SEND_QUEUE`] datagrams wait already; whether it waits. It keeps its order among those of its `strand`.
    pub fn commit(&mut self, peer: SocketAddr, strand: OrderingKey) -> bool {
        if self.waiting == SEND_QUEUE {
            self.overflow += 1;
            return false;
        }
        let slot = self.open_slot();
        (slot.peer, slot.ordering_key) = (peer, strand);
        self.waiting += 1;
        debug_assert!(self.waiting < self.slots.len());
        true
    }

    /// How many datagrams wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Whether enough wait for a whole system call.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.waiting >= SEND_BATCH
    }

    /// Brings datagrams of one length to one peer together, so that they may leave as one. None overtakes another of its strand on the
    /// way to a peer.
    pub(crate) fn group_segments(&mut self) {
        let Self { slots, head, waiting, aside, .. } = self;
        let count = (*waiting).min(SEND_BATCH);
        // Where the ring begins anew in between, all stay: that is rare.
        let Some(slots) = slots.get_mut(*head..head.saturating_add(count)) else { return };
        let mut places = [0; SEND_BATCH];
        if !find_places(slots, &mut places) {
            return;
        }
        for (slot, place) in slots.iter_mut().zip(places) {
            if let Some(gathered) = aside.get_mut(usize::from(place)) {
                std::mem::swap(slot, gathered);
            }
        }
        slots.iter_mut().zip(aside).for_each(|(slot, gathered)| std::mem::swap(slot, gathered));
    }

    /// Offers what waits to `transmit`, which tells how many of the window it took, from the front. Nothing that happens
    /// to one datagram keeps the ones behind it from leaving.
    pub(crate) fn flush(
        &mut self,
        counters: &mut Counters,
        mut transmit: impl FnMut(Window<'_>) -> io::Result<usize>,
        mut on_error: impl FnMut(PeerError),
    ) -> Flush {
        counters.send_overflow += std::mem::take(&mut self.overflow);
        let mut attempts = 0;
        while !self.is_empty() {
            let error = match transmit(self.window()) {
                Ok(taken @ 1..) => {
                    counters.sent += taken as u64;
                    self.release(taken);
                    attempts = 0;
                    continue;
                }
                Ok(0) => io::Error::from(io::ErrorKind::WouldBlock),
                Err(error) => error,
            };
            match error.kind() {
                io::ErrorKind::Interrupted => continue,
                io::ErrorKind::WouldBlock => {
                    counters.send_blocked += 1;
                    return Flush::Blocked;
                }
                _ => attempts += 1,
            }
            let errno = error.raw_os_error().unwrap_or(0);
            if attempts < ATTEMPTS && may_be_pending(errno) {
                continue;
            }
            attempts = 0;
            self.skip(errno, counters, &mut on_error);
        }
        Flush::Done
    }

    /// Gives up the first datagram.
    fn skip(&mut self, errno: i32, counters: &mut Counters, on_error: &mut impl FnMut(PeerError)) {
        let Some(peer) = self.window().next().map(|slot| slot.peer) else { return };
        self.release(1);
        counters.send_errors += 1;
        counters.no_buffers += u64::from(matches!(errno, libc::ENOBUFS | libc::ENOMEM));
        // To be refused takes an answer, which is never there when a datagram leaves: this one was somebody else's, and
        // who that was is said by the error queue.
        if errno != libc::ECONNREFUSED {
            on_error(PeerError { peer, cause: Cause::of_send(errno) });
        }
    }

    /// Makes the first `count` slots free again.
    fn release(&mut self, count: usize) {
        debug_assert!(count <= self.waiting.min(SEND_BATCH));
        let count = count.min(self.waiting);
        for _ in 0..count {
            if let Some(slot) = self.slots.get_mut(self.head)
                && slot.bytes.capacity() > KEEP_BYTES
            {
                slot.bytes = Vec::new();
            }
            self.head = self.place(1);
        }
        self.waiting -= count;
        if self.waiting == 0 {
            self.head = 0;
        }
    }

    fn window(&self) -> Window<'_> {
        let (behind, ahead) = self.slots.split_at(self.head);
        ahead.iter().chain(behind).take(self.waiting.min(SEND_BATCH))
    }

    #[expect(clippy::indexing_slicing, reason = "an index within the ring, which is never empty")]
    fn open_slot(&mut self) -> &mut Slot {
        let index = self.place(self.waiting);
        &mut self.slots[index]
    }

    /// The place `steps` behind the head: fewer than the ring has.
    fn place(&self, steps: usize) -> usize {
        let place = self.head + steps;
        // A remainder is a division, and this is done thrice for each datagram.
        if place < self.slots.len() { place } else { place - self.slots.len() }
    }
}

/// Where each of `slots` goes when they are gathered; `false` where all of them stay.
fn find_places(slots: &[Slot], places: &mut [u8; SEND_BATCH]) -> bool {
    let mut groups = [Group::default(); SEND_BATCH];
    let (mut count, mut is_any_moved) = (0, false);
    for (index, (slot, place)) in slots.iter().zip(places.iter_mut()).enumerate() {
        let known = groups.get(..count).unwrap_or_default();
        let group = find_group(known, slots, slot).unwrap_or(count);
        is_any_moved |= group + 1 < count;
        count = count.max(group + 1);
        let Some(entry) = groups.get_mut(group) else { return false };
        if entry.size == 0 {
            (entry.mark, entry.first) = (mark(slot.peer), index as u8);
        }
        entry.size += 1;
        entry.strands |= slot.ordering_key.0;
        *place = group as u8;
    }
    if !is_any_moved {
        return false;
    }
    // From how many each group has to where its next one goes.
    let mut start = 0;
    for group in &mut groups {
        start += std::mem::replace(&mut group.size, start);
    }
    for place in places.iter_mut().take(slots.len()) {
        if let Some(next) = groups.get_mut(usize::from(*place)) {
            *place = next.size;
            next.size += 1;
        }
    }
    true
}

/// The group that a datagram joins, of those before it: the last one of its peer and length behind which none of its strand waits for
/// that peer.
fn find_group(groups: &[Group], slots: &[Slot], slot: &Slot) -> Option<usize> {
    let length = slot.bytes.len();
    if !(1..=MAX_SEGMENT_BYTES).contains(&length) {
        return None;
    }
    let mark = mark(slot.peer);
    let last = groups.iter().enumerate().rev().take(LOOK_BACK);
    for (index, group) in last.filter(|(_, group)| group.mark == mark) {
        let Some(first) = slots.get(usize::from(group.first)).filter(|first| first.peer == slot.peer) else { continue };
        if first.bytes.len() == length {
            return Some(index);
        }
        if group.strands & slot.ordering_key.0 != 0 {
            return None;
        }
    }
    None
}

/// The same for the same peer, and nearly always another for another.
fn mark(peer: SocketAddr) -> u32 {
    let host = match peer {
        SocketAddr::V4(peer) => peer.ip().to_bits(),
        SocketAddr::V6(peer) => peer.ip().to_bits() as u32,
    };
    host.rotate_left(16) ^ u32::from(peer.port())
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A kernel that answers as it is told, and then takes everything.
    #[derive(Default)]
    struct Kernel {
        answers: VecDeque<Result<usize, i32>>,
        taken: Vec<(u16, Vec<u8>)>,
        calls: usize,
    }

    impl Kernel {
        fn transmit(&mut self, window: Window<'_>) -> io::Result<usize> {
            self.calls += 1;
            let offered = window.clone().count();
            assert!((1..=SEND_BATCH).contains(&offered));
            let count = self.answers.pop_front().unwrap_or(Ok(offered)).map_err(io::Error::from_raw_os_error)?;
            let count = count.min(offered);
            self.taken.extend(window.take(count).map(|slot| (slot.peer.port(), slot.bytes.clone())));
            Ok(count)
        }
    }

    /// A batch, its kernel, and what both have told.
    #[derive(Default)]
    struct Pair {
        batch: SendBatch,
        kernel: Kernel,
        counters: Counters,
        errors: Vec<(u16, Cause)>,
    }

    impl Pair {
        fn commit(&mut self, ports: impl IntoIterator<Item = u16>) {
            for port in ports {
                let slot = self.batch.next_slot();
                assert!(slot.is_empty());
                slot.extend_from_slice(&port.to_be_bytes());
                self.batch.commit(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), OrderingKey::ALL);
            }
        }

        fn flush(&mut self, answers: &[Result<usize, i32>]) -> Flush {
            self.kernel.answers = answers.iter().copied().collect();
            let Self { batch, kernel, counters, errors } = self;
            batch.flush(counters, |window| kernel.transmit(window), |e| errors.push((e.peer.port(), e.cause)))
        }

        fn taken(&self) -> Vec<u16> {
            for (port, bytes) in &self.kernel.taken {
                assert_eq!(bytes, &port.to_be_bytes(), "each datagram goes to its own peer");
            }
            self.kernel.taken.iter().map(|(port, _)| *port).collect()
        }
    }

    #[test]
    fn batches_of_all_sizes_leave_in_order() {
        for size in [1, 2, 63, 64, 65, 128, 200, SEND_QUEUE as u16] {
            let mut pair = Pair::default();
            pair.commit(1..=size);
            assert_eq!(pair.flush(&[]), Flush::Done);
            assert_eq!(pair.taken(), (1..=size).collect::<Vec<_>>());
            assert_eq!(pair.kernel.calls, usize::from(size).div_ceil(SEND_BATCH));
            assert!(pair.batch.is_empty());
        }
    }

    /// Numbers below `bound`, the same in each run.
    fn numbers() -> impl FnMut(u32) -> u32 {
        let mut random = 7_u32;
        move |bound| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 16) % bound
        }
    }

    #[test]
    fn what_is_gathered_stays_in_its_order_within_each_strand_to_each_peer() {
        let mut next = numbers();
        for round in 0..4_000 {
            let (count, peers, strands) = (next(SEND_BATCH as u32 + 1), 1 + next(9), next(5) as u16);
            let mut batch = SendBatch::new();
            let mut sent = Vec::new();
            for number in 0..count {
                let port = 1 + next(peers) as u16;
                let strand = match next(u32::from(strands) + 1) as u16 {
                    0 => OrderingKey::ALL,
                    strand => OrderingKey::new(strand),
                };
                let bytes = vec![number as u8; 1 + next(3) as usize];
                batch.next_slot().extend_from_slice(&bytes);
                batch.commit(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), strand);
                sent.push((port, strand, bytes));
            }
            batch.group_segments();
            let gathered: Vec<_> =
                batch.window().map(|slot| (slot.peer.port(), slot.ordering_key, slot.bytes.clone())).collect();
            assert_eq!(gathered.len(), sent.len());
            for (port, strand) in (1..=9).flat_map(|port| (1..=5).map(move |strand| (port, OrderingKey::new(strand)))) {
                let of_both = |all: &[(u16, OrderingKey, Vec<u8>)]| {
                    let of_both = all.iter().filter(|one| one.0 == port && one.1.0 & strand.0 != 0);
                    of_both.map(|one| one.2.clone()).collect::<Vec<_>>()
                };
                assert_eq!(of_both(&gathered), of_both(&sent), "round {round}");
            }
        }
    }

    /// The ports and lengths in the order in which these leave: port, length and strand of each.
    fn gathered(all: &[(u16, usize, OrderingKey)]) -> Vec<(u16, usize)> {
        let mut batch = SendBatch::new();
        for (port, length, strand) in all {
            batch.next_slot().resize(*length, 0);
            batch.commit(SocketAddr::from((Ipv4Addr::LOCALHOST, *port)), *strand);
        }
        batch.group_segments();
        batch.window().map(|slot| (slot.peer.port(), slot.bytes.len())).collect()
    }

    #[test]
    fn datagrams_of_one_length_to_one_peer_stand_together() {
        let all = [(1, 5), (2, 5), (1, 5), (2, 6), (1, 5), (2, 5), (2, 5), (1, 2_000), (3, 1), (1, 2_000)];
        assert_eq!(
            gathered(&all.map(|(port, length)| (port, length, OrderingKey::ALL))),
            [(1, 5), (1, 5), (1, 5), (2, 5), (2, 6), (2, 5), (2, 5), (1, 2_000), (3, 1), (1, 2_000)],
            "what is long does not leave as one, and none overtakes another to its peer"
        );
    }

    #[test]
    fn those_of_another_strand_are_overtaken() {
        let strand = OrderingKey::new;
        let calls = [(1, 9, strand(1)), (1, 5, strand(2)), (1, 9, strand(3)), (1, 5, strand(3)), (1, 9, strand(2))];
        assert_eq!(
            gathered(&calls),
            [(1, 9), (1, 9), (1, 5), (1, 5), (1, 9)],
            "the last one stays behind what is of its own strand"
        );
        let among_all = [(1, 9, strand(1)), (1, 5, OrderingKey::ALL), (1, 9, strand(2)), (1, 5, strand(3))];
        assert_eq!(gathered(&among_all), [(1, 9), (1, 5), (1, 5), (1, 9)]);
    }

    #[test]
    fn where_there_are_many_peers_only_the_last_ones_are_looked_at() {
        let peers = LOOK_BACK as u16;
        let round: Vec<_> = (1..=peers).map(|port| (port, 5, OrderingKey::ALL)).collect();
        let twice = gathered(&[round.clone(), round].concat());
        assert_eq!(twice, (1..=peers).flat_map(|port| [(port, 5); 2]).collect::<Vec<_>>());
        let more: Vec<_> = (1..=peers + 1).map(|port| (port, 5, OrderingKey::ALL)).collect();
        let twice = [more.clone(), more].concat();
        assert_eq!(gathered(&twice), twice.iter().map(|one| (one.0, one.1)).collect::<Vec<_>>());
    }

    #[test]
    fn partial_sends_and_interruptions_go_on() {
        let mut pair = Pair::default();
        pair.commit(1..=100);
        assert_eq!(pair.flush(&[Ok(1), Err(libc::EINTR), Ok(17)]), Flush::Done);
        assert_eq!(pair.taken(), (1..=100).collect::<Vec<_>>());
        assert_eq!(pair.counters, Counters { sent: 100, ..Counters::default() });
    }

    #[test]
    fn an_error_costs_one_datagram_and_names_its_peer() {
        let cases = [
            (libc::EMSGSIZE, Cause::TooLong),
            (libc::EPERM, Cause::Forbidden),
            (libc::EHOSTUNREACH, Cause::Unreachable),
            (libc::ENOBUFS, Cause::Congested),
            (libc::EINVAL, Cause::Other(libc::EINVAL)),
        ];
        for (errno, cause) in cases {
            let mut pair = Pair::default();
            pair.commit(1..=10);
            let times = if may_be_pending(errno) { ATTEMPTS as usize } else { 1 };
            let answers = [vec![Ok(3)], vec![Err(errno); times]].concat();
            assert_eq!(pair.flush(&answers), Flush::Done);
            assert_eq!(pair.taken(), [1, 2, 3, 5, 6, 7, 8, 9, 10]);
            assert_eq!(pair.errors, [(4, cause)]);
            assert_eq!((pair.counters.sent, pair.counters.send_errors), (9, 1));
            assert_eq!(pair.counters.no_buffers, u64::from(errno == libc::ENOBUFS));
        }
    }

    #[test]
    fn a_pending_error_of_another_datagram_costs_nothing() {
        let mut pair = Pair::default();
        pair.commit(1..=5);
        assert_eq!(
            pair.flush(&[Err(libc::ECONNREFUSED), Ok(2), Err(libc::EHOSTUNREACH), Err(libc::ECONNREFUSED)]),
            Flush::Done
        );
        assert_eq!(pair.taken(), [1, 2, 3, 4, 5]);
        assert!(pair.errors.is_empty());
    }

    #[test]
    fn refusals_without_end_cost_datagrams_but_blame_nobody() {
        let mut pair = Pair::default();
        pair.commit(1..=2);
        assert_eq!(pair.flush(&[Err(libc::ECONNREFUSED); 2 * ATTEMPTS as usize]), Flush::Done);
        assert!(pair.batch.is_empty() && pair.errors.is_empty());
        assert_eq!(pair.counters.send_errors, 2);
    }

    #[test]
    fn a_full_socket_keeps_what_waits_and_the_queue_is_bounded() {
        let mut pair = Pair::default();
        let queue = SEND_QUEUE as u16;
        pair.commit(1..=queue);
        assert_eq!(pair.flush(&[Ok(10), Err(libc::EAGAIN)]), Flush::Blocked);
        assert_eq!(pair.batch.len(), SEND_QUEUE - 10);
        pair.commit(queue + 1..=queue + 13);
        assert_eq!(pair.batch.len(), SEND_QUEUE);
        assert_eq!(pair.flush(&[Err(libc::EAGAIN)]), Flush::Blocked);
        assert_eq!(pair.counters.send_overflow, 3);
        assert_eq!(pair.flush(&[]), Flush::Done);
        assert_eq!(pair.taken(), (1..=queue + 10).collect::<Vec<_>>(), "the three last were dropped");
        assert_eq!(pair.counters.send_blocked, 2);
    }

    #[test]
    fn the_ring_wraps_as_often_as_it_must() {
        let mut pair = Pair::default();
        let mut next = 1;
        for round in 0..300 {
            let size = 1 + round % 97;
            pair.commit(next..next + size);
            next += size;
            while pair.batch.len() > SEND_QUEUE / 2 {
                assert_eq!(pair.flush(&[Ok(61), Err(libc::EAGAIN)]), Flush::Blocked);
            }
        }
        assert_eq!(pair.flush(&[]), Flush::Done);
        assert_eq!(pair.taken(), (1..next).collect::<Vec<_>>());
    }

    #[test]
    fn buffers_are_used_again_unless_they_are_huge() {
        let mut pair = Pair::default();
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 5060));
        let mut filled = Vec::with_capacity(1500);
        filled.push(1);
        let address = filled.as_ptr();
        std::mem::swap(&mut filled, pair.batch.next_slot());
        pair.batch.commit(peer, OrderingKey::ALL);
        pair.batch.next_slot().resize(60_000, 0);
        pair.batch.commit(peer, OrderingKey::ALL);
        let (mut counters, mut lengths) = (Counters::default(), Vec::new());
        let transmit = |window: Window<'_>| {
            lengths.extend(window.map(|slot| slot.bytes.len()));
            Ok(2)
        };
        assert_eq!(pair.batch.flush(&mut counters, transmit, |_| ()), Flush::Done);
        assert_eq!(lengths, [1, 60_000]);
        assert_eq!(pair.batch.next_slot().as_ptr(), address);
        pair.batch.commit(peer, OrderingKey::ALL);
        assert_eq!(pair.batch.next_slot().capacity(), 0);
    }
}
