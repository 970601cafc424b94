//! Requests and responses byte by byte, with the vectors of RFC 5769.

use super::*;

/// Transaction of the vectors of RFC 5769.
const TRANSACTION: [u8; 12] = [0xB7, 0xE7, 0xA7, 0x01, 0xBC, 0x34, 0xD6, 0x86, 0xFA, 0x87, 0xDF, 0xAE];

/// The request of RFC 5769 §2.1: SOFTWARE, PRIORITY, ICE-CONTROLLED, USERNAME, MESSAGE-INTEGRITY, FINGERPRINT.
const ICE_REQUEST: &[u8] = b"\x00\x01\x00\x58\x21\x12\xa4\x42\xb7\xe7\xa7\x01\xbc\x34\xd6\x86\xfa\x87\xdf\xae\
    \x80\x22\x00\x10STUN test client\x00\x24\x00\x04\x6e\x00\x01\xff\
    \x80\x29\x00\x08\x93\x2f\xf9\xb1\x51\x26\x3b\x36\x00\x06\x00\x09evtj:h6vY\x20\x20\x20\
    \x00\x08\x00\x14\x9a\xea\xa7\x0c\xbf\xd8\xcb\x56\x78\x1e\xf2\xb5\xb2\xd3\xf2\x49\xc1\xb5\x71\xa2\
    \x80\x28\x00\x04\xe5\x7a\x3b\xcf";

