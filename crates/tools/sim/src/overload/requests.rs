//! Requests of a caller. A retransmission has the same bytes (RFC 3261 §17.1.1.2).

use core::net::SocketAddr;

use strowger_foundation::Transport;

use crate::agent::wire::RequestDraft;

/// Domain of the server's only route.
pub(super) const DOMAIN: &str = "gateway.example.net";

const BODY: &[u8] = b"v=0\r\no=- 1 1 IN IP4 198.51.100.1\r\ns=-\r\nc=IN IP4 198.51.100.1\r\nt=0 0\r\n\
    m=audio 40000 RTP/AVP 8 0\r\na=rtpmap:8 PCMA/8000\r\n";

/// Identity of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallIdentity {
    /// Number of the call.
    pub(super) call: usize,
    /// Random value.
    pub(super) word: u64,
    /// Caller's address.
    pub(super) caller: SocketAddr,
}

/// Dialog state of the caller.
#[derive(Debug)]
pub(super) struct Dialog {
    /// Callee's Contact.
    pub(super) target: String,
    /// Route set in the order of Route.
    pub(super) routes: Vec<String>,
    /// To header field with the callee's tag.
    pub(super) to: String,
}

impl CallIdentity {
    /// Returns the INVITE.
    pub(super) fn invite(&self) -> Vec<u8> {
        let contact = format!("Contact: <sip:caller@{}>", self.caller);
        let headers = vec![contact, "Content-Type: application/sdp".to_owned()];
        let draft = RequestDraft { headers, body: BODY.to_vec(), ..self.draft("INVITE", 1) };
        self.write(&draft, 'i')
    }

    /// Returns the ACK to a final response other than a 2xx, whose To is `to`. It belongs to the INVITE's
    /// transaction.
    //= rfc3261#17.1.1.3
    pub(super) fn ack_of_failure(&self, to: String) -> Vec<u8> {
        self.write(&RequestDraft { to, ..self.draft("ACK", 1) }, 'i')
    }

    /// Returns the ACK to a 2xx.
    pub(super) fn ack(&self, dialog: &Dialog) -> Vec<u8> {
        self.write(&self.in_dialog("ACK", 1, dialog), 'a')
    }

    /// Returns the BYE.
    pub(super) fn bye(&self, dialog: &Dialog) -> Vec<u8> {
        self.write(&self.in_dialog("BYE", 2, dialog), 'b')
    }

    fn in_dialog(&self, method: &'static str, cseq: u32, dialog: &Dialog) -> RequestDraft {
        let Dialog { target, routes, to } = dialog;
        RequestDraft { uri: target.clone(), to: to.clone(), routes: routes.clone(), ..self.draft(method, cseq) }
    }

    fn draft(&self, method: &'static str, cseq: u32) -> RequestDraft {
        let Self { call, word, caller } = self;
        let uri = format!("sip:{:07}@{DOMAIN}", 5_550_000 + call % 10_000);
        RequestDraft {
            method,
            to: format!("<{uri}>"),
            uri,
            from: format!("<sip:caller@{}>;tag={:08x}", caller.ip(), word >> 32),
            call_id: format!("{word:016x}-{call}@{}", caller.ip()),
            cseq,
            ..RequestDraft::default()
        }
    }

    fn write(&self, draft: &RequestDraft, transaction: char) -> Vec<u8> {
        draft.write(Transport::Udp, self.caller, &format!("z9hG4bK{:016x}{transaction}", self.word))
    }
}

/// Returns the number of the call encoded in a Call-ID.
pub(super) fn call_of(call_id: &[u8]) -> Option<usize> {
    let text = core::str::from_utf8(call_id).ok()?;
    text.split_once('-')?.1.split_once('@')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use strowger_message::{Message, Method};
    use strowger_overload::{fingerprint, may_be_dropped_unread};

    use super::*;

    fn identity(call: usize) -> CallIdentity {
        CallIdentity { call, word: 7_000_003 * (call as u64 + 1), caller: SocketAddr::from(([198, 51, 100, 1], 5060)) }
    }

    #[test]
    fn requests_parse_and_identify_their_call() {
        let dialog = Dialog {
            target: "sip:callee@203.0.113.9:5060".to_owned(),
            routes: vec!["<sip:192.0.2.1;lr>".to_owned()],
            to: "<sip:5550003@gateway.example.net>;tag=x".to_owned(),
        };
        let one = identity(3);
        let written = [one.invite(), one.ack(&dialog), one.bye(&dialog), one.ack_of_failure(dialog.to.clone())];
        for (bytes, method) in written.iter().zip([Method::Invite, Method::Ack, Method::Bye, Method::Ack]) {
            let message = Message::parse(bytes).expect("it is a message");
            assert_eq!((message.method(), call_of(message.call_id())), (method, Some(3)));
        }
        assert!(may_be_dropped_unread(&written[0]));
    }

    #[test]
    fn retransmissions_keep_the_calls_unique_fingerprint() {
        let mut all: Vec<_> = (0..1_000).map(|call| fingerprint(&identity(call).invite(), 5)).collect();
        assert_eq!(all[9], fingerprint(&identity(9).invite(), 5));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 1_000);
    }
}
