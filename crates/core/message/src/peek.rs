//! The little that admission and steering need, read before a message is parsed.

use crate::framer;
use crate::head::StartLine;
use crate::header::HeaderName;
use crate::method::Method;
use crate::name_addr::NameAddr;
use crate::status::Status;
use crate::text;
use crate::via::Via;
use crate::{Fault, Head};

/// Request or response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A request and its method.
    Request(Method<'a>),
    /// A response and its status.
    Response(Status),
}

/// What is known of a message before it is parsed: enough to find its transaction and its shard, and to refuse it cheaply.
#[derive(Clone, Debug)]
pub struct Peek<'a> {
    /// Request or response.
    pub kind: Kind<'a>,
    /// The topmost Via.
    pub via: Option<Via<'a>>,
    /// Call-ID as written.
    pub call_id: &'a [u8],
    /// Whether To has a tag: a request inside a dialog.
    pub in_dialog: bool,
    head: Head<'a>,
}

impl<'a> Peek<'a> {
    /// Reads the lines of a datagram, and of its fields the topmost Via, To and Call-ID.
    ///
    /// # Errors
    /// A [`Fault`] where there is no head to be found: nothing can be answered.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Fault> {
        let mut head = Head::unread(bytes);
        head.read_lines()?;
        // What trails the message is no part of it; a length that cannot be is found when the message is read.
        if let Ok(length) = framer::datagram_body(&head) {
            head.cut_rest(length);
        }
        let kind = match head.start() {
            StartLine::Request { method, .. } => Kind::Request(method),
            StartLine::Response { status, .. } => Kind::Response(status),
        };
        let via = head.first(HeaderName::Via).and_then(Via::parse_first).map(|(via, _)| via);
        let call_id = head.first(HeaderName::CallId).unwrap_or(&[]);
        let in_dialog = head.first(HeaderName::To).is_some_and(text::contains_tag);
        Ok(Self { kind, via, call_id, in_dialog, head })
    }

    /// To, for requests that are steered by their address of record.
    #[must_use]
    pub fn to(&self) -> Option<NameAddr<'a>> {
        self.head.first(HeaderName::To).and_then(NameAddr::parse)
    }

    /// The lines, to answer from.
    #[must_use]
    pub fn into_head(self) -> Head<'a> {
        self.head
    }

    /// The lines.
    #[must_use]
    pub const fn head(&self) -> &Head<'a> {
        &self.head
    }
}
