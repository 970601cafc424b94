//! The segment format, version 1. Numbers are little-endian; checksums are CRC-32C.
//!
//! ```text
//! header   magic 8 · version 4 · length of the header 4 · number of the segment 8 · id of the store 16
//!          · number of the segment before 8 · its length as far as it counts 8 · number of the first group 8
//!          · stamp: store 8, wall 8, boot 8, boot id 16 · 1 for a gap, else 0: 4 · zeros 16 · sum of all that 4
//! group    mark 4 · length of the body 4 · number 8 · stamp: store 8, wall 8, boot 8 · records 4
//!          · sum of the body 4 · sum of all that 4
//! body     for each record: length 4 · bytes
//! ```
//!
//! Magic, version, length and the checksum at the end of the header are at these offsets in every version. Checksums
//! of groups are seeded with the checksum of their segment's header, so that a group in a block left over from
//! another segment's file is invalid.

use crate::stamp::Stamp;

/// Format version written, and the newest one that can be read.
pub(crate) const VERSION: u32 = 1;
/// Maximum bytes per record.
pub const MAX_RECORD: usize = 1 << 20;
/// Maximum bytes of a group's records, including their length fields.
pub const MAX_GROUP: usize = 8 << 20;

pub(crate) const HEADER: usize = 128;
pub(crate) const GROUP_HEAD: usize = 52;
const MAGIC: &[u8; 8] = b"STRWGR\x0d\x0a";
const MARK: &[u8; 4] = b"grp\x01";
/// Maximum length of a header of any later version.
const MAX_HEADER: usize = 4096;

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub number: u64,
    pub store_id: [u8; 16],
    /// Number of the previous segment; 0 if there is none.
    pub previous: u64,
    /// Valid length of the previous segment, whatever else its file contains.
    pub previous_len: u64,
    pub first_group: u64,
    pub stamp: Stamp,
    /// Whether it replaces a segment whose file was lost while the server was running. It has no groups, and the
    /// segments before and after it are valid.
    pub is_gap: bool,
}

/// Why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadHeader {
    Damaged,
    Newer(u32),
}

impl Header {
    /// Writes the header; returns the checksum seed of its groups.
    pub(crate) fn write(&self, out: &mut Vec<u8>) -> u32 {
        let start = out.len();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(HEADER as u32).to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.store_id);
        for number in [
            self.previous,
            self.previous_len,
            self.first_group,
            self.stamp.store_ms,
            self.stamp.wall_ms,
            self.stamp.boot_ms,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.stamp.boot_id);
        out.extend_from_slice(&u32::from(self.is_gap).to_le_bytes());
        out.resize(start + HEADER - 4, 0);
        let sum = crc32c::crc32c(out.get(start..).unwrap_or_default());
        out.extend_from_slice(&sum.to_le_bytes());
        sum
    }

    /// Parses the header; returns it with the checksum seed of its groups.
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Self, u32), BadHeader> {
        let mut fields = Fields(bytes);
        let magic = fields.take::<8>().ok_or(BadHeader::Damaged)?;
        let version = fields.u32().ok_or(BadHeader::Damaged)?;
        let len = fields.u32().ok_or(BadHeader::Damaged)? as usize;
        if magic != *MAGIC || !(HEADER..=MAX_HEADER).contains(&len) || len > bytes.len() {
            return Err(BadHeader::Damaged);
        }
        let (sum, wanted) = sum_at_end(bytes, len).ok_or(BadHeader::Damaged)?;
        if !matches(sum, wanted) {
            return Err(BadHeader::Damaged);
        }
        match version {
            VERSION if len == HEADER => fields.header().map(|header| (header, wanted)).ok_or(BadHeader::Damaged),
            newer if newer > VERSION => Err(BadHeader::Newer(newer)),
            _ => Err(BadHeader::Damaged),
        }
    }
}

fn sum_at_end(bytes: &[u8], len: usize) -> Option<(u32, u32)> {
    let covered = bytes.get(..len.checked_sub(4)?)?;
    let wanted = Fields(bytes.get(covered.len()..len)?).u32()?;
    Some((crc32c::crc32c(covered), wanted))
}

/// A group being collected, in its written form, with room for the group header in front.
#[derive(Debug)]
pub(crate) struct GroupBuffer {
    bytes: Vec<u8>,
    records: u32,
}

impl GroupBuffer {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; GROUP_HEAD], records: 0 }
    }

    pub(crate) fn records(&self) -> u32 {
        self.records
    }

    /// Returns the length of the group as written.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn has_room_for(&self, record: &[u8]) -> bool {
        self.bytes.len() - GROUP_HEAD + 4 + record.len() <= MAX_GROUP
    }

    pub(crate) fn push(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(record);
        self.records += 1;
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(GROUP_HEAD);
        self.records = 0;
    }

    /// Fills in the group header.
    pub(crate) fn seal(&mut self, salt: u32, number: u64, stamp: &Stamp) -> &[u8] {
        let (head, body) = self.bytes.split_at_mut(GROUP_HEAD);
        let sum = crc32c::crc32c_append(salt, body);
        let mut at = 0;
        let mut put = |field: &[u8]| {
            head[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(MARK);
        put(&(body.len() as u32).to_le_bytes());
        put(&number.to_le_bytes());
        put(&stamp.store_ms.to_le_bytes());
        put(&stamp.wall_ms.to_le_bytes());
        put(&stamp.boot_ms.to_le_bytes());
        put(&self.records.to_le_bytes());
        put(&sum.to_le_bytes());
        let sum = crc32c::crc32c_append(salt, &head[..GROUP_HEAD - 4]);
        head[GROUP_HEAD - 4..].copy_from_slice(&sum.to_le_bytes());
        &self.bytes
    }
}

/// A complete group as read from a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group<'a> {
    pub number: u64,
    pub records: u32,
    /// Time of the group; the boot id is in the segment header.
    pub stamp: Stamp,
    body: &'a [u8],
}

