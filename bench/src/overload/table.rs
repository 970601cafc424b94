//! The page: the key figures, then every table.

use std::fmt::Write as _;

use super::contender::{Contender, LIMIT_PERCENT, Mode};
use super::cost::median_percent;
use super::flood::Kind;
use super::flood_impact::{FLOOD, FloodResult, INNOCENT};
use super::results::{LoadResult, Results};
use super::step::{BASE, FULL};

/// Required goodput over UDP and TCP at each load, in percent of the capacity.
const GOALS: [(f64, f64, f64); 3] = [(2.0, 98.0, 95.0), (5.0, 95.0, 90.0), (10.0, 90.0, 85.0)];
/// Further goals: share of BYEs answered, 99th percentile of the set-up time in milliseconds, share of well-behaved
/// callers' calls, seconds until full service, and bytes sent per byte of an attacker.
const GOAL_BYES: f64 = 99.9;
const GOAL_P99_MS: f64 = 500.0;
const GOAL_INNOCENT: f64 = 95.0;
const GOAL_RECOVERY_S: f64 = 2.0;
const GOAL_AMPLIFICATION: f64 = 2.0;
/// Allowed additional cost of a call with control without overload, in percent.
const GOAL_COST: f64 = 1.0;

/// Returns the three key figures of each contender.
#[must_use]
pub fn summary(results: &Results) -> String {
    let mut text = String::from(
        "| | goodput at the highest load, UDP | calls of innocent callers, worst flood | full service again after a step |\n\
         |---|---:|---:|---:|\n",
    );
    let highest = results.times(Mode::Udp).last().copied().unwrap_or(f64::NAN);
    for contender in Contender::ALL {
        let goodput = results.load(contender, Mode::Udp, highest);
        let worst = floods(results, contender).filter(|one| one.kind.is_some());
        let worst = worst.min_by(|one, other| one.calls.carried.total_cmp(&other.calls.carried));
        let step = results.steps.iter().find(|one| one.contender == contender);
        if goodput.is_none() && worst.is_none() && step.is_none() {
            continue;
        }
        let goodput = goodput.map(|one| format!("{:.1} % at {highest}×", one.goodput_percent()));
        let worst =
            worst.map(|one| format!("{:.1} % ({})", one.calls.carried, one.kind.map_or("", |kind| short(kind))));
        let step = step.map(|one| one.recovery_s().map_or("never".to_owned(), |time| format!("{time:.1} s")));
        let said = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {contender} | {} | {} | {} |", said(goodput), said(worst), said(step));
    }
    text
}

const fn short(kind: Kind) -> &'static str {
    match kind {
        Kind::Malformed => "malformed",
        Kind::Invites => "spoofed INVITEs",
        Kind::Options => "OPTIONS",
        Kind::Passwords => "wrong passwords",
        Kind::SpreadPasswords => "wrong passwords, 100 sources",
    }
}

/// Returns all tables.
#[must_use]
pub fn all(results: &Results) -> String {
    let mut text = String::new();
    capacities(results, &mut text);
    for (mode, title) in [(Mode::Udp, "Goodput over UDP"), (Mode::Tcp, "Goodput over TCP")] {
        loads(results, mode, title, &mut text);
    }
    steps(results, &mut text);
    flood_table(results, &mut text);
    reflections(results, &mut text);
    avalanches(results, &mut text);
    costs(results, &mut text);
    paper(results, &mut text);
    goals(results, &mut text);
    text
}

fn costs(results: &Results, text: &mut String) {
    let Some(percent) = median_percent(&results.costs) else { return };
    let _ = write!(
        text,
        "\n## What control costs where there is no overload\n\nStrowger on a whole core with 64 concurrent \
         calls, alternately with and without control. The median of the pairs: {percent:+.1} %.\n\n\
         | pair | with control, µs a call | without, µs a call | difference % |\n|---|---:|---:|---:|\n"
    );
    for (number, cost) in (1..).zip(&results.costs) {
        let _ = writeln!(text, "| {number} | {:.2} | {:.2} | {:+.1} |", cost.control_us, cost.plain_us, cost.percent());
    }
}

