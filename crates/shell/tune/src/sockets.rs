//! Receive buffers of UDP sockets, which the kernel tells over netlink (sock_diag(7)) as `ss -u -m` shows them.

use std::io::{self, Read as _, Write as _};

use socket2::{Domain, Protocol, Socket, Type};

/// Netlink family of socket diagnostics.
const NETLINK_SOCK_DIAG: i32 = 4;
const AF_NETLINK: i32 = 16;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_UDP: u8 = 17;
/// Attribute with the socket's memory, and the bit that asks for it.
const INET_DIAG_SKMEMINFO: u16 = 7;
const ASK_SKMEMINFO: u8 = 1 << (INET_DIAG_SKMEMINFO - 1);
/// Bytes of a message's header, of the request and of the fixed part of a response.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = 56;
const RESPONSE_BYTES: usize = 72;
/// Place of the port and of the inode in the fixed part.
const PORT_AT: usize = 4;
const INODE_AT: usize = 68;
/// Numbers in the memory attribute: the receive buffer, and the packets dropped.
const RECEIVE_BUFFER: usize = 1;
const DROPS: usize = 8;

/// Receive buffer of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketBuffer {
    /// Number of the socket, as in `/proc/PID/fd`.
    pub inode: u64,
    /// Local port.
    pub port: u16,
    /// Memory that received packets may occupy, in bytes: twice the value that the program asked for.
    pub bytes: u64,
    /// Packets dropped since the socket was opened.
    pub drops: u64,
}

/// Asks the kernel for the buffers of all UDP sockets of this network namespace.
pub(crate) fn udp_buffers() -> io::Result<Vec<SocketBuffer>> {
    let mut all = Vec::new();
    for family in [AF_INET, AF_INET6] {
        let kind = Type::DGRAM;
        let mut socket = Socket::new(Domain::from(AF_NETLINK), kind, Some(Protocol::from(NETLINK_SOCK_DIAG)))?;
        socket.write_all(&request(family))?;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let length = socket.read(&mut buffer)?;
            if !read_messages(buffer.get(..length).unwrap_or_default(), &mut all)? {
                break;
            }
        }
    }
    Ok(all)
}

fn request(family: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + REQUEST_BYTES);
    bytes.extend(u32::try_from(HEADER_BYTES + REQUEST_BYTES).unwrap_or(0).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family, IPPROTO_UDP, ASK_SKMEMINFO, 0]);
    // All states, all addresses.
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.resize(HEADER_BYTES + REQUEST_BYTES, 0);
    bytes
}

/// Reads the messages of one datagram; returns whether more follow.
fn read_messages(mut bytes: &[u8], all: &mut Vec<SocketBuffer>) -> io::Result<bool> {
    while let (Some(length), Some(kind)) = (number(bytes, 0), short(bytes, 4)) {
        let length = usize::try_from(length).unwrap_or(0);
        let Some(message) = bytes.get(HEADER_BYTES..length) else { return Err(io::ErrorKind::InvalidData.into()) };
        match kind {
            NLMSG_DONE => return Ok(false),
            NLMSG_ERROR => {
                let code = number(message, 0).map_or(0, u32::cast_signed);
                return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
            }
            _ => all.extend(read_socket(message)),
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(true)
}

fn read_socket(message: &[u8]) -> Option<SocketBuffer> {
    let port = message.get(PORT_AT..PORT_AT + 2)?.try_into().ok().map(u16::from_be_bytes)?;
    let inode = number(message, INODE_AT)?.into();
    let mut attributes = message.get(RESPONSE_BYTES..)?;
    while let (Some(length), Some(kind)) = (short(attributes, 0), short(attributes, 2)) {
        let length = usize::from(length);
        let value = attributes.get(4..length)?;
        if kind == INET_DIAG_SKMEMINFO {
            let bytes = number(value, 4 * RECEIVE_BUFFER)?.into();
            return Some(SocketBuffer { inode, port, bytes, drops: number(value, 4 * DROPS).unwrap_or(0).into() });
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
    None
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn the_kernel_tells_the_buffer_of_a_socket() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket2::SockRef::from(&socket).set_recv_buffer_size(50_000).expect("below every limit");
        let port = socket.local_addr().expect("bound").port();
        let all = match udp_buffers() {
            Ok(all) => all,
            Err(error) => {
                eprintln!("SKIPPED: this kernel has no socket diagnostics: {error}");
                return;
            }
        };
        let own: Vec<&SocketBuffer> = all.iter().filter(|one| one.port == port).collect();
        assert_eq!(own.len(), 1, "{all:?}");
        assert_eq!((own[0].bytes, own[0].drops), (100_000, 0), "the kernel doubles it");
    }

    #[test]
    fn damaged_messages_are_errors() {
        let mut all = Vec::new();
        assert!(read_messages(&[255; 16], &mut all).is_err());
        assert!(read_messages(&[0; 40], &mut all).is_err());
        assert!(read_messages(&[], &mut all).expect("nothing") && all.is_empty());
    }
}
