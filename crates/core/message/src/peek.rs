//! One pass over a message: its lines, and the values that are in the common form.

use crate::cseq::{CSeq, read_cseq};
use crate::fault::Fault;
use crate::framer;
use crate::head::{Head, StartLine, ValueReader, skip_line_end, skip_version};
use crate::header::{HeaderName, HeaderSet};
use crate::method::Method;
use crate::name_addr::NameAddr;
use crate::status::Status;
use crate::text;
use crate::uri::{SipUri, Uri};
use crate::via::Via;

/// Request or response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A request and its method.
    Request(Method<'a>),
    /// A response and its status.
    Response(Status),
}

/// The result of the first pass over a message, before it is fully checked: enough to find its transaction and shard,
/// and to reject it.
#[derive(Clone, Debug)]
pub struct Peek<'a> {
    /// Request or response.
    pub kind: Kind<'a>,
    /// The topmost Via.
    pub via: Option<Via<'a>>,
    /// The Call-ID as written.
    pub call_id: &'a [u8],
    /// Whether To has a tag, as in a request within a dialog.
    pub in_dialog: bool,
    head: Head<'a>,
    pub(crate) fast_path: FastPathValues<'a>,
}

impl<'a> Peek<'a> {
    /// Reads the lines of a datagram and the values that are in the common form.
    ///
    /// # Errors
    /// Returns a [`Fault`] if there is no complete head; such a message cannot be answered.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Fault> {
        let mut peek = Self::default();
        peek.fill(bytes)?;
        Ok(peek)
    }

    /// Like [`read`](Self::read), but fills an empty peek in place, because a peek is expensive to move.
    ///
    /// # Errors
    /// Same as [`read`](Self::read).
    pub fn fill(&mut self, bytes: &'a [u8]) -> Result<(), Fault> {
        self.head.begin(bytes);
        let Self { via, fast_path: usual, head, .. } = self;
        head.read_lines(&mut FastPathReader { via, usual })?;
        if via.is_none() {
            *via = head.first(HeaderName::Via).and_then(Via::parse_first).map(|(via, _)| via);
            // The second field holds the next Via only if the first one is not a list.
            usual.next_via = None;
        }
        self.kind = match head.start() {
            StartLine::Request { method, .. } => Kind::Request(method),
            StartLine::Response { status, .. } => Kind::Response(status),
        };
        self.call_id = head.first(HeaderName::CallId).unwrap_or(&[]);
        self.in_dialog = match &usual.to {
            Some(to) => to.tag().is_some(),
            None => head.first(HeaderName::To).is_some_and(text::contains_tag),
        };
        // Trailing bytes are not part of the message. An impossible length is detected by the full parse.
        if head.seen().intersects(LENGTH) {
            let is_read = usual.read.intersects(LENGTH) && !head.has_repeated(LENGTH);
            match if is_read { framer::fit_datagram(head, usual.length as usize) } else { framer::datagram_body(head) }
            {
                Ok(length) => {
                    head.cut_rest(length);
                    usual.read = usual.read.with(LENGTH);
                }
                Err(_) => usual.read = usual.read.without(LENGTH),
            }
        }
        Ok(())
    }

    /// Returns the method of CSeq, which in a response is that of the request; `None` if CSeq is malformed or missing.
    #[must_use]
    pub fn cseq_method(&self) -> Option<Method<'a>> {
        let cseq = self.fast_path.cseq.or_else(|| self.head.first(HeaderName::CSeq).and_then(read_cseq));
        cseq.map(|cseq| cseq.method)
    }

    /// Returns To, if it is well-formed.
    pub(crate) fn to(&self) -> Option<NameAddr<'a>> {
        self.fast_path.to.or_else(|| self.head.first(HeaderName::To).and_then(NameAddr::parse))
    }

    /// Returns the lines, to build a response from.
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

