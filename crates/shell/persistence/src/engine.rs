//! Start and stop of the threads.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use strowger_journal::{Disk, JournalError};
use strowger_registrar::{Locations, Policy};

use crate::backup::{Backup, BackupSpec, Progress, Task};
use crate::batch::Batch;
use crate::checkpoint::Checkpointer;
use crate::failure::{StartError, StoreFailure};
use crate::load::{Loader, Table};
use crate::open::{self, OpenStore};
use crate::queue::StoreCommand;
use crate::shared::{CheckpointRequest, Shared};
use crate::status::Status;
use crate::time::{MachineClocks, NowFn};
use crate::writer::Writer;
use crate::{Limits, Mode, StopReport};

/// Time limit of an implicit stop.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// Maximum number of journal damages reported.
const SHOWN_DAMAGE: usize = 16;

/// What all threads are created from.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) database: PathBuf,
    pub(crate) mode: Mode,
    pub(crate) now: NowFn,
    pub(crate) machine: Arc<dyn MachineClocks>,
    pub(crate) locations: Arc<Locations>,
    pub(crate) policy: Policy,
    pub(crate) limits: Limits,
    /// Whether the table already has what is stored.
    pub(crate) is_filled: bool,
}

type Threads = Arc<Mutex<Vec<JoinHandle<()>>>>;

/// The implementation of [`Persistence`](crate::Persistence), generic over batches.
pub(crate) struct Engine<B: Batch> {
    shared: Arc<Shared<B>>,
    threads: Threads,
    outcome: Mutex<Option<StopReport>>,
}

impl<B: Batch> Engine<B> {
    pub(crate) fn start<D: Disk>(
        disk: impl Fn() -> Result<D, JournalError> + Send + 'static,
        parts: Parts,
    ) -> Result<Self, StartError> {
        let shared = Arc::new(Shared::new(parts.mode, parts.limits.clone(), Arc::clone(&parts.now)));
        let threads = Threads::default();
        let mut opened = match parts.open(&disk) {
            Ok(opened) => Some(opened),
            Err(error) if error.may_heal() => {
                shared.cannot_open(&error.to_string());
                None
            }
            Err(error) => return Err(error),
        };
        if let Some(opened) = &opened {
            // Before anything is staged.
            parts.locations.set_store_origin(opened.clock.origin());
        }
        let launch = StoreThread { parts, shared: Arc::clone(&shared), threads: Arc::clone(&threads) };
        spawn("strowger-store", &shared, &threads, move || {
            while opened.is_none() && launch.await_opening() {
                opened = launch.try_to_open(&disk);
            }
            if let Some(opened) = opened {
                launch.run(opened);
            }
        })
        .map_err(|cause| StartError::System { doing: "start a thread", cause })?;
        Ok(Self { shared, threads, outcome: Mutex::new(None) })
    }

    pub(crate) fn store(&self, batch: B) {
        self.shared.queue.push(batch, (self.shared.now)());
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Shared<B> {
        &self.shared
    }

    pub(crate) fn status(&self) -> Status {
        self.shared.status()
    }

    pub(crate) fn backup(&self, order: BackupSpec) -> Backup {
        let (reply, outcome) = mpsc::channel();
        let progress = Arc::new(Progress::default());
        if !self.shared.is_stopping() {
            self.shared.request(CheckpointRequest::Backup(Task { order, progress: Arc::clone(&progress), reply }));
        }
        Backup { progress, outcome }
    }

    pub(crate) fn stop(&self, within: Duration) -> StopReport {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stopped) = &*outcome {
            return stopped.clone();
        }
        self.shared.queue.close();
        self.shared.stop();
        let (reply, answer) = mpsc::channel();
        self.shared.request(CheckpointRequest::Final(reply));
        let result = match answer.recv_timeout(within) {
            Ok(result) => {
                // Nothing waits for the disk at this point.
                self.join();
                result
            }
            Err(_) => {
                self.shared.queue.send(StoreCommand::End);
                Err(format!("there was no checkpoint within {} s", within.as_secs()))
            }
        };
        let unwritten = self.shared.queue.counters().unwritten;
        if unwritten > 0 {
            tracing::error!(
                "the latest registrations of {unwritten} addresses are lost: they could not be written in time"
            );
        }
        let stopped = StopReport { clean: result.is_ok(), why: result.err() };
        outcome.insert(stopped).clone()
    }

    /// Brings everything acknowledged into the database while the threads go on.
    pub(crate) fn checkpoint(&self, within: Duration) -> Result<(), String> {
        let (reply, answer) = mpsc::channel();
        self.shared.request(CheckpointRequest::Checkpoint(reply));
        answer.recv_timeout(within).unwrap_or_else(|_| Err(format!("it takes longer than {} s", within.as_secs())))
    }

    /// Commits what is waiting without further wait.
    pub(crate) fn commit(&self) {
        self.shared.queue.send(StoreCommand::Commit);
    }

