//! Callee of all calls: a gateway that rings and answers at once.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use strowger_foundation::Timestamp;
use strowger_message::{HeaderName, Message, Method, ResponseBuilder, Status};

use super::callers::{T1, T2, TIMEOUT};
use super::requests::call_of;
use super::schedule::{Schedule, Timer};

/// Returns the callee's address.
pub(super) fn address() -> SocketAddr {
    SocketAddr::from(([203, 0, 113, 9], 5060))
}

/// Callee side of all calls.
#[derive(Debug, Default)]
pub(super) struct Callee {
    calls: BTreeMap<usize, AnsweredCall>,
}

/// Answered call.
#[derive(Debug)]
enum AnsweredCall {
    /// The 200 is retransmitted until the ACK arrives.
    Unconfirmed { ok: Vec<u8>, since: Timestamp },
    /// The ACK arrived, or the callee has given up.
    Over,
}

impl Callee {
    /// Handles an incoming request.
    pub(super) fn handle_message(&mut self, now: Timestamp, bytes: &[u8], schedule: &mut Schedule) {
        let Ok(message) = Message::parse(bytes) else { return };
        let Some(call) = call_of(message.call_id()).filter(|_| message.status().is_none()) else { return };
        match message.method() {
            // A retransmission is absorbed (RFC 6026 §7.1).
            Method::Invite if self.calls.contains_key(&call) => {}
            Method::Invite => {
                let ok = response(&message, Status::OK);
                schedule.send_to_server(now, address(), response(&message, Status::RINGING));
                schedule.send_to_server(now, address(), ok.clone());
                self.calls.insert(call, AnsweredCall::Unconfirmed { ok, since: now });
                schedule.add_timer(now + T1, call, Timer::AnswerAgain(T1));
            }
            Method::Ack => drop(self.calls.insert(call, AnsweredCall::Over)),
            Method::Bye => {
                self.calls.insert(call, AnsweredCall::Over);
                schedule.send_to_server(now, address(), response(&message, Status::OK));
            }
            _ => {}
        }
    }

    /// Retransmits the 200 if no ACK has arrived.
    //= rfc3261#13.3.1.4
    pub(super) fn handle_timeout(&mut self, now: Timestamp, call: usize, interval: Duration, schedule: &mut Schedule) {
        let Some(answered) = self.calls.get_mut(&call) else { return };
        let AnsweredCall::Unconfirmed { ok, since } = answered else { return };
        if now.saturating_since(*since) >= TIMEOUT {
            *answered = AnsweredCall::Over;
            return;
        }
        schedule.send_to_server(now, address(), ok.clone());
        let interval = (2 * interval).min(T2);
        schedule.add_timer(now + interval, call, Timer::AnswerAgain(interval));
    }
}

/// Writes a response with the header fields of a dialog.
fn response(message: &Message<'_>, status: Status) -> Vec<u8> {
    let mut out = Vec::new();
    let mut reply = ResponseBuilder::begin(&mut out, message.head(), status, status.reason(), b"callee", None);
    if message.method() == Method::Invite {
        for route in message.head().all(HeaderName::RecordRoute) {
            reply = reply.header("Record-Route", &[route]);
        }
        reply = reply.header_fmt("Contact", format_args!("<sip:callee@{}>", address()));
    }
    reply.finish();
    out
}
