//! In which order a request tries the members of a set.

use core::sync::atomic::Ordering;

use smallvec::SmallVec;
use strowger_foundation::Timestamp;

use crate::hash::{bernstein, exponential, fnv, mix, openser, range, sha1, stable};
use crate::health::WHOLE_SHARE;
use crate::policy::{Candidates, Policy};
use crate::set::{MAX_MEMBERS, Member, Part, Set};

/// Members that one request tries, at most.
pub const MAX_TRIES: usize = 4;

/// Indices into [`Set::members`], the first to be tried first.
pub type Order = SmallVec<[usize; MAX_TRIES]>;

/// What of a request a member is chosen by.
#[derive(Clone, Copy)]
pub struct Pick<'a> {
    /// The time.
    pub now: Timestamp,
    /// The Call-ID.
    pub call_id: &'a [u8],
    /// What the hash policies go by: the bytes of what [`SetConfig::key`](crate::SetConfig::key) names.
    pub key: &'a [u8],
    /// A number that is as good as random, the same for all of a call (a keyed hash of the Call-ID): for lots and for ties.
    pub draw: u64,
    /// Whether it may begin a call, which takes a place of a target's capacity.
    pub begins_call: bool,
    /// Whether it may be the retransmission of a request that another balancer, now gone, has sent to one of the
    /// [candidates](Set::candidates): then the first of them is taken, whatever their load.
    pub again: bool,
    /// Members that are wanted; no more than [`MAX_TRIES`] are given.
    pub limit: usize,
    /// Whether passive detection advises against a member.
    pub is_avoided: &'a dyn Fn(usize) -> bool,
}

impl core::fmt::Debug for Pick<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { now, draw, begins_call, again, limit, .. } = self;
        f.debug_struct("Pick")
            .field("now", now)
            .field("draw", draw)
            .field("begins_call", begins_call)
            .field("again", again)
            .field("limit", limit)
            .finish_non_exhaustive()
    }
}

impl Set {
    /// The members that a request tries, in this order; empty where nobody is in service. Members that are down, drained, disabled
    /// or, for new calls, full are left out; those that are avoided are tried where nobody else is there. Spares come after all of
    /// lower priority numbers. Nothing is allocated.
    pub fn order(&self, pick: &Pick<'_>, order: &mut Order) {
        order.clear();
        let census = Census::take(self, pick);
        if census.chosen_from == 0 {
            return;
        }
        let scan = Scan { set: self, pick, census: &census, basis: self.basis(pick, &census) };
        order.extend(scan.best().members().take(pick.limit));
        if let (Basis::Due(_), Some(chosen)) = (&scan.basis, order.first()) {
            self.take_turn(*chosen);
        }
    }

    /// The two members that a consistent hash of the Call-ID names, whatever state they are in, but not disabled ones: the first is
    /// that which [`again`](Pick::again) takes. Where [two candidates](Candidates::Two) are chosen between and all members are in
    /// service, all calls with this Call-ID go to one of them.
    #[must_use]
    pub fn candidates(&self, call_id: &[u8]) -> [Option<usize>; 2] {
        let hash = stable(&[call_id]);
        let mut best = Best::default();
        for (at, (member, part)) in self.members().iter().zip(&self.parts).enumerate() {
            if member.enabled {
                best.offer(Rank { tier: tier(member, false), load: self.rendezvous(hash, member, part), tie: 0, at });
            }
        }
        let mut members = best.members();
        [members.next(), members.next()]
    }
}

