//! The engines and their health.

use core::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use strowger_foundation::{fnv1a, octets};

/// Largest number of engines.
pub const MAX_ENGINES: usize = 64;

/// An engine, shared by all shards.
#[derive(Debug)]
pub struct Engine {
    address: SocketAddr,
    is_out: AtomicBool,
}

/// A change in the health of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineChange {
    /// It does not answer and gets no new calls.
    Out,
    /// It answers again.
    Back,
}

impl Engine {
    /// Creates an engine in service.
    #[must_use]
    pub const fn new(address: SocketAddr) -> Self {
        Self { address, is_out: AtomicBool::new(false) }
    }

    /// Its address for commands.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it does not answer.
    #[must_use]
    pub fn is_out(&self) -> bool {
        self.is_out.load(Ordering::Relaxed)
    }

    /// Records that it was silent. Returns the change; of all shards, one gets it.
    pub fn handle_silence(&self) -> Option<EngineChange> {
        (!self.is_out.swap(true, Ordering::Relaxed)).then_some(EngineChange::Out)
    }

    /// Records that it has answered. Returns the change; of all shards, one gets it.
    pub fn handle_answer(&self) -> Option<EngineChange> {
        (self.is_out() && self.is_out.swap(false, Ordering::Relaxed)).then_some(EngineChange::Back)
    }

    /// Returns how well a call fits here; the engine with the highest number gets it.
    fn weight(&self, call: u64) -> u64 {
        let [ip, port] = [&octets(self.address.ip())[..], &self.address.port().to_be_bytes()].map(fnv1a).map(u64::from);
        // FNV alone hardly mixes the last bytes into the upper bits.
        mix(mix(ip << 32 | port) ^ call)
    }
}

/// The finalizer of splitmix64.
const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The engines of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Engines {
    list: Vec<Arc<Engine>>,
}

impl Engines {
    /// Creates the engines at `addresses`, at most [`MAX_ENGINES`]. Those that are also in `before` keep their health.
    #[must_use]
    pub fn new(addresses: &[SocketAddr], before: Option<&Self>) -> Self {
        let engine = |address: &SocketAddr| {
            let known = before.iter().flat_map(|before| &before.list).find(|engine| engine.address == *address);
            known.map_or_else(|| Arc::new(Engine::new(*address)), Arc::clone)
        };
        let mut list: Vec<Arc<Engine>> = Vec::new();
        for address in addresses.iter().take(MAX_ENGINES) {
            if !list.iter().any(|engine| engine.address == *address) {
                list.push(engine(address));
            }
        }
        Self { list }
    }

    /// Returns all engines, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Engine>> {
        self.list.iter()
    }

    /// Returns the engine for a call: by rendezvous hashing, so that each call keeps its engine and the calls of an
    /// engine that is out are spread over all others. Engines that are out or in `tried` are left aside.
    #[must_use]
    pub fn select(&self, call: u64, tried: &[SocketAddr]) -> Option<&Arc<Engine>> {
        let usable = self.list.iter().filter(|engine| !engine.is_out() && !tried.contains(&engine.address));
        usable.max_by_key(|engine| (engine.weight(call), engine.address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(count: u16) -> Vec<SocketAddr> {
        (0..count).map(|number| SocketAddr::from(([192, 0, 2, 1], 2223 + number))).collect()
    }

    #[test]
    fn calls_are_spread_evenly_and_stay_when_another_engine_fails() {
        let engines = Engines::new(&addresses(4), None);
        let choice = |call| engines.select(call, &[]).expect("one is in service").address();
        let before: Vec<_> = (0..4000).map(choice).collect();
        for address in addresses(4) {
            let count = before.iter().filter(|chosen| **chosen == address).count();
            assert!((850..1150).contains(&count), "{address} has {count} of 4000 calls");
        }
        let failed = engines.iter().next().expect("four");
        assert_eq!(failed.handle_silence(), Some(EngineChange::Out));
        assert_eq!(failed.handle_silence(), None, "reported once");
        for (call, before) in before.iter().enumerate() {
            let now = choice(call as u64);
            assert_ne!(now, failed.address());
            assert!(now == *before || *before == failed.address(), "call {call} has moved without need");
        }
        assert_eq!(failed.handle_answer(), Some(EngineChange::Back));
        assert_eq!(failed.handle_answer(), None);
        assert_eq!((0..4000).map(choice).collect::<Vec<_>>(), before);
    }

    #[test]
    fn without_an_engine_in_service_there_is_no_choice() {
        let list = addresses(2);
        let engines = Engines::new(&list, None);
        assert!(engines.select(7, &list).is_none());
        engines.iter().for_each(|engine| assert_eq!(engine.handle_silence(), Some(EngineChange::Out)));
        assert!(engines.select(7, &[]).is_none());
        assert!(Engines::default().select(7, &[]).is_none());
    }

    #[test]
    fn a_reload_keeps_the_health_of_known_engines() {
        let before = Engines::new(&addresses(2), None);
        before.iter().for_each(|engine| assert_eq!(engine.handle_silence(), Some(EngineChange::Out)));
        let mut list = addresses(3);
        list.push(list[0]);
        let after = Engines::new(&list[1..], Some(&before));
        let out: Vec<_> = after.iter().map(|engine| engine.is_out()).collect();
        assert_eq!(out, [true, false, true], "each address once");
    }
}
