//! Makes the pictures of the administration page: a server with calls, phones and some trouble, in a browser.
//!
//! `docs/pictures/administration.sh` runs it and makes the files small.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use strowger_interop::{
    AdministrationPage, AnswerBehavior, Answerer, Callee, Caller, Config, Load, PATIENCE, Program, Registrant,
    free_port,
};

/// Time for which calls run before the first picture, so that the plots have something to show.
const RUN: Duration = Duration::from_secs(75);
/// Users with a phone.
const USERS: [&str; 12] =
    ["alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "mallory", "reception"];

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
        "[admin]\nlisten = \"{listener}\"\n\
         [[balancer]]\nname = \"pbx\"\npolicy = \"least-calls\"\n\
         targets = [{{ uri = {:?}, weight = 2 }}, {{ uri = {:?} }}]\n\
         [[route]]\nmatch = {{ domain = \"pool.test\" }}\naction = \"proxy\"\nbalance = \"pbx\"\n\
         [[balancer]]\nname = \"sales\"\npolicy = \"round-robin\"\n\
         targets = [{{ uri = {:?} }}, {{ uri = {:?}, priority = 1 }}]\n\
         [[route]]\nmatch = {{ domain = \"sales.test\" }}\naction = \"proxy\"\nbalance = \"sales\"\n\
         [[trunk]]\nname = \"carrier\"\ntargets = [\"sip:{silent}\"]\nusername = \"office\"\npassword = \"secret\"\n\
         register = true\n",
        uris[0],
        uris[1],
        busy.uri(),
        free.uri()
    );
    let server = Config { workers: 2, more, ..Config::open() }.start();
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
    ExitCode::SUCCESS
}
