//! Calls: those in progress, and the latest that have ended.

use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Deserialize;
use strowger_control::protocol::{Calls, EndedCalls, MAX_LISTED, Request, Response, TraceFilter};
use utoipa::IntoParams;

use super::{Limit, bad_query, checked_limit, unexpected};
use crate::body::{Json, Parameters, Segments};
use crate::context::Context;
use crate::problem::Problem;

/// Lists calls in progress
///
/// The oldest first; the same as `strowger ctl calls --json`.
#[utoipa::path(
    get,
    path = "/api/v1/calls",
    operation_id = "list_calls",
    tag = "calls",
    params(Limit),
    responses((status = 200, description = "The calls", body = Calls)),
    security(("token" = ["viewer"])),
)]
pub(super) async fn list(
    context: Context,
    Parameters(Limit { limit }): Parameters<Limit>,
) -> Result<Json<Calls>, Problem> {
    let limit = checked_limit(limit, MAX_LISTED)?;
    match context.ask(Request::Calls { limit }).await? {
        Response::Calls(found) => Ok(Json(found)),
        other => Err(unexpected(&other)),
    }
}

/// Ends a call
///
/// An answered call is hung up on both sides; a call that is being set up is cancelled. The answer has the call as it
/// was, and does not wait until the phones have confirmed the end.
#[utoipa::path(
    delete,
    path = "/api/v1/calls/{call-id}",
    operation_id = "end_call",
    tag = "calls",
    params(("call-id" = String, Path, description = "Its Call-ID, percent-encoded")),
    responses(
        (status = 202, description = "The calls being ended", body = Calls),
        (status = 404, description = "There is no such call", body = Problem),
    ),
    security(("token" = ["operator"])),
)]
pub(super) async fn end(context: Context, Segments(call_id): Segments<String>) -> Result<impl IntoResponse, Problem> {
    match context.ask(Request::EndCall { call_id }).await? {
        Response::Ending(calls) => Ok((StatusCode::ACCEPTED, Json(calls))),
        other => Err(unexpected(&other)),
    }
}

/// Which calls to list.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// Only calls from or to this user, a name or an address.
    user: Option<String>,
    /// Maximum number of calls.
    #[param(minimum = 1, maximum = 10_000, default = 100)]
    limit: usize,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { user: None, limit: 100 }
    }
}

/// Lists calls that have ended
///
/// The records of the latest ten thousand calls since the server's start, if it records calls (`cdr`), the most recent
/// first; the same as `strowger ctl calls --ended --json`. Each use is in the audit log.
#[utoipa::path(
    get,
    path = "/api/v1/call-records",
    operation_id = "list_call_records",
    tag = "calls",
    params(Wanted),
    responses((status = 200, description = "The records", body = EndedCalls)),
    security(("token" = ["operator"])),
)]
pub(super) async fn ended(
    context: Context,
    Parameters(Wanted { user, limit }): Parameters<Wanted>,
) -> Result<Json<EndedCalls>, Problem> {
    let limit = checked_limit(limit, MAX_LISTED)?;
    if let Some(user) = &user {
        let problem = |why| Problem { field: Some("user".to_owned()), ..bad_query(why) };
        TraceFilter::check_user(user).map_err(problem)?;
    }
    match context.ask(Request::EndedCalls { user, limit }).await? {
        Response::EndedCalls(found) => Ok(Json(found)),
        other => Err(unexpected(&other)),
    }
}
