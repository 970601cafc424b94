//! Client side of a phone: its requests and their responses.

use core::net::SocketAddr;
use core::time::Duration;

use strowger_auth::client::{self, Secret};
use strowger_foundation::Timestamp;
use strowger_message::{AuthParams, HeaderName, Message, Method, Status};
use strowger_transaction::{ClientId, Kind, ResponseVerdict};

use super::wire::{self, RequestDraft};
use super::{Action, Agent, Dialog, Task};

/// Highest number of repetitions of a request with new credentials.
const MAX_CHALLENGES: u32 = 3;

/// Request and its progress.
#[derive(Debug)]
pub(super) struct Exchange {
    draft: RequestDraft,
    client: ClientId,
    challenges: u32,
    /// Whether a repetition keeps the CSeq, as for a late REGISTER.
    keeps_cseq: bool,
    hold: Duration,
    gave_up: bool,
    pub(super) answered: Option<Status>,
}

impl Agent {
    pub(super) fn act(&mut self, now: Timestamp, index: usize) {
        match self.phone.script[index].1.clone() {
            Action::Register { expires_s } => {
                self.registers |= expires_s > 0;
                self.register_own(now, expires_s);
            }
            Action::RegisterLate => {
                let contact = format!("Contact: <{}>;expires=600{}", self.own_uri(), self.instance_parameters());
                self.register(now, vec![contact], true);
            }
            Action::RegisterTwo { expires_s } => {
                let device = self.instance_parameters();
                let mut second = self.phone.own_address;
                second.set_port(5070);
                let own = format!("Contact: <{}>;expires={expires_s}{device}", self.own_uri());
                let second = format!("Contact: <sip:{}@{second}>;expires={expires_s}", self.phone.user);
                self.registers |= expires_s > 0;
                self.register(now, vec![own, second], false);
            }
            Action::Restart => {
                self.starts += 1;
                self.register_cseq = 0;
                self.register_own(now, 120);
            }
            Action::Divert { user } => {
                let contact = format!("Contact: <sip:{user}@{}>;expires=120", self.server);
                self.register(now, vec![contact], false);
            }
            Action::Fetch => self.register(now, Vec::new(), false),
            Action::Clear => self.register(now, vec!["Contact: *".to_owned(), "Expires: 0".to_owned()], false),
            Action::Call { user, hold, patience } => {
                let body = b"v=0\r\no=- 1 1 IN IP4 192.0.2.9\r\ns= a  call \r\n".to_vec();
                let mut draft = self.draft("INVITE", self.uri_of(&user), body);
                draft.headers.push(format!("Contact: <{}>", self.own_uri()));
                draft.headers.push("Content-Type: application/sdp".to_owned());
                self.start(now, draft, hold, patience);
            }
            Action::Message { user } => {
                let draft = self.draft("MESSAGE", self.uri_of(&user), b"hello\0world".to_vec());
                self.start(now, draft, Duration::ZERO, None);
            }
            Action::Options => {
                let draft = self.draft("OPTIONS", format!("sip:{}", self.phone.domain), Vec::new());
                self.start(now, draft, Duration::ZERO, None);
            }
        }
    }

    /// Registers over a new connection after the previous one was lost.
    pub(super) fn reconnect(&mut self, now: Timestamp) {
        self.register_own(now, 300);
    }

    fn register_own(&mut self, now: Timestamp, expires_s: u32) {
        let q = self.phone.q.map(|q| format!(";q={q}")).unwrap_or_default();
        let device = self.instance_parameters();
        let contact = format!("Contact: <{}>{q};expires={expires_s}{device}", self.own_uri());
        self.register(now, vec![contact], false);
    }

    /// Returns the contact parameters that identify the device (RFC 5626).
    fn instance_parameters(&self) -> String {
        let instance = format!(";+sip.instance=\"<urn:uuid:00000000-0000-1000-8000-{:012}>\"", self.number);
        match (self.phone.sends_instance, self.phone.sends_reg_id) {
            (false, _) => String::new(),
            (true, false) => instance,
            (true, true) => instance + ";reg-id=1",
        }
    }

