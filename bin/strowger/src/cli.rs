//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use strowger_administration::Role;
use strowger_control::config::Span;
use strowger_kamailio::Table;
use strowger_store::MAX_CAPACITY;

use crate::load::LoadArguments;
use crate::plan::PlanArguments;
use crate::probe::ProbeArguments;
use crate::timing::server::ServerTimingArguments;
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
    Serve,
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
pub(crate) struct ImportArguments {
    /// Prints JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: ImportCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    /// Imports the tables subscriber, dispatcher and location of Kamailio
    Kamailio(ImportFrom),
    /// Imports the tables subscriber, dispatcher and location of OpenSIPS
    Opensips(ImportFrom),
    /// Imports users, aliases and gateways from a file of another Strowger server, for example to begin sharing one
    /// database
    #[command(after_help = "Example:\n  strowger import strowger data/strowger.db\n\nExisting entries stay unchanged.")]
    Strowger {
        /// The file, such as data/strowger.db
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ImportFrom {
    /// The database: sqlite:PATH, postgresql:// or mysql://USER:PASSWORD@HOST:PORT/DATABASE; @FILE reads the URL from
    /// a file, because other users of this machine can see arguments
    pub(crate) url: String,
    /// What to import [default: all]
    #[arg(long, value_delimiter = ',', value_name = "WHAT")]
    pub(crate) only: Vec<ImportPart>,
    /// Prints what would be done, without changes
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Overwrites existing entries
    #[arg(long)]
    pub(crate) replace: bool,
    /// Domain of rows without one [default: the first of server.domains]
    #[arg(long)]
    pub(crate) domain: Option<String>,
    /// Realm of the password hashes [default: auth.realm, otherwise each user's domain]
    #[arg(long)]
    pub(crate) realm: Option<String>,
    /// Prefix of a dispatcher set's number in its name
    #[arg(long, value_name = "PREFIX", default_value = "dispatcher-")]
    pub(crate) set_prefix: String,
    /// Reads tables of unknown versions too
    #[arg(long)]
    pub(crate) any_version: bool,
    /// Timeout for the database
    #[arg(long, alias = "patience", value_name = "TIME", default_value = "5s")]
    pub(crate) timeout: Span,
}

/// What can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportPart {
    /// Users, from the table subscriber.
    Users,
    /// Gateways, from the table dispatcher.
    Gateways,
    /// Registrations, from the table location.
    Registrations,
}

impl ImportPart {
    pub(crate) const fn table(self) -> Table {
        match self {
            Self::Users => Table::Subscriber,
            Self::Gateways => Table::Dispatcher,
            Self::Registrations => Table::Location,
        }
    }
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

#[derive(Debug, Args)]
pub(crate) struct UserArguments {
    /// Prints JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: UserCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Adds a user
    #[command(after_help = "Examples:\n  strowger user add alice@example.com\n  \
                            pass show alice | strowger user add alice@example.com")]
    Add(WithPassword),
    /// Changes a user's password
    #[command(after_help = "Example:\n  strowger user passwd alice@example.com")]
    Passwd(WithPassword),
    /// Removes a user and the aliases that lead to it
    #[command(after_help = "Example:\n  strowger user rm alice@example.com")]
    Rm(UserArgument),
    /// Allows a disabled user to register and call again
    #[command(after_help = "Example:\n  strowger user enable alice@example.com")]
    Enable(UserArgument),
    /// Prevents a user from registering and calling; keeps the password
    #[command(after_help = "Example:\n  strowger user disable alice@example.com")]
    Disable(UserArgument),
    /// Lists all users
    #[command(after_help = "Example:\n  strowger user list --json")]
    List,
    /// Adds the users of a CSV table, all or none
    #[command(after_help = "Example:\n  strowger user import users.csv\n\n\
                            The first line names the columns: aor,password or aor,ha1_md5[,ha1_sha256[,ha1_sha512_256]].")]
    Import {
        /// The CSV file; - reads standard input
        file: PathBuf,
        /// Realm of the password hashes [default: auth.realm, otherwise the only domain of server.domains]
        #[arg(long)]
        realm: Option<String>,
    },
    /// Manages further addresses of a user
    #[command(after_help = "Examples:\n  strowger user alias add 100@example.com alice@example.com\n  \
                            strowger user alias list")]
    Alias {
        #[command(subcommand)]
        command: AliasCommand,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum AliasCommand {
    /// Adds an alias that leads to a user
    #[command(after_help = "Example:\n  strowger user alias add 100@example.com alice@example.com")]
    Add {
        /// The alias address
        alias: String,
        /// The user
        user: String,
    },
    /// Removes an alias
    #[command(after_help = "Example:\n  strowger user alias rm 100@example.com")]
    Rm {
        /// The alias address
        alias: String,
    },
    /// Lists all aliases
    #[command(after_help = "Example:\n  strowger user alias list --json")]
    List,
}

#[derive(Debug, Args)]
pub(crate) struct WithPassword {
    /// The user's address, such as alice@example.com
    pub(crate) user: String,
    /// The password; visible to other users of this machine while the command runs [default: prompts, or reads one
    /// line]
    #[arg(long, value_name = "SECRET")]
    pub(crate) password: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct UserArgument {
    /// The user's address, such as alice@example.com
    pub(crate) user: String,
}

#[derive(Debug, Args)]
pub(crate) struct TokenArguments {
    /// Prints JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Makes a token and prints it; it is not shown again
    #[command(after_help = "Examples:\n  strowger token add office --role administrator\n  \
                            strowger token add nagios --role viewer --expires 90d")]
    Add {
        /// Name of the person or program, for the audit log
        name: String,
        /// What it allows: viewer, operator or administrator
        #[arg(long, default_value_t = Role::Viewer)]
        role: Role,
        /// Time after which it is valid no longer, such as 90d [default: never]
        #[arg(long, value_name = "TIME")]
        expires: Option<Span>,
    },
    /// Lists the names and roles of all tokens
    #[command(after_help = "Example:\n  strowger token list --json")]
    List,
    /// Removes a token; a running server refuses it at once
    #[command(after_help = "Example:\n  strowger token rm office")]
    Rm {
        /// The token's name
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct GatewayArguments {
    /// Prints JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: GatewayCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GatewayCommand {
    /// Adds a gateway to a set
    #[command(after_help = "Examples:\n  strowger gateway add pstn sip:192.0.2.1:5060\n  \
                            strowger gateway add pstn \"sip:gw.carrier.example;transport=tcp\" --priority 1 --weight 3 \
                            --capacity 30 --note \"second line\"")]
    Add {
        #[command(flatten)]
        member: Member,
        /// Priority; lower ones are tried first
        #[arg(long, default_value_t = 0)]
        priority: u16,
        /// Weight among gateways of the same priority
        #[arg(long, default_value_t = 1)]
        weight: u16,
        /// Maximum number of simultaneous calls, if a balancer uses the set [default: no limit]
        #[arg(long, value_name = "CALLS", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CAPACITY)))]
        capacity: Option<u32>,
        /// A note for operators
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        note: String,
    },
    /// Changes the given properties of a gateway
    #[command(after_help = "Examples:\n  strowger gateway change pstn sip:192.0.2.1:5060 --weight 3\n  \
                            strowger gateway change pstn sip:192.0.2.1:5060 --capacity none")]
    Change {
        #[command(flatten)]
        member: Member,
        /// Priority; lower ones are tried first
        #[arg(long)]
        priority: Option<u16>,
        /// Weight among gateways of the same priority
        #[arg(long)]
        weight: Option<u16>,
        /// Maximum number of simultaneous calls, or none
        #[arg(long, value_name = "CALLS")]
        capacity: Option<Capacity>,
        /// A note for operators
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
    },
    /// Removes a gateway from a set
    #[command(after_help = "Example:\n  strowger gateway rm pstn sip:192.0.2.1:5060")]
    Rm(Member),
    /// Resumes sending calls to a gateway
    #[command(after_help = "Example:\n  strowger gateway enable pstn sip:192.0.2.1:5060")]
    Enable(Member),
    /// Stops sending new calls to a gateway; existing calls continue
    #[command(after_help = "Example:\n  strowger gateway disable pstn sip:192.0.2.1:5060")]
    Disable(Member),
    /// Lists the gateways of one set or of all sets
    #[command(after_help = "Examples:\n  strowger gateway list\n  strowger gateway list pstn --json")]
    List {
        /// Only this set
        set: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Member {
    /// The set, such as pstn
    pub(crate) set: String,
    /// The gateway's SIP URI, such as sip:192.0.2.1:5060
    pub(crate) uri: String,
}

/// A number of calls, or no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capacity(pub(crate) Option<u32>);

impl FromStr for Capacity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let calls = text.parse().ok().filter(|calls| (1..=MAX_CAPACITY).contains(calls));
        calls.map(|calls| Self(Some(calls))).ok_or_else(|| format!("write 1 to {MAX_CAPACITY} calls, or none"))
    }
}

#[derive(Debug, Args)]
pub(crate) struct CtlArguments {
    /// Prints JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The server's control socket [default: as configured]
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: CtlCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CtlCommand {
    /// Shows the server's status
    #[command(after_help = "Example:\n  strowger ctl status --json")]
    Status,
    /// Lists the servers that share registrations with this one, and the state of sharing
    #[command(after_help = "Example:\n  strowger ctl members --json")]
    Members,
    /// Lists registered contacts
    #[command(after_help = "Examples:\n  strowger ctl registrations\n  \
                            strowger ctl registrations --user alice@example.com --json")]
    Registrations {
        /// Only this address
        #[arg(long)]
        user: Option<String>,
        /// Maximum number of contacts, up to 10000
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
    },
    /// Removes all registrations of a user, or one contact
    #[command(after_help = "Examples:\n  strowger ctl unregister alice@example.com sip:alice@192.0.2.7:5062\n  \
                            strowger ctl unregister alice@example.com --all\n\n\
                            Removes contacts of lost phones that count towards registrar.max_contacts; \
                            `strowger ctl registrations --user` lists them. A working phone registers again when its \
                            registration is due; `strowger user disable` prevents that.")]
    #[command(override_usage = "strowger ctl unregister [OPTIONS] <USER> <CONTACT|--all>")]
    #[command(group = clap::ArgGroup::new("which").required(true))]
    Unregister {
        /// The user's address
        user: String,
        /// The contact, as listed
        #[arg(group = "which")]
        contact: Option<String>,
        /// All contacts of the user
        #[arg(long, group = "which")]
        all: bool,
    },
    /// Lists the calls in progress, the oldest first
    #[command(after_help = "Examples:\n  strowger ctl calls\n  strowger ctl calls --json")]
    Calls {
        /// Maximum number of calls, up to 10000
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
    },
    /// Ends a call: both parties get a BYE, or CANCEL ends what still rings
    #[command(after_help = "Example:\n  strowger ctl hangup f81d4fae@192.0.2.1\n\n\
                            `strowger ctl calls` shows the Call-IDs. A party that does not accept its BYE is \
                            named in the log. The call's record has the reason \"ended by operator\".")]
    Hangup {
        /// Call-ID of the call
        call_id: String,
    },
    /// Shows messages as they pass, as a ladder with a column for each party
    #[command(after_help = "Examples:\n  strowger ctl trace --user alice\n  \
                            strowger ctl trace --call-id f81d4fae@192.0.2.1 --messages\n  \
                            strowger ctl trace --ip 192.0.2.1 --for 5m --json\n  \
                            strowger ctl trace --user alice --pcap - | wireshark -k -i -\n\n\
                            A call found by user or address is traced on both sides. Credentials and \
                            media keys are masked. Ctrl-C ends it.")]
    Trace(TraceArguments),
    /// Shows where the time of packets goes: waiting in sockets, in the server, on the way out
    #[command(after_help = "Examples:\n  strowger ctl timing\n  strowger ctl timing --watch\n  \
                            strowger ctl timing --duration 1m --html times.html\n  \
                            strowger ctl timing --since-start --json\n\n\
                            Rows are types of received messages; K_snd and other parts of sending belong to the message \
                            that caused them. `strowger probe` measures other programs. The server measures unless \
                            server.timing is false.")]
    Timing(ServerTimingArguments),
    /// Reloads the server's configuration, users, gateways and dispatcher lists
    #[command(
        after_help = "Examples:\n  strowger ctl reload\n  strowger ctl reload --dry-run\n  strowger ctl reload --all\n\n\
                            Prints each change. The whole file is applied or nothing. Calls and the counters of targets are kept; changes by `strowger ctl targets add | rm` to \
                            balancers without gateways in the database are discarded."
    )]
    Reload {
        /// Applies to all servers of the configuration on this machine, cluster members before the first stage
        #[arg(long)]
        all: bool,
        /// Shows what would change, or why nothing could, without a change
        #[arg(long)]
        dry_run: bool,
    },
    /// Shows users, calls and load of each second-stage cluster, and moves users between clusters
    #[command(after_help = "Examples:\n  strowger ctl rebalance --as s1\n  strowger ctl rebalance --as s1 --even\n  \
                            strowger ctl rebalance --as s1 a=120 b=80 --write\n  strowger ctl rebalance --as s1 c=0 --write\n\n\
                            Only a first-stage server knows the load of all users, so the command contacts one of them. With --write \
                            the weights are written into the configuration, with the previous ones as `previous_weight`, and all servers of \
                            it that run on this machine reload it; then copy it to the other machines, and run `strowger ctl reload \
                            --all` there. Moved users are looked up in their previous cluster until they register again.")]
    Rebalance(RebalanceArguments),
    /// Lists the targets of balancers, or adds and removes them
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Examples:\n  strowger ctl targets\n  strowger ctl targets pool --json\n  \
                            strowger ctl targets add pool sip:192.0.2.3\n  strowger ctl targets rm pool/sip:192.0.2.3"
    )]
    Targets {
        /// Only the targets of this balancer
        set: Option<String>,
        #[command(subcommand)]
        command: Option<TargetsCommand>,
    },
    /// Stops sending new calls to a target and shows how many it has left; these continue
    #[command(after_help = "Examples:\n  strowger ctl drain sip:192.0.2.1\n  \
                            strowger ctl drain pool/sip:192.0.2.1 --wait --for 30m\n\n\
                            Draining lasts until `strowger ctl undrain` or a restart; a reload does not end it. For a \
                            balancer with gateways in the database, `strowger gateway disable` is permanent. With --wait the \
                            exit code is 0 once the target is empty, and 1 if --for expires first.")]
    Drain {
        /// The target: its URI, with or without sip:, its id, or SET/URI if several balancers have the URI
        target: String,
        /// Waits until it has no call left, and shows the remaining number
        #[arg(long)]
        wait: bool,
        /// Maximum time to wait, such as 30m
        #[arg(long = "for", value_name = "TIME", requires = "wait")]
        time: Option<Span>,
    },
    /// Lists the addresses that are not served, or adds and removes them
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Examples:\n  strowger ctl ban\n  strowger ctl ban add 192.0.2.7 --for 1h\n  strowger ctl ban rm 192.0.2.7\n\n\
                            Addresses are also banned after failed authentications ([ban] in the configuration). Bans \
                            outlast a restart."
    )]
    Ban {
        #[command(subcommand)]
        command: Option<BanCommand>,
    },
    /// Resumes sending new calls to a drained target, few at first
    #[command(after_help = "Example:\n  strowger ctl undrain sip:192.0.2.1")]
    Undrain {
        /// The target: its URI, with or without sip:, its id, or SET/URI if several balancers have the URI
        target: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RebalanceArguments {
    /// Clusters with their new weights; 0 moves all users away
    #[arg(value_name = "CLUSTER=WEIGHT", value_parser = cluster_weight)]
    pub(crate) weights: Vec<(String, u16)>,
    /// Chooses the weights so that each member has the same load, based on recent load
    #[arg(long, conflicts_with = "weights")]
    pub(crate) even: bool,
    /// Writes the weights into the configuration, and reloads the servers on this machine
    #[arg(long)]
    pub(crate) write: bool,
    /// Proceeds although users moved last may not have registered again; calls to them fail until they do
    #[arg(long, requires = "write")]
    pub(crate) force: bool,
}

fn cluster_weight(text: &str) -> Result<(String, u16), String> {
    let (name, weight) = text.split_once('=').ok_or("write it as CLUSTER=WEIGHT, such as a=120")?;
    let weight = weight.parse().map_err(|_| format!("{weight:?} is not a weight; write a number from 0 to 65535"))?;
    Ok((name.to_owned(), weight))
}

#[derive(Debug, Subcommand)]
pub(crate) enum BanCommand {
    /// Bans an address, or the /64 of an IPv6 address
    #[command(
        after_help = "Examples:\n  strowger ctl ban add 192.0.2.7\n  strowger ctl ban add 2001:db8::7 --for 1d\n\n\
                            Its datagrams are dropped and its connections closed, also if it belongs to a trunk, a member \
                            or a registered phone."
    )]
    Add {
        /// The address
        address: IpAddr,
        /// Duration, such as 1h [default: until `strowger ctl ban rm`]
        #[arg(long = "for", value_name = "TIME")]
        time: Option<Span>,
    },
    /// Ends the ban of an address and forgets its failures
    #[command(after_help = "Example:\n  strowger ctl ban rm 192.0.2.7")]
    Rm {
        /// The address; of IPv6, any of the banned /64
        address: IpAddr,
    },
    /// Lists the banned addresses, the most recent first
    #[command(after_help = "Example:\n  strowger ctl ban list --json")]
    List {
        /// Maximum number of addresses, up to 65536
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=65_536))]
        limit: u32,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TargetsCommand {
    /// Adds targets to a balancer
    #[command(after_help = "Examples:\n  strowger ctl targets add pool sip:192.0.2.3\n  \
                            strowger ctl targets add pool sip:192.0.2.3 sip:192.0.2.4 --weight 2 --capacity 500\n\n\
                            Where the balancer has \"set:NAME\" among its targets, they are stored in the database, in that \
                            set; otherwise they last until the next reload: add them to the configuration too.")]
    Add {
        /// The balancer
        set: String,
        /// The targets' SIP URIs
        #[arg(required = true, value_name = "URI")]
        uris: Vec<String>,
        /// Priority; targets with a higher number are spares for lower ones
        #[arg(long, default_value_t = 0)]
        priority: u16,
        /// Weight among targets of the same priority
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
        weight: u16,
        /// Maximum number of simultaneous calls [default: no limit]
        #[arg(long, value_name = "CALLS", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CAPACITY)))]
        capacity: Option<u32>,
    },
    /// Removes a target from its balancer; its calls continue
    #[command(
        after_help = "Examples:\n  strowger ctl targets rm sip:192.0.2.3\n  strowger ctl targets rm pool/sip:192.0.2.3\n\n\
                            One that the database has is removed there; any other comes back with the next reload: remove it \
                            from where it is named too. `strowger ctl drain --wait` lets its calls end first."
    )]
    Rm {
        /// The target: its URI, with or without sip:, its id, or SET/URI if several balancers have the URI
        target: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TraceArguments {
    #[command(flatten)]
    pub(crate) what: TraceWhat,
    /// Duration of the trace, such as 60s or 5m [default: no limit]
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) time: Option<Span>,
    /// Number of messages after which the trace ends
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Shows whole messages below their arrows
    #[arg(long)]
    pub(crate) messages: bool,
    /// Also writes a packet capture (pcapng) for Wireshark, replacing the file; - writes it to standard output instead
    /// of the ladder
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct TraceWhat {
    /// User who calls, is called or registers: alice or alice@example.com
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// The Call-ID
    #[arg(long, value_name = "ID")]
    pub(crate) call_id: Option<String>,
    /// Address of a peer
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) ip: Option<IpAddr>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn command_line_is_valid() {
        super::Cli::command().debug_assert();
    }
}