fn message(kind: u16, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (kind, value) in attributes {
        body.extend(kind.to_be_bytes());
        body.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
        body.extend_from_slice(value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    let length = u16::try_from(body.len()).unwrap();
    [&kind.to_be_bytes()[..], &length.to_be_bytes(), &MAGIC_COOKIE.to_be_bytes(), &TRANSACTION, &body].concat()
}

fn handle(datagram: &[u8], source: &str) -> (Outcome, Vec<u8>) {
    let mut out = [0xEE; MAX_RESPONSE];
    let outcome = handle_datagram(datagram, source.parse().unwrap(), &mut out);
    let (Outcome::Success(length) | Outcome::UnknownAttributes(length)) = outcome else {
        assert_eq!(out, [0xEE; MAX_RESPONSE], "nothing is written");
        return (outcome, Vec::new());
    };
    assert!(out[length..].iter().all(|byte| *byte == 0xEE));
    (outcome, out[..length].to_vec())
}

/// XOR-MAPPED-ADDRESS of RFC 5769 §2.2.
//= rfc5626#8:xor-mapped
#[test]
fn a_binding_request_is_answered_with_the_address_of_its_sender() {
    let (outcome, response) = handle(&message(BINDING_REQUEST, &[]), "192.0.2.1:32853");
    assert_eq!(outcome, Outcome::Success(32));
    assert_eq!(response, message(BINDING_SUCCESS, &[(0x0020, b"\x00\x01\xa1\x47\xe1\x12\xa6\x43")]));
    let (_, mapped) = handle(&message(BINDING_REQUEST, &[]), "[::ffff:192.0.2.1]:32853");
    assert_eq!(mapped, response, "a socket of both families shows IPv4 in IPv6");
}

/// XOR-MAPPED-ADDRESS of RFC 5769 §2.3.
#[test]
fn an_ipv6_address_is_masked_with_the_transaction_id() {
    let source = "[2001:db8:1234:5678:11:2233:4455:6677]:32853";
    let (outcome, response) = handle(&message(BINDING_REQUEST, &[]), source);
    assert_eq!(outcome, Outcome::Success(44));
    let value = b"\x00\x02\xa1\x47\x01\x13\xa9\xfa\xa5\xd3\xf1\x79\xbc\x25\xf4\xb5\xbe\xd2\xb9\xd9";
    assert_eq!(response, message(BINDING_SUCCESS, &[(0x0020, value)]));
}

/// The request of RFC 5769 §2.1 needs ICE, which its PRIORITY says.
#[test]
fn attributes_that_must_be_understood_are_refused_by_name() {
    let (outcome, response) = handle(ICE_REQUEST, "192.0.2.1:32853");
    assert_eq!(outcome, Outcome::UnknownAttributes(36));
    assert_eq!(response, message(BINDING_ERROR, &[(0x0009, b"\0\0\x04\x14"), (0x000A, b"\x00\x24")]));
    // CHANGE-REQUEST of RFC 3489, and a repeated one.
    let request = message(BINDING_REQUEST, &[(0x0003, &[0; 4]), (0x7FFF, b"abc"), (0x0003, &[0; 4])]);
    let expected = b"\x00\x03\x7F\xFF\x00\x03";
    let (_, response) = handle(&request, "192.0.2.1:5060");
    assert_eq!(response, message(BINDING_ERROR, &[(0x0009, b"\0\0\x04\x14"), (0x000A, expected)]));
}

#[test]
fn other_attributes_are_ignored() {
    for attributes in [
        &[(0x8022u16, &b"phone"[..])][..],
        &[(0x0006, b"alice"), (0x0014, b"realm"), (0x0015, b"nonce"), (0x0008, &[0; 20]), (0x8028, &[0; 4])],
        // After the integrity nothing counts.
        &[(0x0008, &[0; 20]), (0x7FFF, b"")],
        &[(0x001C, &[0; 32]), (0x7FFF, b"")],
    ] {
        let (outcome, _) = handle(&message(BINDING_REQUEST, attributes), "192.0.2.1:5060");
        assert_eq!(outcome, Outcome::Success(32), "{attributes:?}");
    }
}

#[test]
fn sip_and_line_ends_are_not_stun() {
    let request = message(BINDING_REQUEST, &[]);
    let mut wrong_cookie = request.clone();
    wrong_cookie[4] ^= 1;
    let mut wrong_bits = request.clone();
    wrong_bits[0] |= 0x40;
    let longer = [&request[..], b"\0\0\0\0"].concat();
    let odd = [&b"\x00\x01\x00\x02"[..], &request[4..], b"\0\0"].concat();
    let sip = b"OPTIONS sip:a@b SIP/2.0\r\n\r\n";
    for datagram in [&wrong_cookie, &wrong_bits, &longer, &odd, &sip[..], b"\r\n\r\n", b"\0", b"", &request[..19]] {
        assert_eq!(handle(datagram, "192.0.2.1:5060").0, Outcome::NotStun, "{datagram:x?}");
        assert!(!is_stun(datagram));
    }
    assert!(is_stun(&request));
}

/// A response to a response could bounce forever.
#[test]
fn indications_responses_other_methods_and_malformed_requests_get_no_response() {
    for kind in [0x0000, 0x0003, 0x0011, BINDING_SUCCESS, BINDING_ERROR, 0x3FFF] {
        assert_eq!(handle(&message(kind, &[]), "192.0.2.1:5060").0, Outcome::Ignored, "{kind:#x}");
    }
    let mut overlong = message(BINDING_REQUEST, &[(0x8022, b"abcd")]);
    overlong[23] = 5;
    assert_eq!(handle(&overlong, "192.0.2.1:5060").0, Outcome::Ignored);
}

/// With the headers of IP and UDP (28 or 48 bytes); over IPv4 also without.
#[test]
fn no_response_is_more_than_twice_as_long_as_its_request() {
    for count in 0..200 {
        let attributes: Vec<_> = (0..count).map(|kind| (0x4000 + kind, &b""[..])).collect();
        let request = message(BINDING_REQUEST, &attributes);
        let (_, response) = handle(&request, "192.0.2.1:5060");
        assert!(response.len() <= 2 * request.len(), "{count}");
        let (_, response) = handle(&request, "[2001:db8::1]:5060");
        assert!(response.len() + 48 <= 2 * (request.len() + 48), "{count}");
        assert!(count == 0 || response.len() <= 2 * request.len(), "{count}");
    }
}
