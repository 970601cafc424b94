//! Servers that share registrations, and clusters that users are spread over.

use axum::http::StatusCode;
use strowger_control::protocol::{Cluster, Clusters, Request, Response, WeightProposal};

use super::{server, unexpected};
use crate::body::Json;
use crate::context::Context;
use crate::problem::Problem;

/// Lists the members
///
/// The servers that share registrations with this one; the same as `strowger ctl members --json`.
#[utoipa::path(
    get,
    path = "/api/v1/members",
    operation_id = "members",
    tag = "members",
    responses(
        (status = 200, description = "The members and the state of sharing", body = Cluster),
        (status = 404, description = "The server shares no registrations", body = Problem),
    ),
    security(("token" = ["viewer"])),
)]
pub(super) async fn members(context: Context) -> Result<Json<Cluster>, Problem> {
    server::read(&context).await?.cluster.map(Json).ok_or_else(|| {
        Problem::new(StatusCode::NOT_FOUND, "the server does not share registrations: it has no [cluster]")
    })
}

/// Lists the clusters
///
/// Users and load of each second-stage cluster; the same as `strowger ctl rebalance --json`.
#[utoipa::path(
    get,
    path = "/api/v1/clusters",
    operation_id = "clusters",
    tag = "members",
    responses(
        (status = 200, description = "The clusters", body = Clusters),
        (status = 404, description = "The server passes requests to no clusters", body = Problem),
    ),
    security(("token" = ["viewer"])),
)]
pub(super) async fn clusters(context: Context) -> Result<Json<Clusters>, Problem> {
    match context.ask(Request::Clusters(WeightProposal::default())).await? {
        Response::Clusters(clusters) => Ok(Json(clusters)),
        other => Err(unexpected(&other)),
    }
}
