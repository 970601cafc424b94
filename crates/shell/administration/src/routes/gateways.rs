//! Gateways.

use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Deserialize;
use strowger_control::protocol::Change;
use utoipa::IntoParams;

use crate::body::{Json, Parameters, Segments};
use crate::context::Context;
use crate::problem::Problem;
use crate::types::{Gateway, GatewayChange, Gateways, NewGateway};

/// Which gateways to list.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OfSet {
    /// Only those of this set.
    set: Option<String>,
}

/// Lists gateways
#[utoipa::path(
    get,
    path = "/api/v1/gateways",
    operation_id = "list_gateways",
    tag = "gateways",
    params(OfSet),
    responses((status = 200, description = "The gateways", body = Gateways)),
    security(("token" = ["viewer"])),
)]
pub(super) async fn list(context: Context, Parameters(of): Parameters<OfSet>) -> Result<Json<Gateways>, Problem> {
    context.run(None, move |backend| backend.gateways(of.set.as_deref())).await.map(Json)
}

/// Adds a gateway
#[utoipa::path(
    post,
    path = "/api/v1/gateways",
    operation_id = "add_gateway",
    tag = "gateways",
    request_body = NewGateway,
    responses(
        (status = 201, description = "The gateway", body = Gateway),
        (status = 409, description = "The set has this gateway", body = Problem),
    ),
    security(("token" = ["administrator"])),
)]
pub(super) async fn add(context: Context, Json(new): Json<NewGateway>) -> Result<impl IntoResponse, Problem> {
    let change = Change::new("gateway add", format!("{} {}", new.set, new.uri));
    let gateway = context.run(Some(change), move |backend| backend.add_gateway(&new)).await?;
    Ok((StatusCode::CREATED, Json(gateway)))
}

/// Changes a gateway
///
/// `enabled: false` stops new calls to it; existing calls continue.
#[utoipa::path(
    patch,
    path = "/api/v1/gateways/{set}/{uri}",
    operation_id = "change_gateway",
    tag = "gateways",
    params(
        ("set" = String, Path, description = "The set", example = "pstn"),
        ("uri" = String, Path, description = "The gateway's SIP URI, percent-encoded", example = "sip:192.0.2.1:5060"),
    ),
    request_body = GatewayChange,
    responses(
        (status = 200, description = "The gateway", body = Gateway),
        (status = 404, description = "There is no such gateway", body = Problem),
    ),
    security(("token" = ["administrator"])),
)]
pub(super) async fn change(
    context: Context,
    Segments((set, uri)): Segments<(String, String)>,
    Json(change): Json<GatewayChange>,
) -> Result<Json<Gateway>, Problem> {
    if change == GatewayChange::default() {
        return Err(Problem::invalid("", "nothing is to be changed; give priority, weight, capacity, note or enabled"));
    }
    let action = Change::new("gateway change", format!("{set} {uri}"));
    context.run(Some(action), move |backend| backend.change_gateway(&set, &uri, &change)).await.map(Json)
}

/// Removes a gateway
#[utoipa::path(
    delete,
    path = "/api/v1/gateways/{set}/{uri}",
    operation_id = "remove_gateway",
    tag = "gateways",
    params(
        ("set" = String, Path, description = "The set"),
        ("uri" = String, Path, description = "The gateway's SIP URI, percent-encoded"),
    ),
    responses(
        (status = 204, description = "It is removed"),
        (status = 404, description = "There is no such gateway", body = Problem),
    ),
    security(("token" = ["administrator"])),
)]
pub(super) async fn remove(
    context: Context,
    Segments((set, uri)): Segments<(String, String)>,
) -> Result<StatusCode, Problem> {
    let change = Change::new("gateway rm", format!("{set} {uri}"));
    context.run(Some(change), move |backend| backend.remove_gateway(&set, &uri)).await?;
    Ok(StatusCode::NO_CONTENT)
}
