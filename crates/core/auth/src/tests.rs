//! The client's half against the server's, and both against the test vectors of the RFCs.

use core::net::{IpAddr, Ipv4Addr};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use strowger_foundation::{KeyRing, TagKey, Timestamp};
use strowger_message::{AuthParams, Head, HeaderName, Message, ResponseBuilder, Status};

use crate::client::{self, ChallengeError, Request, Secret};
use crate::hash::{Hash, hash_joined, response};
use crate::*;

const REALM: &[u8] = b"example.com";
const URI: &str = "sip:bob@example.com";
const T0: Timestamp = Timestamp::from_millis(5_000_000);

fn hex(hash: &Hash) -> String {
    String::from_utf8(hash.to_hex().as_bytes().to_vec()).unwrap()
}

mod vectors {
    use super::*;

    fn rfc7616(algorithm: Algorithm) -> String {
        let ha1 = Ha1::compute(algorithm, b"Mufasa", b"http-auth@example.org", b"Circle of Life");
        let covered = DigestInput {
            method: b"GET",
            uri: b"/dir/index.html",
            nonce: b"7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v",
            protection: Protection::Auth { nc: b"00000001", cnonce: b"f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ" },
        };
        hex(&response(algorithm, &ha1, &covered))
    }

    //= rfc7616#3.4.5:colons
    #[test]
    fn rfc7616_3_9_1() {
        assert_eq!(rfc7616(Algorithm::Md5), "8ca523f5e9506fed4657c9700eebdbec");
        assert_eq!(rfc7616(Algorithm::Sha256), "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1");
    }

    #[test]
    fn rfc2617_3_5() {
        let ha1 = Ha1::compute(Algorithm::Md5, b"Mufasa", b"testrealm@host.com", b"Circle Of Life");
        let covered = DigestInput {
            method: b"GET",
            uri: b"/dir/index.html",
            nonce: b"dcd98b7102dd2f0e8b11d0f600bfb0c093",
            protection: Protection::Auth { nc: b"00000001", cnonce: b"0a4f113b" },
        };
        assert_eq!(hex(&response(Algorithm::Md5, &ha1, &covered)), "6629fae49393a05397450978507c4ef1");
        // The same without qop, as in RFC 2069 (with the erratum to its example).
        let covered = DigestInput { protection: Protection::Legacy, ..covered };
        assert_eq!(hex(&response(Algorithm::Md5, &ha1, &covered)), "670fd8c2df070c60b045671b8b24ff02");
    }

    /// The example in RFC 7616 §3.9.2 was computed with another function (erratum 4897), so the hash is tested
    /// against FIPS 180-4.
    #[test]
    fn sha_512_256_matches_fips_180_4() {
        let abc = hash_joined(Algorithm::Sha512_256, &[b"abc"]);
        assert_eq!(hex(&abc), "53048e2681941ef99b2e29b76b4c7dabe4c2d0c634fc6d46e0e2f13107e7af23");
    }
}

/// Where requests come from.
const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

/// A server with several shards and one user, `alice`, password `secret`.
struct Server {
    shards: Vec<Authenticator>,
    policy: Policy,
    /// Number of requests challenged, each a different one.
    requests: u64,
}

impl Server {
    fn new(policy: Policy) -> Self {
        Self::with(policy, NonceWindows::new(4, 9), &KeyRing::new(TagKey::new([7; 16])))
    }

    fn with(policy: Policy, windows: NonceWindows, ring: &KeyRing) -> Self {
        let windows = Arc::new(windows);
        let shards = (0..2).map(|_| Authenticator::new(ring, Arc::clone(&windows))).collect();
        Self { shards, policy, requests: 0 }
    }

    /// Returns the complete challenge response.
    fn challenge_text(&mut self, now: Timestamp, stale: bool) -> Vec<u8> {
        self.requests += 1;
        self.challenge_of(now, self.requests, stale, usize::MAX)
    }

    /// Returns the challenge for one request in at most `limit` bytes.
    fn challenge_of(&self, now: Timestamp, request: u64, stale: bool, limit: usize) -> Vec<u8> {
        let bytes = request_bytes("INVITE", URI, &[], b"");
        let head = Head::scan(&bytes).unwrap();
        let mut out = Vec::new();
        let reply =
            ResponseBuilder::begin(&mut out, &head, Status::UNAUTHORIZED, "Unauthorized", b"t", None).with_limit(limit);
        let challenge = Challenge { header: HeaderName::WwwAuthenticate, realm: REALM, stale, request, source: SOURCE };
        self.shards[0].challenge(now, &self.policy, reply, &challenge).finish();
        out
    }

