//! Configuration and backups.

use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Deserialize;
use strowger_control::protocol::{BackupReport, BackupRequest, Change, Reloaded, Request, Response};
use utoipa::ToSchema;

use super::unexpected;
use crate::backend::{Backend, Refusal};
use crate::body::Json;
use crate::context::Context;
use crate::problem::Problem;
use crate::types::{ApiConfiguration, Outcome};

/// Maximum length of a backup's name.
const MAX_NAME: usize = 100;

/// Shows the configuration
///
/// What the server runs with, without passwords.
#[utoipa::path(
    get,
    path = "/api/v1/configuration",
    operation_id = "configuration",
    tag = "configuration",
    responses((status = 200, description = "The configuration", body = ApiConfiguration)),
    security(("token" = ["administrator"])),
)]
pub(super) async fn show(context: Context) -> Result<Json<ApiConfiguration>, Problem> {
    context.run(None, |backend| Ok(backend.configuration())).await.map(Json)
}

/// Checks the configuration file
///
/// Reads it as a reload would, and changes nothing.
#[utoipa::path(
    post,
    path = "/api/v1/configuration/check",
    operation_id = "check_configuration",
    tag = "configuration",
    responses(
        (status = 200, description = "It can be used", body = Outcome),
        (status = 422, description = "It has faults", body = Problem),
    ),
    security(("token" = ["operator"])),
)]
pub(super) async fn check(context: Context) -> Result<Json<Outcome>, Problem> {
    let check = |backend: &dyn Backend| backend.check_configuration().map(|result| Outcome { result });
    context.run(None, check).await.map(Json)
}

/// Shows what a reload would change
///
/// The same as `strowger ctl reload --dry-run`: the keys of the file whose values differ from those of the running
/// server. Passwords are not shown.
#[utoipa::path(
    get,
    path = "/api/v1/configuration/changes",
    operation_id = "configuration_changes",
    tag = "configuration",
    responses(
        (status = 200, description = "The changes", body = Reloaded),
        (status = 422, description = "A reload would be refused", body = Problem),
    ),
    security(("token" = ["operator"])),
)]
pub(super) async fn changes(context: Context) -> Result<Json<Reloaded>, Problem> {
    reloaded(&context, Request::CheckReload).await
}

/// Reloads the configuration
///
/// The same as `strowger ctl reload`. Calls are kept.
#[utoipa::path(
    post,
    path = "/api/v1/configuration/reload",
    operation_id = "reload_configuration",
    tag = "configuration",
    responses(
        (status = 200, description = "It is used", body = Reloaded),
        (status = 422, description = "It cannot be used; nothing was changed", body = Problem),
    ),
    security(("token" = ["operator"])),
)]
pub(super) async fn reload(context: Context) -> Result<Json<Reloaded>, Problem> {
    reloaded(&context, Request::Reload).await
}

async fn reloaded(context: &Context, request: Request) -> Result<Json<Reloaded>, Problem> {
    match context.ask(request).await? {
        Response::Reloaded(changes) => Ok(Json(changes)),
        other => Err(unexpected(&other)),
    }
}

/// A backup to write.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewBackup {
    /// Name of the file in the folder `backups` of the server's data: letters, digits, `-`, `_` and `.`.
    #[schema(example = "monday.backup", max_length = 100)]
    file: String,
    /// Whether an existing file may be overwritten.
    #[serde(default)]
    overwrite: bool,
}

/// Writes a backup
///
/// Users, gateways, registrations and the server's key, into a file on the server. Keep it secret.
#[utoipa::path(
    post,
    path = "/api/v1/backups",
    operation_id = "back_up",
    tag = "configuration",
    request_body = NewBackup,
    responses(
        (status = 201, description = "What it contains", body = BackupReport),
        (status = 409, description = "The file exists", body = Problem),
    ),
    security(("token" = ["administrator"])),
)]
pub(super) async fn back_up(
    context: Context,
    Json(NewBackup { file, overwrite }): Json<NewBackup>,
) -> Result<impl IntoResponse, Problem> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if file.is_empty() || file.len() > MAX_NAME || file.starts_with('.') || !file.bytes().all(is_plain) {
        let why = format!(
            "the name of a backup has letters, digits, -, _ and ., {MAX_NAME} at most, and does not begin with a dot"
        );
        return Err(Problem::invalid("file", why));
    }
    let change = Change::new("backup", &file);
    let report = context.run(Some(change), move |backend| {
        let request = BackupRequest { file: backend.backup_file(&file)?, overwrite };
        if !overwrite && request.file.exists() {
            return Err(Refusal::Conflict(format!("{file} exists; choose another name, or overwrite it")));
        }
        backend.handler().backup(&request, &mut |_, _| {}).map_err(Refusal::Failed)
    });
    let report: BackupReport = report.await?;
    Ok((StatusCode::CREATED, Json(report)))
}
