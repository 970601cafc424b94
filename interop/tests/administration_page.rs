//! The administration page in a real browser (`chromium`), on a real server with real phones and calls. Skipped if the
//! browser is missing.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::json;
use strowger_interop::{
    AdministrationPage, AnswerBehavior, Callee, Caller, Config, PATIENCE, Phone, Program, Server, free_port, wait_until,
};

/// Maximum number of bytes of the whole page, as transferred.
const MAX_BYTES: u64 = 300_000;
/// Views that every role has.
const VIEWS: [&str; 8] = ["Overview", "Users", "Registrations", "Calls", "Targets", "Members", "Security", "System"];
/// Begins a script wherever text is taken for markup.
const ATTACK: &str = "<img src=x onerror=window.attacked=1>";

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}

/// A server with a page, and a balancer with two targets for calls to `pool.test`.
struct Setting {
    server: Server,
    listener: SocketAddr,
    targets: [Callee; 2],
}

impl Setting {
    /// Starts everything. Returns nothing if there is no browser.
    fn start() -> Option<Setting> {
        Setting::with(Config { require: vec!["REGISTER"], ..Config::default() })
    }

    fn with(config: Config) -> Option<Setting> {
        if !Program::Chromium.available() {
            return None;
        }
        let listener = loopback();
        let targets = [(); 2].map(|()| Callee::start(loopback()));
        let uris = targets.each_ref().map(Callee::uri);
        let more = format!(
            "[admin]\nlisten = \"{listener}\"\n[[balancer]]\nname = \"pool\"\npolicy = \"round-robin\"\n\
             targets = {uris:?}\n[[route]]\nmatch = {{ domain = \"pool.test\" }}\naction = \"proxy\"\nbalance = \"pool\"\n"
        );
        let server = Config { more, ..config }.start();
        Some(Setting { server, listener, targets })
    }

    /// Returns a page that is logged in with this role.
    fn page(&self, role: &str) -> AdministrationPage {
        let mut page = AdministrationPage::open(self.listener);
        page.log_in(&AdministrationPage::token(&self.server, role));
        page
    }

    fn caller(&self) -> Caller {
        Caller::new(self.server.address())
    }
}

/// Runs the caller until the call with this Call-ID is answered.
fn answer(caller: &mut Caller, call_id: &str) {
    caller.run_until("it is answered", PATIENCE, |calls| {
        calls.get(call_id).is_some_and(|call| matches!(call.answer, Some((200, _))))
    });
}

#[test]
fn a_token_opens_what_its_role_may_do_until_the_user_logs_out() {
    let Some(setting) = Setting::start() else { return };
    let mut page = AdministrationPage::open(setting.listener);
    page.expect("strowger token add");
    page.enter_token("not a token");
    page.expect("This is not a token");
    page.enter_token(&format!("swg_{}", "x".repeat(43)));
    page.expect("The server does not accept this token");
    page.log_in(&AdministrationPage::token(&setting.server, "viewer"));
    page.expect("up ");
    page.expect("Nothing.");

    for (view, absent) in [("Users", "Add a user"), ("Targets", "Drain"), ("System", "Reload"), ("Overview", "Trace")] {
        page.go(view);
        page.expect_heading(view);
        assert!(!page.has(absent), "a viewer is offered {absent}");
    }
    page.reload();
    page.expect_heading("Overview");
    page.click("Log out");
    page.expect("Administration of this SIP server");
    page.reload();
    page.expect("Administration of this SIP server");

    page.log_in(&AdministrationPage::token(&setting.server, "operator"));
    page.go("Targets");
    page.expect("Drain");
    assert!(!page.has("Add a target"));
    setting.server.command(&["token", "rm", "operator"]);
    page.expect("Administration of this SIP server");
}

