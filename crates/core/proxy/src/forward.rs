//! Requests and responses on their way through: what a proxy edits, and nothing else (RFC 3261 §16.6, §16.7).

use core::ops::Range;

use strowger_foundation::Flow;
use strowger_message::{
    AuthParams, Decimal, Field, Head, HeaderName, HeaderSet, Message, Method, Rewrite, split_list, trim, unquote,
};

use crate::listener::Listener;
use crate::local;
use crate::policy::Changes;
use crate::routing::RouteSet;

/// Max-Forwards of a request that carries none (RFC 3261 §16.6 step 3).
const DEFAULT_MAX_FORWARDS: u8 = 70;

/// What all branches of a request share.
#[derive(Clone, Copy, Debug)]
pub struct Edits<'a> {
    /// Where the request came from.
    pub source: Flow,
    /// Its Routes.
    pub routes: &'a RouteSet<'a>,
    /// The next hop is a strict router, for which the Request-URI makes room.
    pub strict: bool,
    /// Whether dialogs stay on our path.
    pub record_route: bool,
    /// P-Asserted-Identity goes: its sender is not trusted.
    pub strip_identity: bool,
    /// The realm whose Proxy-Authorization goes: it was for us alone.
    pub strip_credentials: Option<&'a [u8]>,
}

/// What one branch has of its own.
#[derive(Clone, Copy, Debug)]
pub struct BranchEdits<'a> {
    /// The Request-URI.
    pub request_uri: &'a [u8],
    /// The listener that it leaves by.
    pub egress: &'a Listener,
    /// Our branch.
    pub branch: &'a [u8],
    /// Our Record-Route.
    pub record_route: Option<&'a [u8]>,
    /// Max-Breadth, where it is to be written.
    pub max_breadth: Option<u32>,
    /// What becomes Route headers before all others: the Path of a registered contact (RFC 3327 §5.4).
    pub path: Option<&'a [u8]>,
    /// Our Path, for a REGISTER that is forwarded.
    pub own_path: Option<&'a [u8]>,
    /// What the route changes.
    pub changes: Option<&'a Changes>,
    /// Credentials of our own: whole lines.
    pub credentials: &'a [u8],
    /// By what our Via offers overload control, if it does.
    pub overload_offer: Option<&'static [u8]>,
}

/// Whether the request begins a dialog, which may be asked to stay on our path.
#[must_use]
pub fn begins_dialog(message: &Message<'_>) -> bool {
    let begins = matches!(message.method(), Method::Invite | Method::Subscribe | Method::Refer);
    begins && message.to().tag().is_none()
}

