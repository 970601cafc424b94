//! Real sockets over loopback.

mod common;

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use common::{DeadPeer, End, bind, loopbacks, spin_until};
use strowger_foundation::Timestamp;
use strowger_net::{BufferSizes, Cause, Clock, Flush, PeerError, RECV_BATCH, RecvBatch, SendStamp, UdpSocket};

fn payload(number: usize) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.resize(8 + number * 37 % 1_400, b'x');
    bytes
}

#[test]
fn batches_of_all_sizes_arrive_whole_and_in_order() {
    for ip in loopbacks() {
        for size in [1, 2, 63, 64, 65, 200] {
            let (mut here, mut there) = (End::bind(ip), End::bind(ip));
            for number in 0..size {
                here.commit(there.addr(), &payload(number));
            }
            assert_eq!(here.send(), Flush::Done);
            there.receive_until(size);
            let expected: Vec<_> = (0..size).map(|number| (here.addr(), payload(number))).collect();
            assert_eq!(there.seen, expected, "{ip}, {size} datagrams");
            assert_eq!(here.socket.counters().sent, size as u64);
            assert_eq!(there.socket.counters().received, size as u64);
        }
    }
}

#[test]
fn one_batch_reaches_many_peers() {
    for ip in loopbacks() {
        let mut here = End::bind(ip);
        let mut peers: Vec<_> = (0..10).map(|_| End::bind(ip)).collect();
        for number in 0..60 {
            here.commit(peers[number % 10].addr(), &payload(number));
        }
        assert_eq!(here.send(), Flush::Done);
        for (first, peer) in peers.iter_mut().enumerate() {
            peer.receive_until(6);
            let expected: Vec<_> = (first..60).step_by(10).map(|number| (here.addr(), payload(number))).collect();
            assert_eq!(peer.seen, expected);
        }
    }
}

#[test]
fn an_empty_socket_gives_an_empty_batch() {
    let mut end = End::bind("127.0.0.1");
    end.socket.recv(&mut end.inbox).expect("nothing is no error");
    assert!(end.inbox.is_empty() && !end.inbox.is_full());
    assert_eq!(end.socket.poll_error(), None);
    assert_eq!(end.send(), Flush::Done);
}

#[test]
fn a_full_batch_is_reported_as_full() {
    let (mut here, mut there) = (End::bind("127.0.0.1"), End::bind("127.0.0.1"));
    for number in 0..RECV_BATCH + 1 {
        here.commit(there.addr(), &payload(number));
    }
    assert_eq!(here.send(), Flush::Done);
    there.wait_until(|end, _| {
        end.socket.recv(&mut end.inbox).expect("a sound socket");
        !end.inbox.is_empty()
    });
    assert_eq!((there.inbox.len(), there.inbox.is_full()), (RECV_BATCH, true));
    there.socket.recv(&mut there.inbox).expect("a sound socket");
    assert_eq!((there.inbox.len(), there.inbox.is_full()), (1, false));
}

//= rfc3261#18.1.1:largest-datagram
#[test]
fn the_largest_datagram_arrives_and_a_larger_one_is_reported() {
    // RFC 768 over RFC 791 and RFC 8200: 65,535 bytes less the headers included in the length.
    for (ip, largest) in [("127.0.0.1", 65_507), ("::1", 65_527)] {
        if !loopbacks().contains(&ip) {
            continue;
        }
        let (mut here, mut there) = (End::bind(ip), End::bind(ip));
        let big: Vec<u8> = (0..=largest).map(|n| (n % 251) as u8).collect();
        here.commit(there.addr(), b"before");
        here.commit(there.addr(), &big);
        here.commit(there.addr(), &big[..largest]);
        here.commit(there.addr(), b"after");
        assert_eq!(here.send(), Flush::Done);
        there.receive_until(3);
        let bodies: Vec<_> = there.seen.iter().map(|(_, bytes)| bytes.as_slice()).collect();
        assert!(bodies == [b"before", &big[..largest], b"after"], "{ip}");
        assert_eq!(here.errors, [PeerError { peer: there.addr(), cause: Cause::TooLong }]);
        assert_eq!((here.socket.counters().sent, here.socket.counters().send_errors), (3, 1));
        assert_eq!(there.socket.counters().truncated, 0);
    }
}

