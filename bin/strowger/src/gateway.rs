//! `strowger gateway`: gateways for calls outside the server's domains.

use std::path::{Path, PathBuf};

use serde_json::json;
use strowger_control::config::values::{StoreUrl, Target};
use strowger_control::config::{Config, ConfigSource};
use strowger_control::protocol::{Outage, Request, Response};
use strowger_control::socket;
use strowger_store::{AnyBackend, GatewayChange, GatewayEntry, NewGateway, UserStore};

use crate::cli::{GatewayArguments, GatewayCommand, Member};
use crate::failure::Failure;
use crate::gateways;
use crate::notify_server::notify_server;
use crate::table::{print_json, print_line, print_table};
use crate::text::clock;

pub(crate) fn run(wanted: ConfigSource<'_>, arguments: GatewayArguments) -> Result<(), Failure> {
    let (config, _) = Config::load(wanted)?;
    let gateways = Gateways { config, json: arguments.json };
    let is_change = !matches!(arguments.command, GatewayCommand::List { .. });
    gateways.execute(arguments.command)?;
    if is_change {
        notify_server(&gateways.config);
    }
    Ok(())
}

struct Gateways {
    config: Config,
    json: bool,
}

impl Gateways {
    fn execute(&self, command: GatewayCommand) -> Result<(), Failure> {
        match command {
            GatewayCommand::Add { member, priority, weight, capacity, note } => {
                let uri = &member.uri;
                let new = NewGateway { uri, priority, weight, capacity, description: &note, enabled: true };
                self.add(&member, &new)
            }
            GatewayCommand::Change { member, priority, weight, capacity, note } => {
                let change = GatewayChange {
                    priority,
                    weight,
                    capacity: capacity.map(|capacity| capacity.0),
                    description: note.as_deref(),
                    enabled: None,
                };
                self.change("changed", &member, &change)
            }
            GatewayCommand::Rm(member) => {
                self.open()?.remove_gateway(&member.set, &member.uri)?;
                self.done("removed", &member)
            }
            GatewayCommand::Enable(member) => {
                let change = GatewayChange { enabled: Some(true), ..GatewayChange::default() };
                self.change("enabled", &member, &change)
            }
            GatewayCommand::Disable(member) => {
                let change = GatewayChange { enabled: Some(false), ..GatewayChange::default() };
                self.change("disabled", &member, &change)
            }
            GatewayCommand::List { set } => self.list(set.as_deref()),
        }
    }

    /// Opens the existing database. Only adding creates one: a command in the wrong folder must not.
    fn open(&self) -> Result<UserStore<AnyBackend>, Failure> {
        if let Some(path) = self.path_of_new()? {
            return Err(Failure::No(format!(
                "there are no gateways at {}; add one with `strowger gateway add`, change to the server's folder, or give its \
                 configuration with -c",
                path.display()
            )));
        }
        self.open_or_make()
    }

    fn open_or_make(&self) -> Result<UserStore<AnyBackend>, Failure> {
        if !self.config.store.shared_users.is_any() {
            return Ok(UserStore::connect(&self.config.shared_users())?.into());
        }
        Ok(UserStore::open(self.path()?)?.into())
    }

    /// Returns the path of the database to be created, if none exists.
    fn path_of_new(&self) -> Result<Option<PathBuf>, Failure> {
        let path = self.path()?;
        let is_new = self.config.store.shared_users.is_any() && !path.exists();
        Ok(is_new.then(|| absolute(&path)))
    }

    fn path(&self) -> Result<PathBuf, Failure> {
        match self.config.store_url() {
            StoreUrl::Sqlite(path) => Ok(path),
            StoreUrl::Memory => Err(Failure::Usage(
                "store.url is memory:, so gateways cannot be stored; write url = \"sqlite:data/strowger.db\", or leave it out"
                    .to_owned(),
            )),
        }
    }

    fn add(&self, member: &Member, new: &NewGateway<'_>) -> Result<(), Failure> {
        // Parsed like the targets of a route.
        let target = member.uri.parse::<Target>().map_err(Failure::Usage)?;
        let new_at = self.path_of_new()?;
        self.open_or_make()?.add_gateway(&member.set, new)?;
        if let Some(path) = new_at {
            eprintln!("strowger: note: this is the first row of a new database, {}", path.display());
        }
        self.done("added", member)?;
        if let Some(why) = self.config.unreachable(&target) {
            eprintln!("strowger: warning: {}", why.message_alone());
        }
        self.note_unused(&member.set);
        Ok(())
    }

    fn change(&self, what: &str, member: &Member, change: &GatewayChange<'_>) -> Result<(), Failure> {
        self.open()?.change_gateway(&member.set, &member.uri, change)?;
        self.done(what, member)
    }

    fn done(&self, what: &str, Member { set, uri }: &Member) -> Result<(), Failure> {
        if self.json {
            return Ok(print_json(&json!({ "result": what, "set": set, "uri": uri }))?);
        }
        Ok(print_line(&format!("{set}: {uri} {what}"))?)
    }

    fn list(&self, set: Option<&str>) -> Result<(), Failure> {
        let gateways = self.open()?.list_gateways(set)?;
        let outages = self.outages();
        let outage_of = |gateway: &GatewayEntry| {
            let is_it = |outage: &&Outage| {
                outage.set.as_ref() == Some(&gateway.set) && outage.uri.as_ref() == Some(&gateway.uri)
            };
            outages.iter().flatten().find(is_it)
        };
        if self.json {
            let row = |gateway: &GatewayEntry| {
                let mut row = in_json(gateway);
                if outages.is_some() {
                    row["outage"] = json!(outage_of(gateway));
                }
                row
            };
            let rows: Vec<_> = gateways.iter().map(row).collect();
            return Ok(print_json(&json!({ "gateways": rows }))?);
        }
        let row = |gateway: GatewayEntry| {
            let state = match outage_of(&gateway) {
                _ if !gateway.enabled => "disabled".to_owned(),
                Some(outage) => format!("no answer ({}) {}", outage.cause, clock(outage.since_s)),
                None => "enabled".to_owned(),
            };
            [
                gateway.set,
                gateway.uri,
                gateway.priority.to_string(),
                gateway.weight.to_string(),
                gateway.capacity.map_or_else(|| "-".to_owned(), |calls| calls.to_string()),
                state,
                gateway.description,
            ]
        };
        let rows: Vec<_> = gateways.into_iter().map(row).collect();
        Ok(print_table(["SET", "URI", "PRIORITY", "WEIGHT", "CAPACITY", "STATE", "NOTE"], &rows)?)
    }

    /// Returns the outages reported by the server on this database; `None` if none runs.
    fn outages(&self) -> Option<Vec<Outage>> {
        match socket::ask(&self.config.control_socket(), &Request::Status) {
            Ok(Response::Status(status)) => Some(status.outages),
            _ => None,
        }
    }

    /// Prints a note if no route names the set, which may be a typing error.
    fn note_unused(&self, set: &str) {
        if !gateways::sets(&self.config).any(|name| name == set) {
            eprintln!("strowger: note: no route uses this set; add one with targets = [\"set:{set}\"]");
        }
    }
}

fn in_json(gateway: &GatewayEntry) -> serde_json::Value {
    json!({
        "set": gateway.set,
        "uri": gateway.uri,
        "priority": gateway.priority,
        "weight": gateway.weight,
        "capacity": gateway.capacity,
        "enabled": gateway.enabled,
        "note": gateway.description,
        "created_s": gateway.created_s,
    })
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
