//! Groups the messages of a capture into calls: the messages that belong together, those that each end sent and
//! received, and the retransmissions.

use std::net::{IpAddr, SocketAddr};

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use strowger_foundation::Transport;
use strowger_message::{Head, HeaderName, Method, NameAddr, StartLine, Uri, Via};

use super::capture::{Capture, CapturedMessage};
use super::skipped::{Reason, SkipCounts};
use crate::script::{Kind, MethodId};

/// A message of one end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallMessage {
    /// Its index in the capture.
    pub message: usize,
    /// When it was captured; `first_at` is the time of its first attempt, if it answers a challenge.
    pub at: u64,
    pub first_at: u64,
    /// Whether this end sent it.
    pub is_out: bool,
    pub kind: Kind,
    /// The CSeq number.
    pub number: u32,
    pub method: MethodId,
    /// Whether To has a tag.
    pub is_in_dialog: bool,
    /// Whether it carries credentials.
    pub has_credentials: bool,
}

impl CallMessage {
    /// Returns whether it is a request that begins a transaction of its own.
    pub(super) fn is_request(&self) -> bool {
        matches!(self.kind, Kind::Request(verb) if verb.takes_number())
    }

    /// Returns the status if it is a response.
    pub(super) fn status(&self) -> Option<u16> {
        if let Kind::Response(status) = self.kind { Some(status) } else { None }
    }
}

/// One end of a call.
#[derive(Clone, Debug, Default)]
pub(super) struct CallSide {
    /// The messages that it sent and received, in order.
    pub items: Vec<CallMessage>,
    /// Its own addresses.
    pub own: Vec<SocketAddr>,
    /// The first address that it exchanged messages with.
    pub peer: Option<SocketAddr>,
}

/// A call, a registration, or anything else that begins with a request.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// When its first request was sent.
    pub at: u64,
    pub caller: CallSide,
    /// The called end, if the capture has its messages.
    pub callee: Option<CallSide>,
}

/// Properties of a message that are used to group it.
#[derive(Clone, Copy, Debug)]
struct MessageNote {
    item: CallMessage,
    /// Hash of a request's branch or of a response's tag.
    mark: u64,
}

/// Groups the messages of a capture into calls, ordered by their beginning.
pub(super) fn calls(capture: &Capture, skipped: &mut SkipCounts) -> Vec<Call> {
    let hasher = FixedState::with_seed(3);
    let mut groups: HashMap<Vec<u8>, usize, FixedState> = HashMap::with_hasher(hasher);
    let mut notes: Vec<Vec<MessageNote>> = Vec::new();
    for (message, recorded) in capture.messages.iter().enumerate() {
        let Some((key, note)) = note(message, recorded) else {
            skipped.add(Reason::NoSip);
            continue;
        };
        let group = *groups.entry(key).or_insert_with(|| {
            notes.push(Vec::new());
            notes.len() - 1
        });
        if let Some(group) = notes.get_mut(group) {
            group.push(note);
        }
    }
    let mut calls: Vec<Call> = notes.iter().filter_map(|notes| call(notes, &capture.messages, skipped)).collect();
    calls.sort_by_key(|call| call.at);
    calls
}

/// Returns the key of the call that a message belongs to, and the message's properties. The key contains the Call-ID
/// and both parties, because gateways register all users under one Call-ID.
fn note(message: usize, recorded: &CapturedMessage) -> Option<(Vec<u8>, MessageNote)> {
    let head = Head::scan(&recorded.bytes).ok()?;
    let kind = kind_of(&head);
    let (number, verb) = read_cseq(head.first(HeaderName::CSeq)?)?;
    let to = head.first(HeaderName::To).and_then(NameAddr::parse);
    let from = head.first(HeaderName::From).and_then(NameAddr::parse);
    let (from_user, to_user) = (user_of(from.as_ref()), user_of(to.as_ref()));
    let (low, high) = if from_user <= to_user { (from_user, to_user) } else { (to_user, from_user) };
    let key = [head.first(HeaderName::CallId)?, low, high].join(&b'\0');
    let to_tag = to.and_then(|to| to.tag());
    let mark = match kind {
        Kind::Response(_) => to_tag.unwrap_or(&[]),
        _ => head.first(HeaderName::Via).and_then(Via::parse_first).and_then(|(via, _)| via.branch).unwrap_or(&[]),
    };
    let at = recorded.at;
    let has_credentials = has_credentials(&head);
    let is_in_dialog = to_tag.is_some();
    let item = CallMessage {
        message,
        at,
        first_at: at,
        is_out: false,
        kind,
        number,
        method: verb,
        is_in_dialog,
        has_credentials,
    };
    Some((key, MessageNote { item, mark: hash(mark) }))
}

