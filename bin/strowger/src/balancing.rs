//! Balancers of a running server: collects their targets from every source, follows changes, reports and edits them.

use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use strowger_balancer::{ImportedTargets, Registry, Target, TargetId, TargetState, TransferError};
use strowger_control::config::Config;
use strowger_control::config::values::{self, TargetSource, WeightedTarget};
use strowger_control::dns::DnsResolver;
use strowger_control::protocol::{self, Balancer, NewTarget, Outage, Response};
use strowger_control::targets::{
    Changes, Lists, Origin, ServiceNames, ServiceUpdate, Sources, TargetError, TargetSet, TargetSets,
};
use strowger_directory::Gateways;
use strowger_foundation::Timestamp;
use strowger_locate::LocateError;
use strowger_message::lossy;
use strowger_store::{NewGateway, StoreError};

use crate::target_names::{self, DnsUpdate};
use crate::users::Users;

/// Note on a gateway that was added to a balancer at runtime.
const NOTE: &str = "added by strowger ctl targets";

/// The server's state of targets.
pub(crate) struct TargetManager {
    registry: Registry,
    lists: Lists,
    services: ServiceNames,
    changes: Changes,
    sets: TargetSets,
    said: mpsc::Sender<DnsUpdate>,
    answers: Receiver<DnsUpdate>,
}

/// State for a new configuration.
pub(crate) struct TargetUpdate {
    lists: Lists,
    services: ServiceNames,
    sets: TargetSets,
}

/// A target named in a command.
pub(crate) struct TargetMatch {
    pub(crate) id: TargetId,
    pub(crate) set: String,
    pub(crate) uri: String,
    /// Origin of the target; `None` if no set has it.
    pub(crate) origin: Option<Origin>,
}

impl TargetManager {
    /// Starts with the targets that are known at once. A balancer with unusable targets gets none, and the log says
    /// why; everything else is served.
    pub(crate) fn start(config: &Config, gateways: &Gateways, dns: &DnsResolver) -> Self {
        let (said, answers) = mpsc::channel();
        let mut services = ServiceNames::default();
        services.follow_config(config, Instant::now());
        target_names::resolve(&mut services, config, dns);
        let (lists, changes, registry) = (Lists::read(config), Changes::default(), Registry::default());
        let sources = Sources { gateways, lists: &lists, services: &services, changes: &changes };
        let (sets, refused) = TargetSets::build_all(config, &sources, &registry);
        refused.iter().for_each(|why| tracing::error!("{why}; until then its calls get 503"));
        sources.warnings(config).iter().for_each(|warning| tracing::warn!("{warning}"));
        let balancing = Self { registry, lists, services, changes, sets, said, answers };
        balancing.report_empty(config, &refused);
        balancing
    }

    /// Returns the state of all targets, for a process that takes over.
    pub(crate) fn export_targets(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.registry.export(&mut bytes);
        bytes
    }

    /// Takes over the state of targets from the process before.
    pub(crate) fn import_targets(&self, bytes: &[u8]) -> Result<ImportedTargets, TransferError> {
        self.registry.import(bytes)
    }

    /// Returns the current sets.
    pub(crate) const fn sets(&self) -> &TargetSets {
        &self.sets
    }

    fn sources<'a>(&'a self, gateways: &'a Gateways) -> Sources<'a> {
        let Self { lists, services, changes, .. } = self;
        Sources { gateways, lists, services, changes }
    }

    /// Logs sets without targets, except those in `known`.
    fn report_empty(&self, config: &Config, known: &[TargetError]) {
        let empty = self.sets.empty(config);
        let news = empty.iter().filter(|empty| !known.iter().any(|known| known.key.starts_with(&empty.key)));
        news.for_each(|empty| tracing::error!("{empty}"));
    }

