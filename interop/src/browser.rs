//! The browser `chromium`, without a window, driven through its DevTools protocol.

use std::fs::{self, DirEntry, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::namespace::Namespace;
use crate::process::{Process, tail};
use crate::{PATIENCE, Program, poll};

/// A running browser with one page. It has no microphone: pages hear beeps instead.
#[derive(Debug)]
pub struct Browser {
    process: Process,
    answers: Answers,
    last_id: u64,
    /// Names the page in commands to it.
    session: String,
    folder: TempDir,
}

impl Browser {
    /// Starts a browser with an empty page, optionally in a network namespace. It trusts servers with one of these keys
    /// (SHA-256 of the public key, in base64), besides those with a certificate of the usual authorities.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(trusted_keys: &[String], network: Option<&Namespace>) -> Browser {
        let folder = tempfile::Builder::new().prefix("chromium-").tempdir().expect("a temporary folder");
        let log = folder.path().join("answers");
        // With `--remote-debugging-pipe` it reads commands from descriptor 3 and writes to 4.
        let script = "exec \"$@\" 3<&0 4>&1 </dev/null >&2";
        let browser = Program::Chromium.path().display().to_string();
        let fixed = ["-c", script, "sh", &browser].into_iter().chain(OPTIONS.iter().copied()).map(str::to_owned);
        let chosen = [
            format!("--user-data-dir={}", folder.path().join("profile").display()),
            format!("--ignore-certificate-errors-spki-list={}", trusted_keys.join(",")),
        ];
        let arguments = fixed.chain(chosen).collect::<Vec<_>>();
        let process = Process::start_interactive_in(network, Path::new("/bin/sh"), &arguments, log.clone());
        let answers = Answers { file: log, read: 0, rest: Vec::new() };
        let mut browser = Browser { process, answers, last_id: 0, session: String::new(), folder };
        let page = browser.command("Target.createTarget", &json!({ "url": "about:blank" }));
        let attached =
            browser.command("Target.attachToTarget", &json!({ "targetId": page["targetId"], "flatten": true }));
        browser.session = attached["sessionId"].as_str().expect("a session has a name").to_owned();
        // What the page and its connections report goes to the log.
        for domain in ["Runtime", "Log"] {
            browser.command(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Opens an address and waits until the page is loaded.
    ///
    /// # Panics
    /// If it cannot be loaded. The same holds for [`Browser::reload`].
    pub fn open(&mut self, url: &str) {
        let opened = self.command("Page.navigate", &json!({ "url": url }));
        assert!(opened["errorText"].is_null(), "{url}: {opened}");
        self.wait_for(&format!("document.URL === {} && document.readyState === 'complete'", json!(url)));
    }

    /// Loads the page again.
    pub fn reload(&mut self) {
        self.evaluate("document.documentElement.dataset.isOld = ''");
        self.command("Page.reload", &json!({}));
        self.wait_for("document.documentElement.dataset.isOld === undefined && document.readyState === 'complete'");
    }

    /// Returns the value of a JavaScript expression in the page. A promise is waited for.
    ///
    /// # Panics
    /// If the expression throws.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        self.try_evaluate(expression).unwrap_or_else(|error| panic!("`{expression}`: {error:#}"))
    }

    /// Waits until a JavaScript expression is true in the page.
    ///
    /// # Panics
    /// If it stays false. The message contains the page's text.
    #[track_caller]
    pub fn wait_for(&mut self, expression: &str) {
        // While a page is loaded there may be none.
        let mut last = Ok(Value::Null);
        let is_true = poll(PATIENCE, || {
            last = self.try_evaluate(expression);
            (last == Ok(Value::Bool(true))).then_some(())
        });
        if is_true.is_none() {
            let text = self.evaluate("document.body.innerText");
            let text = text.as_str().unwrap_or_default();
            panic!("`{expression}` does not become true but {last:?}; the page says:\n{text}");
        }
    }

    fn try_evaluate(&mut self, expression: &str) -> Result<Value, Value> {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.try_command("Runtime.evaluate", &parameters)?;
        let exception = answer["exceptionDetails"].take();
        if exception.is_null() { Ok(answer["result"]["value"].take()) } else { Err(exception) }
    }

    /// Types text where the focus is.
    ///
    /// # Panics
    /// If the browser is gone. The same holds for [`Browser::press`].
    pub fn type_text(&mut self, text: &str) {
        self.command("Input.insertText", &json!({ "text": text }));
    }

    /// Presses and releases a key, such as `Enter`, `Tab`, `Escape` or a space.
    pub fn press(&mut self, key: &str) {
        let code = if key == " " { "Space" } else { key };
        let (text, number) = match key {
            "Enter" => ("\r", 13),
            "Tab" => ("", 9),
            "Escape" => ("", 27),
            _ => (key, u32::from(key.as_bytes()[0])),
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let event =
                json!({ "type": kind, "key": key, "code": code, "text": text, "windowsVirtualKeyCode": number });
            self.command("Input.dispatchKeyEvent", &event);
        }
    }

    /// Sends a DevTools command to the page, and returns the result.
    ///
    /// # Panics
    /// If the browser refuses it or does not answer.
    pub fn command(&mut self, method: &str, parameters: &Value) -> Value {
        self.try_command(method, parameters).unwrap_or_else(|error| panic!("`{method}`: {error}"))
    }

    /// Returns the error with which the browser refuses the command.
    fn try_command(&mut self, method: &str, parameters: &Value) -> Result<Value, Value> {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let stdin = self.process.stdin().expect("the browser was started with an input");
        let sent = stdin.write_all(format!("{message}\0").as_bytes());
        let answer = sent.ok().and_then(|()| poll(PATIENCE, || self.answers.take(self.last_id)));
        let Some(mut answer) = answer else {
            panic!("the browser does not answer `{method}` ({:?})", self.process.ended());
        };
        if answer["error"].is_null() { Ok(answer["result"].take()) } else { Err(answer["error"].take()) }
    }

    /// Stops all processes of the browser (SIGSTOP), like a laptop whose lid is closed: its connections stay open.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues after [`Browser::stop`].
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        for process in processes_of(self.folder.path()) {
            // One that has just ended needs no signal.
            let _ = kill_process(process, signal);
        }
    }

    /// Kills the browser (SIGKILL): pages have no chance to say goodbye.
    pub fn kill(mut self) {
        self.process.kill();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said = self.process.output().replace('\0', "\n");
            let printed = said.lines().filter(|line| REPORTS.iter().any(|report| line.contains(report)));
            let printed = printed.collect::<Vec<_>>().join("\n");
            eprintln!("--- the page ---\n{}", tail(&printed, 100));
            eprintln!("--- the browser ---\n{}", tail(&self.process.errors(), 40));
        }
        // Its child processes end a moment later than it, and until then they may write to the folder.
        self.process.kill();
        let _ = poll(PATIENCE, || processes_of(self.folder.path()).is_empty().then_some(()));
    }
}

