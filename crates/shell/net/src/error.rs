//! Errors: [`BindError`] for the operator's configuration, [`PeerError`] for the peer or the path to it.

use std::net::SocketAddr;
use std::{fmt, io};

use strowger_foundation::Transport;

/// A listen address could not be opened. The message tells the operator how to fix it.
#[derive(Debug)]
pub struct BindError {
    /// Transport of the listener.
    pub transport: Transport,
    /// The requested address.
    pub address: SocketAddr,
    /// The error of the operating system.
    pub cause: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transport, address, cause } = self;
        write!(f, "{}:{address} ", transport.as_str().to_ascii_lowercase())?;
        match cause.raw_os_error() {
            Some(libc::EADDRINUSE) => {
                f.write_str("is in use by another process; stop it or choose another port in [server] listen")
            }
            Some(libc::EACCES | libc::EPERM) if address.port() < 1024 => f.write_str(
                "may not be opened: ports below 1024 need the capability CAP_NET_BIND_SERVICE; grant it or choose a \
                 port from 1024 up in [server] listen",
            ),
            Some(libc::EADDRNOTAVAIL) => {
                let ip = address.ip();
                write!(f, "cannot be opened: no interface of this machine has {ip}; correct it in [server] listen")
            }
            Some(libc::EAFNOSUPPORT) => {
                let family = if address.is_ipv6() { "IPv6" } else { "IPv4" };
                write!(f, "cannot be opened: {family} is switched off on this machine; remove it from [server] listen")
            }
            Some(libc::EMFILE | libc::ENFILE) => {
                f.write_str("cannot be opened: too many files are open; raise the limit (LimitNOFILE, ulimit -n)")
            }
            _ => write!(f, "cannot be opened: {cause}"),
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// A datagram to `peer` was lost for a reason known to the kernel: either it refused to send it, or an ICMP error
/// arrived later.
///
/// This is a hint, not a proof. Only the socket and the peer's address link an ICMP message to a datagram, so anyone
/// who can forge a packet's source address can forge this error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerError {
    /// Destination of the datagram.
    pub peer: SocketAddr,
    /// Why the datagram was lost.
    pub cause: Cause,
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "udp:{}: {}", self.peer, self.cause)
    }
}

/// Why a datagram was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No socket is bound to the peer's port.
    Refused,
    /// There is no route to the peer.
    Unreachable,
    /// A local or remote packet filter rejects it.
    Forbidden,
    /// Larger than any datagram that can be sent to this peer.
    TooLong,
    /// A link on the path has a smaller MTU. The kernel has recorded it and fragments the datagrams that follow.
    PathMtu,
    /// The device queue was full, or the kernel ran out of memory.
    Congested,
    /// Another error number.
    Other(i32),
}

impl Cause {
    /// Returns whether resending the same datagram is likely to succeed. If so, leave it to the retransmission timers
    /// and do not consider the peer unreachable.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::PathMtu | Self::Congested)
    }

    /// Returns whether the kernel rejected the source address: the address has moved to another machine, as in a
    /// failover pair. Says nothing about the peer.
    #[must_use]
    pub const fn is_of_source(self) -> bool {
        matches!(self, Self::Other(libc::EINVAL | libc::EADDRNOTAVAIL))
    }

    /// Maps the error number of a refused send to a cause.
    pub(crate) const fn of_send(errno: i32) -> Self {
        match errno {
            libc::ECONNREFUSED => Self::Refused,
            libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EHOSTDOWN | libc::ENETDOWN | libc::ENONET => {
                Self::Unreachable
            }
            libc::EPERM | libc::EACCES => Self::Forbidden,
            libc::EMSGSIZE => Self::TooLong,
            libc::ENOBUFS | libc::ENOMEM => Self::Congested,
            other => Self::Other(other),
        }
    }

    /// Maps an error number from the error queue to a cause.
    pub(crate) const fn of_icmp(errno: i32) -> Self {
        match errno {
            libc::EMSGSIZE => Self::PathMtu,
            errno => Self::of_send(errno),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("no process listens on that port"),
            Self::Unreachable => f.write_str("unreachable"),
            Self::Forbidden => f.write_str("forbidden by a packet filter"),
            Self::TooLong => f.write_str("the message is larger than a datagram can be"),
            Self::PathMtu => f.write_str("the message was larger than the path MTU"),
            Self::Congested => f.write_str("the device's queue is full"),
            Self::Other(errno) => write!(f, "{}", io::Error::from_raw_os_error(*errno)),
        }
    }
}

/// Returns whether an error number may be a pending ICMP error about an earlier datagram. The kernel returns such
/// errors from whatever call comes next on the socket. (Linux: `icmp_err_convert`, `icmpv6_err_convert`.)
pub(crate) const fn may_be_pending(errno: i32) -> bool {
    matches!(
        errno,
        libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENETDOWN
            | libc::ENONET
            | libc::ENOPROTOOPT
            | libc::EOPNOTSUPP
            | libc::EPROTO
            | libc::EACCES
            | libc::EMSGSIZE
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(address: &str, errno: i32) -> String {
        let cause = io::Error::from_raw_os_error(errno);
        BindError { transport: Transport::Udp, address: address.parse().expect("an address"), cause }.to_string()
    }

    #[test]
    fn a_bind_error_says_what_to_do() {
        assert_eq!(
            text("127.0.0.1:5060", libc::EADDRINUSE),
            "udp:127.0.0.1:5060 is in use by another process; stop it or choose another port in [server] listen"
        );
        assert!(text("127.0.0.1:80", libc::EACCES).contains("CAP_NET_BIND_SERVICE"));
        assert!(text("192.0.2.1:5060", libc::EADDRNOTAVAIL).contains("no interface of this machine has 192.0.2.1;"));
        assert!(
            text("[::1]:5060", libc::EAFNOSUPPORT).starts_with("udp:[::1]:5060 cannot be opened: IPv6 is switched off")
        );
        assert!(text("127.0.0.1:5060", libc::EMFILE).contains("ulimit"));
        assert!(
            text("127.0.0.1:5060", libc::EACCES).starts_with("udp:127.0.0.1:5060 cannot be opened: Permission denied")
        );
    }

    #[test]
    fn only_recoverable_errors_are_transient() {
        let lasting = [libc::ECONNREFUSED, libc::EHOSTUNREACH, libc::EPERM, libc::EMSGSIZE, libc::EINVAL];
        assert!(lasting.iter().all(|errno| !Cause::of_send(*errno).is_transient()));
        assert!(Cause::of_send(libc::ENOBUFS).is_transient());
        assert!(Cause::of_icmp(libc::EMSGSIZE).is_transient());
        assert_eq!(Cause::of_icmp(libc::ECONNREFUSED), Cause::Refused);
    }
}
