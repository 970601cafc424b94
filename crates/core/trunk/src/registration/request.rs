//! Writing of the REGISTER.

use std::sync::Arc;

use strowger_foundation::Transport;

use super::{Registration, RequestParams};
use crate::challenge::{DigestInput, parse_challenge};

impl Registration {
    //= rfc3261#8.1.1:mandatory-fields
    //= rfc3261#8.1.1.2:no-to-tag
    //= rfc3261#8.1.1.3:from-tag
    //= rfc3261#8.1.1.4:one-call-id
    //= rfc3261#8.1.1.5:cseq-method
    //= rfc3261#8.1.1.6:max-forwards
    //= rfc3261#8.1.1.6:seventy
    //= rfc3261#8.1.1.7:inserts-via
    //= rfc3261#8.1.1.7:sip-2-0
    //= rfc3261#8.1.1.7:branch
    //= rfc3261#8.1.3.5:same-call
    //= rfc3261#10.2:fields
    //= rfc3261#10.2:one-call-id
    //= rfc3261#10.2.4:one-call-id
    pub(super) fn write_register(&mut self, sending: &RequestParams<'_>, out: &mut Vec<u8>) {
        let trunk = Arc::clone(&self.trunk);
        let Some(account) = &trunk.account else { return };
        let RequestParams { sent_by, transport, branch } = *sending;
        self.removing = self.leaving;
        //= rfc3261#10.2.2:removal
        let expires = if self.leaving { 0 } else { self.expires.as_secs() };
        let parameter = match transport {
            Transport::Udp => String::new(),
            other => format!(";transport={}", other.as_str().to_ascii_lowercase()),
        };
        self.contact = [b"sip:", &*account.contact_user, b"@", sent_by, parameter.as_bytes()].concat().into();
        let mut push = |parts: &[&[u8]]| parts.iter().for_each(|part| out.extend_from_slice(part));
        push(&[b"REGISTER ", &account.registrar, b" SIP/2.0\r\n"]);
        //= rfc3581#3:empty
        push(&[b"Via: SIP/2.0/", transport.as_str().as_bytes(), b" ", sent_by, b";branch=", branch, b";rport\r\n"]);
        push(&[b"Max-Forwards: 70\r\n"]);
        push(&[b"From: <", &account.from, b">;tag=", &self.tag, b"\r\n"]);
        push(&[b"To: <", &account.from, b">\r\n"]);
        push(&[b"Call-ID: ", &self.call_id, b"\r\n"]);
        push(&[b"CSeq: ", self.cseq.to_string().as_bytes(), b" REGISTER\r\n"]);
        //= rfc3261#10.2:no-action
        //= rfc3261#10.2.4:own-bindings
        push(&[b"Contact: <", &self.contact, b">\r\n"]);
        push(&[b"Expires: ", expires.to_string().as_bytes(), b"\r\n"]);
        //= rfc3261#8.1.1.9:supported
        //= rfc3261#8.1.1.9:standard-tags
        //= rfc3327#5.1
        // Lets a proxy on the path ask that requests come back through it.
        push(&[b"Supported: path\r\n"]);
        self.write_credentials(&account.registrar, out);
        out.extend_from_slice(b"Content-Length: 0\r\n\r\n");
    }

    fn write_credentials(&mut self, uri: &[u8], out: &mut Vec<u8>) {
        let trunk = Arc::clone(&self.trunk);
        let Some(credentials) = &trunk.credentials else { return };
        //= rfc7616#3.6:remembered
        for kept in &mut self.challenges {
            let cnonce = format!("{:016x}", self.random.next());
            //= rfc7616#3.4:count-rises
            // The nonce count rises with each request that uses this nonce.
            kept.count = kept.count.saturating_add(1);
            let asked = DigestInput { method: b"REGISTER", uri, body: b"", cnonce: cnonce.as_bytes(), nc: kept.count };
            if let Some(offer) = parse_challenge(kept.by_proxy, &kept.value) {
                offer.answer(credentials, &asked, out);
            }
        }
    }
}
