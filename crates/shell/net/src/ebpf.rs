//! Assembler for eBPF (linux/bpf.h, RFC 9669), limited to what a socket filter needs, with jumps to labels.

/// A register. 0 holds the result of a call or load, a packet load clobbers 1 to 5, 6 holds the packet, 10 is the
/// frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Register(pub(crate) u8);

/// A position in a program, known once [`Assembler::bind`] has been called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label(usize);

/// A comparison of two 32-bit numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Comparison {
    Equal = 0x10,
    AtLeast = 0x30,
}

/// An arithmetic or bit operation on a register.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Add = 0x00,
    Subtract = 0x10,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Xor = 0xA0,
    Multiply = 0x20,
    Set = 0xB0,
}

/// Instruction classes and modes.
const ALU_32: u8 = 0x04;
const ALU_64: u8 = 0x07;
const JUMP: u8 = 0x05;
const JUMP_32: u8 = 0x06;
const BY_REGISTER: u8 = 0x08;
const LOAD_WORD: u8 = 0x61;
const LOAD_LONG: u8 = 0x79;
const LOAD_LONG_CONSTANT: u8 = 0x18;
const LOAD_PACKET_WORD: u8 = 0x20;
const LOAD_PACKET_WORD_AT: u8 = 0x40;
const ATOMIC_LONG: u8 = 0xDB;
const EXIT: u8 = 0x95;
/// Marks the number in [`LOAD_LONG_CONSTANT`] as a map whose value address is loaded (`BPF_PSEUDO_MAP_VALUE`).
const MAP_VALUE: Register = Register(2);

/// Builds a program from first to last instruction.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    code: Vec<u64>,
    jumps: Vec<(usize, Label)>,
    label_offsets: Vec<usize>,
}

impl Assembler {
    /// Creates an unbound label.
    pub(crate) fn label(&mut self) -> Label {
        self.label_offsets.push(usize::MAX);
        Label(self.label_offsets.len() - 1)
    }

    /// Binds the label to the current position.
    pub(crate) fn bind(&mut self, label: Label) {
        let here = self.code.len();
        if let Some(place) = self.label_offsets.get_mut(label.0) {
            *place = here;
        }
    }

    /// Creates a label bound to the current position.
    pub(crate) fn here(&mut self) -> Label {
        let label = self.label();
        self.bind(label);
        label
    }

    /// Applies an operation with a constant to a register, in 32 bits; the upper half becomes zero.
    pub(crate) fn alu32_constant(&mut self, operation: Operation, register: Register, constant: u32) {
        self.push(ALU_32 | operation as u8, register, Register(0), 0, constant);
    }

    /// Applies an operation with another register to a register, in 32 bits; the upper half becomes zero.
    pub(crate) fn alu32_register(&mut self, operation: Operation, register: Register, other: Register) {
        self.push(ALU_32 | BY_REGISTER | operation as u8, register, other, 0, 0);
    }

    /// Applies an operation with a constant to a register, in 64 bits.
    pub(crate) fn alu64_constant(&mut self, operation: Operation, register: Register, constant: u32) {
        self.push(ALU_64 | operation as u8, register, Register(0), 0, constant);
    }

    /// Applies an operation with another register to a register, in 64 bits.
    pub(crate) fn alu64_register(&mut self, operation: Operation, register: Register, other: Register) {
        self.push(ALU_64 | BY_REGISTER | operation as u8, register, other, 0, 0);
    }

    /// Sets a register to a 64-bit constant.
    pub(crate) fn set_long(&mut self, register: Register, constant: u64) {
        let [low, high] = [constant, constant >> 32].map(|half| u32::try_from(half & 0xFFFF_FFFF).unwrap_or(0));
        self.push(LOAD_LONG_CONSTANT, register, Register(0), 0, low);
        self.push(0, Register(0), Register(0), 0, high);
    }

    /// Loads four bytes of the packet, in network byte order, into register 0. Past the end of the packet, the
    /// program returns 0.
    pub(crate) fn load_packet(&mut self, offset: u32) {
        self.push(LOAD_PACKET_WORD, Register(0), Register(0), 0, offset);
    }

    /// Loads four bytes of the packet at `register` + `offset`, like [`load_packet`](Self::load_packet).
    pub(crate) fn load_packet_at(&mut self, register: Register, offset: u32) {
        self.push(LOAD_PACKET_WORD_AT, Register(0), register, 0, offset);
    }

    /// Loads a 32-bit word of memory.
    pub(crate) fn load_word(&mut self, register: Register, from: Register, offset: i16) {
        self.push(LOAD_WORD, register, from, offset, 0);
    }

    /// Loads a 64-bit value from memory.
    pub(crate) fn load_long(&mut self, register: Register, from: Register, offset: i16) {
        self.push(LOAD_LONG, register, from, offset, 0);
    }

    /// Atomically adds to a 64-bit value in memory, or sets bits of it.
    pub(crate) fn change_long(&mut self, operation: Operation, at: Register, offset: i16, by: Register) {
        self.push(ATOMIC_LONG, at, by, offset, operation as u32);
    }

    /// Loads the address of a map's value into a register.
    pub(crate) fn load_map(&mut self, register: Register, map: i32) {
        self.push(LOAD_LONG_CONSTANT, register, MAP_VALUE, 0, map.cast_unsigned());
        self.push(0, Register(0), Register(0), 0, 0);
    }

    /// Jumps to a label if the lower half of a register compares as given to a constant.
    pub(crate) fn jump_if(&mut self, comparison: Comparison, register: Register, constant: u32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.push(JUMP_32 | comparison as u8, register, Register(0), 0, constant);
    }

    /// Jumps to a label if the lower half of a register compares as given to that of another register.
    pub(crate) fn jump_if_register(
        &mut self,
        comparison: Comparison,
        register: Register,
        other: Register,
        label: Label,
    ) {
        self.jumps.push((self.code.len(), label));
        self.push(JUMP_32 | BY_REGISTER | comparison as u8, register, other, 0, 0);
    }

    /// Jumps to a label.
    pub(crate) fn jump(&mut self, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.push(JUMP, Register(0), Register(0), 0, 0);
    }

    /// Ends the program and returns a constant.
    pub(crate) fn return_constant(&mut self, value: u32) {
        self.alu32_constant(Operation::Set, Register(0), value);
        self.push(EXIT, Register(0), Register(0), 0, 0);
    }

    /// Returns the program, or `None` if a jump is out of range or its label is unbound.
    pub(crate) fn finish(mut self) -> Option<Vec<u64>> {
        for (at, label) in &self.jumps {
            let to = i64::try_from(*self.label_offsets.get(label.0)?).ok()?;
            let over = i16::try_from(to - i64::try_from(*at).ok()? - 1).ok()?;
            *self.code.get_mut(*at)? |= u64::from(over.cast_unsigned()) << 16;
        }
        Some(self.code)
    }

    fn push(&mut self, code: u8, destination: Register, source: Register, offset: i16, constant: u32) {
        let registers = destination.0 | source.0 << 4;
        self.code.push(
            u64::from(code)
                | u64::from(registers) << 8
                | u64::from(offset.cast_unsigned()) << 16
                | u64::from(constant) << 32,
        );
    }
}
