//! Follows the database of a Kamailio or OpenSIPS server on a separate thread, so that nothing else waits for it.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use strowger_control::config::{Config, FollowedTable, KamailioFlavor};
use strowger_directory::DirectoryChange;
use strowger_kamailio::{Flavor, FollowConfig, Follower, Identity, PollResult, Table, TableContents};
use strowger_sql::Database;

use crate::text::{count, number};

/// Minimum time between two reads.
const LEAST_PAUSE: Duration = Duration::from_millis(500);
/// Reads take at most one part in this many of the time.
const PARTS_OF_TIME: u32 = 20;
/// Maximum time between two attempts while the database is unavailable.
const LONGEST_AWAY: Duration = Duration::from_secs(5);
/// Time that a start waits for the first read.
const FIRST_LOOK: Duration = Duration::from_secs(10);
/// Maximum number of invalid rows named in the log.
const ROWS_TOLD: usize = 5;

/// Handle of the thread, with the contents of the database.
pub(crate) struct KamailioUsers {
    config: FollowConfig,
    known: Arc<TableContents>,
    looks: Receiver<(Arc<TableContents>, Vec<DirectoryChange>)>,
    /// Dropping it ends the thread.
    _stop: Sender<()>,
}

impl KamailioUsers {
    /// Starts following the configured tables and waits for their contents; `None` if none are configured. While the
    /// database cannot be read, the contents are empty, or those of `before` if it followed the same tables.
    pub(crate) fn start(config: &Config, before: Option<&Self>) -> Option<Self> {
        let follow = follow_config(config)?;
        let before = before.filter(|before| before.config == follow).map(|before| Arc::clone(&before.known));
        let (sender, looks) = mpsc::channel();
        let (stop, stopped) = mpsc::channel();
        let told = LogState::of(&follow);
        let follower = match &before {
            Some(known) => Follower::resume(follow.clone(), Arc::clone(known)),
            None => Follower::new(follow.clone()),
        };
        let watch = FollowThread { told, follower, sender, is_awaited: before.is_none() };
        let spawned = thread::Builder::new().name("kamailio".to_owned()).spawn(move || watch.run(&stopped));
        if let Err(error) = spawned {
            tracing::error!("the database of [kamailio] is not followed: cannot start a thread: {error}");
        }
        let first = || looks.recv_timeout(FIRST_LOOK).map(|(known, _)| known).unwrap_or_default();
        let known = before.unwrap_or_else(first);
        Some(Self { config: follow, known, looks, _stop: stop })
    }

    /// Returns the known contents.
    pub(crate) fn known(&self) -> &TableContents {
        &self.known
    }

    /// Returns the changes since the last call.
    pub(crate) fn changes(&mut self) -> Vec<DirectoryChange> {
        let mut all = Vec::new();
        while let Ok((known, changes)) = self.looks.try_recv() {
            self.known = known;
            all.extend(changes);
        }
        all
    }
}

/// Returns what to follow, according to the configuration.
pub(crate) fn follow_config(config: &Config) -> Option<FollowConfig> {
    let kamailio = config.kamailio.as_ref()?;
    let domain = kamailio.domain.as_ref().or(config.server.domains.first());
    let table = |what: &FollowedTable| match what {
        FollowedTable::Users => Table::Subscriber,
        FollowedTable::Gateways => Table::Dispatcher,
    };
    Some(FollowConfig {
        url: kamailio.database.0.clone(),
        flavor: match kamailio.flavor {
            KamailioFlavor::Kamailio => Flavor::Kamailio,
            KamailioFlavor::Opensips => Flavor::OpenSips,
        },
        tables: kamailio.follow.iter().map(table).collect(),
        identity: Identity {
            domain: domain.map_or_else(String::new, |domain| domain.0.clone()),
            realm: config.auth.realm.as_ref().map(ToString::to_string),
        },
        set_prefix: kamailio.set_prefix.clone(),
        allows_any_version: kamailio.any_version,
        timeout: Database::TIMEOUT,
    })
}

/// State of the thread.
struct FollowThread {
    follower: Follower,
    sender: Sender<(Arc<TableContents>, Vec<DirectoryChange>)>,
    told: LogState,
    /// Set while the start waits for the end of the next read, whatever its result.
    is_awaited: bool,
}

impl FollowThread {
    fn run(mut self, stopped: &Receiver<()>) {
        loop {
            let begun = Instant::now();
            let looked = self.follower.poll();
            let cost = begun.elapsed();
            self.told.report(looked.as_ref().map_err(ToString::to_string), cost);
            let is_away = looked.is_err();
            let is_awaited = std::mem::take(&mut self.is_awaited);
            let news = match looked {
                Ok(PollResult { contents: known, changes, .. }) => {
                    (is_awaited || !changes.is_empty()).then_some((known, changes))
                }
                Err(_) => is_awaited.then(Default::default),
            };
            if news.is_some_and(|news| self.sender.send(news).is_err()) {
                return;
            }
            if stopped.recv_timeout(pause(cost, is_away)) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }
}

/// Returns the pause after a read that took `cost`.
fn pause(cost: Duration, is_away: bool) -> Duration {
    let pause = (cost * (PARTS_OF_TIME - 1)).max(LEAST_PAUSE);
    if is_away { pause.min(LONGEST_AWAY) } else { pause }
}

/// What has been logged, so that nothing is repeated.
struct LogState {
    database: String,
    trouble: Option<String>,
    bad: Option<String>,
    is_known: bool,
}

impl LogState {
    fn of(follow: &FollowConfig) -> Self {
        let database = format!("{} at {}", follow.flavor, follow.url);
        Self { database, trouble: None, bad: None, is_known: false }
    }

    fn report(&mut self, looked: Result<&PollResult, String>, cost: Duration) {
        let database = &self.database;
        let looked = match looked {
            Ok(looked) => looked,
            Err(why) if self.trouble.as_ref() == Some(&why) => return,
            Err(why) => {
                tracing::error!("{database} cannot be read; the contents read last stay in use: {why}");
                self.trouble = Some(why);
                return;
            }
        };
        let known = &looked.contents;
        if self.trouble.take().is_some() || !self.is_known {
            self.is_known = true;
            let users = count(known.users() as u64, "user");
            let (read_ms, pause_ms) = (number(millis(cost)), number(millis(pause(cost, false))));
            tracing::info!("{database} is followed: {users}, read in {read_ms} ms, next read in {pause_ms} ms");
        }
        let rows: Vec<String> = looked.bad.iter().take(ROWS_TOLD).map(ToString::to_string).collect();
        let bad = (looked.bad_row_count > 0).then(|| {
            format!("{} of {database} cannot be used: {}", count(looked.bad_row_count as u64, "row"), rows.join("; "))
        });
        if bad != self.bad {
            match &bad {
                Some(bad) => tracing::warn!("{bad}"),
                None => tracing::info!("all rows of {database} can be used again"),
            }
            self.bad = bad;
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_takes_at_most_5_percent_of_time() {
        let ms = Duration::from_millis;
        assert_eq!(pause(ms(1), false), ms(500));
        assert_eq!(pause(ms(100), false), ms(1_900));
        assert_eq!(pause(ms(10_000), false), ms(190_000));
        assert_eq!(pause(ms(5_000), true), ms(5_000));
        assert_eq!(pause(ms(1), true), ms(500));
    }
}
