//! Copies of messages: live traces of one call, user or peer for an operator, and a share of all calls for other
//! tools.
//!
//! Without a trace, a message costs one relaxed load. While a trace runs, each message is parsed once more and
//! compared, and matches are copied into a bounded queue. A slow reader loses messages and is told how many; no
//! worker waits for it.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use strowger_foundation::{Flow, ListenerId, TagKey, Timestamp, Transport};
use strowger_message::{Head, HeaderName, NameAddr, StartLine, Uri};

/// Maximum number of concurrent traces.
pub const MAX_TRACES: usize = 8;
/// Maximum number of messages waiting for the reader of a trace.
pub const TRACE_QUEUE: usize = 1024;
/// Maximum number of messages waiting for a tool that gets a share of all calls.
pub const SAMPLE_QUEUE: usize = 8192;
/// Maximum number of calls followed by a trace; a new call replaces the oldest.
pub const MAX_TRACED_CALLS: usize = 256;
/// Maximum bytes kept of a message.
pub const MAX_TRACED_BYTES: usize = 8192;

/// Selects the messages of a trace. Once a message matches by user or address, all messages with its Call-ID match,
/// so that both sides of a call are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceFilter {
    /// User of the Request-URI, From, To or P-Asserted-Identity.
    User {
        /// User part without escapes; a telephone number as written.
        user: String,
        /// Domain, to match only one.
        domain: Option<String>,
    },
    /// Messages with this Call-ID.
    CallId(String),
    /// Messages from or to this address.
    Ip(IpAddr),
    /// Messages of a share of all calls.
    Sample(CallSample),
}

/// A share of all calls and other dialogs. Which ones is decided by their Call-ID, so that all messages of a call are
/// in or none, at every server that takes the same share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSample {
    /// Calls whose hash is below are in; `None` for all.
    below: Option<u64>,
    /// Methods that are left out.
    except: Vec<String>,
    /// Whether only the heads of messages of INVITE transactions and their CANCELs are in.
    only_setup: bool,
}

impl CallSample {
    /// Hashes alike everywhere. Callers can compute it; they gain at most that their call is traced or not.
    const KEY: TagKey = TagKey::new(*b"calls to trace  ");

    /// Creates a share from 0 to 1.
    #[must_use]
    pub fn new(share: f64) -> Self {
        // The conversion saturates.
        let below = (share * 2_f64.powi(64)) as u64;
        Self { below: (share < 1.0).then_some(below), except: Vec::new(), only_setup: false }
    }

    /// Leaves out the messages of these methods, in upper case.
    #[must_use]
    pub fn except(self, methods: Vec<String>) -> Self {
        Self { except: methods, ..self }
    }

    /// Takes only messages of INVITE transactions and their CANCELs, without bodies.
    #[must_use]
    pub fn only_setup(self) -> Self {
        Self { only_setup: true, ..self }
    }

    /// Whether the call with this Call-ID is in.
    #[must_use]
    pub fn includes(&self, call_id: &[u8]) -> bool {
        self.below.is_none_or(|below| Self::KEY.hash64(&[call_id]) < below)
    }

    fn wants(&self, head: &Head<'_>) -> bool {
        let Some(call_id) = head.first(HeaderName::CallId) else { return false };
        let method = method_of(head);
        let is_setup = || matches!(method, b"INVITE" | b"CANCEL");
        let is_left_out = || self.except.iter().any(|left_out| left_out.as_bytes() == method);
        self.includes(call_id) && (!self.only_setup || is_setup()) && !is_left_out()
    }
}

/// Returns the method in CSeq; empty if there is none.
fn method_of<'a>(head: &Head<'a>) -> &'a [u8] {
    let cseq = head.first(HeaderName::CSeq).unwrap_or_default();
    cseq.rsplit(|byte| matches!(byte, b' ' | b'\t')).next().unwrap_or_default()
}

/// Direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Sent by a peer.
    Received,
    /// Sent by this server.
    Sent,
}

/// A message that matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// When the worker handled it.
    pub at: Timestamp,
    /// Whether it was received or sent.
    pub direction: Direction,
    /// The listener.
    pub listener: ListenerId,
    /// The transport.
    pub transport: Transport,
    /// The far end.
    pub peer: SocketAddr,
    /// The message with credentials and media keys masked, truncated to [`MAX_TRACED_BYTES`].
    pub bytes: Vec<u8>,
    /// Original length.
    pub length: usize,
}

