//! What one end of a call does, as data: a [`Script`] is a list of [`Step`]s that a session walks through.
//!
//! A session holds only where it is in its script and the few values that messages are made of; the messages themselves
//! are [`Template`]s, written anew each time they are sent, retransmissions included. So a call in progress costs a few
//! hundred bytes, and nothing is copied but the message that leaves, once.
//!
//! ```text
//! Send ─► Wait ─┬─ an Expect matches ─► its actions, then its step (or stay)
//!               └─ time is up ────────► the step of the time-out
//! Pause, Chance, When, Act, Start, Jump, End
//! ```
//!
//! Scripts are made by a [`ScriptBuilder`], by hand (the workloads) or from SIPp's XML.

mod action;
mod build;
mod matching;
pub(crate) mod run;
mod template;

pub use action::{Action, ClockForm, Condition, Operand, Relation, Stop};
pub use build::{ExpectBuilder, Label, ScriptBuilder, ScriptError};
pub use matching::{Check, Match, Place, PosixRegex, Variable, body_of, field_value};
pub use template::{KeywordExpansion, LastField, Numbering, Piece, Template, TemplateError, UserField};

use std::ops::Range;

use strowger_message::Method;

use crate::law::Law;

/// Where a step stands in its script.
pub type StepIndex = u16;

/// A method as a number; those that have no number of their own are [`MethodId::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is the method of its name")]
#[repr(u8)]
pub enum MethodId {
    Invite,
    Ack,
    Bye,
    Cancel,
    Register,
    Options,
    Info,
    Prack,
    Update,
    Message,
    Subscribe,
    Notify,
    Publish,
    Refer,
    Other,
}

impl MethodId {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 15] = [
        Self::Invite,
        Self::Ack,
        Self::Bye,
        Self::Cancel,
        Self::Register,
        Self::Options,
        Self::Info,
        Self::Prack,
        Self::Update,
        Self::Message,
        Self::Subscribe,
        Self::Notify,
        Self::Publish,
        Self::Refer,
        Self::Other,
    ];

    /// The number of `method`.
    #[must_use]
    pub fn of(method: Method<'_>) -> Self {
        match method {
            Method::Invite => Self::Invite,
            Method::Ack => Self::Ack,
            Method::Bye => Self::Bye,
            Method::Cancel => Self::Cancel,
            Method::Register => Self::Register,
            Method::Options => Self::Options,
            Method::Info => Self::Info,
            Method::Prack => Self::Prack,
            Method::Update => Self::Update,
            Method::Message => Self::Message,
            Method::Subscribe => Self::Subscribe,
            Method::Notify => Self::Notify,
            Method::Publish => Self::Publish,
            Method::Refer => Self::Refer,
            Method::Other(_) => Self::Other,
        }
    }

    /// The name, as in a request line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invite => "INVITE",
            Self::Ack => "ACK",
            Self::Bye => "BYE",
            Self::Cancel => "CANCEL",
            Self::Register => "REGISTER",
            Self::Options => "OPTIONS",
            Self::Info => "INFO",
            Self::Prack => "PRACK",
            Self::Update => "UPDATE",
            Self::Message => "MESSAGE",
            Self::Subscribe => "SUBSCRIBE",
            Self::Notify => "NOTIFY",
            Self::Publish => "PUBLISH",
            Self::Refer => "REFER",
            Self::Other => "other",
        }
    }

    /// Whether a request of this method inside a dialog gives it a transaction number of its own: all but ACK and CANCEL,
    /// which repeat their INVITE's.
    #[must_use]
    pub const fn takes_number(self) -> bool {
        !matches!(self, Self::Ack | Self::Cancel)
    }
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A request.
    Request(MethodId),
    /// A response and its status.
    Response(u16),
    /// Bytes that are no SIP, sent as they are.
    Garbage,
}

/// One end of a call, from its first message to its end.
#[derive(Clone, Debug)]
pub struct Script {
    /// Shown in reports.
    pub name: String,
    /// The steps; step 0 is the first. A session that runs past the last one has ended well.
    pub steps: Vec<Step>,
    /// What [`Step::Wait`]s wait for; each names a range of these.
    pub expects: Vec<Expect>,
    /// The messages.
    pub templates: Vec<Template>,
    /// The laws of pauses and time-outs.
    pub laws: Vec<Law>,
    /// What happens beside the messages; expects and [`Step::Actions`] name ranges of these.
    pub actions: Vec<Action>,
    /// How many variables a session has.
    pub variables: u16,
    /// What the engine does by itself.
    pub policy: Policy,
    /// Which callee's script answers: the one of this class, among those that answer the method. The caller's class is in its
    /// tag, which proxies leave alone (RFC 3261 §16.6), so that it comes through any of them.
    pub class: u8,
    /// That the other party cancels is how it should end: a session that answered 487 is carried, else it is refused.
    pub ends_cancelled: bool,
}

/// What the engine does by itself in all calls of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Requests inside a dialog go where the route set or the peer's contact says, where that is an address; otherwise to
    /// where the call's first message went (as SIPp does).
    pub follow_routes: bool,
    /// Requests that the script does not wait for are answered: 200 to BYE (which ends the call), CANCEL, OPTIONS, INFO,
    /// UPDATE, NOTIFY and MESSAGE; 501 to others. Otherwise they are counted as unexpected and fail the call.
    pub answer_unexpected: bool,
    /// A final response to an INVITE that the script does not wait for is acknowledged before the call is counted as
    /// failed, so that the server does not repeat it for half a minute.
    pub acknowledge_unexpected: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self { follow_routes: true, answer_unexpected: true, acknowledge_unexpected: true }
    }
}

