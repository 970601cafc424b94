//! Selection of a set's members for a request.

use core::sync::atomic::Ordering;

use smallvec::SmallVec;

use crate::eligibility::{Eligibility, EligibilityTable};
use crate::hash::{bernstein, exponential, fnv, mix, of_key, openser, range, sha1};
use crate::limits::{MAX_MEMBERS, MAX_TRIES};
use crate::policy::{Candidates, Policy};
use crate::rank::{Rank, TopRanks, WORST};
use crate::selection_input::{Criterion, SelectionInput};
use crate::set::{MemberEntry, STRIDE_BITS, Set};

/// Indices into [`Set::members`] in the order in which they are tried.
pub type MemberOrder = SmallVec<[usize; MAX_TRIES]>;

impl Set {
    /// Selects the members that a request tries, in order; empty if none is in service. Members that are down,
    /// drained, disabled, excluded or, for new calls, full are left out; avoided ones come last. Spares come after
    /// all members with lower priority numbers. Does not allocate.
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

    /// Returns the two members that a consistent hash of the Call-ID selects, in whatever state, except disabled
    /// ones; the first one is selected at equal load. With [two candidates](Candidates::Two) and all members in
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

    /// Returns a member's value in the consistent hash; the lowest wins. Highest random weight (Thaler and
    /// Ravishankar, 1998): each member has its own number for each key, so a key moves only when its member leaves or
    /// a better one joins. With exponentially distributed numbers divided by weights, a member of twice the weight is
    /// twice as likely to be the lowest.
    #[inline]
    fn rendezvous(&self, hash: u64, part: &MemberEntry) -> u64 {
        let number = mix(hash ^ part.seed);
        if self.has_equal_weights { !number } else { exponential(number).saturating_mul(part.inverse) }
    }

    /// Returns the load of a member with one more request.
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

    /// Returns the wait of one more request at a member, relative to a shortest response time of [`MIN_WAIT`]. A
    /// target's response time without load does not depend on its weight; requests already waiting count less the
    /// higher the weight.
    #[inline]
    fn wait_at(&self, census: &EligibilityTable<'_>, pick: &SelectionInput<'_>, part: &MemberEntry) -> PredictedLoad {
        let target = &part.target;
        // A member without samples is assumed to be as fast as the fastest, so it gets measured without getting
        // everything.
        let ticks = target.measures().expected_ticks(pick.now).unwrap_or(census.fastest);
        let slowness = u64::from(ticks) * MIN_WAIT / u64::from(census.fastest.max(1));
        let waiting = u64::from(target.load().transactions).saturating_mul(part.stride);
        PredictedLoad {
            load: slowness.saturating_mul(waiting.saturating_add(1 << STRIDE_BITS)),
            increment: slowness.saturating_mul(part.stride),
        }
    }

    /// Returns whether loads are compared only by whole requests. One request is a larger load at a lower weight, so
    /// an exact comparison would always prefer the highest weight among idle members. With equal weights there is no
    /// such difference.
    fn is_coarse(&self) -> bool {
        !self.has_equal_weights && self.config().policy != Policy::ResponseTime
    }

    /// Charges the turn: the selected member, and any deferred member that was due before it, is due again a stride
    /// later. Two simultaneous requests may take the same turn; it is then charged twice.
    fn take_turn(&self, census: &EligibilityTable<'_>, chosen: usize, time: u64) {
        let Some(part) = self.entries.get(chosen) else { return };
        let due = part.take_turn(time);
        self.turns.time.fetch_max(due, Ordering::Relaxed);
        for (part, serving) in self.entries.iter().zip(census.eligibilities()) {
            if *serving == Eligibility::Deferred && part.due.load(Ordering::Relaxed) <= due {
                part.take_turn(time);
            }
        }
    }
}

impl MemberEntry {
    /// Returns when the turn was due. A member that was out does not catch up on missed turns.
    fn take_turn(&self, time: u64) -> u64 {
        let next = |due: u64| Some(due.max(time).saturating_add(self.stride));
        let (Ok(due) | Err(due)) = self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        due.max(time)
    }
}

