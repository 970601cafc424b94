//! UDP segmentation control. Messages to one peer are not joined while a packet capture is open, because the capture
//! would show them as one packet.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use strowger_control::config;
use strowger_net::{UdpSocket, count_captures};

/// Setting of `server.segmentation` and its effect.
pub(crate) struct Segmentation {
    wanted: config::Segmentation,
    /// Flag read by the sockets.
    is_on: Arc<AtomicBool>,
}

impl Segmentation {
    /// Creates the state from the setting and the machine's current captures.
    pub(crate) fn new(wanted: config::Segmentation) -> Self {
        // No socket reads the flag yet. Starting with `true` makes a switch to off a change that is logged.
        let segmentation = Self { wanted, is_on: Arc::new(AtomicBool::new(true)) };
        segmentation.update();
        segmentation
    }

    /// Makes `socket` read the flag. If the kernel does not support segmentation, its messages leave one by one.
    pub(crate) fn apply(&self, socket: &mut UdpSocket) {
        if let Err(error) = socket.enable_segmentation(Arc::clone(&self.is_on)) {
            tracing::info!(
                "server.segmentation: this kernel does not support UDP_SEGMENT: {error}; each message is sent as a separate packet"
            );
        }
    }

    /// Applies a new setting.
    pub(crate) fn set_mode(&mut self, wanted: config::Segmentation) {
        self.wanted = wanted;
        self.update();
    }

    /// Checks again for captures and logs a change.
    pub(crate) fn update(&self) {
        let looked = match self.wanted {
            config::Segmentation::Never => return self.set(false),
            config::Segmentation::Always => return self.set(true),
            config::Segmentation::Auto => count_captures(),
        };
        let is_on = matches!(looked, Ok(0));
        if self.is_on.load(Ordering::Relaxed) == is_on {
            return;
        }
        self.set(is_on);
        match is_on {
            true => tracing::info!(
                "server.segmentation: no packet capture is active; messages to one peer are sent as one segmented packet"
            ),
            false => log_disabled(looked),
        }
    }

    fn set(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }
}

/// Logs why segmentation is off although it is configured.
fn log_disabled(looked: io::Result<usize>) {
    match looked {
        Ok(_) => tracing::info!(
            "server.segmentation: a packet capture is active; each message is sent as a separate packet, so that the capture shows it"
        ),
        Err(error) => tracing::info!(
            "server.segmentation: packet captures cannot be detected (/proc/net/packet: {error}); each message is sent \
             as a separate packet"
        ),
    }
}
