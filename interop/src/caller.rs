//! A caller implemented by the test. It retransmits unanswered requests (RFC 3261 §17.1) and records all responses.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::wire::{hops, status, tag, value, values};

/// Receive timeout after which due timers are checked.
const TICK: Duration = Duration::from_millis(5);
/// T1, followed by T2 and 64 * T1 (RFC 3261 §17).
const T1: Duration = Duration::from_millis(500);
const T2: Duration = Duration::from_secs(4);
const LIFETIME: Duration = Duration::from_secs(32);
/// Number of concurrent calls of [`Caller::make`].
const AT_A_TIME: usize = 16;
/// Default callee.
const CALLEE: &str = "sip:you@pool.test";
/// Default caller.
const CALLER: &str = "<sip:me@example.com>";

/// A user agent on a UDP socket that makes calls through one server.
#[derive(Debug)]
pub struct Caller {
    socket: UdpSocket,
    local: SocketAddr,
    server: SocketAddr,
    /// Value of From, without its tag.
    from: String,
    callee: String,
    calls: BTreeMap<String, Call>,
    /// Number that keeps branches and tags distinct between calls with the same Call-ID.
    number: u32,
}

/// A call made by a [`Caller`].
#[derive(Clone, Debug)]
pub struct Call {
    /// Time at which the INVITE was first sent.
    pub began: Instant,
    /// Status of the final response to the INVITE and time until it arrived. 408 on timeout (RFC 3261 §17.1.1.2).
    pub answer: Option<(u16, Duration)>,
    /// Text of the final response.
    pub response: String,
    /// Distinct provisional responses: status and To tag.
    pub provisional: Vec<(u16, String)>,
    /// Responses to the other requests of the call: method and status.
    pub replies: Vec<(String, u16)>,
    invite: String,
    callee: String,
    /// To header and route set of the dialog, once established.
    to: String,
    target: String,
    route: Vec<String>,
    cseq: u32,
    pending: Vec<Pending>,
    /// ACK of the last 2xx.
    ack: String,
    hangs_up: bool,
}

#[derive(Clone, Debug)]
struct Pending {
    text: String,
    began: Instant,
    /// Time of the next retransmission. `None` once an INVITE has got a provisional response.
    next: Option<Instant>,
    pause: Duration,
}

