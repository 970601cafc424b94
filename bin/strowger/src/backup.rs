//! `strowger backup` and `strowger restore`.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use serde_json::json;
use strowger_control::config::values::StoreUrl;
use strowger_control::config::{Config, ConfigSource};
use strowger_control::protocol::{BackupReport, BackupRequest};
use strowger_control::socket;
use strowger_persistence::{BackupError, BackupResult, BackupSpec, RestoreResult};
use strowger_store::{BackupInfo, BackupOptions, StoreError};

use crate::cli::{BackupArguments, RestoreArguments};
use crate::failure::Failure;
use crate::key;
use crate::table::{print_facts, print_json, print_line};
use crate::text::{count, size};

/// Name of the server's key in a backup.
pub(crate) const KEY: &str = "server-key";

pub(crate) fn backup(wanted: ConfigSource<'_>, arguments: &BackupArguments) -> Result<(), Failure> {
    let (config, _) = Config::load(wanted)?;
    let target = absolute(&arguments.file);
    if target.exists() && !arguments.overwrite {
        let shown = arguments.file.display();
        return Err(Failure::No(format!("{shown} exists; name another file, or replace it with --overwrite")));
    }
    let mut progress = Progress::new("copying");
    let report = match by_server(&config, &target, arguments.overwrite, &mut progress)? {
        Some(report) => report,
        None => by_ourselves(&config, &target, arguments.overwrite, &mut progress)?,
    };
    drop(progress);
    if arguments.json {
        let value = json!({
            "result": "written",
            "file": target.to_string_lossy(),
            "users": report.users,
            "aliases": report.aliases,
            "gateways": report.gateways,
            "addresses": report.addresses,
            "damaged": report.damaged,
            "bytes": report.bytes,
            "key": report.key,
        });
        return Ok(print_json(&value)?);
    }
    print_line(&format!("{} written: {} ({})", arguments.file.display(), contents(&report), size(report.bytes)))?;
    if report.damaged > 0 {
        eprintln!(
            "strowger: note: {} could not be read and are missing from the backup",
            count(report.damaged, "registration")
        );
    }
    let key = if report.key { " and the server's key" } else { "" };
    eprintln!("strowger: note: keep it secret: it contains all password hashes{key}");
    Ok(())
}

/// Backs up through the running server, including its unwritten state; `None` if no server runs.
fn by_server(
    config: &Config,
    target: &Path,
    overwrite: bool,
    progress: &mut Progress,
) -> Result<Option<BackupReport>, Failure> {
    if target.to_str().is_none() {
        return Err(Failure::Usage(format!("{} is not UTF-8; choose another name", target.display())));
    }
    let request = BackupRequest { file: target.to_owned(), overwrite };
    let on_progress = |done, of| progress.show(done, of);
    socket::backup(&config.control_socket(), request, on_progress).map_err(Failure::No)
}

fn by_ourselves(
    config: &Config,
    target: &Path,
    overwrite: bool,
    progress: &mut Progress,
) -> Result<BackupReport, Failure> {
    let database = database(config)?;
    let key = key::read(&config.key_file())?;
    let extra = key.map(|key| (KEY.to_owned(), key.to_vec())).into_iter().collect();
    let order = BackupSpec { target: target.to_owned(), overwrite, extra };
    let on_progress = |done, of| progress.show(done, of);
    if config.store_mode().is_durable() {
        let done = strowger_persistence::backup_offline(&config.journal_folder(), &database, &order, on_progress)?;
        return Ok(report(&done));
    }
    Ok(report(&of_database(&database, &order, on_progress)?))
}

/// Backs up the database only, which is complete if registrations are in memory.
pub(crate) fn of_database(
    database: &Path,
    order: &BackupSpec,
    progress: impl FnMut(u64, u64),
) -> Result<BackupResult, StoreError> {
    let extra: Vec<(&str, &[u8])> = order.extra.iter().map(|(name, value)| (&**name, &**value)).collect();
    let options = BackupOptions { can_overwrite: order.overwrite, extra: &extra };
    let info = strowger_store::backup(database, &order.target, &options, progress)?;
    Ok(BackupResult { info })
}

/// Returns the report of a backup.
pub(crate) fn report(BackupResult { info }: &BackupResult) -> BackupReport {
    BackupReport {
        users: info.users,
        aliases: info.aliases,
        gateways: info.gateways,
        addresses: info.addresses,
        damaged: info.damaged,
        bytes: info.bytes,
        key: key_in(info).is_some(),
    }
}

