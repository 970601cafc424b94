//! The targets of a process as bytes, for another process that takes over from this one: who is drained, down or in
//! slow start, and what has been counted and measured. Their calls are counted where the calls are taken over.
//!
//! | | bytes | |
//! |---|---|---|
//! | version | 1 | [`VERSION`] |
//! | set, URI | 2 + n each | of each target |
//! | health | 4 + 8 + 8 | flags; since when down, and back |
//! | requests, failures | 8, 8 | |
//! | last response | 8 | |
//! | response time | 8 | |
//! | number of costs | 1 | |
//! | costs | 4 each | in the order of [`MethodClass`] |
//!
//! Times are those of the clock that both processes share.

use core::fmt;
use core::sync::atomic::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use strowger_foundation::bytes::{Reader, put_text16};

use crate::health::{DOWN, DRAINING};
use crate::registry::{MAX_TARGETS, Registry};
use crate::target::{Target, TargetId};

/// The version that is written, and the last one that is read.
const VERSION: u8 = 1;

/// Largest number of consecutive outcomes of probes.
const MAX_STREAK: u32 = 255;

/// Why the targets of another process cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferError {
    /// They were written by a later version of the program.
    UnknownVersion(u8),
    /// They are incomplete or no targets at all.
    Malformed,
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownVersion(version) => {
                write!(f, "its targets are in form {version}, and this program reads forms up to {VERSION}")
            }
            Self::Malformed => f.write_str("its targets cannot be read"),
        }
    }
}

impl core::error::Error for TransferError {}

/// What has become of targets that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportedTargets {
    /// Targets whose state was taken over.
    pub known: usize,
    /// Targets that no set of this process has.
    pub unknown: usize,
}

impl Registry {
    /// Appends the state of all targets.
    pub fn export(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        self.all().iter().for_each(|target| target.write(out));
    }

    /// Takes over the state of targets of another process; those that no set here has are left out.
    ///
    /// # Errors
    ///
    /// If the bytes are of a later version, or no targets; then nothing is taken over.
    pub fn import(&self, bytes: &[u8]) -> Result<ImportedTargets, TransferError> {
        let mut reader = Reader(bytes);
        let version = reader.byte().ok_or(TransferError::Malformed)?;
        if version != VERSION {
            return Err(TransferError::UnknownVersion(version));
        }
        let mut states = Vec::new();
        while !reader.is_empty() {
            let state = TargetStateBytes::read(&mut reader).filter(|_| states.len() < MAX_TARGETS);
            states.push(state.ok_or(TransferError::Malformed)?);
        }
        let known: BTreeMap<TargetId, Arc<Target>> =
            self.all().into_iter().map(|target| (target.id(), target)).collect();
        let mut imported = ImportedTargets::default();
        for state in states {
            let target = known.get(&TargetId::of(state.set, state.uri));
            match target.filter(|target| target.set() == state.set && target.uri() == state.uri) {
                Some(target) => {
                    target.take_over(&state);
                    imported.known += 1;
                }
                None => imported.unknown += 1,
            }
        }
        Ok(imported)
    }
}

/// The state of one target.
struct TargetStateBytes<'a> {
    set: &'a str,
    uri: &'a [u8],
    flags: u32,
    /// Since when down, since when back, requests, failures, last response, response time.
    numbers: [u64; 6],
    costs: Vec<u32>,
}

impl<'a> TargetStateBytes<'a> {
    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let (set, uri) = (core::str::from_utf8(reader.text16()?).ok()?, reader.text16()?);
        let flags = reader.number32().filter(|flags| flags & !(DOWN | DRAINING) <= MAX_STREAK)?;
        let mut numbers = [0; 6];
        for number in &mut numbers {
            *number = reader.number64()?;
        }
        let count = reader.byte()?;
        let costs = (0..count).map(|_| reader.number32()).collect::<Option<Vec<u32>>>()?;
        Some(Self { set, uri, flags, numbers, costs })
    }
}

impl Target {
    fn write(&self, out: &mut Vec<u8>) {
        put_text16(out, self.set().as_bytes());
        put_text16(out, self.uri());
        out.extend_from_slice(&self.health.flags.load(Ordering::Relaxed).to_be_bytes());
        let (health, counts) = (&self.health, &self.counts);
        for number in [
            &health.down_since,
            &health.back_since,
            &counts.requests,
            &counts.failures,
            &counts.last_response,
            &self.measures.response,
        ] {
            out.extend_from_slice(&number.load(Ordering::Relaxed).to_be_bytes());
        }
        out.push(u8::try_from(self.measures.costs.len()).unwrap_or(0));
        for cost in &self.measures.costs {
            out.extend_from_slice(&cost.load(Ordering::Relaxed).to_be_bytes());
        }
    }

