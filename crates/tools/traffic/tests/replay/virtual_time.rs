//! Replay in virtual time, without sockets or sleeping.

#[path = "../wire/mod.rs"]
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::Timestamp;
use strowger_traffic::driver::{Driver, Outbox, Setup};
use strowger_traffic::engine::{Load, Plan, SideScripts};
use strowger_traffic::meter::Meter;
use strowger_traffic::options::Target;
use strowger_traffic::replay::{Capture, ReplayOptions, ReplaySides};

use self::wire::Wire;

fn caller_at() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 40_000))
}

pub(crate) fn server_at() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 5070))
}

/// The far end of the caller's link.
pub(crate) enum FarEnd {
    /// The recorded callee.
    Callee(Box<Driver>),
    /// A server of the test: its answers to a message, each with a delay in ms.
    #[expect(clippy::type_complexity, reason = "said once")]
    Server(Box<dyn FnMut(&str) -> Vec<(u64, String)>>),
}

/// A running replay.
pub(crate) struct Replay {
    begins: Timestamp,
    pub(crate) now: Timestamp,
    pub(crate) caller: Driver,
    pub(crate) far: FarEnd,
    up: Wire,
    down: Wire,
    later: BTreeMap<(Timestamp, u64), Vec<u8>>,
    number: u64,
    /// Milliseconds since the beginning, direction, and method or status.
    pub(crate) trace: Vec<String>,
    pub(crate) messages: Vec<String>,
    /// Start time and script of each session.
    arrivals: VecDeque<(Timestamp, u16, u32)>,
}

pub(crate) fn options(played: ReplaySides) -> ReplayOptions {
    let target = Target::parse(&format!("udp:{}", server_at())).expect("a target");
    let to = (played == ReplaySides::Caller).then_some(target);
    let mut options = ReplayOptions::new(PathBuf::from("test.pcap"), to, 1);
    options.sides = played;
    // The driver's tests cover retransmissions.
    options.retransmits = false;
    options
}

pub(crate) fn plan(bytes: &[u8], options: &ReplayOptions) -> Plan {
    let capture = Capture::parse("test.pcap", bytes).expect("a capture");
    options.plan_of(&capture).unwrap_or_else(|error| panic!("{error}")).0
}

impl Replay {
    pub(crate) fn new(bytes: &[u8], options: &ReplayOptions) -> Self {
        let plan = plan(bytes, options);
        let begins = Timestamp::from_millis(1_000);
        let setup = |side: &SideScripts, remote, local| {
            let mut setup = Setup::new(side.scripts.clone(), Arc::clone(&plan.users), remote, local);
            setup.answers = side.answers.clone();
            setup.run = local.port().into();
            setup.retransmits = plan.retransmits;
            setup
        };
        let caller = Driver::new(setup(plan.caller.as_ref().expect("a caller"), server_at(), caller_at()));
        let far = match &plan.callee {
            Some(callee) => FarEnd::Callee(Box::new(Driver::new(setup(&callee.side, caller_at(), server_at())))),
            None => FarEnd::Server(Box::new(|_| Vec::new())),
        };
        let phase = plan.phases.last().expect("a phase");
        let Load::Open(arrivals) = &phase.load else { panic!("an open loop") };
        let moments = arrivals.times(1, 0, 1).zip(0..);
        let arrivals = moments
            .map(|(at, number)| (begins + Duration::from_nanos(at), phase.mix.pick(1, number), number as u32))
            .collect();
        Self {
            begins,
            now: begins,
            caller,
            far,
            up: Wire::default(),
            down: Wire::default(),
            later: BTreeMap::new(),
            number: 0,
            trace: Vec::new(),
            messages: Vec::new(),
            arrivals,
        }
    }

    pub(crate) fn against(mut self, server: impl FnMut(&str) -> Vec<(u64, String)> + 'static) -> Self {
        self.far = FarEnd::Server(Box::new(server));
        self
    }

