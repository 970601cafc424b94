//! Memory per binding, measured by a counting allocator.

#[path = "common/contact.rs"]
mod contact;

use strowger_allocations::{CountingAllocator, live, live_after};
use strowger_foundation::{ShardId, Timestamp};
use strowger_registrar::Locations;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const STRIPES: u16 = 16;

/// Registers user `number` with the reference contact: an address of record of 24 bytes and a URI of 40.
fn register(locations: &Locations, number: u32, peer: &str, expires_s: u32) {
    let aor = format!("u{number:08}@sip.example.com");
    let aor = aor.get(aor.len() - 24..).expect("24 bytes");
    let uri = format!("sip:u{number:08}@192.0.2.1:5060;transport=udp");
    let uri = uri.get(..40).expect("40 bytes");
    contact::register(locations, aor, uri, peer, expires_s);
}

#[test]
fn a_binding_stays_within_its_memory_budget_and_frees_it() {
    let before = live();
    let locations = Locations::new(STRIPES, 1);
    let empty = live();
    let ((), bytes) = live_after(|| {
        for number in 0..100_000 {
            register(&locations, number, "192.0.2.1:5060", 3600);
        }
    });
    assert_eq!(locations.len(), 100_000);
    let each = bytes / 100_000;
    assert!(each <= 205, "{each} B a binding, of which 64 are its text");

    for shard in 0..STRIPES {
        let now = Timestamp::from_millis(3_600_000);
        while locations.next_deadline(ShardId(shard)).is_some_and(|due| due <= now) {
            locations.expire(now, ShardId(shard), 50);
        }
    }
    assert!(locations.is_empty());
    let kept = live() - empty;
    assert!(kept < bytes / 100, "{kept} B kept of {bytes}");
    drop(locations);
    assert_eq!(live(), before, "nothing leaks");

    // The most expensive sizes are just after tables have doubled; NAT costs a second timer.
    for (count, peer, budget) in [(20_000, "192.0.2.1:5060", 215), (20_000, "198.51.100.1:5060", 290)] {
        let (_locations, bytes) = live_after(|| {
            let locations = Locations::new(STRIPES, 1);
            for number in 0..count {
                register(&locations, number, peer, 3600);
            }
            locations
        });
        let each = bytes / count as usize;
        assert!(each <= budget, "{count} bindings from {peer}: {each} B each");
    }
}