    fn take_over(&self, state: &TargetStateBytes<'_>) {
        let (health, counts) = (&self.health, &self.counts);
        let [down_since, back_since, requests, failures, last_response, response] = state.numbers;
        health.flags.store(state.flags, Ordering::Relaxed);
        health.down_since.store(down_since, Ordering::Relaxed);
        health.back_since.store(back_since, Ordering::Relaxed);
        counts.requests.fetch_add(requests, Ordering::Relaxed);
        counts.failures.fetch_add(failures, Ordering::Relaxed);
        counts.last_response.fetch_max(last_response, Ordering::Relaxed);
        self.measures.response.store(response, Ordering::Relaxed);
        for (cost, measured) in self.measures.costs.iter().zip(&state.costs) {
            cost.store(*measured, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use strowger_foundation::Timestamp;

    use super::*;
    use crate::health::Probe;
    use crate::method::{MethodClass, MethodWeights};

    const AT: Timestamp = Timestamp::from_millis(5_000);

    fn target(registry: &Registry, uri: &str) -> Arc<Target> {
        registry.target("pool", uri.as_bytes()).expect("new")
    }

    #[test]
    fn another_process_drains_and_avoids_the_same_targets_with_the_same_measurements() {
        let (old, new) = (Registry::new(), Registry::new());
        let [drained, down, back] = ["sip:192.0.2.1", "sip:192.0.2.2", "sip:192.0.2.3"].map(|uri| target(&old, uri));
        drained.drain();
        let probe = Probe { down: 1, ..Probe::default() };
        down.handle_probe(AT, false, &probe);
        back.handle_recovery(AT);
        for class in [MethodClass::Bye, MethodClass::Invite] {
            let later = AT + Duration::from_millis(if class == MethodClass::Bye { 1 } else { 3 });
            back.begin_request(AT, 100, class).handle_final(later);
        }
        back.begin_request(AT, 100, MethodClass::Invite).handle_failure(AT + Duration::from_secs(1));
        let calls = [back.begin_call(), back.begin_call()];
        let mut bytes = Vec::new();
        old.export(&mut bytes);

        let others = ["sip:192.0.2.1", "sip:192.0.2.2", "sip:192.0.2.3"].map(|uri| target(&new, uri));
        assert_eq!(new.import(&bytes), Ok(ImportedTargets { known: 3, unknown: 0 }));
        for (before, after) in [&drained, &down, &back].into_iter().zip(&others) {
            assert_eq!((before.is_draining(), before.is_up()), (after.is_draining(), after.is_up()));
            assert_eq!(before.health().down_since(), after.health().down_since());
            assert_eq!(before.health().back_since(), after.health().back_since());
            assert_eq!((before.requests(), before.failures()), (after.requests(), after.failures()));
            assert_eq!(before.response_time(), after.response_time());
            assert_eq!(before.has_answered_since(AT), after.has_answered_since(AT));
            let weight = |target: &Target| target.measured_weight(MethodClass::Invite, &MethodWeights::TLWL_1_75);
            assert_eq!(weight(before), weight(after));
            assert_eq!((after.calls(), after.transactions()), (0, 0), "these come with the calls");
        }
        assert_eq!(back.calls() as usize, calls.len());
        assert_eq!(Registry::new().import(&bytes), Ok(ImportedTargets { known: 0, unknown: 3 }));
    }

    #[test]
    fn later_versions_and_damaged_bytes_are_refused_whole() {
        let (old, new) = (Registry::new(), Registry::new());
        let (drained, other) = (target(&old, "sip:192.0.2.1"), target(&new, "sip:192.0.2.1"));
        drained.drain();
        let mut bytes = Vec::new();
        old.export(&mut bytes);
        for end in (0..bytes.len()).filter(|end| *end != 1) {
            assert_eq!(new.import(&bytes[..end]), Err(TransferError::Malformed), "{end}");
        }
        bytes[0] = 2;
        let later = new.import(&bytes).expect_err("another form");
        assert_eq!(later.to_string(), "its targets are in form 2, and this program reads forms up to 1");
        assert!(!other.is_draining());
    }
}
