//! Rules: what a run must achieve, such as `success=99.99%` or `p99(BYE)<50ms`, evaluated on its counts.

use std::fmt;
use std::time::Duration;

use crate::law::parse_time;
use crate::meter::{Meter, ResponseClass};
use crate::metrics::main_method;
use crate::output::percent;
use crate::script::MethodId;

/// Why a text is not a rule; the text names the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError(pub String);

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RuleError {}

/// Metric of a rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Metric {
    /// Share of calls that were carried; with a limit, of those in which every 2xx came within it.
    Success(Option<Duration>),
    /// Share of calls that were not carried.
    Drops,
    /// Share of requests (except ACK) with an answer that the workload expects. Suited to long sessions with many
    /// requests, such as whole users.
    Transactions,
    /// Quantile of the time from a request to its 2xx. An unanswered request counts as infinite; a refused one counts
    /// in the shares of calls and not here. Without a method, it is that of the workload's main request.
    Quantile(f64, Option<MethodId>),
    /// Mean of that time over the answered requests.
    Mean(Option<MethodId>),
}

/// Relation of the value to the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Below,
    AtMost,
    AtLeast,
    Above,
}

/// A condition on a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    metric: Metric,
    relation: Relation,
    /// Share from 0 to 1, or seconds.
    limit: f64,
}

const EXAMPLES: &str = "rules are success=99.99%, success(2s)=95%, drops=1%, transactions=99.99%, p50=5ms, p99=50ms, p99.9(BYE)=1s, \
    mean=10ms; < and > may stand in place of =";

impl Rule {
    /// Parses `success=99.99%` (at least), `drops=1%`, `p99=50ms`, `mean(BYE)=5ms` (at most), or any of them with
    /// `<`, `<=`, `>`, `>=`.
    ///
    /// # Errors
    /// What is wrong, and which rules exist.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let wrong = |what: &str| RuleError(format!("'{text}' {what}; {EXAMPLES}"));
        let at = text.find(['<', '>', '=']).ok_or_else(|| wrong("says no limit"))?;
        let (name, rest) = (text.get(..at).unwrap_or_default(), text.get(at..).unwrap_or_default());
        let metric = Metric::parse(name.trim()).map_err(|what| wrong(&what))?;
        let sign_end = rest.find(|c| !matches!(c, '<' | '>' | '=')).unwrap_or(rest.len());
        let (sign, value) = (rest.get(..sign_end).unwrap_or_default(), rest.get(sign_end..).unwrap_or_default());
        let relation = match sign {
            "<" => Relation::Below,
            "<=" => Relation::AtMost,
            ">=" => Relation::AtLeast,
            ">" => Relation::Above,
            "=" if metric.is_better_high() => Relation::AtLeast,
            "=" => Relation::AtMost,
            _ => return Err(wrong("has no known comparison")),
        };
        let limit = if metric.is_share() {
            share(value.trim()).ok_or_else(|| wrong("needs a share as its limit, such as 99.99% or 0.9999"))?
        } else {
            let time = parse_time(value.trim()).filter(|time| !time.is_zero());
            time.ok_or_else(|| wrong("needs a time as its limit, such as 50ms or 2s"))?.as_secs_f64()
        };
        Ok(Self { metric, relation, limit })
    }

    /// Parses a condition that is to become true, such as `success<50%` or `p99>1s`. A plain `=` is refused, because
    /// it would mean something that is true from the beginning.
    ///
    /// # Errors
    /// What is wrong, and which rules exist.
    pub fn parse_condition(text: &str) -> Result<Self, RuleError> {
        let rule = Self::parse(text)?;
        if text.contains(['<', '>']) {
            return Ok(rule);
        }
        Err(RuleError(format!("'{text}' needs a direction; write < or >, such as success<50% or p99>1s")))
    }

    /// Returns the metric.
    #[must_use]
    pub const fn metric(&self) -> Metric {
        self.metric
    }

    /// Adds a limit on the time of a call's requests, if the rule is about success and has none.
    #[must_use]
    pub const fn within(self, limit: Duration) -> Self {
        match self.metric {
            Metric::Success(None) => Self { metric: Metric::Success(Some(limit)), ..self },
            _ => self,
        }
    }

    /// Checks a run. A rule without data (no call, no answer) does not hold.
    #[must_use]
    pub fn check(&self, meter: &Meter) -> RuleCheck {
        let measured = self.metric.of(meter);
        let holds = measured.is_some_and(|value| match self.relation {
            Relation::Below => value < self.limit,
            Relation::AtMost => value <= self.limit,
            Relation::AtLeast => value >= self.limit,
            Relation::Above => value > self.limit,
        });
        RuleCheck { rule: *self, measured, holds }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.relation {
            Relation::Below => "<",
            Relation::AtMost => "<=",
            Relation::AtLeast => ">=",
            Relation::Above => ">",
        };
        write!(f, "{}{sign}{}", self.metric, self.metric.show(self.limit))
    }
}

