//! Editing of forwarded requests and responses: only what a proxy must change (RFC 3261 §16.6, §16.7).

use core::ops::Range;

use strowger_foundation::{Flow, Transport};
use strowger_message::{
    AuthParams, Decimal, Field, Head, HeaderName, HeaderSet, Message, Method, Rewrite, Via, split_list, trim, unquote,
};

use crate::listener::Listener;
use crate::local;
use crate::policy::Changes;
use crate::routing::RouteSet;

//= rfc3261#16.6:seventy
/// Max-Forwards for a request without it (RFC 3261 §16.6 step 3).
const DEFAULT_MAX_FORWARDS: u8 = 70;

/// Edits common to all branches of a request.
#[derive(Clone, Copy, Debug)]
pub struct Edits<'a> {
    /// Source of the request.
    pub source: Flow,
    /// Its Route set.
    pub routes: &'a RouteSet<'a>,
    /// Whether the next hop is a strict router, whose URI becomes the Request-URI.
    pub strict: bool,
    /// Whether to record-route.
    pub record_route: bool,
    /// Whether to remove P-Asserted-Identity, because the sender is not trusted.
    pub strip_identity: bool,
    /// The realm whose Proxy-Authorization is removed: it was for this server only.
    pub strip_credentials: Option<&'a [u8]>,
}

/// Edits specific to a branch.
#[derive(Clone, Copy, Debug)]
pub struct BranchEdits<'a> {
    /// The Request-URI.
    pub request_uri: &'a [u8],
    /// The listener to send from.
    pub egress: &'a Listener,
    /// Our branch.
    pub branch: &'a [u8],
    /// Our Record-Route.
    pub record_route: Option<&'a [u8]>,
    /// Max-Breadth to write, if any.
    pub max_breadth: Option<u32>,
    /// Route headers to insert before all others: the Path of a registered contact (RFC 3327 §5.4).
    pub path: Option<&'a [u8]>,
    /// Our Path, for a forwarded REGISTER.
    pub own_path: Option<&'a [u8]>,
    /// Header changes of the route.
    pub changes: Option<&'a Changes>,
    /// Our own credentials, as whole lines.
    pub credentials: &'a [u8],
    /// The overload control offer in our Via, if any.
    pub overload_offer: Option<&'static [u8]>,
}

/// Whether the request can begin a dialog, which can be record-routed.
#[must_use]
pub fn begins_dialog(message: &Message<'_>) -> bool {
    let begins = matches!(message.method(), Method::Invite | Method::Subscribe | Method::Refer);
    begins && message.to().tag().is_none()
}

//= rfc3261#16.6:copies-fields
//= rfc3261#16.6:removes-nothing
//= rfc3261#16.6:order
//= rfc3261#16.6:order-of-values
//= rfc3261#16.6:body
/// Writes the request for a branch.
pub fn write_request(out: &mut Vec<u8>, message: &Message<'_>, edits: &Edits<'_>, hop: &BranchEdits<'_>) {
    let head = message.head();
    let mut copy = Rewrite::new(head, out);
    //= rfc3261#16.6:route-to-uri
    let request_uri = if edits.strict { edits.routes.next_hop() } else { hop.request_uri };
    //= rfc3261#16.6:request-uri
    if request_uri != message.request_uri() {
        copy.remove(message.request_uri()).add(&[request_uri]);
    }
    copy.copy_to(head.fields_start());
    add_fields(&mut copy, message, hop);
    let mut routes = RouteEdit::new(edits);
    let mut is_top_via = true;
    let mut is_first_breadth = true;
    // The edited fields come first: stop looking after the last one.
    let mut left = head.count_single(EDITED).filter(|_| hop.changes.is_none()).unwrap_or(u32::MAX);
    for field in head.fields() {
        if left == 0 {
            break;
        }
        //= rfc3261#16.3:ignores-others
        // Fast path: most fields are copied unchanged.
        if !EDITED.contains(field.name) && hop.changes.is_none() {
            continue;
        }
        left = left.saturating_sub(1);
        if hop.changes.is_some_and(|changes| is_removed(changes, head.line(field))) {
            copy.remove(head.line(field));
            continue;
        }
        match field.name {
            HeaderName::Via if is_top_via => {
                is_top_via = false;
                if let Some(text) = local::completed_via(message.via(), &edits.source) {
                    copy.remove(message.via().text).add(&[&text]);
                }
            }
            HeaderName::MaxForwards => {
                copy.remove(head.value(field)).add(&[hops_left(message).as_bytes()]);
            }
            //= rfc5393#5.3.3:single
            HeaderName::MaxBreadth if core::mem::take(&mut is_first_breadth) => {
                if let Some(breadth) = hop.max_breadth {
                    copy.remove(head.value(field)).add(&[Decimal::new(breadth).as_bytes()]);
                }
            }
            HeaderName::MaxBreadth => {
                copy.remove(head.line(field));
            }
            HeaderName::Route => routes.edit(&mut copy, head, field, hop.request_uri),
            HeaderName::PAssertedIdentity if edits.strip_identity => {
                copy.remove(head.line(field));
            }
            //= rfc3261#22.3
            // Credentials for another proxy's realm are left for that proxy.
            HeaderName::ProxyAuthorization
                if edits.strip_credentials.is_some_and(|own| is_of(head.value(field), own)) =>
            {
                copy.remove(head.line(field));
            }
            _ => {}
        }
    }
    copy.finish();
}

