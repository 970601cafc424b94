//! Which socket of an address receives a datagram: a program that the kernel runs for each.
//!
//! It is classic BPF, which any process may give to the kernel for its own sockets. The kernel numbers the sockets of an
//! address in the order in which they were bound; where a program names none that exists, it chooses by a hash of both ends,
//! as it does without a program.

use std::ffi::c_ushort;
use std::net::SocketAddr;

/// Who receives what comes to an address with several sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receivers {
    /// All sockets; each peer always meets the same one.
    Any,
    /// The first so many sockets; each peer always meets the same one.
    ByPeer(usize),
    /// The first so many sockets, each datagram any of them.
    InTurn(usize),
}

/// One instruction: code, jumps and operand, as `sock_filter` has them.
pub(crate) type Instruction = libc::sock_filter;

/// Where a packet's network header begins (`SKF_NET_OFF`), and where the kernel's own answers are (`SKF_AD_OFF`); the offset
/// of a random number among these (`SKF_AD_RANDOM`). All of linux/filter.h.
const NETWORK_HEADER: u32 = (-0x10_0000_i32).cast_unsigned();
const ANSWERS: u32 = (-0x1000_i32).cast_unsigned();
const RANDOM: u32 = 56;

/// Where the source address, or its last four bytes, and the source port stand behind the beginning of the header.
const V4_SOURCE: u32 = 12;
const V4_PORT: u32 = 20;
const V6_SOURCE: u32 = 20;
const V6_PORT: u32 = 40;

/// 2^32 by the golden ratio: neighbouring ports become far apart.
const SPREAD: u32 = 0x9E37_79B9;

/// The program for sockets that are bound to `local`.
pub(crate) fn program(receivers: Receivers, local: SocketAddr) -> Vec<Instruction> {
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).max(1);
    match receivers {
        // No socket has this number.
        Receivers::Any => vec![give(u32::MAX)],
        Receivers::ByPeer(1) | Receivers::InTurn(1) => vec![give(0)],
        Receivers::InTurn(sockets) => vec![
            load_word(ANSWERS.wrapping_add(RANDOM)),
            by_constant(libc::BPF_MOD, count(sockets)),
            instruction(libc::BPF_RET | libc::BPF_A, 0),
        ],
        Receivers::ByPeer(sockets) => {
            let (source, port) = if local.is_ipv4() { (V4_SOURCE, V4_PORT) } else { (V6_SOURCE, V6_PORT) };
            vec![
                load_word(NETWORK_HEADER.wrapping_add(source)),
                instruction(libc::BPF_MISC | libc::BPF_TAX, 0),
                instruction(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, NETWORK_HEADER.wrapping_add(port)),
                instruction(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_X, 0),
                by_constant(libc::BPF_MUL, SPREAD),
                by_constant(libc::BPF_RSH, 16),
                by_constant(libc::BPF_MOD, count(sockets)),
                instruction(libc::BPF_RET | libc::BPF_A, 0),
            ]
        }
    }
}

fn load_word(offset: u32) -> Instruction {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

fn by_constant(operation: u32, constant: u32) -> Instruction {
    instruction(libc::BPF_ALU | operation | libc::BPF_K, constant)
}

fn give(socket: u32) -> Instruction {
    instruction(libc::BPF_RET | libc::BPF_K, socket)
}

#[expect(clippy::cast_possible_truncation, reason = "codes are small numbers")]
fn instruction(code: u32, k: u32) -> Instruction {
    libc::sock_filter { code: code as c_ushort, jt: 0, jf: 0, k }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::panic, reason = "a test may fail loudly")]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket as Phone};

    use super::*;
    use crate::udp::{BufferSizes, UdpSocket};
    use crate::{RecvBatch, batch};

    /// Sockets of one address, in the order in which they were bound.
    fn sockets(local: SocketAddr, count: usize) -> Option<Vec<UdpSocket>> {
        let small = BufferSizes { receive: 256 * 1024, send: 64 * 1024 };
        let first = UdpSocket::bind(local, small).ok()?;
        let others: Vec<_> = (1..count).map(|_| first.sibling().expect("the address is ours")).collect();
        Some(std::iter::once(first).chain(others).collect())
    }

    /// Which socket each of `datagrams` from each of `peers` has come to.
    fn who_receives(sockets: &mut [UdpSocket], peers: usize, datagrams: usize) -> Vec<BTreeSet<usize>> {
        let address = sockets[0].local_addr();
        let peers: Vec<_> = (0..peers).map(|_| Phone::bind((address.ip(), 0)).expect("a free port")).collect();
        let mut found = vec![BTreeSet::new(); peers.len()];
        let mut inbox = RecvBatch::new();
        for (peer, found) in peers.iter().zip(&mut found) {
            for _ in 0..datagrams {
                peer.send_to(b"x", address).expect("loopback takes it");
            }
            // On loopback what was sent is received already.
            let mut count = 0;
            for (index, socket) in sockets.iter_mut().enumerate() {
                socket.recv(&mut inbox).expect("a sound socket");
                assert!(!inbox.is_full() && datagrams < batch::RECV_BATCH);
                count += inbox.len();
                if !inbox.is_empty() {
                    found.insert(index);
                }
            }
            assert_eq!(count, datagrams);
        }
        found
    }

    #[test]
    fn receivers_are_those_that_were_chosen() {
        for local in [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))] {
            let Some(mut sockets) = sockets(local, 4) else {
                eprintln!("skipped: no {local}");
                continue;
            };
            let all = |found: &[BTreeSet<usize>]| found.iter().flatten().copied().collect::<BTreeSet<_>>();
            let [first, ..] = sockets.as_slice() else { panic!("four") };
            first.choose_receivers(Receivers::ByPeer(1)).expect("the kernel takes it");
            assert_eq!(all(&who_receives(&mut sockets, 16, 4)), BTreeSet::from([0]));
            sockets[1].choose_receivers(Receivers::ByPeer(3)).expect("any of the sockets will do");
            let found = who_receives(&mut sockets, 64, 4);
            assert!(found.iter().all(|sockets| sockets.len() == 1), "a peer meets one");
            assert_eq!(all(&found), BTreeSet::from([0, 1, 2]));
            sockets[0].choose_receivers(Receivers::InTurn(2)).expect("the kernel takes it");
            assert_eq!(who_receives(&mut sockets, 1, 60), [BTreeSet::from([0, 1])], "one peer meets both");
            sockets[0].choose_receivers(Receivers::Any).expect("the kernel takes it");
            let found = who_receives(&mut sockets, 64, 4);
            assert!(found.iter().all(|sockets| sockets.len() == 1), "a peer meets one");
            assert_eq!(all(&found), BTreeSet::from([0, 1, 2, 3]));
        }
    }

    #[test]
    fn a_socket_that_shares_its_address_with_none_has_nothing_to_choose() {
        let alone = sockets(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), 1).expect("loopback");
        alone[0].choose_receivers(Receivers::ByPeer(1)).expect_err("there is no group");
    }
}
