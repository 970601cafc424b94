//! State machine of one member.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use strowger_foundation::Timestamp;
use strowger_registrar::{Cursor, MemberId, Version};

use crate::entry::{Entry, Position};
use crate::outbox::{BatchId, Limits, Outbox};
use crate::request::{Kind, LiveMember, Reply, Request};
use crate::status::{MemberStatus, Status};

/// Delay before the first retry after an engine failure. It doubles with each further failure.
pub const FIRST_RETRY: Duration = Duration::from_millis(50);
/// Maximum delay between retries.
pub const LAST_RETRY: Duration = Duration::from_secs(1);

/// Interval between heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
/// Time without a heartbeat after which a member counts as dead.
const DEAD_AFTER: Duration = Duration::from_millis(1_800);

/// Work for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a request to the engine.
    Request(Request),
    /// Apply another member's changes to the table.
    Apply(Vec<Box<[u8]>>),
    /// The engine has stored this batch.
    Confirm(BatchId),
    /// The outbox has no room for this batch.
    Refuse(BatchId),
    /// The table has everything the others had when this process started; the member can serve.
    Synced,
    /// Read a part of the table from this cursor and pass it to [`Member::handle_table_part`].
    ReadTable(Cursor),
}

/// State of another member.
#[derive(Clone, Debug, Default)]
struct RemoteMember {
    address: Option<SocketAddr>,
    read: Position,
    heartbeat: u64,
    /// Time when its heartbeat last changed.
    seen: Option<Timestamp>,
}

/// Progress of the synchronization with the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Finding out where the logs end.
    Locating,
    /// Reading the whole state.
    Reading,
    /// Following the logs.
    Following,
}

/// One of the servers that share registrations.
#[derive(Debug)]
pub struct Member {
    own: MemberId,
    /// Process number in this member's heartbeats.
    process: u64,
    key: String,
    /// Position before the first entry of this process.
    begin: Position,
    phase: Phase,
    /// Whether changes may be missing that only a full read returns.
    needs_all: bool,
    /// Whether the full read in progress must be repeated.
    is_read_in_vain: bool,
    /// Whether an append is in flight and it is unknown which engine it reached.
    is_appended_in_vain: bool,
    is_warm: bool,
    /// Number of heartbeat replies handled.
    beats: u32,
    /// Conflict with another member's configuration.
    conflict: Option<String>,
    /// Whether another server uses this member's id.
    is_twice: bool,
    others: BTreeMap<MemberId, RemoteMember>,
    outbox: Outbox,
    /// Kinds of the requests in flight.
    in_flight: Vec<Kind>,
    /// Per failed kind, the time of the next retry and the last delay.
    retries: BTreeMap<Kind, (Timestamp, Duration)>,
    next_beat: Timestamp,
    /// Time of the engine's last heartbeat reply. Without replies no member can be declared dead.
    last_heartbeats: Timestamp,
    /// Cursor from which the table is still to be announced.
    announcing: Option<Cursor>,
    is_announcement_awaited: bool,
    /// Members of whose logs the engine has lost entries.
    forgotten: BTreeSet<MemberId>,
    /// Whether a change without a waiter found no room.
    has_lost: bool,
    outputs: VecDeque<Output>,
    status: Status,
}

impl Member {
    /// Creates a member without any state. `incarnation` is the time in ms since 1970; `key` identifies this member's
    /// key.
    #[must_use]
    pub fn new(own: MemberId, incarnation: u64, key: String, limits: Limits) -> Self {
        Self {
            own,
            process: incarnation,
            key,
            begin: Position { incarnation, number: 0 },
            phase: Phase::Locating,
            needs_all: true,
            is_read_in_vain: false,
            is_appended_in_vain: false,
            is_warm: false,
            beats: 0,
            conflict: None,
            is_twice: false,
            others: BTreeMap::new(),
            outbox: Outbox::new(limits),
            in_flight: Vec::new(),
            retries: BTreeMap::new(),
            next_beat: Timestamp::ZERO,
            last_heartbeats: Timestamp::ZERO,
            announcing: None,
            is_announcement_awaited: false,
            forgotten: BTreeSet::new(),
            has_lost: false,
            outputs: VecDeque::new(),
            status: Status::default(),
        }
    }

