//! What goes into a shard and what comes out.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use strowger_calls::CallRecord;
use strowger_foundation::{ConnId, Flow, Timestamp};
use strowger_locate::{Cause, Hop, LocateQuery, LocateResult, QueryId};
use strowger_message::{Fault, Peek};
use strowger_overload::Verdict;

use crate::hop_names::{NextHopName, NextHopOwner};
use crate::snapshot::Snapshot;
use crate::steering::SteeringResult;

/// One thing that happened outside.
#[derive(Debug)]
pub enum Input<'a> {
    /// A framed message.
    Message {
        /// When the kernel received it.
        arrival: Timestamp,
        /// Where it came from.
        flow: Flow,
        /// The message, peeked at: the shell needed that to choose the shard.
        peek: &'a Peek<'a>,
        /// What [`Steering::steer`](crate::Steering::steer) said of it.
        steering: &'a SteeringResult,
        /// What overload control says of it, should it begin something.
        verdict: Verdict,
    },
    /// A hint that datagrams to `peer` are refused; hints can be forged, so only what has had no answer yet is given up.
    Unreachable {
        /// The peer.
        peer: SocketAddr,
    },
    /// A datagram to `peer` has not left this machine: the address that it was to leave by is another machine's now, as that of two
    /// that stand in for each other, or too much waits to leave already.
    SendFailed {
        /// The peer.
        peer: SocketAddr,
    },
    /// A connection is closed, whoever opened it: what is bound to it is out of reach. Every shard is told.
    Closed {
        /// Which.
        connection: ConnId,
        /// Whose it was.
        peer: SocketAddr,
    },
    /// No connection to the flow's peer could be opened, or the one that was to carry a message of this shard is gone.
    ConnectFailed {
        /// The flow as it was sent to.
        flow: Flow,
    },
    /// What the DNS said to a question of this shard.
    Resolved {
        /// The question's name.
        query: QueryId,
        /// The answer.
        answer: LocateResult,
    },
    /// What became of a record that was to be kept.
    Stored {
        /// The ticket that the record had.
        ticket: u64,
        /// The record.
        record: Vec<u8>,
        /// It is kept, whatever befalls the process and the machine; else it is not, and will not be.
        is_durable: bool,
    },
    /// The bindings of this address of record go, and REGISTERs that wait are refused: its user may not be called any more.
    BarUser {
        /// Which.
        aor: &'a [u8],
    },
    /// An operator ends registrations of this address of record, after all REGISTERs that have come; its phones may register
    /// again. While registrations of before are being read it does nothing.
    Unregister {
        /// Which.
        aor: &'a [u8],
        /// Only the one of this contact.
        contact: Option<&'a [u8]>,
    },
    /// A new configuration or directory.
    Config(Arc<Snapshot>),
}

/// One thing to be done outside.
#[derive(Debug)]
pub enum Output {
    /// Send the bytes in the buffer.
    Send {
        /// From where, to whom.
        flow: Flow,
    },
    /// Ask the DNS; the answer comes as [`Input::Resolved`], also where there is none.
    Resolve {
        /// The question's name.
        query: QueryId,
        /// What is asked.
        question: LocateQuery,
    },
    /// Keep a record of the location table, in the order in which they come.
    Store {
        /// What its [`Input::Stored`] is to name; `None` where nobody waits for it.
        ticket: Option<u64>,
        /// The record.
        record: Vec<u8>,
    },
    /// Something that the operator may want to know.
    Event(Event),
}

