//! Selecting a target and counting its load allocate nothing.

use strowger_allocations::{CountingAllocator, allocations_of};
use strowger_balancer::{
    Advice, Candidates, Member, MemberOrder, MethodClass, Policy, SelectionInput, Set, SetConfig, Target,
};
use strowger_foundation::Timestamp;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn nothing(_: usize) -> Advice {
    Advice::Neutral
}

#[test]
fn selecting_and_counting_a_request_allocates_nothing() {
    for (policy, candidates) in Policy::ALL.into_iter().flat_map(|policy| Candidates::ALL.map(|two| (policy, two))) {
        let member = |number| Member {
            weight: number,
            priority: number / 30,
            capacity: Some(100),
            ..Member::new(Target::new("pool", format!("sip:192.0.2.{number}").as_bytes()))
        };
        let config = SetConfig { name: "pool".into(), policy, candidates, ..SetConfig::default() };
        let set = Set::new(config, (1..=40).map(member).collect()).expect("valid");
        let mut order = MemberOrder::new();

        let ((), count) = allocations_of(|| {
            for draw in 0..100 {
                let call_id = b"a84b4c76e66710@198.51.100.7";
                let now = Timestamp::from_millis(draw);
                let pick = SelectionInput {
                    now,
                    call_id,
                    key: call_id,
                    random: draw,
                    begins_call: true,
                    limit: usize::MAX,
                    advice: &nothing,
                };
                set.select(&pick, &mut order);
                assert_eq!(order.len(), 4);
                let call_guard = set.begin_call(order[0]);
                let mut work = set.begin_request(order[0], now, MethodClass::Invite).expect("a member");
                work.handle_provisional(now, 180);
                work.handle_final(now);
                assert!(set.candidates(call_id).iter().all(Option::is_some));
                drop(call_guard);
            }
        });
        assert_eq!(count, 0, "{policy}");
    }
}