    /// Queues changes of this server for the engine. `id` names the batch if somebody waits for its confirmation.
    pub fn handle_changes(&mut self, now: Timestamp, id: Option<BatchId>, records: Vec<Box<[u8]>>) {
        if records.is_empty() {
            self.outputs.extend(id.map(Output::Confirm));
        } else if !self.outbox.push(id, records) {
            match id {
                Some(id) => self.outputs.push_back(Output::Refuse(id)),
                None => self.has_lost = true,
            }
            self.status.refused += 1;
        }
        self.send_due(now);
    }

    /// Handles the answer to [`Output::ReadTable`]: records and, if there are more, the next cursor.
    pub fn handle_table_part(&mut self, now: Timestamp, records: Vec<Box<[u8]>>, next: Option<Cursor>) {
        self.is_announcement_awaited = false;
        self.announcing = next;
        if next.is_none() {
            self.forgotten.clear();
        }
        if !records.is_empty() && !self.outbox.push(None, records) {
            self.has_lost = true;
        }
        self.send_due(now);
    }

    /// Handles the result of a request.
    pub fn handle_reply(&mut self, now: Timestamp, reply: Reply) {
        self.in_flight.retain(|asked| *asked != reply.kind());
        if !matches!(reply, Reply::Failed { .. }) {
            self.note_success(reply.kind());
        }
        match reply {
            Reply::Failed { request, why } => self.handle_failure(now, request, why),
            Reply::Ends(ends) => self.handle_ends(&ends),
            // The data read before the failure may come from another engine.
            Reply::AllRead if core::mem::take(&mut self.is_read_in_vain) => {}
            Reply::AllRead => self.handle_all_read(),
            Reply::Entries(entries) => self.handle_entries(entries),
            // The engine that stored the entry may not be the one that reported the log ends. Append it again; this
            // is idempotent.
            Reply::Appended(_) if core::mem::take(&mut self.is_appended_in_vain) => {}
            Reply::Appended(position) => {
                let confirmed = self.outbox.confirm(now, position);
                self.outputs.extend(confirmed.into_iter().map(Output::Confirm));
            }
            Reply::Heartbeats(alive) => self.handle_heartbeats(now, alive),
        }
        self.send_due(now);
    }

    /// Processes timers that are due.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.send_due(now);
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due next.
    #[must_use]
    pub fn poll_timeout(&self) -> Timestamp {
        let begin = |kind: &Kind| match kind {
            Kind::Heartbeat => self.next_beat,
            Kind::Ends | Kind::ReadAll | Kind::Follow | Kind::Append => Timestamp::ZERO,
        };
        let is_next = |kind: &&Kind| !self.in_flight.contains(kind) && self.is_due(**kind);
        let kinds = [Kind::Ends, Kind::ReadAll, Kind::Follow, Kind::Append, Kind::Heartbeat];
        let retry = |kind: &Kind| self.retries.get(kind).map_or(Timestamp::ZERO, |(at, _)| *at);
        kinds.iter().filter(is_next).map(|kind| begin(kind).max(retry(kind))).min().unwrap_or(Timestamp::MAX)
    }

    /// Whether a request of this kind should be sent as soon as possible.
    fn is_due(&self, kind: Kind) -> bool {
        match kind {
            Kind::Ends => self.phase == Phase::Locating,
            Kind::ReadAll => self.phase == Phase::Reading,
            Kind::Follow => self.phase == Phase::Following,
            Kind::Append => self.phase != Phase::Locating && self.outbox.len() > 0,
            Kind::Heartbeat => true,
        }
    }

    /// Returns the next output.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Whether to announce a change with this version when the table is read: a change of this member, of a dead
    /// member, or of a member of whose log the engine has lost entries.
    #[must_use]
    pub fn must_announce(&self, version: Version) -> bool {
        version
            .member()
            .is_none_or(|member| !self.is_alive(member) || member == self.own || self.forgotten.contains(&member))
    }

    /// Whether a member counts as alive. This member always does.
    #[must_use]
    pub fn is_alive(&self, member: MemberId) -> bool {
        member == self.own || self.others.get(&member).is_some_and(|other| other.is_alive(self.last_heartbeats))
    }

