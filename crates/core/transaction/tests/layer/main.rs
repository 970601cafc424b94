//! The layer from its user's view, in virtual time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod pair;
mod property;

use pair::{Pair, flow, peer, request, response};
use strowger_foundation::{Timestamp, Transport};
use strowger_message::{Message, Status};
use strowger_transaction::{ClientId, Event, Kind, NO_USER, ResponseVerdict, ServerState, Timing, Transactions};

const INVITE_INSTANTS: [u64; 7] = [0, 500, 1500, 3500, 7500, 15_500, 31_500];
const T2_INSTANTS: [u64; 11] = [0, 500, 1500, 3500, 7500, 11_500, 15_500, 19_500, 23_500, 27_500, 31_500];

//= rfc3261#17.1.1.2:request-sent
//= rfc3261#17.1.1.2:timer-a
//= rfc3261#17.1.1.2:timer-b
//= rfc3261#17.1.1.2:retransmit
//= rfc3261#17.1.1.2:backoff
//= rfc3261#17.1.1.2:t1
//= rfc3261#17.1.1.2:timeout-to-user
#[test]
fn an_unanswered_invite_is_resent_by_timer_a_until_timer_b() {
    let mut pair = Pair::new();
    pair.loses = Box::new(|_, _| true);
    let id = pair.start("INVITE", Transport::Udp);
    pair.run_until(100_000);
    assert_eq!(pair.instants("INVITE"), INVITE_INSTANTS);
    assert_eq!(pair.events, [(32_000, Event::ClientTimeout { user: 5, id })]);
    pair.assert_nothing_left();
}

//= rfc3261#17.1.2.2:timer-f
//= rfc3261#17.1.2.2:request-sent
//= rfc3261#17.1.2.2:timer-e
//= rfc3261#17.1.2.2:timeout-to-user
#[test]
fn an_unanswered_request_is_resent_by_timer_e_until_timer_f() {
    let mut pair = Pair::new();
    pair.loses = Box::new(|_, _| true);
    let id = pair.start("OPTIONS", Transport::Udp);
    pair.run_until(100_000);
    assert_eq!(pair.instants("OPTIONS"), T2_INSTANTS);
    assert_eq!(pair.events, [(32_000, Event::ClientTimeout { user: 5, id })]);
    pair.assert_nothing_left();
}

//= rfc3261#17.1.2.2:provisional-to-user
//= rfc3261#17.1.2.2:retransmit-in-proceeding
//= rfc3261#17.1.2.2:timer-e-in-proceeding
//= rfc3261#17.1.2.2:timeout-in-proceeding
#[test]
fn in_proceeding_timer_e_is_t2() {
    let mut pair = Pair::new();
    let id = pair.start("OPTIONS", Transport::Udp);
    let (_, request) = pair.requests[0].clone();
    let trying = response(&request, Status::TRYING);
    let trying = Message::parse(&trying).unwrap();
    assert_eq!(pair.near.handle_response(pair.now, id, &trying), ResponseVerdict::ToUser { user: 5 });
    pair.loses = Box::new(|_, _| true);
    pair.run_until(12_600);
    assert_eq!(pair.instants("OPTIONS"), [0, 500, 4500, 8500, 12_500]);
    pair.run_until(32_000);
    assert_eq!(pair.events, [(32_000, Event::ClientTimeout { user: 5, id })]);
}

//= rfc3261#17.1.1.2:failure-to-user
//= rfc3261#17.1.1.2:ack
//= rfc3261#17.1.1.2:ack-again
//= rfc3261#17.1.1.2:failure-once
//= rfc3261#17.1.1.2:timer-d-ends
//= rfc3261#17.2.1:failure-sent
//= rfc3261#17.2.1:timer-h
//= rfc3261#17.2.1:timer-h-ends
//= rfc3261#17.2.1:timer-h-told
//= rfc3261#17.2.1:destroyed
#[test]
fn a_failure_is_resent_by_timer_g_until_timer_h() {
    let mut pair = Pair::new();
    let client = pair.start("INVITE", Transport::Udp);
    pair.loses = Box::new(|_, line| line.starts_with("ACK"));
    pair.respond(0, Status::BUSY_HERE);
    pair.run_until(100_000);
    assert_eq!(pair.instants("486"), T2_INSTANTS);
    assert_eq!(pair.instants("ACK"), T2_INSTANTS, "each is acknowledged, by the transaction itself");
    assert_eq!(pair.received, [486], "once");
    let server = pair.requests[0].0;
    let ended = [Event::ClientEnded { user: 5, id: client }, Event::ServerTimeout { user: 9, id: server }];
    assert_eq!(pair.events, ended.map(|event| (32_000, event)));
    pair.assert_nothing_left();
}

