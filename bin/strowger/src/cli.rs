//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use strowger_control::config::Span;
use strowger_kamailio::Table;
use strowger_store::MAX_CAPACITY;

use crate::load::LoadArguments;
use crate::plan::PlanArguments;
use crate::watch::WatchArguments;

/// A SIP proxy, registrar and redirect server.
#[derive(Debug, Parser)]
#[command(
    name = "strowger",
    version,
    after_help = "Examples:\n  strowger serve\n  strowger user add alice@192.0.2.1\n  strowger ctl status\n\n\
                  Exit codes: 0 done, 1 it ran and the answer is no, 2 bad arguments or configuration."
)]
pub(crate) struct Cli {
    /// The configuration [default: strowger.toml where it exists, else every key's default]
    #[arg(short, long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Which server this is, where the configuration is for several [default: the machine's host name]
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
    /// Validates the configuration and says what it would do
    #[command(after_help = "Examples:\n  strowger check\n  strowger check -c new.toml --json\n  \
                            strowger check --schema > strowger.schema.json")]
    Check(CheckArguments),
    /// Adds, changes and lists users
    #[command(after_help = "Examples:\n  strowger user add alice@example.com\n  strowger user list --json\n\n\
                            A running server knows it when the command ends.")]
    User(UserArguments),
    /// Adds, changes and lists gateways: where calls go that are for none of our users
    #[command(
        after_help = "Examples:\n  strowger gateway add pstn sip:192.0.2.1:5060\n  strowger gateway list --json\n\n\
                            A route or a balancer that has targets = [\"set:pstn\"] uses the enabled gateways of the set \
                            pstn. A running server knows it when the command ends."
    )]
    Gateway(GatewayArguments),
    /// Brings users, gateways and registrations here from the database of another server
    #[command(
        after_help = "Examples:\n  strowger import kamailio mysql://kamailio:SECRET@192.0.2.10/kamailio --dry-run\n  \
                            strowger import kamailio sqlite:/etc/kamailio/kamailio.db --only users,gateways\n  \
                            strowger import opensips @opensips.url --json\n\n\
                            The other database is only read. What is here already stays, unless --replace is given. Registrations \
                            are imported while our server does not run."
    )]
    Import(ImportArguments),
    /// Writes users, gateways, registrations and the server's key into one file
    #[command(after_help = "Examples:\n  strowger backup /var/backups/strowger.backup\n  \
                            strowger backup --overwrite nightly.backup\n  \
                            strowger backup -c /etc/strowger.toml new.backup --json\n\n\
                            A running server writes it itself, of one moment, while it goes on; then the file belongs to \
                            the server's user. The file is a secret: it has the hashes of the passwords and the key that \
                            signs what the server says. The configuration is not in it.")]
    Backup(BackupArguments),
    /// Puts what a backup has in the place of what is there, for a server that is stopped
    #[command(after_help = "Examples:\n  strowger restore /var/backups/strowger.backup\n  \
                            strowger restore --force nightly.backup\n  \
                            strowger restore -c /etc/strowger.toml nightly.backup\n\n\
                            Nothing is deleted: what was there is moved aside, and where to is told.")]
    Restore(RestoreArguments),
    /// Asks a running server, over its control socket
    #[command(
        after_help = "Examples:\n  strowger ctl status\n  strowger ctl registrations --user alice@example.com\n  \
                            strowger ctl calls\n  strowger ctl targets\n  strowger ctl trace --user alice"
    )]
    Ctl(CtlArguments),
    /// Watches servers, and takes those that are dead out of the DNS until they are back
    #[command(
        after_help = "Examples:\n  strowger watch -c /etc/strowger/strowger.toml\n  strowger watch --once\n  strowger watch --json\n\n\
                            [watch] in the configuration says which servers, in which zone, and how they are asked. The zone is changed by \
                            dynamic update (RFC 2136), signed (TSIG). The last server always stays. SIGTERM ends it; the zone stays as it is."
    )]
    Watch(WatchArguments),
    /// Makes and answers calls, to measure servers
    #[command(after_help = "Examples:\n  strowger load run --to udp:127.0.0.1:5060 --rate 1000 --calls 10000\n  \
                            strowger load answer --listen udp:127.0.0.1:5070")]
    Load(Box<LoadArguments>),
    /// Plans capacity: how many servers, how long packets wait, what is dropped, how available it is
    #[command(
        after_help = "Examples:\n  strowger plan size --subscribers 2M              how many servers for two million users\n  \
                            strowger plan mg1 --rate 4800 --service 181.185us --scv 0.022\n  \
                            strowger plan availability --first 3 --clusters 3 --members 3 --node 99%\n\n\
                            Numbers have units: 181us, 300ms, 1h; rates are per second, or 10k/h; shares are 99.9% or 0.999; counts \
                            2M. Nearly every number may be a sweep, FROM..TO/STEP or a list. --explain prints the formulas with \
                            their numbers and the papers they come from."
    )]
    Plan(Box<PlanArguments>),
}

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Prints the JSON schema of the configuration, and does nothing else
    #[arg(long, conflicts_with = "json")]
    pub(crate) schema: bool,
    /// Also connects to the engine and the databases that are named; makes tables that are missing there, as the server does
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
    /// From the tables subscriber, dispatcher and location of Kamailio
    Kamailio(ImportFrom),
    /// From the tables subscriber, dispatcher and location of OpenSIPS
    Opensips(ImportFrom),
    /// From another file of ours: users, aliases and gateways, as when servers begin to have them from one database
    #[command(
        after_help = "Example:\n  strowger import strowger data/strowger.db\n\nWho is here already stays as it is here."
    )]
    Strowger {
        /// The file, as data/strowger.db
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ImportFrom {
    /// The database: sqlite:PATH, postgresql:// or mysql://USER:PASSWORD@HOST:PORT/DATABASE; @FILE reads that from a file, since others
    /// on this machine can see arguments
    pub(crate) url: String,
    /// What is imported [default: all]
    #[arg(long, value_delimiter = ',', value_name = "WHAT")]
    pub(crate) only: Vec<ImportPart>,
    /// Says what would be done, and changes nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// What is here already becomes as it is there
    #[arg(long)]
    pub(crate) replace: bool,
    /// The domain of rows that have none [default: the first of server.domains]
    #[arg(long)]
    pub(crate) domain: Option<String>,
    /// The realm that the hashes are made with [default: auth.realm, else the domain of each]
    #[arg(long)]
    pub(crate) realm: Option<String>,
    /// What stands before the number of a dispatcher set in its name here
    #[arg(long, value_name = "PREFIX", default_value = "dispatcher-")]
    pub(crate) set_prefix: String,
    /// Reads tables of other versions than those that are known
    #[arg(long)]
    pub(crate) any_version: bool,
    /// How long the database may take to answer
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub(crate) patience: Span,
}

/// What can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportPart {
    /// Users, of the table subscriber.
    Users,
    /// Gateways, of the table dispatcher.
    Gateways,
    /// Registrations, of the table location.
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
    /// Replaces the file, once the new one is whole
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
    /// Also where there is a database, which is moved aside
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
    /// Removes a user, and the aliases that lead to it
    #[command(after_help = "Example:\n  strowger user rm alice@example.com")]
    Rm(UserArgument),
    /// Lets a disabled user register and call again
    #[command(after_help = "Example:\n  strowger user enable alice@example.com")]
    Enable(UserArgument),
    /// Keeps a user from registering and calling; the password stays
    #[command(after_help = "Example:\n  strowger user disable alice@example.com")]
    Disable(UserArgument),
    /// Lists all users
    #[command(after_help = "Example:\n  strowger user list --json")]
    List,
    /// Adds the users of a table of comma-separated values, all or none
    #[command(after_help = "Example:\n  strowger user import users.csv\n\n\
                            The first line names the columns: aor,password or aor,ha1_md5[,ha1_sha256[,ha1_sha512_256]].")]
    Import {
        /// The table; - reads standard input
        file: PathBuf,
        /// The realm that the hashes are made with [default: auth.realm, else the only domain of server.domains]
        #[arg(long)]
        realm: Option<String>,
    },
    /// Other addresses of a user
    #[command(after_help = "Examples:\n  strowger user alias add 100@example.com alice@example.com\n  \
                            strowger user alias list")]
    Alias {
        #[command(subcommand)]
        command: AliasCommand,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum AliasCommand {
    /// Lets an address lead to a user
    #[command(after_help = "Example:\n  strowger user alias add 100@example.com alice@example.com")]
    Add {
        /// The address that leads to the user
        alias: String,
        /// The user
        user: String,
    },
    /// Removes an alias
    #[command(after_help = "Example:\n  strowger user alias rm 100@example.com")]
    Rm {
        /// The address that led to a user
        alias: String,
    },
    /// Lists all aliases
    #[command(after_help = "Example:\n  strowger user alias list --json")]
    List,
}

#[derive(Debug, Args)]
pub(crate) struct WithPassword {
    /// The user's address, as alice@example.com
    pub(crate) user: String,
    /// The password; others on this machine can see it while the command runs [default: asks, or reads one line]
    #[arg(long, value_name = "SECRET")]
    pub(crate) password: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct UserArgument {
    /// The user's address, as alice@example.com
    pub(crate) user: String,
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
        /// Those of a lower one are tried first
        #[arg(long, default_value_t = 0)]
        priority: u16,
        /// The share of calls among those of the same priority
        #[arg(long, default_value_t = 1)]
        weight: u16,
        /// The most calls at one time, where a balancer names the set [default: no limit]
        #[arg(long, value_name = "CALLS", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CAPACITY)))]
        capacity: Option<u32>,
        /// What people want to know of it
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        note: String,
    },
    /// Changes a gateway: what is given, and nothing else
    #[command(after_help = "Examples:\n  strowger gateway change pstn sip:192.0.2.1:5060 --weight 3\n  \
                            strowger gateway change pstn sip:192.0.2.1:5060 --capacity none")]
    Change {
        #[command(flatten)]
        member: Member,
        /// Those of a lower one are tried first
        #[arg(long)]
        priority: Option<u16>,
        /// The share of calls among those of the same priority
        #[arg(long)]
        weight: Option<u16>,
        /// The most calls at one time, or none
        #[arg(long, value_name = "CALLS")]
        capacity: Option<Capacity>,
        /// What people want to know of it
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
    },
    /// Removes a gateway from a set
    #[command(after_help = "Example:\n  strowger gateway rm pstn sip:192.0.2.1:5060")]
    Rm(Member),
    /// Lets calls go to a gateway again
    #[command(after_help = "Example:\n  strowger gateway enable pstn sip:192.0.2.1:5060")]
    Enable(Member),
    /// Sends no new call to a gateway; those that there are go on
    #[command(after_help = "Example:\n  strowger gateway disable pstn sip:192.0.2.1:5060")]
    Disable(Member),
    /// Lists the gateways of a set, or of all
    #[command(after_help = "Examples:\n  strowger gateway list\n  strowger gateway list pstn --json")]
    List {
        /// Only this set
        set: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Member {
    /// The set, as pstn
    pub(crate) set: String,
    /// The gateway's SIP URI, as sip:192.0.2.1:5060
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
    /// The server's control socket [default: as the configuration says]
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: CtlCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CtlCommand {
    /// Says how the server is
    #[command(after_help = "Example:\n  strowger ctl status --json")]
    Status,
    /// Lists the servers that share registrations with this one, and how that goes
    #[command(after_help = "Example:\n  strowger ctl members --json")]
    Members,
    /// Lists the contacts that are registered
    #[command(after_help = "Examples:\n  strowger ctl registrations\n  \
                            strowger ctl registrations --user alice@example.com --json")]
    Registrations {
        /// Only this address
        #[arg(long)]
        user: Option<String>,
        /// At most so many contacts, up to 10000
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
    },
    /// Ends registrations of a user, or that of one contact
    #[command(after_help = "Examples:\n  strowger ctl unregister alice@example.com sip:alice@192.0.2.7:5062\n  \
                            strowger ctl unregister alice@example.com --all\n\n\
                            For contacts of phones that are gone and take the place of others (registrar.max_contacts); \
                            `strowger ctl registrations --user` lists them. A phone that is there registers again when its \
                            time comes; `strowger user disable` keeps it away.")]
    #[command(override_usage = "strowger ctl unregister [OPTIONS] <USER> <CONTACT|--all>")]
    #[command(group = clap::ArgGroup::new("which").required(true))]
    Unregister {
        /// The user's address
        user: String,
        /// The contact, as it is listed
        #[arg(group = "which")]
        contact: Option<String>,
        /// All contacts of the user
        #[arg(long, group = "which")]
        all: bool,
    },
    /// Lists the calls in progress, the oldest first
    #[command(after_help = "Examples:\n  strowger ctl calls\n  strowger ctl calls --json")]
    Calls {
        /// At most so many calls, up to 10000
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
    },
    /// Shows messages as they pass, as a ladder with a column for each party
    #[command(after_help = "Examples:\n  strowger ctl trace --user alice\n  \
                            strowger ctl trace --call-id f81d4fae@192.0.2.1 --messages\n  \
                            strowger ctl trace --ip 192.0.2.1 --for 5m --json\n\n\
                            A call that is found by user or address is followed on both of its sides. Credentials and \
                            media keys are masked. Ctrl-C ends it.")]
    Trace(TraceArguments),
    /// Lets the server read its configuration, its users, its gateways and its dispatcher lists again
    #[command(after_help = "Examples:\n  strowger ctl reload\n  strowger ctl reload --all\n\n\
                            Calls and what is counted of targets stay; what `strowger ctl targets add | rm` has changed in \
                            balancers that have no gateways of the database is forgotten.")]
    Reload {
        /// All servers of the configuration that run on this machine, members of clusters before the first stage
        #[arg(long)]
        all: bool,
    },
    /// Shows what each cluster of the second stage has of users, calls and load, and moves users between them
    #[command(after_help = "Examples:\n  strowger ctl rebalance --as s1\n  strowger ctl rebalance --as s1 --even\n  \
                            strowger ctl rebalance --as s1 a=120 b=80 --write\n  strowger ctl rebalance --as s1 c=0 --write\n\n\
                            A server of the first stage knows what all users are asked for, so one of them is asked. With --write \
                            the weights are written into the configuration, with those before as `was`, and all servers of \
                            it that run on this machine read it; copy it to the other machines then, and run `strowger ctl reload \
                            --all` there. Who has moved is found where he was until he registers again.")]
    Rebalance(RebalanceArguments),
    /// Lists the targets of balancers with what they do, or changes who they are
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Examples:\n  strowger ctl targets\n  strowger ctl targets pool --json\n  \
                            strowger ctl targets add pool sip:192.0.2.3\n  strowger ctl targets rm pool/sip:192.0.2.3"
    )]
    Targets {
        /// Only those of this balancer
        set: Option<String>,
        #[command(subcommand)]
        command: Option<TargetsCommand>,
    },
    /// Sends no new call to a target, and says how many it has left; those go on
    #[command(after_help = "Examples:\n  strowger ctl drain sip:192.0.2.1\n  \
                            strowger ctl drain pool/sip:192.0.2.1 --wait --for 30m\n\n\
                            It lasts until `strowger ctl undrain`, or until the server ends: a reload changes nothing. Of a \
                            balancer with gateways of the database, `strowger gateway disable` lasts longer. With --wait the \
                            exit code is 0 once it is empty, and 1 where --for is over before.")]
    Drain {
        /// The target: its URI, with or without sip:, its id, or SET/URI where the URI is in several balancers
        target: String,
        /// Waits until it has no call left, and shows how many there are
        #[arg(long)]
        wait: bool,
        /// Waits no longer than this, as 30m
        #[arg(long = "for", value_name = "TIME", requires = "wait")]
        time: Option<Span>,
    },
    /// Sends new calls to a drained target again, few at first
    #[command(after_help = "Example:\n  strowger ctl undrain sip:192.0.2.1")]
    Undrain {
        /// The target: its URI, with or without sip:, its id, or SET/URI where the URI is in several balancers
        target: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RebalanceArguments {
    /// Clusters and the weights that they are to have; 0 moves all users away
    #[arg(value_name = "CLUSTER=WEIGHT", value_parser = cluster_weight)]
    pub(crate) weights: Vec<(String, u16)>,
    /// Chooses the weights so that each member has the same load, as it was lately
    #[arg(long, conflicts_with = "weights")]
    pub(crate) even: bool,
    /// Writes them into the configuration, and lets the servers of this machine read it
    #[arg(long)]
    pub(crate) write: bool,
    /// Also while users of the last move may not have registered again: their calls fail then until they do
    #[arg(long, requires = "write")]
    pub(crate) force: bool,
}

fn cluster_weight(text: &str) -> Result<(String, u16), String> {
    let (name, weight) = text.split_once('=').ok_or("write it as CLUSTER=WEIGHT, as a=120")?;
    let weight = weight.parse().map_err(|_| format!("{weight:?} is no weight; write a number from 0 to 65535"))?;
    Ok((name.to_owned(), weight))
}

#[derive(Debug, Subcommand)]
pub(crate) enum TargetsCommand {
    /// Gives a balancer more targets
    #[command(after_help = "Examples:\n  strowger ctl targets add pool sip:192.0.2.3\n  \
                            strowger ctl targets add pool sip:192.0.2.3 sip:192.0.2.4 --weight 2 --capacity 500\n\n\
                            Where the balancer has \"set:NAME\" among its targets, they are kept in the database, in that \
                            set; else they last until the next reload: write them into the configuration too.")]
    Add {
        /// The balancer
        set: String,
        /// The targets' SIP URIs
        #[arg(required = true, value_name = "URI")]
        uris: Vec<String>,
        /// Those of a higher one are spares of the others
        #[arg(long, default_value_t = 0)]
        priority: u16,
        /// The share of calls among those of the same priority
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
        weight: u16,
        /// The most calls at one time [default: no limit]
        #[arg(long, value_name = "CALLS", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CAPACITY)))]
        capacity: Option<u32>,
    },
    /// Takes a target from its balancer; calls that it has go on
    #[command(
        after_help = "Examples:\n  strowger ctl targets rm sip:192.0.2.3\n  strowger ctl targets rm pool/sip:192.0.2.3\n\n\
                            One that the database has is removed there; any other comes back with the next reload: remove it \
                            from where it is named too. `strowger ctl drain --wait` lets its calls end first."
    )]
    Rm {
        /// The target: its URI, with or without sip:, its id, or SET/URI where the URI is in several balancers
        target: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TraceArguments {
    #[command(flatten)]
    pub(crate) what: TraceWhat,
    /// Ends after this time, as 60s or 5m [default: goes on]
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) time: Option<Span>,
    /// Ends after so many messages
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Shows whole messages below their arrows
    #[arg(long)]
    pub(crate) messages: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct TraceWhat {
    /// Who calls, is called or registers: alice or alice@example.com
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// The Call-ID
    #[arg(long, value_name = "ID")]
    pub(crate) call_id: Option<String>,
    /// The address of a peer
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) ip: Option<IpAddr>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        super::Cli::command().debug_assert();
    }
}
