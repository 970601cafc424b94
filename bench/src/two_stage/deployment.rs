//! The servers of a layout as processes, each in a control group that holds it to the same share of a core.

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

/// How long a cluster may take until its members know of each other.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long servers are left alone before the first request: they probe each other every 250 ms.
const SETTLING: Duration = Duration::from_secs(1);

/// The program, and what each server may use.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The program `strowger`.
    pub binary: PathBuf,
    /// What each server may use of a core.
    pub quota: Quota,
}

/// Which servers are held to the quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaScope {
    /// Each of them.
    All,
    /// Those of the first stage; the second one takes what it needs.
    First,
}

/// All servers; dropping it ends them.
#[derive(Debug)]
pub struct Deployment {
    layout: Layout,
    binary: PathBuf,
    // They end before their folder goes.
    members: Vec<Member>,
    folder: tempfile::TempDir,
}

#[derive(Debug)]
struct Member {
    // The processes end before their group goes.
    running: RunningServer,
    group: Group,
    server: Server,
}

/// How much of its quota each server used.
#[derive(Clone, Debug, Default)]
pub struct ThrottlingByServer(Vec<(Stage, Throttling)>);

impl Deployment {
    /// Starts all servers, waits until each answers, and then holds them.
    ///
    /// # Errors
    /// When one does not start, or there are no control groups.
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

    /// Where requests go: the first-stage servers, or where there are none the only cluster's first server.
    #[must_use]
    pub fn entries(&self) -> Vec<SocketAddr> {
        let of_stage = |stage: Stage| self.members.iter().filter(move |one| one.server.stage == stage);
        match self.layout.first {
            0 => of_stage(Stage::Second(0)).take(1).map(|one| one.server.address).collect(),
            _ => of_stage(Stage::First).map(|one| one.server.address).collect(),
        }
    }

    /// The registrations that each cluster has.
    ///
    /// # Errors
    /// When a server does not say it.
    pub fn registrations(&self) -> Result<Vec<u64>, String> {
        let count = |cluster: u32| {
            let member = self.members.iter().find(|one| one.server.stage == Stage::Second(cluster));
            member.and_then(|one| self.status(one)["registrations"].as_u64())
        };
        (0..self.layout.clusters).map(|cluster| count(cluster).ok_or("a server says nothing".to_owned())).collect()
    }

    /// How often each server has used all of its quota so far.
    #[must_use]
    pub fn throttled(&self) -> ThrottlingByServer {
        ThrottlingByServer(self.members.iter().map(|one| (one.server.stage, one.group.throttling())).collect())
    }

    /// Whether all still run.
    ///
    /// # Errors
    /// When one has ended; then with the end of its log.
    pub fn check(&mut self) -> Result<(), String> {
        let check = |one: &mut Member| one.running.check().map_err(|why| format!("{}: {why}", one.server.name));
        self.members.iter_mut().try_for_each(check)
    }

    fn wait_for_clusters(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while self.layout.servers > 1 && !self.members.iter().all(|one| self.knows_its_cluster(one)) {
            self.check()?;
            if Instant::now() > deadline {
                return Err("members of a cluster do not know of each other in time".to_owned());
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

    /// What a server's `ctl status --json` says; null where it does not answer.
    fn status(&self, member: &Member) -> Value {
        let mut command = Command::new(&self.binary);
        command
            .args(["ctl", "status", "--json", "-c", FILE, "--as", &member.server.name])
            .current_dir(self.folder.path());
        let output = command.output().ok();
        output.and_then(|output| serde_json::from_slice(&output.stdout).ok()).unwrap_or_default()
    }
}

/// The configuration's file, in the folder of the site.
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
    /// The share of periods since `earlier` in which servers had used all of their quota, in percent: the mean of the first stage, and of
    /// the second. 0 where there are none.
    #[must_use]
    pub fn percent_since(&self, earlier: &Self) -> [f64; 2] {
        let mean = |is_first: bool| {
            let of_stage = self.0.iter().zip(&earlier.0).filter(|((stage, _), _)| (*stage == Stage::First) == is_first);
            let all: Vec<f64> = of_stage.map(|((_, now), (_, then))| now.percent_since(*then)).collect();
            // An empty sum is -0.
            all.iter().sum::<f64>().max(0.0) / f64::from(u32::try_from(all.len()).unwrap_or(u32::MAX).max(1))
        };
        [mean(true), mean(false)]
    }
}
