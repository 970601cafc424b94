//! Instructions of classic BPF, which any process may give to the kernel for its own sockets: linux/filter.h.

use std::ffi::c_ushort;
use std::net::SocketAddr;

/// One instruction: code, jumps and operand, as `sock_filter` has them.
pub(crate) type Instruction = libc::sock_filter;

/// Where a packet's network header begins (`SKF_NET_OFF`), and where the kernel's own answers are (`SKF_AD_OFF`); the offset
/// of a random number among these (`SKF_AD_RANDOM`).
const NETWORK_HEADER: u32 = (-0x10_0000_i32).cast_unsigned();
const ANSWERS: u32 = (-0x1000_i32).cast_unsigned();
const RANDOM: u32 = 56;

/// Where the source address, or its last four bytes, and the source port stand behind the beginning of the network header.
const V4_SOURCE: u32 = 12;
const V4_PORT: u32 = 20;
const V6_SOURCE: u32 = 20;
const V6_PORT: u32 = 40;

/// The accumulator becomes the source address of a packet to `local`, or the last four bytes of it.
pub(crate) fn load_source(local: SocketAddr) -> Instruction {
    load_word(source_offset(local))
}

/// Where the word at this offset of a packet's network header stands.
pub(crate) const fn in_network_header(offset: u32) -> u32 {
    NETWORK_HEADER.wrapping_add(offset)
}

/// Where that stands.
pub(crate) fn source_offset(local: SocketAddr) -> u32 {
    in_network_header(if local.is_ipv4() { V4_SOURCE } else { V6_SOURCE })
}

/// The accumulator becomes the source port of a packet to `local`.
pub(crate) fn load_source_port(local: SocketAddr) -> Instruction {
    let offset = if local.is_ipv4() { V4_PORT } else { V6_PORT };
    instruction(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, in_network_header(offset))
}

/// The accumulator becomes a random number.
pub(crate) fn load_random() -> Instruction {
    load_word(ANSWERS.wrapping_add(RANDOM))
}

/// The accumulator becomes the word at `offset`. Where there is none, the program ends and gives 0.
pub(crate) fn load_word(offset: u32) -> Instruction {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

/// The same for a byte.
pub(crate) fn load_byte(offset: u32) -> Instruction {
    instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, offset)
}

/// The same for the word at `offset` behind the index.
pub(crate) fn load_word_at_index(offset: u32) -> Instruction {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_IND, offset)
}

/// The accumulator becomes the length of what the program sees.
pub(crate) fn load_length() -> Instruction {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0)
}

/// The accumulator becomes a constant.
pub(crate) fn load_constant(value: u32) -> Instruction {
    instruction(libc::BPF_LD | libc::BPF_IMM, value)
}

/// The index becomes a constant.
pub(crate) fn load_index(value: u32) -> Instruction {
    instruction(libc::BPF_LDX | libc::BPF_IMM, value)
}

/// The accumulator goes into a word of the program's memory.
pub(crate) fn store(word: u32) -> Instruction {
    instruction(libc::BPF_ST, word)
}

/// The index becomes a word of the program's memory.
pub(crate) fn load_index_from(word: u32) -> Instruction {
    instruction(libc::BPF_LDX | libc::BPF_MEM, word)
}

/// The accumulator becomes a word of the program's memory.
pub(crate) fn load_from(word: u32) -> Instruction {
    instruction(libc::BPF_LD | libc::BPF_MEM, word)
}

/// The index becomes the accumulator.
pub(crate) fn to_index() -> Instruction {
    instruction(libc::BPF_MISC | libc::BPF_TAX, 0)
}

/// The accumulator becomes the index.
pub(crate) fn from_index() -> Instruction {
    instruction(libc::BPF_MISC | libc::BPF_TXA, 0)
}

/// Changes the accumulator by a constant.
pub(crate) fn alu_constant(operation: u32, constant: u32) -> Instruction {
    instruction(libc::BPF_ALU | operation | libc::BPF_K, constant)
}

/// Changes the accumulator by the index.
pub(crate) fn alu_index(operation: u32) -> Instruction {
    instruction(libc::BPF_ALU | operation | libc::BPF_X, 0)
}

/// Goes over so many instructions, according to how the accumulator compares to a constant. At most 255 either way.
pub(crate) fn jump_if(comparison: u32, constant: u32, where_true: usize, where_false: usize) -> Instruction {
    let near = |over: usize| u8::try_from(over).unwrap_or(u8::MAX);
    let instruction = instruction(libc::BPF_JMP | comparison | libc::BPF_K, constant);
    Instruction { jt: near(where_true), jf: near(where_false), ..instruction }
}

/// The same, compared to the index.
pub(crate) fn jump_if_index(comparison: u32, where_true: usize, where_false: usize) -> Instruction {
    let jump = jump_if(comparison, 0, where_true, where_false);
    Instruction { code: instruction(libc::BPF_JMP | comparison | libc::BPF_X, 0).code, ..jump }
}

/// Goes over so many instructions.
pub(crate) fn jump(over: usize) -> Instruction {
    instruction(libc::BPF_JMP | libc::BPF_JA, u32::try_from(over).unwrap_or(u32::MAX))
}

/// Ends the program with a constant.
pub(crate) fn return_constant(value: u32) -> Instruction {
    instruction(libc::BPF_RET | libc::BPF_K, value)
}

/// Ends the program with the accumulator.
pub(crate) fn return_accumulator() -> Instruction {
    instruction(libc::BPF_RET | libc::BPF_A, 0)
}

#[expect(clippy::cast_possible_truncation, reason = "codes are small numbers")]
fn instruction(code: u32, k: u32) -> Instruction {
    libc::sock_filter { code: code as c_ushort, jt: 0, jf: 0, k }
}
