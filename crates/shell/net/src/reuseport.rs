//! Selection of the socket of an address that receives a datagram, by a BPF program that runs for each datagram.
//!
//! The kernel numbers the sockets of an address in the order in which they were bound. If the program returns a
//! number without a socket, the kernel selects by a hash of both endpoints, as it does without a program.

use std::net::SocketAddr;

use strowger_overload::{IN_PROGRESS, STUN_COOKIE};

use crate::bpf::{self, Instruction};

/// Which sockets of an address receive datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receivers {
    /// All sockets; a peer always reaches the same one.
    Any,
    /// The first n sockets; a peer always reaches the same one.
    ByPeer(usize),
    /// The first n sockets; each datagram goes to any of them.
    ByPacket(usize),
}

/// Rule that selects the receiving socket of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverSelection {
    /// The receiving sockets.
    pub receivers: Receivers,
    /// Number of primary sockets if new work is separated. Each receiver then has a second socket for new work, bound
    /// after the first sockets of all receivers.
    pub sorted: Option<usize>,
}

impl From<Receivers> for ReceiverSelection {
    fn from(receivers: Receivers) -> Self {
        Self { receivers, sorted: None }
    }
}

/// 2^32 divided by the golden ratio; spreads neighbouring ports.
const SPREAD: u32 = 0x9E37_79B9;

/// Scratch word that holds the number of the first socket for this kind of datagram.
const FIRST: u32 = 0;

/// Builds the program for sockets bound to `local`. A datagram too short to classify goes to the first socket.
pub(crate) fn program(choice: ReceiverSelection, local: SocketAddr) -> Vec<Instruction> {
    let Some(all) = choice.sorted else {
        let mut program = choose(choice.receivers, local);
        program.push(bpf::return_accumulator());
        return program;
    };
    // The kernel's own hash would select the second sockets too.
    let receivers = if choice.receivers == Receivers::Any { Receivers::ByPeer(all) } else { choice.receivers };
    let mut program = sort(small(all));
    program.append(&mut choose(receivers, local));
    program.extend([bpf::load_index_from(FIRST), bpf::alu_index(libc::BPF_ADD), bpf::return_accumulator()]);
    program
}

/// Stores 0 in [`FIRST`] for work in progress and `all` for new work.
fn sort(all: u32) -> Vec<Instruction> {
    let words = || IN_PROGRESS.iter().chain([b"\r\n\r\n"]).map(|word| u32::from_be_bytes(*word));
    let mut program = vec![bpf::load_word(0)];
    let new_work = [bpf::load_constant(all), bpf::store(FIRST), bpf::jump(2)];
    let in_progress = [bpf::load_constant(0), bpf::store(FIRST)];
    let stun = [bpf::load_word(4), bpf::jump_if(libc::BPF_JEQ, u32::from_be_bytes(STUN_COOKIE), new_work.len(), 0)];
    for (at, word) in words().enumerate() {
        let comparisons_left = words().count() - at - 1;
        program.push(bpf::jump_if(libc::BPF_JEQ, word, comparisons_left + stun.len() + new_work.len(), 0));
    }
    program.extend(stun);
    program.extend(new_work);
    program.extend(in_progress);
    program
}

/// Leaves the number of the receiver in the accumulator.
fn choose(receivers: Receivers, local: SocketAddr) -> Vec<Instruction> {
    match receivers {
        // A number that no socket has.
        Receivers::Any => vec![bpf::load_constant(u32::MAX)],
        Receivers::ByPeer(1) | Receivers::ByPacket(1) => vec![bpf::load_constant(0)],
        Receivers::ByPacket(sockets) => {
            vec![bpf::load_random(), bpf::alu_constant(libc::BPF_MOD, small(sockets))]
        }
        Receivers::ByPeer(sockets) => vec![
            bpf::load_source(local),
            bpf::to_index(),
            bpf::load_source_port(local),
            bpf::alu_index(libc::BPF_ADD),
            bpf::alu_constant(libc::BPF_MUL, SPREAD),
            bpf::alu_constant(libc::BPF_RSH, 16),
            bpf::alu_constant(libc::BPF_MOD, small(sockets)),
        ],
    }
}

