//! A call as stored, with as little memory as possible.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use strowger_balancer::CallGuard;
use strowger_foundation::{Flow, TimerId, Timestamp, Transport, octets};
use strowger_message::{HeaderName, Message, Uri};

use crate::dialog::{DialogView, MAX_DIALOG};
use crate::record::{CallRecord, CallText, CallView, Reason, State, Trunks};

/// Bytes stored of each party's URI.
pub const MAX_PARTY: usize = 128;
/// Bytes stored of a Call-ID.
pub const MAX_CALL_ID: usize = 256;

/// A call in progress.
#[derive(Debug)]
pub(crate) struct Call {
    /// The lookup key; see [`CallKey`](crate::CallKey).
    pub(crate) key: u64,
    pub(crate) began: Timestamp,
    /// Time of the answer; [`Timestamp::MAX`] before it.
    pub(crate) answered: Timestamp,
    /// When the call expires.
    pub(crate) until: Timestamp,
    /// Fires at `until` or earlier.
    pub(crate) timer: Option<TimerId>,
    pub(crate) text: CallText,
    pub(crate) source: CompactAddr,
    pub(crate) target: CompactAddr,
    /// Stored apart because most calls have none.
    pub(crate) trunks: Option<Box<Trunks>>,
    /// Counts the call at its target of a balanced set until the call ends.
    pub(crate) call_guard: Option<CallGuard>,
    /// Hash of the tag of the callee that answered: a BYE in another dialog of the same INVITE does not end the call.
    pub(crate) callee_tag: u32,
    pub(crate) transport: Transport,
    /// Of the 2xx.
    pub(crate) target_transport: Transport,
    pub(crate) state: State,
    /// Number of pending INVITE transactions; above one if the INVITE passes this server twice.
    pub(crate) legs: u8,
    /// Who wants to end the call, if anybody does.
    pub(crate) stop: Stop,
    /// Whether the timer is a session timer (RFC 4028).
    pub(crate) has_session_timer: bool,
    /// Status of the challenge while the call is [`State::Challenged`].
    pub(crate) challenge: u16,
}

/// Who wants to end a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    No,
    /// The caller has sent CANCEL.
    ByCaller,
    /// The operator has given the command.
    ByOperator,
}

impl Call {
    pub(crate) fn new(now: Timestamp, key: u64, invite: &Message<'_>, transport: Transport, peer: SocketAddr) -> Self {
        Self {
            key,
            began: now,
            answered: Timestamp::MAX,
            until: Timestamp::ZERO,
            timer: None,
            text: text_of(invite),
            source: CompactAddr::from(peer),
            target: CompactAddr::NONE,
            trunks: None,
            call_guard: None,
            callee_tag: 0,
            transport,
            target_transport: Transport::default(),
            state: State::Trying,
            legs: 1,
            stop: Stop::No,
            has_session_timer: false,
            challenge: 0,
        }
    }

    /// Handles the first 2xx.
    pub(crate) fn on_answer(&mut self, now: Timestamp, callee_tag: u32, answer: &Message<'_>, target: &Flow) {
        debug_assert!(self.state != State::Answered, "the first answered dialog is the call");
        self.state = State::Answered;
        self.answered = now;
        self.callee_tag = callee_tag;
        self.text.store_dialog(answer);
        self.target = CompactAddr::from(target.peer);
        self.target_transport = target.transport;
    }

    /// Returns the dialog of the answered call, if it is known.
    pub(crate) fn dialog(&self) -> Option<DialogView<'_>> {
        self.answered().and_then(|_| self.text.dialog())
    }

    pub(crate) fn call_id(&self) -> &[u8] {
        self.text.call_id()
    }

    pub(crate) fn set_source_trunk(&mut self, name: &str) {
        self.trunks.get_or_insert_default().source = Some(name.into());
    }

    pub(crate) fn set_target_trunk(&mut self, name: Option<&str>, request_uri: &[u8]) {
        let uri = bare(request_uri);
        let uri = (uri != self.text.callee()).then(|| uri.into());
        if name.is_some() || uri.is_some() || self.trunks.is_some() {
            let trunks = self.trunks.get_or_insert_default();
            (trunks.target, trunks.target_uri) = (name.map(Into::into), uri);
        }
    }

    pub(crate) fn on_failure(&mut self, target: Option<SocketAddr>) {
        self.target = target.map_or(CompactAddr::NONE, CompactAddr::from);
    }

    pub(crate) fn view(&self) -> CallView<'_> {
        CallView {
            state: self.state,
            began: self.began,
            answered: self.answered(),
            transport: self.transport,
            source: self.source.address(),
            target: self.target(),
            target_transport: self.answered().map(|_| self.target_transport),
            caller: self.text.caller(),
            callee: self.text.callee(),
            call_id: self.text.call_id(),
        }
    }

    pub(crate) fn into_record(self, ended: Timestamp, reason: Reason, status: Option<u16>) -> CallRecord {
        CallRecord {
            key: self.key,
            began: self.began,
            answered: self.answered(),
            ended: ended.max(self.began),
            reason,
            status,
            transport: self.transport,
            source: self.source.address(),
            target: self.target(),
            trunks: self.trunks,
            text: self.text,
        }
    }

    fn answered(&self) -> Option<Timestamp> {
        (self.state == State::Answered).then_some(self.answered)
    }

    fn target(&self) -> Option<SocketAddr> {
        (self.target != CompactAddr::NONE).then(|| self.target.address())
    }
}

