//! Which requests change something, for the audit log.

use serde::{Deserialize, Serialize};

use crate::own_program::own_program;

use super::{NewBan, NewTarget, Request, Response, TraceFilter};

/// What somebody asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The action, such as `user add`.
    pub action: String,
    /// What it concerns, such as `alice@example.com`; may be empty.
    pub object: String,
}

impl Change {
    /// Describes a change.
    #[must_use]
    pub fn new(action: &str, object: impl Into<String>) -> Self {
        Self { action: action.to_owned(), object: object.into() }
    }
}

impl Request {
    /// Returns what the request changes, or reveals of calls; `None` if it only reads the server's state.
    #[must_use]
    pub fn change(&self) -> Option<Change> {
        Some(match self {
            Self::Status
            | Self::Registrations { .. }
            | Self::Calls { .. }
            | Self::Timing(_)
            | Self::Targets { .. }
            | Self::Clusters(_)
            | Self::CheckReload
            | Self::CallSetups
            | Self::Bans { .. }
            | Self::Failures { .. } => return None,
            Self::Unregister { user, contact: None } => Change::new("unregister", user),
            Self::Unregister { user, contact: Some(contact) } => Change::new("unregister", format!("{user} {contact}")),
            Self::Trace(request) => Change::new(
                "trace",
                match &request.filter {
                    TraceFilter::User(user) => format!("user {user}"),
                    TraceFilter::CallId(call_id) => format!("call-id {call_id}"),
                    TraceFilter::Ip(ip) => format!("ip {ip}"),
                },
            ),
            Self::EndedCalls { user, .. } => Change::new("call records", user.clone().unwrap_or_default()),
            Self::EndCall { call_id } => Change::new("hangup", call_id),
            Self::Backup(request) => Change::new("backup", request.file.to_string_lossy()),
            Self::Upgrade(request) => Change::new(
                "upgrade",
                match &request.binary {
                    Some(binary) => binary.to_string_lossy().into_owned(),
                    // The server calls this, so it is the server's program.
                    None => own_program().map_or_else(|_| String::new(), |path| path.to_string_lossy().into_owned()),
                },
            ),
            Self::Reload => Change::new("reload", ""),
            Self::Follow { change } => return change.clone(),
            Self::Drain { target } => Change::new("drain", target),
            Self::Undrain { target } => Change::new("undrain", target),
            Self::AddTarget(NewTarget { set, uri, .. }) => Change::new("target add", format!("{set}/{uri}")),
            Self::RemoveTarget { target } => Change::new("target rm", target),
            Self::AddBan(NewBan { address, .. }) => Change::new("ban add", address.to_string()),
            Self::RemoveBan { address } => Change::new("ban rm", address.to_string()),
        })
    }
}

impl Response {
    /// Returns why the request failed, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Error(why) | Self::NotFound(why) | Self::Conflict(why) | Self::Busy(why) => Some(why),
            _ => None,
        }
    }
}
