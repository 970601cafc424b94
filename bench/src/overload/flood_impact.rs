//! Well-behaved callers during a flood, and what a server sends to spoofed addresses.

use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::contender::{Contender, Environment, Mode, Server};
use super::flood::{Flood, Kind, Tally};
use super::load::{CALLING, LoadRequest, Outcome, Pace, carry_out, prepare};

/// Number of caller addresses: enough that none of them sends much.
const ADDRESSES: u8 = 200;
/// Call rate of well-behaved callers, relative to the capacity.
pub const INNOCENT: f64 = 0.5;
/// Request rate of each flood, relative to the capacity.
pub const FLOOD: f64 = 5.0;
/// Rate at which callees register before the flood, all from one address: below every per-source limit.
const REGISTER_RATE: f64 = 10.0;
/// Rate of requests of each kind in the reflection test.
const PROBE_RATE: f64 = 50.0;

/// Durations of a run.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Initial time of calls and flood that is not counted.
    pub warm_up: Duration,
    /// Counted time.
    pub time: Duration,
    /// Users per side.
    pub users: u32,
    /// Maximum time for calls to end while the flood continues.
    pub drain: Duration,
    /// Requests of each kind in the reflection test.
    pub probes: u32,
    /// Time for which responses to spoofed requests are counted: timers G and H end after 32 s.
    pub listen: Duration,
}

impl Schedule {
    /// Schedule of a full run.
    pub const USUAL: Self = Self {
        warm_up: Duration::from_secs(10),
        time: Duration::from_secs(30),
        users: 50,
        drain: Duration::from_secs(8),
        probes: 200,
        listen: Duration::from_secs(36),
    };
    /// Schedule of a smoke test.
    pub const QUICK: Self = Self {
        warm_up: Duration::from_secs(1),
        time: Duration::from_secs(2),
        users: 10,
        drain: Duration::from_secs(1),
        probes: 20,
        listen: Duration::from_secs(4),
    };
}

/// Results of a flood.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct FloodResult {
    /// Server under test.
    pub contender: Contender,
    /// Kind of flood; `None` without a flood.
    pub kind: Option<Kind>,
    /// Results of the other callers.
    pub calls: Outcome,
    /// Datagrams of the flood and responses to them.
    pub tally: Tally,
    /// Datagrams of the flood per second.
    pub rate: f64,
}

/// Floods a separate server while others call.
///
/// # Errors
/// If a server, the generator or the flood does not run.
pub fn run(
    contender: Contender,
    kind: Option<Kind>,
    place: &Environment,
    (capacity, limit): (f64, Option<f64>),
    course: Schedule,
) -> Result<FloodResult, String> {
    let mut server = Server::start(contender, Mode::Passwords, place, limit)?;
    let from = (1..=ADDRESSES).map(|host| IpAddr::from(Ipv4Addr::new(127, 1, 0, host))).collect();
    let ask = LoadRequest {
        warm_up: course.warm_up,
        time: course.time,
        drain: course.drain,
        from,
        users: course.users,
        register_rate: Some(REGISTER_RATE),
        ..LoadRequest::new(Mode::Passwords, Pace::Rate(INNOCENT * capacity), 71)
    };
    let run = prepare(&ask)?;
    let stopper = run.stopper();
    let rate = FLOOD * capacity;
    let flood = thread::spawn(move || {
        // Starts after the callees' registrations and before anything is counted.
        while stopper.phase().is_some_and(|phase| phase < CALLING) {
            thread::sleep(Duration::from_millis(5));
        }
        let Some(kind) = kind else { return Ok((Tally::default(), 0.0)) };
        let (begun, flood) = (Instant::now(), Flood::start(kind, rate, u64::MAX, 5));
        let flood = flood.map_err(|error| format!("a raw socket, which takes root: {error}"))?;
        while stopper.phase().is_some() {
            thread::sleep(Duration::from_millis(20));
        }
        let seconds = begun.elapsed().as_secs_f64();
        let tally = flood.stop()?;
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let rate = tally.sent as f64 / seconds;
        Ok::<_, String>((tally, rate))
    });
    let calls = carry_out(&mut server, run);
    let (tally, rate) = flood.join().map_err(|_| "the flood has panicked".to_owned())??;
    Ok(FloodResult { contender, kind, calls: calls?, tally, rate })
}

/// Datagrams that a server sends for isolated requests of each kind, until its timers have ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReflectionResult {
    /// Server under test.
    pub contender: Contender,
    /// Datagrams sent and received per kind.
    pub kinds: Vec<(Kind, Tally)>,
}

/// Sends a few requests of each kind to a separate idle server and waits for all responses.
///
/// # Errors
/// If a server or the flood does not run.
pub fn reflect(
    contender: Contender,
    place: &Environment,
    limit: Option<f64>,
    course: Schedule,
) -> Result<ReflectionResult, String> {
    let mut server = Server::start(contender, Mode::Passwords, place, limit)?;
    let mut floods = Vec::new();
    for kind in Kind::ALL {
        let flood = Flood::start(kind, PROBE_RATE, u64::from(course.probes), 11);
        floods.push((kind, flood.map_err(|error| format!("a raw socket, which takes root: {error}"))?));
    }
    thread::sleep(Duration::from_secs_f64(f64::from(course.probes) / PROBE_RATE) + course.listen);
    let kinds = floods.into_iter().map(|(kind, flood)| Ok((kind, flood.stop()?))).collect::<Result<_, String>>()?;
    server.check()?;
    Ok(ReflectionResult { contender, kinds })
}
