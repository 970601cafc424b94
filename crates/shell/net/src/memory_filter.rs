//! eBPF program that drops new work in the kernel, with memory: it follows [`DroppedMessages`].
//!
//! It differs from the program of [`filter`](crate::filter) in three ways. The number of passing positions is in
//! memory that the worker writes, so the program never changes. A dropped message is dropped again when it is
//! retransmitted. Calls from proven sources are a separate kind.

use std::net::SocketAddr;

use strowger_overload::{
    FilteredKind, HASH_BEGIN, HASH_BLOCK_BYTES, HASH_BLOCKS, HASH_FACTOR, MIX_FACTORS, MIX_SHIFTS, PROVEN_BITS,
    PROVEN_WORDS, SOURCE_V4, STUN_COOKIE,
};

use crate::bpf::{in_network_header, source_offset};
use crate::dropped_messages::{
    BITS_LOG2, DROPPED_WORD, DroppedMessages, GENERATION_WORDS, HEADER_WORDS, MAX_REMEMBERED, REMEMBERED_WORD,
    SECOND_FACTOR, YOUNG_WORD, passing_word,
};
use crate::ebpf::{Assembler, Comparison, Label, Operation, Register};
use crate::filter::{
    DROP, MAX_TRUSTED, MESSAGE, PASS, PacketFilter, TAG_WITHIN, TO_BEGIN, TO_STEP, TO_STEPS, UPPER_CASE, masked, word,
};
use crate::sources::KnownSources;

/// Register that holds the result of a packet load, which clobbers registers 1 to 5.
const LOADED: Register = Register(0);
const MAP: Register = Register(1);
const A: Register = Register(2);
const B: Register = Register(3);
const BIT: Register = Register(4);
const GENERATION: Register = Register(5);
/// Registers that survive packet loads: the packet, its length, the fingerprint, and the position of the kind's
/// number or the progress of a search.
const PACKET: Register = Register(6);
const LENGTH: Register = Register(7);
const FINGERPRINT: Register = Register(8);
const KIND: Register = Register(9);
const OFFSET: Register = Register(9);
/// The source, until the fingerprint has been computed.
const SOURCE: Register = Register(8);
/// Remaining bytes of the To line to search. Replaces the length, which is not needed at that point.
const LEFT: Register = Register(7);

/// Offsets in the network header of the two halves of the network part of an IPv6 source address.
const V6_PREFIX: [u32; 2] = [8, 12];

/// Shared memory that a program in the kernel reads.
#[derive(Clone, Copy, Debug)]
pub struct FilterMemory<'m> {
    /// Dropped messages and the current filters.
    pub dropped: &'m DroppedMessages,
    /// Proven sources, if the kernel can share them.
    pub sources: Option<&'m KnownSources>,
}

/// Labels at which a part of the program leaves.
#[derive(Clone, Copy)]
struct ExitLabels {
    pass: Label,
    drop: Label,
}

/// Builds the program for a socket bound to `local`; `None` if it cannot be assembled.
pub(crate) fn program(
    rules: &PacketFilter,
    local: SocketAddr,
    memory: FilterMemory<'_>,
    worker: usize,
) -> Option<Vec<u64>> {
    let mut program = Assembler::default();
    let io = ExitLabels { pass: program.label(), drop: program.label() };
    let unwanted = program.label();
    program.alu64_register(Operation::Set, PACKET, MAP);
    program.load_word(LENGTH, PACKET, 0);
    find_kind(&mut program, (rules, local), (worker, memory.sources), io);
    find_fingerprint(&mut program, rules.salt);
    judge(&mut program, memory.dropped, io.pass, unwanted);
    program.bind(unwanted);
    look_for_tag(&mut program, io);
    program.bind(io.drop);
    remember(&mut program, memory.dropped);
    program.return_constant(DROP);
    program.bind(io.pass);
    program.return_constant(PASS);
    program.finish()
}

