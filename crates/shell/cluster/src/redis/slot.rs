//! Mapping of keys to the 16,384 slots of a Redis Cluster.

/// Number of slots.
pub(crate) const SLOTS: u16 = 16_384;

/// Returns the slot of a key, which is determined by the part in its first braces, if any.
pub(crate) fn of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes()) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(
            crc ^ (u16::from(*byte) << 8),
            |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_match_redis() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(of("foo"), 12_182);
        assert_eq!(of("{foo}:log"), of("foo"));
        assert_eq!(of("a{}b"), crc16(b"a{}b") % SLOTS);
    }
}
