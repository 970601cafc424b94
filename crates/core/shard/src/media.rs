//! The media hook: messages with session descriptions wait until a media engine has rewritten these.
//!
//! A request is held after authentication and routing, so strangers cost an engine nothing; a response, when it
//! arrives. Both then go on as if they had been received with the engine's description. The hook exists only while
//! the policy sends calls through engines.

mod body;
mod drive;
mod parties;
mod requests;
mod responses;

pub(crate) use parties::may_carry_offer;

use smallvec::SmallVec;
use strowger_calls::Calls;
use strowger_foundation::map::{SeededMap, seeded};
use strowger_foundation::{Flow, ShardId, TagKey, Timestamp};
use strowger_media::{Client, Command, MediaCalls, RequestKind};
use strowger_message::Message;
use strowger_proxy::Target;
use strowger_proxy::branch::BranchOwner;
use strowger_transaction::ServerId;

use crate::boundary::Counters;
use crate::responder::Responder;
use crate::router::ForwardOptions;

/// Maximum number of messages of a shard that wait for engines; what happens to a further one is what happens if no
/// engine answers.
pub const MAX_HELD_FOR_MEDIA: usize = 2048;

/// Bits of a user number that name one of the offers of a held message.
const NUMBER_BITS: u32 = 8;

/// The state of the hook.
#[derive(Debug)]
pub(crate) struct MediaHook {
    pub(crate) client: Client,
    pub(crate) calls: MediaCalls,
    held: SeededMap<u64, HeldMessage>,
    next_token: u64,
    /// Calls refused, messages forwarded as received, and calls not begun because a table was full.
    refused: u64,
    bypassed: u64,
    table_full: u64,
    /// When a failure was reported last.
    reported: Option<Timestamp>,
}

/// A message that waits for engines.
#[derive(Debug)]
pub(crate) struct HeldMessage {
    bytes: Vec<u8>,
    source: Flow,
    /// The key of its call in [`MediaCalls`].
    call: u64,
    /// The server transaction of the request or, for a response, of the one that it answers; 0 for an ACK.
    transaction: u64,
    kind: HeldKind,
    /// The rewritten descriptions, one for each target of a request.
    bodies: SmallVec<[Option<Vec<u8>>; 1]>,
    /// Number of descriptions that are missing.
    missing: u8,
    /// Distinguishes the message from others; equal for a retransmission.
    held_key: u64,
    /// Key under which the result is kept for retransmissions; 0 if it is not.
    result_key: u64,
    /// Why a description will not come.
    failure: Option<MediaFailure>,
}

/// A request about to be forwarded.
pub(crate) struct Outgoing<'t> {
    pub(crate) by: Responder,
    /// The number of its call in call tracking.
    pub(crate) call: u64,
    pub(crate) onward: ForwardOptions,
    pub(crate) targets: &'t mut Vec<Target>,
}

/// What a held message is.
#[derive(Debug)]
enum HeldKind {
    Request(Box<HeldRequest>),
    Ack { onward: ForwardOptions, targets: Vec<Target> },
    Response(BranchOwner),
}

/// A request that is answered by its transaction while it waits.
#[derive(Debug)]
struct HeldRequest {
    by: Responder,
    server: ServerId,
    /// The number of its call in call tracking.
    call: u64,
    is_authenticated: bool,
    onward: ForwardOptions,
    targets: Vec<Target>,
}

/// Why media cannot go through an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MediaFailure {
    /// No engine answers.
    Silent,
    /// No engine is in service, or too many requests are pending.
    Unavailable,
    /// An engine refused, with this reason.
    Refused(String),
    /// A table of the hook is full.
    TableFull,
}

impl MediaHook {
    /// Returns the server transaction of the INVITE of a call in call tracking, if it is held.
    pub(crate) fn held_invite(&self, call: u64) -> Option<ServerId> {
        self.held.iter().find_map(|(_, held)| match &held.kind {
            HeldKind::Request(request) if request.call == call => Some(request.server),
            _ => None,
        })
    }
}

impl MediaFailure {
    /// Returns the reason phrase of the 503.
    const fn phrase(&self) -> &'static str {
        match self {
            Self::Silent | Self::Unavailable => "Media Engine Does Not Answer",
            Self::Refused(_) => "Media Engine Refused",
            Self::TableFull => "Too Many Calls With Media",
        }
    }
}