#[test]
fn a_dead_peer_is_named_and_affects_no_others() {
    for ip in loopbacks() {
        let dead = DeadPeer::new(ip);
        let (mut here, mut there) = (End::bind(ip), End::bind(ip));
        for number in 0..32 {
            here.commit(dead.addr, b"is anybody there?");
            here.commit(there.addr(), &payload(number));
        }
        assert_eq!(here.send(), Flush::Done);
        there.receive_until(32);
        assert!(here.errors.is_empty(), "no send was refused for another one's error: {:?}", here.errors);
        assert_eq!(here.socket.counters().sent, 64);

        // The ICMP error is reported as an event with its peer, not as an error of a receive.
        there.commit(here.addr(), b"hello");
        assert_eq!(there.send(), Flush::Done);
        here.receive_until(1);
        let mut told = Vec::new();
        here.wait_until(|end, _| {
            told.extend(std::iter::from_fn(|| end.socket.poll_error()));
            !told.is_empty()
        });
        assert!(told.iter().all(|error| *error == PeerError { peer: dead.addr, cause: Cause::Refused }), "{told:?}");
        assert_eq!(here.socket.counters().icmp_errors, told.len() as u64);
    }
}

#[test]
fn mio_reports_a_refusal_as_an_error() {
    for ip in loopbacks() {
        let dead = DeadPeer::new(ip);
        let mut here = End::bind(ip);
        here.commit(dead.addr, b"is anybody there?");
        assert_eq!(here.send(), Flush::Done);
        here.wait_until(|_, is_error| is_error);
        here.socket.recv(&mut here.inbox).expect("the refusal is no error of a receive");
        assert_eq!(here.socket.poll_error(), Some(PeerError { peer: dead.addr, cause: Cause::Refused }));
        assert_eq!(here.socket.poll_error(), None);
    }
}

#[test]
fn a_peer_of_the_other_family_is_reported_and_skipped() {
    if !loopbacks().contains(&"::1") {
        return;
    }
    let four = DeadPeer::new("127.0.0.1").addr;
    let (mut here, mut there) = (End::bind("::1"), End::bind("::1"));
    here.commit(four, b"to IPv4");
    here.commit(there.addr(), b"to IPv6");
    assert_eq!(here.send(), Flush::Done);
    there.receive_until(1);
    assert_eq!(here.errors.iter().map(|error| error.peer).collect::<Vec<_>>(), [four]);
}

#[test]
fn a_mapped_peer_is_reached_over_ipv4() {
    let (mut here, mut there) = (End::bind("127.0.0.1"), End::bind("127.0.0.1"));
    let mapped = SocketAddr::new(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(), there.addr().port());
    here.commit(mapped, b"hello");
    assert_eq!(here.send(), Flush::Done);
    there.receive_until(1);
    assert_eq!(there.seen, [(here.addr(), b"hello".to_vec())]);
}

#[test]
fn siblings_share_the_peers_of_one_address() {
    for ip in loopbacks() {
        let first = End::bind(ip);
        let second = End::new(first.socket.sibling().expect("the address is ours"));
        let third = End::new(second.socket.sibling().expect("the address is ours"));
        assert_eq!(first.addr(), third.addr());
        let mut callers: Vec<_> = (0..64).map(|_| End::bind(ip)).collect();
        for caller in &mut callers {
            caller.commit(first.addr(), b"once");
            caller.commit(first.addr(), b"twice");
            assert_eq!(caller.send(), Flush::Done);
        }
        let mut ends = [first, second, third];
        spin_until(|| {
            ends.iter_mut().for_each(End::receive);
            ends.iter().map(|end| end.seen.len()).sum::<usize>() == 128
        });
        let homes = ends.each_ref().map(|end| end.seen.iter().map(|(peer, _)| *peer).collect::<HashSet<SocketAddr>>());
        assert!(homes.iter().all(|peers| !peers.is_empty()), "every sibling has its share");
        assert_eq!(homes.iter().map(HashSet::len).sum::<usize>(), 64, "a peer always meets the same sibling");
    }
}

