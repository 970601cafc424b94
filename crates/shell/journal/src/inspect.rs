//! Inspection of the journal folder: the chain of segments, the valid length of each, and damage.
//!
//! Each header names the previous segment and its valid length. The newest intact header therefore determines all
//! segments before it. Anything it does not include, such as a failed attempt or the end of a file whose sync failed,
//! is not part of the journal.

use std::collections::BTreeMap;

use crate::disk::{Disk, Operation};
use crate::error::{Damage, DamageKind, DiskError, JournalError};
use crate::format::{self, BadHeader, HEADER, Header, Scan};
use crate::reader::{Segment, name_of};
use crate::stamp::Stamp;

/// Suffix of a file being created.
pub(crate) const TEMP_SUFFIX: &str = ".new";

/// Maximum bytes read from a file; a longer one does not belong to the journal.
const MAX_FILE: u64 = 512 << 20;

/// Part of the journal contained in the caller's checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckpointPosition {
    /// There has been no checkpoint.
    #[default]
    Nothing,
    /// Segments up to this one.
    Through(u64),
    /// Segments up to this one, but possibly not durably. Their files stay until [`Journal::remove_through`] is
    /// called, which the caller does once the checkpoint is durable.
    ///
    /// [`Journal::remove_through`]: crate::Journal::remove_through
    Unsettled(u64),
    /// The checkpoint cannot be read. The whole unbroken chain up to the newest segment is assumed to be missing from
    /// it.
    Unknown,
}

impl CheckpointPosition {
    pub(crate) fn number(self) -> Option<u64> {
        match self {
            Self::Nothing | Self::Unknown => None,
            Self::Through(number) | Self::Unsettled(number) => Some(number),
        }
    }
}

impl From<Option<u64>> for CheckpointPosition {
    fn from(number: Option<u64>) -> Self {
        number.map_or(Self::Nothing, Self::Through)
    }
}

/// The last readable segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail {
    pub header: Header,
    pub scan: Scan,
    /// Whether the file is to be quarantined, so that all its groups must be carried over.
    pub damaged: bool,
}

#[derive(Debug, Default)]
pub(crate) struct FolderContents {
    /// Segments before the tail, in order.
    pub closed: Vec<Segment>,
    pub tail: Option<Tail>,
    pub damage: Vec<Damage>,
    pub last_stamp: Option<Stamp>,
    pub groups: u64,
    pub records: u64,
    /// Highest segment number seen.
    pub highest: u64,
    /// The checkpoint contains all segments up to this one.
    pub base: u64,
    /// Segments in the checkpoint that stay for the time being.
    pub retained: Vec<Segment>,
    /// Files already in the checkpoint or never finished, to be removed at once.
    pub removable: Vec<String>,
    /// Unused segments, to be quarantined.
    pub quarantined: Vec<u64>,
    /// Segments not referenced by any header, to be removed once a newer header is durable.
    pub orphans: Vec<u64>,
}

/// Inspects the folder without changing it.
pub(crate) fn inspect(
    disk: &impl Disk,
    store_id: [u8; 16],
    checkpointed: CheckpointPosition,
) -> Result<FolderContents, JournalError> {
    let through = checkpointed.number().unwrap_or(0);
    let mut found = FolderContents { highest: through, base: through, ..FolderContents::default() };
    let files = headers(disk, store_id, checkpointed, &mut found)?;
    let is_unknown = checkpointed == CheckpointPosition::Unknown;
    let (chain, base_missing) = chain(&files, through, is_unknown);
    if is_unknown && let Some(first) = chain.first() {
        found.base = first.previous;
    }
    if files.is_empty()
        && let Some(number) = checkpointed.number()
    {
        // There is always a segment after a checkpoint.
        found.damage.push(damage(disk, DamageKind::Missing, number.saturating_add(1), 0, 0));
    }
    for number in base_missing {
        if !files.contains_key(&number) {
            found.damage.push(damage(disk, DamageKind::Missing, number, 0, 0));
        }
    }
    let used = verify(disk, &chain, &mut found)?;
    for (&number, file) in &files {
        let in_chain = chain.iter().position(|header| header.number == number);
        match (&file.header, in_chain) {
            (Err(kind), _) => {
                found.damage.push(damage(disk, *kind, number, 0, file.len));
                found.quarantined.push(number);
            }
            (Ok(_), Some(at)) if at < used => {}
            (Ok(header), in_chain) => {
                let newest = chain.get(..used).and_then(<[Header]>::last).map_or(0, |last| last.number);
                let is_older = is_unknown && header.number <= found.base;
                if in_chain.is_some() || header.number > newest || is_older {
                    found.damage.push(damage(disk, DamageKind::Cut, number, 0, file.len));
                    found.quarantined.push(number);
                } else {
                    found.orphans.push(number);
                }
            }
        }
    }
    Ok(found)
}

/// A file that may be needed.
struct Candidate {
    header: Result<Header, DamageKind>,
    len: u64,
}