impl Caller {
    /// Creates a caller on a loopback address.
    ///
    /// # Panics
    /// If no socket can be opened.
    #[must_use]
    pub fn new(server: SocketAddr) -> Caller {
        Caller::on(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket"), server)
    }

    /// Creates a caller on this socket, which may belong to another network namespace.
    ///
    /// # Panics
    /// If the socket is not bound.
    #[must_use]
    pub fn on(socket: UdpSocket, server: SocketAddr) -> Caller {
        let local = socket.local_addr().expect("a bound socket has an address");
        socket.set_read_timeout(Some(TICK)).expect("a time-out can be set");
        Caller {
            socket,
            local,
            server,
            from: CALLER.to_owned(),
            callee: CALLEE.to_owned(),
            calls: BTreeMap::new(),
            number: 0,
        }
    }

    /// Sets the callee of calls that begin later.
    pub fn call_whom(&mut self, uri: &str) {
        uri.clone_into(&mut self.callee);
    }

    /// Sets the value of From, without a tag, of calls that begin later.
    pub fn call_as(&mut self, from: &str) {
        from.clone_into(&mut self.from);
    }

    /// Sends all further messages to this server, as a client does whose server has failed.
    pub fn turn_to(&mut self, server: SocketAddr) {
        self.server = server;
    }

    /// Begins a call that stays up until the test ends it.
    pub fn begin(&mut self, call_id: &str) {
        self.begin_with(call_id, "", false);
    }

    /// Begins a call with additional header fields, each with its line end. If `hangs_up` is set, the call is ended
    /// as soon as it is answered.
    pub fn begin_with(&mut self, call_id: &str, fields: &str, hangs_up: bool) {
        self.number += 1;
        let (local, number, now, callee) = (self.local, self.number, Instant::now(), &self.callee);
        let from = &self.from;
        let invite = format!(
            "INVITE {callee} SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch=z9hG4bK-invite-{number}\r\nMax-Forwards: 70\r\n\
             From: {from};tag=caller-{number}\r\nTo: <{callee}>\r\nCall-ID: {call_id}\r\nCSeq: 1 INVITE\r\n\
             Contact: <sip:me@{local}>\r\n{fields}Content-Length: 0\r\n\r\n"
        );
        let call = Call {
            began: now,
            answer: None,
            response: String::new(),
            provisional: Vec::new(),
            replies: Vec::new(),
            to: format!("<{callee}>"),
            target: callee.clone(),
            callee: callee.clone(),
            route: Vec::new(),
            cseq: 1,
            pending: vec![Pending::new(invite.clone(), now)],
            ack: String::new(),
            invite,
            hangs_up,
        };
        self.calls.insert(call_id.to_owned(), call);
        self.on_time();
    }

    /// Makes these calls, ends each as soon as it is answered, and returns when all are over.
    pub fn make<'a>(&mut self, call_ids: impl IntoIterator<Item = &'a String>, patience: Duration) {
        for call_id in call_ids {
            let has_room = |calls: &BTreeMap<String, Call>| {
                calls.values().filter(|call| !call.pending.is_empty()).count() < AT_A_TIME
            };
            self.run_until("some are over", patience, has_room);
            self.begin_with(call_id, "", true);
        }
        self.settle(patience);
    }

    /// Sends a request within the dialog of this call, or within the early dialog with the given To tag.
    ///
    /// # Panics
    /// If there is no such call.
    pub fn request(&mut self, call_id: &str, method: &str, early: Option<&str>) {
        let local = self.local;
        let call = self.calls.get_mut(call_id).expect("there is such a call");
        call.cseq += 1;
        let to = early.map_or_else(|| call.to.clone(), |tag| format!("<{}>;tag={tag}", call.callee));
        let text = call.follow_up(local, method, call.cseq, &to);
        call.pending.push(Pending::new(text, Instant::now()));
        self.on_time();
    }

    /// Cancels a call that is not yet answered (RFC 3261 §9.1).
    ///
    /// # Panics
    /// If there is no such call.
    pub fn cancel(&mut self, call_id: &str) {
        let call = self.calls.get_mut(call_id).expect("there is such a call");
        let cancel = call.of_invite("CANCEL", value(&call.invite, "To"));
        call.pending.push(Pending::new(cancel, Instant::now()));
        self.on_time();
    }