/// Result of a rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RuleCheck {
    /// Rule.
    pub rule: Rule,
    /// Share from 0 to 1, or seconds; infinite for answers that never came; `None` without data.
    pub measured: Option<f64>,
    /// Whether the rule holds.
    pub holds: bool,
}

impl fmt::Display for RuleCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metric = self.rule.metric;
        match self.measured {
            Some(value) => write!(f, "{metric} {}", metric.show(value))?,
            None => write!(f, "{metric} unknown: there were no responses")?,
        }
        if self.holds { Ok(()) } else { write!(f, " (wanted {})", self.rule) }
    }
}

impl Metric {
    fn parse(name: &str) -> Result<Self, String> {
        let (name, argument) = match name.split_once('(') {
            Some((name, rest)) => (name, Some(rest.strip_suffix(')').ok_or("lacks a closing bracket")?)),
            None => (name, None),
        };
        let method = || argument.map(method).transpose();
        let plain = |metric| match argument {
            None => Ok(metric),
            Some(_) => Err(format!("has an argument that '{name}' does not take")),
        };
        match name {
            "success" => {
                let limit = |text| parse_time(text).filter(|limit| !limit.is_zero());
                let limit = argument.map(|text| limit(text).ok_or_else(|| format!("has no time above 0 in '{text}'")));
                Ok(Self::Success(limit.transpose()?))
            }
            "drops" => plain(Self::Drops),
            "transactions" => plain(Self::Transactions),
            "mean" => Ok(Self::Mean(method()?)),
            "max" => Ok(Self::Quantile(1.0, method()?)),
            _ => {
                let share = name.strip_prefix('p').and_then(hundredths).filter(|share| *share > 0.0 && *share <= 1.0);
                let share = share.ok_or_else(|| format!("is about '{name}', which is not measured"))?;
                Ok(Self::Quantile(share, method()?))
            }
        }
    }

    /// Returns the value: a share from 0 to 1, or seconds.
    #[must_use]
    pub fn of(&self, meter: &Meter) -> Option<f64> {
        let began = meter.began;
        match *self {
            Self::Success(None) => part(began.carried, began.sent),
            Self::Success(Some(limit)) => part(meter.slowest.within(limit), began.sent),
            Self::Drops => part(began.sent - began.carried, began.sent),
            Self::Transactions => {
                let ends = meter.transactions.sum();
                part(ends.succeeded, ends.all)
            }
            Self::Quantile(share, verb) => quantile(meter, verb.or_else(|| main_method(meter))?, share),
            Self::Mean(verb) => {
                let times = meter.answer(verb.or_else(|| main_method(meter))?, ResponseClass::Success)?;
                (times.count() > 0).then(|| times.mean().as_secs_f64())
            }
        }
    }

    const fn is_share(&self) -> bool {
        matches!(self, Self::Success(_) | Self::Drops | Self::Transactions)
    }

    const fn is_better_high(&self) -> bool {
        matches!(self, Self::Success(_) | Self::Transactions)
    }

