//! Programs whose event loop wakes for timers, or which wait elsewhere than in their loop.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use strowger_timing::{PacketRecord, Part, Target};

use crate::support::{PATIENCE, assert_close, median_us, start, stop, work};

/// Packets of a test.
const PACKETS: usize = 40;
/// Time-outs of the program between two packets.
const TIMEOUTS: usize = 4;
/// Period of the program's timer.
const TIMER: Duration = Duration::from_millis(4);
/// Time in which the program computes for each packet.
const WORK: Duration = Duration::from_micros(200);
/// How long the program waits for its database.
const DATABASE: Duration = Duration::from_millis(3);

/// How a program waits for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loop {
    /// poll with a time-out.
    Poll,
    /// A receive call with a time-out.
    ReceiveTimeout,
}

/// Waits until the socket can be read; false after a time-out.
fn poll(socket: &UdpSocket, timeout: Duration) -> bool {
    let mut socket = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which outlives the call.
    unsafe { libc::poll(&raw mut socket, 1, i32::try_from(timeout.as_millis()).unwrap()) == 1 }
}

/// Runs a program that computes for each packet, waits for a database if the packet is a `?`, answers unless it is a
/// `-`, and sends a packet to its peer at each time-out. Returns its records for packets that all are `payload`.
fn run(waits: Loop, payload: &[u8]) -> Option<Vec<PacketRecord>> {
    let [server, client, database] = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let [address, peer] = [&server, &client].map(|socket| socket.local_addr().unwrap());
    server.set_read_timeout(Some(TIMER)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let probe = start(Target::Port(address.port()))?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 10];
            while !is_over.load(Ordering::SeqCst) {
                let is_there = waits == Loop::ReceiveTimeout || poll(&server, TIMER);
                match is_there.then(|| server.recv_from(&mut buffer)) {
                    Some(Ok(_)) => {
                        work(WORK);
                        if buffer[0] == b'?' {
                            assert!(!poll(&database, DATABASE));
                        }
                        if buffer[0] != b'-' {
                            server.send_to(b"answer", peer).unwrap();
                        }
                    }
                    Some(Err(error)) if error.kind() != ErrorKind::WouldBlock => panic!("{error}"),
                    _ => assert_eq!(server.send_to(b"timer", peer).unwrap(), 5),
                }
            }
        });
        for _ in 0..=PACKETS {
            client.send_to(payload, address).unwrap();
            let is_timer = || client.recv(&mut [0; 10]).expect("the timer's packet comes") == 5;
            assert_eq!(std::iter::repeat_with(is_timer).filter(|is_timer| *is_timer).take(TIMEOUTS).count(), TIMEOUTS);
        }
        is_over.store(true, Ordering::SeqCst);
    });
    let records = stop(probe);
    assert!(records.len() >= PACKETS, "{} records of {PACKETS} packets", records.len());
    Some(records)
}

/// Returns the median of the time from the receipt until the thread was ready again, µs.
#[expect(clippy::cast_precision_loss, reason = "times of a test are short")]
fn occupied_us(records: &[PacketRecord]) -> f64 {
    let mut times: Vec<u64> =
        records.iter().filter_map(|record| Some(record.ready_ns?.saturating_sub(record.received_ns))).collect();
    assert!(times.len() + 2 >= PACKETS, "{} of {PACKETS} are known", times.len());
    times.sort_unstable();
    times[times.len() / 2] as f64 / 1e3
}

#[test]
fn a_timer_is_no_work_for_the_packet_before() {
    for waits in [Loop::Poll, Loop::ReceiveTimeout] {
        let Some(records) = run(waits, b"-") else { return };
        let occupied = occupied_us(&records);
        assert!((200.0..300.0).contains(&occupied), "{waits:?}: {occupied} µs");
        let answered = records.iter().filter(|record| record.sent > 0 || record.times.get(Part::Application).is_some());
        assert!(answered.count() <= 1, "{waits:?}: only what was sent before the loop was known");
    }
}

#[test]
fn an_answer_counts_and_a_timer_after_it_does_not() {
    for waits in [Loop::Poll, Loop::ReceiveTimeout] {
        let Some(records) = run(waits, b"!") else { return };
        assert_close("T_app", median_us(&records, Part::Application), 200.0);
        let occupied = occupied_us(&records);
        assert!((200.0..400.0).contains(&occupied), "{waits:?}: {occupied} µs");
        let other = records.iter().find(|record| record.sent != 1);
        assert_eq!(other, None, "{waits:?}");
    }
}

#[test]
fn waiting_for_a_database_is_work_for_the_packet() {
    for waits in [Loop::Poll, Loop::ReceiveTimeout] {
        let Some(records) = run(waits, b"?") else { return };
        let application = median_us(&records, Part::Application);
        assert!((3_200.0..3_600.0).contains(&application), "{waits:?}: {application} µs");
        let occupied = occupied_us(&records);
        assert!(occupied >= application && occupied < application + 200.0, "{waits:?}: {occupied} µs");
    }
}
