//! Messages with keywords. The text is SIPp's: a keyword in brackets stands for a value.
//!
//! | keyword | stands for |
//! |---|---|
//! | `[local_ip]` `[local_port]` `[local]` | our address; the last is `ip:port` |
//! | `[remote_ip]` `[remote_port]` `[transport]` | destination and transport of the call |
//! | `[call_id]` `[call_number]` `[cseq]` `[branch]` `[local_tag]` | identifiers of calls, transactions and dialogs |
//! | `[cseq+N]` `[branch-N]` | the CSeq N further on, the branch N back |
//! | `[caller]` `[callee]` `[domain]` `[service]` `[fieldN]` `[userid]` | the users |
//! | `[peer]` `[peer_tag_param]` `[next_url]` `[routes]` | the dialog, once it was extracted |
//! | `[authentication]` | the line that answers the extracted challenge; no line without one |
//! | `[last_NAME:]` | the lines of a field of the last message; no line if it has none |
//! | `[answer]` | all that a response copies: Via, From, To (with our tag), Call-ID, CSeq, Record-Route |
//! | `[len]` | the length of the body |
//! | `[$N]` | a variable |
//!
//! A `[routes]`, `[authentication]`, `[answer]` or `[last_…]` that is alone on its line includes the end of the line.

use strowger_message::HeaderName;

use super::{Kind, MethodId};

/// Part of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplatePart {
    /// These bytes of the template's text.
    Text {
        /// First byte.
        start: u32,
        /// End, exclusive.
        end: u32,
    },
    /// `[local_ip]`.
    LocalIp,
    /// `[local_port]`.
    LocalPort,
    /// `[local]`: address and port.
    Local,
    /// `[remote_ip]`.
    RemoteIp,
    /// `[remote_port]`.
    RemotePort,
    /// `[transport]`.
    Transport,
    /// `[call_id]`.
    CallId,
    /// `[call_number]`.
    CallNumber,
    /// `[local_tag]`.
    LocalTag,
    /// `[cseq]`, plus this number.
    CSeq(i16),
    /// `[branch]` of this many transactions before. An ACK to a failure and a CANCEL use the branch of their INVITE
    /// automatically.
    Branch(u8),
    /// `[len]`.
    BodyLength,
    /// Property of a user.
    User(UserField),
    /// `[domain]`: that of the user before it, else of the calling or registering user.
    Domain(UserField),
    /// `[service]`: the fixed user part of `-s`.
    Service,
    /// `[peer]`: From or To of the other party, with its tag.
    Peer,
    /// `[peer_tag_param]`: `;tag=…`, or nothing.
    PeerTag,
    /// `[next_url]`.
    NextUrl,
    /// `[routes]`: the whole line, or nothing.
    Routes,
    /// `[authentication]`: the whole line, or nothing.
    Credentials,
    /// `[answer]`.
    Answer,
    /// `[last_…]`.
    Last {
        /// Part of the message.
        field: LastField,
        /// Whether it includes the end of the line.
        line: bool,
    },
    /// `[$N]`.
    Variable(u16),
    /// `[timestamp]`: time since the run began, in nanoseconds.
    Time,
}

/// Property of one of the two users of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserField {
    /// Name of the calling or registering user.
    Caller,
    /// Name of the called user.
    Callee,
    /// Number of the calling user.
    Number,
    /// Column of the caller's line in the users' file.
    Column(u16),
}

/// Part of the message that was received last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastField {
    /// All fields of a known name.
    Known(HeaderName),
    /// All fields of another name, stored in the template's text.
    Named {
        /// First byte of the name.
        start: u32,
        /// End of the name, exclusive.
        end: u32,
    },
    /// The Request-URI.
    RequestUri,
    /// The whole message.
    Message,
}

/// An error in a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    /// Line in the template's text, from 1.
    pub line: usize,
    /// What is wrong and what to do.
    pub what: String,
}

impl std::fmt::Display for TemplateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for TemplateError {}