/// Converts a number of sockets; at least one.
fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::panic, reason = "a test may fail loudly")]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket as Phone};

    use super::*;
    use crate::RecvBatch;
    use crate::recv_arena::RECV_BATCH;
    use crate::udp::{BufferSizes, UdpSocket};

    /// Binds sockets of one address, in order.
    fn sockets(local: SocketAddr, count: usize) -> Option<Vec<UdpSocket>> {
        let small = BufferSizes { receive: 256 * 1024, send: 64 * 1024 };
        let first = UdpSocket::bind(local, small).ok()?;
        let others: Vec<_> = (1..count).map(|_| first.sibling().expect("the address is ours")).collect();
        Some(std::iter::once(first).chain(others).collect())
    }

    /// Returns, for each of `peers`, the sockets that received its `datagrams`.
    fn who_receives(sockets: &mut [UdpSocket], peers: usize, datagrams: usize) -> Vec<BTreeSet<usize>> {
        let address = sockets[0].local_addr();
        let peers: Vec<_> = (0..peers).map(|_| Phone::bind((address.ip(), 0)).expect("a free port")).collect();
        let mut found = vec![BTreeSet::new(); peers.len()];
        let mut inbox = RecvBatch::new();
        for (peer, found) in peers.iter().zip(&mut found) {
            for _ in 0..datagrams {
                peer.send_to(b"x", address).expect("loopback takes it");
            }
            // On loopback, a sent datagram is received at once.
            let mut count = 0;
            for (index, socket) in sockets.iter_mut().enumerate() {
                socket.recv(&mut inbox).expect("a sound socket");
                assert!(!inbox.is_full() && datagrams < RECV_BATCH);
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
    fn only_the_chosen_sockets_receive() {
        for local in [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))] {
            let Some(mut sockets) = sockets(local, 4) else {
                eprintln!("skipped: no {local}");
                continue;
            };
            let all = |found: &[BTreeSet<usize>]| found.iter().flatten().copied().collect::<BTreeSet<_>>();
            let [first, ..] = sockets.as_slice() else { panic!("four") };
            first.choose_receivers(Receivers::ByPeer(1).into()).expect("the kernel takes it");
            assert_eq!(all(&who_receives(&mut sockets, 16, 4)), BTreeSet::from([0]));
            sockets[1].choose_receivers(Receivers::ByPeer(3).into()).expect("any of the sockets will do");
            let found = who_receives(&mut sockets, 64, 4);
            assert!(found.iter().all(|sockets| sockets.len() == 1), "a peer meets one");
            assert_eq!(all(&found), BTreeSet::from([0, 1, 2]));
            sockets[0].choose_receivers(Receivers::ByPacket(2).into()).expect("the kernel takes it");
            assert_eq!(who_receives(&mut sockets, 1, 60), [BTreeSet::from([0, 1])], "one peer meets both");
            sockets[0].choose_receivers(Receivers::Any.into()).expect("the kernel takes it");
            let found = who_receives(&mut sockets, 64, 4);
            assert!(found.iter().all(|sockets| sockets.len() == 1), "a peer meets one");
            assert_eq!(all(&found), BTreeSet::from([0, 1, 2, 3]));
        }
    }

    #[test]
    fn a_socket_without_siblings_cannot_choose_receivers() {
        let alone = sockets(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), 1).expect("loopback");
        alone[0].choose_receivers(Receivers::ByPeer(1).into()).expect_err("there is no group");
    }

    #[test]
    fn new_work_uses_its_own_sockets_for_any_receivers() {
        for local in [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))] {
            let Some(mut sockets) = sockets(local, 6) else {
                eprintln!("skipped: no {local}");
                continue;
            };
            let address = sockets[0].local_addr();
            let phones: Vec<_> = (0..32).map(|_| Phone::bind((address.ip(), 0)).expect("a free port")).collect();
            let mut receive = |receivers: Receivers, bytes: &[u8]| {
                sockets[0]
                    .choose_receivers(ReceiverSelection { receivers, sorted: Some(3) })
                    .expect("the kernel takes it");
                for phone in &phones {
                    phone.send_to(bytes, address).expect("loopback takes it");
                }
                let mut inbox = RecvBatch::new();
                let mut found = BTreeSet::new();
                for (index, socket) in sockets.iter_mut().enumerate() {
                    socket.recv(&mut inbox).expect("a sound socket");
                    found.extend((!inbox.is_empty()).then_some(index));
                }
                found
            };
            for receivers in [Receivers::Any, Receivers::ByPeer(3), Receivers::ByPacket(3)] {
                assert_eq!(receive(receivers, b"INVITE sip:bob@example.com SIP/2.0"), BTreeSet::from([3, 4, 5]));
                assert_eq!(receive(receivers, b"SIP/2.0 200 OK"), BTreeSet::from([0, 1, 2]));
            }
            for bytes in [&b"REGISTER sip:a"[..], b"OPTIONS sip:a", b"GET / HTTP/1.1"] {
                assert_eq!(receive(Receivers::ByPeer(1), bytes), BTreeSet::from([3]));
            }
            let stun = [&[0, 1, 0, 0][..], &STUN_COOKIE, &[7; 12]].concat();
            for bytes in [&b"ACK sip:a"[..], b"BYE sip:a", b"CANCEL sip:a", b"\r\n\r\n", b"\r\n", b"", &stun] {
                assert_eq!(receive(Receivers::ByPeer(1), bytes), BTreeSet::from([0]));
            }
        }
    }
}