/// An empty peek.
impl Default for Peek<'_> {
    #[inline(always)]
    fn default() -> Self {
        let kind = Kind::Request(Method::Other(&[]));
        let (head, usual) = (Head::unread(&[]), FastPathValues::default());
        Self { kind, via: None, call_id: &[], in_dialog: false, head, fast_path: usual }
    }
}

const LENGTH: HeaderSet = HeaderSet::of(HeaderName::ContentLength);

/// The values that every element must understand, as far as they are in the common form.
#[derive(Clone, Debug, Default)]
pub(crate) struct FastPathValues<'a> {
    pub(crate) target: Option<Uri<'a>>,
    /// The Via below the topmost one; responses only.
    pub(crate) next_via: Option<Via<'a>>,
    pub(crate) from: Option<NameAddr<'a>>,
    pub(crate) to: Option<NameAddr<'a>>,
    pub(crate) cseq: Option<CSeq<'a>>,
    pub(crate) max_forwards: Option<u8>,
    /// Content-Length.
    length: u32,
    /// The fields whose values have been read.
    pub(crate) read: HeaderSet,
}

/// Reads the values during line scanning.
struct FastPathReader<'p, 'a> {
    via: &'p mut Option<Via<'a>>,
    usual: &'p mut FastPathValues<'a>,
}

impl<'a> ValueReader<'a> for FastPathReader<'_, 'a> {
    #[inline(always)]
    fn read_target(&mut self, text: &'a [u8]) -> Option<&'a [u8]> {
        let (target, behind) = SipUri::read_fast(text)?;
        skip_version(behind)?;
        self.usual.target = Some(Uri::Sip(target));
        Some(behind)
    }

    #[inline(always)]
    fn read(&mut self, name: HeaderName, text: &'a [u8]) -> Option<&'a [u8]> {
        let usual = &mut *self.usual;
        let next = match name {
            HeaderName::Via => return read_via(text, self.via),
            HeaderName::From => read_address(text, &mut usual.from)?,
            HeaderName::To => read_address(text, &mut usual.to)?,
            HeaderName::Contact => skip_address(text)?,
            HeaderName::CallId => skip_line_end(text::split_word(text)?)?,
            HeaderName::CSeq => {
                let (cseq, behind) = CSeq::read_fast(text)?;
                let next = skip_line_end(behind)?;
                usual.cseq = Some(cseq);
                next
            }
            HeaderName::MaxForwards => {
                let (hops, behind) = text::split_number(text)?;
                let next = skip_line_end(behind)?;
                usual.max_forwards = Some(u8::try_from(hops).ok()?);
                next
            }
            HeaderName::ContentLength => {
                let (length, behind) = text::split_number(text)?;
                usual.length = length;
                skip_line_end(behind)?
            }
            _ => return None,
        };
        usual.read = usual.read.with(HeaderSet::of(name));
        Some(next)
    }

    #[inline(always)]
    fn read_second(&mut self, name: HeaderName, text: &'a [u8]) -> Option<&'a [u8]> {
        let is_wanted = name == HeaderName::Via && self.usual.target.is_none();
        if is_wanted { read_via(text, &mut self.usual.next_via) } else { None }
    }
}

/// Reads a Via that is the whole value of its line, and returns what follows the line.
// Never inlined: the value is written directly to its destination and the loop over the lines stays small.
#[inline(never)]
fn read_via<'a>(text: &'a [u8], place: &mut Option<Via<'a>>) -> Option<&'a [u8]> {
    let (via, behind) = Via::read_fast(text)?;
    let next = skip_line_end(behind)?;
    *place = Some(via);
    Some(next)
}

/// Reads an address in the same way.
#[inline(never)]
fn read_address<'a>(text: &'a [u8], place: &mut Option<NameAddr<'a>>) -> Option<&'a [u8]> {
    let (address, behind) = NameAddr::read_fast(text)?;
    let next = skip_line_end(behind)?;
    *place = Some(address);
    Some(next)
}

/// Checks an address in the same way without storing it.
#[inline(never)]
fn skip_address(text: &[u8]) -> Option<&[u8]> {
    skip_line_end(NameAddr::read_fast(text)?.1)
}
