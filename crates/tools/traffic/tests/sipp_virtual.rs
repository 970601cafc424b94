//! Scenario files against each other in virtual time: compiled, both ends in one process, without sockets.

mod wire;

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::Timestamp;
use strowger_traffic::driver::{Driver, Outbox, Setup};
use strowger_traffic::sipp::{Options, Role, Scenario, Table};
use wire::Wire;

fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A caller's and a callee's scenario, and the link between them.
struct Pair {
    now: Timestamp,
    caller: Driver,
    callee: Driver,
    up: Wire,
    down: Wire,
    /// Start lines; `>` is from the caller.
    trace: Vec<String>,
    messages: Vec<String>,
    lose: Box<dyn FnMut(&str) -> bool>,
}

impl Pair {
    fn new(caller: &Scenario, callee: &Scenario) -> Self {
        assert_eq!((caller.role, callee.role), (Role::Caller, Role::Callee));
        let options = Options::default();
        let users = |scenario: &Scenario| Arc::new(scenario.users("example.com", &options));
        let mut up = Setup::new(vec![caller.script.clone()].into(), users(caller), at(5070), at(40_000));
        up.t1 = caller.t1.unwrap_or(up.t1);
        let mut down = Setup::new(vec![callee.script.clone()].into(), users(callee), at(40_000), at(5070));
        down.answers = callee.answers.iter().map(|verb| (*verb, 0)).collect();
        let (mut caller, callee) = (Driver::new(up), Driver::new(down));
        caller.set_wall(Duration::from_secs(1_795_249_512));
        Self {
            now: Timestamp::from_millis(1_000),
            caller,
            callee,
            up: Wire::default(),
            down: Wire::default(),
            trace: Vec::new(),
            messages: Vec::new(),
            lose: Box::new(|_| false),
        }
    }

    /// Runs a call until it ends or `limit` has passed.
    fn call(&mut self, limit: Duration) {
        self.caller.begin(self.now, 0, (0, 0), &mut self.up).expect("no limit");
        let end = self.now + limit;
        loop {
            self.deliver();
            let next = self.caller.poll_timeout().into_iter().chain(self.callee.poll_timeout()).min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            self.caller.handle_timeout(self.now, &mut self.up);
            self.callee.handle_timeout(self.now, &mut self.down);
        }
        self.now = end;
    }

    fn deliver(&mut self) {
        loop {
            if let Some(message) = self.up.next() {
                if !self.note('>', &message) {
                    self.callee.handle_message(self.now, self.now, (0, at(40_000)), &message, &mut self.down);
                }
            } else if let Some(message) = self.down.next() {
                if !self.note('<', &message) {
                    self.caller.handle_message(self.now, self.now, (0, at(5070)), &message, &mut self.up);
                }
            } else {
                return;
            }
        }
    }

    fn note(&mut self, way: char, message: &[u8]) -> bool {
        let text = String::from_utf8_lossy(message).into_owned();
        let mut words = text.split_whitespace();
        let first = words.next().unwrap_or_default();
        let word = if first == "SIP/2.0" { words.next().unwrap_or_default() } else { first };
        let line = format!("{way}{word}");
        let is_lost = (self.lose)(&line);
        self.trace.push(if is_lost { format!("{line}!") } else { line });
        self.messages.push(text);
        is_lost
    }

    fn trace(&self) -> String {
        self.trace.join(" ")
    }

    fn sent(&self, first: &str) -> &str {
        self.messages.iter().find(|message| message.starts_with(first)).map_or("", String::as_str)
    }

    fn carried(&self) -> (u64, u64) {
        (self.caller.meter().began.carried, self.callee.meter().answered.carried)
    }
}

fn compile(text: &str) -> Scenario {
    compile_with(text, &[], &Options::default())
}

fn compile_with(text: &str, tables: &[Arc<Table>], options: &Options) -> Scenario {
    let scenario =
        Scenario::compile("test.xml", text.as_bytes(), tables, options).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(scenario.warnings, [], "no warnings");
    scenario
}

/// Returns a scenario built into SIPp; `None` without SIPp.
fn built_in(name: &str) -> Option<Scenario> {
    let output = Command::new("sipp").args(["-sd", name]).output().ok()?;
    let scenario =
        Scenario::compile(name, &output.stdout, &[], &Options::default()).unwrap_or_else(|error| panic!("{error}"));
    Some(scenario)
}

