//! Enumerations in the kernel's description of its types, which is in the BPF type format: a header, types and names.

use std::collections::BTreeMap;

const MAGIC: u16 = 0xeb9f;
/// Length of the common part of a type.
const TYPE_LENGTH: usize = 12;
const ENUM_KIND: u32 = 6;

/// Returns the names of the variants of the enumeration `name` by value, or `None` if `types` does not describe it.
pub(super) fn variants(types: &[u8], name: &str) -> Option<BTreeMap<u32, String>> {
    let sections = Sections::read(types)?;
    let mut rest = sections.types;
    while let Some(one) = Type::read(rest) {
        let members = rest.get(TYPE_LENGTH..TYPE_LENGTH + one.members_length()?)?;
        if one.kind == ENUM_KIND && sections.name(one.name)? == name {
            let variant = |member: &[u8]| Some((word(member, 4)?, sections.name(word(member, 0)?)?.to_owned()));
            return members.chunks_exact(8).map(variant).collect();
        }
        rest = rest.get(TYPE_LENGTH + members.len()..)?;
    }
    None
}

struct Sections<'a> {
    types: &'a [u8],
    names: &'a [u8],
}

impl<'a> Sections<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let magic = u16::from_ne_bytes(bytes.first_chunk().copied()?);
        if magic != MAGIC {
            return None;
        }
        let header_length = index(word(bytes, 4)?)?;
        let section = |offset: usize| -> Option<&'a [u8]> {
            let start = header_length.checked_add(index(word(bytes, offset)?)?)?;
            bytes.get(start..start.checked_add(index(word(bytes, offset + 4)?)?)?)
        };
        Some(Self { types: section(8)?, names: section(16)? })
    }

    fn name(&self, offset: u32) -> Option<&'a str> {
        let rest = self.names.get(index(offset)?..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        str::from_utf8(rest.get(..end)?).ok()
    }
}

/// The common part of a type.
struct Type {
    name: u32,
    kind: u32,
    /// Number of its members, variants or parameters.
    members: usize,
}

impl Type {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (name, info) = (word(bytes, 0)?, word(bytes, 4)?);
        Some(Self { name, kind: (info >> 24) & 0x1f, members: index(info & 0xffff)? })
    }

    /// Returns the length of what follows the common part, or `None` for a kind that did not exist in Linux 6.18.
    fn members_length(&self) -> Option<usize> {
        Some(match self.kind {
            // An integer, a variable and a tag of a declaration have one word more.
            1 | 14 | 17 => 4,
            // An array.
            3 => 12,
            // Structures, unions, sections of data, and enumerations of 64 bits.
            4 | 5 | 15 | 19 => self.members * 12,
            // Enumerations and prototypes of functions.
            ENUM_KIND | 13 => self.members * 8,
            2 | 7..=12 | 16 | 18 => 0,
            _ => return None,
        })
    }
}

/// Returns the 32 bits at `offset`.
fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

fn index(value: u32) -> Option<usize> {
    usize::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Describes an integer, a structure with two members, and an enumeration.
    fn example() -> Vec<u8> {
        let names = b"\0int\0pair\0color\0RED\0BLUE\0";
        let (int, pair, color, red, blue) = (1, 5, 10, 16, 20);
        let mut types: Vec<u32> = vec![int, 1 << 24, 4, 32];
        types.extend([pair, (4 << 24) | 2, 8, 0, 1, 0, 0, 1, 32]);
        types.extend([color, (6 << 24) | 2, 4, red, 3, blue, 7]);
        let types: Vec<u8> = types.into_iter().flat_map(u32::to_ne_bytes).collect();
        let lengths = [types.len(), names.len()].map(|length| u32::try_from(length).unwrap());
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        bytes.extend([24, 0, lengths[0], lengths[0], lengths[1]].into_iter().flat_map(u32::to_ne_bytes));
        bytes.extend([types.as_slice(), names].concat());
        bytes
    }

    #[test]
    fn an_enumeration_is_found_behind_other_types() {
        let found = variants(&example(), "color").unwrap();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [(3, "RED".to_owned()), (7, "BLUE".to_owned())]);
        assert_eq!(variants(&example(), "pair"), None);
    }

    proptest! {
        #[test]
        fn changed_descriptions_do_no_harm(at in 0_usize..150, value: u8, length in 0_usize..150) {
            let mut bytes = example();
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            bytes.truncate(length);
            variants(&bytes, "color");
        }
    }
}
