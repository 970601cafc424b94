//! The thread that makes spans of calls.
//!
//! It reads copies of the messages of call setups, which the workers put into a bounded queue, and the records of ended
//! calls.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::{Duration, Instant};

use strowger_calls::CallRecord;
use strowger_message::Head;
use strowger_net::{Clock, ClockPair};
use strowger_worker::{CallSample, Direction, Trace, TraceRecord};

use crate::call_spans::{CallSpans, RecordTimes};
use crate::http_client::HttpTarget;
use crate::otlp::Resource;
use crate::otlp_counts::OtlpCounters;
use crate::setup_message::SetupMessage;
use crate::span_sender::SpanSender;
use crate::trace_thread::{TraceReader, TraceThread};

/// Maximum number of records waiting for the thread.
const RECORDS: usize = 8192;
/// Interval at which an idle thread looks for records.
const TICK: Duration = Duration::from_millis(100);
/// Time for which a record waits, so that the messages before the end of its call have been read.
const RECORD_WAITS: Duration = Duration::from_millis(200);
/// Interval at which setups without an answer are looked for.
const SWEPT_EVERY: Duration = Duration::from_secs(5);

/// Where spans go, and what is in them.
#[derive(Clone, Debug, PartialEq)]
pub struct OtlpConfig {
    /// The collector.
    pub target: HttpTarget,
    /// What all spans have in common.
    pub resource: Resource,
    /// The calls to trace.
    pub sample: CallSample,
    /// Whether spans name users.
    pub has_users: bool,
}

/// Makes and sends spans until it is dropped. Dropping it tries once to send what waits.
#[derive(Debug)]
pub struct OtlpExporter {
    sample: CallSample,
    records: SyncSender<Arc<CallRecord>>,
    counters: Arc<OtlpCounters>,
    thread: TraceThread,
}

impl OtlpExporter {
    /// Starts the threads. `trace` has the messages of call setups; `seed` keeps the ids of this server's spans apart
    /// from those of others.
    ///
    /// # Errors
    /// When there is no thread.
    pub fn start(
        config: OtlpConfig,
        trace: Trace,
        clock: Clock,
        seed: [u8; 16],
        counters: Arc<OtlpCounters>,
    ) -> io::Result<Self> {
        let OtlpConfig { target, resource, sample, has_users } = config;
        let sender = SpanSender::start(target, resource, Arc::clone(&counters))?;
        let (records, received) = mpsc::sync_channel(RECORDS);
        let maker = SpanMaker {
            records: received,
            waiting: VecDeque::new(),
            calls: CallSpans::new(seed, has_users),
            sender,
            counters: Arc::clone(&counters),
        };
        let thread = TraceThread::start("spans", trace, clock, |reader| maker.run(reader))?;
        Ok(Self { sample, records, counters, thread })
    }

    /// Queues the record of a call. Never blocks.
    pub fn end_call(&self, record: &Arc<CallRecord>) {
        if self.sample.includes(record.call_id()) && self.records.try_send(Arc::clone(record)).is_err() {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends without waiting for the threads, which send what waits.
    pub fn detach(self) {
        self.thread.detach();
    }
}

/// State of the thread.
struct SpanMaker {
    records: Receiver<Arc<CallRecord>>,
    /// Records and when they came.
    waiting: VecDeque<(Instant, Arc<CallRecord>)>,
    calls: CallSpans,
    sender: SpanSender,
    counters: Arc<OtlpCounters>,
}

impl SpanMaker {
    fn run(mut self, mut reader: TraceReader) {
        let mut swept = Instant::now();
        while !reader.is_last() {
            reader.read_batch(TICK, |record, clocks| self.on_message(record, clocks));
            let clocks = reader.clocks();
            self.read_records(reader.is_last(), &clocks);
            if swept.elapsed() >= SWEPT_EVERY {
                swept = Instant::now();
                self.calls.handle_timeout(clocks.real.0);
            }
            while let Some(span) = self.calls.poll_span() {
                self.sender.send(span);
            }
            let lost = reader.poll_lost().saturating_add(self.calls.poll_forgotten());
            self.counters.dropped.fetch_add(lost, Ordering::Relaxed);
        }
    }

    fn on_message(&mut self, record: &TraceRecord, clocks: &ClockPair) {
        let when = (clocks.real_time(record.at).0, record.direction == Direction::Sent);
        let Ok(head) = Head::scan(&record.bytes) else { return };
        if let Some(message) = SetupMessage::read(when, (record.transport, record.peer), &head) {
            self.calls.handle_message(&message);
        }
    }

    fn read_records(&mut self, is_last: bool, clocks: &ClockPair) {
        let now = Instant::now();
        while self.waiting.len() < RECORDS {
            let Ok(record) = self.records.try_recv() else { break };
            self.waiting.push_back((now, record));
        }
        while let Some((came, _)) = self.waiting.front()
            && (is_last || now.duration_since(*came) >= RECORD_WAITS)
        {
            let Some((_, record)) = self.waiting.pop_front() else { break };
            self.calls.handle_record(&record, real_times(&record, clocks));
        }
    }
}

fn real_times(record: &CallRecord, now: &ClockPair) -> RecordTimes {
    RecordTimes {
        began_ns: now.real_time(record.began).0,
        answered_ns: record.answered.map(|at| now.real_time(at).0),
        ended_ns: now.real_time(record.ended).0,
    }
}
