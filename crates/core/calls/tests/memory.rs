//! Memory per call, measured with a counting allocator.

use strowger_allocations::{CountingAllocator, live, live_after};
use strowger_calls::{Calls, Limits};
use strowger_foundation::{Flow, ListenerId, TagKey, Timestamp, Transport};
use strowger_message::Message;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn begin(calls: &mut Calls, number: u32) {
    let invite = format!(
        "INVITE sip:bob{number:06}@example.com SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\n\
         Max-Forwards: 70\r\nFrom: <sip:al{number:06}@example.com>;tag=a\r\nTo: <sip:bob@example.com>\r\n\
         Call-ID: 7a1f9c64{number:08}@192.0.2.1\r\nCSeq: 1 INVITE\r\nContent-Length: 0\r\n\r\n"
    );
    let flow = Flow::new(ListenerId(0), Transport::Udp, "192.0.2.1:5060".parse().expect("an address"));
    let invite = Message::parse(invite.as_bytes()).expect("valid");
    calls.begin(Timestamp::ZERO, &invite, &flow).expect("noted");
}

#[test]
fn a_call_stays_within_its_memory_budget_and_frees_it() {
    let before = live();
    // The worst sizes are those just after tables have doubled.
    for (count, budget) in [(8_000, 250), (14_000, 250), (60_000, 250), (17_000, 275)] {
        let mut calls = Calls::new(&TagKey::new([7; 16]), Limits::default());
        let empty = live();
        let ((), bytes) = live_after(|| (0..count).for_each(|number| begin(&mut calls, number)));
        let each = bytes / count as usize;
        assert!(each <= budget, "{count} calls: {each} B each");
        while !calls.is_empty() {
            calls.handle_timeout(Timestamp::from_millis(13 * 3_600_000));
            while calls.poll_record().is_some() {}
        }
        // The timer wheel does not shrink.
        let kept = live() - empty;
        assert!(kept <= count as usize * 90, "{kept} B kept of {count} calls");
    }
    assert_eq!(live(), before, "nothing leaks");
}
