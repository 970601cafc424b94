//! Detection of packet captures on this machine.

use std::fs;
use std::io;
use std::path::Path;

/// Counts the sockets that see every packet of this process's network namespace, or of one of its devices.
///
/// tcpdump, sngrep and Homer agents open such sockets, and so do some DHCP clients while they run. Returns 0 if the
/// kernel does not support packet sockets.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn count_captures() -> io::Result<usize> {
    match fs::read_to_string("/proc/self/net/packet") {
        Ok(table) => Ok(count(&table)),
        // The table exists only once the kernel has loaded the packet socket module.
        Err(error) if error.kind() == io::ErrorKind::NotFound && Path::new("/proc/self/net").exists() => Ok(0),
        Err(error) => Err(error),
    }
}

/// Counts the rows of the kernel's packet socket table that receive all protocols. Other packet sockets do not see
/// outgoing packets.
fn count(table: &str) -> usize {
    let protocol = |row: &str| row.split_ascii_whitespace().nth(3).and_then(|word| u16::from_str_radix(word, 16).ok());
    let all = u16::try_from(libc::ETH_P_ALL).ok();
    table.lines().skip(1).filter(|row| protocol(row) == all).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capture_sockets_are_counted() {
        let table = "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n\
                     0000000000000000 3      3    0003   2     1 0      0      21234 \n\
                     0000000000000000 3      3    88cc   2     1 0      0      21235 \n\
                     0000000000000000 3      2    0003   0     1 0      1000   21236 \n";
        assert_eq!(count(table), 2);
        assert_eq!(count(""), 0);
    }
}
