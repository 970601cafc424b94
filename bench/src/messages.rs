//! Valid messages for benchmarks and as the start of mutations.

/// A typical INVITE: 14 header fields and SDP, about 900 bytes.
pub const INVITE: &[u8] = b"INVITE sip:ben@example.org SIP/2.0\r\n\
Via: SIP/2.0/UDP 192.0.2.10:5062;branch=z9hG4bK-524287-1---d8754z2f0b1c3a;rport\r\n\
Max-Forwards: 70\r\n\
Contact: <sip:ann@192.0.2.10:5062;transport=UDP>\r\n\
To: <sip:ben@example.org>\r\n\
From: \"Ann\" <sip:ann@example.org;transport=UDP>;tag=a9f1c55e\r\n\
Call-ID: NzZkYmU4YjY3ZjA2ZWYzNTQ3N2I1@192.0.2.10\r\n\
CSeq: 1 INVITE\r\n\
Allow: INVITE, ACK, CANCEL, BYE, NOTIFY, REFER, MESSAGE, OPTIONS, INFO, SUBSCRIBE\r\n\
Content-Type: application/sdp\r\n\
Supported: replaces, norefersub, extended-refer, timer, outbound, path\r\n\
User-Agent: Any-Phone 5.6.6 v2.10.20.7\r\n\
Allow-Events: presence, kpml, talk\r\n\
Session-Expires: 1800\r\n\
Content-Length: 226\r\n\
\r\n\
v=0\r\n\
o=ann 2890844526 2890844526 IN IP4 192.0.2.10\r\n\
s=A call\r\n\
c=IN IP4 192.0.2.10\r\n\
t=0 0\r\n\
m=audio 49172 RTP/AVP 0 8 9 101\r\n\
a=rtpmap:0 PCMU/8000\r\n\
a=rtpmap:8 PCMA/8000\r\n\
a=rtpmap:101 telephone-event/8000\r\n\
a=fmtp:101 0-16\r\n\
a=sendrecv\r\n";

const REGISTER: &[u8] = b"REGISTER sip:example.org SIP/2.0\r\n\
Via: SIP/2.0/UDP 192.0.2.10:5062;branch=z9hG4bKr1;rport\r\nMax-Forwards: 70\r\n\
From: <sip:ann@example.org>;tag=r1\r\nTo: <sip:ann@example.org>\r\nCall-ID: reg-1@192.0.2.10\r\nCSeq: 2 REGISTER\r\n\
Contact: <sip:ann@192.0.2.10:5062;ob>;expires=600;+sip.instance=\"<urn:uuid:0>\", <sip:ann@[2001:db8::1]>;q=0.5\r\n\
Expires: 3600\r\nAuthorization: Digest username=\"ann\", realm=\"example.org\", nonce=\"n0\", uri=\"sip:example.org\",\r\n \
response=\"00000000000000000000000000000000\", algorithm=MD5, qop=auth, nc=00000001, cnonce=\"c\"\r\nContent-Length: 0\r\n\r\n";

const OPTIONS: &[u8] = b"OPTIONS sips:ben@[2001:db8::1]:5061;transport=tcp SIP/2.0\r\n\
v:SIP / 2.0 / TLS [2001:db8::2]:5061 ;branch=z9hG4bKo1 , SIP/2.0/UDP relay.example.org;branch=z9hG4bKo0;received=192.0.2.3\r\n\
f: Cy\r\n <sip:cy@example.org> ; tag = 1\r\nt : sip:dee@example.org\r\ni:compact@192.0.2.11\r\ncseq: 7\t OPTIONS\r\n\
Max-Forwards: 10\r\nl:0\r\n\r\n";

const BYE: &[u8] = b"BYE sip:ben@192.0.2.20:5080 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.10;branch=z9hG4bKb1\r\n\
Route: <sip:p1.example.org;lr;ftag=1>, \"P 2\" <sip:p2.example.org;lr>\r\nRoute: <sip:p3.example.org>\r\n\
Max-Forwards: 69\r\nFrom: <sip:ann@example.org>;tag=1\r\nTo: <sip:ben@example.org>;tag=2\r\nCall-ID: dialog@192.0.2.10\r\n\
CSeq: 3 BYE\r\nProxy-Require: privacy\r\nRequire: 100rel\r\nContent-Length: 0\r\n\r\n";

const CANCEL: &[u8] = b"CANCEL sip:ben@example.org SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.10:5062;branch=z9hG4bKc1\r\n\
Max-Forwards: 70\r\nFrom: <sip:ann@example.org>;tag=1\r\nTo: <sip:ben@example.org>\r\nCall-ID: cancel@192.0.2.10\r\n\
CSeq: 1 CANCEL\r\nContent-Length: 0\r\n\r\n";

const ACK: &[u8] =
    b"ACK tel:+1-555-0100;phone-context=example.org SIP/2.0\r\nVia: SIP/2.0/TCP a.example.org;branch=z9hG4bKa1\r\n\
Max-Forwards: 70\r\nFrom: <sip:ann@example.org>;tag=1\r\nTo: <tel:+15550100>;tag=2\r\nCall-ID: ack@a\r\nCSeq: 1 ACK\r\n\
Content-Length: 0\r\n\r\n";

const RESPONSE: &[u8] = b"SIP/2.0 200 OK\r\n\
Via: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bKp1;received=192.0.2.1;rport=5060\r\n\
Via: SIP/2.0/UDP 192.0.2.10:5062;branch=z9hG4bK1;received=198.51.100.7;rport=40000\r\n\
Record-Route: <sip:p2.example.org;lr>, <sip:p1.example.org;lr>\r\nFrom: \"Ann\" <sip:ann@example.org>;tag=1\r\n\
To: <sip:ben@example.org>;tag=2\r\nCall-ID: invite@192.0.2.10\r\nCSeq: 1 INVITE\r\nContact: <sip:ben@192.0.2.20:5080>\r\n\
Content-Type: application/sdp\r\nContent-Length: 5\r\n\r\nv=0\r\n";

const REDIRECT: &[u8] = b"SIP/2.0 302 Moved Temporarily\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bKm1\r\n\
From: <sip:ann@example.org>;tag=1\r\nTo: <sip:ben@example.org>;tag=2\r\nCall-ID: moved@192.0.2.10\r\nCSeq: 9 INVITE\r\n\
Contact: \"B, en\" <sip:ben@192.0.2.30>;q=0.7;expires=60, <mailto:ben@example.org>\r\nContent-Length: 0\r\n\r\n";

const OLD: &[u8] = b"INVITE sip:ben@example.org SIP/2.0\r\nVia: SIP/2.0/UDP old.example.org\r\n\
From: <sip:ann@example.org>\r\nTo: <sip:ben@example.org>\r\nCall-ID: old@old.example.org\r\nCSeq: 1 INVITE\r\n\
Content-Type: application/sdp\r\n\r\nv=0\r\n";

/// All messages, one of each kind that the server distinguishes.
pub const ALL: &[&[u8]] = &[INVITE, REGISTER, OPTIONS, BYE, CANCEL, ACK, RESPONSE, REDIRECT, OLD];
