//! One binding, small.

use core::cmp::Ordering;

use strowger_foundation::wheel::TimerId;
use strowger_foundation::{Flow, Timestamp};

use crate::locations::Target;

/// One contact of one address of record. 104 bytes, and the text behind it.
#[derive(Debug)]
pub(crate) struct Binding {
    /// The address of record, then the contact URI.
    pub(crate) text: Box<[u8]>,
    pub(crate) call_id: [u8; 16],
    pub(crate) expires: Timestamp,
    pub(crate) expiry: TimerId,
    pub(crate) keep_alive: TimerId,
    pub(crate) cseq: u32,
    /// Counts the stripe's updates; tells which binding is newer, and wraps.
    pub(crate) serial: u32,
    pub(crate) aor_len: u16,
    pub(crate) preference: Preference,
    pub(crate) flow: Flow,
}

const _: () = assert!(size_of::<Binding>() <= 104, "the budget of a binding");

/// q and the translation in two bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preference(u16);

impl Binding {
    pub(crate) fn aor(&self) -> &[u8] {
        self.text.get(..usize::from(self.aor_len)).unwrap_or(&[])
    }

    pub(crate) fn uri(&self) -> &[u8] {
        self.text.get(usize::from(self.aor_len)..).unwrap_or(&[])
    }

    pub(crate) fn target(&self) -> Target {
        Target {
            uri: self.uri().into(),
            q: self.preference.q().unwrap_or(1000),
            flow: self.flow,
            translated: self.preference.is_translated(),
        }
    }

    /// Rounded up, so that a binding that is still there never shows 0.
    pub(crate) fn expires_in_s(&self, now: Timestamp) -> u64 {
        let left = self.expires.saturating_since(now);
        left.as_secs() + u64::from(left.subsec_nanos() > 0)
    }

    /// By falling q, among equals the newest first.
    pub(crate) fn precedence(&self, other: &Self) -> Ordering {
        let q = |binding: &Self| binding.preference.q().unwrap_or(1000);
        let newer = self.serial.wrapping_sub(other.serial).cast_signed();
        q(other).cmp(&q(self)).then(0.cmp(&newer))
    }
}

impl Preference {
    const TRANSLATED: u16 = 1 << 15;
    const GIVEN: u16 = 1 << 14;

    pub(crate) const fn new(q: Option<u16>, translated: bool) -> Self {
        let translated = if translated { Self::TRANSLATED } else { 0 };
        match q {
            Some(q) => Self(translated | Self::GIVEN | if q < 1000 { q } else { 1000 }),
            None => Self(translated),
        }
    }

    pub(crate) fn q(self) -> Option<u16> {
        (self.0 & Self::GIVEN != 0).then_some(self.0 & (Self::GIVEN - 1))
    }

    pub(crate) const fn is_translated(self) -> bool {
        self.0 & Self::TRANSLATED != 0
    }
}
