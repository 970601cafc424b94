//! Registrations that end because an operator wants it: of a user who may not be called any more, or while the user stays.

use core::net::Ipv4Addr;
use std::sync::Arc;

use strowger_foundation::{Flow, ListenerId, Timestamp, Transport};
use strowger_message::Uri;
use strowger_registrar::{ContactUpdate, Durability, Path, Record, Source, Supported, Update, UpdateKind};

use crate::boundary::Event;
use crate::shard::Shard;

impl Shard {
    /// The user of `aor` may not be called any more: also what waits for the store comes to nothing.
    pub(crate) fn bar_user(&mut self, now: Timestamp, aor: &[u8]) {
        let mut record = self.pending_registers.buffer();
        self.locations.remove_address(now, aor, &mut record);
        self.pending_registers.bar(aor);
        match self.snapshot.registrar.durability {
            Durability::Memory => self.pending_registers.recycle(record),
            Durability::WriteBehind | Durability::WriteThrough => self.pending_registers.push_record(None, record),
        }
    }

    /// The registrations of `aor` end, or that of one contact, as if a phone had said so after all REGISTERs that have come: it
    /// takes its turn behind those that wait for the store, for what is made from the table has to know what they leave. For the
    /// same reason nothing is done while the registrations of before are still being read.
    pub(crate) fn unregister(&mut self, now: Timestamp, aor: &[u8], contact: Option<&[u8]>) {
        if !self.locations.is_complete() {
            return;
        }
        if !self.pending_registers.is_queued(aor) {
            self.apply_unregister(now, aor, contact);
        } else if !self.pending_registers.add_command(aor, contact) {
            self.report(Event::TableFull { table: "orders to unregister that wait for the store" });
        }
    }

    /// Only while nothing of `aor` is at the store.
    pub(crate) fn apply_unregister(&mut self, now: Timestamp, aor: &[u8], contact: Option<&[u8]>) {
        match contact {
            // What the store has and the table has not goes too.
            None => self.apply_update(now, aor, UpdateKind::RemoveAll),
            Some(contact) => self.remove_contact(now, aor, contact),
        }
    }

    fn remove_contact(&mut self, now: Timestamp, aor: &[u8], contact: &[u8]) {
        let Some(uri) = Uri::parse(contact) else { return };
        // Flows of one device may have one URI.
        let mut found: Vec<(Box<[u8]>, Option<u32>)> = Vec::new();
        self.locations.for_each_in_stripe(now, self.id.0, |binding| {
            if binding.aor == aor && binding.uri == contact {
                found.push((binding.instance.into(), binding.reg_id));
            }
        });
        if found.is_empty() {
            return;
        }
        let contacts = found.iter().map(|(instance, reg_id)| ContactUpdate {
            uri,
            expires_s: Some(0),
            q: None,
            instance,
            reg_id: *reg_id,
        });
        self.apply_update(now, aor, UpdateKind::Contacts(contacts.collect()));
    }

    fn apply_update(&mut self, now: Timestamp, aor: &[u8], kind: UpdateKind<'_>) {
        let update = Update {
            call_id: b"operator",
            cseq: u32::MAX,
            path: Path::new(),
            supported: Supported::default(),
            is_first_hop: true,
            kind,
        };
        let nowhere = Flow::new(ListenerId(0), Transport::Udp, (Ipv4Addr::UNSPECIFIED, 0).into());
        let source = Source { flow: nowhere, via_sent_by_matches: true };
        let snapshot = Arc::clone(&self.snapshot);
        let mut record = self.pending_registers.buffer();
        let staged = self.locations.stage(now, aor, &snapshot.registrar, &source, &update, &mut record);
        let (Ok(_), Ok(parsed)) = (staged, Record::parse(&record)) else {
            return self.pending_registers.recycle(record);
        };
        self.commit_record(now, &parsed, None);
        match snapshot.registrar.durability {
            Durability::Memory => self.pending_registers.recycle(record),
            Durability::WriteBehind | Durability::WriteThrough => self.pending_registers.push_record(None, record),
        }
    }
}
