//! Parsing of /proc files (proc(5)).

use std::net::{IpAddr, SocketAddr};

/// Contents of /proc/PID/stat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcStat {
    pub is_dead: bool,
    pub major_faults: u64,
    pub user_ticks: u64,
    pub system_ticks: u64,
    pub threads: u64,
    pub resident_pages: u64,
}

impl ProcStat {
    pub(super) fn parse(text: &str) -> Option<Self> {
        // The name may contain spaces and parentheses; the later fields do not.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            is_dead: matches!(*fields.first()?, "Z" | "X"),
            major_faults: number(9)?,
            user_ticks: number(11)?,
            system_ticks: number(12)?,
            threads: number(17)?,
            resident_pages: number(21)?,
        })
    }
}

/// Returns the first number after `name` at the start of a line; zero if there is none.
pub(super) fn field(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Returns the sockets that listen at an address, from /proc/net/udp, tcp, udp6 or tcp6.
pub(super) fn listeners(table: &str, address: SocketAddr, is_stream: bool) -> Vec<u64> {
    let wanted = [hexadecimal(address.ip()), "0".repeat(8), "0".repeat(32)];
    let inodes = table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (ip, port) = fields.get(1)?.rsplit_once(':')?;
        let is_it = u16::from_str_radix(port, 16) == Ok(address.port()) && wanted.iter().any(|wanted| wanted == ip);
        // 0A: a listening stream socket.
        let listens = !is_stream || fields.get(3) == Some(&"0A");
        fields.get(9)?.parse::<u64>().ok().filter(|inode| is_it && listens && *inode > 0)
    });
    inodes.collect()
}

/// Returns an address in the kernel's form: four-byte words in host byte order.
fn hexadecimal(ip: IpAddr) -> String {
    let word = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
    match ip {
        IpAddr::V4(ip) => word(ip.octets()),
        IpAddr::V6(ip) => {
            let words = ip.octets();
            words.chunks(4).map(|bytes| word(bytes.try_into().unwrap_or_default())).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_process_name_is_parsed() {
        let text = "4711 (odd) S (name) S 12 4711 4711 0 -1 4194560 2573 0 3 0 150 50 0 0 20 0 5 0 97 24000000 1234 184467 1 1 0\n";
        let stat = ProcStat::parse(text).expect("sound");
        let expected = ProcStat {
            is_dead: false,
            major_faults: 3,
            user_ticks: 150,
            system_ticks: 50,
            threads: 5,
            resident_pages: 1234,
        };
        assert_eq!(stat, expected);
        assert_eq!(ProcStat::parse("4711 (cut"), None);
        assert!(ProcStat::parse(&text.replace("name) S", "name) Z")).is_some_and(|stat| stat.is_dead));
    }

    #[test]
    fn counters_are_found_by_name() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t120\nnonvoluntary_ctxt_switches:\t7\n";
        assert_eq!(field(status, "voluntary_ctxt_switches:"), 120);
        assert_eq!(field(status, "nonvoluntary_ctxt_switches:"), 7);
        assert_eq!(field("cpu 1\nintr 99887 1 2 3\n", "intr "), 99_887);
        assert_eq!(field("", "intr "), 0);
    }

    #[test]
    fn listeners_are_found_by_their_address() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
            100: 0100007F:13C4 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 555 2 0000 17\n\
            101: 00000000:13C4 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 556 2 0000 4\n\
            102: 0200007F:13C4 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 557 2 0000 1000\n";
        let address = "127.0.0.1:5060".parse().expect("sound");
        assert_eq!(listeners(table, address, false), [555, 556]);
        assert_eq!(listeners(table, address, true), [0_u64; 0]);
        let six: IpAddr = "::1".parse().expect("sound");
        assert_eq!(hexadecimal(six), "00000000000000000000000001000000");
    }
}
