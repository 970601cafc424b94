//! A checked message: everything that RFC 3261 requires of all messages is parsed and verified, the rest on demand.

use crate::cseq::{CSeq, read_cseq};
use crate::fault::Fault;
use crate::framer;
use crate::head::{Head, StartLine};
use crate::header::{HeaderName, HeaderSet};
use crate::method::Method;
use crate::name_addr::NameAddr;
use crate::peek::{Kind, Peek};
use crate::status::Status;
use crate::text;
use crate::uri::Uri;
use crate::via::Via;

/// A request or response whose required headers are well-formed.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    head: HeadRef<'a>,
    parts: ValueRefs<'a>,
    call_id: &'a [u8],
    cseq: CSeq<'a>,
    max_forwards: Option<u8>,
}

/// The head, or a reference to it. A head is large, so it stays in the peek if there is one.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "the small one is the usual one, and of the other few are alive")]
enum HeadRef<'a> {
    OfPeek(&'a Head<'a>),
    Own(Head<'a>),
}

/// References to the large values, which stay in the peek if they were read there.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "as above")]
enum ValueRefs<'a> {
    OfPeek {
        via: &'a Via<'a>,
        next_via: Option<&'a Via<'a>>,
        from: &'a NameAddr<'a>,
        to: &'a NameAddr<'a>,
        uri: Option<&'a Uri<'a>>,
    },
    Own {
        via: Via<'a>,
        from: NameAddr<'a>,
        to: NameAddr<'a>,
        uri: Option<Uri<'a>>,
    },
}