    /// Returns the status for the operator.
    #[must_use]
    pub fn status(&self) -> Status {
        let others = self.others.iter();
        let seen = |(id, other): (&MemberId, &RemoteMember)| MemberStatus {
            member: *id,
            address: other.address,
            is_alive: other.is_alive(self.last_heartbeats),
            read: other.read,
        };
        let others = others.map(seen).collect();
        let conflict = self.conflict.clone();
        Status { is_synced: self.is_warm, waiting: self.outbox.len(), others, conflict, ..self.status.clone() }
    }

    fn note_success(&mut self, kind: Kind) {
        self.retries.remove(&kind);
        if self.retries.is_empty() {
            (self.status.failure, self.status.failure_since) = (None, None);
        }
    }

    /// Handles a failed request. After any failure the engine may be another one that has less data, so the log ends
    /// must be read again.
    fn handle_failure(&mut self, now: Timestamp, kind: Kind, why: String) {
        let pause = self.retries.get(&kind).map_or(FIRST_RETRY, |(_, pause)| (2 * *pause).min(LAST_RETRY));
        self.retries.insert(kind, (now + pause, pause));
        self.status.failure_since.get_or_insert(now);
        self.status.failure = Some(why);
        self.phase = Phase::Locating;
        self.is_read_in_vain = self.in_flight.contains(&Kind::ReadAll);
        self.is_appended_in_vain = self.in_flight.contains(&Kind::Append);
    }

    fn handle_ends(&mut self, ends: &[(MemberId, Position)]) {
        let own_end = ends.iter().find(|(member, _)| *member == self.own).map_or(Position::BEGIN, |(_, end)| *end);
        let is_forgotten = own_end < self.outbox.end();
        if own_end != self.outbox.end() && Some(own_end) != self.outbox.unconfirmed() {
            // A log that ends later has entries of an earlier process whose clock was ahead, or of another server
            // that uses this member's id.
            if own_end > self.outbox.end() {
                self.begin.incarnation = self.begin.incarnation.max(own_end.incarnation + 1);
            }
            self.outbox.rebase_to(own_end, self.begin);
        }
        self.note_ends_of_others(ends);
        if is_forgotten || !self.forgotten.is_empty() {
            self.announce_all();
        }
        self.phase = if self.needs_all { Phase::Reading } else { Phase::Following };
    }

    /// Compares the ends of the other members' logs. A log that has disappeared was lost from its beginning.
    fn note_ends_of_others(&mut self, ends: &[(MemberId, Position)]) {
        let known = self.others.keys().map(|member| (*member, Position::BEGIN));
        let mut all: BTreeMap<MemberId, Position> = known.collect();
        all.extend(ends.iter().filter(|(member, _)| *member != self.own).copied());
        for (member, end) in all {
            let other = self.others.entry(member).or_default();
            if end < other.read && self.is_warm {
                // The owner may have restarted and not know that entries were lost.
                self.forgotten.insert(member);
            }
            if self.needs_all || end < other.read {
                other.read = end;
            }
        }
    }

    fn handle_all_read(&mut self) {
        (self.phase, self.needs_all) = (Phase::Following, false);
        self.update_synced();
    }

    /// Starts serving once everything has been read, unless another server uses this member's id.
    fn update_synced(&mut self) {
        if !self.is_warm && !self.needs_all && self.beats > 1 && !self.is_twice {
            self.is_warm = true;
            self.outputs.push_back(Output::Synced);
            // The table may hold changes that the engine has lost meanwhile.
            self.announcing = Some(Cursor::default());
        }
    }

    fn handle_entries(&mut self, logs: Vec<(MemberId, Vec<Entry>)>) {
        let mut records = Vec::new();
        for (member, entries) in logs {
            let other = self.others.entry(member).or_default();
            for entry in entries {
                if entry.position <= other.read {
                    continue;
                }
                if entry.after > other.read {
                    (self.phase, self.needs_all) = (Phase::Locating, true);
                }
                other.read = entry.position;
                records.extend(entry.records);
            }
        }
        if !records.is_empty() {
            self.outputs.push_back(Output::Apply(records));
        }
    }

