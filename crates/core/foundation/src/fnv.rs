//! A hash that is stable across platforms and versions, for uses where nobody gains by a collision.

/// Computes 32-bit FNV-1a (Fowler, Noll and Vo).
#[must_use]
pub const fn fnv1a(text: &[u8]) -> u32 {
    let (mut hash, mut rest) = (0x811C_9DC5_u32, text);
    while let [byte, behind @ ..] = rest {
        hash = (hash ^ *byte as u32).wrapping_mul(0x0100_0193);
        rest = behind;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::fnv1a;

    #[test]
    fn matches_the_published_vectors() {
        assert_eq!((fnv1a(b""), fnv1a(b"a"), fnv1a(b"foobar")), (0x811C_9DC5, 0xE40C_292C, 0xBF9C_F968));
    }
}
