//! OPTIONS requests that the server itself sends (RFC 3261 §11).

use strowger_proxy::Listener;

/// The variable parts of an OPTIONS request.
pub(crate) struct OptionsRequest<'a> {
    /// The listener that sends it.
    pub(crate) listener: &'a Listener,
    /// The Request-URI, without headers.
    pub(crate) uri: &'a [u8],
    /// The branch, magic cookie included.
    pub(crate) branch: &'a [u8],
    /// The From tag, which also forms the Call-ID together with our address.
    pub(crate) tag: &'a [u8],
}

impl OptionsRequest<'_> {
    //= rfc3261#8.1.1:mandatory-fields
    //= rfc3261#8.1.1.1:request-uri-is-to
    //= rfc3261#8.1.1.2:no-to-tag
    //= rfc3261#8.1.1.3:from-tag
    //= rfc3261#8.1.1.5:cseq-method
    //= rfc3261#8.1.1.6:max-forwards
    //= rfc3261#8.1.1.6:seventy
    //= rfc3261#8.1.1.7:inserts-via
    //= rfc3261#8.1.1.7:sip-2-0
    //= rfc3261#8.1.1.7:branch
    /// Appends the request to `out`.
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
