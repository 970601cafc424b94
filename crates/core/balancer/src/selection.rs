//! In which order a request tries the members of a set.

use core::sync::atomic::Ordering;

use smallvec::SmallVec;
use strowger_foundation::Timestamp;

use crate::eligibility::{Eligibility, EligibilityTable};
use crate::hash::{bernstein, exponential, fnv, mix, of_key, openser, range, sha1};
use crate::policy::{Candidates, Policy};
use crate::rank::{Rank, TopRanks, WORST};
use crate::set::{MAX_MEMBERS, MemberEntry, STRIDE_BITS, Set};

/// Members that one request tries, at most.
pub const MAX_TRIES: usize = 4;

/// Indices into [`Set::members`], the first to be tried first.
pub type MemberOrder = SmallVec<[usize; MAX_TRIES]>;

/// What of a request a member is chosen by.
#[derive(Clone, Copy)]
pub struct SelectionInput<'a> {
    /// The time.
    pub now: Timestamp,
    /// The Call-ID: by it candidates are named, and load policies decide between equal ones.
    pub call_id: &'a [u8],
    /// What the hash policies go by: the bytes of what [`SetConfig::key`](crate::SetConfig::key) names.
    pub key: &'a [u8],
    /// A number that is as good as random: for lots.
    pub random: u64,
    /// Whether it may begin a call, which takes a place of a target's capacity.
    pub begins_call: bool,
    /// Members that are wanted; no more than [`MAX_TRIES`] are given.
    pub limit: usize,
    /// What passive detection says of a member.
    pub advice: &'a dyn Fn(usize) -> Advice,
}

/// What passive detection says of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Nothing.
    Neutral,
    /// It failed lately: others are tried first.
    Avoid,
    /// It has said itself that it wants nothing for a time: it gets nothing, not even where there is nobody else.
    Exclude,
}

impl core::fmt::Debug for SelectionInput<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { now, random: draw, begins_call, limit, .. } = self;
        f.debug_struct("Pick")
            .field("now", now)
            .field("draw", draw)
            .field("begins_call", begins_call)
            .field("limit", limit)
            .finish_non_exhaustive()
    }
}

impl Set {
    /// The members that a request tries, in this order; empty where nobody is in service. Members that are down, drained, disabled,
    /// left alone or, for new calls, full are left out; those that are avoided come last. Spares come after all of lower priority
    /// numbers.
    /// Nothing is allocated.
    pub fn select(&self, pick: &SelectionInput<'_>, order: &mut MemberOrder) {
        order.clear();
        let basis = self.criterion(pick);
        let mut standings = [Eligibility::Unavailable; MAX_MEMBERS];
        let mut census = EligibilityTable::new(&mut standings);
        census.fill(self, pick, &basis);
        let scan = Scan { set: self, pick, census: &census, basis };
        order.extend(scan.best().members().take(pick.limit));
        debug_assert!(!order.spilled(), "nothing is allocated");
        if let (Criterion::VirtualTime(time), Some(chosen)) = (&scan.basis, order.first()) {
            self.take_turn(&census, *chosen, *time);
        }
    }

    /// The two members that a consistent hash of the Call-ID names, whatever state they are in, but not disabled ones: the first is
    /// that which is taken where both have as much to do. Where [two candidates](Candidates::Two) are chosen between and all members are in
    /// service, nearly all calls are at one of theirs.
    #[must_use]
    pub fn candidates(&self, call_id: &[u8]) -> [Option<usize>; 2] {
        let hash = of_key(call_id);
        let mut best = TopRanks::default();
        for (at, part) in self.entries.iter().enumerate() {
            if part.enabled {
                best.offer(Rank::new(part.tier, self.rendezvous(hash, part), 0, at));
            }
        }
        let mut members = best.members();
        [members.next(), members.next()]
    }
}

