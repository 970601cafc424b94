//! A target implemented by the test. It records each call it receives and can misbehave on request.

use std::fmt::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::wire::{address, hops, method, status, tag, value, values};

/// Interval at which due timers are checked.
const TICK: Duration = Duration::from_millis(5);
/// T1, followed by T2 and 64 * T1 (RFC 3261 §17).
const T1: Duration = Duration::from_millis(500);
const T2: Duration = Duration::from_secs(4);
const LIFETIME: Duration = Duration::from_secs(32);

/// How the callee answers requests that begin a dialog.
#[derive(Clone, Debug)]
pub struct AnswerBehavior {
    /// Status of the final response to an INVITE.
    pub status: u16,
    /// Additional header fields of that response, each with its line end.
    pub fields: &'static str,
    /// Ringing time before the final response.
    pub ring: Duration,
    /// Number of early dialogs while ringing, each with its own To tag, as behind a forking proxy. The last one is
    /// answered.
    pub early: usize,
    /// Whether to receive requests and never answer, like a hung process.
    pub is_silent: bool,
}

impl Default for AnswerBehavior {
    fn default() -> AnswerBehavior {
        AnswerBehavior { status: 200, fields: "", ring: Duration::ZERO, early: 0, is_silent: false }
    }
}

/// A target on a UDP socket, run by its own thread.
#[derive(Debug)]
pub struct Callee {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    is_over: AtomicBool,
    state: Mutex<State>,
}

/// State of one call as the callee saw it.
#[derive(Clone, Debug)]
pub struct CallSnapshot {
    /// Call-ID.
    pub call_id: String,
    /// Time of arrival.
    pub came: Instant,
    /// State of the call.
    pub stage: Stage,
    /// Whether the final response was acknowledged.
    pub is_acknowledged: bool,
    /// Number of further INVITEs for this call with a new branch.
    pub doubles: usize,
    /// Requests received within the dialog, without retransmissions: method and To tag.
    pub requests: Vec<(String, String)>,
}

/// State of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Ringing until this time.
    Ringing(Instant),
    /// Answered with a 2xx.
    Answered,
    /// Answered with another final response.
    Refused,
    /// Ended by a BYE that was answered.
    Over,
}

#[derive(Debug)]
struct State {
    own: SocketAddr,
    manner: AnswerBehavior,
    calls: Vec<Call>,
    /// Number of OPTIONS received.
    probes: usize,
    /// Requests for unknown calls or transactions: method and Call-ID.
    strays: Vec<(String, String)>,
}

#[derive(Debug)]
struct Call {
    seen: CallSnapshot,
    /// The first INVITE and its source address, which differs from the Via behind NAT.
    invite: String,
    source: SocketAddr,
    tags: Vec<String>,
    /// Vias of the requests in `seen`, to recognize retransmissions.
    known: Vec<String>,
    /// Message to retransmit until it is acknowledged or answered.
    pending: Option<Pending>,
}

#[derive(Debug)]
struct Pending {
    text: String,
    to: SocketAddr,
    began: Instant,
    next: Instant,
    pause: Duration,
}

impl Callee {
    /// Starts a callee at this address.
    ///
    /// # Panics
    /// If the address is in use.
    #[must_use]
    pub fn start(address: SocketAddr) -> Callee {
        Callee::play(UdpSocket::bind(address).unwrap_or_else(|error| panic!("{address}: {error}")))
    }

    /// Starts a callee on this socket, which may belong to another network namespace.
    ///
    /// # Panics
    /// If the socket is not bound.
    #[must_use]
    pub fn play(socket: UdpSocket) -> Callee {
        let address = socket.local_addr().expect("a bound socket has an address");
        socket.set_read_timeout(Some(TICK)).expect("a time-out can be set");
        let (manner, calls, strays) = (AnswerBehavior::default(), Vec::new(), Vec::new());
        let state = Mutex::new(State { own: address, manner, calls, probes: 0, strays });
        let shared = Arc::new(Shared { is_over: AtomicBool::new(false), state });
        let in_thread = Arc::clone(&shared);
        let thread = Some(thread::spawn(move || play(&socket, &in_thread)));
        Callee { address, shared, thread }
    }

