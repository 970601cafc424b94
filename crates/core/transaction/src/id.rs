//! Names of transactions. One that has ended is never named again within 2^24 transactions.

/// Names a server transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Names a client transaction; its two numbers ride in the branch of our Via.
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
}

impl ClientId {
    /// The name that `index` and `generation` stand for; one that was never given out names nothing.
    #[must_use]
    pub const fn from_parts(index: u32, generation: u32) -> Self {
        Self { index, generation }
    }

    /// The slot.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// Which of the slot's transactions.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }
}
