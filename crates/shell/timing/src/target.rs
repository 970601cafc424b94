//! What is measured.

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A process with all its threads and descendants, also future ones: what they receive on the ports to which
    /// their UDP sockets are bound or on which they listen.
    Process(u32),
    /// The sockets bound to this local port, of any process.
    Port(u16),
}

/// Transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Datagrams.
    Udp,
    /// Streams.
    Tcp,
}
