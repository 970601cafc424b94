//! Power failure and kill at every operation of a run, in every variant, and with injected bugs.

use proptest::prelude::*;

use super::planted::{BUGS, Bug, Planted, SUMS_IGNORED};
use super::{EIO, ENOSPC, EROFS, at, record, settings};
use crate::simulated::{Crash, Data, Failure, Names, SimDisk};
use crate::{CommitError, Journal, JournalContents, Operation};

#[derive(Clone, Debug)]
enum Step {
    /// Commits this many records of this length.
    Commit(usize, usize),
    Rotate,
    Checkpoint,
    Recover,
    Fail(Failure),
    Heal,
    /// Restarts the process and reopens the journal, optionally with a failure.
    Reopen(Option<Failure>),
    /// Power failure.
    Crash(Crash),
}

use Step::{Checkpoint, Commit, Fail, Heal, Recover, Reopen, Rotate};

const LOSING: Failure = Failure { lose: true, ..Failure::once(Operation::Sync, EIO) };
const SHORT: Failure = Failure { short: 30, ..Failure::once(Operation::Append, ENOSPC) };

/// Returns a script with every kind of step.
fn script() -> Vec<Step> {
    let mut script = vec![Commit(1, 20), Commit(3, 100), Commit(2, 600), Commit(1, 40), Commit(4, 300)];
    script.extend([Checkpoint, Commit(2, 50), Fail(SHORT), Commit(2, 100), Commit(1, 10), Recover, Commit(1, 30)]);
    script.extend([Rotate, Commit(2, 200), Fail(LOSING), Commit(3, 400), Recover, Commit(1, 20), Checkpoint]);
    let eio = Failure::once(Operation::Sync, EIO);
    script.extend([Fail(eio), Commit(1, 300), Reopen(None), Commit(1, 15)]);
    let folder = Failure::always(Operation::SyncFolder, EIO);
    script.extend([Fail(folder), Rotate, Recover, Recover, Heal, Recover, Commit(1, 60), Rotate, Rotate]);
    script.extend([Step::Crash(Crash::Exact(Data::Discarded, Names::Discarded)), Commit(1, 70), Commit(1, 71)]);
    script.extend([Step::Crash(Crash::Random(3)), Commit(2, 900)]);
    let read_only = Failure::always(Operation::Create, EROFS);
    script.extend([Reopen(Some(read_only)), Commit(1, 5), Recover, Heal, Recover, Commit(1, 6)]);
    let rename = Failure::once(Operation::Rename, EIO);
    script.extend([Fail(rename), Rotate, Recover, Commit(1, 80), Fail(Failure::always(Operation::Truncate, EIO))]);
    // The first group of a segment fails twice.
    script.extend([Rotate, Fail(SHORT), Commit(1, 81), Recover, Fail(LOSING), Commit(1, 82), Recover, Commit(1, 83)]);
    // The page cache shows data that is not on disk.
    script.extend([Fail(LOSING), Commit(2, 90), Reopen(None), Commit(1, 91), Fail(LOSING), Commit(1, 92)]);
    script.extend([Reopen(Some(LOSING)), Recover, Commit(1, 93), Checkpoint, Checkpoint, Commit(1, 94), Reopen(None)]);
    script
}

/// A journal and what it must return.
struct Run {
    disk: SimDisk,
    bug: Bug,
    stop_at: Option<u64>,
    journal: Option<Journal<Planted>>,
    owes: Expected,
    now: u64,
    next: u64,
}

#[derive(Clone, Debug, Default)]
struct Expected {
    confirmed: Vec<Vec<u8>>,
    /// A group in doubt: power failed during its commit, or the disk refused and has not recovered.
    doubt: Option<Vec<Vec<u8>>>,
    /// The group in doubt was there when the journal was opened, so a recovery makes it durable.
    found: bool,
    /// Records in a durable checkpoint.
    taken: Vec<Vec<u8>>,
    checkpointed: Option<u64>,
}

impl Expected {
    /// Checks that replay returns what was acknowledged, in order, and the group in doubt as a whole or not at all.
    fn check(&self, opened: &JournalContents, shown: &[Vec<u8>]) -> Result<(), String> {
        let all: Vec<_> = self.taken.iter().chain(shown).collect();
        let with_doubt = self.confirmed.iter().chain(self.doubt.iter().flatten());
        if let Some(loss) = opened.damage.iter().find(|damage| damage.is_loss()) {
            return Err(format!("a crash is no damage: {loss}"));
        }
        if all.iter().copied().eq(&self.confirmed) || all.iter().copied().eq(with_doubt) {
            return Ok(());
        }
        Err(format!(
            "{} records were confirmed and {} are in doubt; {} are shown",
            self.confirmed.len(),
            self.doubt.as_ref().map_or(0, Vec::len),
            all.len()
        ))
    }
}

