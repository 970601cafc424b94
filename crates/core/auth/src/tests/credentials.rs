//! Which credentials are accepted.

use std::cell::Cell;

use proptest::prelude::*;

use super::*;

//= rfc7616#3.4.6:bound
#[test]
fn the_uri_must_match_the_request() {
    let mut server = Server::new(Policy::default());
    for (uri, request_uri, same) in [
        ("sip:bob@example.com", "sip:bob@EXAMPLE.com", true),
        ("sip:bob@example.com", "sip:%62ob@example.com", true),
        ("sip:bob@example.com;transport=tcp", "sip:bob@example.com", true),
        ("sip:bob@example.com", "sip:bob@example.com;x=1", true),
        ("sip:bob@example.com", "sip:bob@example.com;maddr=127.0.0.1", false),
        ("sip:bob@example.com", "sip:bob@example.com:5060", false),
        ("sip:bob@example.com", "sip:carol@example.com", false),
        ("sip:bob@example.com", "sips:bob@example.com", false),
        ("sip:bob@example.com", "sip:bob@example.org", false),
        ("tel:+1-201", "tel:+1201", true),
        ("tel:+1-201", "tel:+1202", false),
        ("", "sip:bob@example.com", false),
        ("*", "sip:bob@example.com", false),
    ] {
        let credentials = answer(&server.challenge(T0), &Request { uri: uri.as_bytes(), ..client(1) });
        let bytes = request_bytes("INVITE", request_uri, &[&credentials], b"");
        assert_eq!(server.check(T0, &bytes), if same { accepted() } else { Verdict::Malformed }, "{uri} {request_uri}");
    }
}

//= rfc7616#3.6:compared
#[test]
fn method_and_covered_body_cannot_be_changed() {
    let mut server = Server::new(policy(&[Algorithm::Sha256], Qop::AuthOrAuthInt));
    let request = Request { body: b"pay 10", cover_body: true, ..client(1) };
    let credentials = answer(&server.challenge(T0), &request);
    assert_eq!(server.check(T0, &request_bytes("INVITE", URI, &[&credentials], b"pay 99")), REFUSED);
    assert_eq!(server.check(T0, &request_bytes("MESSAGE", URI, &[&credentials], b"pay 10")), REFUSED);
    assert_eq!(server.check(T0, &request_bytes("INVITE", URI, &[&credentials], b"pay 10")), accepted());
}

//= rfc7616#3.4:qop-offered
#[test]
fn after_reload_a_removed_qop_is_stale_and_a_removed_algorithm_ignored() {
    let mut server = Server::new(policy(&[Algorithm::Sha256], Qop::AuthOrAuthInt));
    let bytes = signed(&server.challenge(T0), &Request { cover_body: true, ..client(1) });
    server.policy.qop = Qop::Auth;
    assert_eq!(server.check(T0, &bytes), STALE);
    server.policy.algorithms = vec![Algorithm::Md5];
    assert_eq!(server.check(T0, &bytes), REFUSED);
}

#[test]
fn other_schemes_realms_and_headers_are_ignored() {
    let mut server = Server::new(Policy::default());
    let good = answer(&server.challenge(T0), &client(1));
    assert_eq!(server.check(T0, &request_bytes("INVITE", URI, &[], b"")), REFUSED);
    let other_realm = edited(&good, "\"example.com\"", "\"Example.com\"");
    assert_eq!(server.check(T0, &request_bytes("INVITE", URI, &[&other_realm], b"")), REFUSED);
    let session = edited(&good, "algorithm=MD5", "algorithm=MD5-sess");
    assert_eq!(server.check(T0, &request_bytes("INVITE", URI, &[&session], b"")), REFUSED);
    assert_eq!(server.check(T0, &request_bytes("INVITE", URI, &[b"Basic YWxpY2U6eA=="], b"")), REFUSED);
    let proxy = edited(&request_bytes("INVITE", URI, &[&good], b""), "Authorization:", "Proxy-Authorization:");
    assert_eq!(server.check(T0, &proxy), REFUSED);
    // The one for us is found among all of these.
    let all: &[&[u8]] = &[b"Digest", b"Basic x", &other_realm, &session, &good];
    assert_eq!(server.check(T0, &request_bytes("INVITE", URI, all, b"")), accepted());
}

#[test]
fn the_first_algorithm_of_the_policy_is_checked() {
    let mut server = Server::new(policy(&[Algorithm::Sha256, Algorithm::Md5], Qop::Auth));
    let challenges = server.challenges(T0);
    let good = answer(&challenges[0], &client(1));
    let wrong = Request { secret: Secret::Password(b"guess"), ..client(1) };
    let wrong_md5 = answer(&challenges[1], &wrong);
    assert_eq!(server.check(T0, &request_bytes("INVITE", URI, &[&wrong_md5, &good], b"")), accepted());
    let good_md5 = answer(&challenges[1], &client(2));
    let wrong_sha = answer(&challenges[0], &wrong);
    assert_eq!(server.check(T0, &request_bytes("INVITE", URI, &[&good_md5, &wrong_sha], b"")), REFUSED);
    assert_eq!(server.check(T0, &request_bytes("INVITE", URI, &[&good_md5], b"")), accepted());
}

