//! Measures the drops of a server at several rates, for its fit and for its prediction.

use std::time::{Duration, Instant};

use super::load::{Load, Outcome, Pace, Spacing, run};
use super::receive_buffer;
use super::runs::Run;
use super::server::{Kind, Programs, Server};

/// Runs at saturation, of which the best counts: a disturbance can only reduce the rate.
const SATURATIONS: usize = 3;
/// Rate that overloads a server, in saturation rates, to count the room in its socket.
const OVERLOAD: f64 = 1.3;
/// Initial time of each run that is not counted.
const WARM_UP: Duration = Duration::from_secs(1);
/// Seconds of a run at saturation, and of one that counts the room.
const SHORT_S: u64 = 2;

/// Settings of the measurement.
#[derive(Clone, Debug)]
pub struct DropMeasurement {
    /// The programs.
    pub programs: Programs,
    /// Seconds of each run.
    pub seconds: u64,
    /// Runs of each rate.
    pub rounds: usize,
    /// Shares of the saturation rate that the fit uses.
    pub seen: Vec<f64>,
    /// Shares of the saturation rate for the prediction.
    pub unseen: Vec<f64>,
    /// The last seed that was used.
    pub seed: u64,
    /// When the program began, for its messages.
    pub begun: Instant,
}

impl DropMeasurement {
    /// Prints a line with the time since the start.
    pub fn say(&self, what: &str) {
        eprintln!("[{:.1} min] {what}", self.begun.elapsed().as_secs_f64() / 60.0);
    }

    /// Returns a load with a new seed.
    pub fn load(&mut self, pace: Pace, course: Spacing, seconds: u64) -> Load {
        self.seed += 1;
        Load { pace, course, warm_up: WARM_UP, time: Duration::from_secs(seconds), seed: self.seed }
    }

    /// Measures several numbers of threads or processes, each at its rates: a number `is_for_fit` also at those that
    /// the fit uses. The room in the socket is counted once, with the first number.
    ///
    /// # Errors
    /// If a server or the generator does not start.
    pub fn measure(&mut self, of: fn(u32) -> Kind, counts: &[(u32, bool)]) -> Result<Vec<Run>, String> {
        let (mut all, mut known) = (Vec::new(), None);
        for (count, is_for_fit) in counts {
            let kind = of(*count);
            let full = self.saturation(kind)?;
            let room = match known {
                Some(room) => room,
                None => *known.insert(self.room(kind, OVERLOAD * full)?),
            };
            let for_fit = if *is_for_fit { &self.seen[..] } else { &[] };
            let seen = for_fit.iter().map(|share| (true, share * full));
            let loads: Vec<(bool, f64)> = seen.chain(self.unseen.iter().map(|share| (false, share * full))).collect();
            // A message in service has left the socket.
            self.by_turns(kind, room + u64::from(*count), &loads, &mut all)?;
        }
        Ok(all)
    }

    /// Returns the calls per second that a server carries in a closed loop.
    ///
    /// # Errors
    /// If the server or the generator does not start.
    pub fn saturation(&mut self, kind: Kind) -> Result<f64, String> {
        let mut best = 0.0_f64;
        for _ in 0..SATURATIONS {
            let load = self.load(Pace::Saturation, Spacing::AtOnce, SHORT_S);
            let server = Server::start(kind, &self.programs)?;
            best = best.max(run(&server, &load)?.carried_per_s);
        }
        self.say(&format!("{kind}: {best:.0} calls/s at saturation"));
        Ok(best)
    }

    /// Returns the capacity of the socket in packets, measured at a call rate that overloads it.
    fn room(&mut self, kind: Kind, rate: f64) -> Result<u64, String> {
        let load = self.load(Pace::Rate(rate.round()), Spacing::AtOnce, SHORT_S);
        let server = Server::start(kind, &self.programs)?;
        let room = receive_buffer::room(&server, &load)?;
        self.say(&format!("{kind}: room for {room} packets"));
        Ok(room)
    }

    /// Measures the loads (whether for the fit, and calls per second) in rotation, ascending and descending. The
    /// machine's speed varies over minutes, so the fit and the prediction must be measured in the same minutes.
    fn by_turns(&mut self, kind: Kind, queue: u64, loads: &[(bool, f64)], all: &mut Vec<Run>) -> Result<(), String> {
        for round in 0..self.rounds {
            let mut turn = loads.to_vec();
            if round % 2 == 1 {
                turn.reverse();
            }
            for (seen, calls) in turn {
                let outcome = self.at(kind, calls)?;
                if !outcome.is_late {
                    all.push(as_run(kind, queue, seen, calls, &outcome));
                }
            }
        }
        Ok(())
    }

    fn at(&mut self, kind: Kind, rate: f64) -> Result<Outcome, String> {
        let load = self.load(Pace::Rate(rate.round()), Spacing::AtOnce, self.seconds);
        let server = Server::start(kind, &self.programs)?;
        let outcome = run(&server, &load)?;
        self.say(&format!(
            "{kind}: {:.0} packets/s, {:.2} µs of CPU each, {:.3} of the core, {:.3} % dropped{}",
            outcome.packets_per_s,
            1e6 * outcome.each_s(),
            outcome.processors,
            100.0 * outcome.drops,
            if outcome.is_late { "; THE GENERATOR WAS LATE" } else { "" }
        ));
        Ok(outcome)
    }
}

fn as_run(kind: Kind, queue: u64, seen: bool, calls: f64, outcome: &Outcome) -> Run {
    Run {
        name: kind.to_string(),
        servers: kind.servers(),
        queue,
        seen,
        calls,
        rate: outcome.packets_per_s,
        each_us: 1e6 * outcome.each_s(),
        drops: outcome.drops,
        cpu: outcome.processors,
    }
}
