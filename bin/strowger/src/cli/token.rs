//! Arguments of `strowger token`.

use clap::{Args, Subcommand};
use strowger_administration::Role;
use strowger_control::config::Span;

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