    /// Returns the listening address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URI by which a server names this target.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("sip:{}", self.address)
    }

    /// Sets the behavior for requests that follow.
    pub fn behave(&self, manner: AnswerBehavior) {
        self.shared.state().manner = manner;
    }

    /// Returns the calls received, in order of arrival.
    #[must_use]
    pub fn calls(&self) -> Vec<CallSnapshot> {
        self.shared.state().calls.iter().map(|call| call.seen.clone()).collect()
    }

    /// Returns the latest call with this Call-ID.
    #[must_use]
    pub fn call(&self, call_id: &str) -> Option<CallSnapshot> {
        self.shared.state().calls.iter().rev().find(|call| call.seen.call_id == call_id).map(|call| call.seen.clone())
    }

    /// Returns the requests for unknown calls or transactions: method and Call-ID.
    #[must_use]
    pub fn strays(&self) -> Vec<(String, String)> {
        self.shared.state().strays.clone()
    }

    /// Returns the number of OPTIONS received.
    #[must_use]
    pub fn probes(&self) -> usize {
        self.shared.state().probes
    }

    /// Clears everything recorded so far.
    pub fn forget(&self) {
        let mut state = self.shared.state();
        state.calls.clear();
        state.strays.clear();
    }

    /// Sends a request within the answered dialog of this call and retransmits it until it is answered.
    ///
    /// # Panics
    /// If there is no such call.
    pub fn request(&self, call_id: &str, method: &str) {
        let mut state = self.shared.state();
        let own = state.own;
        let call = state.calls.iter_mut().find(|call| call.seen.call_id == call_id).expect("there is such a call");
        call.ask(own, method);
    }
}

impl Drop for Callee {
    fn drop(&mut self) {
        if thread::panicking() {
            let state = self.shared.state();
            let calls: Vec<_> = state.calls.iter().map(|call| (&call.seen.call_id, call.seen.stage)).take(40).collect();
            eprintln!("--- callee {}: {} calls, {calls:?}; strays {:?}", self.address, state.calls.len(), state.strays);
        }
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread's panic has already been printed. A second one here would abort the test run.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn play(socket: &UdpSocket, shared: &Shared) {
    let mut buffer = vec![0; 65_536];
    while !shared.is_over.load(Ordering::Relaxed) {
        // Errors are the timeout, or an ICMP error for an earlier datagram.
        let received = socket.recv_from(&mut buffer);
        let mut state = shared.state();
        let mut out = Vec::new();
        if let Ok((length, source)) = received
            && !state.manner.is_silent
        {
            state.handle(&String::from_utf8_lossy(&buffer[..length]), source, &mut out);
        }
        state.on_time(Instant::now(), &mut out);
        for (text, to) in out {
            // The receiver may be gone: some tests are about that.
            let _ = socket.send_to(text.as_bytes(), to);
        }
    }
}

type Out = Vec<(String, SocketAddr)>;

impl State {
    fn handle(&mut self, text: &str, source: SocketAddr, out: &mut Out) {
        match method(text) {
            "SIP/2.0" => self.handle_response(text),
            "OPTIONS" => {
                self.probes += 1;
                out.push((response(text, 200, "probe", ""), source));
            }
            "INVITE" if tag(text, "To").is_empty() => self.handle_invite(text, source, out),
            "ACK" => {
                if let Some(call) = self.of(text) {
                    call.seen.is_acknowledged = true;
                    // Stops retransmitting a response. A pending BYE continues.
                    call.pending.take_if(|pending| method(&pending.text) == "SIP/2.0");
                }
            }
            "CANCEL" => self.handle_cancel(text, source, out),
            _ => self.handle_in_dialog(text, source, out),
        }
    }

