//! Which new work a worker serves: as much as it can carry, the more important classes first.
//!
//! The measure is the standing wait: the shortest wait of all new work that was read within a [window](WINDOW). A burst makes
//! some requests wait long and leaves the shortest wait short; a load beyond the capacity makes all of them wait. From the second
//! window of a standing wait on the controller limits: what the worker took while everything waited is its capacity, and this is
//! followed up and down. What is admitted is then a [cut](Cut) through the order of classes and, within one class, positions.

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

/// How long what is measured is gathered before anything is decided.
pub const WINDOW: Duration = Duration::from_millis(100);

/// The standing wait that the controller steers to. There is always something to do, and nobody notices the delay.
pub const TARGET_WAIT: Duration = Duration::from_millis(25);

/// The standing wait with which limiting begins.
const ONSET: Duration = Duration::from_millis(40);

/// New work over UDP that has waited longer is dropped while the worker limits: its client has sent it again (RFC 3261 T1).
pub const STALE: Duration = Duration::from_millis(500);

/// The same where the worker remembers what it drops, so that no copy is served later.
pub const STALE_REMEMBERED: Duration = Duration::from_millis(300);

/// So many windows with a standing wait are overload. Bursts of 100 ms at 90 % of the capacity do not make as many.
const STANDING_WINDOWS: u32 = 6;
/// After so many the queue has not been drained by what is thought to be the capacity.
const STUCK_WINDOWS: u32 = 20;
/// What of a window's count goes into a rate.
const SMOOTHING: f64 = 0.3;
/// The same for the capacity, which a moment must not hide in which the machine stood still.
const CAPACITY_SMOOTHING: f64 = 0.15;
/// The same of what must not follow chance.
const SLOW_SMOOTHING: f64 = 0.03;
/// After so many windows without a standing wait the capacity is more than what was taken for it.
const UNSATURATED_WINDOWS: u32 = 30;
/// What a refusal costs that is sent, and one that is not, as shares of what a request costs that is served.
const REFUSAL_COST: f64 = 0.15;
const DROP_COST: f64 = 0.03;
/// In so many windows a queue that is too long is to be gone.
const DRAIN_WINDOWS: f64 = 10.0;
/// The share of the capacity that draining the queue may take.
const MAX_DRAIN: f64 = 0.3;
/// By how much the limit grows in a window where nothing waits.
const PROBE_GROWTH: f64 = 0.01;
/// While refusals are more than this share of what is admitted, the kernel is to drop more.
const MANY_REFUSALS: f64 = 0.25;
/// What the kernel leaves to be refused, as a share of what is admitted: enough for the limit to find its way.
const MARGIN: f64 = 0.06;
/// The same where the filter remembers what it drops, and can be moved more often.
const MARGIN_REMEMBERED: f64 = 0.04;
/// By how much what comes may differ from what is to come before a filter with a memory is moved.
const TOLERANCE: f64 = 0.03;
/// Where the worker has less to do than this share of its capacity for seconds, the kernel lets a little more through.
const NEARLY_FULL: f64 = 0.98;
/// Where the worker has less to do than this share of its capacity, the kernel lets more through at once.
const SLACK: f64 = 0.85;
/// In one step the kernel's share grows by this at most, and by this part of the slack where there is hardly any: what comes then
/// is for the greater part sent again by clients that have waited long.
const MAX_OPENING: f64 = 2.0;
const CREEP: f64 = 0.5;
/// How much of the capacity there is to be to do where the kernel lets more through.
const FULL: f64 = 0.95;
/// A kind of which the kernel lets nothing else through still has so many positions, so that the controller sees when it ends.
const MIN_PASSING: u32 = 64;
/// A class that is less than this share of its kind does not keep the kernel from dropping the kind. The kernel cannot tell classes
/// apart, so it drops that class too.
const NEGLIGIBLE_SHARE: f64 = 0.002;
/// Calls to an emergency service by sources that have proven nothing may take this share of the capacity. Anybody can send them, so
/// what exceeds it is of the last class.
const MAX_UNPROVEN_EMERGENCIES: f64 = 0.2;
/// So many of them are served in a window in any case.
const MIN_EMERGENCIES: f64 = 2.0;
/// So many windows lie between two steps: what the kernel's queue held before is served first.
const HOLD_WINDOWS: u32 = 5;
/// So many windows without need end the limit.
const CALM_WINDOWS: u32 = 10;
/// For each request that is admitted so much of a refusal may be sent.
const REFUSALS_PER_ADMITTED: f64 = 0.3;
/// Refusals that may be sent in a window in any case.
const MIN_REFUSALS: f64 = 2.0;
/// What of a change neighbours are told in a window: it takes them some time to follow.
const FEEDBACK_GAIN: f64 = 0.1;
/// They are always let send something, so that the end of the overload is seen, and hardly anything is not worth telling.
const MAX_ADVERTISED: f64 = 0.98;
const MIN_ADVERTISED: f64 = 0.01;
/// The shortest and the longest time that a refused client is told to wait.
const RETRY_AFTER_S: (u64, u64) = (5, 15);

