//! The server's bans: who is exempt, what is written to disk, and the answers to commands.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use strowger_auth::Network;
use strowger_ban::{Ban, BanList, BannedSources, FailureOutcome, MAX_BANNED};
use strowger_control::config::Config;
use strowger_control::protocol::{self, Bans, Failures, NewBan};
use strowger_foundation::{Timestamp, source_bits};
use strowger_locate::NameCache;
use strowger_net::Clock;
use strowger_registrar::Locations;
use strowger_shard::{ProvenSources, Snapshot};

use crate::ban_file::{self, Now};
use crate::failures::{FailedLogIn, RecentFailures};

/// Time for which the sources of registrations are not looked up anew.
const REGISTERED_FOR: Duration = Duration::from_secs(5);
/// Minimum time between two writes of the file.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// Tables of the running workers, which tell who is known.
pub(crate) struct KnownSources {
    pub(crate) locations: Arc<Locations>,
    /// Number of the location table's stripes.
    pub(crate) stripes: u16,
    pub(crate) proven: Arc<ProvenSources>,
    pub(crate) names: Arc<NameCache>,
}

/// All bans, shared by the threads that report failures, answer commands and follow the time.
pub(crate) struct BanKeeper {
    clock: Clock,
    file: PathBuf,
    banned: Arc<BannedSources>,
    known: OnceLock<KnownSources>,
    state: Mutex<State>,
    failures: Mutex<RecentFailures>,
}

struct State {
    list: BanList,
    /// Networks that the configuration exempts.
    never: Vec<Network>,
    snapshot: Option<Arc<Snapshot>>,
    /// Addresses of the other members.
    members: Vec<IpAddr>,
    /// The sources of registrations, and when they were looked up.
    registered: Option<(Timestamp, HashSet<u64>)>,
    is_changed: bool,
    next_save: Timestamp,
}

impl BanKeeper {
    /// Continues the bans of an earlier process. `seed` is random.
    pub(crate) fn start(config: &Config, seed: u64, clock: Clock) -> Self {
        let banned = Arc::new(BannedSources::new(seed));
        let mut list = BanList::new(seed, config.ban_policy(), Arc::clone(&banned));
        let file = config.server.data.join("bans");
        let now = now(clock);
        let loaded = ban_file::load(&file, now).unwrap_or_else(|why| {
            tracing::error!("the bans of the last run do not count: {why}");
            Vec::new()
        });
        // No more than there is room for, as an earlier list had no more.
        loaded.into_iter().take(MAX_BANNED).for_each(|ban| _ = list.restore(now.monotonic, ban));
        if !list.is_empty() {
            tracing::info!("bans: {} from the last run", list.len());
        }
        let state = State {
            list,
            never: config.never_banned(),
            snapshot: None,
            members: Vec::new(),
            registered: None,
            is_changed: false,
            next_save: Timestamp::ZERO,
        };
        let failures = Mutex::default();
        Self { clock, file, banned, known: OnceLock::new(), state: Mutex::new(state), failures }
    }

    /// Returns what workers look up.
    pub(crate) fn banned(&self) -> Arc<BannedSources> {
        Arc::clone(&self.banned)
    }

    /// Sets the tables of the workers.
    pub(crate) fn set_known(&self, known: KnownSources) {
        drop(self.known.set(known));
    }

    /// Follows a changed configuration; bans stay as they are.
    pub(crate) fn reconfigure(&self, config: &Config) {
        let mut state = self.lock();
        state.list.set_policy(config.ban_policy());
        state.never = config.never_banned();
    }

    /// Ends bans in time and writes changes to disk. `members` returns the addresses of the other members.
    pub(crate) fn follow(&self, snapshot: &Arc<Snapshot>, members: impl FnOnce() -> Vec<IpAddr>) {
        let now = self.clock.now();
        let mut state = self.lock();
        if !state.snapshot.as_ref().is_some_and(|known| Arc::ptr_eq(known, snapshot)) {
            state.snapshot = Some(Arc::clone(snapshot));
        }
        if state.list.suspects() > 0 {
            state.members = members();
        }
        for ban in state.list.handle_timeout(now) {
            state.is_changed = true;
            tracing::info!(address = network(&ban), "ban ended");
        }
        let text = state.take_unsaved(now, self.clock);
        drop(state);
        if let Some(text) = text {
            self.save(&text);
        }
    }

