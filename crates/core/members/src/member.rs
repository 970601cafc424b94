//! One member.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use strowger_foundation::Timestamp;
use strowger_registrar::{Cursor, MemberId, Version};

use crate::entry::{Entry, Position};
use crate::outbox::{BatchId, Limits, Outbox};
use crate::request::{Kind, LiveMember, Reply, Request};
use crate::status::{MemberStatus, Status};

/// After a failure the engine is asked again so much later, and twice as much each time.
pub const FIRST_RETRY: Duration = Duration::from_millis(50);
/// But no later than this.
pub const LAST_RETRY: Duration = Duration::from_secs(1);

/// How often a member says that it is alive.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
/// What has not said so for this long is taken for dead.
const DEAD_AFTER: Duration = Duration::from_millis(1_800);

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Ask the engine.
    Request(Request),
    /// Take changes of another member into the table.
    Apply(Vec<Box<[u8]>>),
    /// The engine has this batch.
    Confirm(BatchId),
    /// There is no room for this batch.
    Refuse(BatchId),
    /// The table has all that the others had when this process began: it can serve.
    Synced,
    /// Hand over some of what the table has, from here on: [`Member::handle_announcement`].
    ReadTable(Cursor),
}

/// What is known of another member.
#[derive(Clone, Debug, Default)]
struct RemoteMember {
    address: Option<SocketAddr>,
    read: Position,
    heartbeat: u64,
    /// When the beat last changed.
    seen: Option<Timestamp>,
}

/// How far it is with the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It does not know where the logs end.
    Locating,
    /// It reads the whole state.
    Reading,
    /// It follows.
    Following,
}

/// One server of those that share registrations.
#[derive(Debug)]
pub struct Member {
    own: MemberId,
    /// This process, as it says that it is alive.
    process: u64,
    key: String,
    /// Before the first entry of this process.
    begin: Position,
    phase: Phase,
    /// Whether something may be missing that only the whole state has.
    needs_all: bool,
    /// Whether the whole state is being read, and will have to be read again.
    is_read_in_vain: bool,
    /// Whether an entry is being appended of which nobody knows any more to which engine.
    is_appended_in_vain: bool,
    is_warm: bool,
    /// How often it was seen who is alive.
    beats: u32,
    /// What another member's configuration contradicts.
    conflict: Option<String>,
    /// Whether another server says to be this member.
    is_twice: bool,
    others: BTreeMap<MemberId, RemoteMember>,
    outbox: Outbox,
    /// Kinds of requests that are on their way.
    in_flight: Vec<Kind>,
    /// When what failed is tried again, and what the pause was.
    retries: BTreeMap<Kind, (Timestamp, Duration)>,
    next_beat: Timestamp,
    /// When the engine last said who is alive. While it says nothing, nobody knows better.
    last_heartbeats: Timestamp,
    /// From where on the table is still to be announced.
    announcing: Option<Cursor>,
    is_announcement_awaited: bool,
    /// Members of whose logs the engine has forgotten something.
    forgotten: BTreeSet<MemberId>,
    /// Whether a change that nobody waits for found no room.
    has_lost: bool,
    outputs: VecDeque<Output>,
    status: Status,
}

impl Member {
    /// A member that knows nothing yet. `incarnation` is the time in milliseconds since 1970, and `key` tells this member's key from others.
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

    /// Changes of this server, which are to be in the engine. `id` names them where somebody waits for that.
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

    /// What [`Output::Announce`] asked for, and from where on there is more.
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

    /// What came of a request.
    pub fn handle_reply(&mut self, now: Timestamp, reply: Reply) {
        self.in_flight.retain(|asked| *asked != reply.kind());
        if !matches!(reply, Reply::Failed { .. }) {
            self.note_success(reply.kind());
        }
        match reply {
            Reply::Failed { request, why } => self.handle_failure(now, request, why),
            Reply::Ends(ends) => self.handle_ends(&ends),
            // What was read before the engine failed may be another one's.
            Reply::AllRead if core::mem::take(&mut self.is_read_in_vain) => {}
            Reply::AllRead => self.handle_all_read(),
            Reply::Entries(entries) => self.handle_entries(entries),
            // The engine that has it may not be the one that was asked for the ends: it is appended again, which changes nothing where it is.
            Reply::Appended(_) if core::mem::take(&mut self.is_appended_in_vain) => {}
            Reply::Appended(position) => {
                let confirmed = self.outbox.confirm(now, position);
                self.outputs.extend(confirmed.into_iter().map(Output::Confirm));
            }
            Reply::Heartbeats(alive) => self.handle_heartbeats(now, alive),
        }
        self.send_due(now);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.send_due(now);
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
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

    /// Whether a request of this kind is to be made as soon as it can be.
    fn is_due(&self, kind: Kind) -> bool {
        match kind {
            Kind::Ends => self.phase == Phase::Locating,
            Kind::ReadAll => self.phase == Phase::Reading,
            Kind::Follow => self.phase == Phase::Following,
            Kind::Append => self.phase != Phase::Locating && self.outbox.len() > 0,
            Kind::Heartbeat => true,
        }
    }

    /// The next thing to be done.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Whether a change is to be handed over where the table is announced: of this member, of one that is dead, or of one of whose log the
    /// engine has forgotten something.
    #[must_use]
    pub fn must_announce(&self, version: Version) -> bool {
        version
            .member()
            .is_none_or(|member| !self.is_alive(member) || member == self.own || self.forgotten.contains(&member))
    }

    /// Whether a member is taken for alive. This one is.
    #[must_use]
    pub fn is_alive(&self, member: MemberId) -> bool {
        member == self.own || self.others.get(&member).is_some_and(|other| other.is_alive(self.last_heartbeats))
    }

    /// How it goes.
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

    /// Whatever failed: until it is known how far the logs go, the engine may be another one that knows less.
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
            // Where it has more, that is of an earlier process, whose clock may have been ahead, or of another server that says to be this
            // member.
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

    /// How far the logs of the others go. One that is not there any more has been forgotten from its beginning.
    fn note_ends_of_others(&mut self, ends: &[(MemberId, Position)]) {
        let known = self.others.keys().map(|member| (*member, Position::BEGIN));
        let mut all: BTreeMap<MemberId, Position> = known.collect();
        all.extend(ends.iter().filter(|(member, _)| *member != self.own).copied());
        for (member, end) in all {
            let other = self.others.entry(member).or_default();
            if end < other.read && self.is_warm {
                // Its own process may be another one than that which knew.
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

    /// It serves once it has read all, and nobody else says to be the same member.
    fn update_synced(&mut self) {
        if !self.is_warm && !self.needs_all && self.beats > 1 && !self.is_twice {
            self.is_warm = true;
            self.outputs.push_back(Output::Synced);
            // The table may have kept what the engine has lost meanwhile.
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
            // Nobody could say anything meanwhile.
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

    /// What this member had said last of itself, it reads again, unless somebody else has said it meanwhile.
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

    /// Asks for what comes next.
    fn send_due(&mut self, now: Timestamp) {
        self.proceed_with_logs(now);
        // An entry that follows another one must know where that stands.
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

    /// Whether nothing of the kind is on its way, or has failed a moment ago.
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