    /// Cancels an unanswered call; before the first response it waits for one.
    pub(super) fn cancel_call(&mut self, now: Timestamp, index: usize) {
        let exchange = &mut self.exchanges[index];
        if exchange.answered.is_none() {
            exchange.gave_up = true;
            let client = exchange.client;
            self.transactions.cancel(now, client);
        }
    }

    pub(super) fn hang_up(&mut self, now: Timestamp, index: usize) {
        let dialog = &mut self.dialogs[index];
        if core::mem::replace(&mut dialog.over, true) {
            return;
        }
        dialog.cseq += 1;
        let draft = dialog.draft("BYE", dialog.cseq);
        self.start(now, draft, Duration::ZERO, None);
    }

    pub(super) fn handle_response(&mut self, now: Timestamp, message: &Message<'_>, status: Status) {
        let Some(client) = message.via().branch.and_then(wire::client_of) else { return };
        let verdict = self.transactions.handle_response(now, client, message);
        let ResponseVerdict::ToUser { user } = verdict else { return };
        let index = user as usize;
        if status.is_provisional() {
            if self.exchanges[index].gave_up {
                self.transactions.cancel(now, client);
            }
            return;
        }
        let invite = message.method() == Method::Invite;
        let challenged = matches!(status, Status::UNAUTHORIZED | Status::PROXY_AUTHENTICATION_REQUIRED);
        if challenged && self.exchanges[index].challenges < MAX_CHALLENGES && !self.exchanges[index].gave_up {
            self.answer_challenge(now, index, message, status);
            return;
        }
        let first = self.exchanges[index].answered.replace(status).is_none();
        if invite && status.is_success() {
            self.tally.answered += u64::from(first);
            self.accept(now, index, message);
        } else if invite {
            self.tally.refused += u64::from(first);
        } else if status.is_success() {
            match message.method() {
                Method::Register => self.tally.registered += 1,
                _ => self.tally.delivered += 1,
            }
        }
    }

    fn register(&mut self, now: Timestamp, contacts: Vec<String>, late: bool) {
        let domain = &self.phone.domain;
        let aor = format!("sip:{}@{domain}", self.phone.user);
        let mut draft = self.draft("REGISTER", format!("sip:{domain}"), Vec::new());
        draft.to = format!("<{aor}>");
        draft.call_id = format!("register-of-{}", self.number);
        if self.starts > 0 {
            draft.call_id += &format!("-{}", self.starts);
        }
        if self.phone.sends_instance {
            draft.headers.push("Supported: gruu, outbound".to_owned());
        }
        self.register_cseq += u32::from(!late);
        draft.cseq = if late { 1 } else { self.register_cseq + 1 };
        draft.headers.extend(contacts);
        self.start(now, draft, Duration::ZERO, None);
        if let Some(exchange) = self.exchanges.last_mut() {
            exchange.keeps_cseq = late;
        }
    }

    fn draft(&mut self, method: &'static str, uri: String, body: Vec<u8>) -> RequestDraft {
        let (tag, call_id) = (self.token(), self.token());
        RequestDraft {
            method,
            to: format!("<{uri}>"),
            uri,
            from: format!("\"{0}\" <sip:{0}@{1}>;tag={tag}", self.phone.user, self.phone.domain),
            call_id,
            cseq: 1,
            headers: vec!["X-Unknown: one,  two".to_owned(), "x-folded: a\r\n\tb".to_owned(), "Subject:odd".to_owned()],
            body,
            ..RequestDraft::default()
        }
    }

    fn start(&mut self, now: Timestamp, draft: RequestDraft, hold: Duration, patience: Option<Duration>) {
        let Ok(client) = self.transactions.reserve_client() else { return };
        let exchange =
            Exchange { draft, client, challenges: 0, keeps_cseq: false, hold, gave_up: false, answered: None };
        self.exchanges.push(exchange);
        self.send(now, self.exchanges.len() - 1);
        if let Some(patience) = patience {
            self.schedule(now + patience, Task::GiveUp(self.exchanges.len() - 1));
        }
    }

    fn send(&mut self, now: Timestamp, index: usize) {
        let exchange = &self.exchanges[index];
        let branch = wire::branch(self.number, exchange.client);
        let request = exchange.draft.write(self.phone.transport, self.phone.own_address, &branch);
        let kind = if exchange.draft.method == "INVITE" { Kind::Invite } else { Kind::NonInvite };
        let to = self.flow_to(exchange.draft.next_hop(self.server));
        let user = u32::try_from(index).unwrap_or(u32::MAX - 1);
        self.transactions.start_client(now, exchange.client, kind, to, request, user);
    }

