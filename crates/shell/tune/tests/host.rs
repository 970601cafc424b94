//! Reading, proposing, applying and undoing on a host that exists only as files.

mod common;

use std::collections::BTreeMap;
use std::fs;

use common::{KAMAILIO, TestHost};
use proptest::prelude::*;
use strowger_net::Policy;
use strowger_tune::{
    Action, Change, Cores, DropInKind, Place, Program, Proposal, Record, Request, StateFile, Undone, apply, propose,
    topics, undo,
};

fn apply_all<'p>(of: &TestHost, proposals: impl IntoIterator<Item = &'p Proposal>) {
    let host = of.host();
    let mut state = StateFile::open(&of.state_file(), &host).expect("a file");
    for proposal in proposals {
        for one in apply(&host, &mut state, proposal.topic.name, proposal.changes()).expect("recorded") {
            one.outcome.expect("it is set");
        }
    }
}

fn undo_all(of: &TestHost) -> Vec<(Record, Undone)> {
    let host = of.host();
    let state = StateFile::open_existing(&of.state_file(), &host).expect("a record");
    state.map_or_else(Vec::new, |state| undo(&host, state).expect("undone"))
}

fn named<'p>(proposals: &'p [Proposal], name: &str) -> &'p Proposal {
    let found = proposals.iter().find(|proposal| proposal.topic.name == name);
    found.unwrap_or_else(|| panic!("{name} is not proposed"))
}

#[test]
fn proposing_changes_nothing() {
    let of = TestHost::new();
    let before = of.snapshot();
    let proposals = propose(&of.host(), &of.request());
    assert!(proposals.len() > 15, "{}", proposals.len());
    assert_eq!(of.snapshot(), before);
    assert!(!of.state_file().exists());
}

#[test]
fn a_kamailio_with_defaults_gets_its_proposals() {
    let of = TestHost::new();
    let proposals = propose(&of.host(), &of.request());
    let all: BTreeMap<&str, (String, String, bool)> = proposals
        .iter()
        .map(|one| (one.topic.name, (one.current.clone(), one.proposed.clone(), one.is_recommended)))
        .collect();
    let of_name = |name: &str| {
        let (current, proposed, is_recommended) = all.get(name).unwrap_or_else(|| panic!("{name}: {all:?}"));
        (current.as_str(), proposed.as_str(), *is_recommended)
    };
    assert_eq!(of_name("slice"), ("default", "100 µs", false));
    assert_eq!(of_name("batch"), ("other", "batch", false));
    assert_eq!(of_name("nice"), ("0", "-10", true));
    assert_eq!(of_name("fifo"), ("other", "fifo 10", false));
    assert_eq!(of_name("affinity"), ("0-7", "1-7", false));
    assert_eq!(of_name("cpu-weight"), ("100", "1000", true));
    assert_eq!(of_name("cpu-quota"), ("50000 100000", "max 100000", false));
    assert_eq!(of_name("governor"), ("powersave", "performance", true));
    assert_eq!(of_name("idle-states"), ("on", "off", false));
    // 4,000 calls/s × 7 packets × 0.25 s × 2,304 bytes, of which a program asks for half.
    assert_eq!(of_name("rmem-max"), ("212992", "8065024", true));
    assert_eq!(of_name("receive-buffer"), ("524288", "16130048", true));
    assert_eq!(of_name("backlog"), ("1000", "4096", true));
    assert_eq!(of_name("rps"), ("00", "ff", false));
    assert_eq!(of_name("open-files"), ("1024", "1048576", true));
    assert_eq!(of_name("huge-pages"), ("always", "madvise", false));
    // In a group with its own weight, automatic groups do not count.
    assert!(!all.contains_key("autogroup") && !all.contains_key("cfs") && !all.contains_key("base-slice"), "{all:?}");
    let buffer = named(&proposals, "receive-buffer");
    assert!(buffer.reason.contains("it holds 8 ms of packets and has dropped 17"), "{}", buffer.reason);
    assert_eq!(buffer.action, Action::ByHand("maxbuffer=8065024 in kamailio.cfg, and restart".to_owned()));
    let Action::ByHand(rules) = &named(&proposals, "conntrack").action else { panic!("by hand") };
    assert!(rules.contains("udp dport { 5060 } notrack"), "{rules}");
    assert!(proposals.windows(2).all(|pair| pair[0].topic.group <= pair[1].topic.group));
}

