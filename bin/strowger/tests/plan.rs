//! `strowger plan` on the command line.

mod common;

use common::Folder;
use serde_json::Value;

fn plan(arguments: &str) -> common::CommandResult {
    in_folder(&Folder::new(""), arguments)
}

fn in_folder(folder: &Folder, arguments: &str) -> common::CommandResult {
    let all: Vec<&str> = ["plan"].into_iter().chain(arguments.split_whitespace()).collect();
    folder.run(&all)
}

/// Returns the text of an answer without line breaks.
fn unbroken(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn close(value: &Value, wanted: f64, within: f64) {
    let got = value.as_f64().unwrap_or_else(|| panic!("{value} is no number"));
    assert!((got - wanted).abs() <= within, "{got}, not {wanted}");
}

/// The invocations that external checks rely on.
#[test]
fn cli_contract_holds() {
    let found = plan("mg1 --rate 4800 --service 181.185us --scv 0.022 --json").json();
    close(&found["rho"], 0.8697, 1e-4);
    close(&found["wait_us"], 617.9, 0.2);
    let found = plan("mmck --rate 14400 --service 140.37us --servers 2 --queue 200 --json").json();
    close(&found["rho"], 1.010_66, 1e-4);
    close(&found["drop_probability"], 0.0119, 0.0004);
    let found = plan("cores --processors 2 --cores 6 --base 1000 --json").json();
    assert_eq!((&found["threads"], &found["capacity"]), (&Value::from(6), &Value::from(6_000.0)));
    let found =
        plan("two-stage --first 2 --first-capacity 1050 --second 2 --second-capacity 900 --shares 0.6,0.4 --json")
            .json();
    close(&found["capacity"], 1_740.0, 1e-6);
    assert_eq!(found["breakpoints"], serde_json::json!([[1500.0, 1500.0], [2100.0, 1740.0]]));
    let found = plan("availability --first 3 --clusters 3 --members 3 --node 0.99 --json").json();
    close(&found["availability"], 0.999_996, 1e-9);
}

#[test]
fn one_command_sizes_for_two_million_users() {
    let out = plan("size --subscribers 2M").ok();
    assert!(out.starts_with("How many servers\n  profile measured"), "{out}");
    for wanted in [
        "SERVERS: ",
        "\nwhy\n- ",
        "- 2 million subscribers who register every 60 min",
        "\nutilization by resource",
        "\neffect of a 10 % change",
        "\ngiven\n  --subscribers ",
        "\nassumed (not given)\n  --erlangs ",
        "--availability ",
        "The bottleneck is the ",
    ] {
        assert!(out.contains(wanted), "{wanted:?} in {out}");
    }
    let found = plan("size --subscribers 2M --json").json();
    let count = |key: &str| found[key].as_u64().unwrap_or_else(|| panic!("{key} in {found}"));
    assert_eq!(count("servers"), count("first") + count("clusters") * count("members"));
    assert!(found["availability"].as_f64().is_some_and(|share| share >= 0.99999), "{found}");
    close(&found["traffic"]["registers_per_s"], 555.6, 0.1);
    close(&found["traffic"]["calls_per_s"], 1_111.1, 0.1);
    assert!(found["assumed"].as_array().is_some_and(|assumed| assumed.contains(&Value::from("--hold"))));
    assert!(found["limits"].as_array().is_some_and(|limits| !limits.is_empty()));
    assert!(found["sensitivities"].as_array().is_some_and(|inputs| inputs.len() > 5));
}

#[test]
fn size_takes_all_requirements_and_says_no_if_they_cannot_be_met() {
    let found = plan(
        "size --subscribers 300k --calls-each 2 --hold 3min --refresh 30min --availability 99.9% --replication store \
         --failover takeover --node 99.5% --cores 4 --memory 8GB --network 10Gbit/s --price 80 --profile goals --json",
    )
    .json();
    close(&found["traffic"]["registers_per_s"], 166.67, 0.01);
    close(&found["traffic"]["calls_per_s"], 166.67, 0.01);
    assert_eq!((&found["server_cores"], &found["profile"]), (&Value::from(4), &Value::from("goals")));
    assert!(found["stores"].as_u64().is_some_and(|stores| stores > 0), "{found}");
    let sweep = plan("size --subscribers 1M..3M/1M --json").json();
    let busy: Vec<f64> =
        sweep["rows"].as_array().expect("rows").iter().filter_map(|row| row["busy_cores"].as_f64()).collect();
    assert!(busy.len() == 3 && busy.is_sorted_by(|a, b| a < b), "{sweep}");
    let ran = plan("size --subscribers 2M --availability 99.9999999999% --node 50%");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.err.contains("availability cannot be met") && ran.err.contains("use more available servers"),
        "{ran:?}"
    );
}

