//! An in-memory disk that loses unsynced data on power failure and fails on demand.
//!
//! It behaves as badly as a disk may. A loss of power leaves any part of the data written since the last sync:
//! nothing, a torn prefix, or a later block without an earlier one. Names created, renamed or removed since the last
//! folder sync each survive or not. A failed sync may report the error once, lose the data, still return it to
//! readers, and report success from then on.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{Disk, DiskFile, Operation};

/// Size of an atomic write.
const SECTOR: usize = 512;

type Hook = Arc<dyn Fn(Operation) + Send + Sync>;

/// A simulated disk. Clones share the same disk.
#[derive(Clone, Debug, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Default)]
struct State {
    files: BTreeMap<u64, Content>,
    next_file: u64,
    /// Names as seen by a process.
    names: BTreeMap<String, u64>,
    /// Names guaranteed to survive a loss of power.
    durable_names: BTreeMap<String, u64>,
    pending_names: Vec<NameChange>,
    failures: Vec<Failure>,
    capacity: Option<u64>,
    operations: u64,
    stop_at: Option<u64>,
    hook: Option<Hook>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("names", &self.names)
            .field("operations", &self.operations)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Default)]
struct Content {
    /// Contents as seen by a process.
    seen: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Cut(usize),
}

#[derive(Clone, Debug)]
enum NameChange {
    Create(String, u64),
    Rename(String, String, u64),
    Remove(String, u64),
}

/// A planned failure.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Operation that fails.
    pub on: Operation,
    /// Number of operations that succeed first.
    pub skip: u64,
    /// Number of operations that fail then.
    pub times: u64,
    /// System error number.
    pub errno: i32,
    /// For [`Operation::Append`]: bytes written before the error.
    pub short: usize,
    /// For [`Operation::Sync`]: unsynced data is lost but still visible, and later syncs succeed.
    pub lose: bool,
}

impl Failure {
    /// Creates a failure that lasts until [`SimDisk::heal`].
    #[must_use]
    pub const fn always(on: Operation, errno: i32) -> Self {
        Self { on, skip: 0, times: u64::MAX, errno, short: 0, lose: false }
    }

    /// Creates a failure of the next operation.
    #[must_use]
    pub const fn once(on: Operation, errno: i32) -> Self {
        Self { on, skip: 0, times: 1, errno, short: 0, lose: false }
    }
}

/// What a loss of power leaves of unsynced data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Nothing.
    Discarded,
    /// Everything.
    Kept,
    /// The first n bytes.
    Torn(usize),
    /// Everything but this sector, counted from the first unsynced byte; it reads as zeros.
    Holed(usize),
    /// The length, filled with zeros.
    Zeroed,
}

/// What a loss of power leaves of unsynced names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// None of the changes.
    Discarded,
    /// All changes.
    Kept,
    /// The first n changes.
    First(usize),
    /// All changes but this one.
    Without(usize),
}

/// A loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Exactly as given.
    Exact(Data, Names),
    /// Each sector and each name independently, by a seed.
    Random(u64),
}

impl SimDisk {
    /// Creates an empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a copy of the disk after a loss of power: without planned failures and capacity limit, with the
    /// operation count continued.
    #[must_use]
    pub fn crash(&self, crash: Crash) -> Self {
        let state = self.lock();
        let mut dice = Rng(if let Crash::Random(seed) = crash { seed } else { 0 });
        let mut names = state.durable_names.clone();
        for (at, change) in state.pending_names.iter().enumerate() {
            let applies = match crash {
                Crash::Exact(_, Names::Discarded) => false,
                Crash::Exact(_, Names::Kept) => true,
                Crash::Exact(_, Names::First(count)) => at < count,
                Crash::Exact(_, Names::Without(one)) => at != one,
                Crash::Random(_) => dice.flip(),
            };
            if applies {
                change.apply(&mut names);
            }
        }
        let files = state.files.iter().map(|(&id, content)| {
            let left = match crash {
                Crash::Exact(data, _) => content.after(data),
                Crash::Random(_) => content.after_dice(&mut dice),
            };
            (id, Content { seen: left.clone(), durable: left, pending: Vec::new() })
        });
        let files = files.filter(|(id, _)| names.values().any(|named| named == id)).collect();
        let state = State {
            files,
            next_file: state.next_file,
            names: names.clone(),
            durable_names: names,
            operations: state.operations,
            ..State::default()
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Returns a copy of the disk as seen after the process was killed: nothing is lost, nothing additionally synced.
    #[must_use]
    pub fn restarted(&self) -> Self {
        let mut state = self.lock().clone();
        state.stop_at = None;
        state.failures.clear();
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Returns all losses of power worth testing in the current state.
    #[must_use]
    pub fn choices(&self) -> Vec<Crash> {
        let state = self.lock();
        let pending = state.files.values().map(Content::pending_len).max().unwrap_or(0);
        let mut data = vec![Data::Discarded, Data::Kept];
        if pending > 0 {
            let sectors = pending.div_ceil(SECTOR);
            data.push(Data::Zeroed);
            data.extend([1, 3, pending / 2, pending - 1].map(Data::Torn));
            data.extend((1..sectors).map(|sector| Data::Torn(sector * SECTOR)));
            data.extend((0..sectors).map(Data::Holed));
        }
        let mut names = vec![Names::Discarded, Names::Kept];
        names.extend((1..state.pending_names.len()).map(Names::First));
        names.extend((0..state.pending_names.len()).map(Names::Without));
        let all = names.iter().flat_map(|&names| data.iter().map(move |&data| Crash::Exact(data, names)));
        all.chain((0..4).map(|seed| Crash::Random(seed + state.operations))).collect()
    }

    /// Returns the number of operations so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Fails the power before the given operation, counted from 0: it and all later ones fail without effect.
    pub fn stop_at(&self, operation: u64) {
        self.lock().stop_at = Some(operation);
    }

    /// Returns whether power has failed.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let state = self.lock();
        state.stop_at.is_some_and(|at| state.operations > at)
    }

    /// Adds a planned failure.
    pub fn fail(&self, failure: Failure) {
        self.lock().failures.push(failure);
    }

    /// Removes all planned failures.
    pub fn heal(&self) {
        self.lock().failures.clear();
    }

    /// Sets the capacity of all files together; a write beyond it is cut short and fails with ENOSPC.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.lock().capacity = bytes;
    }

    /// Sets a hook that runs before each operation on its thread, to wait or to count.
    pub fn set_hook(&self, hook: Option<Hook>) {
        self.lock().hook = hook;
    }

    /// Returns the contents of a file as seen by a process.
    #[must_use]
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.lock();
        state.names.get(name).and_then(|id| state.files.get(id)).map(|content| content.seen.clone())
    }

