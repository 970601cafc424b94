//! Messages of scripted user agents.

use core::net::SocketAddr;

use strowger_foundation::Transport;
use strowger_message::{HeaderName, Message, NameAddr};
use strowger_transaction::ClientId;

/// Request of an agent before its Via is added; a repetition with credentials changes only parts of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestDraft {
    pub(crate) method: &'static str,
    pub(crate) uri: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) call_id: String,
    pub(crate) cseq: u32,
    pub(crate) routes: Vec<String>,
    /// Further header fields, without line ends.
    pub(crate) headers: Vec<String>,
    /// Authorization or Proxy-Authorization header field.
    pub(crate) credentials: Option<String>,
    pub(crate) body: Vec<u8>,
}

impl RequestDraft {
    /// Writes the request with a Via of `sent_by` and `branch`.
    pub(crate) fn write(&self, transport: Transport, sent_by: SocketAddr, branch: &str) -> Vec<u8> {
        let transport = transport.as_str();
        let mut text = format!("{} {} SIP/2.0\r\n", self.method, self.uri);
        text += &format!("Via: SIP/2.0/{transport} {sent_by};rport;branch={branch}\r\n");
        for route in &self.routes {
            text += &format!("Route: {route}\r\n");
        }
        text += &format!("Max-Forwards: 70\r\nFrom: {}\r\nTo: {}\r\n", self.from, self.to);
        text += &format!("Call-ID: {}\r\nCSeq: {} {}\r\n", self.call_id, self.cseq, self.method);
        for line in self.headers.iter().chain(&self.credentials) {
            text += &format!("{line}\r\n");
        }
        text += &format!("Content-Length: {}\r\n\r\n", self.body.len());
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// Returns the branch of an agent's client transaction, unique among agents.
pub(crate) fn branch(agent: usize, client: ClientId) -> String {
    format!("z9hG4bKa{agent}-{}-{}", client.index(), client.generation())
}

/// Returns the client transaction encoded by [`branch`].
pub(crate) fn client_of(branch: &[u8]) -> Option<ClientId> {
    let text = core::str::from_utf8(branch).ok()?;
    let mut parts = text.split('-').skip(1);
    let index = parts.next()?.parse().ok()?;
    Some(ClientId::from_parts(index, parts.next()?.parse().ok()?))
}

/// Returns the first value of a header field as text.
pub(crate) fn value(message: &Message<'_>, name: HeaderName) -> String {
    text(message.head().first(name).unwrap_or(&[]))
}

/// Returns the URI of the first Contact.
pub(crate) fn contact(message: &Message<'_>) -> Option<String> {
    let element = message.head().elements(HeaderName::Contact).next()?;
    NameAddr::parse(element).map(|contact| text(contact.uri))
}

/// Returns the Record-Route values from top to bottom.
pub(crate) fn record_routes(message: &Message<'_>) -> Vec<String> {
    message.head().elements(HeaderName::RecordRoute).map(text).collect()
}

/// Returns the address in a URI, if it is a literal.
pub(crate) fn address_of(uri: &str) -> Option<SocketAddr> {
    let host = uri.trim_start_matches('<').trim_start_matches("sip:");
    let host = host.split_once('@').map_or(host, |(_, host)| host);
    host.split([';', '>']).next()?.parse().ok()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