#[test]
fn the_built_in_caller_and_callee_call_each_other() {
    let (Some(uac), Some(uas)) = (built_in("uac"), built_in("uas")) else { return };
    let mut pair = Pair::new(&uac, &uas);
    pair.call(Duration::from_secs(60));
    assert_eq!(pair.trace(), ">INVITE <180 <200 >ACK >BYE <200");
    assert_eq!(pair.carried(), (1, 1));
    let ack = pair.sent("ACK");
    assert!(ack.contains("SIPpTag01") && ack.contains("CSeq: 1 ACK"), "the other end's tag: {ack}");
    let (head, body) = pair.sent("INVITE").split_once("\r\n\r\n").expect("a body");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length:")).expect("its length");
    assert_eq!(length.trim().parse(), Ok(body.len()));
}

#[test]
fn lost_messages_are_resent() {
    let (Some(uac), Some(uas)) = (built_in("uac"), built_in("uas")) else { return };
    let mut pair = Pair::new(&uac, &uas);
    let mut seen = Vec::new();
    pair.lose = Box::new(move |line| {
        let is_first = !seen.iter().any(|other| other == line);
        seen.push(line.to_owned());
        is_first && line != "<180"
    });
    pair.call(Duration::from_secs(60));
    assert_eq!(pair.carried(), (1, 1), "{}", pair.trace());
}

#[test]
fn the_regexp_scenario_sends_back_what_it_found() {
    let (Some(uac), Some(uas)) = (built_in("regexp"), built_in("uas")) else { return };
    let mut pair = Pair::new(&uac, &uas);
    pair.call(Duration::from_secs(60));
    assert_eq!(pair.trace(), ">INVITE <180 <200 >ACK >BYE <200");
    let ack = pair.sent("ACK");
    for line in [
        "retrievedIp: 127.0.0.1:40000",
        "retrievedContact:<sip:127.0.0.1:5070;transport=UDP>",
        "retrievedSdpOrigin:o=user1 53655765 2353687637",
        "retrievedSdpOrigin-username:user1",
        "retrievedSdpOrigin-version:2353687637",
    ] {
        assert!(ack.contains(line), "{line} in {ack}");
    }
    assert_eq!(pair.carried(), (1, 1));
}

#[test]
fn the_branching_scenarios_branch() {
    let (Some(client), Some(server)) = (built_in("branchc"), built_in("branchs")) else { return };
    let mut pair = Pair::new(&client, &server);
    pair.call(Duration::from_secs(60));
    // From of the first call does not match the server's pattern ua2.
    assert_eq!(pair.trace(), ">REGISTER <200 >INVITE <180 <403 >BYE <200");
    pair.trace.clear();
    // That of the second call does: its user is ua2.
    pair.call(Duration::from_secs(60));
    assert_eq!(pair.trace(), ">REGISTER <200 >INVITE <180 <100 <200 >ACK >BYE <200");
    assert_eq!(pair.carried(), (2, 2));
}

/// Returns a request of a caller with extra lines.
fn request(method: &str, number: &str, more: &str) -> String {
    let tag = if method == "INVITE" { "" } else { "[peer_tag_param]" };
    format!(
        "<![CDATA[\n\n  {method} sip:[service]@[remote_ip]:[remote_port] SIP/2.0\n  Via: SIP/2.0/[transport] \
         [local_ip]:[local_port];branch=[branch]\n  From: <sip:me@[local_ip]>;tag=[call_number]\n  To: \
         <sip:you@[remote_ip]>{tag}\n  Call-ID: [call_id]\n  CSeq: {number} {method}\n{more}  Content-Length: 0\n\n]]>"
    )
}

/// Returns a response of a callee with extra lines.
fn response(status: &str, more: &str) -> String {
    format!(
        "<![CDATA[\n  SIP/2.0 {status}\n  [last_Via:]\n  [last_From:]\n  [last_To:];tag=callee\n  [last_Call-ID:]\n  \
         [last_CSeq:]\n{more}  Content-Length: 0\n\n]]>"
    )
}

fn scenario(inner: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"ISO-8859-1\" ?>\n<!DOCTYPE scenario SYSTEM \"sipp.dtd\">\n<scenario name=\"t\">\n{inner}\n</scenario>\n"
    )
}

/// Returns a callee that answers each OPTIONS with 200, forever.
fn echo(more: &str) -> Scenario {
    let text = scenario(&format!(
        "<label id=\"again\"/><recv request=\"OPTIONS\" timeout=\"3000\" ontimeout=\"end\"/>\n<send next=\"again\">{}</send>\n\
         <label id=\"end\"/>",
        response("200 OK", more)
    ));
    compile(&text)
}