/// Writes the request as it leaves on one branch.
pub fn write_request(out: &mut Vec<u8>, message: &Message<'_>, edits: &Edits<'_>, hop: &BranchEdits<'_>) {
    let head = message.head();
    let mut copy = Rewrite::new(head, out);
    let request_uri = if edits.strict { edits.routes.next_hop() } else { hop.request_uri };
    if request_uri != message.request_uri() {
        copy.remove(message.request_uri()).add(&[request_uri]);
    }
    copy.copy_to(head.fields_start());
    add_fields(&mut copy, message, hop);
    let mut routes = RouteEdit::new(edits);
    let mut is_top_via = true;
    // They stand in front: behind the last of them nothing is looked for.
    let mut left = head.count_single(EDITED).filter(|_| hop.changes.is_none()).unwrap_or(u32::MAX);
    for field in head.fields() {
        if left == 0 {
            break;
        }
        // Most leave as they came.
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
            HeaderName::MaxBreadth => {
                if let Some(breadth) = hop.max_breadth {
                    copy.remove(head.value(field)).add(&[Decimal::new(breadth).as_bytes()]);
                }
            }
            HeaderName::Route => routes.edit(&mut copy, head, field, hop.request_uri),
            HeaderName::PAssertedIdentity if edits.strip_identity => {
                copy.remove(head.line(field));
            }
            //= rfc3261#22.3
            // Credentials for another proxy's realm are that proxy's to take.
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

/// The fields that may change on their way.
const EDITED: HeaderSet = HeaderSet::of(HeaderName::Via)
    .with(HeaderSet::of(HeaderName::MaxForwards))
    .with(HeaderSet::of(HeaderName::MaxBreadth))
    .with(HeaderSet::of(HeaderName::Route))
    .with(HeaderSet::of(HeaderName::PAssertedIdentity))
    .with(HeaderSet::of(HeaderName::ProxyAuthorization));

/// Adds what stands before the fields of the request itself.
fn add_fields(copy: &mut Rewrite<'_, '_>, message: &Message<'_>, hop: &BranchEdits<'_>) {
    let head = message.head();
    copy.add(&[&hop.egress.via, hop.branch]);
    //= rfc7339#4.1
    //= rfc7339#4.2
    //= rfc7415#3.3
    if let Some(offer) = hop.overload_offer {
        copy.add(&[offer]);
    }
    copy.add(&[b"\r\n"]);
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
    if message.max_forwards().is_none() {
        copy.add(&[b"Max-Forwards: ", hops_left(message).as_bytes(), b"\r\n"]);
    }
    if let Some(breadth) = hop.max_breadth.filter(|_| head.first(HeaderName::MaxBreadth).is_none()) {
        copy.add(&[b"Max-Breadth: ", Decimal::new(breadth).as_bytes(), b"\r\n"]);
    }
}

/// Whether `credentials` are for the realm `own`.
fn is_of(credentials: &[u8], own: &[u8]) -> bool {
    let given = AuthParams::parse(credentials).and_then(|params| params.value("realm"));
    given.is_some_and(|given| *unquote(given) == *own)
}

/// Whether the header of `line` is one of those that go.
fn is_removed(changes: &Changes, line: &[u8]) -> bool {
    let name = line.split(|byte| *byte == b':').next().unwrap_or(&[]).trim_ascii_end();
    changes.remove.iter().any(|removed| removed.eq_ignore_ascii_case(name))
}

/// Max-Forwards of the request as it leaves.
fn hops_left(message: &Message<'_>) -> Decimal {
    let left = message.max_forwards().map_or(DEFAULT_MAX_FORWARDS, |hops| hops.saturating_sub(1));
    Decimal::new(u32::from(left))
}

/// Removes our own Routes from the front and what became the Request-URI from the end; towards a strict router the next
/// hop leaves the Routes for the Request-URI, which goes to the end (RFC 3261 §16.6 step 6).
struct RouteEdit {
    /// Those that stay, as they are counted over all fields.
    kept: Range<usize>,
    /// Where the next field begins to count.
    index: usize,
    /// How many there are.
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

    /// Copies what stays of the next Route field.
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
        if self.strict && self.index == self.total {
            let line = head.line(field);
            let behind = head.position_of(line).saturating_add(line.len());
            copy.copy_to(behind).add(&[b"Route: <", request_uri, b">\r\n"]);
        }
    }
}

/// Writes a response without our Via; `None` where no Via is left and it is for nobody.
#[must_use]
pub fn write_response(out: &mut Vec<u8>, message: &Message<'_>) -> Option<()> {
    copy_response(out, message, None)
}

/// The same with `next` in the place of the Via below ours.
#[must_use]
pub fn write_response_with(out: &mut Vec<u8>, message: &Message<'_>, next: &[u8]) -> Option<()> {
    copy_response(out, message, Some(next))
}

#[inline(always)]
fn copy_response(out: &mut Vec<u8>, message: &Message<'_>, next: Option<&[u8]>) -> Option<()> {
    let head = message.head();
    let field = head.first_field(HeaderName::Via)?;
    if message.has_one_via() {
        return None;
    }
    let (value, behind) = (head.value(field), message.behind_top_via());
    let ours = match behind.iter().position(|byte| *byte == b',') {
        Some(comma) => {
            // As far as the next one's first byte.
            let next = trim(behind.get(comma.saturating_add(1)..).unwrap_or(&[]));
            value.get(..value.len().saturating_sub(next.len()))?
        }
        None => head.line(field),
    };
    let mut copy = Rewrite::new(head, out);
    copy.remove(ours);
    if let Some(text) = next
        && let Some(via) = message.next_via()
    {
        copy.remove(via.text).add(&[text]);
    }
    copy.finish();
    Some(())
}

/// Writes `best` with the challenges of `other` before its own fields; `None` where `best` is no message.
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