    /// Runs for the given time.
    pub fn run(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.receive();
        }
    }

    /// Runs until every request is answered.
    ///
    /// # Panics
    /// If that takes longer than `patience`. The message lists what is unanswered.
    pub fn settle(&mut self, patience: Duration) {
        self.run_until("all is answered", patience, |calls| calls.values().all(|call| call.pending.is_empty()));
    }

    /// Runs until the condition holds.
    ///
    /// # Panics
    /// If that takes longer than `patience`. The message lists what is unanswered.
    pub fn run_until(&mut self, what: &str, patience: Duration, is_so: impl Fn(&BTreeMap<String, Call>) -> bool) {
        let end = Instant::now() + patience;
        while !is_so(&self.calls) {
            let waits = || self.calls.iter().flat_map(|(id, call)| call.pending.iter().map(move |one| (id, &one.text)));
            assert!(
                Instant::now() < end,
                "not so: {what}; waits for answers: {:#?}",
                waits().take(5).collect::<Vec<_>>()
            );
            self.receive();
        }
    }

    /// Returns the call with this Call-ID.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn call(&self, call_id: &str) -> &Call {
        self.calls.get(call_id).unwrap_or_else(|| panic!("there is no call {call_id}"))
    }

    /// Returns all calls by Call-ID.
    #[must_use]
    pub fn calls(&self) -> &BTreeMap<String, Call> {
        &self.calls
    }

    /// Receives one message and sends what is due.
    fn receive(&mut self) {
        let mut buffer = [0; 8192];
        // Errors are the timeout, or an ICMP error for an earlier datagram.
        if let Ok(length) = self.socket.recv(&mut buffer) {
            self.handle(&String::from_utf8_lossy(&buffer[..length]));
        }
        self.on_time();
    }

    fn handle(&mut self, text: &str) {
        let local = self.local;
        let Some(call) = self.calls.get_mut(value(text, "Call-ID")) else { return };
        let Some(status) = status(text) else {
            // Any request from the callee is accepted. A BYE ends the call.
            call.replies.push((format!("{} received", crate::wire::method(text)), 200));
            let answer = accept(text);
            return self.send(&answer);
        };
        if tag(text, "From") != tag(&call.invite, "From") {
            return;
        }
        let cseq = value(text, "CSeq");
        if cseq == "1 INVITE" {
            let told = call.handle_answer(local, text, status);
            told.iter().for_each(|message| self.send(message));
            return;
        }
        if status >= 200 && call.pending.extract_if(.., |pending| value(&pending.text, "CSeq") == cseq).count() > 0 {
            let method = cseq.split(' ').nth(1).unwrap_or_default().to_owned();
            if method == "INVITE" {
                let number = cseq.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default();
                call.ack = call.follow_up(local, "ACK", number, value(text, "To"));
                let ack = call.ack.clone();
                call.replies.push((method, status));
                return self.send(&ack);
            }
            call.replies.push((method, status));
        } else if cseq.ends_with("INVITE") && (200..300).contains(&status) {
            // The 2xx is retransmitted until it is acknowledged.
            let ack = call.ack.clone();
            self.send(&ack);
        }
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        let mut due = Vec::new();
        for call in self.calls.values_mut() {
            for pending in &mut call.pending {
                if pending.next.is_some_and(|next| now >= next) {
                    due.push(pending.text.clone());
                    pending.next = Some(now + pending.pause);
                    let doubled = pending.pause * 2;
                    // RFC 3261 §17.1.1.2 and §17.1.2.2: the interval of an INVITE has no upper limit.
                    pending.pause = if pending.is_invite() { doubled } else { doubled.min(T2) };
                }
            }
            call.give_up(now);
        }
        due.iter().for_each(|text| self.send(text));
    }

    fn send(&self, text: &str) {
        // The receiver may be gone: some tests are about that.
        let _ = self.socket.send_to(text.as_bytes(), self.server);
    }
}

impl Call {
    /// Handles a response to the initial INVITE and returns the messages to send.
    fn handle_answer(&mut self, local: SocketAddr, text: &str, status: u16) -> Vec<String> {
        let is_waiting = self.pending.iter_mut().find(|pending| pending.is_invite_of(1));
        if status < 200 {
            if let Some(pending) = is_waiting {
                pending.next = None;
            }
            let told = (status, tag(text, "To").to_owned());
            if status > 100 && !self.provisional.contains(&told) {
                self.learn_route(text);
                self.provisional.push(told);
            }
            return Vec::new();
        }
        if status >= 300 {
            self.pending.retain(|pending| !pending.is_invite_of(1));
            self.answer.get_or_insert_with(|| (status, self.began.elapsed()));
            self.response = text.to_owned();
            return vec![self.of_invite("ACK", value(text, "To"))];
        }
        if self.answer.is_some() {
            // A retransmitted 200 gets the ACK again. A 2xx from another branch gets no dialog.
            return if value(text, "To") == self.to { vec![self.ack.clone()] } else { Vec::new() };
        }
        self.pending.retain(|pending| !pending.is_invite_of(1));
        self.answer = Some((status, self.began.elapsed()));
        self.response = text.to_owned();
        self.learn_route(text);
        self.to = value(text, "To").to_owned();
        self.ack = self.follow_up(local, "ACK", 1, &self.to.clone());
        if self.hangs_up {
            self.cseq += 1;
            let bye = self.follow_up(local, "BYE", self.cseq, &self.to.clone());
            self.pending.push(Pending::new(bye, Instant::now()));
        }
        vec![self.ack.clone()]
    }

