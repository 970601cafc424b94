//! A configuration for the servers of two stages: each server's role, and what is refused.

use std::path::{Path, PathBuf};

use strowger_balancer::{Registry, Slot};
use strowger_control::config::{Config, ConfigSource};
use strowger_control::targets::{Changes, Lists, ServiceNames, Sources, TargetSets};
use strowger_directory::{Directory, Gateways};
use strowger_shard::{Action, Listeners, Snapshot};

const FILE: &str = r#"
[server]
domains = ["example.com"]
data = "/var/lib/strowger"

[auth]
require = ["REGISTER"]

[[first_stage]]
name = "s1"
address = "192.0.2.1:5060"

[[first_stage]]
name = "s2"
address = "192.0.2.2:5060"

[[second_stage]]
name = "a"
store = "redis://192.0.2.9:6379"
members = [{ name = "a1", address = "192.0.2.11:5060" }, { name = "a2", address = "192.0.2.12:5060", number = 7 }]

[[second_stage]]
name = "b"
members = [{ name = "b1", address = "192.0.2.21:5060" }, { name = "b2", address = "192.0.2.22:5060", peer = "192.0.2.22:7000" }]

[[second_stage]]
name = "c"
weight = 50
previous_weight = 0
members = [{ name = "c1", address = "192.0.2.31:5060" }]
"#;

struct Written {
    _folder: tempfile::TempDir,
    file: PathBuf,
}

impl Written {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("strowger.toml");
        std::fs::write(&file, text).expect("written");
        Self { _folder: folder, file }
    }

    fn load(&self, name: &str) -> Config {
        let wanted = ConfigSource { file: Some(&self.file), member: Some(name) };
        Config::load(wanted).unwrap_or_else(|error| panic!("{error}")).0
    }
}

fn snapshot(config: &Config) -> Snapshot {
    let (lists, gateways) = (Lists::read(config), Gateways::default());
    let (services, changes) = (ServiceNames::default(), Changes::default());
    let sources = Sources { gateways: &gateways, lists: &lists, services: &services, changes: &changes };
    let sets = TargetSets::build(config, &sources, &Registry::default()).unwrap_or_else(|why| panic!("{why}"));
    config.snapshot(Listeners::new(Vec::new()), Directory::empty(1), &sets)
}

/// Returns the members that each cluster's routes lead to.
fn ways(snapshot: &Snapshot) -> Vec<Vec<String>> {
    let clusters = snapshot.clusters.as_ref().expect("clusters");
    let targets = |action: &Action| match action {
        Action::Proxy { targets, .. } => {
            targets.iter().map(|target| String::from_utf8_lossy(&target.uri).into_owned()).collect()
        }
        _ => Vec::new(),
    };
    clusters.routes.iter().map(|route| targets(&route.action)).collect()
}

#[test]
fn a_first_stage_server_only_routes_to_clusters() {
    let config = Written::new(FILE).load("s2");
    let listen: Vec<String> = config.server.listen.iter().map(ToString::to_string).collect();
    assert_eq!(listen, ["udp:192.0.2.2:5060", "tcp:192.0.2.2:5060"]);
    assert_eq!(config.server.data, Path::new("/var/lib/strowger/s2"));
    assert_eq!(config.key_file(), Path::new("/var/lib/strowger/key"), "all have one key");
    assert!(config.auth.require.is_empty(), "the clusters ask for passwords");
    assert!(!config.store_mode().is_durable() && config.cluster.is_none());
    let snapshot = snapshot(&config);
    assert!(snapshot.proxy.only_where_needed && snapshot.proxy.outbound && snapshot.has_shared_keys);
    assert_eq!(
        ways(&snapshot),
        [
            vec!["sip:192.0.2.11:5060", "sip:192.0.2.12:5060"],
            vec!["sip:192.0.2.21:5060", "sip:192.0.2.22:5060"],
            vec!["sip:192.0.2.31:5060"],
        ]
    );
    assert_eq!(snapshot.siblings.len(), 6, "all but itself");
    assert_eq!(snapshot.clusters.as_ref().and_then(|clusters| clusters.own), None);
}

#[test]
fn members_share_registrations_in_their_cluster_only() {
    let written = Written::new(FILE);
    let a2 = written.load("a2");
    let cluster = a2.cluster.as_ref().expect("members share");
    assert_eq!((cluster.name.as_str(), cluster.member, cluster.peers.len()), ("a", 7, 0));
    assert_eq!(cluster.address, Some(([192, 0, 2, 12], 5060).into()));
    let b1 = written.load("b1");
    let cluster = b1.cluster.as_ref().expect("members share");
    assert_eq!((cluster.name.as_str(), cluster.member), ("b", 1));
    assert_eq!(cluster.peers, [([192, 0, 2, 21], 5064).into(), ([192, 0, 2, 22], 7000).into()]);
    assert_eq!(cluster.listen, Some(([192, 0, 2, 21], 5064).into()));
    assert!(written.load("c1").cluster.is_none(), "who is alone shares with nobody");
    let snapshot = snapshot(&b1);
    assert_eq!(ways(&snapshot)[1], Vec::<String>::new(), "its own cluster needs no way");
    assert_eq!((ways(&snapshot)[0].len(), snapshot.proxy.only_where_needed), (2, false));
}