    /// Formats a value of this metric for people.
    #[must_use]
    pub fn show(&self, value: f64) -> String {
        match value {
            value if self.is_share() => format!("{}%", percent(100.0 * value)),
            value if value.is_infinite() => "never".to_owned(),
            value => time(Duration::try_from_secs_f64(value).unwrap_or_default()),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |verb: Option<MethodId>| verb.map(|verb| format!("({})", verb.as_str())).unwrap_or_default();
        match self {
            Self::Success(None) => f.write_str("success"),
            Self::Success(Some(limit)) => write!(f, "success({limit:?})"),
            Self::Drops => f.write_str("drops"),
            Self::Transactions => f.write_str("transactions"),
            Self::Quantile(1.0, verb) => write!(f, "max{}", of(*verb)),
            Self::Quantile(share, verb) => write!(f, "p{}{}", percent(100.0 * share), of(*verb)),
            Self::Mean(verb) => write!(f, "mean{}", of(*verb)),
        }
    }
}

/// Returns the quantile over all requests of a method except refused ones; unanswered requests count as infinite.
fn quantile(meter: &Meter, verb: MethodId, share: f64) -> Option<f64> {
    let answered = meter.answer(verb, ResponseClass::Success).map_or(0, crate::time_histogram::TimeHistogram::count);
    let silent = meter.silent(verb);
    if answered + silent == 0 {
        return None;
    }
    // Allows for rounding errors of differences.
    let rank = (share * float(answered + silent) - 1e-6).ceil().max(1.0);
    if rank > float(answered) {
        return Some(f64::INFINITY);
    }
    let share = rank / float(answered);
    let sent = meter.answer(verb, ResponseClass::Success)?.quantile(share);
    // A call that the generator delayed is as late as a caller would have found it.
    let due = meter.from_due.get(&verb).map_or(sent, |times| times.quantile(share));
    Some(sent.max(due).as_secs_f64())
}

fn method(name: &str) -> Result<MethodId, String> {
    match MethodId::ALL.into_iter().find(|verb| verb.as_str().eq_ignore_ascii_case(name)) {
        None | Some(MethodId::Other) => Err(format!("has '{name}', which is not a method")),
        Some(MethodId::Ack) => Err("names ACK, which is never answered".to_owned()),
        Some(verb) => Ok(verb),
    }
}

/// Parses `99.99%` or `0.9999`.
pub(crate) fn share(text: &str) -> Option<f64> {
    let value = match text.strip_suffix('%') {
        Some(percent) => hundredths(percent.trim())?,
        None => text.parse().ok()?,
    };
    (0.0..=1.0).contains(&value).then_some(value)
}

/// Returns the number nearest to a hundredth of these digits, as a ratio of counts is rounded to the nearest; a
/// division would round twice.
fn hundredths(digits: &str) -> Option<f64> {
    let is_plain = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == '.');
    format!("{digits}e-2").parse().ok().filter(|_| is_plain)
}

/// Formats a time in a suitable unit.
fn time(time: Duration) -> String {
    let text = format!("{time:.3?}");
    let unit = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (text.get(..unit).unwrap_or_default(), text.get(unit..).unwrap_or_default());
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number}{unit}")
}

