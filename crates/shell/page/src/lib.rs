//! The page for the administration of a server: files for a browser, which talks to the administration API by itself.
//!
//! The files are in `web` as they are served: no tool translates or bundles them. They are part of the binary and need
//! nothing from the network.

mod files;
mod responses;

use axum::Router;
use axum::routing::get;

/// Returns the routes of the page: `/` and `/assets/…`. They need no token: the files are the same for everybody.
pub fn router() -> Router {
    Router::new().route("/", get(responses::index)).route("/assets/{build}/{*file}", get(responses::asset))
}
