//! Time until a registrar serves again after a restart, with all its bindings.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::contender::{Contender, RunningServer, free_address, sqlite};
use super::load::Phones;
use super::message::{Answer, FIRST_CSEQ, Template};
use super::probe::{Probe, status};
use super::process::{Usage, size};

/// Maximum start time.
const PATIENCE: Duration = Duration::from_secs(300);
/// Interval between probes.
const BEAT: Duration = Duration::from_millis(10);
/// Successive REGISTERs that must succeed before the server counts as accepting all.
const IN_A_ROW: usize = 50;
/// Number of users whose contacts are checked afterwards.
pub const SAMPLE: u32 = 2_000;

/// How the server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// Requested to end (SIGTERM).
    Stop,
    /// Killed (SIGKILL).
    Kill,
}

/// Extent of the measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of bindings.
    pub users: u32,
    /// Number of sockets of the users.
    pub sockets: u32,
    /// REGISTERs in flight during the fill.
    pub window: usize,
    /// `timers.t1` of Strowger.
    pub t1: String,
    /// Folder for temporary folders.
    pub folder: PathBuf,
}

/// Results of a start. All times count from the start of the program.
#[derive(Debug)]
pub struct StartResult {
    /// Duration of the first registrations; `None` if SQL wrote the tables.
    pub fill: Option<Duration>,
    /// Acknowledged bindings before the restart.
    pub before: u64,
    /// Time to end on request.
    pub end: Option<Duration>,
    /// Private and shared memory before the restart, in bytes.
    pub memory_before: u64,
    /// Size of the files on disk at the start, in bytes.
    pub disk: u64,
    /// Time and status of the first response to an OPTIONS.
    pub answered: (Duration, u16),
    /// Time of the first 200 to a REGISTER.
    pub ready: Duration,
    /// Time of the last REGISTER with another response, if any, and the number of these.
    pub refused: (Option<Duration>, u64),
    /// Time when `ctl status` reported the final number of bindings; `None` without bindings or without `ctl status`.
    pub complete: Option<Duration>,
    /// Bindings after the restart by `ctl status`.
    pub after: Option<u64>,
    /// Users without a contact among [`SAMPLE`] random ones.
    pub missing: u32,
    /// Private and shared memory after the restart, in bytes.
    pub memory: u64,
    /// Processor time of the start.
    pub processor: Duration,
}

/// Fills the server, ends it and starts it again.
///
/// # Errors
/// If the contender does not start, or a result is missing.
pub fn run(plan: &Plan, contender: &Contender, end: StopSignal) -> Result<StartResult, String> {
    let folder = tempfile::Builder::new().prefix("strowger-start-").tempdir_in(&plan.folder);
    let folder = folder.map_err(|error| format!("{}: {error}", plan.folder.display()))?;
    let address = free_address();
    contender.prepare(folder.path(), address, &plan.t1)?;
    let mut phones = Phones::new(address, plan.users, plan.sockets);
    let mut started = if contender.is_ours() || !contender.keeps() {
        fill(plan, contender, end, folder.path(), &mut phones)?
    } else {
        // Registering all users with Kamailio would take an hour.
        sqlite(&folder.path().join("kamailio.db"), &rows(plan.users, address))?;
        StartResult { before: plan.users.into(), ..empty() }
    };
    started.disk = ["", "data", "data/journal"].iter().map(|name| size(&folder.path().join(name))).sum();
    let began = Instant::now();
    let mut server = contender.begin(folder.path(), address)?;
    watch(plan, &mut server, began, &phones, &mut started)?;
    server.meet();
    let usage = Usage::of(server.processes());
    started.processor = usage.processor;
    if contender.is_ours() && contender.keeps() {
        started.complete = Some(settle(&mut server, began)?);
    }
    // Worker statistics are up to one second old.
    thread::sleep(Duration::from_millis(1500));
    started.after = bindings(&server);
    let usage = Usage::of(server.processes());
    started.memory = usage.memory + usage.shared;
    let mut probe = Probe::new(address);
    let sample = SAMPLE.min(plan.users);
    let leap = plan.users / sample;
    for number in 0..sample {
        let user = number * leap;
        started.missing +=
            u32::from(!probe.has_contact(user).map_err(|error| format!("a query for contacts failed: {error}"))?);
    }
    server.check()?;
    Ok(started)
}