type Shown = (Journal<Planted>, JournalContents, Vec<Vec<u8>>);

fn try_open(disk: &SimDisk, bug: Bug, checkpointed: Option<u64>) -> Result<Shown, String> {
    let disk = Planted { disk: disk.clone(), bug };
    let now = |last: Option<crate::Stamp>| at(last.map_or(1, |last| last.store_ms + 1));
    let (journal, opened) = Journal::open(disk, settings(), checkpointed, now).map_err(|fault| fault.to_string())?;
    let mut shown = Vec::new();
    let mut reader = journal.reader();
    for &segment in &opened.segments {
        reader.read(segment, |record| shown.push(record.to_owned())).map_err(|fault| fault.to_string())?;
    }
    Ok((journal, opened, shown))
}

impl Run {
    fn begin(bug: Bug, stop_at: Option<u64>) -> Self {
        let mut run =
            Self { disk: SimDisk::new(), bug, stop_at, journal: None, owes: Expected::default(), now: 1, next: 0 };
        run.continue_on(SimDisk::new()).expect("an empty disk has nothing wrong");
        run
    }

    /// Opens the journal on a disk left by another process or before a reboot.
    fn continue_on(&mut self, disk: SimDisk) -> Result<(), String> {
        self.disk = disk;
        if let Some(operation) = self.stop_at {
            self.disk.stop_at(operation);
        }
        self.journal = None;
        match try_open(&self.disk, self.bug, self.owes.checkpointed) {
            Err(_) if self.disk.is_stopped() => Ok(()),
            Err(fault) => Err(fault),
            Ok((journal, opened, shown)) => {
                self.owes.check(&opened, &shown)?;
                if journal.fault().is_none() {
                    self.owes.confirmed = self.owes.taken.iter().chain(&shown).cloned().collect();
                    self.owes.doubt = None;
                }
                self.owes.found = self.owes.taken.len() + shown.len() > self.owes.confirmed.len();
                self.journal = Some(journal);
                Ok(())
            }
        }
    }

