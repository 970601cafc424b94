//! Programs in other namespaces than the probe, and a probe in a container.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use strowger_timing::Target;

use crate::support::{PATIENCE, skip, start, stop};

/// Packets that the program in the container gets.
const PACKETS: usize = 50;

/// A program that answers packets, which its child sends.
const ECHO: &str = r#"
import os, socket, subprocess, sys
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
sys.stdin.readline()
if os.fork() == 0:
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect(server.getsockname())
    server.close()
    client.settimeout(5)
    for _ in range(51):
        client.send(b"x")
        client.recv(10)
    os._exit(0)
for _ in range(51):
    packet, peer = server.recvfrom(10)
    server.sendto(packet, peer)
print("done", flush=True)
sys.stdin.readline()
"#;

/// A container with the program; it ends with its standard input.
struct Container {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    port: u16,
}

impl Container {
    fn start() -> Option<Self> {
        let mut child = Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child", "--net", "python3", "-c", ECHO])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut output = BufReader::new(child.stdout.take()?);
        let mut line = String::new();
        output.read_line(&mut line).ok()?;
        let port = line.trim().parse().ok();
        if port.is_none() {
            let _ = child.wait();
        }
        Some(Self { child, output, port: port? })
    }

    /// Lets the program answer its packets.
    fn run(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
    }

    /// The number that the program has in the namespace of the test.
    fn program(&self) -> u32 {
        let unshare = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).unwrap();
        children.trim().parse().unwrap()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_program_in_a_container_is_measured_from_the_host() {
    for which in ["the program", "the process that started the container", "the port"] {
        let Some(mut container) = Container::start() else {
            skip("no container (needs root, unshare, ip and python3)");
            return;
        };
        let target = match which {
            "the port" => Target::Port(container.port),
            "the program" => Target::Process(container.program()),
            _ => Target::Process(container.child.id()),
        };
        let Some(probe) = start(target) else { return };
        container.run();
        assert!(probe.ports().contains(&container.port), "{which}");
        let records = stop(probe);
        assert!(records.len() >= PACKETS, "{which}: {} records", records.len());
    }
}

#[test]
fn a_probe_in_a_container_measures_the_programs_in_it() {
    if start(Target::Process(std::process::id())).is_none() {
        return;
    }
    let test = "programs::processes_that_share_a_socket_are_all_measured";
    let ran = Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .output();
    let Ok(ran) = ran else {
        skip("unshare is not installed");
        return;
    };
    let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn the_probe_tells_what_it_costs() {
    let Some(mut probe) = start(Target::Process(std::process::id())) else { return };
    let begun = Instant::now();
    while probe.cost().is_none() {
        assert!(begun.elapsed() < PATIENCE, "the kernel does not measure it");
        probe.poll(Duration::from_millis(10), &mut Vec::new());
    }
    assert!(probe.cost().is_some_and(|processors| processors > 0.0 && processors < 2.0), "{:?}", probe.cost());
}
