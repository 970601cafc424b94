//! Overload controller: admits as much new work as the worker can carry, the more important classes first.
//!
//! The measure is the standing wait: the minimum wait of all new work read within a [window](WINDOW). A burst makes
//! some requests wait long but leaves the minimum short; load beyond the capacity makes all of them wait. Once the
//! wait has stood for several windows, the controller limits: the rate at which the worker served requests while
//! everything waited is its capacity, which it tracks up and down. The limit becomes a [threshold](Threshold) in the
//! order of classes and, within one class, of positions.

use core::net::IpAddr;
use core::time::Duration;

use strowger_foundation::Timestamp;

use crate::class::{CLASSES, Class};
use crate::filter::{Filter, FilterAbilities, FilteredKind};
use crate::position::{POSITIONS, Position};
use crate::queue_bound::{MAX_QUEUE_WAIT, MAX_QUEUE_WAIT_REMEMBERED};
use crate::shares::FairShares;
use crate::threshold::Threshold;
use crate::token_bucket::TokenBucket;
use crate::window::Window;

/// Length of the measurement window between decisions.
pub const WINDOW: Duration = Duration::from_millis(100);

/// Standing wait that the controller steers to. It keeps the worker busy, and the delay is not noticeable.
pub const TARGET_WAIT: Duration = Duration::from_millis(25);

/// Standing wait at which limiting starts.
const ONSET: Duration = Duration::from_millis(40);

/// Wait after which new work over UDP is dropped while the worker limits: its client has retransmitted it (RFC 3261
/// T1).
pub const STALE: Duration = Duration::from_millis(500);

/// The same if the worker remembers what it drops, so that no copy is served later.
pub const STALE_REMEMBERED: Duration = Duration::from_millis(300);

/// Windows with a standing wait that count as overload. Bursts of 100 ms at 90 % of the capacity make fewer.
const STANDING_WINDOWS: u32 = 6;
/// Windows after which the assumed capacity has failed to drain the queue.
const STUCK_WINDOWS: u32 = 20;
/// EWMA weight of a window's count in a rate.
const SMOOTHING: f64 = 0.3;
/// The same for the capacity, which a brief stall of the machine must not hide.
const CAPACITY_SMOOTHING: f64 = 0.15;
/// The same for values that must not follow noise.
const SLOW_SMOOTHING: f64 = 0.03;
/// Windows without a standing wait after which the capacity must be higher than assumed.
const UNSATURATED_WINDOWS: u32 = 30;
/// Cost of a refusal that is sent, and of one that is not, as shares of the cost of a served request.
const REFUSAL_COST: f64 = 0.15;
const DROP_COST: f64 = 0.03;
/// Windows in which an overlong queue should be drained.
const DRAIN_WINDOWS: f64 = 10.0;
/// Maximum share of the capacity used to drain the queue.
const MAX_DRAIN: f64 = 0.3;
/// Growth of the limit per window in which nothing waits.
const PROBE_GROWTH: f64 = 0.01;
/// Ratio of refusals to admitted requests above which the kernel should drop more.
const MANY_REFUSALS: f64 = 0.25;
/// Excess that the kernel leaves for the worker to refuse, as a share of what is admitted, so that the limit can
/// adapt.
const MARGIN: f64 = 0.06;
/// The same for a filter with memory, which can be moved more often.
const MARGIN_REMEMBERED: f64 = 0.04;
/// Deviation of the arrivals from the expected number at which a filter with memory is moved.
const TOLERANCE: f64 = 0.03;
/// Share of its capacity below which a worker that stays there for seconds has the kernel pass a little more.
const NEARLY_FULL: f64 = 0.98;
/// Share of its capacity below which a worker has the kernel pass more at once.
const SLACK: f64 = 0.85;
/// Maximum growth of the kernel's share in one step, and the part of the slack to use if there is hardly any: much of
/// what then arrives are retransmissions of clients that have waited long.
const MAX_OPENING: f64 = 2.0;
const CREEP: f64 = 0.5;
/// Target utilization when the kernel passes more.
const FULL: f64 = 0.95;
/// Positions that pass of a kind that is otherwise dropped entirely, so that the controller sees when it ends.
const MIN_PASSING: u32 = 64;
/// Share of its kind below which a class does not keep the kernel from dropping the kind. The kernel cannot tell
/// classes apart, so it drops that class too.
const NEGLIGIBLE_SHARE: f64 = 0.002;
/// Maximum share of the capacity for emergency calls from unproven sources. Anybody can send them, so any excess is
/// in the last class.
const MAX_UNPROVEN_EMERGENCIES: f64 = 0.2;
/// Emergency calls from unproven sources served in any window regardless of the share.
const MIN_EMERGENCIES: f64 = 2.0;
/// Windows between two steps of the filter: the kernel's queue of before the step is served first.
const HOLD_WINDOWS: u32 = 5;
/// Calm windows after which limiting ends.
const CALM_WINDOWS: u32 = 10;
/// Refusals that may be sent per admitted request.
const REFUSALS_PER_ADMITTED: f64 = 0.3;
/// Refusals that may be sent in any window.
const MIN_REFUSALS: f64 = 2.0;
/// Share of a change that is advertised per window, since neighbours take time to follow.
const FEEDBACK_GAIN: f64 = 0.1;
/// Bounds of the advertised reduction. Neighbours may always send something, so that the end of the overload is
/// noticed; a tiny reduction is not advertised.
const MAX_ADVERTISED: f64 = 0.98;
const MIN_ADVERTISED: f64 = 0.01;
/// Minimum and maximum Retry-After of a refusal, in seconds.
const RETRY_AFTER_S: (u64, u64) = (5, 15);

