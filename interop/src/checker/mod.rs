//! A Jepsen-style checker. Members and their engines are killed, stopped and isolated while clients register,
//! refresh, unregister and keep a history. After each fault every member must have what was acknowledged, and nothing
//! that was removed. A change answered with 503 or not at all may or may not have taken effect.

mod clients;
mod faults;
mod history;
mod query_client;
pub mod stages;

use std::collections::HashMap;
use std::env;
use std::fmt;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::databases::{Arrangement, Engines};
use crate::machine::{Lan, Machine};
use crate::{Config, Server, poll};

use self::clients::Clients;
use self::history::Contradiction;

const KEY: [u8; 16] = *b"a key of members";
const MEMBERS: u16 = 3;
/// Time after the end of a fault within which every member must have all registrations.
const SETTLED: Duration = Duration::from_secs(15);

/// Maximum number of contradictions reported after one fault.
const TOLD: usize = 5;
/// Undisturbed time before the next fault.
const PEACE: Duration = Duration::from_millis(400);
/// Time for which a server or an engine is stopped or isolated: long enough to be noticed by all others.
const STANDSTILL: Duration = Duration::from_millis(2_500);
/// Maximum time for which clients continue after the last fault, until enough changes are acknowledged.
const REST: Duration = Duration::from_secs(300);

/// Extent of a check.
#[derive(Clone, Debug)]
pub struct Size {
    /// Minimum number of acknowledged registrations and removals.
    pub acknowledged: u64,
    /// Member kills, one at a time.
    pub member_kills: u32,
    /// Engine kills. Another engine takes over if there is one.
    pub engine_kills: u32,
    /// Temporary isolations of an engine from all others.
    pub partitions: u32,
    /// Temporary stops: this many of members and as many of engines.
    pub stops: u32,
    /// Users, each with one contact.
    pub users: usize,
    /// Requests per second.
    pub rate: u32,
    /// `store.mode` of the members.
    pub store: &'static str,
}

impl Size {
    /// Size that fits into the ordinary tests.
    pub const SMALL: Size = Size {
        acknowledged: 500,
        member_kills: 1,
        engine_kills: 1,
        partitions: 1,
        stops: 0,
        users: 96,
        rate: 200,
        store: "write-through",
    };
    /// Size for a full check of an arrangement.
    pub const FULL: Size = Size {
        acknowledged: 100_000,
        member_kills: 50,
        engine_kills: 20,
        partitions: 10,
        stops: 5,
        users: 512,
        rate: 600,
        ..Size::SMALL
    };

    /// Returns the size with values from the environment: `STROWGER_CHECKER_ACKNOWLEDGED`, `_MEMBER_KILLS`,
    /// `_ENGINE_KILLS`, `_PARTITIONS`, `_STOPS`, `_USERS`, `_RATE`.
    #[must_use]
    pub fn or_as_the_environment_says(self) -> Size {
        Size {
            acknowledged: said("ACKNOWLEDGED", self.acknowledged),
            member_kills: said("MEMBER_KILLS", self.member_kills),
            engine_kills: said("ENGINE_KILLS", self.engine_kills),
            partitions: said("PARTITIONS", self.partitions),
            stops: said("STOPS", self.stops),
            users: said("USERS", self.users),
            rate: said("RATE", self.rate),
            store: self.store,
        }
    }
}

/// Returns a number from the environment, or `usual` if the variable is not set.
fn said<T: std::str::FromStr>(name: &str, usual: T) -> T {
    env::var(format!("STROWGER_CHECKER_{name}")).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Result of a check.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Arrangement checked.
    pub arrangement: Arrangement,
    /// Acknowledged registrations and removals.
    pub acknowledged: u64,
    /// Faults injected.
    pub faults: Faults,
    /// Acknowledged registrations that a member did not have in time.
    pub lost: u32,
    /// Removed or expired registrations that a member still had.
    pub returned: u32,
    /// Duration of the check.
    pub took: Duration,
    /// Reports of what was wrong, one line each.
    pub told: Vec<String>,
}

/// Number of faults by kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Member kills.
    pub member_kills: u32,
    /// Engine kills.
    pub engine_kills: u32,
    /// Isolated engines.
    pub partitions: u32,
    /// Isolated members.
    pub members_cut_off: u32,
    /// Stopped members and engines.
    pub stops: u32,
}

impl Outcome {
    /// Column headings of the result line.
    pub const HEAD: &'static str =
        "arrangement          acknowledged member kills engine kills partitions stops   lost returned promised seconds";
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Faults { member_kills, engine_kills, partitions, members_cut_off, stops } = self.faults;
        let partitions = format!("{partitions}+{members_cut_off}");
        // Losses permitted by the table in docs/operating/members.md: none under these faults.
        let promised = 0;
        write!(
            f,
            "{:<20} {:>12} {member_kills:>12} {engine_kills:>12} {partitions:>10} {stops:>5} {:>6} {:>8} {promised:>8} {:>7.0}",
            self.arrangement,
            self.acknowledged,
            self.lost,
            self.returned,
            self.took.as_secs_f64()
        )
    }
}

