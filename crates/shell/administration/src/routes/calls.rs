//! Calls in progress.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use strowger_control::protocol::{Calls, Request, Response};

use super::{Limit, MOST, limited, unexpected};
use crate::body::{Json, Parameters, Segments};
use crate::client::Client;
use crate::problem::Problem;
use crate::shared::Shared;

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
    State(shared): State<Arc<Shared>>,
    client: Client,
    Parameters(Limit { limit }): Parameters<Limit>,
) -> Result<Json<Calls>, Problem> {
    let limit = limited(limit, MOST)?;
    match shared.ask(&client, Request::Calls { limit }).await? {
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
        (status = 404, description = "There is no such call", body = Problem, content_type = "application/problem+json"),
    ),
    security(("token" = ["operator"])),
)]
pub(super) async fn end(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Segments(call_id): Segments<String>,
) -> Result<impl IntoResponse, Problem> {
    match shared.ask(&client, Request::EndCall { call_id }).await? {
        Response::Ending(calls) => Ok((StatusCode::ACCEPTED, Json(calls))),
        other => Err(unexpected(&other)),
    }
}
