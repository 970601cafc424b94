//! Parsing of files into messages.

use std::path::Path;

use strowger_traffic::arrival::Arrivals;
use strowger_traffic::replay::{Capture, Reason, ReplayOptions, ReplaySides};

use super::packets::{Packets, framed, ip, pcapng};
use super::virtual_time::options;
use super::{ALICE, BOB, answered_call, request, response};

fn read(bytes: &[u8]) -> Capture {
    Capture::parse("test", bytes).expect("a capture")
}

fn message() -> String {
    request("OPTIONS", 1, "one", "", "a body")
}

#[test]
fn links_vlans_and_both_ip_versions_are_read() {
    for link in [0, 1, 101, 113, 276] {
        for (source, destination) in [(ALICE, BOB), ("[2001:db8::1]:5060", "[2001:db8::9]:5061")] {
            let mut packets = Packets::pcap(link);
            packets.udp(1_234, source, destination, &message());
            let capture = read(&packets.finish());
            let first = capture.messages.first().unwrap_or_else(|| panic!("{link}: {}", capture.skipped));
            assert_eq!(
                (first.source.to_string(), first.destination.to_string()),
                (source.to_owned(), destination.to_owned())
            );
            assert_eq!((first.at, first.bytes.as_slice()), (1_700_000_001_234_000_000, message().as_bytes()));
            assert_eq!(capture.skipped.to_string(), "nothing");
        }
    }
    let mut tagged = Packets::pcap(1);
    let mut whole = Packets::pcap(101);
    whole.udp(0, ALICE, BOB, &message());
    let packet = whole.finish().split_off(40);
    tagged.raw(0, &framed(2, &packet));
    assert_eq!(read(&tagged.finish()).messages.len(), 1);
}

#[test]
fn pcapng_is_read_with_its_time_unit() {
    let mut raw = Packets::pcap(101);
    raw.udp(0, ALICE, BOB, &message());
    let packet = raw.finish().split_off(40);
    let file = pcapng(1, &[(77, framed(1, &packet)), (5, framed(1, &packet))]);
    let capture = read(&file);
    let times: Vec<_> = capture.messages.iter().map(|message| message.at % 1_000_000_000).collect();
    assert_eq!(times, [5_000_000, 77_000_000], "in the order of their times");
    // Half of the last block is missing.
    let cut = read(&file[..file.len() - 40]);
    assert_eq!((cut.messages.len(), cut.skipped.count(Reason::Truncated)), (1, 1));
}

#[test]
fn fragments_are_reassembled_or_counted() {
    let mut packets = Packets::pcap(1);
    packets.fragments(0, ALICE, BOB, &message(), 200);
    let capture = read(&packets.finish());
    assert_eq!(capture.messages.first().map(|first| first.bytes.clone()), Some(message().into_bytes()));
    let mut part = Packets::pcap(1);
    let (alice, bob) = (super::packets::at(ALICE), super::packets::at(BOB));
    part.frame(0, &ip(17, alice, bob, &[7; 64], 9, 0x2000));
    let capture = read(&part.finish());
    assert_eq!((capture.messages.len(), capture.skipped.count(Reason::Fragment)), (0, 1));
}

#[test]
fn streams_are_reordered() {
    let both = format!("{}\r\n\r\n{}", message(), response("200 OK", 1, "OPTIONS", "one", ""));
    let bytes = both.as_bytes();
    let (first, second, third) = (&bytes[..100], &bytes[100..350], &bytes[350..]);
    let mut packets = Packets::pcap(1);
    let start = u32::MAX - 150;
    let at = |offset: usize| start.wrapping_add(u32::try_from(offset + 1).expect("small"));
    packets.tcp(0, ALICE, BOB, start, 0x02, b"");
    packets.tcp(1, ALICE, BOB, at(0), 0x18, first);
    packets.tcp(2, ALICE, BOB, at(350), 0x18, third);
    packets.tcp(3, ALICE, BOB, at(0), 0x18, first);
    packets.tcp(4, ALICE, BOB, at(100), 0x18, second);
    packets.tcp(5, ALICE, BOB, at(bytes.len()), 0x11, b"");
    let capture = read(&packets.finish());
    let texts: Vec<_> = capture.messages.iter().map(|message| String::from_utf8_lossy(&message.bytes)).collect();
    assert_eq!(texts, [message(), response("200 OK", 1, "OPTIONS", "one", "")]);
    assert_eq!(capture.messages[0].at % 1_000_000_000, 4_000_000, "when it is whole");
    assert_eq!(capture.skipped.to_string(), "1 retransmitted TCP segments");
}

