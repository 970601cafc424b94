//! Importance of a request that begins something.

/// Class of a request that begins something, the most important first. Requests of a call in progress have no class;
/// they are never refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A call to `urn:service:sos` (RFC 5031), or one with a Resource-Priority (RFC 4412) from a source that may ask for it.
    Emergency,
    /// A REGISTER of an address that is registered from the same source.
    Refresh,
    /// A call from a trusted trunk.
    TrunkCall,
    /// Another call, from a [proven](crate::ProvenSources) source.
    Call,
    /// A REGISTER of an address that is not registered from the same source.
    Contact,
    /// Everything else: OPTIONS, SUBSCRIBE, MESSAGE and the like, calls from unproven sources, and requests beyond a
    /// source's fair share.
    #[default]
    Other,
}

/// Number of classes.
pub const CLASSES: usize = Class::ALL.len();

impl Class {
    /// All classes, the most important first.
    pub const ALL: [Self; 6] =
        [Self::Emergency, Self::Refresh, Self::TrunkCall, Self::Call, Self::Contact, Self::Other];

    /// Returns the name in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Emergency => "emergency",
            Self::Refresh => "refresh",
            Self::TrunkCall => "trunk-call",
            Self::Call => "call",
            Self::Contact => "contact",
            Self::Other => "other",
        }
    }

    /// Returns the class of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == name)
    }

    /// Returns the rank, 0 for the most important class.
    #[must_use]
    pub const fn rank(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_ordered_by_importance_and_names_round_trip() {
        assert!(Class::ALL.is_sorted());
        for (rank, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!((class.rank(), Class::from_name(class.as_str())), (rank, Some(class)));
        }
        assert_eq!(Class::from_name("new"), None);
    }
}