    pub(crate) fn meter(&self) -> &Meter {
        self.caller.meter()
    }

    pub(crate) fn trace(&self) -> String {
        self.trace.join(" ")
    }

    /// Returns the messages whose start line begins like this.
    pub(crate) fn sent(&self, first: &str) -> Vec<&str> {
        self.messages.iter().map(String::as_str).filter(|message| message.starts_with(first)).collect()
    }

    /// Returns the answers that differ, as `INVITE 200>486`.
    pub(crate) fn differs(&self) -> Vec<String> {
        let all = self.meter().compared.differs();
        all.map(|(what, count)| format!("{} {}>{} {count}", what.method.as_str(), what.recorded, what.got)).collect()
    }

    /// Runs until nothing is left to do, or this many seconds have passed.
    pub(crate) fn run(mut self, seconds: u64) -> Self {
        let end = self.begins + Duration::from_secs(seconds);
        loop {
            self.settle();
            let callee = if let FarEnd::Callee(callee) = &self.far { callee.poll_timeout() } else { None };
            let later = self.later.keys().next().map(|(at, _)| *at);
            let arrival = self.arrivals.front().map(|(at, ..)| *at);
            let next = [self.caller.poll_timeout(), callee, later, arrival].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else { return self };
            self.now = self.now.max(next);
            if arrival.is_some_and(|at| at <= self.now) {
                let (_, script, number) = self.arrivals.pop_front().expect("an arrival");
                self.caller.begin(self.now, script, (number, number), &mut self.up).expect("no limit");
            } else if later.is_some_and(|at| at <= self.now) {
                let (_, bytes) = self.later.pop_first().expect("a message");
                self.down.push(caller_at(), bytes);
            } else {
                self.caller.handle_timeout(self.now, &mut self.up);
                if let FarEnd::Callee(callee) = &mut self.far {
                    callee.handle_timeout(self.now, &mut self.down);
                }
            }
        }
    }

    fn settle(&mut self) {
        loop {
            if let Some(bytes) = self.up.next() {
                self.note('>', &bytes);
                match &mut self.far {
                    FarEnd::Callee(callee) => {
                        callee.handle_message(self.now, self.now, (0, caller_at()), &bytes, &mut self.down);
                    }
                    FarEnd::Server(server) => {
                        for (delay, text) in server(&String::from_utf8_lossy(&bytes)) {
                            self.number += 1;
                            let due = self.now + Duration::from_millis(delay);
                            self.later.insert((due, self.number), text.into_bytes());
                        }
                    }
                }
            } else if let Some(bytes) = self.down.next() {
                self.note('<', &bytes);
                self.caller.handle_message(self.now, self.now, (0, server_at()), &bytes, &mut self.up);
            } else {
                return;
            }
        }
    }

    fn note(&mut self, way: char, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes).into_owned();
        assert!(strowger_message::Message::parse(bytes).is_ok(), "{text}");
        let mut words = text.split_whitespace();
        let first = words.next().unwrap_or_default();
        let word = if first == "SIP/2.0" { words.next().unwrap_or_default() } else { first };
        let micros = (self.now - self.begins).as_micros();
        let ms = format!("{}", micros as f64 / 1_000.0);
        self.trace.push(format!("{ms}{way}{word}"));
        self.messages.push(text);
    }
}

/// Returns a server's response to a request.
pub(crate) fn answer(request: &str, status: &str, more: &str) -> String {
    let copied = request.lines().filter(|line| {
        ["Via:", "From:", "Call-ID:", "CSeq:", "Record-Route:"].iter().any(|name| line.starts_with(name))
    });
    let copied: String = copied.map(|line| format!("{line}\r\n")).collect();
    let to = request.lines().find(|line| line.starts_with("To:")).expect("a To");
    let tag = if to.contains(";tag=") { "" } else { ";tag=far" };
    format!("SIP/2.0 {status}\r\n{copied}{to}{tag}\r\n{more}Content-Length: 0\r\n\r\n")
}
