//! What one socket has seen.

/// Totals of one socket since it was bound. Plain numbers: the socket's worker is the only writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams handed to the caller.
    pub received: u64,
    /// Datagrams that did not fit a slot and were dropped.
    pub truncated: u64,
    /// Datagrams whose sender's address was of no family that we know, dropped.
    pub unaddressed: u64,
    /// Datagrams that the kernel dropped because the socket's receive buffer was full. The kernel tells of a drop with
    /// the next datagram that it delivers, so this lags until one arrives.
    pub kernel_drops: u64,
    /// Datagrams that the kernel took for sending.
    pub sent: u64,
    /// Of these, datagrams that left as one with others, which the kernel or the device cuts apart.
    pub segmented: u64,
    /// Datagrams that the kernel refused to send, each skipped and reported; `no_buffers` are among them.
    pub send_errors: u64,
    /// Datagrams that a full device queue or a lack of kernel memory cost (ENOBUFS, ENOMEM).
    pub no_buffers: u64,
    /// Times that the send buffer was full and the rest of a batch had to wait (EAGAIN).
    pub send_blocked: u64,
    /// Datagrams dropped by us because [`SEND_QUEUE`](crate::SEND_QUEUE) others were waiting already.
    pub send_overflow: u64,
    /// Errors that came back about datagrams sent earlier (ICMP).
    pub icmp_errors: u64,
}
