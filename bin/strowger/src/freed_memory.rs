//! When memory that a peak of load has left goes back to the system.
//!
//! The allocator keeps what the workers have freed for their next messages, which is right while there is load. Once the
//! load has fallen, this lets them give it back: at intervals, because transactions end half a minute after their last
//! message. A steady load never does, so a busy server pays nothing.

use std::time::{Duration, Instant};

use strowger_worker::Fleet;

/// Interval at which the load is measured.
const WINDOW: Duration = Duration::from_secs(1);
/// The load has fallen when there are fewer messages than the largest number divided by this.
const FALLEN: u64 = 8;
/// When memory is collected after the load has fallen.
const COLLECT_AFTER: [Duration; 4] =
    [Duration::from_secs(5), Duration::from_secs(40), Duration::from_secs(60), Duration::from_secs(90)];
/// How long after that it is returned to the system.
const RETURN_AFTER: Duration = Duration::from_secs(2);
/// Messages in one window that leave nothing worth collecting.
const FEW: u64 = 100;

/// What to do with freed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The workers collect what they have freed.
    Collect,
    /// What is collected goes back to the system.
    Return,
}

/// The load, as far as it matters for memory.
#[derive(Debug, Default)]
pub(crate) struct FreedMemory {
    /// Number of messages so far, and when they were counted.
    counted: Option<(Instant, u64)>,
    /// The largest number of messages in a window since memory was collected.
    peak: u64,
    fallen: Option<Fall>,
}

/// A fall of the load.
#[derive(Debug)]
struct Fall {
    at: Instant,
    /// Number of collections so far.
    collected: usize,
    /// When what was collected goes back.
    returns: Option<Instant>,
}

impl FreedMemory {
    /// Gives memory back if it is time. Call it often; it looks once a second.
    pub(crate) fn update(&mut self, now: Instant, fleet: &Fleet) {
        if self.counted.is_some_and(|(at, _)| now.saturating_duration_since(at) < WINDOW) {
            return;
        }
        let total = fleet.status().total.shard;
        match self.handle_count(now, total.requests.wrapping_add(total.responses)) {
            Some(Step::Collect) => {
                fleet.collect_memory();
                strowger_net::collect_freed_memory();
            }
            Some(Step::Return) => {
                strowger_net::return_freed_memory();
                tracing::debug!("memory that a peak has left is returned");
            }
            None => {}
        }
    }

    /// Returns whether the load has fallen and memory is being given back.
    pub(crate) fn has_load_fallen(&self) -> bool {
        self.fallen.is_some()
    }

    fn handle_count(&mut self, now: Instant, messages: u64) -> Option<Step> {
        let (_, before) = self.counted.replace((now, messages))?;
        let count = messages.wrapping_sub(before);
        self.peak = self.peak.max(count);
        if count > self.peak / FALLEN {
            self.fallen = None;
            return None;
        }
        if self.peak < FEW {
            return None;
        }
        let fall = self.fallen.get_or_insert(Fall { at: now, collected: 0, returns: None });
        if fall.returns.is_some_and(|at| at <= now) {
            fall.returns = None;
            if fall.collected == COLLECT_AFTER.len() {
                // What there is now is the load to compare with.
                (self.peak, self.fallen) = (count, None);
            }
            return Some(Step::Return);
        }
        let next = COLLECT_AFTER.get(fall.collected)?;
        if fall.returns.is_some() || now.saturating_duration_since(fall.at) < *next {
            return None;
        }
        fall.collected += 1;
        fall.returns = Some(now + RETURN_AFTER);
        Some(Step::Collect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays the messages of each second, and returns the seconds at which something is done.
    fn play(load: impl IntoIterator<Item = u64>) -> Vec<(usize, Step)> {
        let (mut memory, began, mut total) = (FreedMemory::default(), Instant::now(), 0);
        let seconds = load.into_iter().enumerate().filter_map(|(second, messages)| {
            total += messages;
            let now = began + Duration::from_secs(u64::try_from(second).expect("few"));
            memory.handle_count(now, total).map(|step| (second, step))
        });
        seconds.collect()
    }

    #[test]
    fn a_fall_of_the_load_gives_memory_back_until_transactions_have_ended() {
        let steps = play((0..300).map(|second| if second < 50 { 10_000 } else { 0 }));
        let expected = [(55, Step::Collect), (57, Step::Return), (90, Step::Collect), (92, Step::Return)];
        assert_eq!(steps[..4], expected);
        assert_eq!(steps[4..], [(110, Step::Collect), (112, Step::Return), (140, Step::Collect), (142, Step::Return)]);
    }

    #[test]
    fn a_steady_or_growing_load_and_a_small_one_give_nothing_back() {
        for load in [[10_000; 300], std::array::from_fn(|second| second as u64 * 10), [3; 300]] {
            assert_eq!(play(load), []);
        }
        // A load that varies by less than the factor.
        assert_eq!(play((0..300).map(|second| if second % 10 < 5 { 1_000 } else { 200 })), []);
    }

    #[test]
    fn a_load_that_returns_ends_it_and_each_fall_begins_anew() {
        let load = (0..120).map(|second| if second % 40 < 20 { 1_000 } else { 0 });
        let collects = |steps: Vec<(usize, Step)>| steps.into_iter().filter(|(_, step)| *step == Step::Collect).count();
        assert_eq!(collects(play(load)), 3, "once in each pause of twenty seconds");
        // A tenth of the load that stays is what the next peak is compared with.
        let load = (0..400).map(|second| if second < 50 { 10_000 } else { 1_000 });
        assert_eq!(collects(play(load)), COLLECT_AFTER.len());
    }
}
