//! Classic BPF program that drops new work in the kernel before it is queued, following a [`Filter`].
//!
//! It computes the [position](strowger_overload::position()) of a message from its bytes, as the worker does, and
//! drops the message if the filter does not pass that position for its kind. Requests with a To tag belong to a
//! dialog and always pass, as do requests to an emergency service and keep-alives of STUN.

use std::net::{IpAddr, SocketAddr};

use strowger_overload::{Filter, FilteredKind, HASH_BEGIN, HASH_BLOCK_BYTES, HASH_BLOCKS, HASH_FACTOR, STUN_COOKIE};

use crate::bpf::{self, Instruction};

/// Maximum number of trusted sources in the program, IPv4 only. Other sources are treated as untrusted.
pub(crate) const MAX_TRUSTED: usize = 16;

/// Offset of the message in the data that the program sees.
pub(crate) const MESSAGE: usize = 8;

/// Range of message bytes searched for To, and number of bytes after it searched for the tag.
pub(crate) const TO_BEGIN: usize = 96;
pub(crate) const TO_STEP: usize = 64;
pub(crate) const TO_STEPS: usize = 5;
pub(crate) const TAG_WITHIN: usize = 80;

/// Words of scratch memory: the length, and the number of passing positions.
const LENGTH: u32 = 0;
const PASSING: u32 = 1;

/// Mask that converts three letters and a colon to upper case.
pub(crate) const UPPER_CASE: u32 = 0xDFDF_DFFF;

/// Return value for a datagram that passes: more bytes than any datagram has.
pub(crate) const PASS: u32 = 0x4_0000;
pub(crate) const DROP: u32 = 0;

/// Input of a socket's filter program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketFilter {
    /// The filter.
    pub filter: Filter,
    /// Salt of the positions.
    pub salt: u32,
    /// Trusted sources: addresses with prefix lengths.
    pub trusted: Vec<(IpAddr, u8)>,
}

/// A program built from its end, so that every jump target is known when the jump is emitted.
struct Program {
    /// Instructions from last to first.
    reversed: Vec<Instruction>,
}

/// A position in the program, counted from its end.
#[derive(Clone, Copy)]
struct Label(usize);

impl Program {
    /// Inserts instructions before the existing ones.
    fn prepend(&mut self, instructions: &[Instruction]) {
        self.reversed.extend(instructions.iter().rev());
    }

    /// Returns the position of the first instruction.
    fn here(&self) -> Label {
        Label(self.reversed.len())
    }

    /// Returns a jump to a label. The jump will be prepended, with `between` more instructions inserted after it.
    fn jump_to(&self, label: Label, between: usize) -> Instruction {
        bpf::jump(self.reversed.len() + between - label.0)
    }

    fn finish(mut self) -> Vec<Instruction> {
        self.reversed.reverse();
        self.reversed
    }
}

/// Builds the program for a socket bound to `local`.
pub(crate) fn program(rules: &PacketFilter, local: SocketAddr) -> Vec<Instruction> {
    let mut program = Program { reversed: Vec::new() };
    program.prepend(&[bpf::return_constant(DROP)]);
    let drop = program.here();
    program.prepend(&[bpf::return_constant(PASS)]);
    let pass = program.here();
    let look_for_tag = prepend_tag_search(&mut program, drop, pass);
    prepend_to_search(&mut program, drop, pass, look_for_tag);
    let look_for_to = program.here();
    prepend_judgement(&mut program, pass, look_for_to, rules.salt);
    let judge = program.here();
    prepend_kinds(&mut program, pass, judge, rules, local);
    program.finish()
}

/// Searches the header line at the index register for a tag. A message with a tag passes; one without is dropped.
fn prepend_tag_search(program: &mut Program, drop: Label, pass: Label) -> Label {
    program.prepend(&[program.jump_to(pass, 0)]);
    for offset in (1..TAG_WITHIN).rev() {
        let is_over = [bpf::alu_constant(libc::BPF_RSH, 24), bpf::jump_if(libc::BPF_JEQ, u32::from(b'\n'), 0, 1)];
        program.prepend(&[program.jump_to(drop, 0)]);
        program.prepend(&is_over);
        program.prepend(&[program.jump_to(pass, 0)]);
        program.prepend(&[
            bpf::load_word_at_index(word(offset)),
            bpf::jump_if(libc::BPF_JEQ, u32::from_be_bytes(*b";tag"), 0, 1),
        ]);
    }
    program.here()
}

