//! SIPp's scenario files: the result of each element, warnings, rejections, and untrusted files.

use std::process::Command;
use std::time::{Duration, Instant};

use strowger_traffic::script::{Action, Condition, MethodId, Pattern, Script, Step};
use strowger_traffic::sipp::{Diagnostic, MAX_BYTES, Options, Role, Scenario};

const SEND: &str = "<send>OPTIONS sip:[service]@[remote_ip] SIP/2.0\nVia: SIP/2.0/UDP [local_ip];branch=[branch]\n\
                    Call-ID: [call_id]\nCSeq: 1 OPTIONS\n\n</send>";

fn compile(text: &str) -> Result<Scenario, Diagnostic> {
    Scenario::compile("file.xml", text.as_bytes(), &[], &Options::default())
}

/// Returns a scenario with `SEND` and then `inner`, which is on its third line.
fn around(inner: &str) -> String {
    format!("<scenario>\n{}\n{inner}\n</scenario>\n", SEND.replace('\n', "&#10;"))
}

fn good(inner: &str) -> Scenario {
    let scenario = compile(&around(inner)).unwrap_or_else(|error| panic!("{inner}: {error}"));
    assert_eq!(scenario.warnings, [], "{inner}");
    scenario
}

/// Returns the steps in short form.
fn steps(script: &Script) -> String {
    let words = script.steps.iter().map(|step| match step {
        Step::Send { repeat, .. } => {
            if *repeat {
                "send*".to_owned()
            } else {
                "send".to_owned()
            }
        }
        Step::Wait { expects, timeout } => {
            let expects = &script.expects[usize::from(expects.start)..usize::from(expects.end)];
            let words = expects.iter().map(|expect| {
                let what = match expect.what {
                    Pattern::Response { low, method, .. } => format!("{low}{}", method.map_or("", MethodId::as_str)),
                    Pattern::Request(verb) => verb.as_str().to_owned(),
                    Pattern::Any => "any".to_owned(),
                };
                let takes = format!(
                    "{}{}",
                    if expect.extract.dialog { "d" } else { "" },
                    if expect.extract.challenge { "c" } else { "" }
                );
                let actions = "!".repeat(expect.actions.len());
                format!("{what}{takes}{actions}>{}", expect.to.map_or("-".to_owned(), |to| to.to_string()))
            });
            let words: Vec<_> = words.collect();
            let timeout = timeout.map_or(String::new(), |(law, to)| format!(" {}>{to}", script.laws[usize::from(law)]));
            format!("wait({}{timeout})", words.join(" "))
        }
        Step::Pause { law } => format!("pause({})", script.laws[usize::from(*law)]),
        Step::PauseFor { millis } => format!("pause($${millis})").replace("$$", "$"),
        Step::Jump { to } => format!("jump>{to}"),
        Step::Chance { share, to } => format!("chance({:.2})>{to}", f64::from(*share) / f64::from(u32::MAX)),
        Step::If { condition: Condition::Set(variable), to } => format!("when(${variable})>{to}"),
        Step::If { condition: Condition::Unset(variable), to } => format!("unless(${variable})>{to}"),
        Step::If { to, .. } => format!("when>{to}"),
        Step::Actions { actions } => format!("act({})", actions.len()),
        Step::SwitchScript { variable } => format!("become {variable}"),
        Step::Start { .. } => "start".to_owned(),
        Step::End(ending) => format!("{ending:?}"),
    });
    words.collect::<Vec<_>>().join("; ")
}