fn capacities(results: &Results, text: &mut String) {
    if results.capacities.is_empty() {
        return;
    }
    text.push_str(
        "\n## Capacity\n\nThe highest rate at which at least 99.9 % of the calls are carried and the 99th percentile of INVITE \
         to 200 is at most 250 ms; the median of the searches. *Closed loop*: the throughput with 64 concurrent calls.\n\n\
         | | | calls/s | searches | p99, ms | closed loop, calls/s |\n|---|---|---:|---|---:|---:|\n",
    );
    for mode in [Mode::Udp, Mode::Tcp, Mode::Passwords] {
        for contender in Contender::ALL {
            let Some(rate) = results.own_capacity(contender, mode) else { continue };
            let found: Vec<_> =
                results.capacities.iter().filter(|one| one.contender == contender && one.mode == mode).collect();
            let each: Vec<String> = found.iter().map(|one| format!("{:.0}", one.rate)).collect();
            let (p99, closed) = found.last().map_or((f64::NAN, f64::NAN), |one| (one.p99_ms, one.closed));
            let mode = mode.name();
            let _ =
                writeln!(text, "| {contender} | {mode} | {rate:.0} | {} | {p99:.0} | {closed:.0} |", each.join(", "));
        }
    }
}

fn loads(results: &Results, mode: Mode, title: &str, text: &mut String) {
    let times = results.times(mode);
    if times.is_empty() {
        return;
    }
    let name = if mode == Mode::Tcp { "overload-tcp.svg" } else { "overload-udp.svg" };
    let _ = write!(
        text,
        "\n## {title}\n\n*Goodput* is the rate of calls that were answered and ended normally, in percent of the capacity. *Of what can be* \
         is in percent of the offered load where that is below the capacity. *BYEs* are the answered BYEs of answered calls. Setup is the \
         time from the first copy of an INVITE to its 200. \\* marks loads for which the generator was late.\n\n![{title}](plots/{name})\n\n\
         | | load | offered/s | goodput/s | goodput % | of what can be % | BYEs % | setup p50, ms | p99, ms | 503/s | sent again/s | \
         dropped by the kernel/s | CPU, cores | quota used up % |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
    );
    for contender in Contender::ALL {
        for times in &times {
            let Some(one) = results.load(contender, mode, *times) else { continue };
            let outcome = &one.outcome;
            let _ = writeln!(
                text,
                "| {contender} | {times}×{} | {:.0} | {:.0} | {:.1} | {:.1} | {} | {} | {} | {:.0} | {:.0} | {:.0} | {:.3} | {:.0} |",
                if outcome.is_late { " \\*" } else { "" },
                outcome.offered,
                outcome.goodput,
                one.goodput_percent(),
                one.possible_percent(),
                maybe(outcome.byes, 3),
                maybe(outcome.p50_ms, 1),
                maybe(outcome.p99_ms, 0),
                outcome.refused,
                outcome.repeats,
                outcome.drops,
                outcome.processors,
                outcome.throttled,
            );
        }
    }
}

fn steps(results: &Results, text: &mut String) {
    let Some(first) = results.steps.first() else { return };
    let (times, step_s) = (first.times, first.step_s);
    let _ = write!(
        text,
        "\n## A step\n\n{BASE}× the capacity, {times}× for {step_s:.0} s, and {BASE}× again. Callers of the step retransmit \
         their INVITEs for up to 32 s after it. *Full service* is the time from the end of the step to the first second \
         in which at least {:.0} % of the steady callers' calls are carried; *worst second* is the lowest share in \
         any later second. `bench/overload/step.csv` has the time series.\n\n![A step](plots/overload-step.svg)\n\n\
         | | carried during the step, calls/s | % of the capacity | full service after, s | worst second behind, % |\n|---|---:|---:|---:|---:|\n",
        100.0 * FULL
    );
    for one in &results.steps {
        let worst = maybe(one.worst_after().map(|share| 100.0 * share), 0);
        let (during, recovery) = (one.during(), maybe(one.recovery_s(), 1));
        let percent = 100.0 * during / one.capacity;
        let _ = writeln!(text, "| {} | {during:.0} | {percent:.1} | {recovery} | {worst} |", one.contender);
    }
}

fn floods(results: &Results, contender: Contender) -> impl Iterator<Item = &FloodResult> {
    results.floods.iter().filter(move |one| one.contender == contender)
}

