//! The administration page of a server, in a browser.

use std::net::SocketAddr;
use std::path::Path;

use data_encoding::BASE64;
use serde_json::{Value, json};

use crate::{Browser, Server};

/// Functions in the page by which tests find what a user would look for. Whoever looks for a control knows its name:
/// its label, or what it says.
const FINDERS: &str = "
    globalThis.nameOf = (element) => {
        const label = element.labels?.[0];
        return (element.ariaLabel ?? label?.textContent ?? element.textContent).replace(/\\s+/g, ' ').trim();
    };
    globalThis.controls = () => {
        const open = [...document.querySelectorAll('dialog[open]')].pop() ?? document;
        const found = [...open.querySelectorAll('button, a, input, select, summary')];
        return found.filter((element) => element.checkVisibility({ visibilityProperty: true }));
    };
    globalThis.control = (name) => {
        const found = controls().find((element) => nameOf(element) === name);
        if (!found) throw new Error(`no ${name} but ${controls().map(nameOf).join(' | ')}`);
        return found;
    };
    true";

/// The page, opened in a browser of its own.
#[derive(Debug)]
pub struct AdministrationPage {
    browser: Browser,
    url: String,
}

impl AdministrationPage {
    /// Opens the page of the server whose `[admin]` listener has this address.
    ///
    /// # Panics
    /// If the page cannot be loaded.
    #[must_use]
    pub fn open(listener: SocketAddr) -> AdministrationPage {
        let mut browser = Browser::start(&[], None);
        let url = format!("http://{listener}/");
        browser.open(&url);
        let mut page = AdministrationPage { browser, url };
        page.prepare();
        page
    }

    fn prepare(&mut self) {
        self.browser.evaluate(FINDERS);
        self.browser
            .wait_for("document.querySelector('#app h1') !== null || document.querySelector('#token') !== null");
    }

    /// Returns a token for this role, named after it.
    ///
    /// # Panics
    /// If the server's command fails or prints no token.
    #[must_use]
    pub fn token(server: &Server, role: &str) -> String {
        let said = server.command(&["token", "add", role, "--role", role]);
        let token = said.split_whitespace().find(|word| word.starts_with("swg_"));
        token.unwrap_or_else(|| panic!("no token in {said}")).to_owned()
    }

    /// Enters a token and submits it.
    ///
    /// # Panics
    /// If there is no form to log in. The methods below panic if what they need is missing.
    pub fn enter_token(&mut self, token: &str) {
        self.fill("Token", token);
        self.click("Log in");
    }

    /// Logs in.
    pub fn log_in(&mut self, token: &str) {
        self.enter_token(token);
        self.expect_heading("Overview");
    }

    /// Opens a view by its name in the rail.
    pub fn go(&mut self, view: &str) {
        self.browser.evaluate(&format!(
            "[...document.querySelectorAll('nav a')].find((link) => nameOf(link).startsWith({})).click()",
            json!(view)
        ));
        self.expect_heading(view);
    }

    /// Loads the page again.
    pub fn reload(&mut self) {
        self.browser.reload();
        self.prepare();
    }

    /// Waits for the heading of a view.
    #[track_caller]
    pub fn expect_heading(&mut self, heading: &str) {
        self.browser.wait_for(&format!("document.querySelector('h1')?.textContent === {}", json!(heading)));
    }

    /// Waits until this text is visible.
    #[track_caller]
    pub fn expect(&mut self, text: &str) {
        self.browser.wait_for(&format!("document.body.innerText.includes({})", json!(text)));
    }

    /// Waits until this text is not visible.
    #[track_caller]
    pub fn expect_no(&mut self, text: &str) {
        self.browser.wait_for(&format!("!document.body.innerText.includes({})", json!(text)));
    }

    /// Returns whether there is a control with this name.
    pub fn has(&mut self, name: &str) -> bool {
        self.browser.evaluate(&format!("controls().some((one) => nameOf(one) === {})", json!(name))) == true
    }

    /// Waits for a control with this name and clicks it.
    #[track_caller]
    pub fn click(&mut self, name: &str) {
        self.browser.wait_for(&format!("(control({}).click(), true)", json!(name)));
    }

    /// Replaces the value of a field.
    #[track_caller]
    pub fn fill(&mut self, name: &str, text: &str) {
        self.browser.wait_for(&format!("(control({}).focus(), document.activeElement.select?.(), true)", json!(name)));
        self.browser.type_text(text);
    }

    /// Returns the text of the row of a table that contains this text.
    #[track_caller]
    pub fn row(&mut self, text: &str) -> String {
        let row = format!(
            "[...document.querySelectorAll('tbody tr')].find((row) => row.innerText.includes({}))?.innerText",
            json!(text)
        );
        self.browser.wait_for(&format!("typeof {row} === 'string'"));
        self.browser.evaluate(&row).as_str().unwrap_or_default().replace(['\n', '\t'], " ")
    }

    /// Saves a picture of the window, which is `width` wide and `height` high.
    pub fn picture(&mut self, file: &Path, (width, height): (u32, u32), theme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.browser.command("Emulation.setDeviceMetricsOverride", &size);
        // Without motion, colours change at once.
        let theme = json!({ "features": [
            { "name": "prefers-color-scheme", "value": theme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ] });
        self.browser.command("Emulation.setEmulatedMedia", &theme);
        // Two frames later everything has its new size and colours.
        let frames = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))";
        self.browser.wait_for(frames);
        let picture = self.browser.command("Page.captureScreenshot", &json!({ "format": "png" }));
        let bytes = BASE64.decode(picture["data"].as_str().expect("a picture").as_bytes()).expect("base64");
        std::fs::write(file, bytes).expect("the picture can be written");
    }

    /// Returns controls, headings and pictures without a name, as a screen reader sees them.
    pub fn nameless(&mut self) -> Vec<Value> {
        let tree = self.browser.command("Accessibility.getFullAXTree", &json!({}));
        let nodes = tree["nodes"].as_array().expect("a tree").iter();
        let is_nameless = |node: &&Value| {
            let role = node["role"]["value"].as_str().unwrap_or_default();
            let name = node["name"]["value"].as_str().unwrap_or_default();
            node["ignored"] == false && NAMED.contains(&role) && name.trim().is_empty()
        };
        nodes.filter(is_nameless).cloned().collect()
    }

    /// Returns the roles that a screen reader finds in the page.
    pub fn roles(&mut self) -> Vec<String> {
        let tree = self.browser.command("Accessibility.getFullAXTree", &json!({}));
        let nodes = tree["nodes"].as_array().expect("a tree").iter().filter(|node| node["ignored"] == false);
        nodes.filter_map(|node| node["role"]["value"].as_str().map(str::to_owned)).collect()
    }

    /// Returns the browser, for what has no method of its own.
    pub fn browser(&mut self) -> &mut Browser {
        &mut self.browser
    }

    /// Returns the address of the page.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// Roles that need a name.
const NAMED: [&str; 15] = [
    "button",
    "link",
    "textbox",
    "searchbox",
    "spinbutton",
    "combobox",
    "checkbox",
    "image",
    "img",
    "table",
    "dialog",
    "navigation",
    "heading",
    "region",
    "group",
];