impl Set {
    fn criterion(&self, pick: &SelectionInput<'_>) -> Criterion {
        match self.config().policy {
            Policy::Hash => Criterion::Rendezvous(of_key(pick.key)),
            Policy::Fnv => Criterion::Modulo(fnv(pick.key).into()),
            Policy::Bernstein => Criterion::Modulo(bernstein(pick.key).into()),
            Policy::Sha1 => Criterion::Modulo(sha1(pick.key)),
            Policy::Openser => Criterion::Modulo(openser(pick.key).into()),
            Policy::Range => {
                Criterion::Range { start: range(pick.key, self.ranges) as u64, hash: fnv(pick.key).into() }
            }
            Policy::Priority => Criterion::ConfigOrder,
            Policy::RoundRobin => Criterion::Modulo(self.turns.served.fetch_add(1, Ordering::Relaxed).into()),
            Policy::Weighted => Criterion::VirtualTime(self.turns.time.load(Ordering::Relaxed)),
            Policy::Random => Criterion::Rendezvous(pick.random),
            Policy::LeastCalls | Policy::LeastTransactions | Policy::LeastWork | Policy::ResponseTime => {
                match self.config().candidates {
                    Candidates::All => Criterion::Load(of_key(pick.call_id)),
                    Candidates::Two => Criterion::Candidates(of_key(pick.call_id)),
                }
            }
        }
    }

    /// A member's place in the consistent hash; the lowest has it. Highest random weight (Thaler and Ravishankar, 1998): each
    /// member has its own number for each key, so a key moves only when its member goes or a better one comes. Exponentially
    /// distributed numbers over weights make the one that weighs twice as much twice as likely to be the lowest.
    #[inline]
    fn rendezvous(&self, hash: u64, part: &MemberEntry) -> u64 {
        let number = mix(hash ^ part.seed);
        if self.has_equal_weights { !number } else { exponential(number).saturating_mul(part.inverse) }
    }

    /// What a member would have to do with one request more.
    #[inline]
    fn predicted_load(
        &self,
        census: &EligibilityTable<'_>,
        pick: &SelectionInput<'_>,
        part: &MemberEntry,
    ) -> PredictedLoad {
        let target = &part.target;
        let (load, one) = match self.config().policy {
            Policy::LeastCalls => (u64::from(target.calls()), 1),
            Policy::LeastTransactions => (u64::from(target.load().transactions), 1),
            Policy::ResponseTime => return self.wait_at(census, pick, part),
            _ => (target.load().work, self.new_work),
        };
        let relative =
            |load: u64| u64::try_from((u128::from(load) * u128::from(part.inverse)) >> 8).unwrap_or(u64::MAX);
        PredictedLoad { load: relative(load.saturating_add(one)), increment: relative(one) }
    }

    /// How long one request more would wait at a member, the shortest response time being [`FASTEST`]. How soon a target answers
    /// who comes alone is its own, whatever it weighs; what waits there already counts the less the more it weighs.
    #[inline]
    fn wait_at(&self, census: &EligibilityTable<'_>, pick: &SelectionInput<'_>, part: &MemberEntry) -> PredictedLoad {
        let target = &part.target;
        // Who is not known yet is taken to be as fast as the fastest: so it becomes known, without getting all.
        let ticks = target.measures().expected_ticks(pick.now).unwrap_or(census.fastest);
        let slowness = u64::from(ticks) * MIN_WAIT / u64::from(census.fastest.max(1));
        let waiting = u64::from(target.load().transactions).saturating_mul(part.stride);
        PredictedLoad {
            load: slowness.saturating_mul(waiting.saturating_add(1 << STRIDE_BITS)),
            increment: slowness.saturating_mul(part.stride),
        }
    }

    /// Whether what members have to do is compared no finer than by whole requests. One request is more to who weighs less, so
    /// by the last digit the heaviest of those that are idle would always be the better one; where all weigh the same no such
    /// digit is in the way.
    fn is_coarse(&self) -> bool {
        !self.has_equal_weights && self.config().policy != Policy::ResponseTime
    }

    /// The member whose turn it was is due again a stride later, and so is who was due before and passed over. Two requests that
    /// take a turn at the same moment may take the same one; it is then charged twice.
    fn take_turn(&self, census: &EligibilityTable<'_>, chosen: usize, time: u64) {
        let Some(part) = self.entries.get(chosen) else { return };
        let due = part.take_turn(time);
        self.turns.time.fetch_max(due, Ordering::Relaxed);
        for (part, standing) in self.entries.iter().zip(census.eligibilities()) {
            if *standing == Eligibility::Deferred && part.due.load(Ordering::Relaxed) <= due {
                part.take_turn(time);
            }
        }
    }
}

