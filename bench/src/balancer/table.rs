//! The tables, as Markdown.

use std::fmt::Write as _;

use super::contender::{CALLS, Contender, Layout, RATIO};
use super::disturbance::{Disturbance, StopMethod};
use super::figures::{Figures, Rule, SUCCESS, Times};
use super::results::Results;
use super::theory;
use crate::callgrind::Parts;
use crate::proxy::table::{Goal, Limit, summary_of};

use Contender::{
    Adaptive, Hash, KamailioCallLoad, KamailioHash, LeastCalls, LeastTransactions, LeastWork175, LeastWorkOfTwo,
    RoundRobin,
};

/// Layout of the paper's measurements and of the goals.
const EIGHT: Layout = Layout::equal(8);
/// Load at which policies are compared, in percent.
pub const AT: u32 = 80;

/// Text of a cell without a value.
const NONE: &str = "–";

/// Returns the ratio of two contenders' medians at the load at which policies are compared.
fn by(results: &Results, one: Contender, other: Contender, of: fn(&Figures) -> f64) -> Option<f64> {
    let median = |contender| results.median(contender, EIGHT, AT, of);
    Some(median(one)? / median(other)?).filter(|ratio| ratio.is_finite())
}

/// Returns how much of the gain of choosing among all targets over a hash remains when choosing between two, at the
/// 99th percentile and in percent.
fn kept(results: &Results) -> Option<f64> {
    let p99 = |contender| results.median(contender, EIGHT, AT, |figures| figures.invite.p99);
    let (hash, all, two) = (p99(Hash)?, p99(LeastWork175)?, p99(LeastWorkOfTwo)?);
    Some(100.0 * (hash - two) / (hash - all)).filter(|share| share.is_finite())
}

/// Returns all goals that this program measures.
#[must_use]
pub fn targets(results: &Results) -> Vec<Goal> {
    let mut targets = Vec::new();
    let mut add = |what: String, wanted, measured| targets.push(Goal { what, wanted, measured, note: String::new() });
    for other in [Hash, RoundRobin] {
        for ours in [LeastWork175, LeastTransactions] {
            let measured = by(results, other, ours, |figures| figures.invite.p99);
            add(
                format!("INVITE to 200 of {other} at {AT} %, p99"),
                Limit::AtLeast(2.0, if ours == LeastWork175 { "× TLWL-1.75" } else { "× TJSQ" }),
                measured,
            );
        }
    }
    for (rule, said) in [(Rule::BeforeT1, "within T1"), (Rule::Soon, "within 50 ms")] {
        for other in [Hash, RoundRobin] {
            for ours in [LeastWork175, LeastTransactions] {
                let rate = |contender| results.highest(contender, EIGHT, rule).map(|(rate, _)| rate);
                let measured = rate(ours).zip(rate(other)).map(|(ours, other)| ours / other);
                let unit = if other == Hash { "× hash" } else { "× round robin" };
                add(format!("{ours}, throughput with 99.99 % {said}"), Limit::AtLeast(1.0, unit), measured);
            }
        }
    }
    add("of TLWL's gain at p99, kept by two candidates".to_owned(), Limit::AtLeast(90.0, "%"), kept(results));
    for (ours, limit, unit, theirs) in [
        (Hash, 0.6, "× Kamailio's hash", KamailioHash),
        (LeastWork175, 0.6, "× Kamailio's hash", KamailioHash),
        (LeastCalls, 0.5, "× Kamailio's call load", KamailioCallLoad),
        (LeastWork175, 0.5, "× Kamailio's call load", KamailioCallLoad),
    ] {
        let cost = |contender| results.cost(contender, |cost| cost.processor);
        let measured = cost(ours).zip(cost(theirs)).map(|(ours, theirs)| ours / theirs);
        add(format!("{ours}, CPU a call at saturation"), Limit::AtMost(limit, unit), measured);
    }
    let own = results.sessions.iter().filter(|sessions| sessions.contender.is_ours());
    let each = own.map(|sessions| sessions.each).reduce(f64::max);
    add("memory of a call that goes on".to_owned(), Limit::AtMost(300.0, "B"), each);
    for done in results.disturbances.iter().filter(|done| done.contender.is_ours()) {
        disturbed(done, &mut add);
    }
    targets
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn disturbed(done: &Disturbance, add: &mut impl FnMut(String, Limit, Option<f64>)) {
    let what = format!(
        "one of eight {}, {}",
        if done.how == StopMethod::Stopped { "stopped" } else { "killed" },
        done.contender
    );
    add(format!("{what}: INVITEs without 200"), Limit::AtMost(0.0, ""), Some(done.invites.1 as f64));
    if done.how == StopMethod::Stopped {
        add(format!("{what}: BYEs without 200"), Limit::AtMost(0.0, ""), Some(done.byes.1 as f64));
    }
    add(format!("{what}: the longest INVITE"), Limit::AtMost(4_000.0, "ms"), Some(1e3 * done.longest));
    if let Some((_, others)) = done.moved {
        add(format!("{what}: keys of others that moved"), Limit::AtMost(0.0, ""), Some(others.1 as f64));
    }
}

/// Returns all goals in one table.
#[must_use]
pub fn summary(results: &Results) -> String {
    summary_of(&targets(results))
}

/// Returns all tables after the summary.
#[must_use]
pub fn all(results: &Results) -> String {
    let mut text = String::new();
    for layout in results.layouts() {
        if layout.targets > 1 {
            text.push_str(&times(results, layout));
        }
    }
    text.push_str(&courses(results));
    for rule in [Rule::BeforeT1, Rule::Soon] {
        text.push_str(&throughput(results, rule));
    }
    text.push_str(&beside_the_paper(results));
    text.push_str(&costs(results));
    text.push_str(&parts(results));
    text.push_str(&sessions(results));
    text.push_str(&disturbances(results));
    text
}

fn cell(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| format!("{value:.digits$}"))
}

