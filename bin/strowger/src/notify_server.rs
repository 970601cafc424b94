//! Makes changes to the users database effective in a running server before the command ends.

use strowger_control::config::Config;
use strowger_control::protocol::{Change, Request};
use strowger_control::socket;

/// Makes a running server read the change that this command has made, so that the next command can rely on it, and
/// write it into its audit log.
pub(crate) fn notify_server(config: &Config, change: Change) {
    // Otherwise the server reads the changes at its start, or within a second.
    drop(socket::ask(&config.control_socket(), &Request::Follow { change: Some(change) }));
}
