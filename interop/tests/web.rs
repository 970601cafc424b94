//! Calls between a web page in a real browser (`chromium`, JsSIP, secure WebSocket) and `baresip` over TLS. The page is the
//! example of the documentation. Skipped if a program is missing or the tests may not make network namespaces.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;

use serde_json::Value;
use strowger_interop::{
    Browser, Certificate, Config, Namespace, Phone, Process, Program, Server, WebPhone, WebServer, binary, free_port,
    key_hash, wait_until,
};

/// Address of everything. It is not a loopback address, since neither browsers nor `baresip` offer those for audio.
const HOST: Ipv4Addr = Ipv4Addr::new(10, 66, 0, 1);

/// Folder in which the page's library is kept.
const CACHE: &str = env!("CARGO_TARGET_TMPDIR");

/// Steps to try the page.
const STEPS: &str = include_str!("../../docs/operating/browser-calls.md");

/// A server that listens on WebSockets and TLS, and the page's web server, in a network of their own.
struct Setting {
    server: Server,
    /// Secure WebSockets.
    web_sockets: SocketAddr,
    /// WebSockets without TLS.
    plain: SocketAddr,
    tls: SocketAddr,
    certificate: Certificate,
    pages: WebServer,
    network: Namespace,
}

impl Setting {
    /// Returns whether all programs are installed and networks can be made.
    fn is_possible() -> bool {
        let programs = [Program::Chromium, Program::Baresip, Program::OpenSsl];
        programs.into_iter().all(Program::available) && Namespace::available(&["ip", "nsenter"])
    }

    /// Starts everything. Returns nothing if something is missing.
    fn start() -> Option<Setting> {
        Setting::pinging("30s")
    }

    /// Like [`Setting::start`], with pings after this time without a message.
    fn pinging(ping: &str) -> Option<Setting> {
        if !Setting::is_possible() {
            return None;
        }
        let network = Namespace::new();
        network.add_interface("lan", HOST, Ipv6Addr::new(0xfd66, 0, 0, 0, 0, 0, 0, 1));
        let pages = WebPhone::serve(CACHE.as_ref(), Some(&network))?;
        let certificate = Certificate::new("example.com", HOST.into());
        let [web_sockets, plain, tls] = [(); 3].map(|()| SocketAddr::from((HOST, free_port())));
        let server = Config {
            host: HOST.into(),
            // As many as a machine with two cores has by itself.
            workers: 2,
            tcp: true,
            listeners: vec![format!("wss:{web_sockets}"), format!("ws:{plain}"), format!("tls:{tls}")],
            more: format!(
                "{}\n[websocket]\norigins = [{:?}]\nping = {ping:?}\n",
                certificate.section(),
                pages.origin()
            ),
            ..Config::default()
        };
        let server = server.start_in(Some(&network));
        Some(Setting { server, web_sockets, plain, tls, certificate, pages, network })
    }

    fn browser(&self) -> Browser {
        Browser::start(&[key_hash(&self.certificate.key())], Some(&self.network))
    }

    /// Returns a page that is signed in.
    fn page(&self, name: &str) -> WebPhone {
        let mut page = WebPhone::open(self.browser(), &self.pages);
        self.sign_in(&mut page, name);
        page
    }

    fn sign_in(&self, page: &mut WebPhone, name: &str) {
        page.sign_in(&self.url(), &format!("{name}@example.com"), &format!("secret of {name}"));
        page.expect_status(&format!("Signed in as {name}@example.com"));
    }

    /// Returns a phone that is registered over TLS.
    fn phone(&self, name: &'static str) -> Phone {
        let mut phone = Phone::start_for_browsers(name, HOST, &self.network);
        let event = phone.register_for_browsers("tls", self.tls);
        assert_eq!((event.kind.as_str(), event.detail.as_str()), ("REGISTER_OK", "200 OK"));
        phone
    }

    fn url(&self) -> String {
        format!("wss://{}", self.web_sockets)
    }

