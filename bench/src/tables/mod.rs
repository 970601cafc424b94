//! The multicore paper's study of a registrar's tables (Wright et al., *SIP server performance on multicore
//! systems*), repeated with this server: chains in 512 buckets, chains in 131,072, and its own location table; expiry
//! by a sweep or incrementally; credentials in memory or in a database.
//!
//! The shard is the server's own and does all its usual work. The table under test is used beside it: it is read and
//! changed as often as the shard's own table, which has a thousand users, so the additional cost is the same for
//! every table under test.

pub mod chained;
pub mod clock;
pub mod contention;
pub mod credentials;
pub mod growth;
pub mod kind;
pub mod lookup;
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
