//! Gains that our own benchmark measured, and writes into `bench/tuning/gains.json`.

use serde::{Deserialize, Serialize};

use crate::advice::cores::{online, own_cores};
use crate::host::Host;
use crate::proposal::Request;
use crate::target::Program;

const MEASURED: &str = include_str!("../../../../bench/tuning/gains.json");

/// Effect of a tuning on a server, measured against the same server without it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gain {
    /// Name of the tuning.
    pub name: String,
    /// The server: `Kamailio` or `Strowger`.
    pub server: String,
    /// Its receiving processes or workers.
    pub processes: usize,
    /// Its cores.
    pub cores: usize,
    /// The effect, in words.
    pub effect: String,
}

/// All measured gains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gains {
    /// Day of the measurement.
    pub date: String,
    /// The gains.
    pub gains: Vec<Gain>,
}

impl Gains {
    /// Returns the gains known to this program.
    #[must_use]
    pub fn measured() -> Self {
        // A test checks that it can be read.
        serde_json::from_str(MEASURED).unwrap_or_default()
    }

    /// Returns the gain of a tuning for the server that is most like the given one.
    pub(crate) fn of(&self, name: &str, host: &Host, request: &Request) -> Option<String> {
        let server = match request.program {
            Program::Strowger => "Strowger",
            Program::Kamailio | Program::OpenSips => "Kamailio",
            Program::Other => return None,
        };
        let target = request.target.as_ref();
        let its_cores = target.and_then(|target| own_cores(host, target)).or_else(|| online(host));
        let its_cores = its_cores.map_or(1, |cores| cores.len());
        // Of an unknown number of receivers the usual one is assumed: one for each core.
        let receivers = target.and_then(|target| target.receivers).unwrap_or(its_cores);
        let distance = |gain: &&Gain| (gain.processes.abs_diff(receivers), gain.cores.abs_diff(its_cores));
        let all = self.gains.iter().filter(|gain| gain.name == name && gain.server == server);
        let Gain { processes, cores, effect, .. } = all.min_by_key(distance)?;
        let of = |count: &usize, one: &str, more: &str| format!("{count} {}", if *count == 1 { one } else { more });
        let (one, more) = if server == "Strowger" { ("worker", "workers") } else { ("receiver", "receivers") };
        let (processes, cores) = (of(processes, one, more), of(cores, "core", "cores"));
        Some(format!("measured on {server} with {processes} on {cores}: {effect} (bench/TUNING.md)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measured_gains_can_be_read() {
        let gains: Gains = serde_json::from_str(MEASURED).expect("the benchmark wrote it");
        assert!(gains.gains.iter().all(|gain| gain.processes > 0 && !gain.effect.is_empty()), "{gains:?}");
    }
}
