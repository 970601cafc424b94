//! The checker for two stages. Phones register, refresh and unregister through any first-stage server while servers
//! of both stages are killed, stopped and isolated, and the clusters' shares of the users change.
//!
//! After each fault every user is looked up through all first-stage servers and at one member of any cluster. A user
//! with an acknowledged registration must be reached. One whose registration was removed or has expired must not.
//!
//! The following must hold while servers disagree on the assignment of users, and is checked:
//!
//! - A change reaches the servers one after the other, in any order, and a server may be killed meanwhile.
//! - A registration acknowledged before, during or after a change is found, both by servers that have applied the
//!   change and by those that have not.
//! - The next change comes when `registrar.expires.max` has passed since the last server applied the previous one.
//!   Until then some users are registered only at the cluster they had before the previous change, and no lookup goes
//!   further back. Contacts therefore have a short lifetime here.

use std::fmt;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::clients::{Clients, Lifetimes, name};
use super::history::{Contradiction, History, preference};
use super::query_client::{QueryClient, Question};
use super::{PEACE, SETTLED, STANDSTILL, TOLD, said};
use crate::machine::Lan;
use crate::stages::{Layout, Stages};
use crate::{Database, Program, poll};

/// Allowance for messages of a change still in transit in the first stage and between members.
const UNDER_WAY: Duration = Duration::from_secs(1);
/// Clusters. The weights below are given in turn to the cluster being changed.
const CLUSTERS: [&str; 3] = ["a", "b", "c"];
const WEIGHTS: [u16; 4] = [0, 100, 50, 100];

/// Extent of a check.
#[derive(Clone, Debug)]
pub struct Size {
    /// Minimum number of acknowledged registrations and removals.
    pub acknowledged: u64,
    /// Member kills.
    pub member_kills: u32,
    /// Kills of first-stage servers.
    pub first_kills: u32,
    /// Temporary isolations of a member from all others.
    pub partitions: u32,
    /// Temporary stops of a member.
    pub stops: u32,
    /// Changes of the clusters' shares.
    pub rebalancings: u32,
    /// Users, each with one contact.
    pub users: usize,
    /// Requests per second.
    pub rate: u32,
    /// Lifetime of contacts in seconds, which is also the minimum time between changes.
    pub expires_s: u64,
    /// Whether members share registrations through Redis.
    pub has_engine: bool,
}

impl Size {
    /// Size that fits into the ordinary tests.
    pub const SMALL: Size = Size {
        acknowledged: 500,
        member_kills: 1,
        first_kills: 1,
        partitions: 1,
        stops: 0,
        rebalancings: 2,
        users: 96,
        rate: 100,
        expires_s: 12,
        has_engine: false,
    };
    /// Size for a full check.
    pub const FULL: Size = Size {
        acknowledged: 20_000,
        member_kills: 24,
        first_kills: 10,
        partitions: 10,
        stops: 10,
        rebalancings: 24,
        users: 192,
        rate: 200,
        expires_s: 30,
        has_engine: false,
    };

    /// Returns the size with values from the environment: `STROWGER_CHECKER_ACKNOWLEDGED`, `_MEMBER_KILLS`,
    /// `_FIRST_KILLS`, `_PARTITIONS`, `_STOPS`, `_REBALANCINGS`, `_USERS`, `_RATE`, `_EXPIRES`.
    #[must_use]
    pub fn or_as_the_environment_says(self) -> Size {
        Size {
            acknowledged: said("ACKNOWLEDGED", self.acknowledged),
            member_kills: said("MEMBER_KILLS", self.member_kills),
            first_kills: said("FIRST_KILLS", self.first_kills),
            partitions: said("PARTITIONS", self.partitions),
            stops: said("STOPS", self.stops),
            rebalancings: said("REBALANCINGS", self.rebalancings),
            users: said("USERS", self.users),
            rate: said("RATE", self.rate),
            expires_s: said("EXPIRES", self.expires_s),
            has_engine: self.has_engine,
        }
    }

