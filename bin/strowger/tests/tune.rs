//! `strowger tune` on the command line, on files of a host that does not exist.

mod common;

use std::collections::BTreeMap;
use std::fs;

use common::{CommandResult, Folder};
use serde_json::Value;

const FILES: [(&str, &str); 6] = [
    ("proc/sys/kernel/osrelease", "6.18.0\n"),
    ("proc/sys/net/core/rmem_max", "212992\n"),
    ("proc/sys/net/core/wmem_max", "212992\n"),
    ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
    ("sys/devices/system/cpu/online", "0-3\n"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"),
];

/// A folder with a host in `host`.
fn host() -> Folder {
    let folder = Folder::new("");
    for (path, text) in FILES {
        let place = folder.path().join("host").join(path);
        fs::create_dir_all(place.parent().expect("a folder")).expect("a folder");
        fs::write(place, text).expect("written");
    }
    folder
}

fn tune(folder: &Folder, arguments: &str) -> CommandResult {
    let fixed = "tune --root host --state state/tune.json";
    folder.run(&fixed.split(' ').chain(arguments.split_whitespace()).collect::<Vec<_>>())
}

fn files(folder: &Folder) -> BTreeMap<&'static str, String> {
    FILES.iter().map(|(path, _)| (*path, folder.read(&format!("host/{path}")))).collect()
}

fn names(report: &Value) -> Vec<&str> {
    let all = report["proposals"].as_array().expect("proposals").iter();
    all.map(|one| one["name"].as_str().expect("a name")).collect()
}

#[test]
fn it_proposes_and_changes_nothing() {
    let folder = host();
    let before = files(&folder);
    let text = tune(&folder, "").ok();
    for wanted in
        ["Linux 6.18.0, EEVDF", "NETWORK\n", "rmem-max", "212992 → 4194304", "MEMORY\n", "Nothing was changed."]
    {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let longest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    assert!(longest < 140, "{longest}: {text}");
    let report = tune(&folder, "--json").json();
    assert_eq!(names(&report), ["rmem-max", "wmem-max", "ports", "huge-pages"]);
    assert_eq!(files(&folder), before);
    assert!(!folder.path().join("state").exists());
}

#[test]
fn it_applies_what_is_named_and_undoes_it() {
    let folder = host();
    let before = files(&folder);
    let text = tune(&folder, "--apply rmem-max,ports").ok();
    assert!(text.contains("rmem-max: 212992 → 4194304: changed\n") && text.contains("strowger tune --undo"), "{text}");
    assert_eq!(folder.read("host/proc/sys/net/core/rmem_max"), "4194304\n");
    assert_eq!(folder.read("host/proc/sys/net/core/wmem_max"), "212992\n");
    assert_eq!(names(&tune(&folder, "--json").json()), ["wmem-max", "huge-pages"]);
    let applied = tune(&folder, "--apply all --json").json();
    assert_eq!(applied["applied"].as_array().map(Vec::len), Some(2), "{applied}");
    assert_eq!(folder.read("host/sys/kernel/mm/transparent_hugepage/enabled"), "always [madvise] never\n");
    folder.write("host/proc/sys/net/core/wmem_max", "77\n");
    let text = tune(&folder, "--undo").ok();
    assert!(text.contains("had been changed to 77 by others meanwhile, not 4194304"), "{text}");
    assert_eq!(files(&folder), before);
    assert_eq!(tune(&folder, "--undo").ok(), "nothing to undo: state/tune.json records no change\n");
    assert_eq!(tune(&folder, "--apply fifo").ok(), "nothing to change\n");
    assert!(!folder.path().join("state/tune.json").exists());
}

#[test]
fn it_writes_files_that_last_instead() {
    let folder = host();
    let before = files(&folder);
    let text = tune(&folder, "--write sysctl etc").ok();
    assert!(text.starts_with("etc/90-strowger.conf written; nothing else was changed\n"), "{text}");
    assert!(folder.read("etc/90-strowger.conf").contains("\nnet.core.rmem_max = 4194304\n"));
    tune(&folder, "--apply ports --write sysctl etc").ok();
    let text = folder.read("etc/90-strowger.conf");
    let has = |setting: &str| text.lines().any(|line| line == setting);
    assert!(has("net.ipv4.ip_local_port_range = 16384 65535") && has("net.core.rmem_max = 4194304"), "{text}");
    // Applied values are not proposed again, and stay in the file.
    tune(&folder, "--apply rmem-max").ok();
    let said = tune(&folder, "--write sysctl etc").ok();
    assert!(said.contains("kept from before: rmem-max, ports\n"), "{said}");
    assert!(folder.read("etc/90-strowger.conf").contains("net.core.rmem_max = 4194304\n"));
    tune(&folder, "--undo").ok();
    assert!(tune(&folder, "--write tmpfiles etc/tmp").ok().contains("systemd-tmpfiles --create"));
    let text = tune(&folder, "--write systemd etc").ok();
    assert!(text.starts_with("no proposal belongs into such a file; nothing was written\n"), "{text}");
    for foreign in [b"mine\n".as_slice(), b"\xff\n"] {
        fs::write(folder.path().join("etc/90-strowger.conf"), foreign).expect("our folder");
        assert!(tune(&folder, "--write sysctl etc").refused(1).contains("move it away first"));
    }
    assert_eq!(files(&folder), before);
}

#[test]
fn it_explains() {
    let folder = host();
    let text = tune(&folder, "--explain rmem-max").ok().replace('\n', " ");
    for wanted in ["rate × longest wait", "half of T1", "gain: ", "risk: ", "here: 212992 → 4194304", "rmem_max"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(tune(&folder, "--explain rp-filter").ok().contains("here: nothing is proposed"));
    assert!(
        tune(&folder, "--explain cfs --json").json()["explanation"]
            .as_str()
            .is_some_and(|text| text.contains("thesis"))
    );
}

#[test]
fn errors_say_what_to_do() {
    let folder = host();
    assert!(tune(&folder, "--apply speed").refused(2).contains("there is no tuning \"speed\"; choose of slice"));
    assert!(tune(&folder, "--explain speed").refused(2).contains("choose of"));
    assert_eq!(tune(&folder, "--pid 1").refused(1), "there is no process 1");
    assert_eq!(tune(&folder, "--name x").refused(1), "no process is named x");
    folder.write("file", "");
    let error = folder.run(&["tune", "--root", "host", "--state", "file/x", "--apply", "rmem-max"]).refused(1);
    assert!(error.contains("nothing is changed without a record"), "{error}");
    assert_eq!(folder.read("host/proc/sys/net/core/rmem_max"), "212992\n");
    folder.write("other", "text\n");
    assert!(folder.run(&["tune", "--root", "host", "--state", "other", "--undo"]).refused(1).contains("not a record"));
}
