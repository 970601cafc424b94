//! Predictions of queueing models beside measurements, for `strowger plan fit` and `strowger plan validate`.
//!
//! [`server`] defines the measured servers, [`load`] measures one run, [`drops`] a server's drops at several rates,
//! [`receive_buffer`] the capacity of its socket in packets, [`timing`] the waiting times of messages. [`runs`] saves all runs that measure drops and
//! decides which of them count, [`observation`] writes the results as tables for `strowger plan`, and [`describe`]
//! runs `strowger plan` and presents both.

pub mod describe;
pub mod drops;
pub mod load;
pub mod observation;
pub mod receive_buffer;
pub mod runs;
pub mod server;
pub mod timing;
