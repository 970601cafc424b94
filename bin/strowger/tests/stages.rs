//! Server processes of two stages with one configuration: each finds its role by name, and users are moved between
//! clusters.

mod common;

use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use common::{Folder, until};
use serde_json::Value;

/// Number of tests in this process that have started servers.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// A first stage and two clusters of one member, on addresses that no other process of this machine uses.
struct Stages {
    folder: Folder,
    running: Vec<Child>,
}

impl Stages {
    fn start() -> Self {
        let own = std::process::id();
        let test = STARTED.fetch_add(1, Ordering::Relaxed);
        let address = |last: u32| format!("127.{}.{}.{}:5060", 100 + own / 250 % 100, own % 250, 10 * test + last);
        let text = format!(
            "[server]\ndomains = [\"example.com\"]\n[auth]\nrequire = []\n\
             [[first_stage]]\nname = \"s1\"\naddress = \"{}\"\n\
             [[second_stage]]\nname = \"a\" # the first\nmembers = [{{ name = \"a1\", address = \"{}\" }}]\n\
             [[second_stage]]\nname = \"b\"\nweight = 0\nmembers = [{{ name = \"b1\", address = \"{}\" }}]\n",
            address(1),
            address(2),
            address(3)
        );
        let folder = Folder::new(&text);
        let serve = |name| {
            let mut command = folder.command(&["serve", "--as", name]);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
        };
        let running = ["s1", "a1", "b1"].map(serve).into();
        let stages = Self { folder, running };
        until("all run", || {
            ["s1", "a1", "b1"].iter().all(|name| stages.folder.run(&["ctl", "--as", name, "status"]).code == Some(0))
        });
        stages
    }

    fn clusters(&self, more: &[&str]) -> Value {
        self.folder.run(&[&["ctl", "--as", "s1", "--json", "rebalance"], more].concat()).json()
    }
}

impl Drop for Stages {
    fn drop(&mut self) {
        for child in &mut self.running {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn near(value: &Value, wanted: f64) -> bool {
    (value.as_f64().expect("a number") - wanted).abs() < 0.01
}

#[test]
fn weight_moves_reach_all_servers() {
    let stages = Stages::start();
    let now = stages.clusters(&[]);
    assert!(near(&now["clusters"][0]["now"]["share"], 1.0) && near(&now["moved"], 0.0), "{now:#}");
    until("members are in service", || stages.clusters(&[])["clusters"][1]["in_service"] == 1);

    let thought = stages.clusters(&["b=100"]);
    assert!(near(&thought["moves"], 0.5) && near(&thought["clusters"][1]["then"]["share"], 0.5), "{thought:#}");
    assert!(near(&stages.clusters(&[])["clusters"][0]["now"]["share"], 1.0), "nothing is changed by thinking of it");

    let said = stages.folder.run(&["ctl", "--as", "s1", "rebalance", "b=100", "--write"]).ok();
    assert!(said.contains(" % of the users would move"), "{said}");
    for name in ["a1", "b1", "s1"] {
        assert!(said.contains(&format!("{name}: reloaded")), "{said}");
    }
    assert!(said.find("a1: reloaded") < said.find("s1: reloaded"), "clusters first: {said}");
    let file = std::fs::read_to_string(stages.folder.path().join("strowger.toml")).expect("there");
    assert!(file.contains("name = \"a\" # the first") && file.contains("weight = 100\nmembers"), "{file}");
    assert!(file.contains("previous_weight = 0"), "{file}");
    let moved = stages.clusters(&[]);
    assert!(near(&moved["moved"], 0.5) && moved["moving_s"].as_u64().is_some_and(|left| left > 7_000), "{moved:#}");

    let refused = stages.folder.run(&["ctl", "--as", "s1", "rebalance", "a=50", "--write"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("may not have registered again"), "{}", refused.err);
    let refused = stages.folder.run(&["ctl", "--as", "a1", "rebalance"]).refused(1);
    assert!(refused.contains("this server is not in the first stage"), "{refused}");
}

#[test]
fn a_change_that_would_lose_users_is_refused() {
    let stages = Stages::start();
    let path = stages.folder.path().join("strowger.toml");
    let file = std::fs::read_to_string(&path).expect("there");
    std::fs::write(&path, file.replace("weight = 0", "weight = 100")).expect("written");
    let ran = stages.folder.run(&["ctl", "reload", "--all"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains("add previous_weight = 0"), "{ran:?}");
    std::fs::write(&path, file.replace("weight = 0", "weight = 100\nprevious_weight = 0")).expect("written");
    let said = stages.folder.run(&["ctl", "reload", "--all"]).ok();
    assert_eq!(said.matches(": reloaded").count(), 3, "{said}");
}