fn part(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| float(part) / float(all))
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
const fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Kind;

    fn rule(text: &str) -> Rule {
        Rule::parse(text).expect(text)
    }

    /// Returns the counts of calls whose INVITE and BYE took these milliseconds, and of some unanswered ones.
    fn meter(millis: &[(u64, u64)], lost: usize) -> Meter {
        let mut meter = Meter::default();
        for (invite, bye) in millis {
            let (invite, bye) = (Duration::from_millis(*invite), Duration::from_millis(*bye));
            (meter.began.offered, meter.began.sent) = (meter.began.offered + 1, meter.began.sent + 1);
            meter.on_request_sent(MethodId::Invite);
            meter.on_answer(MethodId::Invite, 200, invite);
            meter.on_request_sent(MethodId::Bye);
            meter.on_answer(MethodId::Bye, 200, bye);
            meter.transactions.add(MethodId::Invite, true);
            meter.transactions.add(MethodId::Bye, true);
            meter.slowest.record(invite.max(bye));
            meter.began.carried += 1;
        }
        for _ in 0..lost {
            (meter.began.offered, meter.began.sent) = (meter.began.offered + 1, meter.began.sent + 1);
            meter.on_request_sent(MethodId::Invite);
            meter.transactions.add(MethodId::Invite, false);
            meter.began.lost += 1;
        }
        meter
    }

    #[test]
    fn generator_delay_counts_as_response_time() {
        let mut meter = Meter::default();
        for _ in 0..100 {
            meter.on_answer(MethodId::Invite, 200, Duration::from_millis(1));
            meter.from_due.entry(MethodId::Invite).or_default().record(Duration::from_millis(21));
        }
        let p99 = quantile(&meter, MethodId::Invite, 0.99).expect("answered");
        assert!((0.020..0.022).contains(&p99), "{p99}");
    }

    #[test]
    fn rules_are_parsed_and_printed() {
        for (text, shown) in [
            ("success=99.99%", "success>=99.99%"),
            ("success = 0.5", "success>=50%"),
            ("success<50%", "success<50%"),
            ("success(2s)=95%", "success(2s)>=95%"),
            ("drops=1%", "drops<=1%"),
            ("transactions=99.99%", "transactions>=99.99%"),
            ("p99=50ms", "p99<=50ms"),
            ("p99.9(bye)=1.5s", "p99.9(BYE)<=1.5s"),
            ("p99>1s", "p99>1s"),
            ("mean(REGISTER)<=200us", "mean(REGISTER)<=200µs"),
            ("max=1m", "max<=60s"),
        ] {
            assert_eq!(rule(text).to_string(), shown);
            assert_eq!(rule(&rule(text).to_string().replace('µ', "u")), rule(text), "{text}");
        }
    }

    #[test]
    fn rule_errors_show_an_example() {
        for (text, why) in [
            ("success", "no limit"),
            ("success=", "a share"),
            ("success=120%", "a share"),
            ("success=50ms", "a share"),
            ("p99=5", "a time"),
            ("p99=0s", "a time"),
            ("p101=5ms", "not measured"),
            ("speed=5ms", "not measured"),
            ("p99(INVITE=5ms", "closing bracket"),
            ("p99(CALL)=5ms", "not a method"),
            ("p99(ACK)=5ms", "never answered"),
            ("success(0s)=99%", "above 0"),
            ("drops(BYE)=1%", "does not take"),
            ("success=>1%", "no known comparison"),
            ("", "no limit"),
        ] {
            let error = Rule::parse(text).expect_err(text).to_string();
            assert!(error.contains(why) && error.contains("success=99.99%"), "{text}: {error}");
        }
    }

    #[test]
    fn shares_are_of_sent_calls() {
        let meter = meter(&[(10, 10); 99], 1);
        assert!(rule("success=99%").check(&meter).holds && !rule("success=99.1%").check(&meter).holds);
        assert!(rule("drops=1%").check(&meter).holds && !rule("drops=0.9%").check(&meter).holds);
        assert!(rule("success<100%").check(&meter).holds && !rule("success<99%").check(&meter).holds);
        // 99 INVITEs and BYEs, and the one that failed; an ACK is no transaction.
        let shown = rule("transactions=99%").check(&meter).measured.expect("calls");
        assert!((shown - 198.0 / 199.0).abs() < 1e-12, "{shown}");
    }

    #[test]
    fn exactly_the_required_share_holds() {
        let base = meter(&[(10, 10)], 0);
        for tenths in 1..1_000_u64 {
            let percent = format!("{}.{}%", tenths / 10, tenths % 10);
            let mut meter = base.clone();
            (meter.began.sent, meter.began.carried) = (1_000, tenths);
            let success = rule(&format!("success={percent}"));
            assert!(success.check(&meter).holds, "{success}");
            meter.began.carried -= 1;
            assert!(!success.check(&meter).holds, "{success}");
            meter.began.carried = 1_000 - tenths;
            let drops = rule(&format!("drops={percent}"));
            assert!(drops.check(&meter).holds, "{drops}");
            meter.began.carried -= 1;
            assert!(!drops.check(&meter).holds, "{drops}");
        }
    }

    #[test]
    fn a_quantile_reaches_exactly_the_answered_share() {
        let rows: Vec<_> = (0..999).map(|_| (5, 1)).collect();
        let meter = meter(&rows, 1);
        assert!(rule("p99.9=10ms").check(&meter).holds, "{}", rule("p99.9=10ms").check(&meter));
        assert!(!rule("p99.91=10ms").check(&meter).holds);
    }

    #[test]
    fn other_methods_do_not_stand_in_for_unanswered_calls() {
        let mut meter = meter(&[], 100);
        for _ in 0..200 {
            meter.on_request_sent(MethodId::Register);
            meter.on_answer(MethodId::Register, 200, Duration::from_millis(1));
        }
        let checked = rule("p99=50ms").check(&meter);
        assert!(!checked.holds && checked.measured == Some(f64::INFINITY), "{checked}");
        assert!(!rule("mean=50ms").check(&meter).holds && rule("p99(REGISTER)=50ms").check(&meter).holds);
    }

    #[test]
    fn requests_of_earlier_sessions_do_not_count() {
        let mut meter = meter(&[(5, 5); 20], 0);
        // BYEs of calls that began in the warm-up: neither they nor their responses belong to the measurement.
        (0..50).for_each(|_| meter.on_sent(Kind::Request(MethodId::Bye), false));
        assert!(rule("p99(BYE)=10ms").check(&meter).holds, "{}", rule("p99(BYE)=10ms").check(&meter));
    }

    #[test]
    fn equality_is_rejected() {
        assert_eq!(Rule::parse_condition("success<50%"), Ok(rule("success<50%")));
        assert_eq!(Rule::parse_condition("p99>=1s"), Ok(rule("p99>=1s")));
        for text in ["success=50%", "p99=1s"] {
            assert!(Rule::parse_condition(text).expect_err(text).to_string().contains("success<50%"), "{text}");
        }
    }

    #[test]
    fn limits_cover_every_request_of_a_call() {
        // Each call with a late response counts once, also with two.
        let meter = meter(&[(10, 10), (2_500, 10), (10, 2_500), (2_500, 2_500)], 0);
        assert_eq!(rule("success=100%").check(&meter).measured, Some(1.0));
        assert_eq!(rule("success=100%").within(Duration::from_secs(2)).check(&meter).measured, Some(0.25));
        assert_eq!(rule("success(3s)=1%").within(Duration::from_secs(2)).check(&meter).measured, Some(1.0));
    }

    #[test]
    fn times_are_per_method_and_unanswered_requests_take_forever() {
        let rows: Vec<_> = (1..=100).map(|millis| (millis, 1)).collect();
        let all = meter(&rows, 0);
        assert!(rule("p50=51ms").check(&all).holds && !rule("p50=49ms").check(&all).holds);
        assert!(rule("p99(BYE)=2ms").check(&all).holds && rule("mean=51ms").check(&all).holds);
        let two_lost = meter(&rows, 2);
        assert!(rule("p50=52ms").check(&two_lost).holds);
        assert!(rule("p98=101ms").check(&two_lost).holds, "98 % of 102 are 100");
        let checked = rule("p99=1h").check(&two_lost);
        assert!(!checked.holds && checked.to_string().contains("p99 never (wanted p99<=3600s)"), "{checked}");
    }

    #[test]
    fn rules_fail_on_no_data() {
        let nothing = Meter::default();
        for text in ["success=0%", "drops=100%", "transactions=0%", "p99=1h", "mean=1h", "success<50%"] {
            assert!(!rule(text).check(&nothing).holds, "{text}");
        }
    }

    #[test]
    fn almost_all_is_not_shown_as_all() {
        let shown = [1.0, 0.999_999_99, 0.9999].map(|share| Metric::Success(None).show(share));
        assert_eq!(shown, ["100%", "99.9999%", "99.99%"]);
    }
}
