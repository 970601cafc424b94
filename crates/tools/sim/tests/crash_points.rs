//! A power failure at every disk operation.

use strowger_sim::crash_points::{Report, run};
use strowger_sim::mutant::Bug;

#[test]
fn acknowledged_data_survives_any_power_failure() {
    let report = run(None).expect("all that was promised is there");
    let Report { operations, crashes, distinct, again, bindings, gruus } = report;
    assert!(operations > 100 && crashes > 2000 && distinct > 700, "{report:?}");
    assert!(again > 1000 && bindings > distinct && gruus > distinct, "{report:?}");
}

macro_rules! catches {
    ($($name:ident: $bug:ident;)*) => {
        $(#[test]
        fn $name() {
            let caught = run(Some(Bug::$bug)).err();
            let after_a_crash = caught.as_ref().is_some_and(|why| why.contains("before operation"));
            assert!(after_a_crash, "{:?} went unnoticed: {caught:?}", Bug::$bug);
        })*
    };
}

catches! {
    catches_a_sync_that_is_skipped: SkipsSync;
    catches_an_answer_before_the_sync: RepliesEarly;
    catches_a_torn_tail_that_counts: AcceptsTornTail;
    catches_a_removal_that_is_not_in_the_journal: ForgetsRemovals;
    catches_a_refresh_that_takes_other_bindings_away: DropsOthers;
    catches_what_has_expired_and_comes_back: RestoresExpired;
    catches_expiries_by_the_wall_clock: TrustsWallClock;
    catches_segments_that_go_before_the_checkpoint_is_durable: RemovesSegmentsEarly;
}
