//! The thread that sends copies of messages to a collector of HEP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use strowger_message::{Head, HeaderName};
use strowger_net::{Clock, ClockPair};
use strowger_worker::{Direction, SAMPLE_QUEUE, Trace, TraceRecord, TraceStop};

use crate::collector::{Collector, CollectorTransport, Delivery};
use crate::hep::HepSource;
use crate::message::CapturedMessage;

/// Interval at which an idle thread checks whether it should end.
const TICK: Duration = Duration::from_millis(250);
/// Time to collect messages. Waking the thread for each message would take CPU time from the workers.
const GATHERED_FOR: Duration = Duration::from_millis(20);

/// Where messages go, and under which name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HepConfig {
    /// How the collector is reached.
    pub transport: CollectorTransport,
    /// Host and port of the collector.
    pub place: String,
    /// How this server is known to it.
    pub source: HepSource,
    /// Addresses of the listeners, by listener id.
    pub listeners: Vec<SocketAddr>,
}

/// Counts since the start of the server, which outlive an exporter.
#[derive(Debug, Default)]
pub struct HepShared {
    sent: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

/// Counts of messages since the start of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HepCounts {
    /// Messages sent.
    pub sent: u64,
    /// Messages lost because they came faster than they could be sent.
    pub dropped: u64,
    /// Messages lost because the collector did not take them.
    pub failed: u64,
}

