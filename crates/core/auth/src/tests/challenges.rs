//! What a challenge contains, and who can answer it.

use super::*;

//= rfc7616#3.3:qop
//= rfc7616#3.3:quoted
//= rfc7616#3.3:not-quoted
//= rfc7616#3.7:order
#[test]
fn challenges_follow_policy_order_and_set_stale_only_when_stale() {
    let mut server = Server::new(policy(&[Algorithm::Sha512_256, Algorithm::Md5], Qop::AuthOrAuthInt));
    let text = String::from_utf8(server.challenge_text(T0, true)).unwrap();
    let challenges: Vec<_> = text.lines().filter(|line| line.starts_with("WWW-Authenticate: Digest ")).collect();
    assert!(challenges[0].contains(r#"realm="example.com""#), "{text}");
    assert!(challenges[0].contains(r#"algorithm=SHA-512-256, qop="auth,auth-int", stale=true"#), "{text}");
    assert!(challenges[1].contains("algorithm=MD5"), "{text}");
    assert_eq!(challenges.len(), 2);
    assert!(!String::from_utf8(server.challenge_text(T0, false)).unwrap().contains("stale"));
}

//= rfc7616#3.3:unique-nonce
#[test]
fn no_two_requests_get_the_same_nonce() {
    let mut server = Server::new(Policy::default());
    let nonces: std::collections::BTreeSet<_> = (0..100).map(|_| server.challenge(T0)).collect();
    assert_eq!(nonces.len(), 100);
}

#[test]
fn a_repeated_request_gets_the_same_challenge_within_the_window() {
    let server = Server::new(Policy::default());
    let at = |ms| server.challenge_of(Timestamp::from_millis(ms), 7, false, usize::MAX);
    let (begin, end) = (5_005_312, 5_013_503);
    assert_eq!(at(begin), at(end), "within the window");
    assert_ne!(at(begin), at(end + 1));
}

#[test]
fn a_challenge_omits_algorithms_that_do_not_fit() {
    let algorithms = vec![Algorithm::Sha512_256, Algorithm::Sha256, Algorithm::Md5];
    let server = Server::new(Policy { algorithms, ..Policy::default() });
    let offered = |limit| {
        let text = server.challenge_of(T0, 1, false, limit);
        let head = Head::scan(&text).unwrap();
        let all = head.all(HeaderName::WwwAuthenticate);
        let named = all.filter_map(|value| client::algorithm(&AuthParams::parse(value).unwrap())).collect::<Vec<_>>();
        (named, text.len())
    };
    let (all, length) = offered(usize::MAX);
    assert_eq!(all, [Algorithm::Sha512_256, Algorithm::Sha256, Algorithm::Md5]);
    assert_eq!(offered(length).0, all);
    let (two, length) = offered(length - 1);
    assert_eq!(two, [Algorithm::Sha512_256, Algorithm::Md5], "the best, and what all know");
    assert_eq!(offered(length).0, two);
    let (one, length) = offered(length - 1);
    assert_eq!(one, [Algorithm::Sha512_256]);
    assert_eq!(offered(0), (one, length), "it would be none without");
}

#[test]
fn a_realm_with_quotes_is_escaped_and_cannot_end_the_header() {
    let server = Server::new(Policy::default());
    let realm = b"a \"b\" \\ c\r\nX: y";
    let said = b"a \"b\" \\ cX: y";
    let request = request_bytes("INVITE", URI, &[], b"");
    let mut out = Vec::new();
    let reply = ResponseBuilder::begin(&mut out, &Head::scan(&request).unwrap(), Status::UNAUTHORIZED, "U", b"t", None);
    let policy = Policy::default();
    let challenge = Challenge { header: HeaderName::WwwAuthenticate, realm, stale: false, request: 1, source: SOURCE };
    server.shards[0].challenge(T0, &policy, reply, &challenge).finish();
    let head = Head::scan(&out).unwrap();
    let challenge = head.first(HeaderName::WwwAuthenticate).unwrap();
    let bytes = signed(challenge, &client(1));
    let message = Message::parse(&bytes).unwrap();
    let verdict = server.shards[0].check(T0, &policy, &message, HeaderName::Authorization, said, |_, algorithm| {
        Some(Ha1::compute(algorithm, b"alice", said, b"secret"))
    });
    assert_eq!(verdict, accepted());
}

#[test]
fn only_whoever_received_a_challenge_can_answer_it_from_there() {
    let ring = KeyRing::new(TagKey::new([7; 16]));
    let mut server = Server::new(Policy::default());
    let bytes = signed(&server.challenge(T0), &client(1));
    let is_from = |server: &Server, bytes: &[u8], source: &str| {
        let (message, source) = (Message::parse(bytes).unwrap(), source.parse().unwrap());
        server.shards[1].is_from(&server.policy, &message, HeaderName::Authorization, REALM, source)
    };
    assert!(is_from(&server, &bytes, &SOURCE.to_string()));
    assert!(!is_from(&server, &bytes, "192.0.2.8"), "a forged address");
    // A wrong password does not matter, nor do a restart and another server with the same key; another key does.
    let wrong = String::from_utf8_lossy(&bytes).replace("response=\"", "response=\"0").into_bytes();
    assert!(is_from(&server, &wrong, &SOURCE.to_string()));
    let restarted = Server::with(Policy::default(), NonceWindows::new(4, 10), &ring);
    assert!(is_from(&restarted, &bytes, &SOURCE.to_string()));
    let other = Server::with(Policy::default(), NonceWindows::new(4, 9), &KeyRing::new(TagKey::new([8; 16])));
    assert!(!is_from(&other, &bytes, &SOURCE.to_string()));
    let next = TagKey::new([8; 16]);
    let rotated = Server::with(Policy::default(), NonceWindows::new(4, 9), &ring.rotated(next));
    assert!(is_from(&rotated, &bytes, &SOURCE.to_string()), "challenged before the rotation");
    let none = request_bytes("INVITE", URI, &[], b"");
    assert!(!is_from(&server, &none, &SOURCE.to_string()));
}
