//! Keep-alives towards phones behind NAT.

use strowger_foundation::Buf;
use strowger_proxy::branch::{BranchId, BranchOwner};
use strowger_registrar::{KeepAlive, PendingKeepAlive};

use crate::options::OptionsRequest;
use crate::shard::Shard;

impl Shard {
    /// Writes an OPTIONS to a binding. Its branch belongs to no transaction, so the response is dropped.
    fn write_options(&self, out: &mut Buf, due: &PendingKeepAlive) {
        let Some(listener) = self.snapshot.listeners.get(due.flow.listener) else { return };
        let key = self.proxy.tag_key();
        let serial = self.counters.keep_alives.to_be_bytes();
        let place = key.hash64(&[&serial, &due.uri]);
        let branch = BranchId { shard: self.id, owner: BranchOwner::KeepAlive(place), loop_hash: place, process: 0 }
            .encode(self.proxy.ring());
        //= rfc3261#8.1.1.4:unique-call-id
        let tag = key.sign(&[&serial, &due.uri]).to_text();
        let uri = due.uri.split(|byte| *byte == b'?').next().unwrap_or(&[]);
        OptionsRequest { listener, uri, branch: &branch, tag: &tag }.write(out);
    }

    /// Sends a keep-alive for a NAT binding (RFC 5626 §3.5.1, or OPTIONS, as configured).
    pub(crate) fn keep_alive(&mut self, due: &PendingKeepAlive) {
        let kind = self.snapshot.registrar.keep_alive;
        let listener = self.snapshot.listeners.get(due.flow.listener);
        if kind == KeepAlive::Off || listener.is_none_or(|own| !own.carries(&due.flow)) {
            return;
        }
        self.counters.keep_alives += 1;
        let mut out = self.proxy.transactions().pool().take(512);
        match kind {
            KeepAlive::Options => self.write_options(&mut out, due),
            KeepAlive::Crlf | KeepAlive::Off => out.extend_from_slice(b"\r\n\r\n"),
        }
        self.proxy.transactions().send_once(due.flow, out);
    }
}