/// Returns the kind of a message.
pub(super) fn kind_of(head: &Head<'_>) -> Kind {
    match head.start() {
        StartLine::Request { method, .. } => Kind::Request(MethodId::of(method)),
        StartLine::Response { status, .. } => Kind::Response(status.code()),
    }
}

/// Parses `number METHOD`.
pub(super) fn read_cseq(value: &[u8]) -> Option<(u32, MethodId)> {
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, method) = value.split_at_checked(digits)?;
    let number = strowger_message::parse_decimal(digits).and_then(|number| u32::try_from(number).ok())?;
    Some((number, MethodId::of(Method::from_token(method.trim_ascii()))))
}

/// Returns the user part of a party's URI, or the whole URI if it is not a SIP URI.
pub(super) fn user_of<'a>(party: Option<&NameAddr<'a>>) -> &'a [u8] {
    let Some(party) = party else { return &[] };
    match Uri::parse(party.uri) {
        Some(Uri::Sip(uri)) => uri.user.unwrap_or(&[]),
        _ => party.uri,
    }
}

fn hash(bytes: &[u8]) -> u64 {
    use std::hash::BuildHasher as _;
    FixedState::with_seed(4).hash_one(bytes)
}

fn call(notes: &[MessageNote], messages: &[CapturedMessage], skipped: &mut SkipCounts) -> Option<Call> {
    let begins = |note: &MessageNote| note.item.is_request() && !note.item.is_in_dialog;
    let Some(first) = notes.iter().position(begins) else {
        skipped.add_many(Reason::NoBeginning, notes.len() as u64);
        return None;
    };
    skipped.add_many(Reason::NoBeginning, first as u64);
    let notes = notes.get(first..)?;
    let first = messages.get(notes.first()?.item.message)?;
    let mut used: HashSet<usize, FixedState> = HashSet::with_hasher(FixedState::with_seed(5));
    let own = addresses(first, true);
    let caller = end(notes, messages, (own, first.destination), &mut used, skipped);
    let callee = callee_at(notes, messages).map(|(mut own, peer)| {
        let contact = notes.iter().filter_map(|note| messages.get(note.item.message));
        let answered = contact.filter(|message| own.first() == Some(&message.source));
        own.extend(answered.flat_map(|message| addresses(message, false)).collect::<Vec<_>>());
        own.dedup();
        // The other end may drop the same copies, which are not counted twice.
        end(notes, messages, (own, peer), &mut used, &mut SkipCounts::default())
    });
    let others = notes.iter().filter(|note| !used.contains(&note.item.message)).count();
    skipped.add_many(Reason::OtherHop, others as u64);
    Some(Call { at: notes.first()?.item.at, caller, callee: callee.filter(|end| !end.items.is_empty()) })
}

/// Returns the addresses of a message's sender: the source, and those in its Via and Contact.
fn addresses(message: &CapturedMessage, has_via: bool) -> Vec<SocketAddr> {
    let mut found = vec![message.source];
    let Ok(head) = Head::scan(&message.bytes) else { return found };
    let mut add = |ip: Option<IpAddr>, port: Option<u16>| {
        let address = ip.map(|ip| SocketAddr::new(ip, port.unwrap_or(5060)));
        found.extend(address.filter(|address| *address != message.destination));
    };
    if let (true, Some((via, _))) = (has_via, head.first(HeaderName::Via).and_then(Via::parse_first)) {
        add(via.host().ip(), via.sent_by.port);
    }
    let contact = head.first(HeaderName::Contact).and_then(NameAddr::parse_first);
    if let Some(Uri::Sip(uri)) = contact.and_then(|(contact, _)| Uri::parse(contact.uri)) {
        add(uri.host().ip(), uri.port());
    }
    found
}

/// Returns the last hop of a call's first request, callee and caller side, if the callee answered and the request was
/// not a REGISTER.
fn callee_at(notes: &[MessageNote], messages: &[CapturedMessage]) -> Option<(Vec<SocketAddr>, SocketAddr)> {
    let verb = match notes.first()?.item.kind {
        Kind::Request(verb) => verb,
        _ => return None,
    };
    let mut hops: Vec<(SocketAddr, SocketAddr)> = Vec::new();
    for note in notes.iter().filter(|note| note.item.kind == Kind::Request(verb) && !note.item.is_in_dialog) {
        let Some(message) = messages.get(note.item.message) else { continue };
        let hop = (message.source, message.destination);
        if !hops.contains(&hop) {
            hops.push(hop);
        }
    }
    let answers_itself = matches!(verb, MethodId::Invite | MethodId::Message);
    if verb == MethodId::Register || (hops.len() < 2 && !answers_itself) {
        return None;
    }
    let sends_on = |address: SocketAddr| hops.iter().any(|(source, _)| *source == address);
    let ends: Vec<_> = hops.iter().copied().filter(|(_, destination)| !sends_on(*destination)).collect();
    let says_yes = |(source, destination): &(SocketAddr, SocketAddr)| {
        notes.iter().any(|note| {
            let message = messages.get(note.item.message);
            matches!(note.item.kind, Kind::Response(200..=299))
                && note.item.method == verb
                && message.is_some_and(|message| (message.source, message.destination) == (*destination, *source))
        })
    };
    let (source, destination) = ends.iter().find(|hop| says_yes(hop)).or(ends.last()).copied()?;
    Some((vec![destination], source))
}