#[test]
fn applied_values_are_not_proposed_again() {
    let of = TestHost::new();
    let proposals = propose(&of.host(), &of.request());
    // The real-time policies exclude the others.
    let wanted = |one: &&Proposal| !["fifo", "rr"].contains(&one.topic.name);
    apply_all(&of, proposals.iter().filter(wanted));
    let scheduling = of.kernel.tasks().scheduling[&KAMAILIO];
    assert_eq!((scheduling.policy, scheduling.nice, scheduling.slice_ns), (Policy::Batch, -10, 100_000));
    assert_eq!(of.read("/sys/kernel/mm/transparent_hugepage/enabled"), "always [madvise] never\n");
    assert_eq!(of.read("/sys/class/net/lo/queues/rx-0/rps_cpus"), "00\n", "not a card");
    let left: Vec<&str> = propose(&of.host(), &of.request()).iter().map(|one| one.topic.name).collect();
    assert_eq!(left, ["fifo", "rr", "conntrack", "receive-buffer"]);
}

#[test]
fn only_what_differs_is_proposed_for_strowger() {
    let of = TestHost::new();
    let request = Request { target: None, program: Program::Strowger, ..of.request() };
    for (path, value) in [("rmem_max", "9000000"), ("wmem_max", "9000000"), ("netdev_max_backlog", "4096")] {
        of.write(&format!("/proc/sys/net/core/{path}"), &format!("{value}\n"));
    }
    of.write("/proc/net/softnet_stat", "0000ffff 00000000 00000000 0\n");
    of.write("/proc/sys/net/ipv4/udp_mem", "100000\t200000\t300000\n");
    let names: Vec<&str> = propose(&of.host(), &request).iter().map(|one| one.topic.name).collect();
    assert!(!["rmem-max", "wmem-max", "backlog", "udp-mem"].iter().any(|name| names.contains(name)), "{names:?}");
}

#[test]
fn old_kernels_get_the_parameters_of_the_thesis() {
    let of = TestHost::new();
    of.write("/proc/sys/kernel/osrelease", "5.10.0\n");
    for (name, value) in [("latency_ns", "24000000"), ("min_granularity_ns", "3000000"), ("wakeup_granularity_ns", "0")]
    {
        of.write(&format!("/proc/sys/kernel/sched_{name}"), &format!("{value}\n"));
    }
    let proposals = propose(&of.host(), &of.request());
    assert!(proposals.iter().all(|one| one.topic.name != "slice"));
    apply_all(&of, [named(&proposals, "cfs")]);
    assert_eq!(of.read("/proc/sys/kernel/sched_latency_ns"), "6400000\n", "800 µs for each of eight cores");
    assert_eq!(of.read("/proc/sys/kernel/sched_min_granularity_ns"), "100000\n");
    undo_all(&of);
    assert_eq!(of.read("/proc/sys/kernel/sched_latency_ns"), "24000000\n");
    of.write("/proc/sys/kernel/osrelease", "6.8.0\n");
    of.write("/sys/kernel/debug/sched/base_slice_ns", "3000000\n");
    assert_eq!(named(&propose(&of.host(), &of.request()), "base-slice").proposed, "300000");
}

