//! The four machines of RFC 3261 §17 as RFC 6026 amends them: state × event → state × actions, and no data besides.
//!
//! A transport that delivers makes the waits of Timers D, I, J and K zero, so the machines end at once there; Timers A, E
//! and G are not started. Timers L and M absorb forked and retransmitted successes, and run on every transport.

use core::ops::BitOr;

/// Which of the two machines of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An INVITE's.
    Invite,
    /// Any other request's; ACK has none.
    NonInvite,
}

/// The states of both client machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientState {
    /// An INVITE was sent and nothing came back.
    Calling,
    /// Another request was sent and nothing came back.
    Trying,
    /// A provisional response came.
    Proceeding,
    /// A final response came (for INVITE, not a success); its retransmissions are absorbed.
    Completed,
    /// A success came for an INVITE; every further one is passed to the user (RFC 6026 §7.2).
    Accepted,
    /// The end; a transaction in this state is removed at once.
    Terminated,
}

/// The states of both server machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// A request other than INVITE came and was not answered.
    Trying,
    /// An INVITE came, or another request was answered provisionally.
    Proceeding,
    /// A final response was sent (for INVITE, not a success).
    Completed,
    /// The ACK to a final response came; its retransmissions are absorbed.
    Confirmed,
    /// A success was sent for an INVITE; further ones may be sent (RFC 6026 §7.1).
    Accepted,
    /// The end; a transaction in this state is removed at once.
    Terminated,
}

/// What can happen to a client transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientEvent {
    /// A 1xx.
    Provisional,
    /// A 2xx.
    Success,
    /// A 3xx to 6xx.
    Failure,
    /// Timer A or E.
    Retransmit,
    /// Timer B, D, F, K or M, or a cancelled INVITE's patience.
    Deadline,
    /// The transport says that the peer cannot be reached.
    Unreachable,
    /// A CANCEL was sent for this INVITE.
    Cancelled,
}

/// What can happen to a server transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerEvent {
    /// The request again.
    Request,
    /// The ACK.
    Ack,
    /// The user's 1xx.
    Provisional,
    /// The user's 2xx.
    Success,
    /// The user's 3xx to 6xx.
    Failure,
    /// The user's answer is one that must not be sent: it gives up.
    Suppressed,
    /// Timer G.
    Retransmit,
    /// Timer H, I, J or L.
    Deadline,
}

/// What a step asks of the layer, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Actions(u16);

impl Actions {
    pub(crate) const NONE: Self = Self(0);
    /// Send the message that the event brought.
    pub(crate) const SEND: Self = Self(1);
    /// Keep that message in place of the one kept.
    pub(crate) const KEEP: Self = Self(1 << 1);
    /// Send the kept message again.
    pub(crate) const REPLAY: Self = Self(1 << 2);
    /// Forget the kept message.
    pub(crate) const RELEASE: Self = Self(1 << 3);
    /// Build, send and keep the ACK to a failure.
    pub(crate) const ACK: Self = Self(1 << 4);
    /// Hand the message to the user.
    pub(crate) const TO_USER: Self = Self(1 << 5);
    /// Start Timer A, E or G, or start it again with its next interval.
    pub(crate) const ARM_RETRANSMIT: Self = Self(1 << 6);
    /// Stop Timer A, E or G.
    pub(crate) const STOP_RETRANSMIT: Self = Self(1 << 7);
    /// Let the deadline be 64·T1 from now.
    pub(crate) const ARM_TIMEOUT: Self = Self(1 << 8);
    /// Let the deadline be T4 from now.
    pub(crate) const ARM_T4: Self = Self(1 << 9);
    /// Stop the deadline.
    pub(crate) const STOP_DEADLINE: Self = Self(1 << 10);
    /// Tell the user that nobody answered.
    pub(crate) const TIMED_OUT: Self = Self(1 << 11);
    /// Tell the user that the peer cannot be reached.
    pub(crate) const FAILED: Self = Self(1 << 12);

    pub(crate) const fn has(self, action: Self) -> bool {
        self.0 & action.0 == action.0
    }

    const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOr for Actions {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.and(other)
    }
}

/// The state that a client machine starts in, and what is done on entering it: RFC 3261 §17.1.1.2, §17.1.2.2.
pub(crate) const fn start_client(kind: Kind, reliable: bool) -> (ClientState, Actions) {
    let state = match kind {
        Kind::Invite => ClientState::Calling,
        Kind::NonInvite => ClientState::Trying,
    };
    let sent = Actions::SEND.and(Actions::ARM_TIMEOUT);
    //= rfc3261#17.1.1.2
    // Timer A is started on an unreliable transport only; Timer B on any. So are E and F of §17.1.2.2.
    (state, if reliable { sent } else { sent.and(Actions::ARM_RETRANSMIT) })
}

