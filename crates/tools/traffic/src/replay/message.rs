//! Conversion of a recorded message into a template: users and addresses become those of the run, and the rest is
//! kept.

use std::net::SocketAddr;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use strowger_message::{Head, HeaderName, HostPort, NameAddr, SipUri, StartLine, Uri};

use super::call::kind_of;
use crate::script::{Kind, MethodId, Template, TemplatePart};

/// Header field that tells the called end which recorded call a request belongs to.
pub(super) const CALL_FIELD: &str = "X-Strowger-Replay";

/// Mapping of user names.
#[derive(Clone, Debug, Default)]
pub(super) struct UserNames {
    /// The pattern of new names, if users are renamed.
    pub pattern: Option<String>,
    numbers: HashMap<Vec<u8>, u32, FixedState>,
}

impl UserNames {
    pub(super) fn new(pattern: Option<String>) -> Self {
        Self { pattern, numbers: HashMap::with_hasher(FixedState::with_seed(7)) }
    }

    /// Returns a user's number, in order of appearance.
    pub(super) fn number(&mut self, user: &[u8]) -> u32 {
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        *self.numbers.entry_ref(user).or_insert(next)
    }

    /// Returns a user's name in the run.
    pub(super) fn name(&mut self, user: &[u8]) -> Vec<u8> {
        let number = self.number(user);
        let Some(pattern) = &self.pattern else { return user.to_vec() };
        let users = crate::population::Users::generated(pattern, "", "", u32::MAX);
        let mut name = Vec::new();
        users.push_name(number, &mut name);
        name
    }
}

/// Rewriting of the messages of one end.
#[derive(Debug)]
pub(super) struct Rewriter<'a> {
    pub names: &'a mut UserNames,
    /// The domain of all users, if it is replaced.
    pub domain: Option<&'a str>,
    /// Replacement for the server's address without a port, if there is a server.
    pub server: Option<&'a str>,
    /// The recorded addresses of this end.
    pub own: &'a [SocketAddr],
    /// The recorded address of its peer.
    pub peer: Option<SocketAddr>,
    /// The call number to send to the called end, if that end is played too.
    pub call: Option<u16>,
    pub is_caller: bool,
}

/// Script variables of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variables {
    /// The To line of a failure response, for its ACK.
    pub failed: u16,
    /// At the callee: the value of its own To, and the Call-ID line.
    pub party: u16,
    pub call_id: u16,
    /// RSeq and CSeq of a reliable provisional response.
    pub rseq: u16,
    pub cseq: u16,
}

/// Text and pieces of a template under construction.
#[derive(Debug, Default)]
struct Parts {
    text: Vec<u8>,
    pieces: Vec<TemplatePart>,
    open: usize,
}

impl Parts {
    fn push(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
    }

    fn piece(&mut self, piece: TemplatePart) {
        self.flush();
        self.pieces.push(piece);
    }

    fn flush(&mut self) {
        let at = |position: usize| u32::try_from(position).unwrap_or(u32::MAX);
        if self.open < self.text.len() {
            self.pieces.push(TemplatePart::Text { start: at(self.open), end: at(self.text.len()) });
        }
        self.open = self.text.len();
    }

    /// Appends Content-Length, the empty line and the body.
    fn finish(mut self, body: &[u8], kind: Kind) -> Template {
        self.push(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
        self.flush();
        let body_at = self.pieces.len();
        self.push(body);
        self.flush();
        Template::of_parts(self.text, self.pieces, body_at, kind)
    }
}

/// Returns the body, limited by Content-Length.
fn body_of<'a>(head: &Head<'a>) -> &'a [u8] {
    let length = head.first(HeaderName::ContentLength).and_then(strowger_message::parse_decimal);
    let length = length.and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX);
    head.rest().get(..length).unwrap_or(head.rest())
}

/// Form of a request's Request-URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestUri {
    /// As recorded.
    Recorded,
    /// The remote target of the dialog.
    Dialog,
}