/// Returns the processes whose arguments name this folder. All processes of a browser have its folder in them.
fn processes_of(folder: &Path) -> Vec<Pid> {
    let name = folder.as_os_str().as_bytes();
    let is_ours = |process: &DirEntry| {
        let arguments = fs::read(process.path().join("cmdline")).unwrap_or_default();
        arguments.windows(name.len()).any(|window| window == name)
    };
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let number = |process: DirEntry| process.file_name().to_str()?.parse().ok().and_then(Pid::from_raw);
    all.filter(is_ours).filter_map(number).collect()
}

/// Events that are shown when a test fails.
const REPORTS: [&str; 3] = ["Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"];

/// Options of the browser. Root may only run it without its sandbox.
const OPTIONS: [&str; 13] = [
    "--headless=new",
    "--no-sandbox",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-sync",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    // Otherwise the page announces names of multicast DNS instead of addresses.
    "--disable-features=WebRtcHideLocalIpsWithMdns",
];

/// What the browser writes: answers to commands and events, each ended by a zero byte.
#[derive(Debug)]
struct Answers {
    file: PathBuf,
    read: u64,
    rest: Vec<u8>,
}

impl Answers {
    /// Returns the answer to the command with this number, if it is there. Everything before it is dropped.
    fn take(&mut self, id: u64) -> Option<Value> {
        let mut file = File::open(&self.file).expect("our own file");
        file.seek(SeekFrom::Start(self.read)).expect("our own file");
        let more = file.read_to_end(&mut self.rest).expect("our own file");
        self.read += more as u64;
        while let Some(end) = self.rest.iter().position(|&byte| byte == 0) {
            let message: Value = serde_json::from_slice(&self.rest[..end]).expect("the browser writes JSON");
            self.rest.drain(..=end);
            if message["id"] == id {
                return Some(message);
            }
        }
        None
    }
}