#[test]
fn an_answer_is_explained() {
    let out = plan("mg1 --rate 4800 --service 181.185us --scv 0.022").ok();
    assert!(out.starts_with("M/G/1: one server, Poisson arrivals, unlimited queue\n"), "{out}");
    assert!(out.lines().any(|line| line.starts_with("mean wait W ") && line.ends_with(" 617.9 µs")), "{out}");
    assert!(
        unbroken(&out).contains("A packet waits 617.")
            && unbroken(&out).contains("With 10 % more arrivals, 5,280/s, it waits"),
        "{out}"
    );
    assert!(out.lines().any(|line| line.starts_with("stable below ") && line.ends_with(" 5,519/s")), "{out}");
    let out = plan("mg1 --rate 4800 --service 181us").ok();
    assert!(out.contains("assumed: service times are exponentially distributed (--scv 1)"), "{out}");

    let ran = plan("mg1 --rate 6624 --service 181.185us --scv 0.022");
    assert_eq!(ran.code, Some(1));
    assert_eq!(
        ran.err.trim_end(),
        "strowger: the queue is unstable: 1.2 servers' worth of work arrives for 1; stay below 5,519/s, or add a server (mmck computes \
         the drops of c servers with a queue of K)"
    );
    let found: Value = serde_json::from_str(&plan("mg1 --rate 6624 --service 181.185us --json").out).expect("JSON");
    assert_eq!(found["wait_us"], Value::Null);
    assert!(found["reason"].as_str().is_some_and(|why| why.contains("unstable")) && found["rho"].as_f64() > Some(1.19));

    let out = plan("mmck --rate 14400 --service 140.37us --servers 2 --queue 200").ok();
    assert!(unbroken(&out).contains("Overload: 2.02 servers' worth of work arrives for 2"), "{out}");
    assert!(unbroken(&out).contains("That exceeds 1 %") && unbroken(&out).contains("add a server"), "{out}");
    let out = plan("mmck --rate 12k --service 65.16us --servers 4 --beta thesis").ok();
    assert!(out.contains("the servers share one core") && out.contains("service E[X]"), "{out}");
    let out = plan("availability --first 3 --clusters 3 --members 3 --node 99%").ok();
    assert!(out.contains("99.9996 %") && out.contains("5 nines") && out.contains("What helps first: one "), "{out}");
    let ran = plan("availability --members 2 --node 99% --goal 99.999%");
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("99.99 % is below the goal of 99.999 %; try one more member"), "{ran:?}");
    let out = plan("two-stage --first 3 --first-capacity 1050 --second 3 --second-capacity 900").ok();
    assert!(unbroken(&out).contains("the maximum throughput is 2,700/s"), "{out}");
    let out = plan(
        "two-stage --requests 833 --registers 83 --first-capacity 1050 --second-capacity 900 --register-capacity 2000",
    )
    .ok();
    assert!(out.contains("A first stage is needed"), "{out}");
    let out = plan("databases --databases 3 --writes 2777 --write-time 120us").ok();
    assert!(out.contains("Replicas: each is busy ") && out.contains("Partitions: each is busy "), "{out}");
    let out = plan("failover --retry 500ms --refresh 10min").ok();
    assert!(out.contains("then unreachable at most") && out.contains("10.01 min"), "{out}");
}

