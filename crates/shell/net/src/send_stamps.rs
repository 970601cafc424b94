//! Timestamps of when sent datagrams were passed to the device, for some of them.

use std::collections::VecDeque;

use crate::clock::RealNanos;

/// Value of `SO_TIMESTAMPING`: reports software timestamps of the datagrams that request it, each with a key and
/// without the datagram; adds none to received datagrams.
pub(crate) const OPTIONS: i32 = (libc::SOF_TIMESTAMPING_SOFTWARE
    | libc::SOF_TIMESTAMPING_OPT_ID
    | libc::SOF_TIMESTAMPING_OPT_TSONLY
    | libc::SOF_TIMESTAMPING_OPT_RX_FILTER) as i32;

/// Maximum number of stamps that have been requested and not reported, and of those reported and not polled.
const MAX_PENDING: usize = 8;

/// How long a datagram took to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendStamp {
    /// The number given with the request.
    pub tag: u32,
    /// Time from the start of the send until the datagram was passed to the device, ns.
    pub nanos: u64,
}

/// A request for a stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    begun: RealNanos,
    tag: u32,
}

/// Matches the stamps that the kernel reports with their requests.
#[derive(Debug)]
pub(crate) struct SendStamps {
    request: Option<Request>,
    /// Sent requests with their keys, in order.
    pending: VecDeque<(u32, Request)>,
    reported: VecDeque<SendStamp>,
    /// Key of the next request. The kernel counts them; a send that fails may count or not.
    next_key: u32,
    lost: u64,
}

impl SendStamps {
    pub(crate) fn new() -> Self {
        let queue = || VecDeque::with_capacity(MAX_PENDING);
        Self { request: None, pending: VecDeque::with_capacity(MAX_PENDING), reported: queue(), next_key: 0, lost: 0 }
    }

    /// Requests a stamp of the next datagram.
    pub(crate) fn request(&mut self, begun: RealNanos, tag: u32) {
        self.request = Some(Request { begun, tag });
    }

    /// Returns the request for the datagram that is sent now.
    pub(crate) fn take_request(&mut self) -> Option<Request> {
        self.request.take()
    }

    /// Records whether the datagram of a request was sent. If not, the request is for the next attempt.
    pub(crate) fn on_sent(&mut self, request: Request, is_sent: bool) {
        if !is_sent {
            self.request = Some(request);
            return;
        }
        if self.pending.len() == MAX_PENDING {
            self.pending.pop_front();
            self.lost += 1;
        }
        self.pending.push_back((self.next_key, request));
        self.next_key = self.next_key.wrapping_add(1);
    }

    /// Records a stamp that the kernel reports.
    pub(crate) fn on_stamp(&mut self, key: u32, at: RealNanos) {
        while let Some((pending, request)) = self.pending.front().copied() {
            // Those before it are overdue: the kernel reports in order.
            match key.wrapping_sub(pending) as i32 {
                0 => {
                    self.pending.pop_front();
                    return self.report(request, at);
                }
                1.. => {
                    self.pending.pop_front();
                    self.lost += 1;
                }
                _ => return,
            }
        }
        // The kernel counts further than assumed.
        if key.wrapping_sub(self.next_key) as i32 >= 0 {
            self.next_key = key.wrapping_add(1);
        }
    }

    /// Returns the next reported stamp.
    pub(crate) fn poll(&mut self) -> Option<SendStamp> {
        self.reported.pop_front()
    }

    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }

    fn report(&mut self, request: Request, at: RealNanos) {
        if self.reported.len() == MAX_PENDING {
            self.lost += 1;
            return;
        }
        // Real time may have been set back meanwhile.
        self.reported.push_back(SendStamp { tag: request.tag, nanos: at.0.saturating_sub(request.begun.0) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(stamps: &mut SendStamps, tag: u32) {
        stamps.request(RealNanos(1_000), tag);
        let request = stamps.take_request().expect("it was requested");
        assert_eq!(stamps.take_request(), None, "one datagram has it");
        stamps.on_sent(request, true);
    }

    #[test]
    fn stamps_find_their_requests() {
        let mut stamps = SendStamps::new();
        send(&mut stamps, 7);
        send(&mut stamps, 8);
        stamps.on_stamp(0, RealNanos(1_500));
        stamps.on_stamp(1, RealNanos(900));
        let reported: Vec<_> = std::iter::from_fn(|| stamps.poll()).collect();
        assert_eq!(reported, [SendStamp { tag: 7, nanos: 500 }, SendStamp { tag: 8, nanos: 0 }]);
        assert_eq!(stamps.lost(), 0);
    }

    #[test]
    fn keys_that_failed_sends_used_cost_one_stamp() {
        let mut stamps = SendStamps::new();
        send(&mut stamps, 1);
        // The kernel has counted two sends that failed.
        stamps.on_stamp(2, RealNanos(2_000));
        assert_eq!((stamps.poll(), stamps.lost()), (None, 1));
        send(&mut stamps, 2);
        stamps.on_stamp(3, RealNanos(2_000));
        assert_eq!(stamps.poll(), Some(SendStamp { tag: 2, nanos: 1_000 }));
    }

    #[test]
    fn pending_stamps_are_bounded_and_lost_ones_counted() {
        let mut stamps = SendStamps::new();
        (0..20).for_each(|tag| send(&mut stamps, tag));
        assert_eq!((stamps.pending.len(), stamps.lost()), (MAX_PENDING, 20 - MAX_PENDING as u64));
        stamps.on_stamp(3, RealNanos(2_000));
        assert_eq!(stamps.poll(), None, "it is no longer awaited");
        stamps.on_stamp(15, RealNanos(2_000));
        assert_eq!(stamps.poll().map(|stamp| stamp.tag), Some(15));
        assert_eq!(stamps.lost(), 15);
        (16..20).for_each(|key| stamps.on_stamp(key, RealNanos(2_000)));
        assert_eq!(std::iter::from_fn(|| stamps.poll()).count(), 4);
    }
}
