//! `strowger watch`: maintains a DNS zone that names the servers that are alive.

mod plan;
mod report;

use std::ops::ControlFlow;

use clap::Args;
use strowger_control::config::{Config, ConfigSource, Watch};
use strowger_watch::{Event, Plan, StopWhen, TsigKey, Zone};

use crate::failure::Failure;
use crate::{former_names, log};

#[derive(Debug, Args)]
pub(crate) struct WatchArguments {
    /// Exits once the state of all servers is known and the zone matches it
    #[arg(long)]
    once: bool,
    /// Prints one line of JSON per event instead of logging it
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(wanted: ConfigSource<'_>, arguments: &WatchArguments) -> Result<(), Failure> {
    let (config, file) = Config::load(wanted)?;
    let Some(watch) = &config.watch else {
        let missing = "the configuration has no [watch]; see docs/operating/dns-failover.md";
        return Err(Failure::Usage(missing.to_owned()));
    };
    let located = |key: &str, message: String| Failure::from(Config::located(file.as_deref(), key, message));
    let key = read_key(watch).map_err(|message| located("watch.key_file", message))?;
    let zone = Zone::new(watch.server.0, &watch.zone.0, &key, watch.timeout.0);
    let zone = zone.map_err(|message| located("watch.zone", message))?;
    log::start(&config.log);
    former_names::warnings(file.as_deref()).iter().for_each(|warning| tracing::warn!("{warning}"));
    keep(plan::of(watch), (&zone, watch), arguments)
}

fn read_key(watch: &Watch) -> Result<TsigKey, String> {
    let shown = watch.key_file.display();
    let text = std::fs::read_to_string(&watch.key_file)
        .map_err(|error| format!("{shown} cannot be read: {error}; use the same key as the name server"))?;
    TsigKey::parse(&text).map_err(|why| format!("{shown}: {why}"))
}

/// Maintains the zone until a signal or an error ends it.
fn keep(plan: Plan, (zone, watch): (&Zone, &Watch), arguments: &WatchArguments) -> Result<(), Failure> {
    let until = if arguments.once { StopWhen::Settled } else { StopWhen::Stopped };
    let mut failed = None;
    let mut is_last_kept = false;
    let tell = |plan: &Plan, event: Event| {
        let told = if arguments.json { report::print(plan, &event) } else { report::log(plan, watch, &event) };
        if let Err(error) = told {
            failed = Some(Failure::Output(error));
            return ControlFlow::Break(());
        }
        match event {
            Event::Unreachable if arguments.once => failed = Some(Failure::No(report::silence(watch))),
            Event::Refused { why } if arguments.once => failed = Some(Failure::No(why)),
            Event::LastKept { .. } => is_last_kept = true,
            _ => {}
        }
        if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let is_reached = strowger_watch::run(plan, zone, until, tell);
    let is_reached = is_reached.map_err(|error| Failure::No(format!("monitoring cannot start: {error}")))?;
    match failed {
        Some(failure) => Err(failure),
        None if !is_reached => Err(Failure::No("the watcher ended because of an internal error".to_owned())),
        None if is_last_kept => Err(Failure::No("some records have no live server; they stay in the zone".to_owned())),
        None => Ok(()),
    }
}
