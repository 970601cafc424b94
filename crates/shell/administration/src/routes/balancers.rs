//! Balancers and their targets.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Deserialize;
use strowger_control::protocol::{ChangedTarget, NewTarget, Request, Response, Targets};
use utoipa::IntoParams;

use super::{server, unexpected};
use crate::body::{Json, Parameters, Segments};
use crate::client::Client;
use crate::problem::Problem;
use crate::shared::Shared;
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
pub(super) async fn list(State(shared): State<Arc<Shared>>, client: Client) -> Result<Json<Balancers>, Problem> {
    let balancers = server::read(&shared, &client).await?.balancers;
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
        (status = 404, description = "There is no such balancer", body = Problem, content_type = "application/problem+json"),
    ),
    security(("token" = ["viewer"])),
)]
pub(super) async fn targets(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Parameters(of): Parameters<OfSet>,
) -> Result<Json<Targets>, Problem> {
    match shared.ask(&client, Request::Targets { set: of.set }).await? {
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
        (status = 409, description = "The balancer has this target", body = Problem, content_type = "application/problem+json"),
    ),
    security(("token" = ["administrator"])),
)]
pub(super) async fn add(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Json(new): Json<NewTarget>,
) -> Result<impl IntoResponse, Problem> {
    let changed = change(&shared, &client, Request::AddTarget(new)).await?;
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
        (status = 404, description = "There is no such target", body = Problem, content_type = "application/problem+json"),
    ),
    security(("token" = ["administrator"])),
)]
pub(super) async fn remove(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Segments(target): Segments<String>,
) -> Result<Json<Box<ChangedTarget>>, Problem> {
    change(&shared, &client, Request::RemoveTarget { target }).await
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
        (status = 404, description = "There is no such target", body = Problem, content_type = "application/problem+json"),
    ),
    security(("token" = ["operator"])),
)]
pub(super) async fn drain(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Segments(target): Segments<String>,
) -> Result<Json<Box<ChangedTarget>>, Problem> {
    change(&shared, &client, Request::Drain { target }).await
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
        (status = 404, description = "There is no such target", body = Problem, content_type = "application/problem+json"),
    ),
    security(("token" = ["operator"])),
)]
pub(super) async fn undrain(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Segments(target): Segments<String>,
) -> Result<Json<Box<ChangedTarget>>, Problem> {
    change(&shared, &client, Request::Undrain { target }).await
}

async fn change(shared: &Arc<Shared>, client: &Client, request: Request) -> Result<Json<Box<ChangedTarget>>, Problem> {
    match shared.ask(client, request).await? {
        Response::Target(changed) => Ok(Json(changed)),
        other => Err(unexpected(&other)),
    }
}