    /// RFC 3261 §12.1.2.
    fn learn_route(&mut self, response: &str) {
        self.target = value(response, "Contact").trim_matches(['<', '>']).to_owned();
        self.route = hops(response, "Record-Route").map(str::to_owned).collect();
        self.route.reverse();
    }

    /// Builds a request along the dialog's route set.
    fn follow_up(&self, local: SocketAddr, method: &str, number: u32, to: &str) -> String {
        let (target, from, call_id) = (&self.target, value(&self.invite, "From"), value(&self.invite, "Call-ID"));
        let unique = tag(&self.invite, "From");
        let mut text = format!(
            "{method} {target} SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch=z9hG4bK-{method}-{unique}-{number}\r\nMax-Forwards: 70\r\n"
        );
        for hop in &self.route {
            // Writing to a String cannot fail.
            let _ = write!(text, "Route: {hop}\r\n");
        }
        let _ = write!(
            text,
            "From: {from}\r\nTo: {to}\r\nCall-ID: {call_id}\r\nCSeq: {number} {method}\r\nContact: <sip:me@{local}>\r\n\
             Content-Length: 0\r\n\r\n"
        );
        text
    }

    /// Builds a CANCEL, or the ACK to a non-2xx response, both part of the INVITE's transaction (RFC 3261 §9.1 and
    /// §17.1.1.3).
    fn of_invite(&self, method: &str, to: &str) -> String {
        let (via, from, call_id) =
            (value(&self.invite, "Via"), value(&self.invite, "From"), value(&self.invite, "Call-ID"));
        let callee = &self.callee;
        format!(
            "{method} {callee} SIP/2.0\r\nVia: {via}\r\nMax-Forwards: 70\r\nFrom: {from}\r\nTo: {to}\r\nCall-ID: {call_id}\r\n\
             CSeq: 1 {method}\r\nContent-Length: 0\r\n\r\n"
        )
    }

    /// Gives up requests whose timer B or F has fired (RFC 3261 §17).
    fn give_up(&mut self, now: Instant) {
        let is_old = |pending: &Pending| pending.next.is_some() && now > pending.began + LIFETIME;
        for old in self.pending.extract_if(.., |pending| is_old(pending)) {
            let cseq = value(&old.text, "CSeq");
            if cseq == "1 INVITE" {
                self.answer = Some((408, now - self.began));
            } else {
                self.replies.push((cseq.split(' ').nth(1).unwrap_or_default().to_owned(), 408));
            }
        }
    }
}

impl Pending {
    fn new(text: String, now: Instant) -> Pending {
        Pending { text, began: now, next: Some(now), pause: T1 }
    }

    fn is_invite(&self) -> bool {
        self.text.starts_with("INVITE ")
    }

    fn is_invite_of(&self, number: u32) -> bool {
        self.is_invite() && value(&self.text, "CSeq") == format!("{number} INVITE")
    }
}

/// Builds a 200 to a request of the other party.
pub(crate) fn accept(request: &str) -> String {
    let mut text = "SIP/2.0 200 OK\r\n".to_owned();
    for name in ["Via", "From", "To", "Call-ID", "CSeq"] {
        for value in values(request, name) {
            // Writing to a String cannot fail.
            let _ = write!(text, "{name}: {value}\r\n");
        }
    }
    text + "Content-Length: 0\r\n\r\n"
}