fn flood_table(results: &Results, text: &mut String) {
    if results.floods.is_empty() {
        return;
    }
    let _ = write!(
        text,
        "\n## Floods\n\nInnocent callers at {INNOCENT}× the capacity from 200 addresses, and a flood of {FLOOD}× as \
         many requests a second from other addresses. REGISTER and INVITE need passwords, which innocent callers have. \
         *Sent to the flood* is the number of bytes sent to the flood's addresses per byte received from them.\n\n\
         | | flood | flood/s | calls/s | carried % | setup p50, ms | p99, ms | sent to the flood | CPU, cores |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|\n"
    );
    for contender in Contender::ALL {
        for one in floods(results, contender) {
            let calls = &one.calls;
            let _ = writeln!(
                text,
                "| {contender} | {}{} | {:.0} | {:.0} | {:.2} | {} | {} | {} | {:.3} |",
                one.kind.map_or_else(|| "none".to_owned(), |kind| kind.to_string()),
                if calls.is_late { " \\*" } else { "" },
                one.rate,
                calls.offered,
                calls.carried,
                maybe(calls.p50_ms, 1),
                maybe(calls.p99_ms, 0),
                maybe(one.kind.map(|_| one.tally.amplification()), 2),
                calls.processors,
            );
        }
    }
}

fn reflections(results: &Results, text: &mut String) {
    if results.reflections.is_empty() {
        return;
    }
    text.push_str(
        "\n## What a server sends to who spoofs\n\nSome requests of each kind to a server that has nothing else to do, and all that comes back \
         until its timers have ended: messages for each request, and bytes for each byte.\n\n\
         | | kind | messages | bytes |\n|---|---|---:|---:|\n",
    );
    for one in &results.reflections {
        for (kind, tally) in &one.kinds {
            #[expect(clippy::cast_precision_loss, reason = "for people")]
            let messages = tally.answers as f64 / tally.sent.max(1) as f64;
            let _ = writeln!(text, "| {} | {kind} | {messages:.2} | {:.2} |", one.contender, tally.amplification());
        }
    }
}

fn avalanches(results: &Results, text: &mut String) {
    if results.avalanches.is_empty() {
        return;
    }
    text.push_str(
        "\n## All phones register at once\n\n`strowger load run --workload avalanche`: all phones start within 10 s and retry as in \
         RFC 5626 (4.5) until they are registered.\n\n| | phones | registered | until 99 % are, s | 503 |\n|---|---:|---:|---:|---:|\n",
    );
    for one in &results.avalanches {
        let recovery = maybe(one.recovery_s, 1);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {recovery} | {} |",
            one.contender, one.phones, one.registered, one.refused
        );
    }
}

/// Writes the paper's figures beside the measured ones. The paper's call test has 14 messages at the server, this one
/// 13.
fn paper(results: &Results, text: &mut String) {
    text.push_str(
        "\n## Beside the paper\n\nK. Ono and H. Schulzrinne, *The Impact of TCP on SIP Servers* (\"The impact of TCP on SIP servers\", \
         sections 5 and 6): their server, a thread pool, sorts requests by the first line of a datagram before any other work. \
         Over TCP it cannot, because it has to find the end of each message first. Both drop new requests other than BYEs when \
         the queue of the pool is too long, with the processor below 40 %. The paper gives the curve over UDP only as a plot.\n\n\
         | | UDP: sorted by the first line | persistent TCP: not sorted |\n|---|---:|---:|\n\
         | paper: calls/s without a loss | 900 | 700 |\n\
         | paper: calls that succeed above that | falls gradually | 7 % (93 % dropped) |\n\
         | paper: REGISTERs/s without a loss | 5,300 | 4,100 (with open 3,300, a connection each 2,900) |\n\
         | paper: REGISTERs that are dropped above that | 10 to 28 % | 83 % |\n\
         | paper: reading and sorting one message | 0.016 ms | 0.068 ms |\n",
    );
    let capacity = |contender, mode| maybe(results.capacity(contender, mode), 0);
    for contender in Contender::ALL {
        if results.capacity(contender, Mode::Udp).is_none() && results.capacity(contender, Mode::Tcp).is_none() {
            continue;
        }
        if contender.is_searched() && contender != Contender::Plain {
            let (udp, tcp) = (capacity(contender, Mode::Udp), capacity(contender, Mode::Tcp));
            let _ = writeln!(text, "| {contender}: capacity, calls/s | {udp} | {tcp} |");
        }
        let mut times = results.times(Mode::Udp);
        times.retain(|times| *times >= 2.0);
        for times in times {
            let at = |mode| maybe(results.load(contender, mode, times).map(LoadResult::goodput_percent), 1);
            let (udp, tcp) = (at(Mode::Udp), at(Mode::Tcp));
            let _ = writeln!(text, "| {contender}: goodput at {times}×, % of the capacity | {udp} | {tcp} |");
        }
    }
}

