//! `strowger user`: subscribers.

use std::fs::File;
use std::io::{self, BufRead as _, IsTerminal as _, Read};
use std::path::{Path, PathBuf};

use serde_json::json;
use strowger_control::config::values::StoreUrl;
use strowger_control::config::{Config, ConfigSource};
use strowger_store::{Address, AnyBackend, UserStore};

use crate::address;
use crate::cli::{AliasCommand, UserArguments, UserCommand, WithPassword};
use crate::failure::Failure;
use crate::notify_server::notify_server;
use crate::table::{print_json, print_line, print_table};
use crate::text::count;

pub(crate) fn run(wanted: ConfigSource<'_>, arguments: UserArguments) -> Result<(), Failure> {
    let (config, _) = Config::load(wanted)?;
    let users = Users { config, json: arguments.json };
    let is_change =
        !matches!(arguments.command, UserCommand::List | UserCommand::Alias { command: AliasCommand::List });
    users.execute(arguments.command)?;
    if is_change {
        notify_server(&users.config);
    }
    Ok(())
}

struct Users {
    config: Config,
    json: bool,
}

impl Users {
    fn execute(&self, command: UserCommand) -> Result<(), Failure> {
        match command {
            UserCommand::Add(with) => self.add(with),
            UserCommand::Passwd(with) => self.set_password(with),
            UserCommand::Rm(who) => {
                let aor = self.open()?.remove_user(self.full(&who.user)?.as_str())?;
                self.done("removed", &aor)
            }
            UserCommand::Enable(who) => {
                let aor = self.open()?.set_enabled(self.full(&who.user)?.as_str(), true)?;
                self.done("enabled", &aor)
            }
            UserCommand::Disable(who) => {
                let aor = self.open()?.set_enabled(self.full(&who.user)?.as_str(), false)?;
                self.done("disabled", &aor)
            }
            UserCommand::List => self.list(),
            UserCommand::Import { file, realm } => self.import(&file, realm),
            UserCommand::Alias { command } => self.alias(command),
        }
    }

    fn full(&self, typed: &str) -> Result<Address, Failure> {
        Ok(address::typed(&self.config, typed)?)
    }

    /// Opens the existing database. Only adding creates one: a command in the wrong folder must not.
    fn open(&self) -> Result<UserStore<AnyBackend>, Failure> {
        if let Some(path) = self.path_of_new() {
            return Err(Failure::No(format!(
                "there are no users at {}; add one with `strowger user add`, change to the server's folder, or give its \
                 configuration with -c",
                path.display()
            )));
        }
        self.open_or_make()
    }

    /// Returns the path of the database to be created, if none exists.
    fn path_of_new(&self) -> Option<PathBuf> {
        match self.config.store_url() {
            StoreUrl::Sqlite(path) if !path.exists() && self.config.store.shared_users.is_any() => {
                Some(absolute(&path))
            }
            _ => None,
        }
    }

    fn open_or_make(&self) -> Result<UserStore<AnyBackend>, Failure> {
        if !self.config.store.shared_users.is_any() {
            return Ok(UserStore::connect(&self.config.shared_users())?.into());
        }
        match self.config.store_url() {
            StoreUrl::Sqlite(path) => Ok(UserStore::open(path)?.into()),
            StoreUrl::Memory => Err(Failure::Usage(
                "store.url is memory:, so users cannot be stored; write url = \"sqlite:data/strowger.db\", or leave it out"
                    .to_owned(),
            )),
        }
    }

    fn add(&self, with: WithPassword) -> Result<(), Failure> {
        let new_at = self.path_of_new();
        let address = address::typed(&self.config, &with.user)?;
        let realm = self.realm_of(&address);
        let mut store = self.open_or_make()?;
        let password = password_of(with)?;
        let aor = store.add_user(address.as_str(), &realm, &password)?;
        self.warn_of_foreign_domain(&aor);
        if let Some(path) = new_at {
            eprintln!("strowger: note: this is the first user in a new database, {}", path.display());
        }
        self.report("added", &aor, &realm)
    }

    fn set_password(&self, with: WithPassword) -> Result<(), Failure> {
        let address = address::typed(&self.config, &with.user)?;
        let realm = self.realm_of(&address);
        let mut store = self.open()?;
        let password = password_of(with)?;
        let aor = store.set_password(address.as_str(), &realm, &password)?;
        self.report("changed", &aor, &realm)
    }

    /// Returns the realm of the server's challenges to this user.
    fn realm_of(&self, address: &Address) -> String {
        let realm = self.config.auth.realm.as_ref().map(ToString::to_string);
        realm.unwrap_or_else(|| address.domain().to_owned())
    }

    fn list(&self) -> Result<(), Failure> {
        let users = self.open()?.list()?;
        if self.json {
            let rows = users.iter().map(|user| {
                json!({
                    "aor": user.aor,
                    "realm": user.realm,
                    "algorithms": user.algorithms,
                    "enabled": user.enabled,
                    "created_s": user.created_s,
                })
            });
            return Ok(print_json(&json!({ "users": rows.collect::<Vec<_>>() }))?);
        }
        let row = |user: strowger_store::UserEntry| {
            let state = if user.enabled { "enabled" } else { "disabled" };
            [user.aor, user.realm, state.to_owned(), user.algorithms.join(" ")]
        };
        let rows: Vec<_> = users.into_iter().map(row).collect();
        Ok(print_table(["USER", "REALM", "STATE", "ALGORITHMS"], &rows)?)
    }

