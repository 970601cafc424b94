//! Used nonce counts as bytes, for another process that takes over from this one and has the same seed. The form is
//! versioned by what contains it; numbers are big-endian.
//!
//! | of each stripe | bytes | |
//! |---|---|---|
//! | whether nonces were forgotten, the last of them | 1, 8 | 0 if none |
//! | number of nonces | 4 | |
//! | nonce, highest count, used counts | 8, 4, 8 | of each, in ascending order |

use core::iter;

use strowger_foundation::bytes::Reader;

use super::{NonceWindows, Stripe, Window, lock};
use crate::nonce::NonceId;

/// Length of a nonce with its counts.
const NONCE_LEN: usize = 8 + 4 + 8;
/// Length of what precedes the nonces of a stripe.
const HEAD_LEN: usize = 1 + 8 + 4;

impl NonceWindows {
    /// Appends all counts. The length is bounded by [`MAX_NONCES_PER_STRIPE`](super::MAX_NONCES_PER_STRIPE).
    pub fn export(&self, out: &mut Vec<u8>) {
        for stripe in self.stripes.iter().map(lock) {
            out.reserve(stripe.windows.len().saturating_mul(NONCE_LEN).saturating_add(HEAD_LEN));
            out.push(u8::from(stripe.forgotten_until.is_some()));
            out.extend_from_slice(&stripe.forgotten_until.map_or(0, NonceId::to_bits).to_be_bytes());
            // A stripe has far fewer nonces.
            out.extend_from_slice(&u32::try_from(stripe.windows.len()).unwrap_or(u32::MAX).to_be_bytes());
            for (id, window) in &stripe.windows {
                out.extend_from_slice(&id.to_bits().to_be_bytes());
                out.extend_from_slice(&window.highest.to_be_bytes());
                out.extend_from_slice(&window.used.to_be_bytes());
            }
        }
    }

    /// Takes over what another process with the same seed has [exported](Self::export), in place of the own counts.
    /// Returns the number of nonces, or `None`, without a change, for bytes that it cannot have written.
    pub fn import(&self, bytes: &[u8]) -> Option<usize> {
        let mut reader = Reader(bytes);
        let stripes = iter::repeat_with(|| Stripe::read(&mut reader, self.max_per_stripe));
        let stripes = stripes.take(self.stripes.len()).collect::<Option<Vec<_>>>()?;
        if !reader.is_empty() {
            return None;
        }
        let mut nonces = 0_usize;
        for (own, read) in self.stripes.iter().map(lock).zip(stripes) {
            let mut own = own;
            nonces = nonces.saturating_add(read.windows.len());
            *own = Stripe { evicted: own.evicted, ..read };
        }
        Some(nonces)
    }
}

impl Stripe {
    fn read(reader: &mut Reader<'_>, max: usize) -> Option<Self> {
        let has_forgotten = reader.byte()? != 0;
        let forgotten_until = Some(reader.number64()?).filter(|_| has_forgotten).map(NonceId::from_bits);
        let count = usize::try_from(reader.number32()?).ok()?;
        let mut nonces = Reader(reader.text(count.checked_mul(NONCE_LEN)?)?);
        let window = || {
            let id = NonceId::from_bits(nonces.number64()?);
            Some((id, Window { highest: nonces.number32()?, used: nonces.number64()? }))
        };
        // From sorted pairs the map is built without a search for each.
        let windows = iter::from_fn(window).collect();
        let mut stripe = Self { windows, forgotten_until, evicted: 0 };
        while stripe.windows.len() > max {
            stripe.forget_oldest();
        }
        Some(stripe)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use strowger_foundation::Timestamp;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(90_000);
    const AGE: Duration = Duration::from_secs(3600);

    fn windows() -> NonceWindows {
        NonceWindows::with_limit(4, 9, 100)
    }

    fn id(number: u64) -> NonceId {
        NonceId::issue(NOW, number)
    }

    fn bytes_of(windows: &NonceWindows) -> Vec<u8> {
        let mut bytes = Vec::new();
        windows.export(&mut bytes);
        bytes
    }

    #[test]
    fn no_count_is_used_again_at_the_other_process_and_no_unused_one_is_lost() {
        let (old, new) = (windows(), windows());
        for nc in [1, 2, 5, 70] {
            assert!(old.use_count(NOW, AGE, id(1), Some(nc)));
        }
        assert!(old.use_count(NOW, AGE, id(2), None));
        assert_eq!(new.import(&bytes_of(&old)), Some(2));
        for (number, nc) in [(1, Some(1)), (1, Some(5)), (1, Some(70)), (1, Some(6)), (2, None), (2, Some(1))] {
            assert!(!new.use_count(NOW, AGE, id(number), nc), "{number} {nc:?}");
        }
        for (number, nc) in [(1, Some(69)), (1, Some(71)), (3, Some(1))] {
            assert!(new.use_count(NOW, AGE, id(number), nc), "{number} {nc:?}");
        }
    }

    #[test]
    fn nonces_that_were_forgotten_stay_so() {
        let (old, new) = (NonceWindows::with_limit(1, 9, 3), NonceWindows::with_limit(1, 9, 2));
        assert!((0..5).all(|number| old.use_count(NOW, AGE, id(number), Some(1))));
        // The other process has less room.
        assert_eq!(new.import(&bytes_of(&old)), Some(2));
        assert!((0..3).all(|number| !new.use_count(NOW, AGE, id(number), Some(2))));
        assert!((3..5).all(|number| new.use_count(NOW, AGE, id(number), Some(2))));
    }

    #[test]
    fn bytes_of_something_else_are_refused_without_a_change() {
        let (old, new) = (windows(), windows());
        assert!(old.use_count(NOW, AGE, id(1), Some(1)));
        assert!(new.use_count(NOW, AGE, id(8), Some(1)));
        let bytes = bytes_of(&old);
        for length in 0..bytes.len() {
            assert_eq!(new.import(&bytes[..length]), None, "{length} bytes");
        }
        assert_eq!(new.import(&[&bytes[..], &[0]].concat()), None);
        let mut long = bytes.clone();
        long[9..13].fill(0xff);
        assert_eq!(new.import(&long), None);
        assert_eq!(NonceWindows::with_limit(3, 9, 100).import(&bytes), None, "of other stripes");
        assert!(!new.use_count(NOW, AGE, id(8), Some(1)));
    }
}