    pub(crate) fn release(&self, within: Duration) -> Result<(), String> {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        if outcome.is_some() {
            return Err("the store has stopped".to_owned());
        }
        self.shared.queue.close();
        self.shared.stop();
        let (reply, answer) = mpsc::channel();
        self.shared.request(CheckpointRequest::Release(reply));
        let result = answer.recv_timeout(within).unwrap_or_else(|_| Err("the database is busy".to_owned()));
        if result.is_err() {
            self.shared.queue.send(StoreCommand::End);
        }
        // A commit that has begun ends.
        self.join();
        let why = "another process has taken over the store".to_owned();
        *outcome = Some(StopReport { clean: false, why: Some(why) });
        match self.shared.queue.counters().unwritten {
            0 => result,
            unwritten => Err(format!("registrations of {unwritten} addresses could not be written")),
        }
    }

    fn join(&self) {
        loop {
            let thread = self.threads.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(thread) = thread else { return };
            if thread.join().is_err() {
                tracing::error!("a thread of the store panicked; please report it");
            }
        }
    }
}

impl<B: Batch> Drop for Engine<B> {
    fn drop(&mut self) {
        self.stop(STOP_WITHIN);
    }
}

impl Parts {
    fn open<D: Disk>(&self, disk: impl FnOnce() -> Result<D, JournalError>) -> Result<OpenStore<D>, StartError> {
        let (now, machine) = (Arc::clone(&self.now), Arc::clone(&self.machine));
        open::open(disk, &self.database, &self.limits, now, machine)
    }
}

/// What the store thread starts with.
struct StoreThread<B: Batch> {
    parts: Parts,
    shared: Arc<Shared<B>>,
    threads: Threads,
}

impl<B: Batch> StoreThread<B> {
    /// Waits for the next attempt; returns `false` if the server stops.
    fn await_opening(&self) -> bool {
        let why = || self.shared.status().state.to_string();
        let agenda = self.shared.wait_for_requests(None, self.shared.limits.recover_every);
        let mut goes_on = true;
        for desired in agenda {
            match desired {
                CheckpointRequest::Backup(task) => task.execute(&self.parts.database, Err(why())),
                CheckpointRequest::Checkpoint(reply) => drop(reply.send(Err(why()))),
                CheckpointRequest::Final(reply) | CheckpointRequest::Release(reply) => {
                    drop(reply.send(Err(why())));
                    goes_on = false;
                }
            }
        }
        goes_on
    }

    fn try_to_open<D: Disk>(&self, disk: &impl Fn() -> Result<D, JournalError>) -> Option<OpenStore<D>> {
        match self.parts.open(disk) {
            Ok(opened) => {
                self.parts.locations.set_store_origin(opened.clock.origin());
                self.shared.opened();
                Some(opened)
            }
            Err(error) => {
                self.shared.cannot_open(&error.to_string());
                None
            }
        }
    }

    fn run<D: Disk>(self, opened: OpenStore<D>) {
        let OpenStore { store, hold, journal, reader, clock, segments, damage, checkpoint } = opened;
        let _as_long_as_it_runs = hold;
        let Self { parts, shared, threads } = self;
        let Parts { database, locations, policy, limits, is_filled, .. } = parts;
        for damage in &damage {
            if damage.is_loss() {
                tracing::error!("the journal is damaged: {damage}");
            } else {
                tracing::info!("the journal's end was cut, as after a loss of power: {damage}");
            }
        }
        shared.update_load_report(|found| {
            found.damage = damage.iter().take(SHOWN_DAMAGE).map(ToString::to_string).collect();
        });
        let rotate_at = clock.now() + limits.checkpoint_every;
        let loader = Loader {
            reader: reader.clone(),
            segments,
            tries: 0,
            is_filled,
            table: Table {
                database: database.clone(),
                locations: Arc::clone(&locations),
                policy,
                clock: clock.clone(),
                shared: Arc::clone(&shared),
            },
        };
        let checkpointer = Checkpointer {
            reader,
            database,
            locations,
            shared: Arc::clone(&shared),
            clock: clock.clone(),
            done: checkpoint,
            store: Some(store),
            read_failures: 0,
            rewritten_at: None,
            floor_ms: 0,
            retry_at: None,
            rotate_at,
            purge_at: None,
            waiting: Vec::new(),
        };
        let writer = Writer::new(journal, Arc::clone(&shared), clock);
        let started = spawn("strowger-ckpt", &shared, &threads, move || checkpointer.run())
            .and_then(|()| spawn("strowger-load", &shared, &threads, move || loader.run()));
        if let Err(cause) = started {
            shared.cannot_open(&StartError::System { doing: "start a thread", cause }.to_string());
        }
        writer.run();
    }
}

fn spawn<B: Batch>(
    name: &str,
    shared: &Arc<Shared<B>>,
    threads: &Threads,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let watch = PanicGuard(Arc::clone(shared));
    let work = move || {
        let _watch = watch;
        work();
    };
    let thread = thread::Builder::new().name(name.to_owned()).spawn(work)?;
    threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
    Ok(())
}

/// Reports a panic of a thread, after which nothing more is acknowledged.
struct PanicGuard<B: Batch>(Arc<Shared<B>>);

impl<B: Batch> Drop for PanicGuard<B> {
    fn drop(&mut self) {
        if thread::panicking() {
            let shared = &self.0;
            shared.queue.close();
            shared.queue.mark_broken(shared.queue.backlog());
            let why = "a thread of the store ended because of an internal error".to_owned();
            let remedy = "restart the server, and please report this".to_owned();
            shared.end(StoreFailure { why, remedy });
        }
    }
}