impl Set {
    fn basis(&self, pick: &Pick<'_>, census: &Census) -> Basis {
        let from = |hash: u64| Basis::From { start: hash % census.places.max(1), hash };
        match self.config().policy {
            Policy::Hash => Basis::Rendezvous(stable(&[pick.key])),
            Policy::Fnv => from(fnv(pick.key).into()),
            Policy::Bernstein => from(bernstein(pick.key).into()),
            Policy::Sha1 => from(sha1(pick.key)),
            Policy::Openser => from(openser(pick.key).into()),
            Policy::Range => Basis::Range { start: range(pick.key, self.ranges) as u64, hash: fnv(pick.key).into() },
            Policy::Priority => Basis::Listed,
            // Where another member has sent it is not known; but which candidate it has tried first.
            _ if pick.again => Basis::Rendezvous(stable(&[pick.call_id])),
            Policy::RoundRobin => from(self.turns.served.fetch_add(1, Ordering::Relaxed).into()),
            Policy::Weighted => Basis::Due(self.turns.time.load(Ordering::Relaxed)),
            Policy::Random => Basis::Rendezvous(pick.draw),
            Policy::LeastCalls | Policy::LeastTransactions | Policy::LeastWork | Policy::ResponseTime => {
                match self.config().candidates {
                    Candidates::All => Basis::Load,
                    Candidates::Two => Basis::Candidates(stable(&[pick.call_id])),
                }
            }
        }
    }

    /// A member's place in the consistent hash; the lowest has it. Highest random weight (Thaler and Ravishankar, 1998): each
    /// member has its own number for each key, so a key moves only when its member goes or a better one comes. Exponentially
    /// distributed numbers over weights make the one that weighs twice as much twice as likely to be the lowest.
    #[inline]
    fn rendezvous(&self, hash: u64, member: &Member, part: &Part) -> u64 {
        let number = mix(hash ^ member.target.seed());
        if self.is_even { !number } else { exponential(number).saturating_mul(part.inverse) }
    }

    /// What a member would have to do with one request more, relative to what it weighs.
    #[inline]
    fn load_of(&self, census: &Census, pick: &Pick<'_>, member: &Member, part: &Part) -> u64 {
        let target = &member.target;
        let load = match self.config().policy {
            Policy::LeastCalls => u64::from(target.calls()) + 1,
            Policy::LeastTransactions => u64::from(target.load().transactions) + 1,
            Policy::ResponseTime => {
                // Who is not known yet is taken to be as fast as the fastest: so it becomes known, without getting all.
                let ticks = target.measures().expected_ticks(pick.now).unwrap_or(census.fastest);
                u64::from(ticks) * (u64::from(target.load().transactions) + 1)
            }
            _ => target.load().work + self.new_work,
        };
        u64::try_from((u128::from(load) * u128::from(part.inverse)) >> 8).unwrap_or(u64::MAX)
    }

    /// The member whose turn it was is due again a stride later. Two requests that take a turn at the same moment may take the same
    /// one; it is then charged twice.
    fn take_turn(&self, chosen: usize) {
        let Some(part) = self.parts.get(chosen) else { return };
        let time = self.turns.time.load(Ordering::Relaxed);
        // Who was away takes none of the turns that it missed.
        let next = |due: u64| Some(due.max(time).saturating_add(part.stride));
        let (Ok(due) | Err(due)) = part.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        self.turns.time.fetch_max(due, Ordering::Relaxed);
    }
}

/// Whether a request may go to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Out,
    /// It has as many calls as it may have.
    Full,
    Avoided,
    InService,
}

impl Standing {
    fn of(set: &Set, pick: &Pick<'_>, at: usize, member: &Member) -> Self {
        let target = &member.target;
        if !member.enabled || target.is_draining() || set.is_down(member) {
            return Self::Out;
        }
        let is_full = pick.begins_call && member.capacity.is_some_and(|capacity| target.calls() >= capacity);
        match (is_full, (pick.is_avoided)(at)) {
            (false, false) => Self::InService,
            (false, true) => Self::Avoided,
            (true, false) => Self::Full,
            // Nor is it a last resort.
            (true, true) => Self::Out,
        }
    }
}

