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
        let basis = self.basis(pick);
        let census = Census::take(self, pick, &basis);
        let scan = Scan { set: self, pick, census: &census, basis };
        order.extend(scan.best().members().take(pick.limit));
        debug_assert!(!order.spilled(), "nothing is allocated");
        if let (Basis::Due(time), Some(chosen)) = (&scan.basis, order.first()) {
            self.take_turn(&census, *chosen, *time);
        }
    }

    /// The two members that a consistent hash of the Call-ID names, whatever state they are in, but not disabled ones: the first is
    /// that which [`again`](Pick::again) takes. Where [two candidates](Candidates::Two) are chosen between and all members are in
    /// service, nearly all calls are at one of theirs.
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
    fn basis(&self, pick: &Pick<'_>) -> Basis {
        match self.config().policy {
            Policy::Hash => Basis::Rendezvous(stable(&[pick.key])),
            Policy::Fnv => Basis::Place(fnv(pick.key).into()),
            Policy::Bernstein => Basis::Place(bernstein(pick.key).into()),
            Policy::Sha1 => Basis::Place(sha1(pick.key)),
            Policy::Openser => Basis::Place(openser(pick.key).into()),
            Policy::Range => Basis::Range { start: range(pick.key, self.ranges) as u64, hash: fnv(pick.key).into() },
            Policy::Priority => Basis::Listed,
            // Where another member has sent it is not known; but which candidate it has tried first.
            _ if pick.again => Basis::Rendezvous(stable(&[pick.call_id])),
            Policy::RoundRobin => Basis::Place(self.turns.served.fetch_add(1, Ordering::Relaxed).into()),
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

    /// What a member would have to do with one request more.
    #[inline]
    fn burden_of(&self, census: &Census, pick: &Pick<'_>, member: &Member, part: &Part) -> Burden {
        let target = &member.target;
        let (load, one) = match self.config().policy {
            Policy::LeastCalls => (u64::from(target.calls()), 1),
            Policy::LeastTransactions => (u64::from(target.load().transactions), 1),
            Policy::ResponseTime => {
                // Who is not known yet is taken to be as fast as the fastest: so it becomes known, without getting all.
                let ticks = u64::from(target.measures().expected_ticks(pick.now).unwrap_or(census.fastest));
                (ticks * u64::from(target.load().transactions), ticks)
            }
            _ => (target.load().work, self.new_work),
        };
        let relative =
            |load: u64| u64::try_from((u128::from(load) * u128::from(part.inverse)) >> 8).unwrap_or(u64::MAX);
        Burden { load: relative(load.saturating_add(one)), one: relative(one) }
    }

    /// The member whose turn it was is due again a stride later, and so is who was due before and passed over. Two requests that
    /// take a turn at the same moment may take the same one; it is then charged twice.
    fn take_turn(&self, census: &Census, chosen: usize, time: u64) {
        let Some(part) = self.parts.get(chosen) else { return };
        let due = part.take_turn(time);
        self.turns.time.fetch_max(due, Ordering::Relaxed);
        for (part, standing) in self.parts.iter().zip(&census.standings) {
            if *standing == Standing::PassedOver && part.due.load(Ordering::Relaxed) <= due {
                part.take_turn(time);
            }
        }
    }
}

impl Part {
    /// Gives when the turn was. Who was away takes none of those that it missed.
    fn take_turn(&self, time: u64) -> u64 {
        let next = |due: u64| Some(due.max(time).saturating_add(self.stride));
        let (Ok(due) | Err(due)) = self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        due.max(time)
    }
}

/// By what members are compared for one request.
enum Basis {
    /// The consistent hash of this.
    Rendezvous(u64),
    /// As well, but [of the first two](Scan::choose_between) the one that has less to do.
    Candidates(u64),
    /// As they follow after the place that this number leaves as a remainder; by its hash for those who have none.
    Place(u64),
    /// As they follow after the one that has the `start`-th range; by the hash for those who have none.
    Range { start: u64, hash: u64 },
    /// Whose turn is first, at this time.
    Due(u64),
    /// What they have to do.
    Load,
    /// As they are listed.
    Listed,
}

/// Whether a request may go to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Out,
    /// It has as many calls as it may have.
    Full,
    Avoided,
    InService,
    /// In service since a short time ago.
    Starting,
    /// It starts slowly, and this request is left to others if there are any.
    PassedOver,
}