/// A request that may be refused.
#[derive(Clone, Copy, Debug)]
pub struct OfferedRequest {
    /// Its class, before fairness.
    pub class: Class,
    /// Its kind, before it is known what the filter can tell apart.
    pub kind: FilteredKind,
    /// Where it stands.
    pub position: Position,
    /// Whose share it takes; `None` for one whose share is not limited.
    pub source: Option<IpAddr>,
    /// Whether the source has [proven](crate::ProvenSources) that it is there.
    pub is_proven: bool,
    /// Whether nobody sends it again when it is dropped: it came over a reliable transport.
    pub is_reliable: bool,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is served.
    Admit,
    /// It is answered 503 with Retry-After.
    Refuse {
        /// What Retry-After says.
        retry_after: Duration,
    },
    /// It is dropped: as many are answered as may be.
    Drop,
}

/// How a controller stands, for the operator and for the servers before this one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ControllerStatus {
    /// Whether anything is refused.
    pub is_limiting: bool,
    /// The share of new calls that is refused or dropped, in thousandths; what the kernel drops is among them.
    pub shed_permille: u16,
    /// By how much those who send should send less than they would, in thousandths, so that nothing need be refused here.
    pub advertised_permille: u16,
    /// Requests that are admitted, a second.
    pub admitted_per_s: u32,
    /// The standing wait.
    pub wait: Duration,
}

/// The limit of one worker.
#[derive(Debug)]
pub struct Controller {
    is_enabled: bool,
    window: Window,
    /// Windows in a row with a standing wait.
    standing: u32,
    /// Requests a window, smoothed; without a limit 0.
    capacity: f64,
    /// Requests of each kind and class that came, a window, smoothed.
    kinds: [[f64; CLASSES]; FilteredKind::ALL.len()],
    /// Requests that are admitted and messages of all that is, a window, smoothed over seconds: so many messages does a request take.
    taken: f64,
    messages: f64,
    /// Requests that were admitted, answered 503 and dropped, a window, smoothed.
    admitted: f64,
    answered: f64,
    dropped: f64,
    limit: Option<Threshold>,
    /// How many requests of the class at the cut may be admitted.
    threshold_bucket: TokenBucket,
    calm: u32,
    /// Windows since the last one with a standing wait.
    unsaturated: u32,
    /// What comes to us, as a share of the capacity, smoothed over seconds.
    demand: f64,
    /// Windows since the filter was last changed.
    since_step: u32,
    filter: Filter,
    /// The rank of the class that the filter is for.
    filtered_rank: usize,
    abilities: FilterAbilities,
    shares: FairShares,
    /// By how much neighbours are told to send less.
    told: f64,
    answers: f64,
    wait: Duration,
}

/// Where the filter goes.
#[derive(Clone, Copy, Debug)]
enum FilterStep {
    /// It lets so many times more of each kind pass.
    Open(f64),
    /// Of each kind passes what is served of it, corrected by this factor.
    Close(f64),
}

impl Controller {
    /// A controller that limits nothing yet, or ever where it is not enabled. The seed is drawn once a process.
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