/// Returns the response times of all contenders with this layout at one load.
fn times(results: &Results, layout: Layout) -> String {
    let contenders = results.contenders(layout);
    let has_it = |contender: &Contender| results.median(*contender, layout, AT, |figures| figures.carried).is_some();
    if !contenders.iter().any(has_it) {
        return String::new();
    }
    let rate = f64::from(AT) / 100.0 * layout.capacity();
    let mut text = format!(
        "\n### Response times: {layout}\n\nAt {AT} % of what they can serve, {rate:.0} calls/s; milliseconds.\n\n\
         | | carried % | INVITE mean | p50 | p95 | p99 | × TLWL-1.75 | *mean, p99 of the model* | BYE mean | p50 | p95 | p99 | × TLWL-1.75 | \
         *mean, p99 of the model* | balancer's CPU µs a call |\n\
         |---|---:|---:|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|---|---:|\n"
    );
    let best = |of: fn(&Figures) -> f64| results.median(LeastWork175, layout, AT, of);
    for contender in contenders {
        let of = |of: fn(&Figures) -> f64| results.median(contender, layout, AT, of);
        let ratio = |which: fn(&Figures) -> f64| {
            // Without answers there are no times.
            let ratio = of(which).zip(best(which)).map(|(its, best)| its / best);
            ratio.filter(|ratio| ratio.is_finite() && *ratio > 0.0)
        };
        let late =
            if of(|figures| f64::from(u8::from(figures.is_late))) > Some(0.0) { " (generator late)" } else { "" };
        let model = results.modelled(contender, layout);
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {contender}{late} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            cell(of(Figures::carried_percent).filter(|percent| percent.is_finite()), 2),
            cell(of(|figures| figures.invite.mean), 2),
            cell(of(|figures| figures.invite.p50), 2),
            cell(of(|figures| figures.invite.p95), 1),
            cell(of(|figures| figures.invite.p99), 1),
            cell(ratio(|figures| figures.invite.p99), 2),
            modelled(model.map(|model| model.invite)),
            cell(of(|figures| figures.bye.mean), 2),
            cell(of(|figures| figures.bye.p50), 2),
            cell(of(|figures| figures.bye.p95), 1),
            cell(of(|figures| figures.bye.p99), 1),
            cell(ratio(|figures| figures.bye.p99), 2),
            modelled(model.map(|model| model.bye)),
            cell(of(|figures| figures.processor), 0),
        );
    }
    if let Some((invite, bye)) = theory::at_random(layout, f64::from(AT) / 100.0) {
        let _ = writeln!(
            text,
            "| *targets at random, by Pollaczek and Khinchin* | | *{invite:.2}* | | | | | | *{bye:.2}* | | | | | | |"
        );
    }
    text
}

