//! A network of two virtual devices, whose first one lets packets leave at a limited rate: the second of two packets
//! waits in its queue.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

/// Device on the echo program's side, its address, and the device and address on the generator's side.
const FAR: (&str, Ipv4Addr) = ("strowger-far", Ipv4Addr::new(10, 231, 7, 2));
const NEAR: (&str, Ipv4Addr) = ("strowger-near", Ipv4Addr::new(10, 231, 7, 1));
/// Headers before the payload of a packet in the queue: Ethernet, IP and UDP, bytes.
const HEADERS: usize = 14 + 20 + 8;
/// Command prefix that runs a program in a network of its own.
pub const APART: [&str; 2] = ["unshare", "--net"];

/// The devices. Dropping it removes them.
#[derive(Debug)]
pub struct Link;

impl Link {
    /// Connects this network to that of a process, which then sends packets of `length` bytes `micros` apart.
    ///
    /// # Errors
    /// If `ip` or `tc` fails: they need root.
    pub fn to(pid: u32, length: usize, micros: u64) -> Result<Self, String> {
        let far_pid = pid.to_string();
        let address = |of: Ipv4Addr| format!("{of}/24");
        let frame = length + HEADERS;
        let (mtu, frame_bytes) = ((frame - 14).to_string(), frame.to_string());
        let rate = (1_000_000 * 8 * frame as u64 / micros.max(1)).to_string();
        run(&["ip", "link", "add", NEAR.0, "type", "veth", "peer", "name", FAR.0, "netns", &far_pid])?;
        let link = Self;
        let near = address(NEAR.1);
        run(&["ip", "addr", "add", &near, "dev", NEAR.0])?;
        run(&["ip", "link", "set", NEAR.0, "mtu", &mtu, "up"])?;
        let far = |words: &[&str]| run(&[&["nsenter", "-t", &far_pid, "-n"], words].concat());
        far(&["ip", "addr", "add", &address(FAR.1), "dev", FAR.0])?;
        far(&["ip", "link", "set", FAR.0, "mtu", &mtu, "up"])?;
        far(&[
            "tc",
            "qdisc",
            "add",
            "dev",
            FAR.0,
            "root",
            "tbf",
            "rate",
            &rate,
            "burst",
            &frame_bytes,
            "limit",
            "100000",
        ])?;
        Ok(link)
    }

    /// Returns the echo program's address.
    #[must_use]
    pub fn far(port: u16) -> SocketAddr {
        SocketAddr::new(FAR.1.into(), port)
    }

    /// Returns the generator's address.
    #[must_use]
    pub fn near() -> SocketAddr {
        SocketAddr::new(NEAR.1.into(), 0)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Fails if the other network has ended, and the devices with it.
        let _ = Command::new("ip").args(["link", "del", NEAR.0]).output();
    }
}

fn run(words: &[&str]) -> Result<(), String> {
    let (program, arguments) = words.split_first().ok_or("no command")?;
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error} (sudo apt-get install iproute2)"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}
