//! What queueing models predict beside what happens: measurements for `strowger plan fit` and `strowger plan validate`.
//!
//! [`server`] says who is measured, [`load`] measures what a server drops, [`room`] how many packets its socket has room for,
//! [`timing`] how long messages wait; [`runs`] keeps all runs in which drops were counted and says which of them count, [`observation`]
//! writes what came of it as the tables that `strowger plan` reads, and [`describe`] has `strowger plan` predict and shows both.

pub mod describe;
pub mod load;
pub mod observation;
pub mod receive_buffer;
pub mod runs;
pub mod server;
pub mod timing;
