//! Selection policies and their names in the configuration.

use core::fmt;
use core::str::FromStr;

use crate::method::MethodWeights;

/// The policy by which a target is selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// By a consistent hash of the [`Key`]: removing or adding one of n targets moves 1/n of the keys. Uses weights.
    #[default]
    Hash,
    /// By FNV-1a of the key, modulo the targets in service.
    Fnv,
    /// By Bernstein's hash of the key, modulo the targets in service.
    Bernstein,
    /// By SHA-1 of the key, modulo the targets in service.
    Sha1,
    /// By the hash of OpenSER's dispatcher, modulo the targets in service.
    Openser,
    /// By the key's first letter: the alphabet in as many ranges as there are targets (a-h, i-q, r-z).
    Range,
    /// In turn.
    RoundRobin,
    /// In turn, in proportion to weights, evenly spread.
    Weighted,
    /// Random, in proportion to weights.
    Random,
    /// Fewest calls in progress (call-join-shortest-queue, CJSQ).
    LeastCalls,
    /// Fewest transactions in progress (transaction-join-shortest-queue, TJSQ).
    LeastTransactions,
    /// Least work in progress, with transactions weighted by method (transaction-least-work-left, TLWL).
    LeastWork,
    /// Least expected wait: measured response time times transactions in progress.
    ResponseTime,
    /// The first one in configuration order that is in service, of the lowest priority number.
    Priority,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 14] = [
        Self::Hash,
        Self::Fnv,
        Self::Bernstein,
        Self::Sha1,
        Self::Openser,
        Self::Range,
        Self::RoundRobin,
        Self::Weighted,
        Self::Random,
        Self::LeastCalls,
        Self::LeastTransactions,
        Self::LeastWork,
        Self::ResponseTime,
        Self::Priority,
    ];

    /// Their names in the configuration.
    pub const NAMES: &'static str = "hash, fnv, bernstein, sha1, openser, range, round-robin, weighted, random, least-calls, \
                                     least-transactions, least-work, response-time, priority";

    /// Returns its name in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Fnv => "fnv",
            Self::Bernstein => "bernstein",
            Self::Sha1 => "sha1",
            Self::Openser => "openser",
            Self::Range => "range",
            Self::RoundRobin => "round-robin",
            Self::Weighted => "weighted",
            Self::Random => "random",
            Self::LeastCalls => "least-calls",
            Self::LeastTransactions => "least-transactions",
            Self::LeastWork => "least-work",
            Self::ResponseTime => "response-time",
            Self::Priority => "priority",
        }
    }

    /// Returns whether it depends on the targets' load: it needs counts of calls or transactions, and may choose
    /// between [candidates](Candidates).
    #[must_use]
    pub const fn is_by_load(self) -> bool {
        matches!(self, Self::LeastCalls | Self::LeastTransactions | Self::LeastWork | Self::ResponseTime)
    }

    /// Returns whether a higher weight gets more requests.
    #[must_use]
    pub const fn uses_weights(self) -> bool {
        self.is_by_load() || matches!(self, Self::Hash | Self::Weighted | Self::Random)
    }

    /// Returns whether it uses the [`Key`].
    #[must_use]
    pub const fn is_by_key(self) -> bool {
        matches!(self, Self::Hash | Self::Fnv | Self::Bernstein | Self::Sha1 | Self::Openser | Self::Range)
    }
}

/// The part of a request that hash policies use; the caller supplies its bytes in
/// [`SelectionInput::key`](crate::SelectionInput::key).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Key {
    /// The Call-ID.
    #[default]
    CallId,
    /// The address of record in From.
    From,
    /// The address of record in To.
    To,
    /// The user of the Request-URI.
    User,
    /// The address of record: of To in a REGISTER, otherwise of the Request-URI.
    Aor,
    /// The source IP address.
    Source,
}

impl Key {
    /// All keys.
    pub const ALL: [Self; 6] = [Self::CallId, Self::From, Self::To, Self::User, Self::Aor, Self::Source];

    /// Their names in the configuration.
    pub const NAMES: &'static str = "call-id, from, to, user, aor, source";

    /// Returns its name in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CallId => "call-id",
            Self::From => "from",
            Self::To => "to",
            Self::User => "user",
            Self::Aor => "aor",
            Self::Source => "source",
        }
    }
}

/// The targets that a [load policy](Policy::is_by_load) chooses between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Candidates {
    /// All targets.
    #[default]
    All,
    /// The two that a consistent hash of the Call-ID selects, so that another balancer can find nearly every call in
    /// setup without communication. Only if both have far more load than another target is that one selected.
    Two,
}

impl Candidates {
    /// Both values.
    pub const ALL: [Self; 2] = [Self::All, Self::Two];

    /// Their names in the configuration.
    pub const NAMES: &'static str = "all, two";

    /// Returns its name in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Two => "two",
        }
    }
}

/// The weights of transactions under [`Policy::LeastWork`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weights {
    /// As configured.
    Fixed(MethodWeights),
    /// As measured: the duration of transactions of each method at an otherwise idle target, relative to its BYE (or
    /// OPTIONS, if it gets no BYE). TLWL-1.75 until that is known.
    Adaptive,
}

impl Default for Weights {
    fn default() -> Self {
        Self::Fixed(MethodWeights::TLWL_1_75)
    }
}

/// The error for an unknown name in the configuration; [`Display`](fmt::Display) lists the valid ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownName {
    known: &'static str,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected one of {}", self.known)
    }
}

impl core::error::Error for UnknownName {}

/// Implements parsing and display of names for a type with `ALL`, `NAMES` and `as_str`.
macro_rules! named {
    ($name:ident) => {
        impl FromStr for $name {
            type Err = UnknownName;

            fn from_str(text: &str) -> Result<Self, UnknownName> {
                Self::ALL.into_iter().find(|each| each.as_str() == text).ok_or(UnknownName { known: Self::NAMES })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

named!(Policy);
named!(Key);
named!(Candidates);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_unknown_ones_list_the_choices() {
        fn check<T: FromStr<Err = UnknownName> + fmt::Display + PartialEq + fmt::Debug>(all: &[T]) {
            let names: Vec<String> = all.iter().map(ToString::to_string).collect();
            for (each, name) in all.iter().zip(&names) {
                assert_eq!(name.parse::<T>().as_ref(), Ok(each));
            }
            let told = "Hash".parse::<T>().expect_err("names are in lower case").to_string();
            assert_eq!(told, format!("expected one of {}", names.join(", ")));
        }
        check(&Policy::ALL);
        check(&Key::ALL);
        check(&Candidates::ALL);
    }

    #[test]
    fn a_policy_uses_the_key_or_load_or_neither() {
        let by_key = Policy::ALL.into_iter().filter(|policy| policy.is_by_key()).count();
        let by_load = Policy::ALL.into_iter().filter(|policy| policy.is_by_load()).count();
        assert_eq!((by_key, by_load), (6, 4));
        assert!(!Policy::ALL.into_iter().any(|policy| policy.is_by_key() && policy.is_by_load()));
    }
}