fn key_in(info: &BackupInfo) -> Option<&[u8]> {
    info.extra.iter().find(|(name, _)| name == KEY).map(|(_, key)| &**key)
}

fn contents(report: &BackupReport) -> String {
    let &BackupReport { users, aliases, gateways, addresses, .. } = report;
    let aliases = if aliases > 0 { format!(", {}", count(aliases, "alias")) } else { String::new() };
    let gateways = if gateways > 0 { format!(", {}", count(gateways, "gateway")) } else { String::new() };
    format!("{}{aliases}{gateways}, {} with registrations", count(users, "user"), count(addresses, "address"))
}

pub(crate) fn restore(wanted: ConfigSource<'_>, arguments: &RestoreArguments) -> Result<(), Failure> {
    let (config, _) = Config::load(wanted)?;
    let database = database(&config)?;
    let control = config.control_socket();
    if socket::is_running(&control).map_err(Failure::No)? {
        return Err(Failure::No(format!(
            "the server is running: it answers at {}; stop it first (`strowger ctl status` shows its process)",
            absolute(&control).display()
        )));
    }
    let progress = Progress::new("checking and copying");
    progress.begin();
    let restored = strowger_persistence::restore(&arguments.file, &config.journal_folder(), &database, arguments.force);
    drop(progress);
    let restored = restored.map_err(|error| match error {
        BackupError::Store(StoreError::TargetExists { path }) => Failure::No(format!(
            "{} exists; `strowger restore --force` moves it aside and restores the backup in its place",
            path.display()
        )),
        other => other.into(),
    })?;
    let RestoreResult { database: done, journal_moved_aside } = restored;
    let (key, key_aside) = match key_in(&done.info) {
        Some(key) => ("restored", key::restore(&config.key_file(), key)?),
        None => ("not in the backup", None),
    };
    let aside: Vec<PathBuf> = [done.moved_aside, journal_moved_aside, key_aside].into_iter().flatten().collect();
    tell(&arguments.file, &database, &done.info, key, &aside, arguments.json)
}

fn tell(
    file: &Path,
    database: &Path,
    info: &BackupInfo,
    key: &str,
    aside: &[PathBuf],
    as_json: bool,
) -> Result<(), Failure> {
    let aside: Vec<String> = aside.iter().map(|path| absolute(path).display().to_string()).collect();
    let report = report(&BackupResult { info: info.clone() });
    if as_json {
        let value = json!({
            "result": "restored",
            "database": absolute(database).to_string_lossy(),
            "users": report.users,
            "aliases": report.aliases,
            "gateways": report.gateways,
            "addresses": report.addresses,
            "damaged": report.damaged,
            "made_s": info.created_s,
            "version": info.version,
            "key": report.key,
            "moved_aside": aside,
        });
        return Ok(print_json(&value)?);
    }
    let mut facts = vec![
        ("restored", format!("{} from {}", contents(&report), file.display())),
        ("database", absolute(database).display().to_string()),
        ("key", key.to_owned()),
    ];
    if report.damaged > 0 {
        facts.push(("lost", format!("{} that cannot be read", count(report.damaged, "registration"))));
    }
    if !aside.is_empty() {
        facts.push(("moved aside", aside.join("\n")));
    }
    Ok(print_facts(&facts)?)
}

fn database(config: &Config) -> Result<PathBuf, Failure> {
    match config.store_url() {
        StoreUrl::Sqlite(path) => Ok(path),
        StoreUrl::Memory => Err(Failure::Usage(
            "store.url is memory:, so nothing is stored; give the server's configuration with -c".to_owned(),
        )),
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// A progress line on a terminal, removed on drop.
pub(crate) struct Progress {
    what: &'static str,
    is_terminal: bool,
    percent: Option<u64>,
}

impl Progress {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, is_terminal: io::stderr().is_terminal(), percent: None }
    }

    fn begin(&self) {
        self.write(&format!("{} …", self.what));
    }

    pub(crate) fn show(&mut self, done: u64, of: u64) {
        let percent = (done * 100).checked_div(of);
        match percent {
            None if self.percent.is_none() => self.write("writing pending registrations …"),
            Some(share) if percent != self.percent => self.write(&format!("{} {share} %", self.what)),
            _ => {}
        }
        self.percent = percent.or(self.percent);
    }

    /// Replaces the progress line.
    fn write(&self, text: &str) {
        if self.is_terminal {
            let mut out = io::stderr().lock();
            // A closed terminal must not stop the backup.
            drop(write!(out, "\r\x1b[K{text}").and_then(|()| out.flush()));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.write("");
    }
}
