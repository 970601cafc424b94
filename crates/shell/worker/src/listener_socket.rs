//! A worker's socket for one listener.

use strowger_foundation::{Timestamp, Transport};

use crate::datagram_socket::DatagramSocket;
use crate::new_work_queue::NewWorkQueue;
use crate::stream_listener::StreamListener;

/// A worker's socket for one listener.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a worker has a few of them, and they stay where they are")]
pub(crate) enum ListenerSocket {
    Udp(DatagramSocket),
    Stream(StreamListener),
    /// None any longer: the listener was removed. Connections that it accepted may still exist.
    Closed(Transport),
}

/// A change of a worker's sockets.
#[derive(Debug)]
pub(crate) enum SocketUpdate {
    /// Sockets of a listener that the worker does not have, or has closed.
    Open { listener: usize, socket: Box<ListenerSocket>, new_work: Option<Box<NewWorkQueue>> },
    /// A listener that was removed.
    Close { listener: usize },
}

impl ListenerSocket {
    pub(crate) fn on_event(&mut self, event: &mio::event::Event) {
        match self {
            Self::Udp(outlet) => outlet.on_event(event),
            // After an error the timer decides, since every arriving connection triggers an edge.
            Self::Stream(entrance) => entrance.is_readable |= event.is_readable() && entrance.retry.is_none(),
            Self::Closed(_) => {}
        }
    }

    pub(crate) fn as_datagram(&self) -> Option<&DatagramSocket> {
        match self {
            Self::Udp(outlet) => Some(outlet),
            Self::Stream(_) | Self::Closed(_) => None,
        }
    }

    pub(crate) fn as_datagram_mut(&mut self) -> Option<&mut DatagramSocket> {
        match self {
            Self::Udp(outlet) => Some(outlet),
            Self::Stream(_) | Self::Closed(_) => None,
        }
    }

    pub(crate) fn is_readable(&self) -> bool {
        match self {
            Self::Udp(outlet) => outlet.is_readable,
            Self::Stream(entrance) => entrance.is_readable,
            Self::Closed(_) => false,
        }
    }

    pub(crate) fn retry(&self) -> Option<Timestamp> {
        match self {
            Self::Udp(outlet) => outlet.retry,
            Self::Stream(entrance) => entrance.retry,
            Self::Closed(_) => None,
        }
    }

    /// Forgets when to retry accepting.
    pub(crate) fn forget_retry(&mut self) {
        if let Self::Stream(entrance) = self {
            entrance.retry = None;
        }
    }

    /// Returns the transport.
    pub(crate) fn transport(&self) -> Transport {
        match self {
            Self::Udp(_) => Transport::Udp,
            Self::Stream(entrance) => entrance.socket.transport(),
            Self::Closed(transport) => *transport,
        }
    }
}
