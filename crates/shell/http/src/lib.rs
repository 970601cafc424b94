//! The server's HTTP listener: one thread, apart from those that process calls, with few connections and a time limit
//! on everything that a client can delay.

mod connection;
mod limits;
mod long_response;
mod server;
mod tls;

pub use axum;
pub use limits::HttpLimits;
pub use long_response::LongResponse;
pub use server::{HttpCounters, HttpServer};
pub use tls::HttpTls;
