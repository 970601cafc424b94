//! Limits of the layer.

/// Largest number of server transactions in a layer.
pub const MAX_SERVER: usize = 1 << 20;

/// Largest number of client transactions in a layer, including reserved ones.
pub const MAX_CLIENT: usize = 1 << 20;

/// The table has no room for another transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFull;
