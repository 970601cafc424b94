//! The results as a Markdown page.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use crate::sharing::{Count, Row};

/// Command that generates the page.
const COMMAND: &str =
    "cargo build --bin strowger && cargo run -p strowger-interop --bin sharing -- --output bench/LOAD_SHARING.md";

/// Columns of a table: heading and cell contents.
type Columns = [(&'static str, fn(&Row) -> String)];

const SHARES: &Columns = &[("wanted", |row| percent(row.kind.wanted())), ("measured", |row| measured(row.share))];

const CALLS: &Columns = &[
    ("INVITE sent twice", |row| both(row.retransmitted)),
    ("CANCEL", |row| both(row.cancelled)),
    ("re-INVITE and BYE", |row| both(row.dialog)),
    ("from another port", |row| both(row.rebound)),
    ("call on a TCP connection", |row| both(row.connection)),
];

const USERS: &Columns = &[
    ("registered, then called", |row| both(row.registered_alone)),
    ("by members", |row| both(row.registered_members)),
    ("a server is killed and taken out", |row| worked(row.users_alone)),
    ("by members", |row| worked(row.users_members)),
];

const CHANGES: &Columns = &[
    ("added: re-INVITE in calls", |row| both(row.calls_when_added)),
    ("added: next call of a phone", |row| both(row.users_when_added)),
    ("dies: BYE of its calls", |row| worked(row.calls_of_dead)),
    ("dies: new calls", |row| worked(row.new_while_dead)),
    ("taken out: new calls of old phones", |row| worked(row.new_without_dead)),
];

/// Renders the page as Markdown.
#[must_use]
pub fn document(rows: &[Row]) -> String {
    let mut text = "# Ways to share load, and what each keeps\n\n".to_owned();
    text.push_str(&surroundings());
    text.push_str(
        "\nThree servers share the load, a fourth is added later; [load-sharing.md](../docs/operating/load-sharing.md) describes the \
         methods, with configurations to copy. Every machine is a network namespace. The calls are the same for every method, 12 or 36 \
         at a time, from phones with one port each. Phones retransmit, and give up after 2.7 s. *a · b of n*: of n calls, a stayed at \
         one server (as seen by packet sockets at the servers) and b succeeded (as seen by the caller). Nothing is timed, so the build \
         is not optimised. There was one run; where servers are chosen at random or by a hash, another run differs by a few calls.\n\n## \
         Shares\n\n480 calls to 480 users, at servers 1, 2 and 3. The names begin like the forty most common given names of the USA.\n\n",
    );
    text.push_str(&table(rows, SHARES));
    text.push_str(
        "\n## What a call is made of\n\nThe servers are stopped until each INVITE has been sent twice. Ringing calls are cancelled. Answered \
         calls get a re-INVITE and a BYE, also from another source port, as after a NAT or firewall has lost the phone's mapping.\n\n",
    );
    text.push_str(&table(rows, CALLS));
    text.push_str(
        "\n## Users who register\n\nTwelve users register by the same method, and others call them: at servers that know only their \
         own registrations, and at members that forward registrations to each other. *Stayed*: the INVITE reached the server that got \
         the REGISTER. Then the first server is killed and taken out of use, and all are called again before they register again.\n\n",
    );
    text.push_str(&table(rows, USERS));
    text.push_str(
        "\n## A server comes, a server dies\n\n*Stayed*: a re-INVITE reached the server of its INVITE, and a new call the server of the phone's previous \
         one; the rest moved. The first server is killed (SIGKILL, its machine lives) and only later taken out of use. Any server can route these calls.\n\n",
    );
    text.push_str(&table(rows, CHANGES));
    text
}

fn table(rows: &[Row], columns: &Columns) -> String {
    let heads: Vec<&str> = columns.iter().map(|(head, _)| *head).collect();
    let mut text = format!("| way | {} |\n|---|{}\n", heads.join(" | "), "---|".repeat(heads.len()));
    for row in rows {
        let cells: Vec<String> = columns.iter().map(|(_, cell)| cell(row)).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {} | {} |", row.kind, cells.join(" | "));
    }
    text
}

fn both(count: Count) -> String {
    format!("{} · {} of {}", count.kept, count.worked, count.of)
}

fn worked(count: Count) -> String {
    format!("{} of {}", count.worked, count.of)
}

fn measured(share: [usize; 3]) -> String {
    let sum: usize = share.iter().sum();
    // A few hundred calls.
    #[expect(clippy::cast_precision_loss, reason = "counts of calls are small")]
    percent(share.map(|calls| 100.0 * calls as f64 / sum.max(1) as f64))
}

fn percent(shares: [f64; 3]) -> String {
    let [first, second, third] = shares;
    format!("{first:.0}, {second:.0}, {third:.0} %")
}

/// Describes the machine, the versions and the date.
fn surroundings() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1)).unwrap_or("?");
    let cores = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let [kernel, date] = [("uname", "-sr"), ("date", "-u +%F")].map(|(program, words)| told(program, words));
    let versions = [("named", "-v"), ("nft", "--version"), ("ip", "-V"), ("conntrack", "--version")];
    let versions = versions.map(|(program, words)| told(program, words)).join("; ");
    let commit = told("git", "rev-parse --short HEAD");
    format!(
        "- Machine: {model}, {cores} cores, shared with other work\n- {kernel}\n- {versions}\n- strowger {} at commit {commit}, debug build\n\
         - Date: {date}\n- Command, as root: `{COMMAND}`\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// Returns the first line of a program's output.
fn told(program: &str, words: &str) -> String {
    let path = crate::program::search(program).unwrap_or_else(|| program.into());
    let output = Command::new(path).args(words.split(' ')).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("?").trim().to_owned()
}
