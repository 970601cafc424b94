//! The thread that makes spans of calls.
//!
//! It reads copies of the messages of call setups, which the workers put into a bounded queue, and the records of ended
//! calls.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use strowger_calls::CallRecord;
use strowger_message::Head;
use strowger_net::{Clock, ClockPair};
use strowger_worker::{CallSample, Direction, SAMPLE_QUEUE, Trace, TraceRecord, TraceStop};

use crate::call_spans::{CallSpans, RecordTimes};
use crate::http_client::HttpTarget;
use crate::otlp::Resource;
use crate::otlp_counts::OtlpShared;
use crate::setup_message::SetupMessage;
use crate::span_sender::SpanSender;

/// Maximum number of records waiting for the thread.
const RECORDS: usize = 8192;
/// Interval at which an idle thread looks for records.
const TICK: Duration = Duration::from_millis(100);
/// Time to collect messages. Waking the thread for each message would take CPU time from the workers.
const GATHERED_FOR: Duration = Duration::from_millis(20);
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
    records: Option<SyncSender<Arc<CallRecord>>>,
    shared: Arc<OtlpShared>,
    is_stopping: Arc<AtomicBool>,
    trace: TraceStop,
    thread: Option<JoinHandle<()>>,
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
        shared: Arc<OtlpShared>,
    ) -> io::Result<Self> {
        let OtlpConfig { target, resource, sample, has_users } = config;
        let sender = SpanSender::start(target, resource, Arc::clone(&shared))?;
        let (records, received) = mpsc::sync_channel(RECORDS);
        let (is_stopping, stop) = (Arc::new(AtomicBool::new(false)), trace.stop());
        let maker = Maker {
            trace,
            records: received,
            waiting: VecDeque::new(),
            calls: CallSpans::new(seed, has_users),
            sender,
            clock,
            shared: Arc::clone(&shared),
            is_stopping: Arc::clone(&is_stopping),
        };
        let thread = thread::Builder::new().name("spans".to_owned()).spawn(move || maker.run())?;
        Ok(Self { sample, records: Some(records), shared, is_stopping, trace: stop, thread: Some(thread) })
    }

    /// Queues the record of a call. Never blocks.
    pub fn end_call(&self, record: &Arc<CallRecord>) {
        if self.sample.includes(record.call_id())
            && let Some(records) = &self.records
            && records.try_send(Arc::clone(record)).is_err()
        {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends without waiting for the threads, which send what waits.
    pub fn detach(mut self) {
        self.thread = None;
    }
}

impl Drop for OtlpExporter {
    fn drop(&mut self) {
        self.trace.stop();
        self.records = None;
        self.is_stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// State of the thread.
struct Maker {
    trace: Trace,
    records: Receiver<Arc<CallRecord>>,
    /// Records and when they came.
    waiting: VecDeque<(Instant, Arc<CallRecord>)>,
    calls: CallSpans,
    sender: SpanSender,
    clock: Clock,
    shared: Arc<OtlpShared>,
    is_stopping: Arc<AtomicBool>,
}

impl Maker {
    fn run(mut self) {
        let mut swept = Instant::now();
        loop {
            let is_last = self.is_stopping.load(Ordering::Relaxed);
            if let Some(first) = self.trace.poll(if is_last { Duration::ZERO } else { TICK }) {
                if !is_last {
                    thread::sleep(GATHERED_FOR);
                }
                let times = self.clock.pair();
                self.on_message(&first, &times);
                for _ in 0..SAMPLE_QUEUE {
                    let Some(next) = self.trace.poll(Duration::ZERO) else { break };
                    self.on_message(&next, &times);
                }
            }
            self.read_records(is_last);
            if swept.elapsed() >= SWEPT_EVERY {
                swept = Instant::now();
                self.calls.handle_timeout(self.clock.pair().real.0);
            }
            while let Some(span) = self.calls.poll_span() {
                self.sender.send(span);
            }
            let lost = self.trace.poll_lost().saturating_add(self.calls.poll_forgotten());
            self.shared.dropped.fetch_add(lost, Ordering::Relaxed);
            if is_last {
                return;
            }
        }
    }

    fn on_message(&mut self, record: &TraceRecord, times: &ClockPair) {
        let when = (times.real_time(record.at).0, record.direction == Direction::Sent);
        let Ok(head) = Head::scan(&record.bytes) else { return };
        if let Some(message) = SetupMessage::read(when, (record.transport, record.peer), &head) {
            self.calls.handle_message(&message);
        }
    }

    fn read_records(&mut self, is_last: bool) {
        let now = Instant::now();
        while self.waiting.len() < RECORDS {
            let Ok(record) = self.records.try_recv() else { break };
            self.waiting.push_back((now, record));
        }
        let pair = self.clock.pair();
        while let Some((came, _)) = self.waiting.front()
            && (is_last || now.duration_since(*came) >= RECORD_WAITS)
        {
            let Some((_, record)) = self.waiting.pop_front() else { break };
            self.calls.handle_record(&record, real_times(&record, &pair));
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
