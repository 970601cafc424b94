//! How connections are opened.

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Being opened, or in its handshake: nothing can be read or written.
    Opening,
    /// Open.
    Open,
}
