//! The client's half against the server's, and both against the test vectors of the RFCs.

mod answers;
mod challenges;
mod credentials;
mod nonces;
mod vectors;

use core::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::{KeyRing, TagKey, Timestamp};
use strowger_message::{AuthParams, Head, HeaderName, Message, ResponseBuilder, Status};

use crate::client::{self, Request, Secret};
use crate::*;

const REALM: &[u8] = b"example.com";
const URI: &str = "sip:bob@example.com";
const T0: Timestamp = Timestamp::from_millis(5_000_000);

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