/// The state that a server machine starts in.
pub(crate) const fn start_server(kind: Kind) -> ServerState {
    match kind {
        Kind::Invite => ServerState::Proceeding,
        Kind::NonInvite => ServerState::Trying,
    }
}

pub(crate) const fn step_client(
    kind: Kind,
    state: ClientState,
    event: ClientEvent,
    reliable: bool,
) -> (ClientState, Actions) {
    match kind {
        Kind::Invite => invite_client(state, event, reliable),
        Kind::NonInvite => non_invite_client(state, event, reliable),
    }
}

pub(crate) const fn step_server(
    kind: Kind,
    state: ServerState,
    event: ServerEvent,
    reliable: bool,
) -> (ServerState, Actions) {
    match kind {
        Kind::Invite => invite_server(state, event, reliable),
        Kind::NonInvite => non_invite_server(state, event, reliable),
    }
}

/// RFC 3261 §17.1.1, figure 5; RFC 6026 §7.2.
const fn invite_client(state: ClientState, event: ClientEvent, reliable: bool) -> (ClientState, Actions) {
    use ClientEvent as E;
    use ClientState as S;
    match (state, event) {
        (S::Calling, E::Provisional) => {
            //= rfc3261#17.1.1.2
            // Once a provisional response has come the request is not retransmitted, and Timer B rules no more.
            (S::Proceeding, Actions::TO_USER.and(Actions::STOP_RETRANSMIT).and(Actions::STOP_DEADLINE))
        }
        (S::Proceeding, E::Provisional) => (S::Proceeding, Actions::TO_USER),
        //= rfc6026#7.2
        // A success moves to Accepted, where Timer M runs on every transport.
        (S::Calling | S::Proceeding, E::Success) => (
            S::Accepted,
            Actions::TO_USER.and(Actions::STOP_RETRANSMIT).and(Actions::ARM_TIMEOUT).and(Actions::RELEASE),
        ),
        (S::Calling | S::Proceeding, E::Failure) => {
            //= rfc3261#17.1.1.2
            // The client transaction passes the failure up and generates the ACK itself; Timer D is zero where the
            // transport is reliable.
            let answered = Actions::TO_USER.and(Actions::ACK).and(Actions::STOP_RETRANSMIT);
            if reliable { (S::Terminated, answered) } else { (S::Completed, answered.and(Actions::ARM_TIMEOUT)) }
        }
        (S::Calling, E::Retransmit) => (S::Calling, Actions::REPLAY.and(Actions::ARM_RETRANSMIT)),
        (S::Calling, E::Deadline) => (S::Terminated, Actions::TIMED_OUT),
        (S::Calling, E::Unreachable) => (S::Terminated, Actions::FAILED),
        //= rfc3261#9.1
        // No final response 64·T1 after the CANCEL: the original transaction is taken for cancelled.
        (S::Proceeding, E::Cancelled) => (S::Proceeding, Actions::ARM_TIMEOUT),
        (S::Proceeding, E::Deadline) => (S::Terminated, Actions::TIMED_OUT),
        //= rfc3261#17.1.1.2
        // A retransmitted failure is answered by the same ACK and not passed up.
        (S::Completed, E::Failure) => (S::Completed, Actions::REPLAY),
        //= rfc6026#7.2
        // Any 2xx, a retransmission or another branch's, is passed to the user.
        (S::Accepted, E::Success) => (S::Accepted, Actions::TO_USER),
        (S::Completed | S::Accepted, E::Deadline) => (S::Terminated, Actions::NONE),
        (state, _) => (state, Actions::NONE),
    }
}

/// RFC 3261 §17.1.2, figure 6.
const fn non_invite_client(state: ClientState, event: ClientEvent, reliable: bool) -> (ClientState, Actions) {
    use ClientEvent as E;
    use ClientState as S;
    match (state, event) {
        //= rfc3261#17.1.2.2
        // Timers E and F go on in Proceeding.
        (S::Trying | S::Proceeding, E::Provisional) => (S::Proceeding, Actions::TO_USER),
        (S::Trying | S::Proceeding, E::Success | E::Failure) => {
            let answered = Actions::TO_USER.and(Actions::STOP_RETRANSMIT).and(Actions::RELEASE);
            //= rfc3261#17.1.2.2
            // Timer K is T4 on an unreliable transport and zero on a reliable one.
            if reliable { (S::Terminated, answered) } else { (S::Completed, answered.and(Actions::ARM_T4)) }
        }
        (S::Trying | S::Proceeding, E::Retransmit) => (state, Actions::REPLAY.and(Actions::ARM_RETRANSMIT)),
        (S::Trying | S::Proceeding, E::Deadline) => (S::Terminated, Actions::TIMED_OUT),
        (S::Trying, E::Unreachable) => (S::Terminated, Actions::FAILED),
        (S::Completed, E::Deadline) => (S::Terminated, Actions::NONE),
        (state, _) => (state, Actions::NONE),
    }
}

