//! How a client answers a challenge.

use super::*;
use crate::client::ChallengeError;

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
