//! The servers of a layout as processes, each in a control group that limits it to the same share of a core.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::SERVER_CORE;
use super::configuration::{Server, Stage, configuration, servers};
use super::layout::{Layout, Work};
use crate::proxy::peer::{RunningServer, launch};
use crate::quota::{Group, Quota, Throttling};

/// Maximum time until the members of a cluster know each other.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time before the first request: servers probe each other every 250 ms.
const SETTLING: Duration = Duration::from_secs(1);

/// Binary and resources of servers.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The `strowger` binary.
    pub binary: PathBuf,
    /// CPU quota of each server.
    pub quota: Quota,
}

/// Servers to which the quota applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaScope {
    /// All servers.
    All,
    /// First-stage servers; the second stage is unlimited.
    First,
}

/// All servers of a layout. Dropping it ends them.
#[derive(Debug)]
pub struct Deployment {
    layout: Layout,
    binary: PathBuf,
    // Declared before `folder`: the servers end before it is removed.
    members: Vec<Member>,
    folder: tempfile::TempDir,
}

#[derive(Debug)]
struct Member {
    // Declared first: the processes end before their group is removed.
    running: RunningServer,
    group: Group,
    server: Server,
}

/// Throttling of each server.
#[derive(Clone, Debug, Default)]
pub struct ThrottlingByServer(Vec<(Stage, Throttling)>);

impl Deployment {
    /// Starts all servers, waits until each answers, and then applies the quota.
    ///
    /// # Errors
    /// If one does not start, or there are no control groups.
    pub fn start(
        layout: Layout,
        work: Work,
        weights: &[u16],
        held: QuotaScope,
        place: &Environment,
    ) -> Result<Self, String> {
        let said = |error: std::io::Error| error.to_string();
        let folder = tempfile::Builder::new().prefix("strowger-two-stage-").tempdir().map_err(said)?;
        let text = configuration(layout, work, weights, folder.path());
        fs::write(folder.path().join(FILE), text).map_err(said)?;
        let mut site = Self { layout, binary: place.binary.clone(), members: Vec::new(), folder };
        for server in servers(layout) {
            site.members.push(Member::start(server, &place.binary, site.folder.path())?);
        }
        site.wait_for_clusters()?;
        if layout.first > 0 {
            thread::sleep(SETTLING);
        }
        for member in &site.members {
            if held == QuotaScope::All || member.server.stage == Stage::First {
                member.group.limit(place.quota).map_err(|error| format!("the quota is refused: {error}"))?;
            }
        }
        Ok(site)
    }

    /// Returns the addresses for requests: the first-stage servers, or without a first stage the only cluster's first
    /// server.
    #[must_use]
    pub fn entries(&self) -> Vec<SocketAddr> {
        let of_stage = |stage: Stage| self.members.iter().filter(move |one| one.server.stage == stage);
        match self.layout.first {
            0 => of_stage(Stage::Second(0)).take(1).map(|one| one.server.address).collect(),
            _ => of_stage(Stage::First).map(|one| one.server.address).collect(),
        }
    }

    /// Returns the number of registrations of each cluster.
    ///
    /// # Errors
    /// If a server does not report it.
    pub fn registrations(&self) -> Result<Vec<u64>, String> {
        let count = |cluster: u32| {
            let member = self.members.iter().find(|one| one.server.stage == Stage::Second(cluster));
            member.and_then(|one| self.status(one)["registrations"].as_u64())
        };
        (0..self.layout.clusters)
            .map(|cluster| count(cluster).ok_or("a server does not report its registrations".to_owned()))
            .collect()
    }

    /// Returns how often each server has used up its quota so far.
    #[must_use]
    pub fn throttled(&self) -> ThrottlingByServer {
        ThrottlingByServer(self.members.iter().map(|one| (one.server.stage, one.group.throttling())).collect())
    }

    /// Checks that all servers are running.
    ///
    /// # Errors
    /// If one has ended. The error includes the end of its log.
    pub fn check(&mut self) -> Result<(), String> {
        let check = |one: &mut Member| one.running.check().map_err(|why| format!("{}: {why}", one.server.name));
        self.members.iter_mut().try_for_each(check)
    }

    fn wait_for_clusters(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while self.layout.servers > 1 && !self.members.iter().all(|one| self.knows_its_cluster(one)) {
            self.check()?;
            if Instant::now() > deadline {
                return Err("the members of a cluster did not find each other in time".to_owned());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn knows_its_cluster(&self, member: &Member) -> bool {
        let status = || self.status(member);
        let knows =
            |status: Value| status["cluster"]["warm"] == true && status["cluster"]["members"][0]["alive"] == true;
        member.server.stage == Stage::First || knows(status())
    }

    /// Returns the output of a server's `ctl status --json`, or null if it does not answer.
    fn status(&self, member: &Member) -> Value {
        let mut command = Command::new(&self.binary);
        command
            .args(["ctl", "status", "--json", "-c", FILE, "--as", &member.server.name])
            .current_dir(self.folder.path());
        let output = command.output().ok();
        output.and_then(|output| serde_json::from_slice(&output.stdout).ok()).unwrap_or_default()
    }
}

/// Name of the configuration file in the deployment's folder.
const FILE: &str = "strowger.toml";

impl Member {
    fn start(server: Server, binary: &Path, site: &Path) -> Result<Self, String> {
        let folder = site.join(&server.name);
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let name = site.file_name().unwrap_or_default().to_string_lossy();
        let group = Group::new(&format!("{name}-{}", server.name));
        let group = group.map_err(|error| format!("a control group of the processor controller (v1): {error}"))?;
        let before = group.enter();
        let before: Vec<&str> = before.iter().map(String::as_str).chain(["taskset", "-c", SERVER_CORE]).collect();
        let file = site.join(FILE);
        let words = ["serve".into(), "-c".into(), file.into_os_string(), "--as".into(), server.name.clone().into()];
        let words = [binary.as_os_str().to_owned()].into_iter().chain(words).collect();
        let running = launch(&before, words, &folder, server.address);
        let running = running.map_err(|why| format!("{}: {why}", server.name))?;
        Ok(Self { running, group, server })
    }
}

impl ThrottlingByServer {
    /// Returns the share of periods since `earlier` in which servers used up their quota, in percent: the mean of the
    /// first stage, and of the second. 0 for a stage without servers.
    #[must_use]
    pub fn percent_since(&self, earlier: &Self) -> [f64; 2] {
        let mean = |is_first: bool| {
            let of_stage = self.0.iter().zip(&earlier.0).filter(|((stage, _), _)| (*stage == Stage::First) == is_first);
            let all: Vec<f64> = of_stage.map(|((_, now), (_, then))| now.percent_since(*then)).collect();
            // An empty sum of floats is -0.
            all.iter().sum::<f64>().max(0.0) / f64::from(u32::try_from(all.len()).unwrap_or(u32::MAX).max(1))
        };
        [mean(true), mean(false)]
    }
}
