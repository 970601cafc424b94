//! Registers a contact without a message, so that nothing else costs memory or time.

use smallvec::SmallVec;
use strowger_foundation::{Flow, ListenerId, Timestamp, Transport};
use strowger_message::Uri;
use strowger_registrar::{ContactUpdate, Locations, OptionTags, Policy, Source, Update, UpdateKind};

pub(crate) fn register(locations: &Locations, aor: &str, uri: &str, peer: &str, expires_s: u32) {
    let uri = Uri::parse(uri.as_bytes()).expect("a URI");
    let contact = ContactUpdate { uri, expires_s: Some(expires_s), q: None, instance: b"", reg_id: None };
    let update = Update {
        call_id: b"7a1f9c64-3d22-4a9e@192.0.2.1",
        cseq: 1,
        path: SmallVec::new(),
        supported: OptionTags::default(),
        is_first_hop: true,
        kind: UpdateKind::Contacts([contact].into_iter().collect()),
    };
    let flow = Flow::new(ListenerId(0), Transport::Udp, peer.parse().expect("an address"));
    let source = Source { flow, via_sent_by_matches: true };
    locations.apply(Timestamp::ZERO, aor.as_bytes(), &Policy::default(), &source, &update).expect("taken");
}
