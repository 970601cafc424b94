//! Calls over connections, recorded on the way and replayed, with real ends and sockets.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use strowger_traffic::driver::ConnectionLifetime;
use strowger_traffic::engine::{Plan, Report, Run};
use strowger_traffic::meter::{ResponseClass, TimeHistogram};
use strowger_traffic::options::{AnswerOptions, CalleeLocation, Options, Target, workload};
use strowger_traffic::replay::{Capture, ReplayOptions, ReplaySides};
use strowger_traffic::script::MethodId;

use crate::packets::Packets;

const CALLS: u64 = 6;
/// Hosts of the caller and of the callee.
const CALLER: &str = "127.0.0.2";
const CALLEE: &str = "127.0.0.3";
/// Maximum bytes in a segment, so that messages are split and share segments.
const SEGMENT: usize = 500;

/// Captured segments in order: time, source, destination, flags, bytes.
type Wire = Arc<Mutex<Vec<(u64, SocketAddr, SocketAddr, u8, Vec<u8>)>>>;

const SYN: u8 = 0x02;
const FIN: u8 = 0x11;
const DATA: u8 = 0x18;

/// Relays connections to `to`, and records their bytes as if they went there directly.
fn tapped(to: SocketAddr) -> (SocketAddr, Wire) {
    let listener = TcpListener::bind((CALLEE, 0)).expect("a port");
    let (at, wire, begun) = (listener.local_addr().expect("bound"), Wire::default(), Instant::now());
    let taps = Arc::clone(&wire);
    // The thread ends with the test process.
    std::thread::spawn(move || {
        for near in listener.incoming() {
            let near = near.expect("a connection");
            let from = near.peer_addr().expect("connected");
            let far = TcpStream::connect(to).expect("it listens");
            let twins = (near.try_clone().expect("a file"), far.try_clone().expect("a file"));
            for (mut source, mut sink, ends) in [(near, far, (from, to)), (twins.1, twins.0, (to, from))] {
                let wire = Arc::clone(&taps);
                let note = move |flags, bytes: &[u8]| {
                    let ms = u64::try_from(begun.elapsed().as_millis()).expect("short");
                    wire.lock().expect("no panic").push((ms, ends.0, ends.1, flags, bytes.to_vec()));
                };
                note(SYN, &[]);
                std::thread::spawn(move || {
                    let mut buffer = [0; 8_192];
                    while let Ok(length @ 1..) = source.read(&mut buffer) {
                        buffer[..length].chunks(SEGMENT).for_each(|part| note(DATA, part));
                        if sink.write_all(&buffer[..length]).is_err() {
                            break;
                        }
                    }
                    note(FIN, &[]);
                    let _ = sink.shutdown(Shutdown::Write);
                });
            }
        }
    });
    (at, wire)
}

fn capture_of(wire: &Wire) -> Capture {
    let mut packets = Packets::pcap(1);
    let mut sequences = std::collections::BTreeMap::new();
    // Sequence numbers wrap around during the connection.
    let first = AtomicU32::new(u32::MAX - 1_000);
    for (ms, from, to, flags, bytes) in wire.lock().expect("no panic").iter() {
        let next = sequences.entry((*from, *to)).or_insert_with(|| first.fetch_add(77, Ordering::Relaxed));
        packets.tcp(*ms, &from.to_string(), &to.to_string(), *next, *flags, bytes);
        let length = if *flags == SYN { 1 } else { u32::try_from(bytes.len()).expect("small") };
        *next = next.wrapping_add(length);
    }
    Capture::parse("test.pcap", &packets.finish()).expect("a capture")
}

fn answering(ip: &str) -> (SocketAddr, JoinHandle<Report>) {
    let options = AnswerOptions {
        secure: strowger_traffic::options::SecureOptions::default(),
        listen: vec![Target::parse(&format!("tcp:{ip}:0")).expect("a target")],
        workload: workload("baseline").expect("built in"),
        scenario: None,
        calls: Some(CALLS),
        time: None,
        threads: 1,
        is_busy_polling: false,
        has_segmentation: false,
        retransmits: true,
        service: None,
        seed: 7,
    };
    let run = Run::prepare(options.plan().expect("a plan").0).expect("it listens");
    let at = run.listening()[0];
    (at, std::thread::spawn(move || run.go().expect("a run")))
}

