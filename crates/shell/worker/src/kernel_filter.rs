//! Kernel filter of a worker: drops what the controller does not admit, with a memory of dropped messages if
//! permitted (`CAP_BPF` and `CAP_PERFMON`), otherwise by position alone, otherwise not at all.

use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use strowger_foundation::Timestamp;
use strowger_net::{DroppedMessages, FilterMemory, KnownSources, MAX_WORKERS, PacketFilter};
use strowger_overload::{Filter, FilterAbilities};

use crate::new_work_queue::NewWorkQueue;

/// Memory read by the programs of all workers' sockets.
#[derive(Debug, Default)]
pub(crate) struct SharedMemory {
    /// Dropped messages; exists while any worker needs it.
    dropped: Mutex<Weak<CountedMessages>>,
    /// Number of messages dropped by earlier ones.
    dropped_before: Arc<AtomicU64>,
    /// Proven sources, if the kernel can share them.
    sources: Option<Arc<KnownSources>>,
}

impl SharedMemory {
    /// Creates an empty memory.
    pub(crate) fn new(sources: Option<Arc<KnownSources>>) -> Self {
        Self { sources, ..Self::default() }
    }

    /// Returns the number of messages that the kernel has dropped by a filter with memory.
    pub(crate) fn dropped(&self) -> u64 {
        let now = self.dropped.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        self.dropped_before.load(Ordering::Relaxed) + now.map_or(0, |now| now.messages.dropped())
    }
}

/// Dropped messages, whose number outlives them.
#[derive(Debug)]
struct CountedMessages {
    messages: DroppedMessages,
    dropped_before: Arc<AtomicU64>,
}

impl Drop for CountedMessages {
    fn drop(&mut self) {
        self.dropped_before.fetch_add(self.messages.dropped(), Ordering::Relaxed);
    }
}

impl Deref for CountedMessages {
    type Target = DroppedMessages;

    fn deref(&self) -> &DroppedMessages {
        &self.messages
    }
}

/// What configures a worker's kernel queues, besides the filter.
#[derive(Clone, Copy)]
pub(crate) struct Rules<'r> {
    pub(crate) queues: &'r [Option<NewWorkQueue>],
    /// Configuration version of the rules.
    pub(crate) version: u64,
    /// Whether the worker sheds load. Dropped messages are remembered from the start of shedding.
    pub(crate) is_limiting: bool,
    pub(crate) rules: &'r dyn Fn(Filter) -> PacketFilter,
}

/// Kernel filter of one worker's queues.
#[derive(Debug)]
pub(crate) struct KernelFilter {
    worker: usize,
    shared: Arc<SharedMemory>,
    state: State,
    /// Whether the kernel refused shared memory, and programs altogether; a refusal is not retried.
    is_memory_refused: bool,
    is_refused: bool,
}

#[derive(Debug)]
enum State {
    /// Drops nothing.
    Open,
    /// Drops what `filter` does not pass, by a classic program.
    Classic { filter: Filter, version: u64 },
    /// Drops what `filter` does not pass and what was dropped before.
    Memory { dropped: Arc<CountedMessages>, filter: Filter, version: u64 },
}

impl KernelFilter {
    pub(crate) fn new(worker: usize, shared: Arc<SharedMemory>) -> Self {
        let is_memory_refused = worker >= MAX_WORKERS;
        Self { worker, shared, state: State::Open, is_memory_refused, is_refused: false }
    }

    /// Forgets what is attached to the queues.
    pub(crate) fn forget(&mut self) {
        self.state = State::Open;
    }

    /// Returns whether the kernel filters.
    pub(crate) const fn is_filtering(&self) -> bool {
        !matches!(self.state, State::Open)
    }

    /// Returns the abilities of the filter.
    pub(crate) fn abilities(&self) -> FilterAbilities {
        let has_memory = !self.is_memory_refused;
        FilterAbilities { has_memory, knows_sources: has_memory && self.shared.sources.is_some() }
    }

    /// Returns when the filter must be called next, even without traffic.
    pub(crate) fn next_deadline(&self) -> Timestamp {
        match &self.state {
            State::Memory { dropped, .. } => dropped.poll_timeout(),
            State::Open | State::Classic { .. } => Timestamp::MAX,
        }
    }