fn options_of(number: u32, more: &str) -> String {
    format!("<send retrans=\"500\">{}</send><recv response=\"200\"/>\n", request("OPTIONS", &number.to_string(), more))
}

#[test]
fn variables_are_computed_tested_and_sent() {
    let actions = "<nop><action>\
        <assign assign_to=\"n\" value=\"1\"/><add assign_to=\"n\" value=\"2\"/><multiply assign_to=\"n\" value=\"8\"/>\
        <subtract assign_to=\"n\" value=\"4\"/><divide assign_to=\"n\" variable=\"n2\"/>\
        <assignstr assign_to=\"s\" value=\"a b[$n]\"/><urlencode variable=\"s\"/>\
        <assignstr assign_to=\"d\" value=\"%41+\"/><urldecode variable=\"d\"/>\
        <strcmp assign_to=\"o\" variable=\"d\" value=\"B\"/>\
        <test assign_to=\"yes\" variable=\"n\" compare=\"equal\" value=\"10\"/>\
        <test assign_to=\"no\" variable=\"n\" compare=\"greater_than\" variable2=\"n\"/>\
        <assignstr assign_to=\"t\" value=\" 7.5 \"/><todouble assign_to=\"half\" variable=\"t\"/>\
        <sample assign_to=\"five\" distribution=\"fixed\" value=\"5\"/>\
        <gettimeofday assign_to=\"sec,usec\"/>\
        <log message=\"n is [$n]\"/></action></nop>";
    let more = "  X: [$n] [$s] [$d] [$o] [$yes] [$no] [$half] [$five] [$sec]\n  D: [date] [timestamp] [clock_tick]\n  P: [local_port+2] [remote_port-70] [media_port+1] [msg_index] \\x5bx]\n  K: [mine]\n";
    let text = scenario(&format!(
        "<init><nop><action><assign assign_to=\"n2\" value=\"2\"/></action></nop></init>{actions}\
         <nop next=\"never\" test=\"no\"/><nop next=\"past\" test=\"yes\"/><label id=\"never\"/>{}<label id=\"past\"/>{}",
        options_of(1, "  Never: sent\n"),
        options_of(1, more),
    ));
    let options = Options { keys: vec![("mine".into(), "a[b]c".into())], ..Options::default() };
    let caller = Scenario::compile("t.xml", text.as_bytes(), &[], &options).expect("valid");
    assert_eq!(caller.warnings.len(), 1, "of init: {:?}", caller.warnings);
    let mut pair = Pair::new(&caller, &echo(""));
    pair.call(Duration::from_secs(20));
    assert_eq!(pair.trace(), ">OPTIONS <200");
    let sent = pair.sent("OPTIONS");
    assert!(sent.contains("\r\nX: 10 a%20b10 A+ -1 1  7.5 5 1795249513\r\n"), "{sent}");
    assert!(sent.contains("\r\nD: Sat, 21 Nov 2026 08:25:13 GMT 2026-11-21 08:25:13.000000 1000\r\n"), "{sent}");
    assert!(sent.contains("\r\nP: 40002 5000 6001 5 [x]\r\nK: a[b]c\r\n"), "{sent}");
    assert_eq!(pair.caller.take_log(), ["n is 10"]);
    assert_eq!(pair.carried(), (1, 1));
}

#[test]
fn challenges_are_answered_from_the_user_file() {
    let register = |number: u32| {
        format!(
            "<send retrans=\"500\">{}</send>",
            request("REGISTER", &number.to_string(), "  U: [field0]\n  [field2]\n")
        )
    };
    let text = scenario(&format!(
        "{}<recv response=\"401\" auth=\"true\"/>{}<recv response=\"200\"/>",
        register(1),
        register(2)
    ));
    let table = "SEQUENTIAL\nalice;x;[authentication username=alice_login password=secret]\nbob;y;[authentication username=bob password=other]\n";
    let table = Arc::new(Table::parse("users.csv", table.as_bytes()).expect("valid"));
    let caller = compile_with(&text, &[table], &Options::default());
    let callee = compile(&scenario(&format!(
        "<recv request=\"REGISTER\"/><send>{}</send><recv request=\"REGISTER\"><action><ereg regexp=\"username=.alice_login., .*response=.[0-9a-f]{{32}}\" \
         search_in=\"hdr\" header=\"Authorization:\" check_it=\"true\"/></action></recv><send>{}</send>",
        response("401 Unauthorized", "  WWW-Authenticate: Digest realm=\"r\",nonce=\"n\",algorithm=MD5\n"),
        response("200 OK", "")
    )));
    let mut pair = Pair::new(&caller, &callee);
    pair.call(Duration::from_secs(60));
    assert_eq!(pair.trace(), ">REGISTER <401 >REGISTER <200");
    assert!(
        pair.messages[0].contains("\r\nU: alice\r\nContent-Length"),
        "no line before the challenge: {}",
        pair.messages[0]
    );
    assert_eq!(pair.carried(), (1, 1), "{}", pair.messages[2]);
}