#[test]
fn undo_tells_what_others_changed_and_can_be_repeated() {
    let of = TestHost::new();
    let before = of.snapshot();
    let proposals = propose(&of.host(), &of.request());
    apply_all(&of, ["rmem-max", "nice", "backlog"].map(|name| named(&proposals, name)));
    of.write("/proc/sys/net/core/rmem_max", "777\n");
    of.kernel.change(|tasks| _ = tasks.scheduling.remove(&(KAMAILIO + 1)));
    fs::remove_dir_all(of.root.path().join(format!("proc/{}", KAMAILIO + 1))).expect("it ends");
    of.write("/proc/sys/net/core/netdev_max_backlog", "1000\n");
    let undone = undo_all(&of);
    let of_name = |name: &str| -> Vec<&Undone> {
        undone.iter().filter(|(record, _)| record.tuning == name).map(|(_, what)| what).collect()
    };
    assert!(of_name("rmem-max").iter().all(|what| matches!(what, Undone::ChangedByOthers(found) if found == "777")));
    assert!(of_name("backlog").iter().all(|what| matches!(what, Undone::Unchanged)));
    let ended = of_name("nice").iter().filter(|what| matches!(what, Undone::Ended)).count();
    assert_eq!((of_name("nice").len(), ended), (3, 1), "{undone:?}");
    assert_eq!(of.read("/proc/sys/net/core/rmem_max"), "212992\n");
    let (mut files, mut tasks) = before;
    files.retain(|path, _| !path.starts_with(of.root.path().join(format!("proc/{}", KAMAILIO + 1))));
    tasks.scheduling.remove(&(KAMAILIO + 1));
    assert_eq!(of.snapshot(), (files, tasks));
    assert!(undo_all(&of).is_empty() && !of.state_file().exists(), "a second time there is nothing");
}

#[test]
fn a_crash_between_record_and_change_is_harmless() {
    let of = TestHost::new();
    let before = of.snapshot();
    let host = of.host();
    let mut state = StateFile::open(&of.state_file(), &host).expect("a file");
    let place = Place::file("/proc/sys/net/core/rmem_max");
    let record =
        Record { tuning: "rmem-max".to_owned(), place, former: "212992".to_owned(), applied: "8065024".to_owned() };
    state.push(record).expect("recorded");
    drop(state);
    let undone = undo_all(&of);
    assert!(matches!(undone[..], [(_, Undone::Unchanged)]), "{undone:?}");
    assert_eq!(of.snapshot(), before);
}

#[test]
fn values_that_cannot_be_restored_stay_recorded() {
    let of = TestHost::new();
    let host = of.host();
    let before = of.snapshot();
    let proposals = propose(&host, &of.request());
    apply_all(&of, ["huge-pages", "rmem-max", "backlog"].map(|name| named(&proposals, name)));
    // A file in another form cannot be read.
    of.write("/proc/sys/net/core/rmem_max", "x\n");
    let thp = "/sys/kernel/mm/transparent_hugepage/enabled";
    let good = of.read(thp);
    of.write(thp, "broken\n");
    let failed = undo_all(&of).iter().filter(|(_, what)| matches!(what, Undone::Failed(_))).count();
    assert_eq!(failed, 1);
    of.write(thp, &good);
    let undone = undo_all(&of);
    assert!(matches!(undone[..], [(_, Undone::Restored)]), "{undone:?}");
    assert_eq!(of.snapshot(), before);
}

#[test]
fn nothing_is_changed_without_a_record() {
    let of = TestHost::new();
    let before = of.snapshot();
    let blocked = of.state.path().join("file");
    fs::write(&blocked, "").expect("written");
    let error = StateFile::open(&blocked.join("tune.json"), &of.host()).expect_err("a file is no folder");
    assert!(error.to_string().contains("--state FILE"), "{error}");
    assert_eq!(of.snapshot(), before);
}

