//! One running script, and the table of all sessions.

use std::net::SocketAddr;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use strowger_foundation::{TimerId, Timestamp};

use crate::metrics::Attempt;
use crate::script::{MethodId, StepIndex};

/// Index that means no step.
pub(crate) const UNSPECIFIED_ADDRESS: StepIndex = StepIndex::MAX;
/// Stands for a step: the INVITE was cancelled and answered with 487, and its ACK is awaited.
pub(crate) const CANCELLED: StepIndex = StepIndex::MAX - 1;
/// Stands for the step of a response that the engine sent without a step.
pub(crate) const ALONE: StepIndex = StepIndex::MAX - 2;
/// Stands for a step: the session waits for the Retry-After of a 503 to pass.
pub(crate) const TRYING_LATER: StepIndex = StepIndex::MAX - 3;
/// Stands for a closed socket or connection.
pub(crate) const NO_LINK: u32 = u32::MAX;
/// Slot that means no session.
const NOBODY: u32 = u32::MAX;
/// Stands for no CSeq; valid numbers are smaller (RFC 3261 §8.1.1.5).
pub(crate) const NO_INVITE: u32 = u32::MAX;
/// No time limit.
pub(crate) const NEVER: Timestamp = Timestamp::MAX;

/// A session: some two hundred bytes, plus the dialog.
#[derive(Debug)]
pub(crate) struct Session {
    /// Number in the run; Call-ID, tags and branches are computed from it.
    pub serial: u64,
    /// Hash of the Call-ID.
    pub call: u64,
    /// Beginning.
    pub began: Timestamp,
    /// When the last request and the last INVITE were first sent.
    pub sent_at: Timestamp,
    pub invite_at: Timestamp,
    /// Timeout of the step, time of the next retransmission, and time at which waiting for its answer ends.
    pub deadline: Timestamp,
    pub resend_at: Timestamp,
    pub give_up_at: Timestamp,
    /// Armed timer and its time.
    pub timer: Option<(TimerId, Timestamp)>,
    pub peer: SocketAddr,
    /// Socket or connection.
    pub link: u32,
    /// Neighbours in the list of the connection's sessions.
    pub next_on_link: u32,
    pub previous_on_link: u32,
    pub caller: u32,
    pub callee: u32,
    pub cseq: u32,
    pub invite_cseq: u32,
    /// CSeq of the last request received.
    pub got_cseq: u32,
    /// CSeq of the INVITE of the other end that began the session; [`NO_INVITE`] if none did.
    pub first_cseq: u32,
    /// Branches used so far, and those of the INVITE and of the last ACK to a 2xx.
    pub branches: u32,
    pub invite_branch: u32,
    pub ack_branch: u32,
    pub script: u16,
    pub step: StepIndex,
    /// CSeq of our INVITE that began the call, once it was accepted; [`NO_INVITE`] before.
    pub accepted_cseq: u32,
    /// Steps that sent the last INVITE, the message being retransmitted, the last ACK and the last response.
    pub invite_step: StepIndex,
    pub resend_step: StepIndex,
    pub ack_step: StepIndex,
    pub reply_step: StepIndex,
    pub local: u16,
    pub resends: u8,
    /// Retries after a 503.
    pub tries: u8,
    /// Requests sent, with retransmissions and without ACKs.
    pub requests: u16,
    pub received_method: MethodId,
    /// Method of the last sent request.
    pub sent_method: MethodId,
    /// Class of the INVITE's final response; 0 before there is one.
    pub invite_class: u8,
    pub flags: Flags,
    /// State for the metrics of RFC 6076.
    pub attempt: Attempt,
    /// Other party, route set and remote target: see `dialog`.
    pub dialog: Vec<u8>,
    /// Copy of the last message, if a later step needs it.
    pub last: Vec<u8>,
    pub extra: Option<Box<RareState>>,
}

/// Boolean state of a session, and its round of counting.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    /// Round of counting in which it began.
    pub epoch: u8,
    /// Whether this end began it.
    pub is_ours: bool,
    /// Whether the session is running, so that its slot is in use.
    pub is_live: bool,
    /// Whether the last request, if no INVITE, has had its final response.
    pub is_answered: bool,
    /// Whether a provisional response (except 100) to the INVITE was timed.
    pub is_ringing: bool,
    /// Whether the connection is the session's own.
    pub owns_link: bool,
    /// Whether it is in the list of its connection.
    is_on_list: bool,
    /// Whether a received INVITE has no final response yet.
    pub is_pending: bool,
    /// Whether the last request, if no INVITE, has had a provisional response.
    pub is_proceeding: bool,
    /// Whether requests follow the dialog, regardless of the source of the last one.
    pub is_routed: bool,
    /// Whether this end has sent an INVITE that begins a call.
    pub has_called: bool,
    /// Whether a BYE of either end was answered, or will be by the script.
    pub is_hung_up: bool,
}

