//! What is said over the control socket: one JSON object a line, a request and then its response. Only a
//! [trace](Request::Trace) and a [backup](Request::Backup) are answered by many lines.

mod clusters;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use clusters::{ClusterShare, Clusters, Share, WeightProposal};

/// What a running server can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// How it is.
    Status,
    /// Who is registered.
    Registrations {
        /// Only this address of record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
        /// At most so many contacts.
        limit: usize,
    },
    /// To end registrations of an address, as if their phones had.
    Unregister {
        /// The address of record.
        user: String,
        /// Only this contact, as [`Registration::contact`] has it; else all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        contact: Option<String>,
    },
    /// Which calls are in progress.
    Calls {
        /// At most so many calls.
        limit: usize,
    },
    /// To tell of messages as they pass, until the client goes away or a limit is reached.
    Trace(TraceRequest),
    /// To write a backup of users, registrations and key, and tell of its progress.
    Backup(BackupRequest),
    /// To read its configuration and its users again.
    Reload,
    /// To read now what changed in its users and gateways, as it does by itself within a second.
    Follow,
    /// What its balancers' targets do.
    Targets {
        /// Only those of this balancer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        set: Option<String>,
    },
    /// What each cluster has, and would have with other weights.
    Clusters(WeightProposal),
    /// To send no new call to a target.
    Drain {
        /// Its id, its URI, or SET/URI.
        target: String,
    },
    /// To send new calls to a target again.
    Undrain {
        /// Its id, its URI, or SET/URI.
        target: String,
    },
    /// To give a balancer one more target.
    AddTarget(NewTarget),
    /// To take a target from its balancer.
    RemoveTarget {
        /// Its id, its URI, or SET/URI.
        target: String,
    },
}

/// A target that a balancer gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewTarget {
    /// The balancer.
    pub set: String,
    /// The SIP URI.
    pub uri: String,
    /// Those of a higher one are spares of the others.
    #[serde(default)]
    pub priority: u16,
    /// The share among those of the same priority.
    pub weight: u16,
    /// The most calls at one time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u32>,
}

/// Where a backup goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackupRequest {
    /// The file, from the root: the server's current folder is not the client's.
    pub file: PathBuf,
    /// Whether a file that is there may be replaced.
    #[serde(default)]
    pub overwrite: bool,
}

/// Which messages are wanted, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// Which.
    pub filter: TraceFilter,
    /// Milliseconds after which the trace ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
    /// Messages after which the trace ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Whether whole messages are wanted; else only what a line of a ladder shows.
    #[serde(default)]
    pub messages: bool,
}

/// Which messages are wanted. What is found by user or address is followed by its Call-ID from then on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceFilter {
    /// The user part, or user@domain, of the Request-URI, From, To or P-Asserted-Identity.
    User(String),
    /// This Call-ID.
    CallId(String),
    /// From or to this address.
    Ip(IpAddr),
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Response {
    /// To [`Request::Status`].
    Status(Box<Status>),
    /// To [`Request::Registrations`].
    Registrations(Registrations),
    /// To [`Request::Unregister`]: what goes.
    Unregistered(Registrations),
    /// To [`Request::Calls`].
    Calls(Calls),
    /// To [`Request::Trace`], again and again: first [`TraceEvent::Started`], at last [`TraceEvent::Ended`].
    Trace(TraceEvent),
    /// To [`Request::Backup`], again and again: at last [`BackupEvent::Done`].
    Backup(BackupEvent),
    /// To [`Request::Reload`]: what was done.
    Reloaded(String),
    /// To [`Request::Follow`]: it has.
    Followed,
    /// To [`Request::Targets`].
    Targets(Targets),
    /// To [`Request::Clusters`].
    Clusters(Clusters),
    /// To [`Request::Drain`], [`Request::Undrain`], [`Request::AddTarget`] and [`Request::RemoveTarget`].
    Target(Box<ChangedTarget>),
    /// To anything: why not.
    Error(String),
}

/// A database that servers share, of users and gateways or of records of calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Database {
    /// Where it is; of several, one is used.
    pub databases: Vec<String>,
    /// Why it is not followed, or nothing is written to it.
    pub trouble: Option<String>,
    /// For how long, in seconds.
    pub trouble_s: Option<f64>,
}

/// Totals by part and name.
pub type Counters = BTreeMap<String, BTreeMap<String, u64>>;