fn empty() -> StartResult {
    StartResult {
        fill: None,
        before: 0,
        end: None,
        memory_before: 0,
        disk: 0,
        answered: (Duration::ZERO, 0),
        ready: Duration::ZERO,
        refused: (None, 0),
        complete: None,
        after: None,
        missing: 0,
        memory: 0,
        processor: Duration::ZERO,
    }
}

/// Registers all users and ends the server.
fn fill(
    plan: &Plan,
    contender: &Contender,
    end: StopSignal,
    folder: &Path,
    phones: &mut Phones,
) -> Result<StartResult, String> {
    let mut server = contender.start(folder, phones.server())?;
    let tally = phones.fill(plan.window, PATIENCE);
    server.check()?;
    let before = phones.registered() as u64;
    if before < u64::from(plan.users) {
        return Err(format!("only {before} registrations succeeded within {} s", tally.time.as_secs()));
    }
    let usage = Usage::of(server.processes());
    let mut started =
        StartResult { fill: Some(tally.time), before, memory_before: usage.memory + usage.shared, ..empty() };
    match end {
        StopSignal::Stop => started.end = Some(server.stop()?),
        StopSignal::Kill => drop(server),
    }
    Ok(started)
}

/// Sends OPTIONS and REGISTER every 10 ms until nothing is refused.
fn watch(
    plan: &Plan,
    server: &mut RunningServer,
    began: Instant,
    phones: &Phones,
    started: &mut StartResult,
) -> Result<(), String> {
    let mut probe = Probe::new(server.address);
    let (mut answered, mut ready) = (None, None);
    let (mut in_a_row, mut number) = (0, 0);
    while in_a_row < IN_A_ROW {
        let sent = Instant::now();
        if answered.is_none() {
            probe.ask_options();
        }
        let user = (u64::from(number) * 7_919 % u64::from(plan.users)) as u32;
        number += 1;
        let (cseq, local) = phones.who(user);
        let mut request = Vec::new();
        Template::register(local).write(user, cseq.max(FIRST_CSEQ) + number, &mut request);
        probe.send(&request);
        while let Some(left) = BEAT.checked_sub(sent.elapsed()).filter(|left| !left.is_zero()) {
            let Some(bytes) = probe.receive(left) else { break };
            match Answer::read(&bytes) {
                None => answered = answered.or_else(|| Some((began.elapsed(), status(&bytes)?))),
                Some(Answer { status: 200, .. }) => {
                    ready.get_or_insert_with(|| began.elapsed());
                    in_a_row += 1;
                }
                Some(_) => {
                    in_a_row = 0;
                    started.refused = (Some(began.elapsed()), started.refused.1 + 1);
                }
            }
        }
        server.check()?;
        if began.elapsed() > PATIENCE {
            return Err("the server does not accept REGISTERs".to_owned());
        }
    }
    started.answered = answered.ok_or("the server answers REGISTER but not OPTIONS")?;
    started.ready = ready.unwrap_or_default();
    Ok(())
}

/// Returns the time at which `ctl status` first reported a number of bindings that then stayed constant for three
/// seconds. Does not wait for the number before the restart: after a kill, write-behind may have lost some.
fn settle(server: &mut RunningServer, began: Instant) -> Result<Duration, String> {
    let (mut count, mut since) = (None, began.elapsed());
    while began.elapsed() - since < Duration::from_secs(3) || count.is_none() {
        let now = bindings(server);
        if now != count {
            (count, since) = (now, began.elapsed());
        }
        server.check()?;
        thread::sleep(BEAT);
    }
    Ok(since)
}

fn bindings(server: &RunningServer) -> Option<u64> {
    server.status()?.get("registrations")?.as_u64()
}

/// Returns the rows that Kamailio itself would have written for these users.
fn rows(users: u32, address: std::net::SocketAddr) -> String {
    let last = users - 1;
    format!(
        "PRAGMA synchronous = OFF; WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < {last}) \
         INSERT INTO location (ruid, username, contact, expires, q, callid, cseq, last_modified, user_agent, socket, methods, \
         server_id, connection_id, keepalive, partition) SELECT printf('uloc-00000001-%x-1', n), printf('u%08d', n), \
         printf('sip:u%08d@127.0.0.1:%05d;line=abcde', n, 20000 + n % 64), julianday('now', '+2 hours'), -1.0, \
         printf('7a1f9c64-%08d@127.0.0.1', n), {FIRST_CSEQ}, julianday('now'), 'Bench-Phone 1.0', 'udp:{address}', 31, 0, -1, 0, 0 \
         FROM numbers;"
    )
}
