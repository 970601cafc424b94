//! Time from a 200 at one server until another server finds the phone.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::contender::Contender;
use super::deployment::{Deployment, Environment};
use super::requests::{Client, FinalAnswer, wait};
use crate::register::message::FIRST_CSEQ;

/// One of this many phones is probed.
const EVERY: u32 = 25;
/// Interval between queries for a probed phone.
const ASK_EVERY: Duration = Duration::from_micros(500);
/// Maximum number of REGISTERs sent in one burst.
const BURST: u64 = 32;
/// Longest wait for an answer before due work is checked.
const PAUSE: Duration = Duration::from_micros(200);
/// Time of REGISTERs before the first probed phone: newly connected members follow each other after a second.
const WARM_UP: Duration = Duration::from_secs(2);
/// Time for which phones are queried after the last REGISTER.
const PATIENCE: Duration = Duration::from_secs(5);
/// Quantiles that are saved.
pub const SHARES: [f64; 12] = [0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 0.999];

/// Results of the measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PropagationResult {
    /// Contender under test.
    pub contender: Contender,
    /// REGISTERs sent per second, each of a new phone.
    pub asked: u32,
    /// 200s per second.
    pub rate: f64,
    /// Number of probed phones.
    pub sample: u64,
    /// Probed phones not found within five seconds.
    pub missing: u64,
    /// Times in milliseconds at [`SHARES`].
    pub times_ms: Vec<(f64, f64)>,
}

impl PropagationResult {
    /// Returns the quantile of the times at one of [`SHARES`], in milliseconds.
    #[must_use]
    pub fn at(&self, share: f64) -> Option<f64> {
        self.times_ms.iter().find(|(one, _)| *one == share).map(|(_, time)| *time)
    }
}

/// Registers new phones at the first server at `rate` for `time` and queries the second for some of them.
///
/// # Errors
/// If a server does not start or ends, or no phone can register.
pub fn run(contender: Contender, rate: u32, time: Duration, place: &Environment) -> Result<PropagationResult, String> {
    let mut site = Deployment::start(contender, true, place)?;
    let second = site.second().ok_or("there is no second server")?.address;
    let mut search = Search::new(site.first().address, second)?;
    search.go(rate, WARM_UP + time);
    site.check()?;
    search.tell(contender, rate, WARM_UP + time)
}

/// A probed phone.
struct PropagationProbe {
    since: Instant,
    next: Instant,
}

struct Search {
    first: Client,
    second: Client,
    sought: HashMap<u32, PropagationProbe>,
    /// Number of the first probed phone.
    first_sought: u32,
    taken: u64,
    sample: u64,
    times: Histogram<u64>,
}

impl Search {
    fn new(first: std::net::SocketAddr, second: std::net::SocketAddr) -> Result<Self, String> {
        let times = Histogram::new_with_bounds(1_000, 60_000_000_000, 3).map_err(|error| error.to_string())?;
        let (first, second) = (Client::new(first)?, Client::new(second)?);
        Ok(Self { first, second, sought: HashMap::new(), first_sought: 0, taken: 0, sample: 0, times })
    }

    fn go(&mut self, rate: u32, time: Duration) {
        let began = Instant::now();
        let all = (time.as_secs_f64() * f64::from(rate)) as u64;
        self.first_sought = (WARM_UP.as_secs_f64() * f64::from(rate)) as u32;
        let mut sent = 0;
        let is_over = |search: &Self, sent: u64, now: Duration| {
            now > time + PATIENCE || (sent == all && now > time + PAUSE * 1_000 && search.sought.is_empty())
        };
        while !is_over(self, sent, began.elapsed()) {
            let due = ((began.elapsed().as_secs_f64() * f64::from(rate)) as u64).min(all);
            for _ in 0..due.saturating_sub(sent).min(BURST) {
                self.first.register(sent as u32, FIRST_CSEQ);
                sent += 1;
            }
            self.take_answers();
            self.ask();
            wait(&[&self.first, &self.second], PAUSE);
        }
    }

    fn take_answers(&mut self) {
        while let Some(FinalAnswer { answer, .. }) = self.first.answer() {
            let now = Instant::now();
            self.taken += u64::from(answer.status == 200);
            if answer.status == 200 && answer.user >= self.first_sought && answer.user % EVERY == 0 {
                self.sample += 1;
                self.sought.insert(answer.user, PropagationProbe { since: now, next: now });
            }
        }
        while let Some(FinalAnswer { answer, has_contact }) = self.second.answer() {
            if has_contact && let Some(sought) = self.sought.remove(&answer.user) {
                self.times.saturating_record(u64::try_from(sought.since.elapsed().as_nanos()).unwrap_or(u64::MAX));
            }
        }
    }

    fn ask(&mut self) {
        let now = Instant::now();
        for (user, sought) in self.sought.iter_mut().filter(|(_, sought)| sought.next <= now) {
            sought.next = now + ASK_EVERY;
            // Each query needs its own CSeq; otherwise it would be a retransmission with the same response.
            let number = now.duration_since(sought.since).as_micros() / ASK_EVERY.as_micros();
            self.second.ask(*user, u32::try_from(number).unwrap_or(0) % FIRST_CSEQ + 1);
        }
    }

    fn tell(self, contender: Contender, asked: u32, time: Duration) -> Result<PropagationResult, String> {
        if self.sample == 0 {
            return Err("no phone could register".to_owned());
        }
        let at = |share: f64| (share, self.times.value_at_quantile(share) as f64 / 1e6);
        Ok(PropagationResult {
            contender,
            asked,
            rate: self.taken as f64 / time.as_secs_f64(),
            sample: self.sample,
            missing: self.sought.len() as u64,
            times_ms: if self.times.is_empty() { Vec::new() } else { SHARES.map(at).to_vec() },
        })
    }
}