    /// Takes note of how long a message has waited in a queue of new work, whatever it is. Every message of such a queue is noted,
    /// before [`handle_offer`](Self::handle_offer) judges it. Queues are numbered; a short wait in one says nothing of another.
    pub fn record_wait(&mut self, now: Timestamp, queue: usize, wait: Duration) {
        self.handle_timeout(now);
        self.window.note_wait(queue, wait);
    }

    /// Says what becomes of new work that has waited for `wait`. The offer is made only where it matters.
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

    /// Takes note of what came among new work and cannot be served, whatever is sent. Of its kind the kernel is to drop what exceeds
    /// the room.
    pub fn record_malformed(&mut self, now: Timestamp, kind: FilteredKind) {
        self.handle_timeout(now);
        if self.standing > 0 || self.limit.is_some() {
            self.window.count(kind.seen_by(self.abilities), Class::Other.rank());
            self.window.dropped += 1;
        }
    }

    /// The class of a request, where strangers cannot have as much as they like of the first one.
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

    /// Whether a request is on the right side of the cut. Only the class at the cut is divided among sources.
    fn admits(&mut self, cut: Threshold, (rank, of_source): (usize, f64), offer: &OfferedRequest) -> bool {
        if rank != cut.rank {
            return rank < cut.rank;
        }
        let passing = f64::from(self.filter.passing(offer.kind));
        let share = cut.share * of_source;
        let is_chosen = share >= 1.0 || f64::from(offer.position) < share * passing;
        is_chosen && self.shares.try_take(offer.source) && self.threshold_bucket.try_take()
    }

    /// Takes note of a message of something that was admitted before.
    pub const fn record_in_progress(&mut self) {
        self.window.in_progress = self.window.in_progress.saturating_add(1);
    }

    /// Ends windows whose time has come; whether the [filter](Self::filter) has changed.
    pub fn handle_timeout(&mut self, now: Timestamp) -> bool {
        if now < self.window.ends {
            return false;
        }
        let before = self.filter;
        let window = core::mem::replace(&mut self.window, Window::until(now + WINDOW));
        if self.is_enabled {
            self.on_window(&window);
            // Windows in which nothing was read are calm ones.
            let missed = now.saturating_since(window.ends).as_nanos() / WINDOW.as_nanos().max(1);
            for _ in 0..missed.min(u128::from(CALM_WINDOWS)) {
                self.on_window(&Window::until(now));
            }
        }
        self.filter != before
    }

    /// Whether anything is refused now.
    #[must_use]
    pub const fn is_limiting(&self) -> bool {
        self.limit.is_some()
    }

    /// What the kernel is to drop, and the worker where the kernel does not.
    #[must_use]
    pub const fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Whether the filter lets a message of this kind pass.
    #[must_use]
    pub fn passes(&self, kind: FilteredKind, position: Position) -> bool {
        self.filter.passes(kind.seen_by(self.abilities), position)
    }

    /// Says what can be done with the filter.
    pub const fn set_filter_abilities(&mut self, abilities: FilterAbilities) {
        self.abilities = abilities;
    }

    /// How long new work may wait in the kernel's queue.
    #[must_use]
    pub const fn queue_bound(&self) -> Duration {
        if self.abilities.has_memory { MAX_QUEUE_WAIT_REMEMBERED } else { MAX_QUEUE_WAIT }
    }

    /// When the window ends.
    #[must_use]
    pub const fn window_ends(&self) -> Timestamp {
        self.window.ends
    }

    /// How it stands.
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

    /// The share of calls that is refused or dropped.
    fn shed(&self) -> f64 {
        let cut = self.limit.map_or(1.0, |cut| cut.share_of(Class::Call.rank()));
        let kind = FilteredKind::ProvenCall.seen_by(self.abilities);
        1.0 - cut * f64::from(self.filter.passing(kind)) / f64::from(POSITIONS)
    }

