//! Delays of known length inside the kernel: before the socket's queue, and before the device.

use std::net::UdpSocket;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use aya::EbpfLoader;
use aya::programs::SocketFilter;
use strowger_timing::{Part, Target};

use crate::support::{PATIENCE, assert_close, median_us, skip, start, stop, work};

/// Packets for each delay.
const PACKETS: usize = 100;

static BUSY_FILTER: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/busy_filter.bpf.o"));

#[test]
fn time_in_the_stack_is_found() {
    for micros in [50_u64, 200, 1_000] {
        let [server, client] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        client.connect(server.local_addr().unwrap()).unwrap();
        let Some(probe) = start(Target::Port(server.local_addr().unwrap().port())) else { return };
        let busy_ns = micros * 1_000;
        let mut filter = EbpfLoader::new().override_global("busy_ns", &busy_ns, true).load(BUSY_FILTER).unwrap();
        let filter: &mut SocketFilter = filter.program_mut("busy").unwrap().try_into().unwrap();
        filter.load().unwrap();
        filter.attach(&server).unwrap();
        for _ in 0..=PACKETS {
            client.send(b"x").unwrap();
            server.recv(&mut [0; 10]).unwrap();
        }
        let records = stop(probe);
        assert!(records.len() >= PACKETS, "{} records of {PACKETS} packets", records.len());
        assert_close("K_stack", median_us(&records, Part::Stack), micros as f64);
    }
}

/// Bytes that may leave at once, and how many more each microsecond: 8 Mbit/s.
const BUCKET: u64 = 3_000;
/// Bytes of the headers of Ethernet, IP and UDP.
const HEADERS: u64 = 42;
/// Payload of a question. It takes most of the bucket.
const QUESTION: u64 = 2_000;

/// Runs a test in an own network namespace, whose loopback device is a token bucket; false if there cannot be one.
fn with_token_bucket(test: impl FnOnce() + Send) -> bool {
    thread::scope(|scope| {
        scope
            .spawn(|| {
                // SAFETY: the thread ends with this closure, and shares no file descriptor table that this would split.
                if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                    return false;
                }
                let bucket = format!("qdisc add dev lo root tbf rate 8mbit burst {BUCKET} limit 1000000");
                let run = |program: &str, arguments: &str| {
                    Command::new(program).args(arguments.split(' ')).status().is_ok_and(|status| status.success())
                };
                let is_there = run("ip", "link set lo up") && run("tc", &bucket);
                if is_there {
                    test();
                }
                is_there
            })
            .join()
            .unwrap()
    })
}

/// Sends answers of this length, for which the bucket has too few tokens if it is beyond what the question left;
/// returns K_snd and the time from the send call to the receipt, both the median, µs.
fn answer(length: u64) -> Option<(f64, f64)> {
    let [server, client] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    client.connect(server.local_addr().unwrap()).unwrap();
    let probe = start(Target::Port(server.local_addr().unwrap().port()))?;
    client.set_nonblocking(true).unwrap();
    let mut buffer = [0; 4_000];
    let mut whole = Vec::new();
    for _ in 0..=PACKETS {
        // Until the bucket is full.
        work(Duration::from_micros(BUCKET + 500));
        client.send(&buffer[..QUESTION as usize]).unwrap();
        let (_, peer) = server.recv_from(&mut buffer).unwrap();
        let sent = Instant::now();
        server.send_to(&buffer[..length as usize], peer).unwrap();
        while client.recv(&mut buffer).is_err() {
            assert!(sent.elapsed() < PATIENCE, "no answer comes");
        }
        whole.push(sent.elapsed().as_nanos() as f64 / 1e3);
    }
    whole.sort_by(f64::total_cmp);
    let records = stop(probe);
    assert!(records.len() >= PACKETS, "{} records of {PACKETS} packets", records.len());
    // The call does not wait for the device.
    assert!(median_us(&records, Part::SendCall) < 50.0);
    Some((median_us(&records, Part::Send), whole[whole.len() / 2]))
}

#[test]
fn a_packet_that_the_queueing_discipline_drops_has_no_k_snd() {
    let is_there = with_token_bucket(|| {
        let [server, client] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        client.connect(server.local_addr().unwrap()).unwrap();
        let Some(probe) = start(Target::Port(server.local_addr().unwrap().port())) else { return };
        let mut buffer = [0; 2 * BUCKET as usize];
        for _ in 0..=PACKETS {
            client.send(b"question").unwrap();
            let (_, peer) = server.recv_from(&mut buffer).unwrap();
            // More than the bucket can hold. The next question often has the same place in the kernel's memory.
            let _ = server.send_to(&buffer, peer);
        }
        let records = stop(probe);
        assert!(records.len() >= PACKETS, "{} records of {PACKETS} packets", records.len());
        assert!(records.iter().all(|record| record.times.get(Part::Send).is_none()));
    });
    if !is_there {
        skip("no network namespace with a token bucket (needs root, ip and tc)");
    }
}

#[test]
fn waiting_for_the_device_is_found() {
    let is_there = with_token_bucket(|| {
        let left = BUCKET - QUESTION - 2 * HEADERS;
        let Some((at_once, whole_at_once)) = answer(10) else { return };
        for micros in [60, 210, 1_010] {
            let Some((send, whole)) = answer(left + micros) else { return };
            // A token comes each microsecond, also while the server works; the timer that lets packets go is late.
            assert!(whole > micros as f64 * 0.5);
            assert_close("K_snd", send - at_once, whole - whole_at_once);
        }
    });
    if !is_there {
        skip("no network namespace with a token bucket (needs root, ip and tc)");
    }
}
