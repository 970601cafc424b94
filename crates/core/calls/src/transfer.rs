//! Calls as bytes, for another process that takes over from this one.
//!
//! Only a call that no pending INVITE can change is transferred: an answered one, or one whose caller is expected to
//! retry after a challenge. A call that is being set up stays where its transactions are, and follows when it is
//! answered. The form is versioned by what contains it. Numbers are big-endian, times those of the clock that both processes
//! share.
//!
//! | | bytes | |
//! |---|---|---|
//! | key | 8 | see [`CallKey`] |
//! | state, flags | 1, 1 | [`ANSWERED`] or [`CHALLENGED`] |
//! | status of the challenge | 2 | 0 without |
//! | callee's tag | 4 | as keyed hash |
//! | transports of caller and callee | 1, 1 | |
//! | addresses of caller and callee | 18, 18 | IPv4 as mapped IPv6, and port |
//! | INVITE, answer, expiry | 8, 8, 8 | |
//! | caller, callee, Call-ID | 1 + n, 1 + n, 2 + n | |
//! | dialog | 2 + n | before the answer the caller's Contact |
//! | trunk of the caller, of the callee, number as sent | 2 + n each | if the flags say so |
//! | target of a balanced set | 4 | if the flags say so |

use core::time::Duration;

use strowger_balancer::{CallGuard, TargetId};
use strowger_foundation::Timestamp;
use strowger_foundation::bytes::{Reader, put_text8, put_text16, put_time, transport_number};
use strowger_message::Message;

use crate::call::{Call, CompactAddr, MAX_CALL_ID, Stop};
use crate::dialog::MAX_DIALOG;
use crate::early_byes::EarlyBye;
use crate::record::{CallText, Reason, State, Trunks};
use crate::table::{CallKey, Calls};

/// Longest time that a call has from here on, whatever its bytes say: ten years.
const MAX_LIFETIME: Duration = Duration::from_secs(10 * 365 * 86_400);

const ANSWERED: u8 = 1;
const CHALLENGED: u8 = 2;

const HAS_SESSION_TIMER: u8 = 1;
const STOPPED_BY_CALLER: u8 = 2;
const STOPPED_BY_OPERATOR: u8 = 4;
const HAS_TARGET: u8 = 8;
const HAS_TRUNKS: u8 = 16;
const HAS_SOURCE_TRUNK: u8 = 32;
const HAS_TARGET_TRUNK: u8 = 64;
const HAS_TARGET_URI: u8 = 128;

/// What has become of calls that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportedCalls {
    /// Calls that are tracked from here on, or have ended in the meantime.
    pub added: usize,
    /// Calls that were known already.
    pub known: usize,
    /// Calls that are not tracked because the table is full.
    pub refused: usize,
}

impl Calls {
    /// Whether no pending INVITE can change the call, so that it can be transferred; `false` for an unknown one.
    #[must_use]
    pub fn is_settled(&self, key: CallKey) -> bool {
        self.call(key).is_some_and(Call::is_settled)
    }

    /// Returns the keys of all calls that can be transferred.
    pub fn settled(&self) -> impl Iterator<Item = CallKey> {
        self.iter().filter(|call| call.is_settled()).map(|call| CallKey::from_bits(call.key))
    }

    /// Appends a call that [can be transferred](Self::is_settled); returns whether it is one.
    pub fn export(&self, key: CallKey, out: &mut Vec<u8>) -> bool {
        let call = self.call(key).filter(|call| call.is_settled());
        call.into_iter().for_each(|call| call.write(out));
        call.is_some()
    }

    /// Forgets a call that another process has from here on. It gets no record here.
    pub fn transfer(&mut self, key: CallKey) {
        self.forget(key);
    }

    /// Remembers BYEs of unknown calls from here on: another process may still send these.
    pub fn expect_imports(&mut self) {
        self.early_byes_mut().get_or_insert_default();
    }

