//! Counts a server's instructions with callgrind: per part of the program its own instructions, and the inclusive
//! count of target selection. Takes the difference between a long and a short run to exclude start and end. Both runs
//! last equally long, which also excludes work driven by the clock, and longer than transactions live, which includes
//! the end of transactions.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Share below which parts are summed up as one.
const SMALL: f64 = 0.02;
/// Number of functions to list.
const NAMED: usize = 12;
/// glibc copies or clears long ranges with one repeated instruction, which callgrind counts once per byte. These
/// tunables make it use loops for all lengths.
const TUNABLES: &str =
    "GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=0x40000000:glibc.cpu.x86_rep_stosb_threshold=0x40000000";

/// User-mode instructions per unit of work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// Own instructions of each part of the program.
    pub own: BTreeMap<String, f64>,
    /// Own instructions of each function, by its part's name and its own.
    pub functions: BTreeMap<String, f64>,
    /// Inclusive instructions of the module that selects a balancer's targets.
    pub choice: f64,
}

impl Parts {
    /// Returns the sum of all parts.
    #[must_use]
    pub fn all(&self) -> f64 {
        self.own.values().sum()
    }

    /// Returns each large part with its share, the largest first.
    #[must_use]
    pub fn shares(&self) -> String {
        self.said(&self.own, |_, count| count >= SMALL * self.all())
    }

    /// Returns the largest functions, each with its share of the total.
    #[must_use]
    pub fn most(&self) -> String {
        self.said(&self.functions, |at, _| at < NAMED)
    }

    /// Lists `counts`, the largest first, for which `is_named` holds for rank and count; the others are summed up as
    /// one.
    fn said(&self, counts: &BTreeMap<String, f64>, is_named: impl Fn(usize, f64) -> bool) -> String {
        let percent = |count: f64| 100.0 * count / self.all();
        let mut counts: Vec<_> = counts.iter().map(|(name, count)| (name, *count)).collect();
        counts.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let named = counts.iter().enumerate().take_while(|(at, (_, count))| is_named(*at, *count)).count();
        let named = &counts[..named];
        let rest = self.all() - named.iter().map(|(_, count)| count).sum::<f64>();
        let said: Vec<String> = named.iter().map(|(name, count)| format!("{name} {:.1} %", percent(*count))).collect();
        format!("{}, the rest {:.1} %", said.join(", "), percent(rest))
    }

    fn add(&mut self, other: &Self) {
        for (ours, theirs) in [(&mut self.own, &other.own), (&mut self.functions, &other.functions)] {
            for (name, count) in theirs {
                *ours.entry(name.clone()).or_default() += count;
            }
        }
        self.choice += other.choice;
    }

    /// Returns the difference to `fewer`, per unit.
    fn each(&self, fewer: &Self, units: f64) -> Self {
        let of = |counts: &BTreeMap<String, f64>, before: &BTreeMap<String, f64>| {
            let of = |(name, count): (&String, &f64)| {
                (name.clone(), (count - before.get(name).copied().unwrap_or(0.0)) / units)
            };
            // Work driven by the clock differs slightly between runs.
            counts.iter().map(of).filter(|(_, count)| *count >= 0.5).collect()
        };
        let choice = (self.choice - fewer.choice) / units;
        Self { own: of(&self.own, &fewer.own), functions: of(&self.functions, &fewer.functions), choice }
    }
}

/// Extent of a count.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Units of work in the short run.
    pub few: u32,
    /// Units of work in the long run.
    pub many: u32,
    /// Duration of each run from the server's first answer.
    pub lasts: Duration,
}

impl Counts {
    /// Default extent, with a resolution of one percent.
    pub const USUAL: Self = Self { few: 500, many: 2_500, lasts: Duration::from_secs(20) };
    /// Extent for a smoke test. Transactions do not end within it.
    pub const QUICK: Self = Self { few: 50, many: 150, lasts: Duration::from_secs(1) };
}

/// Counts instructions per unit of work. `total` runs the given number of units and returns the totals.
///
/// # Errors
/// If a run fails.
pub fn count(counts: Counts, total: impl Fn(u32) -> Result<Parts, String>) -> Result<Parts, String> {
    let Counts { few, many, .. } = counts;
    let short = total(few)?;
    let long = total(many)?;
    Ok(long.each(&short, f64::from(many.saturating_sub(few))))
}

/// Returns the command prefix that makes each process of a server write its counts to `folder`.
#[must_use]
pub fn before(folder: &Path) -> [String; 6] {
    let counts = format!("--callgrind-out-file={}", folder.join("counts.%p").display());
    ["env", TUNABLES, "valgrind", "--tool=callgrind", "--quiet", &counts].map(str::to_owned)
}

/// Returns the combined counts of all processes.
///
/// # Errors
/// If there are no counts, or a file cannot be read.
pub fn parts(folder: &Path) -> Result<Parts, String> {
    let files = fs::read_dir(folder).map_err(|error| error.to_string())?.flatten();
    let files = files.filter(|file| file.file_name().to_string_lossy().starts_with("counts."));
    let mut sum = Parts::default();
    for file in files {
        sum.add(&read(&fs::read_to_string(file.path()).map_err(|error| error.to_string())?));
    }
    if sum.own.is_empty() { Err("callgrind left no counts".to_owned()) } else { Ok(sum) }
}

/// Names that callgrind writes in full once and by number afterwards.
#[derive(Debug, Default)]
struct Names<'a>(HashMap<&'a str, &'a str>);

impl<'a> Names<'a> {
    /// Returns the name in `(12) name`, or the known name of `(12)`.
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

/// Location that a line of counts belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Place<'a> {
    object: &'a str,
    file: &'a str,
    function: &'a str,
}

