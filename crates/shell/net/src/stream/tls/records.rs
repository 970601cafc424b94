//! Boundaries of records in what a peer sends (RFC 8446 §5.1).

/// Length of a record's header.
const HEADER: usize = 5;

/// Follows the records of a peer, because the TLS library does not tell how much of an incomplete one it holds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecordTracker {
    /// Number of bytes received of the current record's header.
    header: u8,
    /// Length of the current record after its header.
    length: u16,
    /// Number of bytes that it still lacks.
    left: u16,
}

impl RecordTracker {
    /// Takes received bytes.
    pub(super) fn advance(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((&first, after)) = rest.split_first() {
            if usize::from(self.header) < HEADER {
                // The last two bytes of the header are the length.
                self.length = self.length << 8 | u16::from(first);
                self.header += 1;
                self.left = self.length;
                rest = after;
            } else {
                let taken = rest.len().min(usize::from(self.left));
                self.left -= u16::try_from(taken).unwrap_or(self.left);
                rest = rest.get(taken..).unwrap_or_default();
            }
            if usize::from(self.header) == HEADER && self.left == 0 {
                *self = Self::default();
            }
        }
    }

    /// Returns the number of bytes received of an incomplete record; 0 between records.
    pub(super) const fn incomplete(&self) -> usize {
        let body = if self.header as usize == HEADER { self.length - self.left } else { 0 };
        self.header as usize + body as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_an_incomplete_record_are_known_however_they_arrive() {
        let records = [&b"\x17\x03\x03\x01\x02"[..], &[7; 0x102], b"\x15\x03\x03\x00\x00", b"\x17\x03\x03\x00\x01!"];
        let all = records.concat();
        let ends: Vec<usize> = records[..1].iter().map(|_| 0x107).chain([0x10C, 0x112]).collect();
        for step in [1, 2, 3, 7, 100, all.len()] {
            let (mut tracker, mut at) = (RecordTracker::default(), 0);
            for piece in all.chunks(step) {
                tracker.advance(piece);
                at += piece.len();
                let begin = ends.iter().copied().filter(|end| *end <= at).max().unwrap_or(0);
                assert_eq!(tracker.incomplete(), at - begin, "after {at} bytes in steps of {step}");
            }
            assert_eq!((at, tracker.incomplete()), (0x112, 0));
        }
    }
}