#[test]
fn the_page_is_small_and_painted_soon() {
    let Some(setting) = Setting::start() else { return };
    let mut page = AdministrationPage::open(setting.listener);
    let bytes = "performance.getEntries().filter((entry) => entry.encodedBodySize !== undefined)
        .reduce((sum, entry) => sum + entry.transferSize, 0)";
    let bytes = page.browser().evaluate(bytes).as_u64().expect("a number");
    page.browser().wait_for("performance.getEntriesByName('first-contentful-paint').length === 1");
    let paint = page.browser().evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime");
    let files = page.browser().evaluate("performance.getEntriesByType('resource').length");
    eprintln!("the page: {bytes} bytes in {files} files, first paint after {paint} ms");
    assert!((20_000..=MAX_BYTES).contains(&bytes), "{bytes} bytes");
}

#[test]
fn a_user_is_added_registers_is_changed_and_removed() {
    let Some(setting) = Setting::start() else { return };
    if !Program::Baresip.available() {
        return;
    }
    let mut page = setting.page("administrator");
    page.go("Users");
    page.click("Add a user");
    page.fill("Name", "dora");
    page.click("Add");
    page.expect("The user is added");
    let at = setting.server.address();
    page.expect(&format!("{}, port {}, UDP", at.ip(), at.port()));
    let password = page.browser().evaluate("document.querySelector('output').textContent");
    page.click("Done");
    assert!(page.row("dora@example.com").contains("enabled"));

    let mut phone = Phone::start("dora");
    let event = phone.register(&setting.server, password.as_str().expect("a password"));
    assert_eq!(event.kind, "REGISTER_OK", "{}", event.detail);
    page.browser().wait_for(
        "[...document.querySelectorAll('tbody tr')].some((row) => /dora@example.com\\s+enabled\\s+1\\s/.test(row.innerText))",
    );
    page.click("dora@example.com");
    page.expect("Unregister");
    assert!(page.row("sip:dora").contains("127.0.0.1"));

    page.click("Add an alias");
    page.fill("Alias", "117");
    page.click("Add");
    page.expect("117@example.com");
    page.click("Disable");
    page.expect("Its phones are unregistered within seconds");
    page.click("Disable");
    page.expect("it can neither register nor call");
    page.click("Enable");
    page.expect_no("it can neither register nor call");
    page.click("New password");
    page.fill("Password", "the second secret");
    page.click("Change");
    page.expect("The password is changed");
    page.click("Done");
    let mut other = Phone::start("dora");
    assert_eq!(other.register(&setting.server, "the second secret").kind, "REGISTER_OK");

    page.go("Users");
    page.fill("Search", "alic");
    page.expect_no("dora@example.com");
    page.expect("alice@example.com");
    page.click("Add a user");
    page.fill("Name", "alice");
    page.click("Add");
    page.expect("alice@example.com");
    page.browser().wait_for("document.querySelector('dialog [role=alert]') !== null");
    page.expect("This conflicts with what exists");
    page.click("Cancel");
    page.fill("Search", "dora");
    page.click("dora@example.com");
    page.click("Remove");
    page.click("Remove");
    page.expect_heading("Users");
    page.expect_no("dora@example.com\t");
    let left = setting.server.command(&["user", "list", "--json"]);
    assert!(left.contains("alice@example.com") && !left.contains("dora@example.com"), "{left}");
}

#[test]
fn a_call_is_seen_while_it_lasts_with_its_ladder() {
    let Some(setting) = Setting::start() else { return };
    let mut page = setting.page("operator");
    page.go("Calls");
    page.expect("No call is in progress");
    page.go("Trace");
    page.fill("Value", "you");
    page.click("Start");
    page.expect("Messages appear as they pass");

    let mut caller = setting.caller();
    caller.begin("ladder-1@here");
    answer(&mut caller, "ladder-1@here");
    page.browser().wait_for("document.querySelectorAll('.arrow').length >= 5");
    page.browser().wait_for("document.querySelector('.ladder').textContent.includes('INVITE sip:you@pool.test')");
    page.click("List");
    page.click("INVITE sip:you@pool.test");
    page.expect("Call-ID: ladder-1@here");
    page.click("Stop");
    page.expect("Stopped.");
    page.row("INVITE sip:you@pool.test");

    page.go("Calls");
    let row = page.row("you@pool.test");
    assert!(row.contains("me@example.com") && row.contains("answered") && row.contains("UDP 127.0.0.1:"), "{row}");
    page.click("Ladder of the call from me@example.com to you@pool.test");
    page.expect("Messages appear as they pass");
    page.expect("No message since you opened this view");
    caller.request("ladder-1@here", "BYE", None);
    caller.settle(PATIENCE);
    page.browser().wait_for("document.querySelector('.ladder')?.textContent.includes('200 OK (BYE)')");
    // On a busy machine it lasts longer than ten seconds.
    page.browser().wait_for("/This call has ended after \\d+:\\d\\d/.test(document.body.innerText)");
    page.expect("Stopped.");
    page.expect("me@example.com → you@pool.test");
    page.browser().wait_for("document.querySelector('.ladder').textContent.includes('200 OK (BYE)')");
    assert!(!page.has("End this call"));
    page.browser().evaluate("location.hash = '#/calls/unknown'");
    page.expect("it has ended, or it never was here");
    page.go("Calls");
    page.expect("No call is in progress");
}

