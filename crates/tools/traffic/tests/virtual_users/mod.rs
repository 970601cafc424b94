//! Users in virtual time: both ends, and between them a server that registers users, challenges them and forwards
//! requests.

#![allow(dead_code, reason = "each test file uses a part")]

#[path = "../wire/mod.rs"]
mod wire;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::Timestamp;
use strowger_traffic::driver::{Driver, EndedSession, Outbox, Setup};
use strowger_traffic::engine::{Activity, ActivitySchedule, CallRole, GapFrom};
use strowger_traffic::population::Users;
use strowger_traffic::workload::Workload;

use self::wire::Wire;

const fn at(port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), port)
}

const CALLER: SocketAddr = at(40_000);
const CALLEE: SocketAddr = at(5070);
const SERVER: SocketAddr = at(5060);

const SEED: u64 = 12;

/// A message between the users and the server.
#[derive(Clone, Debug)]
pub(crate) struct WireMessage {
    pub(crate) at: Timestamp,
    /// Whether it is from the server.
    pub(crate) is_from_server: bool,
    /// The method or the status.
    pub(crate) what: String,
    /// The method in CSeq.
    pub(crate) method: String,
    pub(crate) call_id: String,
    /// The user in From, and its tag.
    pub(crate) from: String,
    pub(crate) tag: String,
    pub(crate) has_credentials: bool,
    pub(crate) text: String,
}

pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) caller: Driver,
    pub(crate) callee: Driver,
    up: Wire,
    down: Wire,
    habits: ActivitySchedule,
    list: Vec<Activity>,
    users: Range<u32>,
    /// All messages between callers, callees and the server, if they are kept.
    pub(crate) seen: Vec<WireMessage>,
    pub(crate) keeps: bool,
    /// Whether the server rejects a request with 503.
    pub(crate) refuses: Box<dyn FnMut(&WireMessage) -> bool>,
    contacts: HashMap<String, SocketAddr>,
}

impl World {
    pub(crate) fn new(workload: &Workload, users: u32, habits: &[Activity]) -> Self {
        let population = Arc::new(Users::generated("user%", "secret", "example.com", users));
        let scripts = |scripts: &[_]| -> Arc<[_]> { scripts.to_vec().into() };
        let mut caller = Setup::new(scripts(&workload.callers), population.clone(), SERVER, CALLER);
        caller.seed = SEED;
        let mut callee = Setup::new(scripts(&workload.callees), population, SERVER, CALLEE);
        (callee.answers, callee.number, callee.seed) = (workload.answers.clone(), 1, SEED);
        let now = Timestamp::from_millis(1_000);
        let (mut caller, callee) = (Driver::new(caller), Driver::new(callee));
        caller.watch_ends();
        Self {
            now,
            caller,
            callee,
            up: Wire::default(),
            down: Wire::default(),
            habits: ActivitySchedule::new(habits, &(0..users), SEED, (0, 1)).beginning(now),
            list: habits.to_vec(),
            users: 0..users,
            seen: Vec::new(),
            keeps: true,
            refuses: Box::new(|_| false),
            contacts: HashMap::new(),
        }
    }

    /// Runs for some time, with new activities of users if `is_open`, else only until those in progress have ended.
    pub(crate) fn run(&mut self, time: Duration, is_open: bool) {
        let end = self.now + time;
        loop {
            self.settle();
            while let Some(EndedSession { script, caller: user, .. }) = self.caller.take_ended() {
                let does = |habit: &Activity| {
                    habit.who == CallRole::Caller && habit.gap_from == GapFrom::End && habit.mix.runs(script)
                };
                let habit = self.list.iter().position(does).expect("a habit");
                self.habits.on_end(habit, user, self.now);
            }
            let habit = self.habits.next_at().filter(|_| is_open);
            let next = [habit, self.caller.poll_timeout(), self.callee.poll_timeout()].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            if is_open {
                self.begin();
            }
            self.caller.handle_timeout(self.now, &mut self.up);
            self.callee.handle_timeout(self.now, &mut self.down);
        }
        self.now = end;
    }

    fn begin(&mut self) {
        while let Some(due) = self.habits.poll_due(self.now) {
            let habit = &self.list[due.habit];
            let script = habit.mix.pick(0, due.number);
            let other = u32::try_from(due.number % u64::from(self.users.end)).expect("small");
            let begun = match habit.who {
                CallRole::Caller => self.caller.begin(self.now, script, (due.user, other), &mut self.up),
                CallRole::Callee => self.callee.begin(self.now, script, (due.user, due.user), &mut self.down),
            };
            begun.expect("no limit");
        }
    }