/// A message with keywords to fill in.
#[derive(Clone, Debug)]
pub struct Template {
    pub(crate) text: Vec<u8>,
    pub(crate) pieces: Vec<TemplatePart>,
    /// Index of the first piece of the body, whose length `[len]` is.
    pub(crate) body: usize,
    kind: Kind,
    uses_last: bool,
    has_credentials: bool,
    numbering: Numbering,
    lost: u32,
}

/// Source of the number in a request's CSeq.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// `[cseq]`: the count of the session's requests.
    Counted,
    /// Number in the template.
    Literal(u32),
    /// Another keyword, such as a variable.
    Written,
}

impl Numbering {
    fn of(head: &[&str]) -> Self {
        let lines = head.iter().filter_map(|line| line.split_once(':'));
        let value =
            lines.filter(|(name, _)| name.trim().eq_ignore_ascii_case("cseq")).map(|(_, value)| value.trim()).next();
        let Some(value) = value else { return Self::Counted };
        if value.starts_with("[cseq") {
            return Self::Counted;
        }
        let number = value.split(|c: char| c.is_whitespace()).next().and_then(|number| number.parse().ok());
        number.map_or(Self::Written, Self::Literal)
    }
}

impl Template {
    /// Compiles the text of a message. Lines may end with LF or CRLF; white space before the first line and at the
    /// start of header lines is ignored, as in SIPp's files.
    ///
    /// # Errors
    /// An unknown keyword, or a first line that is neither a request nor a response.
    pub fn compile(text: &str) -> Result<Self, TemplateError> {
        Self::compile_with(text, |_, _| None)
    }

    /// Works as [`compile`](Self::compile), but passes unknown keywords and names of variables (with their `$`) to
    /// `extra`, which may replace them by text or a piece.
    ///
    /// # Errors
    /// As [`compile`](Self::compile).
    pub fn compile_with(
        text: &str,
        mut extra: impl FnMut(&str, &str) -> Option<KeywordExpansion>,
    ) -> Result<Self, TemplateError> {
        let (head, body) = split(text);
        let mut parts = Parts::default();
        for (number, line) in head.iter().enumerate() {
            parts.line(line, &mut extra).map_err(|what| TemplateError { line: number + 1, what })?;
        }
        let kind =
            kind_of(head.first().copied().unwrap_or_default()).map_err(|what| TemplateError { line: 1, what })?;
        parts.push_text(b"\r\n");
        parts.flush();
        let body_at = parts.pieces.len();
        for (number, line) in body.iter().enumerate() {
            let line_number = head.len() + 1 + number + 1;
            parts.values(line, &mut extra).map_err(|what| TemplateError { line: line_number, what })?;
            parts.push_text(b"\r\n");
        }
        parts.flush();
        let Parts { text, pieces, .. } = parts;
        let numbering = Numbering::of(&head);
        let mut template = Self { numbering, ..Self::of_parts(text, pieces, body_at, kind) };
        template.fix_length();
        Ok(template)
    }

    /// Creates a template of bytes that are sent unchanged.
    #[must_use]
    pub fn garbage(bytes: &[u8]) -> Self {
        let end = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        Self {
            text: bytes.to_vec(),
            pieces: vec![TemplatePart::Text { start: 0, end }],
            body: 1,
            kind: Kind::Garbage,
            uses_last: false,
            has_credentials: false,
            numbering: Numbering::Counted,
            lost: 0,
        }
    }

    /// Creates a message of these pieces of `text`; piece `body` begins the body.
    pub(crate) fn of_parts(text: Vec<u8>, pieces: Vec<TemplatePart>, body: usize, kind: Kind) -> Self {
        let uses_last = pieces.iter().any(|piece| matches!(piece, TemplatePart::Answer | TemplatePart::Last { .. }));
        let has_credentials = pieces.contains(&TemplatePart::Credentials);
        Self { text, pieces, body, kind, uses_last, has_credentials, numbering: Numbering::Counted, lost: 0 }
    }

