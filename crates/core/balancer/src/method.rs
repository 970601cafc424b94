//! Costs of transactions by method.

/// Weight of a BYE transaction, in thousandths, which is the unit of work.
pub const BYE_WEIGHT: u16 = 1_000;

/// The methods that may differ in cost at a back-end; any other is [`Other`](Self::Other).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "each is the method of its name")]
pub enum MethodClass {
    Invite,
    Bye,
    Cancel,
    Register,
    Options,
    Info,
    Prack,
    Update,
    Message,
    Subscribe,
    Notify,
    Publish,
    Refer,
    /// Any other method.
    Other,
}

impl MethodClass {
    /// Number of classes.
    pub const COUNT: usize = 14;
    /// All classes.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Invite,
        Self::Bye,
        Self::Cancel,
        Self::Register,
        Self::Options,
        Self::Info,
        Self::Prack,
        Self::Update,
        Self::Message,
        Self::Subscribe,
        Self::Notify,
        Self::Publish,
        Self::Refer,
        Self::Other,
    ];

    /// Returns the class of the method `token`; names are case-sensitive (RFC 3261 §7.1).
    #[must_use]
    pub fn from_token(token: &[u8]) -> Self {
        Self::ALL.into_iter().find(|class| class.as_str().as_bytes() == token).unwrap_or(Self::Other)
    }

    /// Returns the method's name; `*` for any other.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invite => "INVITE",
            Self::Bye => "BYE",
            Self::Cancel => "CANCEL",
            Self::Register => "REGISTER",
            Self::Options => "OPTIONS",
            Self::Info => "INFO",
            Self::Prack => "PRACK",
            Self::Update => "UPDATE",
            Self::Message => "MESSAGE",
            Self::Subscribe => "SUBSCRIBE",
            Self::Notify => "NOTIFY",
            Self::Publish => "PUBLISH",
            Self::Refer => "REFER",
            Self::Other => "*",
        }
    }
}

/// The weight of a transaction of each method, in thousandths of a BYE transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MethodWeights([u16; MethodClass::COUNT]);

impl MethodWeights {
    /// Equal weights, which make least work equivalent to least transactions.
    pub const EVEN: Self = Self([BYE_WEIGHT; MethodClass::COUNT]);
    /// TLWL-1.75: an INVITE transaction weighs 1.75 times any other.
    pub const TLWL_1_75: Self = Self::EVEN.with(MethodClass::Invite, 1_750);
    /// TLWL-2: an INVITE transaction weighs twice any other.
    pub const TLWL_2: Self = Self::EVEN.with(MethodClass::Invite, 2_000);

    /// Returns the same weights except for `class`, which weighs `thousandths` (at least one, because zero would be
    /// invisible).
    #[must_use]
    pub const fn with(mut self, class: MethodClass, thousandths: u16) -> Self {
        let mut rest: &mut [u16] = &mut self.0;
        let mut at = 0;
        while let [first, others @ ..] = rest {
            if at == class as u8 {
                *first = if thousandths == 0 { 1 } else { thousandths };
            }
            rest = others;
            at += 1;
        }
        self
    }

    /// Returns the weight of a transaction of `class`, in thousandths.
    #[must_use]
    pub fn of(&self, class: MethodClass) -> u16 {
        self.0.get(class as usize).copied().unwrap_or(BYE_WEIGHT)
    }
}

impl Default for MethodWeights {
    fn default() -> Self {
        Self::TLWL_1_75
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_has_its_index_and_name() {
        for (at, class) in MethodClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, at);
            let token = if class == MethodClass::Other { "FROBNICATE" } else { class.as_str() };
            assert_eq!(MethodClass::from_token(token.as_bytes()), class);
        }
        assert_eq!(MethodClass::from_token(b"invite"), MethodClass::Other);
    }

    #[test]
    fn presets_differ_only_in_invite() {
        for (weights, invite) in [(MethodWeights::TLWL_1_75, 1_750), (MethodWeights::TLWL_2, 2_000)] {
            for class in MethodClass::ALL {
                assert_eq!(weights.of(class), if class == MethodClass::Invite { invite } else { BYE_WEIGHT });
            }
        }
        assert_eq!(MethodWeights::EVEN.with(MethodClass::Publish, 3_000).of(MethodClass::Publish), 3_000);
        assert_eq!(MethodWeights::EVEN.with(MethodClass::Other, 0).of(MethodClass::Other), 1);
    }
}
