//! Sessions that this end begins.

use strowger_foundation::Timestamp;

use super::{ConnectionLifetime, Driver, Outbox, StepContext};

/// Flag in the numbers of sessions that one user repeats; other session numbers stay below it.
const AGAIN: u64 = 1 << 47;
/// Why a call did not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// [`Setup::max_sessions`] sessions are running.
    Sessions,
    /// No connection can be opened.
    Connections,
}

impl Driver {
    /// Begins a call that the arrival law demands at this time: runs `script` for these users.
    ///
    /// # Errors
    /// Counts the call as offered and refused.
    pub fn begin(
        &mut self,
        now: Timestamp,
        script: u16,
        (caller, callee): (u32, u32),
        out: &mut dyn Outbox,
    ) -> Result<(), Refusal> {
        self.begin_late((now, now), script, (caller, callee), out)
    }

    /// Begins a call as [`begin`](Self::begin) does, for a call that was due earlier than now.
    ///
    /// # Errors
    /// Counts the call as offered and refused.
    pub fn begin_late(
        &mut self,
        (now, due): (Timestamp, Timestamp),
        script: u16,
        (caller, callee): (u32, u32),
        out: &mut dyn Outbox,
    ) -> Result<(), Refusal> {
        let identity = (self.sessions.len() < self.setup.max_sessions).then(|| self.next_call());
        self.offer((now, due), script, (caller, callee), (identity, 0), out)
    }

    /// Begins a session as [`begin_late`](Self::begin_late) does, for something that a user repeats: with the same
    /// Call-ID and socket each time, and the CSeq that follows `cseq`, the last one used. A user may have only one
    /// such session at a time, and a calling end must have its address to itself.
    //= rfc3261#10.2
    // All registrations of a phone use the same Call-ID, and CSeq counts them.
    ///
    /// # Errors
    /// The session is counted as offered and refused.
    pub fn begin_again(
        &mut self,
        (now, due): (Timestamp, Timestamp),
        script: u16,
        (user, cseq): (u32, u32),
        out: &mut dyn Outbox,
    ) -> Result<(), Refusal> {
        let link = user % u32::try_from(self.locals.len()).unwrap_or(u32::MAX).max(1);
        let serial = AGAIN | u64::from(user) | u64::from(self.setup.number) << 48;
        let call = self.call_hash_of(serial, u16::try_from(link).unwrap_or(0));
        let identity = (self.sessions.len() < self.setup.max_sessions).then_some((serial, call, link));
        self.offer((now, due), script, (user, user), (identity, cseq), out)
    }

    fn offer(
        &mut self,
        times: (Timestamp, Timestamp),
        script: u16,
        users: (u32, u32),
        (identity, cseq): (Option<(u64, u64, u32)>, u32),
        out: &mut dyn Outbox,
    ) -> Result<(), Refusal> {
        self.meter.began.offered += u64::from(self.counts);
        let begun = match identity {
            Some(identity) => self.begin_session(times, script, users, (identity, cseq), out),
            None => Err(Refusal::Sessions),
        };
        self.meter.began.refused += u64::from(self.counts && begun.is_err());
        self.begin_started(times.0, out);
        begun
    }

    fn begin_session(
        &mut self,
        (now, due): (Timestamp, Timestamp),
        script: u16,
        (caller, callee): (u32, u32),
        ((serial, call, mut link), cseq): ((u64, u64, u32), u32),
        out: &mut dyn Outbox,
    ) -> Result<(), Refusal> {
        let local = u16::try_from(link).unwrap_or(0);
        let is_stream = self.setup.transport.is_reliable();
        let owns_link = is_stream
            && matches!(self.setup.connection_lifetime, ConnectionLifetime::Dialog | ConnectionLifetime::Transaction);
        if is_stream {
            link = out.connect(self.setup.remote, owns_link).ok_or(Refusal::Connections)?;
        }
        let (slot, epoch) = (self.sessions.insert(), self.epoch_of_new());
        let Some(session) = self.sessions.get_mut(slot) else { return Err(Refusal::Sessions) };
        (session.serial, session.call, session.began) = (serial, call, now);
        session.attempt.on_begin(now.saturating_since(due));
        (session.script, session.step) = (script, 0);
        (session.caller, session.callee) = (caller, callee);
        (session.peer, session.link, session.local) = (self.setup.remote, link, local);
        session.flags.is_live = true;
        session.flags.is_ours = true;
        session.flags.epoch = epoch;
        session.flags.owns_link = owns_link;
        // A branch contains its number, so none is used twice.
        (session.cseq, session.branches) = (cseq, cseq);
        if is_stream {
            self.sessions.move_to_link(slot, link);
        }
        self.calls.insert(call, slot);
        if self.counts {
            self.meter.on_begin(true);
            self.meter.on_begin_of(script);
        }
        self.own += 1;
        self.run_steps(slot, &mut StepContext { now, out, last: None });
        Ok(())
    }

    /// Begins the sessions that steps have started; each counts as offered.
    pub(super) fn begin_started(&mut self, now: Timestamp, out: &mut dyn Outbox) {
        while let Some((script, caller, callee)) = self.started.pop() {
            let identity = (self.sessions.len() < self.setup.max_sessions).then(|| self.next_call());
            self.meter.began.offered += u64::from(self.counts);
            let begun = identity
                .map(|identity| self.begin_session((now, now), script, (caller, callee), (identity, 0), out).is_ok());
            self.meter.began.refused += u64::from(self.counts && begun != Some(true));
        }
    }

    /// Returns the number of the next session that this end begins, the hash of its Call-ID, and its socket. Several
    /// drivers may listen at our address, so this skips numbers whose call would belong to another one.
    fn next_call(&mut self) -> (u64, u64, u32) {
        let sockets = self.locals.len().max(1) as u64;
        loop {
            let serial = self.next_serial();
            let link = u32::try_from(serial % sockets).unwrap_or(0);
            let call = self.call_hash_of(serial, u16::try_from(link).unwrap_or(0));
            if self.setup.partition.owner_elsewhere(call).is_none() {
                return (serial, call, link);
            }
        }
    }
}