    /// Compiles text that is not a whole message: a log line, a variable's value. Keywords are as in
    /// [`compile_with`](Self::compile_with).
    ///
    /// # Errors
    /// An unknown keyword.
    pub fn fragment_with(
        text: &str,
        mut extra: impl FnMut(&str, &str) -> Option<KeywordExpansion>,
    ) -> Result<Self, TemplateError> {
        let mut parts = Parts::default();
        for (number, line) in text.split('\n').enumerate() {
            if number > 0 {
                parts.push_text(b"\n");
            }
            parts.values(line, &mut extra).map_err(|what| TemplateError { line: number + 1, what })?;
        }
        parts.flush();
        let Parts { text, pieces, .. } = parts;
        let body = pieces.len();
        Ok(Self::of_parts(text, pieces, body, Kind::Garbage))
    }

    /// Makes the message get lost with this probability ([`share`](super::share)) each time it is sent.
    #[must_use]
    pub const fn with_loss(mut self, share: u32) -> Self {
        self.lost = share;
        self
    }

    /// Returns the probability of loss as a part of 2^32.
    #[must_use]
    pub const fn loss(&self) -> u32 {
        self.lost
    }

    /// Returns the source of its CSeq number.
    #[must_use]
    pub const fn numbering(&self) -> Numbering {
        self.numbering
    }

    /// Returns the kind of message.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns whether it contains parts of the last received message.
    #[must_use]
    pub const fn uses_last(&self) -> bool {
        self.uses_last
    }

    /// Returns whether it names the called user.
    #[must_use]
    pub fn names_callee(&self) -> bool {
        self.pieces.contains(&TemplatePart::User(UserField::Callee))
    }

    /// Returns whether it answers challenges.
    #[must_use]
    pub const fn has_credentials(&self) -> bool {
        self.has_credentials
    }

    /// Returns the message with constant pieces, those for which `fixed` returns a text, replaced by that text: fewer
    /// pieces render faster.
    #[must_use]
    pub(crate) fn with_fixed(&self, mut fixed: impl FnMut(TemplatePart) -> Option<Vec<u8>>) -> Self {
        let mut template = self.clone();
        for piece in &mut template.pieces {
            let Some(bytes) = fixed(*piece) else { continue };
            let start = u32::try_from(template.text.len()).unwrap_or(u32::MAX);
            template.text.extend_from_slice(&bytes);
            *piece = TemplatePart::Text { start, end: u32::try_from(template.text.len()).unwrap_or(u32::MAX) };
        }
        template.fix_length();
        template.merge();
        template
    }

    /// Writes the body's length into the text if it is constant.
    fn fix_length(&mut self) {
        let Some(body) = self.pieces.get(self.body..) else { return };
        let mut length = 0;
        for piece in body {
            let TemplatePart::Text { start, end } = piece else { return };
            length += end - start;
        }
        let start = u32::try_from(self.text.len()).unwrap_or(u32::MAX);
        self.text.extend_from_slice(length.to_string().as_bytes());
        let end = u32::try_from(self.text.len()).unwrap_or(u32::MAX);
        for piece in self.pieces.iter_mut().filter(|piece| **piece == TemplatePart::BodyLength) {
            *piece = TemplatePart::Text { start, end };
        }
        self.merge();
    }

    /// Joins adjacent texts, so that fewer pieces remain.
    fn merge(&mut self) {
        let (mut text, mut pieces) = (Vec::with_capacity(self.text.len()), Vec::new());
        let mut body = 0;
        for (index, piece) in self.pieces.iter().enumerate() {
            if index == self.body {
                body = pieces.len();
            }
            let range = |start: u32, end: u32| self.text.get(start as usize..end as usize).unwrap_or(&[]);
            let at = u32::try_from(text.len()).unwrap_or(u32::MAX);
            match *piece {
                TemplatePart::Text { start, end } => {
                    text.extend_from_slice(range(start, end));
                    let now = u32::try_from(text.len()).unwrap_or(u32::MAX);
                    match pieces.last_mut() {
                        Some(TemplatePart::Text { end, .. }) if index != self.body && *end == at => *end = now,
                        _ => pieces.push(TemplatePart::Text { start: at, end: now }),
                    }
                }
                TemplatePart::Last { field: LastField::Named { start, end }, line } => {
                    text.extend_from_slice(range(start, end));
                    let end = u32::try_from(text.len()).unwrap_or(u32::MAX);
                    pieces.push(TemplatePart::Last { field: LastField::Named { start: at, end }, line });
                }
                other => pieces.push(other),
            }
        }
        if self.body >= self.pieces.len() {
            body = pieces.len();
        }
        (self.text, self.pieces, self.body) = (text, pieces, body);
    }
}