/// A request that may be refused.
#[derive(Clone, Copy, Debug)]
pub struct OfferedRequest {
    /// Class before fairness applies.
    pub class: Class,
    /// Kind before the filter's abilities are considered.
    pub kind: FilteredKind,
    /// Position of the datagram.
    pub position: Position,
    /// Source whose share it uses; `None` if the source is not limited.
    pub source: Option<IpAddr>,
    /// Whether the source is [proven](crate::ProvenSources).
    pub is_proven: bool,
    /// Whether it came over a reliable transport, so that nobody retransmits it if it is dropped.
    pub is_reliable: bool,
}

/// Decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Serve it.
    Admit,
    /// Answer 503 with Retry-After.
    Refuse {
        /// Value of Retry-After.
        retry_after: Duration,
    },
    /// Drop it: the budget of refusals is used up.
    Drop,
}

/// Status of a controller, for the operator and for upstream servers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ControllerStatus {
    /// Whether it refuses anything.
    pub is_limiting: bool,
    /// Share of new calls that is refused or dropped, including by the kernel, in thousandths.
    pub shed_permille: u16,
    /// Reduction that senders should apply so that nothing need be refused here, in thousandths.
    pub advertised_permille: u16,
    /// Admitted requests per second.
    pub admitted_per_s: u32,
    /// Standing wait.
    pub wait: Duration,
}

/// Overload controller of one worker.
#[derive(Debug)]
pub struct Controller {
    is_enabled: bool,
    window: Window,
    /// Consecutive windows with a standing wait.
    standing: u32,
    /// Capacity in requests per window, smoothed; 0 without a limit.
    capacity: f64,
    /// Arrivals per window by kind and class, smoothed.
    kinds: [[f64; CLASSES]; FilteredKind::ALL.len()],
    /// Admitted requests and all messages per window, smoothed over seconds. Their ratio is the number of messages
    /// per request.
    taken: f64,
    messages: f64,
    /// Requests admitted, answered 503 and dropped per window, smoothed.
    admitted: f64,
    answered: f64,
    dropped: f64,
    limit: Option<Threshold>,
    /// Token bucket of the class at the threshold.
    threshold_bucket: TokenBucket,
    calm: u32,
    /// Windows since the last one with a standing wait.
    unsaturated: u32,
    /// Arrivals as a share of the capacity, smoothed over seconds.
    demand: f64,
    /// Windows since the last change of the filter.
    since_step: u32,
    filter: Filter,
    /// Rank of the class the filter was computed for.
    filtered_rank: usize,
    abilities: FilterAbilities,
    shares: FairShares,
    /// Reduction advertised to neighbours.
    told: f64,
    answers: f64,
    wait: Duration,
}

/// Change of the filter.
#[derive(Clone, Copy, Debug)]
enum FilterStep {
    /// Multiplies what passes of each kind.
    Open(f64),
    /// Passes the share of each kind that is served, corrected by this factor.
    Close(f64),
}

