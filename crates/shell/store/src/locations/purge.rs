//! Removal of expired rows.

use rusqlite::{Transaction, params};

use super::{DELETE_ONE, SELECT_ONE, checked_location};
use crate::error::Fault;
use crate::row_counts::RowCounts;

/// Rows that may be removed, and where to continue.
pub(super) struct PurgeCandidates {
    pub(super) keys: Vec<(i64, Vec<u8>)>,
    pub(super) examined: u64,
    pub(super) next: Option<(i64, Vec<u8>)>,
}

pub(super) fn find(
    transaction: &Transaction<'_>,
    after: Option<&(i64, Vec<u8>)>,
    expired_before_ms: u64,
    limit: u32,
) -> Result<PurgeCandidates, Fault> {
    let (slot, aor) = after.map_or((i64::MIN, &[][..]), |(slot, aor)| (*slot, aor));
    let mut statement = transaction.prepare_cached(
        "SELECT slot, aor, expires, record, sum FROM locations WHERE (slot, aor) > (?1, ?2) ORDER BY slot, aor LIMIT ?3",
    )?;
    let mut rows = statement.query(params![slot, aor, limit])?;
    let mut found = PurgeCandidates { keys: Vec::new(), examined: 0, next: None };
    let mut last = None;
    while let Some(row) = rows.next()? {
        found.examined += 1;
        let key = row.get_ref(0)?.as_i64().ok().zip(row.get_ref(1)?.as_blob().ok());
        let Some(key) = key.map(|(slot, aor)| (slot, aor.to_vec())) else { continue };
        if checked_location(row)?.is_none_or(|location| location.expires_ms < expired_before_ms) {
            found.keys.push(key.clone());
        }
        last = Some(key);
    }
    if found.examined == u64::from(limit) {
        // Never backwards, whatever order a damaged page has.
        found.next = last
            .filter(|(next, key)| (*next, &key[..]) > (slot, aor))
            .or(slot.checked_add(1).map(|slot| (slot.max(0), Vec::new())));
    }
    Ok(found)
}

/// Removes rows after checking each again, since it may have been rewritten meanwhile. Returns how many were expired
/// and how many damaged.
pub(super) fn remove(
    transaction: &Transaction<'_>,
    keys: &[(i64, Vec<u8>)],
    expired_before_ms: u64,
) -> Result<(u64, u64), Fault> {
    let mut counts = RowCounts::read_or_count(transaction)?;
    let mut look = transaction.prepare_cached(SELECT_ONE)?;
    let mut delete = transaction.prepare_cached(DELETE_ONE)?;
    let (mut expired, mut damaged) = (0, 0);
    for (slot, aor) in keys {
        let is_sound = look
            .query_and_then(params![slot, aor], |row| -> Result<_, Fault> {
                Ok(checked_location(row)?.map(|location| location.expires_ms < expired_before_ms))
            })?
            .next()
            .transpose()?;
        let counter = match is_sound {
            None | Some(Some(false)) => continue,
            Some(Some(true)) => &mut expired,
            Some(None) => &mut damaged,
        };
        if delete.execute(params![slot, aor])? > 0 {
            *counter += 1;
            if let Ok(slot) = u8::try_from(*slot) {
                counts.subtract(slot);
            }
        }
    }
    counts.write(transaction)?;
    Ok((expired, damaged))
}