impl<'a> Group<'a> {
    /// Parses the group at the start of `bytes`; `None` if it is incomplete or invalid.
    pub(crate) fn parse(bytes: &'a [u8], salt: u32) -> Option<Self> {
        let mut fields = Fields(bytes);
        if fields.take::<4>()? != *MARK {
            return None;
        }
        let len = fields.u32()? as usize;
        let number = fields.u64()?;
        let stamp = Stamp { store_ms: fields.u64()?, wall_ms: fields.u64()?, boot_ms: fields.u64()?, boot_id: [0; 16] };
        let records = fields.u32()?;
        let (body_sum, head_sum) = (fields.u32()?, fields.u32()?);
        if !matches(crc32c::crc32c_append(salt, bytes.get(..GROUP_HEAD - 4)?), head_sum) || len > MAX_GROUP {
            return None;
        }
        let body = fields.0.get(..len)?;
        if !matches(crc32c::crc32c_append(salt, body), body_sum) {
            return None;
        }
        let group = Self { number, records, stamp, body };
        group.adds_up().then_some(group)
    }

    /// Returns the length in the file.
    pub(crate) fn len(&self) -> usize {
        GROUP_HEAD + self.body.len()
    }

    pub(crate) fn iter(&self) -> Records<'a> {
        Records(self.body)
    }

    /// Returns whether the stated number of records fills the body exactly.
    fn adds_up(&self) -> bool {
        let mut records = self.iter();
        let count = records.by_ref().count();
        count == self.records as usize && records.0.is_empty()
    }
}

/// The records of a group, in order.
#[derive(Debug)]
pub(crate) struct Records<'a>(&'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let mut fields = Fields(self.0);
        let len = fields.u32()? as usize;
        let record = fields.0.get(..len)?;
        self.0 = fields.0.get(len..)?;
        Some(record)
    }
}

/// The intact part of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan {
    /// Offset of the last group; the end of the header if there is none.
    pub last: u64,
    /// End of the intact groups.
    pub end: u64,
    pub groups: u64,
    pub records: u64,
    /// Number of the group that would follow.
    pub next_group: u64,
    /// Latest stamp in the segment.
    pub stamp: Stamp,
    /// Whether an intact group follows the damage.
    pub more: bool,
}

/// Scans all groups of `bytes`, a segment with the given header.
pub(crate) fn scan(bytes: &[u8], header: &Header, salt: u32) -> Scan {
    let mut scan = Scan {
        last: HEADER as u64,
        end: HEADER as u64,
        groups: 0,
        records: 0,
        next_group: header.first_group,
        stamp: header.stamp,
        more: false,
    };
    let mut rest = bytes.get(HEADER..).unwrap_or_default();
    while let Some(group) = Group::parse(rest, salt).filter(|group| group.number == scan.next_group) {
        scan.last = scan.end;
        scan.end += group.len() as u64;
        scan.groups += 1;
        scan.records += u64::from(group.records);
        scan.next_group = scan.next_group.saturating_add(1);
        if group.stamp.store_ms >= scan.stamp.store_ms {
            scan.stamp = Stamp { boot_id: header.stamp.boot_id, ..group.stamp };
        }
        rest = rest.get(group.len()..).unwrap_or_default();
    }
    scan.more = !rest.is_empty() && has_group(rest, salt, scan.next_group);
    scan
}

/// Returns whether the bytes contain an intact group with this number or a later one, at any offset.
fn has_group(bytes: &[u8], salt: u32, number: u64) -> bool {
    let mut rest = bytes;
    while let Some(at) = memchr::memmem::find(rest, MARK) {
        let here = rest.get(at..).unwrap_or_default();
        if Group::parse(here, salt).is_some_and(|group| group.number >= number) {
            return true;
        }
        rest = here.get(1..).unwrap_or_default();
    }
    false
}

/// Iterates over the groups of a scanned segment from `from` to `end`.
pub(crate) fn groups(bytes: &[u8], salt: u32, from: u64, end: u64) -> impl Iterator<Item = Group<'_>> {
    let mut rest = bytes.get(from as usize..end as usize).unwrap_or_default();
    std::iter::from_fn(move || {
        let group = Group::parse(rest, salt)?;
        rest = rest.get(group.len()..).unwrap_or_default();
        Some(group)
    })
}

/// Compares checksums; the only place that does.
fn matches(sum: u32, wanted: u32) -> bool {
    #[cfg(test)]
    if crate::tests::planted::SUMS_IGNORED.get() {
        return true;
    }
    sum == wanted
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn header(&mut self) -> Option<Header> {
        let number = self.u64()?;
        let store_id = self.take()?;
        let (previous, previous_len, first_group) = (self.u64()?, self.u64()?, self.u64()?);
        let (store_ms, wall_ms, boot_ms) = (self.u64()?, self.u64()?, self.u64()?);
        let stamp = Stamp { store_ms, wall_ms, boot_ms, boot_id: self.take()? };
        let is_gap = self.u32()? == 1;
        Some(Header { number, store_id, previous, previous_len, first_group, stamp, is_gap })
    }
}
