//! A shard whose calls the same shard of another process takes over.

mod support;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use strowger_balancer::{Member, Set, SetConfig, Target};
use strowger_calls::{CallRecord, Reason};
use strowger_foundation::{ShardId, Timestamp};
use strowger_proxy::Stateless;
use strowger_shard::{Action, Event, ImportedState, Input, Route, RouteTarget, Snapshot, StateError, shard_of_state};
use support::{ALICE, BOB, RING_KEY, SERVER, SentMessage, World, destinations, finals, find, request};

const CALL_ID: &str = "call-1@alice";

fn world_with(edit: impl FnOnce(&mut Snapshot)) -> World {
    let mut world = World::new(|snapshot| {
        snapshot.track_calls = true;
        edit(snapshot);
    });
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    world
}

fn world() -> World {
    world_with(|_| {})
}

fn invite(world: &mut World) -> SentMessage {
    find(&world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", "")), "INVITE")
}

/// Bob answers after five seconds of ringing.
fn answer(world: &mut World, invite: &SentMessage, more: &str) {
    world.respond(invite, 180, "b", "");
    world.wait(Duration::from_secs(5));
    let headers = format!("Contact: <sip:bob@{BOB};ob>\r\n{more}");
    assert_eq!(finals(&world.respond(invite, 200, "b", &headers)), [200]);
}

fn bye(invite: &SentMessage) -> String {
    let route = invite.header("Record-Route").expect("recorded");
    request("BYE", &format!("sip:bob@{BOB}"), "bye", &format!("Route: {route}\r\n"))
        .replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=b")
        .replace("CSeq: 1", "CSeq: 2")
}

fn state_of(old: &mut World) -> Vec<u8> {
    let mut state = Vec::new();
    old.shard.export_state(&mut state);
    state
}

/// Lets `new` take over.
fn hand_over(old: &mut World, new: &mut World) -> ImportedState {
    let state = state_of(old);
    assert_eq!(shard_of_state(&state), Some(ShardId(0)));
    new.now = old.now;
    let imported = new.shard.import_state(new.now, &state).expect("what was written");
    assert!(new.drain().is_empty());
    assert!(old.give(Input::HandedOver).is_empty());
    imported
}

/// Gives `new` what `old` has set up since it was handed over; returns the number of calls.
fn follow(old: &mut World, new: &mut World) -> usize {
    let mut states = Vec::new();
    old.events.retain(|event| match event {
        Event::CallTransferred(state) => {
            states.push(state.clone());
            false
        }
        _ => true,
    });
    new.now = new.now.max(old.now);
    for state in &states {
        assert_eq!(shard_of_state(state), Some(ShardId(0)));
        assert!(new.give(Input::CallTransferred { state }).is_empty());
    }
    states.len()
}

fn records(world: &World) -> Vec<CallRecord> {
    let record = |event: &Event| if let Event::Call(record) = event { Some((**record).clone()) } else { None };
    world.events.iter().filter_map(record).collect()
}

fn listed(world: &World) -> Vec<String> {
    let mut list = Vec::new();
    world.shard.for_each_call(|view| list.push(format!("{view:?}")));
    list
}

fn seconds(from: Timestamp, to: Timestamp) -> u64 {
    to.saturating_since(from).as_secs()
}

#[test]
fn an_answered_call_goes_on_and_its_record_has_the_right_times() {
    let (mut old, mut new) = (world(), world());
    let invite = invite(&mut old);
    answer(&mut old, &invite, "");
    old.wait(Duration::from_secs(60));
    let before = listed(&old);
    let imported = hand_over(&mut old, &mut new);
    assert_eq!(imported, ImportedState { calls: 1, ..ImportedState::default() });
    assert_eq!((listed(&new), listed(&old)), (before, Vec::new()));
    new.wait(Duration::from_secs(40));
    let bye = find(&new.input(ALICE, &bye(&invite)), "BYE");
    assert_eq!(bye.to.to_string(), BOB);
    new.respond(&bye, 200, "", "");
    let record = records(&new).remove(0);
    let answered = record.answered.expect("answered");
    assert_eq!((seconds(record.began, answered), seconds(answered, record.ended)), (5, 100));
    assert_eq!((record.reason, record.target), (Reason::CallerHungUp, Some(BOB.parse().expect("an address"))));
    old.settle();
    new.settle();
    assert_eq!((records(&new).len(), records(&old).len()), (1, 0));
    let counters = new.shard.counters();
    assert_eq!((counters.calls, counters.calls_answered, counters.calls_ended), (1, 1, 1));
}

#[test]
fn an_operator_ends_a_call_of_the_other_process() {
    let (mut old, mut new) = (world(), world());
    let invite = invite(&mut old);
    answer(&mut old, &invite, "");
    let mut reference = state_of(&mut old);
    hand_over(&mut old, &mut new);
    let byes = new.give(Input::EndCall { call_id: CALL_ID.as_bytes() });
    assert_eq!(destinations(&byes, "BYE").len(), 2);
    let to_bob = byes.iter().find(|bye| bye.to.to_string() == BOB).expect("to Bob");
    assert_eq!(to_bob.start(), format!("BYE sip:bob@{BOB};ob SIP/2.0"));
    assert_eq!(to_bob.header("From"), Some("<sip:alice@example.com>;tag=a"));
    byes.iter().for_each(|bye| drop(new.respond(bye, 200, "", "")));
    assert_eq!(records(&new)[0].reason, Reason::EndedByOperator);
    assert!(old.give(Input::EndCall { call_id: CALL_ID.as_bytes() }).is_empty(), "it is not here any more");

    // Until it is handed over, everything goes on here.
    let mut third = world();
    assert!(third.shard.import_state(third.now, &reference).is_ok());
    reference.clear();
    assert_eq!(destinations(&third.give(Input::EndCall { call_id: CALL_ID.as_bytes() }), "BYE").len(), 2);
}

#[test]
fn calls_count_at_their_target_until_they_end() {
    let uri = format!("sip:{BOB}");
    let targets = || Target::new("pool", uri.as_bytes());
    let route = |target: &Arc<Target>| {
        let config = SetConfig { name: "pool".into(), ..SetConfig::default() };
        let set = Set::new(config, vec![Member::new(Arc::clone(target))]).expect("sound");
        let place = RouteTarget::at(uri.as_bytes(), BOB.parse().expect("an address"));
        Route::of_domain(b"*", Action::balance(Arc::new(set), vec![place], Stateless::Never))
    };
    let (before, after) = (targets(), targets());
    let mut old = world_with(|snapshot| snapshot.routes = vec![route(&before)]);
    let mut new = world_with(|snapshot| snapshot.routes = vec![route(&after)]);
    let call = request("INVITE", "sip:x@elsewhere.example", "inv", "");
    let invite = find(&old.input(ALICE, &call), "INVITE");
    answer(&mut old, &invite, "");
    assert_eq!((before.calls(), after.calls()), (1, 0));
    hand_over(&mut old, &mut new);
    assert_eq!((before.calls(), after.calls()), (0, 1));
    let bye = find(&new.input(ALICE, &bye(&invite).replace(&format!("sip:bob@{BOB}"), &uri)), "BYE");
    assert_eq!(after.calls(), 1, "the target has yet to respond");
    new.respond(&bye, 200, "", "");
    assert_eq!(after.calls(), 0);
    old.settle();
    new.settle();
}

#[test]
fn a_ringing_call_follows_when_it_is_answered() {
    let (mut old, mut new) = (world(), world());
    let invite = invite(&mut old);
    old.respond(&invite, 180, "b", "");
    assert_eq!(hand_over(&mut old, &mut new), ImportedState::default());
    assert_eq!((listed(&old).len(), follow(&mut old, &mut new)), (1, 0));
    answer(&mut old, &invite, "");
    assert_eq!((follow(&mut old, &mut new), listed(&old).len()), (1, 0));
    new.wait(Duration::from_secs(30));
    let bye = find(&new.input(ALICE, &bye(&invite)), "BYE");
    new.respond(&bye, 200, "", "");
    let record = records(&new).remove(0);
    let answered = record.answered.expect("answered");
    assert_eq!((seconds(record.began, answered), seconds(answered, record.ended)), (5, 30));
    // The callee repeats its 200; the call is not known here twice.
    old.respond(&invite, 200, "b", &format!("Contact: <sip:bob@{BOB}>\r\n"));
    assert_eq!(follow(&mut old, &mut new), 0);
    old.settle();
    assert!(records(&old).is_empty());
}

#[test]
fn a_call_that_is_answered_between_export_and_handover_follows_too() {
    let (mut old, mut new) = (world(), world());
    let invite = invite(&mut old);
    let state = state_of(&mut old);
    // The other process relays the answer before this one knows that it has been replaced.
    answer(&mut old, &invite, "");
    assert_eq!(old.events.len(), 0, "it stays here as long as the other process may fail");
    new.now = old.now;
    assert_eq!(new.shard.import_state(new.now, &state), Ok(ImportedState::default()));
    assert!(old.give(Input::HandedOver).is_empty());
    assert_eq!((follow(&mut old, &mut new), listed(&old).len(), listed(&new).len()), (1, 0, 1));
    old.settle();
}

#[test]
fn a_bye_that_overtakes_its_call_ends_it() {
    let (mut old, mut new) = (world(), world());
    let invite = invite(&mut old);
    hand_over(&mut old, &mut new);
    answer(&mut old, &invite, "");
    new.now = old.now + Duration::from_millis(2);
    let hung_up = new.now;
    let bye = find(&new.input(ALICE, &bye(&invite)), "BYE");
    new.respond(&bye, 200, "", "");
    assert!(records(&new).is_empty(), "no such call so far");
    new.now += Duration::from_millis(5);
    assert_eq!(follow(&mut old, &mut new), 1);
    let record = records(&new).remove(0);
    assert_eq!((record.reason, record.ended), (Reason::CallerHungUp, hung_up));
    assert!(listed(&new).is_empty());
}

#[test]
fn a_call_that_is_refused_has_its_record_where_it_was_set_up() {
    let (mut old, mut new) = (world(), world());
    let invite = invite(&mut old);
    hand_over(&mut old, &mut new);
    assert_eq!(finals(&old.respond(&invite, 486, "b", "")), [486]);
    assert_eq!(follow(&mut old, &mut new), 0);
    assert_eq!((records(&old)[0].reason, records(&old)[0].status), (Reason::Rejected, Some(486)));
    old.settle();
    new.settle();
    assert!(records(&new).is_empty());
}

#[test]
fn a_challenged_caller_retries_at_the_other_process() {
    let (mut old, mut new) = (world(), world());
    let first = invite(&mut old);
    let began = old.now;
    hand_over(&mut old, &mut new);
    assert_eq!(
        finals(&old.respond(&first, 407, "b", "Proxy-Authenticate: Digest realm=\"r\", nonce=\"n\"\r\n")),
        [407]
    );
    assert_eq!(follow(&mut old, &mut new), 1);
    new.now += Duration::from_secs(1);
    let again = request("INVITE", "sip:bob@example.com", "again", "").replace("CSeq: 1", "CSeq: 2");
    let again = find(&new.input(ALICE, &again), "INVITE");
    assert_eq!(listed(&new).len(), 1, "the same call");
    new.respond(&again, 486, "b", "");
    assert_eq!((records(&new)[0].began, records(&new)[0].status), (began, Some(486)));
    new.settle();
    old.settle();
    assert_eq!((records(&new).len(), records(&old).len()), (1, 0));
}

#[test]
fn a_session_timer_ends_a_call_of_the_other_process_in_time() {
    let (mut old, mut new) = (world(), world());
    let invite = invite(&mut old);
    answer(&mut old, &invite, "Session-Expires: 600;refresher=uas\r\n");
    old.wait(Duration::from_secs(100));
    hand_over(&mut old, &mut new);
    new.wait(Duration::from_secs(700));
    let record = records(&new).remove(0);
    assert_eq!(record.reason, Reason::SessionExpired);
    assert_eq!(seconds(record.answered.expect("answered"), record.ended), 600);
    old.wait(Duration::from_secs(700));
    assert!(records(&old).is_empty());
}

#[test]
fn a_call_that_an_operator_is_ending_stays_until_its_parties_have_responded() {
    let (mut old, mut new) = (world(), world());
    let invite = invite(&mut old);
    answer(&mut old, &invite, "");
    let byes = old.give(Input::EndCall { call_id: CALL_ID.as_bytes() });
    assert_eq!(hand_over(&mut old, &mut new).calls, 0);
    byes.iter().for_each(|bye| drop(old.respond(bye, 200, "", "")));
    assert_eq!(records(&old)[0].reason, Reason::EndedByOperator);
    assert_eq!((follow(&mut old, &mut new), listed(&new).len()), (0, 0));
    old.settle();
}

#[test]
fn a_state_of_another_version_shard_or_key_is_refused_with_the_reason() {
    let mut old = world();
    let invite = invite(&mut old);
    answer(&mut old, &invite, "");
    let state = state_of(&mut old);
    let refusal = |edit: &dyn Fn(&mut Vec<u8>)| {
        let (mut new, mut state) = (world(), state.clone());
        edit(&mut state);
        let refusal = new.shard.import_state(old.now, &state).expect_err("it is not readable here");
        assert!(listed(&new).is_empty());
        refusal
    };
    assert_eq!(refusal(&|state| state[0] = 2), StateError::UnknownVersion(2));
    assert_eq!(
        StateError::UnknownVersion(2).to_string(),
        "the calls of the other process are in form 2, and this program reads forms up to 1"
    );
    assert_eq!(refusal(&|state| state[2] = 5), StateError::OtherShard(ShardId(5)));
    assert_eq!(refusal(&|state| state[3] ^= 1), StateError::OtherKey);
    assert_eq!(refusal(&|state| state.truncate(20)), StateError::Malformed);
    assert_eq!(refusal(&|state| state.push(0)), StateError::Malformed);
    let mut stranger = World::with_key([8; 16], |snapshot| snapshot.track_calls = true);
    assert_ne!(RING_KEY, [8; 16]);
    assert_eq!(stranger.shard.import_state(old.now, &state), Err(StateError::OtherKey));
    stranger.now = old.now;
    assert!(stranger.give(Input::CallTransferred { state: &state }).is_empty());
    assert_eq!(stranger.events, [Event::CallNotTaken { reason: StateError::OtherKey }]);
}

#[test]
fn calls_are_dropped_and_counted_where_none_are_tracked() {
    let mut old = world();
    let invite = invite(&mut old);
    answer(&mut old, &invite, "");
    let mut new = world_with(|snapshot| snapshot.track_calls = false);
    let imported = new.shard.import_state(old.now, &state_of(&mut old));
    assert_eq!(imported, Ok(ImportedState { refused: 1, ..ImportedState::default() }));
    // The call itself goes on.
    new.now = old.now;
    assert_eq!(find(&new.input(ALICE, &bye(&invite)), "BYE").to.to_string(), BOB);
    assert_ne!(BOB, SERVER);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_state_panics(edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6), end in any::<prop::sample::Index>()) {
        let mut old = world();
        let invite = invite(&mut old);
        answer(&mut old, &invite, "");
        let mut state = state_of(&mut old);
        for (place, byte) in edits {
            let place = place.index(state.len());
            state[place] = byte;
        }
        state.truncate(end.index(state.len() + 1));
        let mut new = world();
        new.now = old.now;
        let _ = new.shard.import_state(new.now, &state);
        new.drain();
        new.wait(Duration::from_secs(60));
    }
}
