//! What tuning the host's scheduler and sockets changes for a SIP server: the tables of chapters 6 and 7 of
//! Krishnamurthy's thesis, for Kamailio with 1 to 16 processes and for Strowger.

pub mod kernel_time;
pub mod plot;
pub mod results;
pub mod server;
pub mod summary;
pub mod sweep;
pub mod table;
pub mod thesis;
