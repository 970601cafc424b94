//! Who looks at packets on this machine.

use std::fs;
use std::io;
use std::path::Path;

/// The sockets that see every packet of this process's network namespace, or of one of its devices: what tcpdump, sngrep and agents of
/// Homer open, and some DHCP clients for as long as they run. None where the kernel has no such sockets.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn count_captures() -> io::Result<usize> {
    match fs::read_to_string("/proc/self/net/packet") {
        Ok(table) => Ok(count(&table)),
        // The kernel lists them once it has loaded what makes them.
        Err(error) if error.kind() == io::ErrorKind::NotFound && Path::new("/proc/self/net").exists() => Ok(0),
        Err(error) => Err(error),
    }
}

/// Of the kernel's table of packet sockets, the rows of those that see all protocols: others see no packet that leaves.
fn count(table: &str) -> usize {
    let protocol = |row: &str| row.split_ascii_whitespace().nth(3).and_then(|word| u16::from_str_radix(word, 16).ok());
    let all = u16::try_from(libc::ETH_P_ALL).ok();
    table.lines().skip(1).filter(|row| protocol(row) == all).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_see_all_are_counted() {
        let table = "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n\
                     0000000000000000 3      3    0003   2     1 0      0      21234 \n\
                     0000000000000000 3      3    88cc   2     1 0      0      21235 \n\
                     0000000000000000 3      2    0003   0     1 0      1000   21236 \n";
        assert_eq!(count(table), 2);
        assert_eq!(count(""), 0);
    }
}
