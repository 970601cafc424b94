//! Parsing of the tables of sockets and counters in /proc/net.

use crate::target::Protocol;

/// A socket in /proc/net/udp, udp6, tcp or tcp6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketRow {
    pub(super) port: u16,
    /// State; 7 for datagrams, 10 for a listening stream socket.
    pub(super) state: u8,
    /// Memory of packets in the receive queue, bytes; of a stream, bytes that were not read yet.
    pub(super) queue_bytes: u64,
    /// Inode number; zero if no process has the socket.
    pub(super) inode: u64,
    /// Number of dropped datagrams; zero for streams.
    pub(super) drops: u64,
}

/// Parses a table of sockets. Lines that are no sockets are skipped.
pub(super) fn sockets(table: &str, protocol: Protocol) -> impl Iterator<Item = SocketRow> + '_ {
    table.lines().skip(1).filter_map(move |line| {
        let mut fields = line.split_ascii_whitespace();
        let (_, port) = fields.nth(1)?.rsplit_once(':')?;
        let state = fields.nth(1)?;
        let (_, queue) = fields.next()?.split_once(':')?;
        let inode = fields.nth(4)?;
        let drops = match protocol {
            Protocol::Udp => fields.nth(2)?.parse().ok()?,
            Protocol::Tcp => 0,
        };
        Some(SocketRow {
            port: u16::from_str_radix(port, 16).ok()?,
            state: u8::from_str_radix(state, 16).ok()?,
            queue_bytes: u64::from_str_radix(queue, 16).ok()?,
            inode: inode.parse().ok()?,
            drops,
        })
    })
}

/// Returns a counter from /proc/net/snmp or /proc/net/netstat, where a line of names precedes a line of values.
pub(super) fn counter(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(group)?.strip_prefix(':'));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut pairs = names.split_ascii_whitespace().zip(values.split_ascii_whitespace());
    pairs.find(|(own, _)| *own == name)?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_read() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
            100: 0100007F:13C4 00000000:0000 07 00000000:00000A00 00:00000000 00000000 0 0 555 2 0000 17\n\
            cut\n";
        let read: Vec<SocketRow> = sockets(table, Protocol::Udp).collect();
        assert_eq!(read, [SocketRow { port: 5060, state: 7, queue_bytes: 2_560, inode: 555, drops: 17 }]);
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 00000000:13C4 00000000:0000 0A 00000000:00000002 00:00000000 00000000 0 0 77 1 0000 100 0 0 10 0\n";
        let read: Vec<SocketRow> = sockets(table, Protocol::Tcp).collect();
        assert_eq!(read, [SocketRow { port: 5060, state: 10, queue_bytes: 2, inode: 77, drops: 0 }]);
    }

    #[test]
    fn counters_are_found_by_name() {
        let text = "Ip: A B\nIp: 1 2\nUdp: InDatagrams RcvbufErrors\nUdp: 10 42\nUdpLite: InDatagrams\nUdpLite: 0\n";
        assert_eq!(counter(text, "Udp", "RcvbufErrors"), Some(42));
        assert_eq!(counter(text, "Udp", "Absent"), None);
        assert_eq!(counter("", "Udp", "RcvbufErrors"), None);
    }
}
