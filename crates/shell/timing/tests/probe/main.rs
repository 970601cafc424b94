//! The probe beside real programs, with delays of known length.
//!
//! Loading programs into the kernel needs root; without it these tests say so and pass, unless
//! `STROWGER_REQUIRE_INTEROP=1` requires them.
#![cfg(feature = "ebpf")]

mod containers;
mod delays;
mod event_loops;
mod kernel_delays;
mod programs;
mod support;