    fn all(&mut self, script: &[Step]) -> Result<(), String> {
        for step in script {
            if self.disk.is_stopped() {
                break;
            }
            self.step(step)?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        self.now += 1;
        let now = at(self.now);
        match step {
            Commit(count, len) => self.commit(*count, *len),
            Fail(failure) => self.disk.fail(failure.clone()),
            Heal => self.disk.heal(),
            Rotate => {
                let _ = self.journal.as_mut().expect("is open").rotate(now);
            }
            Recover => {
                if self.journal.as_mut().expect("is open").recover(now).is_ok() {
                    let settled = self.owes.doubt.take().filter(|_| self.owes.found);
                    self.owes.confirmed.extend(settled.into_iter().flatten());
                }
            }
            Checkpoint => self.checkpoint(),
            Reopen(failure) => {
                let disk = self.disk.restarted();
                disk.heal();
                failure.iter().for_each(|failure| disk.fail(failure.clone()));
                return self.continue_on(disk);
            }
            Step::Crash(crash) => return self.continue_on(self.disk.crash(*crash)),
        }
        Ok(())
    }

    fn commit(&mut self, count: usize, len: usize) {
        let journal = self.journal.as_mut().expect("is open");
        let first = self.next;
        self.next += count as u64;
        let group: Vec<_> = (first..self.next).map(|number| record(number, len)).collect();
        for record in &group {
            journal.push(record).expect("has room");
        }
        let refused = journal.fault().is_some();
        match journal.commit(at(self.now)) {
            Ok(()) => self.owes.confirmed.extend(group),
            Err(CommitError::Fault(_)) if !refused => (self.owes.doubt, self.owes.found) = (Some(group), false),
            Err(_) => {}
        }
    }

    fn checkpoint(&mut self) {
        let journal = self.journal.as_mut().expect("is open");
        let mut reader = journal.reader();
        let mut taken = Vec::new();
        for &segment in journal.closed() {
            if reader.read(segment, |record| taken.push(record.to_owned())).is_err() {
                return;
            }
        }
        if let Some(last) = journal.closed().last().map(|last| last.number) {
            self.owes.taken.extend(taken);
            self.owes.checkpointed = Some(last);
            let _ = journal.remove_through(last);
        }
    }

    /// Checks every variant of a power failure at this point, and a kill.
    fn check_every_end(&self) -> Result<(), String> {
        check_end(&self.disk.restarted(), self.bug, &self.owes).map_err(|fault| format!("killed: {fault}"))?;
        for crash in self.disk.choices() {
            let check = check_end(&self.disk.crash(crash), self.bug, &self.owes);
            check.map_err(|fault| format!("{crash:?}: {fault}"))?;
        }
        Ok(())
    }
}

/// Checks that replay is correct and stays so if power fails again at once.
fn check_end(disk: &SimDisk, bug: Bug, owes: &Expected) -> Result<(), String> {
    disk.heal();
    let (mut journal, opened, shown) = try_open(disk, bug, owes.checkpointed)?;
    owes.check(&opened, &shown)?;
    if let Some(fault) = journal.fault() {
        return Err(fault.to_string());
    }
    let dark = disk.crash(Crash::Exact(Data::Discarded, Names::Discarded));
    let (_, opened, again) = try_open(&dark, bug, owes.checkpointed)?;
    let settled = Expected {
        confirmed: owes.taken.iter().chain(&shown).cloned().collect(),
        doubt: None,
        found: false,
        taken: owes.taken.clone(),
        checkpointed: owes.checkpointed,
    };
    settled.check(&opened, &again).map_err(|fault| format!("the second time: {fault}"))?;
    // The journal is writable.
    journal.push(b"one more").map_err(|fault| fault.to_string())?;
    journal.commit(at(1_000_000)).map_err(|fault| fault.to_string())
}

/// Returns the number of operations in the whole run.
fn operations(script: &[Step], bug: Bug) -> u64 {
    let mut run = Run::begin(bug, None);
    let _ = run.all(script);
    run.disk.operations()
}

fn enumerate(script: &[Step], bug: Bug) -> Result<u64, String> {
    SUMS_IGNORED.set(bug == Bug::TornTailAccepted);
    let result = try_enumerate(script, bug);
    SUMS_IGNORED.set(false);
    result
}

fn try_enumerate(script: &[Step], bug: Bug) -> Result<u64, String> {
    let mut ends = 0;
    for stop in 0..=operations(script, bug) {
        let mut run = Run::begin(bug, Some(stop));
        run.all(script).and_then(|()| run.check_every_end()).map_err(|fault| format!("stopped at {stop}: {fault}"))?;
        ends += run.disk.choices().len() as u64 + 1;
    }
    Ok(ends)
}

#[test]
fn power_loss_at_every_operation_loses_nothing() {
    let ends = enumerate(&script(), Bug::None).expect("nothing confirmed is lost, nothing is invented");
    assert!(ends > 3_000, "only {ends} ends were tried");
    println!("{ends} ends");
}

#[test]
fn the_script_covers_every_case() {
    let mut run = Run::begin(Bug::None, None);
    run.all(&script()).expect("nothing is lost");
    assert!(run.owes.taken.len() > 10, "segments were removed");
    assert!(run.owes.confirmed.len() > run.owes.taken.len(), "and some are there");
    assert!(run.next > run.owes.confirmed.len() as u64 + 8, "and some groups failed");
}

#[test]
fn each_planted_bug_is_caught() {
    for bug in BUGS {
        let caught = enumerate(&script(), bug);
        println!("{bug:?}: {caught:?}");
        assert!(caught.is_err(), "{bug:?} was not caught");
    }
}

fn any_failure() -> impl Strategy<Value = Failure> {
    let on = prop_oneof![
        3 => Just(Operation::Append),
        3 => Just(Operation::Sync),
        1 => Just(Operation::Create),
        1 => Just(Operation::Rename),
        1 => Just(Operation::Remove),
        1 => Just(Operation::Truncate),
        2 => Just(Operation::SyncFolder),
        1 => Just(Operation::Read),
        1 => Just(Operation::List),
    ];
    let errno = prop_oneof![Just(EIO), Just(ENOSPC), Just(EROFS)];
    (on, 0..3_u64, prop_oneof![Just(1_u64), Just(2), Just(u64::MAX)], errno, 0..400_usize, any::<bool>())
        .prop_map(|(on, skip, times, errno, short, lose)| Failure { on, skip, times, errno, short, lose })
}

/// Failures of writes only: reopening with a read failure does not succeed, which another test covers.
fn failure_of_writing() -> impl Strategy<Value = Failure> {
    any_failure().prop_filter("reads", |failure| !matches!(failure.on, Operation::Read | Operation::List))
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1..5_usize, 0..900_usize).prop_map(|(count, len)| Commit(count, len)),
        1 => Just(Rotate),
        1 => Just(Checkpoint),
        3 => Just(Recover),
        3 => any_failure().prop_map(Fail),
        2 => Just(Heal),
        1 => proptest::option::of(failure_of_writing()).prop_map(Reopen),
        1 => any::<u64>().prop_map(|seed| Step::Crash(Crash::Random(seed))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn power_loss_anywhere_loses_nothing(
        script in proptest::collection::vec(any_step(), 1..40),
        stops in proptest::collection::vec(any::<prop::sample::Index>(), 6),
    ) {
        let all = operations(&script, Bug::None) as usize + 1;
        for stop in stops {
            let stop = stop.index(all) as u64;
            let mut run = Run::begin(Bug::None, Some(stop));
            run.all(&script).map_err(TestCaseError::fail)?;
            run.check_every_end().map_err(TestCaseError::fail)?;
        }
    }
}