/// Reads the headers of all segments that are not in the checkpoint.
fn headers(
    disk: &impl Disk,
    store_id: [u8; 16],
    checkpointed: CheckpointPosition,
    found: &mut FolderContents,
) -> Result<BTreeMap<u64, Candidate>, JournalError> {
    let names = disk.list().map_err(|cause| DiskError::new(disk, Operation::List, "", &cause))?;
    let mut files = BTreeMap::new();
    let mut buffer = Vec::new();
    for name in names {
        let Some((number, rest)) = number_of(&name) else { continue };
        found.highest = found.highest.max(number);
        let is_contained = rest.is_empty() && checkpointed.number().is_some_and(|through| number <= through);
        if is_contained && matches!(checkpointed, CheckpointPosition::Unsettled(_)) {
            let len = disk.len(&name).map_err(|cause| DiskError::new(disk, Operation::Len, &name, &cause))?;
            found.retained.push(Segment { number, len });
        } else if rest == TEMP_SUFFIX || is_contained {
            found.removable.push(name);
        } else if rest.is_empty() {
            let read = disk.read(&name, HEADER as u64 * 32, &mut buffer);
            read.map_err(|cause| DiskError::new(disk, Operation::Read, &name, &cause))?;
            let len = disk.len(&name).map_err(|cause| DiskError::new(disk, Operation::Len, &name, &cause))?;
            let header = match Header::parse(&buffer) {
                Ok((header, _)) if header.store_id != store_id => Err(DamageKind::Foreign),
                Ok((header, _)) if header.number == number && header.previous < number => Ok(header),
                Err(BadHeader::Newer(version)) => {
                    let path = disk.path_of(&name);
                    return Err(JournalError::Newer { path, version, known: format::VERSION });
                }
                _ => Err(DamageKind::Corrupt),
            };
            files.insert(number, Candidate { header, len });
        }
    }
    Ok(files)
}

/// Parses a file name into the segment number and the remaining suffix.
fn number_of(name: &str) -> Option<(u64, &str)> {
    let digits = name.strip_prefix("journal-")?;
    let (digits, rest) = digits.split_at_checked(16)?;
    let rest = rest.strip_prefix(".log")?;
    Some((u64::from_str_radix(digits, 16).ok()?, rest))
}

/// Returns the chain of segments, oldest first, and the segments at which it was broken. Nothing after the newest
/// break is valid.
///
/// If the checkpoint `is_unknown`, missing segments are assumed to be in it, because files are removed once they are.
fn chain(files: &BTreeMap<u64, Candidate>, through: u64, is_unknown: bool) -> (Vec<Header>, Vec<u64>) {
    let mut broken = Vec::new();
    let mut bound = u64::MAX;
    loop {
        let newest = files.range(..bound).rev().find_map(|(_, file)| file.header.ok());
        let Some(mut header) = newest else { return (Vec::new(), broken) };
        let mut chain = vec![header];
        loop {
            if header.previous <= through || is_unknown && !files.contains_key(&header.previous) {
                chain.reverse();
                return (chain, broken);
            }
            match files.get(&header.previous).map(|file| file.header) {
                Some(Ok(previous)) => header = previous,
                _ => break,
            }
            chain.push(header);
        }
        broken.push(header.previous);
        bound = header.previous;
    }
}

/// Reads the chain from the oldest segment as far as it is intact; returns the number of segments used.
fn verify(disk: &impl Disk, chain: &[Header], found: &mut FolderContents) -> Result<usize, JournalError> {
    let mut buffer = Vec::new();
    for (at, header) in chain.iter().enumerate() {
        let name = name_of(header.number);
        let next = chain.get(at + 1);
        let limit = next.map_or(MAX_FILE, |next| next.previous_len);
        let read = disk.read(&name, limit, &mut buffer);
        read.map_err(|cause| DiskError::new(disk, Operation::Read, &name, &cause))?;
        let Ok((_, salt)) = Header::parse(&buffer) else {
            return Err(JournalError::Changed { path: disk.path_of(&name), offset: 0 });
        };
        let scan = format::scan(&buffer, header, salt);
        found.groups += scan.groups;
        found.records += scan.records;
        if found.last_stamp.is_none_or(|last| scan.stamp.store_ms >= last.store_ms) {
            found.last_stamp = Some(scan.stamp);
        }
        let len = buffer.len() as u64;
        if header.is_gap {
            found.damage.push(damage(disk, DamageKind::Removed, header.number, 0, 0));
        }
        match next {
            Some(_) if header.is_gap => {
                found.closed.push(Segment { number: header.number, len: scan.end });
                continue;
            }
            Some(next) if scan.end == limit && (next.is_gap || scan.next_group == next.first_group) => {
                found.closed.push(Segment { number: header.number, len: scan.end });
                continue;
            }
            Some(_) => {
                let lost = limit.max(len).saturating_sub(scan.end);
                found.damage.push(damage(disk, DamageKind::Corrupt, header.number, scan.end, lost));
            }
            None if scan.end < len => {
                let kind = if scan.more { DamageKind::Corrupt } else { DamageKind::Torn };
                found.damage.push(damage(disk, kind, header.number, scan.end, len - scan.end));
            }
            None => {}
        }
        found.tail = Some(Tail { header: *header, scan, damaged: next.is_some() || scan.more });
        return Ok(at + 1);
    }
    Ok(0)
}

fn damage(disk: &impl Disk, kind: DamageKind, segment: u64, offset: u64, lost_bytes: u64) -> Damage {
    Damage { kind, segment, offset, lost_bytes, quarantined_as: None, path: disk.path_of(&name_of(segment)) }
}
