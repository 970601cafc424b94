//! Strowger: a SIP proxy, registrar and redirect server.

mod address;
mod backup;
mod balancing;
mod calls;
mod cdr;
mod check;
mod cli;
mod cluster;
mod ctl;
mod database_failure;
mod durable_store;
mod failure;
mod former_names;
mod gateway;
mod gateways;
mod huge_pages;
mod import;
mod kamailio;
mod key;
mod load;
mod log;
mod members;
mod memory;
mod notify_server;
mod plan;
mod rebalance;
mod reload;
mod resolver;
mod segmentation;
mod serve;
mod status;
mod store;
mod table;
mod target_names;
mod targets;
mod text;
mod trace;
mod user;
mod users;
mod utc;
mod watch;

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
        Command::Gateway(arguments) => gateway::run(wanted, arguments),
        Command::Import(arguments) => import::run(wanted, arguments),
        Command::Ctl(arguments) => ctl::run(wanted, &arguments),
        Command::Backup(arguments) => backup::backup(wanted, &arguments),
        Command::Restore(arguments) => backup::restore(wanted, &arguments),
        Command::Load(arguments) => load::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Watch(arguments) => watch::run(wanted, &arguments),
        Command::Serve => serve::run(wanted),
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
