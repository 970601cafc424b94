//! Users spread over clusters behind a first stage, as their phones see it.

mod access;
mod calls;
mod cluster_requests;
mod names;
mod network;
mod phone;
#[path = "../support/mod.rs"]
mod support;
mod user_migration;