//= rfc3261#17.2.1:confirmed
//= rfc3261#17.2.1:timer-i-ends
#[test]
fn an_acknowledged_failure_is_confirmed_and_ends_with_timer_i() {
    let mut pair = Pair::new();
    pair.start("INVITE", Transport::Udp);
    pair.respond(0, Status::BUSY_HERE);
    let server = pair.requests[0].0;
    assert_eq!(pair.far.server_state(server), Some(ServerState::Confirmed));
    assert_eq!(pair.acks_passed_on, 0);
    pair.run_until(60_000);
    assert_eq!(pair.instants("486"), [0]);
    assert_eq!(pair.events[0], (5_000, Event::ServerEnded { user: 9, id: server }));
    pair.assert_nothing_left();
}

//= rfc3261#17.1.1.2:provisional-to-user
//= rfc3261#17.1.1.2:success-to-user
//= rfc3261#17.2.1:success-sent
//= rfc6026#7.1:accepted
//= rfc6026#7.1:success-again
//= rfc6026#7.1:ack-to-user
//= rfc6026#7.1:timer-l-ends
//= rfc6026#7.1:destroyed
//= rfc6026#7.2:accepted
//= rfc6026#7.2:success-to-user
//= rfc6026#7.2:timer-m-ends
//= rfc6026#7.2:destroyed
#[test]
fn after_a_2xx_retransmissions_are_absorbed_and_acks_and_2xx_passed_up() {
    let mut pair = Pair::new();
    let id = pair.start("INVITE", Transport::Udp);
    pair.respond(0, Status::RINGING);
    pair.respond(0, Status::OK);
    pair.respond(0, Status::OK);
    assert_eq!(pair.received, [180, 200, 200]);
    let (server, invite) = pair.requests[0].clone();
    pair.far.handle_retransmission(pair.now, server);
    let ack = String::from_utf8(invite).unwrap().replace("INVITE", "ACK");
    let ack = pair.near.pool().copy_of(ack.as_bytes());
    pair.near.send_once(flow(Transport::Udp), ack);
    pair.settle();
    assert_eq!((pair.acks_passed_on, pair.instants("200").len()), (1, 2));
    pair.respond(0, Status::BUSY_HERE);
    assert_eq!((pair.instants("486").len(), pair.far.counters().responses_refused), (0, 1));
    pair.run_until(60_000);
    let ended = [Event::ClientEnded { user: 5, id }, Event::ServerEnded { user: 9, id: server }];
    assert_eq!(pair.events, ended.map(|event| (32_000, event)), "Timers M and L");
    pair.assert_nothing_left();
}

//= rfc3261#17.2.1:provisional-sent
//= rfc3261#17.2.1:provisional-again
#[test]
fn a_repeated_request_gets_the_last_response() {
    let mut pair = Pair::new();
    pair.start("INVITE", Transport::Udp);
    let server = pair.requests[0].0;
    pair.far.handle_retransmission(pair.now, server);
    pair.settle();
    assert_eq!(pair.sent.len(), 1, "nothing was answered yet");
    pair.respond(0, Status::TRYING);
    pair.respond(0, Status::RINGING);
    pair.far.handle_retransmission(pair.now, server);
    pair.settle();
    let statuses: Vec<_> = pair.sent.iter().map(|(_, what)| what.as_str()).collect();
    assert_eq!(statuses, ["INVITE", "100", "180", "180"]);
}

//= rfc3261#17.1.2.2:final-to-user
//= rfc3261#17.2.2:final-sent
//= rfc3261#17.2.2:timer-j
//= rfc3261#17.2.2:final-again
//= rfc3261#17.2.2:timer-j-ends
//= rfc3261#17.2.2:destroyed
#[test]
fn a_response_is_resent_until_timer_j_even_without_a_user() {
    let mut pair = Pair::new();
    pair.far_user = NO_USER;
    // The response is lost repeatedly, with others before and after it.
    pair.loses = Box::new(|from_near, line| !from_near && line.contains("404"));
    let start = |pair: &mut Pair| {
        pair.start("OPTIONS", Transport::Udp);
        pair.requests.len() - 1
    };
    let before = start(&mut pair);
    pair.respond(before, Status::OK);
    let lost = start(&mut pair);
    pair.run_until(100);
    pair.respond(lost, Status::NOT_FOUND);
    let behind = start(&mut pair);
    pair.respond(behind, Status::OK);
    assert_eq!(pair.far.servers(), 3);
    pair.run_until(31_900);
    assert_eq!((pair.requests.len(), pair.received.as_slice()), (3, &[200, 200][..]), "no request is new");
    assert_eq!(pair.instants("404"), T2_INSTANTS.map(|at| at.max(100)));
    let answers: Vec<_> = pair.texts.iter().filter(|text| text.starts_with("SIP/2.0 404")).collect();
    assert!(answers.windows(2).all(|two| two[0] == two[1]), "byte for byte");
    pair.run_until(32_100);
    assert_eq!(pair.far.servers(), 0);
    pair.run_until(60_000);
    assert!(pair.events.iter().all(|(_, event)| !matches!(event, Event::ServerEnded { .. })));
    pair.assert_nothing_left();
}

