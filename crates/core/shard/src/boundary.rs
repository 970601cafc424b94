//! Inputs and outputs of a shard.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::sync::Arc;

use strowger_calls::{CallRecord, SetupTimes};
use strowger_foundation::{ConnId, Flow, Timestamp, Transport};
use strowger_locate::{Cause, Hop, LocateQuery, LocateResult, QueryId};
use strowger_media::Engine;
use strowger_message::{Fault, Peek, Status};
use strowger_overload::Verdict;

use crate::hop_names::{NextHopName, NextHopOwner};
use crate::imported_state::StateError;
use crate::snapshot::Snapshot;
use crate::steering::SteeringResult;

/// An event from outside the shard.
#[derive(Debug)]
pub enum Input<'a> {
    /// A framed message.
    Message {
        /// When the kernel received it.
        arrival: Timestamp,
        /// The flow it came on.
        flow: Flow,
        /// The parsed start of the message, which the shell needed to choose the shard.
        peek: &'a Peek<'a>,
        /// The result of [`Steering::steer`](crate::Steering::steer) for it.
        steering: &'a SteeringResult,
        /// The verdict of overload control, in case the message begins new work.
        verdict: Verdict,
    },
    /// A hint that datagrams to `peer` are refused. Hints can be forged, so only requests without any response so far
    /// are given up.
    Unreachable {
        /// The peer.
        peer: SocketAddr,
    },
    /// A datagram to `peer` did not leave this machine: its source address has moved to another machine, as in a
    /// failover pair, or the send queue is full.
    SendFailed {
        /// The peer.
        peer: SocketAddr,
    },
    /// A connection is closed, whichever side opened it: bindings on it are unreachable. Every shard gets this. If it
    /// was secure, a [`ConnectFailed`](Self::ConnectFailed) for each way of requests to its peer has come before.
    Closed {
        /// The closed connection.
        connection: ConnId,
        /// The peer of the connection.
        peer: SocketAddr,
    },
    /// No connection to the flow's peer could be opened, or the connection that was to carry a message of this shard
    /// is gone.
    ConnectFailed {
        /// The flow of the output.
        flow: Flow,
    },
    /// The answer to a DNS query of this shard.
    Resolved {
        /// The ID of the query.
        query: QueryId,
        /// The answer.
        answer: LocateResult,
    },
    /// The result of storing a record.
    Stored {
        /// The ticket of the record.
        ticket: u64,
        /// The record.
        record: Vec<u8>,
        /// Whether the record is durable and survives a crash of the process and the machine. If not, it will never
        /// be stored.
        is_durable: bool,
    },
    /// A datagram from a media engine.
    Media {
        /// Where it came from.
        engine: SocketAddr,
        /// The datagram.
        message: &'a [u8],
    },
    /// Removes the bindings of this address of record and refuses its pending REGISTERs, because its user was removed
    /// or disabled.
    BarUser {
        /// The address of record.
        aor: &'a [u8],
    },
    /// An operator's command to remove bindings of this address of record, after all REGISTERs received so far. Its
    /// phones may register again. Ignored while stored registrations are being loaded.
    Unregister {
        /// The address of record.
        aor: &'a [u8],
        /// The only contact to remove; `None` for all.
        contact: Option<&'a [u8]>,
    },
    /// An operator's command to end the calls with this Call-ID.
    EndCall {
        /// The Call-ID.
        call_id: &'a [u8],
    },
    /// Another process has taken over what [`Shard::export_state`](crate::Shard::export_state) returned. The shard
    /// forgets that, keeps its transactions until they end, and passes on calls that these set up
    /// ([`Event::CallTransferred`]).
    HandedOver,
    /// The state of a call that another process has set up.
    CallTransferred {
        /// The state, from [`Event::CallTransferred`].
        state: &'a [u8],
    },
    /// A new configuration or directory.
    Config(Arc<Snapshot>),
}

/// An action to perform outside the shard.
#[derive(Debug)]
pub enum Output {
    /// Send the bytes in the buffer.
    Send {
        /// The local and remote end.
        flow: Flow,
    },
    /// Ask another server.
    Ask(Inquiry),
    /// Store a record of the location table; records must be stored in this order.
    Store {
        /// The ticket that [`Input::Stored`] must carry; `None` if nothing waits for it.
        ticket: Option<u64>,
        /// The record.
        record: Vec<u8>,
    },
    /// An event for the operator.
    Event(Event),
}