    /// Returns the configured number of each fault, each kind spread evenly over the run.
    fn plan(&self) -> Vec<Fault> {
        let counts = [
            (Fault::Rebalanced, self.rebalancings),
            (Fault::MemberKilled, self.member_kills),
            (Fault::FirstKilled, self.first_kills),
            (Fault::MemberCutOff, self.partitions),
            (Fault::MemberStopped, self.stops),
        ];
        let spread = counts.into_iter().flat_map(|(fault, count)| {
            (0..count).map(move |number| (f64::from(2 * number + 1) / f64::from(2 * count), fault))
        });
        let mut all: Vec<(f64, Fault)> = spread.collect();
        all.sort_by(|(one, _), (next, _)| one.total_cmp(next));
        all.into_iter().map(|(_, fault)| fault).collect()
    }
}

/// A fault to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    MemberKilled,
    MemberStopped,
    MemberCutOff,
    FirstKilled,
    Rebalanced,
}

/// Result of a check.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Acknowledged registrations and removals.
    pub acknowledged: u64,
    /// Member kills.
    pub member_kills: u32,
    /// Kills of first-stage servers.
    pub first_kills: u32,
    /// Isolated members.
    pub partitions: u32,
    /// Stopped members.
    pub stops: u32,
    /// Changes of the clusters' shares.
    pub rebalancings: u32,
    /// Users looked up in the checks after each fault.
    pub asked: u64,
    /// Users who were registered and not reached.
    pub lost: u32,
    /// Users who were reached although their registration was removed or had expired.
    pub returned: u32,
    /// Duration of the check.
    pub took: Duration,
    /// Reports of what was wrong, one line each.
    pub told: Vec<String>,
}

impl Outcome {
    /// Column headings of the result line.
    pub const HEAD: &'static str = "two stages           acknowledged member kills first kills partitions stops rebalancings   asked lost returned seconds";
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { acknowledged, member_kills, first_kills, partitions, stops, rebalancings, .. } = self;
        let (asked, lost, returned, took_s) = (self.asked, self.lost, self.returned, self.took.as_secs_f64());
        write!(
            f,
            "{:<20} {acknowledged:>12} {member_kills:>12} {first_kills:>11} {partitions:>10} {stops:>5} {rebalancings:>12} {asked:>7} \
             {lost:>4} {returned:>8} {took_s:>7.0}",
            "3 clusters of 2"
        )
    }
}

/// Injects these faults into two first-stage servers and three clusters of two members, and reports what they lose.
///
/// # Panics
/// If a server does not start or does not come back.
#[must_use]
pub fn check(size: &Size) -> Outcome {
    let began = Instant::now();
    let mut trial = Trial::start(size);
    for fault in size.plan() {
        trial.suffer(fault);
        trial.see_to_it_that_all_is_well(&format!("{fault:?}"));
    }
    let enough = poll(super::REST, || (trial.clients.acknowledged() >= size.acknowledged).then_some(()));
    if enough.is_none() {
        trial.outcome.told.push("not as many were acknowledged as wanted".to_owned());
    }
    trial.see_to_it_that_all_is_well("the end");
    Outcome { acknowledged: trial.clients.acknowledged(), took: began.elapsed(), ..trial.outcome }
}

/// Servers and clients.
#[derive(Debug)]
struct Trial {
    clients: Clients,
    asker: QueryClient,
    stages: Stages,
    lan: Lan,
    engines: Vec<Database>,
    /// Names of the servers by machine index.
    places: Vec<String>,
    expires: Duration,
    /// Time at which the last server reloaded for the last change.
    rebalanced: Option<Instant>,
    /// Number of faults so far.
    turn: usize,
    random: u64,
    outcome: Outcome,
}

