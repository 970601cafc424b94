//! Calls in progress.

use axum::http::StatusCode;
use axum::response::IntoResponse;
use strowger_control::protocol::{Calls, MAX_LISTED, Request, Response};

use super::{Limit, checked_limit, unexpected};
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