impl Controller {
    /// Creates a controller that limits nothing; if not enabled, it never will. The seed is drawn once per process.
    #[must_use]
    pub fn new(seed: u64, is_enabled: bool) -> Self {
        Self {
            is_enabled,
            window: Window::until(Timestamp::ZERO),
            standing: 0,
            capacity: 0.0,
            kinds: [[0.0; CLASSES]; FilteredKind::ALL.len()],
            taken: 0.0,
            messages: 0.0,
            admitted: 0.0,
            answered: 0.0,
            dropped: 0.0,
            limit: None,
            threshold_bucket: TokenBucket::UNLIMITED,
            calm: 0,
            unsaturated: 0,
            demand: 1.0,
            since_step: HOLD_WINDOWS,
            filter: Filter::OPEN,
            filtered_rank: 0,
            abilities: FilterAbilities::default(),
            shares: FairShares::new(seed),
            told: 0.0,
            answers: 0.0,
            wait: Duration::ZERO,
        }
    }

    /// Records how long a message has waited in a queue of new work. Call it for every message of such a queue,
    /// before [`handle_request`](Self::handle_request). Queues are numbered; a short wait in one says nothing about
    /// another.
    pub fn record_wait(&mut self, now: Timestamp, queue: usize, wait: Duration) {
        self.handle_timeout(now);
        self.window.note_wait(queue, wait);
    }

    /// Decides on new work that has waited for `wait`. Calls `offer` only if its result matters.
    pub fn handle_request(
        &mut self,
        now: Timestamp,
        wait: Duration,
        offer: impl FnOnce() -> OfferedRequest,
    ) -> Verdict {
        self.handle_timeout(now);
        if self.standing == 0 && self.limit.is_none() {
            self.window.admitted += 1;
            return Verdict::Admit;
        }
        let offer = offer();
        let offer = OfferedRequest { kind: offer.kind.seen_by(self.abilities), ..offer };
        let class = self.class_of(&offer);
        let verdict = self.decide(wait, class, &offer);
        let count = match verdict {
            Verdict::Admit => &mut self.window.admitted,
            Verdict::Refuse { .. } => &mut self.window.answered,
            Verdict::Drop => &mut self.window.dropped,
        };
        *count += 1;
        verdict
    }

    /// Records new work that cannot be served at all. The kernel should drop what exceeds the room of its kind.
    pub fn record_malformed(&mut self, now: Timestamp, kind: FilteredKind) {
        self.handle_timeout(now);
        if self.standing > 0 || self.limit.is_some() {
            self.window.count(kind.seen_by(self.abilities), Class::Other.rank());
            self.window.dropped += 1;
        }
    }

    /// Returns the class of a request. Limits how much unproven sources get of the first class.
    fn class_of(&mut self, offer: &OfferedRequest) -> Class {
        if offer.class != Class::Emergency || offer.is_proven {
            return offer.class;
        }
        self.window.unproven_emergencies += 1;
        let most = (MAX_UNPROVEN_EMERGENCIES * self.capacity).max(MIN_EMERGENCIES);
        if f64::from(self.window.unproven_emergencies) > most { Class::Other } else { offer.class }
    }

    fn decide(&mut self, wait: Duration, class: Class, offer: &OfferedRequest) -> Verdict {
        let rank = class.rank();
        let is_important = class == Class::Emergency || rank < self.filtered_rank;
        if !is_important && !self.filter.passes(offer.kind, offer.position) {
            return Verdict::Drop;
        }
        self.window.count(offer.kind, rank);
        let Some(cut) = self.limit else { return Verdict::Admit };
        let stale = if self.abilities.has_memory { STALE_REMEMBERED } else { STALE };
        let is_stale = wait > stale && !offer.is_reliable;
        let of_source = if rank == cut.rank { self.shares.count(offer.source) } else { 1.0 };
        if !is_stale && self.admits(cut, (rank, of_source), offer) {
            return Verdict::Admit;
        }
        if is_stale || self.answers < 1.0 {
            return Verdict::Drop;
        }
        self.answers -= 1.0;
        Verdict::Refuse { retry_after: retry_after(offer.position) }
    }

    /// Whether a request is admitted by the threshold. Only the class at the threshold is divided among sources.
    fn admits(&mut self, cut: Threshold, (rank, of_source): (usize, f64), offer: &OfferedRequest) -> bool {
        if rank != cut.rank {
            return rank < cut.rank;
        }
        let passing = f64::from(self.filter.passing(offer.kind));
        let share = cut.share * of_source;
        let is_chosen = share >= 1.0 || f64::from(offer.position) < share * passing;
        is_chosen && self.shares.try_take(offer.source) && self.threshold_bucket.try_take()
    }

