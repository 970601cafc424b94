//! The outbox of a driver in virtual time: what it sent, until the test delivers it. Tests of the driver use it too.

#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::Outbox;

#[derive(Default)]
pub(crate) struct Wire {
    slot: Vec<u8>,
    sent: VecDeque<(SocketAddr, Vec<u8>)>,
}

impl Wire {
    /// Returns the next message.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        self.next_with_peer().map(|(_, bytes)| bytes)
    }

    /// Returns the next message and its destination.
    pub(crate) fn next_with_peer(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.sent.pop_front()
    }

    pub(crate) fn push(&mut self, peer: SocketAddr, bytes: Vec<u8>) {
        self.sent.push_back((peer, bytes));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }
}

impl Outbox for Wire {
    fn slot(&mut self, _: u32) -> &mut Vec<u8> {
        self.slot.clear();
        &mut self.slot
    }

    fn commit(&mut self, _: u32, peer: SocketAddr, _: u64) {
        self.sent.push_back((peer, self.slot.clone()));
    }

    fn connect(&mut self, _: SocketAddr, _: bool) -> Option<u32> {
        Some(0)
    }

    fn close(&mut self, _: u32) {}
}