impl<'a> Message<'a> {
    /// Parses a datagram or one framed message of a stream.
    ///
    /// # Errors
    /// Returns the fault, and the head if one was found: a request that has at least a top Via can then be answered.
    #[expect(clippy::result_large_err, reason = "the error holds the head that the answer is built from; it is rare")]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, (Fault, Option<Head<'a>>)> {
        let peek = Peek::read(bytes).map_err(|fault| (fault, None))?;
        match RequiredFields::read_any(&peek) {
            Ok(required) => Ok(Self::new(HeadRef::Own(peek.into_head()), required)),
            Err(fault) => Err((fault, Some(peek.into_head()))),
        }
    }

    /// Parses the required fields of a peeked message; nothing is read twice.
    ///
    /// # Errors
    /// Returns the fault; the response is built from the peek.
    // Inlined so that the values are written directly to their destination.
    #[inline(always)]
    pub fn from_peek(peek: &'a Peek<'a>) -> Result<Self, Fault> {
        match Self::from_fast_path(peek) {
            Some(message) => Ok(message),
            None => Self::from_slow_path(peek),
        }
    }

    /// Builds the message from the values read during line scanning, if they are complete. Equivalent to
    /// [`RequiredFields::read_any`].
    #[inline(always)]
    fn from_fast_path(peek: &'a Peek<'a>) -> Option<Self> {
        let (head, usual) = (peek.head(), &peek.fast_path);
        let is_all_read = head.seen().with(CALL_ID).intersection(CHECKED).without(usual.read).is_empty();
        if !is_all_read || !head.is_sip_2_0() || head.has_repeated(SINGLE) {
            return None;
        }
        let (via, from, to, cseq) = (peek.via.as_ref()?, usual.from.as_ref()?, usual.to.as_ref()?, usual.cseq?);
        let uri = match peek.kind {
            Kind::Request(method) if method == cseq.method && !via.is_bare_cookie() => Some(usual.target.as_ref()?),
            Kind::Request(_) => return None,
            Kind::Response(_) => None,
        };
        let parts = ValueRefs::OfPeek { via, next_via: usual.next_via.as_ref(), from, to, uri };
        let (call_id, max_forwards) = (peek.call_id, usual.max_forwards);
        Some(Self { head: HeadRef::OfPeek(head), parts, call_id, cseq, max_forwards })
    }

    #[inline(never)]
    fn from_slow_path(peek: &'a Peek<'a>) -> Result<Self, Fault> {
        RequiredFields::read_any(peek).map(|required| Self::new(HeadRef::OfPeek(peek.head()), required))
    }

    fn new(head: HeadRef<'a>, required: RequiredFields<'a>) -> Self {
        let RequiredFields { via, from, to, call_id, cseq, max_forwards, uri } = required;
        Self { head, parts: ValueRefs::Own { via, from, to, uri }, call_id, cseq, max_forwards }
    }

    /// The head: lines and header values.
    #[must_use]
    pub const fn head(&self) -> &Head<'a> {
        match &self.head {
            HeadRef::OfPeek(head) => head,
            HeadRef::Own(head) => head,
        }
    }

    /// All bytes of the message, without trailing bytes of the datagram.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.head().bytes()
    }

    /// The first line.
    #[must_use]
    pub const fn start(&self) -> StartLine<'a> {
        self.head().start()
    }

    /// The method of a request, or the CSeq method of a response.
    #[must_use]
    pub const fn method(&self) -> Method<'a> {
        self.cseq.method
    }

    /// The status of a response.
    #[must_use]
    pub const fn status(&self) -> Option<Status> {
        match self.head().start() {
            StartLine::Response { status, .. } => Some(status),
            StartLine::Request { .. } => None,
        }
    }

    /// The Request-URI as written; empty for a response.
    #[must_use]
    pub const fn request_uri(&self) -> &'a [u8] {
        match self.head().start() {
            StartLine::Request { uri, .. } => uri,
            StartLine::Response { .. } => &[],
        }
    }

    /// The parsed Request-URI; `None` for a response.
    #[must_use]
    pub const fn uri(&self) -> Option<&Uri<'a>> {
        match &self.parts {
            ValueRefs::OfPeek { uri, .. } => *uri,
            ValueRefs::Own { uri, .. } => uri.as_ref(),
        }
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        self.head().rest()
    }

    /// The topmost Via.
    #[must_use]
    pub const fn via(&self) -> &Via<'a> {
        match &self.parts {
            ValueRefs::OfPeek { via, .. } => via,
            ValueRefs::Own { via, .. } => via,
        }
    }

    /// Whether the topmost Via is the only one.
    #[must_use]
    pub fn has_one_via(&self) -> bool {
        self.behind_top_via().is_empty() && !self.head().has_repeated(HeaderSet::of(HeaderName::Via))
    }

    /// Whether a well-formed Via follows the topmost one.
    #[must_use]
    pub fn has_next_via(&self) -> bool {
        matches!(self.parts, ValueRefs::OfPeek { next_via: Some(_), .. }) || self.next_via().is_some()
    }

    /// Returns the Via below the topmost one, or `None` if it is missing or malformed.
    #[must_use]
    pub fn next_via(&self) -> Option<Via<'a>> {
        if let ValueRefs::OfPeek { next_via: Some(via), .. } = self.parts {
            return Some(*via);
        }
        let value = match text::trim_start(self.behind_top_via()) {
            [b',', next @ ..] => next,
            _ if self.has_one_via() => return None,
            _ => self.head().all(HeaderName::Via).nth(1)?,
        };
        Via::parse_first(value).map(|(via, _)| via)
    }

    /// Whether the Via below the topmost one has [uncommon parameters](Via::has_other_params).
    #[inline(always)]
    #[must_use]
    pub fn has_other_next_via_params(&self) -> bool {
        match self.parts {
            ValueRefs::OfPeek { next_via: Some(via), .. } => via.has_other_params,
            _ => self.next_via().is_some_and(|via| via.has_other_params),
        }
    }

    /// Returns what follows the topmost Via in its field: nothing, or a list starting with the comma.
    #[must_use]
    pub fn behind_top_via(&self) -> &'a [u8] {
        let value = self.head().first(HeaderName::Via).unwrap_or(&[]);
        value.get(self.via().text.len()..).unwrap_or(&[])
    }

    /// From.
    #[must_use]
    pub const fn from(&self) -> &NameAddr<'a> {
        match &self.parts {
            ValueRefs::OfPeek { from, .. } => from,
            ValueRefs::Own { from, .. } => from,
        }
    }

    /// To.
    #[must_use]
    pub const fn to(&self) -> &NameAddr<'a> {
        match &self.parts {
            ValueRefs::OfPeek { to, .. } => to,
            ValueRefs::Own { to, .. } => to,
        }
    }

    /// Call-ID.
    #[must_use]
    pub const fn call_id(&self) -> &'a [u8] {
        self.call_id
    }

    /// CSeq.
    #[must_use]
    pub const fn cseq(&self) -> CSeq<'a> {
        self.cseq
    }

    /// Max-Forwards, if present.
    #[must_use]
    pub const fn max_forwards(&self) -> Option<u8> {
        self.max_forwards
    }
}