/// A question to another server.
#[derive(Debug)]
pub enum Inquiry {
    /// Resolve a name. The answer comes as [`Input::Resolved`], also when there is none.
    Dns {
        /// The ID of the query.
        query: QueryId,
        /// The query.
        question: LocateQuery,
    },
    /// Send a datagram to a media engine. What it sends comes as [`Input::Media`].
    Media {
        /// The engine.
        engine: Arc<Engine>,
        /// The datagram.
        command: Vec<u8>,
    },
}

/// An event for the operator; rare, and bounded by [`MAX_EVENTS`](crate::MAX_EVENTS).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message could not be parsed.
    Malformed {
        /// Where it came from.
        peer: SocketAddr,
        /// How.
        transport: Transport,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A request had wrong credentials.
    WrongCredentials {
        /// Where it came from.
        peer: SocketAddr,
        /// How.
        transport: Transport,
        /// The claimed identity; escaped.
        identity: String,
        /// The username in the credentials, as an address of record; escaped. None if they are not for the realm.
        user: Option<String>,
        /// Whether there is such a user.
        is_known_user: bool,
        /// Whether the sender is proven to be at its address, so that the failure may be held against it: it has
        /// answered a challenge that was sent there, with a digest for the realm.
        is_proven: bool,
    },
    /// A request that was not served came from a program that searches for servers or passwords, by its User-Agent.
    Scanner {
        /// Where it came from.
        peer: SocketAddr,
        /// How.
        transport: Transport,
        /// The value of User-Agent; escaped.
        agent: String,
    },
    /// The handshake of a peer that has connected failed. The shell reports it.
    HandshakeFailed {
        /// Where the connection came from.
        peer: SocketAddr,
        /// How.
        transport: Transport,
        /// Why.
        reason: String,
    },
    /// A request with valid credentials claimed another identity.
    WrongIdentity {
        /// Where it came from.
        peer: SocketAddr,
        /// The user that the credentials belong to; escaped.
        user: String,
        /// The claimed identity; escaped.
        claimed: String,
    },
    /// The state of a trunk's registration has changed.
    TrunkRegistration {
        /// The trunk's name.
        trunk: Box<str>,
        /// The state of the registration.
        status: strowger_trunk::Status,
    },
    /// A next hop that many requests are sent to does not answer. Reported once, until the next hop has answered.
    Outage {
        /// The next hop.
        hop: Hop,
        /// Its names in the configuration; empty if only its address or a caller led there.
        names: Vec<NextHopName>,
        /// How the outage was detected.
        cause: Cause,
        /// How long other next hops are tried before it.
        avoided_for: Duration,
    },
    /// The last gateway of a set, or target of a trunk, that answered calls has stopped answering. Reported once,
    /// until one of them has answered.
    AllTargetsOut {
        /// The set or trunk.
        owner: NextHopOwner,
    },
    /// A next hop that did not answer has answered again.
    Recovery {
        /// The next hop.
        hop: Hop,
        /// Its names in the configuration.
        names: Vec<NextHopName>,
        /// Duration of the outage.
        after: Duration,
    },
    /// Probes have found a target of a balanced set unavailable, or available again.
    TargetHealth {
        /// The set; escaped.
        set: String,
        /// The target's URI; escaped.
        uri: String,
        /// Whether it takes new requests.
        is_up: bool,
    },
    /// A REGISTER was refused because it would exceed the number of contacts per address of record.
    TooManyContacts {
        /// Where it came from.
        peer: SocketAddr,
        /// The address of record; escaped.
        aor: String,
        /// The limit.
        limit: usize,
    },
    /// A REGISTER was refused because its contact leads to this machine, and its sender is elsewhere.
    LocalContact {
        /// Where it came from.
        peer: SocketAddr,
        /// The address of record; escaped.
        aor: String,
        /// Its first Contact; escaped.
        contact: String,
    },
    /// A request, a redirection or a contact was not followed because it leads to this machine, and who named the
    /// destination is elsewhere.
    LocalDestination {
        /// Who named it.
        by: IpAddr,
        /// Where it leads.
        address: SocketAddr,
    },
    /// A REGISTER was refused because too many of its address of record wait for the store.
    TooManyPendingRegisters {
        /// Where it came from.
        peer: SocketAddr,
        /// The address of record; escaped.
        aor: String,
    },
    /// A media engine does not answer, or answers again.
    MediaEngine {
        /// Its address for commands.
        engine: SocketAddr,
        /// Whether it answers.
        is_up: bool,
    },
    /// The media of a call cannot go through an engine. Reported once a second at most.
    MediaFailed {
        /// The Call-ID; escaped.
        call_id: String,
        /// Why not; escaped.
        reason: String,
        /// Whether the request was refused; otherwise the message was forwarded as received.
        is_refused: bool,
    },
    /// A party of a call that the operator ends was not told, or has refused: the call may go on there.
    CallNotEnded {
        /// The Call-ID; escaped.
        call_id: String,
        /// The party: `caller` or `callee`.
        party: &'static str,
        /// Its final response; `None` if there is none, or no way to it.
        status: Option<Status>,
    },
    /// A tracked call has ended.
    Call(Box<CallRecord>),
    /// A call has been set up after [`Input::HandedOver`]; the same shard of the other process needs this as
    /// [`Input::CallTransferred`].
    CallTransferred(Box<[u8]>),
    /// A call that another process has set up cannot be tracked.
    CallNotTaken {
        /// Why not.
        reason: StateError,
    },
    /// A table is full, and work was refused.
    TableFull {
        /// The table.
        table: &'static str,
    },
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of a shard's events since its start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
            /// Times of call setup.
            pub setup: SetupTimes,
        }

        impl Counters {
            /// Adds the counts of another shard.
            pub fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
                self.setup.add(&other.setup);
            }

            /// Returns names and values in the order of declaration.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Requests received, retransmissions included.
    requests,
    /// Responses received.
    responses,
    /// Retransmissions of requests.
    retransmissions,
    /// Messages that could not be parsed.
    malformed,
    /// Responses without our tag.
    foreign_responses,
    /// Responses without a matching transaction.
    stray_responses,
    /// Requests refused or dropped by admission control.
    overloaded,
    /// Requests challenged.
    challenged,
    /// Requests with wrong credentials.
    wrong_credentials,
    /// Requests that the server itself answered with a final response other than a challenge or a 2xx.
    refused,
    /// The server's own responses that were shortened or not sent, because they would have been more than twice as
    /// long as a UDP request from an unproven source.
    amplification_limited,
    /// REGISTER requests carried out.
    registered,
    /// REGISTER requests refused because they would exceed the number of contacts per address of record.
    too_many_contacts,
    /// Contacts, redirections and next hops not followed because they lead to this machine, and who named them is elsewhere.
    local_destinations,
    /// REGISTER requests refused because the store was too slow or could not store their changes.
    store_unavailable,
    /// Removals sent to members of other clusters: of the user's previous cluster, or of the cluster that passed the
    /// REGISTER on.
    removals_forwarded,
    /// Removals that could not be sent to another cluster.
    removals_lost,
    /// Requests forwarded with state.
    forwarded,
    /// Requests forwarded without state.
    forwarded_stateless,
    /// Responses forwarded.
    forwarded_responses,
    /// Branches ended by Timer C.
    ring_timeouts,
    /// Branches retried at another next hop, because the first was silent or unreachable, or refused.
    failovers,
    /// Requests not retried at another next hop, because the failover budget of their route or set was spent.
    failovers_refused,
    /// Requests answered 503 because the next hop asked for less load (RFC 7339).
    shed_for_next_hop,
    /// Requests answered 408, 500 or 503 because no next hop of their route or name responded, and requests refused
    /// at once because none is in service or none answers calls.
    no_gateway,
    /// Redirections followed.
    redirections_followed,
    /// Challenges answered for a trunk.
    challenges_answered,
    /// Requests refused because a table was full.
    table_full,
    /// Keep-alives sent.
    keep_alives,
    /// Responses to keep-alives sent as OPTIONS requests.
    keep_alive_answers,
    /// Calls begun: INVITEs that begin a call, without their repetitions after a challenge.
    calls,
    /// Calls answered with a 2xx.
    calls_answered,
    /// Calls that have ended.
    calls_ended,
    /// Events dropped because they were not taken in time.
    events_lost,
    /// Offers sent to media engines.
    media_offers,
    /// Answers sent to media engines.
    media_answers,
    /// Ends of calls sent to media engines.
    media_deletes,
    /// Requests to media engines repeated because no answer had come.
    media_retransmissions,
    /// Requests that a media engine did not answer in time, probes included.
    media_timeouts,
    /// Offers sent to another media engine because the call's own was silent, out of service or full.
    media_failovers,
    /// Offers and answers that media engines refused.
    media_engine_refusals,
    /// Datagrams at the media socket that answer no pending request.
    media_strays,
    /// Requests answered 503 because their media could not go through an engine.
    media_refused,
    /// Messages forwarded as received although their media should go through an engine.
    media_bypassed,
    /// Times that a table of the media hook was full.
    media_table_full,
}
