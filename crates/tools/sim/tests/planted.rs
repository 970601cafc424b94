//! Each planted bug is detected by the rule that it violates.

use strowger_sim::invariants::Rule;
use strowger_sim::mutant::Bug;
use strowger_sim::scenario::Scenario;
use strowger_sim::world::{Options, World};

/// Number of seeds within which a bug must be detected.
const SEEDS: u64 = 150;

fn assert_caught(scenario: fn(u64) -> Scenario, bug: Bug, rules: &[Rule]) {
    for seed in 0..SEEDS {
        let options = Options { bug: Some(bug), ..Options::default() };
        if let Some(violation) = World::run(&scenario(seed), seed, options).violation {
            assert!(rules.contains(&violation.rule), "{bug:?} breaks {rules:?}, but what was seen is {violation}");
            return;
        }
    }
    panic!("{bug:?} went unnoticed in {SEEDS} seeds");
}

macro_rules! catches {
    ($scenario:path: $($name:ident: $bug:ident => $($rule:ident)|+;)*) => {
        $(#[test]
        fn $name() {
            assert_caught($scenario, Bug::$bug, &[$(Rule::$rule),+]);
        })*
    };
}

catches! {
    Scenario::random:
    catches_an_ack_to_a_failure_that_goes_on: ForwardsFailureAck => AckAbsorbed;
    catches_an_ack_to_a_success_that_goes_nowhere: SwallowsSuccessAck => AckPassed;
    catches_a_response_without_to_tag: DropsToTag => ResponseUnchanged;
    catches_a_second_final_response: SecondFinal => OneFinalResponse;
    catches_a_repeated_2xx_that_is_dropped: DropsRepeatedSuccess => EverySuccess;
    catches_a_second_2xx_that_is_dropped: DropsSecondSuccess => EverySuccess;
    catches_a_request_forwarded_again: ForwardsAgain => ForwardedOnce;
    catches_an_edited_body: EditsBody => RequestUnchanged;
    catches_reordered_headers: ReordersHeaders => RequestUnchanged;
    catches_a_forgotten_cancel: ForgetsCancel => LosersCancelled;
    catches_timers_that_are_never_served: NeverTimesOut => InviteEnds | Quiescence | Registrar;
    catches_timers_that_stay_due: IgnoresTimeouts => Timers;
    catches_transactions_that_leak: StopsTimingOut => InviteEnds | Quiescence | Registrar;
    catches_a_408_to_a_non_invite: Answers408 => NonInviteResponses;
    catches_a_binding_that_outlives_its_expiry: KeepsExpired => Registrar;
    catches_a_register_out_of_order: AcceptsLowerCSeq => Registrar;
    catches_max_forwards_that_stays: KeepsMaxForwards => RequestUnchanged;
    catches_a_via_that_stays: KeepsVia => ResponseAddressed;
    catches_a_retransmission_without_answer: ForgetsReplay => Repeated;
    catches_a_response_to_the_wrong_address: IgnoresRport => ResponseAddressed;
    catches_a_next_step_while_the_first_still_rings: HurriesSteps => StepOrder | LosersCancelled;
    catches_a_next_step_that_comes_late: DelaysSteps => StepOrder | InviteEnds;
    catches_two_targets_that_are_left_ringing: LeavesBothRinging => LosersCancelled;
    catches_a_binding_that_outlives_its_connection: KeepsClosed => Registrar | InviteEnds;
    catches_a_failure_passed_up_before_the_second_target: TriesOneTarget => Failover;
    catches_a_silent_target_that_is_waited_for: WaitsForSilent => Failover;
    catches_a_dead_target_that_is_tried_first_again: ForgetsOutages => Avoided;
    catches_a_response_by_another_connection: AnswersAtAddress => ResponseAddressed;
    catches_a_request_that_is_repeated_on_a_stream: RepeatsOnStreams => Streams;
    catches_a_connection_that_is_not_opened_and_nobody_told: IgnoresUnconnected => InviteEnds;
    catches_a_cancelled_request_that_is_sent_once_its_name_is_known: SendsCancelled => NothingNew;
}

catches! {
    Scenario::durable:
    catches_a_sync_that_is_skipped: SkipsSync => Durable;
    catches_an_answer_before_the_sync: RepliesEarly => Durable;
    catches_a_torn_tail_that_counts: AcceptsTornTail => Durable;
    catches_a_removal_that_is_not_in_the_journal: ForgetsRemovals => Durable;
    catches_a_refresh_that_takes_other_bindings_away: DropsOthers => Durable;
    catches_a_binding_that_is_visible_before_it_is_kept: ShowsStaged => Registrar;
    catches_what_has_expired_and_comes_back: RestoresExpired => Durable;
    catches_expiries_by_the_wall_clock: TrustsWallClock => Durable;
    catches_a_failed_sync_that_counts: TrustsFailedSync => Durable;
    catches_segments_that_go_before_the_checkpoint_is_durable: RemovesSegmentsEarly => Durable;
}