impl Rewriter<'_> {
    /// Returns the template of a request that this end sent.
    pub(super) fn request(&mut self, head: &Head<'_>, variables: Variables, aim: RequestUri) -> Template {
        let kind = kind_of(head);
        let StartLine::Request { method, uri } = head.start() else { return Template::garbage(&[]) };
        let verb = MethodId::of(method);
        let mut parts = Parts::default();
        parts.push(method.as_bytes());
        parts.push(b" ");
        match aim {
            RequestUri::Recorded => self.uri(uri, &mut parts),
            RequestUri::Dialog => parts.piece(TemplatePart::NextUrl),
        }
        parts.push(b" SIP/2.0\r\n");
        self.top(head, &mut parts);
        self.identity(head, method.as_bytes(), variables, aim, &mut parts);
        if let (Some(call), RequestUri::Recorded, true) = (self.call, aim, verb.takes_number()) {
            parts.push(format!("{CALL_FIELD}: {call}\r\n").as_bytes());
        }
        for field in head.fields() {
            match field.name {
                HeaderName::Contact => self.contact(head.value(field), true, &mut parts),
                HeaderName::Other if is_named(head.line(field), b"rack") => {
                    parts.push(b"RAck: ");
                    parts.piece(TemplatePart::Variable(variables.rseq));
                    parts.push(b" ");
                    parts.piece(TemplatePart::Variable(variables.cseq));
                    parts.push(b"\r\n");
                }
                name if is_own(name) => {}
                _ => push_line(head.line(field), &mut parts),
            }
        }
        if verb.takes_number() {
            parts.piece(TemplatePart::Credentials);
        }
        parts.finish(body_of(head), kind)
    }

    /// Returns the template of the ACK to a failure of `invite` (RFC 3261 §17.1.1.3).
    pub(super) fn failure_ack(&mut self, invite: &Head<'_>, variables: Variables, aim: RequestUri) -> Template {
        let mut parts = Parts::default();
        parts.push(b"ACK ");
        match (aim, invite.start()) {
            (RequestUri::Recorded, StartLine::Request { uri, .. }) => self.uri(uri, &mut parts),
            _ => parts.piece(TemplatePart::NextUrl),
        }
        parts.push(b" SIP/2.0\r\n");
        self.top(invite, &mut parts);
        self.from(invite, variables, &mut parts);
        parts.piece(TemplatePart::Variable(variables.failed));
        parts.push(b"\r\n");
        self.call_id(variables, &mut parts);
        parts.push(b"CSeq: ");
        parts.piece(TemplatePart::CSeq(0));
        parts.push(b" ACK\r\n");
        if aim == RequestUri::Dialog {
            parts.piece(TemplatePart::Routes);
        }
        parts.finish(&[], Kind::Request(MethodId::Ack))
    }

    /// Returns the template of an in-dialog request that is not in the recording: the ACK or BYE of a call that
    /// diverges.
    pub(super) fn invented(&mut self, invite: &Head<'_>, verb: MethodId, variables: Variables) -> Template {
        let mut parts = Parts::default();
        parts.push(verb.as_str().as_bytes());
        parts.push(b" ");
        parts.piece(TemplatePart::NextUrl);
        parts.push(b" SIP/2.0\r\n");
        self.top(invite, &mut parts);
        self.identity(invite, verb.as_str().as_bytes(), variables, RequestUri::Dialog, &mut parts);
        if verb.takes_number() {
            parts.piece(TemplatePart::Credentials);
        }
        parts.finish(&[], Kind::Request(verb))
    }

    /// Returns the template of a response that this end sent. `answer` is the variable with the fields copied from
    /// its request.
    pub(super) fn response(&mut self, head: &Head<'_>, answer: u16) -> Template {
        let kind = kind_of(head);
        let StartLine::Response { status, reason } = head.start() else { return Template::garbage(&[]) };
        let mut parts = Parts::default();
        parts.push(format!("SIP/2.0 {} ", status.code()).as_bytes());
        parts.push(reason);
        parts.push(b"\r\n");
        parts.piece(TemplatePart::Variable(answer));
        // The contacts of a redirection are other parties'.
        let is_own_contact = !(300..400).contains(&status.code());
        for field in head.fields() {
            match field.name {
                HeaderName::Contact => self.contact(head.value(field), is_own_contact, &mut parts),
                HeaderName::From | HeaderName::To | HeaderName::CallId | HeaderName::CSeq => {}
                name if is_own(name) => {}
                _ => push_line(head.line(field), &mut parts),
            }
        }
        parts.finish(body_of(head), kind)
    }

    /// Appends Via and Max-Forwards.
    fn top(&self, head: &Head<'_>, parts: &mut Parts) {
        parts.push(b"Via: SIP/2.0/");
        parts.piece(TemplatePart::Transport);
        parts.push(b" ");
        parts.piece(TemplatePart::Local);
        parts.push(b";branch=");
        parts.piece(TemplatePart::Branch(0));
        let via = head.first(HeaderName::Via).unwrap_or(&[]);
        if memchr::memmem::find(via, b";rport").is_some() {
            parts.push(b";rport");
        }
        parts.push(b"\r\nMax-Forwards: ");
        let hops = head.first(HeaderName::MaxForwards).filter(|hops| hops.iter().all(u8::is_ascii_digit));
        parts.push(hops.unwrap_or(b"70"));
        parts.push(b"\r\n");
    }

    /// Appends From, To, Call-ID, CSeq and the route set.
    fn identity(&mut self, head: &Head<'_>, method: &[u8], variables: Variables, aim: RequestUri, parts: &mut Parts) {
        self.from(head, variables, parts);
        parts.push(b"To: ");
        match (aim, head.first(HeaderName::To).and_then(NameAddr::parse)) {
            (RequestUri::Recorded, Some(to)) => self.name_addr(&to, parts),
            _ => parts.piece(TemplatePart::Peer),
        }
        parts.push(b"\r\n");
        self.call_id(variables, parts);
        parts.push(b"CSeq: ");
        parts.piece(TemplatePart::CSeq(0));
        parts.push(b" ");
        parts.push(method);
        parts.push(b"\r\n");
        if aim == RequestUri::Dialog {
            parts.piece(TemplatePart::Routes);
        }
    }

    fn from(&mut self, head: &Head<'_>, variables: Variables, parts: &mut Parts) {
        parts.push(b"From: ");
        match (self.is_caller, head.first(HeaderName::From).and_then(NameAddr::parse)) {
            (true, Some(from)) => self.name_addr(&from, parts),
            _ => parts.piece(TemplatePart::Variable(variables.party)),
        }
        parts.push(b";tag=");
        parts.piece(TemplatePart::LocalTag);
        parts.push(b"\r\n");
    }

    fn call_id(&self, variables: Variables, parts: &mut Parts) {
        if self.is_caller {
            parts.push(b"Call-ID: ");
            parts.piece(TemplatePart::CallId);
        } else {
            parts.piece(TemplatePart::Variable(variables.call_id));
        }
        parts.push(b"\r\n");
    }

    /// Appends a party without its tag.
    fn name_addr(&mut self, addr: &NameAddr<'_>, parts: &mut Parts) {
        if !addr.display.is_empty() {
            parts.push(addr.display);
            parts.push(b" ");
        }
        parts.push(b"<");
        self.uri(addr.uri, parts);
        parts.push(b">");
        for param in addr.params.iter().filter(|param| !param.is("tag")) {
            push_param(&param, parts);
        }
    }

    /// Appends a Contact line, with the local address if `is_own`, else with the recorded one.
    fn contact(&mut self, value: &[u8], is_own: bool, parts: &mut Parts) {
        let Some((addr, _)) = NameAddr::parse_first(value) else {
            // Usually `*`.
            parts.push(b"Contact: ");
            parts.push(value);
            parts.push(b"\r\n");
            return;
        };
        parts.push(b"Contact: <");
        match Uri::parse(addr.uri) {
            Some(Uri::Sip(uri)) if is_own => {
                parts.push(b"sip:");
                if let Some(user) = uri.user {
                    let user = self.names.name(user);
                    parts.push(&user);
                    parts.push(b"@");
                }
                parts.piece(TemplatePart::Local);
                parts.push(b";transport=");
                parts.piece(TemplatePart::Transport);
            }
            _ => self.uri(addr.uri, parts),
        }
        parts.push(b">");
        for param in addr.params.iter() {
            push_param(&param, parts);
        }
        parts.push(b"\r\n");
    }

    /// Appends a URI with its user and host mapped.
    fn uri(&mut self, text: &[u8], parts: &mut Parts) {
        let Some(Uri::Sip(uri)) = Uri::parse(text) else { return parts.push(text) };
        parts.push(if uri.secure { b"sips:" } else { b"sip:" });
        if let Some(user) = uri.user {
            let user = self.names.name(user);
            parts.push(&user);
            parts.push(b"@");
        }
        let is_mapped = self.host(&uri, parts);
        for (name, value) in uri.params.iter() {
            // How the recorded server was reached does not apply to the run.
            let is_way = ["transport", "maddr", "received"].iter().any(|way| name.eq_ignore_ascii_case(way.as_bytes()));
            if is_mapped && is_way {
                continue;
            }
            parts.push(b";");
            parts.push(name);
            if let Some(value) = value {
                parts.push(b"=");
                parts.push(value);
            }
        }
    }

    /// Appends a host: the configured domain, or the run's address for a recorded one. Returns whether it was mapped.
    fn host(&self, uri: &SipUri<'_>, parts: &mut Parts) -> bool {
        if let Some(domain) = self.domain {
            parts.push(domain.as_bytes());
            return true;
        }
        let HostPort { host, port, .. } = uri.host_port;
        let Some(ip) = uri.host().ip() else {
            push_host(host, port, parts);
            return false;
        };
        let at = port.map(|port| SocketAddr::new(ip, port));
        if at.is_some_and(|at| self.own.contains(&at)) {
            parts.piece(TemplatePart::Local);
        } else if at.is_some() && at == self.peer {
            parts.piece(TemplatePart::RemoteIp);
            parts.push(b":");
            parts.piece(TemplatePart::RemotePort);
        } else if port.is_none() && self.peer.is_some_and(|peer| peer.ip() == ip) {
            match self.server {
                Some(server) => parts.push(server.as_bytes()),
                None => parts.piece(TemplatePart::RemoteIp),
            }
        } else if port.is_none() && self.own.iter().any(|own| own.ip() == ip) {
            parts.piece(TemplatePart::LocalIp);
        } else {
            push_host(host, port, parts);
            return false;
        }
        true
    }
}

