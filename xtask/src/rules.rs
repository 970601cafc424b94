//! Rules of the repository: allowed dependencies, and what is banned where. The other modules only check them.

/// Group of a crate. A crate may depend on crates of its own group and of earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    /// Crates for tests and benchmarks of any group.
    Measure,
    /// No I/O, no clock, no entropy, no async.
    Core,
    /// Side effects.
    Shell,
    /// Programs for working with the server.
    Tools,
    /// Binaries and tests; no crate depends on them.
    Leaf,
}

/// Rule for one crate of the workspace.
pub(crate) struct Rule {
    /// Package name.
    pub name: &'static str,
    /// Folder relative to the root.
    pub folder: &'static str,
    /// Group.
    pub group: Group,
    /// Allowed direct dependencies in the workspace, without `strowger-`.
    pub may: &'static [&'static str],
}

const fn rule(name: &'static str, folder: &'static str, group: Group, may: &'static [&'static str]) -> Rule {
    Rule { name, folder, group, may }
}

/// Expands to the crates of the core and the given ones.
macro_rules! core_and {
    ($($more:literal),*) => {
        &[
            "foundation",
            "message",
            "transaction",
            "auth",
            "ban",
            "directory",
            "registrar",
            "calls",
            "balancer",
            "locate",
            "trunk",
            "overload",
            "media",
            "proxy",
            "shard",
            $($more,)*
        ]
    };
}

const ALL_CORE: &[&str] = core_and![];
/// Allowed dependencies of the simulator: it replaces the shell except for the journal, which runs on a simulated
/// disk. It may compare results with the models.
const CORE_AND_JOURNAL: &[&str] = core_and!["journal", "plan"];
const ALL_FOR_BINARIES: &[&str] = core_and![
    "administration",
    "cluster",
    "files",
    "http",
    "kamailio",
    "metrics",
    "page",
    "sql",
    "net",
    "journal",
    "store",
    "control",
    "worker",
    "persistence",
    "traffic",
    "plan",
    "takeover",
    "telemetry",
    "timing",
    "tune",
    "watch"
];
/// Allowed dependencies of the alternative shells: the environment and reports of the other benchmarks, and the
/// timestamping socket to measure how long messages wait.
const CORE_AND_BENCHMARKS: &[&str] = core_and!["bench", "net"];
const FOR_BENCHMARKS: &[&str] = core_and![
    "net",
    "journal",
    "store",
    "control",
    "worker",
    "persistence",
    "traffic",
    "plan",
    "timing",
    "tune",
    "interop",
    "allocations"
];

/// Allowed dependencies of each crate. A crate without a line here is an error, so a new crate starts with one.
pub(crate) const CRATES: &[Rule] = &[
    rule("strowger-allocations", "crates/tools/allocations", Group::Measure, &[]),
    rule("strowger-foundation", "crates/core/foundation", Group::Core, &[]),
    rule("strowger-message", "crates/core/message", Group::Core, &["foundation"]),
    rule("strowger-ban", "crates/core/ban", Group::Core, &["foundation"]),
    rule("strowger-directory", "crates/core/directory", Group::Core, &["foundation"]),
    rule("strowger-balancer", "crates/core/balancer", Group::Core, &["foundation"]),
    rule("strowger-calls", "crates/core/calls", Group::Core, &["foundation", "message", "balancer"]),
    rule("strowger-locate", "crates/core/locate", Group::Core, &["foundation"]),
    rule("strowger-overload", "crates/core/overload", Group::Core, &["foundation"]),
    rule("strowger-media", "crates/core/media", Group::Core, &["foundation"]),
    rule("strowger-auth", "crates/core/auth", Group::Core, &["foundation", "message"]),
    rule("strowger-registrar", "crates/core/registrar", Group::Core, &["foundation", "message"]),
    rule("strowger-transaction", "crates/core/transaction", Group::Core, &["foundation", "message"]),
    rule("strowger-trunk", "crates/core/trunk", Group::Core, &["foundation", "message", "auth", "locate"]),
    rule(
        "strowger-proxy",
        "crates/core/proxy",
        Group::Core,
        &["foundation", "message", "locate", "transaction", "balancer", "overload"],
    ),
    rule("strowger-shard", "crates/core/shard", Group::Core, ALL_CORE),
    rule("strowger-members", "crates/core/members", Group::Core, &["foundation", "message", "registrar"]),
    rule("strowger-wire", "crates/core/wire", Group::Core, &[]),
    rule("strowger-net", "crates/shell/net", Group::Shell, &["foundation", "overload", "wire"]),
    rule("strowger-files", "crates/shell/files", Group::Shell, &[]),
    rule("strowger-http", "crates/shell/http", Group::Shell, &[]),
    rule(
        "strowger-administration",
        "crates/shell/administration",
        Group::Shell,
        &["control", "files", "http", "timing"],
    ),
    rule("strowger-page", "crates/shell/page", Group::Shell, &[]),
    rule("strowger-metrics", "crates/shell/metrics", Group::Shell, &["control", "foundation", "timing"]),
    rule("strowger-journal", "crates/shell/journal", Group::Shell, &["files", "foundation"]),
    rule("strowger-sql", "crates/shell/sql", Group::Shell, &[]),
    rule(
        "strowger-store",
        "crates/shell/store",
        Group::Shell,
        &["files", "foundation", "directory", "registrar", "sql"],
    ),
    rule("strowger-kamailio", "crates/shell/kamailio", Group::Shell, &["directory", "sql", "store"]),
    rule(
        "strowger-control",
        "crates/shell/control",
        Group::Shell,
        &[
            "foundation",
            "message",
            "transaction",
            "auth",
            "ban",
            "directory",
            "registrar",
            "locate",
            "trunk",
            "balancer",
            "overload",
            "media",
            "proxy",
            "shard",
            "sql",
            "store",
            "kamailio",
            "timing",
            "wire",
        ],
    ),
    rule("strowger-takeover", "crates/shell/takeover", Group::Shell, &["foundation", "worker"]),
    rule(
        "strowger-telemetry",
        "crates/shell/telemetry",
        Group::Shell,
        &["calls", "foundation", "message", "net", "worker"],
    ),
    rule("strowger-timing", "crates/shell/timing", Group::Shell, &["message"]),
    rule("strowger-tune", "crates/shell/tune", Group::Shell, &["net"]),
    rule("strowger-watch", "crates/shell/watch", Group::Shell, &["foundation", "balancer"]),
    rule(
        "strowger-worker",
        "crates/shell/worker",
        Group::Shell,
        &[
            "calls",
            "foundation",
            "message",
            "auth",
            "ban",
            "registrar",
            "locate",
            "trunk",
            "overload",
            "wire",
            "media",
            "shard",
            "net",
            "timing",
        ],
    ),
    rule(
        "strowger-persistence",
        "crates/shell/persistence",
        Group::Shell,
        &["foundation", "message", "registrar", "journal", "store", "worker"],
    ),
    rule(
        "strowger-cluster",
        "crates/shell/cluster",
        Group::Shell,
        &["auth", "foundation", "members", "registrar", "worker"],
    ),
    rule("strowger-plan", "crates/tools/plan", Group::Tools, &[]),
    rule("strowger-sim", "crates/tools/sim", Group::Tools, CORE_AND_JOURNAL),
    rule(
        "strowger-traffic",
        "crates/tools/traffic",
        Group::Tools,
        &["foundation", "message", "transaction", "auth", "net", "timing", "wire"],
    ),
    rule("strowger", "bin/strowger", Group::Leaf, ALL_FOR_BINARIES),
    rule("strowger-bench", "bench", Group::Tools, FOR_BENCHMARKS),
    rule("strowger-architectures", "bench/architectures", Group::Leaf, CORE_AND_BENCHMARKS),
    rule("strowger-interop", "interop", Group::Tools, &["media", "sql", "watch"]),
    rule("xtask", "xtask", Group::Leaf, &[]),
];