/// Returns what one end sent and received, without retransmissions, challenges and the requests that were challenged.
fn end(
    notes: &[MessageNote],
    messages: &[CapturedMessage],
    (own, peer): (Vec<SocketAddr>, SocketAddr),
    used: &mut HashSet<usize, FixedState>,
    skipped: &mut SkipCounts,
) -> CallSide {
    let mut seen = HashSet::with_hasher(FixedState::with_seed(6));
    let mut items: Vec<CallMessage> = Vec::new();
    let first = own.first().copied();
    let is_own = |address: SocketAddr, transport: Transport| {
        // A new TCP connection has a new port.
        let is_same_host = transport == Transport::Tcp
            && first.is_some_and(|first| first.ip() == address.ip() && first.ip() != peer.ip());
        own.contains(&address) || is_same_host
    };
    for note in notes {
        let Some(message) = messages.get(note.item.message) else { continue };
        let is_out = is_own(message.source, message.transport);
        if !is_out && !is_own(message.destination, message.transport) {
            continue;
        }
        used.insert(note.item.message);
        let key = (is_out, note.item.kind, note.item.number, note.item.method, note.mark);
        if seen.insert(key) {
            items.push(CallMessage { is_out, ..note.item });
        } else {
            skipped.add(Reason::Repeated);
        }
    }
    drop_challenged(&mut items);
    CallSide { items, own, peer: Some(peer) }
}

/// Merges a challenged request with its repetition with credentials: the time of the first attempt, and the response
/// to the last.
fn drop_challenged(items: &mut Vec<CallMessage>) {
    let mut at = 0;
    while let Some(request) = items.get(at).copied() {
        at += 1;
        if !request.is_request() {
            continue;
        }
        let behind = items.get(at..).unwrap_or(&[]);
        let is_answer = |item: &&CallMessage| {
            item.is_out != request.is_out && item.number == request.number && item.method == request.method
        };
        let last = behind.iter().filter(is_answer).find(|item| item.status().is_some_and(|status| status >= 200));
        if !matches!(last.and_then(CallMessage::status), Some(401 | 407)) {
            continue;
        }
        let again = behind.iter().position(|item| {
            item.is_out == request.is_out && item.kind == request.kind && item.number > request.number
        });
        let Some(again) = again.map(|again| again + at) else { continue };
        let Some(retry) = items.get_mut(again).filter(|retry| retry.has_credentials) else { continue };
        retry.first_at = request.first_at;
        let is_gone = |item: &CallMessage| {
            item.number == request.number
                && (item.method == request.method || item.kind == Kind::Request(MethodId::Ack))
                && (item.kind == request.kind || item.kind == Kind::Request(MethodId::Ack) || item.status().is_some())
        };
        let before = items.len();
        let mut index = 0;
        items.retain(|item| {
            let here = index;
            index += 1;
            here + 1 < at || here >= again || !is_gone(item)
        });
        at -= usize::from(items.len() < before);
    }
}

/// Properties of a message that show whether it begins a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestSummary<'a> {
    pub kind: Kind,
    pub call_id: &'a [u8],
    pub number: u32,
    pub method: MethodId,
    pub is_in_dialog: bool,
    pub has_credentials: bool,
}

/// Parses the properties; `None` if the message lacks a mandatory field.
pub(crate) fn opening(recorded: &CapturedMessage) -> Option<RequestSummary<'_>> {
    let head = Head::scan(&recorded.bytes).ok()?;
    let (number, verb) = read_cseq(head.first(HeaderName::CSeq)?)?;
    let to = head.first(HeaderName::To).and_then(NameAddr::parse);
    Some(RequestSummary {
        kind: kind_of(&head),
        call_id: head.first(HeaderName::CallId)?,
        number,
        method: verb,
        is_in_dialog: to.and_then(|to| to.tag()).is_some(),
        has_credentials: has_credentials(&head),
    })
}

fn has_credentials(head: &Head<'_>) -> bool {
    head.first(HeaderName::Authorization).or(head.first(HeaderName::ProxyAuthorization)).is_some()
}