/// Searches for the To header. A message without one is dropped; if To may come beyond the searched range, the
/// message passes.
fn prepend_to_search(program: &mut Program, drop: Label, pass: Label, found: Label) {
    program.prepend(&[program.jump_to(pass, 0)]);
    for step in (0..TO_STEPS).rev() {
        let begin = MESSAGE + TO_BEGIN + step * TO_STEP;
        for offset in (begin..begin + TO_STEP).rev() {
            program.prepend(&[program.jump_to(found, 0)]);
            program.prepend(&[
                bpf::load_byte(word(offset)),
                bpf::jump_if(libc::BPF_JEQ, u32::from(b'\n'), 0, 6),
                bpf::load_word(word(offset)),
                bpf::jump_if(libc::BPF_JEQ, u32::from_be_bytes(*b"\nTo:"), 2, 0),
                bpf::alu_constant(libc::BPF_AND, 0xFFFF_FF00),
                bpf::jump_if(libc::BPF_JEQ, u32::from_be_bytes(*b"\nt:\0"), 0, 2),
                bpf::load_index(word(offset)),
            ]);
        }
        program.prepend(&[program.jump_to(drop, 0)]);
        program.prepend(&[bpf::load_from(LENGTH), bpf::jump_if(libc::BPF_JGE, word(begin + TO_STEP + 4), 1, 0)]);
    }
}

/// Computes the position and passes the message if its kind permits.
fn prepend_judgement(program: &mut Program, pass: Label, look_for_to: Label, salt: u32) {
    program.prepend(&[program.jump_to(look_for_to, 0)]);
    program.prepend(&[program.jump_to(pass, 0)]);
    program.prepend(&[
        bpf::from_index(),
        bpf::alu_constant(libc::BPF_RSH, 15),
        bpf::alu_index(libc::BPF_XOR),
        bpf::alu_constant(libc::BPF_MUL, HASH_FACTOR),
        bpf::alu_constant(libc::BPF_RSH, 16),
        bpf::load_index_from(PASSING),
        bpf::jump_if_index(libc::BPF_JGE, 1, 0),
    ]);
    let mixed = program.here();
    for block in (0..HASH_BLOCKS).rev() {
        let begin = MESSAGE + HASH_BEGIN + block * HASH_BLOCK_BYTES;
        for offset in (begin..begin + HASH_BLOCK_BYTES).step_by(4).rev() {
            program.prepend(&[
                bpf::load_word(word(offset)),
                bpf::alu_index(libc::BPF_ADD),
                bpf::alu_constant(libc::BPF_MUL, HASH_FACTOR),
                bpf::to_index(),
            ]);
        }
        program.prepend(&[program.jump_to(mixed, 0)]);
        program.prepend(&[bpf::load_from(LENGTH), bpf::jump_if(libc::BPF_JGE, word(begin + HASH_BLOCK_BYTES), 1, 0)]);
    }
    program.prepend(&[bpf::load_length(), bpf::store(LENGTH), bpf::load_index(salt)]);
}

