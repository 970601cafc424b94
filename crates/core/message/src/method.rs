//! Request methods. Method names are case-sensitive (RFC 3261 §7.1).

/// A request method. Methods that the server has no rule for are stored as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the method of its name")]
pub enum Method<'a> {
    Invite,
    Ack,
    Bye,
    Cancel,
    Register,
    Options,
    Info,
    Prack,
    Update,
    Message,
    Subscribe,
    Notify,
    Publish,
    Refer,
    /// Any other token.
    Other(&'a [u8]),
}

impl<'a> Method<'a> {
    /// Returns the method named `token`.
    #[must_use]
    pub fn from_token(token: &'a [u8]) -> Self {
        match token {
            b"INVITE" => Self::Invite,
            b"ACK" => Self::Ack,
            b"BYE" => Self::Bye,
            b"CANCEL" => Self::Cancel,
            b"REGISTER" => Self::Register,
            b"OPTIONS" => Self::Options,
            b"INFO" => Self::Info,
            b"PRACK" => Self::Prack,
            b"UPDATE" => Self::Update,
            b"MESSAGE" => Self::Message,
            b"SUBSCRIBE" => Self::Subscribe,
            b"NOTIFY" => Self::Notify,
            b"PUBLISH" => Self::Publish,
            b"REFER" => Self::Refer,
            _ => Self::Other(token),
        }
    }

    /// Returns the name as in a request line.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        match self {
            Self::Invite => b"INVITE",
            Self::Ack => b"ACK",
            Self::Bye => b"BYE",
            Self::Cancel => b"CANCEL",
            Self::Register => b"REGISTER",
            Self::Options => b"OPTIONS",
            Self::Info => b"INFO",
            Self::Prack => b"PRACK",
            Self::Update => b"UPDATE",
            Self::Message => b"MESSAGE",
            Self::Subscribe => b"SUBSCRIBE",
            Self::Notify => b"NOTIFY",
            Self::Publish => b"PUBLISH",
            Self::Refer => b"REFER",
            Self::Other(token) => token,
        }
    }
}