#[test]
fn a_stream_gap_loses_only_adjacent_messages() {
    let text = message();
    let bytes = text.as_bytes();
    let length = u32::try_from(bytes.len()).expect("small");
    let mut packets = Packets::pcap(1);
    // The capture begins in the middle of the stream.
    packets.tcp(0, ALICE, BOB, 5_000, 0x18, bytes);
    packets.tcp(1, ALICE, BOB, 5_000 + length, 0x18, &bytes[..50]);
    // 100 bytes are missing.
    packets.tcp(2, ALICE, BOB, 5_000 + length + 150, 0x18, &bytes[150..]);
    packets.tcp(3, ALICE, BOB, 5_000 + 2 * length, 0x18, bytes);
    packets.tcp(4, BOB, ALICE, 1, 0x18, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    let capture = read(&packets.finish());
    assert_eq!(capture.messages.len(), 2);
    assert_eq!(
        (capture.skipped.count(Reason::Gap), capture.skipped.count(Reason::NoSip)),
        (1, 1),
        "{}",
        capture.skipped
    );
}

#[test]
fn skipped_packets_are_counted_by_reason() {
    let mut packets = Packets::pcap(1);
    packets.udp(0, ALICE, BOB, "\x00 this is RTP");
    packets.udp(0, ALICE, BOB, "\r\n\r\n");
    let (alice, bob) = (super::packets::at(ALICE), super::packets::at(BOB));
    packets.frame(0, &ip(1, alice, bob, &[8, 0, 0, 0], 1, 0));
    packets.raw(0, &[&[0; 12][..], &[0x08, 0x06, 0, 1]].concat());
    packets.raw(0, &[1, 2, 3]);
    let capture = read(&packets.finish());
    let counts: Vec<_> = capture.skipped.iter().collect();
    assert_eq!(
        counts,
        [(Reason::NoIp, 1), (Reason::Protocol, 1), (Reason::Malformed, 1), (Reason::NoSip, 1)],
        "{}",
        capture.skipped
    );
    let mut strange = Packets::pcap(147);
    strange.raw(0, &[0; 60]);
    assert_eq!(read(&strange.finish()).skipped.count(Reason::Link), 1);
}

#[test]
fn a_trace_of_our_server_is_a_capture() {
    let line = |at_us: u64, sent: bool, peer: &str, text: &str| {
        let lines: Vec<_> = text.lines().collect();
        serde_json::json!({ "time": "2026-11-21T10:00:00.000Z", "at_us": at_us, "sent": sent, "transport": "UDP",
            "local": "udp:10.0.0.5:5060", "peer": peer, "start": lines[0], "cseq": "", "call_id": "", "length": text.len(),
            "lines": lines })
        .to_string()
    };
    let sdp = "v=0\r\ns=-\r\n";
    let invite = request("INVITE", 1, "one", "Content-Type: application/sdp\r\n", sdp);
    let busy = response("486 Busy Here", 1, "INVITE", "one", "");
    let mut text = [
        line(1_000, false, ALICE, &invite),
        line(2_000, true, BOB, &invite),
        line(3_000, false, BOB, &busy),
        line(4_000, true, ALICE, &busy),
        "{\"lost\":3}".to_owned(),
    ]
    .join("\n");
    text.push('\n');
    let capture = read(text.as_bytes());
    let seen: Vec<_> = capture.messages.iter().map(|message| (message.at, message.source.to_string())).collect();
    let (server, alice, bob) = ("10.0.0.5:5060".to_owned(), ALICE.to_owned(), BOB.to_owned());
    assert_eq!(seen, [(1_000_000, alice), (2_000_000, server.clone()), (3_000_000, bob), (4_000_000, server)]);
    assert_eq!(capture.messages[0].bytes, invite.as_bytes());
    assert_eq!(capture.skipped.count(Reason::Malformed), 1);
    let (plan, _) = options(ReplaySides::Both).plan_of(&capture).expect("a plan");
    assert!(plan.callee.is_some());
    // A message from another worker is stamped a little early; the message that it answers still came before it.
    let early = [line(5_000, false, ALICE, &invite), line(1_000, true, BOB, &invite)].join("\n");
    let seen = read(early.as_bytes()).messages;
    let sources: Vec<_> = seen.iter().map(|message| (message.at, message.source.to_string())).collect();
    assert_eq!(sources, [(5_000_000, ALICE.to_owned()), (5_000_000, "10.0.0.5:5060".to_owned())]);
}

#[test]
fn a_trace_gives_arrivals() {
    let mut packets = Packets::pcap(1);
    answered_call(&mut packets, 0, "one");
    answered_call(&mut packets, 1_000, "two");
    let challenge = "WWW-Authenticate: Digest realm=\"x\", nonce=\"n\"\r\n";
    packets.udp(1_500, ALICE, BOB, &request("REGISTER", 1, "reg", "", ""));
    packets.udp(1_501, BOB, ALICE, &response("401 Unauthorized", 1, "REGISTER", "reg", challenge));
    packets.udp(1_502, ALICE, BOB, &request("REGISTER", 2, "reg", "Authorization: Digest username=\"a\"\r\n", ""));
    answered_call(&mut packets, 4_000, "three");
    // A retransmission, and another hop.
    packets.udp(4_500, ALICE, BOB, &request("INVITE", 1, "three", "", ""));
    let folder = std::env::temp_dir().join(format!("strowger-trace-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("arrivals.pcap");
    std::fs::write(&file, packets.finish()).expect("written");
    let instants = |more: &str| -> Vec<u64> {
        let arrivals = Arrivals::parse(&format!("trace({}{more})", file.display()), 0.0).expect("valid");
        arrivals.times(1, 0, 1).map(|nanos| nanos / 1_000_000).collect()
    };
    assert_eq!(instants(""), [0, 1_000, 1_500, 4_000]);
    assert_eq!(instants(",method=INVITE"), [0, 1_000, 4_000]);
    assert_eq!(instants(",method=invite,speed=2"), [0, 500, 2_000]);
    for (more, what) in
        [(",method=FOO", "FOO"), (",speed=0", "speed"), (",x=1", "x=1"), (",method=PUBLISH", "has no PUBLISH")]
    {
        let error = Arrivals::parse(&format!("trace({}{more})", file.display()), 0.0).expect_err(what).to_string();
        assert!(error.contains(what), "{error}");
    }
    std::fs::remove_dir_all(&folder).expect("removed");
    assert!(Arrivals::parse("trace(/nowhere.pcap)", 0.0).is_err());
    assert!(ReplayOptions::new(Path::new("/nowhere").into(), None, 1).plan().is_err());
}

/// Generator of the same numbers on every machine.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % limit.max(1)
    }
}

#[test]
fn hostile_captures_never_panic() {
    let mut packets = Packets::pcap(1);
    answered_call(&mut packets, 0, "one");
    packets.fragments(9_000, ALICE, BOB, &message(), 120);
    packets.tcp(9_001, ALICE, BOB, 1, 0x02, b"");
    packets.tcp(9_002, ALICE, BOB, 2, 0x18, message().as_bytes());
    packets.udp(9_003, "[2001:db8::1]:5060", "[2001:db8::9]:5061", &message());
    let plain = packets.finish();
    let mut raw = Packets::pcap(101);
    raw.udp(0, ALICE, BOB, &message());
    let packet = raw.finish().split_off(40);
    let newer = pcapng(1, &[(77, framed(1, &packet)), (5, framed(1, &packet))]);
    let mut dice = Dice(7);
    let options = options(ReplaySides::Both);
    for round in 0..6_000 {
        let mut bytes = if round % 3 == 0 { newer.clone() } else { plain.clone() };
        for _ in 0..1 + dice.below(12) {
            let at = dice.below(bytes.len());
            match dice.below(6) {
                0 => bytes.truncate(at.max(1)),
                1 => bytes[at] = 0xFF,
                2 => bytes[at] = b"\r\n:;<>,=@ []0"[dice.below(13)],
                3 => {
                    let end = (at + dice.below(60)).min(bytes.len());
                    let part = bytes[at..end].to_vec();
                    bytes.splice(at..at, part);
                }
                4 => drop(bytes.drain(at..(at + dice.below(30)).min(bytes.len()))),
                _ => bytes[at] ^= 1 << dice.below(8),
            }
            if bytes.is_empty() {
                break;
            }
        }
        if let Ok(capture) = Capture::parse("test", &bytes) {
            // An error is fine too; it only has to return.
            drop(options.plan_of(&capture));
        }
    }
}