/// Who is there, asked once for each request: others count at the same time.
struct Census {
    standings: [Standing; MAX_MEMBERS],
    /// Those who are in service; where nobody is, those who are avoided.
    chosen: Standing,
    /// How many these are.
    chosen_from: usize,
    /// Their lowest priority number.
    first_priority: u16,
    /// Places that hashes share out and turns go round: of those of that priority that weigh anything, also of the full ones,
    /// since calls that end should move nobody.
    places: u64,
    /// What those of that priority weigh that are chosen from.
    weight: u64,
    /// The shortest response time that is expected of one of them, in ticks.
    fastest: u32,
}

impl Census {
    fn take(set: &Set, pick: &Pick<'_>) -> Self {
        let mut standings = [Standing::Out; MAX_MEMBERS];
        let (mut in_service, mut avoided) = ((0, u16::MAX), (0, u16::MAX));
        for (at, (member, standing)) in set.members().iter().zip(&mut standings).enumerate() {
            *standing = Standing::of(set, pick, at, member);
            let (count, priority) = match standing {
                Standing::InService => &mut in_service,
                Standing::Avoided => &mut avoided,
                Standing::Out | Standing::Full => continue,
            };
            *count += 1;
            *priority = member.priority.min(*priority);
        }
        let (chosen, (chosen_from, first_priority)) = match in_service {
            (0, _) => (Standing::Avoided, avoided),
            _ => (Standing::InService, in_service),
        };
        let mut census =
            Self { standings, chosen, chosen_from, first_priority, places: 0, weight: 0, fastest: u32::MAX };
        census.count(set, pick);
        census
    }

    /// Counts what of the first priority is there.
    fn count(&mut self, set: &Set, pick: &Pick<'_>) {
        let is_timed = set.config().policy == Policy::ResponseTime;
        for (member, standing) in set.members().iter().zip(&self.standings) {
            if !self.has_place(member, *standing) {
                continue;
            }
            self.places += 1;
            if *standing == self.chosen {
                self.weight += u64::from(member.weight);
                if is_timed && let Some(ticks) = member.target.measures().expected_ticks(pick.now) {
                    self.fastest = self.fastest.min(ticks);
                }
            }
        }
    }

    fn has_place(&self, member: &Member, standing: Standing) -> bool {
        member.priority == self.first_priority
            && member.weight != 0
            && (standing == self.chosen || standing == Standing::Full)
    }
}

/// By what members are compared for one request.
enum Basis {
    /// The consistent hash of this.
    Rendezvous(u64),
    /// As well, but of the first two the one that has less to do.
    Candidates(u64),
    /// As they follow after the `start`-th of those that have a place; by the hash for the others.
    From { start: u64, hash: u64 },
    /// As they follow after the one that has the `start`-th range.
    Range { start: u64, hash: u64 },
    /// Whose turn is first, at this time.
    Due(u64),
    /// What they have to do.
    Load,
    /// As they are listed.
    Listed,
}

/// One request's look at all members.
struct Scan<'a> {
    set: &'a Set,
    pick: &'a Pick<'a>,
    census: &'a Census,
    basis: Basis,
}

