//! Changes of the location table as bytes: made from a REGISTER, stored, and applied once stored.
//!
//! A record is the whole *state* of one address of record, or a *refresh*, which only changes times. If members share
//! registrations, it is a set of *changes* of contacts, each with its [`Version`]; contacts that it does not name are
//! unaffected. Bindings are ordered by age, oldest first. Numbers are big-endian.
//!
//! | | bytes | |
//! |---|---|---|
//! | kind | 1 | 1 state, 2 refresh, 3 changes |
//! | address of record | 2 + n | |
//! | number of bindings | 2 | 0 in a state: no bindings |
//! | **binding of a state or of changes** | | |
//! | expiry | 8 | nanoseconds of [store time](crate::Locations::set_store_origin) |
//! | CSeq, Call-ID | 4, 16 | the Call-ID as keyed hash |
//! | flags, transport, q | 1, 1, 2 | |
//! | peer | 6 or 22 | address, port; for IPv6 also the scope |
//! | listener | 2, 6 or 22 | its number, and its address like the peer's |
//! | connection | 0 or 8 | |
//! | URI, Path, instance | 2 + n, 2 + n, 1 + n | |
//! | reg-id, epoch | 0 or 4 each | with an instance |
//! | version | 0 or 8 | in changes |
//! | **binding of a refresh** | | |
//! | expiry, CSeq | 8, 4 | |
//! | fingerprint | 8 | of URI, Path, instance and reg-id |
//! | **after the bindings of changes** | | |
//! | number of removals | 2 | |
//! | contact | 8 | hash of what identifies a contact: URI, or instance and reg-id |
//! | CSeq, Call-ID | 4, 16 | of the REGISTER that removed it |
//! | version | 8 | |

use core::net::SocketAddr;

use strowger_foundation::bytes::{Reader, put_address, put_text16, transport_number};
use strowger_foundation::{ConnId, Flow, HostId, ListenerId, TagKey, Transport};

use crate::gruu::canonicalize;
use crate::register_sequence::RegisterSequence;
use crate::text::Parts;
use crate::version::Version;
use crate::version_table::{Change, ContactKey, Resolution};

/// The error for bytes that are no valid record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRecord;

impl core::fmt::Display for BadRecord {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("not a record of the location table")
    }
}

impl core::error::Error for BadRecord {}

const STATE: u8 = 1;
const REFRESH: u8 = 2;
const CHANGES: u8 = 3;

/// Length of a removal in bytes.
const REMOVAL_LEN: usize = 8 + 4 + 16 + 8;

/// One change of a record.
#[derive(Clone, Copy, Debug)]
pub struct ContactChange<'r> {
    /// Hash that identifies its contact.
    pub contact: u64,
    /// Its version, which contains the time of the change.
    pub version: Version,
    /// When the binding expires, in milliseconds of store time; 0 for a removal.
    pub expires_ms: u64,
    /// The contact URI as registered; empty for a removal, which names its contact only by hash.
    pub uri: &'r [u8],
    /// The change as a separate record.
    pub record: &'r [u8],
}

/// A record, borrowed from its validated bytes.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    kind: u8,
    aor: &'a [u8],
    count: u16,
    bindings: &'a [u8],
    /// The removals of a change set.
    removals: &'a [u8],
}

/// One binding of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State<'a> {
    /// Expiry in nanoseconds of store time.
    pub(crate) expires: u64,
    pub(crate) cseq: u32,
    pub(crate) call_id: [u8; 16],
    /// Whether this record adds it; otherwise it existed before.
    pub(crate) is_new: bool,
    pub(crate) q: Option<u16>,
    pub(crate) is_translated: bool,
    pub(crate) reopen: bool,
    pub(crate) transport: Transport,
    pub(crate) peer: SocketAddr,
    pub(crate) listener: Listener,
    pub(crate) connection: Option<ConnId>,
    /// All variable-length fields except the address of record.
    pub(crate) parts: Parts<'a>,
    /// Its version; [`Version::NONE`] if not shared.
    pub(crate) version: Version,
}