fn modelled(times: Option<Times>) -> String {
    times.map_or_else(String::new, |times| format!("*{:.2}, {:.1}*", times.mean, times.p99))
}

/// Returns the mean time of an INVITE at each load, with eight equal targets.
fn courses(results: &Results) -> String {
    let loads = results.loads(EIGHT);
    if loads.len() < 2 {
        return String::new();
    }
    let head: String = loads.iter().map(|percent| format!(" {percent} % |")).collect();
    let rule: String = loads.iter().map(|_| "---:|").collect();
    let mut text =
        format!("\n### INVITE to 200 by load: {EIGHT}\n\nThe mean in milliseconds.\n\n| |{head}\n|---|{rule}\n");
    for contender in results.contenders(EIGHT) {
        let row = loads.iter().map(|percent| {
            format!(" {} |", cell(results.median(contender, EIGHT, *percent, |figures| figures.invite.mean), 2))
        });
        let _ = writeln!(text, "| {contender} |{}", row.collect::<String>());
    }
    let theory = loads.iter().map(|percent| {
        let mean = theory::at_random(EIGHT, f64::from(*percent) / 100.0).map(|(invite, _)| invite);
        format!(" *{}* |", cell(mean, 2))
    });
    let _ = writeln!(text, "| *at random, by Pollaczek and Khinchin* |{}", theory.collect::<String>());
    text
}

/// Returns the highest loads at which a rule held.
fn throughput(results: &Results, rule: Rule) -> String {
    let layouts: Vec<Layout> =
        results.layouts().into_iter().filter(|layout| results.loads(*layout).len() > 1).collect();
    if layouts.is_empty() {
        return String::new();
    }
    let said = match rule {
        Rule::BeforeT1 => "before their retransmission (T1, 500 ms)",
        Rule::Soon => "within 50 ms",
    };
    let head: String = layouts.iter().map(|layout| format!(" {layout} |")).collect();
    let line: String = layouts.iter().map(|_| "---:|").collect();
    let most: String = layouts.iter().map(|layout| format!(" *{:.0}* |", layout.capacity())).collect();
    let mut text = format!(
        "\n### Throughput: {:.2} % of all INVITEs and BYEs answered {said}\n\nThe highest load, in calls/s, that met the limit along \
         with all lower ones (+: no higher load was tried).\n\n| |{head}\n|---|{line}\n| *what the targets can serve* |{most}\n",
        100.0 * SUCCESS
    );
    let measured =
        |contender: &Contender| layouts.iter().any(|layout| results.of(*contender, *layout).next().is_some());
    for contender in Contender::all().filter(measured) {
        let row = layouts.iter().map(|layout| match results.highest(contender, *layout, rule) {
            Some((rate, is_last)) => format!(" {rate:.0}{} |", if is_last { "+" } else { "" }),
            None if results.of(contender, *layout).next().is_some() => " none |".to_owned(),
            None => format!(" {NONE} |"),
        });
        let _ = writeln!(text, "| {contender} |{}", row.collect::<String>());
    }
    text
}

