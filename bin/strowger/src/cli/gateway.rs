//! Arguments of `strowger gateway`.

use std::str::FromStr;

use clap::{Args, Subcommand};
use strowger_store::MAX_CAPACITY;

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