#[test]
fn each_element_becomes_its_steps() {
    let set = "<nop><action><assign assign_to=\"a\" value=\"1\"/></action></nop>";
    for (inner, wanted) in [
        ("", "send"),
        ("<recv response=\"200\"/>", "send; wait(200OPTIONS>2)"),
        ("<recv response=\"200\" rrs=\"true\" auth=\"true\" crlf=\"true\"/>", "send; wait(200OPTIONSdc>2)"),
        ("<recv response=\"100\" optional=\"true\"/><recv response=\"200\"/>", "send; wait(100OPTIONS>- 200OPTIONS>2)"),
        (
            "<recv response=\"183\" optional=\"global\"/><recv response=\"180\"/><recv response=\"200\"/>",
            "send; wait(183>- 180OPTIONS>2); wait(200OPTIONS>3 183>-)",
        ),
        (
            "<recv response=\"404\" optional=\"true\" next=\"x\"/><recv response=\"200\"/><pause/><label id=\"x\"/>",
            "send; wait(404OPTIONS>3 200OPTIONS>2); pause(0ns)",
        ),
        ("<recv response=\"200\" timeout=\"1500\"/>", "send; wait(200OPTIONS>2 1500ms>3)"),
        (
            "<recv response=\"200\" timeout=\"1500\" ontimeout=\"x\"/><pause/><label id=\"x\"/>",
            "send; wait(200OPTIONS>2 1500ms>3); pause(0ns)",
        ),
        (
            "<recv response=\"200\" next=\"x\" chance=\"0.25\"/><pause/><label id=\"x\"/>",
            "send; wait(200OPTIONS>2); chance(0.25)>5; jump>4; pause(0ns)",
        ),
        ("<recv request=\"INFO|UPDATE\" regexp_match=\"true\"/>", "send; wait(INFO>2 UPDATE>2)"),
        ("<recv request=\"NOTIFY\" ignoresdp=\"false\"/>", "send; wait(NOTIFY>2)"),
        ("<recv response=\"200\" start_rtd=\"a\"/><pause rtd=\"a\"/>", "send; wait(200OPTIONS!>2); pause(0ns); act(1)"),
        ("<recv response=\"200\" rtd=\"true\"/>", "act(1); send; wait(200OPTIONS!>3)"),
        ("<pause milliseconds=\"250\"/>", "send; pause(250ms)"),
        ("<pause distribution=\"fixed\" value=\"1000\"/>", "send; pause(1000ms)"),
        ("<pause min=\"1\" max=\"5\"/>", "send; pause(uniform(min=1ms,max=5ms))"),
        ("<pause distribution=\"uniform\" min=\"2000\" max=\"5000\"/>", "send; pause(uniform(min=2000ms,max=5000ms))"),
        (
            "<pause distribution=\"normal\" mean=\"60000\" stdev=\"15000\"/>",
            "send; pause(normal(mean=60000ms,sd=15000ms))",
        ),
        (
            "<pause distribution=\"lognormal\" mean=\"0\" stdev=\"1\" sanity_check=\"false\"/>",
            "send; pause(lognormal(median=1ms,sigma=1))",
        ),
        ("<pause distribution=\"exponential\" mean=\"900000\"/>", "send; pause(exp(mean=900000ms))"),
        ("<pause distribution=\"weibull\" lambda=\"3\" k=\"4\"/>", "send; pause(weibull(shape=4,scale=3ms))"),
        ("<pause distribution=\"pareto\" k=\"1\" x_m=\"2\"/>", "send; pause(pareto(shape=1,scale=2ms))"),
        ("<pause distribution=\"gamma\" k=\"3\" theta=\"2\"/>", "send; pause(gamma(shape=3,scale=2ms))"),
        ("<timewait milliseconds=\"4000\"/>", "send; pause(4000ms)"),
        ("<nop hide=\"true\" display=\"x\"/>", "send"),
        (
            "<Reference variables=\"a,b\"/><ResponseTimeRepartition value=\"10, 20\"/><CallLengthRepartition value=\"10\"/>",
            "send",
        ),
        (&format!("{set}<pause variable=\"a\"/>"), "send; act(1); pause($0)"),
        (
            &format!("{set}<nop next=\"x\" test=\"a\"/><pause/><label id=\"x\"/>"),
            "send; act(1); when($0)>4; pause(0ns)",
        ),
        (
            &format!("{set}<nop next=\"x\" test=\"a\" chance=\"0.5\"/><pause/><label id=\"x\"/>"),
            "send; act(1); unless($0)>4; chance(0.50)>5; pause(0ns)",
        ),
        (&format!("{set}<pause condexec=\"a\"/>"), "send; act(1); unless($0)>4; pause(0ns)"),
        (&format!("{set}<pause condexec=\"a\" condexec_inverse=\"true\"/>"), "send; act(1); when($0)>4; pause(0ns)"),
        (
            "<nop><action><jump value=\"3\"/></action></nop><pause/><pause milliseconds=\"7\"/>",
            "send; jump>3; pause(0ns); pause(7ms)",
        ),
        (&SEND.replace("<send>", "<send retrans=\"500\" lost=\"0\">").replace('\n', "&#10;"), "send; send*"),
    ] {
        let script = good(inner).script;
        assert_eq!(steps(&script), format!("{wanted}; Carried; Lost"), "{inner}");
    }
}

