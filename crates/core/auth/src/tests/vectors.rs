//! The test vectors of the RFCs.

use super::*;
use crate::hash::{Hash, hash_joined, response};

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

fn hex(hash: &Hash) -> String {
    String::from_utf8(hash.to_hex().as_bytes().to_vec()).unwrap()
}
