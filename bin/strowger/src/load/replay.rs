//! `strowger load replay`: replays recorded traffic.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use strowger_traffic::driver::ConnectionLifetime;
use strowger_traffic::engine::{PlanError, entropy};
use strowger_traffic::options::{CalleeLocation, Target};
use strowger_traffic::replay::{ReplayOptions, ReplaySides};

use super::arguments::{ConnectArgument, SecureArguments, above_zero, at_least_one, target, time, within_ports};
use super::monitor::MonitorArguments;
use super::output::OutputArguments;
use super::run::measure;
use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct ReplayArguments {
    /// The capture: pcap, pcapng, or output of strowger ctl trace --json --messages
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Destination of calls: udp:HOST:PORT, or the same with tcp, tls, ws or wss [default: with --side both, directly to
    /// the callees in this process]
    #[arg(long, value_name = "TARGET", value_parser = target)]
    to: Option<Target>,
    /// Sides of the record to play
    #[arg(long, value_enum, default_value_t = SideArgument::Caller)]
    side: SideArgument,
    /// How calls reach the callees that are played [default: registered if --to is given, otherwise local]
    #[arg(long, value_enum)]
    callee: Option<ReachArgument>,
    /// Speed relative to the record
    #[arg(long, default_value_t = 1.0, value_name = "N", value_parser = above_zero)]
    speed: f64,
    /// Domain of all users, replacing those of the record
    #[arg(long)]
    domain: Option<String>,
    /// New user names in order of appearance: % is the number, %6 a number of six digits [default: as recorded]
    #[arg(long, value_name = "PATTERN")]
    user_pattern: Option<String>,
    /// Password of the users; % is the number
    #[arg(long, default_value = "secret", value_name = "PATTERN")]
    password: String,
    /// Table of their passwords: name,password per line
    #[arg(long, value_name = "FILE")]
    users_file: Option<PathBuf>,
    /// Only calls that this address began in the record; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    caller: Vec<IpAddr>,
    /// Source address; may be repeated [default: the one of the route to the target]
    #[arg(long, value_name = "ADDRESS")]
    from: Vec<IpAddr>,
    /// Number of callers' ports per thread
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = at_least_one)]
    sockets: usize,
    /// Number of threads
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = at_least_one)]
    threads: usize,
    /// Use of connections, over TCP
    #[arg(long, value_enum, default_value_t = ConnectArgument::Persistent)]
    connect: ConnectArgument,
    /// Number of shared connections per thread
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = at_least_one)]
    connections: usize,
    /// Maximum number of concurrent calls; further ones are refused and counted
    #[arg(short = 'l', long, value_name = "N")]
    max_calls: Option<usize>,
    /// Maximum time for the last calls to end beyond their record [default: 75s]
    #[arg(long, value_parser = time, value_name = "TIME")]
    drain: Option<Duration>,
    /// Disables retransmissions over UDP
    #[arg(long)]
    no_retransmissions: bool,
    #[command(flatten)]
    secure: SecureArguments,
    /// Random seed [default: drawn, and always printed]
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    output: OutputArguments,
    #[command(flatten)]
    onlook: MonitorArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SideArgument {
    /// Callers; the user agents at the target answer
    Caller,
    /// Callers and callees, with the delays and responses of the record
    Both,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ReachArgument {
    /// Callees register at the target first
    Registered,
    /// Calls go directly to the callees
    #[value(alias = "here")]
    Local,
}

impl ReplayArguments {
    fn options(&self) -> Result<ReplayOptions, PlanError> {
        let seed = self.seed.unwrap_or_else(|| entropy() % 1_000_000);
        let mut options = ReplayOptions::new(self.file.clone(), self.to.clone(), seed);
        options.sides = if self.side == SideArgument::Both { ReplaySides::Both } else { ReplaySides::Caller };
        if let Some(reach) = self.callee {
            if options.sides == ReplaySides::Caller {
                return Err(PlanError("--callee needs --side both: otherwise no callees are played".to_owned()));
            }
            options.callee_location = match reach {
                ReachArgument::Registered => CalleeLocation::Registered,
                ReachArgument::Local => CalleeLocation::Local,
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
        (options.retransmits, options.secure) = (!self.no_retransmissions, self.secure.options());
        Ok(options)
    }

    pub(super) fn run(&self) -> Result<(), Failure> {
        let (plan, about) = self.options()?.plan()?;
        for (name, text) in about.declared.iter().filter(|(name, _)| name.starts_with("skipped ")) {
            eprintln!("strowger: capture: {name}: {text}");
        }
        measure(plan, &about, &self.output, &self.onlook)
    }
}