/// Returns `message` with another body.
#[must_use]
pub fn with_body(message: &Message<'_>, body: &[u8]) -> Vec<u8> {
    let head = message.head();
    let mut out = Vec::with_capacity(head.len().saturating_add(body.len()).saturating_add(8));
    let mut copy = Rewrite::new(head, &mut out);
    if let Some(field) = head.first_field(HeaderName::ContentLength) {
        let length = Decimal::new(u32::try_from(body.len()).unwrap_or(u32::MAX));
        copy.remove(head.value(field)).add(&[length.as_bytes()]);
    }
    copy.remove(message.body()).add(&[body]);
    copy.finish();
    out
}

//= rfc7616#3.6:transparent
/// Fields that may be edited.
const EDITED: HeaderSet = HeaderSet::of(HeaderName::Via)
    .with(HeaderSet::of(HeaderName::MaxForwards))
    .with(HeaderSet::of(HeaderName::MaxBreadth))
    .with(HeaderSet::of(HeaderName::Route))
    .with(HeaderSet::of(HeaderName::PAssertedIdentity))
    .with(HeaderSet::of(HeaderName::ProxyAuthorization));

/// Adds the fields that precede those of the request.
fn add_fields(copy: &mut Rewrite<'_, '_>, message: &Message<'_>, hop: &BranchEdits<'_>) {
    let head = message.head();
    //= rfc3261#18.1.1:sent-by
    //= rfc5393#4.2.1:via
    //= rfc3261#16.6:via
    copy.add(&[&hop.egress.via, hop.branch]);
    //= rfc7339#4.1
    //= rfc7339#4.2
    //= rfc7415#3.3
    if let Some(offer) = hop.overload_offer {
        copy.add(&[offer]);
    }
    copy.add(&[b"\r\n"]);
    //= rfc3261#16.6:record-route
    for (name, value) in [(&b"Record-Route: "[..], hop.record_route), (b"Route: ", hop.path), (b"Path: ", hop.own_path)]
    {
        if let Some(value) = value {
            copy.add(&[name, value, b"\r\n"]);
        }
    }
    for (name, value) in hop.changes.iter().flat_map(|changes| &changes.add) {
        copy.add(&[name, b": ", value, b"\r\n"]);
    }
    if !hop.credentials.is_empty() {
        copy.add(&[hop.credentials]);
    }
    //= rfc3261#16.6:adds-max-forwards
    if message.max_forwards().is_none() {
        copy.add(&[b"Max-Forwards: ", hops_left(message).as_bytes(), b"\r\n"]);
    }
    //= rfc5393#5.3.3:added
    if let Some(breadth) = hop.max_breadth.filter(|_| head.first(HeaderName::MaxBreadth).is_none()) {
        copy.add(&[b"Max-Breadth: ", Decimal::new(breadth).as_bytes(), b"\r\n"]);
    }
    //= rfc3261#16.6:content-length
    // A datagram ends by itself, a message on a stream does not.
    if !head.has(HeaderName::ContentLength) && hop.egress.transport.is_reliable() {
        add_length(copy, message);
    }
}

/// Whether `credentials` are for the realm `own`.
fn is_of(credentials: &[u8], own: &[u8]) -> bool {
    let given = AuthParams::parse(credentials).and_then(|params| params.value("realm"));
    given.is_some_and(|given| *unquote(given) == *own)
}

/// Whether the header of `line` is to be removed.
fn is_removed(changes: &Changes, line: &[u8]) -> bool {
    let name = line.split(|byte| *byte == b':').next().unwrap_or(&[]).trim_ascii_end();
    changes.remove.iter().any(|removed| removed.eq_ignore_ascii_case(name))
}

//= rfc3261#16.6:decrements-max-forwards
/// Returns Max-Forwards for the outgoing request.
fn hops_left(message: &Message<'_>) -> Decimal {
    let left = message.max_forwards().map_or(DEFAULT_MAX_FORWARDS, |hops| hops.saturating_sub(1));
    Decimal::new(u32::from(left))
}

/// Removes our own Routes from the front and the one that became the Request-URI from the end. Towards a strict
/// router, the first remaining Route becomes the Request-URI, which is appended as the last Route (RFC 3261 §16.6
/// step 6).
struct RouteEdit {
    /// Indices of the Routes to keep, counted over all fields.
    kept: Range<usize>,
    /// Index of the next field's first Route.
    index: usize,
    /// Total number of Routes.
    total: usize,
    strict: bool,
}

