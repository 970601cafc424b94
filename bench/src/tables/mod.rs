//! The multicore paper's study of a registrar's tables (Wright et al., *SIP server performance on multicore systems*), asked of
//! this server: chains in 512 buckets, chains in 131,072, and the location table of its own; expiry by a sweep or a little at
//! a time; credentials in memory or in a database.
//!
//! The shard is the one of the server, and does all that it does there. The table that is studied stands beside it: it is asked
//! and changed as often as the shard's own, which has a thousand users, so that it costs each of them the same.

pub mod chained;
pub mod contention;
pub mod credentials;
pub mod growth;
pub mod measure;
pub mod model;
pub mod phones;
pub mod plot;
pub mod postgres;
pub mod report;
pub mod serve;
pub mod striped;
pub mod table;
pub mod timeline;
pub mod verify;