#[test]
fn simultaneous_responses_all_leave_in_order() {
    let mut pair = Pair::new();
    pair.start("INVITE", Transport::Udp);
    let (server, request) = pair.requests[0].clone();
    for status in [Status::TRYING, Status::NOT_FOUND] {
        pair.far.respond(pair.now, server, status, response(&request, status));
    }
    pair.settle();
    assert_eq!(pair.received, [100, 404]);
}

//= rfc3261#17.1.1.3:same-request
//= rfc3261#17.1.1.3:to
//= rfc3261#17.1.1.3:via
//= rfc3261#17.1.1.3:cseq
//= rfc3261#17.1.1.3:route
//= rfc3261#17.1.1.3:no-body
//= rfc5393#4.2.1:same-branch
#[test]
fn ack_and_cancel_follow_the_rfc() {
    let mut pair = Pair::new();
    let id = pair.start("INVITE", Transport::Udp);
    assert!(!pair.cancel(id), "not before a provisional response");
    pair.respond(0, Status::RINGING);
    assert!(pair.near.client_has_provisional(id));
    assert!(pair.cancel(id));
    assert!(pair.cancel(id), "it is cancelled, and no second CANCEL is sent");
    pair.respond(1, Status::OK);
    pair.respond(0, Status::REQUEST_TERMINATED);
    assert!(!pair.cancel(id), "not after a final response");
    assert_eq!(pair.received, [180, 487], "the CANCEL's own response is not the user's");
    assert_eq!(pair.instants("CANCEL"), [0]);
    let expected = |method: &str, to: &str| {
        format!(
            "{method} sip:bob@192.0.2.1 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bK{}.{}\r\n\
             Route: <sip:192.0.2.1;lr>\r\nMax-Forwards: 70\r\nFrom: <sip:alice@a>;tag=1\r\nTo: <sip:bob@b>{to}\r\n\
             Call-ID: c1\r\nCSeq: 7 {method}\r\nContent-Length: 0\r\n\r\n",
            id.index(),
            id.generation()
        )
    };
    assert!(pair.texts.contains(&expected("CANCEL", "")));
    assert!(pair.texts.contains(&expected("ACK", ";tag=far")));
    pair.run_until(100_000);
    assert!(pair.events.iter().all(|(_, e)| !matches!(e, Event::ClientTimeout { .. } | Event::ServerTimeout { .. })));
    pair.assert_nothing_left();
}

#[test]
fn an_unanswered_cancelled_invite_times_out() {
    let mut pair = Pair::new();
    let id = pair.start("INVITE", Transport::Udp);
    pair.respond(0, Status::RINGING);
    pair.run_until(50_000);
    assert!(pair.events.is_empty(), "in Proceeding nothing times out but by the user's Timer C");
    assert!(pair.cancel(id));
    pair.loses = Box::new(|_, _| true);
    pair.run_until(82_000);
    assert_eq!(pair.events, [(82_000, Event::ClientTimeout { user: 5, id })]);
    assert_eq!(pair.near.clients(), 0);
}

//= rfc3261#17.1.1.2:timer-d
//= rfc3261#17.1.1.2:destroyed
//= rfc6026#8.4:timer-d
#[test]
fn a_late_response_to_a_cancel_is_absorbed() {
    let mut pair = Pair::new();
    let id = pair.start("INVITE", Transport::Tcp);
    pair.respond(0, Status::RINGING);
    pair.cancel(id);
    pair.respond(0, Status::REQUEST_TERMINATED);
    assert_eq!(pair.near.clients(), 0, "no Timer D on a reliable transport, and the CANCEL goes with its INVITE");
    pair.respond(1, Status::OK);
    assert_eq!((pair.received.as_slice(), pair.near.counters().responses_unknown), ([180, 487].as_slice(), 0));
}

