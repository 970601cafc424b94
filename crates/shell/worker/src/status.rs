//! What the workers have counted.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use strowger_foundation::{ShardId, Timestamp};
use strowger_net as net;

use crate::panics::PanicReport;
use crate::shard_factory::StateMachine;
use strowger_shard as shard;

/// Totals of one worker since it started, for what is neither a socket's nor a shard's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams of nothing but line ends, and empty ones: keep-alives of peers behind a NAT. A double CRLF among them was
    /// answered (RFC 5626 §3.5.1).
    pub keep_alives: u64,
    /// Datagrams that are no SIP message, dropped.
    pub malformed: u64,
    /// Messages that no shard owns, dropped: responses to what we did not send.
    pub unowned: u64,
    /// Messages given to another worker.
    pub handed_over: u64,
    /// Messages taken from other workers.
    pub taken_over: u64,
    /// Messages dropped because as many as there may be ([`HANDOVER_QUEUE`](crate::HANDOVER_QUEUE)) waited for the same
    /// worker, or because [`HELD`](crate::HELD) others, or [`HELD_BYTES`](crate::HELD_BYTES) of them, waited there for shards on their way.
    pub handover_drops: u64,
    /// What was held for shards that were on their way here.
    pub held: u64,
    /// What came for shards that had gone, and was passed on to where they are.
    pub passed_on: u64,
    /// Messages that a shard wanted to send from a listener that does not exist, dropped. Ours to mend.
    pub misdirected: u64,
    /// Events for the log that were dropped because its queue was full.
    pub event_drops: u64,
    /// Among them records of calls.
    pub record_drops: u64,
    /// Receive calls that failed.
    pub receive_errors: u64,
    /// New work that overload control dropped unanswered, after it was received.
    pub shed: u64,
    /// Panics that were contained.
    pub panics: u64,
}

/// How a worker's overload control stands; of all workers the most, but for what is admitted, which is summed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OverloadStatus {
    /// Whether there is any.
    pub is_on: bool,
    /// Workers that refuse new work now.
    pub limiting: usize,
    /// The share of new calls that is refused or dropped, in thousandths, what the kernel drops included.
    pub shed_permille: u16,
    /// New work that is served, a second, while a worker limits.
    pub admitted_per_s: u32,
    /// The shortest wait of new work of late: how long everything waits.
    pub wait: Duration,
    /// Sockets for datagrams of which the kernel keeps new work apart.
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
    /// Adds `other` to every number.
    pub fn add(&mut self, other: &Self) {
        let Self {
            keep_alives,
            malformed,
            unowned,
            handed_over,
            taken_over,
            handover_drops,
            held,
            passed_on,
            misdirected,
            event_drops,
            record_drops,
            receive_errors,
            shed,
            panics,
        } = other;
        self.keep_alives += keep_alives;
        self.malformed += malformed;
        self.unowned += unowned;
        self.handed_over += handed_over;
        self.taken_over += taken_over;
        self.handover_drops += handover_drops;
        self.held += held;
        self.passed_on += passed_on;
        self.misdirected += misdirected;
        self.event_drops += event_drops;
        self.record_drops += record_drops;
        self.receive_errors += receive_errors;
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
            /// Adds `other` to every number.
            pub const fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
            }

            /// Names and values, in the order of their declaration.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