    /// Creates a durable file.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut state = self.lock();
        let id = state.new_file();
        let content = Content { seen: bytes.to_owned(), durable: bytes.to_owned(), pending: Vec::new() };
        state.files.insert(id, content);
        state.names.insert(name.to_owned(), id);
        state.durable_names.insert(name.to_owned(), id);
    }

    /// Returns the names of all files, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.lock().names.keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts an operation: runs the hook and checks power and planned failures.
    fn begin(&self, operation: Operation) -> (MutexGuard<'_, State>, Result<(), Failure>) {
        let hook = self.lock().hook.clone();
        if let Some(hook) = hook {
            hook(operation);
        }
        let mut state = self.lock();
        let now = state.operations;
        state.operations += 1;
        if state.stop_at.is_some_and(|at| now >= at) {
            return (state, Err(Failure::always(operation, EIO)));
        }
        let planned = state.failures.iter_mut().filter(|failure| failure.on == operation && failure.times > 0);
        for failure in planned {
            if failure.skip > 0 {
                failure.skip -= 1;
                continue;
            }
            failure.times -= 1;
            let failure = failure.clone();
            return (state, Err(failure));
        }
        (state, Ok(()))
    }

    fn check(&self, operation: Operation) -> io::Result<MutexGuard<'_, State>> {
        let (state, planned) = self.begin(operation);
        planned.map_err(|failure| failure.error())?;
        Ok(state)
    }
}

/// EIO, the same number on every Unix.
const EIO: i32 = 5;
/// ENOSPC, the same number on every Unix.
const ENOSPC: i32 = 28;

impl Failure {
    fn error(&self) -> io::Error {
        io::Error::from_raw_os_error(self.errno)
    }
}

impl State {
    fn new_file(&mut self) -> u64 {
        self.next_file += 1;
        self.next_file
    }

    fn id(&self, name: &str) -> io::Result<u64> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn content(&mut self, id: u64) -> &mut Content {
        self.files.entry(id).or_default()
    }

    /// Returns the remaining capacity in bytes.
    fn room(&self) -> u64 {
        let used: usize =
            self.names.values().filter_map(|id| self.files.get(id)).map(|content| content.seen.len()).sum();
        self.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(used as u64))
    }

    fn change_names(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.pending_names.push(change);
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Create(name, id) => {
                names.insert(name.clone(), *id);
            }
            Self::Rename(from, to, id) => {
                if names.get(from) == Some(id) {
                    names.remove(from);
                }
                names.insert(to.clone(), *id);
            }
            Self::Remove(name, id) => {
                if names.get(name) == Some(id) {
                    names.remove(name);
                }
            }
        }
    }
}

impl Content {
    fn write(&mut self, bytes: &[u8]) {
        let at = self.seen.len();
        self.seen.extend_from_slice(bytes);
        self.pending.push(Change::Write { at, bytes: bytes.to_owned() });
    }

    fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            change.apply(&mut self.durable, usize::MAX);
        }
    }

    fn pending_len(&self) -> usize {
        self.pending.iter().map(Change::len).sum()
    }

    fn after(&self, data: Data) -> Vec<u8> {
        let mut left = self.durable.clone();
        let mut budget = match data {
            Data::Discarded => return left,
            Data::Torn(bytes) => bytes,
            Data::Kept | Data::Holed(_) | Data::Zeroed => usize::MAX,
        };
        for change in &self.pending {
            if budget == 0 {
                break;
            }
            change.apply(&mut left, budget);
            budget = budget.saturating_sub(change.len());
        }
        let synced = self.durable.len().min(left.len());
        if let Some(fresh) = left.get_mut(synced..) {
            let holes = fresh.chunks_mut(SECTOR).enumerate();
            holes.filter(|(at, _)| data == Data::Zeroed || data == Data::Holed(*at)).for_each(|(_, hole)| hole.fill(0));
        }
        left
    }

    fn after_dice(&self, dice: &mut Rng) -> Vec<u8> {
        let all = self.pending_len();
        let data = match dice.next() % 4 {
            0 => Data::Discarded,
            1 => Data::Torn(dice.next() as usize % (all + 1)),
            _ => Data::Kept,
        };
        let mut left = self.after(data);
        let synced = self.durable.len().min(left.len());
        if let (Some(fresh), true) = (left.get_mut(synced..), dice.flip()) {
            fresh.chunks_mut(SECTOR).filter(|_| dice.flip()).for_each(|hole| hole.fill(0));
        }
        left
    }
}

impl Change {
    fn len(&self) -> usize {
        match self {
            Self::Write { bytes, .. } => bytes.len(),
            Self::Cut(_) => 0,
        }
    }

    fn apply(&self, content: &mut Vec<u8>, at_most: usize) {
        match self {
            Self::Write { at, bytes } => {
                let bytes = bytes.get(..at_most.min(bytes.len())).unwrap_or_default();
                let end = at + bytes.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                if let Some(place) = content.get_mut(*at..end) {
                    place.copy_from_slice(bytes);
                }
            }
            Self::Cut(len) => content.truncate(*len),
        }
    }
}

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn flip(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

impl Disk for SimDisk {
    type File = SimFile;

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.check(Operation::List)?.names.keys().cloned().collect())
    }

    fn read(&self, name: &str, at_most: u64, into: &mut Vec<u8>) -> io::Result<()> {
        let mut state = self.check(Operation::Read)?;
        let id = state.id(name)?;
        let seen = &state.content(id).seen;
        into.clear();
        into.extend_from_slice(seen.get(..at_most.min(seen.len() as u64) as usize).unwrap_or_default());
        Ok(())
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        let mut state = self.check(Operation::Len)?;
        let id = state.id(name)?;
        Ok(state.content(id).seen.len() as u64)
    }

    fn create(&self, name: &str) -> io::Result<SimFile> {
        let mut state = self.check(Operation::Create)?;
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let id = state.new_file();
        state.files.insert(id, Content::default());
        state.change_names(NameChange::Create(name.to_owned(), id));
        drop(state);
        Ok(SimFile { disk: self.clone(), id })
    }

    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        let mut state = self.check(Operation::Truncate)?;
        let id = state.id(name)?;
        let content = state.content(id);
        content.seen.truncate(len as usize);
        content.pending.push(Change::Cut(len as usize));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.check(Operation::Rename)?;
        let id = state.id(from)?;
        state.change_names(NameChange::Rename(from.to_owned(), to.to_owned(), id));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.check(Operation::Remove)?;
        let id = state.id(name)?;
        state.change_names(NameChange::Remove(name.to_owned(), id));
        Ok(())
    }

    fn sync_folder(&self) -> io::Result<()> {
        let mut state = self.check(Operation::SyncFolder)?;
        for change in std::mem::take(&mut state.pending_names) {
            change.apply(&mut state.durable_names);
        }
        Ok(())
    }

    fn path_of(&self, name: &str) -> String {
        format!("simulated/{name}")
    }
}

/// A file of a [`SimDisk`].
#[derive(Debug)]
pub struct SimFile {
    disk: SimDisk,
    id: u64,
}

impl DiskFile for SimFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (mut state, planned) = self.disk.begin(Operation::Append);
        let room = usize::try_from(state.room()).unwrap_or(usize::MAX);
        let content = state.content(self.id);
        if let Err(failure) = planned {
            let short = failure.short.min(bytes.len());
            if short > 0 {
                content.write(bytes.get(..short).unwrap_or_default());
            }
            return Err(failure.error());
        }
        if bytes.len() > room {
            content.write(bytes.get(..room).unwrap_or_default());
            return Err(io::Error::from_raw_os_error(ENOSPC));
        }
        content.write(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let (mut state, planned) = self.disk.begin(Operation::Sync);
        let content = state.content(self.id);
        if let Err(failure) = planned {
            if failure.lose {
                content.pending.clear();
            }
            return Err(failure.error());
        }
        content.sync();
        Ok(())
    }
}
