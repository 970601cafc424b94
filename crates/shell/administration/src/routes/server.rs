//! The server itself.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use strowger_control::protocol::{Request, Response, Status};

use super::unexpected;
use crate::body::Json;
use crate::context::Context;
use crate::problem::Problem;
use crate::shared::Shared;
use crate::types::Session;

/// This document
#[utoipa::path(
    get,
    path = "/api/v1/openapi.json",
    operation_id = "document",
    tag = "server",
    responses((status = 200, description = "The OpenAPI document", body = serde_json::Value)),
)]
pub(super) async fn document(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], shared.document.clone())
}

/// Who is asking
///
/// Tells what the token allows.
#[utoipa::path(
    get,
    path = "/api/v1/session",
    operation_id = "session",
    tag = "server",
    responses((status = 200, description = "The token and the server", body = Session)),
    security(("token" = ["viewer"])),
)]
pub(super) async fn session(context: Context) -> Json<Session> {
    let (backend, bearer) = (context.backend(), &context.client.bearer);
    Json(Session {
        name: bearer.name.clone(),
        role: bearer.role,
        server: backend.version().to_owned(),
        domains: backend.domains(),
        has_clusters: backend.has_clusters(),
    })
}

/// Status of the server
///
/// The same as `strowger ctl status --json`.
#[utoipa::path(
    get,
    path = "/api/v1/status",
    operation_id = "status",
    tag = "server",
    responses((status = 200, description = "The status", body = Status)),
    security(("token" = ["viewer"])),
)]
pub(super) async fn status(context: Context) -> Result<Json<Box<Status>>, Problem> {
    read(&context).await.map(Json)
}

/// Asks for the status.
pub(super) async fn read(context: &Context) -> Result<Box<Status>, Problem> {
    match context.ask(Request::Status).await? {
        Response::Status(status) => Ok(status),
        other => Err(unexpected(&other)),
    }
}
