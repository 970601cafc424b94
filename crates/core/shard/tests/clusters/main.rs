//! Users who are spread over clusters behind a first stage, as their phones notice it.

mod access;
mod calls;
mod marks;
mod moving;
mod names;
mod network;
mod phone;
#[path = "../support/mod.rs"]
mod support;
