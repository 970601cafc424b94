//! Start of a member while the engine holds many registrations: time until it serves, and memory per registration.

use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::contender::Contender;
use super::deployment::{Deployment, Environment, Server};
use super::requests::{Client, wait};
use crate::register::load::{PATIENCE as LAST, Pace, Phones};
use crate::register::message::FIRST_CSEQ;
use crate::register::process::Usage;

/// Maximum start time of the new member.
const PATIENCE: Duration = Duration::from_secs(300);
/// Maximum time to register all users.
const FILL: Duration = Duration::from_secs(600);
/// Interval between requests to the new member.
const BEAT: Duration = Duration::from_millis(5);
/// Time after the last REGISTER until transactions have ended and the journal's buffers are free.
const REST: Duration = Duration::from_secs(5);

/// Results of a joining member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JoinResult {
    /// Contender under test.
    pub contender: Contender,
    /// Number of registrations.
    pub bindings: u64,
    /// First registrations per second.
    pub fill_rate: f64,
    /// Private memory per registration at the server that took it, in bytes.
    pub own_bytes: f64,
    /// Memory of the engine per registration, in bytes.
    pub engine_bytes: Option<f64>,
    /// Disk space of the engine per registration, in bytes.
    pub disk_bytes: Option<f64>,
    /// Seconds from the start of the new member until it answers a REGISTER with 200.
    pub warm_s: Option<f64>,
    /// Registrations that it has at that time.
    pub found: Option<u64>,
    /// Private memory per registration at the new member, in bytes.
    pub joined_bytes: Option<f64>,
}

/// Registers `users` at one server, then starts a second one if the contender has one.
///
/// # Errors
/// If a server does not start, or does not accept all registrations.
pub fn run(
    contender: Contender,
    users: u32,
    sockets: u32,
    window: usize,
    place: &Environment,
) -> Result<JoinResult, String> {
    let mut site = Deployment::start(contender, false, place)?;
    let (empty, engine) = (private(site.first()), engine_memory(&site));
    let files = site.engine.as_ref().map(super::engine::Engine::disk);
    let mut phones = Phones::new(site.first().address, users, sockets);
    let fill = phones.fill(window, FILL);
    phones.run(Pace::Stop, LAST);
    let bindings = phones.registered() as u64;
    if bindings < u64::from(users) {
        return Err(format!("only {bindings} of {users} registered"));
    }
    thread::sleep(REST);
    let each = |bytes: u64| bytes as f64 / bindings as f64;
    let mut joined = JoinResult {
        contender,
        bindings,
        fill_rate: fill.rate(),
        own_bytes: each(private(site.first()).saturating_sub(empty)),
        engine_bytes: engine_memory(&site).zip(engine).map(|(now, before)| each(now.saturating_sub(before))),
        disk_bytes: site.engine.as_ref().zip(files).map(|(now, before)| each(now.disk().saturating_sub(before))),
        warm_s: None,
        found: None,
        joined_bytes: None,
    };
    if contender.is_member() {
        join(&mut site, empty, &mut joined)?;
    }
    Ok(joined)
}

/// Starts the second server.
fn join(site: &mut Deployment, empty: u64, joined: &mut JoinResult) -> Result<(), String> {
    let began = Instant::now();
    let mut server = site.begin()?;
    joined.warm_s = Some(first_answer(&mut server, began)?.as_secs_f64());
    // The table's size in its status is up to one second old.
    thread::sleep(Duration::from_millis(1_500));
    joined.found = Some(server.registrations());
    joined.joined_bytes = Some(private(&server).saturating_sub(empty) as f64 / joined.bindings as f64);
    site.take(server);
    Ok(())
}

/// Returns the time until it answers a query for contacts with 200. Until all registrations are loaded, it answers
/// 503.
fn first_answer(server: &mut Server, began: Instant) -> Result<Duration, String> {
    let mut asker = Client::new(server.address)?;
    for number in 1.. {
        asker.ask(0, number % FIRST_CSEQ);
        wait(&[&asker], BEAT);
        while let Some(told) = asker.answer() {
            if told.answer.status == 200 {
                return Ok(began.elapsed());
            }
        }
        thread::sleep(BEAT);
        server.check()?;
        if began.elapsed() > PATIENCE {
            break;
        }
    }
    Err("the new server does not answer with 200".to_owned())
}

fn private(server: &Server) -> u64 {
    Usage::of(&server.processes()).memory
}

/// Returns the private and shared memory of the engine's processes.
fn engine_memory(site: &Deployment) -> Option<u64> {
    let usage = Usage::of(&site.engine.as_ref()?.processes());
    Some(usage.memory + usage.shared)
}
