//! Members without an engine: each forwards every accepted REGISTER to all others, its peers.
//!
//! [`Peers`] does no I/O. It takes changes of this member and datagrams of others, and returns datagrams to send and
//! changes to apply.
//!
//! # Changes
//! A change of a contact goes to each peer as a REGISTER with its own client transaction. While a peer does not
//! answer, its changes wait, the newest of each contact. If there is no room, all are dropped, and the peer gets
//! everything this member holds when it answers again.
//!
//! # Liveness
//! Each member sends each peer a heartbeat twice a second. Only an answer counts: it names the asking process and the
//! number of the request, so an old answer cannot be replayed.
//!
//! # Joining
//! A new process requests everything that each process of its peers holds. It serves once each of them has said that
//! it has sent everything, or does not answer.
//!
//! # Security
//! Each message is authenticated with the members' common key and names the receiving process. A process accepts no
//! message number of another process twice.

mod message;
mod peer;
mod queue;
mod replay_window;

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use strowger_foundation::{TagKey, Timestamp};
use strowger_message::{Head, Kind, Method, Peek, Status as SipStatus};
use strowger_registrar::{Cursor, MemberId, Version};

use self::message::{Envelope, FullSync, write_response};
use self::peer::Peer;
use self::queue::Change;
use self::replay_window::{ReplayWindow, WindowCheck};
use crate::entry::Position;
use crate::length_prefixed;
use crate::status::{MemberStatus, Status};

pub use self::message::Process;
pub use self::queue::PeerLimits;

/// Interval between heartbeats to a peer.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
/// Time without an answer after which a peer counts as dead.
const DEAD_AFTER: Duration = Duration::from_millis(1_800);
/// How long a new process waits for peers that do not answer.
const JOIN_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an unknown sender is reported after its last message.
const UNKNOWN_SENDER_TTL: Duration = Duration::from_secs(3);
/// Number of processes per member whose message numbers are remembered.
const MAX_PROCESSES: usize = 4;

/// Identity and peers of this member.
#[derive(Clone, Debug)]
pub struct PeersConfig {
    /// This process.
    pub process: Process,
    /// Address where it takes SIP requests for phones that only it reaches.
    pub address: SocketAddr,
    /// Address where it takes its peers' messages.
    pub listen: SocketAddr,
    /// Addresses where its peers listen.
    pub peers: Vec<SocketAddr>,
    /// Common key of all members.
    pub key: TagKey,
    /// Limits of what waits for each peer.
    pub limits: PeerLimits,
}

/// Work for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerOutput {
    /// Send a datagram.
    Send {
        /// Receiver.
        to: SocketAddr,
        /// A SIP message.
        bytes: Vec<u8>,
    },
    /// Apply records of another member: changes of the table, or used nonces.
    Apply(Vec<Box<[u8]>>),
    /// A member has acknowledged the used nonces up to a time.
    NoncesAcknowledged {
        /// Id of the member.
        member: MemberId,
        /// Acknowledged up to here.
        until: Timestamp,
    },
    /// The table has everything that the answering peers had; the member can serve.
    Synced,
    /// Read a part of the table from a cursor, with the versions that [must be announced](Peers::must_announce) to
    /// this peer, and pass it to [`Peers::handle_table_part`].
    ReadTable {
        /// Index of the peer in the configuration.
        peer: usize,
        /// Where to start.
        from: Cursor,
    },
}

/// This process, as other members see it.
#[derive(Debug)]
struct LocalProcess {
    process: Process,
    address: SocketAddr,
    listen: SocketAddr,
    key: TagKey,
}

impl LocalProcess {
    fn envelope(&self, to: Option<Process>, number: u64, whole: FullSync) -> Envelope {
        Envelope { from: self.process, to, number, address: self.address, full_sync: whole }
    }
}

/// A member and its state of all peers.
#[derive(Debug)]
pub struct Peers {
    own: LocalProcess,
    limits: PeerLimits,
    peers: Vec<Peer>,
    /// Replay windows of each member's processes, the newest process last.
    windows: BTreeMap<MemberId, VecDeque<(u64, ReplayWindow)>>,
    /// Number of changes received from each member.
    changes: BTreeMap<MemberId, u64>,
    started: Timestamp,
    is_loaded: bool,
    is_warm: bool,
    /// Another server that uses this member's id.
    duplicate_member: Option<(Timestamp, SocketAddr)>,
    /// A sender that is a member but not a configured peer.
    unknown_sender: Option<(Timestamp, MemberId, SocketAddr)>,
    /// Since when no peer has answered.
    isolated_since: Option<Timestamp>,
    outputs: VecDeque<PeerOutput>,
    /// Processes that have sent everything they hold.
    completed_syncs: BTreeMap<MemberId, u64>,
    full_syncs: u64,
}