#[test]
fn each_action_is_compiled() {
    for (inner, wanted) in [
        (
            "<ereg regexp=\"a(b)\" search_in=\"hdr\" header=\"From:\" occurrence=\"2\" case_indep=\"true\" start_line=\"true\" assign_to=\"v,w\"/>",
            "Match",
        ),
        ("<ereg regexp=\"a\" search_in=\"body\" check_it=\"true\"/>", "Match"),
        ("<ereg regexp=\"<sip:(.*)>\" check_it_inverse=\"true\"/>", "Match"),
        ("<assign assign_to=\"v\" value=\"1.5\"/>", "Assign(0, Number(1.5))"),
        ("<add assign_to=\"v\" value=\"1\"/>", "Add(0, Number(1.0))"),
        ("<subtract assign_to=\"v\" variable=\"v\"/>", "Subtract(0, Variable(0))"),
        ("<multiply assign_to=\"v\" value=\"2\"/>", "Multiply(0, Number(2.0))"),
        ("<divide assign_to=\"v\" value=\"2\"/>", "Divide(0, Number(2.0))"),
        ("<assignstr assign_to=\"v\" value=\"x[call_number]\"/>", "Text(0, 1)"),
        ("<strcmp assign_to=\"v\" variable=\"v\" value=\"x\"/>", "Order"),
        ("<test assign_to=\"v\" variable=\"v\" compare=\"less_than_equal\" value=\"3\"/>", "Relate"),
        ("<todouble assign_to=\"v\" variable=\"v\"/>", "Number"),
        ("<gettimeofday assign_to=\"v,w\"/>", "WallTime"),
        ("<log message=\"x\"/>", "LogTemplate(1)"),
        ("<warning message=\"x [last_From]\"/>", "LogTemplate(1)"),
        ("<error message=\"x\"/>", "LogTemplate(1)"),
        ("<exec int_cmd=\"stop_now\"/>", "Stop(Now)"),
        ("<exec int_cmd=\"stop_call\"/>", "Stop(Call)"),
    ] {
        let script = good(&format!("<nop><action>{inner}</action></nop>")).script;
        let action = format!("{:?}", script.actions.first());
        assert!(action.starts_with(&format!("Some({wanted}")), "{inner}: {action}");
    }
    let script =
        good("<nop><action><assignstr assign_to=\"v\" value=\"x\"/><urlencode variable=\"v\"/></action></nop>").script;
    assert!(matches!(script.actions[1], Action::Escape(0)));
}