/// The required fields of a message that the fast path did not read completely.
#[derive(Clone, Copy)]
struct RequiredFields<'a> {
    via: Via<'a>,
    from: NameAddr<'a>,
    to: NameAddr<'a>,
    call_id: &'a [u8],
    cseq: CSeq<'a>,
    max_forwards: Option<u8>,
    uri: Option<Uri<'a>>,
}

impl<'a> RequiredFields<'a> {
    /// Reads with the full grammar what line scanning did not, one rule after the other.
    fn read_any(peek: &Peek<'a>) -> Result<Self, Fault> {
        let (head, usual) = (peek.head(), &peek.fast_path);
        let Some(via) = peek.via else { return Err(fault_without_via(head)) };
        check_lines(head)?;
        let required = |name: HeaderName| head.first(name).ok_or(Fault::Missing(name.as_str()));
        let address = |read: Option<NameAddr<'a>>, name: HeaderName| match read {
            Some(address) => Ok(address),
            None => NameAddr::parse(required(name)?).ok_or(Fault::Header(name.as_str())),
        };
        let from = address(usual.from, HeaderName::From)?;
        let to = address(usual.to, HeaderName::To)?;
        let call_id = required(HeaderName::CallId)?;
        // `callid = word [ "@" word ]`; `is_word` accepts the at sign.
        if !text::is_word(call_id) {
            return Err(Fault::Header("Call-ID"));
        }
        let cseq = match usual.cseq {
            Some(cseq) => cseq,
            None => read_cseq(required(HeaderName::CSeq)?).ok_or(Fault::Header("CSeq"))?,
        };
        let mut request_uri = None;
        if let StartLine::Request { method, uri } = head.start() {
            // A bare magic cookie has no identifier, so this sender's requests cannot be told apart.
            if via.is_bare_cookie() {
                return Err(Fault::Header("Via"));
            }
            if method != cseq.method {
                return Err(Fault::CSeqMethod);
            }
            let uri = usual.target.or_else(|| Uri::parse(uri)).ok_or(Fault::RequestUri)?;
            // A Request-URI must not have headers (RFC 3261 §19.1.1, table 1): they must never become header fields.
            if uri.sip().is_some_and(|uri| uri.headers.is_some()) {
                return Err(Fault::RequestUri);
            }
            request_uri = Some(uri);
        }
        let max_forwards = head.first(HeaderName::MaxForwards).map(read_max_forwards).transpose()?;
        let is_contact_read = usual.read.intersects(HeaderSet::of(HeaderName::Contact));
        if let Some(contact) = head.first(HeaderName::Contact).filter(|_| !is_contact_read)
            && contact != b"*"
            && !is_address_list(contact)
        {
            return Err(Fault::Header("Contact"));
        }
        framer::datagram_body(head)?;
        Ok(Self { via, from, to, call_id, cseq, max_forwards, uri: request_uri })
    }
}

/// Checks the version and that single-valued fields are not repeated, before anything is parsed.
fn check_lines(head: &Head<'_>) -> Result<(), Fault> {
    if !head.is_sip_2_0() {
        return Err(Fault::Version);
    }
    if head.has_repeated(SINGLE) {
        return Err(first_repeated(head));
    }
    Ok(())
}

/// Returns the fault of a head whose topmost Via is missing or malformed.
#[cold]
fn fault_without_via(head: &Head<'_>) -> Fault {
    let via = head.first(HeaderName::Via).map_or(Fault::Missing("Via"), |_| Fault::Header("Via"));
    check_lines(head).err().unwrap_or(via)
}

/// Required, but not a field of `FastPathValues`.
const CALL_ID: HeaderSet = HeaderSet::of(HeaderName::CallId);

/// Checked if present.
const CHECKED: HeaderSet =
    SINGLE.with(HeaderSet::of(HeaderName::Contact)).with(HeaderSet::of(HeaderName::ContentLength));

/// Allowed only once in every message.
const SINGLE: HeaderSet = HeaderSet::of(HeaderName::From)
    .with(HeaderSet::of(HeaderName::To))
    .with(HeaderSet::of(HeaderName::CallId))
    .with(HeaderSet::of(HeaderName::CSeq))
    .with(HeaderSet::of(HeaderName::MaxForwards));

/// Returns the fault for the first repeated single-valued field.
#[cold]
fn first_repeated(head: &Head<'_>) -> Fault {
    let mut seen = HeaderSet::default();
    for name in head.fields().iter().map(|field| field.name) {
        let set = HeaderSet::of(name);
        if SINGLE.intersects(set) && seen.intersects(set) {
            return Fault::Repeated(name.as_str());
        }
        seen = seen.with(set);
    }
    Fault::HeaderLine
}