#[test]
fn names_and_passwords_come_from_columns_or_the_command_line() {
    let text = |keyword: &str| {
        let send = request("OPTIONS", "1", &format!("  {keyword}\n"));
        scenario(&format!(
            "<send>{send}</send><recv response=\"401\" auth=\"true\" optional=\"true\"/><recv response=\"200\"/>"
        ))
    };
    let table = Arc::new(Table::parse("u.csv", b"USER\na;b\nc;d\n").expect("valid"));
    let login = |keyword: &str, options: &Options| {
        let users = compile_with(&text(keyword), std::slice::from_ref(&table), options).users("d", options);
        let (mut name, mut password) = (Vec::new(), Vec::new());
        users.push_name(1, &mut name);
        users.push_password(1, &mut password);
        (String::from_utf8(name).expect("ASCII"), String::from_utf8(password).expect("ASCII"))
    };
    let options = Options { auth_user: Some("me".into()), ..Options::default() };
    assert_eq!(login("[authentication]", &options), ("me".into(), "password".into()));
    assert_eq!(login("[authentication]", &Options::default()), ("service".into(), "password".into()));
    assert_eq!(login("[authentication username=x password=\"y z\"]", &options), ("x".into(), "y z".into()));
    assert_eq!(login("[authentication username=[field1]\n    password=[field0]]", &options), ("d".into(), "c".into()));
}

#[test]
fn each_injection_file_has_its_own_lines() {
    let first = Arc::new(Table::parse("a/first.csv", b"SEQUENTIAL\none;1\ntwo;2\n").expect("valid"));
    let second = Arc::new(Table::parse("a/second.csv", b"SEQUENTIAL,PRINTF=3\nline%02d;x\n").expect("valid"));
    let more = "  A: [field0] [field1 file=\"first.csv\"] [field0 file=\"second.csv\"] [field0 file=second.csv line=2] [field0 line=[$n]]\n";
    let text =
        scenario(&format!("<nop><action><assign assign_to=\"n\" value=\"1\"/></action></nop>{}", options_of(1, more)));
    let mut pair = Pair::new(&compile_with(&text, &[first, second], &Options::default()), &echo(""));
    for line in ["00", "01", "02", "00"] {
        pair.messages.clear();
        pair.call(Duration::from_secs(20));
        let sent = pair.sent("OPTIONS");
        assert!(sent.contains(&format!("\r\nA: one 1 line{line} line02 two\r\n")), "{sent}");
    }
}

#[test]
fn a_callee_takes_its_own_lines() {
    let table = Arc::new(Table::parse("c.csv", b"SEQUENTIAL\nred\ngreen\n").expect("valid"));
    let text =
        scenario(&format!("<recv request=\"OPTIONS\"/><send>{}</send>", response("200 OK", "  Colour: [field0]\n")));
    let callee = compile_with(&text, &[table], &Options::default());
    let mut pair = Pair::new(&compile(&scenario(&options_of(1, ""))), &callee);
    for colour in ["red", "green", "red"] {
        pair.messages.clear();
        pair.call(Duration::from_secs(5));
        assert!(pair.sent("SIP/2.0 200").contains(&format!("\r\nColour: {colour}\r\n")), "{:?}", pair.messages);
    }
}

#[test]
fn timeouts_jump_to_their_label() {
    let (with, without) = ("timeout=\"700\" ontimeout=\"late\"", "timeout=\"700\"");
    for (attributes, trace, carried) in [(with, ">INVITE >BYE <200", 1), (without, ">INVITE", 0)] {
        let text = scenario(&format!(
            "<send>{}</send><recv response=\"100\" optional=\"true\" {attributes}/><recv response=\"200\"/>\
             <send>{}</send><label id=\"late\"/><send retrans=\"500\">{}</send><recv response=\"200\"/>",
            request("INVITE", "1", ""),
            request("ACK", "1", ""),
            request("BYE", "2", "")
        ));
        let callee = compile(&scenario(&format!(
            "<recv request=\"INVITE\"/><recv request=\"BYE\"/><send>{}</send>",
            response("200 OK", "")
        )));
        let mut pair = Pair::new(&compile(&text), &callee);
        pair.call(Duration::from_secs(60));
        assert_eq!(pair.trace(), trace);
        assert_eq!(pair.carried().0, carried);
        assert_eq!(pair.caller.meter().began.lost, 1 - carried);
    }
}