/// Determines the kind of the message.
fn prepend_kinds(program: &mut Program, pass: Label, judge: Label, rules: &PacketFilter, local: SocketAddr) {
    let kind = |kind: FilteredKind| [bpf::load_constant(rules.filter.passing(kind)), bpf::store(PASSING)];
    let first = |bytes: &[u8; 4]| u32::from_be_bytes(*bytes);
    program.prepend(&[program.jump_to(judge, 0)]);
    program.prepend(&kind(FilteredKind::TrunkCall));
    let trunk_call = program.here();
    program.prepend(&[program.jump_to(judge, 0)]);
    program.prepend(&kind(FilteredKind::Call));
    if local.is_ipv4() {
        for (address, mask) in rules.trusted.iter().filter_map(masked).take(MAX_TRUSTED) {
            program.prepend(&[program.jump_to(trunk_call, 0)]);
            program.prepend(&[
                bpf::load_source(local),
                bpf::alu_constant(libc::BPF_AND, mask),
                bpf::jump_if(libc::BPF_JEQ, address & mask, 0, 1),
            ]);
        }
    }
    program.prepend(&[program.jump_to(pass, 0)]);
    program.prepend(&[
        bpf::load_word(word(MESSAGE + b"INVITE ".len())),
        bpf::alu_constant(libc::BPF_AND, UPPER_CASE),
        bpf::jump_if(libc::BPF_JEQ, first(b"URN:"), 0, 1),
    ]);
    let invite = program.here();
    program.prepend(&[program.jump_to(judge, 0)]);
    program.prepend(&kind(FilteredKind::Other));
    program.prepend(&[program.jump_to(pass, 0)]);
    program.prepend(&[
        bpf::load_word(word(MESSAGE + STUN_COOKIE.len())),
        bpf::jump_if(libc::BPF_JEQ, u32::from_be_bytes(STUN_COOKIE), 0, 1),
    ]);
    program.prepend(&[program.jump_to(judge, 0)]);
    program.prepend(&kind(FilteredKind::Register));
    program.prepend(&[bpf::jump_if(libc::BPF_JEQ, first(b"REGI"), 0, 3)]);
    program.prepend(&[program.jump_to(invite, 0)]);
    program.prepend(&[bpf::load_word(word(MESSAGE)), bpf::jump_if(libc::BPF_JEQ, first(b"INVI"), 0, 1)]);
}

/// Returns an IPv4 network as address word and mask.
pub(crate) fn masked((ip, bits): &(IpAddr, u8)) -> Option<(u32, u32)> {
    let IpAddr::V4(ip) = ip.to_canonical() else { return None };
    let host_bits = 32_u32.checked_sub(u32::from(*bits))?;
    Some((ip.into(), u32::MAX.checked_shl(host_bits).unwrap_or(0)))
}

