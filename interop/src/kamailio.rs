//! The SIP server `kamailio`, playing a carrier that knows one customer and one phone.

use std::fs;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::authority::{Authority, IssuedCertificate};
use crate::process::{Process, read};
use crate::{PATIENCE, Program, poll};

/// A running Kamailio that challenges each INVITE with 407 and, if the credentials are right, forwards it to one
/// phone.
#[derive(Debug)]
pub struct Kamailio {
    address: SocketAddr,
    process: Process,
    folder: TempDir,
}

impl Kamailio {
    /// Starts Kamailio at `host:port` for the customer `account` with `password` in the realm `carrier.example`.
    /// Accepted calls go to the UDP port `phone` of the same host.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(host: Ipv4Addr, port: u16, password: &str, phone: u16) -> Kamailio {
        Kamailio::run(host, port, &config(host, port, password, phone))
    }

    /// Starts Kamailio at `host:port` with this dispatcher list. Calls go to the destinations of set 1 by round
    /// robin.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn dispatching(host: Ipv4Addr, port: u16, list: &Path) -> Kamailio {
        Kamailio::run(host, port, &dispatching(host, port, list))
    }

    /// Starts Kamailio at `host:port` over UDP and at `secure` over TLS, where it asks for a certificate and shows its
    /// own. Calls over TLS go to the UDP port `phone` of the same host, and calls over UDP to `server` over TLS.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn secure(
        (host, port): (Ipv4Addr, u16),
        secure: u16,
        (own, authority): (&IssuedCertificate, &Authority),
        (phone, server): (u16, SocketAddr),
    ) -> Kamailio {
        let IssuedCertificate { certificate, key } = own;
        let ca = authority.ca();
        let settings = |role| {
            format!(
                "[{role}:default]\nmethod = TLSv1.2+\nverify_certificate = yes\nrequire_certificate = yes\n\
                 certificate = {}\nprivate_key = {}\nca_list = {}\n",
                certificate.display(),
                key.display(),
                ca.display()
            )
        };
        // A file of its own beside the certificate.
        let list = certificate.with_file_name("kamailio-tls.cfg");
        fs::write(&list, settings("server") + &settings("client")).expect("the settings can be written");
        let kamailio = Kamailio::run(host, port, &secured((host, port), secure, &list, (phone, server)));
        let is_open = || TcpStream::connect((host, secure)).is_ok().then_some(());
        assert!(poll(PATIENCE, is_open).is_some(), "kamailio opens no port for TLS:\n{}", kamailio.log());
        kamailio
    }

    /// Returns whether Kamailio's module for TLS is installed.
    ///
    /// # Panics
    /// If it is missing although Kamailio is installed and `STROWGER_REQUIRE_INTEROP=1`.
    #[must_use]
    pub fn speaks_tls() -> bool {
        if !Program::Kamailio.available() {
            return false;
        }
        // Debian's folder for libraries is named after the processor.
        let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
        let mut modules = folders.chain(["/usr/lib64".into()]).map(|folder| folder.join("kamailio/modules/tls.so"));
        let has_module = modules.any(|module| module.is_file());
        assert!(has_module || !crate::program::is_required(), "kamailio-tls-modules is not installed");
        if !has_module {
            let _ = writeln!(io::stderr(), "skipped: kamailio-tls-modules is not installed");
        }
        has_module
    }

    /// Returns whether Kamailio's module and table definitions for this database (`mysql`, `postgres` or `sqlite`)
    /// are installed.
    ///
    /// # Panics
    /// If they are missing although Kamailio is installed and `STROWGER_REQUIRE_INTEROP=1`.
    #[must_use]
    pub fn speaks(database: &str) -> bool {
        if !Program::Kamailio.available() {
            return false;
        }
        let has_tables = schema_folder(database).is_dir();
        let package = format!("kamailio-{database}-modules");
        assert!(has_tables || !crate::program::is_required(), "{package} is not installed");
        if !has_tables {
            let _ = writeln!(io::stderr(), "skipped: {package} is not installed");
        }
        has_tables
    }

    /// Returns the definitions of the tables `version`, `subscriber`, `location` and `dispatcher` for `mysql`,
    /// `postgres` or `sqlite`.
    ///
    /// # Panics
    /// If Kamailio does not [support](Self::speaks) the database.
    #[must_use]
    pub fn schema(database: &str) -> String {
        let parts = ["standard", "auth_db", "usrloc", "dispatcher"];
        let read = |part| fs::read_to_string(schema_folder(database).join(format!("{part}-create.sql")));
        parts.map(|part| read(part).expect("a definition that comes with kamailio")).concat()
    }

    /// Starts Kamailio at `host:port` as a registrar that asks for no password and stores bindings in the database at
    /// `url`, in Kamailio's notation.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn registering(host: Ipv4Addr, port: u16, database: &str, url: &str) -> Kamailio {
        Kamailio::run(host, port, &registering(host, port, database, url))
    }

    fn run(host: Ipv4Addr, port: u16, config: &str) -> Kamailio {
        let folder = tempfile::Builder::new().prefix("kamailio-").tempdir().expect("a temporary folder");
        let file = folder.path().join("kamailio.cfg");
        // Kamailio changes its working directory before it opens its sockets, so paths must be absolute.
        let config = config.replace("@folder@", &folder.path().display().to_string());
        fs::write(&file, config).expect("the configuration can be written");
        let arguments = ["-f", "kamailio.cfg", "-DD", "-E", "-m", "32", "-M", "4", "-Y", "."].map(String::from);
        let log = folder.path().join("kamailio.log");
        let mut process = Process::start(&Program::Kamailio.path(), &arguments, log);
        let address = format!(" {:08X}:{port:04X} ", u32::from_ne_bytes(host.octets()));
        let opened = poll(PATIENCE, || {
            assert!(process.ended().is_none(), "kamailio ended:\n{}", process.errors());
            read(Path::new("/proc/net/udp")).contains(&address).then_some(())
        });
        assert!(opened.is_some(), "kamailio opens no socket:\n{}", process.errors());
        Kamailio { address: (host, port).into(), process, folder }
    }

    /// Returns the listening address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of its first process, of which the others are children.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the output of `kamcmd dispatcher.list`: the state of its sets, one fact per line.
    ///
    /// # Panics
    /// If the command fails.
    #[must_use]
    pub fn destinations(&self) -> String {
        let kamcmd = crate::program::search("kamcmd").expect("kamcmd comes with kamailio");
        let socket = format!("unixs:{}", self.folder.path().join("ctl").display());
        let answer = poll(PATIENCE, || {
            let output = Command::new(&kamcmd).args(["-s", &socket, "dispatcher.list"]).output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
        });
        answer.unwrap_or_else(|| panic!("kamailio does not list its dispatcher sets:\n{}", self.log()))
    }

    /// Returns the output so far.
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
        // SIGTERM makes it end its child processes too. SIGKILL would leave them behind.
        let told = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status();
        if told.is_ok_and(|status| status.success()) {
            let _ = self.process.wait(Duration::from_secs(5));
        }
    }
}

