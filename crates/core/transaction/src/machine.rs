//! The four state machines of RFC 3261 §17 as amended by RFC 6026: state × event → state × actions, without other
//! data.
//!
//! On a reliable transport Timers D, I, J and K are zero, so the machines end at once, and Timers A, E and G are not
//! started. Timers L and M absorb forked and retransmitted successes and run on every transport.

use core::ops::BitOr;

/// The kind of a transaction's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An INVITE.
    Invite,
    /// Any other request; ACK has no transaction.
    NonInvite,
}

/// The states of both client machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientState {
    /// An INVITE was sent; no response yet.
    Calling,
    /// A non-INVITE request was sent; no response yet.
    Trying,
    /// A provisional response was received.
    Proceeding,
    /// A final response was received (for INVITE, a failure); retransmissions are absorbed.
    Completed,
    /// A success was received for an INVITE; further ones are passed to the user (RFC 6026 §7.2).
    Accepted,
    /// Ended; a transaction in this state is removed at once.
    Terminated,
}

/// The states of both server machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// A non-INVITE request was received and has no response yet.
    Trying,
    /// An INVITE was received, or another request has a provisional response.
    Proceeding,
    /// A final response was sent (for INVITE, a failure).
    Completed,
    /// The ACK to a failure was received; its retransmissions are absorbed.
    Confirmed,
    /// A success was sent for an INVITE; further ones may be sent (RFC 6026 §7.1).
    Accepted,
    /// Ended; a transaction in this state is removed at once.
    Terminated,
}

/// An event of a client transaction.
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
    /// Timer B, D, F, K or M, or the time limit of a cancelled INVITE.
    Deadline,
    /// The transport reports the peer as unreachable.
    Unreachable,
    /// A CANCEL was sent for this INVITE.
    Cancelled,
}

/// An event of a server transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerEvent {
    /// A retransmission of the request.
    Request,
    /// The ACK.
    Ack,
    /// The user's 1xx.
    Provisional,
    /// The user's 2xx.
    Success,
    /// The user's 3xx to 6xx.
    Failure,
    /// The user's response must not be sent: it gives up.
    Suppressed,
    /// Timer G.
    Retransmit,
    /// Timer H, I, J or L.
    Deadline,
}

/// The set of actions that a step requests from the layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Actions(u16);

