//! Protocol of the control socket: a request and its response, each one JSON object on one line. A
//! [trace](Request::Trace), a [measurement](Request::Timing) and a [backup](Request::Backup) are answered by several
//! lines.

mod backup;
mod bans;
mod calls;
mod change;
mod clusters;
mod ended_calls;
mod failures;
mod members;
mod registrations;
mod reload;
mod status;
mod store;
mod targets;
mod timing;
mod trace;
mod upgrade;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub use backup::{BackupEvent, BackupReport, BackupRequest};
pub use bans::{Ban, Bans, NewBan};
pub use calls::{Call, CallSetup, Calls, DestinationSetup, SetupTimes};
pub use change::Change;
pub use clusters::{ClusterShare, Clusters, Share, WeightProposal};
pub use ended_calls::{EndedCall, EndedCalls};
pub use failures::{Failure, Failures};
pub use members::{Cluster, Member, Peer};
pub use registrations::{Registration, Registrations};
pub use reload::{ConfigChange, KeyChange, Reloaded};
pub use status::{Certificate, Counters, Database, MediaEngine, Outage, Overload, Status, Trunk, WorkerLoad};
pub use store::{Checkpoint, Disk, EarlierState, Store};
pub use targets::{Balancer, ChangedTarget, NewTarget, Target, Targets};
pub use timing::{TimingRequest, TimingUpdate};
pub use trace::{TraceEvent, TraceFilter, TraceRequest, TracedMessage};
pub use upgrade::{Predecessor, Takeover, UpgradePhase, UpgradeReport, UpgradeRequest};

/// Maximum number of contacts or calls in one response.
pub const MAX_LISTED: usize = 10_000;

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
    /// Lists the records of the latest calls that have ended.
    EndedCalls {
        /// Lists only calls from or to this user, given as a name or an address.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
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
    /// Hands over to another process of the same or another version.
    Upgrade(UpgradeRequest),
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
    /// Lists who has failed to log in recently.
    Failures {
        /// Maximum number of entries.
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
    /// Response to [`Request::EndedCalls`].
    EndedCalls(EndedCalls),
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
    /// Response to [`Request::Upgrade`]: the other process serves.
    Upgraded(UpgradeReport),
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
    /// Response to [`Request::Failures`].
    Failures(Failures),
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
