//! The timer that ends a worker's sleep.
//!
//! A time-out passed to epoll is armed for each sleep and cancelled when a message ends it; on a virtual machine each of
//! these is an exit to the hypervisor. This timer stays armed through many sleeps instead. If its time is no longer
//! needed, it ends one sleep for nothing.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use strowger_foundation::Timestamp;

/// A timer registered with mio.
#[derive(Debug)]
pub(crate) struct WakeTimer {
    timer: OwnedFd,
    /// When it fires; [`Timestamp::MAX`] if it is not armed.
    armed: Timestamp,
}

impl WakeTimer {
    /// Creates a timer whose events carry `token`.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        registry.register(&mut SourceFd(&timer.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Self { timer, armed: Timestamp::MAX })
    }

    /// Makes it fire at `at` or earlier, but not if `at` is [`Timestamp::MAX`]. Returns the time-out for the sleep:
    /// none, unless `at` is past or the timer cannot be armed.
    pub(crate) fn arm(&mut self, now: Timestamp, at: Timestamp) -> Option<Duration> {
        if at == Timestamp::MAX || (self.armed <= at && now < self.armed) {
            return None;
        }
        let left = at.saturating_since(now);
        if left.is_zero() || self.set(left).is_err() {
            return Some(left);
        }
        self.armed = at;
        None
    }

    /// Records that it has fired. Its event needs no reading, since mio is edge-triggered.
    pub(crate) fn on_fired(&mut self) {
        self.armed = Timestamp::MAX;
    }

    fn set(&self, left: Duration) -> io::Result<()> {
        let it_value = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use mio::{Events, Poll};
    use strowger_net::Clock;

    use super::*;

    const TOKEN: Token = Token(7);

    fn armed() -> (Poll, WakeTimer, Clock) {
        let poll = Poll::new().expect("epoll");
        let timer = WakeTimer::new(poll.registry(), TOKEN).expect("a file descriptor");
        (poll, timer, Clock::start())
    }

    /// Sleeps until an event of the timer; returns the time.
    fn sleep(poll: &mut Poll, clock: &Clock) -> Timestamp {
        let mut events = Events::with_capacity(8);
        poll.poll(&mut events, Some(Duration::from_secs(10))).expect("epoll");
        assert!(events.iter().any(|event| event.token() == TOKEN), "the timer ended the sleep");
        clock.now()
    }

    #[test]
    fn it_never_fires_early_and_fires_again_after_each_arming() {
        let (mut poll, mut timer, clock) = armed();
        for _ in 0..3 {
            let now = clock.now();
            let at = now + Duration::from_millis(5);
            assert_eq!(timer.arm(now, at), None);
            assert!(sleep(&mut poll, &clock) >= at);
            timer.on_fired();
        }
    }

    #[test]
    fn an_earlier_deadline_replaces_a_later_one_but_not_the_reverse() {
        let (mut poll, mut timer, clock) = armed();
        let now = clock.now();
        let in_ms = |ms| now + Duration::from_millis(ms);
        for at in [in_ms(60_000), in_ms(5), in_ms(30_000)] {
            assert_eq!(timer.arm(now, at), None);
        }
        assert!(sleep(&mut poll, &clock) < in_ms(5_000));
        // Without its event having been handled, too.
        assert_eq!(timer.arm(clock.now(), clock.now() + Duration::from_millis(5)), None);
        sleep(&mut poll, &clock);
    }

    #[test]
    fn there_is_no_sleep_at_a_past_deadline_and_no_end_without_one() {
        let (_poll, mut timer, clock) = armed();
        let now = clock.now();
        assert_eq!(timer.arm(now, Timestamp::ZERO), Some(Duration::ZERO));
        assert_eq!(timer.arm(now, Timestamp::MAX), None);
    }
}