#[test]
fn an_operator_ends_a_call() {
    let Some(setting) = Setting::start() else { return };
    let mut caller = setting.caller();
    caller.begin("end-1");
    answer(&mut caller, "end-1");
    let mut page = setting.page("operator");
    page.go("Calls");
    page.click("End the call from me@example.com to you@pool.test");
    page.click("End the call");
    page.expect("is being ended");
    caller.run_until("it has got BYE", PATIENCE, |calls| {
        calls.get("end-1").is_some_and(|call| call.replies.iter().any(|(what, _)| what == "BYE received"))
    });
    page.expect("No call is in progress");

    setting.targets.iter().for_each(|target| {
        target.behave(AnswerBehavior { ring: Duration::from_secs(60), ..AnswerBehavior::default() });
    });
    caller.begin("end-2");
    caller.run(Duration::from_millis(300));
    page.click("Ladder of the call from me@example.com to you@pool.test");
    page.expect("appears when the call is answered");
    page.click("End this call");
    page.click("End the call");
    caller.run_until("it is refused", PATIENCE, |calls| {
        calls.get("end-2").is_some_and(|call| matches!(call.answer, Some((487, _))))
    });
    page.expect("This call has ended unanswered");
}

#[test]
fn addresses_are_banned_and_served_again() {
    let Some(setting) = Setting::start() else { return };
    let mut page = setting.page("operator");
    page.go("Security");
    page.expect("No address is banned");
    page.click("Ban an address");
    page.fill("Address", "192.0.2.7 x");
    page.click("Ban");
    page.browser().wait_for("document.querySelector('dialog [role=alert]') !== null");
    page.fill("Address", "192.0.2.7");
    page.click("Ban");
    let row = page.row("192.0.2.7");
    assert!(row.contains("an operator") && row.contains("in 59 min"), "{row}");
    page.go("Overview");
    page.expect("1 address is banned");
    page.go("Security");
    page.click("Remove the ban of 192.0.2.7");
    page.click("Remove");
    page.expect("No address is banned");
    page.go("Overview");
    page.expect("Nothing.");
}

#[test]
fn failed_log_ins_are_shown_to_operators() {
    let Some(setting) = Setting::start() else { return };
    let mut page = AdministrationPage::open(setting.listener);
    page.enter_token(&format!("swg_{}", "x".repeat(43)));
    page.expect("The server does not accept this token");
    page.log_in(&AdministrationPage::token(&setting.server, "operator"));
    page.go("Security");
    page.expect("Failed log-ins");
    let row = page.row("wrong token of this page or the API");
    assert!(row.contains("http 127.0.0.1") && row.contains("never banned"), "{row}");
    // A token is secret, also a wrong one.
    page.expect_no("swg_");
    if Program::Baresip.available() {
        assert_eq!(Phone::start("alice").register(&setting.server, "not her password").kind, "REGISTER_FAIL");
        let row = page.row("wrong password");
        assert!(row.contains("alice") && row.contains("udp 127.0.0.1"), "{row}");
    }
    page.go("Overview");
    page.click("Log out");
    page.log_in(&AdministrationPage::token(&setting.server, "viewer"));
    // A viewer does not see who failed, or who called whom.
    page.go("Security");
    page.expect("No address is banned");
    page.expect_no("Failed log-ins");
    assert!(!page.has("Call records"));
}

