//! Proven sources as bytes, for another process that takes over from this one. The form is versioned by what contains
//! it; numbers are big-endian.
//!
//! | | bytes | |
//! |---|---|---|
//! | check of the seed | 8 | the bits of a source depend on it |
//! | begin and number of the younger generation | 8, 8 | |
//! | words | 8 each | twice [`PROVEN_WORDS`](crate::PROVEN_WORDS) |

use core::net::{IpAddr, Ipv4Addr};
use core::sync::atomic::Ordering;

use strowger_foundation::bytes::Reader;

use crate::proven::{PROVEN_WORDS, ProvenSources, source_hash};

impl ProvenSources {
    /// Appends all sources: a little more than 256 KiB.
    pub fn export(&self, out: &mut Vec<u8>) {
        let words = self.words();
        out.reserve(words.len().saturating_add(3).saturating_mul(8));
        let (began, changes) = self.generation();
        for number in [self.seed_check(), began.as_nanos(), changes] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        for word in words {
            out.extend_from_slice(&word.load(Ordering::Relaxed).to_be_bytes());
        }
    }

    /// Takes over what another process with the same seed and clock has [exported](Self::export), in place of the own
    /// sources. Returns `false`, without a change, for bytes that it cannot have written.
    pub fn import(&self, bytes: &[u8]) -> bool {
        let mut reader = Reader(bytes);
        let (check, began, changes) = (reader.number64(), reader.time(), reader.number64());
        let (Some(began), Some(changes)) = (began, changes) else { return false };
        let (words, rest) = reader.0.as_chunks::<8>();
        if check != Some(self.seed_check()) || words.len() != 2 * PROVEN_WORDS || !rest.is_empty() {
            return false;
        }
        for (own, word) in self.words().iter().zip(words) {
            own.store(u64::from_be_bytes(*word), Ordering::Relaxed);
        }
        self.set_generation(began, changes);
        true
    }

    fn seed_check(&self) -> u64 {
        source_hash(self.seed(), IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }
}

#[cfg(test)]
mod tests {
    use strowger_foundation::Timestamp;

    use super::*;
    use crate::proven::GENERATION;

    fn source(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    fn bytes_of(sources: &ProvenSources) -> Vec<u8> {
        let mut bytes = Vec::new();
        sources.export(&mut bytes);
        bytes
    }

    #[test]
    fn another_process_knows_the_sources_and_forgets_them_in_time() {
        let (old, new) = (ProvenSources::new(5), ProvenSources::new(5));
        let later = |times: u32| Timestamp::ZERO + GENERATION * times;
        old.insert(later(1), source(1));
        assert!(new.import(&bytes_of(&old)));
        assert!(new.contains(source(1)) && !new.contains(source(2)));
        new.insert(later(2), source(2));
        assert!(new.contains(source(1)) && new.contains(source(2)));
        new.insert(later(3), source(3));
        assert!(!new.contains(source(1)) && new.contains(source(2)));
    }

    #[test]
    fn bytes_of_something_else_are_refused_without_a_change() {
        let (old, new) = (ProvenSources::new(5), ProvenSources::new(5));
        old.insert(Timestamp::ZERO, source(1));
        let bytes = bytes_of(&old);
        let (shorter, longer) = (&bytes[..bytes.len() - 8], [&bytes[..], &[0]].concat());
        for other in [&[], &bytes[..20], shorter, &longer] {
            assert!(!new.import(other), "{} bytes", other.len());
        }
        assert!(!new.contains(source(1)));
        assert!(!ProvenSources::new(6).import(&bytes), "of another seed");
    }
}
