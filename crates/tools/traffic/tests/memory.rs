//! A million users, each with a session that thinks for an hour, fit into less than a gigabyte, also if each was
//! challenged and keeps the nonce.

use std::net::SocketAddr;
use std::sync::Arc;

use strowger_foundation::Timestamp;
use strowger_traffic::driver::{Driver, Outbox, Setup};
use strowger_traffic::law::Law;
use strowger_traffic::population::Users;
use strowger_traffic::script::{Extract, Pattern, ScriptBuilder};

/// Outbox that keeps only the last message.
#[derive(Default)]
struct Nowhere(Vec<u8>);

impl Outbox for Nowhere {
    fn slot(&mut self, _: u32) -> &mut Vec<u8> {
        self.0.clear();
        &mut self.0
    }

    fn commit(&mut self, _: u32, _: SocketAddr, _: u64) {}

    fn connect(&mut self, _: SocketAddr, _: bool) -> Option<u32> {
        None
    }

    fn close(&mut self, _: u32) {}
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4096
}

/// Number of challenged users; each costs the same.
const CHALLENGED: usize = 100_000;

/// Both parts measure the memory of the process, so they are one test.
#[test]
fn users_are_small() {
    // It is not dropped, because its memory would be reused and not be measured.
    let _first = a_million_users_fit_into_a_gibibyte();
    so_they_do_with_a_nonce_each();
}

fn so_they_do_with_a_nonce_each() {
    const REGISTER: &str = "REGISTER sip:[domain] SIP/2.0\nVia: SIP/2.0/UDP [local];branch=[branch]\n\
        From: <sip:[caller]@[domain]>;tag=[local_tag]\nTo: <sip:[caller]@[domain]>\nCall-ID: [call_id]\n\
        CSeq: [cseq] REGISTER\n[authentication]\nContent-Length: 0\n";
    let mut script = ScriptBuilder::new("user");
    let (again, done) = (script.label(), script.label());
    script.place_label(again).send(REGISTER).wait(&[
        (Pattern::SUCCESS, Extract::NOTHING, Some(done)),
        (Pattern::status(401), Extract::CHALLENGE, Some(again)),
    ]);
    script.place_label(done).pause(Law::parse("exp(mean=1h)").expect("a law")).jump(again);
    let users = Arc::new(Users::generated("user%7", "secret%", "example.com", 1_000_000));
    let at = SocketAddr::from(([127, 0, 0, 1], 5060));
    let mut setup = Setup::new(vec![script.build().expect("a script")].into(), users, at, at);
    (setup.reuses_nonces, setup.retransmits) = (true, false);
    let before = resident();
    let mut driver = Driver::new(setup);
    let mut nowhere = Nowhere::default();
    let now = Timestamp::from_millis(1);
    for user in 0..CHALLENGED as u32 {
        driver.begin(now, 0, (user, user), &mut nowhere).expect("no limit is near");
        for (status, more) in [(401, true), (200, false)] {
            let response = response(&nowhere.0, status, more.then_some(user));
            driver.handle_message(now, now, (0, at), response.as_bytes(), &mut nowhere);
        }
    }
    assert_eq!((driver.session_count(), driver.meter().failures.len()), (CHALLENGED, 0));
    let bytes = (resident() - before) / CHALLENGED;
    println!("{bytes} bytes a user with a nonce");
    assert!(bytes < 1_000, "{bytes} bytes a user with a nonce");
}

fn response(request: &[u8], status: u16, challenge: Option<u32>) -> String {
    let request = std::str::from_utf8(request).expect("ASCII");
    let copied = request.lines().filter(|line| !line.starts_with("Content-Length") && line.contains(": "));
    let copied: String = copied.map(|line| format!("{line}\r\n")).collect();
    let challenge = challenge.map_or(String::new(), |number| {
        format!(
            "WWW-Authenticate: Digest realm=\"example.com\", nonce=\"{number:040}\", algorithm=SHA-256, qop=\"auth\"\r\n"
        )
    });
    format!("SIP/2.0 {status} x\r\n{copied}{challenge}Content-Length: 0\r\n\r\n")
}

fn a_million_users_fit_into_a_gibibyte() -> Driver {
    let mut script = ScriptBuilder::new("user");
    let again = script.label();
    script.place_label(again).pause(Law::parse("exp(mean=1h)").expect("a law")).jump(again);
    let scripts = vec![script.build().expect("a script")];
    let users = Arc::new(Users::generated("user%7", "secret%", "example.com", 1_000_000));
    let at = SocketAddr::from(([127, 0, 0, 1], 5060));
    let before = resident();
    let mut driver = Driver::new(Setup::new(scripts.into(), users, at, at));
    let mut nowhere = Nowhere::default();
    for user in 0..1_000_000 {
        driver.begin(Timestamp::from_millis(1), 0, (user, user), &mut nowhere).expect("no limit is near");
    }
    assert_eq!(driver.session_count(), 1_000_000);
    let bytes = (resident() - before) / 1_000_000;
    println!("{bytes} bytes a user");
    assert!(bytes < 600, "{bytes} bytes a user");
    // After an hour, most have finished thinking.
    driver.handle_timeout(Timestamp::from_millis(3_600_000), &mut nowhere);
    assert_eq!(driver.session_count(), 1_000_000);
    driver
}