/// Something that the operator may want to know; rare, and bounded by [`MAX_EVENTS`](crate::MAX_EVENTS).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A peer's message was not understood.
    Malformed {
        /// Where it came from.
        peer: SocketAddr,
        /// What is wrong with it.
        fault: Fault,
    },
    /// Credentials were given and are wrong.
    WrongCredentials {
        /// Where they came from.
        peer: SocketAddr,
        /// Who they claim to be; escaped.
        identity: String,
    },
    /// Somebody with good credentials claimed to be somebody else.
    WrongIdentity {
        /// Where it came from.
        peer: SocketAddr,
        /// The user whose credentials they were; escaped.
        user: String,
        /// The identity that was claimed; escaped.
        claimed: String,
    },
    /// A trunk knows us now, or does not: its registration stands otherwise than before.
    TrunkRegistration {
        /// The trunk's name.
        trunk: Box<str>,
        /// How it stands.
        status: strowger_trunk::Status,
    },
    /// A place that many requests are sent to does not answer. It is told once, until the place has answered.
    Outage {
        /// Which.
        hop: Hop,
        /// What the operator calls it; nothing where only its address, or a caller, led there.
        names: Vec<NextHopName>,
        /// How that was found.
        cause: Cause,
        /// How long it is tried after others only.
        avoided_for: Duration,
    },
    /// The last gateway of a set, or target of a trunk, that answered calls does so no more. It is told once, until one of
    /// them has answered.
    AllTargetsOut {
        /// Which set or trunk.
        owner: NextHopOwner,
    },
    /// A place that did not answer has answered.
    Recovery {
        /// Which.
        hop: Hop,
        /// What the operator calls it.
        names: Vec<NextHopName>,
        /// How long it had not.
        after: Duration,
    },
    /// Probes of a target of a balanced set have found it gone, or there again.
    TargetHealth {
        /// The set; escaped.
        set: String,
        /// The target's URI; escaped.
        uri: String,
        /// It takes new requests.
        is_up: bool,
    },
    /// A REGISTER was refused, for it would have made more contacts than one address may have.
    TooManyContacts {
        /// Where it came from.
        peer: SocketAddr,
        /// The address of record; escaped.
        aor: String,
        /// How many it may have.
        limit: usize,
    },
    /// A REGISTER was refused, for too many of its address wait for the store.
    TooManyPendingRegisters {
        /// Where it came from.
        peer: SocketAddr,
        /// The address of record; escaped.
        aor: String,
    },
    /// A call that was followed has ended.
    Call(Box<CallRecord>),
    /// A table is full, and work was refused.
    TableFull {
        /// The table.
        table: &'static str,
    },
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How often what happened in a shard since it began.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Adds another shard's.
            pub const fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
            }

            /// Names and values, in the order of their declaration.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Requests that came in, retransmissions included.
    requests,
    /// Responses that came in.
    responses,
    /// Requests that their transactions had seen already.
    retransmissions,
    /// Messages that were not understood.
    malformed,
    /// Responses without our tag.
    foreign_responses,
    /// Responses that no transaction waits for.
    stray_responses,
    /// Requests refused or dropped by admission.
    overloaded,
    /// Requests that were challenged.
    challenged,
    /// Requests with wrong credentials.
    wrong_credentials,
    /// Requests that the server answered with a final response other than a challenge and a 2xx.
    refused,
    /// Answers of the server's own that were made shorter, or not sent, for they would have been more than twice as long as a request
    /// over UDP whose sender has proven nothing.
    answers_cut,
    /// REGISTER requests that were carried out.
    registered,
    /// REGISTER requests refused because they would have made more contacts than one address may have.
    too_many_contacts,
    /// REGISTER requests refused because the store was not quick enough, or could not keep what they change.
    unkept,
    /// Removals that members of other clusters were told of: of the one that had the user before, or of who had passed the REGISTER on.
    removals_passed,
    /// Removals that no other cluster could be told of.
    removals_lost,
    /// Requests forwarded with state.
    forwarded,
    /// Requests forwarded without state.
    forwarded_stateless,
    /// Responses forwarded.
    forwarded_responses,
    /// Branches that rang longer than Timer C.
    rang_out,
    /// Branches that were tried at another place, for the first was silent, unreachable or refused.
    failovers,
    /// Requests that were not tried at another place, since the budget of their route or set for that was spent.
    failovers_refused,
    /// Requests answered 503 because the server that they were for asked for less (RFC 7339).
    shed_for_next_hop,
    /// Requests answered 408, 500 or 503 since none of the places where their route, or a name, leads said anything; and
    /// those refused at once, for none is in service or none answers calls.
    no_gateway,
    /// Redirections that were followed.
    redirections_followed,
    /// Challenges that were answered for a trunk.
    challenges_answered,
    /// Requests refused because a table was full.
    table_full,
    /// Keep-alives sent.
    keep_alives,
    /// Answers to keep-alives that are OPTIONS requests.
    keep_alive_answers,
    /// Events that nobody took in time.
    events_lost,
}