impl HepShared {
    /// Returns the counts.
    #[must_use]
    pub fn counts(&self) -> HepCounts {
        HepCounts {
            sent: self.sent.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    fn add(&self, delivery: Delivery) {
        self.sent.fetch_add(delivery.sent, Ordering::Relaxed);
        self.failed.fetch_add(delivery.failed, Ordering::Relaxed);
    }
}

/// Sends copies of messages until it is dropped. Dropping it sends what waits and takes at most a few seconds.
#[derive(Debug)]
pub struct HepExporter {
    is_stopping: Arc<AtomicBool>,
    trace: TraceStop,
    thread: Option<JoinHandle<()>>,
}

impl HepExporter {
    /// Starts the thread, which reads from `trace`.
    ///
    /// # Errors
    /// When there is no thread.
    pub fn start(config: HepConfig, trace: Trace, clock: Clock, shared: Arc<HepShared>) -> io::Result<Self> {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let stop = trace.stop();
        let collector = Collector::new(config.transport, config.place.clone());
        let sender = Sender {
            config,
            trace,
            clock,
            collector,
            shared,
            packet: Vec::new(),
            is_stopping: Arc::clone(&is_stopping),
        };
        let thread = thread::Builder::new().name("hep".to_owned()).spawn(move || sender.run())?;
        Ok(Self { is_stopping, trace: stop, thread: Some(thread) })
    }

    /// Ends without waiting for the thread, which sends what waits.
    pub fn detach(mut self) {
        self.thread = None;
    }
}

impl Drop for HepExporter {
    fn drop(&mut self) {
        self.trace.stop();
        self.is_stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// State of the thread.
struct Sender {
    config: HepConfig,
    trace: Trace,
    clock: Clock,
    collector: Collector,
    shared: Arc<HepShared>,
    /// Reused for each packet.
    packet: Vec<u8>,
    is_stopping: Arc<AtomicBool>,
}

impl Sender {
    fn run(mut self) {
        loop {
            let is_last = self.is_stopping.load(Ordering::Relaxed);
            if let Some(first) = self.trace.poll(if is_last { Duration::ZERO } else { TICK }) {
                if !is_last {
                    thread::sleep(GATHERED_FOR);
                }
                // One pair for all of them, so that their times keep their order.
                let times = self.clock.pair();
                self.send(&first, &times);
                for _ in 0..SAMPLE_QUEUE {
                    let Some(next) = self.trace.poll(Duration::ZERO) else { break };
                    self.send(&next, &times);
                }
                self.shared.add(self.collector.flush());
            }
            self.shared.dropped.fetch_add(self.trace.poll_lost(), Ordering::Relaxed);
            if is_last {
                return;
            }
        }
    }

    fn send(&mut self, record: &TraceRecord, times: &ClockPair) {
        let local = self.config.listeners.get(usize::from(record.listener.0));
        let head = Head::scan(&record.bytes).ok();
        let call_id = head.as_ref().and_then(|head| head.first(HeaderName::CallId));
        let (Some(local), Some(call_id)) = (local, call_id) else {
            return self.shared.add(Delivery { sent: 0, failed: 1 });
        };
        let message = CapturedMessage {
            unix_ns: times.real_time(record.at).0,
            is_sent: record.direction == Direction::Sent,
            transport: record.transport,
            local: *local,
            peer: record.peer,
            bytes: &record.bytes,
            cut: record.cut(),
        };
        self.packet.clear();
        self.config.source.encode(&message, call_id, &mut self.packet);
        self.shared.add(self.collector.send(&self.packet));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::Read as _;
    use std::net::{Ipv4Addr, TcpListener, UdpSocket};
    use std::time::Instant;

    use strowger_foundation::{Flow, ListenerId, Timestamp, Transport};
    use strowger_worker::{CallSample, TraceFilter, Tracer};

    const PATIENCE: Duration = Duration::from_secs(20);

    fn config(transport: CollectorTransport, place: SocketAddr) -> HepConfig {
        HepConfig {
            transport,
            place: place.to_string(),
            source: HepSource { capture_id: 7, node: "here".to_owned(), auth_key: None },
            listeners: vec!["192.0.2.1:5060".parse().expect("an address")],
        }
    }

    struct Running {
        tracer: Arc<Tracer>,
        shared: Arc<HepShared>,
        exporter: Option<HepExporter>,
    }

    impl Running {
        fn start(config: HepConfig) -> Self {
            let (tracer, shared) = (Arc::<Tracer>::default(), Arc::<HepShared>::default());
            let trace = tracer.start(TraceFilter::Sample(CallSample::new(1.0))).expect("always a place");
            let exporter = HepExporter::start(config, trace, Clock::start(), Arc::clone(&shared)).expect("a thread");
            Self { tracer, shared, exporter: Some(exporter) }
        }

        fn say(&self, call_id: &str) {
            let flow = Flow::new(ListenerId(0), Transport::Udp, "192.0.2.2:5060".parse().expect("an address"));
            let text = format!("BYE sip:a SIP/2.0\r\nCall-ID: {call_id}\r\n\r\n");
            self.tracer.received(Timestamp::ZERO, &flow, text.as_bytes());
        }

        fn until(&self, what: &str, is_so: impl Fn(HepCounts) -> bool) {
            let deadline = Instant::now() + PATIENCE;
            while !is_so(self.shared.counts()) {
                assert!(Instant::now() < deadline, "not in time: {what}: {:?}", self.shared.counts());
                // The other thread gives no signal.
                thread::sleep(Duration::from_millis(5));
            }
        }
    }

    #[test]
    fn waiting_messages_are_sent_before_the_end() {
        let collector = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        collector.set_read_timeout(Some(PATIENCE)).expect("settable");
        let place = collector.local_addr().expect("bound");
        let mut running = Running::start(config(CollectorTransport::Udp, place));
        (0..3).for_each(|number| running.say(&format!("c{number}")));
        running.exporter = None;
        for number in 0..3 {
            let mut packet = [0; 2048];
            let length = collector.recv(&mut packet).expect("a packet");
            let text = format!("Call-ID: c{number}\r\n\r\n");
            assert!(packet[..length].starts_with(b"HEP3") && packet[..length].ends_with(text.as_bytes()));
        }
        assert_eq!(running.shared.counts(), HepCounts { sent: 3, dropped: 0, failed: 0 });
    }

    #[test]
    fn a_collector_that_comes_back_gets_messages_again() {
        let place = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port").local_addr().expect("bound");
        let running = Running::start(config(CollectorTransport::Tcp, place));
        running.say("lost");
        running.until("nobody listens", |counts| counts.failed == 1);
        let listener = TcpListener::bind(place).expect("the port is free again");
        running.until("it is connected", |counts| {
            running.say("again");
            counts.sent > 0
        });
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut packet = [0; 6];
        stream.read_exact(&mut packet).expect("a packet");
        assert_eq!(&packet[..4], b"HEP3");
    }

    #[test]
    fn a_collector_that_hangs_costs_messages_and_no_time_of_others() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let running = Running::start(config(CollectorTransport::Tcp, listener.local_addr().expect("bound")));
        // Nobody reads: the buffers of the connection fill, then the queue.
        let deadline = Instant::now() + PATIENCE;
        while running.shared.counts().dropped == 0 && running.shared.counts().failed == 0 {
            let begin = Instant::now();
            running.say(&"x".repeat(8000));
            assert!(begin.elapsed() < Duration::from_secs(1), "a worker never waits");
            assert!(Instant::now() < deadline, "{:?}", running.shared.counts());
        }
        let begin = Instant::now();
        drop(running);
        assert!(begin.elapsed() < Duration::from_secs(10), "nor does the end");
    }
}