impl MemberEntry {
    /// Gives when the turn was. Who was away takes none of those that it missed.
    fn take_turn(&self, time: u64) -> u64 {
        let next = |due: u64| Some(due.max(time).saturating_add(self.stride));
        let (Ok(due) | Err(due)) = self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        due.max(time)
    }
}

/// By what members are compared for one request.
pub(crate) enum Criterion {
    /// The consistent hash of this.
    Rendezvous(u64),
    /// As well, but [of the first two](Scan::choose_between) the one that has less to do.
    Candidates(u64),
    /// As they follow after the place that this number leaves as a remainder; by its hash for those who have none.
    Modulo(u64),
    /// As they follow after the one that has the `start`-th range; by the hash for those who have none.
    Range { start: u64, hash: u64 },
    /// Whose turn is first, at this time.
    VirtualTime(u64),
    /// What they have to do; of those who are equal the consistent hash of this.
    Load(u64),
    /// As they are listed.
    ConfigOrder,
}

/// One request's look at all members.
struct Scan<'a> {
    set: &'a Set,
    pick: &'a SelectionInput<'a>,
    census: &'a EligibilityTable<'a>,
    basis: Criterion,
}

impl Scan<'_> {
    fn best(&self) -> TopRanks {
        let mut best = TopRanks::default();
        let start = match self.basis {
            Criterion::Modulo(number) => number % self.census.places.max(1),
            _ => 0,
        };
        let is_of_two = matches!(self.basis, Criterion::Candidates(_));
        let counts_places = matches!(self.basis, Criterion::Modulo(_) | Criterion::VirtualTime(_));
        let has_ties = is_of_two || matches!(self.basis, Criterion::Load(_) | Criterion::VirtualTime(_));
        let level = match self.basis {
            Criterion::Load(_) if self.set.is_coarse() => self.level(),
            _ => 0,
        };
        let (mut places, mut least) = (0, WORST);
        for (at, (part, standing)) in self.set.entries.iter().zip(self.census.eligibilities()).enumerate() {
            let has_place = counts_places && self.census.has_place(part, *standing);
            let place = has_place.then(|| steps(start, places, self.census.places));
            places += u64::from(place.is_some());
            let Some(set_back) = self.census.tier_offset(*standing) else { continue };
            let tier = part.tier | set_back;
            let tie = if has_ties { self.tie(part, *standing) } else { 0 };
            best.offer(Rank::new(tier, self.load(at, part, place, level), tie, at));
            if is_of_two && !self.wins_draw(*standing) {
                let load = self.set.predicted_load(self.census, self.pick, part).load;
                least = least.min(Rank::new(tier, load, tie, at));
            }
        }
        if is_of_two {
            self.choose_between(&mut best, least);
        }
        best
    }

    /// The least that anybody of the first priority would have to do with the request. Who has less to do without it would begin
    /// with it before anybody could be done: all those are equal.
    fn level(&self) -> u64 {
        let parts = self.set.entries.iter().zip(self.census.eligibilities());
        let may_have_it = |(_, standing): &(&MemberEntry, &Eligibility)| self.census.tier_offset(**standing) == Some(0);
        let burden = |part| self.set.predicted_load(self.census, self.pick, part).load;
        parts.filter(may_have_it).map(|(part, _)| (part.tier, burden(part))).min().map_or(0, |(_, load)| load)
    }

    /// What decides between members that are equal: the Call-ID, with regard to what they weigh; so that where little is going on
    /// another balancer does the same.
    #[inline]
    fn tie(&self, part: &MemberEntry, standing: Eligibility) -> u64 {
        match self.basis {
            Criterion::Load(hash) | Criterion::Candidates(hash) => {
                let tie = self.set.rendezvous(hash, part);
                if self.wins_draw(standing) { tie >> TIE_SHIFT } else { tie }
            }
            Criterion::VirtualTime(_) => mix(self.pick.random ^ part.seed),
            _ => 0,
        }
    }

    /// Whether a member that starts slowly has drawn the request. It is then one of those that are its own, so that no second
    /// draw is made among those who are equal.
    #[inline]
    fn wins_draw(&self, standing: Eligibility) -> bool {
        standing == Eligibility::SlowStart && self.census.has_slow_start_draw
    }

    /// How much speaks against a member, whose place is so many steps from where the request begins.
    #[inline]
    fn load(&self, at: usize, part: &MemberEntry, place: Option<u64>, level: u64) -> u64 {
        let by_hash = |hash| self.set.rendezvous(hash, part);
        match self.basis {
            Criterion::Rendezvous(hash) | Criterion::Candidates(hash) => by_hash(hash),
            Criterion::Modulo(number) => place.unwrap_or_else(|| by_hash(mix(number))),
            Criterion::Range { start, hash } => match part.range {
                Some(range) => steps(start, range as u64, self.set.ranges as u64),
                None => by_hash(mix(hash)),
            },
            Criterion::VirtualTime(time) => match place {
                Some(_) => part.due.load(Ordering::Relaxed).max(time),
                // Spares are in nobody's turn.
                None => by_hash(self.pick.random),
            },
            Criterion::Load(_) => {
                let burden = self.set.predicted_load(self.census, self.pick, part);
                if burden.before() < level { 0 } else { burden.load }
            }
            Criterion::ConfigOrder => at as u64,
        }
    }

    /// Of the first two by the hash the one that has less to do comes first; or, where both have far more to do than the one that
    /// has the least, that one. With that the choice between two keeps nine tenths of what a choice between all gains at
    /// least (p99 at 80 % load: the tests' simulation asserts it, bench/BALANCER.md measured 98 %), and less than one call in five is
    /// where its Call-ID does not say. Who starts slowly, and would have the
    /// less to do each time, is chosen where it is the first, and not for what it has to do.
    fn choose_between(&self, best: &mut TopRanks, least: Rank) {
        if self.census.has_slow_start_draw && !self.demote_slow_starters(best) {
            return;
        }
        let [first, second, ..] = &mut best.0;
        if first.tier() != second.tier() {
            return;
        }
        let (one, other) = (self.predicted_load_at(first.at()), self.predicted_load_at(second.at()));
        let is_better = if self.set.is_coarse() { other.load <= one.before() } else { other.load < one.load };
        if is_better {
            core::mem::swap(first, second);
        }
        if least.tier() == first.tier() && one.min(other).is_far_above(least.load()) {
            best.promote(least);
        }
    }

    /// Puts the next one that does not start slowly behind the first; `false` where there is none.
    fn demote_slow_starters(&self, best: &mut TopRanks) -> bool {
        let [first, others @ ..] = &mut best.0;
        let is_other = |rank: &Rank| rank.tier() == first.tier() && !self.is_in_slow_start(rank.at());
        let others = others.iter().position(is_other).and_then(|other| others.get_mut(..=other));
        others.map(|others| others.rotate_right(1)).is_some()
    }

    fn is_in_slow_start(&self, at: usize) -> bool {
        self.census.eligibilities().get(at).is_some_and(|standing| self.wins_draw(*standing))
    }

    fn predicted_load_at(&self, at: usize) -> PredictedLoad {
        let part = self.set.entries.get(at);
        part.map(|part| self.set.predicted_load(self.census, self.pick, part)).unwrap_or_default()
    }
}

/// What a member has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct PredictedLoad {
    /// With the request that is asked about, relative to what the member weighs.
    load: u64,
    /// That request's part of it.
    increment: u64,
}

impl PredictedLoad {
    /// Without that request.
    const fn before(self) -> u64 {
        self.load.saturating_sub(self.increment)
    }

    /// More by one such request and a quarter.
    const fn is_far_above(self, least: u64) -> bool {
        self.load > least.saturating_add(least / 4).saturating_add(self.increment)
    }
}

/// The slowness of the fastest: response times that differ by less than a quarter of the shortest are not told apart, for it
/// takes no more than chance to make that of an average.
const MIN_WAIT: u64 = 4;
/// Bits by which the tie of a member is made smaller that is to win it.
const TIE_SHIFT: u32 = 20;

/// How far `to` is after `from` on a circle of so many places.
const fn steps(from: u64, to: u64, places: u64) -> u64 {
    if to >= from { to - from } else { (to + places).saturating_sub(from) }
}