impl TraceRecord {
    /// Returns the number of bytes that were cut off.
    #[must_use]
    pub const fn cut(&self) -> usize {
        self.length.saturating_sub(MAX_TRACED_BYTES)
    }
}

/// Error: [`MAX_TRACES`] are running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyTraces;

/// Distributes messages of all workers to the running traces.
#[derive(Debug, Default)]
pub struct Tracer {
    /// Number of running traces, checked by the workers.
    running: AtomicUsize,
    traces: RwLock<Vec<Arc<ActiveTrace>>>,
}

impl Tracer {
    /// Starts a trace, which ends when the returned value is dropped.
    ///
    /// # Errors
    /// When [`MAX_TRACES`] are running, not counting those of a [`TraceFilter::Sample`].
    pub fn start(self: &Arc<Self>, filter: TraceFilter) -> Result<Trace, TooManyTraces> {
        let mut traces = self.traces.write().unwrap_or_else(PoisonError::into_inner);
        let is_sample = |filter: &TraceFilter| matches!(filter, TraceFilter::Sample(_));
        if !is_sample(&filter) && traces.iter().filter(|trace| !is_sample(&trace.filter)).count() >= MAX_TRACES {
            return Err(TooManyTraces);
        }
        let (sender, receiver) = mpsc::sync_channel(if is_sample(&filter) { SAMPLE_QUEUE } else { TRACE_QUEUE });
        let running = Arc::new(ActiveTrace { filter, sender, lost: AtomicU64::new(0), calls: Mutex::default() });
        traces.push(Arc::clone(&running));
        self.running.store(traces.len(), Ordering::Relaxed);
        Ok(Trace { tracer: Arc::clone(self), running, receiver, reported_lost: 0 })
    }

    /// Traces a message received from a peer.
    #[inline(always)]
    pub fn received(&self, now: Timestamp, flow: &Flow, bytes: &[u8]) {
        if self.running.load(Ordering::Relaxed) != 0 {
            self.note(now, Direction::Received, flow, bytes);
        }
    }

    /// Traces a message sent by this server.
    #[inline(always)]
    pub fn sent(&self, now: Timestamp, flow: &Flow, bytes: &[u8]) {
        if self.running.load(Ordering::Relaxed) != 0 {
            self.note(now, Direction::Sent, flow, bytes);
        }
    }

    #[cold]
    #[inline(never)]
    fn note(&self, at: Timestamp, direction: Direction, flow: &Flow, bytes: &[u8]) {
        let head = Head::scan(bytes).ok();
        let mut masked = None;
        for running in self.traces.read().unwrap_or_else(PoisonError::into_inner).iter() {
            if !running.wants(flow.peer, head.as_ref()) {
                continue;
            }
            let copy = match (&running.filter, &head) {
                (TraceFilter::Sample(CallSample { only_setup: true, .. }), Some(head)) => {
                    mask(bytes.get(..head.len().min(MAX_TRACED_BYTES)).unwrap_or(bytes))
                }
                _ => masked.get_or_insert_with(|| mask(bytes.get(..MAX_TRACED_BYTES).unwrap_or(bytes))).clone(),
            };
            running.send(TraceRecord {
                at,
                direction,
                listener: flow.listener,
                transport: flow.transport,
                peer: flow.peer,
                bytes: copy,
                length: bytes.len(),
            });
        }
    }
}

/// Reader's end of a running trace.
#[derive(Debug)]
pub struct Trace {
    tracer: Arc<Tracer>,
    running: Arc<ActiveTrace>,
    receiver: Receiver<TraceRecord>,
    reported_lost: u64,
}

impl Trace {
    /// Returns the next message if one arrives within `wait`.
    #[must_use]
    pub fn poll(&mut self, wait: Duration) -> Option<TraceRecord> {
        // This end also holds the sender, so the only possible error is the timeout.
        self.receiver.recv_timeout(wait).ok()
    }

    /// Returns what ends the trace from another thread.
    #[must_use]
    pub fn stop(&self) -> TraceStop {
        TraceStop { tracer: Arc::clone(&self.tracer), running: Arc::clone(&self.running) }
    }

    /// Returns how many messages were lost to a full queue ([`TRACE_QUEUE`]) since the last call.
    pub fn poll_lost(&mut self) -> u64 {
        let lost = self.running.lost.load(Ordering::Relaxed);
        lost.saturating_sub(std::mem::replace(&mut self.reported_lost, lost))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.stop().stop();
    }
}