#[test]
fn unsupported_parts_give_a_warning_with_place() {
    for (inner, column, words) in [
        ("<sendCmd>x</sendCmd>", 1, "<sendCmd> is not supported"),
        ("<recvCmd/>", 1, "<recvCmd> is not supported"),
        ("<Global variables=\"x\"/>", 1, "<Global> variables"),
        ("<foo/>", 1, "<foo> is not known"),
        ("<init/>", 1, "<init>"),
        ("<pause colour=\"red\"/>", 8, "colour of <pause>"),
        ("<pause counter=\"x\"/>", 8, "counters"),
        (
            "<pause test=\"a\"/><nop><action><assign assign_to=\"a\" value=\"1\"/></action></nop>",
            8,
            "test without next",
        ),
        ("<pause>text</pause>", 8, "'text'"),
        ("<recv response=\"200\" lost=\"5\"/>", 22, "lost"),
        ("<recv request=\"PING\"/>", 7, "not distinguished"),
        ("<recv response=\"200\" ontimeout=\"x\"/><label id=\"x\"/>", 22, "no effect"),
        ("<label id=\"_unexp.main\"/>", 1, "_unexp.main"),
        ("<nop next=\"x\" test=\"a\"/><label id=\"x\"/>", 15, "'a' is never given a value"),
        ("<nop><action><exec command=\"rm -rf /\"/></action></nop>", 20, "<exec command=…>"),
        ("<nop><action><exec play_pcap_audio=\"x\"/></action></nop>", 20, "play_pcap_audio"),
        ("<nop><action><setdest host=\"x\"/></action></nop>", 14, "<setdest>"),
        ("<nop><action><lookup file=\"x\"/></action></nop>", 14, "<lookup>"),
        ("<nop><action><trim assign_to=\"x\"/></action></nop>", 14, "<trim>"),
        ("<nop><ereg/></nop>", 6, "<ereg> inside <nop>"),
        ("<nop><action><ereg regexp=\"a\"/></action></nop>", 14, "does nothing"),
        ("<nop><action><ereg regexp=\"a\" assign_to=\"x,y\"/></action></nop>", 14, "1 groups"),
        (
            "<send retrans=\"100\">OPTIONS sip:a SIP/2.0&#10;Call-ID: x</send><recv response=\"200\"/>",
            0,
            "not be recognised",
        ),
        ("<send>OPTIONS sip:a SIP/2.0&#10;[routes]</send>", 31, "rrs"),
        ("<send>OPTIONS sip:a SIP/2.0&#10;[authentication]</send>", 0, "auth=\"true\""),
        ("<send>OPTIONS sip:a SIP/2.0&#10;m: [auto_media_port]</send>", 0, "[auto_media_port]"),
    ] {
        let scenario = compile(&around(inner)).unwrap_or_else(|error| panic!("{inner}: {error}"));
        let warning = scenario.warnings.iter().find(|warning| warning.what.contains(words));
        let warning = warning.unwrap_or_else(|| panic!("{inner}: {words} in {:?}", scenario.warnings));
        assert_eq!((warning.line, warning.file.as_str()), (3, "file.xml"), "{inner}");
        assert!(column == 0 || column == 31 || warning.column == column, "{inner}: {warning}");
    }
}