/// Determines the kind of the message, as the position in memory of its number of passing positions.
fn find_kind(
    program: &mut Assembler,
    (rules, local): (&PacketFilter, SocketAddr),
    (worker, sources): (usize, Option<&KnownSources>),
    io: ExitLabels,
) {
    let first = |bytes: &[u8; 4]| u32::from_be_bytes(*bytes);
    let (is_known, is_call) = (program.label(), program.label());
    let set_kind = |program: &mut Assembler, kind: FilteredKind| {
        program.alu32_constant(Operation::Set, KIND, bytes(passing_word(worker, kind)));
    };
    program.load_packet(word(MESSAGE));
    set_kind(program, FilteredKind::Register);
    program.jump_if(Comparison::Equal, LOADED, first(b"REGI"), is_known);
    program.jump_if(Comparison::Equal, LOADED, first(b"INVI"), is_call);
    program.load_packet(word(MESSAGE + STUN_COOKIE.len()));
    program.jump_if(Comparison::Equal, LOADED, first(&STUN_COOKIE), io.pass);
    set_kind(program, FilteredKind::Other);
    program.jump(is_known);
    program.bind(is_call);
    program.load_packet(word(MESSAGE + b"INVITE ".len()));
    program.alu32_constant(Operation::And, LOADED, UPPER_CASE);
    program.jump_if(Comparison::Equal, LOADED, first(b"URN:"), io.pass);
    if local.is_ipv4() {
        set_kind(program, FilteredKind::TrunkCall);
        for (address, mask) in rules.trusted.iter().filter_map(masked).take(MAX_TRUSTED) {
            program.load_packet(source_offset(local));
            program.alu32_constant(Operation::And, LOADED, mask);
            program.jump_if(Comparison::Equal, LOADED, address & mask, is_known);
        }
    }
    set_kind(program, FilteredKind::Call);
    if let Some(sources) = sources {
        find_source(program, local, sources.seed());
        jump_if_unproven(program, sources, is_known);
        set_kind(program, FilteredKind::ProvenCall);
    }
    program.bind(is_known);
}

/// Computes the hash of the source as `ProvenSources` does.
fn find_source(program: &mut Assembler, local: SocketAddr, seed: u64) {
    // An IPv6 socket receives no IPv4.
    if local.is_ipv4() {
        program.load_packet(source_offset(local));
        program.set_long(SOURCE, SOURCE_V4);
        program.alu64_register(Operation::Or, SOURCE, LOADED);
    } else {
        let [high, low] = V6_PREFIX.map(in_network_header);
        program.load_packet(high);
        program.alu64_register(Operation::Set, SOURCE, LOADED);
        program.alu64_constant(Operation::ShiftLeft, SOURCE, 32);
        program.load_packet(low);
        program.alu64_register(Operation::Or, SOURCE, LOADED);
    }
    for operation in [Operation::Xor, Operation::Add] {
        program.set_long(A, seed);
        program.alu64_register(operation, SOURCE, A);
        mix(program, SOURCE);
    }
}

/// The finaliser of splitmix64.
fn mix(program: &mut Assembler, value: Register) {
    let [before, between, behind] = MIX_SHIFTS;
    let [first, second] = MIX_FACTORS;
    for (shift, factor) in [(before, Some(first)), (between, Some(second)), (behind, None)] {
        program.alu64_register(Operation::Set, A, value);
        program.alu64_constant(Operation::ShiftRight, A, shift);
        program.alu64_register(Operation::Xor, value, A);
        if let Some(factor) = factor {
            program.set_long(A, factor);
            program.alu64_register(Operation::Multiply, value, A);
        }
    }
}

/// Jumps if neither generation contains the source.
fn jump_if_unproven(program: &mut Assembler, sources: &KnownSources, is_unproven: Label) {
    let is_proven = program.label();
    for generation in [0, 1] {
        let is_not_there = program.label();
        program.load_map(GENERATION, sources.number());
        program.alu64_constant(Operation::Add, GENERATION, bytes(generation * PROVEN_WORDS));
        for shift in [0, 32] {
            program.alu64_register(Operation::Set, A, SOURCE);
            program.alu64_constant(Operation::ShiftRight, A, shift);
            program.alu32_constant(Operation::And, A, PROVEN_BITS - 1);
            point_at_bit(program);
            jump_if_unset(program, is_not_there);
        }
        program.jump(is_proven);
        program.bind(is_not_there);
    }
    program.jump(is_unproven);
    program.bind(is_proven);
}

