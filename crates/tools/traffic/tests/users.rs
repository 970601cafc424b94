//! The multicore paper's users at 60 times the speed, as seen on the wire: outcomes of calls, ring and hold times,
//! registrations and the times between calls. All in virtual time.

mod virtual_users;

use std::collections::BTreeMap;
use std::time::Duration;

use statrs::distribution::{ContinuousCDF as _, Exp, LogNormal};
use strowger_foundation::Timestamp;
use strowger_traffic::engine::CallRole;
use strowger_traffic::script::MethodId;
use strowger_traffic::statistics::{ks_distance, ks_probability};
use strowger_traffic::workload::Workload;
use virtual_users::{WireMessage, World};

const SPEED: f64 = 60.0;
const USERS: u32 = 2_000;
/// Two hours, plus the warm-up of ten minutes, at 60 times the speed.
const TIME: Duration = Duration::from_secs(130);

fn users(set: &[(&str, &str)], speed: f64) -> Workload {
    let set: Vec<_> = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Workload::parse("users", &set, speed).expect("the model")
}

/// A call as seen on the wire.
#[derive(Debug, Default)]
struct Call {
    user: String,
    tag: String,
    invited: Option<Timestamp>,
    rang: Option<Timestamp>,
    answered: Option<Timestamp>,
    cancelled: Option<Timestamp>,
    hung_up: Option<Timestamp>,
    ended: Option<Timestamp>,
    challenges: Vec<String>,
}

fn calls(seen: &[WireMessage]) -> Vec<Call> {
    let mut calls: BTreeMap<&str, Call> = BTreeMap::new();
    for message in seen.iter().filter(|message| message.method != "REGISTER") {
        let call = calls.entry(&message.call_id).or_default();
        let at = Some(message.at);
        let (is_down, method) = (message.is_from_server, message.method.as_str());
        match (is_down, message.what.as_str(), method) {
            (false, "INVITE", _) => {
                call.invited = call.invited.or(at);
                (call.user, call.tag) = (message.from.clone(), message.tag.clone());
            }
            (true, "407", _) => call.challenges.push(message.method.clone()),
            (true, "180", _) => call.rang = call.rang.or(at),
            (true, "200", "INVITE") => call.answered = call.answered.or(at),
            (false, "CANCEL", _) => call.cancelled = call.cancelled.or(at),
            (false, "BYE", _) => call.hung_up = call.hung_up.or(at),
            (true, "200", "BYE" | "CANCEL") => call.ended = at,
            _ => {}
        }
    }
    calls.into_values().collect()
}

fn seconds(from: Option<Timestamp>, to: Option<Timestamp>) -> f64 {
    let (from, to) = (from.expect("it began"), to.expect("it ended"));
    to.saturating_since(from).as_secs_f64()
}

/// Asserts a Kolmogorov–Smirnov test at the 0.1 % level. The run's seed is fixed, so it passes always or never.
fn assert_law(what: &str, mut sample: Vec<f64>, law: impl Fn(f64) -> f64) {
    assert!(sample.len() > 150, "{what}: {} values", sample.len());
    let distance = ks_distance(&mut sample, law);
    let p = ks_probability(distance, sample.len());
    println!("{what}: n = {}, D = {distance:.4}, p = {p:.3}", sample.len());
    assert!(p > 0.001, "{what}: D = {distance} at n = {}, p = {p}", sample.len());
}

/// Returns the distribution function of a log-normal with this mean and sigma.
fn log_normal(mean: f64, sigma: f64) -> impl Fn(f64) -> f64 {
    let law = LogNormal::new(mean.ln() - sigma * sigma / 2.0, sigma).expect("a law");
    move |x| law.cdf(x)
}

fn exponential(mean: f64) -> impl Fn(f64) -> f64 {
    let law = Exp::new(1.0 / mean).expect("a law");
    move |x| law.cdf(x)
}

fn uniform(min: f64, max: f64) -> impl Fn(f64) -> f64 {
    move |x| ((x - min) / (max - min)).clamp(0.0, 1.0)
}

#[test]
fn traffic_matches_the_models_mix_times_and_intervals() {
    let workload = users(&[], SPEED);
    let mut world = World::new(&workload, USERS, &workload.activities);
    let begun = world.now;
    world.run(TIME, true);
    // No new calls begin; all calls in progress end.
    world.run(Duration::from_secs(3_600), false);
    assert_eq!((world.caller.session_count(), world.callee.session_count()), (0, 0));
    let calls = calls(&world.seen);
    mix_is_met(&calls);
    times_are_met(&calls);
    thinking_is_met(&calls, begun);
    registrations_are_met(&world.seen, begun);
    accounts_are_met(&world, &calls);
}

