//! `strowger user`: subscribers.

use std::fs::File;
use std::io::{self, BufRead as _, IsTerminal as _, Read};
use std::path::Path;

use serde_json::json;
use strowger_administration::User;
use strowger_control::config::{Config, ConfigSource};
use strowger_control::protocol::Change;
use strowger_store::Address;

use crate::address;
use crate::cli::user::{AliasCommand, UserArguments, UserCommand, WithPassword};
use crate::failure::Failure;
use crate::notify_server::notify_server;
use crate::operations::UserOperations;
use crate::table::{print_json, print_line, print_table};
use crate::text::count;

pub(crate) fn run(wanted: ConfigSource<'_>, arguments: UserArguments) -> Result<(), Failure> {
    let (config, _) = Config::load(wanted)?;
    let users = Users { config, json: arguments.json };
    let change = change(&arguments.command);
    users.execute(arguments.command)?;
    if let Some(change) = change {
        notify_server(&users.config, change);
    }
    Ok(())
}

/// Returns what a command changes, for the server's audit log.
fn change(command: &UserCommand) -> Option<Change> {
    Some(match command {
        UserCommand::Add(with) => Change::new("user add", &with.user),
        UserCommand::Passwd(with) => Change::new("user passwd", &with.user),
        UserCommand::Rm(who) => Change::new("user rm", &who.user),
        UserCommand::Enable(who) => Change::new("user enable", &who.user),
        UserCommand::Disable(who) => Change::new("user disable", &who.user),
        UserCommand::Import { file, .. } => Change::new("user import", file.to_string_lossy()),
        UserCommand::Alias { command: AliasCommand::Add { alias, user } } => {
            Change::new("user alias add", format!("{alias} {user}"))
        }
        UserCommand::Alias { command: AliasCommand::Rm { alias } } => Change::new("user alias rm", alias),
        UserCommand::List | UserCommand::Alias { command: AliasCommand::List } => return None,
    })
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
                let aor = self.operations().remove(&who.user)?;
                self.done("removed", &aor)
            }
            UserCommand::Enable(who) => {
                let aor = self.operations().set_enabled(&who.user, true)?;
                self.done("enabled", &aor)
            }
            UserCommand::Disable(who) => {
                let aor = self.operations().set_enabled(&who.user, false)?;
                self.done("disabled", &aor)
            }
            UserCommand::List => self.list(),
            UserCommand::Import { file, realm } => self.import(&file, realm),
            UserCommand::Alias { command } => self.alias(command),
        }
    }

    const fn operations(&self) -> UserOperations<'_> {
        UserOperations::new(&self.config)
    }

    fn add(&self, with: WithPassword) -> Result<(), Failure> {
        let mut adding = self.operations().adding(&with.user)?;
        adding.add(&password_of(with)?)?;
        self.warn_of_foreign_domain(&adding.address);
        if let Some(path) = &adding.new_database {
            eprintln!("strowger: note: this is the first user in a new database, {}", path.display());
        }
        self.report("added", &adding.address, &adding.realm)
    }

    fn set_password(&self, with: WithPassword) -> Result<(), Failure> {
        let mut changing = self.operations().changing(&with.user)?;
        changing.set(&password_of(with)?)?;
        self.report("changed", &changing.address, &changing.realm)
    }

    fn list(&self) -> Result<(), Failure> {
        let found = self.operations().all()?;
        if self.json {
            return Ok(print_json(&json!({ "users": found.users }))?);
        }
        let row = |user: User| {
            let state = if user.enabled { "enabled" } else { "disabled" };
            [user.aor, user.realm, state.to_owned(), user.algorithms.join(" ")]
        };
        let rows: Vec<_> = found.users.into_iter().map(row).collect();
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
        let domains = self
            .operations()
            .open_or_make()?
            .import_csv_of(table, &realm, |name| address::typed(&self.config, name))
            .map_err(|error| Failure::No(format!("{shown}: {error}")))?;
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
        if self.operations().is_foreign(domain) {
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

    fn alias(&self, command: AliasCommand) -> Result<(), Failure> {
        let operations = self.operations();
        match command {
            AliasCommand::Add { alias, user } => {
                let (alias, aor) = operations.add_alias(&alias, &user)?;
                self.warn_of_foreign_domain(&alias);
                if self.json {
                    let value = json!({ "result": "added", "alias": alias.as_str(), "aor": aor.as_str() });
                    return Ok(print_json(&value)?);
                }
                Ok(print_line(&format!("{alias} is an alias of {aor}"))?)
            }
            AliasCommand::Rm { alias } => {
                let alias = operations.remove_alias(&alias)?;
                if self.json {
                    return Ok(print_json(&json!({ "result": "removed", "alias": alias.as_str() }))?);
                }
                Ok(print_line(&format!("{alias} removed"))?)
            }
            AliasCommand::List => {
                let aliases = operations.aliases()?;
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
        if let Some(note) = self.operations().foreign_note(aor) {
            eprintln!("strowger: note: {note}");
        }
    }
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