    /// Whether another process may still send calls.
    #[must_use]
    pub const fn expects_imports(&self) -> bool {
        self.early_byes().is_some()
    }

    /// Reads calls up to the end of `bytes`. `begin_call` counts a call at its balanced target, if that still exists.
    /// Calls already read stay if `None` is returned, for bytes that are no calls.
    pub fn import(
        &mut self,
        now: Timestamp,
        bytes: &[u8],
        mut begin_call: impl FnMut(TargetId) -> Option<CallGuard>,
    ) -> Option<ImportedCalls> {
        let (mut reader, mut imported) = (Reader(bytes), ImportedCalls::default());
        while !reader.is_empty() {
            let (call, target) = Call::read(now, &mut reader)?;
            if let Some(known) = self.call_mut(CallKey::from_bits(call.key)) {
                // The caller was faster than the other process.
                known.began = known.began.min(call.began);
                imported.known = imported.known.saturating_add(1);
            } else if self.add(Call { call_guard: target.and_then(&mut begin_call), ..call }) {
                imported.added = imported.added.saturating_add(1);
            } else {
                imported.refused = imported.refused.saturating_add(1);
            }
        }
        Some(imported)
    }

    /// Returns the number of calls in `bytes`; `None` for bytes that are no calls.
    #[must_use]
    pub fn count_exported(now: Timestamp, bytes: &[u8]) -> Option<usize> {
        let (mut reader, mut count) = (Reader(bytes), 0_usize);
        while !reader.is_empty() {
            Call::read(now, &mut reader)?;
            count = count.saturating_add(1);
        }
        Some(count)
    }

    /// Adds a call of another process, which ends at once if its BYE was here before. Returns `false` if the table is
    /// full.
    fn add(&mut self, call: Call) -> bool {
        let (key, tag, is_answered) = (call.key, call.callee_tag, call.state == State::Answered);
        let is_commanded = call.stop == Stop::ByOperator;
        let is_added = self.insert(call);
        if is_added && is_answered {
            let early = self.early_byes_mut().as_mut().and_then(|early| early.take(key, tag));
            if let Some((at, by)) = early {
                let reason = if is_commanded { Reason::EndedByOperator } else { by };
                self.end_call(CallKey::from_bits(key), at, reason);
            }
        }
        is_added
    }

    /// Remembers a BYE of an unknown call, if calls are expected.
    #[cold]
    pub(crate) fn note_early_bye(&mut self, now: Timestamp, bye: &Message<'_>) {
        let keys = self.keys_of(bye);
        let tags = [bye.from().tag(), bye.to().tag()].map(|tag| self.short_hash(tag));
        if let Some(early) = self.early_byes_mut() {
            early.push(EarlyBye { at: now, keys, tags });
        }
    }
}

