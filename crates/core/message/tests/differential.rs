//! Compares the parser with two others: on a message that both accept, the results must be equal.
//!
//! Known differences and how they are handled:
//! - A message that either side rejects, mostly a torture message, is not compared. Their number is printed and has a
//!   lower bound.
//! - Both oracles reassemble URIs: Request-URIs must be equal by URI comparison, not byte for byte.
//! - Clear errors of an oracle are listed in [`KNOWN`] with the reason.

#![expect(clippy::disallowed_macros, reason = "a test says what it skipped and how much it compared")]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use strowger_message::{Message, Uri};

/// The values compared; `None` if the oracle has no answer.
#[derive(Debug, Default, PartialEq)]
struct ParsedValues {
    method: Option<String>,
    uri: Option<String>,
    call_id: Option<String>,
    cseq: Option<u32>,
    from_tag: Option<String>,
    to_tag: Option<String>,
    branch: Option<String>,
}

fn ours(bytes: &[u8]) -> Option<ParsedValues> {
    let message = Message::parse(bytes).ok()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(ParsedValues {
        method: message.status().is_none().then(|| text(message.method().as_bytes())),
        uri: message.status().is_none().then(|| text(message.request_uri())),
        call_id: Some(text(message.call_id())),
        cseq: Some(message.cseq().number),
        from_tag: message.from().tag().map(text),
        to_tag: message.to().tag().map(text),
        branch: message.via().branch.map(text),
    })
}

fn of_rsip(bytes: &[u8]) -> Option<ParsedValues> {
    use rsip::headers::{ToTypedHeader as _, UntypedHeader as _};
    use rsip::message::HeadersExt as _;
    let message = rsip::SipMessage::try_from(bytes).ok()?;
    let (method, uri) = match &message {
        rsip::SipMessage::Request(request) => (Some(request.method.to_string()), Some(request.uri.to_string())),
        rsip::SipMessage::Response(_) => (None, None),
    };
    Some(ParsedValues {
        method,
        uri,
        call_id: Some(message.call_id_header().ok()?.value().to_owned()),
        cseq: Some(message.cseq_header().ok()?.typed().ok()?.seq),
        from_tag: message.from_header().ok()?.typed().ok()?.tag().map(|tag| tag.value().to_owned()),
        to_tag: message.to_header().ok()?.typed().ok()?.tag().map(|tag| tag.value().to_owned()),
        branch: message.via_header().ok()?.typed().ok()?.branch().map(|branch| branch.value().to_owned()),
    })
}

fn of_rsipstack(bytes: &[u8]) -> Option<ParsedValues> {
    use rsipstack::sip::headers::ToTypedHeader as _;
    use rsipstack::sip::{HeadersExt as _, SipMessage};
    let message = SipMessage::try_from(bytes).ok()?;
    let (method, uri) = match &message {
        SipMessage::Request(request) => (Some(request.method.to_string()), Some(request.uri.to_string())),
        SipMessage::Response(_) => (None, None),
    };
    let branch = message.top_via_header().ok()?.typed().ok()?.params.into_iter().find_map(|param| match param {
        rsipstack::sip::uri::Param::Branch(branch) => Some(branch.value().to_owned()),
        _ => None,
    });
    Some(ParsedValues {
        method,
        uri,
        call_id: Some(message.call_id_header().ok()?.value().to_owned()),
        cseq: Some(message.cseq_header().ok()?.typed().ok()?.seq),
        from_tag: message.from_header().ok()?.typed().ok()?.tag().map(|tag| tag.value().to_owned()),
        to_tag: message.to_header().ok()?.typed().ok()?.tag().map(|tag| tag.value().to_owned()),
        branch,
    })
}