/// Computes the fingerprint as `strowger_overload::fingerprint` does.
fn find_fingerprint(program: &mut Assembler, salt: u32) {
    let is_summed = program.label();
    program.alu32_constant(Operation::Set, FINGERPRINT, salt);
    for block in 0..HASH_BLOCKS {
        let begin = MESSAGE + HASH_BEGIN + block * HASH_BLOCK_BYTES;
        let is_there = program.label();
        program.jump_if(Comparison::AtLeast, LENGTH, word(begin + HASH_BLOCK_BYTES), is_there);
        program.jump(is_summed);
        program.bind(is_there);
        for offset in (begin..begin + HASH_BLOCK_BYTES).step_by(4) {
            program.load_packet(word(offset));
            program.alu32_register(Operation::Add, FINGERPRINT, LOADED);
            program.alu32_constant(Operation::Multiply, FINGERPRINT, HASH_FACTOR);
        }
    }
    program.bind(is_summed);
    program.alu32_register(Operation::Set, A, FINGERPRINT);
    program.alu32_constant(Operation::ShiftRight, A, 15);
    program.alu32_register(Operation::Xor, FINGERPRINT, A);
    program.alu32_constant(Operation::Multiply, FINGERPRINT, HASH_FACTOR);
}

/// Passes a message that is below the threshold of its kind and was not dropped before.
fn judge(program: &mut Assembler, memory: &DroppedMessages, pass: Label, unwanted: Label) {
    program.load_map(MAP, memory.number());
    program.alu64_register(Operation::Set, A, MAP);
    program.alu64_register(Operation::Add, A, KIND);
    program.load_word(A, A, 0);
    program.alu32_register(Operation::Set, B, FINGERPRINT);
    program.alu32_constant(Operation::ShiftRight, B, 16);
    program.jump_if_register(Comparison::AtLeast, B, A, unwanted);
    for generation in [0, 1] {
        let is_new = program.label();
        program.alu64_register(Operation::Set, GENERATION, MAP);
        program.alu64_constant(Operation::Add, GENERATION, bytes(HEADER_WORDS + generation * GENERATION_WORDS));
        jump_if_new(program, is_new);
        program.jump(unwanted);
        program.bind(is_new);
    }
    program.jump(pass);
}

/// Counts the message and adds it to the younger generation unless either generation contains it.
fn remember(program: &mut Assembler, memory: &DroppedMessages) {
    let is_remembered = program.label();
    program.load_map(MAP, memory.number());
    program.alu32_constant(Operation::Set, A, 1);
    program.change_long(Operation::Add, MAP, near(DROPPED_WORD), A);
    program.load_word(A, MAP, near(REMEMBERED_WORD));
    program.jump_if(Comparison::AtLeast, A, MAX_REMEMBERED, is_remembered);
    for begin in [1, 0] {
        // The older generation first: a message that it contains is not added again.
        program.load_word(GENERATION, MAP, near(YOUNG_WORD));
        program.alu32_constant(Operation::Xor, GENERATION, begin);
        program.alu32_constant(Operation::And, GENERATION, 1);
        program.alu32_constant(Operation::ShiftLeft, GENERATION, bytes(GENERATION_WORDS).ilog2());
        program.alu64_register(Operation::Add, GENERATION, MAP);
        program.alu64_constant(Operation::Add, GENERATION, bytes(HEADER_WORDS));
        let is_not_there = program.label();
        jump_if_new(program, is_not_there);
        program.jump(is_remembered);
        program.bind(is_not_there);
    }
    for place in BloomBit::BOTH {
        point_at(program, place);
        program.alu32_constant(Operation::Set, B, 1);
        program.alu64_register(Operation::ShiftLeft, B, BIT);
        program.change_long(Operation::Or, A, 0, B);
    }
    program.alu32_constant(Operation::Set, A, 1);
    program.change_long(Operation::Add, MAP, near(REMEMBERED_WORD), A);
    program.bind(is_remembered);
}