#[test]
fn calls_that_have_ended_are_found_by_user() {
    let Some(setting) = Setting::start() else { return };
    let mut page = setting.page("operator");
    page.go("Call records");
    page.expect("This server does not record calls");
    let file = setting.server.file();
    let text = std::fs::read_to_string(file).expect("the configuration");
    std::fs::write(file, text + "[cdr]\nfile = \"cdr.json\"\n").expect("it can be written");
    setting.server.command(&["ctl", "reload"]);
    page.click("Show");
    page.expect("No call has ended since the server's start");
    let mut caller = setting.caller();
    caller.begin("record-1");
    answer(&mut caller, "record-1");
    caller.request("record-1", "BYE", None);
    caller.settle(PATIENCE);
    caller.call_as(&format!("\"{ATTACK}\" <sip:other@example.com>"));
    setting.targets.iter().for_each(|target| {
        target.behave(AnswerBehavior { status: 486, ..AnswerBehavior::default() });
    });
    caller.begin("record-2");
    caller.settle(PATIENCE);
    wait_until("the calls are recorded", || setting.server.records().len() == 2);
    page.click("Show");
    let row = page.row("me@example.com");
    assert!(row.contains("you@pool.test") && row.contains("caller hung up") && row.contains("0:0"), "{row}");
    let row = page.row("other@example.com");
    assert!(row.contains("rejected (486)"), "{row}");
    page.fill("User", "other");
    page.click("Show");
    page.expect_no("me@example.com");
    page.row("other@example.com");
    page.fill("User", "nobody@example.com");
    page.click("Show");
    page.expect("No recorded call is of this user");
    page.click("Show all");
    page.row("me@example.com");
}

#[test]
fn a_reload_is_previewed_with_the_values_of_lists() {
    let Some(setting) = Setting::start() else { return };
    let mut page = setting.page("administrator");
    page.go("System");
    page.click("Preview a reload");
    page.expect("would change no key");
    let file = setting.server.file();
    let text = std::fs::read_to_string(file).expect("the configuration");
    std::fs::write(file, text + "[ban]\nallow = [\"192.0.2.0/24\"]\n").expect("it can be written");
    page.click("Preview a reload");
    page.expect("What a reload would change");
    assert!(page.row("ban.allow").contains("added 192.0.2.0/24"));
    page.click("Reload");
    page.expect("reloaded ");
    assert!(page.row("ban.allow").contains("added 192.0.2.0/24"));
    page.click("Configuration in use");
    page.expect(&format!("From {}", file.display()));
}

#[test]
fn a_user_of_a_domain_that_is_not_served_is_marked() {
    let Some(setting) = Setting::start() else { return };
    let mut page = setting.page("administrator");
    // Where the overview of a server without users leads.
    page.browser().evaluate("location.hash = '#/users//add'");
    page.fill("Name", "zed@nowhere.test");
    page.click("Add");
    page.expect("nowhere.test is not in server.domains, so the server does not serve zed@nowhere.test");
    page.click("Done");
    assert!(page.row("zed@nowhere.test").contains("domain not served"));
    assert!(page.row("alice@example.com").contains("enabled"));
    page.click("zed@nowhere.test");
    page.expect("This user cannot register");
}

#[test]
fn a_target_is_drained_until_no_call_is_left() {
    let Some(setting) = Setting::start() else { return };
    let mut caller = setting.caller();
    let calls = ["one", "two"];
    for call in calls {
        caller.begin(call);
        answer(&mut caller, call);
    }
    let target = setting.targets[0].uri();
    let mut page = setting.page("operator");
    page.go("Targets");
    assert!(page.row(&target).contains(" up "));
    page.click(&format!("Drain {target}"));
    page.expect("1 call in progress");
    page.click("Drain");
    page.expect("draining: 1 call left");
    page.go("Overview");
    page.expect("1 of 2 targets of pool take no calls");

    for call in calls {
        caller.request(call, "BYE", None);
    }
    caller.settle(PATIENCE);
    page.go("Targets");
    page.browser().wait_for("/drain(ed: no calls left|ing: \\d+ transactions? left)/.test(document.body.innerText)");
    page.click(&format!("Undrain {target}"));
    page.browser().wait_for("!document.querySelector('main').innerText.includes('drain')");
    assert!(setting.server.targets().iter().all(|target| target["draining"] == false));
}

