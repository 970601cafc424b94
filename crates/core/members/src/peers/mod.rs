//! Members without an engine: each forwards every REGISTER that it has accepted to each of the others, its peers.
//!
//! [`Peers`] does no I/O. It is given changes of this member and datagrams of others, and gives datagrams to send and changes to take.
//!
//! # What is sent
//! A change of a contact goes to each peer as a REGISTER of its own client transaction. While a peer does not answer, changes wait for it, of
//! each contact the newest. Where there is no room, all are dropped, and the peer is told everything that this member holds when it
//! answers again.
//!
//! # Who is there
//! Each member asks each peer twice a second for a sign of life. Only an answer counts: it names the process that asked and the number of its
//! question, so nobody can send an old one again.
//!
//! # Who joins
//! A process wants all that each process of its peers holds. It serves once each of them has said that it has sent that, or does not answer.
//!
//! # What nobody else can do
//! Each message is sealed by the members' common key, and names the process that it is for. A process takes no number of another process
//! twice.

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

/// How often a peer is asked for a sign of life.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
/// What has not answered for this long is taken for dead.
const DEAD_AFTER: Duration = Duration::from_millis(1_800);
/// So long a process that begins waits for peers that do not answer.
const JOIN_TIMEOUT: Duration = Duration::from_secs(2);
/// For how long something is said of who should not send here, after it last did.
const UNKNOWN_SENDER_TTL: Duration = Duration::from_secs(3);
/// Processes of one member whose numbers are remembered.
const MAX_PROCESSES: usize = 4;

/// Which member this is, and who its peers are.
#[derive(Clone, Debug)]
pub struct PeersConfig {
    /// This process.
    pub process: Process,
    /// Where it takes SIP requests for phones that only it reaches.
    pub address: SocketAddr,
    /// Where it takes what its peers send.
    pub listen: SocketAddr,
    /// Where its peers do: what they listen at.
    pub peers: Vec<SocketAddr>,
    /// The key that all members have.
    pub key: TagKey,
    /// What may wait for each peer.
    pub limits: PeerLimits,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerOutput {
    /// Send a datagram.
    Send {
        /// Where to.
        to: SocketAddr,
        /// A SIP message.
        bytes: Vec<u8>,
    },
    /// Take what another member says: changes of the table, or which nonces were used.
    Apply(Vec<Box<[u8]>>),
    /// A member has taken what it was told of nonces until then.
    NoncesAcknowledged {
        /// Which.
        member: MemberId,
        /// Until when.
        until: Timestamp,
    },
    /// The table has all that the peers had which answer: it can serve.
    Synced,
    /// Read some of what the table holds, from here on, of versions that this peer [has to hear of](Peers::announces):
    /// [`Peers::handle_part`].
    ReadTable {
        /// Which, by its number in the configuration.
        peer: usize,
        /// From where on.
        from: Cursor,
    },
}

/// This process, as it writes to others.
#[derive(Debug)]
struct Own {
    process: Process,
    address: SocketAddr,
    listen: SocketAddr,
    key: TagKey,
}

impl Own {
    fn envelope(&self, to: Option<Process>, number: u64, whole: FullSync) -> Envelope {
        Envelope { from: self.process, to, number, address: self.address, full_sync: whole }
    }
}

/// A member, and all that it knows of its peers.
#[derive(Debug)]
pub struct Peers {
    own: Own,
    limits: PeerLimits,
    peers: Vec<Peer>,
    /// What was taken of which process, the latest last.
    windows: BTreeMap<MemberId, VecDeque<(u64, ReplayWindow)>>,
    /// Changes that came of each member.
    changes: BTreeMap<MemberId, u64>,
    started: Timestamp,
    is_loaded: bool,
    is_warm: bool,
    /// Another server that says to be this member.
    duplicate_member: Option<(Timestamp, SocketAddr)>,
    /// A member that sends here and is none of the peers.
    unknown_sender: Option<(Timestamp, MemberId, SocketAddr)>,
    /// When none of the peers answered any more.
    isolated_since: Option<Timestamp>,
    outputs: VecDeque<PeerOutput>,
    /// The processes that have sent all that they hold.
    completed_syncs: BTreeMap<MemberId, u64>,
    full_syncs: u64,
}

impl Peers {
    /// A process that begins now.
    #[must_use]
    pub fn new(now: Timestamp, config: PeersConfig) -> Self {
        let PeersConfig { process, address, listen, peers, key, limits } = config;
        let mut own = Self {
            own: Own { process, address, listen, key: key.derive("members") },
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

    /// Other peers than before. Those that stay are not disturbed; what waited for one that goes is dropped. No [`PeerOutput::Read`] may be
    /// on its way.
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

    /// Changes of this server, as [records](strowger_registrar::Record).
    pub fn handle_changes(&mut self, now: Timestamp, records: &[Box<[u8]>]) {
        for change in records.iter().flat_map(|record| Change::of_record(record)) {
            self.peers.iter_mut().for_each(|peer| peer.push(&change));
        }
        self.send_due(now);
    }

    /// Which nonces were used, as one message of which none is to be missed: the peers that are there take them in their order.
    pub fn handle_nonce_uses(&mut self, now: Timestamp, uses: Vec<u8>) {
        let uses = Arc::from(uses);
        self.peers.iter_mut().for_each(|peer| peer.push_nonce_uses(now, &uses));
        self.send_due(now);
    }

    /// The table has all that this server's own disk had.
    pub fn handle_loaded(&mut self, now: Timestamp) {
        self.is_loaded = true;
        self.send_due(now);
    }

    /// What [`PeerOutput::Read`] asked for, and from where on there is more.
    pub fn handle_table_part(&mut self, now: Timestamp, peer: usize, records: &[Box<[u8]>], next: Option<Cursor>) {
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.handle_table_part(records, next);
        }
        self.send_due(now);
    }

    /// A datagram, and where it came from.
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

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.send_due(now);
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Timestamp {
        let joins = if self.is_warm { Timestamp::MAX } else { self.started + JOIN_TIMEOUT };
        self.peers.iter().map(Peer::poll_timeout).fold(joins, Timestamp::min)
    }

    /// The next thing to be done.
    pub fn poll_output(&mut self) -> Option<PeerOutput> {
        self.outputs.pop_front()
    }

    /// Whether a peer has to hear from this member of a change: of this member, of the peer's own earlier process, or of one that is not
    /// there to tell it.
    #[must_use]
    pub fn must_announce(&self, now: Timestamp, peer: usize, version: Version) -> bool {
        let Some(member) = version.member().filter(|member| *member != self.own.process.member) else { return true };
        let is_member = |peer: &Peer| peer.known.is_some_and(|(known, _)| known.member == member);
        let is_told_by_itself = |(at, other): (usize, &Peer)| at != peer && is_member(other) && other.is_alive(now);
        !self.peers.iter().enumerate().any(is_told_by_itself)
    }

    /// The members that are alive besides this one, and where they take SIP requests.
    pub fn alive(&self, now: Timestamp) -> impl Iterator<Item = (MemberId, SocketAddr)> + use<'_> {
        let alive = self.peers.iter().filter(move |peer| peer.is_alive(now));
        alive.filter_map(|peer| peer.known).map(|(process, address)| (process.member, address))
    }