/// Returns the paper's results beside the measured ones.
fn beside_the_paper(results: &Results) -> String {
    if results.of(Hash, EIGHT).next().is_none() {
        return String::new();
    }
    let mut text = String::from(
        "\n### Beside the paper\n\nTimes of INVITE to 200 by load, as multiples of those of TLWL-1.75 (mean, p99).\n\n",
    );
    let loads = results.loads(EIGHT);
    let head: String = loads.iter().map(|percent| format!(" {percent} % |")).collect();
    let rule: String = loads.iter().map(|_| "---|").collect();
    let _ = write!(text, "| |{head}\n|---|{rule}\n");
    for contender in [Hash, RoundRobin, LeastCalls, LeastTransactions, LeastWorkOfTwo, Adaptive, KamailioCallLoad] {
        if results.of(contender, EIGHT).next().is_none() {
            continue;
        }
        let row = loads.iter().map(|percent| {
            let ratio = |of: fn(&Figures) -> f64| {
                let of = |contender| results.median(contender, EIGHT, *percent, of);
                Some(of(contender)? / of(LeastWork175)?).filter(|ratio| ratio.is_finite())
            };
            let (mean, p99) = (ratio(|figures| figures.invite.mean), ratio(|figures| figures.invite.p99));
            format!(" {}, {} |", cell(mean, 1), cell(p99, 1))
        });
        let _ = writeln!(text, "| {contender} |{}", row.collect::<String>());
    }
    let held = |contender| results.highest(contender, EIGHT, Rule::BeforeT1).map(|(rate, _)| rate);
    let linear = 8.0 * CALLS;
    let _ = write!(
        text,
        "\n| | the paper | here |\n|---|---|---|\n| throughput of one target | about 300 calls/s | {CALLS:.0} calls/s (emulated) |\n\
         | eight targets at best | 2400 calls/s | {linear:.0} calls/s; TLWL-1.75 holds {}, TJSQ {}, hash {}, round robin {} |\n\
         | INVITE against BYE | 1.75 : 1 | {RATIO} : 1 |\n\
         | TLWL and TJSQ against all others, low to medium load | times an order of magnitude lower | the table above, to 60 % |\n\
         | the same, high load | two orders of magnitude | the table above, from {AT} % |\n\
         | the best | TLWL, followed by TJSQ | the tables of response times and throughput |\n\
         | CJSQ | behind TLWL and TJSQ, as all others | the tables of response times and throughput |\n\
         | the balancer's own | 5500 calls/s and not saturated, half of it the kernel's, the choice below 10 % | the tables below |\n",
        cell(held(LeastWork175), 0),
        cell(held(LeastTransactions), 0),
        cell(held(Hash), 0),
        cell(held(RoundRobin), 0),
    );
    text
}

fn costs(results: &Results) -> String {
    let mut all: Vec<_> = results.costs.iter().map(|(contender, ..)| *contender).collect();
    all.sort_unstable();
    all.dedup();
    if all.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\n### The balancer's own cost and capacity\n\nEight targets without service time, in the generator's process; 64 concurrent \
         calls. The balancers alternate; medians of the rounds.\n\n| | CPU µs a call (least to most) | in the kernel % | calls/s | cores | \
         generator's core |\n|---|---:|---:|---:|---:|---:|\n",
    );
    for contender in &all {
        let own = results.costs.iter().filter(|(its, ..)| its == contender).map(|(.., cost)| cost.processor);
        let (least, most) = own.fold((f64::INFINITY, 0.0), |(least, most), cost| (cost.min(least), cost.max(most)));
        let _ = writeln!(
            text,
            "| {contender} | {} ({least:.1} to {most:.1}) | {} | {} | {} | {} |",
            cell(results.cost(*contender, |cost| cost.processor), 1),
            cell(results.cost(*contender, |cost| cost.kernel), 0),
            cell(results.cost(*contender, |cost| cost.rate), 0),
            cell(results.cost(*contender, |cost| cost.cores), 2),
            cell(results.cost(*contender, |cost| cost.generator), 2),
        );
    }
    for other in [KamailioHash, KamailioCallLoad] {
        let Some(theirs) = results.cost(other, |cost| cost.processor) else { continue };
        let ours = all.iter().filter(|contender| contender.is_ours());
        let ratios: Vec<String> = ours
            .filter_map(|contender| {
                let cost = results.cost(*contender, |cost| cost.processor)?;
                Some(format!("{contender} {:.2} ×", cost / theirs))
            })
            .collect();
        let _ = writeln!(text, "\nCPU a call beside that of {other}: {}.", ratios.join(", "));
    }
    text
}

fn parts(results: &Results) -> String {
    if results.parts.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\n### CPU by part\n\nUser instructions per call, counted by callgrind, for each crate or module with what was inlined \
         into it. Target selection includes the code it calls in other parts. The table above has the kernel's share.\n",
    );
    for (contender, counted) in &results.parts {
        text.push_str(&of_parts(*contender, counted));
    }
    text
}