#[test]
fn a_missing_setting_does_not_prevent_the_others() {
    let of = TestHost::new();
    let host = of.host();
    let mut state = StateFile::open(&of.state_file(), &host).expect("a file");
    let changes =
        [Change::new(Place::file("/proc/sys/none"), "1"), Change::new(Place::file("/proc/sys/net/core/rmem_max"), "5")];
    let applied = apply(&host, &mut state, "test", &changes).expect("recorded");
    let error = applied[0].outcome.as_ref().expect_err("no such file").to_string();
    assert!(error.starts_with("/proc/sys/none cannot be read") && error.contains("no such setting"), "{error}");
    assert!(matches!(applied[1].outcome, Ok(true)));
    assert_eq!(state.records().count(), 1);
}

#[test]
fn files_that_last_contain_the_same_values() {
    let of = TestHost::new();
    let request = of.request();
    let proposals = propose(&of.host(), &request);
    let all: Vec<&Proposal> = proposals.iter().filter(|one| one.is_recommended).collect();
    let sysctl = DropInKind::Sysctl.file(None, None, &all, &request).expect("there are some");
    assert_eq!(sysctl.path, "/etc/sysctl.d/90-strowger.conf");
    assert!(sysctl.text.contains("\nnet.core.rmem_max = 8065024\n"), "{}", sysctl.text);
    let unit = DropInKind::Systemd.file(Some("/tmp/x"), None, &all, &request).expect("there are some");
    assert_eq!(unit.path, "/tmp/x/90-strowger-tune.conf");
    assert!(unit.then.ends_with("restart kamailio.service"), "{}", unit.then);
    for line in ["[Service]", "Nice=-10", "LimitNOFILE=1048576", "CPUWeight=1000"] {
        assert!(unit.text.lines().any(|other| other == line), "{line}: {}", unit.text);
    }
    let devices = DropInKind::Tmpfiles.file(None, None, &all, &request).expect("there are some");
    assert!(devices.text.contains("scaling_governor - - - - performance\n"), "{}", devices.text);
    assert_eq!(DropInKind::Sysctl.file(None, None, &[], &request), None);
}

#[test]
fn a_second_file_keeps_the_settings_of_the_first() {
    let of = TestHost::new();
    let request = of.request();
    let proposals = propose(&of.host(), &request);
    let write = |kind: DropInKind, existing: Option<&str>, name: &str| {
        kind.file(None, existing, &[named(&proposals, name)], &request).expect("it belongs there")
    };
    let nice = write(DropInKind::Systemd, None, "nice");
    let both = write(DropInKind::Systemd, Some(&nice.text), "open-files");
    assert_eq!(both.kept, ["nice"]);
    let lines = |text: &str, wanted: &str| text.lines().filter(|line| *line == wanted).count();
    for line in ["[Service]", "Nice=-10", "LimitNOFILE=1048576"] {
        assert_eq!(lines(&both.text, line), 1, "{line}: {}", both.text);
    }
    // What is set anew is not kept, and a setting that somebody added is.
    let edited = both.text.replace("Nice=-10", "Nice=-5\nOOMScoreAdjust=-500");
    let again = write(DropInKind::Systemd, Some(&edited), "nice");
    assert!(lines(&again.text, "Nice=-10") == 1 && lines(&again.text, "Nice=-5") == 0, "{}", again.text);
    assert_eq!(lines(&again.text, "OOMScoreAdjust=-500"), 1, "{}", again.text);
    let policies = write(DropInKind::Systemd, Some(&write(DropInKind::Systemd, None, "fifo").text), "batch");
    assert_eq!(policies.text.matches("CPUSchedulingPolicy=").count(), 1, "{}", policies.text);
    // Two cores that slow down, one after the other.
    let device = write(DropInKind::Tmpfiles, None, "governor");
    let second = device.text.replace("cpu0", "cpu7");
    let devices = write(DropInKind::Tmpfiles, Some(&second), "governor");
    assert!(devices.text.contains("cpu0/") && devices.text.contains("cpu7/"), "{}", devices.text);
}