/// How a server is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// Contacts that are registered.
    pub registrations: u64,
    /// Addresses of record with a contact.
    pub addresses: u64,
    /// Users in the directory.
    pub users: u64,
    /// Transactions in progress.
    pub transactions: u64,
    /// Threads that handle messages.
    pub workers: u64,
    /// What each of them has to do; none from a server that did not tell.
    #[serde(default)]
    pub loads: Vec<WorkerLoad>,
    /// Whether it is being stopped.
    pub draining: bool,
    /// How overload control stands; none from a server that had none.
    #[serde(default)]
    pub overload: Overload,
    /// Where it listens.
    pub listeners: Vec<String>,
    /// What it is responsible for.
    pub domains: Vec<String>,
    /// How registrations are kept; none from a server that kept them in memory only.
    #[serde(default)]
    pub store: Option<Store>,
    /// The other members that it shares registrations with; none from a server that is alone.
    #[serde(default)]
    pub cluster: Option<Cluster>,
    /// The database that its users are copied from; none from a server that has its own.
    #[serde(default)]
    pub users_database: Option<Database>,
    /// The database that gets records of calls; none from a server that writes to none.
    #[serde(default)]
    pub calls_database: Option<Database>,
    /// The trunks that it registers at.
    #[serde(default)]
    pub trunks: Vec<Trunk>,
    /// The places that do not answer.
    #[serde(default)]
    pub outages: Vec<Outage>,
    /// The balancers.
    #[serde(default)]
    pub balancers: Vec<Balancer>,
    /// What tells the server's key from others without telling it: servers that share one show the same.
    #[serde(default)]
    pub key: String,
    /// Totals since the start, by part (`sockets`, `workers`, `shards`, `connections`, `dns`, `names`, `targets`, `cdr`) and
    /// name. What is there now, not in all: `connections.open`, `names.kept`, `targets.avoided`.
    pub counters: Counters,
}

/// How registrations are shared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// What the members are called together.
    pub name: String,
    /// This one.
    pub member: u16,
    /// Where the others send requests for phones that only this one reaches.
    pub address: String,
    /// Whether all was read that the others had when the server began.
    pub warm: bool,
    /// Why nothing is shared, where nothing is: the engine does not answer, or none of the peers.
    pub trouble: Option<String>,
    /// For how long, in seconds.
    pub trouble_s: Option<f64>,
    /// What another member's configuration contradicts.
    #[serde(default)]
    pub conflict: Option<String>,
    /// Changes that the engine has not confirmed, or one of the peers that answer.
    pub waiting: u64,
    /// Batches of changes that there was no room for; with peers, changes.
    pub refused: u64,
    /// How often the whole state was read; with peers, of how many.
    pub read_whole: u64,
    /// How often everything was told again: the engine had forgotten something, or a peer needed it.
    pub announced: u64,
    /// The others.
    pub members: Vec<Member>,
    /// The peers that are configured, where there is no engine.
    #[serde(default)]
    pub peers: Vec<Peer>,
}

/// A peer, by where it takes what members forward.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    /// Where.
    pub listen: String,
    /// Its number; none until it has answered once.
    pub member: Option<u16>,
    /// Whether it has answered within two seconds.
    pub alive: bool,
    /// Changes that it has not confirmed.
    pub waiting: u64,
    /// Changes that there was no room for: it is told everything when it answers again.
    pub dropped: u64,
}

/// Another member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Its number.
    pub member: u16,
    /// Where it takes SIP requests.
    pub address: String,
    /// Whether it has said within two seconds that it is there.
    pub alive: bool,
    /// The entry of its log that was read last; with peers, how many changes it has sent.
    pub read: u64,
}

/// How overload control stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overload {
    /// Workers that refuse new work now.
    pub limiting: u64,
    /// The share of new calls that is refused or dropped, from 0 to 1.
    pub shed: f64,
    /// New work that is served, a second, by the workers that limit.
    pub admitted_per_s: u64,
    /// How long all new work waits before it is read, in microseconds.
    pub wait_us: u64,
    /// Who keeps calls in progress apart from new work: `kernel`, `worker`, or `nobody` where control is off or nothing listens for
    /// datagrams.
    pub sorted_by: String,
    /// Workers for which the kernel drops what would be refused.
    pub filtered_by_kernel: u64,
}

/// A place that requests are sent to and that does not answer, under one of its names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outage {
    /// Its URI among the gateways, or in the configuration; none where only its address is known.
    pub uri: Option<String>,
    /// The set that it is a gateway of.
    pub set: Option<String>,
    /// The trunk that it is a target of.
    pub trunk: Option<String>,
    /// Transport, address and port.
    pub address: String,
    /// How that was found at last: `timeout`, `ICMP`, `no connection` or `503`.
    pub cause: String,
    /// Seconds since it was first found.
    pub since_s: f64,
    /// Seconds for which it is tried after others; none where it has not been tried since.
    pub avoided_s: Option<f64>,
}

