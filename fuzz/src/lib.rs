//! What the fuzz targets run. The same file is a module of the message crate's tests, which replay the corpora.

pub mod bodies;