#[test]
fn a_deliberate_pinning_is_not_widened() {
    let of = TestHost::new();
    let pin = |cores: [std::ops::Range<usize>; 3]| {
        of.kernel.change(|tasks| {
            for (thread, cores) in (KAMAILIO..).zip(cores) {
                tasks.cores.insert(thread, Cores::new(cores));
            }
        });
    };
    pin([0..4, 0..4, 0..4]);
    let proposals = propose(&of.host(), &of.request());
    let affinity = named(&proposals, "affinity");
    assert_eq!((affinity.current.as_str(), affinity.proposed.as_str()), ("0-3", "1-3"));
    assert!(affinity.reason.contains("its limit to the cores 0-3 is kept"), "{}", affinity.reason);
    assert_eq!(affinity.unit_lines, ["CPUAffinity=1-3"]);
    // Each process on cores of its own: one loses core 0, one has no other, and one was never there.
    pin([0..2, 0..1, 2..4]);
    let proposals = propose(&of.host(), &of.request());
    let affinity = named(&proposals, "affinity");
    assert!(affinity.unit_lines.is_empty(), "one line of a unit is for all of them: {affinity:?}");
    let changes: Vec<String> = affinity.changes().iter().map(|change| format!("{change:?}")).collect();
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert!(changes[0].contains("Exactly(\"1\")"), "{changes:?}");
    // Few cores are not made fewer, and the settings of others' cores are left alone.
    pin([1..3, 1..3, 1..3]);
    let names: Vec<&str> = propose(&of.host(), &of.request()).iter().map(|one| one.topic.name).collect();
    assert!(!["affinity", "governor", "idle-states"].iter().any(|name| names.contains(name)), "{names:?}");
}

#[test]
fn gains_are_those_of_as_many_receivers() {
    let of = TestHost::new();
    assert_eq!(of.request().target.expect("it runs").receivers, None, "the kernel does not tell");
    // The first process waits for its children, one receives, and one is busy.
    for (pid, call) in (KAMAILIO..).zip(["34 0x0 0x0", "45 0x3 0x7ffe", "running"]) {
        of.write(&format!("/proc/{pid}/task/{pid}/syscall"), &format!("{call}\n"));
    }
    let request = of.request();
    assert_eq!(request.target.as_ref().and_then(|target| target.receivers), Some(2));
    let proposals = propose(&of.host(), &request);
    assert!(named(&proposals, "nice").gain.contains("with 1 receiver on 1 core"), "{}", named(&proposals, "nice").gain);
    assert!(named(&proposals, "batch").reason.starts_with("2 processes"), "{}", named(&proposals, "batch").reason);
}

#[test]
fn opensips_is_told_of_its_own_file() {
    let of = TestHost::new();
    of.write(&format!("/proc/{KAMAILIO}/comm"), "opensips\n");
    let request = Request { program: Program::OpenSips, ..of.request() };
    assert_eq!(request.target.as_ref().map(|target| target.program), Some(Program::OpenSips));
    let proposals = propose(&of.host(), &request);
    let Action::ByHand(how) = &named(&proposals, "receive-buffer").action else { panic!("by hand") };
    assert!(how.contains("in opensips.cfg"), "{how}");
}

#[test]
fn every_tuning_is_explained() {
    let names: Vec<&str> = topics().iter().map(|topic| topic.name).collect();
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), names.len());
    for topic in topics() {
        assert!(topic.explanation.len() > 80 && !topic.gain.is_empty() && !topic.risk.is_empty(), "{}", topic.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Any tunings in any order, some of them twice.
    #[test]
    fn undo_restores_every_byte(chosen in proptest::collection::vec(0_usize..64, 0..24)) {
        let of = TestHost::new();
        let before = of.snapshot();
        for at in chosen {
            let proposals = propose(&of.host(), &of.request());
            apply_all(&of, proposals.get(at % proposals.len()));
        }
        for (record, undone) in undo_all(&of) {
            prop_assert!(matches!(undone, Undone::Restored), "{record:?}: {undone:?}");
        }
        prop_assert_eq!(of.snapshot(), before);
        prop_assert!(!of.state_file().exists());
    }
}