/// Presses Tab until the control with this name has the focus. Each stop on the way must show that it has it.
fn tab_to(page: &mut AdministrationPage, name: &str) {
    const MAX_STOPS: usize = 60;
    let browser = page.browser();
    let mut seen = Vec::new();
    for _ in 0..MAX_STOPS {
        browser.press("Tab");
        let focused = "(() => {
            const element = document.activeElement;
            const { outlineStyle, outlineWidth } = getComputedStyle(element);
            return { name: nameOf(element), is_seen: element === document.body || (outlineStyle !== 'none' && outlineWidth !== '0px') };
        })()";
        let focused = browser.evaluate(focused);
        assert_eq!(focused["is_seen"], true, "the focus of {focused} cannot be seen");
        if focused["name"] == name {
            return;
        }
        seen.push(focused["name"].to_string());
    }
    panic!("Tab does not reach {name} but {seen:?}");
}

#[test]
fn a_user_is_added_with_the_keyboard_alone() {
    let Some(setting) = Setting::start() else { return };
    let mut page = AdministrationPage::open(setting.listener);
    page.browser().wait_for("document.activeElement.id === 'token'");
    let token = AdministrationPage::token(&setting.server, "administrator");
    page.browser().type_text(&token);
    page.browser().press("Enter");
    page.expect_heading("Overview");

    tab_to(&mut page, "Skip to the content");
    page.browser().press("Enter");
    page.browser().wait_for("document.activeElement.id === 'content'");
    page.reload();
    page.expect_heading("Overview");
    tab_to(&mut page, "Users");
    page.browser().press("Enter");
    page.expect_heading("Users");
    page.browser().wait_for("document.activeElement.id === 'content'");
    tab_to(&mut page, "Add a user");
    page.browser().press("Enter");
    page.browser()
        .wait_for("document.querySelector('dialog[open]') !== null && nameOf(document.activeElement) === 'Name'");
    page.browser().press("Escape");
    page.browser()
        .wait_for("document.querySelector('dialog') === null && nameOf(document.activeElement) === 'Add a user'");
    page.browser().press(" ");
    page.browser()
        .wait_for("document.querySelector('dialog[open]') !== null && nameOf(document.activeElement) === 'Name'");
    page.browser().type_text("emma");
    tab_to(&mut page, "Generate");
    page.browser().press("Enter");
    tab_to(&mut page, "Add");
    page.browser().press("Enter");
    page.expect("The user is added");
    page.browser().wait_for("nameOf(document.activeElement) === 'Done'");
    page.browser().press("Enter");
    page.browser()
        .wait_for("document.querySelector('dialog') === null && nameOf(document.activeElement) === 'Add a user'");
    page.expect("emma@example.com");
}

