//! Registrations.

use axum::http::StatusCode;
use serde::Deserialize;
use strowger_control::protocol::{MAX_LISTED, Registrations, Request, Response};
use utoipa::IntoParams;

use super::{checked_limit, unexpected};
use crate::body::{Json, Parameters, Segments};
use crate::context::Context;
use crate::problem::Problem;

/// Which registrations to list.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// Only those of this address; without a domain, in the first one.
    user: Option<String>,
    /// Maximum number of contacts.
    #[param(minimum = 1, maximum = 10_000, default = 100)]
    limit: usize,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { user: None, limit: 100 }
    }
}

/// Lists registered contacts
///
/// The same as `strowger ctl registrations --json`.
#[utoipa::path(
    get,
    path = "/api/v1/registrations",
    operation_id = "list_registrations",
    tag = "registrations",
    params(Wanted),
    responses((status = 200, description = "The contacts", body = Registrations)),
    security(("token" = ["viewer"])),
)]
pub(super) async fn list(
    context: Context,
    Parameters(wanted): Parameters<Wanted>,
) -> Result<Json<Registrations>, Problem> {
    let limit = checked_limit(wanted.limit, MAX_LISTED)?;
    let user = wanted.user.map(|user| context.backend().aor(&user)).transpose()?;
    match context.ask(Request::Registrations { user, limit }).await? {
        Response::Registrations(found) => Ok(Json(found)),
        other => Err(unexpected(&other)),
    }
}

/// Which contact to remove.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OfContact {
    /// Only this contact, written as listed; otherwise all of the user.
    contact: Option<String>,
}

/// Removes registrations of a user
///
/// As if the phones had unregistered. A working phone registers again when its registration is due.
#[utoipa::path(
    delete,
    path = "/api/v1/registrations/{user}",
    operation_id = "remove_registrations",
    tag = "registrations",
    params(("user" = String, Path, description = "The address; without a domain, in the first one"), OfContact),
    responses(
        (status = 200, description = "The contacts that are removed", body = Registrations),
        (status = 404, description = "There is no such registration", body = Problem),
    ),
    security(("token" = ["operator"])),
)]
pub(super) async fn remove(
    context: Context,
    Segments(user): Segments<String>,
    Parameters(of): Parameters<OfContact>,
) -> Result<Json<Registrations>, Problem> {
    let user = context.backend().aor(&user)?;
    match context.ask(Request::Unregister { user, contact: of.contact }).await? {
        Response::Unregistered(gone) if gone.registrations.is_empty() => {
            let why = "there is no such registration; GET /api/v1/registrations lists all";
            Err(Problem::new(StatusCode::NOT_FOUND, why))
        }
        Response::Unregistered(gone) => Ok(Json(gone)),
        other => Err(unexpected(&other)),
    }
}