/// A removed contact.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Removal {
    pub(crate) contact: ContactKey,
    pub(crate) change: Change,
}

/// A listener: its number is valid during the life of the process, its address afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    pub(crate) id: ListenerId,
    pub(crate) address: SocketAddr,
}

/// One binding of a refresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refresh {
    pub(crate) expires: u64,
    pub(crate) cseq: u32,
    pub(crate) fingerprint: u64,
}

impl<'a> Record<'a> {
    /// Parses and validates all of `bytes`.
    ///
    /// # Errors
    /// [`BadRecord`] if anything is missing, left over or out of range.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BadRecord> {
        Self::read(bytes).ok_or(BadRecord)
    }

    fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let kind = reader.byte()?;
        let aor = reader.text16()?;
        let count = reader.number16()?;
        let mut record = Self { kind, aor, count, bindings: reader.0, removals: &[] };
        for _ in 0..count {
            match kind {
                STATE | CHANGES => drop(reader.state(aor)?),
                REFRESH => drop(reader.refresh()?),
                _ => return None,
            }
        }
        if kind == CHANGES {
            let removals = reader.number16()?;
            record.removals = reader.text(usize::from(removals) * REMOVAL_LEN)?;
        }
        let is_whole = reader.0.is_empty() && matches!((kind, count), (STATE | CHANGES, _) | (REFRESH, 1..));
        is_whole.then_some(record)
    }

    /// Returns the address of record.
    #[must_use]
    pub const fn aor(&self) -> &'a [u8] {
        self.aor
    }

    /// Returns whether it has a binding.
    #[must_use]
    pub const fn has_bindings(&self) -> bool {
        self.count > 0
    }

    /// Returns whether it leaves the address without bindings.
    #[must_use]
    pub const fn is_removal(&self) -> bool {
        self.kind == STATE && self.count == 0
    }

    /// Returns whether it contains changes of some contacts, which leave others unaffected; used by members that
    /// share registrations.
    #[must_use]
    pub const fn is_change_set(&self) -> bool {
        self.kind == CHANGES
    }

    /// Returns the versions of its changes.
    pub fn versions(&self) -> impl Iterator<Item = Version> + use<'a> {
        self.states().map(|state| state.version).chain(self.removals().map(|removal| removal.change.version))
    }

    /// Calls `show` for each of its changes.
    pub fn for_each_change(&self, mut show: impl FnMut(ContactChange<'_>)) {
        let mut out = Vec::new();
        for state in self.states() {
            write_changes(&mut out, self.aor, core::iter::once(state), core::iter::empty());
            let (contact, expires_ms) = (state.parts.contact(), state.expires.div_ceil(1_000_000));
            let (version, uri) = (state.version, state.parts.uri);
            show(ContactChange { contact, version, expires_ms, uri, record: &out });
        }
        for removal in self.removals() {
            write_changes(&mut out, self.aor, core::iter::empty(), core::iter::once(removal));
            let Removal { contact, change } = removal;
            show(ContactChange { contact, version: change.version, expires_ms: 0, uri: &[], record: &out });
        }
    }

    /// Returns whether it contains only new times of bindings from an earlier state.
    #[must_use]
    pub const fn is_refresh(&self) -> bool {
        self.kind == REFRESH
    }

    /// Returns when the last of its bindings expires, in milliseconds of store time, rounded up; 0 for a removal.
    #[must_use]
    pub fn expires_ms(&self) -> u64 {
        let marks = self.removals().map(|removal| removal.change.retained_until());
        let states = self.states().map(|state| state.expires).chain(marks);
        states.chain(self.refreshes().map(|refresh| refresh.expires)).max().unwrap_or(0).div_ceil(1_000_000)
    }

    pub(crate) fn states(&self) -> impl Iterator<Item = State<'a>> + use<'a> {
        let (mut reader, aor) = (Reader(self.bindings), self.aor);
        let count = if self.kind == REFRESH { 0 } else { self.count };
        (0..count).map_while(move |_| reader.state(aor))
    }

    pub(crate) fn removals(&self) -> impl Iterator<Item = Removal> + use<'a> {
        let mut reader = Reader(self.removals);
        core::iter::from_fn(move || reader.removal())
    }

    /// Returns the version data of the contact's change, if the record contains one.
    fn change_of(&self, contact: ContactKey) -> Option<Change> {
        let bound = self.states().find(|state| state.parts.contact() == contact).map(|state| state.change());
        bound.or_else(|| self.removals().find(|removal| removal.contact == contact).map(|removal| removal.change))
    }

    pub(crate) fn refreshes(&self) -> impl Iterator<Item = Refresh> + use<'a> {
        let mut reader = Reader(self.bindings);
        let count = if self.kind == REFRESH { self.count } else { 0 };
        (0..count).map_while(move |_| reader.refresh())
    }
}

