//! Scripted user agents: phones that register, call, ring, answer, are busy, hang up and send messages, with client
//! and server transactions of their own.

mod uac;
mod uas;
pub(crate) mod wire;

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use strowger_foundation::{ConnId, Flow, ListenerId, TagKey, Timestamp, Transport};
use strowger_message::{Kind, Message, Peek};
use strowger_transaction::{ServerKey, Timing, Transactions};

use crate::rng::Rng;
use uac::Exchange;
use uas::Ringing;

/// Scripted action of a phone.
#[derive(Clone, Debug)]
pub enum Action {
    /// Registers the phone's contact.
    Register {
        /// Requested expiry, in seconds; 0 removes the contact.
        expires_s: u32,
    },
    /// Sends a REGISTER with the Call-ID of the others and the lowest CSeq, like a delayed one.
    RegisterLate,
    /// Registers a second contact in addition to the phone's own.
    RegisterTwo {
        /// Requested expiry of both, in seconds.
        expires_s: u32,
    },
    /// Resets the phone's REGISTER state, as switching it off and on does.
    Restart,
    /// Registers another user's address at the server as a further contact, so calls return to the server.
    Divert {
        /// Other user.
        user: String,
    },
    /// Queries the bindings.
    Fetch,
    /// Removes all bindings.
    Clear,
    /// Calls a user.
    Call {
        /// Called user.
        user: String,
        /// Duration of the call until the phone hangs up.
        hold: Duration,
        /// Time to wait for an answer before it cancels.
        patience: Option<Duration>,
    },
    /// Sends a MESSAGE.
    Message {
        /// Receiving user.
        user: String,
    },
    /// Sends OPTIONS to the server.
    Options,
}

/// Behavior of a called phone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerBehavior {
    /// Rings, answers, and may hang up first.
    Answer {
        /// Ringing time.
        ring: Duration,
        /// Duration of the call until the phone hangs up, if it does.
        hold: Option<Duration>,
    },
    /// Rings until it is cancelled.
    Ring,
    /// Sends 180 every minute, and is finally busy.
    RingOn,
    /// Answers 486.
    Busy,
    /// Answers 603.
    Decline,
    /// Answers every request with 503.
    Unavailable,
    /// Is silent for longer than the server waits, then rings and answers.
    Late {
        /// Duration of the silence.
        silence: Duration,
        /// Ringing time.
        ring: Duration,
    },
    /// Ignores all messages, as if switched off.
    Dead,
}

/// Phone and its script.
#[derive(Clone, Debug)]
pub struct Phone {
    /// User part of its address of record, and its password.
    pub user: String,
    /// Domain.
    pub domain: String,
    /// Address.
    pub address: SocketAddr,
    /// Address that it believes it has; it differs behind a NAT.
    pub own_address: SocketAddr,
    /// Transport between phone and server.
    pub transport: Transport,
    /// q value with which it registers.
    pub q: Option<&'static str>,
    /// Whether its contact has a `+sip.instance` parameter.
    pub sends_instance: bool,
    /// Whether its contact has a `reg-id` parameter as well (RFC 5626).
    pub sends_reg_id: bool,
    /// Behavior when called.
    pub answer_behavior: AnswerBehavior,
    /// Actions with their times.
    pub script: Vec<(Duration, Action)>,
}

/// State of a running phone.
#[derive(Debug)]
pub struct Agent {
    number: usize,
    phone: Phone,
    server: SocketAddr,
    transactions: Transactions,
    secret: TagKey,
    rng: Rng,
    tasks: BTreeMap<(Timestamp, u64), Task>,
    serial: u64,
    exchanges: Vec<Exchange>,
    ringing: Vec<Ringing>,
    dialogs: Vec<Dialog>,
    register_cseq: u32,
    /// Number of times it was switched on.
    starts: u32,
    /// Whether it has registered, and registers again after its connection is lost.
    registers: bool,
    outbox: VecDeque<(Flow, Vec<u8>)>,
    /// Results of the script.
    pub tally: Tally,
}

/// Results by kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Accepted registrations.
    pub registered: u64,
    /// Answered calls, as seen by the caller.
    pub answered: u64,
    /// Rejected calls, as seen by the caller.
    pub refused: u64,
    /// MESSAGE and OPTIONS requests with a 2xx response.
    pub delivered: u64,
    /// Requests without a final response.
    pub unanswered: u64,
}

/// Answered call, at either end.
#[derive(Clone, Debug)]
struct Dialog {
    call_id: String,
    local: String,
    remote: String,
    target: String,
    routes: Vec<String>,
    cseq: u32,
    /// Caller's ACK, which is sent again for each retransmission of the 2xx.
    ack: Option<(Flow, Vec<u8>)>,
    /// Callee's 2xx, which is retransmitted until the ACK arrives.
    accepted: Option<uas::AcceptedInvite>,
    over: bool,
}

