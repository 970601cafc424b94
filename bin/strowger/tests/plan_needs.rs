//! Output of `strowger plan` for planners new to the project, and rejection of ambiguous input.

mod common;

use common::{CommandResult, Folder};
use serde_json::Value;

fn plan(arguments: &str) -> CommandResult {
    let all: Vec<&str> = ["plan"].into_iter().chain(arguments.split_whitespace()).collect();
    Folder::new("").run(&all)
}

/// Returns the output without line breaks.
fn shown(arguments: &str) -> String {
    unbroken(&plan(arguments).ok())
}

fn unbroken(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn has(text: &str, all: &[&str]) {
    for wanted in all {
        assert!(text.contains(wanted), "{wanted:?} in {text}");
    }
}

#[track_caller]
fn has_none(text: &str, all: &[&str]) {
    for unwanted in all {
        assert!(!text.contains(unwanted), "{unwanted:?} in {text}");
    }
}

#[test]
fn members_share_registrations_as_configured() {
    const ENGINE: &str = "members of a cluster share registrations through an engine (docs/operating/members.md); the servers, cost and \
                          failures of the engine are not included";
    const DATABASES: &str = "each member has a database, and all replicate each other, as with MariaDB in both directions \
                             (docs/operating/members.md)";
    const PROMISE: &str = "with \"engine\", the default, the 200 is sent only when the engine has the registration.";
    let out = shown("size --subscribers 2M");
    has(
        &out,
        &[
            ENGINE,
            "3 SERVERS: 1 cluster of 3 members, no first stage. S = 0, P = 1, B = 3 cores 24",
            "availability 99.9999 % downtime per year",
            "if its server fails before it is passed on to the other members",
            PROMISE,
            "--replication copies (assumed), --profile measured",
        ],
    );
    has_none(&out, &[DATABASES, "today", "not built", "NOT BUILT"]);
    has(
        &shown("size --subscribers 2M --explain"),
        &["w_copies = 2·(B − 1)·λ_R·C_copy", "R = (1 − (1 − R_p)^B)^P = (1 − (1 − 0.99)^3)^1 = 99.9999 %"],
    );
    let found = plan("size --subscribers 2M --json").json();
    assert_eq!((&found["members"], &found["replication"]), (&Value::from(3), &Value::from("copies")));
    assert!(found["work"]["copies"].as_f64().is_some_and(|work| work > 0.0), "{found}");
    for gone in ["today", "availability_today"] {
        assert!(found.get(gone).is_none(), "{gone} in {found}");
    }
    // A sweep shows it too.
    has(&shown("size --subscribers 1M..2M/1M"), &[ENGINE, "availability downtime per year"]);

    let out = shown("size --subscribers 2M --replication store");
    has(
        &out,
        &[
            DATABASES,
            "this server hold all data: take their memory from --replication copies",
            "stores 3",
            "if its server fails before it is written to the other databases",
            "--replication store, --profile measured",
        ],
    );
    has_none(&out, &[ENGINE, PROMISE]);
    let help = unbroken(&plan("size --help").ok());
    has(
        &help,
        &[
            "copies: Each REGISTER is replicated to all members through a shared engine",
            "store: Each member has a database, replicated to all others, as with MariaDB two-way",
            "none: No replication: a cluster has one member, or phones register with each (--failover client)",
            "Members of a cluster share registrations through an engine (docs/operating/members.md)",
        ],
    );
    has_none(&help, &["today", "built"]);
}

#[test]
fn without_sharing_only_the_phones_provide_redundancy() {
    let out = shown("size --subscribers 2M --replication none --failover client");
    has(&out, &["phones register with all 3 members of a cluster", "--replication none,"]);
    has_none(&out, &["through an engine", "each member has a database", "cluster.durability"]);
    // Phones that register with each member need no replication.
    has_none(&shown("size --subscribers 2M --failover client"), &["through an engine", "cluster.durability"]);
    has(
        &shown("size --subscribers 2M --replication none --availability 0"),
        &["1 SERVER: 1 cluster of 1 member, no first stage.", "availability 99 %"],
    );
    let found = plan("size --subscribers 100M --replication none --availability 0 --json").json();
    assert_eq!(found["members"], 1, "{found}");
    assert!(found["clusters"].as_u64() > Some(1) && found["first"].as_u64() >= Some(1), "{found}");
    let ran = plan("size --subscribers 2M --replication none");
    assert_eq!(ran.code, Some(1));
    has(
        &unbroken(&ran.err),
        &[
            "do not share registrations",
            "share registrations between members (--replication copies)",
            "let phones register with several servers",
        ],
    );
}

#[test]
fn an_ambiguous_comma_is_refused() {
    for (command, wanted) in [
        ("mg1 --rate 4,800 --service 181us", "'4,800' is ambiguous: write 4800 or 4_800 for one number"),
        ("size --subscribers 2,500,100", "write 2500100 or 2_500_100 for one number, '2;500;100' for a list"),
        ("size --subscribers 2,000,000", "write 2000000 or 2_000_000 for one number"),
        ("size --subscribers 2M --erlangs 0,15", "write 0.15 for one number, '0;15' for a list"),
        ("size --subscribers 2M --availability 99,999%", "write 99.999% for one number"),
        ("size --subscribers 1,5M", "write 1.5M for one number"),
        ("mg1 --rate 1,000..5,000/500 --service 1us", "'1,000' is ambiguous"),
        ("availability --node 99% --goal 99,9%", "write 99.9% for one number"),
        ("mg1 --rate 100 --service 1,5ms", "write 1.5ms for one number"),
    ] {
        let why = plan(command);
        assert_eq!((why.code, why.out.as_str()), (Some(2), ""), "{command}: {why:?}");
        assert!(why.err.contains(wanted), "{command}: {wanted} in {}", why.err);
    }
    let rates = |command: &str| -> Vec<f64> {
        let found = plan(command).json();
        found["rows"].as_array().expect("rows").iter().filter_map(|row| row["rate_per_s"].as_f64()).collect()
    };
    assert_eq!(rates("mg1 --rate 4;800 --service 181us --json"), [4.0, 800.0]);
    assert_eq!(rates("mg1 --rate 1000,2000 --service 181us --json"), [1_000.0, 2_000.0]);
    assert_eq!(plan("mg1 --rate 4_800 --service 181us --json").json()["rate_per_s"], 4_800.0);
}

#[test]
fn nat_keep_alives_are_in_the_plan() {
    let out = shown("size --subscribers 2M");
    has(
        &out,
        &[
            "NAT keep-alives 66,667/s",
            "66,667 keep-alives per second, a CRLF every 30 s to each phone behind a NAT, are 3.33 times the SIP messages",
            "--nat other contacts behind NAT 100 %",
            "--keepalive keep-alive interval 30 s",
            "share behind a NAT 100 % -10 %",
        ],
    );
    has(&shown("size --subscribers 2M --explain"), &["K = subscribers·contacts·(1 − connected)·nat", "= 66,666.7/s"]);
    let found = plan("size --subscribers 2M --nat 50% --keepalive 20s --json").json();
    assert_eq!(found["keep_alives_per_s"], 50_000.0);
    let none = plan("size --subscribers 2M --nat 0% --json").json();
    assert_eq!(none["keep_alives_per_s"], 0.0);
    let line = |found: &Value| found["bandwidth_bits_per_s"].as_f64().expect("a number");
    assert!((line(&found) - line(&none) - 50_000.0 * 60.0 * 8.0).abs() < 1.0);
}

#[test]
fn connections_are_checked_against_the_server_limit() {
    let out = shown("size --subscribers 2M --connected 100%");
    has(
        &out,
        &[
            "5 SERVERS",
            "connections a server 500,000",
            "connections of the second stage 53.33 %",
            "set tcp.connections to at least 533,334 (the default is 16,384)",
            "LimitNOFILE",
            "--connections connections per server 1,000,000",
        ],
    );
    has_none(&out, &["keep-alives per second"]);
    has(
        &shown("size --subscribers 2M --connected 100% --explain"),
        &["tcp.connections·15/16 = 1,000,000 × 15/16 = 937,500", "500,000 / 937,500"],
    );
    let found = plan("size --subscribers 100k --connected 100% --connections 16384 --json").json();
    assert!(found["servers"].as_u64() > Some(9), "16384 a server are not many: {found}");
    let ran = plan("size --subscribers 2M --connected 100% --connections 2M");
    assert!(ran.code == Some(2) && ran.err.contains("at most 1,000,000"), "{ran:?}");
}

#[test]
fn costs_assume_a_busy_server() {
    let out = shown("size --subscribers 2M");
    has(&out, &["at 10 % load or less, a call costs two to four times as much (docs/operating/capacity.md)"]);
    has(&out, &["memory of the second stage 7.239 % 70 % 20.3 million"]);
    has_none(&out, &["270,927,835", "20,3"]);
    has_none(&shown("size --subscribers 2M --cores 1 --nat 0% --refresh 60s"), &["at 10 % load or less"]);
}

#[test]
fn the_answer_names_its_weakest_assumption() {
    let out = shown("size --subscribers 2M");
    has(
        &out,
        &[
            "The most influential assumption is that a server is 99 % available (--node): it fails every 4.125 d for 60 min \
             (--repair). With 99.9 %, the result is 2 servers, at 200 per month.",
            "The availability requires 3 servers; the load alone needs 1.",
            "This assumes independent failures",
            "unavailability of a server 1 % -90 % +0.0 % -1",
            "--repair mean time to repair 60 min (so it fails every 4.125 d)",
            "--ttl DNS time to live 300 s",
            "--replicated-within replication delay 100 ms",
            "--cache delay before replication 0 s",
            "--retry clients retry after 32 s",
            "A call that meets a failed server is set up 32 s later; averaged over all calls, this is ",
        ],
    );
    // Given values are not assumptions.
    has_none(&shown("size --subscribers 2M --node 99% --availability 99.999%"), &["The most influential assumption"]);
}

#[test]
fn all_phones_register_at_once_after_an_outage() {
    let out = shown("size --subscribers 2M");
    has(
        &out,
        &[
            "After a total outage, all 2 million phones register again: this takes at least 21.1 s",
            "(the bottleneck is the network of the second stage)",
            "register within 60 min as usual",
            "configure a random delay of more than 21.1 s",
        ],
    );
    let found = plan("size --subscribers 2M --json").json();
    assert_eq!(
        (&found["storm"]["registrations"], &found["storm"]["resource"]),
        (&Value::from(2e6), &Value::from("network"))
    );
}

#[test]
fn size_and_failover_share_their_defaults() {
    let (size, failover) = (plan("size --subscribers 2M --json").json(), plan("failover --json").json());
    for key in ["retry_s", "ttl_s", "repair_s", "replication_s", "cache_s", "refresh_s"] {
        assert_eq!(size[key], failover[key], "{key}");
    }
    assert_eq!(size["server_availability"], failover["availability"]);
    let seconds = |value: &Value| value.as_f64().expect("a number");
    assert!((seconds(&size["failover"]["times"]["failure_s"]) - seconds(&failover["failure_s"])).abs() < 0.001);
    for command in ["size", "failover"] {
        let help = unbroken(&plan(&format!("{command} --help")).ok());
        for default in ["32s", "5min", "1h", "100ms"] {
            assert!(help.contains(&format!("[default: {default}]")), "{command}: {default} in {help}");
        }
    }
}

#[test]
fn figures_have_no_meaningless_precision() {
    let out = shown("size --subscribers 10");
    has(&out, &["wait of a packet under 1 µs"]);
    has_none(&out, &[" ns "]);
    let out = shown("availability --node 99.9999999999%");
    has(
        &out,
        &["availability above 99.9999999 %", "nines above 9", "downtime per year under 32 ms", "more than 9 nines"],
    );
    has(&shown("availability --first 3 --clusters 3 --members 3 --node 99%"), &["downtime per year 2.104 min"]);
    let json = plan("availability --node 99.9999999999% --json").json();
    assert!(
        json["unavailability"].as_f64().is_some_and(|missing| missing > 0.0 && missing < 1e-20),
        "machines get it: {json}"
    );
}

#[test]
fn one_server_is_singular() {
    for command in ["size --subscribers 10k --node 100%", "size --subscribers 10k --availability 0"] {
        let out = shown(command);
        has(&out, &["1 SERVER: 1 cluster of 1 member, no first stage."]);
        has_none(
            &out,
            &[
                "The availability requires",
                "1 servers",
                "0 % asked",
                "0 % is required",
                "with one server of the group down",
            ],
        );
    }
    has(
        &shown("size --subscribers 10k --availability 0"),
        &["The server is 99 % available, and no minimum is required: it has no spare."],
    );
}

#[test]
fn impossible_goals_are_refused_in_words() {
    let ran = plan("size --subscribers 2M --availability 100%");
    assert_eq!(ran.code, Some(1));
    has(&unbroken(&ran.err), &["no number of them reaches 100 %", "require less than 100 %"]);
    has(
        &unbroken(&ran.out),
        &["NO NUMBER OF SERVERS: availability cannot be met", "What to do: require less", "assumed (not given)"],
    );
    assert!(!ran.out.contains('–'), "nothing is shown of what is not: {}", ran.out);
    let ran = plan("size --subscribers 1T --memory 1GiB");
    assert_eq!(ran.code, Some(2), "T is not a unit of a count: {ran:?}");
    let ran = plan("size --subscribers 1000G --memory 1GiB");
    assert_eq!(ran.code, Some(1));
    has(&unbroken(&ran.err), &["load cannot be met: even with 4096 clusters, the load needs ", " times all of the "]);
    let caution = shown("size --subscribers 1k --erlangs 2");
    has(&caution, &["CAUTION: 2 erlangs per subscriber mean more than one concurrent call"]);
    has(
        &shown("size --subscribers 1k --node 10% --availability 20%"),
        &["CAUTION: a server that is 10 % available is down 90 %"],
    );
}

#[test]
fn likely_units_are_suggested() {
    for (command, wanted) in [
        ("size --subscribers 2m", "m is not a known unit of a count; write 2M"),
        ("size --subscribers 2M --memory 16", "'16' has no unit; write 16GiB"),
        ("size --subscribers 2M --memory 16G", "write 16GiB or 16GB"),
        ("size --subscribers 2M --memory 0", "a size must be above zero"),
        ("size --subscribers 2M --network 1G", "write 1Gbit/s"),
        ("size --subscribers 2M --bhca 1M/h", "write 1M"),
        ("two-stage --second-capacity 900", "--requests RATE --first-capacity RATE --register-capacity RATE"),
        ("two-stage --second-capacity 900 --requests 100", "with --first-capacity RATE"),
        ("two-stage --first 1 --first-capacity 1000 --second-capacity 900 --shares 60,40", "60 % is 60% or 0.6"),
        (
            "mmck --rate 100 --service 1ms --plot x.svg",
            "give one number as a range, FROM..TO/STEP, such as --rate 6000..16000/500",
        ),
        ("size --subscribers 2M --plot x.svg", "as --subscribers 1M..10M/1M"),
    ] {
        let ran = plan(command);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{command}: {ran:?}");
        assert!(ran.err.contains(wanted), "{command}: {wanted} in {}", ran.err);
    }
    let found = plan("size --subscribers 2M --network 1Gbps --erlangs 0.15erl --json").json();
    assert_eq!((&found["server_network_bits_per_s"], &found["erlangs"]), (&Value::from(1e9), &Value::from(0.15)));
}

#[test]
fn rows_that_reach_the_goal_are_marked() {
    let out = plan("availability --members 1..3/1 --node 99% --goal 99.99%").ok();
    let last = |line: &str| line.split_whitespace().next_back().map(str::to_owned);
    let marked: Vec<String> = out.lines().filter_map(last).filter(|word| word == "yes" || word == "no").collect();
    assert_eq!(marked, ["no", "yes", "yes"], "{out}");
    has(
        &out,
        &[
            "reaches the goal",
            "1 of 3 rows do not meet the requirements, the first because 99 % is below the goal of 99.99 %",
        ],
    );
    has_none(&out, &["no answer"]);
    let rows = plan("availability --members 1..3/1 --node 99% --goal 99.99% --json").json();
    assert_eq!(
        (&rows["rows"][0]["reaches_goal"], &rows["rows"][2]["reaches_goal"]),
        (&Value::from(false), &Value::from(true))
    );
    let ran = plan("availability --members 1..3/1 --node 50% --goal 99.99%");
    assert!(ran.code == Some(1) && ran.err.contains("no row of the sweep meets the requirements"), "{ran:?}");
}

#[test]
fn overload_is_named() {
    let ran = plan("mg1 --rate 1000 --service 1ms");
    assert_eq!(ran.code, Some(1));
    has(&ran.out, &["stable below"]);
    has(&ran.err, &["arrivals keep one server busy all the time", "stay below 1,000/s, or add a server"]);
    // The table and the sentence show the same number.
    let ran = plan("mg1 --rate 6000 --service 181us");
    has(&unbroken(&ran.out), &["stable below 5,524/s"]);
    has(&ran.err, &["stay below 5,524/s"]);
    let out = shown("mg1 --rate 5524.86 --service 181us");
    has(
        &out,
        &[
            "CAUTION: this close to saturation, do not plan with the mean: with 1 % fewer arrivals, 5,470/s, the wait is ",
        ],
    );
    has_none(&shown("mg1 --rate 4800 --service 181us"), &["CAUTION"]);
}