#[test]
fn an_address_in_use_is_refused_even_when_it_is_our_own() {
    let first = bind("127.0.0.1").expect("loopback has a free port");
    let _second = first.sibling().expect("the address is ours");
    let error = UdpSocket::bind(first.local_addr(), BufferSizes::DEFAULT).expect_err("the address is in use");
    let expected = format!(
        "udp:{} is in use by another process; stop it or choose another port in [server] listen",
        first.local_addr()
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn an_unassigned_address_is_refused() {
    // TEST-NET-3 (RFC 5737) is not assigned to any host.
    let address = SocketAddr::from((Ipv4Addr::new(203, 0, 113, 77), 0));
    let error = UdpSocket::bind(address, BufferSizes::DEFAULT).expect_err("not an address of this machine");
    assert!(error.to_string().contains("no interface of this machine has 203.0.113.77"), "{error}");
}

#[test]
fn the_kernel_stamps_each_datagram() {
    let clock = Clock::start();
    for ip in loopbacks() {
        let (mut here, mut there) = (End::bind(ip), End::bind(ip));
        for number in 0..10 {
            here.commit(there.addr(), &payload(number));
        }
        let before = clock.pair();
        assert_eq!(here.send(), Flush::Done);
        there.wait_until(|end, _| {
            end.socket.recv(&mut end.inbox).expect("a sound socket");
            !end.inbox.is_empty()
        });
        let pair = clock.pair();
        let stamps: Vec<_> = there.inbox.iter().map(|datagram| datagram.arrival.expect("a stamp")).collect();
        assert!(stamps.is_sorted());
        assert!(
            stamps.iter().all(|stamp| before.real <= *stamp && *stamp <= pair.real),
            "{before:?} {stamps:?} {pair:?}"
        );
        let arrivals: Vec<Timestamp> = stamps.iter().map(|stamp| pair.arrival(Some(*stamp))).collect();
        assert!(arrivals.is_sorted() && arrivals.iter().all(|arrival| *arrival <= pair.monotonic));
    }
}

/// Enables stamps of sent datagrams; returns whether the kernel has them.
fn enable_send_stamps(end: &mut End) -> bool {
    let enabled = end.socket.enable_send_stamps();
    enabled.as_ref().inspect_err(|error| eprintln!("skipped: {error}")).is_ok()
}

/// Returns the stamps reported within the deadline.
fn stamps(end: &mut End, count: usize) -> Vec<SendStamp> {
    let mut found = Vec::new();
    spin_until(|| {
        while end.socket.poll_error().is_some() {}
        found.extend(std::iter::from_fn(|| end.socket.poll_send_stamp()));
        found.len() >= count
    });
    found
}

#[test]
fn the_time_to_the_device_is_reported_for_single_and_segmented_sends() {
    for (ip, segmented) in loopbacks().into_iter().flat_map(|ip| [(ip, false), (ip, true)]) {
        let (mut here, there) = (End::bind(ip), End::bind(ip));
        if !enable_send_stamps(&mut here) {
            return;
        }
        if segmented && here.socket.enable_segmentation(Arc::new(AtomicBool::new(true))).is_err() {
            continue;
        }
        let clock = Clock::start();
        for (tag, count) in [1, 7, 1, 64].into_iter().enumerate() {
            let began = clock.pair();
            here.socket.stamp_next(began.real, tag as u32);
            for _ in 0..count {
                here.commit(there.addr(), &payload(1));
            }
            assert_eq!(here.send(), Flush::Done);
            let elapsed = clock.now() - began.monotonic;
            let [stamp] = stamps(&mut here, 1)[..] else { panic!("one stamp") };
            assert_eq!(stamp.tag, tag as u32);
            assert!(u128::from(stamp.nanos) <= elapsed.as_nanos(), "{ip} {segmented}: {stamp:?} within {elapsed:?}");
        }
        assert_eq!((here.socket.lost_send_stamps(), here.socket.counters().icmp_errors), (0, 0));
        assert_eq!(here.socket.counters().segmented > 0, segmented);
    }
}

#[test]
fn stamps_and_icmp_errors_are_told_apart() {
    let (mut here, there) = (End::bind("127.0.0.1"), End::bind("127.0.0.1"));
    if !enable_send_stamps(&mut here) {
        return;
    }
    let dead = DeadPeer::new("127.0.0.1");
    for tag in 0..5 {
        here.socket.stamp_next(Clock::start().pair().real, tag);
        here.commit(dead.addr, b"x");
        here.commit(there.addr(), b"x");
        assert_eq!(here.send(), Flush::Done);
    }
    let (mut errors, mut found) = (Vec::new(), Vec::new());
    spin_until(|| {
        errors.extend(std::iter::from_fn(|| here.socket.poll_error()).map(|error| error.peer));
        found.extend(std::iter::from_fn(|| here.socket.poll_send_stamp()).map(|stamp| stamp.tag));
        errors.len() == 5 && found.len() == 5
    });
    assert_eq!((errors, found), (vec![dead.addr; 5], vec![0, 1, 2, 3, 4]));
    assert_eq!(here.socket.counters().icmp_errors, 5);
}

#[test]
fn received_datagrams_keep_their_stamp_beside_send_stamps() {
    let (mut here, mut there) = (End::bind("127.0.0.1"), End::bind("127.0.0.1"));
    if !enable_send_stamps(&mut there) {
        return;
    }
    here.commit(there.addr(), b"x");
    assert_eq!(here.send(), Flush::Done);
    spin_until(|| {
        there.socket.recv(&mut there.inbox).expect("a sound socket");
        !there.inbox.is_empty()
    });
    assert!(there.inbox.iter().all(|datagram| datagram.arrival.is_some()));
}

#[test]
fn kernel_drops_are_counted() {
    let sizes = BufferSizes { receive: 16 * 1024, send: 1024 * 1024 };
    let socket = UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), sizes).expect("a free port");
    let (mut here, mut there) = (End::bind("127.0.0.1"), End::new(socket));
    let (mut sent, mut drops) = (0, 0);
    for round in 0..2 {
        for _ in 0..300 {
            here.commit(there.addr(), &[b'x'; 1000]);
            sent += 1;
        }
        assert_eq!(here.send(), Flush::Done);
        // The drop count comes with the next datagram that finds room.
        spin_until(|| {
            here.commit(there.addr(), b"and one more");
            sent += 1;
            assert_eq!(here.send(), Flush::Done);
            there.receive();
            let counters = there.socket.counters();
            counters.received + counters.kernel_drops == sent
        });
        assert!(there.socket.counters().kernel_drops > drops, "round {round}");
        drops = there.socket.counters().kernel_drops;
    }
}

