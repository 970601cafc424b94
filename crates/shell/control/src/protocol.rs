//! Protocol of the control socket: a request and its response, each one JSON object on one line. A
//! [trace](Request::Trace), a [measurement](Request::Timing) and a [backup](Request::Backup) are answered by several
//! lines.

mod bans;
mod change;
mod clusters;
mod reload;
mod timing;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use bans::{Ban, Bans, NewBan};
pub use change::Change;
pub use clusters::{ClusterShare, Clusters, Share, WeightProposal};
pub use reload::{ConfigChange, KeyChange, Reloaded};
pub use timing::{TimingRequest, TimingUpdate};

/// A request to a running server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Returns the server's status.
    Status,
    /// Lists registrations.
    Registrations {
        /// Lists only this address of record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
        /// Maximum number of contacts.
        limit: usize,
    },
    /// Removes registrations of an address, as if the phones had unregistered.
    Unregister {
        /// The address of record.
        user: String,
        /// Removes only this contact, written as in [`Registration::contact`]; otherwise all contacts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        contact: Option<String>,
    },
    /// Lists calls in progress.
    Calls {
        /// Maximum number of calls.
        limit: usize,
    },
    /// Lists the times of call setup by trunk and target.
    CallSetups,
    /// Ends a call: an answered one with a BYE to both parties, one that is being set up with CANCEL.
    EndCall {
        /// Its Call-ID, as in [`Call::call_id`].
        call_id: String,
    },
    /// Streams messages as they pass, until the client disconnects or a limit is reached.
    Trace(TraceRequest),
    /// Measures the times of packets for a period.
    Timing(TimingRequest),
    /// Writes a backup of users, registrations and key, and reports its progress.
    Backup(BackupRequest),
    /// Reloads the configuration and the users.
    Reload,
    /// Returns what a reload would change, without a change.
    CheckReload,
    /// Reads changes of users and gateways at once. The server does so by itself within a second.
    Follow {
        /// The change that a command has made, for the audit log.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        change: Option<Change>,
    },
    /// Lists the balancers' targets.
    Targets {
        /// Lists only the targets of this balancer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        set: Option<String>,
    },
    /// Lists the load of each cluster, and the load under other weights.
    Clusters(WeightProposal),
    /// Stops sending new calls to a target.
    Drain {
        /// The target's id, its URI, or SET/URI.
        target: String,
    },
    /// Resumes sending new calls to a target.
    Undrain {
        /// The target's id, its URI, or SET/URI.
        target: String,
    },
    /// Adds a target to a balancer.
    AddTarget(NewTarget),
    /// Removes a target from its balancer.
    RemoveTarget {
        /// The target's id, its URI, or SET/URI.
        target: String,
    },
    /// Lists banned addresses.
    Bans {
        /// Maximum number of them.
        limit: usize,
    },
    /// Bans an address, or changes its ban.
    AddBan(NewBan),
    /// Ends the ban of an address.
    RemoveBan {
        /// The address; of IPv6, any of the banned /64.
        address: IpAddr,
    },
}

/// A target to add to a balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTarget {
    /// The balancer's name.
    pub set: String,
    /// The target's SIP URI.
    pub uri: String,
    /// Priority; targets with a higher number are spares for lower ones.
    #[serde(default)]
    pub priority: u16,
    /// Weight among targets of the same priority.
    pub weight: u16,
    /// Maximum number of simultaneous calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u32>,
}

/// Destination of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackupRequest {
    /// Absolute path of the file; server and client may have different working directories.
    pub file: PathBuf,
    /// Whether an existing file may be overwritten.
    #[serde(default)]
    pub overwrite: bool,
}

/// Selection and limits of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// Selects the messages.
    pub filter: TraceFilter,
    /// Duration of the trace, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
    /// Number of messages after which the trace ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Whether to send whole messages as lines; otherwise only what a ladder row shows.
    #[serde(default)]
    pub messages: bool,
    /// Whether to send the bytes of messages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bytes: bool,
}

