//! Processing times of the worker per message.

use core::time::Duration;

use strowger_message::Method;

use crate::server::MessageOutcome;

/// Service times in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// INVITE that is served.
    pub invite_ns: u64,
    /// Provisional response.
    pub provisional_ns: u64,
    /// Final response.
    pub final_response_ns: u64,
    /// ACK that is forwarded.
    pub ack_ns: u64,
    /// Other request that is served.
    pub request_ns: u64,
    /// Retransmission to an existing transaction, or ACK that is absorbed.
    pub retransmission_ns: u64,
    /// Request that is answered 503.
    pub refusal_ns: u64,
    /// Message that is received and dropped.
    pub drop_ns: u64,
    /// Message that the server sends because of a timer.
    pub timer_send_ns: u64,
}

/// Kind of a received message, as far as its cost depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageKind {
    Invite,
    Ack,
    Request,
    Provisional,
    FinalResponse,
}

impl MessageKind {
    /// Returns the kind of a message from its first bytes.
    pub(super) fn of(bytes: &[u8]) -> Self {
        if let Some(status) = bytes.strip_prefix(b"SIP/2.0 ") {
            return if status.starts_with(b"1") { Self::Provisional } else { Self::FinalResponse };
        }
        let token = bytes.split(|byte| *byte == b' ').next().unwrap_or_default();
        match Method::from_token(token) {
            Method::Invite => Self::Invite,
            Method::Ack => Self::Ack,
            _ => Self::Request,
        }
    }
}

impl Costs {
    /// Service times in the ratios of a profile of the server: 28.5 µs per call, 0.9 µs to receive and drop, 0.15 of
    /// a call for a 503.
    pub const MEASURED: Self = Self {
        invite_ns: 9_000,
        provisional_ns: 3_000,
        final_response_ns: 3_500,
        ack_ns: 3_000,
        request_ns: 6_500,
        retransmission_ns: 2_000,
        refusal_ns: 4_275,
        drop_ns: 900,
        timer_send_ns: 1_500,
    };

    /// Returns the time of a call without retransmissions: INVITE, 180, 200, ACK, BYE, 200.
    #[must_use]
    pub const fn call_ns(&self) -> u64 {
        self.invite_ns + self.provisional_ns + 2 * self.final_response_ns + self.ack_ns + self.request_ns
    }

    /// Scales all times so that a worker carries `capacity` calls per second.
    #[must_use]
    pub fn scaled_to(&self, capacity: u32) -> Self {
        let call_ns = self.call_ns();
        let scale = |ns: u64| ns * 1_000_000_000 / (call_ns * u64::from(capacity.max(1)));
        Self {
            invite_ns: scale(self.invite_ns),
            provisional_ns: scale(self.provisional_ns),
            final_response_ns: scale(self.final_response_ns),
            ack_ns: scale(self.ack_ns),
            request_ns: scale(self.request_ns),
            retransmission_ns: scale(self.retransmission_ns),
            refusal_ns: scale(self.refusal_ns),
            drop_ns: scale(self.drop_ns),
            timer_send_ns: scale(self.timer_send_ns),
        }
    }

    /// Returns the time of a message with this outcome that caused `sent` messages.
    pub(super) const fn of(&self, sort: MessageKind, fate: MessageOutcome, sent: usize) -> Duration {
        let ns = match (fate, sort) {
            (MessageOutcome::Dropped | MessageOutcome::Ignored, _) => self.drop_ns,
            (MessageOutcome::Refused, _) => self.refusal_ns,
            (MessageOutcome::Retransmission, _) => self.retransmission_ns,
            (MessageOutcome::Served, MessageKind::Ack) if sent == 0 => self.retransmission_ns,
            (MessageOutcome::Served, MessageKind::Invite) => self.invite_ns,
            (MessageOutcome::Served, MessageKind::Ack) => self.ack_ns,
            (MessageOutcome::Served, MessageKind::Request) => self.request_ns,
            (MessageOutcome::Served, MessageKind::Provisional) => self.provisional_ns,
            (MessageOutcome::Served, MessageKind::FinalResponse) => self.final_response_ns,
        };
        Duration::from_nanos(ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_cost_scales_with_capacity() {
        assert_eq!(Costs::MEASURED.call_ns(), 28_500);
        let scaled = Costs::MEASURED.scaled_to(200);
        assert!((4_999_990..=5_000_000).contains(&scaled.call_ns()), "{scaled:?}");
    }

    #[test]
    fn the_first_bytes_give_the_message_kind() {
        let sorts = [&b"INVITE sip:a"[..], b"ACK sip:a", b"BYE sip:a", b"SIP/2.0 180 Ringing", b"SIP/2.0 200 OK"];
        let expected = [
            MessageKind::Invite,
            MessageKind::Ack,
            MessageKind::Request,
            MessageKind::Provisional,
            MessageKind::FinalResponse,
        ];
        assert_eq!(sorts.map(MessageKind::of), expected);
    }
}