/// Ends a trace from another thread than its reader's.
#[derive(Clone, Debug)]
pub struct TraceStop {
    tracer: Arc<Tracer>,
    running: Arc<ActiveTrace>,
}

impl TraceStop {
    /// Ends the trace. What is in its queue can still be read.
    pub fn stop(&self) {
        let mut traces = self.tracer.traces.write().unwrap_or_else(PoisonError::into_inner);
        traces.retain(|running| !Arc::ptr_eq(running, &self.running));
        self.tracer.running.store(traces.len(), Ordering::Relaxed);
    }
}

/// Workers' end of a running trace.
#[derive(Debug)]
struct ActiveTrace {
    filter: TraceFilter,
    sender: SyncSender<TraceRecord>,
    lost: AtomicU64,
    calls: Mutex<CallIdSet>,
}

impl ActiveTrace {
    fn wants(&self, peer: SocketAddr, head: Option<&Head<'_>>) -> bool {
        let call_id = head.and_then(|head| head.first(HeaderName::CallId));
        let matches = match &self.filter {
            TraceFilter::Sample(sample) => return head.is_some_and(|head| sample.wants(head)),
            TraceFilter::CallId(wanted) => return call_id == Some(wanted.as_bytes()),
            TraceFilter::Ip(wanted) => peer.ip().to_canonical() == wanted.to_canonical(),
            TraceFilter::User { user, domain } => {
                head.is_some_and(|head| names_user(head, user.as_bytes(), domain.as_deref().map(str::as_bytes)))
            }
        };
        let Some(call_id) = call_id else { return matches };
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if matches {
            calls.insert(call_id);
        }
        matches || calls.contains(call_id)
    }

