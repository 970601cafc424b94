//! Memory per established call. Calls begin at a steady rate and none ends. Once transactions end at the rate at
//! which they begin, all growth is due to calls.

use std::path::Path;
use std::time::Duration;

use super::contender::{Contender, ExtraConfig, Layout};
use super::figures::Sessions;
use super::generate::{self, LoadRequest};
use super::{cluster, peer, target};
use crate::proxy::watch::within;

/// T1 in milliseconds: transactions end after 64 times as long.
const T1_MS: u32 = 100;
/// Time after which transactions end at the rate at which they begin.
const SETTLES: Duration = Duration::from_secs(8);
/// Talk time longer than the run: no call ends.
const TALK: &str = "1d";
const TARGETS: u16 = 8;

/// Starts `count` calls at `rate` per second.
///
/// # Errors
/// If a process does not start, or most calls fail.
#[expect(clippy::cast_precision_loss, reason = "a number of calls")]
pub fn weigh(binary: &Path, contender: Contender, count: u64, rate: u32) -> Result<Sessions, String> {
    let folder = tempfile::Builder::new().prefix("strowger-sessions-").tempdir().map_err(|error| error.to_string())?;
    let group = cluster::Group { addresses: (0..TARGETS).map(target).collect(), service_time: None };
    let _targets = cluster::AnsweringProcess::start(binary, folder.path(), &group, 1)?;
    let more = ExtraConfig { t1_ms: T1_MS, ..ExtraConfig::default() };
    let mut server = peer::start(contender, (binary, folder.path()), Layout::equal(TARGETS), &more, &[])?;
    let time = Duration::from_secs_f64(count as f64 / f64::from(rate));
    let ask = LoadRequest {
        rate: Some(f64::from(rate)),
        at_once: 0,
        talk: Some(TALK),
        warm_up: Duration::ZERO,
        time,
        // The calls do not end.
        drain: Duration::ZERO,
        seed: 1,
        answered_at: Vec::new(),
    };
    let ran = generate::run(server.pid(), &ask)?;
    server.check()?;
    let settled = SETTLES.min(time.mul_f64(0.4));
    let (first, last) = within(&ran.samples, ran.phase.counted_from + settled, time - settled)
        .ok_or("there are no samples of the server")?;
    let began = ran.phase.meter().began;
    if began.failed + began.lost > began.sent / 100 {
        return Err(format!("calls failed: {began:?}"));
    }
    let calls = f64::from(rate) * last.at.saturating_since(first.at).as_secs_f64();
    let each = (last.memory() - first.memory()) / calls;
    Ok(Sessions { contender, count: began.sent, each, all_mib: last.memory() / f64::from(1 << 20) })
}
