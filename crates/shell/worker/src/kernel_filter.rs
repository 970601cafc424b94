//! How the kernel drops for a worker what its controller does not want: with a memory of what was dropped where the process may
//! have it (`CAP_BPF`), else by position alone, else not at all.

use std::io;

use strowger_foundation::Timestamp;
use strowger_net::{DroppedMessages, GENERATION, PacketFilter};
use strowger_overload::Filter;

use crate::queue::NewWorkQueue;

/// What the kernel does for a worker's queues.
#[derive(Debug, Default)]
pub(crate) struct KernelFilter {
    state: State,
    /// Whether the kernel lets us have no memory, and no program at all, so that it is not asked again.
    is_memory_refused: bool,
    is_refused: bool,
}

#[derive(Debug, Default)]
enum State {
    /// It drops nothing.
    #[default]
    Open,
    /// It drops what does not pass this, by a program without a memory.
    Classic(Filter),
    /// It drops what does not pass, and what was dropped before.
    Memory { dropped: DroppedMessages, filter: Filter, generation_ends: Timestamp },
}

impl KernelFilter {
    /// Whether the kernel drops anything.
    pub(crate) const fn is_filtering(&self) -> bool {
        !matches!(self.state, State::Open)
    }

    /// Whether what the filter drops stays dropped.
    pub(crate) const fn has_memory(&self) -> bool {
        !self.is_memory_refused
    }

    /// When there is something to do, whatever comes.
    pub(crate) const fn next_deadline(&self) -> Timestamp {
        match self.state {
            State::Memory { generation_ends, .. } => generation_ends,
            State::Open | State::Classic(_) => Timestamp::MAX,
        }
    }

    /// A message over UDP was not served: its retransmissions need not be received.
    pub(crate) fn remember(&self, fingerprint: impl FnOnce() -> u32) {
        if let State::Memory { dropped, .. } = &self.state {
            dropped.insert(fingerprint());
        }
    }

    /// Has the kernel follow the controller's filter.
    pub(crate) fn follow(
        &mut self,
        now: Timestamp,
        wanted: Filter,
        queues: &mut [Option<NewWorkQueue>],
        rules: impl Fn(Filter) -> PacketFilter,
    ) {
        match &mut self.state {
            State::Memory { dropped, filter, generation_ends } => {
                if *filter != wanted {
                    dropped.let_pass(&wanted);
                    *filter = wanted;
                }
                if now < *generation_ends {
                    return;
                }
                *generation_ends = now + GENERATION;
                let remembers = dropped.begin_generation();
                if !remembers && wanted.is_open() {
                    each(queues, |queue| queue.filter(&rules(Filter::OPEN))).unwrap_or_else(|error| refused(&error));
                    self.state = State::Open;
                }
            }
            State::Open if wanted.is_open() => {}
            State::Classic(filter) if filter.is_near(&wanted) => {}
            State::Open if !self.is_memory_refused => self.begin_memory(now, wanted, queues, rules),
            State::Open | State::Classic(_) => self.apply_classic(wanted, queues, rules),
        }
    }

    fn begin_memory(
        &mut self,
        now: Timestamp,
        wanted: Filter,
        queues: &mut [Option<NewWorkQueue>],
        rules: impl Fn(Filter) -> PacketFilter,
    ) {
        let begun = DroppedMessages::new().and_then(|dropped| {
            dropped.let_pass(&wanted);
            each(queues, |queue| queue.filter_by_memory(&rules(wanted), &dropped))?;
            Ok(dropped)
        });
        match begun {
            Ok(dropped) => {
                self.state = State::Memory { dropped, filter: wanted, generation_ends: now + GENERATION };
            }
            Err(error) => {
                tracing::info!(
                    %error,
                    "calls that were dropped are forgotten, so some are served late under overload; the capability CAP_BPF \
                     and Linux 5.8 let the kernel remember them"
                );
                self.is_memory_refused = true;
                self.apply_classic(wanted, queues, rules);
            }
        }
    }

    fn apply_classic(
        &mut self,
        wanted: Filter,
        queues: &mut [Option<NewWorkQueue>],
        rules: impl Fn(Filter) -> PacketFilter,
    ) {
        if self.is_refused {
            return;
        }
        self.state = if wanted.is_open() { State::Open } else { State::Classic(wanted) };
        if let Err(error) = each(queues, |queue| queue.filter(&rules(wanted))) {
            refused(&error);
            self.is_refused = true;
            self.state = State::Open;
        }
    }
}

fn each(
    queues: &mut [Option<NewWorkQueue>],
    mut tell: impl FnMut(&mut NewWorkQueue) -> io::Result<()>,
) -> io::Result<()> {
    queues.iter_mut().flatten().try_for_each(&mut tell)
}

fn refused(error: &io::Error) {
    tracing::warn!(
        %error,
        "the kernel cannot drop calls before they are received, so the worker does, at a higher cost; raise \
         net.core.optmem_max"
    );
}