/// RFC 3261 §17.2.1, figure 7; RFC 6026 §7.1.
const fn invite_server(state: ServerState, event: ServerEvent, reliable: bool) -> (ServerState, Actions) {
    use ServerEvent as E;
    use ServerState as S;
    match (state, event) {
        //= rfc3261#17.2.1
        // A retransmitted request is answered by the last response.
        (S::Proceeding | S::Completed, E::Request) => (state, Actions::REPLAY),
        (S::Proceeding, E::Provisional) => (S::Proceeding, Actions::SEND.and(Actions::KEEP)),
        //= rfc6026#7.1
        // A success moves to Accepted, where Timer L runs on every transport. Its retransmission is the user's affair.
        (S::Proceeding, E::Success) => (S::Accepted, Actions::SEND.and(Actions::RELEASE).and(Actions::ARM_TIMEOUT)),
        (S::Proceeding, E::Failure) => {
            let answered = Actions::SEND.and(Actions::KEEP).and(Actions::ARM_TIMEOUT);
            //= rfc3261#17.2.1
            // Timer G is for unreliable transports, Timer H for all.
            (S::Completed, if reliable { answered } else { answered.and(Actions::ARM_RETRANSMIT) })
        }
        (S::Completed, E::Ack) => {
            let confirmed = Actions::STOP_RETRANSMIT.and(Actions::RELEASE);
            //= rfc3261#17.2.1
            // Timer I is T4 on an unreliable transport and zero on a reliable one.
            if reliable { (S::Terminated, confirmed) } else { (S::Confirmed, confirmed.and(Actions::ARM_T4)) }
        }
        (S::Completed, E::Retransmit) => (S::Completed, Actions::REPLAY.and(Actions::ARM_RETRANSMIT)),
        (S::Completed, E::Deadline) => (S::Terminated, Actions::TIMED_OUT),
        //= rfc6026#7.1
        // In Accepted the request's retransmissions are absorbed, an ACK goes to the user, and so does every 2xx of
        // the user to the transport.
        (S::Accepted, E::Ack) => (S::Accepted, Actions::TO_USER),
        (S::Accepted, E::Success) => (S::Accepted, Actions::SEND),
        (S::Confirmed | S::Accepted, E::Deadline) => (S::Terminated, Actions::NONE),
        (state, _) => (state, Actions::NONE),
    }
}

/// RFC 3261 §17.2.2, figure 8.
const fn non_invite_server(state: ServerState, event: ServerEvent, reliable: bool) -> (ServerState, Actions) {
    use ServerEvent as E;
    use ServerState as S;
    match (state, event) {
        (S::Trying | S::Proceeding, E::Provisional) => (S::Proceeding, Actions::SEND.and(Actions::KEEP)),
        (S::Trying | S::Proceeding, E::Success | E::Failure) => {
            //= rfc3261#17.2.2
            // Timer J is 64·T1 on an unreliable transport and zero on a reliable one.
            if reliable {
                (S::Terminated, Actions::SEND.and(Actions::RELEASE))
            } else {
                (S::Completed, Actions::SEND.and(Actions::KEEP).and(Actions::ARM_TIMEOUT))
            }
        }
        // The request's stragglers are still absorbed, so that giving up does not start it anew.
        (S::Trying | S::Proceeding, E::Suppressed) if reliable => (S::Terminated, Actions::RELEASE),
        (S::Trying | S::Proceeding, E::Suppressed) => (S::Completed, Actions::RELEASE.and(Actions::ARM_TIMEOUT)),
        //= rfc3261#17.2.2
        // In Trying nothing was sent that could be sent again.
        (S::Proceeding | S::Completed, E::Request) => (state, Actions::REPLAY),
        (S::Completed, E::Deadline) => (S::Terminated, Actions::NONE),
        (state, _) => (state, Actions::NONE),
    }
}

#[cfg(test)]
mod tests;