    fn import(&self, file: &Path, realm: Option<String>) -> Result<(), Failure> {
        let realm = realm.or_else(|| self.config.auth.realm.as_ref().map(ToString::to_string));
        let realm = realm.or_else(|| match self.config.server.domains.as_slice() {
            [only] => Some(only.to_string()),
            _ => None,
        });
        let realm = realm.ok_or_else(|| {
            Failure::Usage("an import needs a realm; give one with --realm, or set auth.realm".to_owned())
        })?;
        let table: Box<dyn Read> = if file == Path::new("-") {
            Box::new(io::stdin())
        } else {
            let opened = File::open(file);
            Box::new(opened.map_err(|error| Failure::Usage(format!("{} cannot be read: {error}", file.display())))?)
        };
        let shown = file.display();
        let domains =
            self.open_or_make()?.import_csv(table, &realm).map_err(|error| Failure::No(format!("{shown}: {error}")))?;
        domains.iter().for_each(|(domain, users)| self.warn_of_import(domain, *users, &realm));
        let users: usize = domains.values().sum();
        if self.json {
            return Ok(print_json(&json!({ "result": "imported", "users": users, "realm": realm }))?);
        }
        Ok(print_line(&format!("{} imported (realm {realm})", count(users as u64, "user")))?)
    }

    /// Prints the warnings for single users, and a warning if the server challenges with another realm than that of
    /// the hashes.
    fn warn_of_import(&self, domain: &str, users: usize, realm: &str) {
        let users = count(users as u64, "user");
        if self.is_foreign(domain) {
            eprintln!("strowger: note: {domain} is not in server.domains, so the server does not serve its {users}");
            return;
        }
        let asked = self.config.auth.realm.as_ref().map_or_else(|| domain.to_owned(), ToString::to_string);
        if asked != realm {
            eprintln!(
                "strowger: note: the server challenges the {users} of {domain} with realm {asked}, but their hashes are for \
                 {realm}: they will be refused; import them separately, with --realm {asked}"
            );
        }
    }

    fn is_foreign(&self, domain: &str) -> bool {
        let domains = &self.config.server.domains;
        !domains.is_empty() && !domains.iter().any(|own| own.0 == domain)
    }

    fn alias(&self, command: AliasCommand) -> Result<(), Failure> {
        let mut store = self.open()?;
        match command {
            AliasCommand::Add { alias, user } => {
                let (alias, aor) = store.add_alias(self.full(&alias)?.as_str(), self.full(&user)?.as_str())?;
                self.warn_of_foreign_domain(&alias);
                if self.json {
                    let value = json!({ "result": "added", "alias": alias.as_str(), "aor": aor.as_str() });
                    return Ok(print_json(&value)?);
                }
                Ok(print_line(&format!("{alias} is an alias of {aor}"))?)
            }
            AliasCommand::Rm { alias } => {
                let alias = store.remove_alias(self.full(&alias)?.as_str())?;
                if self.json {
                    return Ok(print_json(&json!({ "result": "removed", "alias": alias.as_str() }))?);
                }
                Ok(print_line(&format!("{alias} removed"))?)
            }
            AliasCommand::List => {
                let aliases = store.list_aliases()?;
                if self.json {
                    let rows: Vec<_> =
                        aliases.iter().map(|alias| json!({ "alias": alias.alias, "aor": alias.aor })).collect();
                    return Ok(print_json(&json!({ "aliases": rows }))?);
                }
                let rows: Vec<_> = aliases.into_iter().map(|alias| [alias.alias, alias.aor]).collect();
                Ok(print_table(["ALIAS", "USER"], &rows)?)
            }
        }
    }

    fn report(&self, what: &str, aor: &Address, realm: &str) -> Result<(), Failure> {
        if self.json {
            return Ok(print_json(&json!({ "result": what, "aor": aor.as_str(), "realm": realm }))?);
        }
        Ok(print_line(&format!("{aor} {what} (realm {realm})"))?)
    }

    fn done(&self, what: &str, aor: &Address) -> Result<(), Failure> {
        if self.json {
            return Ok(print_json(&json!({ "result": what, "aor": aor.as_str() }))?);
        }
        Ok(print_line(&format!("{aor} {what}"))?)
    }

    /// Prints a warning about a user in a foreign domain, which can be stored but cannot register.
    fn warn_of_foreign_domain(&self, aor: &Address) {
        if self.is_foreign(aor.domain()) {
            eprintln!("strowger: note: {} is not in server.domains, so the server does not serve {aor}", aor.domain());
        }
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Reads the password from the arguments, the terminal, or the first line of piped input.
fn password_of(with: WithPassword) -> Result<String, Failure> {
    if let Some(password) = with.password {
        return Ok(password);
    }
    let unreadable = |error: io::Error| Failure::Usage(format!("the password cannot be read: {error}; use --password"));
    if io::stdin().is_terminal() {
        let password = rpassword::prompt_password(format!("Password of {}: ", with.user)).map_err(unreadable)?;
        let again = rpassword::prompt_password("Repeat the password: ").map_err(unreadable)?;
        if password != again {
            return Err(Failure::No("the two passwords differ; nothing was changed".to_owned()));
        }
        return Ok(password);
    }
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(unreadable)?;
    let line = line.strip_suffix('\n').unwrap_or(&line);
    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
}