    fn challenges(&mut self, now: Timestamp) -> Vec<Vec<u8>> {
        let text = self.challenge_text(now, false);
        Head::scan(&text).unwrap().all(HeaderName::WwwAuthenticate).map(<[u8]>::to_vec).collect()
    }

    fn challenge(&mut self, now: Timestamp) -> Vec<u8> {
        self.challenges(now).swap_remove(0)
    }

    fn check(&self, now: Timestamp, bytes: &[u8]) -> Verdict {
        self.check_at(1, now, bytes)
    }

    fn check_at(&self, shard: usize, now: Timestamp, bytes: &[u8]) -> Verdict {
        let message = Message::parse(bytes).unwrap();
        self.shards[shard].check(now, &self.policy, &message, HeaderName::Authorization, REALM, |name, algorithm| {
            (name == b"alice").then(|| Ha1::compute(algorithm, b"alice", REALM, b"secret"))
        })
    }
}

fn policy(algorithms: &[Algorithm], qop: Qop) -> Policy {
    Policy { algorithms: algorithms.to_vec(), qop, ..Policy::default() }
}

fn request_bytes(method: &str, uri: &str, authorization: &[&[u8]], body: &[u8]) -> Vec<u8> {
    let mut out = format!(
        "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1;branch=z9hG4bK1\r\nMax-Forwards: 70\r\n\
         From: <sip:alice@example.com>;tag=1\r\nTo: <sip:bob@example.com>\r\nCall-ID: c\r\nCSeq: 1 {method}\r\n"
    )
    .into_bytes();
    for value in authorization {
        out.extend_from_slice(b"Authorization: ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
    out.extend_from_slice(body);
    out
}

fn client(nc: u32) -> Request<'static> {
    Request {
        username: b"alice",
        secret: Secret::Password(b"secret"),
        method: b"INVITE",
        uri: URI.as_bytes(),
        body: b"",
        cnonce: b"c0ffee",
        nc,
        cover_body: false,
    }
}

fn answer(challenge: &[u8], request: &Request<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    client::respond(&mut out, &AuthParams::parse(challenge).unwrap(), request).unwrap();
    out
}

fn signed(challenge: &[u8], request: &Request<'_>) -> Vec<u8> {
    request_bytes("INVITE", URI, &[&answer(challenge, request)], request.body)
}

fn accepted() -> Verdict {
    Verdict::Accepted { username: Username::from_slice(b"alice") }
}

const STALE: Verdict = Verdict::Challenge { stale: true };
const REFUSED: Verdict = Verdict::Challenge { stale: false };

/// Returns `text` with `from`, which must occur in it, replaced by `to`.
fn edited(text: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = String::from_utf8(text.to_vec()).unwrap();
    assert!(text.contains(from), "{from} in {text}");
    text.replacen(from, to, 1).into_bytes()
}

//= rfc7616#3.6:compared
#[test]
fn every_algorithm_and_qop_round_trips_on_every_shard() {
    for algorithm in [Algorithm::Md5, Algorithm::Sha256, Algorithm::Sha512_256] {
        for (qop, cover_body) in [(Qop::Auth, true), (Qop::AuthOrAuthInt, false), (Qop::AuthOrAuthInt, true)] {
            let mut server = Server::new(policy(&[algorithm], qop));
            for shard in [0, 1] {
                let challenge = server.challenge(T0);
                let request = Request { body: b"v=0\r\n", cover_body, ..client(1) };
                let bytes = signed(&challenge, &request);
                assert_eq!(server.check_at(shard, T0, &bytes), accepted(), "{algorithm:?} {qop:?}");
                let text = String::from_utf8(bytes).unwrap();
                assert_eq!(text.contains("qop=auth-int"), cover_body && qop == Qop::AuthOrAuthInt, "{text}");
            }
        }
    }
}

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

//= rfc7616#5.5:replay
#[test]
fn a_replay_is_stale() {
    let mut server = Server::new(Policy::default());
    let bytes = signed(&server.challenge(T0), &client(1));
    assert_eq!(server.check_at(0, T0, &bytes), accepted());
    assert_eq!(server.check_at(1, T0, &bytes), STALE);
}

//= rfc7616#3.4:count-rises
#[test]
fn nonce_counts_may_be_reordered_but_each_passes_once() {
    let mut server = Server::new(Policy::default());
    let challenge = server.challenge(T0);
    let check = |nc| server.check(T0, &signed(&challenge, &client(nc)));
    for nc in [3, 1, 2, 70, 7, 8, 69] {
        assert_eq!(check(nc), accepted(), "{nc}");
    }
    // 6 was never seen but is 64 below the highest; the others were seen.
    for nc in [6, 3, 1, 2, 70, 7, 8, 69] {
        assert_eq!(check(nc), STALE, "{nc}");
    }
    assert_eq!(check(u32::MAX), accepted());
    assert_eq!(check(u32::MAX), STALE);
    assert_eq!(check(70), STALE);
}

//= rfc7616#3.3:stale
#[test]
fn an_aged_nonce_is_stale_but_not_for_a_wrong_password() {
    let mut server = Server::new(Policy { nonce_age: Duration::from_secs(60), ..Policy::default() });
    let challenge = server.challenge(T0);
    assert_eq!(server.check(T0 + Duration::from_secs(60), &signed(&challenge, &client(1))), accepted());
    // It counts as issued at the end of its window.
    let late = T0 + Duration::from_millis(60_001) + NONCE_WINDOW;
    assert_eq!(server.check(late, &signed(&challenge, &client(2))), STALE);
    let wrong = Request { secret: Secret::Password(b"guess"), ..client(3) };
    assert_eq!(server.check(late, &signed(&challenge, &wrong)), REFUSED);
    assert_eq!(server.check(T0, &signed(&challenge, &wrong)), REFUSED);
}

//= rfc7616#3.3:stale
//= rfc7616#5.12:random
#[test]
fn a_forged_nonce_is_stale_only_with_the_right_password() {
    let mut server = Server::new(Policy::default());
    let challenge = server.challenge(T0);
    let nonce = AuthParams::parse(&challenge).unwrap().value("nonce").unwrap().to_vec();
    let nonce = std::str::from_utf8(&nonce).unwrap();
    for at in 1..nonce.len() - 1 {
        let mut forged = nonce.to_owned().into_bytes();
        forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
        let forged = edited(&challenge, nonce, std::str::from_utf8(&forged).unwrap());
        assert_eq!(server.check(T0, &signed(&forged, &client(1))), STALE, "character {at}");
    }
    for odd in [
        "\"\"",
        "\"x\"",
        "\"\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\"",
    ] {
        let forged = edited(&challenge, nonce, odd);
        assert_eq!(server.check(T0, &signed(&forged, &client(1))), STALE, "{odd}");
        let wrong = Request { secret: Secret::Password(b"guess"), ..client(1) };
        assert_eq!(server.check(T0, &signed(&forged, &wrong)), REFUSED, "{odd}");
    }
}

#[test]
fn nonces_survive_one_rotation_and_not_a_restart() {
    let ring = KeyRing::new(TagKey::new([1; 16]));
    let mut server = Server::with(Policy::default(), NonceWindows::new(1, 5), &ring);
    let bytes = signed(&server.challenge(T0), &client(1));
    let once = ring.rotated(TagKey::new([2; 16]));
    for shard in &mut server.shards {
        shard.handle_keys(&once.rotated(TagKey::new([3; 16])));
    }
    assert_eq!(server.check(T0, &bytes), STALE, "two rotations");
    for shard in &mut server.shards {
        shard.handle_keys(&once);
    }
    assert_eq!(server.check(T0, &bytes), accepted(), "one rotation");
    let restarted = Server::with(Policy::default(), NonceWindows::new(1, 6), &ring);
    assert_eq!(restarted.check(T0, &bytes), STALE, "another process has forgotten the uses");
}

#[test]
fn nonce_windows_are_bounded_and_evicted_nonces_never_pass() {
    let ring = KeyRing::new(TagKey::new([1; 16]));
    let windows = NonceWindows::with_limit(1, 5, 4);
    let mut server = Server::with(Policy::default(), windows, &ring);
    let at = |n: u64| T0 + NONCE_WINDOW * u32::try_from(n).unwrap();
    let signed: Vec<_> = (0..10).map(|n| signed(&server.challenge(at(n)), &client(1))).collect();
    for bytes in &signed[1..] {
        assert_eq!(server.check(at(20), bytes), accepted());
    }
    let Server { shards, .. } = &server;
    let stats = shards[0].window_stats();
    assert_eq!(stats, WindowStats { nonces: 4, evicted: 5 });
    for (n, bytes) in signed.iter().enumerate() {
        assert_eq!(server.check(at(20), bytes), STALE, "{n}: used, or older than one that was evicted");
    }
}

#[test]
fn windows_shrink_when_nonces_age() {
    let mut server = Server::with(Policy::default(), NonceWindows::new(1, 5), &KeyRing::new(TagKey::new([1; 16])));
    for _ in 0..40 {
        let bytes = signed(&server.challenge(T0), &client(1));
        assert_eq!(server.check(T0, &bytes), accepted());
    }
    let later = T0 + Duration::from_secs(301) + NONCE_WINDOW;
    for _ in 0..10 {
        let bytes = signed(&server.challenge(later), &client(1));
        assert_eq!(server.check(later, &bytes), accepted());
    }
    assert_eq!(server.shards[0].window_stats(), WindowStats { nonces: 10, evicted: 0 });
}

#[test]
fn a_wrong_password_uses_no_memory() {
    let mut server = Server::new(Policy::default());
    let wrong = Request { secret: Secret::Password(b"guess"), ..client(1) };
    for _ in 0..50 {
        let bytes = signed(&server.challenge(T0), &wrong);
        assert_eq!(server.check(T0, &bytes), REFUSED);
    }
    assert_eq!(server.shards[0].window_stats().nonces, 0);
}

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

//= rfc7616#3.4:qop-offered
#[test]
fn a_client_says_why_it_cannot_answer() {
    let respond = |challenge: &[u8], request: &Request<'_>| {
        let mut out = Vec::new();
        client::respond(&mut out, &AuthParams::parse(challenge).unwrap(), request).map(|()| out)
    };
    let ha1 = Ha1::from([1; 32]);
    let hashed = Request { secret: Secret::Ha1(&ha1), ..client(1) };
    assert_eq!(respond(b"Basic realm=\"x\"", &client(1)), Err(ChallengeError::Scheme));
    assert_eq!(respond(b"Digest realm=\"x\", nonce=\"n\", algorithm=X", &client(1)), Err(ChallengeError::Algorithm));
    assert_eq!(respond(b"Digest realm=\"x\", nonce=\"n\", qop=\"x\"", &client(1)), Err(ChallengeError::Qop));
    assert_eq!(respond(b"Digest realm=\"x\"", &client(1)), Err(ChallengeError::Incomplete));
    assert_eq!(respond(b"Digest realm=\"x\", nonce=\"n\"", &hashed), Err(ChallengeError::Ha1));
}

