//! Behaviour of one end of a call, as data: a [`Script`] is a list of [`Step`]s that a session runs.
//!
//! A session stores only its position in the script and the few values that messages contain. Messages are
//! [`Template`]s, rendered each time they are sent, also for retransmissions. A call in progress therefore takes a
//! few hundred bytes, and only the outgoing message is copied, once.
//!
//! ```text
//! Send ─► Wait ─┬─ an Expect matches ─► its actions, then its step (or stay)
//!               └─ time is up ────────► the step of the time-out
//! Pause, Chance, If, Actions, Start, Jump, End
//! ```
//!
//! A [`ScriptBuilder`] creates scripts, by hand (the workloads) or from SIPp's XML.

mod action;
mod build;
mod matching;
pub(crate) mod run;
mod template;

pub use action::{Action, ClockForm, Condition, Operand, Relation, Stop};
pub use build::{ExpectBuilder, Label, ScriptBuilder, ScriptError};
pub use matching::{Check, Match, Place, PosixRegex, Variable, body_of, field_value};
pub use template::{KeywordExpansion, LastField, Numbering, Template, TemplateError, TemplatePart, UserField};

use std::ops::Range;

use strowger_message::Method;

use crate::law::Law;

/// Index of a step in its script.
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
    /// All methods, in the order of their numbers.
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

    /// Returns the number of `method`.
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

    /// Returns the name, as in a request line.
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

    /// Returns whether a request of this method takes a new CSeq inside a dialog: all but ACK and CANCEL, which
    /// repeat that of their INVITE.
    #[must_use]
    pub const fn takes_number(self) -> bool {
        !matches!(self, Self::Ack | Self::Cancel)
    }
}

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Request.
    Request(MethodId),
    /// Response with its status.
    Response(u16),
    /// Bytes that are no SIP, sent unchanged.
    Garbage,
}

/// Script of one end of a call, from its first message to its end.
#[derive(Clone, Debug)]
pub struct Script {
    /// Name in reports.
    pub name: String,
    /// Steps; step 0 is the first. A session that runs past the last one has succeeded.
    pub steps: Vec<Step>,
    /// Expected messages; each [`Step::Wait`] names a range of them.
    pub expects: Vec<Expect>,
    /// Messages to send.
    pub templates: Vec<Template>,
    /// Laws of pauses and timeouts.
    pub laws: Vec<Law>,
    /// What happens beside the messages; expects and [`Step::Actions`] name ranges of these.
    pub actions: Vec<Action>,
    /// Number of a session's variables.
    pub variables: u16,
    /// What the engine does by itself.
    pub policy: Policy,
    /// Class that pairs callers' and callees' scripts: of the scripts that answer the method, the one with the
    /// caller's class answers. The class is in the caller's tag, which proxies do not change (RFC 3261 §16.6).
    pub class: u8,
    /// Whether a cancellation by the other party is the expected ending: a session that answered 487 counts as
    /// carried, else as refused.
    pub ends_cancelled: bool,
}

/// What the engine does by itself in all calls of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Whether requests inside a dialog follow the route set or the peer's contact, if that is an address. Otherwise
    /// they go to the destination of the call's first message (as in SIPp).
    pub follow_routes: bool,
    /// Whether unexpected requests are answered: with 200 for BYE (which ends the call), CANCEL, OPTIONS, INFO,
    /// UPDATE, NOTIFY and MESSAGE, with 501 for others. Otherwise they count as unexpected and fail the call.
    pub answer_unexpected: bool,
    /// Whether an unexpected final response to an INVITE is acknowledged before the call counts as failed, so that
    /// the server does not retransmit it for half a minute.
    pub acknowledge_unexpected: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self { follow_routes: true, answer_unexpected: true, acknowledge_unexpected: true }
    }
}

