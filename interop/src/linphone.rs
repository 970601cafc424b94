//! The softphone `linphonec`.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::process::{Process, read, tail};
use crate::{PATIENCE, Program, Server, free_port, poll};

/// A running phone that registers when it starts.
#[derive(Debug)]
pub struct Linphone {
    process: Process,
    trace: PathBuf,
    _folder: TempDir,
}

impl Linphone {
    /// Starts a phone with the account `name@example.com` at this server.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(server: &Server, name: &str, password: &str) -> Linphone {
        let folder = tempfile::Builder::new().prefix("linphone-").tempdir().expect("a temporary folder");
        // Without these folders it cannot create its database, and then it listens on no port.
        for part in [".config/linphone", ".local/share/linphone"] {
            fs::create_dir_all(folder.path().join(part)).expect("the phone's folders can be made");
        }
        let (port, address) = (free_port(), server.address());
        let config = format!(
            "[sip]\nsip_port={port}\nsip_tcp_port=-1\nsip_tls_port=-1\ndefault_proxy=0\n\
             [auth_info_0]\nusername={name}\npasswd={password}\ndomain=example.com\n\
             [proxy_0]\nreg_proxy=<sip:{address};transport=udp>\nreg_identity=sip:{name}@example.com\n\
             reg_expires=600\nreg_sendregister=1\npublish=0\n"
        );
        fs::write(folder.path().join("rc"), config).expect("the phone's files can be written");
        let arguments = ["-c", "rc", "-d", "6", "-l", "trace.log"].map(String::from);
        let log = folder.path().join("phone.log");
        let process = Process::start_interactive(&Program::Linphone.path(), &arguments, log);
        let trace = folder.path().join("trace.log");
        Linphone { process, trace, _folder: folder }
    }

    /// Waits for the result of the registration and returns whether it succeeded.
    ///
    /// # Panics
    /// If the phone reports no result.
    pub fn is_registered(&mut self) -> bool {
        let outcome = poll(PATIENCE, || {
            let trace = self.trace();
            let says = |state: &str| trace.contains(&format!("to [LinphoneRegistration{state}]"));
            if says("Ok") { Some(true) } else { says("Failed").then_some(false) }
        });
        outcome.expect("the phone says whether it is registered")
    }

    /// Quits the phone gracefully, so that it unregisters.
    ///
    /// # Panics
    /// If it does not end.
    pub fn quit(&mut self) {
        let stdin = self.process.stdin().expect("the phone was started with an input");
        stdin.write_all(b"quit\n").expect("the phone takes commands");
        assert!(self.process.wait(PATIENCE).is_some(), "the phone does not quit");
    }

    /// Returns the log so far, with every message sent and received.
    #[must_use]
    pub fn trace(&self) -> String {
        read(&self.trace)
    }
}

impl Drop for Linphone {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the phone ---\n{}", tail(&self.trace(), 150));
        }
    }
}