/// Writes the result of applying `newer` to `base` to `out`: a whole state, or a refresh if there is no base. Returns
/// `false` if no bindings remain. An invalid record is ignored.
pub fn merge(base: Option<&[u8]>, newer: &[u8], out: &mut Vec<u8>) -> bool {
    out.clear();
    let base = base.and_then(Record::read);
    let newer = Record::read(newer);
    if let (Some(base), Some(newer)) = (&base, newer.as_ref().filter(|newer| newer.is_change_set())) {
        merge_changes(base, newer, out);
        return true;
    }
    let (Some(base), Some(refresh)) = (base, newer.filter(Record::is_refresh)) else {
        let Some(last) = newer.or(base) else { return false };
        begin(out, last.kind, last.aor);
        set_count(out, last.aor, last.count);
        out.extend_from_slice(last.bindings);
        return !last.is_removal();
    };
    let renewal = |fingerprint: u64| refresh.refreshes().find(|refresh| refresh.fingerprint == fingerprint);
    begin(out, if base.is_refresh() { REFRESH } else { STATE }, base.aor);
    let mut count = 0;
    // A refreshed binding becomes the youngest.
    for state in base.states().filter(|state| renewal(state.parts.fingerprint()).is_none()) {
        state.write(out);
        count += 1;
    }
    for renewal in refresh.refreshes() {
        for state in base.states().filter(|state| state.parts.fingerprint() == renewal.fingerprint) {
            State { expires: renewal.expires, cseq: renewal.cseq, ..state }.write(out);
            count += 1;
        }
    }
    if base.is_refresh() {
        for older in base.refreshes().filter(|older| renewal(older.fingerprint).is_none()).chain(refresh.refreshes()) {
            older.write(out);
            count += 1;
        }
    }
    set_count(out, base.aor, count);
    count > 0
}

/// Writes the changes of both, for each contact only the newest. A change that was never shared is older than a
/// shared one.
fn merge_changes(base: &Record<'_>, newer: &Record<'_>, out: &mut Vec<u8>) {
    let stays = |contact: ContactKey, change: Change| {
        newer.change_of(contact).is_none_or(|other| !matches!(other.resolve(change), Resolution::Replace(_)))
    };
    let comes = |contact: ContactKey, change: Change| {
        base.change_of(contact).is_none_or(|other| matches!(change.resolve(other), Resolution::Replace(_)))
    };
    let states = base.states().filter(|state| stays(state.parts.contact(), state.change()));
    let states = states.chain(newer.states().filter(|state| comes(state.parts.contact(), state.change())));
    let removals = base.removals().filter(|removal| stays(removal.contact, removal.change));
    let removals = removals.chain(newer.removals().filter(|removal| comes(removal.contact, removal.change)));
    write_changes(out, base.aor, states, removals);
}

/// Clears `out` and begins a record.
fn begin(out: &mut Vec<u8>, kind: u8, aor: &[u8]) {
    out.clear();
    out.push(kind);
    put_text16(out, aor);
    out.extend_from_slice(&[0; 2]);
}