/// Selection of messages. After a match by user or address, the trace follows the Call-ID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceFilter {
    /// User part, or user@domain, in the Request-URI, From, To or P-Asserted-Identity.
    User(String),
    /// Call-ID.
    CallId(String),
    /// Source or destination address.
    Ip(IpAddr),
}

impl TraceFilter {
    /// Checks the text of [`TraceFilter::User`].
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_user(text: &str) -> Result<(), String> {
        let bare = ["sip:", "sips:", "tel:"].iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
        let is_half = bare.rsplit_once('@').is_some_and(|(user, domain)| user.is_empty() || domain.is_empty());
        if bare.is_empty() || is_half {
            return Err(format!("{text:?} is not a user; write it as alice or alice@example.com"));
        }
        Ok(())
    }
}

/// A response of the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Response {
    /// Response to [`Request::Status`].
    Status(Box<Status>),
    /// Response to [`Request::Registrations`].
    Registrations(Registrations),
    /// Response to [`Request::Unregister`]: the registrations being removed.
    Unregistered(Registrations),
    /// Response to [`Request::Calls`].
    Calls(Calls),
    /// Response to [`Request::CallSetups`].
    CallSetups(Vec<DestinationSetup>),
    /// Response to [`Request::EndCall`]: the calls being ended, as they were.
    Ending(Calls),
    /// Response to [`Request::Trace`], sent repeatedly: first [`TraceEvent::Started`], last [`TraceEvent::Ended`].
    Trace(TraceEvent),
    /// Response to [`Request::Timing`], sent repeatedly until [`TimingUpdate::is_last`].
    Timing(Box<TimingUpdate>),
    /// Response to [`Request::Backup`], sent repeatedly: last [`BackupEvent::Done`].
    Backup(BackupEvent),
    /// Response to [`Request::Reload`] and [`Request::CheckReload`]: the changes.
    Reloaded(Reloaded),
    /// Response to [`Request::Follow`]: the changes have been read.
    Followed,
    /// Response to [`Request::Targets`].
    Targets(Targets),
    /// Response to [`Request::Clusters`].
    Clusters(Clusters),
    /// Response to [`Request::Drain`], [`Request::Undrain`], [`Request::AddTarget`] and [`Request::RemoveTarget`].
    Target(Box<ChangedTarget>),
    /// Response to [`Request::Bans`].
    Bans(Bans),
    /// Response to [`Request::AddBan`], and to [`Request::RemoveBan`] with the ban that has ended.
    Ban(Ban),
    /// The reason why a request failed.
    Error(String),
    /// The same, if what the request names does not exist.
    NotFound(String),
    /// The same, if the request contradicts what exists.
    Conflict(String),
    /// The same, if the request may succeed when it is repeated later.
    Busy(String),
}

/// A shared database of users and gateways, or of call records.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Database {
    /// Addresses of the database servers; one of them is used.
    pub databases: Vec<String>,
    /// Why the database cannot be followed or written.
    pub trouble: Option<String>,
    /// Duration of the trouble, in seconds.
    pub trouble_s: Option<f64>,
}

/// Counters by section and name.
pub type Counters = BTreeMap<String, BTreeMap<String, u64>>;