    /// How it goes.
    #[must_use]
    pub fn status(&self, now: Timestamp) -> Status {
        let seen = |peer: &Peer| {
            let (Process { member, started_ms: began }, address) = peer.known?;
            let read = Position { incarnation: began, number: self.changes.get(&member).copied().unwrap_or(0) };
            Some(MemberStatus { member, address: Some(address), is_alive: peer.is_alive(now), read })
        };
        let peers: Vec<_> = self.peers.iter().map(|peer| peer.status(now)).collect();
        // Until it serves it waits for them, and nothing is wrong yet.
        let trouble_since = self.isolated_since.filter(|_| self.is_warm);
        let trouble = trouble_since.map(|_| {
            let silent = |peer: &Peer| format!("{} {}", peer.address, peer.failure.unwrap_or("gives no sign of life"));
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

    /// Takes what a member says, and gives the status of the answer.
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
            // It is answered, and changes nothing else, so it may come as often as it likes.
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

    /// Takes a number of a process.
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

    /// What an earlier process of this member has changed, and did not tell all of them, nobody else tells.
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
                peer.failure =
                    Some("refuses what this member sends: it has another key; give all the same server.key_file");
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
            // One that could not be reached when this process began still has what nobody else may have.
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

    /// It serves once it has all that peers hold which answer, and nobody else says to be the same member.
    fn update_synced(&mut self, now: Timestamp) {
        let is_patient = now < self.started + JOIN_TIMEOUT;
        let is_missing = |peer: &Peer| !has_sent_all(&self.completed_syncs, peer) && (is_patient || peer.is_alive(now));
        if self.is_warm || !self.is_loaded || self.duplicate_member.is_some() || self.peers.iter().any(is_missing) {
            return;
        }
        self.is_warm = true;
        self.outputs.push_back(PeerOutput::Synced);
        // What its own disk had, the peers may lack.
        self.peers.iter_mut().for_each(Peer::start_full_sync);
        self.full_syncs += self.peers.len() as u64;
    }
}

/// Whether a peer's process has said that it has sent all that it holds. It may have said so before it has answered anything.
fn has_sent_all(sent_all: &BTreeMap<MemberId, u64>, peer: &Peer) -> bool {
    peer.known.is_some_and(|(known, _)| sent_all.get(&known.member) == Some(&known.started_ms))
}
