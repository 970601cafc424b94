//! Instructions of classic BPF, which an unprivileged process may attach to its own sockets (linux/filter.h).

use std::ffi::c_ushort;
use std::net::SocketAddr;

/// One instruction (`sock_filter`): code, jumps and operand.
pub(crate) type Instruction = libc::sock_filter;

/// Base offsets of the network header (`SKF_NET_OFF`) and of the kernel's ancillary data (`SKF_AD_OFF`), and the
/// offset of a random number in the latter (`SKF_AD_RANDOM`).
const NETWORK_HEADER: u32 = (-0x10_0000_i32).cast_unsigned();
const ANSWERS: u32 = (-0x1000_i32).cast_unsigned();
const RANDOM: u32 = 56;

/// Offsets in the network header of the source address, or its last four bytes, and of the source port.
const V4_SOURCE: u32 = 12;
const V4_PORT: u32 = 20;
const V6_SOURCE: u32 = 20;
const V6_PORT: u32 = 40;

/// Loads the source address of a packet to `local`, or its last four bytes, into the accumulator.
pub(crate) fn load_source(local: SocketAddr) -> Instruction {
    load_word(source_offset(local))
}

/// Returns the absolute offset of the word at `offset` in the network header.
pub(crate) const fn in_network_header(offset: u32) -> u32 {
    NETWORK_HEADER.wrapping_add(offset)
}

/// Returns the absolute offset of the source address, or of its last four bytes.
pub(crate) fn source_offset(local: SocketAddr) -> u32 {
    in_network_header(if local.is_ipv4() { V4_SOURCE } else { V6_SOURCE })
}

/// Loads the source port of a packet to `local` into the accumulator.
pub(crate) fn load_source_port(local: SocketAddr) -> Instruction {
    let offset = if local.is_ipv4() { V4_PORT } else { V6_PORT };
    instruction(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, in_network_header(offset))
}

/// Loads a random number into the accumulator.
pub(crate) fn load_random() -> Instruction {
    load_word(ANSWERS.wrapping_add(RANDOM))
}

/// Loads the word at `offset` into the accumulator. Past the end of the packet, the program ends and returns 0.
pub(crate) fn load_word(offset: u32) -> Instruction {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

/// Loads the byte at `offset`, like [`load_word`].
pub(crate) fn load_byte(offset: u32) -> Instruction {
    instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, offset)
}

/// Loads the word at index + `offset`, like [`load_word`].
pub(crate) fn load_word_at_index(offset: u32) -> Instruction {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_IND, offset)
}

/// Loads the length of the data that the program sees into the accumulator.
pub(crate) fn load_length() -> Instruction {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0)
}

/// Loads a constant into the accumulator.
pub(crate) fn load_constant(value: u32) -> Instruction {
    instruction(libc::BPF_LD | libc::BPF_IMM, value)
}

/// Loads a constant into the index register.
pub(crate) fn load_index(value: u32) -> Instruction {
    instruction(libc::BPF_LDX | libc::BPF_IMM, value)
}

/// Stores the accumulator in a word of scratch memory.
pub(crate) fn store(word: u32) -> Instruction {
    instruction(libc::BPF_ST, word)
}

/// Loads a word of scratch memory into the index register.
pub(crate) fn load_index_from(word: u32) -> Instruction {
    instruction(libc::BPF_LDX | libc::BPF_MEM, word)
}

/// Loads a word of scratch memory into the accumulator.
pub(crate) fn load_from(word: u32) -> Instruction {
    instruction(libc::BPF_LD | libc::BPF_MEM, word)
}

/// Copies the accumulator to the index register.
pub(crate) fn to_index() -> Instruction {
    instruction(libc::BPF_MISC | libc::BPF_TAX, 0)
}

/// Copies the index register to the accumulator.
pub(crate) fn from_index() -> Instruction {
    instruction(libc::BPF_MISC | libc::BPF_TXA, 0)
}

/// Applies an operation with a constant to the accumulator.
pub(crate) fn alu_constant(operation: u32, constant: u32) -> Instruction {
    instruction(libc::BPF_ALU | operation | libc::BPF_K, constant)
}

/// Applies an operation with the index register to the accumulator.
pub(crate) fn alu_index(operation: u32) -> Instruction {
    instruction(libc::BPF_ALU | operation | libc::BPF_X, 0)
}

/// Compares the accumulator with a constant and skips the given number of instructions, at most 255 either way.
pub(crate) fn jump_if(comparison: u32, constant: u32, where_true: usize, where_false: usize) -> Instruction {
    let near = |over: usize| u8::try_from(over).unwrap_or(u8::MAX);
    let instruction = instruction(libc::BPF_JMP | comparison | libc::BPF_K, constant);
    Instruction { jt: near(where_true), jf: near(where_false), ..instruction }
}

/// Compares the accumulator with the index register, like [`jump_if`].
pub(crate) fn jump_if_index(comparison: u32, where_true: usize, where_false: usize) -> Instruction {
    let jump = jump_if(comparison, 0, where_true, where_false);
    Instruction { code: instruction(libc::BPF_JMP | comparison | libc::BPF_X, 0).code, ..jump }
}

/// Skips the given number of instructions.
pub(crate) fn jump(over: usize) -> Instruction {
    instruction(libc::BPF_JMP | libc::BPF_JA, u32::try_from(over).unwrap_or(u32::MAX))
}

/// Ends the program and returns a constant.
pub(crate) fn return_constant(value: u32) -> Instruction {
    instruction(libc::BPF_RET | libc::BPF_K, value)
}

/// Ends the program and returns the accumulator.
pub(crate) fn return_accumulator() -> Instruction {
    instruction(libc::BPF_RET | libc::BPF_A, 0)
}

#[expect(clippy::cast_possible_truncation, reason = "codes are small numbers")]
fn instruction(code: u32, k: u32) -> Instruction {
    libc::sock_filter { code: code as c_ushort, jt: 0, jf: 0, k }
}
