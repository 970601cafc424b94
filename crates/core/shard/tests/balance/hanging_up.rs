//! When a call stops counting for its target: with the response to its BYE, or an equivalent event.

use strowger_locate::LocateError;
use strowger_proxy::MAX_QUESTIONS;
use strowger_shard::Event;

use super::*;

fn takers(world: &mut World, from: usize, count: usize) -> Vec<SocketAddr> {
    let take = |number| {
        let call = invite(world, number);
        world.respond(&call, 486, "b", "");
        call.to
    };
    (from..from + count).map(take).collect()
}

#[test]
fn a_target_with_a_pending_bye_keeps_its_call() {
    let targets = targets(2);
    let mut world = world(config(Policy::LeastCalls), &targets);
    let first = call(&mut world, 1);
    let bye = hang_up(&mut world, &first, 1);
    assert!(takers(&mut world, 100, 20).iter().all(|to| *to != first.to), "the other one has nothing to do");
    // A retransmission while the BYE is in progress.
    let again = in_dialog(&first, "BYE", 1, &format!("sip:{SERVER}"));
    assert_eq!(destinations(&world.input(ALICE, &again), "BYE"), [""; 0]);
    world.respond(&bye, 100, "", "");
    assert!(takers(&mut world, 200, 20).iter().all(|to| *to != first.to));
    assert_eq!(finals(&world.respond(&bye, 200, "b", "")), [200]);
    let takers = takers(&mut world, 300, 20);
    assert!(takers.contains(&first.to) && takers.iter().any(|to| *to != first.to), "both have nothing: {takers:?}");
    world.settle();
    assert_eq!(counts(&targets), [(0, 0); 2]);
}

#[test]
fn a_full_target_has_room_again_once_its_bye_is_answered() {
    let targets = targets(1);
    let member = Member { capacity: Some(1), ..Member::new(Arc::clone(&targets[0])) };
    let set = Set::new(config(Policy::LeastCalls), vec![member]).expect("sound");
    let action =
        Action::balance(Arc::new(set), vec![RouteTarget::at(uri(0).as_bytes(), calls_of(0))], Stateless::Never);
    let mut world = World::new(|snapshot| {
        snapshot.routes = vec![Route::of_domain(b"*", action)];
        snapshot.track_calls = true;
    });
    let first = call(&mut world, 1);
    let bye = hang_up(&mut world, &first, 1);
    assert_eq!(finals(&world.input(ALICE, &text("INVITE", 2, ""))), [503]);
    world.respond(&bye, 200, "b", "");
    invite(&mut world, 3);
    world.settle();
}

/// However a BYE ends, the call counts until then; its record ends when the BYE arrived.
#[test]
fn a_failed_bye_ends_its_call_too() {
    type End = fn(&mut World, &SentMessage);
    let ends: [(&str, End); 5] = [
        ("refused", |world, bye| drop(world.respond(bye, 481, "b", ""))),
        ("asked for credentials", |world, bye| drop(world.respond(bye, 407, "b", ""))),
        ("unavailable", |world, bye| drop(world.respond(bye, 503, "b", ""))),
        ("unreachable", |world, bye| drop(world.give(Input::Unreachable { peer: bye.to }))),
        ("silence", |world, _| drop(world.wait(Duration::from_secs(1)))),
    ];
    for (name, end) in ends {
        let targets = targets(1);
        let mut world = world(config(Policy::LeastCalls), &targets);
        let first = call(&mut world, 1);
        world.wait(Duration::from_secs(5));
        let bye = hang_up(&mut world, &first, 1);
        let records = |world: &World| world.events.iter().filter(|event| matches!(event, Event::Call(_))).count();
        assert_eq!(records(&world), 1, "{name}: its record does not wait");
        world.wait(Duration::from_secs(31));
        assert_eq!(counts(&targets), [(1, 1)], "{name}: not yet");
        end(&mut world, &bye);
        assert_eq!(counts(&targets), [(0, 0)], "{name}");
        // Another BYE for it ends nothing.
        let again =
            in_dialog(&first, "BYE", 1, &uri(0)).replace("z9hG4bK", "z9hG4bKagain").replace("CSeq: 2", "CSeq: 3");
        let again = find(&world.input(ALICE, &again), "BYE");
        assert_eq!(counts(&targets), [(0, 1)], "{name}");
        world.respond(&again, 200, "b", "");
        world.settle();
        assert_eq!((counts(&targets), records(&world)), (vec![(0, 0)], 1), "{name}");
    }
}

#[test]
fn a_target_that_hangs_up_frees_its_call_at_once() {
    let targets = targets(1);
    let mut world = world(config(Policy::LeastCalls), &targets);
    let first = call(&mut world, 1);
    assert_eq!(destinations(&world.input(&address(0), &callees_bye(&first)), "BYE"), [ALICE]);
    assert_eq!(counts(&targets), [(0, 0)], "whether or not the caller is there to answer");
    world.settle();
    assert_eq!(counts(&targets), [(0, 0)]);
}

