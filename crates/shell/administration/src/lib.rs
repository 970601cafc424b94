//! Administration of the server over HTTP: what `strowger ctl`, `strowger user` and `strowger gateway` do, for
//! programs and web pages.
//!
//! A request passes the layers of [`Api::router`] in this order: headers for browsers and the check of Host and Origin
//! (`browser`), the limit of requests per client (`rate`), the token and its role (`authentication`), and then its
//! handler (`routes`). Handlers pass [requests of the control socket](strowger_control::protocol::Request) to the
//! server, or call [`Backend`] for users and gateways. The document at `/api/v1/openapi.json` is generated from the
//! handlers; the roles that it states are those that are enforced.

#![forbid(unsafe_code)]

mod api;
mod authentication;
mod backend;
mod body;
mod browser;
mod client;
mod context;
mod document;
mod problem;
mod rate;
mod roles;
mod routes;
mod shared;
mod tokens;
mod types;

pub use api::Api;
pub use backend::{Backend, Refusal};
pub use problem::Problem;
pub use tokens::{MAX_TOKENS, Role, Token, TokenError, TokenFile};
pub use types::{
    Alias, ApiConfiguration, Gateway, GatewayChange, Gateways, NewGateway, NewUser, User, UserChange, UserPage, Users,
};
