//! Output of `strowger load`: files, progress, server monitoring and comparison of runs.

mod common;

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::server::Server;
use common::{CommandResult, Folder, signal};
use serde_json::Value;

/// Duration of a run that is then interrupted. A run without a terminal shows nothing before its end.
const RUN_TIME: Duration = Duration::from_millis(1_500);
/// Time between two signals: a pending signal absorbs an equal one.
const BETWEEN_SIGNALS: Duration = Duration::from_millis(100);

/// A run that may be late on a busy machine, which is exit code 1.
fn ran(folder: &Folder, arguments: &[&str]) -> CommandResult {
    let all: Vec<&str> = ["load"].iter().chain(arguments).copied().collect();
    let ran = folder.run(&all);
    assert!(ran.code == Some(0) || ran.err.contains("bottleneck"), "{ran:?}");
    ran
}

/// Returns the names of all elements of a page, and checks that they are closed.
fn elements(html: &str) -> Vec<&str> {
    let (mut names, mut open) = (Vec::new(), Vec::new());
    for tag in html.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').unwrap_or_else(|| panic!("a tag without an end: {tag:.80}"));
        let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap_or_default();
        if tag.starts_with('!') {
            continue;
        }
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> closes another element");
            continue;
        }
        names.push(name);
        if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
    names
}

#[test]
fn a_run_writes_a_page_tables_and_server_usage() {
    let server = Server::start("server.domains = [\"127.0.0.1\"]\n");
    let to = format!("udp:{}", server.address);
    let folder = &server.folder;
    let files = ["--json", "run.json", "--html", "run.html", "--csv", "run.csv"];
    let run = ["run", "--to", &to, "--rate", "50", "--time", "3s", "--users", "20"];
    let ran = ran(folder, &[&run[..], &files].concat());
    assert!(ran.code == Some(1) || ran.err.is_empty(), "no progress where nobody looks on: {ran:?}");
    let pid = server.child.id();
    assert!(ran.out.contains(&format!("server (strowger, process {pid}): ")), "{}", ran.out);

    let report = folder.json("run.json");
    assert_eq!(report["server"]["pid"], pid);
    assert!(report["server"]["cpu_us_per_call"].as_f64().is_some_and(|us| us > 0.0), "{}", report["server"]);
    assert!(report["machine"]["processors"].as_u64().is_some_and(|count| count > 0));

    let names = folder.read("run.html");
    let names = elements(&names);
    assert_eq!(names.iter().filter(|name| **name == "svg").count(), 8);
    assert!(!names.contains(&"script") && !names.contains(&"link") && !names.contains(&"img"));

    let table = folder.read("run.csv");
    let rows: Vec<Vec<&str>> = table.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let columns = table.lines().next().expect("names").split(',').count();
    // The last calls may extend into one more row.
    assert!((3..=5).contains(&rows.len()), "{table}");
    for (second, row) in rows.iter().enumerate() {
        assert_eq!((row.len(), row[0]), (columns, (second + 1).to_string().as_str()), "{table}");
    }
    let offered: u64 = rows.iter().map(|row| row[1].parse::<u64>().expect("a number")).sum();
    assert_eq!(report["offered"], offered);
    let histograms = folder.read("run.histograms.csv");
    assert!(
        histograms.lines().any(|line| line.starts_with("INVITE,2xx,") && line.ends_with(",1.000000")),
        "{histograms}"
    );
}

#[test]
fn a_named_process_is_measured() {
    let folder = Folder::new("");
    let run = ["run", "--rate", "50", "--calls", "25", "--json", "run.json"];
    let watched = |more: &[&str]| {
        ran(&folder, &[&run[..], more].concat());
        folder.json("run.json")["server"].clone()
    };
    assert_eq!(watched(&[]), Value::Null, "both ends are here: there is no server");
    let own = std::process::id();
    assert_eq!(watched(&["--pid", &own.to_string()])["pid"], own);
    let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
    let pids = ["--pid", &child.id().to_string(), "--pid", &own.to_string()].map(str::to_owned);
    let both = watched(&pids.each_ref().map(String::as_str));
    assert_eq!((&both["name"], &both["pid"]), (&Value::from("sleep"), &Value::from(child.id())));
    assert!(both["processes"].as_u64().is_some_and(|count| count >= 2), "{both}");
    child.kill().and_then(|()| child.wait()).expect("it ends");
    let gone = folder.run(&["load", "run", "--calls", "1", "--pid", &child.id().to_string()]);
    assert!(gone.refused(2).contains("--pid"));
    let server = Server::start("server.domains = [\"127.0.0.1\"]\n");
    let to = format!("udp:{}", server.address);
    ran(&server.folder, &["run", "--to", &to, "--users", "5", "--calls", "5", "--no-watch", "--json", "run.json"]);
    assert_eq!(server.folder.json("run.json")["server"], Value::Null);
}