    /// Records a UDP message that was not served, so that its retransmissions are dropped.
    pub(crate) fn remember(&self, fingerprint: impl FnOnce() -> u32) {
        if let State::Memory { dropped, .. } = &self.state {
            dropped.insert(fingerprint());
        }
    }

    /// Applies the controller's filter to the kernel.
    pub(crate) fn update(&mut self, now: Timestamp, wanted: Filter, rules: Rules<'_>) {
        match &mut self.state {
            State::Memory { dropped, filter, version } if *version == rules.version => {
                if *filter != wanted {
                    dropped.set_filter(self.worker, &wanted);
                    *filter = wanted;
                }
                dropped.handle_timeout(now);
                if wanted.is_open() && !rules.is_limiting && dropped.is_empty() {
                    self.state = State::Open;
                    detach(rules);
                }
            }
            State::Classic { filter, version } if *version == rules.version && filter.is_close_to(&wanted) => {}
            State::Open if !rules.is_limiting || rules.queues.iter().flatten().next().is_none() => {}
            State::Open | State::Memory { .. } if !self.is_memory_refused => self.begin_memory(now, wanted, rules),
            State::Open if wanted.is_open() => {}
            State::Open | State::Classic { .. } | State::Memory { .. } => self.apply_classic(wanted, rules),
        }
    }

    fn begin_memory(&mut self, now: Timestamp, wanted: Filter, rules: Rules<'_>) {
        match self.attach_memory(now, wanted, rules) {
            Ok(dropped) => self.state = State::Memory { dropped, filter: wanted, version: rules.version },
            Err(error) => {
                tracing::info!(
                    %error,
                    "the kernel cannot remember dropped calls, so some are served late under overload; this needs the capabilities CAP_BPF and \
                     CAP_PERFMON, and Linux 5.12"
                );
                self.is_memory_refused = true;
                self.apply_classic(wanted, rules);
            }
        }
    }

    /// Attaches to each queue a program that follows the memory of all workers.
    fn attach_memory(&self, now: Timestamp, wanted: Filter, rules: Rules<'_>) -> io::Result<Arc<CountedMessages>> {
        let mut shared = self.shared.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped = match shared.upgrade() {
            Some(dropped) => dropped,
            None => {
                let dropped_before = Arc::clone(&self.shared.dropped_before);
                Arc::new(CountedMessages { messages: DroppedMessages::new(now)?, dropped_before })
            }
        };
        dropped.set_filter(self.worker, &wanted);
        let packet_filter = (rules.rules)(wanted);
        let memory = FilterMemory { dropped: &dropped, sources: self.shared.sources.as_deref() };
        for queue in rules.queues.iter().flatten() {
            queue.filter_by_memory(&packet_filter, memory, self.worker)?;
        }
        *shared = Arc::downgrade(&dropped);
        Ok(dropped)
    }

    fn apply_classic(&mut self, wanted: Filter, rules: Rules<'_>) {
        if self.is_refused {
            return;
        }
        let packet_filter = (rules.rules)(wanted);
        match rules.queues.iter().flatten().try_for_each(|queue| queue.filter(&packet_filter)) {
            Ok(()) if wanted.is_open() => self.state = State::Open,
            Ok(()) => self.state = State::Classic { filter: wanted, version: rules.version },
            Err(error) => {
                tracing::warn!(
                    %error,
                    "the kernel cannot drop calls before they are received, so the worker drops them at a higher cost; raise \
                     net.core.optmem_max"
                );
                self.is_refused = true;
                self.state = State::Open;
                // Some queues have a program that would not be updated.
                detach(rules);
            }
        }
    }
}

/// Detaches the programs from all queues; a queue without one is unaffected.
fn detach(rules: Rules<'_>) {
    let open = (rules.rules)(Filter::OPEN);
    for queue in rules.queues.iter().flatten() {
        if let Err(error) = queue.filter(&open) {
            let address = queue.socket.socket().local_addr();
            tracing::warn!(%address, %error, "the filter cannot be detached, so the kernel keeps dropping calls; restart the server");
        }
    }
}
