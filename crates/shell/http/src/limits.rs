//! Limits of the listener.

use std::time::Duration;

/// What clients may use.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// Maximum number of connections; further ones are closed when accepted.
    pub connections: usize,
    /// Time until the whole head of a request must have arrived, counted from the connection or from the last response.
    pub head: Duration,
    /// Lifetime of a connection; then it is closed after the response in progress.
    pub connection: Duration,
    /// Time for the response in progress once that lifetime is over.
    pub closing: Duration,
    /// Maximum size of a request's head and of the buffers of a connection, in bytes. At least 8,192.
    pub buffer: usize,
    /// Maximum number of header fields of a request.
    pub headers: usize,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections: 32,
            head: Duration::from_secs(20),
            connection: Duration::from_secs(300),
            closing: Duration::from_secs(10),
            buffer: 16 * 1024,
            headers: 64,
        }
    }
}