#[test]
fn a_sweep_is_a_table() {
    let out = plan("mg1 --rate 1000..6000/1000 --service 181.185us --scv 0.022").ok();
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines.contains(&"with mean service E[X] 181.185 µs, variation Var[X]/E[X]² 0.022"), "{out}");
    let rows: Vec<&&str> = lines.iter().filter(|line| line.trim_start().ends_with("5,519/s")).collect();
    assert_eq!(rows.len(), 6, "{out}");
    assert!(rows.iter().all(|row| row.chars().count() == rows[0].chars().count()), "columns are straight: {out}");
    assert!(rows[5].contains('–') && out.contains("– no answer: the queue is unstable"), "{out}");
    let found = plan("mmck --rate 6k..16k/2k --service 65.16us --servers 2,4,8 --beta thesis --json").json();
    assert_eq!(found["swept"], serde_json::json!(["rate_per_s", "servers"]));
    let rows = found["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 18);
    let drops = |servers: u64, rate: f64| {
        let row = rows.iter().find(|row| row["servers"] == servers && row["rate_per_s"] == rate).expect("a row");
        row["drop_probability"].as_f64().expect("a number")
    };
    assert!(drops(8, 12_000.0) > drops(4, 12_000.0) && drops(2, 16_000.0) > drops(2, 6_000.0));
}

#[test]
fn explain_shows_formulas_with_their_numbers() {
    let out = plan("mg1 --rate 4800 --service 181.185us --scv 0.022 --explain").ok();
    for wanted in ["λ·E[X²] / (2·(1 − ρ))", "= 4,800/s × 181.185 µs", "= 0.869688", "thesis, eq. 4.2"] {
        assert!(out.contains(wanted), "{wanted} in {out}");
    }
    for (command, wanted) in [
        ("mmck --rate 1000 --service 1ms --servers 2 --explain", "eq. 5.3"),
        ("mgck --rate 1000 --service 1ms --servers 2 --scv 0.5 --explain", "Smith 2003"),
        ("mmck --rate 12k --service 65us --servers 4 --beta thesis --explain", "eq. 5.6"),
        ("mg1 --rate 3600 --service 112us --scv 0 --alpha exponential --base 7.9us --explain", "8 × 7.9 µs + 112 µs"),
        ("mg1 --rate 3600 --type INVITE:200us --type ACK:100us:0.1:2 --explain", "2 message types"),
        ("cores --cores 4 --base 1000 --explain", "eq. 7.1"),
        (
            "two-stage --first 2 --first-capacity 1050 --second-capacity 900 --shares 60%,40% --explain",
            "failover paper, section 5.2",
        ),
        ("databases --databases 2 --writes 100 --write-time 1ms --explain", "((t·r/D) + 1)·T·N"),
        ("availability --node 99% --explain", "(1 − (1 − R_p)^B)^P"),
        ("availability --proxies 3 --databases 2 --node 99% --explain", "section 4.1"),
        ("availability --no-spares 3 --node 99% --explain", "section 4.2"),
        ("failover --explain", "T_R·(1 − R)·P[t_M < T_D]"),
        ("size --subscribers 300k --explain", "TCP paper"),
    ] {
        let out = plan(command).ok();
        assert!(out.contains(wanted), "{command}: {wanted} in {out}");
    }
    let steps = plan("mg1 --rate 100 --service 1ms --explain --json").json();
    assert!(steps["explanation"].as_array().is_some_and(|steps| steps.len() >= 3), "{steps}");
}

