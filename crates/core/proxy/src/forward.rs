//! Requests and responses on their way through: what a proxy edits, and nothing else (RFC 3261 §16.6, §16.7).

use std::io::Write as _;

use smallvec::SmallVec;
use strowger_foundation::Flow;
use strowger_message::{AuthParams, HeaderName, Message, Patch, Via, split_list, unquote};

use crate::local;
use crate::policy::Changes;
use crate::routing::RouteSet;

/// Max-Forwards of a request that carries none (RFC 3261 §16.6 step 3).
const DEFAULT_MAX_FORWARDS: u8 = 70;

/// What all branches of a request share.
#[derive(Clone, Debug)]
pub struct Edits<'a> {
    /// Where the request came from.
    pub source: Flow,
    /// Its Routes.
    pub routes: RouteSet<'a>,
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
pub struct Hop<'a> {
    /// The Request-URI.
    pub request_uri: &'a [u8],
    /// Our sent-by.
    pub sent_by: &'a [u8],
    /// Our transport, as Via spells it.
    pub transport: &'a str,
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
}

/// Writes the request as it leaves on one branch.
pub fn write_request(out: &mut Vec<u8>, message: &Message<'_>, edits: &Edits<'_>, hop: &Hop<'_>) {
    let head = message.head();
    let mut patch = Patch::new();
    let strict = edits.strict;
    let request_uri = if strict { edits.routes.next_hop() } else { hop.request_uri };
    if request_uri != message.request_uri() {
        let at = head.position_of(message.request_uri());
        patch.replace(at, message.request_uri().len(), &[request_uri]);
    }
    let top = head.fields_start();
    patch.insert(
        top,
        &[b"Via: SIP/2.0/", hop.transport.as_bytes(), b" ", hop.sent_by, b";branch=", hop.branch, b"\r\n"],
    );
    if let Some(value) = hop.record_route {
        patch.insert(top, &[b"Record-Route: ", value, b"\r\n"]);
    }
    for (name, value) in [(&b"Route"[..], hop.path), (b"Path", hop.own_path)] {
        if let Some(value) = value {
            patch.insert(top, &[name, b": ", value, b"\r\n"]);
        }
    }
    for (name, value) in hop.changes.iter().flat_map(|changes| &changes.add) {
        patch.insert(top, &[name, b": ", value, b"\r\n"]);
    }
    if !hop.credentials.is_empty() {
        patch.insert(top, &[hop.credentials]);
    }
    edit_max_forwards(&mut patch, message);
    if let Some(breadth) = hop.max_breadth {
        edit_max_breadth(&mut patch, message, breadth);
    }
    let via = message.via();
    if let Some(text) = local::completed_via(via, &edits.source) {
        patch.replace(head.position_of(via.text), via.text.len(), &[&text]);
    }
    edit_routes(&mut patch, message, &edits.routes, strict, hop.request_uri);
    for field in head.fields() {
        let removed = hop.changes.is_some_and(|changes| is_removed(changes, head.line(field)));
        let goes = removed
            || match field.name {
                HeaderName::PAssertedIdentity => edits.strip_identity,
                //= rfc3261#22.3
                // Credentials for another proxy's realm are that proxy's to take.
                HeaderName::ProxyAuthorization => edits.strip_credentials.is_some_and(|realm| {
                    let given = AuthParams::parse(head.value(field)).and_then(|params| params.value("realm"));
                    given.is_some_and(|given| *unquote(given) == *realm)
                }),
                _ => false,
            };
        if goes {
            let line = head.line(field);
            patch.remove(head.position_of(line), line.len());
        }
    }
    patch.write(message.bytes(), out);
}

/// Whether the header of `line` is one of those that go.
fn is_removed(changes: &Changes, line: &[u8]) -> bool {
    let name = line.split(|byte| *byte == b':').next().unwrap_or(&[]).trim_ascii_end();
    changes.remove.iter().any(|removed| removed.eq_ignore_ascii_case(name))
}

fn edit_max_forwards(patch: &mut Patch, message: &Message<'_>) {
    let head = message.head();
    let left = message
        .max_forwards()
        .unwrap_or(DEFAULT_MAX_FORWARDS)
        .saturating_sub(u8::from(message.max_forwards().is_some()));
    let left = number(u32::from(left));
    match head.first(HeaderName::MaxForwards) {
        Some(value) => patch.replace(head.position_of(value), value.len(), &[&left]),
        None => patch.insert(head.fields_start(), &[b"Max-Forwards: ", &left, b"\r\n"]),
    }
}