fn set_count(out: &mut [u8], aor: &[u8], count: u16) {
    let place = out.get_mut(3 + aor.len()..).unwrap_or_default();
    for (place, byte) in place.iter_mut().zip(count.to_be_bytes()) {
        *place = byte;
    }
}

/// Writes a whole state of `aor`.
pub(crate) fn write_state<'a>(out: &mut Vec<u8>, aor: &[u8], states: impl Iterator<Item = State<'a>>) {
    begin(out, STATE, aor);
    let mut count: u16 = 0;
    for state in states {
        state.write(out);
        count = count.saturating_add(1);
    }
    set_count(out, aor, count);
}

/// Writes changes of `aor`.
pub(crate) fn write_changes<'a>(
    out: &mut Vec<u8>,
    aor: &[u8],
    states: impl Iterator<Item = State<'a>>,
    removals: impl Iterator<Item = Removal>,
) {
    begin(out, CHANGES, aor);
    let mut count: u16 = 0;
    for state in states {
        state.write(out);
        count = count.saturating_add(1);
    }
    set_count(out, aor, count);
    let at = out.len();
    out.extend_from_slice(&[0; 2]);
    let mut count: u16 = 0;
    for removal in removals {
        removal.write(out);
        count = count.saturating_add(1);
    }
    for (place, byte) in out.iter_mut().skip(at).zip(count.to_be_bytes()) {
        *place = byte;
    }
}

/// Writes a refresh of `aor`.
pub(crate) fn write_refresh(out: &mut Vec<u8>, aor: &[u8], refreshes: impl Iterator<Item = Refresh>) {
    begin(out, REFRESH, aor);
    let mut count: u16 = 0;
    for refresh in refreshes {
        refresh.write(out);
        count = count.saturating_add(1);
    }
    set_count(out, aor, count);
}

const IS_NEW: u8 = 1;
const HAS_Q: u8 = 2;
const TRANSLATED: u8 = 4;
const REOPEN: u8 = 8;
const CONNECTED: u8 = 16;
const PEER_V6: u8 = 32;
const LISTENER_V6: u8 = 64;
const SHARED: u8 = 128;

impl State<'_> {
    pub(crate) const fn flow(&self) -> Flow {
        let Self { transport, reopen, peer, connection, .. } = *self;
        Flow { listener: self.listener.id, transport, reopen, host: HostId::NONE, peer, connection }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(self.is_new, IS_NEW)
            | flag(self.q.is_some(), HAS_Q)
            | flag(self.is_translated, TRANSLATED)
            | flag(self.reopen, REOPEN)
            | flag(self.connection.is_some(), CONNECTED)
            | flag(self.peer.is_ipv6(), PEER_V6)
            | flag(self.listener.address.is_ipv6(), LISTENER_V6)
            | flag(self.version != Version::NONE, SHARED);
        out.extend_from_slice(&self.expires.to_be_bytes());
        out.extend_from_slice(&self.cseq.to_be_bytes());
        out.extend_from_slice(&self.call_id);
        out.extend_from_slice(&[flags, transport_number(self.transport)]);
        out.extend_from_slice(&self.q.unwrap_or(0).to_be_bytes());
        put_address(out, self.peer);
        out.extend_from_slice(&self.listener.id.0.to_be_bytes());
        put_address(out, self.listener.address);
        if let Some(connection) = self.connection {
            out.extend_from_slice(&connection.to_bits().to_be_bytes());
        }
        put_text16(out, self.parts.uri);
        put_text16(out, self.parts.path);
        out.push(u8::try_from(self.parts.instance.len()).unwrap_or(0));
        if !self.parts.instance.is_empty() {
            out.extend_from_slice(self.parts.instance);
            out.extend_from_slice(&self.parts.reg_id.to_be_bytes());
            out.extend_from_slice(&self.parts.epoch.to_be_bytes());
        }
        if self.version != Version::NONE {
            out.extend_from_slice(&self.version.to_bits().to_be_bytes());
        }
    }

    pub(crate) const fn change(&self) -> Change {
        Change { version: self.version, call: RegisterSequence { id: self.call_id, cseq: self.cseq }, is_binding: true }
    }
}

