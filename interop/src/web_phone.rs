//! The example page of the documentation in a browser.

use std::path::Path;

use serde_json::{Value, json};

use crate::{Browser, Namespace, WebFile, WebServer, jssip};

/// The page.
const PAGE: &str = include_str!("../../docs/operating/web-phone.html");

/// The page `docs/operating/web-phone.html` in a browser, used like a human would: by its fields and buttons.
#[derive(Debug)]
pub struct WebPhone {
    browser: Browser,
}

impl WebPhone {
    /// Starts a web server of the page and its library. Returns nothing if the library cannot be downloaded; see [`jssip`].
    ///
    /// # Panics
    /// As [`jssip`].
    #[must_use]
    pub fn serve(cache: &Path, network: Option<&Namespace>) -> Option<WebServer> {
        let script = WebFile { path: "/jssip.min.js", media_type: "text/javascript", text: jssip(cache)? };
        let page = WebFile { path: "/web-phone.html", media_type: "text/html", text: PAGE.to_owned() };
        Some(WebServer::start(vec![page, script], network))
    }

    /// Opens the page in this browser.
    ///
    /// # Panics
    /// If it cannot be loaded.
    #[must_use]
    pub fn open(mut browser: Browser, pages: &WebServer) -> WebPhone {
        browser.open(&format!("{}/web-phone.html", pages.origin()));
        WebPhone { browser }
    }

    /// Fills in the form and signs in, without waiting for the outcome.
    ///
    /// # Panics
    /// If the page has no such form. The same holds for the other steps.
    pub fn sign_in(&mut self, server: &str, address: &str, password: &str) {
        for (field, text) in [("server", server), ("address", address), ("password", password)] {
            self.fill(field, text);
        }
        self.browser.press("Enter");
    }

    /// Calls this address.
    pub fn dial(&mut self, peer: &str) {
        self.fill("peer", peer);
        self.browser.press("Enter");
    }

    /// Clicks a button, for example `answer` or `hang-up`.
    pub fn click(&mut self, button: &str) {
        let button = json!(format!("#{button}"));
        self.browser.wait_for(&format!("document.querySelector({button}).checkVisibility()"));
        self.browser.evaluate(&format!("document.querySelector({button}).click()"));
    }

    /// Presses a key of the keypad.
    pub fn press_key(&mut self, key: char) {
        self.browser.evaluate("document.querySelector('#keys').open = true");
        let text = json!(key.to_string());
        let button = format!("[...document.querySelectorAll('#keypad button')].find(key => key.innerText === {text})");
        self.browser.evaluate(&format!("{button}.click()"));
    }

    /// Waits until the page says this of the account.
    #[track_caller]
    pub fn expect_status(&mut self, text: &str) {
        self.browser.wait_for(&format!("document.querySelector('#status').innerText === {}", json!(text)));
    }

    /// Waits until the page says this of the call.
    #[track_caller]
    pub fn expect_call(&mut self, text: &str) {
        self.browser.wait_for(&format!("document.querySelector('#call-status').innerText === {}", json!(text)));
    }

    /// Waits until audio other than silence has arrived, and returns what the browser says of the stream.
    ///
    /// # Panics
    /// If none arrives.
    pub fn expect_audio(&mut self) -> Value {
        let stream = "session.connection.getStats().then(all => [...all.values()].find(stream => \
                      stream.type === 'inbound-rtp' && stream.packetsReceived > 0 && stream.totalAudioEnergy > 0))";
        self.browser.wait_for(&format!("{stream}.then(stream => stream !== undefined)"));
        self.browser.evaluate(stream)
    }

    /// Returns what the browser tells assistive technology about each field and button that is shown.
    pub fn controls(&mut self) -> Vec<Value> {
        let tree = self.browser.command("Accessibility.getFullAXTree", &json!({}));
        let nodes = tree["nodes"].as_array().expect("a list of nodes").iter();
        let is_control = |node: &&Value| ["button", "textbox"].iter().any(|role| node["role"]["value"] == *role);
        nodes.filter(is_control).cloned().collect()
    }

    /// Returns the browser, for what this type has no method for.
    pub fn browser(&mut self) -> &mut Browser {
        &mut self.browser
    }

    /// Returns the browser with the page in it.
    #[must_use]
    pub fn into_browser(self) -> Browser {
        self.browser
    }

    fn fill(&mut self, field: &str, text: &str) {
        let field = json!(format!("#{field}"));
        self.browser.wait_for(&format!("document.querySelector({field}).checkVisibility()"));
        self.browser.evaluate(&format!("document.querySelector({field}).select()"));
        self.browser.type_text(text);
    }
}
