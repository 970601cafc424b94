//! Connections that close, cannot be opened, or are not worth waiting for.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail loudly")]

use core::net::SocketAddr;
use core::time::Duration;

use strowger_foundation::{Buf, ConnId, Flow, HostId, ListenerId, Timestamp, Transport};
use strowger_message::Message;
use strowger_transaction::{ClientId, Event, Kind, Timing, Transactions};

const START: Timestamp = Timestamp::from_millis(1000);

fn peer(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

fn connection(slot: u32) -> ConnId {
    ConnId::new(0, slot, 1)
}

fn start(layer: &mut Transactions, kind: Kind, flow: Flow) -> ClientId {
    let method = if kind == Kind::Invite { "INVITE" } else { "MESSAGE" };
    let id = layer.reserve_client().unwrap();
    let request = format!(
        "{method} sip:bob@192.0.2.1 SIP/2.0\r\nVia: SIP/2.0/TCP 192.0.2.9;branch=z9hG4bK1\r\nMax-Forwards: 69\r\n\
         From: <sip:a@a>;tag=1\r\nTo: <sip:b@b>\r\nCall-ID: c\r\nCSeq: 7 {method}\r\nContent-Length: 0\r\n\r\n"
    );
    layer.start_client(START, id, kind, flow, request.into_bytes(), 5);
    id
}

fn events(layer: &mut Transactions) -> Vec<Event> {
    layer.check_invariants();
    std::iter::from_fn(|| layer.poll_event()).collect()
}

fn failed(ids: &[ClientId]) -> Vec<Event> {
    ids.iter().map(|id| Event::ClientFailed { user: 5, id: *id }).collect()
}

//= rfc3261#17.1.4:ends
#[test]
fn a_closed_connection_fails_only_its_transactions() {
    let mut layer = Transactions::new(Timing::default(), 1);
    let (listener, tcp) = (ListenerId(0), Transport::Tcp);
    let on = |slot, port| Flow::on_connection(listener, tcp, peer(port), connection(slot));
    let bound = start(&mut layer, Kind::Invite, on(1, 40_000));
    let any = start(&mut layer, Kind::NonInvite, Flow::new(listener, tcp, peer(40_000)));
    let other = start(&mut layer, Kind::Invite, on(2, 40_000));
    let datagram = start(&mut layer, Kind::Invite, Flow::new(listener, Transport::Udp, peer(40_000)));
    layer.handle_closed(START, connection(1), peer(40_000));
    let mut lost = events(&mut layer);
    lost.sort_by_key(|event| match event {
        Event::ClientFailed { id, .. } => id.index(),
        other => panic!("{other:?}"),
    });
    assert_eq!(lost, failed(&[bound, any]));
    layer.handle_closed(START, connection(1), peer(40_000));
    assert!(events(&mut layer).is_empty(), "once");
    layer.handle_closed(START, connection(2), peer(9));
    assert_eq!(events(&mut layer), failed(&[other]));
    layer.handle_unreachable(START, peer(40_000));
    assert_eq!(events(&mut layer), failed(&[datagram]));
    assert_eq!(layer.clients(), 0);
}

#[test]
fn over_tls_the_end_of_one_names_connection_is_not_that_of_another() {
    let mut layer = Transactions::new(Timing::default(), 1);
    let to = |host| Flow { host: HostId(host), ..Flow::new(ListenerId(0), Transport::Tls, peer(5061)) };
    let [one, two] = [1, 2].map(|host| start(&mut layer, Kind::Invite, to(host)));
    layer.handle_unconnected(START, &to(1));
    layer.handle_closed(START, connection(1), peer(5061));
    assert_eq!(events(&mut layer), failed(&[one]));
    layer.handle_unconnected(START, &to(2));
    assert_eq!(events(&mut layer), failed(&[two]));
}

#[test]
fn a_request_is_resent_once_if_another_connection_may_be_used() {
    for kind in [Kind::Invite, Kind::NonInvite] {
        let mut layer = Transactions::new(Timing::default(), 1);
        // The peer's port is not the source port of its connection, or it is the same.
        for (index, port) in [(1, 40_000), (2, 5060)] {
            let bound = Flow::on_connection(ListenerId(0), Transport::Tcp, peer(5060), connection(index));
            let id = start(&mut layer, kind, Flow { reopen: true, ..bound });
            let (mut first, mut second) = (Buf::new(), Buf::new());
            assert!(layer.poll_transmit(&mut first).is_some());
            layer.handle_closed(START, connection(index), peer(port));
            assert!(events(&mut layer).is_empty(), "it is under way again");
            let any = Flow::new(ListenerId(0), Transport::Tcp, peer(5060));
            assert_eq!(layer.poll_transmit(&mut second), Some(any));
            assert_eq!(first, second);
            layer.handle_closed(START, connection(index), peer(port + 1));
            assert!(events(&mut layer).is_empty(), "the old connection is done with");
            layer.handle_closed(START, connection(9), peer(5060));
            assert_eq!(events(&mut layer), failed(&[id]));
            assert_eq!(layer.poll_transmit(&mut second), None);
        }
        assert_eq!(layer.clients(), 0);
    }
}

//= rfc3261#17.1.4:told
#[test]
fn a_failed_connect_fails_the_waiting_requests() {
    let mut layer = Transactions::new(Timing::default(), 1);
    let flow = Flow::new(ListenerId(0), Transport::Tcp, peer(5060));
    let waiting = start(&mut layer, Kind::Invite, flow);
    let bound = Flow { reopen: true, connection: Some(connection(3)), ..flow };
    let reopening = start(&mut layer, Kind::Invite, bound);
    layer.handle_unconnected(START, &Flow { listener: ListenerId(1), ..flow });
    assert!(events(&mut layer).is_empty());
    layer.handle_unconnected(START, &flow);
    assert_eq!(events(&mut layer), failed(&[waiting]));
    layer.handle_unconnected(START, &bound);
    assert_eq!(events(&mut layer), failed(&[reopening]));
}

//= rfc3261#17.1.1.2:ack-same-way
#[test]
fn the_ack_to_a_failure_uses_the_invites_flow() {
    let datagram = Flow::new(ListenerId(3), Transport::Udp, peer(5062));
    for flow in [datagram, Flow::on_connection(ListenerId(1), Transport::Tcp, peer(40_000), connection(7))] {
        let mut layer = Transactions::new(Timing::default(), 1);
        let id = start(&mut layer, Kind::Invite, flow);
        let mut out = Buf::new();
        assert_eq!(layer.poll_transmit(&mut out), Some(flow));
        let busy = b"SIP/2.0 486 Busy Here\r\nVia: SIP/2.0/TCP 192.0.2.9;branch=z9hG4bK1\r\nFrom: <sip:a@a>;tag=1\r\n\
            To: <sip:b@b>;tag=2\r\nCall-ID: c\r\nCSeq: 7 INVITE\r\nContent-Length: 0\r\n\r\n";
        layer.handle_response(START, id, &Message::parse(busy).unwrap());
        assert_eq!(layer.poll_transmit(&mut out), Some(flow));
        assert!(out.starts_with(b"ACK sip:bob@192.0.2.1 "));
    }
}

#[test]
fn a_request_tried_elsewhere_is_not_resent_but_still_ends() {
    for kind in [Kind::Invite, Kind::NonInvite] {
        let mut layer = Transactions::new(Timing::default(), 1);
        let id = start(&mut layer, kind, Flow::new(ListenerId(0), Transport::Udp, peer(5060)));
        let mut out = Buf::new();
        while layer.poll_transmit(&mut out).is_some() {}
        layer.stop_retransmitting(id);
        assert!(events(&mut layer).is_empty());
        let end = START + Duration::from_secs(32);
        while let Some(wakeup) = layer.poll_timeout() {
            layer.handle_timeout(wakeup.at);
            assert!(layer.poll_transmit(&mut out).is_none(), "nothing more is sent");
            assert!(wakeup.at <= end);
        }
        assert_eq!(events(&mut layer), [Event::ClientTimeout { user: 5, id }]);
    }
}
