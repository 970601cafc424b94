//! Answers to challenges, checked by a server's authenticator.

use std::sync::Arc;

use strowger_auth::{Algorithm, Authenticator, Challenge, Ha1, NonceWindows, Policy, Qop, Verdict};
use strowger_foundation::{KeyRing, TagKey, Timestamp};
use strowger_message::{HeaderName, Message, ResponseBuilder, Status};
use strowger_trunk::{ChallengedRequest, Credentials, MAX_ANSWERS, Secret, Trunk, answer_challenge};

const NOW: Timestamp = Timestamp::from_millis(5_000_000);
const REQUEST: &str = "INVITE sip:+4930123@carrier.example SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bK1\r\n\
    From: <sip:a@b>;tag=1\r\nTo: <sip:c@d>\r\nCall-ID: x\r\nCSeq: 1 INVITE\r\nContent-Length: 4\r\n\r\nbody";

fn trunk(password: &str) -> Trunk {
    let password = Secret::new(password.as_bytes());
    let credentials = Some(Credentials { username: (*b"acct").into(), password, realm: None });
    Trunk { name: "carrier".into(), credentials, sources: Vec::new(), domains: Vec::new(), account: None }
}

fn challenged(answered: u8) -> ChallengedRequest<'static> {
    ChallengedRequest {
        method: b"INVITE",
        uri: b"sip:+4930123@carrier.example",
        body: b"body",
        cnonce: 77,
        attempts: answered,
    }
}

fn authenticator() -> Authenticator {
    let ring = KeyRing::new(TagKey::new([7; 16]));
    Authenticator::new(&ring, Arc::new(NonceWindows::new(1, 9)))
}

fn response(headers: &str) -> String {
    let head = REQUEST.split_once("Via").expect("a request").1.split("Content-Length").next().expect("a head");
    format!("SIP/2.0 401 Unauthorized\r\nVia{head}{headers}Content-Length: 0\r\n\r\n")
}

fn answer(trunk: &Trunk, headers: &str, answered: u8) -> Option<String> {
    let response = response(headers);
    let response = Message::parse(response.as_bytes()).expect("a response");
    let mut out = b"kept ".to_vec();
    let answered = answer_challenge(trunk, &response, &challenged(answered), &mut out);
    let lines = String::from_utf8(out).expect("ASCII").strip_prefix("kept ").expect("appended to").to_owned();
    assert_eq!(answered, !lines.is_empty());
    answered.then_some(lines)
}

//= rfc7616#3.7:first
//= rfc7616#3.8:answered
//= rfc7616#5.6:strongest
#[test]
fn a_server_accepts_the_answer_to_its_strongest_challenge() {
    let sets = [
        vec![Algorithm::Md5],
        vec![Algorithm::Md5, Algorithm::Sha256],
        vec![Algorithm::Sha512_256, Algorithm::Sha256, Algorithm::Md5],
    ];
    for (header, field) in [
        (HeaderName::WwwAuthenticate, HeaderName::Authorization),
        (HeaderName::ProxyAuthenticate, HeaderName::ProxyAuthorization),
    ] {
        for (algorithms, qop, password) in sets
            .iter()
            .flat_map(|set| [(set, Qop::Auth, "hush"), (set, Qop::AuthOrAuthInt, "hush"), (set, Qop::Auth, "wrong")])
        {
            let policy = Policy { algorithms: algorithms.clone(), qop, ..Policy::default() };
            let authenticator = authenticator();
            let request = Message::parse(REQUEST.as_bytes()).expect("a request");
            let mut text = Vec::new();
            let reply =
                ResponseBuilder::begin(&mut text, request.head(), Status::UNAUTHORIZED, "Unauthorized", b"t", None);
            let source = [192, 0, 2, 7].into();
            let challenge = Challenge { header, realm: b"carrier", stale: false, request: 1, source };
            authenticator.challenge(NOW, &policy, reply, &challenge).finish();
            let response = Message::parse(&text).expect("a response");
            let mut lines = Vec::new();
            assert!(answer_challenge(&trunk(password), &response, &challenged(0), &mut lines));
            let lines = String::from_utf8(lines).expect("ASCII");
            let strongest = algorithms.iter().max().expect("one").as_str();
            assert!(lines.contains(&format!("algorithm={strongest},")) && lines.lines().count() == 1, "{lines}");
            let again = REQUEST.replace("Content-Length", &format!("{lines}Content-Length"));
            let again = Message::parse(again.as_bytes()).expect("a request");
            let hash = |name: &[u8], algorithm| Some(Ha1::compute(algorithm, name, b"carrier", b"hush"));
            let verdict = authenticator.check(NOW, &policy, &again, field, b"carrier", hash);
            let expected = match password {
                "hush" => Verdict::Accepted { username: b"acct"[..].into() },
                _ => Verdict::Challenge { stale: false },
            };
            assert_eq!(verdict, expected, "{lines}");
        }
    }
}