impl Standing {
    fn of(set: &Set, pick: &Pick<'_>, at: usize, member: &Member) -> Self {
        let target = &member.target;
        if !member.enabled || target.is_draining() || set.is_down(member) {
            return Self::Out;
        }
        let is_full = pick.begins_call && member.capacity.is_some_and(|capacity| target.calls() >= capacity);
        match (is_full, (pick.is_avoided)(at)) {
            (false, false) if set.share(member, pick.now) < WHOLE_SHARE => Self::Starting,
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
    /// Nobody is in service, so those who are avoided are chosen from.
    is_last_resort: bool,
    /// The lowest priority number of those who are chosen from.
    first_priority: u16,
    /// Whether who is full keeps its place: calls that end should move no keys.
    keeps_full: bool,
    /// Places that are shared out and gone round, of those of that priority that weigh anything.
    places: u64,
    /// The shortest response time that is expected of one of them, in ticks.
    fastest: u32,
}

impl Census {
    fn take(set: &Set, pick: &Pick<'_>, basis: &Basis) -> Self {
        let mut standings = [Standing::Out; MAX_MEMBERS];
        let (mut in_service, mut starting) = (0, 0);
        let (mut first_in_service, mut first_avoided) = (u16::MAX, u16::MAX);
        for (at, (member, standing)) in set.members().iter().zip(&mut standings).enumerate() {
            *standing = Standing::of(set, pick, at, member);
            match standing {
                Standing::InService | Standing::Starting => {
                    in_service += 1;
                    starting += usize::from(*standing == Standing::Starting);
                    first_in_service = first_in_service.min(member.priority);
                }
                Standing::Avoided => first_avoided = first_avoided.min(member.priority),
                Standing::Out | Standing::Full | Standing::PassedOver => {}
            }
        }
        let is_last_resort = in_service == 0;
        let first_priority = if is_last_resort { first_avoided } else { first_in_service };
        let keeps_full = set.config().policy.is_by_key();
        let mut census = Self { standings, is_last_resort, first_priority, keeps_full, places: 0, fastest: u32::MAX };
        // Where all start nobody stands back.
        if starting != 0 && starting != in_service {
            census.draw_lots(set, pick, basis);
        }
        census.count(set, pick);
        census
    }

    /// Of those who start slowly some are passed over. By lot: of those requests that would be its own each gets its share.
    /// Policies that go by load would give it everything, since it has nothing to do; so there it gets its share of an even
    /// part, at most.
    fn draw_lots(&mut self, set: &Set, pick: &Pick<'_>, basis: &Basis) {
        let members = set.members().iter().zip(&self.standings);
        let first = members.filter(|(member, standing)| {
            member.priority == self.first_priority && matches!(standing, Standing::InService | Standing::Starting)
        });
        let weight: u64 = first.map(|(member, _)| u64::from(member.weight)).sum();
        for (member, standing) in set.members().iter().zip(&mut self.standings) {
            if *standing != Standing::Starting {
                continue;
            }
            let (lot, part, of) = match *basis {
                // The same keys each time, and ever more of them.
                Basis::Rendezvous(hash) | Basis::Place(hash) | Basis::Range { hash, .. } => (hash, 1, 1),
                Basis::Candidates(hash) => (hash, 1, 2),
                Basis::Load if member.priority == self.first_priority => {
                    (pick.draw, u64::from(member.weight), weight.max(1))
                }
                Basis::Load | Basis::Due(_) | Basis::Listed => (pick.draw, 1, 1),
            };
            let share = u64::from(set.share(member, pick.now));
            let lot = mix(lot ^ !member.target.seed()) >> (64 - LOT_BITS);
            if lot * u64::from(WHOLE_SHARE) * of >= (share * part) << LOT_BITS {
                *standing = Standing::PassedOver;
            }
        }
    }

    /// Counts what of the first priority is there.
    fn count(&mut self, set: &Set, pick: &Pick<'_>) {
        let is_timed = set.config().policy == Policy::ResponseTime;
        for (member, standing) in set.members().iter().zip(&self.standings) {
            self.places += u64::from(self.has_place(member, *standing));
            if is_timed
                && self.may_be_chosen(*standing)
                && let Some(ticks) = member.target.measures().expected_ticks(pick.now)
            {
                self.fastest = self.fastest.min(ticks);
            }
        }
    }

    #[inline]
    fn may_be_chosen(&self, standing: Standing) -> bool {
        match standing {
            Standing::InService | Standing::Starting | Standing::PassedOver => true,
            Standing::Avoided => self.is_last_resort,
            Standing::Out | Standing::Full => false,
        }
    }

    #[inline]
    fn has_place(&self, member: &Member, standing: Standing) -> bool {
        let is_there = match standing {
            Standing::InService | Standing::Starting => true,
            Standing::Avoided => self.is_last_resort,
            Standing::Full => self.keeps_full,
            Standing::Out | Standing::PassedOver => false,
        };
        is_there && member.priority == self.first_priority && member.weight != 0
    }
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
        let start = match self.basis {
            Basis::Place(number) => number % self.census.places.max(1),
            _ => 0,
        };
        let mut places = 0;
        let members = self.set.members().iter().zip(&self.set.parts).zip(&self.census.standings);
        for (at, ((member, part), standing)) in members.enumerate() {
            let place = self.census.has_place(member, *standing).then(|| steps(start, places, self.census.places));
            places += u64::from(place.is_some());
            if self.census.may_be_chosen(*standing) {
                let tier = tier(member, *standing == Standing::PassedOver);
                // Those who are equal share evenly.
                let tie = mix(self.pick.draw ^ member.target.seed());
                best.offer(Rank { tier, load: self.load(at, member, part, place), tie, at });
            }
        }
        if matches!(self.basis, Basis::Candidates(_)) {
            self.choose_between(&mut best);
        }
        best
    }

    /// How much speaks against a member, whose place is so many steps from where the request begins.
    fn load(&self, at: usize, member: &Member, part: &Part, place: Option<u64>) -> u64 {
        let by_hash = |hash| self.set.rendezvous(hash, member, part);
        match self.basis {
            Basis::Rendezvous(hash) | Basis::Candidates(hash) => by_hash(hash),
            Basis::Place(number) => place.unwrap_or_else(|| by_hash(mix(number))),
            Basis::Range { start, hash } => match part.range {
                Some(range) => steps(start, range as u64, self.set.ranges as u64),
                None => by_hash(mix(hash)),
            },
            Basis::Due(time) => match place {
                Some(_) => part.due.load(Ordering::Relaxed).max(time),
                // Spares are in nobody's turn.
                None => by_hash(self.pick.draw),
            },
            Basis::Load => self.set.burden_of(self.census, self.pick, member, part).load,
            Basis::Listed => at as u64,
        }
    }

    /// Of the first two by the hash the one that has less to do comes first; or, where both have far more to do than the one that
    /// has the least, that one. Without that the choice between two keeps not quite nine tenths of what a choice between all
    /// gains; with it some calls of a hundred are where their Call-ID does not say.
    fn choose_between(&self, best: &mut Best) {
        let [first, second, ..] = &mut best.0;
        if first.tier != second.tier {
            return;
        }
        let (one, other) = (self.burden_at(first.at), self.burden_at(second.at));
        let burden = one.min(other);
        if other.load < one.load {
            core::mem::swap(first, second);
        }
        let tier = first.tier;
        if let Some(least) = self.least_of(tier).filter(|least| burden.is_far_above(least.load)) {
            best.promote(least);
        }
    }

    /// Who has the least to do of those of a tier.
    fn least_of(&self, tier: u32) -> Option<Rank> {
        let members = self.set.members().iter().zip(&self.set.parts).zip(&self.census.standings).enumerate();
        let members = members.filter(|(_, ((member, _), standing))| {
            self.census.may_be_chosen(**standing) && tier == self::tier(member, **standing == Standing::PassedOver)
        });
        let rank = |(at, ((member, part), _)): (usize, ((&Member, &Part), _))| {
            let tie = mix(self.pick.draw ^ member.target.seed());
            Rank { tier, load: self.set.burden_of(self.census, self.pick, member, part).load, tie, at }
        };
        members.map(rank).min()
    }

    fn burden_at(&self, at: usize) -> Burden {
        let (Some(member), Some(part)) = (self.set.members().get(at), self.set.parts.get(at)) else {
            return Burden::default();
        };
        self.set.burden_of(self.census, self.pick, member, part)
    }
}

/// What a member has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Burden {
    /// With the request that is asked about, relative to what the member weighs.
    load: u64,
    /// That request's part of it.
    one: u64,
}

impl Burden {
    /// More by one and a half such requests and a quarter.
    const fn is_far_above(self, least: u64) -> bool {
        self.load > least.saturating_add(least / 4).saturating_add(self.one).saturating_add(self.one / 2)
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

    /// Puts one first, wherever it was.
    fn promote(&mut self, rank: Rank) {
        let from = self.0.iter().position(|known| known.at == rank.at).unwrap_or(MAX_TRIES - 1);
        if let Some(front) = self.0.get_mut(..=from) {
            front.rotate_right(1);
        }
        if let Some(first) = self.0.first_mut() {
            *first = rank;
        }
    }

    fn members(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().filter(|rank| rank.at != usize::MAX).map(|rank| rank.at)
    }
}
