//! Captures, read and replayed in virtual time.

mod packets;
mod reading;
mod tcp;
mod virtual_time;

use packets::Packets;
use strowger_traffic::replay::{Capture, Reason, ReplaySides};
use virtual_time::{Replay, answer, options, plan};

pub(crate) const ALICE: &str = "10.0.0.1:5060";
pub(crate) const BOB: &str = "10.0.0.9:5060";
const PROXY: &str = "10.0.0.5:5060";

const SDP: &str =
    "v=0\r\no=- 1 1 IN IP4 10.0.0.1\r\ns=[bracket]\r\nc=IN IP4 10.0.0.1\r\nt=0 0\r\nm=audio 6000 RTP/AVP 0\r\n";

/// Returns a request of alice's first call.
pub(crate) fn request(method: &str, number: u32, call: &str, more: &str, body: &str) -> String {
    let tag = if more.contains("to-tag") { ";tag=callee" } else { "" };
    let length = body.len();
    format!(
        "{method} sip:bob@10.0.0.9 SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.1:5060;branch=z9hG4bK{call}{number}{method};rport\r\n\
         Max-Forwards: 70\r\nFrom: \"Alice\" <sip:alice@10.0.0.1>;tag=caller\r\nTo: <sip:bob@10.0.0.9>{tag}\r\n\
         Call-ID: {call}\r\nCSeq: {number} {method}\r\nContact: <sip:alice@10.0.0.1:5060>\r\nX-Kept: [as it is]\r\n{more}\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

pub(crate) fn response(status: &str, number: u32, method: &str, call: &str, more: &str) -> String {
    format!(
        "SIP/2.0 {status}\r\nVia: SIP/2.0/UDP 10.0.0.1:5060;branch=z9hG4bK{call}{number}{method};rport=5060\r\n\
         From: \"Alice\" <sip:alice@10.0.0.1>;tag=caller\r\nTo: <sip:bob@10.0.0.9>;tag=callee\r\nCall-ID: {call}\r\n\
         CSeq: {number} {method}\r\nContact: <sip:bob@10.0.0.9:5060>\r\n{more}Content-Length: 0\r\n\r\n"
    )
}

const IN_DIALOG: &str = "X-Mark: to-tag\r\n";

/// Adds a call that is answered after 3 s, and hung up by alice after another 5 s.
pub(crate) fn answered_call(packets: &mut Packets, begin: u64, call: &str) {
    packets.udp(begin, ALICE, BOB, &request("INVITE", 1, call, "Content-Type: application/sdp\r\n", SDP));
    packets.udp(begin + 50, BOB, ALICE, &response("183 Session Progress", 1, "INVITE", call, "X-Early: yes\r\n"));
    packets.udp(begin + 100, BOB, ALICE, &response("180 Ringing", 1, "INVITE", call, ""));
    packets.udp(begin + 3_000, BOB, ALICE, &response("200 OK", 1, "INVITE", call, ""));
    packets.udp(begin + 3_020, ALICE, BOB, &request("ACK", 1, call, IN_DIALOG, ""));
    packets.udp(begin + 8_020, ALICE, BOB, &request("BYE", 2, call, IN_DIALOG, ""));
    packets.udp(begin + 8_030, BOB, ALICE, &response("200 OK", 2, "BYE", call, ""));
}

fn one_call() -> Vec<u8> {
    let mut packets = Packets::pcap(1);
    answered_call(&mut packets, 0, "one");
    packets.finish()
}

const ONE_CALL: &str = "0>INVITE 50<183 100<180 3000<200 3020>ACK 8020>BYE 8030<200";

#[test]
fn both_ends_keep_the_recorded_times_and_texts() {
    let replay = Replay::new(&one_call(), &options(ReplaySides::Both)).run(60);
    assert_eq!(replay.trace(), ONE_CALL);
    assert_eq!((replay.meter().began.carried, replay.meter().compared.same), (1, 2));
    let invite = replay.sent("INVITE")[0];
    assert!(invite.starts_with("INVITE sip:bob@127.0.0.1 SIP/2.0\r\n"), "{invite}");
    assert!(invite.ends_with(SDP) && invite.contains("X-Kept: [as it is]\r\n"), "{invite}");
    assert!(
        invite.contains("From: \"Alice\" <sip:alice@127.0.0.1>;tag=") && !invite.contains("tag=caller"),
        "{invite}"
    );
    assert!(invite.contains("Contact: <sip:alice@127.0.0.1:40000;transport=UDP>\r\n"), "{invite}");
    assert!(!invite.contains("Call-ID: one") && !invite.contains("10.0.0.1:5060") && !invite.contains("z9hG4bKone"));
    let (ack, bye) = (replay.sent("ACK")[0], replay.sent("BYE")[0]);
    for message in [ack, bye] {
        assert!(message.contains(" sip:bob@127.0.0.1:5070;transport=UDP SIP/2.0\r\n"), "{message}");
        assert!(message.contains("To: <sip:bob@127.0.0.1>;tag="), "{message}");
    }
    assert!(ack.contains("CSeq: 1 ACK") && bye.contains("CSeq: 2 BYE"));
    assert!(replay.sent("SIP/2.0 183")[0].contains("X-Early: yes\r\n"));
}

#[test]
fn the_speed_divides_all_times() {
    let mut fast = options(ReplaySides::Both);
    fast.speed = 10.0;
    let replay = Replay::new(&one_call(), &fast).run(60);
    assert_eq!(replay.trace(), "0>INVITE 5<183 10<180 300<200 302>ACK 802>BYE 803<200");
}

#[test]
fn each_call_starts_on_time_and_similar_calls_share_a_script() {
    let mut packets = Packets::pcap(1);
    for (begin, call) in [(0, "one"), (10_000, "two"), (20_000, "three")] {
        answered_call(&mut packets, begin, call);
    }
    let bytes = packets.finish();
    let replay = Replay::new(&bytes, &options(ReplaySides::Both)).run(60);
    let second = "10000>INVITE 10050<183 10100<180 13000<200 13020>ACK 18020>BYE 18030<200";
    assert!(replay.trace().starts_with(&format!("{ONE_CALL} {second} 20000>INVITE")), "{}", replay.trace());
    assert_eq!(replay.meter().began.carried, 3);
    assert_eq!(plan(&bytes, &options(ReplaySides::Both)).caller.expect("callers").scripts.len(), 1);
}

#[test]
fn a_proxy_in_the_capture_is_neither_end() {
    let mut packets = Packets::pcap(1);
    let forwarded = |text: &str| {
        let via = "Via: SIP/2.0/UDP 10.0.0.5:5060;branch=z9hG4bKproxy\r\n";
        let (first, rest) = text.split_once("\r\n").expect("lines");
        format!("{first}\r\n{via}{rest}")
    };
    let invite = request("INVITE", 1, "one", "", SDP).replace("10.0.0.9", "example.com");
    packets.udp(0, ALICE, PROXY, &invite);
    packets.udp(2, PROXY, ALICE, &response("100 Trying", 1, "INVITE", "one", ""));
    packets.udp(3, PROXY, BOB, &forwarded(&invite));
    packets.udp(1_003, BOB, PROXY, &forwarded(&response("180 Ringing", 1, "INVITE", "one", "")));
    packets.udp(1_004, PROXY, ALICE, &response("180 Ringing", 1, "INVITE", "one", ""));
    packets.udp(2_003, BOB, PROXY, &forwarded(&response("486 Busy Here", 1, "INVITE", "one", "")));
    packets.udp(2_003, PROXY, BOB, &forwarded(&request("ACK", 1, "one", IN_DIALOG, "")));
    packets.udp(2_004, PROXY, ALICE, &response("486 Busy Here", 1, "INVITE", "one", ""));
    packets.udp(2_005, ALICE, PROXY, &request("ACK", 1, "one", IN_DIALOG, ""));
    let mut options = options(ReplaySides::Both);
    options.domain = Some("example.org".to_owned());
    options.pattern = Some("user%4".to_owned());
    let replay = Replay::new(&packets.finish(), &options).run(60);
    // 1 s from the request at bob to his ringing, and no network delay.
    assert_eq!(replay.trace(), "0>INVITE 1000<180 2000<486 2000>ACK");
    let invite = replay.sent("INVITE")[0];
    assert!(invite.starts_with("INVITE sip:user0000@example.org SIP/2.0\r\n"), "{invite}");
    assert!(invite.contains("<sip:user0001@example.org>;tag="), "{invite}");
    assert!(invite.contains("Contact: <sip:user0001@127.0.0.1:40000;"), "{invite}");
    assert_eq!((replay.meter().began.carried, replay.meter().compared.same), (1, 1));
}

fn registering() -> Vec<u8> {
    let mut packets = Packets::pcap(1);
    let challenge = "WWW-Authenticate: Digest realm=\"x\", nonce=\"old\", algorithm=MD5\r\n";
    let credentials = "Authorization: Digest username=\"al\", realm=\"x\", nonce=\"old\", uri=\"sip:x\", response=\"00\", algorithm=MD5\r\n";
    packets.udp(0, ALICE, BOB, &request("REGISTER", 1, "reg", "Expires: 600\r\n", ""));
    packets.udp(5, BOB, ALICE, &response("401 Unauthorized", 1, "REGISTER", "reg", challenge));
    packets.udp(9, ALICE, BOB, &request("REGISTER", 2, "reg", &format!("Expires: 600\r\n{credentials}"), ""));
    packets.udp(15, BOB, ALICE, &response("200 OK", 2, "REGISTER", "reg", ""));
    packets.udp(30_015, ALICE, BOB, &request("REGISTER", 3, "reg", &format!("Expires: 600\r\n{credentials}"), ""));
    packets.udp(30_020, BOB, ALICE, &response("200 OK", 3, "REGISTER", "reg", ""));
    packets.finish()
}

#[test]
fn challenges_are_answered_and_refreshes_are_on_time() {
    let replay = Replay::new(&registering(), &options(ReplaySides::Caller)).against(|request| {
        let is_known = request.contains("nonce=\"new\"");
        let challenge = "WWW-Authenticate: Digest realm=\"y\", nonce=\"new\", algorithm=SHA-256, qop=\"auth\"\r\n";
        let status = if is_known { "200 OK" } else { "401 Unauthorized" };
        vec![(7, answer(request, status, if is_known { "" } else { challenge }))]
    });
    let replay = replay.run(120);
    assert_eq!(replay.trace(), "0>REGISTER 7<401 7>REGISTER 14<200 30014>REGISTER 30021<200");
    let second = replay.sent("REGISTER")[1];
    assert!(second.contains("username=\"al\"") && second.contains("algorithm=SHA-256"), "{second}");
    assert!(second.contains("Expires: 600\r\n") && !second.contains("nonce=\"old\""), "{second}");
    assert_eq!((replay.meter().began.carried, replay.differs()), (1, Vec::<String>::new()));
}

#[test]
fn a_server_without_passwords_is_no_difference() {
    let replay = Replay::new(&registering(), &options(ReplaySides::Caller));
    let replay = replay.against(|request| vec![(1, answer(request, "200 OK", ""))]).run(120);
    assert_eq!(replay.trace(), "0>REGISTER 1<200 30001>REGISTER 30002<200");
    assert_eq!((replay.meter().compared.same, replay.differs()), (2, Vec::<String>::new()));
}

fn cancelled() -> Vec<u8> {
    let mut packets = Packets::pcap(1);
    packets.udp(0, ALICE, BOB, &request("INVITE", 1, "one", "", SDP));
    packets.udp(100, BOB, ALICE, &response("180 Ringing", 1, "INVITE", "one", ""));
    packets.udp(2_100, ALICE, BOB, &request("CANCEL", 1, "one", "", "").replace("1CANCEL", "1INVITE"));
    packets.udp(2_110, BOB, ALICE, &response("200 OK", 1, "CANCEL", "one", "").replace("1CANCEL", "1INVITE"));
    packets.udp(2_120, BOB, ALICE, &response("487 Request Terminated", 1, "INVITE", "one", ""));
    packets.udp(2_125, ALICE, BOB, &request("ACK", 1, "one", IN_DIALOG, "").replace("1ACK", "1INVITE"));
    packets.finish()
}

#[test]
fn the_ringing_time_before_a_cancel_is_kept() {
    let replay = Replay::new(&cancelled(), &options(ReplaySides::Both)).run(120);
    assert_eq!(replay.trace(), "0>INVITE 100<180 2100>CANCEL 2110<200 2120<487 2120>ACK");
    assert_eq!((replay.meter().began.carried, replay.differs()), (1, Vec::<String>::new()));
    let (invite, cancel) = (replay.sent("INVITE")[0], replay.sent("CANCEL")[0]);
    let line = |text: &str, name: &str| text.lines().find(|line| line.starts_with(name)).map(str::to_owned);
    assert_eq!(line(invite, "Via:"), line(cancel, "Via:"));
    // The ringing comes later, and so does the CANCEL.
    let late = Replay::new(&cancelled(), &options(ReplaySides::Caller)).against(|request| match request {
        text if text.starts_with("INVITE") => vec![(1_000, answer(text, "180 Ringing", ""))],
        text if text.starts_with("CANCEL") => {
            let ended = answer(text, "487 Request Terminated", "").replace("1 CANCEL", "1 INVITE");
            vec![(0, ended), (5, answer(text, "200 OK", ""))]
        }
        _ => Vec::new(),
    });
    assert_eq!(late.run(120).trace(), "0>INVITE 1000<180 3000>CANCEL 3000<487 3000>ACK 3005<200");
}

#[test]
fn unexpected_answers_are_counted_and_the_call_ends_properly() {
    let answering = |status: &'static str| {
        move |request: &str| {
            let contact = "Contact: <sip:bob@127.0.0.1:5070>\r\n";
            let is_ack = request.starts_with("ACK");
            let status = if request.starts_with("INVITE") { status } else { "200 OK" };
            if is_ack { Vec::new() } else { vec![(10, answer(request, status, contact))] }
        }
    };
    // Recorded as 200, rejected in the replay.
    let refused =
        Replay::new(&one_call(), &options(ReplaySides::Caller)).against(answering("503 Service Unavailable")).run(60);
    assert_eq!(refused.trace(), "0>INVITE 10<503 10>ACK");
    assert_eq!(refused.differs(), ["INVITE 200>503 1"]);
    let why: Vec<_> = refused.meter().failures.iter().map(|(ending, count)| format!("{ending}: {count}")).collect();
    assert_eq!(why, ["refused with 503: 1"]);
    // Recorded as 487, answered in the replay before it is cancelled.
    let surprised = Replay::new(&cancelled(), &options(ReplaySides::Caller)).against(answering("200 OK")).run(60);
    assert_eq!(surprised.trace(), "0>INVITE 10<200 10>ACK 10>BYE 20<200");
    assert_eq!((surprised.differs(), surprised.meter().began.failed), (vec!["INVITE 487>200 1".to_owned()], 1));
    // The status class is the same, so the call continues.
    let accepted = Replay::new(&one_call(), &options(ReplaySides::Caller)).against(answering("202 Accepted")).run(60);
    assert_eq!(accepted.trace(), "0>INVITE 10<202 30>ACK 5030>BYE 5040<200");
    assert_eq!((accepted.differs(), accepted.meter().began.carried), (vec!["INVITE 200>202 1".to_owned()], 1));
}

/// Returns a capture of a call that bob hangs up.
fn hung_up_by_bob() -> Vec<u8> {
    let mut packets = Packets::pcap(1);
    packets.udp(0, ALICE, BOB, &request("INVITE", 1, "one", "", SDP));
    packets.udp(1_000, BOB, ALICE, &response("200 OK", 1, "INVITE", "one", ""));
    packets.udp(1_500, BOB, ALICE, &response("200 OK", 1, "INVITE", "one", ""));
    packets.udp(1_510, ALICE, BOB, &request("ACK", 1, "one", IN_DIALOG, ""));
    let bye = "BYE sip:alice@10.0.0.1:5060 SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.9:5060;branch=z9hG4bKb\r\nMax-Forwards: 70\r\n\
               From: <sip:bob@10.0.0.9>;tag=callee\r\nTo: <sip:alice@10.0.0.1>;tag=caller\r\nCall-ID: one\r\nCSeq: 7 BYE\r\n\
               Reason: SIP;cause=200\r\nContent-Length: 0\r\n\r\n";
    packets.udp(4_510, BOB, ALICE, bye);
    let ok = "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 10.0.0.9:5060;branch=z9hG4bKb\r\nFrom: <sip:bob@10.0.0.9>;tag=callee\r\n\
              To: <sip:alice@10.0.0.1>;tag=caller\r\nCall-ID: one\r\nCSeq: 7 BYE\r\nContent-Length: 0\r\n\r\n";
    packets.udp(4_530, ALICE, BOB, ok);
    packets.finish()
}

#[test]
fn the_callee_hangs_up_as_recorded() {
    let replay = Replay::new(&hung_up_by_bob(), &options(ReplaySides::Both)).run(60);
    // 510 ms to the ACK in the recording, where the 200 had to be retransmitted.
    assert_eq!(replay.trace(), "0>INVITE 1000<200 1510>ACK 4510<BYE 4530>200");
    let bye = replay.sent("BYE")[0];
    assert!(bye.contains("Reason: SIP;cause=200\r\n") && bye.contains("From: <sip:bob@127.0.0.1>;tag="), "{bye}");
    assert!(bye.starts_with("BYE sip:alice@127.0.0.1:40000;transport=UDP SIP/2.0\r\n"), "{bye}");
    assert_eq!(replay.meter().began.carried, 1);
}

#[test]
fn a_call_without_a_bye_is_hung_up() {
    let server = |request: &str| match request {
        text if text.starts_with("ACK") => Vec::new(),
        text => vec![(0, answer(text, "200 OK", "Contact: <sip:bob@127.0.0.1:5070>\r\n"))],
    };
    // The recorded BYE does not come: alice hangs up half a second later.
    let replay = Replay::new(&hung_up_by_bob(), &options(ReplaySides::Caller)).against(server).run(60);
    assert_eq!(replay.trace(), "0>INVITE 0<200 510>ACK 4010>BYE 4010<200");
    assert_eq!((replay.differs(), replay.meter().began.carried), (vec!["BYE 0>0 1".to_owned()], 1));
    // The capture ends before the call does.
    let mut packets = Packets::pcap(1);
    packets.udp(0, ALICE, BOB, &request("INVITE", 1, "one", "", SDP));
    packets.udp(1_000, BOB, ALICE, &response("200 OK", 1, "INVITE", "one", ""));
    packets.udp(1_010, ALICE, BOB, &request("ACK", 1, "one", IN_DIALOG, ""));
    packets.udp(9_000, ALICE, BOB, &request("OPTIONS", 1, "other", "", ""));
    let replay = Replay::new(&packets.finish(), &options(ReplaySides::Caller)).against(server).run(60);
    assert!(replay.trace().ends_with("0<200 10>ACK 8000>BYE 8000<200 9000>OPTIONS 9000<200"), "{}", replay.trace());
}

#[test]
fn calls_cut_by_the_capture_stay_open_until_its_end() {
    let mut packets = Packets::pcap(1);
    packets.udp(0, ALICE, BOB, &request("INVITE", 1, "ringing", "", SDP));
    packets.udp(100, BOB, ALICE, &response("180 Ringing", 1, "INVITE", "ringing", ""));
    packets.udp(1_000, ALICE, BOB, &request("INVITE", 1, "alone", "", SDP));
    packets.udp(50_000, ALICE, BOB, &request("MESSAGE", 1, "last", "", ""));
    packets.udp(50_010, BOB, ALICE, &response("200 OK", 1, "MESSAGE", "last", ""));
    let bytes = packets.finish();
    let replay = Replay::new(&bytes, &options(ReplaySides::Both)).run(120);
    // Without ringing, the caller would have given up after 32 s.
    let wanted = "0>INVITE 100<180 1000>INVITE 29000<480 29000>ACK 50000>MESSAGE 50010<480 50010>ACK 50010<200";
    let mut trace: Vec<_> = replay.trace.iter().map(String::as_str).collect();
    let mut wanted: Vec<_> = wanted.split(' ').collect();
    trace.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(trace, wanted);
    assert_eq!((replay.meter().began.carried, replay.meter().began.failed), (3, 0));
    assert_eq!((replay.meter().compared.same, replay.differs()), (1, Vec::<String>::new()));
    // A server may also reject them.
    let refuses = |request: &str| match request {
        text if text.starts_with("ACK") => Vec::new(),
        text => vec![(7, answer(text, if text.starts_with("MESSAGE") { "200 OK" } else { "404 Not Found" }, ""))],
    };
    let replay = Replay::new(&bytes, &options(ReplaySides::Caller)).against(refuses).run(120);
    assert_eq!((replay.meter().began.carried, replay.differs()), (3, Vec::<String>::new()));
}

#[test]
fn a_prack_uses_the_numbers_of_the_run() {
    let mut packets = Packets::pcap(1);
    packets.udp(0, ALICE, BOB, &request("INVITE", 1, "one", "Supported: 100rel\r\n", SDP));
    let early = response("183 Session Progress", 1, "INVITE", "one", "Require: 100rel\r\nRSeq: 77\r\n");
    packets.udp(100, BOB, ALICE, &early);
    packets.udp(150, ALICE, BOB, &request("PRACK", 2, "one", "X-Mark: to-tag\r\nRAck: 77 1 INVITE\r\n", ""));
    packets.udp(160, BOB, ALICE, &response("200 OK", 2, "PRACK", "one", ""));
    packets.udp(900, BOB, ALICE, &response("200 OK", 1, "INVITE", "one", ""));
    packets.udp(910, ALICE, BOB, &request("ACK", 1, "one", IN_DIALOG, ""));
    packets.udp(1_910, ALICE, BOB, &request("BYE", 3, "one", IN_DIALOG, ""));
    packets.udp(1_920, BOB, ALICE, &response("200 OK", 3, "BYE", "one", ""));
    let bytes = packets.finish();
    let replay = Replay::new(&bytes, &options(ReplaySides::Both)).run(60);
    assert_eq!(replay.trace(), "0>INVITE 100<183 150>PRACK 160<200 900<200 910>ACK 1910>BYE 1920<200");
    assert!(replay.sent("PRACK")[0].contains("RAck: 77 1 INVITE\r\n"));
    assert_eq!((replay.meter().began.carried, replay.meter().compared.same), (1, 3));
    // A server that sends no reliable responses gets no PRACK.
    let plain = Replay::new(&bytes, &options(ReplaySides::Caller)).against(|request| match request {
        text if text.starts_with("INVITE") => {
            let contact = "Contact: <sip:bob@127.0.0.1:5070>\r\n";
            vec![(40, answer(text, "180 Ringing", contact)), (60, answer(text, "200 OK", contact))]
        }
        text if text.starts_with("ACK") => Vec::new(),
        text => vec![(5, answer(text, "200 OK", ""))],
    });
    assert_eq!(plain.run(60).trace(), "0>INVITE 40<180 60<200 70>ACK 1070>BYE 1075<200");
}

#[test]
fn retransmissions_are_played_once_and_counted() {
    let mut packets = Packets::pcap(1);
    let invite = request("INVITE", 1, "one", "", SDP);
    for ms in [0, 500, 1_500] {
        packets.udp(ms, ALICE, BOB, &invite);
    }
    packets.udp(1_600, BOB, ALICE, &response("404 Not Found", 1, "INVITE", "one", ""));
    packets.udp(1_601, ALICE, BOB, &request("ACK", 1, "one", IN_DIALOG, ""));
    // The rest of a call that began before the capture.
    packets.udp(2_000, ALICE, BOB, &request("BYE", 5, "before", IN_DIALOG, ""));
    packets.udp(2_001, BOB, ALICE, &response("200 OK", 5, "BYE", "before", ""));
    let bytes = packets.finish();
    let capture = Capture::parse("test.pcap", &bytes).expect("a capture");
    let (_, about) = options(ReplaySides::Caller).plan_of(&capture).expect("a plan");
    let skipped = |reason: Reason| {
        let name = format!("skipped {}", reason.text());
        about.declared.iter().find(|(said, _)| *said == name).map(|(_, count)| count.clone())
    };
    assert_eq!(skipped(Reason::Repeated).as_deref(), Some("2"), "{about:?}");
    assert_eq!(skipped(Reason::NoBeginning).as_deref(), Some("2"), "{about:?}");
    let replay = Replay::new(&bytes, &options(ReplaySides::Caller))
        .against(|request| match request.starts_with("INVITE") {
            true => vec![(20, answer(request, "404 Not Found", ""))],
            false => Vec::new(),
        })
        .run(60);
    assert_eq!(replay.trace(), "0>INVITE 20<404 20>ACK");
    assert_eq!(replay.meter().began.carried, 1);
}

#[test]
fn an_unusable_capture_is_rejected_with_a_hint() {
    let capture = |bytes: &[u8]| Capture::parse("test.pcap", bytes).expect("a capture");
    let error = |options: &strowger_traffic::replay::ReplayOptions, bytes: &[u8]| {
        options.plan_of(&capture(bytes)).expect_err("refused").to_string()
    };
    let mut none = Packets::pcap(1);
    none.udp(0, ALICE, BOB, "\x16\x03\x01 no SIP");
    let text = error(&options(ReplaySides::Caller), &none.finish());
    assert!(text.contains("no call that can be replayed") && text.contains("1 payloads that are not SIP"), "{text}");
    let mut nowhere = options(ReplaySides::Caller);
    nowhere.to = None;
    assert!(error(&nowhere, &one_call()).contains("--to"));
    let mut slow = options(ReplaySides::Caller);
    slow.speed = 0.0;
    assert!(error(&slow, &one_call()).contains("--speed"));
    let mut others = options(ReplaySides::Caller);
    others.callers = vec!["10.0.0.7".parse().expect("an address")];
    assert!(
        error(&others, &one_call()).contains("7 messages of callers that were not selected"),
        "{}",
        error(&others, &one_call())
    );
    assert!(Capture::parse("x", b"neither").expect_err("refused").0.contains("neither pcap nor pcapng"));
}