//= rfc3261#17.1.1.2:no-timer-a
//= rfc3261#17.1.1.2:timer-b
//= rfc3261#17.1.2.2:timer-k
//= rfc3261#17.1.2.2:destroyed
#[test]
fn reliable_transports_need_no_retransmission_or_wait() {
    for method in ["INVITE", "OPTIONS"] {
        let mut pair = Pair::new();
        pair.loses = Box::new(|_, _| true);
        let id = pair.start(method, Transport::Tls);
        pair.run_until(40_000);
        assert_eq!(pair.instants(method), [0]);
        assert_eq!(pair.events, [(32_000, Event::ClientTimeout { user: 5, id })]);
        pair.assert_nothing_left();
    }
    let mut pair = Pair::new();
    let id = pair.start("OPTIONS", Transport::Tcp);
    pair.respond(0, Status::OK);
    assert_eq!(pair.events, [(0, Event::ClientEnded { user: 5, id })]);
    assert_eq!(pair.near.clients(), 0);
}

//= rfc3261#17.2.2:provisional-sent
//= rfc4320#4.1:only-100
//= rfc4320#4.1:no-early-100
//= rfc4320#4.2:no-408
#[test]
fn a_non_invite_request_gets_no_provisional_but_a_late_100_and_no_408() {
    let mut pair = Pair::new();
    pair.loses = Box::new(|from_near, _| !from_near);
    pair.start("OPTIONS", Transport::Udp);
    pair.respond(0, Status::RINGING);
    pair.respond(0, Status::TRYING);
    pair.run_until(3_499);
    pair.respond(0, Status::TRYING);
    assert_eq!((pair.sent.iter().filter(|(_, what)| what != "OPTIONS").count(), pair.instants("100")), (0, vec![]));
    pair.run_until(3_500);
    pair.respond(0, Status::TRYING);
    assert_eq!(pair.instants("100"), [3_500]);
    pair.respond(0, Status::REQUEST_TIMEOUT);
    assert_eq!((pair.instants("408").len(), pair.far.counters().responses_refused), (0, 4));
    pair.run_until(35_500);
    pair.assert_nothing_left();
}

//= rfc3261#17.1.4:told
#[test]
fn an_unreachable_peer_fails_unanswered_requests() {
    let mut pair = Pair::new();
    let answered = pair.start("INVITE", Transport::Udp);
    pair.respond(0, Status::RINGING);
    pair.loses = Box::new(|_, _| true);
    let silent = [pair.start("INVITE", Transport::Udp), pair.start("OPTIONS", Transport::Udp)];
    let stream = pair.start("OPTIONS", Transport::Tcp);
    pair.near.handle_unreachable(pair.now, "192.0.2.77:5060".parse().unwrap());
    pair.settle();
    assert!(pair.events.is_empty());
    pair.near.handle_unreachable(pair.now, peer());
    pair.settle();
    let failed: Vec<_> = pair.events.iter().map(|(_, event)| *event).collect();
    assert_eq!(failed, [1, 0].map(|which| Event::ClientFailed { user: 5, id: silent[which] }));
    assert!(pair.near.client_has_provisional(answered));
    assert_eq!(pair.near.clients(), 2);
    pair.run_until(32_000);
    assert_eq!(pair.events.last(), Some(&(32_000, Event::ClientTimeout { user: 5, id: stream })));
}

//= rfc3261#18.1.2:matched
#[test]
fn a_stale_id_matches_nothing() {
    let mut pair = Pair::new();
    let first = pair.near.reserve_client().unwrap();
    pair.near.release_client(first);
    let second = pair.start("INVITE", Transport::Udp);
    assert_eq!(first.index(), second.index());
    pair.near.release_client(first);
    pair.near.release_client(second);
    assert_eq!(pair.near.clients(), 1, "a dead name releases nothing, nor does a started transaction's");
    let ok = response(&request("INVITE", first), Status::OK);
    let ok = Message::parse(&ok).unwrap();
    assert_eq!(pair.near.handle_response(pair.now, first, &ok), ResponseVerdict::Unknown);
    let forged = ClientId::from_parts(u32::MAX, second.generation());
    assert_eq!(pair.near.handle_response(pair.now, forged, &ok), ResponseVerdict::Unknown);
    let wrong_method = response(&request("OPTIONS", second), Status::OK);
    let wrong_method = Message::parse(&wrong_method).unwrap();
    assert_eq!(pair.near.handle_response(pair.now, second, &wrong_method), ResponseVerdict::Unknown);
    let ended = pair.requests[0].0;
    pair.respond(0, Status::OK);
    pair.run_until(32_000);
    assert_eq!(
        (pair.far.server_state(ended), pair.far.server_user(ended), pair.far.server_flow(ended)),
        (None, None, None)
    );
    pair.start("INVITE", Transport::Udp);
    pair.respond(0, Status::OK);
    assert_eq!(pair.received, [200], "the old transaction's response does not leave by the new one");
}