fn run(plan: Plan) -> Report {
    Run::prepare(plan).expect("sockets").go().expect("a run")
}

/// Records calls with a quarter of a second of ringing and as much talk.
fn recorded(connecting: ConnectionLifetime) -> Capture {
    let (answers_at, answered) = answering(CALLEE);
    let (tap, wire) = tapped(answers_at);
    let target = Target::parse(&format!("tcp:{tap}")).expect("a target");
    let mut options = Options::new(workload("baseline").expect("built in"), Some(target), 3);
    (options.callee_location, options.connection_lifetime) = (CalleeLocation::Remote, connecting);
    (options.rate, options.arrivals, options.calls) = (20.0, "uniform".to_owned(), Some(CALLS));
    options.from = vec![CALLER.parse::<IpAddr>().expect("an address")];
    let report = run(options.plan().expect("a plan").0);
    assert_eq!(report.measured().expect("one phase").caller.began.carried, CALLS);
    drop(answered.join().expect("it ends"));
    capture_of(&wire)
}

fn replay(to: SocketAddr, played: ReplaySides, connecting: ConnectionLifetime) -> ReplayOptions {
    let target = Target::parse(&format!("tcp:{to}")).expect("a target");
    let mut options = ReplayOptions::new("test.pcap".into(), Some(target), 1);
    (options.sides, options.connection_lifetime) = (played, connecting);
    options
}

fn assert_as_recorded(report: &Report) {
    let phase = report.measured().expect("one phase");
    let meter = phase.meter();
    assert_eq!((meter.began.offered, meter.began.carried), (CALLS, CALLS), "{:?} {:?}", meter.failures, phase.links);
    assert_eq!((meter.compared.same, meter.compared.differs().count()), (2 * CALLS, 0), "{:?}", meter.compared);
    assert_eq!((meter.unexpected, meter.late), (0, 0), "{:?}", meter.samples);
    // It rings for as long as in the recording.
    let answered =
        meter.answer(MethodId::Invite, ResponseClass::Success).map(|times: &TimeHistogram| times.quantile(0.0));
    assert!(answered.is_some_and(|after| after > Duration::from_millis(200)), "{answered:?}");
}

#[test]
fn callers_over_tcp_are_replayed() {
    for connecting in [ConnectionLifetime::Persistent, ConnectionLifetime::Transaction] {
        let capture = recorded(connecting);
        let (at, answered) = answering("127.0.0.1");
        let (plan, about) = replay(at, ReplaySides::Caller, connecting).plan_of(&capture).expect("a plan");
        assert!(!about.declared.iter().any(|(name, _)| name.starts_with("skipped")), "{about:?}");
        assert_as_recorded(&run(plan));
        let called = answered.join().expect("it ends");
        assert_eq!(called.measured().expect("one phase").callee.answered.carried, CALLS, "{connecting:?}");
    }
}

#[test]
fn both_ends_over_tcp_are_replayed() {
    for connecting in [ConnectionLifetime::Persistent, ConnectionLifetime::Dialog, ConnectionLifetime::Transaction] {
        let capture = recorded(connecting);
        // Calls go directly to the other end here; the target only sets the transport.
        let mut options = replay(SocketAddr::from(([127, 0, 0, 1], 9)), ReplaySides::Both, connecting);
        options.callee_location = CalleeLocation::Local;
        let report = run(options.plan_of(&capture).expect("a plan").0);
        assert_as_recorded(&report);
        let phase = report.measured().expect("one phase");
        assert_eq!(phase.callee.answered.carried, CALLS, "{connecting:?}: {:?}", phase.callee.failures);
    }
}