    fn settle(&mut self) {
        loop {
            if let Some((to, bytes)) = self.up.next_with_peer() {
                self.carry(CALLER, to, &bytes);
            } else if let Some((to, bytes)) = self.down.next_with_peer() {
                self.carry(CALLEE, to, &bytes);
            } else {
                return;
            }
        }
    }

    fn carry(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        if to == SERVER {
            self.serve(from, std::str::from_utf8(bytes).expect("ASCII"));
        } else if to == CALLEE {
            self.callee.handle_message(self.now, self.now, (0, from), bytes, &mut self.down);
        } else {
            self.caller.handle_message(self.now, self.now, (0, from), bytes, &mut self.up);
        }
    }

    /// Handles a message at the server, which is stateless except for its registrations.
    fn serve(&mut self, from: SocketAddr, text: &str) {
        let seen = self.look(text, false);
        if seen.what.starts_with(|c: char| c.is_ascii_digit()) {
            // The topmost Via is the server's.
            let (before, after) = text.split_once("Via: ").expect("a Via");
            let after = after.split_once("\r\n").expect("a line").1;
            return self.deliver(CALLER, &format!("{before}{after}"));
        }
        let is_ours = text.lines().any(|line| line.starts_with("To: ") && line.contains("tag=server"));
        if seen.what == "ACK" && is_ours {
            return;
        }
        let is_asked = matches!(seen.what.as_str(), "REGISTER" | "INVITE" | "BYE");
        if is_asked && !seen.has_credentials {
            let (status, name) = if seen.what == "REGISTER" { (401, "WWW") } else { (407, "Proxy") };
            let challenge = format!(
                "{name}-Authenticate: Digest realm=\"example.com\", nonce=\"n\", algorithm=MD5, qop=\"auth\"\r\n"
            );
            return self.answer(from, text, status, &challenge);
        }
        if (self.refuses)(&seen) {
            return self.answer(from, text, 503, "");
        }
        if seen.what == "REGISTER" {
            self.contacts.insert(seen.from, from);
            return self.answer(from, text, 200, "");
        }
        let (line, rest) = text.split_once("\r\n").expect("a start line");
        let own = "Via: SIP/2.0/UDP 127.0.0.1:5060;branch=z9hG4bKserver\r\nRecord-Route: <sip:127.0.0.1:5060;lr>\r\n";
        self.deliver(CALLEE, &format!("{line}\r\n{own}{rest}"));
    }

    fn answer(&mut self, to: SocketAddr, request: &str, status: u16, more: &str) {
        let copied = ["Via:", "From:", "To:", "Call-ID:", "CSeq:"];
        let mut text = format!("SIP/2.0 {status} x\r\n");
        for line in request.lines().filter(|line| copied.iter().any(|name| line.starts_with(name))) {
            let is_new = line.starts_with("To:") && !line.contains("tag=");
            text.push_str(line);
            text.push_str(if is_new { ";tag=server\r\n" } else { "\r\n" });
        }
        self.deliver(to, &format!("{text}{more}Content-Length: 0\r\n\r\n"));
    }

    fn deliver(&mut self, to: SocketAddr, text: &str) {
        self.look(text, true);
        self.carry(SERVER, to, text.as_bytes());
    }

    fn look(&mut self, text: &str, is_from_server: bool) -> WireMessage {
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let mut words = text.split(' ');
        let first = words.next().unwrap_or_default();
        let what = if first == "SIP/2.0" { words.next().unwrap_or_default() } else { first };
        let from = value("From: ");
        let seen = WireMessage {
            at: self.now,
            is_from_server,
            what: what.to_owned(),
            method: value("CSeq: ").split(' ').nth(1).unwrap_or_default().to_owned(),
            call_id: value("Call-ID: ").to_owned(),
            from: from.split(['@', ':']).nth(1).unwrap_or_default().to_owned(),
            tag: from.split_once(";tag=").map_or("", |(_, tag)| tag).to_owned(),
            has_credentials: text.contains("uthorization: Digest"),
            text: if self.keeps { text.to_owned() } else { String::new() },
        };
        if self.keeps {
            self.seen.push(seen.clone());
        }
        seen
    }
}
