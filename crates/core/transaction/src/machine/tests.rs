//! The complete tables of the machines: a row per state, a column per event; a cell has the next state and the
//! actions.

use super::*;

/// Letters of the actions in the tables.
const LETTERS: [(char, Actions); 13] = [
    ('s', Actions::SEND),
    ('k', Actions::KEEP),
    ('r', Actions::REPLAY),
    ('x', Actions::RELEASE),
    ('a', Actions::ACK),
    ('u', Actions::TO_USER),
    ('+', Actions::ARM_RETRANSMIT),
    ('-', Actions::STOP_RETRANSMIT),
    ('B', Actions::ARM_TIMEOUT),
    ('4', Actions::ARM_T4),
    ('0', Actions::STOP_DEADLINE),
    ('!', Actions::TIMED_OUT),
    ('F', Actions::FAILED),
];

fn cell(state: &str, from: &str, actions: Actions) -> String {
    if state == from && actions == Actions::NONE {
        return ".".into();
    }
    let letters: String = LETTERS.iter().filter(|(_, action)| actions.has(*action)).map(|(letter, _)| letter).collect();
    let short: String = state.chars().take(4).collect();
    if letters.is_empty() { short } else { format!("{short}:{letters}") }
}

fn table<S: core::fmt::Debug + Copy, E: Copy>(
    states: &[S],
    events: &[E],
    step: impl Fn(S, E) -> (S, Actions),
) -> Vec<String> {
    let row = |state: &S| {
        let from = format!("{state:?}");
        let cells = events.iter().map(|event| {
            let (next, actions) = step(*state, *event);
            cell(&format!("{next:?}"), &from, actions)
        });
        core::iter::once(from.clone()).chain(cells).collect::<Vec<_>>().join(" ")
    };
    states.iter().map(row).collect()
}

const CLIENT_STATES: [ClientState; 6] = [
    ClientState::Calling,
    ClientState::Trying,
    ClientState::Proceeding,
    ClientState::Completed,
    ClientState::Accepted,
    ClientState::Terminated,
];

/// Columns: provisional, success, failure, retransmit, deadline, unreachable, cancelled.
const CLIENT_EVENTS: [ClientEvent; 7] = [
    ClientEvent::Provisional,
    ClientEvent::Success,
    ClientEvent::Failure,
    ClientEvent::Retransmit,
    ClientEvent::Deadline,
    ClientEvent::Unreachable,
    ClientEvent::Cancelled,
];

const SERVER_STATES: [ServerState; 6] = [
    ServerState::Trying,
    ServerState::Proceeding,
    ServerState::Completed,
    ServerState::Confirmed,
    ServerState::Accepted,
    ServerState::Terminated,
];

/// Columns: request, ACK, provisional, success, failure, suppressed, retransmit, deadline.
const SERVER_EVENTS: [ServerEvent; 8] = [
    ServerEvent::Request,
    ServerEvent::Ack,
    ServerEvent::Provisional,
    ServerEvent::Success,
    ServerEvent::Failure,
    ServerEvent::Suppressed,
    ServerEvent::Retransmit,
    ServerEvent::Deadline,
];

fn client(kind: Kind, reliable: bool) -> Vec<String> {
    table(&CLIENT_STATES, &CLIENT_EVENTS, |state, event| step_client(kind, state, event, reliable))
}

fn server(kind: Kind, reliable: bool) -> Vec<String> {
    table(&SERVER_STATES, &SERVER_EVENTS, |state, event| step_server(kind, state, event, reliable))
}

//= rfc3261#17.1.1.2:only-while-calling
//= rfc3261#17.1.1.2:failure-completes
//= rfc3261#17.1.1.2:ack
//= rfc6026#7.2:no-ack
//= rfc3261#17.1.1.2:no-ack-on-timeout
#[test]
fn invite_client_machine() {
    let unreliable = [
        "Calling Proc:u-0 Acce:xu-B Comp:au-B Call:r+ Term:! Term:F .",
        "Trying . . . . . . .",
        "Proceeding Proc:u Acce:xu-B Comp:au-B . Term:! . Proc:B",
        "Completed . . Comp:r . Term . .",
        "Accepted . Acce:u . . Term . .",
        "Terminated . . . . . . .",
    ];
    assert_eq!(client(Kind::Invite, false), unreliable);
    let reliable = [
        "Calling Proc:u-0 Acce:xu-B Term:au- Call:r+ Term:! Term:F .",
        "Trying . . . . . . .",
        "Proceeding Proc:u Acce:xu-B Term:au- . Term:! . Proc:B",
        "Completed . . Comp:r . Term . .",
        "Accepted . Acce:u . . Term . .",
        "Terminated . . . . . . .",
    ];
    assert_eq!(client(Kind::Invite, true), reliable);
}

