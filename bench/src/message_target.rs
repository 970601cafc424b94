//! What the torture test sends messages to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use strowger_auth::NonceWindows;
use strowger_directory::Directory;
use strowger_foundation::{Flow, KeyRing, ListenerId, ShardId, TagKey, Timestamp, Transport};
use strowger_locate::{CachePolicy, NameCache, Outages};
use strowger_message::{Head, Peek};
use strowger_registrar::Locations;
use strowger_shard::{
    Input, Listener, Neighbours, Output, ProvenSources, Shard, ShardConfig, Snapshot, Steering, Verdict,
};

use crate::exercise::{self, Scratch};

/// Receives fuzzed messages.
pub trait MessageTarget {
    /// Processes a message. Returns `None` if it was understood, else the reason.
    fn take(&mut self, bytes: &[u8]) -> Option<String>;
}

/// The message crate alone.
#[derive(Debug, Default)]
pub struct Reader {
    scratch: Scratch,
}

impl MessageTarget for Reader {
    fn take(&mut self, bytes: &[u8]) -> Option<String> {
        exercise::message(bytes, &mut self.scratch).err().map(|fault| fault.to_string())
    }
}

/// A whole shard in virtual time. It challenges no request, so that damaged ones reach the registrar and the proxy.
#[allow(missing_debug_implementations, reason = "a shard is not for printing")]
pub struct WholeShard {
    shard: Shard,
    steering: Steering,
    snapshot: Arc<Snapshot>,
    now: Timestamp,
    out: Vec<u8>,
    taken: u64,
}

impl Default for WholeShard {
    fn default() -> Self {
        let ring = KeyRing::new(TagKey::new([7; 16]));
        let listener = Listener::new(Transport::Udp, SocketAddr::from(([192, 0, 2, 1], 5060)));
        let domain: Box<[u8]> = (*b"example.org").into();
        let mut snapshot = Snapshot::new(vec![listener], vec![domain], Directory::empty(1));
        snapshot.auth.require.clear();
        let snapshot = Arc::new(snapshot);
        let locations = Arc::new(Locations::new(1, 1));
        let steering = Steering::new(&ring, Arc::clone(&locations), 1);
        let config = ShardConfig {
            id: ShardId(0),
            now: Timestamp::ZERO,
            seed: 1,
            ring,
            locations,
            nonces: Arc::new(NonceWindows::new(1, 1)),
            names: Arc::new(NameCache::new(CachePolicy::default(), 1)),
            outages: Arc::new(Outages::new(1)),
            proven: Arc::new(ProvenSources::new(1)),
            shedding: Arc::default(),
            neighbours: Arc::new(Neighbours::new(1)),
            snapshot: Arc::clone(&snapshot),
        };
        let (now, out) = (Timestamp::from_millis(1_000), Vec::new());
        Self { shard: Shard::new(config), steering, snapshot, now, out, taken: 0 }
    }
}

impl WholeShard {
    fn drain(&mut self) {
        while let Some(output) = self.shard.poll_output(&mut self.out) {
            let keep_alive = self.out == b"\r\n\r\n";
            if matches!(output, Output::Send { .. }) && !keep_alive {
                // Only the head is checked: a response repeats header fields of a bad request as they came.
                let sent = Head::scan(&self.out).err();
                assert!(sent.is_none(), "the shard sent no message: {sent:?}\n{}", self.out.escape_ascii());
            }
        }
    }
}

impl WholeShard {
    /// Passes the message of `peek` to the shard and returns the last message that it sent.
    pub fn exchange(&mut self, peek: &Peek<'_>) -> &[u8] {
        // 1,000 per second: the transaction table has room for all of them.
        self.pass(Duration::from_millis(1));
        let flow = Flow::new(ListenerId(0), Transport::Udp, SocketAddr::from(([192, 0, 2, 10], 5_060)));
        self.give(flow, peek);
        while self.shard.poll_output(&mut self.out).is_some() {}
        &self.out
    }

    fn give(&mut self, flow: Flow, peek: &Peek<'_>) {
        let steered = self.steering.steer(peek, &self.snapshot).map(|(_, steered)| steered).unwrap_or_default();
        self.shard.prefetch(peek, &steered);
        self.shard.handle_input(
            self.now,
            Input::Message { arrival: self.now, flow, peek, steering: &steered, verdict: Verdict::Admit },
        );
    }

    /// Advances virtual time.
    fn pass(&mut self, time: Duration) {
        self.now += time;
        while self.shard.poll_timeout().is_some_and(|wakeup| wakeup.at <= self.now) {
            self.shard.handle_timeout(self.now);
            self.drain();
        }
    }
}

impl MessageTarget for WholeShard {
    fn take(&mut self, bytes: &[u8]) -> Option<String> {
        // 10,000 per second: tables fill, timers fire and both empty again.
        self.pass(Duration::from_micros(100));
        let peek = match Peek::read(bytes) {
            Ok(peek) => peek,
            Err(fault) => return Some(fault.to_string()),
        };
        let port = 1_024 + (self.taken % 60_000) as u16;
        let flow = Flow::new(ListenerId(0), Transport::Udp, SocketAddr::from(([192, 0, 2, 10], port)));
        let malformed = self.shard.counters().malformed;
        self.give(flow, &peek);
        self.drain();
        self.taken += 1;
        if self.taken.is_multiple_of(100_000) {
            self.shard.check_invariants();
        }
        (self.shard.counters().malformed > malformed).then(|| "Malformed".to_owned())
    }
}