type Oracle = (&'static str, fn(&[u8]) -> Option<ParsedValues>);

const ORACLES: [Oracle; 2] = [("rsip", of_rsip), ("rsipstack", of_rsipstack)];

/// Torture messages that an oracle misreads: the oracle, the message and the reason.
const KNOWN: &[(&str, &str, &str)] = &[
    ("rsipstack", "wsinv", "it overlooks parameters that stand behind a fold, here both tags"),
    (
        "rsipstack",
        "esc01",
        "it undoes the escapes of a user part when it reads, so that another user and host are written",
    ),
];

/// Whether the oracle accepted the message too; its values must then equal ours.
///
/// # Errors
/// Returns the difference.
fn agrees(name: &str, bytes: &[u8], (oracle, read): Oracle) -> Result<bool, String> {
    // A panic of an oracle is no failure of this test.
    let theirs = catch_unwind(AssertUnwindSafe(|| read(bytes))).ok().flatten();
    let (Some(mut ours), Some(mut theirs)) = (ours(bytes), theirs) else { return Ok(false) };
    let same_uri = match (ours.uri.take(), theirs.uri.take()) {
        (Some(ours), Some(theirs)) => {
            let read = (Uri::parse(ours.as_bytes()), Uri::parse(theirs.as_bytes()));
            ours == theirs || matches!(read, (Some(a), Some(b)) if a.same(&b))
        }
        (ours, theirs) => ours == theirs,
    };
    if same_uri && ours == theirs {
        return Ok(true);
    }
    Err(format!("{oracle} reads {name} otherwise (URI the same: {same_uri}):\n{theirs:?}\n{ours:?}"))
}

#[test]
fn torture_messages_parse_alike() {
    let default = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../shared/corpus"));
    let folder = std::env::var_os("STROWGER_CORPUS").map_or(default, PathBuf::from).join("rfc4475");
    let Ok(files) = fs::read_dir(&folder) else {
        eprintln!("SKIPPED: the corpus of RFC 4475 is not there (STROWGER_CORPUS names its folder)");
        return;
    };
    let (mut compared, mut differences) = ([0; 2], Vec::new());
    for path in
        files.map(|file| file.expect("listed").path()).filter(|path| path.extension().is_some_and(|e| e == "dat"))
    {
        let name = path.file_stem().expect("named").to_string_lossy().into_owned();
        let bytes = fs::read(&path).expect("readable");
        for (at, oracle) in ORACLES.into_iter().enumerate() {
            let known = KNOWN.iter().any(|(who, message, _)| *who == oracle.0 && *message == name);
            match agrees(&name, &bytes, oracle) {
                Ok(read) => compared[at] += usize::from(read),
                Err(difference) if !known => differences.push(difference),
                Err(_) => {}
            }
        }
    }
    println!("compared with rsip and rsipstack: {compared:?} of 49");
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(compared.iter().all(|count| *count >= 10), "the oracles read too little to show anything: {compared:?}");
}

/// Generates messages as phones send them, with random names and values.
fn usual() -> impl Strategy<Value = String> {
    let words = ("[a-z]{1,8}", "[a-z0-9]{1,8}", "[a-z]{2,8}\\.(org|com)", "[a-zA-Z0-9]{1,16}", "[a-zA-Z0-9-]{1,20}");
    let kinds = proptest::sample::select(vec![
        "INVITE",
        "ACK",
        "BYE",
        "CANCEL",
        "OPTIONS",
        "REGISTER",
        "SUBSCRIBE",
        "180 Ringing",
        "486 Busy Here",
    ]);
    let rest = (kinds, any::<u16>(), 1u16.., proptest::option::of("[a-z0-9]{1,10}"), any::<bool>(), any::<[u8; 4]>());
    (words, rest).prop_map(|((user, peer, domain, branch, call_id), (kind, cseq, port, to_tag, quoted, ip))| {
        let (start, method) = match kind.split_once(' ') {
            Some(_) => (format!("SIP/2.0 {kind}"), "INVITE"),
            None => (format!("{kind} sip:{peer}@{domain}:{port};transport=udp SIP/2.0"), kind),
        };
        let display = if quoted { "\"A. Caller\" " } else { "" };
        let to_tag = to_tag.map(|tag| format!(";tag={tag}")).unwrap_or_default();
        let ip = std::net::Ipv4Addr::from(ip);
        format!(
            "{start}\r\nVia: SIP/2.0/UDP {ip}:{port};rport;branch=z9hG4bK{branch}\r\nMax-Forwards: 70\r\n\
             From: {display}<sip:{user}@{domain}>;tag={branch}\r\nTo: <sip:{peer}@{domain}>{to_tag}\r\nCall-ID: {call_id}@{ip}\r\n\
             CSeq: {cseq} {method}\r\nContact: <sip:{user}@{ip}:{port}>\r\nContent-Length: 0\r\n\r\n"
        )
    })
}

#[test]
fn usual_messages_parse_alike() {
    let mut runner = TestRunner::deterministic();
    for _ in 0..500 {
        let text = usual().new_tree(&mut runner).expect("generated").current();
        for oracle in ORACLES {
            assert_eq!(agrees("a usual message", text.as_bytes(), oracle), Ok(true), "{}\n{text}", oracle.0);
        }
    }
}
