//! A partial parse that reads only as much of a message as is needed to find its shard.

use crate::head::{skip_line, skip_line_end, skip_version};
use crate::header::HeaderName;
use crate::method::Method;
use crate::name_addr::NameAddr;
use crate::peek::{Kind, Peek};
use crate::status::Status;
use crate::text;
use crate::via::Via;

/// The values that determine the shard of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialPeek<'a> {
    /// Request or response.
    pub kind: Kind<'a>,
    /// The branch of a response's topmost Via.
    pub branch: Option<&'a [u8]>,
    /// The To URI of a REGISTER, as written.
    pub to: Option<&'a [u8]>,
    /// The Call-ID as written.
    pub call_id: &'a [u8],
}

impl<'a> PartialPeek<'a> {
    /// Reads a datagram. `None` means only that the part read is not in the common form; use [`Peek::read`] then. The
    /// rest is not checked, so the datagram may still be malformed.
    #[must_use]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (kind, mut rest) = read_start(bytes)?;
        let mut wants_to = kind == Kind::Request(Method::Register);
        let mut wants_via = matches!(kind, Kind::Response(_));
        let mut partial = Self { kind, branch: None, to: None, call_id: &[] };
        loop {
            let (name, value) = HeaderName::at_start(rest)?;
            rest = match name {
                HeaderName::Via if wants_via => {
                    let (via, behind) = Via::read_fast(value)?;
                    (partial.branch, wants_via) = (via.branch, false);
                    skip_line_end(behind)?
                }
                HeaderName::To if wants_to => {
                    let (to, behind) = NameAddr::read_fast(value)?;
                    (partial.to, wants_to) = (Some(to.uri), false);
                    skip_line_end(behind)?
                }
                HeaderName::CallId if partial.call_id.is_empty() => {
                    let behind = text::split_word(value)?;
                    partial.call_id = value.get(..value.len().wrapping_sub(behind.len()))?;
                    skip_line_end(behind)?
                }
                _ => skip_line(value)?,
            };
            if !partial.call_id.is_empty() && !wants_via && !wants_to {
                return Some(partial);
            }
        }
    }
}

/// Reads a first line in the common form and returns the rest.
fn read_start(bytes: &[u8]) -> Option<(Kind<'_>, &[u8])> {
    if let Some(rest) = bytes.strip_prefix(b"SIP/2.0 ") {
        let (code, reason @ [b' ', ..]) = text::split_number(rest)? else { return None };
        let status = u16::try_from(code).ok().and_then(Status::new)?;
        let (_, line_end) = reason.split_at_checked(text::find_control(reason)?)?;
        return Some((Kind::Response(status), skip_line_end(line_end)?));
    }
    let (method @ [_, ..], [b' ', target @ ..]) = text::split_while(bytes, text::TOKEN) else { return None };
    let version = text::find_near(target, b' ')?;
    let next = skip_version(target.get(version..)?)?;
    Some((Kind::Request(Method::from_token(method)), next))
}

impl<'a> Peek<'a> {
    /// Returns the values that determine the message's shard.
    #[must_use]
    #[inline(always)]
    pub fn to_partial(&self) -> PartialPeek<'a> {
        let (branch, to) = match self.kind {
            Kind::Response(_) => (self.via.as_ref().and_then(|via| via.branch), None),
            Kind::Request(Method::Register) => (None, self.to().map(|to| to.uri)),
            Kind::Request(_) => (None, None),
        };
        PartialPeek { kind: self.kind, branch, to, call_id: self.call_id }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &str =
        "Via: SIP/2.0/UDP a;branch=z9hG4bKb\r\nFrom: <sip:a@x>;tag=1\r\nTo: <sip:b@x>\r\nCall-ID: c\r\n\r\n";

    #[test]
    fn usual_messages_are_read_by_a_partial_peek() {
        let message = |first: &str| [first, "\r\n", FIELDS].concat();
        let read = |text: &str| {
            let partial = PartialPeek::read(text.as_bytes()).expect("usual");
            assert_eq!(partial.call_id, b"c");
            (partial.branch.map(<[u8]>::to_vec), partial.to.map(<[u8]>::to_vec))
        };
        assert_eq!(read(&message("INVITE sip:b@x SIP/2.0")), (None, None));
        assert_eq!(read(&message("REGISTER sip:x SIP/2.0")), (None, Some(b"sip:b@x".to_vec())));
        assert_eq!(read(&message("SIP/2.0 200 OK")), (Some(b"z9hG4bKb".to_vec()), None));
        for (usual, unusual) in [("To: ", "To:\r\n "), ("Call-ID: ", "Call-ID : ")] {
            let text = message("REGISTER sip:x SIP/2.0").replace(usual, unusual);
            assert_eq!(PartialPeek::read(text.as_bytes()), None, "{text}");
        }
    }
}