/// Status of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// Version of the server.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// Number of registered contacts.
    pub registrations: u64,
    /// Number of addresses of record with a contact.
    pub addresses: u64,
    /// Number of users in the directory.
    pub users: u64,
    /// Number of transactions in progress.
    pub transactions: u64,
    /// Number of worker threads.
    pub workers: u64,
    /// Load of each worker; empty from a server that does not report it.
    #[serde(default)]
    pub loads: Vec<WorkerLoad>,
    /// Whether the server is shutting down.
    pub draining: bool,
    /// Overload control; default from a server without it.
    #[serde(default)]
    pub overload: Overload,
    /// Listening addresses.
    pub listeners: Vec<String>,
    /// Domains that the server is responsible for.
    pub domains: Vec<String>,
    /// Storage of registrations; none from a server that keeps them in memory only.
    #[serde(default)]
    pub store: Option<Store>,
    /// Other members that share registrations; none for a server without a cluster.
    #[serde(default)]
    pub cluster: Option<Cluster>,
    /// Database that users are copied from; none for a server with its own users.
    #[serde(default)]
    pub users_database: Option<Database>,
    /// Database that receives call records; none if the server writes to none.
    #[serde(default)]
    pub calls_database: Option<Database>,
    /// Trunks that the server registers with.
    #[serde(default)]
    pub trunks: Vec<Trunk>,
    /// Next hops that do not answer.
    #[serde(default)]
    pub outages: Vec<Outage>,
    /// The balancers.
    #[serde(default)]
    pub balancers: Vec<Balancer>,
    /// Certificates for TLS.
    #[serde(default)]
    pub certificates: Vec<Certificate>,
    /// Media engines, if calls go through them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<MediaEngine>,
    /// Fingerprint of the server's key. Servers with the same key show the same value.
    #[serde(default)]
    pub key: String,
    /// Times of call setup since the start.
    #[serde(default)]
    pub call_setup: CallSetup,
    /// Counters since the start, by section (`sockets`, `workers`, `shards`, `connections`, `transports`, `dns`,
    /// `names`, `targets`, `bans`, `cdr`) and name. `connections.open`, `transports.*_open`, `names.entries`, `avoided`,
    /// `balanced`, `down` and `draining` of `targets`, and `banned` and `suspects` of `bans` are current values.
    #[schema(value_type = BTreeMap<String, BTreeMap<String, u64>>)]
    pub counters: Counters,
}

/// A media engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MediaEngine {
    /// Its address for commands.
    #[schema(value_type = String)]
    pub address: SocketAddr,
    /// Whether it answers.
    pub is_up: bool,
}

/// Times from an INVITE to what became of it. A call that was challenged has begun with its first INVITE.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CallSetup {
    /// To the first provisional response other than 100.
    pub ringing: SetupTimes,
    /// To the first 2xx.
    pub answered: SetupTimes,
    /// To a final response other than a 2xx.
    pub rejected: SetupTimes,
    /// To the final response after the caller's CANCEL.
    pub cancelled: SetupTimes,
}

/// Times of call setup of the calls to a trunk or to a balancer's target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DestinationSetup {
    /// Name of the trunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trunk: Option<String>,
    /// The balancer, or the cluster that the target is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// URI of the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The times.
    pub setup: CallSetup,
}

/// Counts of times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SetupTimes {
    /// Number of times below 1, 2, 4, … 131,072 ms, each without the shorter ones, and last the number of all others.
    pub counts: Vec<u64>,
    /// Sum of the times, in seconds.
    pub sum_s: f64,
}

/// A certificate of the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Certificate {
    /// Its file.
    pub file: String,
    /// The domains that it speaks for (RFC 5922).
    pub domains: Vec<String>,
    /// Days until it expires, rounded down; negative if it has expired, none if unknown.
    pub expires_days: Option<i64>,
}

/// State of shared registrations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Cluster {
    /// Name of the cluster.
    pub name: String,
    /// This member's number.
    pub member: u16,
    /// Address where this member takes requests for phones that only it can reach.
    pub address: String,
    /// Whether the member has read everything that the others had when it started.
    pub warm: bool,
    /// Why sharing is interrupted: the engine, or every peer, does not answer.
    pub trouble: Option<String>,
    /// Duration of the trouble, in seconds.
    pub trouble_s: Option<f64>,
    /// Setting that contradicts another member's configuration.
    #[serde(default)]
    pub conflict: Option<String>,
    /// Changes not yet confirmed by the engine, or by a peer that answers.
    pub waiting: u64,
    /// Batches of changes refused for lack of room; with peers, changes.
    pub refused: u64,
    /// How often the whole state was read; with peers, from how many.
    pub read_whole: u64,
    /// How often the whole state was sent again, because the engine had lost data or a peer needed it.
    pub announced: u64,
    /// The other members.
    pub members: Vec<Member>,
    /// The configured peers; empty with an engine.
    #[serde(default)]
    pub peers: Vec<Peer>,
}