impl RouteEdit {
    fn new(edits: &Edits<'_>) -> Self {
        let Edits { routes, strict, .. } = *edits;
        let end = routes.own_routes.saturating_add(routes.remaining);
        let kept = routes.own_routes.saturating_add(usize::from(strict))..end;
        Self { kept, index: 0, total: end.saturating_add(usize::from(routes.is_uri_from_last_route)), strict }
    }

    /// Copies the Routes to keep of the next Route field.
    fn edit(&mut self, copy: &mut Rewrite<'_, '_>, head: &Head<'_>, field: &Field, request_uri: &[u8]) {
        let value = head.value(field);
        let before = self.index;
        let mut kept: Option<(&[u8], &[u8])> = None;
        let mut count = 0usize;
        for element in split_list(value) {
            if self.kept.contains(&self.index) {
                kept = Some((kept.map_or(element, |(first, _)| first), element));
                count = count.saturating_add(1);
            }
            self.index = self.index.saturating_add(1);
        }
        match kept {
            _ if count == self.index.saturating_sub(before) => {}
            Some((first, last)) => {
                let from = head.position_of(first).saturating_sub(head.position_of(value));
                let behind = head.position_of(last).saturating_add(last.len()).saturating_sub(head.position_of(value));
                copy.remove(value.get(..from).unwrap_or(&[]));
                copy.remove(value.get(behind..).unwrap_or(&[]));
            }
            None => {
                copy.remove(head.line(field));
            }
        }
        //= rfc3261#16.6:uri-to-last-route
        if self.strict && self.index == self.total {
            let line = head.line(field);
            let behind = head.position_of(line).saturating_add(line.len());
            copy.copy_to(behind).add(&[b"Route: <", request_uri, b">\r\n"]);
        }
    }
}

/// Writes a response without our Via; `None` if no Via would remain.
#[must_use]
pub fn write_response(out: &mut Vec<u8>, message: &Message<'_>) -> Option<()> {
    copy_response(out, message, None, false)
}

/// Writes the same with `next` in place of the Via below ours.
#[must_use]
pub fn write_unusual_response(out: &mut Vec<u8>, message: &Message<'_>, next: Option<&[u8]>) -> Option<()> {
    copy_response(out, message, next, !message.head().has(HeaderName::ContentLength))
}

//= rfc3261#16.7:adds-no-tag
//= rfc3261#16.7:keeps-tag
//= rfc3261#16.7:keeps-tag-of-failures
//= rfc3261#16.7:keeps-tag-in-dialog
//= rfc3261#16.7:body
//= rfc3261#16.7:keeps-fields
//= rfc3261#16.7:keeps-received
//= rfc3261#16.11:body
//= rfc3261#16.11:keeps-fields
#[inline(always)]
fn copy_response(out: &mut Vec<u8>, message: &Message<'_>, next: Option<&[u8]>, lacks_length: bool) -> Option<()> {
    let head = message.head();
    let field = head.first_field(HeaderName::Via)?;
    if message.has_one_via() {
        return None;
    }
    let (value, behind) = (head.value(field), message.behind_top_via());
    let ours = match behind.iter().position(|byte| *byte == b',') {
        Some(comma) => {
            // Up to the first byte of the next one.
            let next = trim(behind.get(comma.saturating_add(1)..).unwrap_or(&[]));
            value.get(..value.len().saturating_sub(next.len()))?
        }
        None => head.line(field),
    };
    let mut copy = Rewrite::new(head, out);
    //= rfc3261#20.14
    // The Via below ours names the transport by which it goes up.
    let is_reliable = |via: &Via<'_>| Transport::from_token(via.transport).is_some_and(Transport::is_reliable);
    if lacks_length && message.next_via().as_ref().is_some_and(is_reliable) {
        copy.copy_to(head.fields_start());
        add_length(&mut copy, message);
    }
    copy.remove(ours);
    if let Some(text) = next
        && let Some(via) = message.next_via()
    {
        copy.remove(via.text).add(&[text]);
    }
    copy.finish();
    Some(())
}

/// Adds Content-Length to a message that has none.
#[cold]
fn add_length(copy: &mut Rewrite<'_, '_>, message: &Message<'_>) {
    let length = u32::try_from(message.body().len()).unwrap_or(u32::MAX);
    copy.add(&[b"Content-Length: ", Decimal::new(length).as_bytes(), b"\r\n"]);
}

/// Writes `best` with the challenges of `other` before its own fields; `None` if `best` is not a message.
#[must_use]
pub fn merge_challenges(out: &mut Vec<u8>, best: &[u8], other: &Message<'_>) -> Option<()> {
    let best = Message::parse(best).ok()?;
    let mut copy = Rewrite::new(best.head(), out);
    copy.copy_to(best.head().fields_start());
    for name in [HeaderName::WwwAuthenticate, HeaderName::ProxyAuthenticate] {
        for challenge in other.head().all(name) {
            copy.add(&[name.as_str().as_bytes(), b": ", challenge, b"\r\n"]);
        }
    }
    copy.finish();
    Some(())
}