    fn send(&self, traced: TraceRecord) {
        if let Err(TrySendError::Full(_)) = self.sender.try_send(traced) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Hashes of the Call-IDs that a trace follows.
#[derive(Debug, Default)]
struct CallIdSet {
    hasher: RandomState,
    known: HashSet<u64>,
    order: VecDeque<u64>,
}

impl CallIdSet {
    fn contains(&self, call_id: &[u8]) -> bool {
        self.known.contains(&self.hasher.hash_one(call_id))
    }

    fn insert(&mut self, call_id: &[u8]) {
        let hash = self.hasher.hash_one(call_id);
        if !self.known.insert(hash) {
            return;
        }
        self.order.push_back(hash);
        if self.order.len() > MAX_TRACED_CALLS
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

/// Returns whether one of the originator or destination URIs belongs to `user`.
fn names_user(head: &Head<'_>, user: &[u8], domain: Option<&[u8]>) -> bool {
    if let StartLine::Request { uri, .. } = head.start()
        && is_user(uri, user, domain)
    {
        return true;
    }
    let parties = [HeaderName::From, HeaderName::To].into_iter().filter_map(|name| head.first(name));
    let asserted = head.elements(HeaderName::PAssertedIdentity);
    parties.chain(asserted).filter_map(NameAddr::parse).any(|address| is_user(address.uri, user, domain))
}

fn is_user(uri: &[u8], user: &[u8], domain: Option<&[u8]>) -> bool {
    match Uri::parse(uri) {
        Some(Uri::Sip(uri)) => uri.aor().is_some_and(|aor| {
            aor.user() == user && domain.is_none_or(|domain| aor.domain().eq_ignore_ascii_case(domain))
        }),
        Some(Uri::Tel(uri)) => uri.number == user && domain.is_none(),
        _ => false,
    }
}

/// Replacement for a secret of a header.
const MASK: &[u8] = b"***";

/// Returns a copy without secrets: credentials after their scheme, password digests, and media keys. Works on lines
/// alone, so that a malformed message reveals none either. Media keys keep their length, which is not secret, so that
/// the body keeps the length that the message states.
fn mask(bytes: &[u8]) -> Vec<u8> {
    const CREDENTIALS: [&[u8]; 4] =
        [b"authorization", b"proxy-authorization", b"authentication-info", b"proxy-authentication-info"];
    let mut copy = Vec::with_capacity(bytes.len());
    let mut is_secret = false;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let is_folded = matches!(line.first(), Some(b' ' | b'\t'));
        if is_secret && is_folded {
            continue;
        }
        let text = line.trim_ascii_end();
        let colon = text.iter().position(|byte| *byte == b':');
        let (name, value) = colon.and_then(|colon| text.split_at_checked(colon)).unwrap_or((text, b""));
        is_secret = CREDENTIALS.iter().any(|known| name.trim_ascii().eq_ignore_ascii_case(known));
        let is_media_key = name == b"a=crypto" || name == b"a=key-mgmt";
        let media_key = is_media_key.then(|| name.len().saturating_add(1)).or(text.starts_with(b"k=").then_some(2));
        let kept = if is_secret {
            let blank = value.iter().skip(1).take_while(|byte| byte.is_ascii_whitespace()).count();
            let value = value.get(1..).unwrap_or_default().trim_ascii_start();
            // The scheme and the space after it; a bare parameter list has none.
            let scheme = value.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'-');
            let scheme = scheme.filter(|end| matches!(value.get(*end), Some(b' ' | b'\t')));
            let scheme = scheme.map_or(0, |blank| blank.saturating_add(1));
            Some(name.len().saturating_add(1).saturating_add(blank).saturating_add(scheme))
        } else {
            media_key
        };
        match kept.and_then(|kept| text.get(..kept)) {
            Some(kept) => {
                copy.extend_from_slice(kept);
                if media_key.is_some() {
                    copy.resize(copy.len().saturating_add(text.len()).saturating_sub(kept.len()), b'*');
                } else {
                    copy.extend_from_slice(MASK);
                }
                copy.extend_from_slice(line.get(text.len()..).unwrap_or_default());
            }
            None => copy.extend_from_slice(line),
        }
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn flow(peer: &str) -> Flow {
        Flow::new(ListenerId(1), Transport::Udp, peer.parse().expect("an address"))
    }

    fn message(start: &str, call_id: &str, from: &str, to: &str, more: &str) -> Vec<u8> {
        format!(
            "{start}\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\nFrom: \"X\" <{from}>;tag=1\r\nTo: <{to}>\r\n\
             Call-ID: {call_id}\r\nCSeq: 1 INVITE\r\n{more}\r\n"
        )
        .into_bytes()
    }

    fn invite(call_id: &str) -> Vec<u8> {
        message("INVITE sip:100@pbx.example.com SIP/2.0", call_id, "sip:alice@example.com", "sip:bob@example.net", "")
    }

    fn user(text: &str) -> TraceFilter {
        let (user, domain) = text.split_once('@').map_or((text, None), |(user, domain)| (user, Some(domain)));
        TraceFilter::User { user: user.to_owned(), domain: domain.map(str::to_owned) }
    }

    fn count(trace: &mut Trace) -> usize {
        std::iter::from_fn(|| trace.poll(NOW)).count()
    }

    #[test]
    fn a_user_is_found_wherever_a_message_names_them() {
        let tracer = Arc::new(Tracer::default());
        let wanted = |filter, bytes: &[u8]| {
            let mut trace = tracer.start(filter).expect("a free place");
            tracer.received(Timestamp::ZERO, &flow("192.0.2.1:5060"), bytes);
            count(&mut trace) == 1
        };
        for yes in ["alice", "alice@example.com", "alice@EXAMPLE.com", "bob", "100", "100@pbx.example.com"] {
            assert!(wanted(user(yes), &invite("c")), "{yes}");
        }
        for no in ["alic", "alice@example.net", "X", "Alice", "example.com"] {
            assert!(!wanted(user(no), &invite("c")), "{no}");
        }
        let ringing = message("SIP/2.0 180 Ringing", "c", "sip:al%69ce@example.com", "tel:+12015550123", "");
        assert!(wanted(user("alice"), &ringing) && wanted(user("+12015550123"), &ringing));
        let asserted = "P-Asserted-Identity: \"B, C\" <sip:carol@example.com>, <tel:+44123>\r\n";
        let asserted = message("INVITE sip:x@y SIP/2.0", "c", "sip:anonymous@anonymous.invalid", "sip:x@y", asserted);
        assert!(wanted(user("carol"), &asserted) && wanted(user("+44123"), &asserted));
        assert!(!wanted(user("alice"), b"no message at all"));
    }

    #[test]
    fn both_sides_of_a_call_are_traced() {
        let tracer = Arc::new(Tracer::default());
        let mut trace = tracer.start(TraceFilter::Ip("192.0.2.1".parse().expect("an address"))).expect("a free place");
        tracer.sent(Timestamp::ZERO, &flow("192.0.2.9:5060"), &invite("c1"));
        assert_eq!(count(&mut trace), 0, "nothing is known of it yet");
        tracer.received(Timestamp::from_millis(1), &flow("[::ffff:192.0.2.1]:5060"), &invite("c1"));
        tracer.sent(Timestamp::from_millis(2), &flow("192.0.2.9:5060"), &invite("c1"));
        tracer.sent(Timestamp::from_millis(3), &flow("192.0.2.9:5060"), &invite("c2"));
        let first = trace.poll(NOW).expect("the INVITE that came");
        assert_eq!((first.direction, first.listener, first.bytes), (Direction::Received, ListenerId(1), invite("c1")));
        let second = trace.poll(NOW).expect("the INVITE that left");
        assert_eq!((second.at, second.direction), (Timestamp::from_millis(2), Direction::Sent));
        assert_eq!(count(&mut trace), 0);
        tracer.received(Timestamp::ZERO, &flow("192.0.2.1:5060"), b"garbage");
        assert_eq!(count(&mut trace), 1, "what a peer sends is shown although it is no message");
    }

    #[test]
    fn a_call_id_is_exact() {
        let tracer = Arc::new(Tracer::default());
        let mut trace = tracer.start(TraceFilter::CallId("abc@192.0.2.1".to_owned())).expect("a free place");
        for call_id in ["abc", "ABC@192.0.2.1", "abc@192.0.2.1", "abc@192.0.2.10"] {
            tracer.received(Timestamp::ZERO, &flow("192.0.2.1:5060"), &invite(call_id));
        }
        assert_eq!(count(&mut trace), 1);
    }

    #[test]
    fn traces_are_limited_and_freed() {
        let tracer = Arc::new(Tracer::default());
        let mut traces: Vec<_> = (0..MAX_TRACES).map(|_| tracer.start(user("a")).expect("a free place")).collect();
        assert_eq!(tracer.start(user("a")).map(drop), Err(TooManyTraces));
        traces.pop();
        drop(tracer.start(user("a")).expect("one has ended"));
        drop(traces);
        assert_eq!(tracer.running.load(Ordering::Relaxed), 0, "off again");
    }

    #[test]
    fn a_sample_has_whole_calls_in_the_share_that_is_asked_for() {
        let tracer = Arc::new(Tracer::default());
        let mut trace = tracer.start(TraceFilter::Sample(CallSample::new(0.25))).expect("always a place");
        let (mut whole, mut none) = (0, 0);
        for number in 0..2000 {
            for _ in 0..2 {
                tracer.received(Timestamp::ZERO, &flow("192.0.2.1:5060"), &invite(&format!("c{number}")));
            }
            match count(&mut trace) {
                0 => none += 1,
                2 => whole += 1,
                other => panic!("{other} of two messages"),
            }
        }
        assert!((400..600).contains(&whole) && whole + none == 2000, "{whole}");
        let shares = [(0.0, false), (1.0, true)];
        assert!(shares.iter().all(|(share, is_in)| CallSample::new(*share).includes(b"c") == *is_in));
        // Another release must choose the same calls.
        let chosen: Vec<u32> = (0..16).filter(|n| CallSample::new(0.25).includes(format!("c{n}").as_bytes())).collect();
        assert_eq!(chosen, [6, 7, 8]);
    }

    #[test]
    fn a_sample_leaves_out_methods_and_what_is_no_message_and_takes_no_place() {
        let tracer = Arc::new(Tracer::default());
        let sample = CallSample::new(1.0).except(vec!["OPTIONS".to_owned(), "REGISTER".to_owned()]);
        let mut trace = tracer.start(TraceFilter::Sample(sample)).expect("always a place");
        let options = String::from_utf8(invite("c")).expect("text").replace("INVITE", "OPTIONS");
        for bytes in [&invite("c")[..], options.as_bytes(), b"garbage"] {
            tracer.received(Timestamp::ZERO, &flow("192.0.2.1:5060"), bytes);
        }
        assert_eq!(count(&mut trace), 1);
        let traces: Vec<_> = (0..MAX_TRACES).map(|_| tracer.start(user("a")).expect("a free place")).collect();
        drop(traces);
        tracer.received(Timestamp::ZERO, &flow("192.0.2.1:5060"), &invite("before"));
        trace.stop().stop();
        tracer.received(Timestamp::ZERO, &flow("192.0.2.1:5060"), &invite("after"));
        assert_eq!(count(&mut trace), 1, "what has come before the end");
        assert_eq!(tracer.running.load(Ordering::Relaxed), 0, "off again");
    }

    #[test]
    fn a_sample_of_setups_has_heads_only() {
        let tracer = Arc::new(Tracer::default());
        let sample = CallSample::new(1.0).only_setup();
        let mut trace = tracer.start(TraceFilter::Sample(sample)).expect("always a place");
        let head = invite("c");
        let bye = String::from_utf8(invite("c")).expect("text").replace("INVITE", "BYE");
        for bytes in [&[&head[..], b"v=0\r\n"].concat()[..], bye.as_bytes()] {
            tracer.received(Timestamp::ZERO, &flow("192.0.2.1:5060"), bytes);
        }
        assert_eq!(trace.poll(NOW).expect("the INVITE").bytes, head);
        assert_eq!(count(&mut trace), 0);
    }

    #[test]
    fn a_slow_reader_gets_a_count_of_lost_messages() {
        let tracer = Arc::new(Tracer::default());
        let mut trace = tracer.start(user("alice")).expect("a free place");
        for _ in 0..TRACE_QUEUE + 7 {
            tracer.received(Timestamp::ZERO, &flow("192.0.2.1:5060"), &invite("c"));
        }
        assert_eq!((count(&mut trace), trace.poll_lost(), trace.poll_lost()), (TRACE_QUEUE, 7, 0));
    }

    #[test]
    fn the_number_of_traced_calls_is_bounded() {
        let tracer = Arc::new(Tracer::default());
        let mut trace = tracer.start(TraceFilter::Ip("192.0.2.1".parse().expect("an address"))).expect("a free place");
        for number in 0..=MAX_TRACED_CALLS {
            tracer.received(Timestamp::ZERO, &flow("192.0.2.1:5060"), &invite(&format!("c{number}")));
        }
        count(&mut trace);
        for (call, expected) in [("c0", 0), ("c1", 1)] {
            tracer.sent(Timestamp::ZERO, &flow("192.0.2.9:5060"), &invite(call));
            assert_eq!(count(&mut trace), expected, "{call}");
        }
    }

    #[test]
    fn secrets_are_masked() {
        let masked = |text: &str| String::from_utf8(mask(text.as_bytes())).expect("text");
        let message = "REGISTER sip:a SIP/2.0\r\nAuthorization: Digest username=\"a\",\r\n response=\"f00\"\r\n\
             proxy-authorization :Basic QWxhZGRpbg==\r\nAUTHORIZATION:\tx\r\nAuthentication-Info: rspauth=\"1\"\r\n\
             WWW-Authenticate: Digest nonce=\"n\"\r\nCSeq: 1 REGISTER\r\n\r\n\
             v=0\r\nk=clear:secret\r\na=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:c2VjcmV0\r\na=rtpmap:0 PCMU/8000\r\n";
        assert_eq!(
            masked(message),
            "REGISTER sip:a SIP/2.0\r\nAuthorization: Digest ***\r\nproxy-authorization :Basic ***\r\n\
             AUTHORIZATION:\t***\r\nAuthentication-Info: ***\r\nWWW-Authenticate: Digest nonce=\"n\"\r\n\
             CSeq: 1 REGISTER\r\n\r\nv=0\r\nk=************\r\na=crypto:*****************************************\r\na=rtpmap:0 PCMU/8000\r\n"
        );
        for harmless in ["", "\r\n", "SIP/2.0 200 OK\r\nVia: x\r\n\r\n", "no line end"] {
            assert_eq!(masked(harmless), harmless);
        }
        // The first space is not always the one after the scheme.
        for (value, shown) in [
            ("Digest\tresponse=\"f00\", uri=\"x\"", "Digest\t***"),
            ("response=\"f00\", uri=\"x\"", "***"),
            ("\"f00\" Digest", "***"),
        ] {
            assert_eq!(masked(&format!("Authorization: {value}\r\n")), format!("Authorization: {shown}\r\n"));
        }
    }

    #[test]
    fn a_long_message_is_cut_and_keeps_its_length() {
        let tracer = Arc::new(Tracer::default());
        let mut trace = tracer.start(user("alice")).expect("a free place");
        let long = [invite("c"), vec![b'x'; 60_000]].concat();
        tracer.received(Timestamp::ZERO, &flow("192.0.2.1:5060"), &long);
        let traced = trace.poll(NOW).expect("it matches");
        assert_eq!((traced.bytes.len(), traced.length), (MAX_TRACED_BYTES, long.len()));
    }
}
