//! The compared servers.

use std::fmt;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Certificate, SERVER_CORE};
use crate::register::process::{family, signal};

/// Maximum start time.
const PATIENCE: Duration = Duration::from_secs(20);
/// Maximum time to end.
const FAREWELL: Duration = Duration::from_secs(5);

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// Ours, with one worker.
    Strowger,
    /// Debian's Kamailio with OpenSSL: `bench/kamailio/tls.cfg`.
    Kamailio,
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strowger => "Strowger",
            Self::Kamailio => "Kamailio",
        })
    }
}

/// A running server. Dropping it ends all its processes.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// Address for UDP.
    pub udp: SocketAddr,
    /// Address for TLS.
    pub tls: SocketAddr,
}

impl Contender {
    /// Both, ours first.
    pub const ALL: [Self; 2] = [Self::Strowger, Self::Kamailio];

    /// Starts the server on its core and waits until it answers over UDP.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(self, binary: &Path, folder: &Path, certificate: &Certificate) -> io::Result<Running> {
        let port = if self == Self::Strowger { 5_060 } else { 6_060 };
        let [udp, tls] = [port, port + 1].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let (folder, log) = (folder.join(self.to_string()), format!("{self}.log"));
        fs::create_dir_all(&folder)?;
        let mut command = Command::new("taskset");
        command.args(["-c", SERVER_CORE]).current_dir(&folder).stdin(Stdio::null());
        let Certificate { certificate, key, .. } = certificate;
        match self {
            Self::Strowger => {
                let config = format!(
                    "[server]\nlisten = [\"udp:{udp}\", \"tls:{tls}\"]\ndomains = [\"ex.example.com\"]\nworkers = 1\n[store]\n\
                     url = \"memory:\"\n[auth]\nrequire = []\n[tcp]\nconnections = 19000\nper_source = 19000\n[log]\n\
                     level = \"error\"\n[tls]\ncertificates = [{{ certificate = {certificate:?}, key = {key:?} }}]\n"
                );
                fs::write(folder.join("strowger.toml"), config)?;
                command.arg(binary).args(["serve", "-c", "strowger.toml"]);
            }
            Self::Kamailio => {
                let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("kamailio/tls.cfg");
                command.args(["kamailio", "-DD", "-E", "-x", "fm", "-X", "fm", "-m", "4096", "-M", "64", "-f"]);
                command.arg(file).arg("-Y").arg(&folder);
                command.args(["-l", &format!("udp:{udp}"), "-l", &format!("tls:{tls}")]);
                command.args(["-A", &format!("CERTIFICATE={certificate:?}"), "-A", &format!("KEY={key:?}")]);
                // Its default. Over connections, Strowger keeps no answered transaction (RFC 3261 timers I, J and K).
                command.args(["-A", "WT_TIMER=5000"]);
            }
        }
        let output = fs::File::create(folder.join(log))?;
        let child = command.stdout(output.try_clone()?).stderr(output).spawn()?;
        let mut running = Running { child, udp, tls };
        running.wait()?;
        Ok(running)
    }
}

impl Running {
    /// Returns the ID of its first process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the memory of all its processes in bytes, without that of files, which the generator may share; what the
    /// processes share counts once (`Pss_Anon` and `Pss_Shmem`).
    #[must_use]
    pub fn memory(&self) -> u64 {
        let of = |pid: u32| -> u64 {
            let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
            let own = text
                .lines()
                .filter_map(|line| line.strip_prefix("Pss_Anon:").or_else(|| line.strip_prefix("Pss_Shmem:")));
            own.filter_map(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).sum()
        };
        family(self.pid()).into_iter().map(of).sum::<u64>() * 1024
    }

    fn wait(&mut self) -> io::Result<()> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        let local = socket.local_addr()?;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("the server has ended: {status}")));
            }
            let request = format!(
                "OPTIONS sip:ex.example.com SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch=z9hG4bK-ready\r\nMax-Forwards: 70\r\n\
                 From: <sip:ready@{local}>;tag=r\r\nTo: <sip:ex.example.com>\r\nCall-ID: ready@{local}\r\nCSeq: 1 OPTIONS\r\n\
                 Content-Length: 0\r\n\r\n"
            );
            let _ = socket.send_to(request.as_bytes(), self.udp);
            if socket.recv(&mut [0; 2048]).is_ok() {
                return Ok(());
            }
            // A closed port answers at once.
            thread::sleep(Duration::from_millis(50));
        }
        Err(io::Error::other("the server does not answer"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let all = family(self.pid());
        // Each fails only if the process has ended already.
        let end = |with: Signal| all.iter().for_each(|pid| signal(*pid, with));
        end(Signal::TERM);
        let deadline = Instant::now() + FAREWELL;
        while self.child.try_wait().is_ok_and(|status| status.is_none()) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
        end(Signal::KILL);
        let _ = self.child.wait();
    }
}
