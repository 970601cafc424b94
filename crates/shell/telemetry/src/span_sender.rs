//! The thread that sends spans to a collector over OTLP/HTTP.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::body::Bytes;
use tokio::runtime::{self, Runtime};

use crate::http_client::{HttpClient, HttpTarget};
use crate::otlp::{Resource, decode_rejection, encode_request};
use crate::otlp_counts::OtlpCounters;
use crate::span::Span;

/// Maximum number of spans waiting for the collector.
const QUEUE: usize = 8192;
/// Maximum number of spans of a request.
const BATCH: usize = 512;
/// Time to collect spans for a request.
const GATHERED_FOR: Duration = Duration::from_secs(1);
/// Pauses before attempts after failures: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Interval at which a pause checks whether the thread should end.
const TICK: Duration = Duration::from_millis(100);

/// Handle of the thread. Dropping it tries once to send what waits.
#[derive(Debug)]
pub(crate) struct SpanSender {
    spans: Option<SyncSender<Span>>,
    is_stopping: Arc<AtomicBool>,
    counters: Arc<OtlpCounters>,
    thread: Option<JoinHandle<()>>,
}

impl SpanSender {
    /// Starts the thread.
    pub(crate) fn start(target: HttpTarget, resource: Resource, counters: Arc<OtlpCounters>) -> io::Result<Self> {
        // Names are resolved by another thread of the runtime.
        let runtime = runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build()?;
        let (spans, received) = mpsc::sync_channel(QUEUE);
        let is_stopping = Arc::new(AtomicBool::new(false));
        let client = HttpClient::new(target.clone(), format!("strowger/{}", resource.version));
        let sender = Sender {
            target,
            resource,
            client,
            runtime,
            counters: Arc::clone(&counters),
            is_stopping: Arc::clone(&is_stopping),
            pause: FIRST_PAUSE,
            is_failing: false,
            has_given_up: false,
        };
        let thread = thread::Builder::new().name("otlp".to_owned()).spawn(move || sender.run(&received))?;
        Ok(Self { spans: Some(spans), is_stopping, counters, thread: Some(thread) })
    }

