//! The compared servers, each limited to the same share of a core.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::{DOMAIN, SERVER, SERVER_CORE, USERS};
use crate::proxy::peer::{KEPT_FOR, RunningServer, import, launch};
use crate::proxy::scenario::T1_MS;
use crate::quota::{Group, Quota, Throttling};

/// Shared memory of Kamailio's processes, and private memory of each, in MiB.
const SHARED_MIB: &str = "4096";
const PRIVATE_MIB: &str = "64";
/// Limit of Kamailio's ratelimit in percent of its capacity: what an operator would configure as a reserve.
pub const LIMIT_PERCENT: f64 = 90.0;
/// Requests per source in two seconds above which pike drops: four times the rate of a well-behaved caller.
const PIKE_DENSITY: u32 = 60;

/// A server under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
pub enum Contender {
    /// Strowger with default settings
    Control,
    /// Strowger with `overload.control = false`
    Plain,
    /// Kamailio
    Kamailio,
    /// Kamailio with the limits of its own modules: ratelimit, and pike under floods
    Limits,
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Control => "Strowger",
            Self::Plain => "Strowger, no control",
            Self::Kamailio => "Kamailio",
            Self::Limits => "Kamailio, its own limits",
        })
    }
}

impl Contender {
    /// All contenders.
    pub const ALL: [Self; 4] = [Self::Control, Self::Plain, Self::Kamailio, Self::Limits];

    /// Returns whether it is Strowger.
    #[must_use]
    pub const fn is_ours(self) -> bool {
        matches!(self, Self::Control | Self::Plain)
    }

    /// Returns whether its capacity is searched. A server with a limit below its capacity has no separate capacity.
    #[must_use]
    pub const fn is_searched(self) -> bool {
        !matches!(self, Self::Limits)
    }

    /// Returns the contenders of the same program, the highest capacity of which is 1× for this one.
    #[must_use]
    pub const fn family(self) -> [Self; 2] {
        if self.is_ours() { [Self::Control, Self::Plain] } else { [Self::Kamailio, Self::Limits] }
    }
}

/// Traffic of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Mode {
    /// Calls over UDP without authentication.
    Udp,
    /// Calls over TCP without authentication.
    Tcp,
    /// Over UDP, REGISTER and INVITE with authentication, as on a server open to the internet.
    Passwords,
}

impl Mode {
    /// Returns its name in tables and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Passwords => "UDP, with passwords",
        }
    }
}

/// Binary and resources of servers.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The `strowger` binary.
    pub binary: PathBuf,
    /// Whether it supports `overload.control`.
    pub has_control: bool,
    /// CPU quota of each server.
    pub quota: Quota,
}

/// A running server in its control group. Dropping it ends it.
#[derive(Debug)]
pub struct Server {
    // Declared first: the processes end before their group and folder are removed.
    running: RunningServer,
    group: Group,
    folder: tempfile::TempDir,
}

impl Server {
    /// Starts a server at [`SERVER`], waits until it answers, and then applies its quota.
    ///
    /// `limit` is the limit of Kamailio's ratelimit, in INVITEs per second.
    ///
    /// # Errors
    /// If it does not start, or there are no control groups.
    pub fn start(contender: Contender, mode: Mode, place: &Environment, limit: Option<f64>) -> Result<Self, String> {
        let said = |error: std::io::Error| error.to_string();
        let folder = tempfile::Builder::new().prefix("strowger-overload-").tempdir().map_err(said)?;
        let name = folder.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let group = Group::new(name.trim_start_matches("strowger-overload-"));
        let group = group.map_err(|error| format!("a control group of the processor controller (v1): {error}"))?;
        let words = if contender.is_ours() {
            fs::write(folder.path().join("strowger.toml"), configuration(contender, mode, place.has_control))
                .map_err(said)?;
            if mode == Mode::Passwords {
                import(&place.binary, folder.path(), 2 * USERS)?;
            }
            let rest = ["serve", "-c", "strowger.toml"].map(OsString::from);
            [place.binary.clone().into_os_string()].into_iter().chain(rest).collect()
        } else {
            kamailio(mode, folder.path(), limit)
        };
        let before = group.enter();
        let before: Vec<&str> = before.iter().map(String::as_str).chain(["taskset", "-c", SERVER_CORE]).collect();
        let running = launch(&before, words, folder.path(), SERVER)?;
        group.limit(place.quota).map_err(|error| format!("the quota is refused: {error}"))?;
        Ok(Self { running, group, folder })
    }