fn text_of(invite: &Message<'_>) -> CallText {
    let caller = bare(invite.from().uri);
    let callee = bare(invite.request_uri());
    let call_id = invite.call_id();
    let contact = invite.head().first(HeaderName::Contact).filter(|contact| contact.len() <= MAX_DIALOG);
    CallText::new(caller, callee, call_id.get(..MAX_CALL_ID).unwrap_or(call_id), contact.unwrap_or_default())
}

/// Returns the URI without parameters, truncated to its limit.
fn bare(text: &[u8]) -> &[u8] {
    // Fast path: most have none, which a scan shows. It has no early exit so that it is vectorized.
    let has_more = text.iter().fold(false, |found, byte| found | matches!(byte, b';' | b'?'));
    let bare = match has_more.then(|| Uri::parse(text)).flatten() {
        Some(Uri::Sip(uri)) => {
            let params = uri.params.as_bytes();
            let headers = uri.headers.map_or(0, |headers| headers.len().saturating_add(1));
            // The length may or may not include a parameter's semicolon; the part before the first one is wanted.
            let end = uri.text.len().saturating_sub(headers).saturating_sub(params.len());
            let start = uri.text.get(..end).unwrap_or(uri.text);
            start.strip_suffix(b";").unwrap_or(start)
        }
        _ => text,
    };
    bare.get(..MAX_PARTY).unwrap_or(bare)
}

/// An address in 18 bytes: IPv4 is mapped into IPv6; the scope of a link-local address is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompactAddr {
    pub(crate) ip: [u8; 16],
    pub(crate) port: u16,
}

impl CompactAddr {
    /// An address that no peer has.
    const NONE: Self = Self { ip: [0; 16], port: 0 };

    fn address(self) -> SocketAddr {
        SocketAddr::new(IpAddr::V6(Ipv6Addr::from(self.ip)).to_canonical(), self.port)
    }
}

impl From<SocketAddr> for CompactAddr {
    fn from(address: SocketAddr) -> Self {
        Self { ip: octets(address.ip()), port: address.port() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_party_is_only_its_address() {
        let cases: [(&[u8], &[u8]); 6] = [
            (b"sip:alice@example.com", b"sip:alice@example.com"),
            (b"sip:alice@example.com;transport=tcp;lr", b"sip:alice@example.com"),
            (b"sip:alice;day=1@example.com:5080;user=phone?Subject=x", b"sip:alice;day=1@example.com:5080"),
            (b"sips:[2001:db8::1]:5061", b"sips:[2001:db8::1]:5061"),
            (b"tel:+1-201-555-0123", b"tel:+1-201-555-0123"),
            (b"urn:service:sos", b"urn:service:sos"),
        ];
        for (written, kept) in cases {
            assert_eq!(bare(written), kept);
        }
        assert_eq!(bare(&[b"sip:".to_vec(), vec![b'a'; 500]].concat()).len(), MAX_PARTY);
    }

    #[test]
    fn compact_addresses_round_trip() {
        for text in ["192.0.2.1:5060", "[2001:db8::1]:5061", "0.0.0.0:1"] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(CompactAddr::from(address).address(), address);
            assert_ne!(CompactAddr::from(address), CompactAddr::NONE);
        }
    }

    #[test]
    fn a_call_is_small() {
        assert!(size_of::<Call>() <= 128, "{}", size_of::<Call>());
    }
}
