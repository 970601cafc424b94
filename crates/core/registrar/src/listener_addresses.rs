//! The addresses of the listeners, which come and go while shards read them.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

use strowger_foundation::{ListenerId, Transport};

/// Maximum number of listeners that a process has had, those that were removed included. Each id stays that of its
/// address, so that a registration never refers to another one.
pub const MAX_LISTENER_IDS: usize = 512;

/// The addresses by id.
#[derive(Debug)]
pub(crate) struct ListenerAddresses {
    slots: Box<[Slot]>,
}

#[derive(Debug, Default)]
struct Slot {
    address: OnceLock<(Transport, SocketAddr)>,
    is_open: AtomicBool,
}

impl Default for ListenerAddresses {
    fn default() -> Self {
        Self { slots: (0..MAX_LISTENER_IDS).map(|_| Slot::default()).collect() }
    }
}

impl ListenerAddresses {
    /// Sets the listeners in the order of their ids, and whether each is open. The address of an id that was set before
    /// stays. Those beyond [`MAX_LISTENER_IDS`] are unknown.
    pub(crate) fn set(&self, listeners: impl IntoIterator<Item = (Transport, SocketAddr, bool)>) {
        for (slot, (transport, address, is_open)) in self.slots.iter().zip(listeners) {
            let known = slot.address.get_or_init(|| (transport, address));
            debug_assert_eq!(*known, (transport, address), "the id of an address is not reused");
            slot.is_open.store(is_open, Ordering::Release);
        }
    }

    /// Returns the address of a listener, also of one that was removed.
    pub(crate) fn get(&self, id: ListenerId) -> Option<(Transport, SocketAddr)> {
        self.slots.get(usize::from(id.0))?.address.get().copied()
    }

    /// Returns the first open listener that fits.
    pub(crate) fn find(&self, mut fits: impl FnMut((Transport, SocketAddr)) -> bool) -> Option<ListenerId> {
        let is_it =
            |slot: &Slot| slot.is_open.load(Ordering::Acquire) && slot.address.get().is_some_and(|own| fits(*own));
        u16::try_from(self.slots.iter().position(is_it)?).ok().map(ListenerId)
    }

    /// Returns whether an open listener has this address.
    pub(crate) fn contains(&self, transport: Transport, address: SocketAddr) -> bool {
        self.find(|own| own == (transport, address)).is_some()
    }
}
