//! How important a request is that begins something.

/// The class of a request that begins something; the first is served before all others. What belongs to a call in progress has no
/// class, for it is never refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A call to `urn:service:sos` (RFC 5031), or one with a Resource-Priority (RFC 4412) from a source that may ask for it.
    Emergency,
    /// A REGISTER of an address that is registered from the same source.
    Refresh,
    /// A call by a trusted trunk.
    TrunkCall,
    /// Another call, by a source that has [proven](crate::ProvenSources) that it is there.
    Call,
    /// A REGISTER of an address that is not registered from that source.
    Contact,
    /// The rest: OPTIONS, SUBSCRIBE, MESSAGE and the like, calls by sources that have proven nothing, and what a source sends
    /// beyond its share.
    #[default]
    Other,
}

/// How many classes there are.
pub const CLASSES: usize = Class::ALL.len();

impl Class {
    /// All classes, the most important first.
    pub const ALL: [Self; 6] =
        [Self::Emergency, Self::Refresh, Self::TrunkCall, Self::Call, Self::Contact, Self::Other];

    /// The name in the configuration.
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

    /// The class of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == name)
    }

    /// Its place in the order, 0 for the most important.
    #[must_use]
    pub const fn rank(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_importance_and_names_are_found_again() {
        assert!(Class::ALL.is_sorted());
        for (rank, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!((class.rank(), Class::from_name(class.as_str())), (rank, Some(class)));
        }
        assert_eq!(Class::from_name("new"), None);
    }
}