stream_counters! {
    /// Connections that peers opened.
    accepted,
    /// Connections that we began to open.
    opened,
    /// Connections closed at once because there are as many as there may be, and ones not opened because of it.
    refused_total,
    /// Connections closed at once because there are as many as there may be from their source.
    refused_source,
    /// Times that no connection could be accepted, for lack of descriptors or memory.
    accept_errors,
    /// Connections that could not be opened: refused, unreachable, or no descriptor was left.
    unopened,
    /// Connections that could not be opened in time.
    connect_timeouts,
    /// Connections that the peer ended.
    closed_by_peer,
    /// Connections that broke, or whose peer did not acknowledge any more.
    closed_broken,
    /// Connections that were silent too long.
    closed_idle,
    /// Connections on which a message took too long.
    closed_slow,
    /// Connections that brought what is no SIP or has no end.
    closed_malformed,
    /// Connections whose send queue was full.
    send_overflow,
    /// Connections closed because all together kept or queued too much.
    closed_memory,
    /// Times that a connection was left unread, for it brought far more new work than could be served.
    left_unread,
    /// Messages that came in.
    messages_in,
    /// Messages that went out, or into a send queue.
    messages_out,
    /// Keep-alives (RFC 5626 §4.4.1) that were answered.
    pings,
    /// Bytes that came in.
    bytes_in,
    /// Bytes that the kernel took.
    bytes_out,
    /// Times that a connection was not read on because another worker had no room for its message.
    stalled,
    /// Messages for a connection of another worker that were lost, and reported to their shard, because too many waited.
    handover_overflow,
    /// Shards that were told that a flow could not be reached.
    unconnected,
    /// Questions to the DNS that were not asked because too many waited.
    questions_refused,
}

/// One worker, or the sum of all.
#[derive(Clone, Debug, Default)]
pub struct WorkerStatus {
    /// The loop's own numbers.
    pub worker: Counters,
    /// The sum over its sockets.
    pub net: net::Counters,
    /// Its connections.
    pub streams: StreamCounters,
    /// Connections that exist now, those that are being opened among them.
    pub connections: usize,
    /// The sum over its shards, those that panicked included.
    pub shard: shard::Counters,
    /// Transactions that exist now.
    pub transactions: usize,
    /// Forwarded requests that no final response has answered yet.
    pub unanswered: usize,
    /// Messages that wait to be sent because a socket's send buffer is full, and connections for which any waits.
    pub unsent: usize,
    /// The version of the snapshot that its shards have: how often one was published before.
    pub version: u64,
    /// The shards that it has.
    pub shards: usize,
    /// The share of its time that it was at work, as of late.
    pub load: f64,
    /// Its overload control.
    pub overload: OverloadStatus,
}

impl WorkerStatus {
    /// Adds `other`; the version becomes the older of both.
    pub fn add(&mut self, other: &Self) {
        self.worker.add(&other.worker);
        add_net(&mut self.net, &other.net);
        self.streams.add(&other.streams);
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

/// How much a shard had to do of late, in messages and timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) shard: ShardId,
    pub(crate) messages: u32,
}

/// What a shard adds to the status of whoever has it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShardTotals {
    shard: shard::Counters,
    transactions: usize,
    unanswered: usize,
}

impl ShardTotals {
    pub(crate) fn of(brain: &impl StateMachine) -> Self {
        Self { shard: brain.counters(), transactions: brain.transactions(), unanswered: brain.unanswered() }
    }

    /// Adds what moves to a sum.
    pub(crate) fn add_to(&self, sum: &mut WorkerStatus) {
        sum.shard.add(&self.shard);
        sum.transactions += self.transactions;
        sum.unanswered += self.unanswered;
        sum.shards += 1;
    }
}

/// The state of all workers, each as it was at most 100 ms ago, or a little more where a worker is very busy.
#[derive(Clone, Debug)]
pub struct FleetStatus {
    /// One for each worker.
    pub workers: Vec<WorkerStatus>,
    /// Their sum.
    pub total: WorkerStatus,
    /// Contacts that are registered.
    pub registrations: usize,
    /// The last panic that was contained.
    pub last_panic: Option<PanicReport>,
}

/// Adds `other` to every number of `sum`.
pub(crate) fn add_net(sum: &mut net::Counters, other: &net::Counters) {
    let net::Counters {
        received,
        truncated,
        unaddressed,
        kernel_drops,
        sent,
        segmented: joined,
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
    sum.segmented += joined;
    sum.send_errors += send_errors;
    sum.no_buffers += no_buffers;
    sum.send_blocked += send_blocked;
    sum.send_overflow += send_overflow;
    sum.icmp_errors += icmp_errors;
}

/// Where a worker leaves its status for whoever asks.
#[derive(Debug, Default)]
pub(crate) struct StatusCell {
    status: Mutex<(Timestamp, WorkerStatus)>,
}

/// A worker that has said nothing for so long has nothing to do.
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