#[test]
fn errors_name_the_place_and_a_hint() {
    for (inner, column, words) in [
        ("<nop next=\"gone\"/>", 6, "no <label id=\"gone\"/>; the scenario has no labels"),
        ("<label id=\"here\"/><recv response=\"200\" timeout=\"1\" ontimeout=\"gone\"/>", 52, "has the labels here"),
        ("<label id=\"a\"/><label id=\"a\"/>", 23, "already on line 3"),
        ("<label id=\"a\"/><pause next=\"a\"/>", 23, "can never end"),
        ("<label id=\"a\"/><nop next=\"a\" chance=\"1\"/>", 21, "can never end"),
        ("<nop><action><jump value=\"0\"/></action></nop>", 1, "can never end"),
        ("<nop><action><jump value=\"9\"/></action></nop>", 14, "indices 0 to 1"),
        ("<nop><action><jump variable=\"x\"/></action></nop>", 14, "not supported"),
        ("<recv response=\"200\" optional=\"true\"/>", 1, "remove optional"),
        ("<recv response=\"200\" optional=\"true\"/><pause/><recv response=\"200\"/>", 1, "remove optional"),
        ("<recv/>", 1, "either response"),
        ("<recv response=\"99\"/>", 7, "three digits"),
        ("<recv response=\"200\" optional=\"maybe\"/>", 22, "global"),
        ("<recv response=\"200\" rrs=\"yes\"/>", 22, "neither true nor false"),
        ("<recv response=\"200\" timeout=\"soon\"/>", 22, "not a number"),
        ("<recv response=\"200\" response_txn=\"t\"/>", 22, "start_txn=\"t\""),
        ("<recv request=\"[\" regexp_match=\"true\"/>", 7, "not closed"),
        ("<recv request=\"PING\" regexp_match=\"true\"/>", 7, "none of the methods"),
        ("<pause milliseconds=\"-1\"/>", 8, "not a number"),
        ("<pause distribution=\"bell\"/>", 8, "there are fixed, uniform"),
        ("<pause distribution=\"normal\" mean=\"1\"/>", 1, "needs stdev"),
        ("<pause distribution=\"negbin\" p=\"0.1\" n=\"2\"/>", 8, "gamma"),
        ("<timewait/>", 1, "milliseconds"),
        ("<label/>", 1, "needs id"),
        ("<send/>", 1, "no message"),
        ("<send>FOO</send>", 7, "neither a request line"),
        ("<send>OPTIONS sip:[gone] SIP/2.0</send>", 19, "keyword [gone] is not known; -key gone VALUE"),
        ("<send>OPTIONS sip:[service SIP/2.0</send>", 19, "has no ']'"),
        ("<send>OPTIONS sip:[tdmmap] SIP/2.0</send>", 19, "-key tdmmap"),
        ("<send>OPTIONS sip:[field0] SIP/2.0</send>", 19, "-inf"),
        ("<send>OPTIONS sip:[branch-9] SIP/2.0</send>", 19, "no request"),
        ("<send lost=\"101\">OPTIONS sip:a SIP/2.0</send>", 7, "from 0 to 100"),
        ("<send ack_txn=\"x\">ACK sip:a SIP/2.0</send>", 7, "start_txn"),
        ("<send start_txn=\"x\">ACK sip:a SIP/2.0</send>", 7, "does not fit"),
        ("<nop><action><ereg search_in=\"msg\"/></action></nop>", 14, "needs regexp"),
        ("<nop><action><ereg regexp=\"(\" assign_to=\"x\"/></action></nop>", 20, "unclosed group"),
        ("<nop><action><ereg regexp=\"a\" search_in=\"hdr\" assign_to=\"x\"/></action></nop>", 14, "needs header"),
        ("<nop><action><ereg regexp=\"a\" search_in=\"sky\" assign_to=\"x\"/></action></nop>", 31, "hdr, body and var"),
        ("<nop><action><ereg regexp=\"a\" check_it=\"true\" check_it_inverse=\"true\"/></action></nop>", 14, "exclude"),
        (
            "<nop><action><test assign_to=\"a\" variable=\"a\" compare=\"like\" value=\"1\"/></action></nop>",
            47,
            "less_than_equal",
        ),
        ("<nop><action><assign assign_to=\"a\" value=\"x\"/></action></nop>", 36, "assignstr"),
        ("<nop><action><assign assign_to=\"a,b\" value=\"1\"/></action></nop>", 22, "one variable"),
        ("<nop><action><gettimeofday assign_to=\"a\"/></action></nop>", 28, "two variables"),
        ("<nop><action><exec int_cmd=\"dance\"/></action></nop>", 20, "stop_gracefully"),
        ("<nop><action><sample assign_to=\"a\"/></action></nop>", 14, "distribution"),
        ("<pause milliseconds=\"&lol;\"/>", 8, "entity &lol;"),
        ("<pause milliseconds=\"1\" milliseconds=\"2\"/>", 1, "duplicate"),
    ] {
        let error = compile(&around(inner)).expect_err(inner);
        assert!(error.what.contains(words), "{inner}: {error}");
        assert_eq!((error.line, error.column), (3, column), "{inner}: {error}");
    }
}

