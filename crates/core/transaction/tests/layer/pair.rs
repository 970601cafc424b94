//! Two connected layers in virtual time: `near` has the client transactions, `far` the server transactions.

use core::net::SocketAddr;

use strowger_foundation::{Buf, Flow, ListenerId, TagKey, Timestamp, Transport};
use strowger_message::{Message, Method, ResponseBuilder, StartLine, Status};
use strowger_transaction::{
    AckVerdict, ClientId, Event, Kind, NO_USER, ResponseVerdict, ServerId, ServerKey, Timing, Transactions,
};

pub(crate) fn peer() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 5060))
}

pub(crate) fn flow(transport: Transport) -> Flow {
    Flow::new(ListenerId(0), transport, peer())
}

pub(crate) fn secret() -> TagKey {
    TagKey::new([7; 16])
}

pub(crate) fn request(method: &str, id: ClientId) -> Vec<u8> {
    format!(
        "{method} sip:bob@192.0.2.1 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bK{}.{}\r\n\
         Via: SIP/2.0/UDP 192.0.2.8;branch=z9hG4bKup\r\nMax-Forwards: 69\r\nRoute: <sip:192.0.2.1;lr>\r\n\
         From: <sip:alice@a>;tag=1\r\nTo: <sip:bob@b>\r\nCall-ID: c1\r\nCSeq: 7 {method}\r\nRequire: x\r\n\
         Content-Length: 4\r\n\r\nbody",
        id.index(),
        id.generation()
    )
    .into_bytes()
}

pub(crate) fn response(to: &[u8], status: Status) -> Vec<u8> {
    let request = Message::parse(to).expect("a request of ours");
    let mut out = Vec::new();
    ResponseBuilder::begin(&mut out, request.head(), status, status.reason(), b"far", None).finish();
    out
}

/// Decides whether a message is lost, given whether `near` sent it and its first line.
pub(crate) type Loss = dyn FnMut(bool, &str) -> bool;

