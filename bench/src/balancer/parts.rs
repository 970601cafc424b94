//! Where a balancer's instructions go, by callgrind: of each part of the program its own, and all that the choice of a target makes
//! others do. The difference between two runs of unlike length, so that what a start and an end cost is not in it.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::setting::{Contender, Layout, More};
use super::{BALANCER, DOMAIN, ITS, cluster, peer};
use crate::callgrind;

/// T1 of ours, in milliseconds; a transaction lives 64 times as long. The steps that it takes are the same ones.
const T1_MS: u32 = 200;
/// Going on at once.
const AT_ONCE: &str = "16";
/// Among so many targets.
const TARGETS: u16 = 8;

/// User instructions for each call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// Of each part of the program, its own.
    pub own: BTreeMap<String, f64>,
    /// Of the module that chooses targets, with all that it has others do.
    pub choice: f64,
}

impl Parts {
    /// Of all parts.
    #[must_use]
    pub fn all(&self) -> f64 {
        self.own.values().sum()
    }

    fn add(&mut self, other: &Self) {
        for (part, count) in &other.own {
            *self.own.entry(part.clone()).or_default() += count;
        }
        self.choice += other.choice;
    }

    /// For each of `calls` calls that this has more than `fewer`.
    fn each(&self, fewer: &Self, calls: f64) -> Self {
        let of = |part: &String, count: f64| (count - fewer.own.get(part).copied().unwrap_or(0.0)) / calls;
        let own = self.own.iter().map(|(part, count)| (part.clone(), of(part, *count)));
        // What is only done by the clock differs a little between runs.
        Self { own: own.filter(|(_, count)| *count >= 0.5).collect(), choice: (self.choice - fewer.choice) / calls }
    }
}

/// How much is counted.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Calls in the short run, and in the long one.
    pub calls: (u32, u32),
    /// How long each run lasts, from the server's first answer: longer than transactions live.
    pub lasts: Duration,
}

impl Counts {
    /// Enough that a hundredth shows.
    pub const USUAL: Self = Self { calls: (500, 2_500), lasts: Duration::from_secs(20) };
    /// To see that it works. Transactions do not end in it.
    pub const QUICK: Self = Self { calls: (50, 150), lasts: Duration::from_secs(1) };
}

/// Counts for a balancer.
///
/// # Errors
/// When there is no valgrind, or a run fails.
pub fn count(binary: &Path, contender: Contender, counts: Counts) -> Result<Parts, String> {
    let (few, many) = counts.calls;
    let short = total(binary, contender, few, counts.lasts)?;
    let long = total(binary, contender, many, counts.lasts)?;
    Ok(long.each(&short, f64::from(many - few)))
}