/// State that few sessions have.
#[derive(Debug, Default)]
pub(crate) struct RareState {
    /// Challenges being answered: of a registrar or callee, and of a proxy.
    pub challenges: [ChallengeState; 2],
    /// CSeq and time of an unanswered CANCEL that another request followed.
    pub cancel: Option<(u32, Timestamp)>,
    /// Variables.
    pub variables: Vec<Value>,
    /// Start times of timers.
    pub timers: Vec<(u8, Timestamp)>,
    /// Destination of responses, if it differs from that of requests.
    pub reply_to: Option<(u32, SocketAddr)>,
}

/// State of the challenges of one challenger.
#[derive(Debug, Default)]
pub(crate) struct ChallengeState {
    /// Last challenge.
    pub challenge: Option<Arc<Challenge>>,
    /// Requests that have used the nonce.
    pub nonce_count: u32,
    /// Challenges since the last success.
    pub times: u8,
}

/// A challenge; sessions of one user may share it.
#[derive(Debug)]
pub(crate) struct Challenge {
    /// Value of the header field.
    pub value: Box<[u8]>,
    /// Whether it came in a 407.
    pub is_proxy: bool,
}

/// Value of a variable.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Value {
    #[default]
    Nothing,
    Number(f64),
    Text(Vec<u8>),
}

impl Session {
    pub(crate) fn idle() -> Self {
        Self {
            serial: 0,
            call: 0,
            began: Timestamp::ZERO,
            sent_at: Timestamp::ZERO,
            invite_at: Timestamp::ZERO,
            deadline: NEVER,
            resend_at: NEVER,
            give_up_at: NEVER,
            timer: None,
            peer: SocketAddr::from(([0, 0, 0, 0], 0)),
            link: 0,
            next_on_link: NOBODY,
            previous_on_link: NOBODY,
            caller: 0,
            callee: 0,
            cseq: 0,
            invite_cseq: 0,
            got_cseq: 0,
            first_cseq: NO_INVITE,
            branches: 0,
            invite_branch: 0,
            ack_branch: 0,
            script: 0,
            step: 0,
            accepted_cseq: NO_INVITE,
            invite_step: UNSPECIFIED_ADDRESS,
            resend_step: UNSPECIFIED_ADDRESS,
            ack_step: UNSPECIFIED_ADDRESS,
            reply_step: UNSPECIFIED_ADDRESS,
            local: 0,
            resends: 0,
            tries: 0,
            requests: 0,
            received_method: MethodId::Other,
            sent_method: MethodId::Other,
            invite_class: 0,
            flags: Flags::default(),
            attempt: Attempt::default(),
            dialog: Vec::new(),
            last: Vec::new(),
            extra: None,
        }
    }

    /// Returns the methods of our requests that wait for a final response.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = MethodId> + use<> {
        let invite = (self.invite_cseq > 0 && self.invite_class == 0).then_some(MethodId::Invite);
        let is_other = self.sent_method != MethodId::Invite && self.cseq > 0 && !self.flags.is_answered;
        let cancel = self.extra.as_ref().and_then(|extra| extra.cancel).map(|_| MethodId::Cancel);
        invite.into_iter().chain(is_other.then_some(self.sent_method)).chain(cancel)
    }

    /// Returns the CSeq of the other end's INVITE that began it.
    pub(crate) fn first_invite(&self) -> Option<u32> {
        (self.first_cseq != NO_INVITE).then_some(self.first_cseq)
    }

    /// Returns its next deadline.
    pub(crate) fn wake_at(&self) -> Timestamp {
        self.deadline.min(self.resend_at).min(self.give_up_at)
    }

    /// Returns the destination of responses: link and peer.
    pub(crate) fn reply_to(&self) -> (u32, SocketAddr) {
        self.extra.as_ref().and_then(|extra| extra.reply_to).unwrap_or((self.link, self.peer))
    }

    /// Returns the rare state, creating it if needed.
    pub(crate) fn extra_mut(&mut self) -> &mut RareState {
        self.extra.get_or_insert_default()
    }
}

/// Sessions in one chunk. The table grows by chunks and moves nothing, which would make calls late.
const CHUNK: usize = 4_096;

/// All sessions of a driver. A free slot keeps its buffers for the next session.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    chunks: Vec<Vec<Session>>,
    free: Vec<u32>,
    places: usize,
    /// First session of each connection.
    on_links: Vec<u32>,
}

impl Sessions {
    /// Returns the number of running sessions.
    pub(crate) fn len(&self) -> usize {
        self.places - self.free.len()
    }