#[test]
fn an_unknown_user_is_answered_like_a_wrong_password() {
    for algorithm in [Algorithm::Md5, Algorithm::Sha256, Algorithm::Sha512_256] {
        let mut server = Server::new(policy(&[algorithm], Qop::Auth));
        let challenge = server.challenge(T0);
        let wrong = Request { secret: Secret::Password(b"guess"), ..client(1) };
        let unknown = Request { username: b"mallory", ..wrong };
        assert_eq!(server.check(T0, &signed(&challenge, &wrong)), REFUSED);
        assert_eq!(server.check(T0, &signed(&challenge, &unknown)), REFUSED);
        // An expired nonce does not distinguish them either.
        let late = T0 + Duration::from_secs(3_600);
        assert_eq!(server.check(late, &signed(&challenge, &wrong)), REFUSED);
        assert_eq!(server.check(late, &signed(&challenge, &unknown)), REFUSED);
    }
    // The next challenge differs only in its nonce.
    let mut server = Server::new(Policy::default());
    let mut texts = [(); 2].map(|()| String::from_utf8(server.challenge_text(T0, false)).unwrap());
    for text in &mut texts {
        let at = text.find("nonce=\"").unwrap() + 7;
        text.replace_range(at..at + 32, "");
    }
    assert_eq!(texts[0], texts[1]);
}

#[test]
fn an_ha1_of_another_algorithm_is_rejected_and_never_printed() {
    let mut server = Server::new(policy(&[Algorithm::Sha256], Qop::Auth));
    let bytes = signed(&server.challenge(T0), &client(1));
    let message = Message::parse(&bytes).unwrap();
    let asked = Cell::new(0);
    let verdict = server.shards[0].check(T0, &server.policy, &message, HeaderName::Authorization, REALM, |_, _| {
        asked.set(asked.get() + 1);
        Some(Ha1::compute(Algorithm::Md5, b"alice", REALM, b"secret"))
    });
    assert_eq!((verdict, asked.get()), (REFUSED, 1));
    assert_eq!(format!("{:?}", Ha1::from([0xAB; 16])), "Ha1(secret)");
}

#[test]
fn clients_without_qop_need_md5_and_a_fresh_nonce() {
    let mut server = Server::new(policy(&[Algorithm::Sha256, Algorithm::Md5], Qop::Auth));
    let challenges = server.challenges(T0);
    let legacy = edited(&challenges[1], ", qop=\"auth\"", "");
    let bytes = signed(&legacy, &client(1));
    assert!(!String::from_utf8_lossy(&bytes).contains("qop"));
    assert_eq!(server.check(T0, &bytes), accepted());
    assert_eq!(server.check(T0, &bytes), STALE);
    assert_eq!(server.check(T0, &signed(&challenges[1], &client(9))), STALE, "the whole nonce is used");
    let sha = signed(&edited(&challenges[0], ", qop=\"auth\"", ""), &client(1));
    assert_eq!(server.check(T0, &sha), Verdict::Malformed);
}

#[test]
fn algorithm_defaults_to_md5_and_hex_may_be_upper_case() {
    let mut server = Server::new(Policy::default());
    let plain = edited(&server.challenge(T0), ", algorithm=MD5", "");
    assert_eq!(server.check(T0, &signed(&plain, &client(1))), accepted());
    let good = answer(&server.challenge(T0), &client(1));
    let response = AuthParams::parse(&good).unwrap().value("response").unwrap().to_vec();
    let response = String::from_utf8(response).unwrap();
    let upper = edited(&good, &response, &response.to_uppercase());
    assert_eq!(server.check(T0, &request_bytes("INVITE", URI, &[&upper], b"")), accepted());
}

#[test]
fn names_are_unquoted_and_decoded() {
    let mut server = Server::new(Policy::default());
    let good = answer(&server.challenge(T0), &client(1));
    for (written, nc) in [("username*=UTF-8''%61lice", 1), ("username*=utf-8'en'alice", 2), ("username=\"al\\ice\"", 3)]
    {
        let good = answer(&server.challenge(T0), &client(nc));
        let bytes = request_bytes("INVITE", URI, &[&edited(&good, "username=\"alice\"", written)], b"");
        assert_eq!(server.check(T0, &bytes), accepted(), "{written}");
    }
    for bad in ["username*=latin1''alice", "username*=alice", "username*=UTF-8''%6", "username*=UTF-8''%zz"] {
        let bytes = request_bytes("INVITE", URI, &[&edited(&good, "username=\"alice\"", bad)], b"");
        assert_eq!(server.check(T0, &bytes), Verdict::Malformed, "{bad}");
    }
}