//= rfc3261#17.1.2.2:proceeding
//= rfc3261#17.1.2.2:final-completes
//= rfc3261#17.1.2.2:timer-k
//= rfc3261#17.1.2.2:timer-k-ends
#[test]
fn non_invite_client_machine() {
    let unreliable = [
        "Calling . . . . . . .",
        "Trying Proc:u Comp:xu-4 Comp:xu-4 Tryi:r+ Term:! Term:F .",
        "Proceeding Proc:u Comp:xu-4 Comp:xu-4 Proc:r+ Term:! . .",
        "Completed . . . . Term . .",
        "Accepted . . . . . . .",
        "Terminated . . . . . . .",
    ];
    assert_eq!(client(Kind::NonInvite, false), unreliable);
    let reliable = [
        "Calling . . . . . . .",
        "Trying Proc:u Term:xu- Term:xu- Tryi:r+ Term:! Term:F .",
        "Proceeding Proc:u Term:xu- Term:xu- Proc:r+ Term:! . .",
        "Completed . . . . Term . .",
        "Accepted . . . . . . .",
        "Terminated . . . . . . .",
    ];
    assert_eq!(client(Kind::NonInvite, true), reliable);
}

//= rfc3261#17.2.1:failure-completes
//= rfc3261#17.2.1:timer-h
//= rfc6026#7.1:no-retransmission
#[test]
fn invite_server_machine() {
    let unreliable = [
        "Trying . . . . . . . .",
        "Proceeding Proc:r . Proc:sk Acce:sxB Comp:sk+B . . .",
        "Completed Comp:r Conf:x-4 . . . . Comp:r+ Term:!",
        "Confirmed . . . . . . . Term",
        "Accepted . Acce:u . Acce:s . . . Term",
        "Terminated . . . . . . . .",
    ];
    assert_eq!(server(Kind::Invite, false), unreliable);
    let reliable = [
        "Trying . . . . . . . .",
        "Proceeding Proc:r . Proc:sk Acce:sxB Comp:skB . . .",
        "Completed Comp:r Term:x- . . . . Comp:r+ Term:!",
        "Confirmed . . . . . . . Term",
        "Accepted . Acce:u . Acce:s . . . Term",
        "Terminated . . . . . . . .",
    ];
    assert_eq!(server(Kind::Invite, true), reliable);
}

//= rfc3261#17.2.2:proceeding
//= rfc3261#17.2.2:provisional-sent
//= rfc3261#17.2.2:provisional-again
//= rfc3261#17.2.2:final-completes
//= rfc3261#17.2.2:timer-j
//= rfc3261#17.2.2:other-finals
#[test]
fn non_invite_server_machine() {
    let unreliable = [
        "Trying . . Proc:sk Comp:skB Comp:skB Comp:xB . .",
        "Proceeding Proc:r . Proc:sk Comp:skB Comp:skB Comp:xB . .",
        "Completed Comp:r . . . . . . Term",
        "Confirmed . . . . . . . .",
        "Accepted . . . . . . . .",
        "Terminated . . . . . . . .",
    ];
    assert_eq!(server(Kind::NonInvite, false), unreliable);
    let reliable = [
        "Trying . . Proc:sk Term:sx Term:sx Term:x . .",
        "Proceeding Proc:r . Proc:sk Term:sx Term:sx Term:x . .",
        "Completed Comp:r . . . . . . Term",
        "Confirmed . . . . . . . .",
        "Accepted . . . . . . . .",
        "Terminated . . . . . . . .",
    ];
    assert_eq!(server(Kind::NonInvite, true), reliable);
}

//= rfc3261#17.1.1.2:start
#[test]
fn machines_start_as_in_the_rfc() {
    let start = |kind, reliable| {
        let (state, actions) = start_client(kind, reliable);
        cell(&format!("{state:?}"), "", actions)
    };
    assert_eq!((start(Kind::Invite, false), start(Kind::Invite, true)), ("Call:s+B".into(), "Call:sB".into()));
    assert_eq!((start(Kind::NonInvite, false), start(Kind::NonInvite, true)), ("Tryi:s+B".into(), "Tryi:sB".into()));
    assert_eq!(start_server(Kind::Invite), ServerState::Proceeding);
    assert_eq!(start_server(Kind::NonInvite), ServerState::Trying);
}