#[test]
fn two_runs_are_compared() {
    let folder = Folder::new("");
    for (name, calls) in [("one.json", "50"), ("two.json", "100")] {
        ran(&folder, &["run", "--rate", calls, "--calls", calls, "--seed", "1", "--json", name]);
    }
    let text = folder.run(&["load", "compare", "one.json", "two.json", "--html", "both.html"]).ok();
    let carried = text.lines().find(|line| line.starts_with("carried (/s)")).expect("a row");
    let figures: Vec<f64> = carried.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [one, two, ratio] = figures[..] else { panic!("{text}") };
    assert!((two / one - ratio).abs() < 0.01 && (1.2..3.5).contains(&ratio), "{text}");
    let last = text.lines().last().expect("a verdict");
    assert!(last.starts_with("two has ") && last.contains(" × the calls") && last.ends_with(" of one."), "{last}");
    assert!(text.contains("! the arrivals differ"), "{text}");
    assert!(elements(&folder.read("both.html")).contains(&"svg"));

    let same = folder.run(&["load", "compare", "one.json", "one.json", "--names", "a,b", "--json"]).json();
    let rows = same["rows"].as_array().expect("rows");
    assert!(rows.iter().all(|row| row["ratio"].is_null() || row["ratio"] == 1.0), "{same}");
    assert_eq!(same["names"], serde_json::json!(["a", "b"]));

    folder.write("other.json", "{\"calls\": 3}");
    folder.write("text.json", "no JSON");
    for file in ["other.json", "text.json", "nowhere.json"] {
        let error = folder.run(&["load", "compare", "one.json", file]).refused(2);
        assert!(error.starts_with(file), "{error}");
        assert!(file == "nowhere.json" || error.contains("load run --json"), "{error}");
    }
}

#[test]
fn an_unwritable_file_does_not_lose_the_report() {
    let folder = Folder::new("");
    let run = ["load", "run", "--calls", "5", "--rate", "50"];
    let files = ["--json", "/dev/full", "--html", "run.html", "--csv", "run.csv"];
    let ran = folder.run(&[&run[..], &files].concat());
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("sent 5 = carried 5") && ran.err.contains("/dev/full cannot be written"), "{ran:?}");
    assert!(elements(&folder.read("run.html")).contains(&"svg"), "nor another file");
    assert!(!folder.read("run.csv").is_empty() && !folder.read("run.histograms.csv").is_empty());
    let sweep = ["load", "sweep", "--rate", "50", "--time", "1s", "--repeat", "1", "--settle", "0s"];
    let ran = folder.run(&[&sweep[..], &["--json", "/dev/full", "--csv", "sweep.csv"]].concat());
    assert!(ran.code == Some(1) && ran.err.contains("/dev/full cannot be written"), "{ran:?}");
    assert!(folder.read("sweep.csv").lines().count() >= 2);
}

#[test]
fn unwritable_files_are_reported_before_the_run() {
    let folder = Folder::new("");
    std::fs::create_dir(folder.path().join("taken")).expect("a folder");
    folder.write("one.json", "what was there");
    let refused = |arguments: &[&str], what: &str| {
        let begun = Instant::now();
        let all: Vec<&str> = ["load"].iter().chain(arguments).copied().collect();
        let error = folder.run(&all).refused(2);
        assert!(error.contains(what), "{what}: {error}");
        assert!(begun.elapsed() < Duration::from_secs(20), "the run was not started");
    };
    let run = ["run", "--time", "1h", "--json", "new.json"];
    refused(&[&run[..], &["--html", "/nowhere/run.html"]].concat(), "/nowhere/run.html cannot be written");
    refused(&[&run[..], &["--html", "taken"]].concat(), "taken cannot be written");
    refused(&[&run[..], &["--csv", "./new.json"]].concat(), "is named for two forms");
    refused(&["run", "--time", "1h", "--json", "-", "--html", "-"], "standard output (-)");
    refused(&["sweep", "--rate", "1", "--time", "1h", "--csv", "/nowhere/a.csv"], "/nowhere/a.csv cannot be written");
    refused(&["search", "--time", "1h", "--json", "taken"], "taken cannot be written");
    assert!(!folder.path().join("new.json").exists(), "no empty files are left");
    assert_eq!(folder.read("one.json"), "what was there");
}