/// A step of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends a message and continues at once.
    Send {
        /// Index of the message.
        template: u16,
        /// Whether it is retransmitted until it is answered (over UDP, with retransmission enabled): requests except
        /// ACK, and the 2xx to an INVITE until the ACK.
        repeat: bool,
    },
    /// Waits for a message.
    Wait {
        /// Range of [`Script::expects`]; the first one that matches applies.
        expects: Range<u16>,
        /// Timeout (a law) and the step to continue at. Without one, a call waits until retransmissions end (64·T1),
        /// or, without retransmissions, until the run's own limit.
        timeout: Option<(u16, StepIndex)>,
    },
    /// Waits for a time drawn from the law. Messages that arrive meanwhile count as unexpected.
    Pause {
        /// Index in [`Script::laws`].
        law: u16,
    },
    /// Works as [`Pause`](Self::Pause), for the milliseconds in a variable.
    PauseFor {
        /// Variable.
        millis: Variable,
    },
    /// Jumps to another step.
    Jump {
        /// Target.
        to: StepIndex,
    },
    /// Jumps to another step with a probability.
    Chance {
        /// Probability as a part of 2^32; [`share`] computes it.
        share: u32,
        /// Target.
        to: StepIndex,
    },
    /// Jumps to another step if a condition on the session holds.
    If {
        /// Condition.
        condition: Condition,
        /// Target.
        to: StepIndex,
    },
    /// Runs actions.
    Actions {
        /// Range of [`Script::actions`].
        actions: Range<u16>,
    },
    /// Continues with another script of the run, from its first step; a variable holds the number of that script.
    SwitchScript {
        /// Variable.
        variable: Variable,
    },
    /// Begins another session of the same user with another script of the run.
    Start {
        /// Index in the run's list of scripts.
        script: u16,
    },
    /// Ends the session.
    End(SessionResult),
}

/// Result of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SessionResult {
    /// Success.
    Carried,
    /// A required answer did not come, despite all retransmissions.
    Lost,
    /// Refused with this status; as the ending of a step, 0 stands for the status of the response just received.
    Refused(u16),
    /// Failed for another reason.
    Failed(Failure),
}

/// Why a session failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    /// A message arrived that the script does not expect.
    Unexpected,
    /// The script failed the call.
    Script,
    /// A challenge could not be answered: no password, or an unknown algorithm.
    Challenge,
    /// The connection was closed or could not be opened.
    Connection,
    /// The script ran too many steps without waiting: it loops.
    Loop,
}

/// An expected message and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// Messages that match.
    pub what: Pattern,
    /// Next step; `None` continues to wait (a provisional response, an optional message).
    pub to: Option<StepIndex>,
    /// What to extract from the message.
    pub extract: Extract,
    /// Further actions, in order; a range of [`Script::actions`].
    pub actions: Range<u16>,
}

/// Messages that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Responses with a status in `low..=high`, and of `method` if one is given.
    Response {
        /// Lowest status.
        low: u16,
        /// Highest status.
        high: u16,
        /// Method in CSeq.
        method: Option<MethodId>,
    },
    /// Returns the number of requests of this method.
    Request(MethodId),
    /// Any message.
    Any,
}

impl Pattern {
    /// All provisional responses.
    pub const PROVISIONAL: Self = Self::Response { low: 100, high: 199, method: None };
    /// All 2xx.
    pub const SUCCESS: Self = Self::Response { low: 200, high: 299, method: None };
    /// All other final responses.
    pub const FAILURE: Self = Self::Response { low: 300, high: 699, method: None };

    /// Returns the pattern of responses with this status.
    #[must_use]
    pub const fn status(status: u16) -> Self {
        Self::Response { low: status, high: status, method: None }
    }

    /// Returns whether a message matches, by its kind and the method in its CSeq.
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
    /// Extracts nothing.
    pub const NOTHING: Self = Self { dialog: false, challenge: false, copy: false };
    /// Extracts the dialog.
    pub const DIALOG: Self = Self { dialog: true, challenge: false, copy: false };
    /// Extracts the challenge.
    pub const CHALLENGE: Self = Self { dialog: false, challenge: true, copy: false };
}

/// What a session extracts from a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extract {
    /// The other party with its tag, its contact and the route set (RFC 3261 §12.1): for `[peer]`, `[next_url]`,
    /// `[routes]`.
    pub dialog: bool,
    /// The challenge, for `[authentication]`.
    pub challenge: bool,
    /// The message itself, if a later step needs it after time has passed. [`ScriptBuilder::build`] sets this; a
    /// response that leaves at once needs no copy.
    pub copy: bool,
}

/// Returns `part` (0 to 1) as a part of 2^32.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the range")]
pub fn share(part: f64) -> u32 {
    (part.clamp(0.0, 1.0) * f64::from(u32::MAX)).round() as u32
}
