//! Applying and undoing on the machine that runs the tests: on a process of the test's own, and on settings of the
//! network in a namespace of its own.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use strowger_net::{Policy, Scheduling};
use strowger_tune::{
    Change, Cores, Demand, Form, Host, Kernel as _, Place, Program, Request, RunningKernel, StateFile, Target, Undone,
    Wanted, apply, propose, undo,
};

/// A child process that waits, and ends with the test.
struct Waiting(Child);

impl Waiting {
    fn start() -> Self {
        let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cat starts");
        Self(child)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Skips a test that this machine does not allow; where everything has to run, that is an error.
fn skip(why: &str) {
    assert!(std::env::var_os("STROWGER_REQUIRE_INTEROP").is_none(), "this must run here: {why}");
    eprintln!("SKIPPED: {why}");
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_process_gets_slice_policy_and_nice_value_and_loses_them() {
    let (host, child, folder) = (Host::running(), Waiting::start(), tempfile::tempdir().expect("a folder"));
    let usual = Scheduling::of(child.pid()).expect("it runs");
    let target = Target::of(&host, child.pid()).expect("it runs");
    let place = Place::Scheduling(target.threads[0]);
    let mut all = vec![Wanted::Policy(Policy::Batch, 0), Wanted::Slice(100_000)];
    let nice = if is_root() { -7 } else { usual.nice.max(5) };
    all.push(Wanted::Nice(nice));
    if is_root() {
        all.push(Wanted::Policy(Policy::Fifo, 10));
    }
    let file = folder.path().join("tune.json");
    let mut state = StateFile::open(&file, &host).expect("a file");
    for value in all {
        let change = Change { place: place.clone(), value };
        for one in apply(&host, &mut state, "test", std::slice::from_ref(&change)).expect("recorded") {
            match one.outcome {
                Ok(is_changed) => assert!(is_changed, "{change:?}"),
                // Kernels before 6.12 have no slices, and a control group may have no real-time budget.
                Err(error) => skip(&error.to_string()),
            }
        }
        let got = Scheduling::of(child.pid()).expect("it runs");
        match change.value {
            Wanted::Nice(nice) => assert_eq!((got.nice, got.policy), (nice, Policy::Batch)),
            Wanted::Slice(ns) => assert_eq!(got.slice_ns, ns),
            _ => assert!(got.policy != Policy::Other),
        }
    }
    drop(state);
    let state = StateFile::open_existing(&file, &host).expect("a record").expect("a record");
    for (record, undone) in undo(&host, state).expect("undone") {
        assert!(matches!(undone, Undone::Restored), "{record:?}: {undone:?}");
    }
    assert_eq!(Scheduling::of(child.pid()).expect("it runs"), usual);
    assert!(!file.exists());
}

#[test]
fn a_process_gets_a_core_and_loses_it() {
    let (host, child, folder) = (Host::running(), Waiting::start(), tempfile::tempdir().expect("a folder"));
    let usual = RunningKernel.cores(child.pid()).expect("it runs");
    let Some(first) = usual.iter().next().filter(|_| usual.len() > 1) else {
        return skip("this machine has one core");
    };
    let target = Target::of(&host, child.pid()).expect("it runs");
    let one_core = Cores::new([first]);
    let change = Change::new(Place::Cores(target.threads[0]), one_core.to_string());
    let mut state = StateFile::open(&folder.path().join("tune.json"), &host).expect("a file");
    apply(&host, &mut state, "affinity", &[change]).expect("recorded");
    assert_eq!(RunningKernel.cores(child.pid()).expect("it runs"), one_core);
    undo(&host, state).expect("undone");
    assert_eq!(RunningKernel.cores(child.pid()).expect("it runs"), usual);
}

#[test]
fn a_limit_is_set_and_restored() {
    let (host, child, folder) = (Host::running(), Waiting::start(), tempfile::tempdir().expect("a folder"));
    let target = Target::of(&host, child.pid()).expect("it runs");
    let limit = Place::OpenFiles(target.processes[0]);
    let usual = limit.read(&host).expect("it runs");
    let hard = usual.split_once(':').expect("two limits").1;
    let mut state = StateFile::open(&folder.path().join("tune.json"), &host).expect("a file");
    apply(&host, &mut state, "open-files", &[Change::new(limit.clone(), format!("64:{hard}"))]).expect("recorded");
    let limits = fs::read_to_string(format!("/proc/{}/limits", child.pid())).expect("it runs");
    let files = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
    assert_eq!(files.split_whitespace().nth(3), Some("64"), "{files}");
    undo(&host, state).expect("undone");
    assert_eq!(limit.read(&host).expect("it runs"), usual);
}

#[test]
fn a_session_gets_a_nice_value_and_loses_it() {
    let (host, folder) = (Host::running(), tempfile::tempdir().expect("a folder"));
    // A session of its own, so that this one stays as it is.
    let mut child = Command::new("setsid");
    let child = Waiting(child.arg("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("setsid starts"));
    let own = fs::read_to_string("/proc/self/autogroup").unwrap_or_default();
    let path = format!("/proc/{}/autogroup", child.pid());
    // Empty for a process of no session, such as one that a container's init has started.
    let is_apart = || {
        fs::read_to_string(&path).is_ok_and(|text| !text.is_empty() && text.split(' ').next() != own.split(' ').next())
    };
    if !Path::new("/proc/self/autogroup").exists() || !is_root() {
        return skip("automatic groups of sessions need a kernel that has them, and root");
    }
    for _ in 0..10_000 {
        if is_apart() {
            break;
        }
        std::thread::yield_now();
    }
    assert!(is_apart(), "setsid has made a session");
    let place = Place::File { path: path.clone(), form: Form::Autogroup };
    let mut state = StateFile::open(&folder.path().join("tune.json"), &host).expect("a file");
    for one in apply(&host, &mut state, "autogroup-nice", &[Change::new(place, "-10")]).expect("recorded") {
        assert!(one.outcome.expect("root may"));
    }
    assert!(fs::read_to_string(&path).expect("it runs").ends_with("nice -10\n"));
    for (record, undone) in undo(&host, state).expect("undone") {
        assert!(matches!(undone, Undone::Restored), "{record:?}: {undone:?}");
    }
    assert!(fs::read_to_string(&path).expect("it runs").ends_with("nice 0\n"));
}

#[test]
fn an_ended_process_is_no_error() {
    let (host, child, folder) = (Host::running(), Waiting::start(), tempfile::tempdir().expect("a folder"));
    let target = Target::of(&host, child.pid()).expect("it runs");
    let change = Change { place: Place::Scheduling(target.threads[0]), value: Wanted::Policy(Policy::Batch, 0) };
    let mut state = StateFile::open(&folder.path().join("tune.json"), &host).expect("a file");
    apply(&host, &mut state, "batch", &[change]).expect("recorded");
    drop(child);
    let undone = undo(&host, state).expect("undone");
    assert!(matches!(undone[..], [(_, Undone::Ended)]), "{undone:?}");
}

/// Settings of the network, as text.
fn network() -> String {
    let files = ["net/core/rmem_max", "net/core/busy_read", "net/ipv4/udp_mem", "net/ipv4/ip_local_port_range"];
    files.map(|file| fs::read_to_string(format!("/proc/sys/{file}")).unwrap_or_default()).concat()
}

#[test]
fn proposing_changes_nothing_on_this_machine() {
    let child = Waiting::start();
    let (usual, before) = (Scheduling::of(child.pid()).expect("it runs"), network());
    let host = Host::running();
    let request = Request {
        target: Target::of(&host, child.pid()),
        program: Program::Kamailio,
        demand: Demand { calls_per_s: 50_000.0, longest_wait: Duration::from_secs(1) },
    };
    let proposals = propose(&host, &request);
    assert!(proposals.iter().any(|one| one.topic.name == "nice"), "{proposals:?}");
    assert_eq!((Scheduling::of(child.pid()).expect("it runs"), network()), (usual, before));
}

/// Set in the process that has a namespace of its own.
const INSIDE: &str = "STROWGER_TUNE_INSIDE";

#[test]
fn settings_of_a_network_namespace_are_set_and_restored() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let name = "settings_of_a_network_namespace_are_set_and_restored";
    let own = std::env::current_exe().expect("a program");
    let mut command = Command::new("unshare");
    command.arg("--net").arg(own).args(["--exact", name, "--nocapture"]).env(INSIDE, "1");
    let Ok(mut child) = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() else {
        return skip("unshare is not installed (util-linux)");
    };
    let mut said = String::new();
    for line in BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok) {
        said.push_str(&line);
        said.push('\n');
    }
    let status = child.wait().expect("it ends");
    let is_refused = !said.contains("running 1 test");
    if is_refused {
        return skip("a network namespace needs root");
    }
    assert!(status.success(), "{said}");
}

fn inside() {
    let (host, folder) = (Host::running(), tempfile::tempdir().expect("a folder"));
    let path = "/proc/sys/net/ipv4/ip_local_port_range";
    let usual = fs::read_to_string(path).expect("a setting");
    let request = Request {
        target: None,
        program: Program::Strowger,
        demand: Demand { calls_per_s: 1_000.0, longest_wait: Duration::from_millis(250) },
    };
    fs::OpenOptions::new().write(true).open(path).expect("own").write_all(b"32768 60999\n").expect("own namespace");
    let proposals = propose(&host, &request);
    let ports = proposals.iter().find(|one| one.topic.name == "ports").expect("the default range is small");
    let mut state = StateFile::open(&folder.path().join("tune.json"), &host).expect("a file");
    for one in apply(&host, &mut state, "ports", ports.changes()).expect("recorded") {
        assert!(one.outcome.expect("own namespace"));
    }
    assert_eq!(fs::read_to_string(path).expect("a setting"), "16384\t65535\n");
    for (record, undone) in undo(&host, state).expect("undone") {
        assert!(matches!(undone, Undone::Restored), "{record:?}: {undone:?}");
    }
    assert_eq!(fs::read_to_string(path).expect("a setting"), "32768\t60999\n");
    // The namespace ends with this process, so its range need not be what it was.
    drop(usual);
}