impl Removal {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.contact.to_be_bytes());
        out.extend_from_slice(&self.change.call.cseq.to_be_bytes());
        out.extend_from_slice(&self.change.call.id);
        out.extend_from_slice(&self.change.version.to_bits().to_be_bytes());
    }
}

impl Refresh {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.expires.to_be_bytes());
        out.extend_from_slice(&self.cseq.to_be_bytes());
        out.extend_from_slice(&self.fingerprint.to_be_bytes());
    }
}

impl Parts<'_> {
    /// Returns a hash that distinguishes the bindings of one address. It is stored, so it must not change between
    /// versions of the program.
    pub(crate) fn fingerprint(&self) -> u64 {
        TagKey::new([0; 16]).hash64(&[self.uri, self.path, self.instance, &self.reg_id.to_be_bytes()])
    }

    /// Returns the contact's key, which is the same in all members.
    pub(crate) fn contact(&self) -> ContactKey {
        contact_key(self.aor, self.uri, self.instance, self.reg_id)
    }
}

//= rfc5626#6:flow-updated
/// Returns the key of a contact, which is the same in all members: of the flow of an instance or, if `reg_id` is 0,
/// of the URI as written. It must not change between versions of the program.
pub(crate) fn contact_key(aor: &[u8], uri: &[u8], instance: &[u8], reg_id: u32) -> ContactKey {
    let key = TagKey::new([0; 16]);
    if reg_id == 0 {
        key.hash64(&[aor, uri])
    } else {
        key.hash64(&[aor, &canonicalize(instance), &reg_id.to_be_bytes()])
    }
}

/// Reads the parts of a record.
trait ReadRecord<'a> {
    fn refresh(&mut self) -> Option<Refresh>;
    fn removal(&mut self) -> Option<Removal>;
    fn state(&mut self, aor: &'a [u8]) -> Option<State<'a>>;
}

impl<'a> ReadRecord<'a> for Reader<'a> {
    fn refresh(&mut self) -> Option<Refresh> {
        Some(Refresh { expires: self.number64()?, cseq: self.number32()?, fingerprint: self.number64()? })
    }

    fn removal(&mut self) -> Option<Removal> {
        let (contact, cseq, id) = (self.number64()?, self.number32()?, self.take()?);
        let version = Version::from_bits(self.number64()?);
        Some(Removal { contact, change: Change { version, call: RegisterSequence { id, cseq }, is_binding: false } })
    }

    fn state(&mut self, aor: &'a [u8]) -> Option<State<'a>> {
        let (expires, cseq, call_id) = (self.number64()?, self.number32()?, self.take()?);
        let flags = self.byte()?;
        let transport = self.transport()?;
        let q = self.number16()?;
        let is_set = |flag: u8| flags & flag != 0;
        let q = is_set(HAS_Q).then_some(q);
        let peer = self.address(is_set(PEER_V6))?;
        let id = ListenerId(self.number16()?);
        let listener = Listener { id, address: self.address(is_set(LISTENER_V6))? };
        let connection = if is_set(CONNECTED) { Some(ConnId::from_bits(self.number64()?)?) } else { None };
        let (uri, path) = (self.text16()?, self.text16()?);
        let instance = self.byte()?;
        let instance = self.text(instance.into())?;
        let (reg_id, epoch) = if instance.is_empty() { (0, 0) } else { (self.number32()?, self.number32()?) };
        let version = if is_set(SHARED) { Version::from_bits(self.number64()?) } else { Version::NONE };
        Some(State {
            expires,
            cseq,
            call_id,
            is_new: is_set(IS_NEW),
            q: match q {
                Some(1001..) => return None,
                q => q,
            },
            is_translated: is_set(TRANSLATED),
            reopen: is_set(REOPEN),
            transport,
            peer,
            listener,
            connection,
            parts: Parts { aor, uri, path, instance, reg_id, epoch },
            version,
        })
    }
}
