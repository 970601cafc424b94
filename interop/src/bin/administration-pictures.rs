//! Makes the pictures of the administration page: a server with calls, phones and some trouble, in a browser.
//!
//! `docs/pictures/administration.sh` runs it and makes the files small.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use strowger_interop::{
    AdministrationPage, AnswerBehavior, Answerer, Callee, Caller, Config, Load, PATIENCE, Program, Registrant, Server,
    free_port, wait_until,
};

/// Time for which calls run before the first picture, so that the plots have something to show.
const RUN: Duration = Duration::from_secs(75);
/// Users with a phone.
const USERS: [&str; 12] =
    ["alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "mallory", "reception"];
/// Calls of the picture of call records; one begins each second. Caller, called URI, and what becomes of the call.
const CALLS: [(&str, &str, Fate); 15] = [
    ("alice", "sip:+4315880119@example.com", Fate::CallerEndsAfter(41)),
    ("bob", "sip:sales@sales.test", Fate::CalleeEndsAfter(27)),
    ("carol", "sip:+442079460018@example.com", Fate::CallerEndsAfter(36)),
    ("dave", "sip:sales@sales.test", Fate::Cancelled),
    ("erin", "sip:+4930901820@example.com", Fate::CallerEndsAfter(9)),
    ("frank", "sip:frnak@example.com", Fate::Refused),
    ("grace", "sip:sales@sales.test", Fate::CallerEndsAfter(30)),
    ("heidi", "sip:0900123456@example.com", Fate::Refused),
    ("reception", "sip:+4315880119@example.com", Fate::CalleeEndsAfter(3)),
    ("ivan", "sip:sales@sales.test", Fate::CallerEndsAfter(18)),
    ("alice", "sip:+33142685300@example.com", Fate::CallerEndsAfter(24)),
    ("judy", "sip:sales@sales.test", Fate::Cancelled),
    ("reception", "sip:+4930901820@example.com", Fate::CallerEndsAfter(12)),
    ("bob", "sip:sales@sales.test", Fate::CalleeEndsAfter(7)),
    ("carol", "sip:+442079460018@example.com", Fate::CallerEndsAfter(21)),
];

/// What becomes of a call: who ends it, and how many seconds after its beginning.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    CallerEndsAfter(usize),
    CalleeEndsAfter(usize),
    /// While it rings.
    Cancelled,
    /// By the server.
    Refused,
}