/// Whether every element of a list is an address.
fn is_address_list(value: &[u8]) -> bool {
    let mut rest = value;
    loop {
        match NameAddr::parse_first(rest) {
            Some((_, [])) => return true,
            Some((_, [_comma, tail @ ..])) => rest = tail,
            None => return false,
        }
    }
}

fn read_max_forwards(value: &[u8]) -> Result<u8, Fault> {
    text::parse_decimal(value).and_then(|hops| u8::try_from(hops).ok()).ok_or(Fault::Header("Max-Forwards"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INVITE: &str = "INVITE sip:bob@biloxi.com SIP/2.0\r\n\
        Via: SIP/2.0/UDP pc33.atlanta.com;branch=z9hG4bK776asdhds\r\n\
        Max-Forwards: 70\r\n\
        To: Bob <sip:bob@biloxi.com>\r\n\
        From: Alice <sip:alice@atlanta.com>;tag=1928301774\r\n\
        Call-ID: a84b4c76e66710@pc33.atlanta.com\r\n\
        CSeq: 314159 INVITE\r\n\
        Contact: <sip:alice@pc33.atlanta.com>\r\n\
        Content-Length: 4\r\n\r\nbodyTRAILING";

    fn fault(message: &str) -> Fault {
        Message::parse(message.as_bytes()).expect_err("refused").0
    }

    //= rfc3261#18.3:surplus
    #[test]
    fn a_usual_request() {
        let message = Message::parse(INVITE.as_bytes()).expect("valid");
        assert_eq!(message.method(), Method::Invite);
        assert_eq!(message.request_uri(), b"sip:bob@biloxi.com");
        assert_eq!(message.from().tag(), Some(&b"1928301774"[..]));
        assert_eq!(message.cseq().number, 314_159);
        assert_eq!(message.max_forwards(), Some(70));
        assert_eq!(message.body(), b"body", "bytes past Content-Length are ignored on a datagram");
        assert!(message.bytes().ends_with(b"\r\n\r\nbody"));
    }

    #[test]
    fn each_rule_has_its_fault() {
        let cases = [
            ("CSeq: 314159 INVITE", "CSeq: 314159 OPTIONS", Fault::CSeqMethod),
            ("sip:bob@biloxi.com SIP/2.0", "sip:bob@biloxi.com SIP/7.0", Fault::Version),
            ("branch=z9hG4bK776asdhds", "branch=z9hG4bK", Fault::Header("Via")),
            ("CSeq: 314159 INVITE", "CSeq: 2147483648 INVITE", Fault::Header("CSeq")),
            ("CSeq: 314159 INVITE", "CSeq: 1INVITE", Fault::Header("CSeq")),
            ("Max-Forwards: 70", "Max-Forwards: 256", Fault::Header("Max-Forwards")),
            ("Max-Forwards: 70", "Max-Forwards: 70\r\nMax-Forwards: 70", Fault::Repeated("Max-Forwards")),
            ("Call-ID: a84b4c76e66710@pc33.atlanta.com\r\n", "", Fault::Missing("Call-ID")),
            ("Via: SIP/2.0/UDP pc33.atlanta.com;branch=z9hG4bK776asdhds\r\n", "", Fault::Missing("Via")),
            ("To: Bob <sip:bob@biloxi.com>", "To: \"Bob <sip:bob@biloxi.com>", Fault::Header("To")),
            ("sip:bob@biloxi.com SIP/2.0", "<sip:bob@biloxi.com> SIP/2.0", Fault::RequestUri),
            ("sip:bob@biloxi.com SIP/2.0", "sip:bob@biloxi.com?Route=x SIP/2.0", Fault::RequestUri),
            ("sip:bob@biloxi.com SIP/2.0", "sip:bob@biloxi.com; lr SIP/2.0", Fault::RequestUri),
            ("Content-Length: 4", "Content-Length: 99", Fault::ContentLength),
            ("Content-Length: 4", "Content-Length: 4\r\nl: 4", Fault::ContentLength),
            ("Contact: <sip:alice@pc33.atlanta.com>", "Contact: \"Joe\" <sip:joe@x>;;;;", Fault::Header("Contact")),
        ];
        for (from, to, expected) in cases {
            assert!(INVITE.contains(from));
            assert_eq!(fault(&INVITE.replacen(from, to, 1)), expected, "{to}");
        }
    }
}