#[test]
fn files_without_a_scenario_are_rejected() {
    for (text, line, words) in [
        ("", 1, "no <scenario>"),
        ("hello", 1, "no <scenario>"),
        ("<html/>", 1, "begins with <html>"),
        ("<scenario/>", 1, "neither <send> nor <recv>"),
        ("<scenario>\n<send>", 2, "</send> is missing"),
        ("<scenario>\n<send>\n<![CDATA[ x", 3, "not XML"),
        ("<scenario>\n</send>", 2, "not XML"),
        ("<scenario>\n<recv response=\"200/></scenario>", 2, "not XML"),
        ("<scenario/>\n<scenario/>", 2, "after its end"),
        ("<scenario><recv response=\"200\"/></scenario>", 1, "receiving a response"),
        ("<scenario><pause/><recv request=\"INVITE\"/></scenario>", 1, "begins with the <recv>"),
        ("<!DOCTYPE x [\n<!ENTITY a \"b\">]>\n<scenario/>", 1, "declarations"),
    ] {
        let error = compile(text).expect_err(text);
        assert!(error.what.contains(words) && error.line == line, "{text}: {error}");
    }
    let error = Scenario::read(std::path::Path::new("/nowhere/x.xml"), &[], &Options::default()).expect_err("no file");
    assert!(error.to_string().starts_with("/nowhere/x.xml:1:1: the scenario cannot be read"), "{error}");
}

#[test]
fn encodings_are_read_or_refused() {
    let text = around("<nop display=\"\u{e4}\"/>");
    let latin: Vec<u8> = text.chars().map(|c| u8::try_from(u32::from(c)).expect("Latin")).collect();
    let error = Scenario::compile("x", &latin, &[], &Options::default()).expect_err("not UTF-8");
    assert!(error.line == 3 && error.column == 15 && error.what.contains("iconv"), "{error}");
    let named = [b"<?xml version=\"1.0\" encoding=\"ISO-8859-1\" ?>\n".as_slice(), &latin].concat();
    assert!(Scenario::compile("x", &named, &[], &Options::default()).is_ok());
    let marked = ["\u{feff}", &text].concat();
    assert!(Scenario::compile("x", marked.as_bytes(), &[], &Options::default()).is_ok());
}

#[test]
fn hostile_files_cost_no_more_than_their_size() {
    let deep = format!("<scenario>{}", "<a>".repeat(200_000));
    let wide = format!("<scenario>{}</scenario>", "<nop/>".repeat(100_000));
    let laughs = "<!DOCTYPE l [<!ENTITY a \"ha\"><!ENTITY b \"&a;&a;&a;&a;\">]><scenario>&b;</scenario>".to_owned();
    let attributes: String = (0..100_000).map(|number| format!(" a{number}=\"\"")).collect();
    let attributes = format!("<scenario{attributes}/>");
    let expression =
        around(&format!("<nop><action><ereg regexp=\"{}\" assign_to=\"x\"/></action></nop>", "(a*)*".repeat(1_000)));
    let brackets = around(&format!("<send>OPTIONS sip:{} SIP/2.0</send>", "[".repeat(100_000)));
    let ampersands = around(&format!("<pause display=\"{}\"/>", "&".repeat(500_000)));
    let huge = vec![b' '; MAX_BYTES + 1];
    let labels: String = (0..15_000)
        .map(|number| format!("<label id=\"l{number}\"/><nop next=\"l{}\" chance=\"0.5\"/>", 14_999 - number))
        .take(9_000)
        .collect();
    let labels = around(&labels);
    let waits = around(&"<recv response=\"180\" optional=\"global\"/><recv response=\"200\"/>".repeat(5_000));
    let files = [deep, wide, laughs, attributes, expression, brackets, ampersands, labels, waits];
    for bytes in files.iter().map(String::as_bytes).chain([huge.as_slice()]) {
        let begun = Instant::now();
        let result = Scenario::compile("x", bytes, &[], &Options::default());
        let time = begun.elapsed();
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
        assert!(time < Duration::from_secs(5), "{time:?} for {start}");
        if let Err(error) = result {
            assert!(error.to_string().len() < 1_000, "a short text: {}", error.to_string().len());
        }
    }
}