    fn answer_challenge(&mut self, now: Timestamp, index: usize, message: &Message<'_>, status: Status) {
        let (asked, given) = match status {
            Status::UNAUTHORIZED => (HeaderName::WwwAuthenticate, HeaderName::Authorization),
            _ => (HeaderName::ProxyAuthenticate, HeaderName::ProxyAuthorization),
        };
        let cnonce = self.token();
        let Some(challenge) = message.head().first(asked).and_then(AuthParams::parse) else { return };
        let exchange = &self.exchanges[index];
        let request = client::Request {
            username: self.phone.user.as_bytes(),
            secret: Secret::Password(self.phone.user.as_bytes()),
            method: exchange.draft.method.as_bytes(),
            uri: exchange.draft.uri.as_bytes(),
            body: &exchange.draft.body,
            cnonce: cnonce.as_bytes(),
            nc: 1,
            cover_body: false,
        };
        let mut credentials = format!("{}: ", given.as_str()).into_bytes();
        if client::respond(&mut credentials, &challenge, &request).is_err() {
            return;
        }
        let Ok(client) = self.transactions.reserve_client() else { return };
        let exchange = &mut self.exchanges[index];
        exchange.draft.credentials = Some(wire::text(&credentials));
        exchange.client = client;
        exchange.challenges += 1;
        if exchange.draft.method == "REGISTER" && !exchange.keeps_cseq {
            self.register_cseq += 1;
            exchange.draft.cseq = self.register_cseq + 1;
        } else if !exchange.keeps_cseq {
            exchange.draft.cseq += 1;
        }
        self.send(now, index);
    }

    /// Handles a 2xx to the phone's INVITE: the first creates the dialog, and each is acknowledged.
    fn accept(&mut self, now: Timestamp, index: usize, message: &Message<'_>) {
        let remote = wire::value(message, HeaderName::To);
        let exchange = &self.exchanges[index];
        let call_id = &exchange.draft.call_id;
        let known = self.dialogs.iter().find(|dialog| dialog.call_id == *call_id && dialog.remote == remote);
        if let Some(ack) = known.and_then(|dialog| dialog.ack.clone()) {
            self.outbox.push_back(ack);
            return;
        }
        let Some(target) = wire::contact(message) else { return };
        let mut routes = wire::record_routes(message);
        routes.reverse();
        let cseq = exchange.draft.cseq;
        let (local, call_id) = (exchange.draft.from.clone(), call_id.clone());
        // Further 2xx of a fork, and late ones, are hung up at once.
        let first = !self.dialogs.iter().any(|dialog| dialog.call_id == call_id);
        let hold = if first && !exchange.gave_up { exchange.hold } else { Duration::ZERO };
        let mut dialog =
            Dialog { call_id, local, remote, target, routes, cseq, ack: None, accepted: None, over: false };
        let ack = dialog.draft("ACK", cseq);
        let branch = format!("z9hG4bKack-{}", self.token());
        let to = self.flow_to(ack.next_hop(self.server));
        let packet = (to, ack.write(self.phone.transport, self.phone.own_address, &branch));
        dialog.ack = Some(packet.clone());
        self.outbox.push_back(packet);
        self.dialogs.push(dialog);
        self.schedule(now + hold, Task::HangUp(self.dialogs.len() - 1));
    }
}

impl Dialog {
    fn draft(&self, method: &'static str, cseq: u32) -> RequestDraft {
        RequestDraft {
            method,
            uri: self.target.clone(),
            from: self.local.clone(),
            to: self.remote.clone(),
            call_id: self.call_id.clone(),
            cseq,
            routes: self.routes.clone(),
            ..RequestDraft::default()
        }
    }
}

impl RequestDraft {
    /// Returns the first Route, otherwise the peer's address within a dialog, otherwise the server.
    fn next_hop(&self, server: SocketAddr) -> SocketAddr {
        let hop = self.routes.first().unwrap_or(&self.uri);
        wire::address_of(hop).unwrap_or(server)
    }
}