/// A balancer, in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balancer {
    /// Its name.
    pub name: String,
    /// By what it chooses.
    pub policy: String,
    /// Its targets.
    pub targets: u64,
    /// Those of them that take new calls.
    pub in_service: u64,
    /// Their calls.
    pub calls: u64,
}

/// What balancers' targets do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Targets {
    /// By balancer, in the order of the configuration.
    pub targets: Vec<Target>,
}

/// A target of a balancer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Its id, which is the same on every server that has it in a set of this name.
    pub id: String,
    /// Its balancer.
    pub set: String,
    /// Its URI, as it was written.
    pub uri: String,
    /// `up`; `slow start`: it is back and has a part of its share; `draining`: it gets no new call; `down`: probes say so;
    /// `disabled`; `removed`: its balancer has it no longer, and it has calls.
    pub state: String,
    /// Of its share, from 0 to 1; less than 1 in slow start only.
    pub share: f64,
    /// Seconds that it has been down, or back, where that is its state.
    #[serde(default)]
    pub since_s: Option<f64>,
    /// Whether it is being drained, whatever else its state is.
    #[serde(default)]
    pub draining: bool,
    /// How calls found that it does not answer: `timeout`, `ICMP`, `no connection` or `503`; none where it answers.
    #[serde(default)]
    pub outage: Option<String>,
    /// Whether it has as many calls as it may have.
    #[serde(default)]
    pub full: bool,
    /// Those of a higher one are spares of the others.
    pub priority: u16,
    /// The share among those of the same priority.
    pub weight: u16,
    /// The most calls at one time; none: no limit.
    pub capacity: Option<u32>,
    /// Calls in progress.
    pub calls: u32,
    /// Transactions in progress.
    pub transactions: u32,
    /// Their work: a BYE is 1.
    pub work: f64,
    /// How long requests wait for their first response, on average; none before there was one.
    pub response_time_ms: Option<f64>,
    /// Transactions since the server started.
    pub requests: u64,
    /// Those of them that got no answer, or a 503.
    pub failures: u64,
    /// Who names it: `configuration`, `set:NAME`, `list:FILE#SETID`, `srv:DOMAIN`, `dns:HOST:PORT`, or `operator` until the configuration is read
    /// again; none where nobody does any more.
    #[serde(default)]
    pub origin: Option<String>,
}

/// A target that a command has changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangedTarget {
    /// The target, as it is now.
    pub target: Target,
    /// How long the change lasts: `kept` (it is in the database), `until reload` (the configuration is read again) or
    /// `until restart`; `as before` where it was so already.
    pub lasts: String,
}

/// What one worker has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerLoad {
    /// The shards that it has.
    pub shards: u64,
    /// The share of its time that it is at work, from 0 to 1.
    pub load: f64,
    /// Whether it stays awake the rest of its time too, which the system shows as a busy core.
    #[serde(default)]
    pub awake: bool,
}

/// How registrations are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Store {
    /// What the 200 to a REGISTER promises: `write-through`, `write-behind` or `memory`.
    pub mode: String,
    /// `ok`; `loading`: what an earlier process kept is being read; `opening`: neither journal nor database could be opened
    /// yet; `failing`: nothing can be written.
    pub state: String,
    /// What is wrong.
    pub why: Option<String>,
    /// What to do about it.
    pub remedy: Option<String>,
    /// Seconds that it has been failing.
    pub failing_s: Option<f64>,
    /// The share that is loaded, from 0 to 1; none unless it is loading.
    pub loading: Option<f64>,
    /// The disk; none in mode memory.
    pub disk: Option<Disk>,
}

/// What a durable store tells of itself. Numbers without another word are since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Disk {
    /// Bytes of the journal.
    pub journal_bytes: u64,
    /// Its files.
    pub journal_segments: u64,
    /// Groups that were written and synced.
    pub groups: u64,
    /// Records in them.
    pub records: u64,
    /// Milliseconds from the write of a group to the end of its sync: half of them took no longer.
    pub commit_p50_ms: f64,
    /// 99 of 100 took no longer.
    pub commit_p99_ms: f64,
    /// None took longer.
    pub commit_longest_ms: f64,
    /// Records that wait for a commit now.
    pub waiting: u64,
    /// Addresses whose newest state waits for the disk to come back, now.
    pub unwritten: u64,
    /// Records that were not kept: a REGISTER each was answered 503, where durability is promised.
    pub refused: u64,
    /// Of these, those that waited too long for a slow disk.
    pub late: u64,
    /// Of write-behind: changes that were dropped, for too many waited.
    pub lost: u64,
    /// How often writing has begun to fail.
    pub faults: u64,
    /// How often it was well again.
    pub recoveries: u64,
    /// The database.
    pub checkpoint: Checkpoint,
    /// What the start found.
    pub found: Found,
}