/// Expansion of a keyword that templates do not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeywordExpansion {
    /// Piece.
    Piece(TemplatePart),
    /// Text.
    Text(String),
}

/// Splits a text into the lines of head and body.
fn split(text: &str) -> (Vec<&str>, Vec<&str>) {
    let mut lines = text.lines().map(|line| line.trim_end_matches('\r')).skip_while(|line| line.trim().is_empty());
    let head: Vec<_> = lines.by_ref().map(str::trim_start).take_while(|line| !line.trim().is_empty()).collect();
    let mut body: Vec<_> = lines.map(str::trim_start).collect();
    while body.last().is_some_and(|line| line.trim().is_empty()) {
        body.pop();
    }
    (head, body)
}

fn kind_of(line: &str) -> Result<Kind, String> {
    if let Some(rest) = line.strip_prefix("SIP/2.0 ") {
        let status = rest.get(..3).and_then(|code| code.parse().ok()).filter(|code| (100..700).contains(code));
        return status.map(Kind::Response).ok_or_else(|| format!("'{line}' has no status of three digits"));
    }
    let method = line.split(' ').next().unwrap_or_default();
    if line.ends_with("SIP/2.0") && !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Ok(Kind::Request(MethodId::of(strowger_message::Method::from_token(method.as_bytes()))));
    }
    Err(format!("'{line}' is neither a request line (METHOD uri SIP/2.0) nor a status line (SIP/2.0 200 OK)"))
}

#[derive(Default)]
struct Parts {
    text: Vec<u8>,
    pieces: Vec<TemplatePart>,
    open: usize,
}

impl Parts {
    fn push_text(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
    }

    fn flush(&mut self) {
        if self.open < self.text.len() {
            let at = |position: usize| u32::try_from(position).unwrap_or(u32::MAX);
            self.pieces.push(TemplatePart::Text { start: at(self.open), end: at(self.text.len()) });
        }
        self.open = self.text.len();
    }

    fn push(&mut self, piece: TemplatePart) {
        self.flush();
        self.pieces.push(piece);
    }

    fn line(
        &mut self,
        line: &str,
        extra: &mut impl FnMut(&str, &str) -> Option<KeywordExpansion>,
    ) -> Result<(), String> {
        let before = self.pieces.len();
        let length = self.text.len();
        self.values(line, extra)?;
        let alone = self.text.len() == length
            || matches!(self.pieces.last(), Some(TemplatePart::Last { field: LastField::Named { .. }, .. }));
        if alone
            && self.pieces.len() > before
            && line.starts_with('[')
            && line.ends_with(']')
            && line.matches('[').count() == 1
        {
            match self.pieces.last_mut() {
                Some(TemplatePart::Routes | TemplatePart::Credentials | TemplatePart::Answer) => return Ok(()),
                Some(TemplatePart::Last { line, .. }) => {
                    *line = true;
                    return Ok(());
                }
                _ => {}
            }
        }
        self.push_text(b"\r\n");
        Ok(())
    }

    /// Adds the text and keywords of one line.
    fn values(
        &mut self,
        line: &str,
        extra: &mut impl FnMut(&str, &str) -> Option<KeywordExpansion>,
    ) -> Result<(), String> {
        let mut rest = line;
        while let Some((before, behind)) = rest.split_once('[') {
            let Some((keyword, after)) = behind.split_once(']') else { break };
            self.push_text(before.as_bytes());
            if keyword.starts_with(|c: char| c.is_ascii_hexdigit() || c == ':')
                && keyword.contains(':')
                && !keyword.contains('_')
            {
                // A literal IPv6 address.
                self.push_text(format!("[{keyword}]").as_bytes());
            } else {
                self.keyword(keyword, extra)?;
            }
            rest = after;
        }
        self.push_text(rest.as_bytes());
        Ok(())
    }

