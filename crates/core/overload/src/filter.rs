//! Kernel filter: drops the new work of each kind at or above a [position](crate::position()).

use memchr::{memchr, memmem};

use crate::position::{POSITIONS, Position};

/// Kinds of new work that a filter can tell apart by the first bytes and the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilteredKind {
    /// An INVITE outside a dialog, not to an emergency service.
    Call,
    /// The same from a [proven](crate::ProvenSources) source. A filter that does not know sources treats it as any
    /// other call.
    ProvenCall,
    /// The same from a trusted source.
    TrunkCall,
    /// A REGISTER.
    Register,
    /// All other new work.
    Other,
}

/// Inverse of the relative difference below which the kernel is not updated: loading a program takes a millisecond.
const CLOSE_FRACTION: u32 = 50;

/// Number of kinds.
pub const FILTERED_KINDS: usize = FilteredKind::ALL.len();

impl FilteredKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Call, Self::ProvenCall, Self::TrunkCall, Self::Register, Self::Other];

    /// Returns the kind that a filter with these abilities sees.
    #[must_use]
    pub const fn seen_by(self, abilities: FilterAbilities) -> Self {
        match self {
            Self::ProvenCall if !abilities.knows_sources => Self::Call,
            kind => kind,
        }
    }
}

/// What a filter can do beyond inspecting a message's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterAbilities {
    /// Whether it also drops retransmissions of what it has dropped. Such a filter may be moved at any time, since
    /// what it then lets through has not been sent before.
    pub has_memory: bool,
    /// Whether it knows [proven](crate::ProvenSources) sources.
    pub knows_sources: bool,
}

/// Returns the kind of new work from an unknown source, by its first bytes.
#[must_use]
pub fn kind_of(message: &[u8]) -> FilteredKind {
    match message.first_chunk::<4>() {
        Some(b"INVI") => FilteredKind::Call,
        Some(b"REGI") => FilteredKind::Register,
        _ => FilteredKind::Other,
    }
}

/// Whether a message is a call to a service URN such as an emergency service (RFC 5031), by its first bytes.
#[must_use]
pub fn is_to_service(message: &[u8]) -> bool {
    const BEGIN: &[u8] = b"INVITE urn:";
    message.get(..BEGIN.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(BEGIN))
}

/// Whether new work may be dropped unread: its To has no tag, so it belongs to no call, and it is not to an emergency
/// service. Reads no further than the To line; returns `false` if that is written unusually.
#[must_use]
pub fn may_be_dropped_unread(message: &[u8]) -> bool {
    if is_to_service(message) {
        return false;
    }
    if message.starts_with(b"REGISTER ") {
        return true;
    }
    let long = memmem::find(message, b"\nTo:").map(|at| at.saturating_add(1));
    let Some(at) = long.or_else(|| memmem::find(message, b"\nt:").map(|at| at.saturating_add(1))) else { return false };
    let line = message.get(at..).unwrap_or_default();
    let line = line.get(..memchr(b'\n', line).unwrap_or(line.len())).unwrap_or_default();
    memmem::find(line, b";tag").is_none()
}

/// Number of positions that pass, for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    passes: [u32; FILTERED_KINDS],
}

impl Filter {
    /// Filter that passes everything.
    pub const OPEN: Self = Self { passes: [POSITIONS; FILTERED_KINDS] };

    /// Returns how many positions of a kind pass, from 0 on.
    #[must_use]
    pub fn passing(&self, kind: FilteredKind) -> u32 {
        self.passes.get(kind as usize).copied().unwrap_or(POSITIONS)
    }

    /// Whether a message passes.
    #[must_use]
    pub fn passes(&self, kind: FilteredKind, position: Position) -> bool {
        u32::from(position) < self.passing(kind)
    }

    /// Returns the filter that passes what both pass.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut narrower = *self;
        FilteredKind::ALL.into_iter().for_each(|kind| narrower.set(kind, self.passing(kind).min(other.passing(kind))));
        narrower
    }

    /// Whether another filter passes nearly as much of each kind, so that updating the kernel is not worthwhile.
    #[must_use]
    pub fn is_close_to(&self, other: &Self) -> bool {
        FilteredKind::ALL.into_iter().all(|kind| {
            let (one, other) = (self.passing(kind), other.passing(kind));
            one.abs_diff(other) <= one.max(other) / CLOSE_FRACTION && (one == POSITIONS) == (other == POSITIONS)
        })
    }

    /// Whether everything passes.
    #[must_use]
    pub fn is_open(&self) -> bool {
        *self == Self::OPEN
    }

    /// Sets how many positions of a kind pass.
    pub fn set(&mut self, kind: FilteredKind, passing: u32) {
        if let Some(own) = self.passes.get_mut(kind as usize) {
            *own = passing.min(POSITIONS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_dialog_and_emergency_requests_are_always_read() {
        let message =
            |line: &str, to: &str| format!("{line} SIP/2.0\r\nFrom: <sip:a@b>;tag=1\r\n{to}\r\n\r\n").into_bytes();
        let dropped = |line, to| may_be_dropped_unread(&message(line, to));
        assert!(dropped("INVITE sip:b@c", "To: <sip:b@c>\r\nX: ;tag=1") && dropped("OPTIONS sip:b@c", "t:<sip:b@c>"));
        assert!(dropped("REGISTER sip:c", "To: <sip:b@c>;tag=1"));
        assert!(!dropped("INVITE sip:b@c", "To: <sip:b@c>;tag=1") && !dropped("OPTIONS sip:b@c", "t:<sip:b@c>;tag=x"));
        assert!(!dropped("INVITE urn:service:sos", "To: <urn:service:sos>"));
        assert!(!dropped("INVITE URN:service:sos", "To: <urn:service:sos>"));
        assert!(!dropped("INVITE sip:b@c", "TO: <sip:b@c>"), "it is read to find out");
    }

    #[test]
    fn an_open_filter_passes_all_and_a_closed_one_lower_positions() {
        let mut filter = Filter::OPEN;
        assert!(filter.is_open() && filter.passes(FilteredKind::Register, u16::MAX));
        filter.set(FilteredKind::Register, 100);
        assert!(filter.passes(FilteredKind::Register, 99) && !filter.passes(FilteredKind::Register, 100));
        assert!(filter.passes(FilteredKind::Call, u16::MAX) && !filter.is_open());
        let mut other = filter;
        other.set(FilteredKind::Register, 102);
        assert!(other.is_close_to(&filter));
        other.set(FilteredKind::Register, 105);
        assert!(!other.is_close_to(&filter) && !Filter::OPEN.is_close_to(&filter));
    }
}