    /// Queries DNS names whose answers have expired. Returns whether the sets must be rebuilt.
    pub(crate) fn follow(&mut self, dns: &DnsResolver) -> bool {
        target_names::ask(&mut self.services, dns, &self.said);
        let mut has_changed = false;
        while let Ok(DnsUpdate { name, answer, ttl }) = self.answers.try_recv() {
            match self.services.handle_answer(Instant::now(), &name, answer, ttl) {
                ServiceUpdate::Nothing => {}
                ServiceUpdate::Servers => {
                    let servers = self.services.known(&name).unwrap_or_default();
                    let shown: Vec<String> = servers.iter().map(|one| format!("{}:{}", one.host, one.port)).collect();
                    tracing::info!("{name}: {}", shown.join(", "));
                    has_changed = true;
                }
                ServiceUpdate::Failing(LocateError::NoAnswer) => {
                    tracing::warn!("{name}: DNS does not answer; its targets are unchanged");
                }
                ServiceUpdate::Failing(LocateError::NoSuchName) => {
                    tracing::error!("{name}: DNS returned no servers; its targets are unchanged");
                }
                ServiceUpdate::Recovered => tracing::info!("{name}: DNS answers again"),
            }
        }
        has_changed
    }

    /// Rebuilds the sets. If one cannot be used, all stay unchanged and the log says why.
    pub(crate) fn rebuild(&mut self, config: &Config, gateways: &Gateways) -> Result<(), TargetError> {
        self.sets = TargetSets::build(config, &self.sources(gateways), &self.registry)?;
        self.report_empty(config, &[]);
        Ok(())
    }

    /// Builds the state for another configuration.
    pub(crate) fn prepare(
        &self,
        config: &Config,
        gateways: &Gateways,
        dns: &DnsResolver,
    ) -> Result<TargetUpdate, TargetError> {
        let lists = Lists::read(config);
        let mut services = self.services.clone();
        services.follow_config(config, Instant::now());
        target_names::resolve(&mut services, config, dns);
        let changes = Changes::default();
        let sources = Sources { gateways, lists: &lists, services: &services, changes: &changes };
        let sets = TargetSets::build(config, &sources, &self.registry)?;
        let names = target_names::check_names(config, &sources, dns);
        let refused = names.unknown.into_iter().chain(sets.empty(config)).next();
        match refused {
            Some(why) => Err(why),
            None => {
                names.unanswered.iter().for_each(|why| tracing::warn!("{why}"));
                sources.warnings(config).iter().for_each(|warning| tracing::warn!("{warning}"));
                Ok(TargetUpdate { lists, services, sets })
            }
        }
    }

    /// Activates the prepared state and discards changes by operators. Returns how many there were.
    pub(crate) fn apply(&mut self, TargetUpdate { lists, services, sets }: TargetUpdate) -> usize {
        self.lists = lists;
        self.services = services;
        self.sets = sets;
        std::mem::take(&mut self.changes).count()
    }

    /// Returns the target named by `text`: its URI, with or without "sip:", its id, or SET/URI.
    ///
    /// # Errors
    /// The response to a request with that name.
    pub(crate) fn find(&self, text: &str) -> Result<TargetMatch, Response> {
        let mut found: Vec<TargetMatch> = Vec::new();
        for (set, index, origin) in self.members() {
            let Some(member) = set.set().members().get(index) else { continue };
            found.push(TargetMatch::of(&member.target, Some(origin)));
        }
        for target in self.registry.all() {
            if !found.iter().any(|known| known.id == target.id()) {
                found.push(TargetMatch::of(&target, None));
            }
        }
        let uri = format!("sip:{text}");
        found.retain(|one| [text, &uri].contains(&&*one.uri) || text == one.id.to_string() || text == one.name());
        match found.as_slice() {
            [] => {
                let why = format!("there is no target {text:?}; `strowger ctl targets` lists all targets");
                Err(Response::NotFound(why))
            }
            [_] => Ok(found.remove(0)),
            several => {
                let names: Vec<String> = several.iter().map(TargetMatch::name).collect();
                let names = names.join(", ");
                Err(Response::Error(format!("{text} is a target of several balancers; name one: {names}")))
            }
        }
    }

    /// Starts or stops draining a target. Returns whether that changed its state.
    pub(crate) fn set_draining(&self, found: &TargetMatch, is_draining: bool, now: Timestamp) -> bool {
        let targets = self.registry.all();
        let mut has_changed = false;
        for target in targets.iter().filter(|target| target.id() == found.id) {
            has_changed |= target.is_draining() != is_draining;
            if is_draining { target.drain() } else { target.undrain(now) }
        }
        has_changed
    }

