//! Each machine whole, as a table: a row a state, a column an event, a cell the next state and the actions.

use super::*;

/// The letters of the tables' actions.
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

/// Provisional, success, failure, retransmit, deadline, unreachable, cancelled.
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

/// Request, ACK, provisional, success, failure, suppressed, retransmit, deadline.
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

#[test]
fn machines_start_as_the_rfc_says() {
    let start = |kind, reliable| {
        let (state, actions) = start_client(kind, reliable);
        cell(&format!("{state:?}"), "", actions)
    };
    assert_eq!((start(Kind::Invite, false), start(Kind::Invite, true)), ("Call:s+B".into(), "Call:sB".into()));
    assert_eq!((start(Kind::NonInvite, false), start(Kind::NonInvite, true)), ("Tryi:s+B".into(), "Tryi:sB".into()));
    assert_eq!(start_server(Kind::Invite), ServerState::Proceeding);
    assert_eq!(start_server(Kind::NonInvite), ServerState::Trying);
}