#[test]
fn texts_of_callers_and_users_never_become_markup() {
    let Some(setting) = Setting::start() else { return };
    let mut page = setting.page("administrator");
    let call_id = "<script>window.attacked()</script>/../\"x";
    page.go("Trace");
    page.fill("Value", "you");
    page.click("Start");
    page.expect("Messages appear as they pass");
    setting.targets.iter().for_each(|target| {
        target.behave(AnswerBehavior { ring: Duration::from_secs(60), ..AnswerBehavior::default() });
    });
    let mut caller = setting.caller();
    caller.call_as(&format!("\"{ATTACK}\" <sip:me%3Cscript%3E@example.com>"));
    caller.begin_with(call_id, &format!("Subject: {ATTACK}\r\n"), false);
    caller.run(Duration::from_millis(500));
    page.browser().wait_for("document.querySelectorAll('.arrow').length > 0");
    page.click("List");
    page.click("INVITE sip:you@pool.test");
    page.expect(&format!("Subject: {ATTACK}"));
    page.expect(&format!("\"{ATTACK}\""));

    page.go("Calls");
    page.row("you@pool.test");
    page.browser().evaluate("document.querySelector('main a.button').click()");
    page.expect(call_id);
    caller.cancel(call_id);
    caller.settle(PATIENCE);

    page.go("Users");
    for name in [ATTACK, "\"><script>window.attacked=1</script>"] {
        page.click("Add a user");
        page.fill("Name", name);
        page.click("Add");
        page.browser().wait_for("document.querySelector('dialog [role=alert], dialog output') !== null");
        page.browser().press("Escape");
    }
    page.fill("Search", ATTACK);
    page.browser().evaluate(&format!("location.hash = '#/users/' + encodeURIComponent({})", json!(ATTACK)));
    page.expect(ATTACK);
    page.browser().evaluate(&format!("location.hash = '#/' + {}", json!(ATTACK)));
    page.expect("There is no such view");

    let attacked = page
        .browser()
        .evaluate("window.attacked !== undefined || document.querySelector('main img, main script, main b') !== null");
    assert_eq!(attacked, false);
    // The policy stops what the page itself would let through.
    let inline = "new Promise((done) => {
        document.addEventListener('securitypolicyviolation', () => done(window.inline === undefined));
        const script = document.createElement('script');
        try { script.text = 'window.inline = 1'; document.body.append(script); } catch { done(window.inline === undefined); }
    })";
    assert_eq!(page.browser().evaluate(inline), true);
}

#[test]
fn everything_has_a_name_for_screen_readers() {
    let Some(setting) = Setting::start() else { return };
    let mut caller = setting.caller();
    caller.begin("one");
    answer(&mut caller, "one");
    let mut page = AdministrationPage::open(setting.listener);
    assert_eq!(page.nameless(), Vec::<serde_json::Value>::new(), "log in");
    page.log_in(&AdministrationPage::token(&setting.server, "administrator"));
    for view in VIEWS.into_iter().chain(["Trace", "Call records"]) {
        page.go(view);
        page.expect_no("Loading");
        assert_eq!(page.nameless(), Vec::<serde_json::Value>::new(), "{view}");
        let roles = page.roles();
        for landmark in ["banner", "navigation", "main"] {
            assert_eq!(roles.iter().filter(|role| *role == landmark).count(), 1, "{landmark} of {view}");
        }
    }
    let failed =
        "performance.getEntriesByType('resource').filter((one) => one.responseStatus >= 400).map((one) => one.name)";
    assert_eq!(page.browser().evaluate(failed), json!([]), "a view asks for what does not exist");
    for (view, button) in [("Users", "Add a user"), ("Targets", "Add a target"), ("System", "Make a backup")] {
        page.go(view);
        page.click(button);
        page.browser().wait_for("document.querySelector('dialog[open]') !== null");
        assert_eq!(page.nameless(), Vec::<serde_json::Value>::new(), "{button}");
        assert!(page.roles().iter().any(|role| role == "dialog"), "{button}");
        page.click("Cancel");
    }
    page.go("Calls");
    page.click("Ladder of the call from me@example.com to you@pool.test");
    page.expect("Messages appear as they pass");
    caller.request("one", "BYE", None);
    caller.settle(PATIENCE);
    page.browser().wait_for("document.querySelector('.ladder') !== null");
    assert_eq!(page.nameless(), Vec::<serde_json::Value>::new(), "a ladder");
}

#[test]
fn the_page_says_that_the_server_is_gone_and_goes_on_when_it_is_back() {
    let Some(mut setting) = Setting::start() else { return };
    let mut page = setting.page("administrator");
    page.go("System");
    page.click("Check the file");
    page.browser().wait_for("document.querySelector('pre.result') !== null");
    page.click("Make a backup");
    page.click("Make");
    page.expect("with the key");
    page.click("Configuration in use");
    page.expect("[server]");
    setting.server.kill();
    page.expect("The server does not answer");
    setting.server.restart();
    page.expect("The server answers again");
    page.go("Users");
    page.expect("alice@example.com");
}