#[test]
fn all_servers_agree_on_current_and_past_owners() {
    let written = Written::new(FILE);
    let [first, a1, c1] = ["s1", "a1", "c1"].map(|name| snapshot(&written.load(name)).clusters.expect("clusters"));
    let before = first.previous.as_ref().expect("c is new");
    let mut moved = 0;
    for user in 0..10_000 {
        let slot = Slot::of(format!("u{user}@example.com").as_bytes());
        let owner = first.partition.owner(slot);
        assert_eq!([a1.partition.owner(slot), c1.partition.owner(slot)], [owner; 2]);
        assert_ne!(before.owner(slot), Some(2));
        moved += u32::from(owner != before.owner(slot));
        assert!(owner == before.owner(slot) || owner == Some(2));
    }
    assert!((1_800..2_200).contains(&moved), "{moved} of 10,000: a fifth");
}

#[test]
fn members_may_be_known_by_dns_only() {
    let text = "[server]\ndomains = [\"example.com\"]\n[[first_stage]]\nname = \"s\"\n[[second_stage]]\nname = \"a\"\n\
                store = \"redis://redis:6379\"\ntargets = [\"srv:a.example.com\"]\n";
    let written = Written::new(text);
    let member = written.load("a-2");
    assert_eq!(member.cluster.as_ref().map(|cluster| cluster.member), Some(3));
    assert_eq!(member.server.listen, Config::default().server.listen);
    assert!(written.load("s-0").is_first_stage() && written.load("s").is_first_stage());
}

#[test]
fn the_member_must_be_named() {
    let written = Written::new(FILE);
    let wanted = |member| Config::load(ConfigSource { file: Some(&written.file), member }).map(drop);
    let error = wanted(Some("x1")).expect_err("there is none").to_string();
    assert!(error.contains("there is no server \"x1\"") && error.contains("s1, s2, a1, a2, b1, b2, c1"), "{error}");
    // Assumes that no test machine has such a host name.
    let error = wanted(None).expect_err("for several").to_string();
    assert!(error.contains("choose one with --as NAME"), "{error}");
    let alone = Written::new("[server]\ndomains = [\"example.com\"]\n");
    let error =
        Config::load(ConfigSource { file: Some(&alone.file), member: Some("a1") }).expect_err("for one").to_string();
    assert!(error.contains("the configuration is for one server"), "{error}");
}

#[test]
fn conflicts_are_rejected_and_name_the_key() {
    let cases = [
        ("name = \"s2\"", "name = \"a1\"", "is already used; choose"),
        (
            "address = \"192.0.2.2:5060\"",
            "address = \"192.0.2.11:5060\"",
            "192.0.2.11:5060 is also used by another server",
        ),
        (
            "peer = \"192.0.2.22:7000\"",
            "peer = \"192.0.2.21:5064\"",
            "members[1].peer: 192.0.2.21:5064 is already used by another member",
        ),
        ("number = 7", "number = 1", "1 is used by another member"),
        ("address = \"192.0.2.1:5060\"", "address = \"0.0.0.0:5060\"", "cannot be reached by others"),
        ("name = \"c\"", "name = \"b\"", "\"b\" is already used"),
        ("members = [{ name = \"c1\", address = \"192.0.2.31:5060\" }]", "", "members: is missing"),
        (
            "store = \"redis://192.0.2.9:6379\"",
            "durability = \"engine\"",
            "second_stage[0].durability: with cluster.peers there is no engine",
        ),
    ];
    for (from, to, why) in cases {
        assert!(FILE.contains(from), "{from}");
        let error = Config::parse(&FILE.replacen(from, to, 1)).expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
    }
    let trusting = FILE.replacen("require = [\"REGISTER\"]", "trusted = [\"192.0.2.0/24\"]", 1);
    let error = Config::parse(&trusting).expect_err("everybody is trusted").to_string();
    assert!(error.contains("auth.trusted[0]: covers s1 of the first stage, at 192.0.2.1"), "{error}");
    let nobody = FILE.replace("weight = 50", "weight = 0").replacen("name = \"a\"", "name = \"a\"\nweight = 0", 1);
    let nobody = nobody.replacen("name = \"b\"", "name = \"b\"\nweight = 0", 1);
    assert!(Config::parse(&nobody).expect_err("no user").to_string().contains("is 0 in each cluster"));
    let both = format!("[cluster]\nmember = 1\nstore = \"redis://192.0.2.9\"\n{FILE}");
    assert!(Config::parse(&both).expect_err("two ways").to_string().contains("each [[second_stage]] is a cluster"));
}

#[test]
fn a_weight_change_needs_the_previous_weight() {
    let parse = |text: &str| Config::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let running = parse(FILE);
    let with = |from: &str, to: &str| parse(&FILE.replacen(from, to, 1)).check_successor(&running);
    assert_eq!(with("previous_weight = 0", ""), Ok(()), "the move is over");
    assert_eq!(with("weight = 50\nprevious_weight = 0", "weight = 80\nprevious_weight = 50"), Ok(()));
    let why = with("weight = 50\nprevious_weight = 0", "weight = 80").expect_err("nobody says where they were");
    assert!(why.contains("add previous_weight = 50"), "{why}");
    let why =
        with("weight = 50\nprevious_weight = 0", "weight = 80\nprevious_weight = 0").expect_err("they were elsewhere");
    assert!(why.contains("add previous_weight = 50"), "{why}");
    let gone = FILE.split("[[second_stage]]\nname = \"c\"").next().expect("the front");
    let why = parse(gone).check_successor(&running).expect_err("c has users");
    assert!(why.contains("c was removed") && why.contains("weight = 0 and previous_weight = 50"), "{why}");
    let emptied = parse(&FILE.replacen("weight = 50\nprevious_weight = 0", "weight = 0\nprevious_weight = 50", 1));
    assert_eq!(emptied.check_successor(&running), Ok(()));
    assert_eq!(parse(gone).check_successor(&emptied), Ok(()), "c has nobody any more");
}