    fn keyword(
        &mut self,
        text: &str,
        extra: &mut impl FnMut(&str, &str) -> Option<KeywordExpansion>,
    ) -> Result<(), String> {
        let (keyword, arguments) = text.split_once(' ').unwrap_or((text, ""));
        let piece = match keyword {
            "local_ip" | "media_ip" => TemplatePart::LocalIp,
            "local_port" => TemplatePart::LocalPort,
            "local" => TemplatePart::Local,
            "remote_ip" => TemplatePart::RemoteIp,
            "remote_port" => TemplatePart::RemotePort,
            "transport" => TemplatePart::Transport,
            "call_id" => TemplatePart::CallId,
            "call_number" => TemplatePart::CallNumber,
            "local_tag" => TemplatePart::LocalTag,
            "len" => TemplatePart::BodyLength,
            "caller" => TemplatePart::User(UserField::Caller),
            "callee" => TemplatePart::User(UserField::Callee),
            "userid" => TemplatePart::User(UserField::Number),
            "domain" => TemplatePart::Domain(self.last_user()),
            "service" => TemplatePart::Service,
            "peer" => TemplatePart::Peer,
            "peer_tag_param" => TemplatePart::PeerTag,
            "next_url" => TemplatePart::NextUrl,
            "routes" => TemplatePart::Routes,
            "authentication" => TemplatePart::Credentials,
            "answer" => TemplatePart::Answer,
            "timestamp" | "clock_tick" => TemplatePart::Time,
            "last_message" => TemplatePart::Last { field: LastField::Message, line: false },
            "last_Request_URI" => TemplatePart::Last { field: LastField::RequestUri, line: false },
            _ => match self.other_keyword(keyword) {
                Some(piece) => piece,
                None => match extra(keyword, arguments) {
                    Some(KeywordExpansion::Piece(piece)) => piece,
                    Some(KeywordExpansion::Text(text)) => {
                        self.push_text(text.as_bytes());
                        return Ok(());
                    }
                    None => return Err(format!("the keyword [{text}] is not known")),
                },
            },
        };
        self.push(piece);
        Ok(())
    }

    /// Returns the user whose domain comes next, as in `[callee]@[domain]`.
    fn last_user(&self) -> UserField {
        let is_behind_name = self.text.get(self.open..) == Some(b"@");
        match self.pieces.last() {
            Some(TemplatePart::User(UserField::Callee)) if is_behind_name => UserField::Callee,
            _ => UserField::Caller,
        }
    }

    fn other_keyword(&mut self, keyword: &str) -> Option<TemplatePart> {
        if let Some(name) = keyword.strip_prefix("last_").and_then(|name| name.strip_suffix(':')) {
            let field = match HeaderName::from_bytes(name.as_bytes()) {
                HeaderName::Other => {
                    self.flush();
                    let start = u32::try_from(self.text.len()).ok()?;
                    self.text.extend_from_slice(name.as_bytes());
                    self.open = self.text.len();
                    LastField::Named { start, end: u32::try_from(self.text.len()).ok()? }
                }
                known => LastField::Known(known),
            };
            return Some(TemplatePart::Last { field, line: false });
        }
        if let Some(offset) = keyword.strip_prefix("cseq") {
            return offset_of(offset).and_then(|offset| i16::try_from(offset).ok()).map(TemplatePart::CSeq);
        }
        if let Some(offset) = keyword.strip_prefix("branch") {
            return offset_of(offset).and_then(|offset| u8::try_from(-offset).ok()).map(TemplatePart::Branch);
        }
        if let Some(column) = keyword.strip_prefix("field") {
            return column.parse().ok().map(|column| TemplatePart::User(UserField::Column(column)));
        }
        keyword.strip_prefix('$')?.parse().ok().map(TemplatePart::Variable)
    }
}

