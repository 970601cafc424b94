//! Spans of OpenTelemetry.

/// A value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

/// Name and value.
pub type Attribute = (&'static str, Value);

/// Which side of a remote call a span describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Neither: an operation within.
    Internal = 1,
    /// The one that is called.
    Server = 2,
    /// The one that calls.
    Client = 3,
}

/// Something that happened at one time within a span.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanEvent {
    /// Nanoseconds since 1970-01-01 UTC.
    pub at_ns: u64,
    /// What happened.
    pub name: &'static str,
}

/// An operation with its beginning and its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The trace that the span belongs to.
    pub trace_id: [u8; 16],
    /// Identity within the trace.
    pub span_id: [u8; 8],
    /// The span that it is a part of.
    pub parent_id: Option<[u8; 8]>,
    /// What kind of operation it is.
    pub name: &'static str,
    /// Which side it describes.
    pub kind: SpanKind,
    /// Nanoseconds since 1970-01-01 UTC.
    pub start_ns: u64,
    /// Nanoseconds since 1970-01-01 UTC; not before `start_ns`.
    pub end_ns: u64,
    /// Attributes, each name once.
    pub attributes: Vec<Attribute>,
    /// Events in order.
    pub events: Vec<SpanEvent>,
    /// Whether the operation failed because of the server or what is behind it.
    pub is_error: bool,
}