/// Asserts 65, 30 and 5 %, within four standard deviations. On the wire, the caller's tag tells the class of a call.
fn mix_is_met(calls: &[Call]) {
    let n = calls.len() as f64;
    // A user makes one call per cycle: an hour of thinking, a ring time and a hold time.
    let cycle = 3_600.0 + 8.0 + 0.65 * 300.0 + 0.30 * 30.0;
    let expected = f64::from(USERS) * TIME.as_secs_f64() * SPEED / cycle;
    assert!((n / expected - 1.0).abs() < 0.06, "{n} calls for {expected}");
    let is = |call: &&Call, class: &str| call.tag.split_once('.').map_or("0", |(_, class)| class) == class;
    for (class, share) in [("0", 0.65), ("1", 0.30), ("2", 0.05)] {
        let count = calls.iter().filter(|call| is(call, class)).count() as f64;
        let deviation = (n * share * (1.0 - share)).sqrt();
        assert!((count - n * share).abs() < 4.0 * deviation, "class {class}: {count} of {n}, {share} wanted");
    }
    for call in calls {
        let is_cancelled = is(&call, "2");
        assert_eq!((call.cancelled.is_some(), call.answered.is_some()), (is_cancelled, !is_cancelled), "{call:?}");
        let asked: &[&str] = if is_cancelled { &["INVITE"] } else { &["INVITE", "BYE"] };
        assert_eq!(call.challenges, asked, "INVITE and BYE are authenticated, each once: {call:?}");
    }
}

fn times_are_met(calls: &[Call]) {
    let of = |class: &str| -> Vec<&Call> {
        calls.iter().filter(|call| call.tag.split_once('.').map_or("0", |(_, class)| class) == class).collect()
    };
    let hold =
        |calls: Vec<&Call>| calls.into_iter().map(|call| seconds(call.answered, call.hung_up)).collect::<Vec<_>>();
    let completed = log_normal(300.0 / SPEED, 1.0);
    let voicemail = exponential(30.0 / SPEED);
    assert_law("completed calls last", hold(of("0")), &completed);
    assert_law("voicemail lasts", hold(of("1")), &voicemail);
    let all: Vec<&Call> = calls.iter().filter(|call| call.answered.is_some()).collect();
    assert_law("all that were answered last", hold(all.clone()), |x| {
        (65.0 * completed(x) + 30.0 * voicemail(x)) / 95.0
    });
    let rang = all.into_iter().map(|call| seconds(call.rang, call.answered)).collect();
    assert_law("it rings", rang, uniform(1.0 / SPEED, 15.0 / SPEED));
    let patience = of("2").into_iter().map(|call| seconds(call.rang, call.cancelled)).collect();
    assert_law("patience lasts", patience, uniform(1.0 / SPEED, 15.0 / SPEED));
}

/// Asserts that the time from the end of a call, or the beginning of the run, to the user's next call is exponential.
/// Times that would end after the run are not observed, so each is compared with the distribution truncated there.
fn thinking_is_met(calls: &[Call], begun: Timestamp) {
    let mut by_user: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in calls {
        by_user.entry(&call.user).or_default().push(call);
    }
    let (end, mean) = (begun + TIME, 3_600.0 / SPEED);
    let (mut first, mut next) = (Vec::new(), Vec::new());
    for calls in by_user.values_mut() {
        calls.sort_by_key(|call| call.invited);
        let part = |from: Timestamp, call: &Call| {
            let until = |at: Timestamp| 1.0 - (-at.saturating_since(from).as_secs_f64() / mean).exp();
            until(call.invited.expect("invited")) / until(end)
        };
        first.push(part(begun, calls[0]));
        next.extend(calls.windows(2).map(|pair| part(pair[0].ended.expect("over"), pair[1])));
    }
    assert!(by_user.len() > 1_600, "{} of {USERS} users call", by_user.len());
    assert_law("the first think time", first, uniform(0.0, 1.0));
    assert_law("think times", next, uniform(0.0, 1.0));
}

/// Asserts that each user registers every ten minutes, at 60 times the speed, not all at once, and for 15 minutes,
/// which are not compressed.
fn registrations_are_met(seen: &[WireMessage], begun: Timestamp) {
    let mut by_user: BTreeMap<&str, Vec<Timestamp>> = BTreeMap::new();
    let sent = seen.iter().filter(|message| message.what == "REGISTER" && message.has_credentials);
    for message in sent.clone() {
        by_user.entry(&message.from).or_default().push(message.at);
    }
    assert_eq!(by_user.len(), USERS as usize);
    let interval = Duration::from_secs_f64(600.0 / SPEED);
    for (user, times) in &by_user {
        assert_eq!(times.len(), 13, "{user}");
        for pair in times.windows(2) {
            let off = (pair[1] - pair[0]).abs_diff(interval);
            assert!(off < Duration::from_micros(1), "{user}: {off:?}");
        }
    }
    let first = by_user.values().map(|times| times[0].saturating_since(begun).as_secs_f64()).collect();
    assert_law("first registrations", first, uniform(0.0, interval.as_secs_f64()));
    assert!(sent.clone().all(|message| message.text.contains("\r\nExpires: 900\r\n")));
    let refused = seen.iter().filter(|message| message.what == "401").count();
    assert_eq!(refused, sent.count(), "each is authenticated");
}