impl Trial {
    fn start(size: &Size) -> Trial {
        let engines: Vec<Database> =
            CLUSTERS.iter().filter(|_| size.has_engine).map(|_| Database::start(Program::Redis)).collect();
        let store = |at: usize| engines.get(at).map(Database::url);
        let layout = Layout {
            clusters: CLUSTERS.iter().enumerate().map(|(at, name)| (*name, store(at))).collect(),
            expires_s: (size.expires_s, 1),
            ..Layout::default()
        };
        let servers = layout.servers();
        // Engines listen only on this machine, so servers in other networks cannot reach them.
        let machines = if size.has_engine { 0 } else { u8::try_from(servers).expect("few") };
        let lan = Lan::new(machines);
        let at: Vec<_> = match machines {
            0 => crate::stages::loopback(servers),
            _ => (0..servers).map(|number| lan.machine(number)).collect(),
        };
        let stages = Stages::start(layout, &at);
        let places = stages.entrance_names().iter().cloned().chain(stages.members()).collect();
        let lifetime = Duration::from_secs(size.expires_s);
        let lifetimes = Lifetimes { usual: lifetime, short: lifetime };
        let at = if size.has_engine { &crate::Machine::local() } else { lan.clients() };
        let clients = Clients::start(at, stages.entrances(), (size.users, size.rate), lifetimes);
        let asker = QueryClient::on(at);
        let mut trial = Trial {
            clients,
            asker,
            stages,
            lan,
            engines,
            places,
            expires: lifetime,
            rebalanced: None,
            turn: 0,
            random: 1,
            outcome: Outcome::default(),
        };
        trial.see_to_it_that_all_is_well("the start");
        trial
    }

    fn draw(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % below
    }

    fn one_of(&mut self, names: &[String]) -> String {
        names[self.draw(names.len())].clone()
    }

    /// Injects a fault and waits until it is over.
    fn suffer(&mut self, fault: Fault) {
        sleep(PEACE);
        self.turn += 1;
        let member = self.one_of(&self.stages.members());
        match fault {
            Fault::MemberKilled => {
                self.kill(&member);
                self.outcome.member_kills += 1;
            }
            Fault::FirstKilled => {
                let entrances = self.stages.entrance_names().to_vec();
                let first = self.one_of(&entrances);
                self.kill(&first);
                self.outcome.first_kills += 1;
            }
            Fault::MemberStopped => {
                self.stages.server(&member).pause(STANDSTILL);
                self.outcome.stops += 1;
            }
            Fault::MemberCutOff => self.cut_off(&member),
            Fault::Rebalanced => self.rebalance(),
        }
    }

    fn kill(&mut self, name: &str) {
        self.stages.kill(name);
        sleep(PEACE);
        self.stages.restart(name);
    }

    fn cut_off(&mut self, member: &str) {
        if !self.lan.can_cut_off() || !self.engines.is_empty() {
            return;
        }
        let place = self.places.iter().position(|name| name == member).expect("it has a machine");
        self.lan.cut_off(place);
        sleep(STANDSTILL);
        self.lan.heal(place);
        self.outcome.partitions += 1;
    }

    /// Changes one cluster's share and reloads all servers one after the other in random order. Sometimes a member is
    /// killed meanwhile.
    fn rebalance(&mut self) {
        if let Some(before) = self.rebalanced {
            sleep((before + self.expires + UNDER_WAY).saturating_duration_since(Instant::now()));
        }
        let number = self.outcome.rebalancings as usize;
        let cluster = CLUSTERS[(number / WEIGHTS.len() + 2) % CLUSTERS.len()];
        self.stages.weigh(cluster, WEIGHTS[number % WEIGHTS.len()]);
        let mut names = self.stages.names();
        for at in (1..names.len()).rev() {
            let other = self.draw(at + 1);
            names.swap(at, other);
        }
        let victim = self.draw(2 * names.len());
        for (at, name) in names.iter().enumerate() {
            self.stages.reload(name);
            if at == victim {
                let member = self.one_of(&self.stages.members());
                self.kill(&member);
                self.outcome.member_kills += 1;
            }
        }
        self.rebalanced = Some(Instant::now());
        self.outcome.rebalancings += 1;
    }

