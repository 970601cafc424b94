//! The torture messages of RFC 4475 and RFC 5118, and the comparisons of RFC 5954.

#![expect(clippy::disallowed_macros, reason = "a test says what it skipped and how much it compared")]

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use strowger_message::{Aor, HeaderName, Kind, Message, NameAddr, Peek, Uri, Via};

fn corpus() -> Option<PathBuf> {
    let default = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../shared/corpus"));
    let folder = std::env::var_os("STROWGER_CORPUS").map_or(default, PathBuf::from);
    folder.join("rfc4475/index.json").exists().then_some(folder)
}

#[derive(Debug, PartialEq)]
enum Verdict {
    Read,
    Answered(u16),
    Dropped,
}

/// Returns the parser's verdict on a datagram: a bad request is answered, a bad response is not.
fn verdict(bytes: &[u8]) -> Verdict {
    match Message::parse(bytes) {
        Ok(_) => Verdict::Read,
        Err((fault, _)) => match Peek::read(bytes).map(|peek| peek.kind) {
            Ok(Kind::Response(_)) => Verdict::Dropped,
            Err(_) if bytes.starts_with(b"SIP/") => Verdict::Dropped,
            _ => Verdict::Answered(fault.status().code()),
        },
    }
}

#[test]
fn rfc4475() {
    let Some(folder) = corpus() else {
        eprintln!("SKIPPED: the corpus of RFC 4475 is not there (STROWGER_CORPUS names its folder)");
        return;
    };
    let index = fs::read(folder.join("rfc4475/index.json")).expect("readable");
    let index: serde_json::Value = serde_json::from_slice(&index).expect("JSON");
    let entries = index["rfc4475"].as_array().expect("a list");
    assert_eq!(entries.len(), 49);
    let wrong: Vec<_> = entries
        .iter()
        .filter_map(|entry| {
            let bytes = fs::read(folder.join(entry["file"].as_str().expect("a name"))).expect("readable");
            let reactions = |role: &str| {
                entry[role]
                    .as_array()
                    .expect("a list")
                    .iter()
                    .map(|r| r.as_str().expect("text").to_owned())
                    .collect::<Vec<_>>()
            };
            let (proxy, registrar) = (reactions("proxy_accept"), reactions("registrar_accept"));
            let verdict = verdict(&bytes);
            // The parser itself gives only 400 and 505; every other reaction needs a parsed message.
            let right = match verdict {
                Verdict::Answered(code) => proxy.contains(&code.to_string()) && registrar.contains(&code.to_string()),
                Verdict::Dropped => proxy.contains(&"DROP".to_owned()),
                Verdict::Read => proxy[0] != "505" && (proxy[0] != "400" || refusable(&bytes)),
            };
            (!right).then(|| format!("{}: {verdict:?}, wanted {proxy:?}", entry["name"]))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Whether a parsed message has the defect for which RFC 4475 wants it rejected: a branch without an identifier.
fn refusable(bytes: &[u8]) -> bool {
    Message::parse(bytes).is_ok_and(|message| message.via().branch.is_some_and(|branch| branch == b"z9hG4bK"))
}

const FIELDS_4: &str = "To: sip:user@example.com\r\nFrom: sip:user@example.com;tag=81x2\r\n\
    Via: SIP/2.0/UDP [2001:db8::9:1];branch=z9hG4bKas3-111\r\nCall-ID: SSG9559905523997077@hlau_4100\r\n\
    Max-Forwards: 70\r\nContact: \"Caller\" <sip:caller@[2001:db8::1]>\r\nCSeq: 98176 REGISTER\r\nContent-Length: 0\r\n\r\n";

fn register(uri: &str) -> String {
    format!("REGISTER {uri} SIP/2.0\r\n{FIELDS_4}")
}

fn ip(text: &str) -> Option<IpAddr> {
    Some(text.parse().expect("an address"))
}

fn request_host(message: &Message<'_>) -> (Option<IpAddr>, Option<u16>) {
    let uri = Uri::parse(message.request_uri()).expect("checked");
    uri.sip().map(|uri| (uri.host().ip(), uri.port())).expect("a SIP URI")
}

#[test]
fn rfc5118_sections_4_1_to_4_4_references_and_ports() {
    let good = register("sip:[2001:db8::10]");
    let message = Message::parse(good.as_bytes()).expect("4.1 is valid");
    assert_eq!(request_host(&message), (ip("2001:db8::10"), None));
    assert_eq!(message.via().response_ip(), ip("2001:db8::9:1"));
    let contact = NameAddr::parse(message.head().first(HeaderName::Contact).expect("there")).expect("valid");
    assert_eq!(contact.parse_uri().and_then(|uri| uri.sip()?.host().ip()), ip("2001:db8::1"));

    assert_eq!(verdict(register("sip:2001:db8::10").as_bytes()), Verdict::Answered(400), "4.2");

    let ambiguous = register("sip:[2001:db8::10:5070]");
    assert_eq!(
        request_host(&Message::parse(ambiguous.as_bytes()).expect("4.3 is valid")),
        (ip("2001:db8::10:5070"), None)
    );

    let unambiguous = register("sip:[2001:db8::10]:5070");
    assert_eq!(
        request_host(&Message::parse(unambiguous.as_bytes()).expect("4.4 is valid")),
        (ip("2001:db8::10"), Some(5070))
    );
}

#[test]
fn rfc5118_section_4_5_received_with_and_without_brackets() {
    for (method, received, contact, branch) in [
        ("BYE", "[2001:db8::9:255]", "", "z9hG4bKas3-111"),
        ("OPTIONS", "2001:db8::9:255", "Contact: \"Caller\" <sip:caller@[2001:db8::9:1]>\r\n", "z9hG4bKas3"),
    ] {
        let text = format!(
            "{method} sip:[2001:db8::10] SIP/2.0\r\nTo: sip:user@example.com;tag=bd76ya\r\n\
             From: sip:user@example.com;tag=81x2\r\nVia: SIP/2.0/UDP [2001:db8::9:1];received={received};branch={branch}\r\n\
             Call-ID: SSG9559905523997077@hlau_4100\r\nMax-Forwards: 70\r\n{contact}CSeq: 321 {method}\r\nContent-Length: 0\r\n\r\n"
        );
        let message = Message::parse(text.as_bytes()).expect("both forms are read");
        assert_eq!(message.via().received_ip(), ip("2001:db8::9:255"));
        assert_eq!(message.via().host().ip(), ip("2001:db8::9:1"));
        assert_eq!(message.via().branch, Some(branch.as_bytes()));
    }
}

const SDP_4_6: &str = "v=0\r\no=assistant 971731711378798081 0 IN IP6 2001:db8::20\r\ns=Live video feed for today's meeting\r\n\
    c=IN IP6 2001:db8::20\r\nt=3338481189 3370017201\r\nm=audio 6000 RTP/AVP 2\r\na=rtpmap:2 G726-32/8000\r\n\
    m=video 6024 RTP/AVP 107\r\na=rtpmap:107 H263-1998/90000\r\n";
const SDP_4_8: &str = "v=0\r\no=bob 280744730 28977631 IN IP4 host.example.com\r\ns=\r\nt=0 0\r\nm=audio 22334 RTP/AVP 0\r\n\
    c=IN IP4 192.0.2.1\r\nm=video 6024 RTP/AVP 107\r\nc=IN IP6 2001:db8::1\r\na=rtpmap:107 H263-1998/90000\r\n";
const SDP_4_9: &str = "v=0\r\no=assistant 971731711378798081 0 IN IP6 ::ffff:192.0.2.2\r\ns=Call me soon, please!\r\n\
    c=IN IP6 ::ffff:192.0.2.2\r\nt=3338481189 3370017201\r\nm=audio 6000 RTP/AVP 2\r\na=rtpmap:2 G726-32/8000\r\n\
    m=video 6024 RTP/AVP 107\r\na=rtpmap:107 H263-1998/90000\r\n";

/// The RFC shows bodies without their line ends, so Content-Length is computed from the text here.
fn invite(uri: &str, to: &str, vias: &str, contact: &str, sdp: &str) -> String {
    format!(
        "INVITE {uri} SIP/2.0\r\nTo: {to}\r\nFrom: sip:user@example.com;tag=81x2\r\n{vias}\
         Call-ID: SSG9559905523997077@hlau_4100\r\nContact: {contact}\r\nCSeq: 8612 INVITE\r\nMax-Forwards: 70\r\n\
         Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{sdp}",
        sdp.len()
    )
}

#[test]
fn rfc5118_sections_4_6_to_4_9_many_addresses() {
    let text = invite(
        "sip:user@[2001:db8::10]",
        "sip:user@[2001:db8::10]",
        "Via: SIP/2.0/UDP [2001:db8::20];branch=z9hG4bKas3-111\r\n",
        "\"Caller\" <sip:caller@[2001:db8::20]>",
        SDP_4_6,
    );
    let message = Message::parse(text.as_bytes()).expect("4.6 is valid");
    assert_eq!((message.via().response_ip(), message.body()), (ip("2001:db8::20"), SDP_4_6.as_bytes()));

    let text = "BYE sip:user@host.example.net SIP/2.0\r\nVia: SIP/2.0/UDP [2001:db8::9:1]:6050;branch=z9hG4bKas3-111\r\n\
        Via: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bKjhja8781hjuaij65144\r\n\
        Via: SIP/2.0/TCP [2001:db8::9:255];branch=z9hG4bK451jj;received=192.0.2.200\r\nCall-ID: 997077@lau_4100\r\n\
        Max-Forwards: 70\r\nCSeq: 89187 BYE\r\nTo: sip:user@example.net;tag=9817--94\r\n\
        From: sip:user@example.com;tag=81x2\r\nContent-Length: 0\r\n\r\n";
    let message = Message::parse(text.as_bytes()).expect("4.7 is valid");
    assert_eq!((message.via().host().ip(), message.via().response_port()), (ip("2001:db8::9:1"), 6050));
    let vias: Vec<_> =
        message.head().elements(HeaderName::Via).map(|via| Via::parse_first(via).expect("valid").0).collect();
    let hosts: Vec<_> = vias.iter().map(|via| (via.host().ip(), via.received_ip())).collect();
    assert_eq!(hosts[1..], [(ip("192.0.2.1"), None), (ip("2001:db8::9:255"), ip("192.0.2.200"))]);

    let text = invite(
        "sip:user@[2001:db8::10]",
        "sip:user@[2001:db8::10]",
        "Via: SIP/2.0/UDP [2001:db8::9:1];branch=z9hG4bKas3-111\r\n",
        "\"Caller\" <sip:caller@[2001:db8::9:1]>",
        SDP_4_8,
    );
    assert_eq!(Message::parse(text.as_bytes()).expect("4.8 is valid").body(), SDP_4_8.as_bytes());

    let text = invite(
        "sip:user@example.com",
        "sip:user@example.com",
        "Via: SIP/2.0/UDP [::ffff:192.0.2.10]:19823;branch=z9hG4bKbh19\r\nVia: SIP/2.0/UDP [::ffff:192.0.2.2];branch=z9hG4bKas3-111\r\n",
        "\"T. desk phone\" <sip:ted@[::ffff:192.0.2.2]>",
        SDP_4_9,
    );
    let message = Message::parse(text.as_bytes()).expect("4.9 is valid");
    assert_eq!((message.via().host().ip(), message.via().sent_by.port), (ip("::ffff:192.0.2.10"), Some(19823)));
}

#[test]
fn rfc5118_section_4_10_the_third_colon() {
    for reference in ["[2001:db8:::192.0.2.1]", "[2001:db8::192.0.2.1]"] {
        let text = format!(
            "OPTIONS sip:user@{reference} SIP/2.0\r\nTo: sip:user@{reference}\r\nFrom: sip:user@example.com;tag=810x2\r\n\
             Via: SIP/2.0/UDP lab1.east.example.com;branch=z9hG4bKas3-111\r\nCall-ID: G9559905523997077@hlau_4100\r\n\
             CSeq: 689 OPTIONS\r\nMax-Forwards: 70\r\nContent-Length: 0\r\n\r\n"
        );
        let message = Message::parse(text.as_bytes()).expect("both forms are tolerated");
        assert_eq!(request_host(&message), (ip("2001:db8::192.0.2.1"), None));
    }
}

#[test]
fn rfc5954_addresses_compare_by_value() {
    for (a, b) in [
        ("sip:bob@[::ffff:192.0.2.128]", "sip:bob@[::ffff:c000:280]"),
        ("sip:bob@[2001:db8::9:1]", "sip:bob@[2001:db8::9:01]"),
        ("sip:bob@[0:0:0:0:0:FFFF:129.144.52.38]", "sip:bob@[::FFFF:129.144.52.38]"),
    ] {
        let (a, b) = (Uri::parse(a.as_bytes()).expect("valid"), Uri::parse(b.as_bytes()).expect("valid"));
        assert!(a.same(&b) && b.same(&a));
        let aor = |uri: &Uri<'_>| -> Aor { uri.sip().and_then(strowger_message::SipUri::aor).expect("has a user") };
        assert_eq!(aor(&a), aor(&b), "one address, one key");
    }
    // By the grammar of RFC 3986 this is not an address.
    let Some(Uri::Sip(uri)) = Uri::parse(b"sip:bob@444.555.666.777") else { return };
    assert_eq!(uri.host().ip(), None);
}