    /// Returns the ID of its first process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Returns how often it has used up its quota so far.
    #[must_use]
    pub fn throttling(&self) -> Throttling {
        self.group.throttling()
    }

    /// Checks that it is running.
    ///
    /// # Errors
    /// If it has ended. The error includes the end of its log.
    pub fn check(&mut self) -> Result<(), String> {
        self.running.check()
    }

    /// Returns its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Returns Strowger's configuration: the defaults, but with bindings in memory and one worker, as Kamailio has one
/// receiver.
#[must_use]
pub fn configuration(contender: Contender, mode: Mode, has_control: bool) -> String {
    let require = if mode == Mode::Passwords { "[\"REGISTER\", \"INVITE\"]" } else { "[]" };
    let off = contender == Contender::Plain && has_control;
    let control = if off { "\n[overload]\ncontrol = false\n" } else { "" };
    format!(
        "[server]\nlisten = [\"udp:{SERVER}\", \"tcp:{SERVER}\"]\ndomains = [\"{DOMAIN}\"]\ndata = \"data\"\nworkers = 1\n\n\
         [store]\nmode = \"memory\"\n\n[auth]\nrequire = {require}\nrealm = \"{DOMAIN}\"\n\n[log]\nlevel = \"error\"\n{control}"
    )
}

/// Returns Kamailio's command line.
fn kamailio(mode: Mode, folder: &Path, limit: Option<f64>) -> Vec<OsString> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("kamailio/overload.cfg");
    // -DD keeps the first process in the foreground, so that it and its children can be found and ended.
    let words = ["kamailio", "-DD", "-E", "-x", "fm", "-X", "fm", "-m", SHARED_MIB, "-M", PRIVATE_MIB, "-f"];
    let mut all: Vec<OsString> = words.iter().map(OsString::from).collect();
    all.extend([file.into(), "-Y".into(), folder.into(), "-l".into(), format!("udp:{SERVER}").into()]);
    let mut define = |text: String| all.extend(["-A".into(), text.into()]);
    define(format!("WT_TIMER={}", KEPT_FOR * T1_MS));
    match mode {
        Mode::Udp => {}
        Mode::Tcp => define("STREAMS".to_owned()),
        Mode::Passwords => define("CHALLENGE".to_owned()),
    }
    if let Some(limit) = limit {
        define(format!("LIMIT=\"0:TAILDROP:{:.0}\"", limit.max(1.0)));
        if mode == Mode::Passwords {
            define(format!("PIKE={PIKE_DENSITY}"));
        }
    }
    if mode == Mode::Tcp {
        all.extend(["-l".into(), format!("tcp:{SERVER}").into()]);
    }
    all
}

/// Returns whether the binary accepts `overload.control`.
///
/// # Errors
/// If the binary cannot be run.
pub fn has_control(binary: &Path) -> Result<bool, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = folder.path().join("strowger.toml");
    fs::write(&file, configuration(Contender::Plain, Mode::Udp, true)).map_err(|error| error.to_string())?;
    let mut command = Command::new(binary);
    command.args(["check", "-c"]).arg(&file).current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_is_turned_off_where_supported() {
        let off = |contender, has_control| configuration(contender, Mode::Udp, has_control).contains("control = false");
        assert!(off(Contender::Plain, true));
        assert!(!off(Contender::Plain, false) && !off(Contender::Control, true));
        assert!(configuration(Contender::Control, Mode::Passwords, true).contains("[\"REGISTER\", \"INVITE\"]"));
    }

    #[test]
    fn kamailio_gets_its_limit_and_stream_options() {
        let words = |mode, limit| {
            let words = kamailio(mode, Path::new("folder"), limit);
            words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert!(words(Mode::Udp, Some(900.4)).contains("-A LIMIT=\"0:TAILDROP:900\""));
        assert!(!words(Mode::Udp, Some(900.4)).contains("PIKE") && !words(Mode::Udp, None).contains("LIMIT"));
        assert!(words(Mode::Passwords, Some(1.0)).contains("-A PIKE=60"));
        assert!(words(Mode::Tcp, None).contains("-A STREAMS -l tcp:127.0.0.1:16060"));
    }
}