impl Call {
    fn is_settled(&self) -> bool {
        match self.state {
            State::Answered => true,
            State::Challenged => self.legs == 0,
            State::Trying | State::Ringing => false,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let state = if self.state == State::Answered { ANSWERED } else { CHALLENGED };
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let trunks = self.trunks.as_deref();
        let [source, target, uri] = trunks.map(texts_of).unwrap_or_default();
        let flags = flag(self.has_session_timer, HAS_SESSION_TIMER)
            | flag(self.stop == Stop::ByCaller, STOPPED_BY_CALLER)
            | flag(self.stop == Stop::ByOperator, STOPPED_BY_OPERATOR)
            | flag(self.call_guard.is_some(), HAS_TARGET)
            | flag(trunks.is_some(), HAS_TRUNKS)
            | flag(source.is_some(), HAS_SOURCE_TRUNK)
            | flag(target.is_some(), HAS_TARGET_TRUNK)
            | flag(uri.is_some(), HAS_TARGET_URI);
        out.extend_from_slice(&self.key.to_be_bytes());
        out.extend_from_slice(&[state, flags]);
        out.extend_from_slice(&self.challenge.to_be_bytes());
        out.extend_from_slice(&self.callee_tag.to_be_bytes());
        out.extend_from_slice(&[transport_number(self.transport), transport_number(self.target_transport)]);
        self.source.write(out);
        self.target.write(out);
        [self.began, self.answered, self.until].into_iter().for_each(|at| put_time(out, at));
        put_text8(out, self.text.caller());
        put_text8(out, self.text.callee());
        put_text16(out, self.text.call_id());
        put_text16(out, self.text.rest());
        [source, target, uri].into_iter().flatten().for_each(|text| put_text16(out, text));
        if let Some(guard) = &self.call_guard {
            out.extend_from_slice(&guard.target().id().0.to_be_bytes());
        }
    }

    /// Reads a call, and the id of its balanced target.
    fn read(now: Timestamp, reader: &mut Reader<'_>) -> Option<(Self, Option<TargetId>)> {
        let key = reader.number64().filter(|key| *key != 0)?;
        let state = match reader.byte()? {
            ANSWERED => State::Answered,
            CHALLENGED => State::Challenged,
            _ => return None,
        };
        let flags = reader.byte()?;
        let is_set = |flag: u8| flags & flag != 0;
        let (challenge, callee_tag) = (reader.number16()?, reader.number32()?);
        let (transport, target_transport) = (reader.transport()?, reader.transport()?);
        let (source, target) = (CompactAddr::read(reader)?, CompactAddr::read(reader)?);
        let (began, answered) = (reader.time()?.min(now), reader.time()?);
        let until = reader.time()?.min(now + MAX_LIFETIME);
        let answered = if state == State::Answered { answered.clamp(began, now) } else { Timestamp::MAX };
        let (caller, callee) = (reader.text8()?, reader.text8()?);
        let call_id = reader.text16().filter(|text| text.len() <= MAX_CALL_ID)?;
        let rest = reader.text16().filter(|text| text.len() <= MAX_DIALOG)?;
        let trunks = if is_set(HAS_TRUNKS) { Some(Box::new(read_trunks(flags, reader)?)) } else { None };
        let guard = if is_set(HAS_TARGET) { Some(TargetId(reader.number32()?)) } else { None };
        let call = Self {
            key,
            began,
            answered,
            until,
            timer: None,
            text: CallText::new(caller, callee, call_id, rest),
            source,
            target,
            trunks,
            call_guard: None,
            callee_tag,
            transport,
            target_transport,
            state,
            legs: 0,
            stop: match () {
                () if is_set(STOPPED_BY_OPERATOR) => Stop::ByOperator,
                () if is_set(STOPPED_BY_CALLER) => Stop::ByCaller,
                () => Stop::No,
            },
            has_session_timer: is_set(HAS_SESSION_TIMER),
            challenge,
        };
        Some((call, guard))
    }
}

fn texts_of(trunks: &Trunks) -> [Option<&[u8]>; 3] {
    let Trunks { source, target, target_uri } = trunks;
    [source.as_deref().map(str::as_bytes), target.as_deref().map(str::as_bytes), target_uri.as_deref()]
}

fn read_trunks(flags: u8, reader: &mut Reader<'_>) -> Option<Trunks> {
    let mut text = |flag: u8| {
        if flags & flag == 0 {
            return Some(None);
        }
        reader.text16().map(Some)
    };
    let [source, target, uri] = [text(HAS_SOURCE_TRUNK)?, text(HAS_TARGET_TRUNK)?, text(HAS_TARGET_URI)?];
    let name = |text: Option<&[u8]>| match text {
        Some(text) => core::str::from_utf8(text).ok().map(|name| Some(name.into())),
        None => Some(None),
    };
    Some(Trunks { source: name(source)?, target: name(target)?, target_uri: uri.map(Into::into) })
}

impl CompactAddr {
    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.ip);
        out.extend_from_slice(&self.port.to_be_bytes());
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self { ip: reader.take()?, port: reader.number16()? })
    }
}