fn total(binary: &Path, contender: Contender, calls: u32, lasts: Duration) -> Result<Parts, String> {
    let folder = tempfile::Builder::new().prefix("strowger-callgrind-").tempdir().map_err(|error| error.to_string())?;
    let layout = Layout::equal(TARGETS);
    let group = cluster::Group { addresses: (0..TARGETS).map(super::target).collect(), service_time: None };
    let _targets = cluster::Answering::start(binary, folder.path(), &group, 1)?;
    let counting = callgrind::before(folder.path());
    let before: Vec<&str> = ["taskset", "-c", ITS].into_iter().chain(counting.iter().map(String::as_str)).collect();
    let more = More { t1_ms: T1_MS, ..More::default() };
    let mut server = peer::start(contender, (binary, folder.path()), layout, &more, &before)?;
    let begun = Instant::now();
    let mut load = Command::new(binary);
    load.args(["load", "run", "--to", &format!("udp:{BALANCER}"), "--quiet", "--no-watch", "--no-retransmissions"]);
    load.args(["--callee", "there", "--domain", DOMAIN, "--users", "100"]);
    load.args(["--outstanding", AT_ONCE, "-m", &calls.to_string()]);
    let output = load.stdin(Stdio::null()).output().map_err(|error| format!("{load:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("the load failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    server.check()?;
    thread::sleep(lasts.saturating_sub(begun.elapsed()));
    server.stop()?;
    let mut sum = Parts::default();
    for file in callgrind::files(folder.path())? {
        sum.add(&read(&file));
    }
    if sum.own.is_empty() {
        return Err("callgrind left no counts".to_owned());
    }
    Ok(sum)
}

/// Names that callgrind writes once, and later by their number only.
#[derive(Debug, Default)]
struct Names<'a>(HashMap<&'a str, &'a str>);

impl<'a> Names<'a> {
    /// The name in `(12) name`, or the known one of `(12)`.
    fn read(&mut self, text: &'a str) -> &'a str {
        let Some((number, name)) = text.split_once(')').filter(|_| text.starts_with('(')) else { return text };
        if name.is_empty() {
            return self.0.get(number).copied().unwrap_or("???");
        }
        let name = name.trim();
        self.0.insert(number, name);
        name
    }
}

/// Where a line of counts is.
#[derive(Clone, Copy, Debug, Default)]
struct Place<'a> {
    object: &'a str,
    file: &'a str,
    function: &'a str,
}

impl Place<'_> {
    /// The part of the program: a crate or a module.
    fn part(self) -> String {
        let within = |folder: &str| self.file.split_once(folder).map(|(_, rest)| rest);
        if let Some(rest) = within("crates/core/").or(within("crates/shell/")).or(within("crates/tools/")) {
            return rest.split('/').next().unwrap_or(rest).to_owned();
        }
        if within("bin/strowger/").is_some() {
            return "strowger".to_owned();
        }
        if within("/rustc/").is_some() || within("/library/").is_some() {
            return "Rust's library".to_owned();
        }
        if let Some(rest) = within("/registry/src/") {
            let name = rest.split('/').nth(1).unwrap_or(rest);
            return name.rsplit_once('-').map_or(name, |(name, _)| name).to_owned();
        }
        self.object.rsplit('/').next().unwrap_or(self.object).to_owned()
    }

    /// Whether the function is of the module that chooses targets.
    fn is_choice(self) -> bool {
        self.function.contains("strowger_balancer") || self.object.ends_with("/dispatcher.so")
    }
}

/// Reads what callgrind has written.
fn read(text: &str) -> Parts {
    let (mut objects, mut files, mut functions) = (Names::default(), Names::default(), Names::default());
    let (mut here, mut called) = (Place::default(), Place::default());
    let mut is_call = false;
    let mut parts = Parts::default();
    for line in text.lines() {
        if let Some((key, value)) = line.split_once('=') {
            match key {
                "ob" => here.object = objects.read(value),
                "fl" | "fi" | "fe" => here.file = files.read(value),
                "fn" => here.function = functions.read(value),
                "cob" => called.object = objects.read(value),
                "cfi" | "cfl" => called.file = files.read(value),
                "cfn" => called.function = functions.read(value),
                "calls" => is_call = true,
                _ => {}
            }
            continue;
        }
        if !line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
            continue;
        }
        let count: f64 = line.split_ascii_whitespace().nth(1).and_then(|count| count.parse().ok()).unwrap_or(0.0);
        if std::mem::take(&mut is_call) {
            // What the called function and all below it took. Without an object it is the caller's.
            if called.object.is_empty() {
                called.object = here.object;
            }
            if called.is_choice() && !here.is_choice() {
                parts.choice += count;
            }
            called = Place::default();
            continue;
        }
        let part = here.part();
        // What was put into its callers by the compiler; the rest of it is in what its callers say of it.
        if part == "balancer" && !here.is_choice() {
            parts.choice += count;
        }
        *parts.own.entry(part).or_default() += count;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "# callgrind format\nversion: 1\npositions: line\nevents: Ir\n\nob=(1) /x/strowger\n\
        fl=(1) /src/crates/core/shard/src/way.rs\nfn=(1) strowger_shard::way::decide\n16 20\nfi=(2) \
        /src/crates/core/balancer/src/set.rs\n+3 5\nfe=(1)\ncfi=(2)\ncfn=(2) strowger_balancer::set::Set::order\n\
        calls=2 50\n17 400\n-1 1\n\nfl=(2)\nfn=(2)\n50 100\ncob=(2) /lib/libc.so.6\ncfi=(3) ???\ncfn=(3) memcpy\ncalls=1 0\n\
        * 300\n\nob=(2)\nfl=(3)\nfn=(3)\n0 300\n\nob=(1)\nfl=(4) /h/.cargo/registry/src/index-1/hash-brown-0.1.2/src/a.rs\n\
        fn=(4) go\n1 7\n\ntotals: 833\n";

    #[test]
    fn every_part_has_its_own_and_the_choice_all_that_it_causes() {
        let parts = read(OURS);
        let of = |part: &str| parts.own.get(part).copied();
        assert_eq!(of("shard"), Some(21.0), "{parts:?}");
        assert_eq!(of("balancer"), Some(105.0));
        assert_eq!((of("libc.so.6"), of("hash-brown")), (Some(300.0), Some(7.0)));
        assert_eq!(parts.all(), 433.0);
        assert_eq!(parts.choice, 405.0, "the called function with memcpy, and what was put into its caller");
    }

    #[test]
    fn a_module_is_the_part_where_no_source_is_known() {
        let text = "positions: line\nevents: Ir\nob=(1) /usr/lib/dispatcher.so\nfl=(1) ???\nfn=(1) ds_select_dst\n0 10\n\
            cob=(2) /usr/sbin/kamailio\ncfn=(2) parse_headers\ncalls=1 0\n0 90\nob=(2)\nfn=(2)\n0 90\n\
            fn=(3) do_action\n0 4\ncob=(1)\ncfn=(1)\ncalls=1 0\n0 100\n";
        let parts = read(text);
        assert_eq!((parts.own.get("dispatcher.so"), parts.own.get("kamailio")), (Some(&10.0), Some(&94.0)));
        assert_eq!(parts.choice, 100.0);
    }

    #[test]
    fn what_a_start_costs_is_not_in_it() {
        let of = |count: f64, choice: f64| Parts { own: [("shard".to_owned(), count)].into(), choice };
        assert_eq!(of(5_000.0, 900.0).each(&of(1_000.0, 100.0), 10.0), of(400.0, 80.0));
    }
}
