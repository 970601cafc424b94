//! Bodies of the fuzz targets. The tests of the message crate include the same file and replay the corpora.

pub mod bodies;
