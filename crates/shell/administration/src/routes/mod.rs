//! The operations, by subject.

#![expect(unused_qualifications, reason = "the macro that describes an operation qualifies names of this module")]

mod balancers;
mod bans;
mod calls;
mod configuration;
mod gateways;
mod members;
mod registrations;
mod server;
mod timing;
mod trace;
mod users;

use std::sync::Arc;

use axum::http::StatusCode;
use serde::Deserialize;
use strowger_control::protocol::Response;
use utoipa::{IntoParams, OpenApi as _};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::document::Begin;
use crate::problem::Problem;
use crate::shared::Shared;

/// Returns all routes, with their part of the document.
pub(crate) fn all() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::with_openapi(Begin::openapi())
        .routes(routes!(server::document))
        .routes(routes!(server::session))
        .routes(routes!(server::status))
        .routes(routes!(timing::timing))
        .routes(routes!(users::list, users::add))
        .routes(routes!(users::show, users::change, users::remove))
        .routes(routes!(users::add_alias, users::remove_alias))
        .routes(routes!(gateways::list, gateways::add))
        .routes(routes!(gateways::change, gateways::remove))
        .routes(routes!(registrations::list))
        .routes(routes!(registrations::remove))
        .routes(routes!(calls::list))
        .routes(routes!(calls::end))
        .routes(routes!(calls::ended))
        .routes(routes!(balancers::list))
        .routes(routes!(balancers::targets, balancers::add))
        .routes(routes!(balancers::remove))
        .routes(routes!(balancers::drain))
        .routes(routes!(balancers::undrain))
        .routes(routes!(bans::list, bans::add))
        .routes(routes!(bans::remove))
        .routes(routes!(bans::failures))
        .routes(routes!(members::members))
        .routes(routes!(members::clusters))
        .routes(routes!(trace::trace))
        .routes(routes!(configuration::show))
        .routes(routes!(configuration::check))
        .routes(routes!(configuration::changes))
        .routes(routes!(configuration::reload))
        .routes(routes!(configuration::back_up))
}

/// How many to list.
#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Limit {
    /// Maximum number.
    #[param(minimum = 1, maximum = 10_000, default = 100)]
    limit: usize,
}

impl Default for Limit {
    fn default() -> Self {
        Self { limit: 100 }
    }
}

/// Returns a limit that is from 1 to `most`.
fn checked_limit(limit: usize, most: usize) -> Result<usize, Problem> {
    if (1..=most).contains(&limit) {
        return Ok(limit);
    }
    Err(Problem { field: Some("limit".to_owned()), ..bad_query(format!("limit must be from 1 to {most}")) })
}

fn bad_query(why: String) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, why)
}

/// An answer of the server to something else.
fn unexpected(response: &Response) -> Problem {
    tracing::error!("administration: the server sent an unexpected answer: {response:?}; please report it");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the server sent an unexpected answer; please report it")
}
