//! Server side of a phone: ringing calls and other incoming requests.

use core::time::Duration;

use strowger_foundation::{Flow, Timestamp};
use strowger_message::{HeaderName, Message, Method, ResponseBuilder, Status};
use strowger_transaction::{Kind, ServerId, ServerKey};

use super::{Agent, AnswerBehavior, Dialog, Task, wire};

/// First and longest interval between transmissions of a 2xx (RFC 3261 §13.3.1.4).
const T1: Duration = Duration::from_millis(500);
const T2: Duration = Duration::from_secs(4);
/// Number of 180 responses of a phone that keeps ringing.
const MAX_RINGS: u32 = 6;
/// Time for which a 2xx is retransmitted without an ACK.
const PATIENCE: Duration = Duration::from_secs(32);

/// Incoming call.
#[derive(Debug)]
pub(super) struct Ringing {
    server: ServerId,
    /// INVITE as received.
    invite: Vec<u8>,
    tag: String,
    rings: u32,
    over: bool,
}

/// 2xx that is retransmitted until its ACK arrives.
#[derive(Clone, Debug)]
pub(super) struct AcceptedInvite {
    server: ServerId,
    bytes: Vec<u8>,
    since: Timestamp,
    interval: Duration,
    hold: Option<Duration>,
}

impl Agent {
    pub(super) fn handle_request(&mut self, now: Timestamp, from: Flow, key: ServerKey, message: &Message<'_>) {
        let known = self.transactions.find_server(key);
        if message.method() == Method::Ack {
            if let Some(server) = known {
                self.transactions.handle_ack(now, server);
            }
            self.on_ack(now, message);
            return;
        }
        if let Some(server) = known {
            self.transactions.handle_retransmission(now, server);
            return;
        }
        let kind = if message.method() == Method::Invite { Kind::Invite } else { Kind::NonInvite };
        let Ok(server) = self.transactions.open_server(now, key, kind, from, u32::MAX) else { return };
        let tag = self.token();
        match message.method() {
            Method::Invite => self.on_invite(now, server, tag, message),
            Method::Cancel => {
                let key = ServerKey::of_cancelled_invite(&self.secret, message.head(), message.via());
                let invite = self.transactions.find_server(key);
                let status = if invite.is_some() { Status::OK } else { Status::NO_SUCH_TRANSACTION };
                self.answer(now, server, message, status, &tag);
                if let Some(index) = self.ringing.iter().position(|ringing| Some(ringing.server) == invite) {
                    self.stop_ringing(now, index, Status::REQUEST_TERMINATED);
                }
            }
            Method::Bye => {
                let call = self.dialogs.iter_mut().find(|dialog| dialog.is_of(message));
                let status = if call.is_some() { Status::OK } else { Status::NO_SUCH_TRANSACTION };
                if let Some(dialog) = call {
                    dialog.over = true;
                    dialog.accepted = None;
                }
                self.answer(now, server, message, status, &tag);
            }
            _ if self.phone.answer_behavior == AnswerBehavior::Unavailable => {
                self.answer(now, server, message, Status::SERVICE_UNAVAILABLE, &tag);
            }
            _ => self.answer(now, server, message, Status::OK, &tag),
        }
    }

    pub(super) fn answer_call(&mut self, now: Timestamp, index: usize) {
        let hold = match self.phone.answer_behavior {
            AnswerBehavior::Answer { hold, .. } => hold,
            AnswerBehavior::Late { .. } => None,
            _ => return,
        };
        let ringing = &mut self.ringing[index];
        if core::mem::replace(&mut ringing.over, true) {
            return;
        }
        let (server, tag, invite) = (ringing.server, ringing.tag.clone(), ringing.invite.clone());
        let Ok(message) = Message::parse(&invite) else { return };
        let bytes = self.response(&message, Status::OK, &tag);
        let accepted = AcceptedInvite { server, bytes: bytes.clone(), since: now, interval: T1, hold };
        self.dialogs.push(Dialog {
            call_id: wire::text(message.call_id()),
            local: format!("{};tag={tag}", wire::value(&message, HeaderName::To)),
            remote: wire::value(&message, HeaderName::From),
            target: wire::contact(&message).unwrap_or_default(),
            routes: wire::record_routes(&message),
            cseq: 100,
            ack: None,
            accepted: Some(accepted),
            over: false,
        });
        self.transactions.respond(now, server, Status::OK, bytes);
        self.schedule(now + T1, Task::RepeatAccepted(self.dialogs.len() - 1));
    }

    /// Rings after a long silence.
    pub(super) fn wake_up(&mut self, now: Timestamp, index: usize) {
        let AnswerBehavior::Late { ring, .. } = self.phone.answer_behavior else { return };
        if !self.ringing[index].over {
            self.respond(now, index, Status::RINGING);
            self.schedule(now + ring, Task::Answer(index));
        }
    }

