//! Memory for a call in progress, and after its end until its timers expire.

#[path = "support/mod.rs"]
mod support;

use strowger_allocations::{CountingAllocator, live, live_after};
use support::{ALICE, BOB, World};

/// Maximum for a call in progress, in bytes: INVITE on both sides, ringing.
const IN_PROGRESS: usize = 2700;
/// Maximum for an ended call, in bytes: until its timers expire, retransmissions are answered.
const OVER: usize = 800;
/// Maximum for an answered REGISTER, in bytes: nearly all of the response is rebuilt from the retransmission.
const REGISTERED: usize = 130;
/// Not a power of two, so that the tables' reserve counts too.
const CALLS: usize = 6_000;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const BODY: &str = "v=0\r\no=alice 53655765 2353687637 IN IP4 192.0.2.10\r\ns=-\r\nc=IN IP4 192.0.2.10\r\nt=0 0\r\n\
                    m=audio 6000 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n";

/// A request of Alice as phones write it.
fn request(method: &str, number: usize, cseq: u32, to_tag: &str, route: &str, body: &str) -> String {
    let uri = if route.is_empty() { "sip:bob@example.com".to_owned() } else { format!("sip:bob@{BOB}") };
    format!(
        "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bK-{method}-{number}\r\n{route}Max-Forwards: 70\r\n\
         From: \"Alice\" <sip:alice@example.com>;tag=a{number}\r\nTo: <sip:bob@example.com>{to_tag}\r\n\
         Call-ID: 843817637684230-{number}@192.0.2.10\r\nCSeq: {cseq} {method}\r\nContact: <sip:alice@{ALICE}>\r\n\
         User-Agent: a phone\r\nAllow: INVITE, ACK, BYE, CANCEL, OPTIONS\r\nContent-Type: application/sdp\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn world() -> World {
    let mut world = World::new(|_| ());
    world.is_checked = false;
    assert_eq!(world.register("bob", BOB, &format!("<sip:bob@{BOB}>")).status(), 200);
    world
}

/// Sets up a call as far as ringing; returns the INVITE that reached Bob.
fn ring(world: &mut World, number: usize) -> support::SentMessage {
    let sent = world.input(ALICE, &request("INVITE", number, 1, "", "", BODY));
    let invite = support::find(&sent, "INVITE");
    let contact = format!("Contact: <sip:bob@{BOB}>\r\n");
    assert_eq!(world.input(BOB, &invite.response(180, "Ringing", ";tag=b", &contact)).len(), 1);
    invite
}

/// Answers and ends it.
fn finish(world: &mut World, number: usize, invite: &support::SentMessage) {
    let contact = format!("Contact: <sip:bob@{BOB}>\r\n");
    let answer = world.input(BOB, &invite.response(200, "OK", ";tag=b", &contact)).remove(0);
    let route = format!("Route: {}\r\n", answer.header("Record-Route").expect("stays on the path"));
    assert_eq!(world.input(ALICE, &request("ACK", number, 1, ";tag=b", &route, "")).len(), 1);
    let bye = world.input(ALICE, &request("BYE", number, 2, ";tag=b", &route, "")).remove(0);
    assert_eq!(support::finals(&world.input(BOB, &bye.response(200, "OK", "", ""))), [200]);
}

/// A single test, because the allocator counts for all threads.
#[test]
fn calls_are_small() {
    let mut ringing = world();
    drop(ring(&mut ringing, CALLS));
    let ((), bytes) = live_after(|| (0..CALLS).for_each(|number| drop(ring(&mut ringing, number))));
    let each = bytes / CALLS;
    assert!(each <= IN_PROGRESS, "{each} bytes for a call in progress");
    drop(ringing);

    let mut over = world();
    let invite = ring(&mut over, CALLS);
    finish(&mut over, CALLS, &invite);
    drop(invite);
    let ((), bytes) = live_after(|| {
        for number in 0..CALLS {
            let invite = ring(&mut over, number);
            finish(&mut over, number, &invite);
        }
    });
    let each = bytes / CALLS;
    assert!(each <= OVER, "{each} bytes for a call that is over");
}

/// A refresh of an existing binding as phones send it.
#[test]
fn answered_registers_are_smaller_than_their_answers() {
    let mut world = world();
    let mut answered = 0;
    let mut refresh = |world: &mut World, number: usize| {
        let text = format!(
            "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bK-register-{number};rport\r\n\
             Max-Forwards: 70\r\nFrom: \"Alice\" <sip:alice@example.com>;tag=a{number}\r\nTo: \"Alice\" <sip:alice@example.com>\r\n\
             Call-ID: 1j9FpLxk3uxtm8tn@192.0.2.10\r\nCSeq: {number} REGISTER\r\nContact: <sip:alice@{ALICE};transport=udp>\r\n\
             Expires: 3600\r\nUser-Agent: a phone\r\nContent-Length: 0\r\n\r\n"
        );
        let answer = world.input(ALICE, &text).remove(0);
        assert_eq!(answer.status(), 200, "{}", answer.text);
        answered = answer.text.len();
    };
    refresh(&mut world, 1);
    let ((), bytes) = live_after(|| (2..CALLS + 2).for_each(|number| refresh(&mut world, number)));
    let each = bytes / CALLS;
    assert!(each <= REGISTERED, "{each} bytes for an answer of {answered}");
}

/// Memory follows load: what a peak used is free again once its timers have ended, except for the capacity of hash
/// tables and queues.
#[test]
fn memory_of_a_call_peak_is_freed() {
    let mut world = world();
    let invite = ring(&mut world, CALLS);
    finish(&mut world, CALLS, &invite);
    world.settle();
    let before = live();
    let (invites, most) = live_after(|| (0..CALLS).map(|number| ring(&mut world, number)).collect::<Vec<_>>());
    for (number, invite) in invites.iter().enumerate() {
        finish(&mut world, number, invite);
    }
    drop(invites);
    world.settle();
    // What the first call has left may be freed too.
    let left = live().saturating_sub(before);
    assert!(left <= most / 4, "{left} bytes of {most} are left");
}
