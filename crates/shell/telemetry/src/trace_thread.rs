//! A thread that reads a trace, for an exporter.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use strowger_net::{Clock, ClockPair};
use strowger_worker::{SAMPLE_QUEUE, Trace, TraceRecord, TraceStop};

/// Time to collect messages. Waking the thread for each message would take CPU time from the workers.
const GATHERED_FOR: Duration = Duration::from_millis(20);

/// Runs until it is dropped. Dropping it waits until the thread has read what the trace has.
#[derive(Debug)]
pub(crate) struct TraceThread {
    is_stopping: Arc<AtomicBool>,
    trace: TraceStop,
    thread: Option<JoinHandle<()>>,
}

impl TraceThread {
    /// Starts a thread of this name. `run` ends after the batch that [`is_last`](TraceReader::is_last).
    ///
    /// # Errors
    /// When there is no thread.
    pub(crate) fn start(
        name: &str,
        trace: Trace,
        clock: Clock,
        run: impl FnOnce(TraceReader) + Send + 'static,
    ) -> io::Result<Self> {
        let (is_stopping, stop) = (Arc::new(AtomicBool::new(false)), trace.stop());
        let reader = TraceReader { trace, clock, is_stopping: Arc::clone(&is_stopping), is_last: false };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || run(reader))?;
        Ok(Self { is_stopping, trace: stop, thread: Some(thread) })
    }

    /// Ends without waiting for the thread.
    pub(crate) fn detach(mut self) {
        self.thread = None;
    }
}

impl Drop for TraceThread {
    fn drop(&mut self) {
        self.trace.stop();
        self.is_stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// The trace, as its thread reads it.
pub(crate) struct TraceReader {
    trace: Trace,
    clock: Clock,
    is_stopping: Arc<AtomicBool>,
    is_last: bool,
}

impl TraceReader {
    /// Waits at most `tick` for messages, and passes those that are there to `on_message`. One pair of clocks is for all
    /// of them, so that their times keep their order. Returns whether there were any.
    pub(crate) fn read_batch(&mut self, tick: Duration, mut on_message: impl FnMut(&TraceRecord, &ClockPair)) -> bool {
        self.is_last = self.is_stopping.load(Ordering::Relaxed);
        let Some(first) = self.trace.poll(if self.is_last { Duration::ZERO } else { tick }) else { return false };
        if !self.is_last {
            thread::sleep(GATHERED_FOR);
        }
        let clocks = self.clock.pair();
        on_message(&first, &clocks);
        for _ in 0..SAMPLE_QUEUE {
            let Some(next) = self.trace.poll(Duration::ZERO) else { break };
            on_message(&next, &clocks);
        }
        true
    }

    /// Returns the number of messages lost since the last call, because they came faster than they were read.
    pub(crate) fn poll_lost(&mut self) -> u64 {
        self.trace.poll_lost()
    }

    /// Whether the exporter has been stopped, so that no batch comes after the one just read.
    pub(crate) const fn is_last(&self) -> bool {
        self.is_last
    }

    /// Reads both clocks.
    pub(crate) fn clocks(&self) -> ClockPair {
        self.clock.pair()
    }
}
