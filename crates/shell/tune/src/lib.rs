//! The host's scheduler, sockets and limits for a SIP server: what to change and why.
//!
//! [`propose`] reads a [`Host`] and changes nothing. [`apply()`] makes changes and records former values in a
//! [`StateFile`] before; [`undo`] restores them. [`DropInKind::file`] makes files for the next start of the machine instead.
//!
//! What the thesis tuned in CFS (chapters 6 and 7) is in [`topics`], with the thesis's gains where our benchmark has
//! none.

#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod advice;
mod apply;
mod cores;
mod drop_in;
mod error;
mod gains;
mod host;
mod kernel;
mod place;
mod proposal;
mod release;
mod sockets;
mod state;
mod target;

pub use advice::{propose, topics};
pub use apply::{Applied, Change, Undone, Wanted, apply, undo};
pub use cores::Cores;
pub use drop_in::{DROP_IN_HEADER, DropIn, DropInKind};
pub use error::TuneError;
pub use gains::{Gain, Gains};
pub use host::Host;
pub use kernel::{FileLimit, Kernel, NoKernel, RunningKernel};
pub use place::{Form, Place, Task};
pub use proposal::{Action, Demand, Group, LONGEST_WAIT, PACKET_BYTES, PACKETS_PER_CALL, Proposal, Request, Topic};
pub use release::{Scheduler, describe, scheduler};
pub use sockets::SocketBuffer;
pub use state::{DEFAULT_STATE, Record, StateFile};
pub use target::{Program, Target, UdpSocketState};