/// Asserts that the meters agree with the wire.
fn accounts_are_met(world: &World, calls: &[Call]) {
    let meter = world.caller.meter();
    assert!(meter.began.add_up());
    assert_eq!((meter.began.carried, meter.began.offered), (calls.len() as u64, calls.len() as u64));
    let cancelled = calls.iter().filter(|call| call.cancelled.is_some()).count() as u64;
    assert_eq!(meter.scripts[2].carried, cancelled);
    assert_eq!(meter.scripts.iter().map(|script| script.sent).sum::<u64>(), meter.began.sent);
    // Two INVITEs per call, two BYEs if it was answered, a CANCEL if not; all succeed.
    let n = calls.len() as u64;
    for (verb, count) in
        [(MethodId::Invite, 2 * n), (MethodId::Bye, 2 * (n - cancelled)), (MethodId::Cancel, cancelled)]
    {
        let ends = meter.transactions.of(verb);
        assert_eq!((ends.all, ends.succeeded), (count, count), "{verb:?}");
    }
    let registers = world.callee.meter().transactions.of(MethodId::Register);
    assert_eq!((registers.all, registers.succeeded), (26 * u64::from(USERS), 26 * u64::from(USERS)));
    assert_eq!((meter.repeats_sent, meter.unexpected), (0, 0));
    let answered = world.callee.meter().answered;
    assert_eq!((answered.sent, answered.carried), (n, n), "also who is called by someone who hangs up");
}

#[test]
fn failed_transactions_are_counted_exactly() {
    let workload = users(&[], SPEED);
    let mut world = World::new(&workload, 500, &workload.activities);
    let mut asked = 0_u64;
    world.refuses = Box::new(move |message| {
        // An INVITE whose CANCEL is rejected would stay unanswered.
        let may_fail = !matches!(message.what.as_str(), "ACK" | "CANCEL");
        asked += u64::from(may_fail);
        may_fail && asked.is_multiple_of(50)
    });
    world.run(Duration::from_secs(60), true);
    world.run(Duration::from_secs(3_600), false);
    let refused = |method: &str| {
        let seen = world.seen.iter().filter(|message| message.what == "503" && message.method == method);
        seen.count() as u64
    };
    let (caller, callee) = (&world.caller.meter().transactions, &world.callee.meter().transactions);
    for (verb, ends) in [
        (MethodId::Invite, caller.of(MethodId::Invite)),
        (MethodId::Bye, caller.of(MethodId::Bye)),
        (MethodId::Register, callee.of(MethodId::Register)),
    ] {
        assert_eq!(ends.all - ends.succeeded, refused(verb.as_str()), "{verb:?}");
        assert!(ends.succeeded > 0);
    }
    let mut all = caller.clone();
    all.merge(callee);
    assert!(all.sum().share() < 0.995, "{:?}", all.sum());
    // A rejected caller thinks again and calls again.
    let mut users: Vec<_> = world.seen.iter().filter(|seen| seen.what == "503").map(|seen| &seen.from).collect();
    users.dedup();
    let again = users.iter().filter(|user| {
        let calls =
            world.seen.iter().filter(|seen| seen.what == "INVITE" && seen.from == ***user && !seen.is_from_server);
        calls.count() > 2
    });
    assert!(again.count() > 0);
}

#[test]
fn parameters_change_the_model_and_are_declared() {
    let workload = users(
        &[
            ("completed", "0"),
            ("voicemail", "0"),
            ("cancelled", "1"),
            ("think", "60s"),
            ("patience", "exp(mean=2s)"),
            ("ring", "60s"),
        ],
        1.0,
    );
    let calls_only: Vec<_> =
        workload.activities.iter().filter(|activity| activity.who == CallRole::Caller).cloned().collect();
    let mut world = World::new(&workload, 100, &calls_only);
    world.run(Duration::from_secs(600), true);
    world.run(Duration::from_secs(600), false);
    let calls = calls(&world.seen);
    assert!(calls.len() > 900 && calls.iter().all(|call| call.cancelled.is_some()), "{}", calls.len());
    let patience = calls.iter().map(|call| seconds(call.rang, call.cancelled)).collect();
    assert_law("patience", patience, exponential(2.0));
    let declared =
        |name: &str| workload.declared.iter().find(|(declared, _)| declared == name).map(|(_, text)| text.as_str());
    assert_eq!(declared("patience"), Some("exp(mean=2s) (set)"));
    assert_eq!(declared("hold"), Some("lognormal(mean=300s,sigma=1) (ours)"));
    assert_eq!(declared("speed"), None);
    let fast = users(&[], SPEED);
    let speed = fast.declared.iter().find(|(name, _)| name == "speed").map(|(_, text)| text.as_str());
    assert!(speed.is_some_and(|text| text.starts_with("60: ") && text.contains("900 s")), "{speed:?}");
    let error = Workload::parse("users", &[("expires".to_owned(), "60s".to_owned())], 1.0).expect_err("too short");
    assert!(error.to_string().contains("raise expires"), "{error}");
}
