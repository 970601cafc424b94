//! Arguments of `strowger user`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

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