/// What all configurations do with requests within a dialog.
const WITHIN_DIALOG: &str = r#"    if (has_totag()) {
        if (loose_route()) {
            t_relay();
        } else if (is_method("ACK") && t_check_trans()) {
            t_relay();
        }
        exit;
    }
"#;

/// What they do with a CANCEL.
const CANCEL: &str = r#"    if (is_method("CANCEL")) {
        if (t_check_trans()) t_relay();
        exit;
    }
"#;

/// Returns the common beginning of all configurations.
fn head(host: Ipv4Addr, port: u16) -> String {
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
"#
    )
}

fn config(host: Ipv4Addr, port: u16, password: &str, phone: u16) -> String {
    let head = head(host, port);
    format!(
        r#"{head}loadmodule "maxfwd.so"
loadmodule "textops.so"
loadmodule "siputils.so"
loadmodule "auth.so"
loadmodule "xlog.so"

request_route {{
    if (!mf_process_maxfwd_header("10")) {{
        sl_send_reply("483", "Too Many Hops");
        exit;
    }}
{WITHIN_DIALOG}{CANCEL}    t_check_trans();
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

fn secured((host, port): (Ipv4Addr, u16), secure: u16, settings: &Path, (phone, server): (u16, SocketAddr)) -> String {
    let head = head(host, port)
        .replace("disable_tcp=yes", &format!("enable_tls=yes\ntcp_children=1\nlisten=tls:{host}:{secure}"));
    format!(
        r#"{head}loadmodule "textops.so"
loadmodule "siputils.so"
loadmodule "tls.so"
modparam("tls", "config", "{settings}")

request_route {{
{WITHIN_DIALOG}{CANCEL}    t_check_trans();
    record_route();
    if ($proto == "tls") {{
        if (!is_peer_verified()) {{
            sl_send_reply("403", "Who Are You");
            exit;
        }}
        $du = "sip:{host}:{phone}";
    }} else {{
        $du = "sip:{server};transport=tls";
    }}
    t_relay();
}}
"#,
        settings = settings.display()
    )
}

fn dispatching(host: Ipv4Addr, port: u16, list: &Path) -> String {
    let head = head(host, port);
    format!(
        r#"{head}loadmodule "textops.so"
loadmodule "siputils.so"
loadmodule "ctl.so"
loadmodule "dispatcher.so"
modparam("ctl", "binrpc", "unixs:@folder@/ctl")
modparam("dispatcher", "list_file", "{list}")

request_route {{
{WITHIN_DIALOG}    t_check_trans();
    record_route();
    if (!ds_select_dst("1", "4")) {{
        sl_send_reply("503", "Nobody");
        exit;
    }}
    t_relay();
}}
"#,
        list = list.display()
    )
}

fn schema_folder(database: &str) -> PathBuf {
    let folder = if database == "sqlite" { "db_sqlite" } else { database };
    Path::new("/usr/share/kamailio").join(folder)
}

fn registering(host: Ipv4Addr, port: u16, database: &str, url: &str) -> String {
    let head = head(host, port);
    format!(
        r#"{head}loadmodule "maxfwd.so"
loadmodule "textops.so"
loadmodule "siputils.so"
loadmodule "db_{database}.so"
loadmodule "nathelper.so"
loadmodule "usrloc.so"
loadmodule "registrar.so"
modparam("usrloc", "db_mode", 1)
modparam("usrloc", "db_url", "{url}")
modparam("registrar|nathelper", "received_avp", "$avp(received)")

request_route {{
    if (is_method("REGISTER")) {{
        fix_nated_register();
        save("location");
        exit;
    }}
{WITHIN_DIALOG}    t_check_trans();
    record_route();
    if (!lookup("location")) {{
        sl_send_reply("404", "Not Found");
        exit;
    }}
    t_relay();
}}
"#
    )
}