fn of_parts(contender: Contender, counted: &Parts) -> String {
    let all = counted.all();
    format!(
        "\n**{contender}**: {:.1} k instructions a call, of which the choice of a target {:.1} % ({:.0}). {}.\n",
        all / 1e3,
        100.0 * counted.choice / all,
        counted.choice,
        counted.shares()
    )
}

fn sessions(results: &Results) -> String {
    if results.sessions.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\n### Calls that go on\n\nCalls begin at a steady rate and none ends. *Bytes each* is the growth of memory per call from the time \
         at which transactions end as fast as they begin.\n\n| | calls | bytes each | all memory at the end, MiB |\n|---|---:|---:|---:|\n",
    );
    for one in &results.sessions {
        let _ = writeln!(text, "| {} | {} | {:.0} | {:.0} |", one.contender, one.count, one.each, one.all_mib);
    }
    text
}

fn disturbances(results: &Results) -> String {
    if results.disturbances.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\n### One of eight targets stops, and comes back\n\nPoisson arrivals at half the capacity \
         of the eight targets. *Waited*: INVITEs that took more than 400 ms. *Keys*: 400 users, each \
         probed by one call. A killed target loses the state of its calls, so their BYEs fail.\n\n\
         | | away | INVITEs | without 200 | waited | the longest, s | BYEs | without 200 | its keys that moved | others' that moved | not \
         back after the slow start | its share before, away, 5 s after, at the end % |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for done in &results.disturbances {
        let of =
            |count: Option<(usize, usize)>| count.map_or(NONE.to_owned(), |(all, moved)| format!("{moved} of {all}"));
        let astray = done.astray.map_or(NONE.to_owned(), |count| count.to_string());
        let _ = writeln!(
            text,
            "| {}, {} | {} to {} s | {} | {} | {} | {:.2} | {} | {} | {} | {} | {astray} | {} |",
            done.contender,
            done.how,
            done.away.0,
            done.away.1,
            done.invites.0,
            done.invites.1,
            done.caught,
            done.longest,
            done.byes.0,
            done.byes.1,
            of(done.moved.map(|(its, _)| its)),
            of(done.moved.map(|(_, others)| others)),
            shares(done),
        );
    }
    for done in results.disturbances.iter().filter(|done| !done.failures.is_empty()) {
        let said: Vec<String> = done.failures.iter().map(|(ending, count)| format!("{count} by {ending}")).collect();
        let _ =
            writeln!(text, "\nCalls of {}, {}, that did not end well: {}.", done.contender, done.how, said.join("; "));
    }
    text
}

/// Returns the target's share before it stopped, while it was away, five seconds after its return and at the end.
fn shares(done: &Disturbance) -> String {
    let (stops, returns) = done.away;
    let last = done.seconds.len().saturating_sub(2) as u64;
    let of = |second: u64| {
        let place = usize::try_from(second).unwrap_or(usize::MAX);
        cell(done.seconds.get(place).and_then(|second| second.share), 1)
    };
    format!("{}, {}, {}, {}", of(stops.saturating_sub(2)), of(returns.saturating_sub(2)), of(returns + 5), of(last))
}

#[cfg(test)]
mod tests {
    use super::super::disturbance::Second;
    use super::super::figures::{Cost, LoadRun, ModelResult, Sessions};
    use super::*;

    fn turn(contender: Contender, p99: f64, held: bool) -> LoadRun {
        let invite = Times { mean: p99 / 4.0, p50: p99 / 5.0, p95: p99 / 2.0, p99 };
        let (sent, not_carried) = (20_000, 30);
        let of = |share| Figures {
            sent,
            not_carried,
            invite,
            bye: invite,
            before_t1: share,
            soon: share,
            ..Figures::default()
        };
        let loads = vec![(80, of(1.0)), (92, of(if held { 1.0 } else { 0.9 }))];
        LoadRun { contender, layout: EIGHT, round: 1, loads }
    }