    /// Queues a span. Never blocks.
    pub(crate) fn send(&self, span: Span) {
        if self.spans.as_ref().is_some_and(|spans| spans.try_send(span).is_err()) {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for SpanSender {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.spans = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// State of the thread.
struct Sender {
    target: HttpTarget,
    resource: Resource,
    client: HttpClient,
    runtime: Runtime,
    counters: Arc<OtlpCounters>,
    is_stopping: Arc<AtomicBool>,
    pause: Duration,
    is_failing: bool,
    /// Set after a failure while the thread should end.
    has_given_up: bool,
}

/// What to do after an attempt.
enum Outcome {
    Done,
    /// Try again after this time, or the usual pause.
    Again(Option<Duration>),
}

impl Sender {
    fn run(mut self, spans: &Receiver<Span>) {
        while let Some(batch) = next_batch(spans) {
            if self.has_given_up {
                self.count_failed(batch.len());
            } else {
                self.deliver(&batch);
            }
        }
        // A name that is being resolved must not delay the end.
        self.runtime.shutdown_background();
    }

    /// Sends a batch, again and again if necessary; once if the thread should end.
    fn deliver(&mut self, batch: &[Span]) {
        let body = Bytes::from(encode_request(&self.resource, batch));
        loop {
            let is_last = self.is_stopping.load(Ordering::Relaxed);
            match self.attempt(body.clone(), batch.len()) {
                Outcome::Done => return,
                Outcome::Again(_) if is_last => {
                    self.has_given_up = true;
                    return self.count_failed(batch.len());
                }
                Outcome::Again(pause) => {
                    self.wait(pause.map_or(self.pause, |pause| pause.min(LONGEST_PAUSE)));
                    self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    fn attempt(&mut self, body: Bytes, count: usize) -> Outcome {
        let response = match self.runtime.block_on(self.client.post("application/x-protobuf", body)) {
            Ok(response) => response,
            Err(why) => {
                self.tell_failure(&why);
                return Outcome::Again(None);
            }
        };
        if response.status.is_success() {
            let rejected = decode_rejection(&response.body);
            if let Some((rejected, why)) = &rejected {
                tracing::warn!("the OTLP collector rejected {rejected} spans: {why:?}");
            }
            let rejected = rejected.and_then(|(rejected, _)| usize::try_from(rejected).ok()).unwrap_or(0).min(count);
            self.counters.sent.fetch_add((count - rejected) as u64, Ordering::Relaxed);
            self.count_failed(rejected);
            self.pause = FIRST_PAUSE;
            if std::mem::take(&mut self.is_failing) {
                tracing::info!("spans are sent to the OTLP collector {} again", self.target.authority);
            }
            return Outcome::Done;
        }
        self.tell_failure(&format!("it answers {}", response.status));
        let can_retry = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::BAD_GATEWAY,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::GATEWAY_TIMEOUT,
        ];
        if can_retry.contains(&response.status) {
            return Outcome::Again(response.retry_after);
        }
        self.count_failed(count);
        Outcome::Done
    }

    fn count_failed(&self, spans: usize) {
        self.counters.failed.fetch_add(spans as u64, Ordering::Relaxed);
    }

    fn wait(&self, pause: Duration) {
        let end = Instant::now() + pause;
        while !self.is_stopping.load(Ordering::Relaxed) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(TICK));
        }
    }

    fn tell_failure(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_failing, true) {
            let HttpTarget { authority, path, .. } = &self.target;
            tracing::error!(
                "spans cannot be sent to the OTLP collector http://{authority}{path}: {why}; those that do not find room meanwhile are counted in otlp.dropped (trace.otlp.to)"
            );
        }
    }
}

/// Waits for spans and returns those that come within [`GATHERED_FOR`]; `None` once there are no more.
fn next_batch(spans: &Receiver<Span>) -> Option<Vec<Span>> {
    let mut batch = vec![spans.recv().ok()?];
    let end = Instant::now() + GATHERED_FOR;
    while batch.len() < BATCH {
        match spans.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(span) => batch.push(span),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    Some(batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use crate::otlp_counts::OtlpCounts;
    use crate::span::SpanKind;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn span() -> Span {
        Span {
            trace_id: [1; 16],
            span_id: [2; 8],
            parent_id: None,
            name: "call",
            kind: SpanKind::Server,
            start_ns: 1,
            end_ns: 2,
            attributes: Vec::new(),
            events: Vec::new(),
            is_error: false,
        }
    }

    struct Running {
        collector: TcpListener,
        sender: Option<SpanSender>,
        counters: Arc<OtlpCounters>,
    }

    impl Running {
        fn start() -> Self {
            let collector = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
            let authority = collector.local_addr().expect("bound").to_string();
            let headers = vec![(hyper::header::AUTHORIZATION, "Bearer secret".parse().expect("valid"))];
            let target = HttpTarget { authority, path: "/v1/traces".to_owned(), headers };
            let counters = Arc::<OtlpCounters>::default();
            let sender = SpanSender::start(target, Resource::default(), Arc::clone(&counters)).expect("a thread");
            Self { collector, sender: Some(sender), counters }
        }

        fn send(&self, count: usize) {
            (0..count).for_each(|_| self.sender.as_ref().expect("it runs").send(span()));
        }

        fn until(&self, expected: OtlpCounts) {
            let deadline = Instant::now() + PATIENCE;
            while self.counters.counts() != expected {
                assert!(Instant::now() < deadline, "{:?} instead of {expected:?}", self.counters.counts());
                // The other thread gives no signal.
                thread::sleep(Duration::from_millis(5));
            }
        }
    }

    /// Reads a request and returns its head in lower case and the length of its body.
    fn read(stream: &TcpStream) -> (String, usize) {
        stream.set_read_timeout(Some(PATIENCE)).expect("settable");
        let (mut reader, mut head) = (BufReader::new(stream), String::new());
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).expect("a line") > 0, "{head}");
        }
        let head = head.to_ascii_lowercase();
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).expect("a length");
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("the body");
        (head, length)
    }

    fn answer(mut stream: &TcpStream, status: &str) {
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").expect("sent");
    }

    #[test]
    fn a_busy_collector_gets_the_batch_again_and_one_connection_is_used() {
        let running = Running::start();
        running.send(3);
        let (stream, _) = running.collector.accept().expect("a connection");
        let (head, length) = read(&stream);
        let expected = ["post /v1/traces http/1.1\r\n", "authorization: bearer secret\r\n", "user-agent: strowger/"];
        assert!(expected.iter().all(|line| head.contains(line)), "{head}");
        assert!(head.contains("content-type: application/x-protobuf\r\n"), "{head}");
        answer(&stream, "503 Service Unavailable\r\nRetry-After: 0");
        assert_eq!(read(&stream).1, length, "the same again");
        answer(&stream, "200 OK");
        running.until(OtlpCounts { sent: 3, dropped: 0, failed: 0 });
    }

    #[test]
    fn what_a_collector_refuses_is_not_sent_again() {
        let running = Running::start();
        running.send(2);
        let (stream, _) = running.collector.accept().expect("a connection");
        read(&stream);
        answer(&stream, "400 Bad Request");
        running.until(OtlpCounts { sent: 0, dropped: 0, failed: 2 });
        running.send(1);
        read(&stream);
        answer(&stream, "200 OK");
        running.until(OtlpCounts { sent: 1, dropped: 0, failed: 2 });
    }

    #[test]
    fn a_collector_that_hangs_costs_spans_and_no_time() {
        let mut running = Running::start();
        running.send(1);
        let (_stream, _) = running.collector.accept().expect("a connection");
        let begin = Instant::now();
        running.send(QUEUE + BATCH + 10);
        assert!(begin.elapsed() < Duration::from_secs(2), "nothing waits");
        assert!(running.counters.counts().dropped >= 10);
        running.sender = None;
        assert!(begin.elapsed() < Duration::from_secs(15), "the end waits for one attempt");
        let OtlpCounts { sent, dropped, failed } = running.counters.counts();
        assert_eq!((sent, dropped + failed), (0, (QUEUE + BATCH + 11) as u64), "each is counted");
    }
}
