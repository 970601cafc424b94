//! `strowger import`: imports the database of another server.

mod gateways;
mod registrations;
mod report;
mod strowger;
mod users;

use std::fs;
use std::path::PathBuf;

use strowger_control::config::values::StoreUrl;
use strowger_control::config::{Config, ConfigSource};
use strowger_control::protocol::Change;
use strowger_control::socket;
use strowger_kamailio::{Flavor, Identity, Table, Tables, VersionError};
use strowger_sql::DatabaseUrl;
use strowger_store::{AnyBackend, OnConflict, UserStore};

use crate::cli::import::{ImportArguments, ImportCommand, ImportFrom, ImportPart};
use crate::failure::Failure;
use crate::notify_server::notify_server;
use report::{Part, Report};

pub(crate) fn run(meant: ConfigSource<'_>, arguments: ImportArguments) -> Result<(), Failure> {
    let (config, _) = Config::load(meant)?;
    let (flavor, from) = match arguments.command {
        ImportCommand::Kamailio(from) => (Flavor::Kamailio, from),
        ImportCommand::Opensips(from) => (Flavor::OpenSips, from),
        ImportCommand::Strowger { file } => return strowger::import(&config, &file, arguments.json),
    };
    let wanted = wanted(&config, &from)?;
    let url = url(&from.url)?;
    let mut tables = Tables::new(&url, flavor, from.timeout.0);
    if !from.any_version {
        let names: Vec<Table> = wanted.iter().map(|what| what.table()).collect();
        tables.check(&names).map_err(failure_of_version)?;
    }
    let import = Import { identity: identity(&config, &from)?, config, from };
    let mut report = Report::new(flavor, &url, import.from.dry_run);
    for what in wanted {
        let part = match what {
            ImportPart::Users => users::import(&import, &mut tables)?,
            ImportPart::Gateways => gateways::import(&import, &mut tables)?,
            ImportPart::Registrations => registrations::import(&import, &mut tables)?,
        };
        report.add(part);
    }
    if !import.from.dry_run {
        notify_server(&import.config, Change::new("import", url.to_string()));
    }
    report.print(arguments.json)
}

/// State shared by all parts of an import.
struct Import {
    config: Config,
    from: ImportFrom,
    identity: Identity,
}

impl Import {
    const fn existing(&self) -> OnConflict {
        if self.from.replace { OnConflict::Replace } else { OnConflict::Keep }
    }

    /// Opens our database; a dry run does not create one.
    fn store(&self) -> Result<UserStore<AnyBackend>, Failure> {
        if self.from.dry_run && self.config.store.shared_users.is_any() && !self.path()?.exists() {
            return Ok(UserStore::open_memory()?.into());
        }
        store(&self.config)
    }

    fn path(&self) -> Result<PathBuf, Failure> {
        path(&self.config)
    }

    /// Whether the server serves the domain.
    fn is_served(&self, domain: &str) -> bool {
        let domains = &self.config.server.domains;
        domains.is_empty() || domains.iter().any(|own| own.0 == domain)
    }
}

/// Opens our database.
fn store(config: &Config) -> Result<UserStore<AnyBackend>, Failure> {
    if config.store.shared_users.is_any() {
        return Ok(UserStore::open(path(config)?)?.into());
    }
    Ok(UserStore::connect(&config.shared_users())?.into())
}

fn path(config: &Config) -> Result<PathBuf, Failure> {
    match config.store_url() {
        StoreUrl::Sqlite(path) => Ok(path),
        StoreUrl::Memory => Err(Failure::Usage(
            "store.url is memory:, so nothing is stored; write url = \"sqlite:data/strowger.db\", or leave it out"
                .to_owned(),
        )),
    }
}

/// Returns the requested parts. Impossible ones are refused before anything is written.
fn wanted(config: &Config, from: &ImportFrom) -> Result<Vec<ImportPart>, Failure> {
    let all = [ImportPart::Users, ImportPart::Gateways, ImportPart::Registrations];
    let wanted: Vec<ImportPart> =
        all.into_iter().filter(|what| from.only.is_empty() || from.only.contains(what)).collect();
    if from.dry_run || !wanted.contains(&ImportPart::Registrations) {
        return Ok(wanted);
    }
    if !config.store_mode().is_durable() {
        return Err(Failure::Usage(
            "store.mode is memory, so registrations cannot be imported; omit them with --only users,gateways"
                .to_owned(),
        ));
    }
    if socket::is_running(&config.control_socket()).map_err(Failure::No)? {
        return Err(Failure::No(
            "the server is running, and registrations can only be imported while it is stopped; stop it, or omit them with \
             --only users,gateways (phones register again by themselves)"
                .to_owned(),
        ));
    }
    Ok(wanted)
}

/// Returns the database URL, given directly or in the file after an `@`.
fn url(text: &str) -> Result<DatabaseUrl, Failure> {
    let url = match text.strip_prefix('@') {
        None => text.parse(),
        Some(file) => {
            let read = fs::read_to_string(file);
            read.map_err(|error| Failure::Usage(format!("{file} cannot be read: {error}")))?.trim().parse()
        }
    };
    url.map_err(Failure::Usage)
}

fn identity(config: &Config, from: &ImportFrom) -> Result<Identity, Failure> {
    let first = config.server.domains.first();
    let domain = from.domain.clone().or_else(|| first.map(|domain| domain.0.clone())).ok_or_else(|| {
        Failure::Usage("some users have no domain; give one with --domain, or set server.domains".to_owned())
    })?;
    let realm = from.realm.clone().or_else(|| config.auth.realm.as_ref().map(ToString::to_string));
    Ok(Identity { domain, realm })
}

fn failure_of_version(error: VersionError) -> Failure {
    match error {
        VersionError::Sql(error) => Failure::No(error.to_string()),
        other => Failure::No(format!("{other}: --any-version reads it anyway")),
    }
}