impl MediaHook {
    pub(crate) fn new(shard: ShardId, key: &TagKey, seed: u64, now: Timestamp) -> Self {
        let nonce = key.hash64(&[b"media", &seed.to_be_bytes(), &now.as_nanos().to_be_bytes()]);
        Self {
            client: Client::new(shard, nonce),
            calls: MediaCalls::new(key, seed),
            held: SeededMap::with_hasher(seeded(seed)),
            next_token: 0,
            refused: 0,
            bypassed: 0,
            table_full: 0,
            reported: None,
        }
    }

    /// Returns when there is something to do.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        [self.calls.poll_timeout(), self.client.poll_timeout()].into_iter().flatten().min()
    }

    /// Number of requests that wait.
    pub(crate) fn held_requests(&self) -> usize {
        self.held.values().filter(|held| matches!(held.kind, HeldKind::Request(_))).count()
    }

    /// Ends a call at its engine.
    pub(crate) fn end_call(&mut self, now: Timestamp, key: u64) {
        let Some(call) = self.calls.end(key) else { return };
        self.delete(now, &call);
    }

    fn delete(&mut self, now: Timestamp, call: &strowger_media::MediaCall) {
        let command = Command::Delete { call_id: &call.call_id, from_tag: &call.tag };
        let engine = call.engine.clone();
        let request = strowger_media::Request { user: 0, kind: RequestKind::Delete, call: call.hash, engine, command };
        let _ = self.client.start(now, &request);
    }

    /// Ends the call of a BYE that call tracking does not know: it was set up before this process began.
    pub(crate) fn end_untracked(&mut self, now: Timestamp, calls: &Calls, bye: &Message<'_>) {
        let known = self.calls.find(calls.keys_of(bye)).map(|(key, _)| key);
        if let Some(key) = known.filter(|key| !calls.is_tracked(*key)) {
            self.end_call(now, key);
        }
    }

    /// Returns whether another message can be held, and counts one that cannot.
    fn has_room(&mut self) -> bool {
        let has_room = self.held.len() < MAX_HELD_FOR_MEDIA;
        self.table_full = self.table_full.wrapping_add(u64::from(!has_room));
        has_room
    }

    /// Holds a message if there [is room](Self::has_room), and returns its token.
    fn hold(&mut self, message: HeldMessage) -> u64 {
        self.next_token = self.next_token.wrapping_add(1);
        self.held.insert(self.next_token, message);
        self.next_token
    }

    /// Whether this message is held already, so that it is a retransmission.
    fn is_held(&self, held_key: u64) -> bool {
        self.held.values().any(|held| held.held_key == held_key)
    }

    /// Asks an engine for a description, and records which.
    fn ask(&mut self, now: Timestamp, key: u64, (user, kind): (u64, RequestKind), command: Command<'_>) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let (engine, hash) = (call.engine.clone(), call.hash);
        let request = strowger_media::Request { user, kind, call: hash, engine, command };
        if let Some(engine) = self.client.start(now, &request) {
            call.set_engine(&engine);
        }
    }

    pub(crate) fn add_counters(&self, to: &mut Counters) {
        let client = self.client.counters();
        let tables = self.table_full.wrapping_add(client.table_full);
        for (total, count) in [
            (&mut to.media_offers, client.offers),
            (&mut to.media_answers, client.answers),
            (&mut to.media_deletes, client.deletes),
            (&mut to.media_retransmissions, client.retransmissions),
            (&mut to.media_timeouts, client.timeouts),
            (&mut to.media_failovers, client.failovers),
            (&mut to.media_engine_refusals, client.refused),
            (&mut to.media_strays, client.strays),
            (&mut to.media_refused, self.refused),
            (&mut to.media_bypassed, self.bypassed),
            (&mut to.media_table_full, tables),
        ] {
            *total = total.wrapping_add(count);
        }
    }
}

/// Returns the user number of the offer with this number of a held message.
fn user_of(token: u64, number: usize) -> u64 {
    token << NUMBER_BITS | u64::try_from(number).unwrap_or(0)
}

/// Returns the token and the number of a user number.
fn token_of(user: u64) -> (u64, usize) {
    (user >> NUMBER_BITS, usize::try_from(user & ((1 << NUMBER_BITS) - 1)).unwrap_or(0))
}
