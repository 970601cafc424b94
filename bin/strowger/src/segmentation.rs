//! Whether messages to one peer may leave as one packet: not while somebody looks at packets, who would see the first one only.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use strowger_control::config;
use strowger_net::{UdpSocket, count_captures};

/// `server.segmentation` and what becomes of it.
pub(crate) struct Segmentation {
    wanted: config::Segmentation,
    /// What the sockets heed.
    is_on: Arc<AtomicBool>,
}

impl Segmentation {
    /// As it is wanted, and as the machine is now.
    pub(crate) fn new(wanted: config::Segmentation) -> Self {
        // No socket heeds it yet. That it is off though it is wanted is told as a change.
        let segmentation = Self { wanted, is_on: Arc::new(AtomicBool::new(true)) };
        segmentation.update();
        segmentation
    }

    /// Lets `socket` heed it; where the kernel cannot, its messages leave one by one.
    pub(crate) fn apply(&self, socket: &mut UdpSocket) {
        if let Err(error) = socket.enable_segmentation(Arc::clone(&self.is_on)) {
            tracing::info!(
                "messages leave one by one, for this kernel cannot join them: {error} (server.segmentation)"
            );
        }
    }

    /// What the configuration says from now on.
    pub(crate) fn set_mode(&mut self, wanted: config::Segmentation) {
        self.wanted = wanted;
        self.update();
    }

    /// Looks again whether somebody looks at packets, and tells when that has changed.
    pub(crate) fn update(&self) {
        let looked = match self.wanted {
            config::Segmentation::Never => return self.set(false),
            config::Segmentation::Always => return self.set(true),
            config::Segmentation::Unwatched => count_captures(),
        };
        let is_on = matches!(looked, Ok(0));
        if self.is_on.load(Ordering::Relaxed) == is_on {
            return;
        }
        self.set(is_on);
        match is_on {
            true => tracing::info!("nobody captures packets on this machine: messages to one peer leave joined"),
            false => log_disabled(looked),
        }
    }

    fn set(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }
}

/// Why it is off though it is wanted.
fn log_disabled(looked: io::Result<usize>) {
    match looked {
        Ok(_) => tracing::info!(
            "somebody captures packets on this machine: messages leave one by one, so that each is seen (server.segmentation)"
        ),
        Err(error) => tracing::info!(
            "whether somebody captures packets cannot be seen (/proc/net/packet: {error}): messages leave one by one \
             (server.segmentation)"
        ),
    }
}