    /// Returns the registered contacts of this user.
    fn contacts(&self, name: &str) -> Vec<String> {
        let text = self.server.control(&["registrations", "--json"]);
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        let rows = answer["registrations"].as_array().expect("a list").iter();
        let own = rows.filter(|row| row["aor"] == format!("{name}@example.com"));
        own.map(|row| row["contact"].as_str().expect("a contact").to_owned()).collect()
    }
}

#[test]
fn the_steps_of_the_documentation_work() {
    if !Setting::is_possible() {
        return;
    }
    let (network, host) = (Namespace::new(), Ipv4Addr::new(192, 0, 2, 1));
    network.add_interface("lan", host, Ipv6Addr::new(0xfd66, 0, 0, 0, 0, 0, 0, 1));
    let Some(pages) = WebPhone::serve(CACHE.as_ref(), Some(&network)) else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = |command: &mut Command| {
        let output = command.current_dir(&folder).output().expect("the program starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let [certificate, configuration, ..] = &code_blocks(STEPS)[..] else { panic!("there are no steps") };
    run(Command::new("sh").args(["-ec", certificate]));
    // The page is not on port 8000 here.
    let configuration = configuration.replace("http://localhost:8000", &pages.origin());
    assert!(configuration.contains(&pages.origin()), "{configuration}");
    std::fs::write(folder.path().join("strowger.toml"), configuration).expect("our own folder");
    for user in ["alice", "bob"] {
        run(Command::new(binary()).args(["user", "add", user, "--password", &format!("secret of {user}")]));
    }
    let log = folder.path().join("server.log");
    let _server = Process::start_in(Some(&network), &binary(), &["serve".to_owned()], log);

    let browser = Browser::start(&[key_hash(&folder.path().join("tls/test.key"))], Some(&network));
    let mut alice = WebPhone::open(browser, &pages);
    alice.sign_in("wss://192.0.2.1:7443", "alice@192.0.2.1", "secret of alice");
    alice.expect_status("Signed in as alice@192.0.2.1");
    let mut bob = Phone::start_for_browsers("bob", host, &network);
    let account = code_blocks(STEPS).into_iter().find(|block| block.starts_with("<sip:bob@")).expect("an account");
    assert_eq!(bob.register_account(account.replace("PASSWORD", "\"secret of bob\"").trim()).kind, "REGISTER_OK");
    alice.dial("bob");
    bob.expect("CALL_INCOMING");
    bob.accept();
    hear_each_other(&mut alice, &mut bob);
}

/// Returns the code blocks of a document, without their indentation.
fn code_blocks(text: &str) -> Vec<String> {
    let blocks = text.split("```").skip(1).step_by(2);
    // The first line is the language.
    let lines = |block: &str| block.lines().skip(1).map(|line| line.trim_start().to_owned() + "\n").collect();
    blocks.map(lines).collect()
}

/// Waits until both hear the other.
fn hear_each_other(page: &mut WebPhone, phone: &mut Phone) {
    page.expect_audio();
    phone.expect("CALL_RTPESTAB");
}

#[test]
fn a_page_registers_and_unregisters() {
    let Some(setting) = Setting::start() else { return };
    let mut alice = WebPhone::open(setting.browser(), &setting.pages);
    for url in [setting.url(), format!("ws://{}", setting.plain)] {
        alice.sign_in(&url, "alice@example.com", "secret of alice");
        alice.expect_status("Signed in as alice@example.com");
        let contacts = setting.contacts("alice");
        assert!(contacts.len() == 1 && contacts[0].contains(".invalid;"), "{contacts:?}");
        alice.click("sign-out");
        alice.expect_status("Signed out");
        wait_until("the binding is gone", || setting.server.registrations() == 0);
    }
}

#[test]
fn a_wrong_password_is_refused() {
    let Some(setting) = Setting::start() else { return };
    let mut page = WebPhone::open(setting.browser(), &setting.pages);
    page.sign_in(&setting.url(), "alice@example.com", "wrong");
    page.expect_status("The server does not sign you in: 401 Unauthorized");
    assert_eq!(setting.server.registrations(), 0);
}

#[test]
fn a_page_calls_a_phone() {
    let Some(setting) = Setting::start() else { return };
    let (mut alice, mut bob) = (setting.page("alice"), setting.phone("bob"));
    for page_hangs_up in [true, false] {
        alice.dial("bob");
        assert_eq!(bob.expect("CALL_INCOMING").peer, "sip:alice@example.com");
        alice.expect_call("Ringing at bob …");
        bob.accept();
        bob.expect("CALL_ESTABLISHED");
        alice.expect_call("In a call with bob");
        hear_each_other(&mut alice, &mut bob);
        assert_eq!(setting.server.calls().len(), 1);
        if page_hangs_up {
            alice.click("hang-up");
        } else {
            bob.hang_up();
        }
        bob.expect_closed();
        alice.expect_call("Call with bob ended");
    }
    // Keys are heard.
    alice.dial("bob");
    bob.expect("CALL_INCOMING");
    bob.accept();
    alice.expect_call("In a call with bob");
    hear_each_other(&mut alice, &mut bob);
    alice.press_key('5');
    assert_eq!(bob.expect("CALL_DTMF_START").detail, "5");
    alice.click("hang-up");
    bob.expect_closed();
    // The phone declines.
    alice.dial("bob");
    bob.expect("CALL_INCOMING");
    bob.hang_up();
    alice.expect_call("Call with bob failed: 486 Rejected");
}

#[test]
fn a_phone_calls_a_page() {
    let Some(setting) = Setting::start() else { return };
    let (mut alice, mut bob) = (setting.page("alice"), setting.phone("bob"));
    for page_hangs_up in [true, false] {
        bob.dial("sip:alice@example.com");
        alice.expect_call("bob is calling");
        bob.expect("CALL_RINGING");
        alice.click("answer");
        bob.expect("CALL_ESTABLISHED");
        alice.expect_call("In a call with bob");
        hear_each_other(&mut alice, &mut bob);
        if page_hangs_up {
            alice.click("hang-up");
        } else {
            bob.hang_up();
        }
        bob.expect_closed();
        alice.expect_call("Call with bob ended");
    }
    // The page declines.
    bob.dial("sip:alice@example.com");
    alice.expect_call("bob is calling");
    alice.click("hang-up");
    alice.expect_call("Call from bob declined");
    assert_eq!(bob.expect_closed(), "480 Temporarily Unavailable");
}

#[test]
fn callers_cancel() {
    let Some(setting) = Setting::start() else { return };
    let (mut alice, mut bob) = (setting.page("alice"), setting.phone("bob"));
    alice.dial("bob");
    bob.expect("CALL_INCOMING");
    alice.expect_call("Ringing at bob …");
    alice.click("hang-up");
    alice.expect_call("Call to bob cancelled");
    assert_eq!(bob.expect_closed(), "Connection reset by peer");

    bob.dial("sip:alice@example.com");
    alice.expect_call("bob is calling");
    bob.expect("CALL_RINGING");
    bob.hang_up();
    alice.expect_call("Missed call from bob");
    assert_eq!(bob.expect_closed(), "Connection reset by user");
    assert!(!bob.has_seen("CALL_ESTABLISHED"));
}

#[test]
fn a_phone_without_the_media_of_browsers_is_not_acceptable() {
    let Some(setting) = Setting::start() else { return };
    let mut alice = setting.page("alice");
    let mut bob = Phone::start_at("bob", HOST, Some(&setting.network));
    assert_eq!(bob.register_over("tls", setting.tls).kind, "REGISTER_OK");
    alice.dial("bob");
    alice.expect_call("Call with bob failed: 488 Not Acceptable Here");
    bob.expect_closed();
    bob.dial("sip:alice@example.com");
    alice.expect_call("bob is calling");
    alice.click("answer");
    assert_eq!(bob.expect_closed(), "488 Not Acceptable Here");
}

#[test]
fn phones_over_any_transport_are_called() {
    let Some(setting) = Setting::start() else { return };
    let mut alice = setting.page("alice");
    for (transport, address) in [("udp", setting.server.address()), ("tcp", setting.server.address())] {
        let mut bob = Phone::start_for_browsers("bob", HOST, &setting.network);
        assert_eq!(bob.register_for_browsers(transport, address).kind, "REGISTER_OK");
        alice.dial("bob");
        bob.expect("CALL_INCOMING");
        bob.accept();
        alice.expect_call("In a call with bob");
        hear_each_other(&mut alice, &mut bob);
        bob.hang_up();
        alice.expect_call("Call with bob ended");
        bob.dial("sip:alice@example.com");
        alice.expect_call("bob is calling");
        alice.click("answer");
        bob.expect("CALL_ESTABLISHED");
        alice.click("hang-up");
        bob.expect_closed();
        bob.expect_closed();
        bob.delete_account();
        wait_until("only alice is registered", || setting.server.registrations() == 1);
    }
}

#[test]
fn a_page_and_a_phone_of_one_user_ring_together() {
    let Some(setting) = Setting::start() else { return };
    let (mut page, mut phone) = (setting.page("alice"), setting.phone("alice"));
    let mut bob = setting.phone("bob");
    assert_eq!(setting.contacts("alice").len(), 2);
    bob.dial("sip:alice@example.com");
    phone.expect("CALL_INCOMING");
    page.expect_call("bob is calling");
    page.click("answer");
    bob.expect("CALL_ESTABLISHED");
    phone.expect_closed();
    hear_each_other(&mut page, &mut bob);
    bob.hang_up();
    page.expect_call("Call with bob ended");
    bob.expect_closed();

    bob.dial("sip:alice@example.com");
    page.expect_call("bob is calling");
    phone.expect("CALL_INCOMING");
    phone.accept();
    bob.expect("CALL_ESTABLISHED");
    page.expect_call("Missed call from bob");
    bob.hang_up();
    phone.expect_closed();
}

#[test]
fn either_side_holds_the_call() {
    let Some(setting) = Setting::start() else { return };
    let (mut alice, mut bob) = (setting.page("alice"), setting.phone("bob"));
    alice.dial("bob");
    bob.expect("CALL_INCOMING");
    bob.accept();
    alice.expect_call("In a call with bob");
    hear_each_other(&mut alice, &mut bob);
    assert_eq!(bob.expect("CALL_REMOTE_SDP").detail, "offer");
    bob.hold();
    alice.browser().wait_for("session.isOnHold().remote");
    bob.resume();
    alice.browser().wait_for("!session.isOnHold().remote");
    for _ in ["hold", "resume"] {
        assert_eq!(bob.expect("CALL_REMOTE_SDP").detail, "answer");
    }
    alice.browser().evaluate("session.hold()");
    assert_eq!(bob.expect("CALL_REMOTE_SDP").detail, "offer");
    alice.browser().wait_for("session.isReadyToReOffer()");
    alice.click("hang-up");
    bob.expect_closed();
    alice.expect_call("Call with bob ended");
}

#[test]
fn two_pages_call_each_other() {
    let Some(setting) = Setting::start() else { return };
    let (mut alice, mut bob) = (setting.page("alice"), setting.page("bob"));
    alice.dial("bob");
    bob.expect_call("alice is calling");
    alice.expect_call("Ringing at bob …");
    bob.click("answer");
    for (page, peer) in [(&mut alice, "bob"), (&mut bob, "alice")] {
        page.expect_call(&format!("In a call with {peer}"));
        page.expect_audio();
    }
    bob.click("hang-up");
    bob.expect_call("Call with alice ended");
    alice.expect_call("Call with bob ended");
}

#[test]
fn a_page_that_is_loaded_again_is_reachable_again() {
    let Some(setting) = Setting::start() else { return };
    let (mut alice, mut bob) = (setting.page("alice"), setting.phone("bob"));
    let before = setting.contacts("alice");
    alice.browser().reload();
    alice.expect_status("Signed out");
    // Nobody is told to wait for a page that is gone.
    bob.dial("sip:alice@example.com");
    assert_eq!(bob.expect_closed(), "480 Temporarily Unavailable");

    setting.sign_in(&mut alice, "alice");
    let after = setting.contacts("alice");
    assert_eq!(after.len(), 1, "the old contact is still there: {after:?}");
    assert_ne!(after, before);
    bob.dial("sip:alice@example.com");
    alice.expect_call("bob is calling");
    alice.click("answer");
    bob.expect("CALL_ESTABLISHED");
    bob.hang_up();
    alice.expect_call("Call with bob ended");
}

#[test]
fn a_closed_browser_is_unreachable_at_once() {
    let Some(setting) = Setting::start() else { return };
    let (alice, mut bob) = (setting.page("alice"), setting.phone("bob"));
    alice.into_browser().kill();
    bob.dial("sip:alice@example.com");
    let reason = bob.expect_closed();
    assert!(reason.starts_with("480 ") || reason.starts_with("430 "), "{reason}");
}

#[test]
fn a_page_returns_after_a_restart_of_the_server() {
    let Some(mut setting) = Setting::start() else { return };
    let mut alice = setting.page("alice");
    setting.server.kill();
    alice.expect_status("No connection to the server. Trying again …");
    setting.server.restart_in(Some(&setting.network));
    alice.expect_status("Signed in as alice@example.com");
    let contacts = setting.contacts("alice");
    assert_eq!(contacts.len(), 1, "the contact of the lost connection is still there: {contacts:?}");
    let mut bob = setting.phone("bob");
    bob.dial("sip:alice@example.com");
    alice.expect_call("bob is calling");
}

#[test]
fn a_sleeping_page_is_unreachable_until_it_wakes() {
    let Some(setting) = Setting::pinging("1s") else { return };
    let (mut alice, mut bob) = (setting.page("alice"), setting.phone("bob"));
    alice.browser().stop();
    // It answers no pings.
    wait_until("the server has noticed", || setting.server.registrations() == 1);
    bob.dial("sip:alice@example.com");
    assert_eq!(bob.expect_closed(), "480 Temporarily Unavailable");
    alice.browser().go_on();
    wait_until("the page has registered again", || setting.server.registrations() == 2);
    bob.dial("sip:alice@example.com");
    alice.expect_call("bob is calling");
}

#[test]
fn pages_of_other_origins_are_refused() {
    let Some(setting) = Setting::start() else { return };
    let other = WebPhone::serve(CACHE.as_ref(), Some(&setting.network)).expect("it is cached");
    assert_ne!(other.origin(), setting.pages.origin());
    let mut page = WebPhone::open(setting.browser(), &other);
    page.sign_in(&setting.url(), "alice@example.com", "secret of alice");
    page.expect_status("No connection to the server. Trying again …");
    assert_eq!(setting.server.registrations(), 0);
}

#[test]
fn the_page_needs_no_mouse() {
    let Some(setting) = Setting::start() else { return };
    let mut bob = setting.phone("bob");
    let mut page = WebPhone::open(setting.browser(), &setting.pages);
    let keys = page.browser();
    for text in [&setting.url(), "alice@example.com", "secret of alice"] {
        keys.press("Tab");
        keys.type_text(text);
    }
    keys.press("Enter");
    page.expect_status("Signed in as alice@example.com");
    page.browser().type_text("bob");
    page.browser().press("Enter");
    bob.expect("CALL_INCOMING");
    bob.accept();
    page.expect_call("In a call with bob");
    // The focus is on the text. The buttons follow: Mute, Hang up.
    for key in ["Tab", "Tab", " "] {
        page.browser().press(key);
    }
    bob.expect_closed();
    page.expect_call("Call with bob ended");

    bob.dial("sip:alice@example.com");
    page.expect_call("bob is calling");
    for key in ["Tab", "Enter"] {
        page.browser().press(key);
    }
    bob.expect("CALL_ESTABLISHED");

    // Readers of the screen find a name for each control.
    for control in page.controls() {
        assert_ne!(control["name"]["value"], "", "{control:#}");
    }
}