/// A peer, identified by the address where it takes forwarded changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Peer {
    /// Address where the peer takes forwarded changes.
    pub listen: String,
    /// The peer's member number; none until its first answer.
    pub member: Option<u16>,
    /// Whether the peer answered within the last two seconds.
    pub alive: bool,
    /// Changes that the peer has not confirmed.
    pub waiting: u64,
    /// Changes dropped for lack of room. The peer receives the whole state when it answers again.
    pub dropped: u64,
}

/// Another member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Member {
    /// Member number.
    pub member: u16,
    /// Address where the member takes SIP requests.
    pub address: String,
    /// Whether the member sent a heartbeat within the last two seconds.
    pub alive: bool,
    /// Last entry read from its log; with peers, the number of changes it has sent.
    pub read: u64,
}

/// State of overload control.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Overload {
    /// Number of workers that refuse new work.
    pub limiting: u64,
    /// Share of new calls refused or dropped, from 0 to 1.
    pub shed: f64,
    /// New work admitted per second by the limiting workers.
    pub admitted_per_s: u64,
    /// Time that new work waits before it is read, in µs.
    pub wait_us: u64,
    /// What separates calls in progress from new work: `kernel`, `worker`, or `nobody` if control is off or there is
    /// no UDP listener.
    pub sorted_by: String,
    /// Number of workers for which the kernel drops what would be refused.
    pub filtered_by_kernel: u64,
}

/// A next hop that does not answer, under one of its names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Outage {
    /// Its URI as a gateway or in the configuration; none if only the address is known.
    pub uri: Option<String>,
    /// Gateway set that it belongs to.
    pub set: Option<String>,
    /// Trunk that it is a target of.
    pub trunk: Option<String>,
    /// Transport, address and port.
    pub address: String,
    /// How the outage was last detected: `timeout`, `ICMP`, `no connection` or `503`.
    pub cause: String,
    /// Seconds since the outage was first detected.
    pub since_s: f64,
    /// Seconds for which other next hops are preferred; none if it has not been tried since.
    pub avoided_s: Option<f64>,
}

/// Summary of a balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Balancer {
    /// Its name.
    pub name: String,
    /// Policy that chooses a target.
    pub policy: String,
    /// Number of targets.
    pub targets: u64,
    /// Number of targets that take new calls.
    pub in_service: u64,
    /// Calls in progress at the targets.
    pub calls: u64,
}

/// State of the balancers' targets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Targets {
    /// Targets by balancer, in configuration order.
    pub targets: Vec<Target>,
}

/// A target of a balancer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Target {
    /// Id of the target, the same on every server that has it in a set of this name.
    pub id: String,
    /// Name of the balancer.
    pub set: String,
    /// URI as written.
    pub uri: String,
    /// State: `up`; `slow start`: recovered and getting part of its share; `draining`: no new calls; `down`: probes
    /// fail; `disabled`; `removed`: removed from its balancer, with calls in progress.
    pub state: String,
    /// Fraction of its full share, from 0 to 1; below 1 only in slow start.
    pub share: f64,
    /// Seconds since it went down or came back, in those states.
    #[serde(default)]
    pub since_s: Option<f64>,
    /// Whether it is draining, whatever its state.
    #[serde(default)]
    pub draining: bool,
    /// How calls detected an outage: `timeout`, `ICMP`, `no connection` or `503`; none if it answers.
    #[serde(default)]
    pub outage: Option<String>,
    /// Whether it has reached its maximum number of calls.
    #[serde(default)]
    pub full: bool,
    /// Priority; targets with a higher number are spares for lower ones.
    pub priority: u16,
    /// Weight among targets of the same priority.
    pub weight: u16,
    /// Maximum number of simultaneous calls; none for no limit.
    pub capacity: Option<u32>,
    /// Calls in progress.
    pub calls: u32,
    /// Transactions in progress.
    pub transactions: u32,
    /// Work of these transactions; a BYE is 1.
    pub work: f64,
    /// Mean time to the first response, in ms; none before the first response.
    pub response_time_ms: Option<f64>,
    /// Transactions since the server started.
    pub requests: u64,
    /// Number of these that got no answer, or a 503.
    pub failures: u64,
    /// What defines it: `configuration`, `set:NAME`, `list:FILE#SETID`, `srv:DOMAIN`, `dns:HOST:PORT`, or `operator`
    /// until the next reload; none if its source has removed it.
    #[serde(default)]
    pub origin: Option<String>,
}