    fn handle_heartbeats(&mut self, now: Timestamp, alive: Vec<LiveMember>) {
        self.outbox.expire_confirmed(now);
        if now.saturating_since(self.last_heartbeats) > 2 * HEARTBEAT_INTERVAL {
            // No member could send a heartbeat meanwhile.
            let heard = core::mem::replace(&mut self.last_heartbeats, now);
            self.others.values_mut().filter(|other| other.is_alive(heard)).for_each(|other| other.seen = Some(now));
        }
        self.last_heartbeats = now;
        self.note_conflicts(&alive);
        self.beats = self.beats.saturating_add(1);
        self.update_synced();
        for LiveMember { member, address, heartbeat: beat, .. } in
            alive.into_iter().filter(|alive| alive.member != self.own)
        {
            let other = self.others.entry(member).or_default();
            other.address = Some(address);
            if other.heartbeat != beat {
                (other.heartbeat, other.seen) = (beat, Some(now));
            }
        }
    }

    /// Detects conflicts. A member reads back its own last heartbeat unless another server has written one in
    /// between.
    fn note_conflicts(&mut self, alive: &[LiveMember]) {
        let twin = alive.iter().find(|alive| alive.member == self.own && alive.incarnation != self.process);
        let twin = twin.filter(|_| self.beats > 0);
        self.is_twice = twin.is_some();
        let stranger = || alive.iter().find(|alive| alive.key != self.key && alive.member != self.own);
        self.conflict = match (twin, stranger()) {
            (Some(twin), _) => Some(format!(
                "another server is member {} too, at {}; give each its own cluster.member",
                self.own.get(),
                twin.address
            )),
            (None, Some(other)) => Some(format!(
                "member {} has another key ({}; this one has {}), so calls through it to phones on TCP or behind NAT fail; give all the same \
                 server.key_file",
                other.member.get(),
                other.key,
                self.key
            )),
            (None, None) => None,
        };
    }

    fn announce_all(&mut self) {
        self.status.full_announcements += 1;
        self.announcing = Some(Cursor::default());
        self.has_lost = false;
    }

    /// Sends the requests that are due.
    fn send_due(&mut self, now: Timestamp) {
        self.proceed_with_logs(now);
        // An entry needs the position of its predecessor.
        if self.phase != Phase::Locating
            && self.can_request(now, Kind::Append)
            && let Some(entry) = self.outbox.entry(self.begin).cloned()
        {
            self.send_request(Request::Append(entry));
        }
        if self.has_lost && self.outbox.has_room() && self.announcing.is_none() {
            self.announce_all();
        }
        if let Some(cursor) = self.announcing.filter(|_| !self.is_announcement_awaited && self.outbox.has_room()) {
            self.is_announcement_awaited = true;
            self.outputs.push_back(Output::ReadTable(cursor));
        }
        if now >= self.next_beat && self.can_request(now, Kind::Heartbeat) {
            self.next_beat = now + HEARTBEAT_INTERVAL;
            self.send_request(Request::Heartbeat);
        }
    }

    fn proceed_with_logs(&mut self, now: Timestamp) {
        let kind = match self.phase {
            Phase::Locating => Kind::Ends,
            Phase::Reading => Kind::ReadAll,
            Phase::Following => Kind::Follow,
        };
        if !self.can_request(now, kind) {
            return;
        }
        match self.phase {
            Phase::Locating => self.send_request(Request::Ends),
            Phase::Reading => {
                self.status.full_reads += 1;
                self.send_request(Request::ReadAll);
            }
            Phase::Following => {
                let from = self.others.iter().map(|(member, other)| (*member, other.read)).collect();
                self.send_request(Request::Follow(from));
            }
        }
    }

    /// Whether no request of this kind is in flight or waiting for its retry.
    fn can_request(&self, now: Timestamp, kind: Kind) -> bool {
        !self.in_flight.contains(&kind) && self.retries.get(&kind).is_none_or(|(at, _)| *at <= now)
    }

    fn send_request(&mut self, request: Request) {
        self.in_flight.push(request.kind());
        self.outputs.push_back(Output::Request(request));
    }
}

impl RemoteMember {
    fn is_alive(&self, heard: Timestamp) -> bool {
        self.seen.is_some_and(|seen| heard < seen + DEAD_AFTER)
    }
}