impl Scan<'_> {
    fn best(&self) -> Best {
        let mut best = Best::default();
        let mut places = 0;
        let members = self.set.members().iter().zip(&self.set.parts).zip(&self.census.standings);
        for (at, ((member, part), standing)) in members.enumerate() {
            let place = self.census.has_place(member, *standing).then_some(places);
            places += u64::from(place.is_some());
            if *standing == self.census.chosen {
                best.offer(self.rank(at, member, part, place));
            }
        }
        if let (Basis::Candidates(_), [first, second, ..]) = (&self.basis, &mut best.0)
            && first.tier == second.tier
            && self.load_at(second.at) < self.load_at(first.at)
        {
            core::mem::swap(first, second);
        }
        best
    }

    fn rank(&self, at: usize, member: &Member, part: &Part, place: Option<u64>) -> Rank {
        let by_hash = |hash| self.set.rendezvous(hash, member, part);
        let load = match self.basis {
            Basis::Rendezvous(hash) | Basis::Candidates(hash) => by_hash(hash),
            Basis::From { start, hash } => {
                place.map_or_else(|| by_hash(mix(hash)), |place| steps(start, place, self.census.places))
            }
            Basis::Range { start, hash } => {
                let steps = |range| steps(start, range as u64, self.set.ranges as u64);
                part.range.map_or_else(|| by_hash(mix(hash)), steps)
            }
            Basis::Due(time) => match place {
                Some(_) => part.due.load(Ordering::Relaxed).max(time),
                // Spares are in nobody's turn.
                None => by_hash(self.pick.draw),
            },
            Basis::Load => self.set.load_of(self.census, self.pick, member, part),
            Basis::Listed => at as u64,
        };
        // Those who are equal share evenly.
        let tie = mix(self.pick.draw ^ member.target.seed());
        Rank { tier: tier(member, self.is_passed_over(member)), load, tie, at }
    }

    fn load_at(&self, at: usize) -> u64 {
        let (Some(member), Some(part)) = (self.set.members().get(at), self.set.parts.get(at)) else { return u64::MAX };
        self.set.load_of(self.census, self.pick, member, part)
    }

    /// Whether a member that starts slowly is left to others this time. By lot: of those requests that would be its own it gets
    /// its share. Policies that go by load would give it everything, since it has nothing to do, and in a round it would be
    /// due until it is taken; so there it gets its share of an even part, at most.
    fn is_passed_over(&self, member: &Member) -> bool {
        let share = self.set.share(member, self.pick.now);
        if share == WHOLE_SHARE || self.census.chosen_from == 1 {
            return false;
        }
        let is_first = member.priority == self.census.first_priority;
        let (lot, part, of) = match self.basis {
            // The same keys each time, and ever more of them.
            Basis::Rendezvous(hash) | Basis::From { hash, .. } | Basis::Range { hash, .. } => (hash, 1, 1),
            Basis::Candidates(hash) => (hash, 1, 2),
            Basis::Load | Basis::Due(_) if is_first => (self.pick.draw, u64::from(member.weight), self.census.weight.max(1)),
            Basis::Load | Basis::Due(_) | Basis::Listed => (self.pick.draw, 1, 1),
        };
        let lot = mix(lot ^ !member.target.seed()) >> (64 - LOT_BITS);
        lot * u64::from(WHOLE_SHARE) * of >= (u64::from(share) * part) << LOT_BITS
    }
}

/// Bits of a lot.
const LOT_BITS: u32 = 24;

/// How far `to` is after `from` on a circle of so many places.
const fn steps(from: u64, to: u64, places: u64) -> u64 {
    if to >= from { to - from } else { (to + places).saturating_sub(from) }
}

/// What stands before all loads: who is passed over comes last, spares come after the others, and who weighs nothing after those
/// of its priority.
fn tier(member: &Member, is_passed_over: bool) -> u32 {
    u32::from(is_passed_over) << 17 | u32::from(member.priority) << 1 | u32::from(member.weight == 0)
}

/// How good a member is for a request: the lowest is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    tier: u32,
    load: u64,
    tie: u64,
    at: usize,
}

/// Worse than any member.
const NOBODY: Rank = Rank { tier: u32::MAX, load: u64::MAX, tie: u64::MAX, at: usize::MAX };

/// The best so far, the best first.
struct Best([Rank; MAX_TRIES]);

impl Default for Best {
    fn default() -> Self {
        Self([NOBODY; MAX_TRIES])
    }
}

impl Best {
    #[inline]
    fn offer(&mut self, mut rank: Rank) {
        for place in &mut self.0 {
            if rank < *place {
                core::mem::swap(place, &mut rank);
            }
        }
    }

    fn members(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().filter(|rank| rank.at != usize::MAX).map(|rank| rank.at)
    }
}
