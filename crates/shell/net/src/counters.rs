//! Counters of one socket.

/// Totals of one socket since it was bound. Plain integers, because only the socket's worker writes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams returned to the caller.
    pub received: u64,
    /// Datagrams dropped because they did not fit a slot.
    pub truncated: u64,
    /// Datagrams dropped because the source address was of an unknown family.
    pub unaddressed: u64,
    /// Datagrams that the kernel dropped because the receive buffer was full. The kernel reports a drop with the next
    /// datagram it delivers, so this counter lags until one arrives.
    pub kernel_drops: u64,
    /// Datagrams accepted by the kernel for sending.
    pub sent: u64,
    /// Sent datagrams that left in one segmented message (UDP GSO); included in `sent`.
    pub segmented: u64,
    /// Datagrams that the kernel refused to send. Each is skipped and reported; includes `no_buffers`.
    pub send_errors: u64,
    /// Datagrams lost to a full device queue or to lack of kernel memory (ENOBUFS, ENOMEM).
    pub no_buffers: u64,
    /// Times that the send buffer was full and the rest of a batch had to wait (EAGAIN).
    pub send_blocked: u64,
    /// Datagrams dropped because [`SEND_QUEUE`](crate::SEND_QUEUE) others were already waiting.
    pub send_overflow: u64,
    /// Errors received for datagrams sent earlier (ICMP).
    pub icmp_errors: u64,
}
