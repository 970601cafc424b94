//! A registration as bytes, for another process that takes over from this one.
//!
//! It goes on with the same Call-ID and the next CSeq, so the carrier sees one client. The form is versioned by what
//! contains it.
//!
//! | | bytes | |
//! |---|---|---|
//! | Call-ID, tag, contact | 2 + n each | |
//! | CSeq, failures | 4, 4 | |
//! | state | 1 | |
//! | since | 8 | |
//! | registered until | 8 | 0 if not registered |
//! | next request | 8 | 0 at once |
//! | period in seconds | 8 | |
//! | last response | 2 | 0 without |
//! | number of challenges | 1 | |
//! | by a proxy, uses of the nonce | 1, 4 | of each challenge |
//! | challenge, nonce | 2 + n each | |

use core::time::Duration;

use strowger_foundation::Timestamp;
use strowger_foundation::bytes::{Reader, put_text16, put_time};

use super::{CachedChallenge, MAX_EXPIRES, Phase, Registration, SLOW_WAIT, State};

/// Number of challenges read: one of the server and one of a proxy.
const MAX_CHALLENGES: u8 = 2;

/// The states by their stored numbers, which must not change between versions of the program.
const STATES: [State; 4] = [State::Registering, State::Registered, State::Failing, State::Refused];

impl Registration {
    /// Appends the state, unless the registration is being removed; returns whether it did.
    pub fn export(&self, out: &mut Vec<u8>) -> bool {
        let state = STATES.iter().position(|state| *state == self.state).and_then(|at| u8::try_from(at).ok());
        let Some(state) = state.filter(|_| !self.leaving) else { return false };
        [&self.call_id, &self.tag, &self.contact].into_iter().for_each(|text| put_text16(out, text));
        out.extend_from_slice(&self.cseq.to_be_bytes());
        out.extend_from_slice(&self.failures.to_be_bytes());
        out.push(state);
        put_time(out, self.since);
        put_time(out, self.until.unwrap_or(Timestamp::ZERO));
        // The response to a request in progress comes to this process, so the other one asks again.
        put_time(out, if let Phase::Waiting(at) = self.phase { at } else { Timestamp::ZERO });
        out.extend_from_slice(&self.expires.as_secs().to_be_bytes());
        out.extend_from_slice(&self.last_answer.unwrap_or(0).to_be_bytes());
        let challenges = self.challenges.iter().take(MAX_CHALLENGES.into());
        out.push(u8::try_from(challenges.len()).unwrap_or(0));
        for challenge in challenges {
            out.push(u8::from(challenge.by_proxy));
            out.extend_from_slice(&challenge.count.to_be_bytes());
            put_text16(out, &challenge.value);
            put_text16(out, &challenge.nonce);
        }
        true
    }

    /// Takes over the state in `bytes`, which another process has [exported](Self::export) for this trunk. Returns
    /// whether it did; bytes that are no state change nothing.
    pub fn import(&mut self, now: Timestamp, bytes: &[u8]) -> bool {
        self.phase != Phase::Stopped && self.read(now, &mut Reader(bytes)).is_some()
    }

    fn read(&mut self, now: Timestamp, reader: &mut Reader<'_>) -> Option<()> {
        let text = |reader: &mut Reader<'_>| reader.text16().map(Box::from);
        let (call_id, tag, contact) = (text(reader)?, text(reader)?, text(reader)?);
        let (cseq, failures) = (reader.number32()?, reader.number32()?);
        let state = *STATES.get(usize::from(reader.byte()?))?;
        let since = reader.time()?.min(now);
        let until = reader.time().map(|until| until.min(now + MAX_EXPIRES))?;
        let next = reader.time()?;
        let expires = Duration::from_secs(reader.number64()?).min(MAX_EXPIRES);
        let last_answer = reader.number16()?;
        let count = reader.byte().filter(|count| *count <= MAX_CHALLENGES)?;
        let mut challenges = Vec::with_capacity(count.into());
        for _ in 0..count {
            let (by_proxy, count) = (reader.byte()? != 0, reader.number32()?);
            challenges.push(CachedChallenge { by_proxy, count, value: text(reader)?, nonce: text(reader)? });
        }
        reader.is_empty().then_some(())?;
        let longest = now + MAX_EXPIRES.max(SLOW_WAIT);
        self.phase = Phase::Waiting(next.clamp(now, longest));
        (self.call_id, self.tag, self.contact) = (call_id, tag, contact);
        (self.cseq, self.failures) = (cseq & 0x7fff_ffff, failures);
        (self.state, self.since) = (state, since);
        self.until = Some(until).filter(|until| *until != Timestamp::ZERO);
        (self.expires, self.challenges) = (expires, challenges);
        self.last_answer = Some(last_answer).filter(|status| *status != 0);
        Some(())
    }
}
