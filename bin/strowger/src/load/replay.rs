//! `strowger load replay`: recorded traffic again.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use strowger_traffic::driver::ConnectionLifetime;
use strowger_traffic::engine::{PlanError, entropy};
use strowger_traffic::options::{CalleeLocation, Target};
use strowger_traffic::replay::{ReplayOptions, ReplaySides};

use super::arguments::{ConnectArgument, above_zero, at_least_one, target, time, within_ports};
use super::monitor::MonitorArguments;
use super::output::OutputArguments;
use super::run::measure;
use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct ReplayArguments {
    /// The capture: pcap, pcapng, or what strowger ctl trace --json --messages has written
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where calls go: udp:HOST:PORT or tcp:HOST:PORT [default: with --side both straight to the callees in this process]
    #[arg(long, value_name = "TARGET", value_parser = target)]
    to: Option<Target>,
    /// Which ends of the record are played
    #[arg(long, value_enum, default_value_t = SideArgument::Caller)]
    side: SideArgument,
    /// How calls reach the callees that are played [default: registered where --to is given, else here]
    #[arg(long, value_enum)]
    callee: Option<ReachArgument>,
    /// How many times faster than in the record
    #[arg(long, default_value_t = 1.0, value_name = "N", value_parser = above_zero)]
    speed: f64,
    /// The domain of all users, instead of those of the record
    #[arg(long)]
    domain: Option<String>,
    /// New names for the users, in the order of their appearance: % is the number, %6 one of six digits [default: as recorded]
    #[arg(long, value_name = "PATTERN")]
    user_pattern: Option<String>,
    /// Their password; % is the number
    #[arg(long, default_value = "secret", value_name = "PATTERN")]
    password: String,
    /// A table of their passwords: name,password in each line
    #[arg(long, value_name = "FILE")]
    users_file: Option<PathBuf>,
    /// Only the calls that this address began in the record; may be given several times
    #[arg(long, value_name = "ADDRESS")]
    caller: Vec<IpAddr>,
    /// Addresses to send from; may be given several times [default: the one that leads to the target]
    #[arg(long, value_name = "ADDRESS")]
    from: Vec<IpAddr>,
    /// Ports of the callers, on each thread
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = at_least_one)]
    sockets: usize,
    /// Threads
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = at_least_one)]
    threads: usize,
    /// How connections are used, over TCP
    #[arg(long, value_enum, default_value_t = ConnectArgument::Persistent)]
    connect: ConnectArgument,
    /// Shared connections, on each thread
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = at_least_one)]
    connections: usize,
    /// Calls at once at most; more are refused and counted
    #[arg(short = 'l', long, value_name = "N")]
    max_calls: Option<usize>,
    /// How long the last calls may take beyond their record [default: 75s]
    #[arg(long, value_parser = time, value_name = "TIME")]
    drain: Option<Duration>,
    /// Sends nothing again, over UDP
    #[arg(long)]
    no_retransmissions: bool,
    /// What randomness begins with [default: drawn, and always printed]
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    output: OutputArguments,
    #[command(flatten)]
    onlook: MonitorArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SideArgument {
    /// Who called; whoever is at the target answers
    Caller,
    /// And who was called, with the delays and answers of the record
    Both,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ReachArgument {
    /// They register at the target before
    Registered,
    /// Calls go straight to them
    Here,
}

impl ReplayArguments {
    fn options(&self) -> Result<ReplayOptions, PlanError> {
        let seed = self.seed.unwrap_or_else(|| entropy() % 1_000_000);
        let mut options = ReplayOptions::new(self.file.clone(), self.to, seed);
        options.sides = if self.side == SideArgument::Both { ReplaySides::Both } else { ReplaySides::Caller };
        if let Some(reach) = self.callee {
            if options.sides == ReplaySides::Caller {
                return Err(PlanError("--callee is about callees that are played: it needs --side both".to_owned()));
            }
            options.callee_location = match reach {
                ReachArgument::Registered => CalleeLocation::Registered,
                ReachArgument::Here => CalleeLocation::Local,
            };
        }
        within_ports(self.threads, self.sockets, &self.from)?;
        options.speed = self.speed;
        (options.domain, options.pattern) = (self.domain.clone(), self.user_pattern.clone());
        (options.password, options.users_file) = (self.password.clone(), self.users_file.clone());
        (options.callers, options.from) = (self.caller.clone(), self.from.clone());
        (options.sockets, options.threads) = (self.sockets, self.threads);
        (options.connection_lifetime, options.connections) = (ConnectionLifetime::from(self.connect), self.connections);
        (options.max_sessions, options.drain) = (self.max_calls, self.drain);
        options.retransmits = !self.no_retransmissions;
        Ok(options)
    }

    pub(super) fn run(&self) -> Result<(), Failure> {
        let (plan, about) = self.options()?.plan()?;
        for (name, text) in about.declared.iter().filter(|(name, _)| name.starts_with("skipped ")) {
            eprintln!("strowger: of the capture: {name}: {text}");
        }
        measure(plan, &about, &self.output, &self.onlook)
    }
}
