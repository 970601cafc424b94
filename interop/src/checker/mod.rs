//! A checker in the manner of Jepsen: members and their engines are killed, stopped and cut off while clients register, refresh and
//! unregister, and keep a history. After each fault every member has what was acknowledged, and nothing that was removed. What got no
//! answer, or 503, may be either.

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
/// Within which time after a fault has ended every member has everything.
const SETTLED: Duration = Duration::from_secs(15);

/// Registrations that are told of after a fault.
const TOLD: usize = 5;
/// How long clients work in peace before the next fault.
const PEACE: Duration = Duration::from_millis(400);
/// How long a server or an engine stands still or is cut off: long enough that everybody notices.
const STANDSTILL: Duration = Duration::from_millis(2_500);
/// How long the clients go on after the last fault, until enough was acknowledged.
const REST: Duration = Duration::from_secs(300);

/// How much is done.
#[derive(Clone, Debug)]
pub struct Size {
    /// Registrations and removals that are acknowledged at least.
    pub acknowledged: u64,
    /// Members that are killed, one after the other.
    pub member_kills: u32,
    /// Engines that are killed; another one takes over where there is one.
    pub engine_kills: u32,
    /// Engines that are cut off from all others for a while.
    pub partitions: u32,
    /// Members and engines that stand still for a while, as many of each.
    pub stops: u32,
    /// Users, of whom each has one contact.
    pub users: usize,
    /// Requests a second.
    pub rate: u32,
    /// `store.mode` of the members.
    pub store: &'static str,
}

impl Size {
    /// What fits among the usual tests.
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
    /// What is to be shown of an arrangement.
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

    /// As the environment says: `STROWGER_CHECKER_ACKNOWLEDGED`, `_MEMBER_KILLS`, `_ENGINE_KILLS`, `_PARTITIONS`, `_STOPS`,
    /// `_USERS`, `_RATE`.
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

/// What the environment says of a number, where it says something.
fn said<T: std::str::FromStr>(name: &str, usual: T) -> T {
    env::var(format!("STROWGER_CHECKER_{name}")).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Of which arrangement.
    pub arrangement: Arrangement,
    /// Registrations and removals that were acknowledged.
    pub acknowledged: u64,
    /// What was done to members and engines.
    pub faults: Faults,
    /// Registrations that were acknowledged, and that a member did not have in time.
    pub lost: u32,
    /// Those that were removed or had expired, and that a member had.
    pub returned: u32,
    /// How long it took.
    pub took: Duration,
    /// What was wrong, a line each.
    pub told: Vec<String>,
}

/// How often what was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Kills of a member.
    pub member_kills: u32,
    /// Kills of an engine.
    pub engine_kills: u32,
    /// Engines that were cut off.
    pub partitions: u32,
    /// Members that were cut off.
    pub members_cut_off: u32,
    /// Members and engines that stood still.
    pub stops: u32,
}

impl Outcome {
    /// What the columns of its line are.
    pub const HEAD: &'static str =
        "arrangement          acknowledged member kills engine kills partitions stops   lost returned promised seconds";
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Faults { member_kills, engine_kills, partitions, members_cut_off, stops } = self.faults;
        let partitions = format!("{partitions}+{members_cut_off}");
        // What may be lost, by the table in docs/operating/members.md: of these faults nothing.
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

/// Has members share registrations through such engines, and sees what they lose.
///
/// # Panics
/// When a server or an engine does not start or does not come back.
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

/// A member, and where it is.
#[derive(Debug)]
struct Member {
    server: Server,
    machine: Machine,
    /// The number of its machine.
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
    /// Which member's turn it is.
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

    /// All members take part again, and have what was acknowledged; else that is noted.
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
            // Each counts once.
            self.clients.history(user).acknowledged = None;
        }
    }

    /// Users of whom a member has something else than they know.
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

/// The users whom a member lists, and the preference of each in thousandths.
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