pub(crate) struct Pair {
    pub(crate) now: Timestamp,
    pub(crate) near: Transactions,
    pub(crate) far: Transactions,
    /// The messages that the network loses.
    pub(crate) loses: Box<Loss>,
    /// The messages sent: time in ms, and the method or status.
    pub(crate) sent: Vec<(u64, String)>,
    /// The text of each message sent.
    pub(crate) texts: Vec<String>,
    /// The statuses that reached the near user.
    pub(crate) received: Vec<u16>,
    pub(crate) acks_passed_on: usize,
    pub(crate) events: Vec<(u64, Event)>,
    /// The requests that reached the far user, with their transactions.
    pub(crate) requests: Vec<(ServerId, Vec<u8>)>,
    /// The user of the server transactions.
    pub(crate) far_user: u32,
    out: Buf,
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self {
            now: Timestamp::ZERO,
            near: Transactions::new(Timing::default(), 1),
            far: Transactions::new(Timing::default(), 2),
            loses: Box::new(|_, _| false),
            sent: Vec::new(),
            texts: Vec::new(),
            received: Vec::new(),
            acks_passed_on: 0,
            events: Vec::new(),
            requests: Vec::new(),
            far_user: 9,
            out: Buf::new(),
        }
    }

    pub(crate) fn start(&mut self, method: &str, transport: Transport) -> ClientId {
        let id = self.near.reserve_client().expect("room");
        let kind = if method == "INVITE" { Kind::Invite } else { Kind::NonInvite };
        let message = request(method, id);
        let message = self.near.pool().copy_of(&message);
        self.near.start_client(self.now, id, kind, flow(transport), message, 5);
        self.settle();
        id
    }

    /// Sends the far user's response to its `nth` request.
    pub(crate) fn respond(&mut self, nth: usize, status: Status) {
        let (id, request) = self.requests[nth].clone();
        let message = response(&request, status);
        let message = self.far.pool().copy_of(&message);
        self.far.respond(self.now, id, status, message);
        self.settle();
    }

    pub(crate) fn cancel(&mut self, id: ClientId) -> bool {
        let cancelled = self.near.cancel(self.now, id);
        self.settle();
        cancelled
    }

    /// Runs both layers up to `millis`.
    pub(crate) fn run_until(&mut self, millis: u64) {
        let end = Timestamp::from_millis(millis);
        loop {
            self.settle();
            let next = [&self.near, &self.far].into_iter().filter_map(Transactions::poll_timeout).map(|w| w.at).min();
            let Some(at) = next.filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            self.near.handle_timeout(self.now);
            self.far.handle_timeout(self.now);
        }
        self.now = end;
    }

    /// Returns the times in ms at which `what` was sent.
    pub(crate) fn instants(&self, what: &str) -> Vec<u64> {
        self.sent.iter().filter(|(_, sent)| sent == what).map(|(at, _)| *at).collect()
    }

    pub(crate) fn assert_nothing_left(&self) {
        for layer in [&self.near, &self.far] {
            assert_eq!((layer.servers(), layer.clients()), (0, 0));
            assert_eq!(layer.poll_timeout(), None);
            layer.check_invariants();
        }
    }

    /// Delivers until no message is in transit.
    pub(crate) fn settle(&mut self) {
        loop {
            self.near.check_invariants();
            self.far.check_invariants();
            while let Some(event) = self.near.poll_event().or_else(|| self.far.poll_event()) {
                self.events.push((self.now.as_millis(), event));
            }
            let mut out = core::mem::take(&mut self.out);
            let from_near = self.near.poll_transmit(&mut out).is_some();
            if !from_near && self.far.poll_transmit(&mut out).is_none() {
                self.out = out;
                return;
            }
            let text = String::from_utf8(out.clone()).expect("ASCII");
            let line = text.lines().next().unwrap_or_default().to_owned();
            let word = line.trim_start_matches("SIP/2.0 ").split(' ').next().unwrap_or_default().to_owned();
            self.sent.push((self.now.as_millis(), word));
            self.texts.push(text);
            if !(self.loses)(from_near, &line) {
                if from_near { self.deliver_request(&out) } else { self.deliver_response(&out) }
            }
            self.out = out;
        }
    }

    fn deliver_request(&mut self, bytes: &[u8]) {
        let message = Message::parse(bytes).expect("valid");
        let key = ServerKey::of(&secret(), message.head(), message.via(), message.method());
        let known = self.far.find_server(key);
        match (message.method(), known) {
            (Method::Ack, Some(id)) => {
                let verdict = self.far.handle_ack(self.now, id);
                self.acks_passed_on += usize::from(verdict == AckVerdict::ToUser);
            }
            (Method::Ack, None) => self.acks_passed_on += 1,
            (_, Some(id)) => self.far.handle_retransmission(self.now, id),
            (method, None) => {
                let kind = if method == Method::Invite { Kind::Invite } else { Kind::NonInvite };
                let id = self.far.open_server(self.now, key, kind, flow(Transport::Udp), NO_USER).expect("room");
                self.far.set_server_user(id, self.far_user);
                self.requests.push((id, bytes.to_vec()));
            }
        }
    }

    fn deliver_response(&mut self, bytes: &[u8]) {
        let message = Message::parse(bytes).expect("valid");
        let branch = message.via().rfc3261_branch().expect("ours");
        let branch = core::str::from_utf8(branch).expect("ASCII");
        let (index, generation) = branch.split_once('.').expect("ours");
        let id = ClientId::from_parts(index.parse().expect("ours"), generation.parse().expect("ours"));
        if let ResponseVerdict::ToUser { user } = self.near.handle_response(self.now, id, &message) {
            assert_eq!(user, 5);
            let StartLine::Response { status, .. } = message.start() else { unreachable!("a response") };
            self.received.push(status.code());
        }
    }
}