fn main() -> ExitCode {
    let Some(folder) = std::env::args().nth(1).map(PathBuf::from) else {
        eprintln!("usage: administration-pictures FOLDER");
        return ExitCode::from(2);
    };
    if !Program::Chromium.available() {
        return ExitCode::FAILURE;
    }
    let loopback = || SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let (listener, silent) = (loopback(), loopback());
    let answerers = [(); 2].map(|()| Answerer::start("udp", loopback(), ""));
    let uris: Vec<_> = answerers.iter().map(Answerer::uri).collect();
    // One target refuses and the next one takes the call: that makes a ladder worth showing.
    let [busy, free] = [(); 2].map(|()| Callee::start(loopback()));
    busy.behave(AnswerBehavior { status: 503, ..AnswerBehavior::default() });
    free.behave(AnswerBehavior { ring: Duration::from_millis(900), ..AnswerBehavior::default() });
    let more = format!(
        "[admin]\nlisten = \"{listener}\"\n[cdr]\nfile = \"cdr.json\"\n\
         [[balancer]]\nname = \"pbx\"\npolicy = \"least-calls\"\n\
         targets = [{{ uri = {:?}, weight = 2 }}, {{ uri = {:?} }}]\n\
         [[route]]\nmatch = {{ domain = \"pool.test\" }}\naction = \"proxy\"\nbalance = \"pbx\"\n\
         [[balancer]]\nname = \"sales\"\npolicy = \"round-robin\"\n\
         targets = [{{ uri = {:?} }}, {{ uri = {:?}, priority = 1 }}]\n\
         [[route]]\nmatch = {{ domain = \"sales.test\" }}\naction = \"proxy\"\nbalance = \"sales\"\n\
         [[trunk]]\nname = \"carrier\"\ntargets = [\"sip:{silent}\"]\nusername = \"office\"\npassword = \"secret\"\n\
         register = true\n\
         [[trunk]]\nname = \"pstn\"\ntargets = [{:?}]\n\
         [[route]]\nmatch = {{ prefix = \"+\" }}\ntrunk = \"pstn\"\n\
         [[route]]\nmatch = {{ prefix = \"0900\" }}\naction = \"reject\"\nstatus = 403\n",
        uris[0],
        uris[1],
        busy.uri(),
        free.uri(),
        free.uri()
    );
    // Who registers from elsewhere needs a password.
    let own = vec!["127.0.0.1"];
    let server = Config { workers: 2, more, require: vec!["REGISTER"], trusted: own, ..Config::default() }.start();
    let mut phones = USERS.map(Registrant::new);
    for (phone, user) in phones.iter_mut().zip(USERS) {
        if user != "alice" && user != "bob" && user != "carol" {
            server.add_user(user, "a secret");
        }
        assert_eq!(phone.register(server.address(), 3600, PATIENCE), Some(200));
    }
    server.user(&["alias", "add", "100", "reception"]);
    server.user(&["disable", "mallory"]);
    let load = Load::start(&format!(
        "--to udp:{} --callee remote --domain pool.test --users 200 --rate 25 --time 200s --drain 30s --seed 7 \
         --set hold=exp(mean=8s) --set ring=exp(mean=2s)",
        server.address()
    ));
    let mut page = AdministrationPage::open(listener);
    page.enter_token(&format!("swg_{}", "x".repeat(43)));
    page.expect("The server does not accept this token");
    page.log_in(&AdministrationPage::token(&server, "administrator"));

    let end = Instant::now() + RUN;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_secs(1));
    }
    let wide = (1280, 940);
    page.picture(&folder.join("administration-overview.png"), wide, "light");
    page.picture(&folder.join("administration-narrow.png"), (390, 844), "dark");

    page.go("Trace");
    page.fill("Value", "sales");
    page.click("Start");
    page.expect("Messages appear as they pass");
    let mut caller = Caller::new(server.address());
    caller.call_as("\"Alice\" <sip:alice@example.com>");
    caller.call_whom("sip:sales@sales.test");
    caller.begin("3848276298220188511@alice");
    caller.run(Duration::from_secs(3));
    caller.request("3848276298220188511@alice", "BYE", None);
    caller.settle(PATIENCE);
    page.browser().wait_for("document.querySelector('.ladder').textContent.includes('200 OK (BYE)')");
    page.picture(&folder.join("administration-call.png"), (1280, 860), "light");
    drop(load);

    make_calls(&server, &free);
    page.go("Call records");
    page.row("frnak@example.com");
    page.picture(&folder.join("administration-records.png"), (1280, 720), "light");
    fail_to_log_in(&server);
    page.go("Security");
    page.row("friendly-scanner");
    page.picture(&folder.join("administration-security.png"), (1280, 720), "dark");
    ExitCode::SUCCESS
}

/// Makes [`CALLS`], from three addresses, and returns when all are recorded.
fn make_calls(server: &Server, callee: &Callee) {
    let earlier = server.records().len();
    let mut callers = [21, 22, 23].map(|host| {
        let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, host), 0)).expect("a loopback address");
        Caller::on(socket, server.address())
    });
    for second in 0..60 {
        for (number, (who, whom, fate)) in CALLS.iter().enumerate() {
            let call_id = format!("record-{number}@{who}");
            let caller = &mut callers[number % 3];
            if number == second {
                caller.call_as(&format!("<sip:{who}@example.com>"));
                caller.call_whom(whom);
                caller.begin(&call_id);
            }
            match fate {
                Fate::CallerEndsAfter(time) if number + time == second => caller.request(&call_id, "BYE", None),
                Fate::CalleeEndsAfter(time) if number + time == second => callee.request(&call_id, "BYE"),
                _ => {}
            }
            if number == second {
                caller.run(Duration::from_millis(400));
                if *fate == Fate::Cancelled {
                    caller.cancel(&call_id);
                }
            }
        }
        callers.iter_mut().for_each(|caller| caller.run(Duration::from_millis(200)));
    }
    callers.iter_mut().for_each(|caller| caller.settle(PATIENCE));
    wait_until("the calls are recorded", || server.records().len() >= earlier + CALLS.len());
}

/// Guesses users and passwords from some addresses; one of them is banned for it. An operator bans another one.
fn fail_to_log_in(server: &Server) {
    let guesses = [(41, "alice", 3), (66, "100", 4), (66, "admin", 6), (7, "judy", 1)];
    for (host, user, times) in guesses {
        let mut guesser = Registrant::at(Ipv4Addr::new(127, 0, 0, host).into(), user);
        for number in 0..times {
            guesser.log_in(server.address(), &format!("guess {number}"), PATIENCE);
        }
    }
    let mut scanner = Registrant::at(Ipv4Addr::new(127, 0, 0, 99).into(), "1000");
    scanner.ask(server.address(), 3600, "User-Agent: friendly-scanner\r\n", PATIENCE);
    server.command(&["ctl", "ban", "add", "192.0.2.7", "--for", "1h"]);
}