    fn results() -> Results {
        let turns = [(Hash, 24.0, false), (RoundRobin, 12.0, false), (LeastTransactions, 7.0, true)];
        let mut turns: Vec<_> = turns.into_iter().map(|(who, p99, held)| turn(who, p99, held)).collect();
        turns.extend([turn(LeastWork175, 6.0, true), turn(LeastWorkOfTwo, 7.7, true)]);
        let cost = |processor: f64| Cost { processor, rate: 1e6 / processor, ..Cost::default() };
        let costs = [(Hash, 30.0), (LeastWork175, 33.0), (KamailioHash, 60.0), (KamailioCallLoad, 64.0)];
        let second = Second { ended: (900, 0), p99: 9.0, share: Some(12.5) };
        let invite = Times { mean: 5.5, p99: 23.0, ..Times::default() };
        Results {
            turns,
            models: vec![ModelResult { contender: Hash, layout: EIGHT, invite, bye: invite }],
            costs: costs.into_iter().map(|(contender, processor)| (contender, 1, cost(processor))).collect(),
            parts: vec![(
                Hash,
                Parts { own: [("shard".to_owned(), 20_000.0)].into(), choice: 900.0, ..Parts::default() },
            )],
            sessions: vec![Sessions { contender: LeastWork175, count: 100_000, each: 260.0, all_mib: 90.0 }],
            disturbances: vec![Disturbance {
                contender: Hash,
                how: StopMethod::Stopped,
                away: (3, 9),
                invites: (20_000, 0),
                byes: (19_000, 1),
                caught: 80,
                longest: 2.5,
                failures: vec![("408".to_owned(), 1)],
                moved: Some(((50, 50), (350, 2))),
                astray: Some(0),
                seconds: vec![second; 15],
            }],
        }
    }

    #[test]
    fn goals_are_judged_by_ratios() {
        let summary = summary(&results());
        for line in [
            "| INVITE to 200 of hash at 80 %, p99 | ≥ 2.00 × TLWL-1.75 | 4.00 × TLWL-1.75 | met |",
            "| INVITE to 200 of round robin at 80 %, p99 | ≥ 2.00 × TJSQ | 1.71 × TJSQ | **not met** |",
            "| TLWL-1.75, throughput with 99.99 % within T1 | ≥ 1.00 × hash | 1.15 × hash | met |",
            "| of TLWL's gain at p99, kept by two candidates | ≥ 90 % | 91 % | met |",
            "| hash, CPU a call at saturation | ≤ 0.60 × Kamailio's hash | 0.50 × Kamailio's hash | met |",
            "| TLWL-1.75, CPU a call at saturation | ≤ 0.50 × Kamailio's call load | 0.52 × Kamailio's call load | **not met** |",
            "| memory of a call that goes on | ≤ 300 B | 260 B | met |",
            "| one of eight stopped, hash: INVITEs without 200 | ≤ 0 | 0 | met |",
            "| one of eight stopped, hash: the longest INVITE | ≤ 4000 ms | 2500 ms | met |",
            "| one of eight stopped, hash: keys of others that moved | ≤ 0 | 2 | **not met** |",
        ] {
            assert!(summary.contains(line), "{line}\n{summary}");
        }
    }

    #[test]
    fn tables_show_only_what_was_measured() {
        let text = all(&results());
        for line in [
            "| hash | 99.85 | 6.00 | 4.80 | 12.0 | 24.0 | 4.00 | *5.50, 23.0* | 6.00 |",
            "| TLWL-1.75 | 2208+ |",
            "| hash | 1920 |",
            "| hash | 4.0, 4.0 | 4.0, 4.0 |",
            "20.0 k instructions a call, of which the choice of a target 4.5 % (900). shard 100.0 %",
            "| TLWL-1.75 | 100000 | 260 | 90 |",
            "Calls of hash, SIGSTOP, that did not end well: 1 by 408.",
            "| hash, SIGSTOP | 3 to 9 s | 20000 | 0 | 80 | 2.50 | 19000 | 1 | 50 of 50 | 2 of 350 | 0 | 12.5, 12.5, 12.5, 12.5 |",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains("Kamailio, round robin"), "{text}");
        assert_eq!(all(&Results::default()), "");
    }
}