/// Cuts and flips bytes in valid scenarios: nothing panics.
#[test]
fn damaged_files_are_safe() {
    let text = around(
        "<recv response=\"200\" next=\"1\" test=\"a\" chance=\"0.5\"><action><ereg regexp=\"a([[:alnum:]]{1,3})\" search_in=\"hdr\" \
         header=\"From:\" assign_to=\"a,b\"/><jump value=\"1\"/></action></recv><label id=\"1\"/><pause distribution=\"normal\" mean=\"1\" stdev=\"1\"/>",
    );
    let bytes = text.as_bytes();
    for cut in 0..bytes.len() {
        let _ = Scenario::compile("x", &bytes[..cut], &[], &Options::default());
    }
    let mut state = 7_u64;
    for _ in 0..3_000 {
        let mut damaged = bytes.to_vec();
        for _ in 0..3 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = usize::try_from(state >> 33).expect("31 bits") % damaged.len();
            damaged[at] = b"<>[]\"&=/\\x01 \n\xff"[usize::try_from(state >> 20 & 15).expect("4 bits") % 14];
        }
        let _ = Scenario::compile("x", &damaged, &[], &Options::default());
    }
}

#[test]
fn the_built_in_scenarios_compile() {
    for (name, role, warnings) in [
        ("uac", Role::Caller, 0),
        ("uas", Role::Callee, 0),
        ("regexp", Role::Caller, 0),
        ("branchc", Role::Caller, 0),
        ("branchs", Role::Callee, 0),
        ("3pcc-C-A", Role::Caller, 3),
        ("3pcc-C-B", Role::Caller, 3),
        ("3pcc-A", Role::Callee, 0),
        ("3pcc-B", Role::Callee, 0),
    ] {
        let Ok(output) = Command::new("sipp").args(["-sd", name]).output() else { return };
        let scenario =
            Scenario::compile(name, &output.stdout, &[], &Options::default()).unwrap_or_else(|error| panic!("{error}"));
        let shown: Vec<String> = scenario.warnings.iter().map(ToString::to_string).collect();
        assert_eq!((scenario.role, shown.len()), (role, warnings), "{name}: {shown:#?}");
        assert_eq!(scenario.answers.is_empty(), role == Role::Caller);
    }
}

#[test]
fn responses_match_the_sent_requests() {
    let request = |method: &str, number: u8| {
        format!("<send>{method} sip:a SIP/2.0&#10;Call-ID: [call_id]&#10;CSeq: {number} {method}&#10;</send>")
    };
    let text = format!(
        "<scenario>{}<recv response=\"180\"/>{}<recv response=\"200\"/><recv response=\"487\"/>{}{}<recv response=\"200\"/></scenario>",
        request("INVITE", 1),
        request("CANCEL", 1),
        request("ACK", 1),
        request("BYE", 2)
    );
    let script = compile(&text).expect("valid").script;
    assert_eq!(
        steps(&script),
        "send; wait(180INVITE>2); send; wait(200INVITE>4 200CANCEL>4); wait(487INVITE>5 487CANCEL>5); send; send; \
         wait(200INVITE>8 200BYE>8 200CANCEL>8); Carried; Lost"
    );
    let named = text
        .replace("<send>BYE", "<send start_txn=\"bye\">BYE")
        .replace("<recv response=\"200\"/></sc", "<recv response=\"200\" response_txn=\"bye\"/></sc");
    assert!(steps(&compile(&named).expect("valid").script).contains("wait(200BYE>8)"));
}
