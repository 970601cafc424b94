//! The SIP server `kamailio`, as a carrier that knows one customer and one phone.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::process::{Process, read};
use crate::{PATIENCE, Program, poll};

/// A running Kamailio that challenges each INVITE with 407 and passes it on, when the credentials are right, to one phone.
#[derive(Debug)]
pub struct Kamailio {
    process: Process,
    _folder: TempDir,
}

impl Kamailio {
    /// Starts one at `host:port`, for the customer `account` with `password` in the realm `carrier.example`; what passes goes
    /// to the UDP port `phone` of the same host.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(host: Ipv4Addr, port: u16, password: &str, phone: u16) -> Kamailio {
        let folder = tempfile::Builder::new().prefix("kamailio-").tempdir().expect("a temporary folder");
        let file = folder.path().join("kamailio.cfg");
        fs::write(&file, config(host, port, password, phone)).expect("the configuration can be written");
        let arguments = ["-f", "kamailio.cfg", "-DD", "-E", "-m", "16", "-M", "4", "-Y", "."].map(String::from);
        let log = folder.path().join("kamailio.log");
        let mut process = Process::start(&Program::Kamailio.path(), &arguments, log);
        let address = format!(" {:08X}:{port:04X} ", u32::from_ne_bytes(host.octets()));
        let opened = poll(PATIENCE, || {
            assert!(process.ended().is_none(), "kamailio ended:\n{}", process.errors());
            read(Path::new("/proc/net/udp")).contains(&address).then_some(())
        });
        assert!(opened.is_some(), "kamailio opens no socket:\n{}", process.errors());
        Kamailio { process, _folder: folder }
    }

    /// What it has said so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.output() + &self.process.errors()
    }
}

impl Drop for Kamailio {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- kamailio ---\n{}", self.log());
        }
        // Told to end, it ends its children too; killed, it would leave them behind.
        let told = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status();
        if told.is_ok_and(|status| status.success()) {
            let _ = self.process.wait(Duration::from_secs(5));
        }
    }
}

fn config(host: Ipv4Addr, port: u16, password: &str, phone: u16) -> String {
    format!(
        r#"#!KAMAILIO
debug=2
log_stderror=yes
children=1
disable_tcp=yes
auto_aliases=no
listen=udp:{host}:{port}
server_signature=no

loadmodule "pv.so"
loadmodule "sl.so"
loadmodule "tm.so"
loadmodule "rr.so"
loadmodule "maxfwd.so"
loadmodule "textops.so"
loadmodule "siputils.so"
loadmodule "auth.so"
loadmodule "xlog.so"

request_route {{
    if (!mf_process_maxfwd_header("10")) {{
        sl_send_reply("483", "Too Many Hops");
        exit;
    }}
    if (has_totag()) {{
        if (loose_route()) {{
            t_relay();
        }} else if (is_method("ACK") && t_check_trans()) {{
            t_relay();
        }}
        exit;
    }}
    if (is_method("CANCEL")) {{
        if (t_check_trans()) t_relay();
        exit;
    }}
    t_check_trans();
    if (is_method("INVITE")) {{
        if (!pv_proxy_authenticate("carrier.example", "{password}", "0")) {{
            proxy_challenge("carrier.example", "1");
            exit;
        }}
        consume_credentials();
        record_route();
        $du = "sip:{host}:{phone}";
        t_relay();
        exit;
    }}
    sl_send_reply("405", "Method Not Allowed");
}}
"#
    )
}
