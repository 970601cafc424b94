//! Elements of DER, for the fields that the TLS library does not tell.

/// Tag of a SEQUENCE.
pub(super) const SEQUENCE: u8 = 0x30;

/// Returns tag and contents of the first DER element, and what follows it.
pub(super) fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        let (octets, after) =
            rest.split_at_checked(usize::from(first & 0x7F)).filter(|(octets, _)| octets.len() <= 4)?;
        length = octets.iter().fold(0, |length, octet| length << 8 | usize::from(*octet));
        rest = after;
    }
    let (contents, after) = rest.split_at_checked(length)?;
    Some((tag, contents, after))
}