    /// Records a message that belongs to something admitted earlier.
    pub const fn record_in_progress(&mut self) {
        self.window.in_progress = self.window.in_progress.saturating_add(1);
    }

    /// Ends windows that are due. Returns whether the [filter](Self::filter) has changed.
    pub fn handle_timeout(&mut self, now: Timestamp) -> bool {
        if now < self.window.ends {
            return false;
        }
        let before = self.filter;
        let window = core::mem::replace(&mut self.window, Window::until(now + WINDOW));
        if self.is_enabled {
            self.on_window(&window);
            // Windows in which nothing was read are calm.
            let missed = now.saturating_since(window.ends).as_nanos() / WINDOW.as_nanos().max(1);
            for _ in 0..missed.min(u128::from(CALM_WINDOWS)) {
                self.on_window(&Window::until(now));
            }
        }
        self.filter != before
    }

    /// Whether anything is refused.
    #[must_use]
    pub const fn is_limiting(&self) -> bool {
        self.limit.is_some()
    }

    /// Returns the filter for the kernel, and for the worker if the kernel does not apply it.
    #[must_use]
    pub const fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Whether the filter passes a message of this kind.
    #[must_use]
    pub fn passes(&self, kind: FilteredKind, position: Position) -> bool {
        self.filter.passes(kind.seen_by(self.abilities), position)
    }

    /// Sets what the filter can do.
    pub const fn set_filter_abilities(&mut self, abilities: FilterAbilities) {
        self.abilities = abilities;
    }

    /// Returns how long new work may wait in the kernel's queue.
    #[must_use]
    pub const fn queue_bound(&self) -> Duration {
        if self.abilities.has_memory { MAX_QUEUE_WAIT_REMEMBERED } else { MAX_QUEUE_WAIT }
    }

    /// Returns when the window ends.
    #[must_use]
    pub const fn window_ends(&self) -> Timestamp {
        self.window.ends
    }

    /// Returns the status.
    #[must_use]
    pub fn pressure(&self) -> ControllerStatus {
        ControllerStatus {
            is_limiting: self.limit.is_some(),
            shed_permille: permille(self.shed()),
            advertised_permille: permille(self.told),
            admitted_per_s: whole(self.admitted / WINDOW.as_secs_f64()),
            wait: self.wait,
        }
    }

    fn on_window(&mut self, window: &Window) {
        self.wait = window.standing_wait();
        self.record_rates(window);
        self.update_feedback();
        let is_standing = self.wait > if self.limit.is_some() { TARGET_WAIT } else { ONSET };
        self.standing = if is_standing { self.standing.saturating_add(1) } else { 0 };
        if self.limit.is_none() {
            if self.standing < STANDING_WINDOWS {
                return;
            }
            self.capacity = f64::from(window.admitted).max(self.taken);
            (self.calm, self.demand) = (0, 1.0);
        }
        self.update_capacity(window, is_standing);
        let limit = self.current_limit();
        self.limit = Some(self.threshold_for(limit));
        let answers = self.admitted * REFUSALS_PER_ADMITTED + MIN_REFUSALS;
        self.answers = (self.answers + answers).min(2.0 * answers);
        self.adapt_filter(is_standing);
        self.stop_if_calm(is_standing, limit);
    }

    /// Returns the share of calls that is refused or dropped.
    fn shed(&self) -> f64 {
        let cut = self.limit.map_or(1.0, |cut| cut.share_of(Class::Call.rank()));
        let kind = FilteredKind::ProvenCall.seen_by(self.abilities);
        1.0 - cut * f64::from(self.filter.passing(kind)) / f64::from(POSITIONS)
    }

    //= rfc7339#5.6
    /// Updates the advertised reduction. It refers to everything the neighbours would send, so their present
    /// restraint does not lower it.
    fn update_feedback(&mut self) {
        let room = if self.limit.is_some() { self.capacity / self.offered().max(1.0) } else { MAX_OPENING };
        let shed = self.shed();
        let wanted = if shed > 0.0 { (1.0 - self.told) * (1.0 - shed) } else { (1.0 - self.told) * room.max(1.0) };
        self.told = (self.told + (1.0 - wanted - self.told) * FEEDBACK_GAIN).clamp(0.0, MAX_ADVERTISED);
        if self.told < MIN_ADVERTISED && shed <= 0.0 {
            self.told = 0.0;
        }
    }

