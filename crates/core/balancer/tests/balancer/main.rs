//! The balancer as a proxy sees it.

mod common;
mod health;
mod histories;
mod load;
mod policies;
mod simulation;
mod spread;