    fn handle_invite(&mut self, text: &str, source: SocketAddr, out: &mut Out) {
        let (own, branch) = (self.own, value(text, "Via").to_owned());
        if let Some(call) = self.of(text) {
            // A retransmission, or the same request by another path.
            if value(&call.invite, "Via") == branch {
                call.say(own, source, out);
            } else {
                call.seen.doubles += 1;
                out.push((response(text, 482, "merged", ""), source));
            }
            return;
        }
        let (number, now) = (self.calls.len(), Instant::now());
        let tags = (0..self.manner.early.max(1)).map(|early| format!("callee-{number}-{early}"));
        let seen = CallSnapshot {
            call_id: value(text, "Call-ID").to_owned(),
            came: now,
            stage: Stage::Ringing(now + self.manner.ring),
            is_acknowledged: false,
            doubles: 0,
            requests: Vec::new(),
        };
        let call =
            Call { seen, invite: text.to_owned(), source, tags: tags.collect(), known: Vec::new(), pending: None };
        if !self.manner.ring.is_zero() {
            call.say(own, source, out);
        }
        self.calls.push(call);
    }

    fn handle_cancel(&mut self, text: &str, source: SocketAddr, out: &mut Out) {
        let Some(call) = self.of(text).filter(|call| value(&call.invite, "Via") == value(text, "Via")) else {
            return self.refuse_stray(text, source, out);
        };
        out.push((response(text, 200, &call.tags[0], ""), source));
        if let Stage::Ringing(_) = call.seen.stage {
            call.seen.stage = Stage::Refused;
            let refusal = response(&call.invite, 487, &call.tags[0], "");
            call.pending = Some(Pending::new(refusal, source, Instant::now()));
        }
    }

    /// Handles a request with a To tag, which must belong to a known dialog.
    fn handle_in_dialog(&mut self, text: &str, source: SocketAddr, out: &mut Out) {
        let to_tag = tag(text, "To").to_owned();
        let own = self.own;
        let Some(call) = self.of(text).filter(|call| call.tags.contains(&to_tag)) else {
            return self.refuse_stray(text, source, out);
        };
        let (via, verb) = (value(text, "Via").to_owned(), method(text).to_owned());
        if call.seen.stage == Stage::Over && !call.known.contains(&via) {
            // The BYE ended the dialog. Only retransmissions of that BYE are answered again.
            return self.refuse_stray(text, source, out);
        }
        let answer = response(text, 200, &to_tag, &format!("Contact: <sip:callee@{own}>\r\n"));
        if verb == "BYE" {
            call.seen.stage = Stage::Over;
            call.pending = None;
        }
        if verb == "INVITE" {
            call.pending = Some(Pending::new(answer, source, Instant::now()));
        } else {
            out.push((answer, source));
        }
        if !call.known.contains(&via) {
            call.known.push(via);
            call.seen.requests.push((verb, to_tag));
        }
    }

    fn handle_response(&mut self, text: &str) {
        let is_final = status(text).is_some_and(|status| status >= 200);
        // The callee sent the request, so its own tag is in From.
        let own_tag = tag(text, "From").to_owned();
        let call_id = value(text, "Call-ID");
        let call =
            self.calls.iter_mut().rev().find(|call| call.seen.call_id == call_id && call.tags.contains(&own_tag));
        let Some(call) = call.filter(|_| is_final) else { return };
        let cseq = value(text, "CSeq");
        if call.pending.take_if(|pending| value(&pending.text, "CSeq") == cseq).is_some() {
            call.seen.requests.push((format!("{} to {cseq}", status(text).unwrap_or_default()), own_tag));
            if cseq.ends_with("BYE") {
                call.seen.stage = Stage::Over;
            }
        }
    }

    fn refuse_stray(&mut self, text: &str, source: SocketAddr, out: &mut Out) {
        self.strays.push((method(text).to_owned(), value(text, "Call-ID").to_owned()));
        out.push((response(text, 481, "stray", ""), source));
    }

    /// Returns the call to which a request belongs.
    fn of(&mut self, text: &str) -> Option<&mut Call> {
        let (call_id, caller) = (value(text, "Call-ID"), tag(text, "From"));
        self.calls.iter_mut().rev().find(|call| call.seen.call_id == call_id && tag(&call.invite, "From") == caller)
    }

