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
    ("the same from another port", |row| both(row.rebound)),
    ("call on a TCP connection", |row| both(row.connection)),
];

const USERS: &Columns = &[
    ("registered, then called", |row| both(row.registered_alone)),
    ("by members", |row| both(row.registered_members)),
    ("a server is dead and out", |row| worked(row.users_alone)),
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
        "\nThree servers share the load, a fourth one comes later; what is before them, and set-ups to copy, are in\n\
         [load-sharing.md](../docs/operating/load-sharing.md). Every machine is a network namespace. The calls are the same for every way, 12 or 36\n\
         at the same time, by phones with a port each. A phone sends again what is not answered, and gives up after 2.7 s. *a · b of n*: \
         of n\ncalls a stayed at one server, as packet sockets at the servers saw, and b worked, as the caller saw. Nothing here is timed, so the \
         build\nis not optimized. It was run once: where a server is drawn or a hash decides, another run differs by some calls.\n\n## Shares\n\n\
         480 calls to as many users, at servers 1, 2 and 3. The names begin as the forty most common given names of the USA do.\n\n",
    );
    text.push_str(&table(rows, SHARES));
    text.push_str(
        "\n## What a call is made of\n\nThe servers stand still until each INVITE has been sent twice; calls that ring are given up; answered calls have a re-INVITE and\n\
         a BYE, also from another source port than the INVITE's, as after a NAT or a firewall has forgotten the phone.\n\n",
    );
    text.push_str(&table(rows, CALLS));
    text.push_str(
        "\n## Users who register\n\nTwelve users register by the same way, and others call them: at servers that know only what they are told themselves, and at members that\n\
         forward registrations to each other. *Stayed* is an INVITE at the server that got the REGISTER. Then the first server is killed and taken out, and all\n\
         are called again before they register again.\n\n",
    );
    text.push_str(&table(rows, USERS));
    text.push_str(
        "\n## A server comes, a server dies\n\n*Stayed* is: where the call's INVITE was, and where the phone's last call was. What is not there is what moves. The first server \
         dies\n(SIGKILL, its machine lives); nobody takes it out at first. These are calls that any server can send on.\n\n",
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
