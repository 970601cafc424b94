//! Removal of registrations by an operator: of a user who was removed or disabled, or of an active user.

use core::net::Ipv4Addr;
use std::sync::Arc;

use strowger_foundation::{Flow, ListenerId, Timestamp, Transport};
use strowger_message::Uri;
use strowger_registrar::{ContactUpdate, Durability, OptionTags, Path, Record, Source, Update, UpdateKind};

use crate::boundary::Event;
use crate::shard::Shard;

impl Shard {
    /// Removes the bindings of `aor` and cancels its pending REGISTERs, because its user was removed or disabled.
    pub(crate) fn bar_user(&mut self, now: Timestamp, aor: &[u8]) {
        let mut record = self.pending_registers.buffer();
        self.locations.remove_address(now, aor, &mut record);
        self.pending_registers.bar(aor);
        match self.snapshot.registrar.durability {
            Durability::Memory => self.pending_registers.recycle(record),
            Durability::WriteBehind | Durability::WriteThrough => self.pending_registers.push_record(None, record),
        }
    }

    /// Removes all bindings of `aor`, or that of one contact, as if a phone had requested it after all REGISTERs
    /// received so far. The command waits behind pending REGISTERs, because it must take their results into account.
    /// For the same reason it does nothing while stored registrations are being loaded.
    pub(crate) fn unregister(&mut self, now: Timestamp, aor: &[u8], contact: Option<&[u8]>) {
        if !self.locations.is_complete() {
            return;
        }
        if !self.pending_registers.is_queued(aor) {
            self.apply_unregister(now, aor, contact);
        } else if !self.pending_registers.add_command(aor, contact) {
            self.report(Event::TableFull { table: "pending unregister commands" });
        }
    }

    /// Applies a command to unregister; call it only while nothing of `aor` is at the store.
    pub(crate) fn apply_unregister(&mut self, now: Timestamp, aor: &[u8], contact: Option<&[u8]>) {
        match contact {
            // This also removes bindings that the store has and the table has not.
            None => self.apply_update(now, aor, UpdateKind::RemoveAll),
            Some(contact) => self.remove_contact(now, aor, contact),
        }
    }

    fn remove_contact(&mut self, now: Timestamp, aor: &[u8], contact: &[u8]) {
        let Some(uri) = Uri::parse(contact) else { return };
        // Flows of one device may share one URI.
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
            supported: OptionTags::default(),
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