/// One thing that a session does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Writes and sends a message, then goes on at once.
    Send {
        /// Which message.
        template: u16,
        /// Whether it is sent again until it is answered (over UDP, and where retransmission is on): requests but ACK, and
        /// the 2xx to an INVITE until the ACK.
        repeat: bool,
    },
    /// Waits for a message.
    Wait {
        /// What for: the first in this range of [`Script::expects`] that fits is taken.
        expects: Range<u16>,
        /// How long (a law) and where to go then. Without one, a call waits until retransmissions end (64·T1), or, where
        /// none are made, until the run's own limit.
        timeout: Option<(u16, StepIndex)>,
    },
    /// Does nothing for a time that the law gives. Messages that come meanwhile are handled as unexpected ones.
    Pause {
        /// Which of [`Script::laws`].
        law: u16,
    },
    /// As [`Pause`](Self::Pause), for as many milliseconds as a variable says.
    PauseFor {
        /// Which variable.
        millis: Variable,
    },
    /// Goes to another step.
    Jump {
        /// Where to.
        to: StepIndex,
    },
    /// Goes to another step in a share of all cases, else on to the next.
    Chance {
        /// The share as a part of 2^32; [`share`] makes it.
        share: u32,
        /// Where to.
        to: StepIndex,
    },
    /// Goes to another step where a variable of the session holds, else on to the next.
    If {
        /// What must hold.
        condition: Condition,
        /// Where to.
        to: StepIndex,
    },
    /// Does something else.
    Actions {
        /// Which of [`Script::actions`].
        actions: Range<u16>,
    },
    /// Goes on as another script of the run, from its first step: the one whose number a variable says.
    SwitchScript {
        /// Which variable.
        variable: Variable,
    },
    /// Begins another session of the same user with another script of the run.
    Start {
        /// Its number in the run's list of scripts.
        script: u16,
    },
    /// Ends the session.
    End(Ending),
}

/// How a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ending {
    /// As it should.
    Carried,
    /// Something that must answer did not, however often it was asked.
    Lost,
    /// It was refused with this status; as the ending of a step, 0 is that of the response just received.
    Refused(u16),
    /// For another reason.
    Failed(Failure),
}

/// Why a session failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    /// A message came that the script has no use for.
    Unexpected,
    /// The script says so.
    Script,
    /// A challenge could not be answered: no password, or an unknown algorithm.
    Challenge,
    /// The connection was closed or could not be opened.
    Connection,
    /// The script went through too many steps without waiting: it runs in a circle.
    Loop,
}

/// A message that is waited for, and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// Which message.
    pub what: Pattern,
    /// Where to go; `None` waits on (a provisional response, an optional message).
    pub to: Option<StepIndex>,
    /// What is taken from it.
    pub extract: Extract,
    /// What else is done, in order; which of [`Script::actions`].
    pub actions: Range<u16>,
}

/// Which messages fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Responses with a status in `low..=high`; of `method` where one is given.
    Response {
        /// The lowest status.
        low: u16,
        /// The highest status.
        high: u16,
        /// The method in CSeq.
        method: Option<MethodId>,
    },
    /// Requests of this method.
    Request(MethodId),
    /// Any message at all.
    Any,
}

impl Pattern {
    /// All provisional responses.
    pub const PROVISIONAL: Self = Self::Response { low: 100, high: 199, method: None };
    /// All 2xx.
    pub const SUCCESS: Self = Self::Response { low: 200, high: 299, method: None };
    /// All other final responses.
    pub const FAILURE: Self = Self::Response { low: 300, high: 699, method: None };

    /// Responses with this status.
    #[must_use]
    pub const fn status(status: u16) -> Self {
        Self::Response { low: status, high: status, method: None }
    }

    /// Whether a message fits: what it is, and the method in its CSeq.
    #[must_use]
    pub fn fits(&self, kind: Kind, cseq: MethodId) -> bool {
        match (*self, kind) {
            (Self::Response { low, high, method }, Kind::Response(status)) => {
                (low..=high).contains(&status) && method.is_none_or(|method| method == cseq)
            }
            (Self::Request(verb), Kind::Request(got)) => verb == got,
            (Self::Any, _) => true,
            _ => false,
        }
    }
}

impl Extract {
    /// Nothing.
    pub const NOTHING: Self = Self { dialog: false, challenge: false, copy: false };
    /// The dialog.
    pub const DIALOG: Self = Self { dialog: true, challenge: false, copy: false };
    /// The challenge.
    pub const CHALLENGE: Self = Self { dialog: false, challenge: true, copy: false };
}

/// What a session takes from a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extract {
    /// The other party (its tag with it), its contact and the route set (RFC 3261 §12.1): for `[peer]`, `[next_url]`,
    /// `[routes]`.
    pub dialog: bool,
    /// The challenge, for `[authentication]`.
    pub challenge: bool,
    /// The message itself, because a later step needs it although time passes first. [`ScriptBuilder::build`] finds this
    /// out; a reply that leaves at once needs no copy.
    pub copy: bool,
}

/// `part` (0 to 1) as a part of 2^32.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the range")]
pub fn share(part: f64) -> u32 {
    (part.clamp(0.0, 1.0) * f64::from(u32::MAX)).round() as u32
}