    pub(super) fn ring_again(&mut self, now: Timestamp, index: usize) {
        if self.ringing[index].over {
            return;
        }
        self.ringing[index].rings += 1;
        if self.ringing[index].rings > MAX_RINGS {
            self.stop_ringing(now, index, Status::BUSY_HERE);
            return;
        }
        self.respond(now, index, Status::RINGING);
        self.schedule(now + Duration::from_secs(50), Task::RingAgain(index));
    }

    //= rfc3261#13.3.1.4
    /// Retransmits the 2xx until the ACK arrives or the time is over.
    pub(super) fn repeat_accepted(&mut self, now: Timestamp, index: usize) {
        let Some(accepted) = &mut self.dialogs[index].accepted else { return };
        if now.saturating_since(accepted.since) >= PATIENCE {
            self.dialogs[index].accepted = None;
            self.hang_up(now, index);
            return;
        }
        accepted.interval = (accepted.interval * 2).min(T2);
        let (server, bytes, next) = (accepted.server, accepted.bytes.clone(), now + accepted.interval);
        self.transactions.respond(now, server, Status::OK, bytes);
        self.schedule(next, Task::RepeatAccepted(index));
    }

    fn on_invite(&mut self, now: Timestamp, server: ServerId, tag: String, message: &Message<'_>) {
        self.ringing.push(Ringing { server, invite: message.bytes().to_vec(), tag, rings: 0, over: false });
        let index = self.ringing.len() - 1;
        match self.phone.answer_behavior {
            AnswerBehavior::Answer { ring, .. } => {
                self.respond(now, index, Status::RINGING);
                self.schedule(now + ring, Task::Answer(index));
            }
            AnswerBehavior::Ring | AnswerBehavior::Dead => {
                self.respond(now, index, Status::TRYING);
                self.respond(now, index, Status::RINGING);
            }
            AnswerBehavior::RingOn => self.ring_again(now, index),
            AnswerBehavior::Busy => self.stop_ringing(now, index, Status::BUSY_HERE),
            AnswerBehavior::Late { silence, .. } => self.schedule(now + silence, Task::WakeUp(index)),
            AnswerBehavior::Unavailable => self.stop_ringing(now, index, Status::SERVICE_UNAVAILABLE),
            AnswerBehavior::Decline => self.stop_ringing(now, index, Status::DECLINE),
        }
    }

    fn respond(&mut self, now: Timestamp, index: usize, status: Status) {
        let ringing = &self.ringing[index];
        let (server, tag, invite) = (ringing.server, ringing.tag.clone(), ringing.invite.clone());
        if let Ok(message) = Message::parse(&invite) {
            self.answer(now, server, &message, status, &tag);
        }
    }

    fn stop_ringing(&mut self, now: Timestamp, index: usize, status: Status) {
        let ringing = &mut self.ringing[index];
        if core::mem::replace(&mut ringing.over, true) {
            return;
        }
        let (server, tag, invite) = (ringing.server, ringing.tag.clone(), ringing.invite.clone());
        if let Ok(message) = Message::parse(&invite) {
            self.answer(now, server, &message, status, &tag);
        }
    }

    fn on_ack(&mut self, now: Timestamp, message: &Message<'_>) {
        let Some(index) = self.dialogs.iter().position(|dialog| dialog.is_of(message)) else { return };
        let hold = self.dialogs[index].accepted.take().and_then(|accepted| accepted.hold);
        if let Some(hold) = hold {
            self.schedule(now + hold, Task::HangUp(index));
        }
    }

    fn answer(&mut self, now: Timestamp, server: ServerId, message: &Message<'_>, status: Status, tag: &str) {
        let bytes = self.response(message, status, tag);
        self.transactions.respond(now, server, status, bytes);
    }

    /// Writes a response with the fields of a dialog, and with unusual header fields and a body that must be
    /// forwarded unchanged.
    fn response(&self, message: &Message<'_>, status: Status, tag: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let mut reply = ResponseBuilder::begin(&mut out, message.head(), status, status.reason(), tag.as_bytes(), None);
        for route in message.head().all(HeaderName::RecordRoute) {
            reply = reply.header("Record-Route", &[route]);
        }
        if message.method() == Method::Invite {
            reply = reply.header("Contact", &[b"<", self.own_uri().as_bytes(), b">"]);
        }
        let _ = reply.header("x-second", &[b"2"]).header("X-First", &[b" 1,,1 "]);
        let body: &[u8] = if status.is_success() { b"v=0\r\nx=\xFF\0 \r\n" } else { b"" };
        out.extend_from_slice(format!("l: {}\r\n\r\n", body.len()).as_bytes());
        out.extend_from_slice(body);
        out
    }
}

impl Dialog {
    /// Returns whether a request of the peer belongs to the dialog.
    fn is_of(&self, message: &Message<'_>) -> bool {
        let same = |name, value: &str| message.head().first(name) == Some(value.as_bytes());
        message.call_id() == self.call_id.as_bytes()
            && same(HeaderName::From, &self.remote)
            && same(HeaderName::To, &self.local)
    }
}
