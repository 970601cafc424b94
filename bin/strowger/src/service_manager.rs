//! Messages to a service manager that starts the server with `Type=notify`, such as systemd (sd_notify(3)).

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Says that this process serves. After an upgrade it is another one than the manager has started.
pub(crate) fn ready() {
    notify(&format!("READY=1\nMAINPID={}\n", std::process::id()));
}

fn notify(message: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let path = path.as_encoded_bytes();
    let address = match path.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(std::str::from_utf8(path).unwrap_or_default()),
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!(
            "the service manager does not learn that the server is ready: {error}; see NotifyAccess= of its unit"
        );
    }
}