impl Peers {
    /// Creates the state of a process that starts at `now`.
    #[must_use]
    pub fn new(now: Timestamp, config: PeersConfig) -> Self {
        let PeersConfig { process, address, listen, peers, key, limits } = config;
        let mut own = Self {
            own: LocalProcess { process, address, listen, key: key.derive("members") },
            limits,
            peers: peers.into_iter().map(|address| Peer::new(address, limits, now)).collect(),
            windows: BTreeMap::new(),
            changes: BTreeMap::new(),
            started: now,
            is_loaded: false,
            is_warm: false,
            duplicate_member: None,
            unknown_sender: None,
            isolated_since: Some(now),
            outputs: VecDeque::new(),
            completed_syncs: BTreeMap::new(),
            full_syncs: 0,
        };
        own.send_due(now);
        own
    }

    /// Replaces the peers. Peers that stay keep their state; changes waiting for a removed peer are dropped. No
    /// [`PeerOutput::ReadTable`] may be pending.
    pub fn set_peers(&mut self, now: Timestamp, addresses: &[SocketAddr]) {
        self.peers.retain(|peer| addresses.contains(&peer.address));
        for address in addresses {
            if !self.peers.iter().any(|peer| peer.address == *address) {
                self.peers.push(Peer::new(*address, self.limits, now));
            }
        }
        self.unknown_sender = None;
        self.send_due(now);
    }

    /// Queues changes of this server, as [records](strowger_registrar::Record).
    pub fn handle_changes(&mut self, now: Timestamp, records: &[Box<[u8]>]) {
        for change in records.iter().flat_map(|record| Change::of_record(record)) {
            self.peers.iter_mut().for_each(|peer| peer.push(&change));
        }
        self.send_due(now);
    }

    /// Queues used nonces as one message. Live peers receive these messages in order and without gaps.
    pub fn handle_nonce_uses(&mut self, now: Timestamp, uses: Vec<u8>) {
        let uses = Arc::from(uses);
        self.peers.iter_mut().for_each(|peer| peer.push_nonce_uses(now, &uses));
        self.send_due(now);
    }

    /// Notes that the table has everything from this server's own disk.
    pub fn handle_loaded(&mut self, now: Timestamp) {
        self.is_loaded = true;
        self.send_due(now);
    }