/// A scan of all members for one request.
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
        for (at, (part, serving)) in self.set.entries.iter().zip(self.census.eligibilities()).enumerate() {
            let has_place = counts_places && self.census.has_place(part, *serving);
            let place = has_place.then(|| steps(start, places, self.census.places));
            places += u64::from(place.is_some());
            let Some(set_back) = self.census.tier_offset(*serving) else { continue };
            let tier = part.tier | set_back;
            let tie = if has_ties { self.tie(part, *serving) } else { 0 };
            best.offer(Rank::new(tier, self.load(at, part, place, level), tie, at));
            if is_of_two && !self.wins_draw(*serving) {
                let load = self.set.predicted_load(self.census, self.pick, part).load;
                least = least.min(Rank::new(tier, load, tie, at));
            }
        }
        if is_of_two {
            self.choose_between(&mut best, least);
        }
        best
    }

    /// Returns the lowest load in the first priority with the request included. Members whose current load is below
    /// it count as equal: they would start the request before any other could finish it.
    fn level(&self) -> u64 {
        let parts = self.set.entries.iter().zip(self.census.eligibilities());
        let may_have_it = |(_, serving): &(&MemberEntry, &Eligibility)| self.census.tier_offset(**serving) == Some(0);
        let burden = |part| self.set.predicted_load(self.census, self.pick, part).load;
        parts.filter(may_have_it).map(|(part, _)| (part.tier, burden(part))).min().map_or(0, |(_, load)| load)
    }

    /// Returns the tie-breaker between equal members: by Call-ID and weights, so that at low load another balancer
    /// selects the same.
    #[inline]
    fn tie(&self, part: &MemberEntry, serving: Eligibility) -> u64 {
        match self.basis {
            Criterion::Load(hash) | Criterion::Candidates(hash) => {
                let tie = self.set.rendezvous(hash, part);
                if self.wins_draw(serving) { tie >> TIE_SHIFT } else { tie }
            }
            Criterion::VirtualTime(_) => mix(self.pick.random ^ part.seed),
            _ => 0,
        }
    }

    /// Returns whether a member in slow start has won the draw. The request is then one of its own, so ties must not
    /// trigger a second draw.
    #[inline]
    fn wins_draw(&self, serving: Eligibility) -> bool {
        serving == Eligibility::SlowStart && self.census.has_slow_start_draw
    }

    /// Returns the value by which a member is compared; lower is better. `place` is its number of steps from the
    /// start position.
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
                // Spares take no turns.
                None => by_hash(self.pick.random),
            },
            Criterion::Load(_) => {
                let burden = self.set.predicted_load(self.census, self.pick, part);
                if burden.before() < level { 0 } else { burden.load }
            }
            Criterion::ConfigOrder => at as u64,
        }
    }

    /// Puts the less loaded of the first two by hash first, or the least loaded member of all if both have far more
    /// load. So the choice between two keeps at least nine tenths of the gain of a choice among all (p99 at 80 %
    /// load: the simulation in the tests asserts it, bench/BALANCER.md measured 98 %), and fewer than one call in
    /// five is at a member that its Call-ID does not select. A member in slow start, which would always be the less
    /// loaded one, is selected if it is the first, not by its load.
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

    /// Moves the next member that is not in slow start right behind the first; returns `false` if there is none.
    fn demote_slow_starters(&self, best: &mut TopRanks) -> bool {
        let [first, others @ ..] = &mut best.0;
        let is_other = |rank: &Rank| rank.tier() == first.tier() && !self.is_in_slow_start(rank.at());
        let others = others.iter().position(is_other).and_then(|other| others.get_mut(..=other));
        others.map(|others| others.rotate_right(1)).is_some()
    }

    fn is_in_slow_start(&self, at: usize) -> bool {
        self.census.eligibilities().get(at).is_some_and(|serving| self.wins_draw(*serving))
    }

    fn predicted_load_at(&self, at: usize) -> PredictedLoad {
        let part = self.set.entries.get(at);
        part.map(|part| self.set.predicted_load(self.census, self.pick, part)).unwrap_or_default()
    }
}

/// The load of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct PredictedLoad {
    /// The load with the request, relative to the member's weight.
    load: u64,
    /// The request's part of it.
    increment: u64,
}

impl PredictedLoad {
    /// Returns the load without the request.
    const fn before(self) -> u64 {
        self.load.saturating_sub(self.increment)
    }

    /// Returns whether it is higher by more than one such request and a quarter.
    const fn is_far_above(self, least: u64) -> bool {
        self.load > least.saturating_add(least / 4).saturating_add(self.increment)
    }
}

/// Wait of the fastest member. Response times that differ by less than a quarter of the shortest count as equal,
/// because averages vary that much by chance.
const MIN_WAIT: u64 = 4;
/// Bits by which the tie-breaker of a member is reduced to make it win.
const TIE_SHIFT: u32 = 20;

/// Returns the number of steps from `from` to `to` on a circle of `places` positions.
const fn steps(from: u64, to: u64, places: u64) -> u64 {
    if to >= from { to - from } else { (to + places).saturating_sub(from) }
}
