//! When memory that a peak of load has left goes back to the system.
//!
//! The allocator keeps what the workers have freed for their next messages, which is right while there is load. Once the
//! load has fallen, this lets them give it back: several times, because transactions end half a minute after their last
//! message, and their buffers are freed by halves. A steady load never falls, so a busy server pays nothing.

use std::time::{Duration, Instant};

use strowger_worker::{Fleet, WorkerStatus};

/// Interval at which the load is measured.
const WINDOW: Duration = Duration::from_secs(1);
/// The load has fallen when there are fewer messages than the largest number divided by this.
const FALLEN: u64 = 8;
/// When memory is collected after the load has fallen.
const COLLECT_AFTER: [Duration; 4] =
    [Duration::from_secs(5), Duration::from_secs(40), Duration::from_secs(70), Duration::from_secs(110)];
/// How long after that it is returned to the system.
const RETURN_AFTER: Duration = Duration::from_secs(2);
/// Messages in one window that leave nothing worth collecting.
const FEW: u64 = 100;
/// Bytes of a connection that count as a message. A message that never ends takes memory too.
const MESSAGE_BYTES: u64 = 1024;

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
    /// The largest number of messages in a window since the last fall.
    peak: u64,
    load: Load,
}

#[derive(Debug, Default)]
enum Load {
    /// Memory is in use.
    #[default]
    High,
    /// Memory is being returned.
    Fallen(Fall),
    /// Memory is returned. The load is high again when there are more messages than this in a window.
    Low(u64),
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
        match self.handle_count(now, messages(&fleet.status().total)) {
            Some(Step::Collect) => {
                fleet.collect_memory();
                strowger_net::collect_freed_memory();
            }
            Some(Step::Return) => {
                strowger_net::return_freed_memory();
                // Hardly anything is left for them to do.
                fleet.return_memory();
                tracing::debug!("memory that a peak has left is returned");
            }
            None => {}
        }
    }

    /// Returns whether the load has fallen, and has not risen since.
    pub(crate) fn has_load_fallen(&self) -> bool {
        !matches!(self.load, Load::High)
    }

    fn handle_count(&mut self, now: Instant, messages: u64) -> Option<Step> {
        // A process begins with none.
        let before = self.counted.replace((now, messages)).map_or(0, |(_, before)| before);
        // A listener that is removed takes its number with it.
        let count = messages.saturating_sub(before);
        self.peak = self.peak.max(count);
        let is_low = self.peak >= FEW && count <= self.peak / FALLEN;
        match &mut self.load {
            Load::Fallen(fall) if is_low => {
                let step = fall.next_step(now);
                if fall.is_over() {
                    // What there is now is the load to compare with.
                    self.peak = count;
                    self.load = Load::Low(2 * count.max(FEW));
                }
                return step;
            }
            Load::High | Load::Low(_) if is_low => {
                self.load = Load::Fallen(Fall { at: now, collected: 0, returns: None });
            }
            Load::Low(limit) if count <= *limit => {}
            _ => self.load = Load::High,
        }
        None
    }
}

impl Fall {
    fn next_step(&mut self, now: Instant) -> Option<Step> {
        if let Some(at) = self.returns {
            return (at <= now).then(|| {
                self.returns = None;
                Step::Return
            });
        }
        let after = COLLECT_AFTER.get(self.collected)?;
        (now.saturating_duration_since(self.at) >= *after).then(|| {
            self.collected += 1;
            self.returns = Some(now + RETURN_AFTER);
            Step::Collect
        })
    }

    /// Whether all is returned.
    const fn is_over(&self) -> bool {
        self.collected == COLLECT_AFTER.len() && self.returns.is_none()
    }
}

/// Returns the number of messages received, odd ones included.
const fn messages(total: &WorkerStatus) -> u64 {
    total.net.received + total.streams.accepted + total.streams.bytes_in / MESSAGE_BYTES
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
        assert_eq!(steps[4..], [(120, Step::Collect), (122, Step::Return), (160, Step::Collect), (162, Step::Return)]);
    }

    #[test]
    fn a_peak_before_the_first_count_is_one() {
        assert_eq!(play([10_000, 0, 0, 0, 0, 0, 0, 0, 0]), [(6, Step::Collect), (8, Step::Return)]);
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

    #[test]
    fn the_load_stays_low_after_a_fall_until_it_doubles() {
        let load = |seconds: u64, then: u64| {
            let (mut memory, began, mut total) = (FreedMemory::default(), Instant::now(), 0);
            for second in 0..seconds {
                total += match second {
                    0..50 => 10_000,
                    50..250 => 1_000,
                    _ => then,
                };
                memory.handle_count(began + Duration::from_secs(second), total);
            }
            memory.has_load_fallen()
        };
        assert!(!load(50, 0));
        assert!(load(60, 0), "memory is being returned");
        assert!(load(350, 1_000));
        assert!(load(350, 2_000));
        assert!(!load(350, 2_001));
        assert!(load(350, 100), "the rest has fallen too");
    }
}