fn push_host(host: &[u8], port: Option<u16>, parts: &mut Parts) {
    parts.push(host);
    if let Some(port) = port {
        parts.push(format!(":{port}").as_bytes());
    }
}

fn push_param(param: &strowger_message::Param<'_>, parts: &mut Parts) {
    parts.push(b";");
    parts.push(param.name);
    if let Some(value) = param.value {
        parts.push(b"=");
        parts.push(value);
    }
}

/// Appends a line unchanged, with a CRLF; in a trace, lines may end without one.
fn push_line(line: &[u8], parts: &mut Parts) {
    parts.push(line.trim_ascii_end());
    parts.push(b"\r\n");
}

fn is_named(line: &[u8], name: &[u8]) -> bool {
    let end = line.iter().position(|byte| *byte == b':').unwrap_or(0);
    line.get(..end).unwrap_or(&[]).trim_ascii().eq_ignore_ascii_case(name)
}

/// Returns whether the run writes this field itself.
const fn is_own(name: HeaderName) -> bool {
    matches!(
        name,
        HeaderName::Via
            | HeaderName::MaxForwards
            | HeaderName::From
            | HeaderName::To
            | HeaderName::CallId
            | HeaderName::CSeq
            | HeaderName::Route
            | HeaderName::RecordRoute
            | HeaderName::Authorization
            | HeaderName::ProxyAuthorization
            | HeaderName::ContentLength
    )
}
