//! Transaction ids. The id of an ended transaction is not reused within 2^24 transactions.

/// Id of a server transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Id of a client transaction; its two numbers are part of the branch of our Via.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ServerId {
    /// The slot.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// A number that no other transaction of the shard has while this one exists.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.index as u64) << 32 | self.generation as u64
    }
}

impl ClientId {
    /// Builds the id from `index` and `generation`; an id that was never issued matches nothing.
    #[must_use]
    pub const fn from_parts(index: u32, generation: u32) -> Self {
        Self { index, generation }
    }

    /// The slot.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// The number of the transaction within the slot.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }
}
