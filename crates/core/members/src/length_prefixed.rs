//! Sequences of byte strings, each preceded by its length (4 bytes, big-endian).

/// Appends one string to `out`.
pub(crate) fn write(out: &mut Vec<u8>, item: &[u8]) {
    out.extend_from_slice(&u32::try_from(item.len()).unwrap_or(0).to_be_bytes());
    out.extend_from_slice(item);
}

/// Returns all strings, or `None` if `bytes` ends within one.
pub(crate) fn read(mut bytes: &[u8]) -> Option<Vec<Box<[u8]>>> {
    let mut items = Vec::new();
    while let Some((length, behind)) = bytes.split_first_chunk() {
        let (item, behind) = behind.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        items.push(item.into());
        bytes = behind;
    }
    bytes.is_empty().then_some(items)
}