    /// Writes the last changes to disk.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.next_save = Timestamp::ZERO;
        let text = state.take_unsaved(self.clock.now(), self.clock);
        drop(state);
        if let Some(text) = text {
            self.save(&text);
        }
    }

    fn save(&self, text: &str) {
        if let Err(error) = ban_file::save(&self.file, text) {
            let file = self.file.display();
            tracing::error!(
                "bans end with this process, as {file} cannot be written: {error}; make room or its folder writable"
            );
        }
    }

    /// Handles a failed authentication whose source is proven.
    pub(crate) fn handle_failure(&self, ip: IpAddr) -> FailureOutcome {
        let now = self.clock.now();
        let mut state = self.lock();
        let State { list, never, snapshot, members, registered, .. } = &mut *state;
        let exemptions = Exemptions { never, snapshot: snapshot.as_deref(), members, known: self.known.get() };
        let outcome = list.handle_failure(now, ip, || exemptions.include(now, ip, registered));
        state.is_changed |= matches!(outcome, FailureOutcome::Banned(_));
        outcome
    }

    /// Remembers a failure for who looks after the server.
    pub(crate) fn note_failure(&self, failed: FailedLogIn) {
        self.failures().push(self.clock.now(), failed);
    }

    /// Lists recent failures, the latest first.
    pub(crate) fn list_failures(&self, limit: usize) -> Failures {
        self.failures().list(self.clock.now(), limit)
    }

    fn failures(&self) -> MutexGuard<'_, RecentFailures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an address is never banned automatically.
    pub(crate) fn is_exempt(&self, ip: IpAddr) -> bool {
        let now = self.clock.now();
        let mut state = self.lock();
        let State { never, snapshot, members, registered, .. } = &mut *state;
        let exemptions = Exemptions { never, snapshot: snapshot.as_deref(), members, known: self.known.get() };
        exemptions.include(now, ip, registered)
    }

    /// Bans an address by a command.
    pub(crate) fn add(&self, new: &NewBan) -> Result<protocol::Ban, String> {
        let now = self.clock.now();
        let mut state = self.lock();
        let ban = state.list.add(now, new.address, new.for_s.map(Duration::from_secs)).map_err(|_| {
            format!("{MAX_BANNED} addresses are banned already; remove some, or filter whole networks in a firewall")
        })?;
        state.is_changed = true;
        Ok(shown(&ban, now))
    }

    /// Ends the ban of an address by a command.
    pub(crate) fn remove(&self, address: IpAddr) -> Result<protocol::Ban, String> {
        let now = self.clock.now();
        let mut state = self.lock();
        let ban = state.list.remove(address);
        let ban = ban.ok_or_else(|| format!("{address} is not banned; `strowger ctl ban` lists who is"))?;
        state.is_changed = true;
        Ok(shown(&ban, now))
    }

    /// Lists bans, the most recent first.
    pub(crate) fn list(&self, limit: usize) -> Bans {
        let now = self.clock.now();
        let state = self.lock();
        let mut bans: Vec<Ban> = state.list.iter().copied().collect();
        drop(state);
        bans.sort_by_key(|ban| (std::cmp::Reverse(ban.since), ban.source));
        let more = bans.len() > limit;
        Bans { bans: bans.iter().take(limit).map(|ban| shown(ban, now)).collect(), more }
    }

    /// Returns the counters.
    pub(crate) fn counters(&self) -> BTreeMap<String, u64> {
        let state = self.lock();
        let counters = state.list.counters();
        let wide = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let values = [
            ("banned", wide(state.list.len())),
            ("suspects", wide(state.list.suspects())),
            ("failures", counters.failures),
            ("begun", counters.banned),
            ("added", counters.added),
            ("removed", counters.removed),
            ("ended", counters.ended),
            ("spared", counters.spared),
            ("full", counters.full),
            ("suspects_full", counters.suspects_full),
        ];
        values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is complete before anything may panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns what is to be written to disk.
    fn take_unsaved(&mut self, now: Timestamp, clock: Clock) -> Option<String> {
        if !self.is_changed || now < self.next_save {
            return None;
        }
        (self.is_changed, self.next_save) = (false, now + SAVE_INTERVAL);
        Some(ban_file::text(self.list.iter(), self::now(clock)))
    }
}

/// What tells whether an address is exempt.
struct Exemptions<'a> {
    never: &'a [Network],
    snapshot: Option<&'a Snapshot>,
    members: &'a [IpAddr],
    known: Option<&'a KnownSources>,
}

impl Exemptions<'_> {
    /// Whether an address is never banned. What costs least comes first.
    fn include(&self, now: Timestamp, ip: IpAddr, registered: &mut Option<(Timestamp, HashSet<u64>)>) -> bool {
        let ip = ip.to_canonical();
        if self.never.iter().any(|network| network.contains(ip)) || self.members.contains(&ip) {
            return true;
        }
        if self.snapshot.is_some_and(|snapshot| snapshot.trusts(ip) || snapshot.is_sibling(ip)) {
            return true;
        }
        let Some(known) = self.known else { return false };
        known.proven.contains(ip)
            || self.snapshot.is_some_and(|snapshot| snapshot.is_next_hop(now, &known.names, ip))
            || known.has_registration(now, ip, registered)
    }
}

impl KnownSources {
    /// Whether a registration came from the source of `ip`.
    fn has_registration(&self, now: Timestamp, ip: IpAddr, registered: &mut Option<(Timestamp, HashSet<u64>)>) -> bool {
        if registered.as_ref().is_none_or(|(at, _)| now >= *at + REGISTERED_FOR) {
            let mut sources = HashSet::new();
            for stripe in 0..self.stripes {
                self.locations.for_each_in_stripe(now, stripe, |binding| {
                    sources.insert(source_bits(binding.flow.peer.ip()));
                });
            }
            *registered = Some((now, sources));
        }
        registered.as_ref().is_some_and(|(_, sources)| sources.contains(&source_bits(ip)))
    }
}

/// Returns the address in a member's text, such as `192.0.2.1:5060`.
pub(crate) fn ip_of(address: &str) -> Option<IpAddr> {
    address.parse::<SocketAddr>().ok().map(|address| address.ip())
}

fn now(clock: Clock) -> Now {
    let pair = clock.pair();
    Now { monotonic: pair.monotonic, wall: pair.wall() }
}

/// Returns the banned address or prefix as text.
pub(crate) fn network(ban: &Ban) -> String {
    match ban.network() {
        (address @ IpAddr::V4(_), _) => address.to_string(),
        (address, prefix) => format!("{address}/{prefix}"),
    }
}

fn shown(ban: &Ban, now: Timestamp) -> protocol::Ban {
    protocol::Ban {
        address: network(ban),
        cause: ban_file::cause(ban.cause).to_owned(),
        since_s: now.saturating_since(ban.since).as_secs_f64(),
        left_s: ban.until.map(|until| until.saturating_since(now).as_secs_f64()),
        number: ban.number,
    }
}