/// Very low rates and speeds, at which nothing ever arrives, are valid.
#[test]
fn very_small_numbers_are_valid() {
    let folder = Folder::new("");
    let done = |arguments: &[&str]| {
        let all: Vec<&str> = ["load"].iter().chain(arguments).copied().collect();
        let ran = folder.run(&all);
        assert!(ran.code.is_some_and(|code| code < 3) && !ran.err.contains("panicked"), "{arguments:?}: {ran:?}");
    };
    done(&["run", "--rate", "1e-300", "--time", "100ms"]);
    done(&[
        "run",
        "--workload",
        "users",
        "--users",
        "2",
        "--speed",
        "1e-300",
        "--time",
        "1ns",
        "--warm-up",
        "0s",
        "--calls",
        "1",
    ]);
    done(&["sweep", "--rate", "1e-300", "--time", "100ms", "--repeat", "1"]);
    done(&["search", "--start", "1e-20", "--time", "100ms", "--max-probes", "1"]);
}

#[test]
fn zero_counts_are_refused() {
    let folder = Folder::new("");
    for (option, command) in [
        ("--outstanding", "run"),
        ("--threads", "run"),
        ("--users", "run"),
        ("--sockets", "run"),
        ("--threads", "search"),
    ] {
        let ran = folder.run(&["load", command, option, "0"]);
        assert!(ran.code == Some(2) && ran.err.contains(option), "{ran:?}");
    }
}

/// After an interrupt, calls have a moment to end; a second interrupt ends the run at once.
#[test]
fn a_second_interrupt_ends_a_run_at_once_with_a_report() {
    let folder = Folder::new("");
    let service = ["--service-time", "10m", "--rate", "50", "--time", "1h", "--json", "run.json", "--html", "run.html"];
    let mut command = folder.command(&[&["load", "run"][..], &service].concat());
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    thread::sleep(RUN_TIME);
    signal(&child, "INT");
    thread::sleep(BETWEEN_SIGNALS);
    let second = Instant::now();
    signal(&child, "INT");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.code().is_some_and(|code| code < 2), "{output:?}");
    assert!(second.elapsed() < Duration::from_millis(1_800), "it waits no longer: {:?}", second.elapsed());
    let report = folder.json("run.json");
    assert_eq!((&report["was_stopped"], &report["carried"]), (&Value::from(true), &Value::from(0)));
    assert!(report["unfinished"].as_u64().is_some_and(|count| count > 20), "{report}");
    let html = folder.read("run.html");
    assert!(elements(&html).contains(&"svg") && html.contains("Stopped early"));
}

#[test]
fn progress_is_shown_on_a_terminal() {
    let folder = Folder::new("");
    // `script` provides a terminal.
    if Command::new("script").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: there is no script(1)");
        return;
    }
    let shown = |more: &str| {
        let run = format!("{} load run --rate 40 --time 3s --warm-up 1s {more}", env!("CARGO_BIN_EXE_strowger"));
        let mut command = Command::new("script");
        command.args(["-qec", &run, "/dev/null"]).current_dir(folder.path()).stdin(Stdio::null());
        String::from_utf8(command.output().expect("it runs").stdout).expect("UTF-8")
    };
    let text = shown("");
    for wanted in
        ["warm-up ", "0 s of 1 s", "measuring ", "0:00:02 left", "offered/s  carried/s", "retransmissions: sent 0"]
    {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    let text = shown("--quiet");
    assert!(
        !text.contains("measuring") && !text.contains("offered/s") && text.contains("retransmissions: sent 0"),
        "{text}"
    );
}