    fn on_time(&mut self, now: Instant, out: &mut Out) {
        let (own, manner) = (self.own, self.manner.clone());
        for call in &mut self.calls {
            if let Stage::Ringing(until) = call.seen.stage
                && now >= until
                && !manner.is_silent
            {
                call.end_ringing(own, &manner, now);
            }
            if call.pending.as_ref().is_some_and(|pending| now > pending.began + LIFETIME) {
                call.pending = None;
            }
            let due = call.pending.as_mut().filter(|pending| now >= pending.next && !manner.is_silent);
            if let Some(pending) = due {
                out.push((pending.text.clone(), pending.to));
                pending.next = now + pending.pause;
                pending.pause = (pending.pause * 2).min(T2);
            }
        }
    }
}

impl Call {
    /// Answers a retransmitted INVITE: with 180 while ringing, otherwise with the final response.
    fn say(&self, own: SocketAddr, source: SocketAddr, out: &mut Out) {
        match &self.pending {
            Some(pending) if pending.text.starts_with("SIP/2.0") => out.push((pending.text.clone(), source)),
            _ if matches!(self.seen.stage, Stage::Ringing(_)) => {
                let contact = format!("Contact: <sip:callee@{own}>\r\n");
                out.extend(self.tags.iter().map(|tag| (response(&self.invite, 180, tag, &contact), source)));
            }
            _ => {}
        }
    }

    fn end_ringing(&mut self, own: SocketAddr, manner: &AnswerBehavior, now: Instant) {
        let is_taken = (200..300).contains(&manner.status);
        self.seen.stage = if is_taken { Stage::Answered } else { Stage::Refused };
        let fields = format!("{}Contact: <sip:callee@{own}>\r\n", manner.fields);
        let answer = response(&self.invite, manner.status, self.tags.last().map_or("", String::as_str), &fields);
        self.pending = Some(Pending::new(answer, self.source, now));
    }

    /// Sends a request to the other party along the recorded route.
    fn ask(&mut self, own: SocketAddr, method: &str) {
        let route: Vec<_> = hops(&self.invite, "Record-Route").collect();
        let target = value(&self.invite, "Contact").trim_matches(['<', '>']);
        let next = route.first().copied().unwrap_or(target);
        let number = self.known.len() + self.seen.requests.len() + 1;
        let (local, remote) = (value(&self.invite, "To"), value(&self.invite, "From"));
        let own_tag = self.tags.last().map_or("", String::as_str);
        let call_id = &self.seen.call_id;
        let mut text = format!(
            "{method} {target} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK-{method}-{own_tag}-{number}\r\nMax-Forwards: 70\r\n"
        );
        for hop in &route {
            // Writing to a String cannot fail.
            let _ = write!(text, "Route: {hop}\r\n");
        }
        let _ = write!(
            text,
            "From: {local};tag={own_tag}\r\nTo: {remote}\r\nCall-ID: {call_id}\r\nCSeq: {number} {method}\r\n\
             Contact: <sip:callee@{own}>\r\nContent-Length: 0\r\n\r\n"
        );
        self.pending = Some(Pending::new(text, address(next).expect("a route has an address"), Instant::now()));
    }
}

impl Pending {
    fn new(text: String, to: SocketAddr, now: Instant) -> Pending {
        Pending { text, to, began: now, next: now, pause: T1 }
    }
}

/// Builds a response to a request. `to_tag` is added if To has no tag.
fn response(request: &str, status: u16, to_tag: &str, fields: &str) -> String {
    let reason = match status {
        100 => "Trying",
        180 => "Ringing",
        200 => "OK",
        503 => "Service Unavailable",
        _ => "So",
    };
    let mut text = format!("SIP/2.0 {status} {reason}\r\n");
    for name in ["Via", "Record-Route", "From", "To", "Call-ID", "CSeq"] {
        for value in values(request, name) {
            let is_new = name == "To" && tag(request, "To").is_empty();
            let added = if is_new { format!(";tag={to_tag}") } else { String::new() };
            // Writing to a String cannot fail.
            let _ = write!(text, "{name}: {value}{added}\r\n");
        }
    }
    text + fields + "Content-Length: 0\r\n\r\n"
}