/// Writes the goals and whether they are met.
fn goals(results: &Results, text: &mut String) {
    let mut rows = Vec::new();
    let ours = Contender::Control;
    for (times, udp, tcp) in GOALS {
        for (mode, goal) in [(Mode::Udp, udp), (Mode::Tcp, tcp)] {
            let Some(one) = results.load(ours, mode, times) else { continue };
            let name = mode.name();
            rows.push((format!("goodput at {times}×, {name}, %"), at_least(goal), one.goodput_percent(), true));
            if let Some(byes) = one.outcome.byes {
                rows.push((format!("BYEs answered at {times}×, {name}, %"), at_least(GOAL_BYES), byes, true));
            }
            if let Some(p99) = one.outcome.p99_ms {
                rows.push((format!("setup p99 at {times}×, {name}, ms"), at_most(GOAL_P99_MS), p99, false));
            }
        }
    }
    for one in floods(results, ours) {
        let Some(kind) = one.kind else { continue };
        rows.push((format!("calls during {kind}, %"), at_least(GOAL_INNOCENT), one.calls.carried, true));
        rows.push((format!("bytes back, {kind}"), at_most(GOAL_AMPLIFICATION), one.tally.amplification(), false));
    }
    for one in results.reflections.iter().filter(|one| one.contender == ours) {
        for (kind, tally) in &one.kinds {
            let what = format!("bytes back until the timers end, {kind}");
            rows.push((what, at_most(GOAL_AMPLIFICATION), tally.amplification(), false));
        }
    }
    for one in results.steps.iter().filter(|one| one.contender == ours) {
        let recovery = one.recovery_s().unwrap_or(f64::INFINITY);
        rows.push(("full service after a step, s".to_owned(), at_most(GOAL_RECOVERY_S), recovery, false));
    }
    if let Some(percent) = median_percent(&results.costs) {
        rows.push(("cost of control at saturation, %".to_owned(), at_most(GOAL_COST), percent, false));
    }
    if rows.is_empty() {
        return;
    }
    text.push_str("\n## Goals of Strowger\n\n| | goal | measured | |\n|---|---:|---:|---|\n");
    for (what, (limit, goal), value, is_least) in rows {
        let holds = if is_least { value >= limit } else { value <= limit };
        let _ = writeln!(text, "| {what} | {goal} | {value:.2} | {} |", if holds { "yes" } else { "**no**" });
    }
}

fn at_least(limit: f64) -> (f64, String) {
    (limit, format!("≥ {limit}"))
}

fn at_most(limit: f64) -> (f64, String) {
    (limit, format!("≤ {limit}"))
}

fn maybe(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

/// Describes the settings of Kamailio's own limits for the page.
#[must_use]
pub fn limits() -> String {
    format!(
        "`ratelimit` with TAILDROP for INVITEs at {LIMIT_PERCENT:.0} % of the measured capacity (of twice that where each call \
         has one INVITE without and one with credentials), and 503 with Retry-After above it; in floods also `pike` at 60 requests \
         of one source in 2 s, four times the rate of an innocent caller. Of the module's algorithms, FEEDBACK uses the load of \
         the whole machine and NETWORK the queues of all its sockets, which do not reflect a server limited to a share of a core."
    )
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::some;
    use super::*;

    #[test]
    fn the_page_starts_with_the_summary() {
        let text = summary(&some());
        assert!(text.contains("| Strowger | 90.0 % at 10× | 97.0 % (malformed) | 0.0 s |"), "{text}");
        assert_eq!(text.lines().count(), 6);
    }

    #[test]
    fn missed_goals_are_marked() {
        let text = all(&some());
        assert!(text.contains("| goodput at 10×, UDP, % | ≥ 90 | 90.00 | yes |"), "{text}");
        assert!(!text.contains("goodput at 10×, TCP"), "not measured");
        assert!(
            text.contains("| Kamailio, its own limits | 10× | 9000 | 810 | 90.0 | 90.0 | 99.950 | 3.0 | – |"),
            "{text}"
        );
        let mut results = some();
        results.loads.iter_mut().for_each(|one| one.outcome.goodput *= 0.5);
        assert!(all(&results).contains("| goodput at 10×, UDP, % | ≥ 90 | 45.00 | **no** |"));
    }

    #[test]
    fn no_data_gives_no_table() {
        let text = all(&Results::default());
        assert!(!text.contains("## Floods") && !text.contains("## Goodput") && text.contains("## Beside the paper"));
    }
}