pub(crate) fn word(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::panic, reason = "a test may fail loudly")]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket as Phone};

    use std::sync::Arc;

    use strowger_overload::{ProvenSources, SourceMemory, fingerprint, position};

    use super::*;
    use strowger_foundation::Timestamp;

    use crate::dropped_messages::{DroppedMessages, GENERATION};
    use crate::memory_filter::FilterMemory;
    use crate::sources::KnownSources;
    use crate::udp::{BufferSizes, UdpSocket};
    use crate::{RECV_BATCH, RecvBatch};

    const SALT: u32 = 77;

    fn half(kinds: &[FilteredKind]) -> Filter {
        let mut filter = Filter::OPEN;
        kinds.iter().for_each(|kind| filter.set(*kind, 1 << 15));
        filter
    }

    fn request(method: &str, uri: &str, number: usize, to: &str, filler: usize) -> Vec<u8> {
        format!(
            "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK-{number}\r\n\
             Max-Forwards: 70\r\nSubject: {}\r\nFrom: <sip:alice@example.com>;tag={number}\r\n{to}\r\n\
             Call-ID: {number}@192.0.2.1\r\nCSeq: 1 {method}\r\nContent-Length: 0\r\n\r\n",
            "x".repeat(filler)
        )
        .into_bytes()
    }

    /// A keep-alive of STUN.
    fn binding_request(length: usize) -> Vec<u8> {
        let length_field = u16::try_from(length).expect("short").to_be_bytes();
        [&[0, 1][..], &length_field, &STUN_COOKIE, &[7; 12], &vec![b'x'; length]].concat()
    }

    /// Returns the messages that arrive at a socket with the filter: the classic program, and the one with shared
    /// memory if the kernel permits it.
    fn arriving(
        local: SocketAddr,
        filter: Filter,
        trusted: &[(IpAddr, u8)],
        messages: &[Vec<u8>],
    ) -> Option<Vec<Vec<u8>>> {
        let rules = PacketFilter { filter, salt: SALT, trusted: trusted.to_vec() };
        let socket = Receiver::open(local)?;
        socket.0.filter(&rules).expect("the kernel takes it");
        let found = socket.arriving(messages);
        if let Ok(memory) = DroppedMessages::new(Timestamp::ZERO) {
            let socket = Receiver::open(local)?;
            socket.0.filter_by_memory(&rules, nobody_known(&memory), WORKER).expect("the kernel takes it");
            memory.set_filter(WORKER, &filter);
            let by_memory = socket.arriving(messages);
            assert!(by_memory == found, "{} arrived, with a memory {}", found.len(), by_memory.len());
            assert_eq!(memory.dropped(), (messages.len() - found.len()) as u64);
        }
        Some(found)
    }

    fn nobody_known(dropped: &DroppedMessages) -> FilterMemory<'_> {
        FilterMemory { dropped, sources: None }
    }

    /// Worker whose filter the memory follows.
    const WORKER: usize = 3;

    struct Receiver(UdpSocket);

    impl Receiver {
        fn open(local: SocketAddr) -> Option<Self> {
            UdpSocket::bind(local, BufferSizes { receive: 1 << 20, send: 1 << 16 }).ok().map(Self)
        }

        /// Returns the messages that arrive.
        fn arriving(mut self, messages: &[Vec<u8>]) -> Vec<Vec<u8>> {
            self.receive(messages)
        }

        fn receive(&mut self, messages: &[Vec<u8>]) -> Vec<Vec<u8>> {
            let phone = Phone::bind((self.0.local_addr().ip(), 0)).expect("a free port");
            let mut inbox = RecvBatch::new();
            let mut found = Vec::new();
            for messages in messages.chunks(RECV_BATCH) {
                for message in messages {
                    phone.send_to(message, self.0.local_addr()).expect("loopback takes it");
                }
                self.0.recv(&mut inbox).expect("a sound socket");
                found.extend(inbox.iter().map(|datagram| datagram.bytes.to_vec()));
            }
            found
        }
    }

    fn on_loopback(test: impl Fn(SocketAddr)) {
        test((Ipv4Addr::LOCALHOST, 0).into());
        test((Ipv6Addr::LOCALHOST, 0).into());
    }

    #[test]
    fn the_kernel_drops_what_the_worker_would_drop() {
        let filter = half(&[FilteredKind::Call, FilteredKind::Register]);
        on_loopback(|local| {
            // Of all lengths around the sizes of the blocks read.
            let all: Vec<_> = (0..600)
                .map(|number| {
                    let method = if number % 2 == 0 { "INVITE" } else { "REGISTER" };
                    request(method, "sip:bob@example.com", number, "To: <sip:bob@example.com>", number % 240)
                })
                .collect();
            let Some(found) = arriving(local, filter, &[], &all) else { return };
            let kind =
                |message: &[u8]| if message.starts_with(b"I") { FilteredKind::Call } else { FilteredKind::Register };
            let wanted: Vec<_> =
                all.iter().filter(|message| filter.passes(kind(message), position(message, SALT))).cloned().collect();
            assert!((240..360).contains(&wanted.len()));
            assert!(found == wanted, "{} arrived, {} were to", found.len(), wanted.len());
        });
    }

    #[test]
    fn calls_in_progress_emergencies_trunks_and_keep_alives_pass() {
        let mut closed = Filter::OPEN;
        [FilteredKind::Call, FilteredKind::Other].iter().for_each(|kind| closed.set(*kind, 0));
        let uri = "sip:bob@example.com";
        on_loopback(|local| {
            let mut passing = Vec::new();
            for filler in 0..260 {
                for to in ["To: <sip:bob@example.com>;tag=1", "t: bob <sip:bob@example.com;a=b>;x=y;tag=z1"] {
                    passing.push(request("INVITE", uri, 1, to, filler));
                    passing.push(request("SUBSCRIBE", uri, 1, to, filler));
                }
                passing.push(request("INVITE", "urn:service:sos.fire", 1, "To: <urn:service:sos>", filler));
                passing.push(request("REGISTER", uri, 1, "To: <sip:bob@example.com>", filler));
                passing.push(binding_request(filler));
            }
            let Some(found) = arriving(local, closed, &[], &passing) else { return };
            assert!(found == passing, "{} of {}", found.len(), passing.len());
            let dropped: Vec<_> = (0..200)
                .flat_map(|filler| {
                    [
                        request("INVITE", uri, 1, "To: <sip:bob@example.com>", filler),
                        request("OPTIONS", uri, 1, "t: bob <sip:bob@example.com>", filler),
                    ]
                })
                .collect();
            assert_eq!(arriving(local, closed, &[], &dropped), Some(Vec::new()));
            if local.is_ipv4() {
                let trusted = [(IpAddr::from([10, 0, 0, 0]), 8), (IpAddr::from([127, 0, 0, 0]), 16)];
                let found = arriving(local, closed, &trusted, &dropped).expect("loopback");
                assert_eq!(found.len(), 200, "the INVITEs");
            }
        });
    }

    #[test]
    fn dropped_messages_stay_dropped_when_more_passes() {
        on_loopback(|local| {
            let Ok(memory) = DroppedMessages::new(Timestamp::ZERO) else { return };
            let Some(mut socket) = Receiver::open(local) else { return };
            let rules = PacketFilter { filter: Filter::OPEN, salt: SALT, trusted: Vec::new() };
            socket.0.filter_by_memory(&rules, nobody_known(&memory), WORKER).expect("the kernel takes it");
            let calls = |numbers: std::ops::Range<usize>| -> Vec<_> {
                numbers.map(|number| request("INVITE", "sip:b@c", number, "To: <sip:b@c>", number % 150)).collect()
            };
            let (early, late) = (calls(0..400), calls(400..800));
            let passing: Vec<_> = early.iter().filter(|call| position(call, SALT) < 1 << 15).cloned().collect();
            memory.set_filter(WORKER, &half(&[FilteredKind::Call]));
            assert!(socket.receive(&early) == passing);
            memory.set_filter(WORKER, &Filter::OPEN);
            assert!(socket.receive(&early) == passing, "sent again");
            assert_eq!(socket.receive(&late).len(), late.len(), "sent for the first time");
            // A message the worker did not serve is dropped when it is retransmitted.
            late.iter().for_each(|call| memory.insert(fingerprint(call, SALT)));
            assert!(socket.receive(&late).is_empty() && memory.contains(fingerprint(&late[0], SALT)));
            // Another copy does not extend the time.
            let turn = |number| memory.handle_timeout(Timestamp::ZERO + GENERATION * number);
            turn(1);
            assert!(socket.receive(&late).is_empty() && !memory.is_empty());
            turn(2);
            assert!(memory.is_empty());
            // Each worker's sockets follow its own filter.
            memory.set_filter(WORKER + 1, &half(&[FilteredKind::Call]));
            assert_eq!(socket.receive(&late).len() + socket.receive(&early).len(), 800);
        });
    }

    #[test]
    fn calls_from_proven_sources_are_a_separate_kind() {
        on_loopback(|local| {
            let (Ok(dropped), Ok(known)) = (DroppedMessages::new(Timestamp::ZERO), KnownSources::new(9)) else {
                return;
            };
            let known = Arc::new(known);
            let proven = ProvenSources::in_memory(9, Arc::clone(&known) as Arc<dyn SourceMemory>);
            let rules = PacketFilter { filter: Filter::OPEN, salt: SALT, trusted: Vec::new() };
            let Some(mut socket) = Receiver::open(local) else { return };
            let memory = FilterMemory { dropped: &dropped, sources: Some(&known) };
            socket.0.filter_by_memory(&rules, memory, WORKER).expect("the kernel takes it");
            let mut closed = Filter::OPEN;
            closed.set(FilteredKind::Call, 0);
            dropped.set_filter(WORKER, &closed);
            let mut arriving = |numbers: std::ops::Range<usize>| {
                let call = |number| request("INVITE", "sip:b@c", number, "To: <sip:b@c>", 0);
                socket.receive(&numbers.map(call).collect::<Vec<_>>()).len()
            };
            assert_eq!(arriving(0..100), 0, "of a stranger");
            (0..200).for_each(|host| proven.insert(Timestamp::ZERO, [192, 0, 2, host].into()));
            assert_eq!(arriving(100..200), 0, "of a stranger while others are known");
            proven.insert(Timestamp::ZERO, local.ip());
            assert_eq!(arriving(200..300), 100);
        });
    }

    #[test]
    fn an_open_filter_is_detached() {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let socket = UdpSocket::bind(local, BufferSizes::DEFAULT).expect("a free port");
        let rules = |filter| PacketFilter { filter, salt: SALT, trusted: Vec::new() };
        let closed = half(&[FilteredKind::Call]);
        for filter in [Filter::OPEN, closed, half(&[FilteredKind::Other]), closed, Filter::OPEN, Filter::OPEN] {
            socket.filter(&rules(filter)).expect("the kernel takes it");
        }
    }
}