impl<'a> Place<'a> {
    /// Returns the part of the program: the function's crate, including code inlined from other crates; for code
    /// other than Rust, the library or module.
    fn part(self) -> &'a str {
        if self.function.contains("::") {
            let path = self.function.trim_start_matches(|c: char| !c.is_alphabetic());
            let name = path.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(path);
            return match name.strip_prefix("strowger_").unwrap_or(name) {
                "core" | "alloc" | "std" => "Rust's library",
                name => name,
            };
        }
        if let Some((_, rest)) = self.file.split_once("/registry/src/") {
            let name = rest.split('/').nth(1).unwrap_or(rest);
            return name.rsplit_once('-').map_or(name, |(name, _)| name);
        }
        self.object.rsplit('/').next().unwrap_or(self.object)
    }

    /// Returns the part's name and the function's name, with its type but without its modules.
    fn name(self) -> String {
        let mut depth = 0_usize;
        let mut plain = String::new();
        // An arrow is not a bracket.
        for letter in self.function.replace("->", "").chars() {
            match letter {
                '<' => depth += 1,
                '>' => depth = depth.saturating_sub(1),
                _ if depth == 0 => plain.push(letter),
                _ => {}
            }
        }
        let mut path: Vec<&str> = plain.split("::").filter(|part| !part.is_empty() && !part.starts_with('{')).collect();
        let last = path.pop().unwrap_or(self.function);
        let owner = path.pop().filter(|owner| owner.starts_with(char::is_uppercase));
        let name = owner.map_or_else(|| last.to_owned(), |owner| format!("{owner}::{last}"));
        format!("{} `{name}`", self.part())
    }

    /// Returns whether the function is in the module that selects targets.
    fn is_choice(self) -> bool {
        self.function.contains("strowger_balancer") || self.object.ends_with("/dispatcher.so")
    }

    /// Returns whether the code is from that module but inlined into a function of another.
    fn is_inlined_choice(self) -> bool {
        self.file.contains("crates/core/balancer/") && !self.is_choice()
    }
}

/// Parses a callgrind output file.
fn read(text: &str) -> Parts {
    let (mut objects, mut files, mut functions) = (Names::default(), Names::default(), Names::default());
    let (mut here, mut called) = (Place::default(), Place::default());
    let mut is_call = false;
    let mut parts = Parts::default();
    let mut own: HashMap<Place<'_>, f64> = HashMap::new();
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
            // Inclusive cost of the called function. Without an object name it is in the caller's object.
            if called.object.is_empty() {
                called.object = here.object;
            }
            if called.is_choice() && !here.is_choice() {
                parts.choice += count;
            }
            called = Place::default();
            continue;
        }
        // Code that the compiler inlined into callers. The rest is in the callers' inclusive costs.
        if here.is_inlined_choice() {
            parts.choice += count;
        }
        *own.entry(here).or_default() += count;
    }
    for (place, count) in own {
        *parts.own.entry(place.part().to_owned()).or_default() += count;
        *parts.functions.entry(place.name()).or_default() += count;
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
        fn=(4) go\n1 7\n\nfn=(5) <alloc::vec::Vec<strowger_shard::X> as core::ops::Drop>::drop\n1 3\n\n\
        fn=(6) strowger_transaction::client::<impl strowger_transaction::layer::Transactions>::apply\n1 2\n\n\
        fn=(7) strowger_message::peek::Peek::fill\n1 1\n\ntotals: 839\n";

    #[test]
    fn parts_count_their_own_cost_and_the_choice_its_callees() {
        let parts = read(OURS);
        let of = |part: &str| parts.own.get(part).copied();
        assert_eq!(of("shard"), Some(26.0), "with what was put into it: {parts:?}");
        assert_eq!(of("balancer"), Some(100.0));
        assert_eq!((of("libc.so.6"), of("hash-brown"), of("Rust's library")), (Some(300.0), Some(7.0), Some(3.0)));
        assert_eq!(parts.all(), 439.0);
        let of = |function: &str| parts.functions.get(function).copied();
        assert_eq!((of("shard `decide`"), of("Rust's library `drop`")), (Some(26.0), Some(3.0)), "{parts:?}");
        assert_eq!((of("transaction `apply`"), of("message `Peek::fill`")), (Some(2.0), Some(1.0)));
        assert_eq!(parts.choice, 405.0, "the called function with memcpy, and what was put into its caller");
    }

    #[test]
    fn without_sources_the_module_is_the_part() {
        let text = "positions: line\nevents: Ir\nob=(1) /usr/lib/dispatcher.so\nfl=(1) ???\nfn=(1) ds_select_dst\n0 10\n\
            cob=(2) /usr/sbin/kamailio\ncfn=(2) parse_headers\ncalls=1 0\n0 90\nob=(2)\nfn=(2)\n0 90\n\
            fn=(3) do_action\n0 4\ncob=(1)\ncfn=(1)\ncalls=1 0\n0 100\n";
        let parts = read(text);
        assert_eq!((parts.own.get("dispatcher.so"), parts.own.get("kamailio")), (Some(&10.0), Some(&94.0)));
        assert_eq!(parts.choice, 100.0);
    }

    #[test]
    fn startup_cost_is_subtracted() {
        let of =
            |count: f64, choice: f64| Parts { own: [("shard".to_owned(), count)].into(), choice, ..Parts::default() };
        assert_eq!(of(5_000.0, 900.0).each(&of(1_000.0, 100.0), 10.0), of(400.0, 80.0));
    }
}
