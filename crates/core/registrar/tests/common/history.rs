//! Random histories of REGISTERs.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

use proptest::prelude::*;

#[derive(Clone, Debug)]
pub enum Step {
    Register { user: u8, call_id: u8, cseq: u32, headers: String, port: u16, via_matches: bool, slot: Option<u32> },
    Disconnect { slot: u32 },
    Pass { millis: u64, limit: usize },
}

fn contact() -> impl Strategy<Value = String> {
    let uri = prop::sample::select(vec![
        "sip:a@192.0.2.1",
        "sip:A@192.0.2.1",
        "sip:%61@192.0.2.1",
        "sip:a@192.0.2.1;x=1",
        "sip:a@192.0.2.1;x=2",
        "sip:a@192.0.2.1:5060",
        "sip:b@10.0.0.1;transport=udp",
        "sip:b@10.0.0.1",
        "sips:b@10.0.0.1",
        "sip:c@phone.example.com?Route=%3Csip:x%3E",
        "tel:+1-2",
        "tel:+12",
    ]);
    let params = prop::sample::select(vec![
        "",
        ";expires=0",
        ";expires=60",
        ";expires=61",
        ";expires=500",
        ";expires=9999999",
        ";expires=5",
        ";q=0.5",
        ";q=0.5;expires=90",
        ";q=1",
    ]);
    let device = prop::sample::select(vec![
        "",
        "",
        ";+sip.instance=\"<urn:uuid:a>\"",
        ";+sip.instance=\"<urn:uuid:a>\";reg-id=1",
        ";+sip.instance=\"<urn:uuid:A>\";reg-id=2",
        ";+sip.instance=\"<urn:uuid:b>\";reg-id=1",
    ]);
    (uri, params, device).prop_map(|(uri, params, device)| format!("Contact: <{uri}>{params}{device}"))
}

/// A step of a history.
pub fn step() -> impl Strategy<Value = Step> {
    let headers = prop_oneof![
        1 => Just(String::new()),
        1 => Just("Contact: *|Expires: 0".to_owned()),
        12 => prop::collection::vec(contact(), 1..5).prop_map(|contacts| contacts.join("|")),
    ];
    let path = prop::sample::select(vec!["", "", "", "|Path: <sip:p1;lr;ob>"]);
    let headers = (headers, path).prop_map(|(headers, path)| headers + path);
    let slot = prop::option::of(0u32..3);
    let register = (0u8..4, 0u8..3, 1u32..12, headers, 1u16..3, any::<bool>(), slot).prop_map(
        |(user, call_id, cseq, headers, port, via_matches, slot)| Step::Register {
            user,
            call_id,
            cseq,
            headers,
            port,
            via_matches,
            slot,
        },
    );
    let disconnect = (0u32..3).prop_map(|slot| Step::Disconnect { slot });
    let pass = (0u64..200_000, 0usize..4).prop_map(|(millis, limit)| Step::Pass { millis, limit });
    prop_oneof![8 => register, 2 => pass, 1 => disconnect]
}

/// The address of record of a user.
pub fn aor(user: u8) -> Vec<u8> {
    format!("user{user}@example.com").into_bytes()
}
