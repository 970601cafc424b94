//! How fast a registrar takes REGISTERs, and how fast it is there again after its end: a load generator, the servers that
//! are compared, and what they use.

pub mod contender;
pub mod load;
pub mod message;
pub mod probe;
pub mod process;
pub mod report;
pub mod rounds;
pub mod scale;
pub mod start;