    /// Waits until all members participate and every user is found as acknowledged, or records what is wrong.
    fn see_to_it_that_all_is_well(&mut self, after: &str) {
        self.clients.pause();
        let members = self.stages.members();
        let is_well = |stages: &Stages| {
            members.iter().all(|name| {
                let cluster = &stages.server(name).status()["cluster"];
                cluster["warm"] == true && cluster["trouble"].is_null() && cluster["waiting"] == 0
            })
        };
        let all: Vec<usize> = (0..self.clients.users()).collect();
        let mut wrong = self.contradictions(&all);
        self.outcome.asked += all.len() as u64;
        let settled = poll(SETTLED, || {
            let users: Vec<usize> = wrong.iter().map(|(user, ..)| *user).collect();
            wrong = self.contradictions(&users);
            (wrong.is_empty() && is_well(&self.stages)).then_some(())
        });
        if settled.is_none() {
            for name in members.iter().filter(|_| !is_well(&self.stages)) {
                self.outcome
                    .told
                    .push(format!("after {after}: {name}: {}", self.stages.server(name).status()["cluster"]));
            }
            self.note(after, &wrong);
        }
        self.clients.go_on();
    }

    fn note(&mut self, after: &str, wrong: &[(usize, Contradiction, String)]) {
        for (number, (user, contradiction, what)) in wrong.iter().enumerate() {
            match contradiction {
                Contradiction::Lost => self.outcome.lost += 1,
                Contradiction::Returned => self.outcome.returned += 1,
            }
            if number < TOLD {
                let line = format!("after {after}: {contradiction:?}: {what}\n{}", self.known_of(*user));
                self.outcome.told.push(line);
            }
            // Each contradiction counts once.
            self.clients.history(*user).acknowledged = None;
        }
    }

    /// Returns what each member lists for a user.
    fn known_of(&self, user: usize) -> String {
        let aor = format!("{}@example.com", name(user));
        let line = |member: &String| {
            let text = self.stages.server(member).control(&["registrations", "--user", &aor, "--json"]);
            format!("    {member}: {}\n", text.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        let weights = format!("    {:?}\n", self.stages.weights());
        weights + &self.stages.members().iter().map(line).collect::<String>()
    }

    /// Returns the users whose lookup contradicts their history.
    fn contradictions(&mut self, users: &[usize]) -> Vec<(usize, Contradiction, String)> {
        let (entrances, members) = (self.stages.entrances(), self.stages.members());
        let mut questions: Vec<Question> = Vec::new();
        for user in users {
            let member = self.one_of(&members);
            let servers = entrances.iter().copied().chain([self.stages.address(&member)]);
            questions.extend(servers.map(|server: SocketAddr| (*user, server)));
        }
        let answers = self.asker.ask(&questions);
        let mut wrong: Vec<(usize, Contradiction, String)> = Vec::new();
        for ((user, server), status) in questions.into_iter().zip(answers) {
            let history: History = *self.clients.history(user);
            let reached = history.acknowledged.filter(|_| status == Some(200));
            let listed = reached.map(|acknowledged| preference(acknowledged.cseq));
            let is_new = wrong.last().is_none_or(|(last, ..)| *last != user);
            if let Some(contradiction) = history.contradiction(Instant::now(), listed).filter(|_| is_new) {
                wrong.push((user, contradiction, format!("user{user} by {server}: {status:?}, {history:?}")));
            }
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_has_the_wanted_counts() {
        let plan = Size::FULL.plan();
        let count = |wanted: Fault| plan.iter().filter(|fault| **fault == wanted).count();
        let counts =
            [Fault::Rebalanced, Fault::MemberKilled, Fault::FirstKilled, Fault::MemberCutOff, Fault::MemberStopped];
        assert_eq!(counts.map(count), [24, 24, 10, 10, 10]);
    }
}