/// Parts of the page that compute, with inputs that a server or a network seldom gives.
#[test]
fn event_streams_paths_and_ladders_are_right() {
    let Some(setting) = Setting::start() else { return };
    let mut page = AdministrationPage::open(setting.listener);
    let computed = page.browser().evaluate(
        "(async () => {
            const base = document.querySelector('script[type=module]').src;
            const load = (name) => import(new URL(name, base).href);
            const [{ EventReader, path }, { Ladder, label }, { clock, elapsed, span }, { phoneDomain, placeText, reach }] =
                await Promise.all(['api.js', 'ladder.js', 'format.js', 'reach.js'].map(load));
            const everywhere = ['udp:127.0.0.1:5060', 'udp:192.0.2.2:5060', 'tcp:192.0.2.2:5060', 'udp:198.51.100.2:5060', 'tls:[2001:db8::2]:5061'];
            const places = (listeners, host) => reach(listeners, host).map(placeText);
            const stream = 'event: message\\r\\ndata: {\\r\\ndata: }\\r\\n\\r\\n: comment\\n\\nevent:lost\\ndata:{}\\n\\ndata: x\\n\\n';
            const split = (size) => {
                const events = [];
                const reader = new EventReader((name, data) => events.push([name, data]));
                for (let at = 0; at < stream.length; at += size) reader.read(stream.slice(at, at + size));
                return JSON.stringify(events);
            };
            const streams = new Set([1, 2, 3, 7, 1000].map(split));
            const ladder = new Ladder();
            const message = (peer, sent) => ({ transport: 'UDP', peer, sent, start: 'SIP/2.0 200 OK', cseq: '1 BYE', call_id: 'c', at_us: 0 });
            ladder.add(message('callee', true));
            ladder.add(message('caller', false));
            for (let party = 0; party < 600; party += 1) ladder.add(message(`party ${party}`, true));
            for (let more = 0; more < 600; more += 1) ladder.add(message('caller', false));
            let dots;
            try { dots = path('calls', '..'); } catch (error) { dots = error.status; }
            return {
                streams: [...streams], dots, path: path('users', 'a/b?c#d@e', 'aliases', '%'),
                lanes: ladder.lanes().slice(0, 3), parties: ladder.lanes().length, messages: ladder.messages.length,
                label: label(message('x', true)), times: [clock(59.9), clock(3661), span(90061), span(0), elapsed(999.94), elapsed(15176.9)],
                reach: [places(everywhere, '192.0.2.2'), places(everywhere, 'localhost'), places(['udp:0.0.0.0:5070', 'udp:192.0.2.2:5060 (removed, closing)'], 'sip.test'), places(['udp:127.0.0.1:5060'], '127.0.0.1')],
                domains: [phoneDomain('localhost', ['localhost'], reach(everywhere, '192.0.2.2')), phoneDomain('a.test', ['a.test'], reach(everywhere, '192.0.2.2'))],
            };
        })()",
    );
    let expected = json!({
        "streams": ["[[\"message\",\"{\\n}\"],[\"lost\",\"{}\"],[\"message\",\"x\"]]"],
        "dots": 404,
        "path": "/users/a%2Fb%3Fc%23d%40e/aliases/%25",
        "lanes": ["UDP caller", null, "UDP callee"],
        "parties": 7,
        "messages": 500,
        "label": "200 OK (BYE)",
        "times": ["0:59", "1:01:01", "1 d 1 h", "0 s", "999.9 ms", "15.18 s"],
        "reach": [
            ["192.0.2.2, port 5060, UDP or TCP"],
            ["192.0.2.2, port 5060, UDP or TCP", "198.51.100.2, port 5060, UDP", "2001:db8::2, port 5061, TLS"],
            ["sip.test, port 5070, UDP"],
            ["127.0.0.1, port 5060, UDP"],
        ],
        "domains": ["192.0.2.2", "a.test"],
    });
    assert_eq!(computed, expected);
}
