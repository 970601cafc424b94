//! The paths of every request do not allocate: name lookup and outage check.

use std::sync::Arc;
use std::time::Duration;

use strowger_allocations::{CountingAllocator, allocations_of};
use strowger_foundation::{Timestamp, Transport};
use strowger_locate::{
    CachePolicy, Candidate, CandidateList, Cause, DetectedBy, Hop, LocateQuery, Lookup, NameCache, Outages,
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn a_cached_name_is_ordered_without_allocating() {
    let names = NameCache::new(CachePolicy::default(), 1);
    let outages = Outages::new(1);
    let asked = LocateQuery::new(b"a-rather-long-name-of-a-host-in-a-zone.example.com", None, None, false);
    let hop = |last| Hop::new(Transport::Udp, ([192, 0, 2, last], 5060).into());
    let candidate = |last| Candidate { rank: 0, priority: 0, weight: 1, hops: [hop(last)].into_iter().collect() };
    let answer = Ok(Arc::new(CandidateList::new((0..4).map(candidate).collect())));
    names.insert(Timestamp::ZERO, &asked, answer, Duration::from_secs(60));
    outages.mark_failed(Timestamp::ZERO, hop(0), Duration::from_secs(60), Cause::Silent, DetectedBy::Call);
    let mut order = smallvec::SmallVec::new();

    let ((), count) = allocations_of(|| {
        for second in [1, 61, 61] {
            let now = Timestamp::from_millis(second * 1_000);
            let (Lookup::Fresh(Ok(located)) | Lookup::Stale(Ok(located))) = names.lookup(now, &asked) else {
                panic!("it is known");
            };
            located.order(second, |hop| outages.is_out(now, hop), &mut order);
            assert_eq!(order.len(), 4);
        }
    });
    assert_eq!(count, 0);
}
