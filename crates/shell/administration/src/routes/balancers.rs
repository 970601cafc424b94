//! Balancers and their targets.

use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Deserialize;
use strowger_control::protocol::{ChangedTarget, NewTarget, Request, Response, Targets};
use utoipa::IntoParams;

use super::{server, unexpected};
use crate::body::{Json, Parameters, Segments};
use crate::context::Context;
use crate::problem::Problem;
use crate::types::Balancers;

/// Lists balancers
#[utoipa::path(
    get,
    path = "/api/v1/balancers",
    operation_id = "list_balancers",
    tag = "balancers",
    responses((status = 200, description = "The balancers", body = Balancers)),
    security(("token" = ["viewer"])),
)]
pub(super) async fn list(context: Context) -> Result<Json<Balancers>, Problem> {
    let balancers = server::read(&context).await?.balancers;
    Ok(Json(Balancers { balancers }))
}

/// Which targets to list.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OfSet {
    /// Only those of this balancer.
    set: Option<String>,
}

/// Lists targets of balancers
///
/// The same as `strowger ctl targets --json`.
#[utoipa::path(
    get,
    path = "/api/v1/targets",
    operation_id = "list_targets",
    tag = "balancers",
    params(OfSet),
    responses(
        (status = 200, description = "The targets", body = Targets),
        (status = 404, description = "There is no such balancer", body = Problem),
    ),
    security(("token" = ["viewer"])),
)]
pub(super) async fn targets(context: Context, Parameters(of): Parameters<OfSet>) -> Result<Json<Targets>, Problem> {
    match context.ask(Request::Targets { set: of.set }).await? {
        Response::Targets(found) => Ok(Json(found)),
        other => Err(unexpected(&other)),
    }
}

/// Adds a target to a balancer
///
/// It is stored in the database if the balancer has gateways there, and otherwise lasts until the next reload.
#[utoipa::path(
    post,
    path = "/api/v1/targets",
    operation_id = "add_target",
    tag = "balancers",
    request_body = NewTarget,
    responses(
        (status = 201, description = "The target", body = ChangedTarget),
        (status = 409, description = "The balancer has this target", body = Problem),
    ),
    security(("token" = ["administrator"])),
)]
pub(super) async fn add(context: Context, Json(new): Json<NewTarget>) -> Result<impl IntoResponse, Problem> {
    let changed = change(&context, Request::AddTarget(new)).await?;
    Ok((StatusCode::CREATED, changed))
}

/// Removes a target from its balancer
///
/// Its calls continue. One that is in the configuration comes back with the next reload.
#[utoipa::path(
    delete,
    path = "/api/v1/targets/{id}",
    operation_id = "remove_target",
    tag = "balancers",
    params(("id" = String, Path, description = "Its id, its URI or SET/URI, percent-encoded")),
    responses(
        (status = 200, description = "The target", body = ChangedTarget),
        (status = 404, description = "There is no such target", body = Problem),
    ),
    security(("token" = ["administrator"])),
)]
pub(super) async fn remove(
    context: Context,
    Segments(target): Segments<String>,
) -> Result<Json<Box<ChangedTarget>>, Problem> {
    change(&context, Request::RemoveTarget { target }).await
}

/// Stops sending new calls to a target
///
/// The answer has the number of calls left, and so has the list of targets later. Lasts until `undrain` or a restart.
#[utoipa::path(
    post,
    path = "/api/v1/targets/{id}/drain",
    operation_id = "drain_target",
    tag = "balancers",
    params(("id" = String, Path, description = "Its id, its URI or SET/URI, percent-encoded")),
    responses(
        (status = 200, description = "The target", body = ChangedTarget),
        (status = 404, description = "There is no such target", body = Problem),
    ),
    security(("token" = ["operator"])),
)]
pub(super) async fn drain(
    context: Context,
    Segments(target): Segments<String>,
) -> Result<Json<Box<ChangedTarget>>, Problem> {
    change(&context, Request::Drain { target }).await
}

/// Resumes sending new calls to a target
#[utoipa::path(
    post,
    path = "/api/v1/targets/{id}/undrain",
    operation_id = "undrain_target",
    tag = "balancers",
    params(("id" = String, Path, description = "Its id, its URI or SET/URI, percent-encoded")),
    responses(
        (status = 200, description = "The target", body = ChangedTarget),
        (status = 404, description = "There is no such target", body = Problem),
    ),
    security(("token" = ["operator"])),
)]
pub(super) async fn undrain(
    context: Context,
    Segments(target): Segments<String>,
) -> Result<Json<Box<ChangedTarget>>, Problem> {
    change(&context, Request::Undrain { target }).await
}

async fn change(context: &Context, request: Request) -> Result<Json<Box<ChangedTarget>>, Problem> {
    match context.ask(request).await? {
        Response::Target(changed) => Ok(Json(changed)),
        other => Err(unexpected(&other)),
    }
}