//= rfc7616#3.3:unknown-qop
#[test]
fn a_client_skips_an_unknown_qop() {
    let text = answer(b"Digest realm=\"x\", nonce=\"n\", qop=\"auth-conf, auth ,x\"", &client(1));
    assert!(String::from_utf8(text).unwrap().contains(", qop=auth, nc=00000001"));
}

//= rfc7616#3.4:same-challenge
//= rfc7616#3.4:cnonce
//= rfc7616#3.4:nc
//= rfc7616#3.4:quoted
//= rfc7616#3.4:not-quoted
//= rfc7616#3.4.6:uri
#[test]
fn a_client_quotes_only_the_quoted_parameters() {
    let challenge =
        b"Digest realm=\"example.com\", nonce=\"n\", algorithm=\"MD5\", qop=\"auth,auth-int\", opaque=\"o\"";
    let text = String::from_utf8(answer(challenge, &client(0x1a))).unwrap();
    let (before, behind) = text.split_once("response=\"").unwrap();
    let (response, behind) = behind.split_once('"').unwrap();
    assert_eq!(before, r#"Digest username="alice", realm="example.com", nonce="n", uri="sip:bob@example.com", "#);
    assert!(response.len() == 32 && response.bytes().all(|byte| byte.is_ascii_hexdigit()), "{response}");
    assert_eq!(behind, r#", algorithm=MD5, qop=auth, nc=0000001a, cnonce="c0ffee", opaque="o""#);
}

//= rfc7616#3.3:opaque-returned
#[test]
fn an_ha1_gives_the_same_response_as_the_password_and_returns_opaque() {
    let challenge = b"Digest realm=\"example.com\", nonce=\"n\", algorithm=SHA-256, qop=\"auth\", opaque=\"o\\\"p\"";
    let ha1 = Ha1::compute(Algorithm::Sha256, b"alice", REALM, b"secret");
    let with_ha1 = answer(challenge, &Request { secret: Secret::Ha1(&ha1), ..client(1) });
    assert_eq!(with_ha1, answer(challenge, &client(1)));
    assert!(String::from_utf8(with_ha1).unwrap().ends_with(r#", opaque="o\"p""#));
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
