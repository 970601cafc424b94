//! A million bindings that all end within one minute: no step does much, neither while they come nor while they go, all of them
//! go in time, and the memory is given back.
#![allow(unsafe_code, reason = "an allocator that counts cannot be written otherwise")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use smallvec::SmallVec;
use strowger_foundation::{Flow, ListenerId, ShardId, Timestamp, Transport};
use strowger_message::Uri;
use strowger_registrar::{ContactUpdate, Locations, Policy, Source, Supported, Update, UpdateKind};

struct Counting;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static TAKEN: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.set(LIVE.get().wrapping_add(layout.size()));
        TAKEN.set(TAKEN.get().wrapping_add(layout.size()));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get().wrapping_sub(layout.size()));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BINDINGS: u32 = 1_000_000;
/// Two workers'.
const STRIPES: u16 = 32;
/// Stripes that are filled: a debug build is slow, and they are alike.
const FILLED: u16 = if cfg!(debug_assertions) { 2 } else { STRIPES };
/// Bindings that one step lets go, as a shard's does.
const BATCH: usize = 64;
/// Bytes that one step may take to make its tables smaller: what it moves is no more.
const STEP_BYTES: usize = 1024 * 1024;
/// Bytes that adding one binding may take, of which its text is the least: what it moves is no more.
const GROWTH_BYTES: usize = 64 * 1024;
/// The minute in which all of them end.
const BEGIN_MS: u64 = 3_600_000;

/// Whether it is in one of the stripes that are filled.
fn register(locations: &Locations, number: u32) -> bool {
    let (aor, uri) = (format!("u{number:07}@sip.example.com"), format!("sip:u{number:07}@192.0.2.1:5060;transport"));
    if locations.shard_of(aor.as_bytes()).0 >= FILLED {
        return false;
    }
    let contact = ContactUpdate {
        uri: Uri::parse(uri.as_bytes()).expect("a URI"),
        expires_s: Some(3600 + number % 60),
        q: None,
        instance: b"",
        reg_id: None,
    };
    let update = Update {
        call_id: b"7a1f9c64-3d22-4a9e@192.0.2.1",
        cseq: 1,
        path: SmallVec::new(),
        supported: Supported::default(),
        first_hop: true,
        kind: UpdateKind::Contacts([contact].into_iter().collect()),
    };
    let flow = Flow::new(ListenerId(0), Transport::Udp, "192.0.2.1:5060".parse().expect("an address"));
    let source = Source { flow, via_sent_by_matches: true };
    locations.apply(Timestamp::ZERO, aor.as_bytes(), &Policy::default(), &source, &update).expect("taken");
    true
}

#[test]
fn a_million_end_within_a_minute_in_small_steps() {
    let before = LIVE.get();
    let locations = Locations::new(STRIPES, 1);
    let mut growth = 0;
    let bindings = (0..BINDINGS).filter(|number| {
        TAKEN.set(0);
        let is_filled = register(&locations, *number);
        growth = growth.max(TAKEN.get());
        is_filled
    });
    let bindings = bindings.count();
    assert!(growth <= GROWTH_BYTES, "{growth} B for one binding more");
    let each = LIVE.get().saturating_sub(before) / bindings;
    assert!(each <= 250, "{each} B a binding");

    let (mut steps, mut worst) = (0usize, 0);
    for shard in (0..STRIPES).map(ShardId) {
        while let Some(now) = locations.next_deadline(shard) {
            assert!(now <= Timestamp::from_millis(BEGIN_MS + 60_000), "everything ends in time");
            TAKEN.set(0);
            let ended = locations.expire(now, shard, BATCH);
            assert!(ended <= BATCH);
            assert!(ended == 0 || now >= Timestamp::from_millis(BEGIN_MS), "nothing ends early");
            worst = worst.max(TAKEN.get());
            steps += 1;
        }
    }
    assert!(locations.is_empty());
    assert!(worst <= STEP_BYTES, "{worst} B in one step");
    assert!(steps < bindings / 8, "{steps} steps");
    let kept = LIVE.get().saturating_sub(before);
    assert!(kept < 1024 * 1024, "{kept} B kept");
}