    //= rfc7339#5.6
    /// What neighbours are told is of all that they would send: what they send less already is no sign that they may send more.
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
        // Without a limit nothing is smoothed, so that the first window that counts does so fully.
        let news = if self.limit.is_some() { SMOOTHING } else { 1.0 };
        let smooth = |rate: &mut f64, count: u32| *rate += (f64::from(count) - *rate) * news;
        for (rates, counts) in self.kinds.iter_mut().zip(&window.kinds) {
            rates.iter_mut().zip(counts).for_each(|(rate, count)| smooth(rate, *count));
        }
        let messages = window.admitted.saturating_add(window.in_progress);
        if self.taken < f64::from(window.admitted) * SLOW_SMOOTHING {
            // The first that there is to know.
            (self.taken, self.messages) = (window.admitted.into(), messages.into());
        }
        self.taken += (f64::from(window.admitted) - self.taken) * SLOW_SMOOTHING;
        self.messages += (f64::from(messages) - self.messages) * SLOW_SMOOTHING;
        smooth(&mut self.admitted, window.admitted);
        smooth(&mut self.answered, window.answered);
        smooth(&mut self.dropped, window.dropped);
    }

    /// What came, a window.
    fn offered(&self) -> f64 {
        self.kinds.iter().flatten().sum()
    }

    /// While everything waits, what is taken is the capacity. While nothing does, the limit may be too low.
    fn update_capacity(&mut self, window: &Window, is_standing: bool) {
        if is_standing {
            let refusals = REFUSAL_COST * f64::from(window.answered) + DROP_COST * f64::from(window.dropped);
            // Of what was admitted before there may be more to do than of what is now.
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

    /// The capacity less what refusing takes, and less what the queue has to be drained by. Where everything has waited for long, no more
    /// can be served than has come out of the queue, whatever the capacity was taken for.
    fn current_limit(&self) -> f64 {
        let excess = self.wait.saturating_sub(TARGET_WAIT).as_secs_f64() / WINDOW.as_secs_f64();
        let drain = (excess / DRAIN_WINDOWS).min(MAX_DRAIN);
        let refusals = REFUSAL_COST * self.answered + DROP_COST * self.dropped;
        let most = (self.capacity - refusals).max(self.capacity * (1.0 - MAX_DRAIN));
        let is_stuck = self.standing >= STUCK_WINDOWS && self.wait > 2 * TARGET_WAIT;
        let most = if is_stuck { most.min(self.offered().max(1.0)) } else { most };
        most * (1.0 - drain)
    }

    /// The cut by which so many requests a window are admitted, and how the class is divided that it goes through.
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

    /// Has the kernel drop more or less.
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

    /// In steps, each of which is to show its effect before the next: what is let through anew was sent before.
    fn step_filter(&mut self, demand: f64, is_standing: bool) {
        let opening = match demand {
            _ if is_standing => 1.0,
            demand if demand < SLACK => (FULL / demand.max(0.01)).min(MAX_OPENING),
            _ => 1.0 + CREEP * (NEARLY_FULL - self.demand).max(0.0),
        };
        self.move_filter(if demand > 1.0 + MANY_REFUSALS { FilterStep::Close(1.0) } else { FilterStep::Open(opening) });
    }

    /// At once where much has changed, and else by what is known of seconds: what is let through anew was not sent before.
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
                    // More than 1 where what there is too much of is not of what passes.
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

    /// What comes of a kind changes with what passes.
    fn predict_rates(&mut self, kind: FilteredKind, factor: f64) {
        self.kinds.get_mut(kind as usize).into_iter().flatten().for_each(|rate| *rate *= factor);
    }

    /// The share of a kind that has to pass: that of its most important class, of any source. `None` where nothing of it comes.
    fn share_of_kind(&self, kind: FilteredKind) -> Option<f64> {
        let rates = self.kinds.get(kind as usize)?;
        let all: f64 = rates.iter().sum();
        let cut = self.limit?;
        let mut sum = 0.0;
        let rank = rates.iter().position(|rate| {
            sum += rate;
            sum > NEGLIGIBLE_SHARE * all
        })?;
        // Without what is refused only until the queue is shorter.
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

/// Clients that are refused at once do not come back at once.
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
