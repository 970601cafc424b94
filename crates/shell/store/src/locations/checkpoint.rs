//! Storage of the checkpoint in two rows, so that one damaged row loses nothing.

use rusqlite::Connection;

use super::Checkpoint;
use crate::error::Fault;
use crate::settings::{self, CHECKPOINT_KEYS, Setting};

pub(crate) fn read_checkpoint(connection: &Connection) -> Result<Option<Checkpoint>, Fault> {
    let [first, copy] = CHECKPOINT_KEYS;
    let value = match settings::read(connection, first)? {
        Setting::Sound(value) => value,
        bad => match (settings::read(connection, copy)?, bad) {
            (Setting::Sound(value), _) => value,
            (Setting::Absent, Setting::Absent) => return Ok(None),
            _ => return Err(Fault::Damaged),
        },
    };
    let (segment, stamp) = value.split_first_chunk().ok_or(Fault::Damaged)?;
    Ok(Some(Checkpoint { segment: u64::from_be_bytes(*segment), stamp: stamp.to_vec() }))
}

pub(crate) fn write_checkpoint(connection: &Connection, checkpoint: &Checkpoint) -> Result<(), Fault> {
    let value = [&checkpoint.segment.to_be_bytes()[..], &checkpoint.stamp].concat();
    CHECKPOINT_KEYS.into_iter().try_for_each(|key| settings::write(connection, key, &value))
}
