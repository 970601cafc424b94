//! Whether messages to one peer may leave as one packet: not while somebody looks at packets, who would see the first one only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use strowger_control::config;
use strowger_net::{UdpSocket, captures};

/// `server.segmentation` and what becomes of it.
pub(crate) struct Segmentation {
    wanted: config::Segmentation,
    /// What the sockets heed.
    is_on: Arc<AtomicBool>,
}

impl Segmentation {
    /// As it is wanted, and as the machine is now.
    pub(crate) fn new(wanted: config::Segmentation) -> Self {
        let is_on = wanted.unless(is_watched);
        Self { wanted, is_on: Arc::new(AtomicBool::new(is_on)) }
    }

    /// Lets `socket` heed it; where the kernel cannot, its messages leave one by one.
    pub(crate) fn apply(&self, socket: &mut UdpSocket) {
        let wanted = self.wanted;
        match socket.join_datagrams(Arc::clone(&self.is_on)) {
            Ok(()) => {}
            Err(error) if wanted == config::Segmentation::Always => {
                tracing::warn!("server.segmentation: this kernel cannot ({error}); messages leave one by one");
            }
            Err(error) => tracing::debug!("server.segmentation: this kernel cannot: {error}"),
        }
    }

    /// What the configuration says from now on.
    pub(crate) fn adopt(&mut self, wanted: config::Segmentation) {
        self.wanted = wanted;
        self.is_on.store(wanted.unless(is_watched), Ordering::Relaxed);
    }

    /// Looks again whether somebody looks at packets, and tells when that has changed.
    pub(crate) fn follow(&self) {
        let is_on = self.wanted.unless(is_watched);
        if self.is_on.swap(is_on, Ordering::Relaxed) != is_on {
            match is_on {
                true => tracing::info!("nobody captures packets any more: messages to one peer leave joined again"),
                false => tracing::info!(
                    "somebody captures packets on this machine: messages leave one by one, so that each is seen \
                     (server.segmentation)"
                ),
            }
        }
    }
}

/// Whether somebody looks at packets; who cannot be seen might be there.
fn is_watched() -> bool {
    captures().map_or(true, |captures| captures > 0)
}