#[test]
fn conditions_chances_and_jumps_are_followed() {
    // Three rounds, counted by a variable. The skipped message is never sent.
    let text = scenario(&format!(
        "<nop><action><assign assign_to=\"n\" value=\"0\"/></action></nop><label id=\"round\"/>\
         <send condexec=\"skipped\">{}</send>{}\
         <nop next=\"round\" test=\"more\"><action><add assign_to=\"n\" value=\"1\"/>\
         <test assign_to=\"more\" variable=\"n\" compare=\"less_than\" value=\"3\"/></action></nop>\
         <nop next=\"gone\" chance=\"0\"/><nop><action><jump value=\"9\"/></action></nop>{}\
         <label id=\"gone\"/><pause milliseconds=\"10\"/>",
        request("OPTIONS", "9", ""),
        options_of(1, ""),
        options_of(8, ""),
    ));
    let scenario = Scenario::compile("t.xml", text.as_bytes(), &[], &Options::default()).expect("valid");
    assert_eq!(scenario.warnings.len(), 1, "'skipped' is never set: {:?}", scenario.warnings);
    let mut pair = Pair::new(&scenario, &echo(""));
    pair.call(Duration::from_secs(20));
    assert_eq!(pair.trace(), ">OPTIONS <200 >OPTIONS <200 >OPTIONS <200");
    assert_eq!(pair.carried().0, 1);
}

#[test]
fn a_global_message_is_accepted_at_any_time() {
    let caller = compile(&scenario(&format!(
        "<send>{}</send><recv response=\"183\" optional=\"global\"/><recv response=\"180\"/><pause milliseconds=\"2000\"/><recv response=\"200\"/>",
        request("INVITE", "1", "")
    )));
    let callee = compile(&scenario(&format!(
        "<recv request=\"INVITE\"/><send>{}</send><pause milliseconds=\"1000\"/><send>{}</send><pause milliseconds=\"3000\"/><send>{}</send>",
        response("180 Ringing", ""),
        response("183 Progress", ""),
        response("200 OK", "")
    )));
    let mut pair = Pair::new(&caller, &callee);
    pair.call(Duration::from_secs(60));
    assert_eq!(pair.trace(), ">INVITE <180 <183 <200");
    assert_eq!(pair.carried(), (1, 1));
}

#[test]
fn cseq_is_that_of_the_last_request_received() {
    let caller = compile(&scenario(&format!(
        "{}<recv request=\"OPTIONS\"/><send>{}</send><send retrans=\"500\">{}</send><recv response=\"200\"/>",
        options_of(4, ""),
        response("200 OK", "  L: [last_cseq_number+1]\n"),
        request("OPTIONS", "[cseq+1]", ""),
    )));
    let callee = compile(&scenario(&format!(
        "<recv request=\"OPTIONS\"/><send>{0}</send><send retrans=\"500\">{1}</send><recv response=\"200\"/><recv request=\"OPTIONS\"/><send>{0}</send>",
        response("200 OK", ""),
        "<![CDATA[\nOPTIONS sip:x@[remote_ip] SIP/2.0\n[last_Via:]\n[last_From:]\n[last_To:]\n[last_Call-ID:]\nCSeq: 70 OPTIONS\n\n]]>"
    )));
    let mut pair = Pair::new(&caller, &callee);
    pair.call(Duration::from_secs(20));
    assert_eq!(pair.trace(), ">OPTIONS <200 <OPTIONS >200 >OPTIONS <200");
    assert!(pair.messages[3].contains("\r\nL: 71\r\n"), "{}", pair.messages[3]);
    assert!(pair.messages[4].contains("\r\nCSeq: 71 OPTIONS\r\n"), "{}", pair.messages[4]);
    assert_eq!(pair.carried(), (1, 1));
}

