//! The OPTIONS requests of the server itself (RFC 3261 §11).

use strowger_proxy::Listener;

/// What tells one OPTIONS from others.
pub(crate) struct OptionsRequest<'a> {
    /// The side of ours that it leaves by.
    pub(crate) listener: &'a Listener,
    /// The Request-URI, without headers.
    pub(crate) uri: &'a [u8],
    /// Our branch, magic cookie included.
    pub(crate) branch: &'a [u8],
    /// The tag of From, and with our address the Call-ID.
    pub(crate) tag: &'a [u8],
}

impl OptionsRequest<'_> {
    /// Adds the request to `out`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let Self { listener, uri, branch, tag } = *self;
        let parts: [&[u8]; 22] = [
            b"OPTIONS ",
            uri,
            b" SIP/2.0\r\nVia: SIP/2.0/",
            listener.transport.as_str().as_bytes(),
            b" ",
            &listener.sent_by,
            b";branch=",
            branch,
            b"\r\nMax-Forwards: 70\r\nFrom: <sip:",
            &listener.sent_by,
            b">;tag=",
            tag,
            b"\r\nTo: <",
            uri,
            b">\r\nCall-ID: ",
            tag,
            b"@",
            &listener.sent_by,
            b"\r\nCSeq: 1 OPTIONS\r\nContact: <sip:",
            &listener.sent_by,
            b">\r\n",
            b"Content-Length: 0\r\n\r\n",
        ];
        parts.iter().for_each(|part| out.extend_from_slice(part));
    }
}