/// Parses `+1`, `-1` or nothing.
fn offset_of(text: &str) -> Option<i32> {
    if text.is_empty() { Some(0) } else { text.strip_prefix('+').unwrap_or(text).parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_split_into_pieces() {
        let template = Template::compile(
            "\n  INVITE sip:[service]@[remote_ip] SIP/2.0\n  Via: SIP/2.0/[transport] [local];branch=[branch]\n  [routes]\n  \
             [last_X-Thing:]\n  Content-Length: [len]\n\n  v=0\n  o=x\n",
        )
        .expect("valid");
        assert_eq!(template.kind(), Kind::Request(MethodId::Invite));
        assert!(template.uses_last());
        let mut text = String::new();
        for piece in &template.pieces {
            match piece {
                TemplatePart::Text { start, end } => {
                    text += std::str::from_utf8(&template.text[*start as usize..*end as usize]).expect("ASCII");
                }
                TemplatePart::Last { field: LastField::Named { start, end }, line: true } => {
                    assert_eq!(&template.text[*start as usize..*end as usize], b"X-Thing");
                    text += "<last>";
                }
                other => text += &format!("<{other:?}>"),
            }
        }
        assert_eq!(
            text,
            "INVITE sip:<Service>@<RemoteIp> SIP/2.0\r\nVia: SIP/2.0/<Transport> <Local>;branch=<Branch(0)>\r\n<Routes><last>\
             Content-Length: 10\r\n\r\nv=0\r\no=x\r\n"
        );
        assert!(matches!(template.pieces.get(template.body), Some(TemplatePart::Text { .. })));
    }

    #[test]
    fn constant_parts_become_text_and_bodies_have_a_length() {
        let text = "INVITE sip:[callee]@[domain] SIP/2.0\nVia: [local]\nContact: <sip:[local]>\nX: [last_X-Thing:]\n\
             Content-Length: [len]\n\nc=[local_ip]\n";
        let template = Template::compile(text).expect("valid").with_fixed(|piece| {
            let text: &[u8] = match piece {
                TemplatePart::Local => b"10.0.0.1:5",
                TemplatePart::LocalIp => b"10.0.0.1",
                TemplatePart::Domain(_) => b"d",
                _ => return None,
            };
            Some(text.to_vec())
        });
        let mut whole = String::new();
        for piece in &template.pieces {
            match piece {
                TemplatePart::Text { start, end } => {
                    whole += std::str::from_utf8(&template.text[*start as usize..*end as usize]).expect("ASCII");
                }
                TemplatePart::Last { field: LastField::Named { start, end }, .. } => {
                    assert_eq!(&template.text[*start as usize..*end as usize], b"X-Thing");
                    whole += "<last>";
                }
                other => whole += &format!("<{other:?}>"),
            }
        }
        assert_eq!(
            whole,
            "INVITE sip:<User(Callee)>@d SIP/2.0\r\nVia: 10.0.0.1:5\r\nContact: <sip:10.0.0.1:5>\r\nX: <last>\r\n\
             Content-Length: 12\r\n\r\nc=10.0.0.1\r\n"
        );
        assert!(template.pieces.len() < 8, "neighbours are joined: {:?}", template.pieces);
    }

    #[test]
    fn a_domain_follows_the_preceding_user() {
        let text = "INVITE sip:[callee]@[domain] SIP/2.0\nFrom: <sip:[caller]@[domain]>\nTo: <sip:[callee]@[domain]>\nX: [callee] [domain]\n";
        let template = Template::compile(text).expect("valid");
        let domains: Vec<_> = template
            .pieces
            .iter()
            .filter_map(|piece| if let TemplatePart::Domain(of) = piece { Some(*of) } else { None })
            .collect();
        use UserField::{Callee, Caller};
        assert_eq!(domains, [Callee, Caller, Callee, Caller]);
    }

    #[test]
    fn errors_name_the_line() {
        let error = Template::compile("OPTIONS sip:a SIP/2.0\nFoo: [bar]\n").expect_err("no such keyword");
        assert_eq!(error, TemplateError { line: 2, what: "the keyword [bar] is not known".to_owned() });
        assert_eq!(Template::compile("Foo bar\n").expect_err("no SIP").line, 1);
        assert!(Template::compile("OPTIONS sip:[::1]:5060 SIP/2.0\n").is_ok());
    }
}
