//! Comparison of all policies under several loads, as a table for readers.

use core::ops::Range;

use super::{Cpu, Outcome, PROMPT, Phase, Policy, Second, Setup, run};

/// Loads as multiples of the capacity.
const LOADS: [f64; 4] = [1.0, 2.0, 5.0, 10.0];
/// Start of the load, its end, and the end of the run, in seconds. Before and after the load, half the capacity is
/// offered.
const BEGINS: usize = 5;
const ENDS: usize = 50;
const OVER: usize = 80;
/// Seconds in which goodput is measured.
const MEASURED: Range<usize> = 20..ENDS;
/// Share of the capacity that prompt calls must reach, in each of `CONTROLLED_S` consecutive seconds, for a load to
/// be under control.
const CONTROLLED: f64 = 0.85;
const CONTROLLED_S: usize = 5;

const COLUMNS: &str = "\
load  policy          goodput      in 1 s  set-up p50     p99      BYEs  control  recovery     503s  datagrams dropped by
                      calls/s    %      %      ms          ms  answered        s         s     sent  overflow   filter controller";

/// Runs every policy under every load and passes each line of the table to `print`.
pub fn compare(seed: u64, capacity: u32, cpu: Cpu, mut print: impl FnMut(&str)) {
    print(&format!(
        "One worker that carries {capacity} calls/s; its processor runs for {} of each {} ms; seed {seed}.\n\
         Half the capacity is offered, from second {BEGINS} to {ENDS} the load, then half the capacity again.\n\
         Goodput: calls that are answered within 32 s, or within {} s, and ended by a BYE that is answered, as a share of the\n\
         capacity. Set-up: from the first INVITE to the 200. Both are of seconds {} to {}.\n\
         Control: seconds from the begin of the load until prompt calls take {:.0} % of the capacity for good, - for never.\n\
         Recovery: seconds from its end until every call is served. The rest is of the whole run.\n",
        cpu.slice.as_millis(),
        cpu.period.as_millis(),
        PROMPT.as_secs(),
        MEASURED.start,
        MEASURED.end,
        CONTROLLED * 100.0,
    ));
    print(COLUMNS);
    for times in LOADS {
        for policy in Policy::ALL {
            print(&line(times, capacity, &run(&Setup { cpu, ..Setup::new(seed, policy, capacity, phases(times)) })));
        }
        print("");
    }
}

fn phases(times: f64) -> Vec<Phase> {
    [(BEGINS, 0.5), (ENDS - BEGINS, times), (OVER - ENDS, 0.5)]
        .map(|(seconds, times)| Phase::new(seconds as u64, times))
        .to_vec()
}

fn line(times: f64, capacity: u32, outcome: &Outcome) -> String {
    let (policy, goodput) = (outcome.policy.as_str(), outcome.goodput(MEASURED));
    let prompt = outcome.prompt_goodput(MEASURED);
    let [p50, p99] = [500, 990].map(|permille| outcome.setup_time(MEASURED, permille).as_millis());
    let seconds = |found: Option<usize>| found.map_or("-".to_owned(), |seconds| seconds.to_string());
    let (control, recovery) = (seconds(controlled_after(outcome)), seconds(recovered_after(&outcome.seconds)));
    let drops = &outcome.drops;
    format!(
        "{times:>3}x  {policy:<14} {:>8.0} {:>5.1} {:>6.1} {p50:>7} {p99:>11} {:>9.2} {control:>8} {recovery:>9} {:>8} {:>9} {:>8} {:>10}",
        goodput * f64::from(capacity),
        goodput * 100.0,
        prompt * 100.0,
        outcome.byes_answered_share() * 100.0,
        outcome.refusals_sent,
        drops.overflow_in_progress + drops.overflow_new_work,
        drops.filter,
        drops.controller
    )
}

/// Returns the seconds from the start of the load until it is under control.
fn controlled_after(outcome: &Outcome) -> Option<usize> {
    let is_controlled = |begin: &usize| outcome.prompt_goodput(*begin..begin + CONTROLLED_S) >= CONTROLLED;
    let begins = BEGINS..=ENDS - CONTROLLED_S;
    match begins.rev().find(|begin| !is_controlled(begin)) {
        None => Some(0),
        Some(last) if last == ENDS - CONTROLLED_S => None,
        Some(last) => Some(last + 1 - BEGINS),
    }
}

/// Returns the seconds from the end of the load until all calls that start later are served.
fn recovered_after(seconds: &[Second]) -> Option<usize> {
    let is_served = |second: &&Second| second.good_of_offered == second.offered && second.offered > 0;
    let after = seconds.get(ENDS..OVER)?;
    let served = after.iter().rev().take_while(is_served).count();
    (served > 0).then(|| after.len() - served)
}