#[test]
fn invalid_input_is_refused_with_a_reason_and_a_remedy() {
    for (command, wanted) in [
        ("mg1 --rate 4800 --service 181", "'181' has no unit; write 181us"),
        ("mg1 --rate 4800 --service 5furlongs", "furlongs is not a known unit of a time"),
        ("mg1 --rate -5 --service 1ms", "'-5' is below zero"),
        ("mg1 --rate 0 --service 1ms", "a rate must be above zero"),
        ("mg1 --rate NaN --service 1ms", "'NaN' is not a rate"),
        ("mg1 --rate 100..2000 --service 1ms", "has no step; a sweep is FROM..TO/STEP, such as 100..2000/100"),
        ("mg1 --rate 100", "--service"),
        ("mg1 --rate 100 --service 1ms --profile nowhere.json", "cannot be used with"),
        ("mg1 --rate 100 --profile nowhere.json", "nowhere.json: No such file"),
        ("mg1 --rate 100 --profile goals", "fit a profile to measurements (plan fit)"),
        ("mg1 --rate 100 --service 1ms --alpha 5=1,3=2 --base 1us", "not above the previous x"),
        ("mmck --rate 100 --service 1ms --servers 8 --queue 4", "no room for its"),
        ("mmck --rate 100 --service 1ms --scv 0.5", "omit it, or use mgck"),
        ("mmck --rate 100 --service 1ms --beta profile", "--beta profile needs a --profile with a β"),
        ("mmck --rate 100 --service 1ms --beta 1,2", "is not a β"),
        ("cores --processors 4 --cores 2 --base 1000", "2 cores"),
        ("two-stage --first 1 --first-capacity 1000 --second-capacity 900 --shares 0.6,0.3", "add up to 0.9, not to 1"),
        (
            "two-stage --first 1 --first-capacity 1000 --second 3 --second-capacity 900 --shares 0.6,0.4",
            "2 shares for --second 3",
        ),
        ("availability --node 99.9", "99.9 % is 99.9% or 0.999"),
        ("failover --availability 100%", "a server with an availability of 100 % never fails"),
        ("size --subscribers 2.5", "'2.5' is not an integer"),
        ("size --subscribers 2M --erlangs 0.1 --bhca 5M", "cannot be used with"),
        ("mg1 --rate 100 --service 1ms --plot x.svg", "--plot needs a sweep"),
        ("mg1 --rate 100..200/10 --service 1ms --plot x.png", "plots are .svg or .html"),
        ("mg1 --rate 1..9000/1 --service 1us..9000us/1us", "more than 100,000 points"),
    ] {
        let ran = plan(command);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{command}: {ran:?}");
        assert!(ran.err.contains(wanted), "{command}: {wanted} in {}", ran.err);
    }
}

#[test]
fn plots_are_svg_and_html() {
    let folder = Folder::new("");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect(name);
    let sweep = "mmck --rate 6k..16k/500 --service 65.16us --servers 2,4 --beta thesis";
    let out = in_folder(&folder, &format!("{sweep} --plot drops.svg")).ok();
    assert!(out.ends_with("drawn in drops.svg\n"), "{out}");
    let svg = read("drops.svg");
    assert!(svg.starts_with("<svg") && svg.contains("dropped p_K") && svg.contains("servers c 4"), "{svg}");
    in_folder(&folder, &format!("{sweep} --plot drops.html")).ok();
    let html = read("drops.html");
    assert!(html.contains("uPlot") && html.contains("\"title\":\"dropped p_K\"") && html.ends_with("</html>\n"));
    assert!(!html.contains("src=") && !html.contains("href="), "it needs nothing else");
    in_folder(&folder, "two-stage --first 2 --first-capacity 1050 --second-capacity 900 --shares 0.6,0.4 --plot t.svg")
        .ok();
    assert!(read("t.svg").contains("throughput against load"));
    in_folder(&folder, "size --subscribers 1M..4M/1M --plot size.html").ok();
    assert!(read("size.html").contains("cost per month"));
}

