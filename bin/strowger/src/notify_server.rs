//! What a command changes in the users database is a running server's before the command ends.

use strowger_control::config::Config;
use strowger_control::protocol::Request;
use strowger_control::socket;

/// Has a server that runs read what was changed, so that whatever is done next can count on it.
pub(crate) fn notify_server(config: &Config) {
    // Where none runs, or one that cannot be asked, it reads the change when it starts, or within a second.
    drop(socket::ask(&config.control_socket(), &Request::Follow));
}
