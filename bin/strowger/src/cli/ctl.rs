//! Arguments of `strowger ctl`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use strowger_control::config::Span;
use strowger_store::MAX_CAPACITY;

use crate::timing::server::ServerTimingArguments;

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
    #[command(
        after_help = "Examples:\n  strowger ctl calls\n  strowger ctl calls --ended --user alice\n  strowger ctl calls --json\n\n\
                            Calls that have ended are listed if the server records them ([cdr]): the latest ten thousand since \
                            its start, the most recent first."
    )]
    Calls {
        /// Lists calls that have ended
        #[arg(long)]
        ended: bool,
        /// Only calls that have ended from or to this user, a name or an address
        #[arg(long, requires = "ended")]
        user: Option<String>,
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

/// Parses an address to ban, which people also write as a network or with a port.
fn single_address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| {
        "the list has single addresses, such as 192.0.2.7, without a port (of IPv6, the /64 of the address is banned); \
         block networks in the firewall"
            .to_owned()
    })
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
        #[arg(value_parser = single_address)]
        address: IpAddr,
        /// Duration, such as 1h [default: until `strowger ctl ban rm`]
        #[arg(long = "for", value_name = "TIME")]
        time: Option<Span>,
    },
    /// Ends the ban of an address and forgets its failures
    #[command(after_help = "Example:\n  strowger ctl ban rm 192.0.2.7")]
    Rm {
        /// The address; of IPv6, any of the banned /64
        #[arg(value_parser = single_address)]
        address: IpAddr,
    },
    /// Lists the banned addresses, the most recent first
    #[command(after_help = "Example:\n  strowger ctl ban list --json")]
    List {
        /// Maximum number of addresses, up to 65536
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=65_536))]
        limit: u32,
    },
    /// Lists who has failed to log in since the server's start, the most recent first
    #[command(after_help = "Example:\n  strowger ctl ban failures\n\n\
                            BAN says whether the failures count towards a ban. A datagram's address may be forged: such \
                            failures are unproven. never: the address is exempt.")]
    Failures {
        /// Maximum number of entries, up to 1000
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
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
