//! `strowger gateway`: gateways for calls outside the server's domains.

use serde_json::json;
use strowger_administration::{Gateway, GatewayChange, NewGateway};
use strowger_control::config::{Config, ConfigSource};
use strowger_control::protocol::{Change, Outage, Request, Response};
use strowger_control::socket;

use crate::cli::gateway::{GatewayArguments, GatewayCommand, Member};
use crate::failure::Failure;
use crate::gateways;
use crate::notify_server::notify_server;
use crate::operations::GatewayOperations;
use crate::table::{print_json, print_line, print_table};
use crate::text::clock;

pub(crate) fn run(wanted: ConfigSource<'_>, arguments: GatewayArguments) -> Result<(), Failure> {
    let (config, _) = Config::load(wanted)?;
    let gateways = Gateways { config, json: arguments.json };
    let change = change(&arguments.command);
    gateways.execute(arguments.command)?;
    if let Some(change) = change {
        notify_server(&gateways.config, change);
    }
    Ok(())
}

/// Returns what a command changes, for the server's audit log.
fn change(command: &GatewayCommand) -> Option<Change> {
    let (action, Member { set, uri }) = match command {
        GatewayCommand::Add { member, .. } => ("gateway add", member),
        GatewayCommand::Change { member, .. } => ("gateway change", member),
        GatewayCommand::Rm(member) => ("gateway rm", member),
        GatewayCommand::Enable(member) => ("gateway enable", member),
        GatewayCommand::Disable(member) => ("gateway disable", member),
        GatewayCommand::List { .. } => return None,
    };
    Some(Change::new(action, format!("{set} {uri}")))
}

struct Gateways {
    config: Config,
    json: bool,
}

impl Gateways {
    fn execute(&self, command: GatewayCommand) -> Result<(), Failure> {
        match command {
            GatewayCommand::Add { member: Member { set, uri }, priority, weight, capacity, note } => {
                self.add(&NewGateway { set, uri, priority, weight, capacity, note })
            }
            GatewayCommand::Change { member, priority, weight, capacity, note } => {
                let capacity = capacity.map(|capacity| capacity.0);
                let change = GatewayChange { priority, weight, capacity, note, enabled: None };
                self.change("changed", &member, &change)
            }
            GatewayCommand::Rm(member) => {
                self.operations().remove(&member.set, &member.uri)?;
                self.done("removed", &member.set, &member.uri)
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

    const fn operations(&self) -> GatewayOperations<'_> {
        GatewayOperations::new(&self.config)
    }

    fn add(&self, new: &NewGateway) -> Result<(), Failure> {
        let added = self.operations().add(new)?;
        if let Some(path) = added.new_database {
            eprintln!("strowger: note: this is the first row of a new database, {}", path.display());
        }
        self.done("added", &new.set, &new.uri)?;
        if let Some(why) = added.warning {
            eprintln!("strowger: warning: {why}");
        }
        self.note_unused(&new.set);
        Ok(())
    }

    fn change(&self, what: &str, Member { set, uri }: &Member, change: &GatewayChange) -> Result<(), Failure> {
        self.operations().change(set, uri, change)?;
        self.done(what, set, uri)
    }

    fn done(&self, what: &str, set: &str, uri: &str) -> Result<(), Failure> {
        if self.json {
            return Ok(print_json(&json!({ "result": what, "set": set, "uri": uri }))?);
        }
        Ok(print_line(&format!("{set}: {uri} {what}"))?)
    }

    fn list(&self, set: Option<&str>) -> Result<(), Failure> {
        let outages = self.outages();
        let found = self.operations().list(set, outages.as_deref().unwrap_or_default())?;
        if self.json {
            let mut value = json!(found);
            if outages.is_none() {
                // Nobody knows.
                let rows = value["gateways"].as_array_mut().into_iter().flatten();
                rows.filter_map(|row| row.as_object_mut()).for_each(|row| drop(row.remove("outage")));
            }
            return Ok(print_json(&value)?);
        }
        let row = |gateway: Gateway| {
            let state = match &gateway.outage {
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
                gateway.note,
            ]
        };
        let rows: Vec<_> = found.gateways.into_iter().map(row).collect();
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
