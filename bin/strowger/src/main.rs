//! Strowger: a SIP proxy, registrar and redirect server.

mod address;
mod admin;
mod audit;
mod backup;
mod balancing;
mod ban_file;
mod ban_keeper;
mod bans;
mod calls;
mod cdr;
mod check;
mod cli;
mod cluster;
mod command_files;
mod ctl;
mod database_failure;
mod durable_store;
mod exporters;
mod failure;
mod failures;
mod files;
mod former_names;
mod freed_memory;
mod gateway;
mod gateways;
mod http_certificate;
mod huge_pages;
mod import;
mod kamailio;
mod key;
mod load;
mod log;
mod members;
mod memory;
mod notify_server;
mod operations;
mod packet_times;
mod passed_calls;
mod plan;
mod plot;
mod probe;
mod rebalance;
mod reload;
mod resolver;
mod running_config;
mod security_log;
mod segmentation;
mod serve;
mod service_manager;
mod status;
mod store;
mod table;
mod target_names;
mod targets;
mod text;
mod timing;
mod tls;
mod token;
mod trace;
mod trace_client;
mod tune;
mod upgrade;
mod user;
mod users;
mod utc;
mod watch;
mod web_sockets;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command};
use failure::Failure;
use strowger_control::config::ConfigSource;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let Cli { config, member, command } = Cli::parse_from(load::with_sipp_options(std::env::args_os()));
    let wanted = ConfigSource { file: config.as_deref(), member: member.as_deref() };
    let outcome = match command {
        Command::Check(arguments) => check::run(wanted, &arguments),
        Command::User(arguments) => user::run(wanted, arguments),
        Command::Token(arguments) => token::run(wanted, &arguments),
        Command::Gateway(arguments) => gateway::run(wanted, arguments),
        Command::Import(arguments) => import::run(wanted, arguments),
        Command::Ctl(arguments) => ctl::run(wanted, &arguments),
        Command::Backup(arguments) => backup::backup(wanted, &arguments),
        Command::Restore(arguments) => backup::restore(wanted, &arguments),
        Command::Load(arguments) => load::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
        Command::Watch(arguments) => watch::run(wanted, &arguments),
        Command::Probe(arguments) => probe::run(&arguments),
        Command::Completions { shell } => command_files::print_completions(shell),
        Command::Man { folder } => command_files::write_pages(&folder),
        Command::Serve { take_over } => serve::run(wanted, take_over),
        Command::Upgrade(arguments) => upgrade::run(wanted, &arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has exited: `strowger user list | head`.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("strowger: {failure}");
            failure.exit_code()
        }
    }
}
