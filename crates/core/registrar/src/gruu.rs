//! Instance IDs, which distinguish a user's devices: `+sip.instance` (RFC 5626 §4.1), and their GRUUs (RFC 5627).

use core::hash::BuildHasher as _;

use smallvec::SmallVec;
use strowger_foundation::map::seeded;

use crate::index::low_half;

/// Maximum length of an instance ID, in bytes.
pub const MAX_INSTANCE_LEN: usize = 255;

/// An instance ID in the form used for comparison.
type CanonicalInstance = SmallVec<[u8; 48]>;

/// The target of a temporary GRUU: the devices of an address of record with one instance ID, until its Call-ID
/// changes or the last of them is removed. Sealed, it forms the GRUU's text; without the server's key it reveals
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GruuKey {
    /// Hash of the address of record.
    pub(crate) aor: u64,
    pub(crate) instance: u32,
    pub(crate) epoch: u32,
}

impl GruuKey {
    /// Length of [`to_bytes`](Self::to_bytes).
    pub const LEN: usize = 16;

    /// Returns the key as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let [a0, a1, a2, a3, a4, a5, a6, a7] = self.aor.to_be_bytes();
        let [i0, i1, i2, i3] = self.instance.to_be_bytes();
        let [e0, e1, e2, e3] = self.epoch.to_be_bytes();
        [a0, a1, a2, a3, a4, a5, a6, a7, i0, i1, i2, i3, e0, e1, e2, e3]
    }

    /// Returns the key that [`to_bytes`](Self::to_bytes) encoded.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let [a0, a1, a2, a3, a4, a5, a6, a7, i0, i1, i2, i3, e0, e1, e2, e3] = bytes;
        Self {
            aor: u64::from_be_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            instance: u32::from_be_bytes([i0, i1, i2, i3]),
            epoch: u32::from_be_bytes([e0, e1, e2, e3]),
        }
    }
}

/// Returns the URN in `"<urn:...>"`; `None` if it is no valid `+sip.instance` (RFC 5626 §10).
pub(crate) fn read_instance(value: &[u8]) -> Option<&[u8]> {
    let name = value.strip_prefix(b"\"<")?.strip_suffix(b">\"")?;
    let uric = |byte: &u8| byte.is_ascii_alphanumeric() || b";/?:@&=+$,-_.!~*'()%".contains(byte);
    (!name.is_empty() && name.iter().all(uric)).then_some(name)
}

/// Returns whether two instance IDs are equal.
pub(crate) fn same_instance(a: &[u8], b: &[u8]) -> bool {
    a == b || a.eq_ignore_ascii_case(b) && canonicalize(a) == canonicalize(b)
}

/// Returns a hash of an instance ID; never 0, which stands for no instance. The hash has no key and is the same in
/// every process: a user with colliding instance IDs merges only their own devices.
pub(crate) fn instance_hash(name: &[u8]) -> u32 {
    if name.is_empty() { 0 } else { low_half(seeded(0).hash_one(&canonicalize(name)[..])).max(1) }
}

//= rfc5626#4.1
/// Returns the canonical form: scheme, namespace and UUIDs (RFC 4122 §3) compare without regard to case, the rest of
/// other URNs by bytes.
pub(crate) fn canonicalize(name: &[u8]) -> CanonicalInstance {
    let is_uuid = name.get(..9).is_some_and(|start| start.eq_ignore_ascii_case(b"urn:uuid:"));
    let mut colons = 0;
    name.iter()
        .map(|byte| {
            colons += usize::from(*byte == b':');
            if is_uuid || colons < 2 { byte.to_ascii_lowercase() } else { *byte }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_instances_are_rejected() {
        assert_eq!(read_instance(b"\"<urn:uuid:1-2>\""), Some(&b"urn:uuid:1-2"[..]));
        for bad in
            [&b"urn:uuid:1"[..], b"<urn:uuid:1>", b"\"urn:uuid:1\"", b"\"<>\"", b"\"<a\\\"b>\"", b"\"<a b>\"", b"\""]
        {
            assert_eq!(read_instance(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn uuid_instances_ignore_case_and_others_only_in_the_namespace() {
        assert!(same_instance(b"urn:uuid:AB-1", b"URN:UUID:ab-1"));
        assert!(same_instance(b"urn:imei:x", b"URN:Imei:x"));
        assert!(!same_instance(b"urn:imei:x", b"urn:imei:X"));
        assert_eq!(instance_hash(b"urn:uuid:AB-1"), instance_hash(b"URN:UUID:ab-1"));
        assert_ne!(instance_hash(b"urn:imei:x"), instance_hash(b"urn:imei:X"));
        assert_eq!(instance_hash(b""), 0);
    }

    #[test]
    fn escapes_are_undone_once() {}
}