/// A server with 100 µs per packet, which grows by a fifth up to 6,000 packets/s, and with contention between
/// threads.
const TABLE: &str = "\
rate,service_us,waiting_us,drops,cpu,threads,queue
1000,102,6,0,10.2%,1,200
1000,103,6.1,0,10.3%,1,200
3000,110,27,0,33%,1,200
3000,111,28,0,33.3%,1,200
6000,120,154,0,72%,1,200
6000,121,160,0,72.6%,1,200
8600,121,2900,0.047,100%,1,200
8100,121,1500,0.006,98%,1,200
7000,266,,0.0005,99%,2,200
8000,271,,0.08,99%,2,200
6000,560,,0.0004,99%,4,200
7000,575,,0.03,99%,4,200
";

#[test]
fn a_profile_is_fitted_used_and_validated() {
    let folder = Folder::new("");
    folder.write("table.csv", TABLE);
    let out = in_folder(&folder, "fit table.csv --output fitted.json --name mine --plot fit.svg").ok();
    for wanted in [
        "A profile from measurements: 12 measurements, seed 1",
        "service time of one thread",
        "variation Var[X]/E[X]²",
        "β: for each thread",
        "base capacity C₁, calls",
        "written to fitted.json",
    ] {
        assert!(out.contains(wanted), "{wanted} in {out}");
    }
    let json = in_folder(&folder, "fit table.csv --name mine --json").json();
    let written: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.path().join("fitted.json")).expect("written"))
            .expect("JSON");
    assert_eq!(json, written, "the seed decides");
    close(&json["profile"]["base_capacity_per_s"], 8_170.0 / 6.0, 30.0);
    assert!(
        json["fit"]["base_capacity_per_s"]["interval"].is_array()
            || json["fit"]["base_capacity_per_s"]["method"].is_string()
    );

    let found = in_folder(&folder, "mg1 --rate 3000 --profile fitted.json --json").json();
    close(&found["mean_service_us"], 110.5, 3.0);
    close(&found["wait_us"], 27.5, 5.0);
    let found = in_folder(&folder, "mmck --rate 7000 --profile fitted.json --servers 4 --beta profile --json").json();
    close(&found["mean_service_us"], 575.0, 10.0);
    let out = in_folder(&folder, "size --subscribers 2M --profile fitted.json").ok();
    assert!(out.contains("profile mine (fitted.json): fitted to 12 measurements"), "{out}");

    let out = in_folder(&folder, "validate table.csv --profile fitted.json --plot v.html").ok();
    for wanted in
        ["one thread (M/G/1, as the thesis's table 4.4)", "several threads (M/M/c/K", "rate at which 1 % is dropped"]
    {
        assert!(out.contains(wanted), "{wanted} in {out}");
    }
    assert!(out.contains("Of 4 waits of one thread at 30 to 80 % load, 4 are predicted within 15 % or 5 µs."), "{out}");
    let found = in_folder(&folder, "validate table.csv --profile fitted.json --json").json();
    assert_eq!(found["rows"].as_array().map(Vec::len), Some(12));
    assert_eq!(found["one_percent"][0]["servers"], 1);
    let html = std::fs::read_to_string(folder.path().join("v.html")).expect("drawn");
    assert!(html.contains("processors kept busy"));

    folder.write("other.csv", "rate,service_us,waiting_us\n3000,110,300\n");
    let ran = in_folder(&folder, "validate other.csv --profile fitted.json --strict");
    assert!(ran.code == Some(1) && ran.err.contains("a prediction exceeds its tolerance"), "{ran:?}");
    folder.write("nothing.csv", "rate,service_us\n3000,110\n");
    let ran = in_folder(&folder, "validate nothing.csv --profile fitted.json --strict");
    assert!(ran.code == Some(1) && ran.err.contains("no measurement can be judged"), "{ran:?}");
}

#[test]
fn unusable_measurements_are_refused() {
    let folder = Folder::new("");
    folder.write("bare.csv", "rate,service\n600,133.4\n");
    folder.write("run.json", "{\"offered\": 1}");
    folder.write("profile.json", "{}");
    for (command, wanted) in [
        ("fit bare.csv", "bare.csv:2: '133.4' has no unit"),
        ("fit run.json", "run.json: this is not the report of a run"),
        ("fit nowhere.json", "nowhere.json: No such file"),
        ("fit", "required"),
        ("validate bare.csv --profile profile.json", "profile.json: this is not a profile"),
        ("validate bare.csv --profile goals", "bare.csv:2:"),
    ] {
        let ran = in_folder(&folder, command);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{command}: {ran:?}");
        assert!(ran.err.contains(wanted), "{command}: {wanted} in {}", ran.err);
    }
}

