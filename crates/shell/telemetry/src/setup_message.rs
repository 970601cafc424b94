//! What a message says about the setup of a call.

use std::net::SocketAddr;

use strowger_foundation::Transport;
use strowger_message::{Head, HeaderName, Method, NameAddr, StartLine, Via};

/// A message of an INVITE transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetupMessage<'a> {
    /// Nanoseconds since 1970-01-01 UTC.
    pub(crate) at_ns: u64,
    pub(crate) is_sent: bool,
    pub(crate) transport: Transport,
    pub(crate) peer: SocketAddr,
    pub(crate) kind: SetupKind,
    pub(crate) call_id: &'a [u8],
    /// Branch of the topmost Via.
    pub(crate) branch: &'a [u8],
    /// Number in CSeq.
    pub(crate) cseq: u32,
    pub(crate) parent: Option<TraceParent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetupKind {
    /// An INVITE that begins a call.
    Invite,
    Cancel,
    /// A response to an INVITE.
    Response(u16),
}

/// The caller's span (W3C Trace Context, header `traceparent`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceParent {
    pub(crate) trace_id: [u8; 16],
    pub(crate) span_id: [u8; 8],
}

impl<'a> SetupMessage<'a> {
    /// Reads a message; `None` if it belongs to no setup.
    pub(crate) fn read(
        (at_ns, is_sent): (u64, bool),
        (transport, peer): (Transport, SocketAddr),
        head: &Head<'a>,
    ) -> Option<Self> {
        let call_id = head.first(HeaderName::CallId)?;
        let (via, _) = Via::parse_first(head.first(HeaderName::Via)?)?;
        let cseq = std::str::from_utf8(head.first(HeaderName::CSeq)?).ok()?;
        let (number, method) = cseq.split_once([' ', '\t'])?;
        let is_invite = method.trim_ascii_start() == "INVITE";
        let kind = match head.start() {
            StartLine::Request { method: Method::Invite, .. } if !has_tag(head) => SetupKind::Invite,
            StartLine::Request { method: Method::Cancel, .. } => SetupKind::Cancel,
            StartLine::Response { status, .. } if is_invite => SetupKind::Response(status.code()),
            _ => return None,
        };
        Some(Self {
            at_ns,
            is_sent,
            transport,
            peer,
            kind,
            call_id,
            branch: via.branch?,
            cseq: number.parse().ok()?,
            parent: if kind == SetupKind::Invite && !is_sent { trace_parent(head) } else { None },
        })
    }
}

/// Whether To has a tag: the message is within a dialog.
fn has_tag(head: &Head<'_>) -> bool {
    head.first(HeaderName::To).and_then(NameAddr::parse).is_some_and(|to| to.params.find("tag").is_some())
}

fn trace_parent(head: &Head<'_>) -> Option<TraceParent> {
    const NAME: &[u8] = b"traceparent";
    let is_it = |line: &[u8]| {
        let (name, rest) = line.split_at_checked(NAME.len()).unwrap_or((line, b""));
        name.eq_ignore_ascii_case(NAME) && rest.trim_ascii_start().first() == Some(&b':')
    };
    let field = head.fields().iter().find(|field| is_it(head.line(field)))?;
    parse_trace_parent(std::str::from_utf8(head.value(field)).ok()?)
}

/// Parses `00-TRACE-SPAN-FLAGS` and later versions, which may have more behind.
fn parse_trace_parent(text: &str) -> Option<TraceParent> {
    let mut parts = text.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_whole = version.len() == 2 && trace.len() == 32 && span.len() == 16 && flags.len() == 2;
    let has_more = version == "00" && parts.next().is_some();
    if !is_whole || has_more || version == "ff" || ![version, trace, span, flags].into_iter().all(is_hex) {
        return None;
    }
    let trace_id = u128::from_str_radix(trace, 16).ok().filter(|id| *id != 0)?;
    let span_id = u64::from_str_radix(span, 16).ok().filter(|id| *id != 0)?;
    Some(TraceParent { trace_id: trace_id.to_be_bytes(), span_id: span_id.to_be_bytes() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_parent_is_exact() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let parent = parse_trace_parent(good).expect("valid");
        assert_eq!((parent.trace_id[0], parent.span_id[7]), (0x0a, 0x31));
        assert!(
            parse_trace_parent(&good.replacen("00", "01", 1).replace("-01", "-01-more")).is_some(),
            "a later version"
        );
        for bad in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(parse_trace_parent(bad), None, "{bad}");
        }
    }
}
