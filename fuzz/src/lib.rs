//! Bodies of the fuzz targets. The tests of the message, wire and administration crates include the same files and replay the corpora.

#[cfg(feature = "api")]
pub mod api_bodies;
pub mod bodies;
pub mod wire_bodies;