/// A target changed by a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChangedTarget {
    /// The target after the change.
    pub target: Target,
    /// How long the change lasts: `kept` (stored in the database), `until reload` (of the configuration) or `until
    /// restart`; `as before` if nothing changed.
    pub lasts: String,
}

/// Load of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkerLoad {
    /// Number of shards it runs.
    pub shards: u64,
    /// Fraction of time spent working, from 0 to 1.
    pub load: f64,
    /// Whether it busy-polls the rest of the time; the system then shows a busy core.
    #[serde(default)]
    pub awake: bool,
}

/// Storage of registrations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Store {
    /// What a 200 to a REGISTER guarantees: `write-through`, `write-behind` or `memory`.
    pub mode: String,
    /// `ok`; `loading`: stored registrations are being read; `opening`: journal or database could not be opened yet;
    /// `failing`: nothing can be written.
    pub state: String,
    /// The failure's cause.
    pub why: Option<String>,
    /// The remedy.
    pub remedy: Option<String>,
    /// Seconds since the failure began.
    pub failing_s: Option<f64>,
    /// Fraction loaded, from 0 to 1; none unless loading.
    pub loading: Option<f64>,
    /// Disk figures; none in mode memory.
    pub disk: Option<Disk>,
}

/// Figures of a durable store. Unless stated otherwise, counts are since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Disk {
    /// Size of the journal, in bytes.
    pub journal_bytes: u64,
    /// Number of journal files.
    pub journal_segments: u64,
    /// Number of record groups written and synced.
    pub groups: u64,
    /// Number of records in these groups.
    pub records: u64,
    /// Median time from a group's write to the end of its sync, in ms.
    pub commit_p50_ms: f64,
    /// 99th percentile of the same, in ms.
    pub commit_p99_ms: f64,
    /// Maximum of the same, in ms.
    pub commit_longest_ms: f64,
    /// Current number of records waiting for a commit.
    pub waiting: u64,
    /// Current number of addresses whose latest state waits for the disk to recover.
    pub unwritten: u64,
    /// Records not stored. Where durability is guaranteed, each is a REGISTER answered 503.
    pub refused: u64,
    /// Number of these that waited too long for a slow disk.
    pub late: u64,
    /// Write-behind: changes dropped because too many were waiting.
    pub lost: u64,
    /// How often writing has begun to fail.
    pub faults: u64,
    /// How often writing has recovered.
    pub recoveries: u64,
    /// Checkpoints to the database.
    pub checkpoint: Checkpoint,
    /// What was found at the start.
    pub found: EarlierState,
}

/// Progress of the database behind the journal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Checkpoint {
    /// Seconds since the last checkpoint; none before the first one since the start.
    pub last_s: Option<f64>,
    /// Number of journal files not yet in the database.
    pub segments_behind: u64,
    /// Number of addresses in the database.
    pub rows: u64,
    /// Why checkpoints fail.
    pub failing: Option<String>,
    /// Number of expired addresses removed.
    pub purged: u64,
}

/// State of an earlier process, as found at the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EarlierState {
    /// Whether everything has been read.
    pub is_complete: bool,
    /// Number of contacts restored.
    pub loaded: u64,
    /// Number of addresses that had expired.
    pub expired: u64,
    /// Number of unreadable records and rows.
    pub skipped: u64,
    /// Damage found in the journal.
    pub damage: Vec<String>,
    /// Time taken, in seconds.
    pub took_s: f64,
}

/// An event of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackupEvent {
    /// Progress of the backup.
    Progress {
        /// Database pages copied; 0 while the journal is merged into the database.
        done: u64,
        /// Total number of pages.
        of: u64,
    },
    /// The backup is complete and synced.
    Done(BackupReport),
}

/// Contents of a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BackupReport {
    /// Number of users.
    pub users: u64,
    /// Number of aliases.
    pub aliases: u64,
    /// Number of gateways.
    #[serde(default)]
    pub gateways: u64,
    /// Number of addresses with registrations.
    pub addresses: u64,
    /// Number of unreadable rows, which are not in the backup.
    pub damaged: u64,
    /// Size of the file, in bytes.
    pub bytes: u64,
    /// Whether the backup has the server's key.
    pub key: bool,
}