/// Runs members that share registrations through such engines, and reports what they lose.
///
/// # Panics
/// If a server or an engine does not start or does not come back.
#[must_use]
pub fn check(arrangement: Arrangement, size: &Size) -> Outcome {
    let began = Instant::now();
    let mut trial = Trial::start(arrangement, size);
    for fault in faults::plan(size) {
        trial.suffer(fault);
        trial.see_to_it_that_all_is_well(&format!("{fault:?}"));
    }
    let enough = poll(REST, || (trial.clients.acknowledged() >= size.acknowledged).then_some(()));
    if enough.is_none() {
        trial.told.push("not as many were acknowledged as wanted".to_owned());
    }
    trial.see_to_it_that_all_is_well("the end");
    let acknowledged = trial.clients.acknowledged();
    let Trial { faults, lost, returned, told, .. } = trial;
    Outcome { arrangement, acknowledged, faults, lost, returned, took: began.elapsed(), told }
}

/// A member and its machine.
#[derive(Debug)]
struct Member {
    server: Server,
    machine: Machine,
    /// Index of its machine.
    place: usize,
}

/// Members, their engines and clients.
#[derive(Debug)]
struct Trial {
    clients: Clients,
    members: Vec<Member>,
    engines: Engines,
    lan: Lan,
    faults: Faults,
    /// Counter that selects the next member.
    turn: usize,
    lost: u32,
    returned: u32,
    told: Vec<String>,
}

impl Trial {
    fn start(arrangement: Arrangement, size: &Size) -> Trial {
        let of_engines = arrangement.machines();
        let lan = Lan::new(of_engines + MEMBERS as u8);
        let engines = Engines::start(arrangement, &lan);
        let member = |number: u16| {
            let place = usize::from(of_engines) + usize::from(number) - 1;
            let machine = lan.machine(place);
            let more = format!("[cluster]\nstore = \"{}\"\nmember = {number}\n", engines.url(number));
            let host = machine.address().into();
            let config =
                Config { host, more, key: Some(KEY), require: Vec::new(), store: size.store, ..Config::default() };
            Member { server: config.start_in(machine.network()), machine, place }
        };
        let members: Vec<Member> = (1..=MEMBERS).map(member).collect();
        let addresses = members.iter().map(|member| member.server.address()).collect();
        let clients = Clients::start(lan.clients(), addresses, (size.users, size.rate), clients::LONG);
        let mut trial = Trial {
            clients,
            members,
            engines,
            lan,
            faults: Faults::default(),
            turn: 0,
            lost: 0,
            returned: 0,
            told: Vec::new(),
        };
        trial.see_to_it_that_all_is_well("the start");
        trial
    }

    /// Waits until all members participate and have what was acknowledged, or records what is wrong.
    fn see_to_it_that_all_is_well(&mut self, after: &str) {
        self.clients.pause();
        let is_well = |member: &Member| {
            let cluster = &member.server.status()["cluster"];
            cluster["warm"] == true && cluster["trouble"].is_null() && cluster["waiting"] == 0
        };
        let settled =
            poll(SETTLED, || (self.members.iter().all(is_well) && self.contradictions().is_empty()).then_some(()));
        if settled.is_none() {
            for member in &self.members {
                self.told.push(format!("after {after}: {}", member.server.status()["cluster"]));
            }
            self.note_contradictions(after);
        }
        self.clients.go_on();
    }

    fn note_contradictions(&mut self, after: &str) {
        for (number, (user, (contradiction, what))) in self.contradictions().into_iter().enumerate() {
            match contradiction {
                Contradiction::Lost => self.lost += 1,
                Contradiction::Returned => self.returned += 1,
            }
            if number < TOLD {
                self.told.push(format!("after {after}: {contradiction:?}: {what}"));
            }
            // Each contradiction counts once.
            self.clients.history(user).acknowledged = None;
        }
    }

    /// Returns the users for whom a member's state contradicts their history.
    fn contradictions(&self) -> HashMap<usize, (Contradiction, String)> {
        let mut all = HashMap::new();
        for member in &self.members {
            let listed = listed(&member.server);
            let now = Instant::now();
            for user in 0..self.clients.users() {
                let history = *self.clients.history(user);
                let preference = listed.get(&clients::name(user)).copied();
                if let Some(contradiction) = history.contradiction(now, preference) {
                    let what = format!("user{user} at {}: {preference:?}, {history:?}", member.server.address());
                    all.insert(user, (contradiction, what));
                }
            }
        }
        all
    }
}

/// Returns the users that a member lists, each with its q value in thousandths.
fn listed(server: &Server) -> HashMap<String, u32> {
    let text = server.control(&["registrations", "--limit", "10000", "--json"]);
    let listed: Value = serde_json::from_str(&text).unwrap_or_default();
    let registrations = listed["registrations"].as_array().cloned().unwrap_or_default();
    let registration = |one: &Value| {
        let user = one["aor"].as_str()?.split('@').next()?.to_owned();
        Some((user, (one["q"].as_f64()? * 1_000.0).round() as u32))
    };
    registrations.iter().filter_map(registration).collect()
}