/// Selects one of the two bits of a message.
#[derive(Clone, Copy)]
enum BloomBit {
    First,
    Second,
}

impl BloomBit {
    const BOTH: [Self; 2] = [Self::First, Self::Second];
}

/// Jumps if a generation does not contain the message.
fn jump_if_new(program: &mut Assembler, is_new: Label) {
    for place in BloomBit::BOTH {
        point_at(program, place);
        jump_if_unset(program, is_new);
    }
}

/// Jumps if the bit found by [`point_at_bit`] is not set.
fn jump_if_unset(program: &mut Assembler, is_unset: Label) {
    program.load_long(A, A, 0);
    program.alu64_register(Operation::ShiftRight, A, BIT);
    program.alu32_constant(Operation::And, A, 1);
    program.jump_if(Comparison::Equal, A, 0, is_unset);
}

/// Loads the address of a word in the generation into register A, and the bit number within it into another register.
fn point_at(program: &mut Assembler, place: BloomBit) {
    program.alu32_register(Operation::Set, A, FINGERPRINT);
    match place {
        BloomBit::First => program.alu32_constant(Operation::And, A, (1 << BITS_LOG2) - 1),
        BloomBit::Second => {
            program.alu32_constant(Operation::Multiply, A, SECOND_FACTOR);
            program.alu32_constant(Operation::ShiftRight, A, 32 - BITS_LOG2);
        }
    }
    point_at_bit(program);
}

/// Does the same for the bit whose number in the generation is in register A.
fn point_at_bit(program: &mut Assembler) {
    program.alu32_register(Operation::Set, BIT, A);
    program.alu32_constant(Operation::And, BIT, 63);
    program.alu32_constant(Operation::ShiftRight, A, 6);
    program.alu32_constant(Operation::ShiftLeft, A, 3);
    program.alu64_register(Operation::Add, A, GENERATION);
}

/// Passes requests within a dialog, whose To has a tag, and messages whose To may be beyond the searched range.
fn look_for_tag(program: &mut Assembler, io: ExitLabels) {
    let is_found = program.label();
    program.alu32_constant(Operation::Set, OFFSET, word(MESSAGE + TO_BEGIN));
    let search = program.here();
    program.jump_if(Comparison::AtLeast, OFFSET, word(MESSAGE + TO_BEGIN + TO_STEP * TO_STEPS), io.pass);
    program.alu32_register(Operation::Set, A, OFFSET);
    program.alu32_constant(Operation::Add, A, 4);
    program.jump_if_register(Comparison::AtLeast, A, LENGTH, io.drop);
    program.load_packet_at(OFFSET, 0);
    program.jump_if(Comparison::Equal, LOADED, u32::from_be_bytes(*b"\nTo:"), is_found);
    program.alu32_constant(Operation::And, LOADED, 0xFFFF_FF00);
    program.jump_if(Comparison::Equal, LOADED, u32::from_be_bytes(*b"\nt:\0"), is_found);
    program.alu32_constant(Operation::Add, OFFSET, 1);
    program.jump(search);

    program.bind(is_found);
    program.alu32_constant(Operation::Set, LEFT, word(TAG_WITHIN));
    let read = program.here();
    program.alu32_constant(Operation::Add, OFFSET, 1);
    program.alu32_constant(Operation::Subtract, LEFT, 1);
    program.jump_if(Comparison::Equal, LEFT, 0, io.pass);
    program.load_packet_at(OFFSET, 0);
    program.jump_if(Comparison::Equal, LOADED, u32::from_be_bytes(*b";tag"), io.pass);
    program.alu32_constant(Operation::ShiftRight, LOADED, 24);
    program.jump_if(Comparison::Equal, LOADED, b'\n'.into(), io.drop);
    program.jump(read);
}

/// Converts words to bytes.
fn bytes(words: usize) -> u32 {
    word(words * size_of::<u64>())
}

/// Converts words to bytes, for an offset near the start.
fn near(words: usize) -> i16 {
    i16::try_from(words * size_of::<u64>()).unwrap_or(0)
}
