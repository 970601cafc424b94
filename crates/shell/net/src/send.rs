//! Sending: datagrams wait in reused buffers and leave up to [`SEND_BATCH`] at a time.

use std::io;
use std::iter::{Chain, Take};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::slice::Iter;

use crate::counters::Counters;
use crate::error::{Cause, PeerError, may_be_pending};

/// Maximum number of datagrams sent per system call.
pub const SEND_BATCH: usize = 64;

/// Maximum number of datagrams that wait while the socket's send buffer is full; further ones are dropped and
/// counted.
pub const SEND_QUEUE: usize = 512;

/// Buffers that have grown beyond this size are freed after sending, so that rare large messages do not hold memory
/// in every slot.
const KEEP_BYTES: usize = 8 * 1024;

/// Maximum length of datagrams that are sent as segments of one message (UDP GSO). The kernel does not fragment
/// segments, and every IPv6 path carries this size (RFC 8200 §5).
pub(crate) const MAX_SEGMENT_BYTES: usize = 1200;

/// Maximum number of segments per message.
pub(crate) const MAX_SEGMENTS: u8 = 32;

/// Number of most recent groups checked when grouping a datagram. With many peers, checking more costs more than it
/// saves.
const LOOK_BACK: usize = 16;

/// Number of times one datagram is offered to the kernel when the errors may be about other datagrams. Each such
/// error consumes one pending ICMP error, so a second one is already rare.
const ATTEMPTS: u32 = 4;

/// Result of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flush {
    /// Nothing is waiting: each datagram was sent, or refused and reported.
    Done,
    /// The socket's send buffer is full and the rest waits. Send again when mio reports the socket writable.
    Blocked,
}

/// Outgoing datagrams of one socket.
///
/// Write a message into [`next_slot`](Self::next_slot), or swap a filled buffer with it, and [`commit`](Self::commit)
/// it. Call [`UdpSocket::send`](crate::UdpSocket::send) when [`is_full`](Self::is_full) and at the end of each round
/// of work. Order is preserved, except with segmentation, where it is preserved within each [`OrderingKey`].
#[derive(Debug)]
pub struct SendBatch {
    /// A ring. The slot after the last waiting one is filled next, so one slot is always free. The ring restarts at
    /// its first slot whenever it is empty; without congestion only the first few buffers are used, and they stay in
    /// the cache.
    slots: Vec<Slot>,
    head: usize,
    waiting: usize,
    overflow: u64,
    /// Scratch space for reordering slots; empty otherwise.
    aside: Vec<Slot>,
}

#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) bytes: Vec<u8>,
    pub(crate) peer: SocketAddr,
    ordering_key: OrderingKey,
}

/// Key of datagrams that keep their order on the way to a peer. Datagrams with different keys may overtake each
/// other, so that datagrams of equal length can leave together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderingKey(u64);

impl OrderingKey {
    /// Belongs to all keys: it neither overtakes nor is overtaken.
    pub const ALL: Self = Self(u64::MAX);

    /// Creates one of 64 keys; numbers of 64 and more may share a key.
    #[must_use]
    pub const fn new(number: u16) -> Self {
        Self(1 << (number % 64))
    }
}

/// Datagrams of one length to one peer, while they are being grouped.
#[derive(Clone, Copy, Default)]
struct Group {
    /// Hash that distinguishes most peers.
    mark: u32,
    /// Slot of the first datagram.
    first: u8,
    size: u8,
    /// Set of the ordering keys in the group.
    strands: u64,
}

/// Datagrams offered to the kernel: the first waiting ones, at most [`SEND_BATCH`].
pub(crate) type Window<'a> = Take<Chain<Iter<'a, Slot>, Iter<'a, Slot>>>;

impl Default for SendBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl SendBatch {
    /// Creates an empty batch.
    #[must_use]
    pub fn new() -> Self {
        let nowhere = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        let empty = Slot { bytes: Vec::new(), peer: nowhere, ordering_key: OrderingKey::ALL };
        let aside = vec![empty.clone(); SEND_BATCH];
        Self { slots: vec![empty; SEND_QUEUE + 1], head: 0, waiting: 0, overflow: 0, aside }
    }

    /// Returns an empty buffer for the next datagram, the same one until it is committed.
    pub fn next_slot(&mut self) -> &mut Vec<u8> {
        let slot = self.open_slot();
        slot.bytes.clear();
        &mut slot.bytes
    }

    /// Queues the contents of [`next_slot`](Self::next_slot) for `peer` and returns true. If [`SEND_QUEUE`] datagrams
    /// are waiting, drops and counts it and returns false. Order is preserved within the ordering key.
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