/// External crates that a core crate may depend on directly. They only compute and have no side effects.
pub(crate) const CORE_MAY_USE: &[&str] = &[
    "data-encoding",
    "foldhash",
    "hashbrown",
    "md-5",
    "memchr",
    "safe_arch",
    "sha1",
    "sha2",
    "siphasher",
    "slab",
    "smallvec",
];

/// Crates that a core crate may not depend on even indirectly: I/O, async, clocks, entropy.
pub(crate) const BANNED_BEHIND_CORE: &[&str] = &[
    "async-std",
    "chrono",
    "coarsetime",
    "crossbeam-channel",
    "fastrand",
    "futures",
    "getrandom",
    "hickory-resolver",
    "instant",
    "jiff",
    "libc",
    "log",
    "mio",
    "nix",
    "polling",
    "quanta",
    "rand",
    "rusqlite",
    "rustix",
    "signal-hook",
    "smol",
    "socket2",
    "sqlx",
    "time",
    "tokio",
    "tracing",
    "web-time",
    "windows-sys",
];

/// Exceptions: dependencies of external crates on banned ones, with the reason.
pub(crate) const EXCUSED: &[(&str, &str, &str)] =
    &[("cpufeatures", "libc", "asks once which instructions the processor has, on ARM only")];

/// Exceptions: files that import each other, with the reason.
pub(crate) const CIRCLES: &[(&[&str], &str)] = &[];

/// Folders in which `unsafe` is allowed. Counting allocations is impossible without it.
pub(crate) const UNSAFE_MAY_STAND_IN: &[&str] =
    &["crates/shell/net/", "crates/shell/timing/", "crates/tools/allocations/"];

/// Highest number of lines of a source file. The target is 600 without tests.
pub(crate) const MAX_LINES: usize = 1_000;

/// Bans that each core crate's `clippy.toml` must contain at least.
pub(crate) const MUST_BE_BANNED: &[&str] = &[
    "std::time::Instant",
    "std::time::SystemTime",
    "std::collections::HashMap",
    "std::collections::HashSet",
    "std::hash::RandomState",
    "std::net::UdpSocket",
    "std::thread::sleep",
    "std::env::var",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_only_points_down() {
        for rule in CRATES {
            for name in rule.may {
                let full = format!("strowger-{name}");
                let other = CRATES.iter().find(|other| other.name == full);
                let other = other.unwrap_or_else(|| panic!("{} names {name}, which is not in the table", rule.name));
                assert!(other.group <= rule.group && other.group != Group::Leaf, "{} → {name}", rule.name);
            }
        }
    }
}