#[test]
fn failed_checks_and_stop_call_fail_the_call() {
    for action in [
        "<ereg regexp=\"Nothing-Like-This\" search_in=\"msg\" check_it=\"true\" />",
        "<ereg regexp=\"SIP/2.0\" search_in=\"msg\" check_it_inverse=\"true\" />",
        "<ereg regexp=\"x\" search_in=\"body\" check_it=\"true\" />",
        "<exec int_cmd=\"stop_call\"/>",
    ] {
        let text = scenario(&format!(
            "<send>{}</send><recv response=\"200\"><action>{action}</action></recv>",
            request("OPTIONS", "1", "")
        ));
        let mut pair = Pair::new(&compile(&text), &echo(""));
        pair.call(Duration::from_secs(20));
        assert_eq!(pair.carried().0, 0, "{action}");
    }
    let text =
        scenario(&format!("{}<nop><action><exec int_cmd=\"stop_gracefully\"/></action></nop>", options_of(1, "")));
    let mut pair = Pair::new(&compile(&text), &echo(""));
    pair.call(Duration::from_secs(20));
    assert_eq!(pair.carried().0, 1);
    assert_eq!(pair.caller.take_stop(), Some(strowger_traffic::script::Stop::Gracefully));
}

#[test]
fn loss_and_pause_attributes_apply() {
    let text = scenario(&format!(
        "<send retrans=\"500\" lost=\"100\">{}</send><recv response=\"200\" timeout=\"1000\" ontimeout=\"on\"/><label id=\"on\"/>\
         <nop><action><assign assign_to=\"p\" value=\"1500\"/></action></nop><pause variable=\"p\"/>{}",
        request("OPTIONS", "1", ""),
        options_of(2, "  T: [clock_tick]\n")
    ));
    let mut pair = Pair::new(&compile(&text), &echo(""));
    pair.call(Duration::from_secs(20));
    assert_eq!(pair.trace(), ">OPTIONS <200", "the first never left");
    let tick = pair.sent("OPTIONS").lines().find_map(|line| line.strip_prefix("T: ")).expect("the tick");
    assert!((3_500..3_502).contains(&tick.parse::<u32>().expect("milliseconds")), "{tick}");
}

/// A callee that hangs up after a pause: its BYE has the caller's Call-ID, tag, route set and contact.
#[test]
fn a_callee_sends_requests_in_the_callers_dialog() {
    let caller = compile(&scenario(&format!(
        "<send>{}</send><recv response=\"200\"/><send>{}</send><recv request=\"BYE\"/><send>{}</send>",
        request("INVITE", "1", "  Contact: <sip:me@[local_ip]:[local_port]>\n  Record-Route: <sip:proxy;lr>\n"),
        request("ACK", "1", ""),
        response("200 OK", "")
    )));
    let bye = "<![CDATA[\n  BYE [next_url] SIP/2.0\n  Via: SIP/2.0/UDP [local_ip];branch=[branch]\n  [routes]\n  From: [$mine];tag=callee\n  \
               To: <sip:caller>[peer_tag_param]\n  Call-ID: [call_id]\n  CSeq: 5 BYE\n  Content-Length: 0\n]]>";
    let callee = compile(&scenario(&format!(
        "<recv request=\"INVITE\" rrs=\"true\"/><pause milliseconds=\"50\"/>\
         <nop><action><ereg regexp=\".*\" search_in=\"hdr\" header=\"To:\" assign_to=\"mine\"/></action></nop>\
         <send retrans=\"500\">{}</send><recv request=\"ACK\"/><pause milliseconds=\"900\"/><send retrans=\"500\">{bye}</send><recv response=\"200\"/>",
        response("200 OK", "")
    )));
    let mut pair = Pair::new(&caller, &callee);
    pair.call(Duration::from_secs(20));
    assert_eq!(pair.trace(), ">INVITE <200 >ACK <BYE >200");
    assert_eq!(pair.carried(), (1, 1));
    let (invite, bye) = (pair.sent("INVITE"), pair.sent("BYE"));
    let line = |message: &str, name: &str| {
        message.lines().find(|line| line.starts_with(name)).map(str::to_owned).unwrap_or_default()
    };
    assert_eq!(line(invite, "Call-ID"), line(bye, "Call-ID"));
    assert_eq!(line(bye, "BYE"), "BYE sip:me@127.0.0.1:40000 SIP/2.0");
    assert_eq!(line(bye, "Route"), "Route: <sip:proxy;lr>");
    assert_eq!(line(bye, "From"), "From: <sip:you@127.0.0.1>;tag=callee");
    assert_eq!(line(bye, "To"), "To: <sip:caller>;tag=1");
}