/// A trunk that the server registers with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Trunk {
    /// Name in the configuration.
    pub name: String,
    /// `registering`, `registered`, `failing`, `refused`, `leaving` or `stopped`.
    pub state: String,
    /// Seconds in this state.
    pub since_s: f64,
    /// Seconds until the registration expires, also while refreshing fails; none if not registered.
    pub expires_s: Option<f64>,
    /// Status of the last final response to the latest request; none if there was none.
    pub last_answer: Option<u16>,
    /// Seconds until the next request; none while one is pending.
    pub next_try_s: Option<f64>,
}

/// A list of registrations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Registrations {
    /// Contacts, up to the limit.
    pub registrations: Vec<Registration>,
    /// Whether there are more.
    pub more: bool,
}

/// A registered contact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Registration {
    /// The address of record.
    pub aor: String,
    /// Contact URI as sent by the peer, with control characters escaped.
    pub contact: String,
    /// Seconds until it expires.
    pub expires_s: u64,
    /// Address that its REGISTER came from: on a connection that is open, the connection's far end.
    #[schema(value_type = String)]
    pub source: SocketAddr,
    /// Transport of its REGISTER; empty from a server that does not report it.
    #[serde(default)]
    pub transport: String,
    /// Preference, from 0 to 1.
    pub q: f64,
    /// Member that received its last REGISTER, if members share registrations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<u16>,
}

/// A list of calls in progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Calls {
    /// Calls, the oldest first, up to the limit.
    pub calls: Vec<Call>,
    /// Whether there are more.
    pub more: bool,
}

/// A call in progress. Texts come from peers, with control characters escaped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Call {
    /// `trying`, `ringing`, `challenged` or `answered`.
    pub state: String,
    /// Seconds since its INVITE arrived.
    pub age_s: f64,
    /// Seconds since it was answered.
    pub answered_s: Option<f64>,
    /// URI of From.
    pub caller: String,
    /// Request-URI as sent by the caller.
    pub callee: String,
    /// Call-ID.
    pub call_id: String,
    /// Transport of the INVITE.
    pub transport: String,
    /// Source address of the INVITE.
    #[schema(value_type = String)]
    pub source: SocketAddr,
    /// Address that the answer came from.
    #[schema(value_type = Option<String>)]
    pub target: Option<SocketAddr>,
    /// Transport of the answer; none before it, and from a server that does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_transport: Option<String>,
}

/// An event of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceEvent {
    /// The trace has started.
    Started,
    /// A matching message.
    Message(Box<TracedMessage>),
    /// Number of messages lost because the client read too slowly.
    Lost(u64),
    /// A limit of the trace is reached.
    Ended,
}

/// A traced message. Texts come from peers, with control characters escaped; credentials and media keys are masked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TracedMessage {
    /// Time in UTC (RFC 3339).
    pub time: String,
    /// The same in nanoseconds since 1970-01-01 UTC; 0 from a server that does not tell it.
    #[serde(default)]
    pub unix_ns: u64,
    /// Microseconds since the server started, on a monotonic clock.
    pub at_us: u64,
    /// Whether the server sent it; otherwise it was received.
    pub sent: bool,
    /// The transport, as in Via.
    pub transport: String,
    /// Local listening address.
    pub local: String,
    /// Remote address.
    #[schema(value_type = String)]
    pub peer: SocketAddr,
    /// First line.
    pub start: String,
    /// CSeq.
    pub cseq: String,
    /// Call-ID.
    pub call_id: String,
    /// Length in bytes.
    pub length: usize,
    /// Lines of the message, if requested, up to the stored length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<Vec<String>>,
    /// The message in base64url without padding (RFC 4648 §5), if its bytes were requested, up to the stored length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<String>,
    /// Number of bytes that are not stored.
    #[serde(default)]
    pub cut: usize,
}

/// Maximum number of contacts or calls in one response.
pub const MAX_LISTED: usize = 10_000;
