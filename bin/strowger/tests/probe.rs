//! `strowger probe` beside an echo program with a known service time.

mod common;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::{CommandResult, Folder, free_address};
use serde_json::Value;

/// Time that the echo program computes for each packet.
const SERVICE: Duration = Duration::from_micros(400);
/// Pause between two packets.
const PAUSE: Duration = Duration::from_millis(2);
const INVITE: &[u8] = b"INVITE sip:bob@example.com SIP/2.0\r\nCSeq: 1 INVITE\r\n\r\n";

/// A program that answers each datagram after [`SERVICE`], and a peer that sends one every [`PAUSE`]. They are threads
/// of this process.
struct Echo {
    address: SocketAddr,
    is_stopped: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Echo {
    fn start() -> Self {
        let address = free_address();
        let is_stopped = Arc::new(AtomicBool::new(false));
        let server = UdpSocket::bind(address).expect("a port");
        server.set_read_timeout(Some(Duration::from_millis(100))).expect("settable");
        let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        peer.connect(address).expect("loopback");
        let stopped = [Arc::clone(&is_stopped), Arc::clone(&is_stopped)];
        let [for_server, for_peer] = stopped;
        let serve = move || {
            let mut buffer = [0; 2048];
            while !for_server.load(Ordering::SeqCst) {
                let Ok((length, from)) = server.recv_from(&mut buffer) else { continue };
                let begun = Instant::now();
                while begun.elapsed() < SERVICE {
                    std::hint::spin_loop();
                }
                server.send_to(&buffer[..length], from).expect("loopback");
            }
        };
        let send = move || {
            while !for_peer.load(Ordering::SeqCst) {
                peer.send(INVITE).expect("loopback");
                std::thread::sleep(PAUSE);
            }
        };
        let threads = vec![std::thread::spawn(serve), std::thread::spawn(send)];
        Self { address, is_stopped, threads }
    }

    fn port(&self) -> String {
        self.address.port().to_string()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Whether a test that cannot run here fails.
fn is_required() -> bool {
    cfg!(feature = "ebpf") && std::env::var("STROWGER_REQUIRE_INTEROP").is_ok_and(|value| value == "1")
}

fn text(report: &Value) -> String {
    report["notes"].to_string()
}

#[test]
fn each_packet_is_timed() {
    let (folder, echo) = (Folder::new(""), Echo::start());
    let port = echo.port();
    let arguments = ["probe", "--port", &port, "--protocol", "udp", "--duration", "2s", "--interval", "500ms"];
    let files = ["--json", "report.json", "--html", "page.html", "--svg", "plots.svg", "--log", "packets.csv"];
    let ran = folder.run(&[&arguments[..], &files].concat());
    if ran.err.contains("--log needs eBPF") && !is_required() {
        eprintln!("skipped: {}", ran.err);
        return;
    }
    let live = ran.err.lines().filter(|line| line.contains("packets/s")).count();
    assert!(live >= 3, "a line for each interval: {ran:?}");
    let table = ran.ok();
    assert!(table.contains("measured by eBPF") && table.contains("INVITE"), "{table}");
    let report = folder.json("report.json");
    assert_eq!(report["method"], "ebpf");
    let invite = &report["messages"][0];
    assert_eq!(invite["message"], "INVITE", "{report}");
    let median = invite["parts"]["t_sip"]["p50_us"].as_f64().expect("measured");
    assert!((400.0..520.0).contains(&median), "{median}");
    assert!(invite["parts"]["k_snd"]["mean_us"].as_f64().is_some_and(|time| time > 0.1), "{report}");
    let page = folder.read("page.html");
    assert!(page.contains("<td>INVITE</td>") && page.contains("K_sockq"), "tables and plots");
    assert!(folder.read("plots.svg").contains("T_sip"), "plots");
    let log = folder.read("packets.csv");
    assert!(log.starts_with("# strowger packet log 1\n# program: "), "{}", log.lines().next().unwrap_or_default());
    let lines = log.lines().filter(|line| !line.starts_with('#')).count() as u64;
    assert_eq!(report["all"]["packets"].as_u64(), Some(lines - 1), "a line for each packet, below the heading");
    let fitted = folder.run(&["plan", "fit", "packets.csv", "--json"]).json();
    let service = fitted["fit"]["service"][0]["mean_s"]["value"].as_f64().expect("fitted");
    assert!(service > 400e-6 && service < 4e-3, "{service}");
    let read = folder.run(&["plan", "fit", "report.json", "--json"]).json();
    assert!(read["fit"]["service"][0]["mean_s"]["value"].as_f64().is_some_and(|mean| mean > 400e-6), "{read}");
}

/// What every report without eBPF has.
fn check_proc(ran: CommandResult, why: &str) {
    assert!(ran.err.starts_with("strowger: eBPF is not used (") && ran.err.contains(why), "{ran:?}");
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    let report = ran.json();
    assert_eq!(report["method"], "proc");
    assert!(report["packets_per_s"].as_f64().is_some_and(|rate| rate > 50.0), "{report}");
    assert!(report["queue"]["mean"].as_f64().is_some(), "{report}");
    assert!(report["cpu"].as_f64().is_some_and(|cpu| cpu > 0.01), "{report}");
    assert!(text(&report).contains("Little's law") || report["queue"]["max"] == 0, "{report}");
    assert!(text(&report).contains("measured without eBPF"), "{report}");
}

#[test]
fn without_ebpf_the_queue_and_processor_time_are_measured() {
    let (folder, echo) = (Folder::new(""), Echo::start());
    let port = echo.port();
    let arguments = ["probe", "--port", &port, "--duration", "1s", "--no-ebpf", "--quiet", "--json", "-"];
    check_proc(folder.run(&arguments), "--no-ebpf");
    let refused = folder.run(&["plan", "fit", "-"]);
    assert_ne!(refused.code, Some(0));
}

/// The user may not load programs into the kernel: the capabilities are missing, which root may drop.
#[test]
fn a_user_without_permission_is_told_so() {
    let (folder, echo) = (Folder::new(""), Echo::start());
    let port = echo.port();
    let output = Command::new("setpriv")
        .args(["--bounding-set", "-sys_admin,-bpf,-perfmon", env!("CARGO_BIN_EXE_strowger")])
        .args(["probe", "--port", &port, "--duration", "1s", "--quiet", "--json", "-"])
        .current_dir(folder.path())
        .output();
    let Ok(output) = output else {
        assert!(!is_required(), "setpriv is not installed (util-linux)");
        eprintln!("skipped: setpriv is not installed");
        return;
    };
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let ran = CommandResult { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) };
    if ran.err.starts_with("setpriv: ") && !is_required() {
        eprintln!("skipped: {}", ran.err);
        return;
    }
    check_proc(ran, if cfg!(feature = "ebpf") { "run as root" } else { "built without" });
}

#[test]
fn wrong_arguments_are_refused_with_a_remedy() {
    let folder = Folder::new("");
    let nobody = free_address().port().to_string();
    let refused = |arguments: &[&str], code: i32| folder.run(&[&["probe"], arguments].concat()).refused(code);
    assert!(refused(&["--pid", "999999999"], 1).contains("does not exist"));
    assert!(refused(&["--port", &nobody], 1).contains("start the program first"));
    let own = std::process::id().to_string();
    let unwritable = ["--pid", &own, "--html", "missing/page.html"];
    assert!(refused(&unwritable, 2).contains("missing/page.html cannot be written"));
    for arguments in [&["probe"][..], &["probe", "--pid", "1", "--port", "5060"], &["probe", "--port", "0"]] {
        assert_eq!(folder.run(arguments).code, Some(2), "{arguments:?}");
    }
}

#[test]
fn a_port_without_traffic_is_an_answer_of_no() {
    let folder = Folder::new("");
    let address = free_address();
    let _silent = UdpSocket::bind(address).expect("a port");
    // Counters of /proc are those of the whole machine, on which other tests run.
    let ran = folder.run(&["probe", "--port", &address.port().to_string(), "--duration", "200ms", "--quiet"]);
    if ran.err.contains("eBPF is not used") {
        eprintln!("skipped: {}", ran.err);
        return;
    }
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("no packet arrived in 0.2 s; measure while there is traffic"), "{ran:?}");
}
