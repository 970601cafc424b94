//! The tables of `bench/CLUSTER.md`.

use std::fmt::Write as _;

use super::contender::Contender;
use super::rates::{PaceResult, RateResult};
use super::results::Results;

/// Required rate of a member, as a share of a single server's rate.
const GOAL_SHARE: f64 = 0.5;
/// Required 99th percentile of the propagation time at [`GOAL_RATE`].
const GOAL_PROPAGATION_MS: f64 = 100.0;
/// REGISTERs per second of the propagation goal.
pub const GOAL_RATE: u32 = 5_000;
/// Required start time of a new member with [`GOAL_BINDINGS`] registrations, in seconds.
const GOAL_WARM_S: f64 = 5.0;
/// Number of registrations of the start goal.
const GOAL_BINDINGS: u64 = 1_000_000;
/// Allowed additional memory per registration compared with a single server, in bytes.
const GOAL_BYTES: f64 = 40.0;
/// Allowed change of the 99th percentile from INVITE to 180, in milliseconds.
const GOAL_MOVED_MS: f64 = 1.0;
/// Duration of the freeze for that goal, in seconds.
const GOAL_FROZEN_S: f64 = 60.0;
/// Required time of the 503 to a REGISTER that cannot be stored, in milliseconds, give or take a round.
const GOAL_503_MS: (f64, f64) = (1_900.0, 2_300.0);

/// A goal, the measured value, and whether it is met; only at the load that the goal is for.
struct Goal {
    what: String,
    found: String,
    is_met: bool,
    is_at_load: bool,
}

/// Returns the table of goals and measured values.
#[must_use]
pub fn summary(results: &Results) -> String {
    let all =
        [share(results), propagation(results), warm(results), memory(results), calls(results), registers(results)];
    let goals: Vec<Goal> = all.into_iter().flatten().collect();
    if goals.is_empty() {
        return String::new();
    }
    let mut text = "| goal, with Redis (200 means engine and disk) | measured | |\n|---|---|---|\n".to_owned();
    for goal in goals {
        let said = match (goal.is_met, goal.is_at_load) {
            (true, true) => "met",
            (false, true) => "**missed**",
            (true, false) => "met, at a load below the goal's",
            (false, false) => "**missed**, at a load below the goal's",
        };
        let _ = writeln!(text, "| {} | {} | {said} |", goal.what, goal.found);
    }
    text
}

fn share(results: &Results) -> Option<Goal> {
    let (alone, shared) = (results.full_rate(Contender::Alone)?, results.full_rate(Contender::Redis)?);
    let own = 100.0 * results.own_share(Contender::Redis)?;
    Some(Goal {
        what: "A member keeps ≥ 50 % of its rate alone, write-through".to_owned(),
        found: format!(
            "{shared:.0} of {alone:.0} REGISTERs a second, {:.0} %, with \
             Redis on the same core; {own:.0} % by the member's own CPU time",
            100.0 * shared / alone
        ),
        is_met: shared >= GOAL_SHARE * alone,
        is_at_load: true,
    })
}

fn propagation(results: &Results) -> Option<Goal> {
    let found = results.propagated(Contender::Redis, GOAL_RATE)?;
    let (middle, most) = (found.at(0.5)?, found.at(0.99)?);
    Some(Goal {
        what: format!("The other server finds a phone after ≤ 100 ms (p99) at {GOAL_RATE} REGISTERs a second"),
        found: format!("{most:.1} ms, median {middle:.1} ms; {} of {} not found", found.missing, found.sample),
        is_met: most <= GOAL_PROPAGATION_MS && found.missing == 0,
        is_at_load: found.rate > 0.98 * f64::from(GOAL_RATE),
    })
}

fn warm(results: &Results) -> Option<Goal> {
    let found = results.joined(Contender::Redis)?;
    let warm = found.warm_s?;
    Some(Goal {
        what: "A new server serves within 5 s with 1,000,000 registrations".to_owned(),
        found: format!("{warm:.1} s with {}", found.bindings),
        is_met: warm <= GOAL_WARM_S && found.found == Some(found.bindings),
        is_at_load: found.bindings >= GOAL_BINDINGS,
    })
}

fn memory(results: &Results) -> Option<Goal> {
    let (alone, shared) = (results.joined(Contender::Alone)?, results.joined(Contender::Redis)?);
    let joined = shared.joined_bytes?;
    Some(Goal {
        what: "At the new server a registration takes ≤ 40 B more memory than alone".to_owned(),
        found: format!(
            "{:.0} B alone, {:.0} B where it registered, {joined:.0} B at a new server",
            alone.own_bytes, shared.own_bytes
        ),
        is_met: joined - alone.own_bytes <= GOAL_BYTES,
        is_at_load: shared.bindings >= GOAL_BINDINGS,
    })
}