    /// Returns the number of waiting datagrams.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Returns whether no datagram is waiting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Returns whether enough datagrams are waiting for a full system call.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.waiting >= SEND_BATCH
    }

    /// Groups datagrams of one length to one peer so that they can leave as one message. No datagram overtakes
    /// another with the same ordering key on the way to a peer.
    pub(crate) fn group_segments(&mut self) {
        let Self { slots, head, waiting, aside, .. } = self;
        let count = (*waiting).min(SEND_BATCH);
        // If the window wraps around the ring, nothing is moved; that is rare.
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

    /// Offers waiting datagrams to `transmit`, which returns how many of the window it took from the front. An error
    /// of one datagram does not block those behind it.
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

    /// Drops the first datagram.
    fn skip(&mut self, errno: i32, counters: &mut Counters, on_error: &mut impl FnMut(PeerError)) {
        let Some(peer) = self.window().next().map(|slot| slot.peer) else { return };
        self.release(1);
        counters.send_errors += 1;
        counters.no_buffers += u64::from(matches!(errno, libc::ENOBUFS | libc::ENOMEM));
        // ECONNREFUSED needs a reply from the peer, which cannot exist when a datagram is being sent. The error is
        // about an earlier datagram, and the error queue names it.
        if errno != libc::ECONNREFUSED {
            on_error(PeerError { peer, cause: Cause::of_send(errno) });
        }
    }

    /// Frees the first `count` slots.
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

    /// Returns the index `steps` after the head; `steps` is less than the size of the ring.
    fn place(&self, steps: usize) -> usize {
        let place = self.head + steps;
        // Avoids a remainder, which is a division: this runs three times per datagram.
        if place < self.slots.len() { place } else { place - self.slots.len() }
    }
}

/// Computes the new position of each of `slots` when grouped; returns `false` if none moves.
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
    // Turns the size of each group into the position of its next datagram.
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

/// Returns the group that a datagram joins: the last earlier group of its peer and length after which no datagram
/// with its ordering key waits for that peer.
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

/// Hashes a peer; different peers nearly always differ.
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

    /// A scripted kernel: returns the given results, then accepts everything.
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

    /// A batch, its scripted kernel, and what both have reported.
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
    fn all_batch_sizes_are_sent_in_order() {
        for size in [1, 2, 63, 64, 65, 128, 200, SEND_QUEUE as u16] {
            let mut pair = Pair::default();
            pair.commit(1..=size);
            assert_eq!(pair.flush(&[]), Flush::Done);
            assert_eq!(pair.taken(), (1..=size).collect::<Vec<_>>());
            assert_eq!(pair.kernel.calls, usize::from(size).div_ceil(SEND_BATCH));
            assert!(pair.batch.is_empty());
        }
    }

    /// Generates numbers below `bound`, the same in each run.
    fn numbers() -> impl FnMut(u32) -> u32 {
        let mut random = 7_u32;
        move |bound| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 16) % bound
        }
    }

    #[test]
    fn gathering_keeps_order_per_peer_and_ordering_key() {
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

    /// Returns ports and lengths in sending order. Input: port, length and ordering key of each.
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
    fn equal_length_datagrams_to_a_peer_are_grouped() {
        let all = [(1, 5), (2, 5), (1, 5), (2, 6), (1, 5), (2, 5), (2, 5), (1, 2_000), (3, 1), (1, 2_000)];
        assert_eq!(
            gathered(&all.map(|(port, length)| (port, length, OrderingKey::ALL))),
            [(1, 5), (1, 5), (1, 5), (2, 5), (2, 6), (2, 5), (2, 5), (1, 2_000), (3, 1), (1, 2_000)],
            "what is long does not leave as one, and none overtakes another to its peer"
        );
    }

    #[test]
    fn other_ordering_keys_may_be_overtaken() {
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
    fn grouping_looks_back_at_a_limited_number_of_peers() {
        let peers = LOOK_BACK as u16;
        let round: Vec<_> = (1..=peers).map(|port| (port, 5, OrderingKey::ALL)).collect();
        let twice = gathered(&[round.clone(), round].concat());
        assert_eq!(twice, (1..=peers).flat_map(|port| [(port, 5); 2]).collect::<Vec<_>>());
        let more: Vec<_> = (1..=peers + 1).map(|port| (port, 5, OrderingKey::ALL)).collect();
        let twice = [more.clone(), more].concat();
        assert_eq!(gathered(&twice), twice.iter().map(|one| (one.0, one.1)).collect::<Vec<_>>());
    }

    #[test]
    fn partial_and_interrupted_sends_resume() {
        let mut pair = Pair::default();
        pair.commit(1..=100);
        assert_eq!(pair.flush(&[Ok(1), Err(libc::EINTR), Ok(17)]), Flush::Done);
        assert_eq!(pair.taken(), (1..=100).collect::<Vec<_>>());
        assert_eq!(pair.counters, Counters { sent: 100, ..Counters::default() });
    }

    #[test]
    fn an_error_drops_one_datagram_and_names_its_peer() {
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
    fn a_pending_error_of_another_datagram_drops_none() {
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
    fn endless_refusals_drop_datagrams_but_name_no_peer() {
        let mut pair = Pair::default();
        pair.commit(1..=2);
        assert_eq!(pair.flush(&[Err(libc::ECONNREFUSED); 2 * ATTEMPTS as usize]), Flush::Done);
        assert!(pair.batch.is_empty() && pair.errors.is_empty());
        assert_eq!(pair.counters.send_errors, 2);
    }

    #[test]
    fn a_full_socket_keeps_the_queue_which_is_bounded() {
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
    fn the_send_ring_wraps_repeatedly() {
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
    fn buffers_are_reused_unless_huge() {
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
