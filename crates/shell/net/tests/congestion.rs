//! Tests with send buffers and device queues that are really full. Loopback alone never fills one, since the kernel
//! stops charging the sender when it delivers the packet. Each test therefore creates a network namespace and slows
//! its loopback. Needs root and `tc`.

mod common;

use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use common::End;
use strowger_net::{BufferSizes, Cause, Flush, SEND_QUEUE, UdpSocket};

/// Moves this thread into a namespace whose loopback carries 8 Mbit/s and queues up to `limit` (in `tc` notation).
fn enter_slow_namespace(limit: &str) -> Result<(), String> {
    let slow = format!("tc qdisc add dev lo root tbf rate 8mbit burst 70k limit {limit}");
    enter_namespace(&["ip link set lo up", &slow])
}

/// Moves this thread into a new namespace and runs the commands there.
fn enter_namespace(commands: &[&str]) -> Result<(), String> {
    // SAFETY: the call takes no pointers; only this thread changes its namespace, and it ends with the test.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(format!("no network namespace: {}", io::Error::last_os_error()));
    }
    commands.iter().try_for_each(|command| run(command))
}

fn run(command: &str) -> Result<(), String> {
    let (program, arguments) = command.split_once(' ').expect("a program and arguments");
    let result = Command::new(program).args(arguments.split(' ')).output();
    let output = result.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command}: {}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn datagrams_held_by_a_full_buffer_leave_in_order_later() {
    fill_and_empty("127.0.0.1", |_| Ok(()));
}

/// Here the kernel accepts part of a segmented message, and the rest later.
#[test]
fn segmented_datagrams_held_by_a_full_buffer_leave_in_order_later() {
    fill_and_empty("127.0.0.1", join);
}

#[test]
fn ipv6_keeps_order() {
    fill_and_empty("::1", join);
}

fn join(socket: &mut UdpSocket) -> io::Result<()> {
    socket.enable_segmentation(Arc::new(AtomicBool::new(true)))
}

/// A path MTU too small for segments, which must not be fragmented.
#[test]
fn failed_segmentation_falls_back_to_single_datagrams() {
    if let Err(reason) = enter_namespace(&["ip link set lo up mtu 1000"]) {
        eprintln!("skipped: {reason}");
        return;
    }
    let socket = UdpSocket::bind(([127, 0, 0, 1], 0).into(), BufferSizes::DEFAULT).map_err(|error| error.to_string());
    let joining = socket.and_then(|mut socket| join(&mut socket).map(|()| socket).map_err(|error| error.to_string()));
    let socket = match joining {
        Ok(socket) => socket,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let (mut here, mut there) = (End::new(socket), End::bind("127.0.0.1"));
    let mut exchange = |here: &mut End| {
        (0..10).for_each(|_| here.commit(there.addr(), &[b'x'; 1100]));
        assert_eq!(here.send(), Flush::Done);
        there.receive();
        assert_eq!(std::mem::take(&mut there.seen).len(), 10);
        here.socket.counters().segmented
    };
    assert_eq!(exchange(&mut here), 0);
    run("ip link set lo mtu 65536").expect("it went before");
    assert_eq!(exchange(&mut here), 0, "it is not tried each time");
    let tries = (0..5_000).find(|_| exchange(&mut here) > 0);
    assert!(tries.is_some(), "it is never tried again");
    assert_eq!((here.socket.counters().send_errors, here.errors.len()), (0, 0));
}

fn fill_and_empty(ip: &str, prepare: impl FnOnce(&mut UdpSocket) -> io::Result<()>) {
    if let Err(reason) = enter_slow_namespace("100m") {
        eprintln!("skipped: {reason}");
        return;
    }
    let sizes = BufferSizes { receive: 4 * 1024 * 1024, send: 64 * 1024 };
    let address = SocketAddr::new(ip.parse().expect("an address"), 0);
    let bound = UdpSocket::bind(address, sizes).map_err(|error| error.to_string());
    let prepared = bound.and_then(|mut socket| prepare(&mut socket).map(|()| socket).map_err(|e| e.to_string()));
    let socket = match prepared {
        Ok(socket) => socket,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let (mut here, mut there) = (End::new(socket), End::bind(ip));
    let datagram = |number: usize| [number.to_be_bytes().as_slice(), &[b'x'; 992]].concat();

    // Send until the buffer is full, then until the queue behind it is full too.
    let mut number = 0;
    while here.socket.counters().send_overflow < 10 {
        here.commit(there.addr(), &datagram(number));
        number += 1;
        assert!(number < 10_000, "the send buffer does not fill");
        if here.outbox.is_full() {
            let _ = here.send();
        }
    }
    assert!(here.outbox.len() <= SEND_QUEUE);
    assert!(here.socket.counters().send_blocked > 0);

    here.wait_until(|end, _| end.send() == Flush::Done);
    let counters = *here.socket.counters();
    assert_eq!(counters.sent + counters.send_overflow, number as u64);
    assert_eq!((counters.send_errors, here.errors.len()), (0, 0));
    let sent = usize::try_from(counters.sent).expect("small");
    there.receive_until(sent);
    assert_eq!(there.seen.len(), sent);
    let numbers = there.seen.iter().map(|(_, bytes)| bytes[..8].to_vec());
    assert!(numbers.is_sorted_by(|first, second| first < second), "in order, each once");
}

#[test]
fn drops_in_a_full_device_queue_are_reported_and_do_not_block() {
    if let Err(reason) = enter_slow_namespace("80k") {
        eprintln!("skipped: {reason}");
        return;
    }
    let (mut here, mut there) = (End::bind("127.0.0.1"), End::bind("127.0.0.1"));
    for number in 0..300_usize {
        here.commit(there.addr(), &[number.to_be_bytes().as_slice(), &[b'x'; 992]].concat());
    }
    assert_eq!(here.send(), Flush::Done);
    let counters = *here.socket.counters();
    assert!(counters.sent > 0 && counters.no_buffers > 0, "{counters:?}");
    assert_eq!((counters.sent + counters.no_buffers, counters.send_errors), (300, counters.no_buffers));
    assert_eq!(here.errors.len() as u64, counters.no_buffers);
    assert!(here.errors.iter().all(|error| error.peer == there.addr() && error.cause == Cause::Congested));
    there.receive_until(usize::try_from(counters.sent).expect("small"));
}