    /// Adds a target to a balancer: in the database if the balancer has gateways there, otherwise until the next
    /// reload. Returns whether it is stored.
    ///
    /// # Errors
    /// The response to a request that is refused.
    pub(crate) fn add(&mut self, config: &Config, users: &Users, new: &NewTarget) -> Result<bool, Response> {
        let Some(balancer) = config.balancers.iter().find(|balancer| balancer.name == new.set) else {
            let known: Vec<&str> = config.balancers.iter().map(|balancer| &*balancer.name).collect();
            let known =
                if known.is_empty() { "there is none".to_owned() } else { format!("there are {}", known.join(", ")) };
            return Err(Response::Error(format!("there is no balancer {:?}; balancers: {known}", new.set)));
        };
        let NewTarget { set, uri, priority, weight, capacity } = new;
        let target = uri.parse::<values::Target>().map_err(Response::Error)?;
        let share = WeightedTarget { target, priority: *priority, weight: (*weight).max(1), capacity: *capacity };
        let is_there = self.members().any(|(of, index, _)| {
            let member = of.set().members().get(index);
            member.is_some_and(|member| member.target.set() == set && member.target.uri() == uri.as_bytes())
        });
        if is_there {
            return Err(Response::Conflict(format!("{uri} is already a target of {set}")));
        }
        let gateways = balancer.targets.iter().find_map(|source| match source {
            TargetSource::Set(name) => Some(&name.0),
            _ => None,
        });
        if let (Some(of), Some(store)) = (gateways, users.store(config)) {
            let (priority, weight, capacity) = (share.priority, share.weight, share.capacity);
            let new = NewGateway { uri, priority, weight, capacity, description: NOTE, enabled: true };
            store.and_then(|mut store| store.add_gateway(of, &new)).map_err(|error| of_store(&error))?;
            return Ok(true);
        }
        let before = self.changes.clone();
        self.changes.add(set, share);
        self.try_changes(config, users, before).map(|()| false)
    }

    /// Removes a target from its balancer: from the database if it is there, otherwise until the next reload. Returns
    /// whether the removal is stored.
    ///
    /// # Errors
    /// The response to a request that is refused.
    pub(crate) fn remove(&mut self, config: &Config, users: &Users, found: &TargetMatch) -> Result<bool, Response> {
        match (&found.origin, users.store(config)) {
            (None, _) => {
                let uri = &found.uri;
                let why = format!("{uri} has been removed from its balancer; it disappears when its last call ends");
                Err(Response::NotFound(why))
            }
            (Some(Origin::Database(set)), Some(store)) => {
                store.and_then(|mut store| store.remove_gateway(set, &found.uri)).map_err(|error| of_store(&error))?;
                Ok(true)
            }
            (Some(_), _) => {
                let before = self.changes.clone();
                self.changes.remove(&found.set, &found.uri);
                self.try_changes(config, users, before).map(|()| false)
            }
        }
    }

    fn try_changes(&mut self, config: &Config, users: &Users, before: Changes) -> Result<(), Response> {
        self.rebuild(config, users.directory().gateways()).map_err(|why| {
            self.changes = before;
            Response::Error(why.to_string())
        })
    }

    /// Returns all targets, or those of one balancer, in configuration order, followed by targets that no set has.
    pub(crate) fn targets(&self, now: Timestamp, set: Option<&str>, outages: &[Outage]) -> Vec<protocol::Target> {
        let mut all: Vec<protocol::Target> = Vec::new();
        for (of, index, origin) in self.members() {
            let is_wanted = set.is_none_or(|set| of.set().config().name == set);
            all.extend(is_wanted.then(|| target_status(of, index, origin, now, outages)).flatten());
        }
        for target in self.registry.all() {
            let id = target.id().to_string();
            let is_wanted = set.is_none_or(|set| target.set() == set);
            // A sleeping worker may still hold a target that has been removed.
            let has_any = target.calls() > 0 || target.transactions() > 0;
            if is_wanted && has_any && !all.iter().any(|known| known.id == id) {
                all.push(protocol::Target {
                    id,
                    set: target.set().to_owned(),
                    uri: lossy(target.uri()),
                    state: "removed".to_owned(),
                    draining: target.is_draining(),
                    calls: target.calls(),
                    transactions: target.transactions(),
                    work: units(target.work()),
                    response_time_ms: target.response_time().map(millis),
                    requests: target.requests(),
                    failures: target.failures(),
                    ..protocol::Target::default()
                });
            }
        }
        all
    }

