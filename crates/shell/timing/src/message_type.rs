//! The type of a message, read from the first bytes of a packet.

use std::fmt;

use strowger_message::Method;

/// SIP methods that have a name in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is the method of that name")]
pub enum MethodName {
    Invite,
    Ack,
    Bye,
    Cancel,
    Register,
    Options,
    Prack,
    Update,
    Subscribe,
    Notify,
    Publish,
    Refer,
    Message,
    Info,
    /// Any other token.
    Extension,
}

impl From<Method<'_>> for MethodName {
    fn from(method: Method<'_>) -> Self {
        match method {
            Method::Invite => Self::Invite,
            Method::Ack => Self::Ack,
            Method::Bye => Self::Bye,
            Method::Cancel => Self::Cancel,
            Method::Register => Self::Register,
            Method::Options => Self::Options,
            Method::Prack => Self::Prack,
            Method::Update => Self::Update,
            Method::Subscribe => Self::Subscribe,
            Method::Notify => Self::Notify,
            Method::Publish => Self::Publish,
            Method::Refer => Self::Refer,
            Method::Message => Self::Message,
            Method::Info => Self::Info,
            Method::Other(_) => Self::Extension,
        }
    }
}

impl MethodName {
    /// Returns the method's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invite => "INVITE",
            Self::Ack => "ACK",
            Self::Bye => "BYE",
            Self::Cancel => "CANCEL",
            Self::Register => "REGISTER",
            Self::Options => "OPTIONS",
            Self::Prack => "PRACK",
            Self::Update => "UPDATE",
            Self::Subscribe => "SUBSCRIBE",
            Self::Notify => "NOTIFY",
            Self::Publish => "PUBLISH",
            Self::Refer => "REFER",
            Self::Message => "MESSAGE",
            Self::Info => "INFO",
            Self::Extension => "other method",
        }
    }
}

/// The type of a message, by which times are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MessageType {
    /// A request.
    Request(MethodName),
    /// A response, with the method of its CSeq.
    Response(u16, MethodName),
    /// Line ends only, or nothing (RFC 5626 §4.4.1).
    KeepAlive,
    /// Not SIP, or cut before its CSeq.
    Other,
}

impl MessageType {
    /// Reads the type from a packet, of which the end may be missing.
    #[must_use]
    pub fn of(packet: &[u8]) -> Self {
        if packet.iter().all(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Self::KeepAlive;
        }
        let mut lines = packet.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let Some(first) = lines.find(|line| !line.is_empty()) else { return Self::Other };
        if let Some(after) = first.strip_prefix(b"SIP/2.0 ") {
            let status = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
            let method = lines.find_map(method_of_cseq);
            return status.zip(method).map_or(Self::Other, |(status, method)| Self::Response(status, method));
        }
        if !first.ends_with(b" SIP/2.0") {
            return Self::Other;
        }
        let method = first.split(|byte| *byte == b' ').next().unwrap_or_default();
        Self::Request(Method::from_token(method).into())
    }
}

fn method_of_cseq(line: &[u8]) -> Option<MethodName> {
    let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':')?);
    let is_cseq = name.trim_ascii().eq_ignore_ascii_case(b"CSeq");
    is_cseq.then(|| {
        Method::from_token(value.rsplit(|byte| matches!(byte, b' ' | b'\t')).next().unwrap_or_default()).into()
    })
}

impl fmt::Display for MessageType {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(method) => to.pad(method.as_str()),
            Self::Response(status, method) => to.pad(&format!("{status} {}", method.as_str())),
            Self::KeepAlive => to.pad("keep-alive"),
            Self::Other => to.pad("other"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn types_are_read_from_the_first_line_and_the_cseq() {
        let of = |text: &str| MessageType::of(text.as_bytes()).to_string();
        assert_eq!(of("INVITE sip:a@b SIP/2.0\r\nCSeq: 1 INVITE\r\n\r\n"), "INVITE");
        assert_eq!(of("SIP/2.0 200 OK\r\nVia: x\r\ncseq :  7   BYE\r\n\r\n"), "200 BYE");
        assert_eq!(of("FLY sip:a@b SIP/2.0\r\n\r\n"), "other method");
        assert_eq!(of("\r\n\r\n"), "keep-alive");
        assert_eq!(of(""), "keep-alive");
        assert_eq!(of("SIP/2.0 200 OK\r\nVia: cut"), "other");
        assert_eq!(of("GET / HTTP/1.1\r\n\r\n"), "other");
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_type(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = MessageType::of(&bytes).to_string();
        }
    }
}