/// How far the database has followed the journal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Seconds since the last one; none where there was none since the start.
    pub last_s: Option<f64>,
    /// Files of the journal that are not in it.
    pub segments_behind: u64,
    /// Addresses in the database.
    pub rows: u64,
    /// Why it does not follow.
    pub failing: Option<String>,
    /// Addresses that were removed because they had expired.
    pub purged: u64,
}

/// What a start found of the process before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Whether all of it has been looked at.
    pub is_complete: bool,
    /// Contacts that are registered again.
    pub loaded: u64,
    /// Addresses that had expired.
    pub expired: u64,
    /// Records and rows that could not be read.
    pub skipped: u64,
    /// What was wrong with the journal.
    pub damage: Vec<String>,
    /// Seconds that it took.
    pub took_s: f64,
}

/// What a backup tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackupEvent {
    /// It goes on.
    Progress {
        /// Pages of the database that are copied; 0 while the journal is brought into it.
        done: u64,
        /// Of so many.
        of: u64,
    },
    /// It is there, whole and synced.
    Done(BackupReport),
}

/// What is in a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupReport {
    /// Users.
    pub users: u64,
    /// Aliases.
    pub aliases: u64,
    /// Gateways.
    #[serde(default)]
    pub gateways: u64,
    /// Addresses with registrations.
    pub addresses: u64,
    /// Rows that could not be read and are not in it.
    pub damaged: u64,
    /// The size of the file.
    pub bytes: u64,
    /// Whether the server's key is in it.
    pub key: bool,
}

/// A trunk that the server registers at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trunk {
    /// What the configuration calls it.
    pub name: String,
    /// `registering`, `registered`, `failing`, `refused`, `leaving` or `stopped`.
    pub state: String,
    /// Seconds that it has been so.
    pub since_s: f64,
    /// Seconds until the trunk forgets the server, also while renewing fails; none where it does not know it.
    pub expires_s: Option<f64>,
    /// The status of the trunk's last final response to the last request; none where there was none.
    pub last_answer: Option<u16>,
    /// Seconds until the next request; none while one is under way.
    pub next_try_s: Option<f64>,
}

/// Who is registered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Registrations {
    /// The contacts, up to the limit.
    pub registrations: Vec<Registration>,
    /// Whether there are more.
    pub more: bool,
}

/// One contact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Registration {
    /// The address of record.
    pub aor: String,
    /// The contact's URI; what a peer wrote, with control characters escaped.
    pub contact: String,
    /// Seconds until it ends.
    pub expires_s: u64,
    /// Where its REGISTER came from.
    pub source: SocketAddr,
    /// Its preference, 0 to 1.
    pub q: f64,
    /// The member that took its last REGISTER, where members share registrations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<u16>,
}

/// Which calls are in progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    /// The calls, the oldest first, up to the limit.
    pub calls: Vec<Call>,
    /// Whether there are more.
    pub more: bool,
}

/// A call in progress. Texts are what peers wrote, control characters escaped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// `trying`, `ringing`, `challenged` or `answered`.
    pub state: String,
    /// Seconds since its INVITE came.
    pub age_s: f64,
    /// Seconds since it was answered.
    pub answered_s: Option<f64>,
    /// The URI in From.
    pub caller: String,
    /// The Request-URI as the caller wrote it.
    pub callee: String,
    /// Call-ID.
    pub call_id: String,
    /// How the INVITE came.
    pub transport: String,
    /// Where the INVITE came from.
    pub source: SocketAddr,
    /// Where it was answered.
    pub target: Option<SocketAddr>,
}

/// What a trace tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceEvent {
    /// Messages are looked at from now on.
    Started,
    /// One that matches.
    Message(Box<TracedMessage>),
    /// So many were lost because they came faster than they were read.
    Lost(u64),
    /// A limit of the request is reached.
    Ended,
}

/// A message as it passed. Texts are what peers wrote, control characters escaped; credentials and media keys are masked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedMessage {
    /// When, in UTC (RFC 3339).
    pub time: String,
    /// Microseconds since the server started, by a clock that never jumps.
    pub at_us: u64,
    /// Whether the server sent it; else it came.
    pub sent: bool,
    /// The transport, as in Via.
    pub transport: String,
    /// The address that the server listens on.
    pub local: String,
    /// The far end.
    pub peer: SocketAddr,
    /// The first line.
    pub start: String,
    /// CSeq.
    pub cseq: String,
    /// Call-ID.
    pub call_id: String,
    /// Its length in bytes.
    pub length: usize,
    /// The lines of the message, where they were asked for and as far as they are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<Vec<String>>,
}

/// The most contacts, or calls, in one answer.
pub const MAX_LISTED: usize = 10_000;
