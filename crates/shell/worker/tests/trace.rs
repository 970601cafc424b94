//! Traces of real shards over loopback sockets, on any worker.

mod support;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket as Phone};
use std::sync::Arc;
use std::time::Duration;

use strowger_worker::{Direction, Fleet, FleetConfig, TraceFilter, Tracer};
use support::DEADLINE;

fn start(tracer: Arc<Tracer>) -> (Fleet, SocketAddr) {
    let sockets = support::sockets(2, 1);
    let address = sockets[0][0].local_addr();
    let snapshot = Arc::new(support::snapshot(&sockets[0]));
    let fleet = Fleet::start(FleetConfig { tracer, ..support::config(sockets, snapshot) });
    (fleet.expect("threads"), address)
}

fn ask(phone: &Phone, server: SocketAddr, call_id: &str) {
    let local = phone.local_addr().expect("bound");
    let request = format!(
        "OPTIONS sip:{server} SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch=z9hG4bK{call_id}\r\nTo: <sip:{server}>\r\n\
         From: <sip:alice@example.com>;tag=1\r\nCall-ID: {call_id}\r\nCSeq: 1 OPTIONS\r\nMax-Forwards: 70\r\n\
         Content-Length: 0\r\n\r\n"
    );
    phone.send_to(request.as_bytes(), server).expect("sent");
    phone.recv(&mut [0; 4096]).expect("an answer in time");
}

#[test]
fn a_trace_shows_request_and_response_in_order_and_nothing_after_it() {
    let tracer = Arc::new(Tracer::default());
    let (fleet, server) = start(Arc::clone(&tracer));
    let phone = Phone::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
    phone.set_read_timeout(Some(DEADLINE)).expect("a sound socket");
    let filter = TraceFilter::User { user: "alice".to_owned(), domain: None };
    let mut trace = tracer.start(filter).expect("a free place");
    // Enough for both workers' shards to get some.
    for number in 0..20 {
        ask(&phone, server, &format!("call-{number}"));
        let came = trace.poll(DEADLINE).expect("the request");
        let left = trace.poll(DEADLINE).expect("the answer");
        assert_eq!((came.direction, left.direction), (Direction::Received, Direction::Sent));
        assert!(came.bytes.starts_with(b"OPTIONS ") && left.bytes.starts_with(b"SIP/2.0 200 "));
        assert!(came.at <= left.at && came.peer == left.peer);
    }
    assert_eq!(trace.poll(Duration::ZERO), None);
    drop(trace);
    ask(&phone, server, "later");
    assert!(fleet.calls(10).calls.is_empty());
    fleet.stop();
}