/// A run of the generator, in its JSON form.
#[test]
fn a_generator_run_is_a_measurement() {
    let folder = Folder::new("");
    let run = |rate: u64, processors: f64| {
        let calls = 10 * rate;
        serde_json::json!({
            "workload": "proxy-200", "to": "udp:127.0.0.1:5060", "elapsed_s": 10.0, "offered": calls, "carried": calls,
            "offered_per_s": rate, "carried_per_s": rate,
            "messages_sent": { "INVITE": calls, "ACK": calls, "BYE": calls },
            "messages_received": { "100": calls, "180": calls, "200": 2 * calls },
            "server": { "processors": processors, "cpu_us_per_call": 1e6 * processors / rate as f64, "drops": 0 },
        })
        .to_string()
    };
    folder.write("a.json", &run(1_000, 0.09));
    folder.write("b.json", &run(4_000, 0.28));
    folder.write("c.json", &run(8_000, 0.52));
    let found = in_folder(&folder, "fit a.json b.json c.json --json").json();
    close(&found["profile"]["costs"]["stateful_call_s"], 67.5e-6, 1e-7);
    assert_eq!(
        (&found["fit"]["packets_per_call"], &found["fit"]["costs"][0]["runs"]),
        (&Value::from(6.0), &Value::from(2))
    );
    close(&found["fit"]["service"][0]["mean_s"]["value"], 15e-6, 1e-8);

    // REGISTERs are not packets of calls: they have their own cost and are not in the curve.
    let register = run(5_000, 0.1)
        .replace("proxy-200", "registration")
        .replace(r#""INVITE":50000,"ACK":50000,"BYE":50000"#, r#""REGISTER":50000"#)
        .replace(r#""ACK":50000,"BYE":50000,"INVITE":50000"#, r#""REGISTER":50000"#)
        .replace(r#""100":50000,"180":50000,"200":100000"#, r#""200":50000"#);
    folder.write("register.json", &register);
    let mixed = in_folder(&folder, "fit a.json b.json c.json register.json --json").json();
    assert_eq!(mixed["fit"]["service"], found["fit"]["service"]);
    close(&mixed["profile"]["costs"]["register_s"], 20e-6, 1e-8);
}

/// The commands of `strowger plan`.
const COMMANDS: [&str; 11] =
    ["size", "mg1", "mmck", "mgck", "cores", "two-stage", "databases", "availability", "failover", "fit", "validate"];

#[test]
fn help_has_examples() {
    for command in [""].iter().chain(&COMMANDS) {
        let help = plan(&format!("{command} --help")).ok();
        assert!(help.contains("Examples:\n  strowger plan"), "{command}: {help}");
    }
    assert!(plan("fit --help").ok().contains("drops"));
}

/// Runs every example of every --help, except those that need files.
#[test]
fn examples_work() {
    let folder = Folder::new("");
    folder.write("table.csv", TABLE);
    in_folder(&folder, "fit table.csv --output fitted.json").ok();
    let mut tried = 0;
    for command in COMMANDS {
        let help = plan(&format!("{command} --help")).ok();
        let examples = help.lines().filter_map(|line| line.trim().strip_prefix("strowger plan "));
        for example in examples.filter(|example| !example.contains("run-") && !example.contains("calls.json")) {
            let ran = in_folder(&folder, &example.replace("other-runs.csv", "table.csv"));
            let may_say_no = example.contains("--goal") || example.contains("--strict");
            assert!(ran.code == Some(0) || may_say_no && ran.code == Some(1), "{example}: {ran:?}");
            tried += 1;
        }
    }
    assert!(tried > 25, "{tried}");
}