fn edit_max_breadth(patch: &mut Patch, message: &Message<'_>, breadth: u32) {
    let head = message.head();
    let text = number(breadth);
    match head.first(HeaderName::MaxBreadth) {
        Some(value) => patch.replace(head.position_of(value), value.len(), &[&text]),
        None => patch.insert(head.fields_start(), &[b"Max-Breadth: ", &text, b"\r\n"]),
    }
}

fn number(value: u32) -> SmallVec<[u8; 12]> {
    let mut text = SmallVec::new();
    let _ = write!(text, "{value}");
    text
}

/// Removes our own Routes from the front and what became the Request-URI from the end; towards a strict router the next
/// hop leaves the Routes for the Request-URI, which goes to the end (RFC 3261 §16.6 step 6).
fn edit_routes(patch: &mut Patch, message: &Message<'_>, routes: &RouteSet<'_>, strict: bool, request_uri: &[u8]) {
    let head = message.head();
    let drop_front = routes.ours.saturating_add(usize::from(strict));
    if drop_front == 0 && !routes.from_last {
        return;
    }
    let total = head.elements(HeaderName::Route).count();
    let kept = drop_front..total.saturating_sub(usize::from(routes.from_last));
    let mut index = 0usize;
    let mut after_last = head.fields_start();
    for field in head.fields().iter().filter(|field| field.name == HeaderName::Route) {
        let (value, line) = (head.value(field), head.line(field));
        let elements: SmallVec<[&[u8]; 4]> = split_list(value).collect();
        let mine = index..index.saturating_add(elements.len());
        index = mine.end;
        let line_at = head.position_of(line);
        after_last = line_at.saturating_add(line.len());
        let keep: SmallVec<[&[u8]; 4]> =
            elements.iter().zip(mine.clone()).filter(|(_, i)| kept.contains(i)).map(|(e, _)| *e).collect();
        if keep.len() == elements.len() {
            continue;
        }
        let (Some(first), Some(last)) = (keep.first(), keep.last()) else {
            patch.remove(line_at, line.len());
            continue;
        };
        let value_at = head.position_of(value);
        let keep_from = head.position_of(first);
        let keep_to = head.position_of(last).saturating_add(last.len());
        let value_end = value_at.saturating_add(value.len());
        patch.remove(value_at, keep_from.saturating_sub(value_at));
        patch.remove(keep_to, value_end.saturating_sub(keep_to));
    }
    if strict {
        patch.insert(after_last, &[b"Route: <", request_uri, b">\r\n"]);
    }
}

/// Writes a response without our Via; `None` where no Via is left and it is for nobody.
#[must_use]
pub fn write_response(out: &mut Vec<u8>, message: &Message<'_>) -> Option<()> {
    let head = message.head();
    let field = head.fields().iter().find(|field| field.name == HeaderName::Via)?;
    let value = head.value(field);
    let mut patch = Patch::new();
    match split_list(value).nth(1) {
        Some(second) => {
            let at = head.position_of(value);
            patch.remove(at, head.position_of(second).saturating_sub(at));
        }
        None => {
            next_via(message)?;
            let line = head.line(field);
            patch.remove(head.position_of(line), line.len());
        }
    }
    patch.write(message.bytes(), out);
    Some(())
}

/// Writes `best` with the challenges of `other` before its own fields; `None` where `best` is no message.
#[must_use]
pub fn merge_challenges(out: &mut Vec<u8>, best: &[u8], other: &Message<'_>) -> Option<()> {
    let best = Message::parse(best).ok()?;
    let mut patch = Patch::new();
    for name in [HeaderName::WwwAuthenticate, HeaderName::ProxyAuthenticate] {
        for challenge in other.head().all(name) {
            patch.insert(best.head().fields_start(), &[name.as_str().as_bytes(), b": ", challenge, b"\r\n"]);
        }
    }
    patch.write(best.bytes(), out);
    Some(())
}

/// The Via below ours, which says where a response goes that no transaction knows.
#[must_use]
pub fn next_via<'a>(message: &Message<'a>) -> Option<Via<'a>> {
    message.head().elements(HeaderName::Via).nth(1).and_then(|value| Via::parse_first(value).map(|(via, _)| via))
}