    fn record_rates(&mut self, window: &Window) {
        // Without a limit nothing is smoothed, so the first window that counts does so in full.
        let news = if self.limit.is_some() { SMOOTHING } else { 1.0 };
        let smooth = |rate: &mut f64, count: u32| *rate += (f64::from(count) - *rate) * news;
        for (rates, counts) in self.kinds.iter_mut().zip(&window.kinds) {
            rates.iter_mut().zip(counts).for_each(|(rate, count)| smooth(rate, *count));
        }
        let messages = window.admitted.saturating_add(window.in_progress);
        if self.taken < f64::from(window.admitted) * SLOW_SMOOTHING {
            // First measurement.
            (self.taken, self.messages) = (window.admitted.into(), messages.into());
        }
        self.taken += (f64::from(window.admitted) - self.taken) * SLOW_SMOOTHING;
        self.messages += (f64::from(messages) - self.messages) * SLOW_SMOOTHING;
        smooth(&mut self.admitted, window.admitted);
        smooth(&mut self.answered, window.answered);
        smooth(&mut self.dropped, window.dropped);
    }

    /// Returns the arrivals per window.
    fn offered(&self) -> f64 {
        self.kinds.iter().flatten().sum()
    }

    /// Updates the capacity. While everything waits, the service rate is the capacity. While nothing waits, the limit
    /// may be too low.
    fn update_capacity(&mut self, window: &Window, is_standing: bool) {
        if is_standing {
            let refusals = REFUSAL_COST * f64::from(window.answered) + DROP_COST * f64::from(window.dropped);
            // Requests admitted earlier may cause more messages than those admitted in this window.
            let messages = f64::from(window.admitted) + f64::from(window.in_progress);
            let taken = messages * self.taken / self.messages.max(1.0) + refusals;
            self.capacity += (taken - self.capacity) * CAPACITY_SMOOTHING;
            self.unsaturated = 0;
        } else if self.offered() > self.capacity || self.unsaturated > UNSATURATED_WINDOWS {
            let room = 1.0 - self.wait.as_secs_f64() / TARGET_WAIT.as_secs_f64();
            self.capacity *= 1.0 + PROBE_GROWTH * room;
        }
        self.unsaturated = self.unsaturated.saturating_add(1);
        self.capacity = self.capacity.max(1.0);
    }

    /// Returns the limit: the capacity less the cost of refusals and of draining the queue. If everything has waited
    /// long, it is at most the rate at which requests have left the queue.
    fn current_limit(&self) -> f64 {
        let excess = self.wait.saturating_sub(TARGET_WAIT).as_secs_f64() / WINDOW.as_secs_f64();
        let drain = (excess / DRAIN_WINDOWS).min(MAX_DRAIN);
        let refusals = REFUSAL_COST * self.answered + DROP_COST * self.dropped;
        let most = (self.capacity - refusals).max(self.capacity * (1.0 - MAX_DRAIN));
        let is_stuck = self.standing >= STUCK_WINDOWS && self.wait > 2 * TARGET_WAIT;
        let most = if is_stuck { most.min(self.offered().max(1.0)) } else { most };
        most * (1.0 - drain)
    }

    /// Returns the threshold that admits `limit` requests per window, and divides the class at the threshold among
    /// sources.
    fn threshold_for(&mut self, limit: f64) -> Threshold {
        let mut left = limit;
        for rank in 0..CLASSES {
            let rate: f64 = self.kinds.iter().filter_map(|rates| rates.get(rank)).sum();
            if rate > left {
                let divided = self.shares.handle_window(left, rate);
                self.threshold_bucket.refill(left);
                return Threshold { rank, share: (left / divided).min(1.0) };
            }
            left -= rate;
        }
        self.shares.handle_window(f64::INFINITY, 0.0);
        self.threshold_bucket = TokenBucket::UNLIMITED;
        Threshold::ALL
    }

    /// Adapts how much the kernel drops.
    fn adapt_filter(&mut self, is_standing: bool) {
        let demand = self.offered() / self.capacity;
        self.demand += (demand - self.demand) * SLOW_SMOOTHING;
        self.since_step = self.since_step.saturating_add(1);
        if self.abilities.has_memory {
            self.follow_demand(demand, is_standing);
        } else if self.since_step >= HOLD_WINDOWS {
            self.step_filter(demand, is_standing);
        }
    }

