//! Status and counters of the workers.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use strowger_foundation::{ShardId, Timestamp};
use strowger_net as net;

use crate::panics::PanicReport;
use crate::shard_factory::StateMachine;
use crate::transport_counters::TransportCounters;
use strowger_shard as shard;

/// Totals of one worker since it started, excluding those of sockets and shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Empty datagrams and those of line ends only: keep-alives of peers behind a NAT. Those with a double CRLF were
    /// answered (RFC 5626 §3.5.1).
    pub keep_alives: u64,
    /// Binding requests of STUN (RFC 5626 §4.4.2), which were answered.
    pub stun_answered: u64,
    /// Datagrams of STUN that are no Binding requests, or malformed ones; dropped.
    pub stun_ignored: u64,
    /// Datagrams dropped because they are not SIP.
    pub malformed: u64,
    /// Datagrams dropped unread because their source is banned.
    pub banned: u64,
    /// Messages dropped because no shard owns them: responses to requests that were not sent by this server.
    pub foreign_responses: u64,
    /// Messages handed over to another worker.
    pub handover_sent: u64,
    /// Messages received from other workers.
    pub handover_received: u64,
    /// Messages dropped because [`HANDOVER_QUEUE`](crate::HANDOVER_QUEUE) others were waiting for the same worker, or
    /// because [`MAX_HELD_MESSAGES`](crate::MAX_HELD_MESSAGES) others, or [`MAX_HELD_BYTES`](crate::MAX_HELD_BYTES)
    /// of them, were held there for shards in transit.
    pub handover_drops: u64,
    /// Inputs held for shards in transit to this worker.
    pub held_for_rebalance: u64,
    /// Inputs for shards that had left, forwarded to their new worker.
    pub forwarded_after_rebalance: u64,
    /// Messages dropped because a shard sent them from a listener that does not exist. Indicates a bug in the server.
    pub misdirected: u64,
    /// Log events dropped because the queue was full.
    pub event_drops: u64,
    /// Call records among `event_drops`.
    pub record_drops: u64,
    /// Failed receive calls.
    pub receive_errors: u64,
    /// Commands to media engines that could not be sent.
    pub media_send_errors: u64,
    /// Answers of media engines dropped because too many waited for a worker.
    pub media_drops: u64,
    /// Messages passed to a process before this one, which has their transaction.
    pub relayed: u64,
    /// Messages received by the process after this one for a transaction of this one.
    pub relay_received: u64,
    /// Messages for a transaction of another process, dropped because too many waited.
    pub relay_drops: u64,
    /// New work that overload control dropped without a response after receiving it.
    pub shed: u64,
    /// Contained panics.
    pub panics: u64,
}

/// State of a worker's overload control. Over several workers, shares and waits are maxima; counts and rates are
/// sums.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OverloadStatus {
    /// Whether overload control is enabled.
    pub is_on: bool,
    /// Number of workers that refuse new work.
    pub limiting: usize,
    /// Share of new calls that is refused or dropped, in thousandths, including drops by the kernel.
    pub shed_permille: u16,
    /// New work admitted per second while a worker is limiting.
    pub admitted_per_s: u32,
    /// Recent shortest wait of new work, which is the standing delay of the queue.
    pub wait: Duration,
    /// Datagram sockets for which the kernel separates new work.
    pub sorted_by_kernel: usize,
    /// Workers for which the kernel drops new work.
    pub filtered_by_kernel: usize,
}

impl OverloadStatus {
    fn add(&mut self, other: &Self) {
        self.is_on |= other.is_on;
        self.limiting += other.limiting;
        self.shed_permille = self.shed_permille.max(other.shed_permille);
        self.admitted_per_s += other.admitted_per_s;
        self.wait = self.wait.max(other.wait);
        self.sorted_by_kernel += other.sorted_by_kernel;
        self.filtered_by_kernel += other.filtered_by_kernel;
    }
}