    /// Returns a summary of the balancers.
    pub(crate) fn summary(&self, config: &Config, now: Timestamp) -> Vec<Balancer> {
        let of = |balancer: &strowger_control::config::Balancer| {
            let targets = self.targets(now, Some(&balancer.name), &[]);
            let targets: Vec<_> = targets.iter().filter(|target| target.origin.is_some()).collect();
            let in_service = targets.iter().filter(|target| matches!(&*target.state, "up" | "slow start")).count();
            Balancer {
                name: balancer.name.clone(),
                policy: balancer.policy.as_str().to_owned(),
                targets: targets.len() as u64,
                in_service: in_service as u64,
                calls: targets.iter().map(|target| u64::from(target.calls)).sum(),
            }
        };
        config.balancers.iter().map(of).collect()
    }

    /// Returns the number of targets, and how many of them get no calls.
    pub(crate) fn counts(&self, now: Timestamp) -> [(&'static str, u64); 3] {
        let mut counts = [("balanced", 0), ("down", 0), ("draining", 0)];
        let [(_, all), (_, down), (_, draining)] = &mut counts;
        for (set, index, _) in self.members() {
            let Some(member) = set.set().members().get(index) else { continue };
            *all += 1;
            *down += u64::from(set.set().state(member, now) == TargetState::Down);
            *draining += u64::from(member.target.is_draining());
        }
        counts
    }

    fn members(&self) -> impl Iterator<Item = (&TargetSet, usize, &Origin)> {
        self.sets
            .iter()
            .flat_map(|set| set.origins().iter().enumerate().map(move |(index, origin)| (set, index, origin)))
    }
}

impl TargetMatch {
    fn of(target: &Target, origin: Option<&Origin>) -> Self {
        let uri = String::from_utf8_lossy(target.uri()).into_owned();
        Self { id: target.id(), set: target.set().to_owned(), uri, origin: origin.cloned() }
    }

    /// Returns SET/URI.
    fn name(&self) -> String {
        format!("{}/{}", self.set, self.uri)
    }
}

/// Returns the response to a request that the database refuses.
fn of_store(error: &StoreError) -> Response {
    let why = error.to_string();
    match error {
        StoreError::UnknownGateway { .. } => Response::NotFound(why),
        StoreError::DuplicateGateway { .. } | StoreError::FullSet { .. } | StoreError::TooManyGateways => {
            Response::Conflict(why)
        }
        StoreError::Locked { .. } | StoreError::Shared(_) => Response::Busy(why),
        _ => Response::Error(why),
    }
}

/// Converts a set member to its protocol form.
fn target_status(
    of: &TargetSet,
    index: usize,
    origin: &Origin,
    now: Timestamp,
    outages: &[Outage],
) -> Option<protocol::Target> {
    let view = of.set().view(index, now)?;
    let is_draining = of.set().members().get(index)?.target.is_draining();
    let uri = lossy(view.uri.as_bytes());
    let outage = outages.iter().find(|outage| outage.trunk.is_none() && outage.uri.as_ref() == Some(&uri));
    let share = match view.state {
        TargetState::SlowStart { share } => f64::from(share) / 1000.0,
        _ => 1.0,
    };
    Some(protocol::Target {
        id: view.id.to_string(),
        set: view.set,
        uri,
        state: view.state.to_string(),
        share,
        since_s: view.since.map(|since| millis(now - since) / 1000.0),
        draining: is_draining,
        outage: outage.map(|outage| outage.cause.clone()),
        full: view.capacity.is_some_and(|most| view.calls >= most),
        priority: view.priority,
        weight: view.weight,
        capacity: view.capacity,
        calls: view.calls,
        transactions: view.transactions,
        work: units(view.work),
        response_time_ms: view.response_time.map(millis),
        requests: view.requests,
        failures: view.failures,
        origin: Some(origin.to_string()),
    })
}

#[expect(clippy::cast_precision_loss, reason = "a number for people")]
fn units(thousandths: u64) -> f64 {
    thousandths as f64 / 1000.0
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1000.0
}
