//! Banned addresses.

use std::net::IpAddr;

use axum::http::StatusCode;
use axum::response::IntoResponse;
use strowger_control::protocol::{Ban, Bans, Failures, MAX_LISTED, NewBan, Request, Response};

use super::{Limit, checked_limit, unexpected};
use crate::body::{Json, Parameters, Segments};
use crate::context::Context;
use crate::problem::Problem;

/// Maximum duration of a ban that ends by itself, in seconds: ten years.
const MAX_FOR_S: u64 = 10 * 365 * 24 * 3600;

/// Lists banned addresses
///
/// The most recent ban first; the same as `strowger ctl ban --json`.
#[utoipa::path(
    get,
    path = "/api/v1/bans",
    operation_id = "list_bans",
    tag = "bans",
    params(Limit),
    responses((status = 200, description = "The bans", body = Bans)),
    security(("token" = ["viewer"])),
)]
pub(super) async fn list(
    context: Context,
    Parameters(Limit { limit }): Parameters<Limit>,
) -> Result<Json<Bans>, Problem> {
    let limit = checked_limit(limit, MAX_LISTED)?;
    match context.ask(Request::Bans { limit }).await? {
        Response::Bans(found) => Ok(Json(found)),
        other => Err(unexpected(&other)),
    }
}

/// Lists who has failed to log in
///
/// Wrong passwords, unknown users, scanners and wrong tokens since the server's start, the most recent first: the latest
/// thousand combinations of address, kind and user. The same as `strowger ctl ban failures --json`.
#[utoipa::path(
    get,
    path = "/api/v1/failures",
    operation_id = "list_failures",
    tag = "bans",
    params(Limit),
    responses((status = 200, description = "The failures", body = Failures)),
    security(("token" = ["operator"])),
)]
pub(super) async fn failures(
    context: Context,
    Parameters(Limit { limit }): Parameters<Limit>,
) -> Result<Json<Failures>, Problem> {
    let limit = checked_limit(limit, MAX_LISTED)?;
    match context.ask(Request::Failures { limit }).await? {
        Response::Failures(found) => Ok(Json(found)),
        other => Err(unexpected(&other)),
    }
}

/// Bans an address
///
/// Its SIP messages are dropped and its connections are closed. Replaces an earlier ban of the address.
#[utoipa::path(
    post,
    path = "/api/v1/bans",
    operation_id = "add_ban",
    tag = "bans",
    request_body = NewBan,
    responses(
        (status = 201, description = "The ban", body = Ban),
        (status = 409, description = "Too many addresses are banned", body = Problem),
    ),
    security(("token" = ["operator"])),
)]
pub(super) async fn add(context: Context, Json(new): Json<NewBan>) -> Result<impl IntoResponse, Problem> {
    if new.for_s.is_some_and(|time| !(1..=MAX_FOR_S).contains(&time)) {
        let why = format!("for_s must be from 1 to {MAX_FOR_S}; leave it out for a ban until it is removed");
        return Err(Problem::invalid("for_s", why));
    }
    Ok((StatusCode::CREATED, change(&context, Request::AddBan(new)).await?))
}

/// Ends the ban of an address
///
/// Its failures are forgotten too.
#[utoipa::path(
    delete,
    path = "/api/v1/bans/{address}",
    operation_id = "remove_ban",
    tag = "bans",
    params(("address" = String, Path, description = "The address; of IPv6, any of the banned /64, or the /64 as listed, percent-encoded")),
    responses(
        (status = 200, description = "The ban that has ended", body = Ban),
        (status = 404, description = "The address is not banned", body = Problem),
    ),
    security(("token" = ["operator"])),
)]
pub(super) async fn remove(context: Context, Segments(address): Segments<String>) -> Result<Json<Ban>, Problem> {
    let Some(address) = listed_address(&address) else {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "the path must end with an IPv4 or IPv6 address"));
    };
    change(&context, Request::RemoveBan { address }).await
}

/// Reads an address in the form in which bans list it.
fn listed_address(text: &str) -> Option<IpAddr> {
    match text.strip_suffix("/64") {
        Some(network) => network.parse().ok().map(IpAddr::V6),
        None => text.parse().ok(),
    }
}

async fn change(context: &Context, request: Request) -> Result<Json<Ban>, Problem> {
    match context.ask(request).await? {
        Response::Ban(ban) => Ok(Json(ban)),
        other => Err(unexpected(&other)),
    }
}