impl Counters {
    /// Adds all values of `other`.
    pub fn add(&mut self, other: &Self) {
        let Self {
            keep_alives,
            stun_answered,
            stun_ignored,
            malformed,
            banned,
            foreign_responses,
            handover_sent,
            handover_received,
            handover_drops,
            held_for_rebalance,
            forwarded_after_rebalance,
            misdirected,
            event_drops,
            record_drops,
            receive_errors,
            media_send_errors,
            media_drops,
            relayed,
            relay_received,
            relay_drops,
            shed,
            panics,
        } = other;
        self.keep_alives += keep_alives;
        self.stun_answered += stun_answered;
        self.stun_ignored += stun_ignored;
        self.malformed += malformed;
        self.banned += banned;
        self.foreign_responses += foreign_responses;
        self.handover_sent += handover_sent;
        self.handover_received += handover_received;
        self.handover_drops += handover_drops;
        self.held_for_rebalance += held_for_rebalance;
        self.forwarded_after_rebalance += forwarded_after_rebalance;
        self.misdirected += misdirected;
        self.event_drops += event_drops;
        self.record_drops += record_drops;
        self.receive_errors += receive_errors;
        self.media_send_errors += media_send_errors;
        self.media_drops += media_drops;
        self.relayed += relayed;
        self.relay_received += relay_received;
        self.relay_drops += relay_drops;
        self.shed += shed;
        self.panics += panics;
    }
}

macro_rules! stream_counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Totals of one worker's connections since it started.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct StreamCounters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl StreamCounters {
            /// Adds all values of `other`.
            pub const fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
            }

            /// Returns names and values in order of declaration.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

stream_counters! {
    /// Connections accepted.
    accepted,
    /// Outgoing connections started.
    opened,
    /// Connections closed at once or not opened because the total limit was reached.
    refused_total,
    /// Connections closed at once because the limit of their source was reached.
    refused_source,
    /// Connections closed at once because the limit of their transport was reached.
    refused_transport,
    /// Connections closed because their source is banned.
    refused_banned,
    /// Times that no connection could be accepted for lack of descriptors or memory.
    accept_errors,
    /// Connections that could not be opened: refused, unreachable, or out of descriptors.
    connect_failures,
    /// Connections that could not be opened in time.
    connect_timeouts,
    /// Connections of balancers whose PROXY header was read.
    proxied,
    /// Connections of balancers without a PROXY header, or with one that took too long.
    proxy_header_failures,
    /// TCP connections of balancers closed at once because too many PROXY headers and handshakes were awaited.
    proxy_refused_total,
    /// TCP connections of balancers closed because too many PROXY headers and handshakes of their client were awaited.
    proxy_refused_source,
    /// Handshakes of secure connections that succeeded, in both directions.
    tls_handshakes,
    /// Of these, those that continued an earlier session.
    tls_resumed,
    /// Handshakes that failed.
    tls_failures,
    /// Handshakes of peers that took too long.
    tls_timeouts,
    /// Connections closed at once because too many handshakes were in progress.
    tls_refused_total,
    /// Connections closed at once because their source had too many handshakes in progress.
    tls_refused_source,
    /// WebSockets opened.
    ws_opened,
    /// Requests for a WebSocket that were refused.
    ws_refused,
    /// Requests for a WebSocket that took too long.
    ws_timeouts,
    /// WebSockets closed because a ping was not answered.
    ws_unanswered,
    /// WebSockets closed at once because too many upgrades and handshakes were in progress.
    ws_refused_total,
    /// WebSockets closed at once because their source had too many upgrades and handshakes in progress.
    ws_refused_source,
    /// Connections closed by the peer.
    closed_by_peer,
    /// Connections that broke or whose peer stopped acknowledging.
    closed_broken,
    /// Connections closed after the idle limit.
    closed_idle,
    /// Connections closed because a message took too long.
    closed_slow,
    /// Connections closed because the input was not SIP or could not be delimited.
    closed_malformed,
    /// Connections closed because their send queue was full.
    send_overflow,
    /// Connections closed because all connections together buffered or queued too much.
    closed_memory,
    /// Times that reading was paused on a connection because it brought far more new work than could be served.
    overload_pauses,
    /// Messages received.
    messages_in,
    /// Messages sent or queued for sending.
    messages_out,
    /// Keep-alives (RFC 5626 §4.4.1) answered.
    pings,
    /// Bytes received.
    bytes_in,
    /// Bytes accepted by the kernel.
    bytes_out,
    /// Times that reading of a connection stalled because another worker had no room for its message.
    handover_pauses,
    /// Messages for a connection of another worker that were lost because too many were waiting; their shard was
    /// notified.
    handover_overflow,
    /// Notifications to shards that a flow could not be reached.
    failure_notices,
    /// DNS queries not sent because too many were pending.
    dns_refused,
}

