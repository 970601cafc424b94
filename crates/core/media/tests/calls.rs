//! The state of offers and answers of a call.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::{TagKey, Timestamp};
use strowger_media::{Engine, Exchange, MAX_CALLS, MAX_EXCHANGES, MediaCalls, SdpRole};

fn exchange(transaction: u64, cseq: u32, has_offer: bool) -> Exchange {
    Exchange {
        transaction,
        cseq,
        requester_tag: b"a"[..].into(),
        is_invite: true,
        has_offer,
        branches: 1,
        is_from_browser: false,
        offered_by: None,
        is_offered_by_browser: false,
    }
}

fn calls() -> MediaCalls {
    MediaCalls::new(&TagKey::new([1; 16]), 1)
}

#[test]
fn a_description_in_a_response_answers_an_offer_or_is_one() {
    let mut calls = calls();
    let call = calls.begin(Timestamp::ZERO, 1, b"call", b"a").expect("room");
    call.begin(exchange(1, 1, true));
    call.begin(exchange(2, 2, false));
    assert_eq!(call.exchange(1).map(Exchange::role_of_response), Some(SdpRole::Answer));
    assert_eq!(call.exchange(2).map(Exchange::role_of_response), Some(SdpRole::Offer));
    assert!(call.exchange(3).is_none());
    assert!(call.invite_of_ack(2, b"a").is_some());
    assert!(call.invite_of_ack(2, b"b").is_none());
    // A PRACK has an answer only if the response had the offer.
    assert!(call.invite_of_prack(b"a", b"b").is_none());
    call.record_response_offer(1, b"b", false);
    assert!(call.invite_of_prack(b"a", b"b").is_none(), "the request had the offer");
    call.record_response_offer(2, b"b", false);
    assert!(call.invite_of_prack(b"a", b"b").is_some());
    call.record_prack_answer(2);
    assert!(call.invite_of_prack(b"a", b"b").is_none());
}

#[test]
fn results_are_kept_for_retransmissions_of_the_same_engine() {
    let mut calls = calls();
    let key = calls.result_key(1, SdpRole::Answer, [b"a", b"b"], b"v=0");
    assert_ne!(key, calls.result_key(1, SdpRole::Answer, [b"a", b"b"], b"v=1"));
    let [one, other] = [1, 2].map(|port| Arc::new(Engine::new(([192, 0, 2, 9], port).into())));
    let call = calls.begin(Timestamp::ZERO, 1, b"call", b"a").expect("room");
    call.set_engine(&one);
    call.keep_result(key, b"new");
    call.set_engine(&one);
    assert_eq!(call.result(key), Some(&b"new"[..]));
    call.set_engine(&other);
    assert_eq!(call.result(key), None, "another engine has other ports");
}

#[test]
fn tables_are_bounded_and_calls_do_not_live_for_ever() {
    let mut calls = calls();
    for key in 0..MAX_CALLS as u64 {
        assert!(calls.begin(Timestamp::ZERO, key, b"call", b"a").is_some());
    }
    assert!(calls.begin(Timestamp::ZERO, u64::MAX, b"call", b"a").is_none());
    let call = calls.begin(Timestamp::ZERO, 7, b"call", b"a").expect("known");
    (0..100).for_each(|number| call.begin(exchange(number, 1, true)));
    let kept = (0..100).filter(|number| call.exchange(*number).is_some()).count();
    assert_eq!(kept, MAX_EXCHANGES);
    assert!(calls.find([u64::MAX, 7]).is_some_and(|(key, _)| key == 7));
    assert!(calls.end(7).is_some() && calls.end(7).is_none());
    let late = Timestamp::ZERO + Duration::from_secs(13 * 3600);
    let mut expired = 0;
    while calls.poll_timeout().is_some_and(|at| at <= late) {
        expired += usize::from(calls.poll_expired(late).is_some());
    }
    assert_eq!(expired, MAX_CALLS - 1);
    assert!(calls.is_empty() && calls.poll_timeout().is_none());
}