    /// Moves the filter in steps and waits for the effect of each, because what it lets through next are
    /// retransmissions.
    fn step_filter(&mut self, demand: f64, is_standing: bool) {
        let opening = match demand {
            _ if is_standing => 1.0,
            demand if demand < SLACK => (FULL / demand.max(0.01)).min(MAX_OPENING),
            _ => 1.0 + CREEP * (NEARLY_FULL - self.demand).max(0.0),
        };
        self.move_filter(if demand > 1.0 + MANY_REFUSALS { FilterStep::Close(1.0) } else { FilterStep::Open(opening) });
    }

    /// Moves the filter at once after a large change, else by the averages of seconds. What it lets through next has
    /// not been sent before.
    fn follow_demand(&mut self, demand: f64, is_standing: bool) {
        let has_jumped = !(SLACK..=1.0 + MANY_REFUSALS).contains(&demand);
        let known = if has_jumped { demand } else { self.demand };
        let wanted = 1.0 + MARGIN_REMEMBERED;
        if known > wanted * (1.0 + TOLERANCE) {
            self.move_filter(FilterStep::Close(demand / known));
            self.demand = wanted;
        } else if known < wanted * (1.0 - TOLERANCE) && !is_standing {
            self.move_filter(FilterStep::Open((wanted / known.max(0.01)).min(MAX_OPENING)));
            self.demand = if has_jumped { demand } else { wanted };
        }
    }

    fn move_filter(&mut self, direction: FilterStep) {
        let before = self.filter;
        if let (FilterStep::Close(_), Some(cut)) = (direction, self.limit) {
            self.filtered_rank = cut.rank;
        }
        for kind in FilteredKind::ALL {
            let factor = match direction {
                FilterStep::Open(factor) => factor,
                FilterStep::Close(of_demand) => {
                    let margin = if self.abilities.has_memory { MARGIN_REMEMBERED } else { MARGIN };
                    // More than 1 if the excess is not in what passes.
                    self.share_of_kind(kind).map_or(1.0, |share| share * of_demand * (1.0 + margin))
                }
            };
            let passing = self.filter.passing(kind);
            self.filter.set(kind, whole(f64::from(passing) * factor).max(MIN_PASSING));
            self.predict_rates(kind, f64::from(self.filter.passing(kind)) / f64::from(passing));
        }
        if self.filter != before {
            self.since_step = 0;
        }
    }

    /// Predicts the rates of a kind after its share has changed by `factor`.
    fn predict_rates(&mut self, kind: FilteredKind, factor: f64) {
        self.kinds.get_mut(kind as usize).into_iter().flatten().for_each(|rate| *rate *= factor);
    }

    /// Returns the share of a kind that must pass: that of its most important class, of any source. `None` if nothing
    /// of the kind arrives.
    fn share_of_kind(&self, kind: FilteredKind) -> Option<f64> {
        let rates = self.kinds.get(kind as usize)?;
        let all: f64 = rates.iter().sum();
        let cut = self.limit?;
        let mut sum = 0.0;
        let rank = rates.iter().position(|rate| {
            sum += rate;
            sum > NEGLIGIBLE_SHARE * all
        })?;
        // Excludes requests refused only until the queue is shorter.
        let of_capacity = self.capacity / self.current_limit().max(1.0);
        Some(cut.share_of(rank) * if rank == cut.rank { self.shares.largest_share() * of_capacity } else { 1.0 })
    }

    fn stop_if_calm(&mut self, is_standing: bool, limit: f64) {
        let is_calm = !is_standing && self.filter.is_open() && self.offered() < 0.9 * limit;
        self.calm = if is_calm { self.calm.saturating_add(1) } else { 0 };
        if self.calm >= CALM_WINDOWS {
            self.limit = None;
            self.standing = 0;
        }
    }
}

/// Returns a Retry-After spread by position, so that clients refused together do not return together.
fn retry_after(position: Position) -> Duration {
    let (least, most) = RETRY_AFTER_S;
    Duration::from_secs(least + u64::from(position) % (most - least + 1))
}

fn permille(share: f64) -> u16 {
    u16::try_from(whole(share * 1_000.0)).unwrap_or(1_000).min(1_000)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and none is negative")]
fn whole(number: f64) -> u32 {
    number as u32
}