fn calls(results: &Results) -> Option<Goal> {
    let found = results.frozen(Contender::Redis)?;
    let moved = found.during.p99_ms - found.before.p99_ms;
    Some(Goal {
        what: format!(
            "No call to a known phone fails while Redis is stopped, and INVITE to 180 changes by ≤ 1 ms (p99), {:.0} calls a second",
            found.rate
        ),
        found: format!(
            "{} of {} failed in {:.0} s; {:.2} ms before, {:.2} ms meanwhile",
            found.during.failed, found.during.begun, found.frozen_s, found.before.p99_ms, found.during.p99_ms
        ),
        is_met: found.during.failed == 0 && moved <= GOAL_MOVED_MS,
        is_at_load: found.frozen_s >= GOAL_FROZEN_S,
    })
}

fn registers(results: &Results) -> Option<Goal> {
    let found = results.frozen(Contender::Redis)?;
    let registers = found.registers;
    let (least, most) = (registers.least_ms?, registers.most_ms?);
    let in_time = least >= GOAL_503_MS.0 && most <= GOAL_503_MS.1;
    Some(Goal {
        what: "Meanwhile a REGISTER gets 503 after 2 s; when Redis continues, the queues drain and both servers agree"
            .to_owned(),
        found: format!(
            "{} of {}, after {:.2} to {:.2} s; drained {} s, equal {} s after Redis continues",
            registers.unavailable,
            registers.sent,
            least / 1e3,
            most / 1e3,
            maybe(found.drained_s, 1),
            maybe(found.same_s, 1)
        ),
        is_met: in_time
            && registers.unavailable == registers.sent
            && found.drained_s.is_some()
            && found.same_s.is_some(),
        is_at_load: found.frozen_s >= GOAL_FROZEN_S,
    })
}

/// Returns the tables of all parts that have results.
#[must_use]
pub fn all(results: &Results) -> String {
    [rates(results), propagated(results), joined(results), frozen(results)].concat()
}

fn maybe(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

/// Formats milliseconds of processor time per 1,000 REGISTERs; empty if the process did not exist.
fn cost(seconds: f64) -> String {
    if seconds > 0.0 { format!("{seconds:.4}") } else { "–".to_owned() }
}

fn rates(results: &Results) -> String {
    if results.rates.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\n## REGISTERs a second, and what they cost\n\n{RATES_SAID}\n\n\
         | at saturation | REGISTER/s | of alone | by its own CPU | p50 ms | p99 ms | CPU s for 1,000: server | engine | second server | replica | server's core | the other core | 503 | other | lost | first REGISTER/s | fdatasync ms |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
    );
    for one in &results.rates {
        let Some(full) = one.full() else { continue };
        let percent =
            |share: Option<f64>| share.map_or_else(|| "–".to_owned(), |share| format!("{:.0} %", 100.0 * share));
        let (of_alone, own) = (percent(results.share(one.contender)), percent(results.own_share(one.contender)));
        let _ = writeln!(
            text,
            "| {} | {:.0} | {of_alone} | {own} | {:.2} | {:.2} | {} | {:.0} | {:.2} |",
            one.contender,
            full.rate,
            full.p50_ms,
            full.p99_ms,
            spent(full),
            one.fill_rate,
            one.sync_ms
        );
    }
    let mut asked: Vec<u32> =
        results.rates.iter().flat_map(|one| one.paces.iter().filter_map(|pace| pace.asked)).collect();
    asked.sort_unstable();
    asked.dedup();
    asked.into_iter().rev().for_each(|rate| text.push_str(&at(&results.rates, rate)));
    text
}

const RATES_SAID: &str = "*Of alone* compares the rate with that of one server alone: Strowger with \
    write-through, or Kamailio with memory (0). *By its own CPU* compares the CPU \
    time of the server itself per REGISTER: it estimates the rate when the engine \
    has its own machine. Where *the other core* is near 1, the phones were the limit.";

/// Formats the resources used and the errors.
fn spent(pace: &PaceResult) -> String {
    let used = pace.cost;
    format!(
        "{} | {} | {} | {} | {:.2} | {:.2} | {} | {} | {}",
        cost(used.server),
        cost(used.engine),
        cost(used.follower),
        cost(used.replica),
        pace.server_core,
        pace.other_core,
        pace.unavailable,
        pace.others,
        pace.lost
    )
}

/// Returns the table of one rate.
fn at(rates: &[RateResult], rate: u32) -> String {
    let mut text = format!(
        "\n| at {rate} REGISTER/s | REGISTER/s | p50 ms | p99 ms | CPU s for 1,000: server | engine | second server | replica | server's core | the other core | 503 | other | lost |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
    );
    for one in rates {
        let _ = match one.at(rate) {
            Some(pace) => writeln!(
                text,
                "| {} | {:.0} | {:.2} | {:.2} | {} |",
                one.contender,
                pace.rate,
                pace.p50_ms,
                pace.p99_ms,
                spent(pace)
            ),
            None => writeln!(text, "| {} | cannot keep it |", one.contender),
        };
    }
    text
}

