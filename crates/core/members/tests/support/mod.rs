//! Location tables of members, users who register there, and reproducible choices.

use strowger_foundation::{Flow, ListenerId, Timestamp, Transport};
use strowger_message::Message;
use strowger_registrar::{Locations, MemberId, Policy, Source, Update};

/// Wall time at the start, in ns since 1970.
const BEGAN: u64 = 1_700_000_000_000_000_000;

/// Pseudo-random numbers (xorshift), the same for each seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn draw(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// Returns the empty location table of member `number` and the time of its start in ms since 1970. The clocks of the
/// members are a minute apart.
pub(crate) fn locations(number: u16, now: Timestamp) -> (MemberId, Locations, u64) {
    let id = MemberId::new(number).expect("a number");
    let listener = (Transport::Udp, format!("192.0.2.{number}:5060").parse().expect("an address"));
    let locations = Locations::new(2, 7)
        .with_listeners([listener])
        .with_member(id, Policy::default().expires_max)
        .with_pending_source();
    let origin = BEGAN + u64::from(number) * 60_000_000_000;
    locations.set_store_origin(origin);
    (id, locations, origin / 1_000_000 + now.as_millis())
}

pub(crate) fn aor(user: u8) -> Vec<u8> {
    format!("user{user}@example.com").into_bytes()
}

/// Returns the URIs to which a user is bound.
pub(crate) fn uris(locations: &Locations, now: Timestamp, user: u8) -> Vec<String> {
    let mut targets = Vec::new();
    locations.lookup(now, &aor(user), &mut targets);
    targets.iter().map(|target| String::from_utf8(target.uri.to_vec()).expect("ASCII")).collect()
}

/// Stages a user's REGISTER, which binds the only contact or removes it. Returns the record, or `None` if it is refused.
pub(crate) fn stage(locations: &Locations, now: Timestamp, user: u8, cseq: u32, is_bound: bool) -> Option<Vec<u8>> {
    let expires = if is_bound { 3_600 } else { 0 };
    let text = format!(
        "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP 198.51.100.{user}:5060;branch=z9hG4bKa\r\n\
         From: <sip:user{user}@example.com>;tag=1\r\nTo: <sip:user{user}@example.com>\r\nCall-ID: {user}\r\n\
         CSeq: {cseq} REGISTER\r\nContact: <sip:user{user}@198.51.100.{user}>;expires={expires}\r\nContent-Length: 0\r\n\r\n"
    );
    let message = Message::parse(text.as_bytes()).expect("valid");
    let update = Update::read(&message).expect("valid");
    let peer = format!("198.51.100.{user}:5060").parse().expect("an address");
    let source = Source { flow: Flow::new(ListenerId(0), Transport::Udp, peer), via_sent_by_matches: true };
    let mut record = Vec::new();
    let staged = locations.stage(now, &aor(user), &Policy::default(), &source, &update, &mut record);
    staged.is_ok().then_some(record)
}
