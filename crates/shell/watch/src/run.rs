//! Executes a watcher's decisions with sockets and the clock.

use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use strowger_foundation::Timestamp;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::plan::Plan;
use crate::probe;
use crate::update::RecordSetContents;
use crate::watcher::{Event, Output, Watcher};
use crate::zone::{Zone, ZoneError};

/// Maximum sleep of an idle watcher.
const IDLE: Duration = Duration::from_secs(3600);

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopWhen {
    /// Never.
    Stopped,
    /// When all servers' states are known and the zone is as desired.
    Settled,
}

/// Result of a task.
enum TaskResult {
    Probed(usize, Option<u16>),
    Read(usize, Result<RecordSetContents, ZoneError>),
    Updated(usize, Result<(), ZoneError>),
}

/// Watches and passes events to `tell` until that breaks off or the end is reached. Returns whether the end was
/// reached.
///
/// # Errors
/// If the system cannot create an event queue.
pub fn run(
    plan: Plan,
    zone: &Zone,
    until: StopWhen,
    tell: impl FnMut(&Plan, Event) -> ControlFlow<()>,
) -> io::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    Ok(runtime.block_on(watch(plan, zone, until, tell)))
}

async fn watch(
    plan: Plan,
    zone: &Zone,
    until: StopWhen,
    mut tell: impl FnMut(&Plan, Event) -> ControlFlow<()>,
) -> bool {
    let start = Instant::now();
    let now = || Timestamp::from_nanos(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let mut tasks = JoinSet::new();
    if let Err(ZoneError::Refused(why)) = zone.check().await
        && tell(&plan, Event::Refused { why }).is_break()
    {
        return false;
    }
    let mut watcher = Watcher::new(plan.clone(), now());
    loop {
        while let Some(output) = watcher.poll_output() {
            match output {
                Output::Event(event) => {
                    if tell(&plan, event).is_break() {
                        return false;
                    }
                }
                other => begin(&mut tasks, &plan, zone, other),
            }
        }
        if until == StopWhen::Settled && watcher.is_settled() {
            return true;
        }
        let wake = watcher.poll_timeout().map_or(IDLE, |at| at.saturating_since(now()));
        tokio::select! {
            Some(done) = tasks.join_next() => match done {
                Ok(TaskResult::Probed(server, status)) => watcher.handle_probe(now(), server, status),
                Ok(TaskResult::Read(set, found)) => watcher.handle_read(now(), set, found),
                Ok(TaskResult::Updated(set, outcome)) => watcher.handle_update(now(), set, outcome),
                // The panic hook has reported it. The watcher would wait for its result forever.
                Err(_) => return false,
            },
            () = tokio::time::sleep(wake) => watcher.handle_timeout(now()),
        }
    }
}

fn begin(tasks: &mut JoinSet<TaskResult>, plan: &Plan, zone: &Zone, output: Output) {
    let zone = zone.clone();
    match output {
        Output::Probe(index) => {
            let (Some(server), timeout) = (plan.servers.get(index).cloned(), plan.probe.timeout) else { return };
            tasks.spawn(async move { TaskResult::Probed(index, probe::send_probe(&server, timeout).await) });
        }
        Output::Read(index) => {
            let Some(set) = plan.sets.get(index).cloned() else { return };
            tasks.spawn(async move { TaskResult::Read(index, zone.read(&set).await) });
        }
        Output::Update(update) => {
            let Some(set) = plan.sets.get(update.set).cloned() else { return };
            tasks.spawn(async move { TaskResult::Updated(update.set, zone.update(&set, &update).await) });
        }
        Output::Event(_) => {}
    }
}