    /// Creates a session and returns its slot.
    pub(crate) fn insert(&mut self) -> u32 {
        if let Some(slot) = self.free.pop() {
            return slot;
        }
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK => chunk.push(Session::idle()),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(Session::idle());
                self.chunks.push(chunk);
            }
        }
        self.places += 1;
        u32::try_from(self.places - 1).unwrap_or(u32::MAX)
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Session> {
        let slot = slot as usize;
        self.chunks.get(slot / CHUNK)?.get(slot % CHUNK).filter(|session| session.flags.is_live)
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Session> {
        let slot = slot as usize;
        self.chunks.get_mut(slot / CHUNK)?.get_mut(slot % CHUNK)
    }

    /// Returns all running sessions.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.chunks.iter().flatten().filter(|session| session.flags.is_live)
    }

    /// Moves a session to another connection and into its list.
    pub(crate) fn move_to_link(&mut self, slot: u32, link: u32) {
        if self.get_mut(slot).is_some_and(|session| session.link == link && session.flags.is_on_list) {
            return;
        }
        self.leave_link(slot);
        let index = link as usize;
        if self.on_links.len() <= index {
            self.on_links.resize(index + 1, NOBODY);
        }
        let next = self.on_links.get_mut(index).map_or(NOBODY, |first| std::mem::replace(first, slot));
        if let Some(session) = self.get_mut(slot) {
            (session.link, session.next_on_link, session.previous_on_link) = (link, next, NOBODY);
            session.flags.is_on_list = true;
        }
        if let Some(next) = self.get_mut(next) {
            next.previous_on_link = slot;
        }
    }

    /// Removes a session from the list of its connection.
    pub(crate) fn leave_link(&mut self, slot: u32) {
        let Some(session) = self.get_mut(slot) else { return };
        if !std::mem::replace(&mut session.flags.is_on_list, false) {
            return;
        }
        let (link, next, previous) = (session.link, session.next_on_link, session.previous_on_link);
        session.link = NO_LINK;
        if let Some(next) = self.get_mut(next) {
            next.previous_on_link = previous;
        }
        match self.get_mut(previous) {
            Some(previous) => previous.next_on_link = next,
            None => {
                if let Some(first) = self.on_links.get_mut(link as usize) {
                    *first = next;
                }
            }
        }
    }

    /// Returns the first session in a connection's list.
    pub(crate) fn first_on_link(&self, link: u32) -> Option<u32> {
        self.on_links.get(link as usize).copied().filter(|first| *first != NOBODY)
    }

    /// Frees a slot; its buffers are freed only if they are large.
    pub(crate) fn remove(&mut self, slot: u32) {
        self.leave_link(slot);
        let Some(place) = self.get_mut(slot) else { return };
        let (mut dialog, mut last) = (std::mem::take(&mut place.dialog), std::mem::take(&mut place.last));
        dialog.clear();
        last.clear();
        dialog.shrink_to(KEPT_BYTES);
        last.shrink_to(KEPT_BYTES);
        *place = Session { dialog, last, ..Session::idle() };
        self.free.push(slot);
    }

    /// Returns the bytes in buffers.
    #[cfg(test)]
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.chunks.iter().flatten().map(|session| session.dialog.capacity() + session.last.capacity()).sum()
    }
}

/// Number of tables. Each grows by itself, so that a growth moves only a small part of the entries.
const TABLES: usize = 256;

/// Maps hashes of Call-IDs to sessions.
#[derive(Debug)]
pub(crate) struct CallIndex(Vec<HashMap<u64, u32, FixedState>>);

impl CallIndex {
    pub(crate) fn new(hasher: &FixedState) -> Self {
        Self((0..TABLES).map(|_| HashMap::with_hasher(hasher.clone())).collect())
    }

    pub(crate) fn get(&self, call: u64) -> Option<u32> {
        self.0.get(Self::table(call))?.get(&call).copied()
    }

    pub(crate) fn insert(&mut self, call: u64, slot: u32) {
        if let Some(table) = self.0.get_mut(Self::table(call)) {
            table.insert(call, slot);
        }
    }

    /// Removes a call if it still belongs to this session.
    pub(crate) fn remove(&mut self, call: u64, slot: u32) {
        if let Some(table) = self.0.get_mut(Self::table(call))
            && table.get(&call) == Some(&slot)
        {
            table.remove(&call);
        }
    }

    fn table(call: u64) -> usize {
        usize::from(call.to_be_bytes()[0]) % TABLES
    }
}

/// Maximum size in bytes of a buffer that a free slot keeps.
const KEPT_BYTES: usize = 2_048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_knows_its_sessions() {
        let mut sessions = Sessions::default();
        let slots: Vec<u32> = (0..5).map(|_| sessions.insert()).collect();
        for slot in &slots {
            sessions.move_to_link(*slot, 3);
        }
        sessions.move_to_link(slots[1], 9);
        sessions.remove(slots[4]);
        let mut found = Vec::new();
        while let Some(slot) = sessions.first_on_link(3) {
            found.push(slot);
            sessions.leave_link(slot);
        }
        assert_eq!(found, [slots[3], slots[2], slots[0]]);
        assert_eq!((sessions.first_on_link(9), sessions.first_on_link(1_000)), (Some(slots[1]), None));
    }

    #[test]
    fn a_session_is_small() {
        assert!(size_of::<Session>() <= 288, "{}", size_of::<Session>());
    }
}