#[test]
fn auth_int_is_used_if_nothing_else_is_offered() {
    let lines = answer(&trunk("hush"), "WWW-Authenticate: Digest realm=\"c\", nonce=\"n\", qop=\"auth-int\"\r\n", 0);
    assert!(lines.expect("an answer").contains("qop=auth-int, nc=00000001"));
    let lines = answer(&trunk("hush"), "WWW-Authenticate: Digest realm=\"c\", nonce=\"n\"\r\n", 0);
    assert!(!lines.expect("an answer, as in RFC 2069").contains("qop"));
}

//= rfc7616#3.3:refused
#[test]
fn rejected_credentials_are_not_sent_again() {
    let challenge = "Proxy-Authenticate: Digest realm=\"c\", nonce=\"n\", qop=\"auth\"\r\n";
    assert!(answer(&trunk("hush"), challenge, 0).is_some());
    assert_eq!(answer(&trunk("hush"), challenge, 1), None);
    let stale = challenge.replace("qop", "stale=true, qop");
    assert!(answer(&trunk("hush"), &stale, 1).is_some());
    assert_eq!(answer(&trunk("hush"), &stale, MAX_ANSWERS), None);
}

//= rfc7616#3.3:unknown-algorithm
#[test]
fn unanswerable_challenges() {
    for headers in [
        "",
        "WWW-Authenticate: Basic realm=\"c\"\r\n",
        "WWW-Authenticate: Digest realm=\"c\", nonce=\"n\", algorithm=SHA-1\r\n",
        "WWW-Authenticate: Digest realm=\"c\", nonce=\"n\", qop=\"auth-conf\"\r\n",
        "WWW-Authenticate: Digest realm=\"c\"\r\n",
        "WWW-Authenticate: Digest nonce=\"n\"\r\n",
        "WWW-Authenticate: Digest realm=\"c\r\n",
    ] {
        assert_eq!(answer(&trunk("hush"), headers, 0), None, "{headers}");
    }
    let nobody = Trunk { credentials: None, ..trunk("hush") };
    assert_eq!(answer(&nobody, "WWW-Authenticate: Digest realm=\"c\", nonce=\"n\"\r\n", 0), None);
}

//= rfc7616#3.3:unknown-algorithm
#[test]
fn an_unknown_algorithm_is_skipped() {
    let both = "WWW-Authenticate: Digest realm=\"c\", nonce=\"1\", algorithm=SHA-1\r\n\
        WWW-Authenticate: Digest realm=\"c\", nonce=\"2\", algorithm=MD5\r\n";
    let lines = answer(&trunk("hush"), both, 0).expect("an answer");
    assert!(lines.contains("nonce=\"2\"") && lines.lines().count() == 1, "{lines}");
}

#[test]
fn each_realm_is_answered_or_only_the_matching_one() {
    let both = "WWW-Authenticate: Digest realm=\"a\", nonce=\"1\"\r\nProxy-Authenticate: Digest realm=\"b\", nonce=\"2\"\r\n\
        Proxy-Authenticate: Digest realm=\"b\", nonce=\"3\", algorithm=SHA-256\r\n";
    let lines = answer(&trunk("hush"), both, 0).expect("an answer");
    assert!(lines.starts_with("Authorization: ") && lines.contains("\r\nProxy-Authorization: "), "{lines}");
    assert!(lines.contains("nonce=\"3\"") && !lines.contains("nonce=\"2\""), "{lines}");
    let mut one = trunk("hush");
    one.credentials.as_mut().expect("they are there").realm = Some((*b"a").into());
    let lines = answer(&one, both, 0).expect("an answer");
    assert!(lines.starts_with("Authorization: ") && !lines.contains("Proxy-"), "{lines}");
    one.credentials.as_mut().expect("they are there").realm = Some((*b"z").into());
    assert_eq!(answer(&one, both, 0), None);
}
