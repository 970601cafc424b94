//! Arguments of `strowger import`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use strowger_control::config::Span;
use strowger_kamailio::Table;

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