/// Status of one worker, or the sum of all.
#[derive(Clone, Debug, Default)]
pub struct WorkerStatus {
    /// Counters of the event loop.
    pub worker: Counters,
    /// Sum over its sockets.
    pub net: net::Counters,
    /// Counters of its connections.
    pub streams: StreamCounters,
    /// The same by transport.
    pub transports: TransportCounters,
    /// Existing connections, including those being opened.
    pub connections: usize,
    /// Sum over its shards, including those that panicked.
    pub shard: shard::Counters,
    /// Existing transactions.
    pub transactions: usize,
    /// Forwarded requests without a final response.
    pub unanswered: usize,
    /// Datagrams waiting because a socket's send buffer is full, plus connections with waiting output.
    pub unsent: usize,
    /// Version of its shards' snapshot: the number of earlier publications.
    pub version: u64,
    /// Number of its shards.
    pub shards: usize,
    /// Recent share of time spent working.
    pub load: f64,
    /// State of its overload control.
    pub overload: OverloadStatus,
}

impl WorkerStatus {
    /// Adds `other`; the version becomes the lower of the two.
    pub fn add(&mut self, other: &Self) {
        self.worker.add(&other.worker);
        add_net(&mut self.net, &other.net);
        self.streams.add(&other.streams);
        self.transports.add(&other.transports);
        self.connections += other.connections;
        self.shard.add(&other.shard);
        self.transactions += other.transactions;
        self.unanswered += other.unanswered;
        self.unsent += other.unsent;
        self.version = self.version.min(other.version);
        self.shards += other.shards;
        self.load += other.load;
        self.overload.add(&other.overload);
    }
}

/// Recent load of a shard, in messages and timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) shard: ShardId,
    pub(crate) messages: u32,
}

/// Contribution of a shard to the status of its worker.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShardTotals {
    shard: shard::Counters,
    transactions: usize,
    unanswered: usize,
}

impl ShardTotals {
    pub(crate) fn of(machine: &impl StateMachine) -> Self {
        Self { shard: machine.counters(), transactions: machine.transactions(), unanswered: machine.unanswered() }
    }

    /// Adds the contribution to a sum.
    pub(crate) fn add_to(&self, sum: &mut WorkerStatus) {
        sum.shard.add(&self.shard);
        sum.transactions += self.transactions;
        sum.unanswered += self.unanswered;
        sum.shards += 1;
    }
}

/// State of all workers, each at most 100 ms old, or slightly more on a very busy worker.
#[derive(Clone, Debug)]
pub struct FleetStatus {
    /// Status by worker.
    pub workers: Vec<WorkerStatus>,
    /// Sum over the workers.
    pub total: WorkerStatus,
    /// Number of registered contacts.
    pub registrations: usize,
    /// The latest contained panic.
    pub last_panic: Option<PanicReport>,
}

/// Adds all values of `other` to `sum`.
pub(crate) fn add_net(sum: &mut net::Counters, other: &net::Counters) {
    let net::Counters {
        received,
        truncated,
        unaddressed,
        kernel_drops,
        sent,
        segmented,
        send_errors,
        no_buffers,
        send_blocked,
        send_overflow,
        icmp_errors,
    } = other;
    sum.received += received;
    sum.truncated += truncated;
    sum.unaddressed += unaddressed;
    sum.kernel_drops += kernel_drops;
    sum.sent += sent;
    sum.segmented += segmented;
    sum.send_errors += send_errors;
    sum.no_buffers += no_buffers;
    sum.send_blocked += send_blocked;
    sum.send_overflow += send_overflow;
    sum.icmp_errors += icmp_errors;
}

/// Cell in which a worker publishes its status.
#[derive(Debug, Default)]
pub(crate) struct StatusCell {
    status: Mutex<(Timestamp, WorkerStatus)>,
}

/// Time without a published status after which a worker counts as idle.
const IDLE_AFTER: Duration = Duration::from_millis(500);

impl StatusCell {
    pub(crate) fn publish(&self, now: Timestamp, status: WorkerStatus) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = (now, status);
    }

    pub(crate) fn read(&self, now: Timestamp) -> WorkerStatus {
        let (posted, mut status) = self.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if now > posted + IDLE_AFTER {
            status.load = 0.0;
        }
        status
    }
}