impl Actions {
    pub(crate) const NONE: Self = Self(0);
    /// Send the message of this event.
    pub(crate) const SEND: Self = Self(1);
    /// Store that message in place of the stored one.
    pub(crate) const KEEP: Self = Self(1 << 1);
    /// Resend the stored message.
    pub(crate) const REPLAY: Self = Self(1 << 2);
    /// Drop the stored message.
    pub(crate) const RELEASE: Self = Self(1 << 3);
    /// Build, send and store the ACK to a failure.
    pub(crate) const ACK: Self = Self(1 << 4);
    /// Pass the message to the user.
    pub(crate) const TO_USER: Self = Self(1 << 5);
    /// Start Timer A, E or G, or restart it with the next interval.
    pub(crate) const ARM_RETRANSMIT: Self = Self(1 << 6);
    /// Stop Timer A, E or G.
    pub(crate) const STOP_RETRANSMIT: Self = Self(1 << 7);
    /// Set the deadline to 64·T1 from now.
    pub(crate) const ARM_TIMEOUT: Self = Self(1 << 8);
    /// Set the deadline to T4 from now.
    pub(crate) const ARM_T4: Self = Self(1 << 9);
    /// Cancel the deadline.
    pub(crate) const STOP_DEADLINE: Self = Self(1 << 10);
    /// Report a timeout to the user.
    pub(crate) const TIMED_OUT: Self = Self(1 << 11);
    /// Report to the user that the peer is unreachable.
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

/// Returns the initial state of a client machine and the actions on entering it (RFC 3261 §17.1.1.2, §17.1.2.2).
pub(crate) const fn start_client(kind: Kind, reliable: bool) -> (ClientState, Actions) {
    let state = match kind {
        //= rfc3261#17.1.1.2:start
        Kind::Invite => ClientState::Calling,
        Kind::NonInvite => ClientState::Trying,
    };
    //= rfc3261#17.1.1.2:timer-b
    //= rfc3261#17.1.2.2:timer-f
    let sent = Actions::SEND.and(Actions::ARM_TIMEOUT);
    //= rfc3261#17.1.1.2:timer-a
    //= rfc3261#17.1.1.2:no-timer-a
    //= rfc3261#17.1.2.2:timer-e
    // Timer A is started on an unreliable transport only, Timer B on any; likewise E and F of §17.1.2.2.
    (state, if reliable { sent } else { sent.and(Actions::ARM_RETRANSMIT) })
}

/// Returns the initial state of a server machine.
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
        //= rfc3261#17.1.1.2:only-while-calling
        //= rfc3261#17.1.1.2:provisional-to-user
        (S::Calling, E::Provisional) => {
            //= rfc3261#17.1.1.2
            // After a provisional response the request is not retransmitted and Timer B does not apply.
            (S::Proceeding, Actions::TO_USER.and(Actions::STOP_RETRANSMIT).and(Actions::STOP_DEADLINE))
        }
        //= rfc3261#17.1.1.2:further-provisionals
        (S::Proceeding, E::Provisional) => (S::Proceeding, Actions::TO_USER),
        //= rfc6026#7.2:accepted
        //= rfc3261#17.1.1.2:success-to-user
        //= rfc6026#7.2:no-ack
        // A success moves to Accepted, where Timer M runs on every transport.
        (S::Calling | S::Proceeding, E::Success) => (
            S::Accepted,
            Actions::TO_USER.and(Actions::STOP_RETRANSMIT).and(Actions::ARM_TIMEOUT).and(Actions::RELEASE),
        ),
        //= rfc3261#17.1.1.2:failure-completes
        //= rfc3261#17.1.1.2:failure-to-user
        //= rfc3261#17.1.1.2:ack
        (S::Calling | S::Proceeding, E::Failure) => {
            //= rfc3261#17.1.1.2
            // The client transaction passes the failure to the user and generates the ACK itself. On a reliable
            // transport Timer D is zero.
            let answered = Actions::TO_USER.and(Actions::ACK).and(Actions::STOP_RETRANSMIT);
            if reliable { (S::Terminated, answered) } else { (S::Completed, answered.and(Actions::ARM_TIMEOUT)) }
        }
        //= rfc3261#17.1.1.2:retransmit
        (S::Calling, E::Retransmit) => (S::Calling, Actions::REPLAY.and(Actions::ARM_RETRANSMIT)),
        //= rfc3261#17.1.1.2:timeout-to-user
        //= rfc3261#17.1.1.2:no-ack-on-timeout
        (S::Calling, E::Deadline) => (S::Terminated, Actions::TIMED_OUT),
        //= rfc3261#17.1.4:told
        //= rfc3261#17.1.4:ends
        (S::Calling, E::Unreachable) => (S::Terminated, Actions::FAILED),
        //= rfc3261#9.1
        // Without a final response 64·T1 after the CANCEL, the original transaction counts as cancelled.
        (S::Proceeding, E::Cancelled) => (S::Proceeding, Actions::ARM_TIMEOUT),
        (S::Proceeding, E::Deadline) => (S::Terminated, Actions::TIMED_OUT),
        //= rfc3261#17.1.1.2:ack-again
        //= rfc3261#17.1.1.2:failure-once
        // A retransmitted failure is acknowledged again and not passed to the user.
        (S::Completed, E::Failure) => (S::Completed, Actions::REPLAY),
        //= rfc6026#7.2:success-to-user
        // Every 2xx, a retransmission or from another branch, is passed to the user.
        (S::Accepted, E::Success) => (S::Accepted, Actions::TO_USER),
        //= rfc3261#17.1.1.2:timer-d-ends
        //= rfc6026#7.2:timer-m-ends
        (S::Completed | S::Accepted, E::Deadline) => (S::Terminated, Actions::NONE),
        (state, _) => (state, Actions::NONE),
    }
}

/// RFC 3261 §17.1.2, figure 6.
const fn non_invite_client(state: ClientState, event: ClientEvent, reliable: bool) -> (ClientState, Actions) {
    use ClientEvent as E;
    use ClientState as S;
    match (state, event) {
        //= rfc3261#17.1.2.2:provisional-to-user
        //= rfc3261#17.1.2.2:proceeding
        // Timers E and F keep running in Proceeding.
        (S::Trying | S::Proceeding, E::Provisional) => (S::Proceeding, Actions::TO_USER),
        //= rfc3261#17.1.2.2:final-to-user
        //= rfc3261#17.1.2.2:final-completes
        (S::Trying | S::Proceeding, E::Success | E::Failure) => {
            let answered = Actions::TO_USER.and(Actions::STOP_RETRANSMIT).and(Actions::RELEASE);
            //= rfc3261#17.1.2.2:timer-k
            // Timer K is T4 on an unreliable transport and zero on a reliable one.
            if reliable { (S::Terminated, answered) } else { (S::Completed, answered.and(Actions::ARM_T4)) }
        }
        //= rfc3261#17.1.2.2:retransmit-in-proceeding
        (S::Trying | S::Proceeding, E::Retransmit) => (state, Actions::REPLAY.and(Actions::ARM_RETRANSMIT)),
        //= rfc3261#17.1.2.2:timeout-to-user
        //= rfc3261#17.1.2.2:timeout-in-proceeding
        (S::Trying | S::Proceeding, E::Deadline) => (S::Terminated, Actions::TIMED_OUT),
        //= rfc3261#17.1.4:told
        //= rfc3261#17.1.4:ends
        (S::Trying, E::Unreachable) => (S::Terminated, Actions::FAILED),
        //= rfc3261#17.1.2.2:timer-k-ends
        (S::Completed, E::Deadline) => (S::Terminated, Actions::NONE),
        (state, _) => (state, Actions::NONE),
    }
}