#[test]
fn buffers_are_as_large_as_the_system_allows() {
    let limit = |name: &str| -> usize {
        let text = std::fs::read_to_string(format!("/proc/sys/net/core/{name}")).expect("a Linux");
        text.trim().parse().expect("a number")
    };
    let asked = BufferSizes { receive: 300_000, send: 200_000 };
    let socket = UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), asked).expect("a free port");
    let got = socket.buffers();
    assert!(got.receive == asked.receive || got.receive == limit("rmem_max"), "{got:?}");
    assert!(got.send == asked.send || got.send == limit("wmem_max"), "{got:?}");
}

#[test]
fn empty_datagrams_arrive() {
    let (mut here, mut there) = (End::bind("127.0.0.1"), End::bind("127.0.0.1"));
    here.commit(there.addr(), b"");
    here.commit(there.addr(), b"\r\n\r\n");
    assert_eq!(here.send(), Flush::Done);
    there.receive_until(2);
    assert_eq!(there.seen, [(here.addr(), vec![]), (here.addr(), b"\r\n\r\n".to_vec())]);
}

#[test]
fn a_batch_serves_several_sockets_in_turn() {
    let mut batch = RecvBatch::new();
    let (mut here, mut first, mut second) = (End::bind("127.0.0.1"), End::bind("127.0.0.1"), End::bind("127.0.0.1"));
    here.commit(first.addr(), b"first");
    here.commit(second.addr(), b"second");
    assert_eq!(here.send(), Flush::Done);
    for (end, text) in [(&mut first, "first"), (&mut second, "second")] {
        end.wait_until(|end, _| {
            end.socket.recv(&mut batch).expect("a sound socket");
            !batch.is_empty()
        });
        assert_eq!(batch.iter().map(|datagram| datagram.bytes).collect::<Vec<_>>(), [text.as_bytes()]);
    }
}