fn propagated(results: &Results) -> String {
    if results.propagation.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\n## When the other server knows\n\n![Times until the other server finds the phone](plots/cluster-propagation.svg)\n\n\
         Phones without a registration register at the first server. From the 200 on, the second server is queried every 0.5 ms for \
         the contact of every 25th phone until it responds with one; the time includes that query and its response. With DMQ and \
         with `disk`, the 200 does not wait for the engine. Kamailio with MariaDB alone (3) reads the database for each query.\n\n\
         | | asked/s | REGISTER/s | sample | not found in 5 s | p50 ms | p90 ms | p99 ms | p99.9 ms |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for one in &results.propagation {
        let times = [0.5, 0.9, 0.99, 0.999].map(|share| maybe(one.at(share), 2)).join(" | ");
        let _ = writeln!(
            text,
            "| {} | {} | {:.0} | {} | {} | {times} |",
            one.contender, one.asked, one.rate, one.sample, one.missing
        );
    }
    text
}

fn joined(results: &Results) -> String {
    if results.joining.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\n## A new server\n\nAll phones register at one server, then a second one is started. *Serves after* counts from the start of the program to \
         its first 200 to a REGISTER. Bytes per registration are private memory above that of an empty server, after the transactions have ended; at the \
         first server they include pages of the last checkpoint. The engine's bytes are the memory of all its processes and the growth of its files.\n\n\
         | | registrations | first REGISTER/s | serves after s | found | B each where it registered | B each at the new server | engine: B of memory each | B of files each |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for one in &results.joining {
        let found = one.found.map_or_else(|| "–".to_owned(), |found| found.to_string());
        let _ = writeln!(
            text,
            "| {} | {} | {:.0} | {} | {found} | {:.0} | {} | {} | {} |",
            one.contender,
            one.bindings,
            one.fill_rate,
            maybe(one.warm_s, 2),
            one.own_bytes,
            maybe(one.joined_bytes, 0),
            maybe(one.engine_bytes, 0),
            maybe(one.disk_bytes, 0)
        );
    }
    text
}

fn frozen(results: &Results) -> String {
    if results.frozen.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\n## A stopped engine\n\nCalls (INVITE, 180, 200, ACK, BYE, 200) go through the first server to phones registered there. \
         All processes of the engine are stopped with SIGSTOP and continued with SIGCONT at the end. Meanwhile ten other phones \
         a second register. *Same* is when both servers report equally many registrations; reports may lag by a second.\n\n\
         | | calls/s | stood still s | calls before | failed | INVITE→180 p50 ms | p99 ms | calls meanwhile | failed | p50 ms | p99 ms | REGISTERs | 200 | 503 | other | 503 after ms | first 200 after s | drained after s | same after s | registrations |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for one in &results.frozen {
        let calls = [one.before, one.during]
            .map(|calls| format!("{} | {} | {:.2} | {:.2}", calls.begun, calls.failed, calls.p50_ms, calls.p99_ms))
            .join(" | ");
        let registers = one.registers;
        let after = registers.least_ms.zip(registers.most_ms);
        let after = after.map_or_else(|| "–".to_owned(), |(least, most)| format!("{least:.0} to {most:.0}"));
        let _ = writeln!(
            text,
            "| {} | {:.0} | {:.0} | {calls} | {} | {} | {} | {} | {after} | {} | {} | {} | {} and {} |",
            one.contender,
            one.rate,
            one.frozen_s,
            registers.sent,
            registers.taken,
            registers.unavailable,
            registers.others,
            maybe(one.served_s, 1),
            maybe(one.drained_s, 1),
            maybe(one.same_s, 1),
            one.registrations[0],
            one.registrations[1]
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::some;
    use super::*;

    #[test]
    fn goals_say_whether_they_are_met() {
        let mut results = some();
        let text = summary(&results);
        assert_eq!(text.matches("| met |").count(), 6, "{text}");
        assert!(text.contains("78000 of 130000 REGISTERs a second, 60 %"), "{text}");
        results.rates[1].paces[0].rate = 60_000.0;
        results.propagation[0].missing = 1;
        results.joining[1].bindings = 10_000;
        results.frozen[0].during.failed = 3;
        let text = summary(&results);
        assert_eq!(text.matches("| **missed** |").count(), 3, "{text}");
        assert!(text.contains("**missed**, at a load below") && text.contains("| met, at a load below"), "{text}");
        assert_eq!(summary(&Results::default()), "");
    }

    #[test]
    fn every_row_has_the_columns_of_its_table() {
        let text = all(&some());
        let mut columns = 0;
        for line in text.lines() {
            match line.starts_with('|') {
                true if columns == 0 => columns = line.matches('|').count(),
                true => {
                    let is_short = line.ends_with("cannot keep it |");
                    assert!(is_short || line.matches('|').count() == columns, "{line}");
                }
                false => columns = 0,
            }
        }
        assert!(text.contains("## A new server") && text.contains("## A stopped engine"));
    }
}