/// RFC 3261 §17.2.1, figure 7; RFC 6026 §7.1.
const fn invite_server(state: ServerState, event: ServerEvent, reliable: bool) -> (ServerState, Actions) {
    use ServerEvent as E;
    use ServerState as S;
    match (state, event) {
        //= rfc3261#17.2.1:provisional-again
        //= rfc3261#17.2.1:failure-again
        // A retransmitted request is answered with the last response.
        (S::Proceeding | S::Completed, E::Request) => (state, Actions::REPLAY),
        //= rfc3261#17.2.1:provisional-sent
        (S::Proceeding, E::Provisional) => (S::Proceeding, Actions::SEND.and(Actions::KEEP)),
        //= rfc6026#7.1:accepted
        //= rfc3261#17.2.1:success-sent
        //= rfc6026#7.1:no-retransmission
        // A success moves to Accepted, where Timer L runs on every transport. The user retransmits it.
        (S::Proceeding, E::Success) => (S::Accepted, Actions::SEND.and(Actions::RELEASE).and(Actions::ARM_TIMEOUT)),
        //= rfc3261#17.2.1:failure-sent
        //= rfc3261#17.2.1:failure-completes
        (S::Proceeding, E::Failure) => {
            //= rfc3261#17.2.1:timer-h
            let answered = Actions::SEND.and(Actions::KEEP).and(Actions::ARM_TIMEOUT);
            //= rfc3261#17.2.1
            // Timer G is for unreliable transports, Timer H for all.
            (S::Completed, if reliable { answered } else { answered.and(Actions::ARM_RETRANSMIT) })
        }
        //= rfc3261#17.2.1:confirmed
        (S::Completed, E::Ack) => {
            let confirmed = Actions::STOP_RETRANSMIT.and(Actions::RELEASE);
            //= rfc3261#17.2.1
            // Timer I is T4 on an unreliable transport and zero on a reliable one.
            if reliable { (S::Terminated, confirmed) } else { (S::Confirmed, confirmed.and(Actions::ARM_T4)) }
        }
        (S::Completed, E::Retransmit) => (S::Completed, Actions::REPLAY.and(Actions::ARM_RETRANSMIT)),
        //= rfc3261#17.2.1:timer-h-ends
        //= rfc3261#17.2.1:timer-h-told
        (S::Completed, E::Deadline) => (S::Terminated, Actions::TIMED_OUT),
        //= rfc6026#7.1:ack-to-user
        // In Accepted, retransmissions of the request are absorbed, an ACK goes to the user, and every 2xx of the
        // user goes to the transport.
        (S::Accepted, E::Ack) => (S::Accepted, Actions::TO_USER),
        //= rfc6026#7.1:success-again
        (S::Accepted, E::Success) => (S::Accepted, Actions::SEND),
        //= rfc3261#17.2.1:timer-i-ends
        //= rfc6026#7.1:timer-l-ends
        (S::Confirmed | S::Accepted, E::Deadline) => (S::Terminated, Actions::NONE),
        (state, _) => (state, Actions::NONE),
    }
}

/// RFC 3261 §17.2.2, figure 8.
const fn non_invite_server(state: ServerState, event: ServerEvent, reliable: bool) -> (ServerState, Actions) {
    use ServerEvent as E;
    use ServerState as S;
    match (state, event) {
        //= rfc3261#17.2.2:proceeding
        //= rfc3261#17.2.2:provisional-sent
        (S::Trying | S::Proceeding, E::Provisional) => (S::Proceeding, Actions::SEND.and(Actions::KEEP)),
        //= rfc3261#17.2.2:final-completes
        //= rfc3261#17.2.2:final-sent
        //= rfc3261#17.2.2:timer-j
        (S::Trying | S::Proceeding, E::Success | E::Failure) => {
            //= rfc3261#17.2.2
            // Timer J is 64·T1 on an unreliable transport and zero on a reliable one.
            if reliable {
                (S::Terminated, Actions::SEND.and(Actions::RELEASE))
            } else {
                (S::Completed, Actions::SEND.and(Actions::KEEP).and(Actions::ARM_TIMEOUT))
            }
        }
        // Retransmissions are still absorbed, so that one does not start the request again.
        (S::Trying | S::Proceeding, E::Suppressed) if reliable => (S::Terminated, Actions::RELEASE),
        (S::Trying | S::Proceeding, E::Suppressed) => (S::Completed, Actions::RELEASE.and(Actions::ARM_TIMEOUT)),
        //= rfc3261#17.2.2:provisional-again
        //= rfc3261#17.2.2:final-again
        // In Trying there is no response to resend.
        (S::Proceeding | S::Completed, E::Request) => (state, Actions::REPLAY),
        //= rfc3261#17.2.2:timer-j-ends
        (S::Completed, E::Deadline) => (S::Terminated, Actions::NONE),
        (state, _) => (state, Actions::NONE),
    }
}

#[cfg(test)]
mod tests;
