//! The command line: all commands, and the arguments of those that have no module of their own.

pub(crate) mod ctl;
pub(crate) mod gateway;
pub(crate) mod import;
pub(crate) mod token;
pub(crate) mod user;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use strowger_control::config::Span;

use self::ctl::CtlArguments;
use self::gateway::GatewayArguments;
use self::import::ImportArguments;
use self::token::TokenArguments;
use self::user::UserArguments;
use crate::load::LoadArguments;
use crate::plan::PlanArguments;
use crate::probe::ProbeArguments;
use crate::tune::TuneArguments;
use crate::watch::WatchArguments;

/// A SIP proxy, registrar and redirect server.
#[derive(Debug, Parser)]
#[command(
    name = "strowger",
    version,
    after_help = "Examples:\n  strowger serve\n  strowger user add alice\n  strowger ctl status\n\n\
                  Exit codes: 0 success, 1 the command ran and the answer is no, 2 invalid arguments or configuration."
)]
pub(crate) struct Cli {
    /// Configuration file [default: strowger.toml, else /etc/strowger/strowger.toml, else the default of every key]
    #[arg(short, long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// This server's name, if the configuration is for several [default: the host name]
    #[arg(long = "as", global = true, value_name = "NAME")]
    pub(crate) member: Option<String>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs the server in the foreground
    #[command(after_help = "Examples:\n  strowger serve\n  strowger serve -c /etc/strowger.toml\n\n\
                            SIGTERM and SIGINT let transactions end, at most 5 seconds, then end the server; a second \
                            one ends it at once. SIGHUP is `strowger ctl reload`.")]
    Serve {
        /// Takes over from the running server that starts this process
        #[arg(long, hide = true)]
        take_over: bool,
    },
    /// Replaces the program of a running server without losing a message
    #[command(after_help = "Examples:\n  strowger upgrade\n  strowger upgrade --binary /usr/local/bin/strowger-2\n\n\
                            The server starts the program, and hands over sockets, registrations and everything else when it is \
                            ready. If it does not become ready, the server goes on as before, and the reason is printed. Going \
                            back to the version before works in the same way.")]
    Upgrade(UpgradeArguments),
    /// Validates the configuration and prints its effect
    #[command(after_help = "Examples:\n  strowger check\n  strowger check -c new.toml --json\n  \
                            strowger check --schema > strowger.schema.json")]
    Check(CheckArguments),
    /// Adds, changes and lists users
    #[command(after_help = "Examples:\n  strowger user add alice@example.com\n  strowger user list --json\n\n\
                            A running server uses the change when the command ends.")]
    User(UserArguments),
    /// Adds, lists and removes tokens, which let people and programs use the page and the API
    #[command(after_help = "Examples:\n  strowger token add office --role operator\n  strowger token list\n  \
                            strowger token rm office\n\n\
                            viewer reads the state; operator also drains targets, removes registrations, traces calls and \
                            reloads the configuration; administrator also changes users, gateways and targets.")]
    Token(TokenArguments),
    /// Adds, changes and lists gateways, where calls go that are not for local users
    #[command(
        after_help = "Examples:\n  strowger gateway add pstn sip:192.0.2.1:5060\n  strowger gateway list --json\n\n\
                            A route or a balancer that has targets = [\"set:pstn\"] uses the enabled gateways of the set \
                            pstn. A running server uses the change when the command ends."
    )]
    Gateway(GatewayArguments),
    /// Imports users, gateways and registrations from the database of another server
    #[command(
        after_help = "Examples:\n  strowger import kamailio mysql://kamailio:SECRET@192.0.2.10/kamailio --dry-run\n  \
                            strowger import kamailio sqlite:/etc/kamailio/kamailio.db --only users,gateways\n  \
                            strowger import opensips @opensips.url --json\n\n\
                            The other database is only read. Existing entries stay unchanged without --replace. Registrations \
                            can only be imported while this server is stopped."
    )]
    Import(ImportArguments),
    /// Writes users, gateways, registrations and the server's key into one file
    #[command(after_help = "Examples:\n  strowger backup /var/backups/strowger.backup\n  \
                            strowger backup --overwrite nightly.backup\n  \
                            strowger backup -c /etc/strowger.toml new.backup --json\n\n\
                            A running server writes a consistent backup itself during operation; the file then belongs to \
                            the server's user. Keep the file secret: it contains the password hashes and the key that \
                            signs the server's messages. It does not contain the configuration.")]
    Backup(BackupArguments),
    /// Restores a backup in place of the existing data; the server must be stopped
    #[command(after_help = "Examples:\n  strowger restore /var/backups/strowger.backup\n  \
                            strowger restore --force nightly.backup\n  \
                            strowger restore -c /etc/strowger.toml nightly.backup\n\n\
                            Nothing is deleted: existing files are moved aside, and their new paths are printed.")]
    Restore(RestoreArguments),
    /// Queries and controls a running server over its control socket
    #[command(
        after_help = "Examples:\n  strowger ctl status\n  strowger ctl registrations --user alice@example.com\n  \
                            strowger ctl calls\n  strowger ctl targets\n  strowger ctl trace --user alice"
    )]
    Ctl(CtlArguments),
    /// Monitors servers, and removes dead ones from DNS until they recover
    #[command(
        after_help = "Examples:\n  strowger watch -c /etc/strowger/strowger.toml\n  strowger watch --once\n  strowger watch --json\n\n\
                            [watch] in the configuration defines the servers, the zone and the probes. The zone is changed by \
                            dynamic update (RFC 2136), signed (TSIG). The last server always stays. SIGTERM ends it; the zone stays as it is."
    )]
    Watch(WatchArguments),
    /// Generates and answers calls to measure servers
    #[command(after_help = "Examples:\n  strowger load run --to udp:127.0.0.1:5060 --rate 1000 --calls 10000\n  \
                            strowger load answer --listen udp:127.0.0.1:5070")]
    Load(Box<LoadArguments>),
    /// Measures where the time of packets goes in any server on this machine, without changing it
    #[command(
        after_help = "Examples:\n  strowger probe --port 5060                        whoever serves this port, for ten seconds\n  \
                            strowger probe --pid $(pgrep -o kamailio) --duration 1m\n  \
                            strowger probe --port 5060 --html times.html      tables and plots as a page\n  \
                            strowger probe --port 5060 --log 1000.csv         a line for each packet, for plan fit\n  \
                            strowger probe --port 53 --protocol udp --json -  other protocols too\n\n\
                            Times are measured with eBPF, which needs root (or CAP_BPF and CAP_PERFMON). Without it, /proc gives the queue, \
                            drops and processor time. docs/operating/probe.md says how to read the tables and what to do."
    )]
    Probe(Box<ProbeArguments>),
    /// Plans capacity: number of servers, waiting times, losses and availability
    #[command(
        after_help = "Examples:\n  strowger plan size --subscribers 2M              how many servers for two million users\n  \
                            strowger plan mg1 --rate 4800 --service 181.185us --scv 0.022\n  \
                            strowger plan availability --first 3 --clusters 3 --members 3 --node 99%\n\n\
                            Numbers have units: 181us, 300ms, 1h; rates are per second, or 10k/h; shares are 99.9% or 0.999; counts \
                            2M. Nearly every number may be a sweep, FROM..TO/STEP or a list. --explain prints the formulas with \
                            their numbers and the papers they come from."
    )]
    Plan(Box<PlanArguments>),
    /// Proposes settings of the host's scheduler, sockets and limits for a SIP server; applies and undoes them
    #[command(
        after_help = "Examples:\n  strowger tune                                     what differs, why, and the expected gain\n  \
                            strowger tune --for kamailio --rate 2000          for a Kamailio with 2,000 calls/s\n  \
                            strowger tune --pid 4711 --apply nice,rmem-max    changes these two, until the next start\n  \
                            strowger tune --undo                              restores the former values\n  \
                            strowger tune --write sysctl                      writes a file that lasts\n  \
                            strowger tune --explain slice\n\n\
                            Without --apply, --undo or --write it changes nothing."
    )]
    Tune(Box<TuneArguments>),
    /// Prints the completions of commands for a shell
    #[command(
        after_help = "Examples:\n  strowger completions bash > ~/.local/share/bash-completion/completions/strowger\n  \
                            strowger completions zsh > ~/.zfunc/_strowger\n  \
                            strowger completions fish > ~/.config/fish/completions/strowger.fish"
    )]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Writes a manual page for each command
    #[command(after_help = "Example:\n  strowger man /usr/local/share/man/man1")]
    Man {
        /// The folder for the pages; it is created if necessary
        folder: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct UpgradeArguments {
    /// The program [default: the file of the running one, which a package may have replaced]
    #[arg(long, value_name = "FILE")]
    pub(crate) binary: Option<PathBuf>,
    /// Closes connections, so that all are new ones; phones connect and register again
    #[arg(long)]
    pub(crate) close_connections: bool,
    /// How long the new process may take to become ready, and, with --close-connections, an earlier one to end if there are
    /// too many; at most 100s [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = wait_for_upgrade)]
    pub(crate) wait: Option<Span>,
    /// The server's control socket [default: as configured]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Maximum time for the new process to become ready. Clients wait a little longer.
const MAX_UPGRADE_WAIT: Duration = Duration::from_secs(100);

fn wait_for_upgrade(text: &str) -> Result<Span, String> {
    let wait: Span = text.parse()?;
    if wait.0 > MAX_UPGRADE_WAIT {
        return Err(format!("at most {} s are possible", MAX_UPGRADE_WAIT.as_secs()));
    }
    Ok(wait)
}

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Only prints the JSON schema of the configuration
    #[arg(long, conflicts_with = "json")]
    pub(crate) schema: bool,
    /// Also connects to the configured engine and databases, and creates missing tables like the server does
    #[arg(long)]
    pub(crate) connect: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BackupArguments {
    /// The file to write
    pub(crate) file: PathBuf,
    /// Replaces an existing file once the new one is complete
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArguments {
    /// The backup, or a copy of a database
    pub(crate) file: PathBuf,
    /// Restores even if a database exists, which is moved aside
    #[arg(long)]
    pub(crate) force: bool,
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn command_line_is_valid() {
        super::Cli::command().debug_assert();
    }
}