#[derive(Clone, Copy, Debug)]
enum Task {
    Act(usize),
    GiveUp(usize),
    Answer(usize),
    RingAgain(usize),
    WakeUp(usize),
    Reconnect,
    RepeatAccepted(usize),
    HangUp(usize),
}

impl Agent {
    /// Creates a phone whose script starts at time zero.
    #[must_use]
    pub fn new(number: usize, phone: Phone, server: SocketAddr, mut rng: Rng) -> Self {
        let mut agent = Self {
            number,
            server,
            transactions: Transactions::new(Timing::default(), rng.next_u64()),
            secret: TagKey::new([7; 16]),
            rng,
            tasks: BTreeMap::new(),
            serial: 0,
            exchanges: Vec::new(),
            ringing: Vec::new(),
            dialogs: Vec::new(),
            register_cseq: 0,
            starts: 0,
            registers: false,
            outbox: VecDeque::new(),
            tally: Tally::default(),
            phone,
        };
        for index in 0..agent.phone.script.len() {
            let at = Timestamp::ZERO + agent.phone.script[index].0;
            agent.schedule(at, Task::Act(index));
        }
        agent
    }

    /// Returns the phone's address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.phone.address
    }

    /// Returns the transport between phone and server.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        self.phone.transport
    }

    /// Handles an incoming message.
    pub fn handle_message(&mut self, now: Timestamp, flow: Flow, bytes: &[u8]) {
        if self.phone.answer_behavior == AnswerBehavior::Dead
            && Peek::read(bytes).is_ok_and(|p| matches!(p.kind, Kind::Request(_)))
        {
            return;
        }
        // An empty line is a keep-alive and needs no response.
        let Ok(message) = Message::parse(bytes) else { return };
        match message.status() {
            Some(status) => self.handle_response(now, &message, status),
            None => {
                let key = ServerKey::of(&self.secret, message.head(), message.via(), message.method());
                self.handle_request(now, flow, key, &message);
            }
        }
        self.drain_events();
    }

    /// Handles the loss of a connection.
    pub fn handle_closed(&mut self, now: Timestamp, connection: ConnId) {
        self.transactions.handle_closed(now, connection, self.server);
        if self.registers {
            let pause = Duration::from_millis(self.rng.between(10, 8000));
            self.schedule(now + pause, Task::Reconnect);
        }
        self.drain_events();
    }

    /// Handles everything that is due.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.transactions.handle_timeout(now);
        while let Some(entry) = self.tasks.first_entry().filter(|entry| entry.key().0 <= now) {
            match entry.remove() {
                Task::Act(index) => self.act(now, index),
                Task::GiveUp(exchange) => self.cancel_call(now, exchange),
                Task::Answer(ringing) => self.answer_call(now, ringing),
                Task::RingAgain(ringing) => self.ring_again(now, ringing),
                Task::WakeUp(ringing) => self.wake_up(now, ringing),
                Task::Reconnect => self.reconnect(now),
                Task::RepeatAccepted(dialog) => self.repeat_accepted(now, dialog),
                Task::HangUp(dialog) => self.hang_up(now, dialog),
            }
        }
        self.drain_events();
    }

    /// Returns the time of the next timeout.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let task = self.tasks.first_key_value().map(|((at, _), _)| *at);
        let timer = self.transactions.poll_timeout().map(|wakeup| wakeup.at);
        task.into_iter().chain(timer).min()
    }

    /// Takes one message to send. A stream flow without a connection may use any.
    pub fn poll_transmit(&mut self) -> Option<(Flow, Vec<u8>)> {
        let mut buffer = Vec::new();
        if let Some(flow) = self.transactions.poll_transmit(&mut buffer) {
            return Some((flow, buffer));
        }
        self.outbox.pop_front()
    }

    fn schedule(&mut self, at: Timestamp, task: Task) {
        self.serial += 1;
        self.tasks.insert((at, self.serial), task);
    }

    fn drain_events(&mut self) {
        while let Some(event) = self.transactions.poll_event() {
            use strowger_transaction::Event::{ClientFailed, ClientTimeout};
            if let ClientTimeout { user, .. } | ClientFailed { user, .. } = event {
                let exchange = &self.exchanges[user as usize];
                self.tally.unanswered += u64::from(exchange.answered.is_none());
            }
        }
    }

    /// Returns a token that is unique among all agents.
    fn token(&mut self) -> String {
        format!("phone-{}-{:x}", self.number, self.rng.next_u64())
    }

    /// Returns the address of record of a user, by default in the phone's own domain.
    fn uri_of(&self, user: &str) -> String {
        if user.contains('@') { format!("sip:{user}") } else { format!("sip:{user}@{}", self.phone.domain) }
    }

    fn own_uri(&self) -> String {
        let transport = if self.phone.transport == Transport::Tcp { ";transport=tcp" } else { "" };
        format!("sip:{}@{}{transport}", self.phone.user, self.phone.own_address)
    }

    /// Returns the flow to `peer`.
    const fn flow_to(&self, peer: SocketAddr) -> Flow {
        Flow::new(ListenerId(0), self.phone.transport, peer)
    }
}
