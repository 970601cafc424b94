//! Kernel memory of connections.

use std::fs;

/// A reading for the whole machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kernel {
    /// Existing connections, both ends counted (`sockstat`, of this network namespace).
    pub sockets: u64,
    /// Memory of all slabs in bytes (`meminfo`).
    pub slab: u64,
    /// Slab memory of TCP sockets alone in bytes (`slabinfo`).
    pub tcp_slab: u64,
    /// Memory of TCP buffers in bytes (`sockstat`).
    pub buffers: u64,
}

impl Kernel {
    /// Takes a reading; values that cannot be read are 0.
    #[must_use]
    pub fn read() -> Self {
        let sockstat = fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
        let tcp = sockstat.lines().find(|line| line.starts_with("TCP:")).unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let slabinfo = fs::read_to_string("/proc/slabinfo").unwrap_or_default();
        Self {
            sockets: after(tcp, "inuse"),
            slab: 1024 * meminfo.lines().map(|line| after(line, "Slab:")).max().unwrap_or(0),
            tcp_slab: slabinfo.lines().map(slab_bytes).sum(),
            buffers: 4096 * after(tcp, "mem"),
        }
    }

    /// Returns the increase since `before` per connection in bytes, both ends together: of all slabs, and of those of
    /// TCP sockets.
    #[must_use]
    pub fn each_since(&self, before: &Self, connections: usize) -> (u64, u64) {
        let each = |now: u64, then: u64| now.saturating_sub(then) / connections.max(1) as u64;
        (each(self.slab, before.slab), each(self.tcp_slab, before.tcp_slab))
    }
}

/// Returns the number after `name` in a line of words.
fn after(line: &str, name: &str) -> u64 {
    let mut words = line.split_whitespace().skip_while(|word| *word != name);
    words.nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Returns the bytes in a line of `slabinfo` if it is for TCP sockets: number of objects times their size.
fn slab_bytes(line: &str) -> u64 {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["TCP" | "TCPv6" | "request_sock_TCP" | "tw_sock_TCP", _, objects, size, ..] => {
            objects.parse::<u64>().unwrap_or(0) * size.parse::<u64>().unwrap_or(0)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_lines_are_parsed() {
        assert_eq!(after("TCP: inuse 30 orphan 0 tw 2 alloc 31 mem 7", "mem"), 7);
        assert_eq!(slab_bytes("TCP                  120    156   2432   13    8 : tunables"), 156 * 2432);
        assert_eq!(slab_bytes("kmalloc-2k           120    156   2432   13    8 : tunables"), 0);
    }
}
