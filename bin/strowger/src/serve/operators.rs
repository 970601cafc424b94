//! What operators and their programs connect to.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use strowger_control::config::Config;
use strowger_control::socket::{BoundControlSocket, ControlSocket};

use crate::admin::{AdminListener, BoundAdminListener, Served};
use crate::failure::Failure;

/// The ways in for operators, whose clients wait until they are served.
pub(super) struct OperatorAccess {
    admin: BoundAdminListener,
    control: BoundControlSocket,
}

impl OperatorAccess {
    /// Opens the HTTP listener and the control socket, or takes those of the process before.
    pub(super) fn bind(
        config: &Config,
        (control, administration): (Option<OwnedFd>, Option<TcpListener>),
    ) -> Result<Self, Failure> {
        let admin = BoundAdminListener::bind(&config.admin, administration).map_err(Failure::No)?;
        let path = config.control_socket();
        let control = match control {
            Some(control) => BoundControlSocket::take_over(&path, control),
            None => BoundControlSocket::bind(&path),
        };
        Ok(Self { admin, control: control.map_err(Failure::No)? })
    }

    /// Answers there.
    pub(super) fn serve(self, served: Served) -> Result<(AdminListener, ControlSocket), Failure> {
        let handler = Arc::clone(&served.handler);
        let admin = AdminListener::start(served, self.admin)?;
        Ok((admin, self.control.serve(handler).map_err(Failure::No)?))
    }
}
