//! Scripted user agents: phones that register, call, ring, answer, are busy, hang up and send messages, with client and
//! server transactions of their own.

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

/// What a phone does of itself.
#[derive(Clone, Debug)]
pub enum Action {
    /// Registers its contact; 0 removes it.
    Register {
        /// The expiry that it asks for, in seconds.
        expires_s: u32,
    },
    /// Sends a REGISTER with the Call-ID of the others and the lowest CSeq, as a delayed one might have.
    RegisterLate,
    /// Registers a second contact beside its own.
    RegisterTwo {
        /// The expiry that it asks for both, in seconds.
        expires_s: u32,
    },
    /// Forgets how it has counted its registrations, as a phone does that is switched off and on.
    Restart,
    /// Registers the address of another user at the server as a further contact: calls come back to the server.
    Divert {
        /// The other user.
        user: String,
    },
    /// Asks for the bindings.
    Fetch,
    /// Removes all bindings.
    Clear,
    /// Calls a user.
    Call {
        /// The user.
        user: String,
        /// How long it talks before it hangs up.
        hold: Duration,
        /// How long it waits for an answer before it cancels.
        patience: Option<Duration>,
    },
    /// Sends a MESSAGE.
    Message {
        /// The user.
        user: String,
    },
    /// Sends OPTIONS to the server.
    Options,
}

/// What a phone does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerBehavior {
    /// Rings, answers, and perhaps hangs up first.
    Answer {
        /// How long it rings.
        ring: Duration,
        /// How long it talks before it hangs up.
        hold: Option<Duration>,
    },
    /// Rings until it is cancelled.
    Ring,
    /// Says every minute that it still rings, and after some is busy.
    RingOn,
    /// 486.
    Busy,
    /// 603.
    Decline,
    /// 503 to everything.
    Unavailable,
    /// Comes to life when others have given it up: says nothing to a call for long, then rings and answers.
    Late {
        /// How long it says nothing.
        silence: Duration,
        /// How long it rings.
        ring: Duration,
    },
    /// Hears nothing at all, as if it were switched off.
    Dead,
}

/// One phone and its script.
#[derive(Clone, Debug)]
pub struct Phone {
    /// The user part of its address of record; its password is the same.
    pub user: String,
    /// The domain.
    pub domain: String,
    /// Where it is.
    pub address: SocketAddr,
    /// Where it believes that it is: differs behind a translation.
    pub own_address: SocketAddr,
    /// How it reaches the server, and is reached.
    pub transport: Transport,
    /// The preference that it registers with.
    pub q: Option<&'static str>,
    /// It says which device it is.
    pub sends_instance: bool,
    /// It registers the flow besides (RFC 5626).
    pub sends_reg_id: bool,
    /// What it does with calls.
    pub answer_behavior: AnswerBehavior,
    /// What it does when.
    pub script: Vec<(Duration, Action)>,
}

/// A phone at work.
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
    /// How often it was switched on.
    starts: u32,
    /// It has registered, and does so again when its connection is lost.
    registers: bool,
    outbox: VecDeque<(Flow, Vec<u8>)>,
    /// What the script achieved.
    pub tally: Tally,
}

/// How often what was achieved.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Registrations that were accepted.
    pub registered: u64,
    /// Calls that were answered, as their caller sees it.
    pub answered: u64,
    /// Calls that were refused, as their caller sees it.
    pub refused: u64,
    /// Messages and OPTIONS that were answered 2xx.
    pub delivered: u64,
    /// Requests that heard no final response.
    pub unanswered: u64,
}

/// A call that was answered, at either end.
#[derive(Clone, Debug)]
struct Dialog {
    call_id: String,
    local: String,
    remote: String,
    target: String,
    routes: Vec<String>,
    cseq: u32,
    /// The caller's ACK, which goes out again with each repetition of the 2xx.
    ack: Option<(Flow, Vec<u8>)>,
    /// The callee's 2xx, which is repeated until the ACK comes.
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
    /// A phone that begins its script at the clock's origin.
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

    /// Where the phone is.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.phone.address
    }

    /// How the phone reaches the server.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        self.phone.transport
    }

    /// A message came.
    pub fn handle_message(&mut self, now: Timestamp, flow: Flow, bytes: &[u8]) {
        if self.phone.answer_behavior == AnswerBehavior::Dead
            && Peek::read(bytes).is_ok_and(|p| matches!(p.kind, Kind::Request(_)))
        {
            return;
        }
        // An empty line keeps a translation open and asks for nothing.
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

    /// A connection of the phone's was lost.
    pub fn handle_closed(&mut self, now: Timestamp, connection: ConnId) {
        self.transactions.handle_closed(now, connection, self.server);
        if self.registers {
            let pause = Duration::from_millis(self.rng.between(10, 8000));
            self.schedule(now + pause, Task::Reconnect);
        }
        self.drain_events();
    }

    /// What is due.
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

    /// When something is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let task = self.tasks.first_key_value().map(|((at, _), _)| *at);
        let timer = self.transactions.poll_timeout().map(|wakeup| wakeup.at);
        task.into_iter().chain(timer).min()
    }

    /// Takes one message that is to be sent; without a connection on a stream, by any.
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

    /// A word that no agent has said before.
    fn token(&mut self) -> String {
        format!("phone-{}-{:x}", self.number, self.rng.next_u64())
    }

    /// The address of record of a user, of our domain where none is named.
    fn uri_of(&self, user: &str) -> String {
        if user.contains('@') { format!("sip:{user}") } else { format!("sip:{user}@{}", self.phone.domain) }
    }

    fn own_uri(&self) -> String {
        let transport = if self.phone.transport == Transport::Tcp { ";transport=tcp" } else { "" };
        format!("sip:{}@{}{transport}", self.phone.user, self.phone.own_address)
    }

    /// How the phone sends to `peer`.
    const fn flow_to(&self, peer: SocketAddr) -> Flow {
        Flow::new(ListenerId(0), self.phone.transport, peer)
    }
}