#[test]
fn no_buffer_is_lost() {
    let mut pair = Pair::new();
    let run = |pair: &mut Pair| {
        let base = pair.requests.len();
        for method in ["INVITE", "INVITE", "INVITE", "OPTIONS"] {
            pair.start(method, Transport::Udp);
        }
        pair.respond(base, Status::RINGING);
        pair.respond(base, Status::OK);
        pair.respond(base + 1, Status::RINGING);
        pair.respond(base + 1, Status::BUSY_HERE);
        pair.respond(base + 3, Status::OK);
        let end = pair.now.as_millis() + 100_000;
        pair.run_until(end);
        // The user abandons the third in Proceeding; respond so that it ends.
        pair.respond(base + 2, Status::OK);
        pair.run_until(end + 100_000);
        pair.assert_nothing_left();
        pair.near.pool().idle() + pair.far.pool().idle()
    };
    // A pool that is never exhausted: a buffer that is not returned is missing at the end. Buffers move between the
    // layers through the one that is polled into.
    for layer in [&mut pair.near, &mut pair.far] {
        for _ in 0..100 {
            layer.pool().recycle(Vec::with_capacity(320));
        }
    }
    let before = run(&mut pair);
    assert_eq!(run(&mut pair), before);
    assert!((199..=201).contains(&before), "{before}");
}

//= rfc3261#17.1.1.2:backoff
#[test]
fn new_timing_applies_to_later_timers() {
    let mut layer = Transactions::new(Timing::default(), 3);
    let quick = Timing { t1: core::time::Duration::from_millis(100), ..Timing::default() };
    layer.set_timing(quick);
    let id = layer.reserve_client().unwrap();
    layer.start_client(Timestamp::ZERO, id, Kind::Invite, flow(Transport::Udp), request("INVITE", id), 1);
    let mut instants = Vec::new();
    let mut out = Vec::new();
    while let Some(wakeup) = layer.poll_timeout() {
        layer.handle_timeout(wakeup.at);
        while layer.poll_transmit(&mut out).is_some() {
            instants.push(wakeup.at.as_millis());
        }
    }
    assert_eq!(instants[1..], [100, 300, 700, 1500, 3100, 6300]);
    assert_eq!(layer.poll_event(), Some(Event::ClientTimeout { user: 1, id }));
}

#[test]
fn only_the_removal_of_an_ended_transaction_may_wait() {
    let mut pair = Pair::new();
    pair.start("OPTIONS", Transport::Udp);
    let resend = pair.near.poll_timeout().unwrap();
    assert_eq!(resend.latest, resend.at);
    pair.respond(0, Status::OK);
    pair.run_until(10);
    for layer in [&pair.near, &pair.far] {
        let removal = layer.poll_timeout().unwrap();
        assert_eq!(removal.latest - removal.at, core::time::Duration::from_millis(100));
    }
}

//= rfc3261#17.1.1.2:timer-d
//= rfc6026#8.4:timer-d
#[test]
fn timer_d_is_never_shorter_than_32_seconds() {
    let mut pair = Pair::new();
    pair.near.set_timing(Timing { t1: core::time::Duration::from_millis(100), ..Timing::default() });
    let id = pair.start("INVITE", Transport::Udp);
    pair.loses = Box::new(|_, line| line.starts_with("ACK"));
    pair.respond(0, Status::BUSY_HERE);
    pair.run_until(60_000);
    assert_eq!(pair.instants("ACK"), T2_INSTANTS, "the server sends for as long as its own T1 says");
    assert_eq!(pair.events[0], (32_000, Event::ClientEnded { user: 5, id }));
    pair.assert_nothing_left();
}

#[test]
fn a_later_but_shorter_wait_ends_first() {
    for far_user in [9, NO_USER] {
        let mut pair = Pair::new();
        pair.far_user = far_user;
        pair.start("OPTIONS", Transport::Udp);
        pair.respond(0, Status::OK);
        pair.far.set_timing(Timing { t1: core::time::Duration::from_millis(100), ..Timing::default() });
        pair.run_until(1_000);
        pair.start("OPTIONS", Transport::Udp);
        pair.respond(1, Status::OK);
        pair.run_until(7_399);
        assert_eq!(pair.far.servers(), 2);
        pair.run_until(7_400);
        assert_eq!(pair.far.servers(), 1, "64 times the shorter T1");
        pair.run_until(32_000);
        pair.assert_nothing_left();
    }
}
