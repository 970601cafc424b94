//! A million bindings that expire within one minute: no step takes long while they are added or removed, all of them
//! expire in time, and the memory is freed.

#[path = "common/contact.rs"]
mod contact;

use strowger_allocations::{CountingAllocator, live, taken_by};
use strowger_foundation::{ShardId, Timestamp};
use strowger_registrar::Locations;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const BINDINGS: u32 = 1_000_000;
/// The stripes of two workers.
const STRIPES: u16 = 32;
/// Number of filled stripes: a debug build is slow, and all stripes are alike.
const FILLED: u16 = if cfg!(debug_assertions) { 2 } else { STRIPES };
/// Maximum number of bindings removed per step, as in a shard.
const BATCH: usize = 64;
/// Maximum bytes allocated to shrink tables in one step, which bounds what it moves.
const STEP_BYTES: usize = 1024 * 1024;
/// Maximum bytes allocated to add one binding, which bounds what it moves; its text is the least part.
const GROWTH_BYTES: usize = 64 * 1024;
/// Start of the minute in which all of them expire.
const BEGIN_MS: u64 = 3_600_000;

/// Returns whether it is in one of the filled stripes.
fn register(locations: &Locations, number: u32) -> bool {
    let (aor, uri) = (format!("u{number:07}@sip.example.com"), format!("sip:u{number:07}@192.0.2.1:5060;transport"));
    if locations.shard_of(aor.as_bytes()).0 >= FILLED {
        return false;
    }
    contact::register(locations, &aor, &uri, "192.0.2.1:5060", 3600 + number % 60);
    true
}

#[test]
fn a_million_bindings_expire_in_small_steps() {
    let before = live();
    let locations = Locations::new(STRIPES, 1);
    let mut growth = 0;
    let bindings = (0..BINDINGS).filter(|number| {
        let (is_filled, bytes) = taken_by(|| register(&locations, *number));
        growth = growth.max(bytes);
        is_filled
    });
    let bindings = bindings.count();
    assert!(growth <= GROWTH_BYTES, "{growth} B for one binding more");
    let each = live().saturating_sub(before) / bindings;
    assert!(each <= 250, "{each} B a binding");

    let (mut steps, mut worst) = (0usize, 0);
    for shard in (0..STRIPES).map(ShardId) {
        while let Some(now) = locations.next_deadline(shard) {
            assert!(now <= Timestamp::from_millis(BEGIN_MS + 60_000), "everything ends in time");
            let (ended, bytes) = taken_by(|| locations.expire(now, shard, BATCH));
            assert!(ended <= BATCH);
            assert!(ended == 0 || now >= Timestamp::from_millis(BEGIN_MS), "nothing ends early");
            worst = worst.max(bytes);
            steps += 1;
        }
    }
    assert!(locations.is_empty());
    assert!(worst <= STEP_BYTES, "{worst} B in one step");
    assert!(steps < bindings / 8, "{steps} steps");
    let kept = live().saturating_sub(before);
    assert!(kept < 1024 * 1024, "{kept} B kept");
}