//= rfc7616#4:usernames
//= rfc7616#4:passwords
#[test]
fn names_and_passwords_may_be_non_ascii() {
    let (name, password) = ("j\u{fc}rgen".as_bytes(), "\u{43f}\u{430}\u{440}\u{43e}\u{43b}\u{44c}: 1".as_bytes());
    let mut server = Server::new(Policy::default());
    let request = Request { username: name, secret: Secret::Password(password), ..client(1) };
    let bytes = signed(&server.challenge(T0), &request);
    let message = Message::parse(&bytes).unwrap();
    let verdict =
        server.shards[0].check(T0, &server.policy, &message, HeaderName::Authorization, REALM, |said, algorithm| {
            (said == name).then(|| Ha1::compute(algorithm, name, REALM, password))
        });
    assert_eq!(verdict, Verdict::Accepted { username: Username::from_slice(name) });
}

//= rfc7616#3.4:one-username
//= rfc7616#3.4:cnonce
//= rfc7616#3.4:nc
#[test]
fn broken_credentials_are_malformed() {
    let mut server = Server::new(Policy::default());
    let good = answer(&server.challenge(T0), &client(1));
    let response = AuthParams::parse(&good).unwrap().value("response").unwrap().to_vec();
    let response = format!("response={}", String::from_utf8(response).unwrap());
    let nonce = AuthParams::parse(&good).unwrap().value("nonce").unwrap().to_vec();
    let nonce = format!("nonce={}, ", String::from_utf8(nonce).unwrap());
    for (from, to) in [
        ("username=\"alice\", ", ""),
        ("username=\"alice\"", "username=\"alice\", username*=UTF-8''alice"),
        ("username=\"alice\"", "username=\"alice\", username=\"alice\""),
        (&*nonce, ""),
        ("uri=\"sip:bob@example.com\", ", ""),
        (&*response, "x=y"),
        (&*response, "response=\"abcd\""),
        (&*response, "response=\"zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz\""),
        ("nc=00000001", "nc=1"),
        ("nc=00000001", "nc=000000001"),
        ("nc=00000001", "nc=0000000g"),
        ("nc=00000001", "nc=+0000001"),
        ("nc=00000001", "nc=00000000"),
        (", nc=00000001", ""),
        (", cnonce=\"c0ffee\"", ""),
        ("qop=auth", "qop=auth-conf"),
        ("cnonce=\"c0ffee\"", "cnonce=\"c0ffee"),
        ("Digest ", "Digest ,"),
    ] {
        let bytes = request_bytes("INVITE", URI, &[&edited(&good, from, to)], b"");
        assert_eq!(server.check(T0, &bytes), Verdict::Malformed, "{from} -> {to}");
    }
    // None of this used up the nonce.
    assert_eq!(server.check(T0, &request_bytes("INVITE", URI, &[&good], b"")), accepted());
}

#[test]
fn empty_credentials_get_a_challenge() {
    let server = Server::new(Policy::default());
    let ims = br#"Digest username="alice", realm="example.com", nonce="", uri="sip:bob@example.com", response="""#;
    assert_eq!(server.check(T0, &request_bytes("INVITE", URI, &[ims], b"")), REFUSED);
}

proptest! {
    #[test]
    fn garbage_is_rejected(value in proptest::collection::vec(any::<u8>(), 0..200)) {
        let value: Vec<u8> = value.into_iter().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
        check_value(&value);
    }

    #[test]
    fn bad_directives_are_rejected(
        directives in proptest::collection::vec(
            (
                proptest::sample::select(vec![
                    "username", "username*", "realm", "nonce", "uri", "response", "algorithm", "qop", "nc", "cnonce",
                ]),
                prop_oneof![
                    Just("\"example.com\"".to_owned()), Just("\"sip:bob@example.com\"".to_owned()),
                    Just("MD5".to_owned()), Just("auth".to_owned()), Just("00000001".to_owned()),
                    "[!-~]{0,40}", "\"[ -!#-~]{0,40}\"", "[0-9a-fA-F]{32}",
                    "(UTF-8|utf-8)'[a-z]{0,2}'[a-z%0-9]{0,9}",
                ],
            ),
            0..14,
        )
    ) {
        let text: Vec<_> = directives.iter().map(|(name, value)| format!("{name}={value}")).collect();
        check_value(format!("Digest realm=\"example.com\", {}", text.join(", ")).as_bytes());
    }
}

fn check_value(value: &[u8]) {
    let server = Server::new(policy(&[Algorithm::Sha256, Algorithm::Md5], Qop::Auth));
    let bytes = request_bytes("INVITE", URI, &[value], b"");
    if Message::parse(&bytes).is_ok() {
        assert!(matches!(server.check(T0, &bytes), REFUSED | Verdict::Malformed));
    }
    let mut out = Vec::new();
    if let Some(challenge) = AuthParams::parse(value) {
        let _ = client::respond(&mut out, &challenge, &client(1));
    }
}
