//! Callers who have nothing to do with a flood, while it goes on; and what a server sends to who spoofs.

use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::contender::{Contender, Environment, Mode, Server};
use super::flood::{Flood, Kind, Tally};
use super::load::{CALLING, LoadRequest, Outcome, Pace, carry_out, prepare};

/// Addresses of the callers, so many that none of them sends much.
const ADDRESSES: u8 = 200;
/// Calls of innocent callers, as a part of the capacity.
pub const INNOCENT: f64 = 0.5;
/// Requests a second of each flood, in capacities.
pub const FLOOD: f64 = 5.0;
/// Callees that register a second before the flood, all at one address: what no limit for a source takes for a flood.
const REGISTER_RATE: f64 = 10.0;
/// Requests a second of each kind that are sent to see what comes back.
const PROBE_RATE: f64 = 50.0;

/// How long it takes.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Of calls and flood together, which is not counted.
    pub warm_up: Duration,
    /// What is.
    pub time: Duration,
    /// Users on each side.
    pub users: u32,
    /// What is left of the calls when they no longer begin, while the flood goes on.
    pub drain: Duration,
    /// Requests of each kind that are sent to see what comes back.
    pub probes: u32,
    /// How long an answer to a spoofed request is waited for: timers G and H end after 32 s.
    pub listen: Duration,
}

impl Schedule {
    /// For figures.
    pub const USUAL: Self = Self {
        warm_up: Duration::from_secs(10),
        time: Duration::from_secs(30),
        users: 50,
        drain: Duration::from_secs(8),
        probes: 200,
        listen: Duration::from_secs(36),
    };
    /// For trying.
    pub const QUICK: Self = Self {
        warm_up: Duration::from_secs(1),
        time: Duration::from_secs(2),
        users: 10,
        drain: Duration::from_secs(1),
        probes: 20,
        listen: Duration::from_secs(4),
    };
}

/// What came of a flood.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct FloodResult {
    /// Who was flooded.
    pub contender: Contender,
    /// With what; `None` without a flood.
    pub kind: Option<Kind>,
    /// What became of the others' calls.
    pub calls: Outcome,
    /// The flood, and what it drew.
    pub tally: Tally,
    /// Datagrams of the flood a second.
    pub rate: f64,
}

/// Floods a server of its own while others call.
///
/// # Errors
/// When a server, the generator or the flood does not run.
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
        // Behind the registrations of the callees, before anything counts.
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

/// What a server sends for requests of each kind that come one by one, until its timers have ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReflectionResult {
    /// Who was asked.
    pub contender: Contender,
    /// What went and what came.
    pub kinds: Vec<(Kind, Tally)>,
}

/// Sends few requests of all kinds to an idle server of its own, and waits for everything that comes back.
///
/// # Errors
/// When a server or the flood does not run.
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
