//! The state of offers and answers of a call.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::{TagKey, Timestamp};
use strowger_media::{Engine, Engines, Exchange, MAX_CALLS, MAX_EXCHANGES, MediaCalls, SdpRole};

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

fn engines() -> Engines {
    Engines::new(&[([192, 0, 2, 9], 2223).into(), "[2001:db8::9]:2223".parse().expect("an address")], None)
}

#[test]
fn another_process_knows_the_engine_and_the_open_offers_of_a_call() {
    let (mut old, mut new) = (calls(), calls());
    let begun = Timestamp::from_millis(1000);
    for (key, engine) in engines().iter().enumerate() {
        let call = old.begin(begun, key as u64 + 1, b"call", b"a").expect("room");
        call.set_engine(engine);
        call.begin(Exchange { is_from_browser: true, ..exchange(1, 1, false) });
        call.record_response_offer(1, b"b", true);
        call.begin(exchange(2, 2, true));
    }
    old.begin(begun, 3, b"other", b"c").expect("room");
    let mut bytes = Vec::new();
    for key in old.keys() {
        assert!(old.export(key, &mut bytes));
    }
    let now = begun + Duration::from_secs(600);
    assert_eq!(new.import(now, &bytes, &engines()), Some(0));
    assert_eq!((new.keys(), new.poll_timeout()), (vec![1, 2, 3], old.poll_timeout()));
    for (key, engine) in engines().iter().enumerate() {
        let (before, call) = (old.get_mut(key as u64 + 1).expect("known"), new.get_mut(key as u64 + 1).expect("known"));
        assert_eq!(call.engine.as_ref().map(|engine| engine.address()), Some(engine.address()));
        assert_eq!((&call.call_id, &call.tag, call.hash), (&before.call_id, &before.tag, before.hash));
        let invite = call.invite_of_ack(1, b"a").expect("its offer is not answered");
        assert!(invite.offered_by.as_deref() == Some(b"b") && invite.is_offered_by_browser && invite.is_from_browser);
        assert!(call.invite_of_ack(2, b"a").is_some_and(|invite| invite.has_offer));
        assert!(call.exchange(1).is_none(), "our own transactions have these numbers");
    }
    assert!(new.get_mut(3).expect("known").engine.is_none());
    // A call that is known stays as it is.
    new.get_mut(1).expect("known").forget(u64::MAX);
    assert_eq!(new.import(now, &bytes, &Engines::default()), Some(0));
    assert!(new.get_mut(1).expect("known").engine.is_some());
}

#[test]
fn a_call_whose_engine_is_gone_gets_another_one() {
    let (mut old, mut new) = (calls(), calls());
    old.begin(Timestamp::ZERO, 1, b"call", b"a").expect("room").set_engine(engines().iter().next().expect("two"));
    let mut bytes = Vec::new();
    old.export(1, &mut bytes);
    assert_eq!(new.import(Timestamp::ZERO, &bytes, &Engines::default()), Some(0));
    assert!(new.get_mut(1).expect("known").engine.is_none());
    for end in 1..bytes.len() {
        assert_eq!(calls().import(Timestamp::ZERO, &bytes[..end], &engines()), None, "{end}");
    }
}