    /// Handles the answer to [`PeerOutput::ReadTable`]: records and, if there are more, the next cursor.
    pub fn handle_table_part(&mut self, now: Timestamp, peer: usize, records: &[Box<[u8]>], next: Option<Cursor>) {
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.handle_table_part(records, next);
        }
        self.send_due(now);
    }

    /// Handles a datagram.
    pub fn handle_datagram(&mut self, now: Timestamp, from: SocketAddr, bytes: &[u8]) {
        let Ok(peek) = Peek::read(bytes) else { return };
        match peek.kind {
            Kind::Request(method @ (Method::Register | Method::Options)) => {
                self.handle_request(now, from, method, peek.head());
            }
            Kind::Request(_) => {}
            Kind::Response(status) => self.handle_response(now, from, status, peek.head()),
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
        let joins = if self.is_warm { Timestamp::MAX } else { self.started + JOIN_TIMEOUT };
        self.peers.iter().map(Peer::poll_timeout).fold(joins, Timestamp::min)
    }

    /// Returns the next output.
    pub fn poll_output(&mut self) -> Option<PeerOutput> {
        self.outputs.pop_front()
    }

    /// Whether this member must tell a peer of a change: its own change, one of the peer's own earlier process, or
    /// one of a member that is not alive.
    #[must_use]
    pub fn must_announce(&self, now: Timestamp, peer: usize, version: Version) -> bool {
        let Some(member) = version.member().filter(|member| *member != self.own.process.member) else { return true };
        let is_member = |peer: &Peer| peer.known.is_some_and(|(known, _)| known.member == member);
        let is_told_by_itself = |(at, other): (usize, &Peer)| at != peer && is_member(other) && other.is_alive(now);
        !self.peers.iter().enumerate().any(is_told_by_itself)
    }

    /// Returns the other live members and the addresses where they take SIP requests.
    pub fn alive(&self, now: Timestamp) -> impl Iterator<Item = (MemberId, SocketAddr)> + use<'_> {
        let alive = self.peers.iter().filter(move |peer| peer.is_alive(now));
        alive.filter_map(|peer| peer.known).map(|(process, address)| (process.member, address))
    }

    /// Returns the status for the operator.
    #[must_use]
    pub fn status(&self, now: Timestamp) -> Status {
        let seen = |peer: &Peer| {
            let (Process { member, started_ms: began }, address) = peer.known?;
            let read = Position { incarnation: began, number: self.changes.get(&member).copied().unwrap_or(0) };
            Some(MemberStatus { member, address: Some(address), is_alive: peer.is_alive(now), read })
        };
        let peers: Vec<_> = self.peers.iter().map(|peer| peer.status(now)).collect();
        // Before it serves, the member still waits for its peers; that is no failure.
        let trouble_since = self.isolated_since.filter(|_| self.is_warm);
        let trouble = trouble_since.map(|_| {
            let silent = |peer: &Peer| format!("{} {}", peer.address, peer.failure.unwrap_or("sends no heartbeat"));
            self.peers.iter().map(silent).collect::<Vec<_>>().join(", ")
        });
        Status {
            is_synced: self.is_warm,
            failure: trouble,
            failure_since: trouble_since,
            conflict: self.conflict(),
            waiting: peers.iter().filter(|peer| peer.is_alive).map(|peer| peer.waiting).sum(),
            refused: peers.iter().map(|peer| peer.dropped).sum(),
            full_reads: self.completed_syncs.len() as u64,
            full_announcements: self.full_syncs,
            others: self.peers.iter().filter_map(seen).collect(),
            peers,
        }
    }

    fn conflict(&self) -> Option<String> {
        let own = self.own.process.member.get();
        let twin = self.duplicate_member.map(|(_, address)| {
            format!("another server is member {own} too, at {address}; give each its own cluster.member")
        });
        let stranger = || {
            self.unknown_sender.map(|(_, member, address)| {
                format!(
                    "member {}, at {address}, sends to this one, which does not send to it; add it to cluster.peers here",
                    member.get()
                )
            })
        };
        let refusing = || {
            let refusal = |peer: &Peer| peer.failure.map(|why| format!("the peer {} {why}", peer.address));
            self.peers.iter().find_map(refusal)
        };
        twin.or_else(stranger).or_else(refusing)
    }

    fn handle_request(&mut self, now: Timestamp, from: SocketAddr, method: Method<'_>, head: &Head<'_>) {
        let envelope = Envelope::read(&self.own.key, head, method.as_bytes());
        let status = match &envelope {
            Some(envelope) => self.handle_message(now, from, method, envelope, head.rest()),
            None => SipStatus::FORBIDDEN,
        };
        let answer = envelope.map(|envelope| self.own.envelope(Some(envelope.from), envelope.number, FullSync::None));
        let bytes = write_response(&self.own.key, head, status, (self.own.process.started_ms, answer.as_ref()));
        self.outputs.push_back(PeerOutput::Send { to: from, bytes });
    }

    /// Handles a verified message and returns the status of the response.
    fn handle_message(
        &mut self,
        now: Timestamp,
        from: SocketAddr,
        method: Method<'_>,
        envelope: &Envelope,
        body: &[u8],
    ) -> SipStatus {
        let Envelope { from: process, to, number, full_sync: whole, .. } = *envelope;
        if process.member != self.own.process.member {
            self.record_unknown_sender(now, from, process.member);
        }
        match to {
            // A heartbeat is answered and changes nothing else, so a replay is harmless.
            None if method == Method::Options => {
                if whole == FullSync::Requested {
                    self.handle_sync_request(process);
                }
                return SipStatus::OK;
            }
            Some(to) if to == self.own.process && process.member != to.member => {}
            _ => return SipStatus::FORBIDDEN,
        }
        match self.check_number(process, number) {
            WindowCheck::New => {}
            WindowCheck::Duplicate => return SipStatus::OK,
            WindowCheck::TooOld => return SipStatus::FORBIDDEN,
        }
        if whole == FullSync::Complete {
            self.completed_syncs.insert(process.member, process.started_ms);
        }
        let Some(records) = length_prefixed::read(body) else { return SipStatus::BAD_REQUEST };
        if !records.is_empty() {
            if method == Method::Register {
                *self.changes.entry(process.member).or_default() += records.len() as u64;
                self.relay(process, &records);
            }
            self.outputs.push_back(PeerOutput::Apply(records));
        }
        SipStatus::OK
    }

    /// Checks a message number of a process against its replay window.
    fn check_number(&mut self, process: Process, number: u64) -> WindowCheck {
        let known = self.windows.entry(process.member).or_default();
        if let Some((_, window)) = known.iter_mut().find(|(began, _)| *began == process.started_ms) {
            return window.check(number);
        }
        if known.len() >= MAX_PROCESSES {
            known.pop_front();
        }
        let mut window = ReplayWindow::default();
        let order = window.check(number);
        known.push_back((process.started_ms, window));
        order
    }

    /// Relays changes of an earlier process of this member: that process may not have told all peers, and no other
    /// member relays them.
    fn relay(&mut self, from: Process, records: &[Box<[u8]>]) {
        let changes = records.iter().flat_map(|record| Change::of_record(record));
        for change in changes.filter(|change| change.version.member() == Some(self.own.process.member)) {
            self.peers.iter_mut().filter(|peer| !peer.is_process(from)).for_each(|peer| peer.push(&change));
        }
    }

    fn handle_sync_request(&mut self, process: Process) {
        let wanting = self.peers.iter_mut().find(|peer| peer.is_process(process));
        if wanting.is_some_and(|peer| peer.handle_sync_request(process.started_ms)) {
            self.full_syncs += 1;
        }
    }

    fn record_unknown_sender(&mut self, now: Timestamp, address: SocketAddr, member: MemberId) {
        let is_known = |peer: &Peer| peer.known.is_none_or(|(known, _)| known.member == member);
        if !self.peers.iter().any(is_known) {
            self.unknown_sender = Some((now, member, address));
        }
    }

    fn handle_response(&mut self, now: Timestamp, from: SocketAddr, status: SipStatus, head: &Head<'_>) {
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.address == from) else { return };
        let Some(envelope) = Envelope::read(&self.own.key, head, status.code().to_string().as_bytes()) else {
            if !peer.is_alive(now) && status == SipStatus::FORBIDDEN {
                peer.failure = Some(
                    "rejects this member's messages because it has another key; give all members the same server.key_file",
                );
            }
            return;
        };
        if envelope.to != Some(self.own.process) {
            return;
        }
        if envelope.from.member == self.own.process.member {
            self.duplicate_member = Some((now, from));
            return;
        }
        if let Some(until) = peer.handle_response(now, &envelope, status != SipStatus::FORBIDDEN) {
            self.outputs.push_back(PeerOutput::NoncesAcknowledged { member: envelope.from.member, until });
        }
    }

    fn send_due(&mut self, now: Timestamp) {
        self.duplicate_member.take_if(|(seen, _)| now >= *seen + UNKNOWN_SENDER_TTL);
        self.unknown_sender.take_if(|(seen, ..)| now >= *seen + UNKNOWN_SENDER_TTL);
        self.update_synced(now);
        let Self { own, peers, outputs, completed_syncs: sent_all, .. } = self;
        for (number, peer) in peers.iter_mut().enumerate() {
            let to = peer.address;
            // A peer that was unreachable when this process started may hold changes that no other member has.
            let wants_all = !has_sent_all(sent_all, peer);
            peer.send_due(now, own, wants_all, &mut |bytes| outputs.push_back(PeerOutput::Send { to, bytes }));
            if self.is_loaded
                && let Some(from) = peer.next_table_part(now)
            {
                outputs.push_back(PeerOutput::ReadTable { peer: number, from });
            }
        }
        let is_alone = !self.peers.iter().any(|peer| peer.is_alive(now));
        self.isolated_since = if is_alone { self.isolated_since.or(Some(now)) } else { None };
    }

    /// Starts serving once the table has everything that the answering peers hold, unless another server uses this
    /// member's id.
    fn update_synced(&mut self, now: Timestamp) {
        let is_patient = now < self.started + JOIN_TIMEOUT;
        let is_missing = |peer: &Peer| !has_sent_all(&self.completed_syncs, peer) && (is_patient || peer.is_alive(now));
        if self.is_warm || !self.is_loaded || self.duplicate_member.is_some() || self.peers.iter().any(is_missing) {
            return;
        }
        self.is_warm = true;
        self.outputs.push_back(PeerOutput::Synced);
        // The peers may lack what this server's disk had.
        self.peers.iter_mut().for_each(Peer::start_full_sync);
        self.full_syncs += self.peers.len() as u64;
    }
}

/// Whether a peer's process has said that it has sent everything. It may say so before its first answer.
fn has_sent_all(sent_all: &BTreeMap<MemberId, u64>, peer: &Peer) -> bool {
    peer.known.is_some_and(|(known, _)| sent_all.get(&known.member) == Some(&known.started_ms))
}
