//! The thread that sends copies of messages to a collector of HEP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use strowger_message::{Head, HeaderName};
use strowger_net::{Clock, ClockPair};
use strowger_worker::{Direction, Trace, TraceRecord};

use crate::collector::{Collector, CollectorTransport, Delivery};
use crate::hep::HepSource;
use crate::message::CapturedMessage;
use crate::trace_thread::{TraceReader, TraceThread};

/// Interval at which an idle thread checks whether it should end.
const TICK: Duration = Duration::from_millis(250);

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
pub struct HepCounters {
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

impl HepCounters {
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
    thread: TraceThread,
}

impl HepExporter {
    /// Starts the thread, which reads from `trace`.
    ///
    /// # Errors
    /// When there is no thread.
    pub fn start(config: HepConfig, trace: Trace, clock: Clock, counters: Arc<HepCounters>) -> io::Result<Self> {
        let collector = Collector::new(config.transport, config.place.clone());
        let sender = Sender { config, collector, counters, packet: Vec::new() };
        let thread = TraceThread::start("hep", trace, clock, |reader| sender.run(reader))?;
        Ok(Self { thread })
    }

    /// Ends without waiting for the thread, which sends what waits.
    pub fn detach(self) {
        self.thread.detach();
    }
}

/// State of the thread.
struct Sender {
    config: HepConfig,
    collector: Collector,
    counters: Arc<HepCounters>,
    /// Reused for each packet.
    packet: Vec<u8>,
}

impl Sender {
    fn run(mut self, mut reader: TraceReader) {
        while !reader.is_last() {
            if reader.read_batch(TICK, |record, clocks| self.send(record, clocks)) {
                self.counters.add(self.collector.flush());
            }
            self.counters.dropped.fetch_add(reader.poll_lost(), Ordering::Relaxed);
        }
    }

    fn send(&mut self, record: &TraceRecord, clocks: &ClockPair) {
        let local = self.config.listeners.get(usize::from(record.listener.0));
        let head = Head::scan(&record.bytes).ok();
        let call_id = head.as_ref().and_then(|head| head.first(HeaderName::CallId));
        let (Some(local), Some(call_id)) = (local, call_id) else {
            return self.counters.add(Delivery { sent: 0, failed: 1 });
        };
        let message = CapturedMessage {
            unix_ns: clocks.real_time(record.at).0,
            is_sent: record.direction == Direction::Sent,
            transport: record.transport,
            local: *local,
            peer: record.peer,
            bytes: &record.bytes,
            cut: record.cut(),
        };
        self.packet.clear();
        self.config.source.encode(&message, call_id, &mut self.packet);
        self.counters.add(self.collector.send(&self.packet));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::Read as _;
    use std::net::{Ipv4Addr, TcpListener, UdpSocket};
    use std::thread;
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
        counters: Arc<HepCounters>,
        exporter: Option<HepExporter>,
    }

    impl Running {
        fn start(config: HepConfig) -> Self {
            let (tracer, counters) = (Arc::<Tracer>::default(), Arc::<HepCounters>::default());
            let trace = tracer.start(TraceFilter::Sample(CallSample::new(1.0))).expect("always a place");
            let exporter = HepExporter::start(config, trace, Clock::start(), Arc::clone(&counters)).expect("a thread");
            Self { tracer, counters, exporter: Some(exporter) }
        }

        fn say(&self, call_id: &str) {
            let flow = Flow::new(ListenerId(0), Transport::Udp, "192.0.2.2:5060".parse().expect("an address"));
            let text = format!("BYE sip:a SIP/2.0\r\nCall-ID: {call_id}\r\n\r\n");
            self.tracer.received(Timestamp::ZERO, &flow, text.as_bytes());
        }

        fn until(&self, what: &str, is_so: impl Fn(HepCounts) -> bool) {
            let deadline = Instant::now() + PATIENCE;
            while !is_so(self.counters.counts()) {
                assert!(Instant::now() < deadline, "not in time: {what}: {:?}", self.counters.counts());
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
        assert_eq!(running.counters.counts(), HepCounts { sent: 3, dropped: 0, failed: 0 });
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
        while running.counters.counts().dropped == 0 && running.counters.counts().failed == 0 {
            let begin = Instant::now();
            running.say(&"x".repeat(8000));
            assert!(begin.elapsed() < Duration::from_secs(1), "a worker never waits");
            assert!(Instant::now() < deadline, "{:?}", running.counters.counts());
        }
        let begin = Instant::now();
        drop(running);
        assert!(begin.elapsed() < Duration::from_secs(10), "nor does the end");
    }
}
