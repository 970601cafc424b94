//! The servers that are compared, each held to the same share of a core.

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

/// The memory that Kamailio's processes share, and that each has for itself, in MiB.
const SHARED_MIB: &str = "4096";
const PRIVATE_MIB: &str = "64";
/// The part of its capacity to which Kamailio's own limit is set, in percent: what an operator would leave as a reserve.
pub const LIMIT_PERCENT: f64 = 90.0;
/// Requests of one source in two seconds from which on pike drops: four times what an innocent caller sends.
const PIKE_DENSITY: u32 = 60;

/// A server that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
pub enum Contender {
    /// Strowger as it is by default
    Control,
    /// Strowger with `overload.control = false`
    Plain,
    /// Kamailio
    Kamailio,
    /// Kamailio with the limits of its own modules: ratelimit, and pike where there are floods
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
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Control, Self::Plain, Self::Kamailio, Self::Limits];

    /// Whether it is Strowger.
    #[must_use]
    pub const fn is_ours(self) -> bool {
        matches!(self, Self::Control | Self::Plain)
    }

    /// Whether its capacity is searched. A limit below the capacity of the server has none of its own.
    #[must_use]
    pub const fn is_searched(self) -> bool {
        !matches!(self, Self::Limits)
    }

    /// Those whose highest capacity is 1× for this one: the same program.
    #[must_use]
    pub const fn family(self) -> [Self; 2] {
        if self.is_ours() { [Self::Control, Self::Plain] } else { [Self::Kamailio, Self::Limits] }
    }
}

/// What a server is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Mode {
    /// Calls over UDP, nobody asked for a password.
    Udp,
    /// The same over TCP.
    Tcp,
    /// Over UDP, REGISTER and INVITE with a password, as a server needs that strangers can reach.
    Passwords,
}

impl Mode {
    /// Its name in tables and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Passwords => "UDP, with passwords",
        }
    }
}

/// Programs, and what a server may use.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The program `strowger`.
    pub binary: PathBuf,
    /// Whether it knows `overload.control`.
    pub has_control: bool,
    /// What each server may use.
    pub quota: Quota,
}

/// A server that runs in its group; dropping it ends it.
#[derive(Debug)]
pub struct Server {
    // The processes end before their group and their folder go.
    running: RunningServer,
    group: Group,
    folder: tempfile::TempDir,
}

impl Server {
    /// Starts one at [`SERVER`] and waits until it answers; only then it is held to its quota.
    ///
    /// `limit` is what Kamailio's ratelimit takes, in INVITEs a second.
    ///
    /// # Errors
    /// When it does not start, or there are no control groups.
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

    /// Its first process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// How often it has used all of its quota so far.
    #[must_use]
    pub fn throttling(&self) -> Throttling {
        self.group.throttling()
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// When it has ended; then with the end of its log.
    pub fn check(&mut self) -> Result<(), String> {
        self.running.check()
    }

    /// Where it runs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Our configuration: the defaults, but bindings in memory, and one worker as the other has one receiver.
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

/// Kamailio's command line.
fn kamailio(mode: Mode, folder: &Path, limit: Option<f64>) -> Vec<OsString> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("kamailio/overload.cfg");
    // -DD: the first process stays, so that it and its children can be found and ended.
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

/// Whether the program takes `overload.control`.
///
/// # Errors
/// When it cannot be asked.
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
    fn control_is_turned_off_where_the_program_knows_it() {
        let off = |contender, has_control| configuration(contender, Mode::Udp, has_control).contains("control = false");
        assert!(off(Contender::Plain, true));
        assert!(!off(Contender::Plain, false) && !off(Contender::Control, true));
        assert!(configuration(Contender::Control, Mode::Passwords, true).contains("[\"REGISTER\", \"INVITE\"]"));
    }

    #[test]
    fn kamailio_is_told_of_its_limit_and_of_streams() {
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