#[test]
fn both_may_hang_up_at_once() {
    for is_callers_first in [true, false] {
        let targets = targets(1);
        let mut world = world(config(Policy::LeastCalls), &targets);
        let first = call(&mut world, 1);
        let (callers, callees) = if is_callers_first {
            let callers = hang_up(&mut world, &first, 1);
            (callers, find(&world.input(&address(0), &callees_bye(&first)), "BYE"))
        } else {
            let callees = find(&world.input(&address(0), &callees_bye(&first)), "BYE");
            (hang_up(&mut world, &first, 1), callees)
        };
        assert_eq!(counts(&targets), [(u32::from(is_callers_first), 1)]);
        world.respond(&callees, 481, "", "");
        assert_eq!(counts(&targets), [(u32::from(is_callers_first), 1)], "it has its own to answer yet");
        world.respond(&callers, 200, "", "");
        assert_eq!(counts(&targets), [(0, 0)]);
        world.settle();
        assert_eq!(counts(&targets), [(0, 0)]);
    }
}

/// RFC 3261 §15: a caller may end an early dialog by BYE. The call counts until its INVITE is answered, as with
/// CANCEL.
#[test]
fn a_bye_in_an_early_dialog_leaves_the_call_to_its_invite() {
    let targets = targets(1);
    let mut world = world(config(Policy::LeastCalls), &targets);
    let first = invite(&mut world, 1);
    world.respond(&first, 180, "b", "");
    let bye = hang_up(&mut world, &first, 1);
    assert_eq!(counts(&targets), [(1, 2)]);
    world.respond(&bye, 200, "b", "");
    assert_eq!(counts(&targets), [(1, 1)]);
    assert_eq!(finals(&world.respond(&first, 487, "b", "")), [487]);
    assert_eq!(counts(&targets), [(0, 0)]);

    // Of two dialogs of one INVITE, the first that is answered is the call.
    let forked = invite(&mut world, 2);
    world.respond(&forked, 180, "early", "");
    world.respond(&forked, 200, "b", "");
    let early =
        in_dialog(&forked, "BYE", 2, &uri(0)).replace(";tag=b", ";tag=early").replace("z9hG4bK", "z9hG4bKearly");
    let early = find(&world.input(ALICE, &early), "BYE");
    world.respond(&early, 481, "", "");
    assert_eq!(counts(&targets), [(1, 0)]);
    let bye = hang_up(&mut world, &forked, 2);
    world.respond(&bye, 200, "", "");
    assert_eq!(counts(&targets), [(0, 0)]);
    world.settle();
    assert_eq!(counts(&targets), [(0, 0)]);
}

/// The server would not see the response, or there is none.
#[test]
fn a_stateless_bye_frees_the_call_at_once() {
    let targets = targets(1);
    let mut world = world(config(Policy::LeastCalls), &targets);
    world.configure(|snapshot| snapshot.proxy.stateless = Stateless::Always);
    let first = call(&mut world, 1);
    hang_up(&mut world, &first, 1);
    assert_eq!(counts(&targets), [(0, 0)]);
    world.configure(|snapshot| snapshot.proxy.stateless = Stateless::Never);

    // A BYE that is refused here does not end the call; the next one does.
    let second = call(&mut world, 2);
    let spent = in_dialog(&second, "BYE", 2, &uri(0)).replace("Max-Forwards: 70", "Max-Forwards: 0");
    assert_eq!(finals(&world.input(ALICE, &spent)), [483]);
    assert_eq!(counts(&targets), [(1, 0)]);
    let bye = in_dialog(&second, "BYE", 2, &uri(0)).replace("z9hG4bK", "z9hG4bKagain");
    let bye = find(&world.input(ALICE, &bye), "BYE");
    world.respond(&bye, 200, "", "");
    world.settle();
    assert_eq!(counts(&targets), [(0, 0)]);
}

/// If the target's address must be resolved first, the number of pending queries is limited.
#[test]
fn an_unsent_bye_frees_the_call() {
    let targets = targets(1);
    let mut world = world(config(Policy::LeastCalls), &targets);
    world.is_checked = false;
    let by_name =
        |invite: &SentMessage, method: &str, number| in_dialog(invite, method, number, "sip:bob@silent.example");
    let first = call(&mut world, 1);
    assert_eq!(destinations(&world.input(ALICE, &by_name(&first, "BYE", 1)), "BYE"), [""; 0]);
    assert_eq!((world.questions.len(), counts(&targets)), (1, vec![(1, 0)]));
    assert_eq!(finals(&world.resolve(Err(LocateError::NoAnswer))).len(), 1);
    assert_eq!(counts(&targets), [(0, 0)]);

    let second = call(&mut world, 2);
    for number in 0..MAX_QUESTIONS {
        let info = by_name(&second, "INFO", 2).replace("silent", &format!("silent{number}"));
        world.input(ALICE, &info.replace("z9hG4bK", &format!("z9hG4bK{number}")));
    }
    assert_eq!(world.questions.len(), MAX_QUESTIONS);
    let bye = by_name(&second, "BYE", 2).replace("silent", "another");
    assert_eq!(finals(&world.input(ALICE, &bye)), [503]);
    assert_eq!(counts(&targets), [(0, 0)]);
    world.shard.check_invariants();
}
