//! Gateways: next hops of calls to foreign domains, in sets that routes name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A member of a gateway set.
#[derive(Clone, PartialEq, Eq)]
pub struct Gateway {
    /// SIP URI of the gateway, as written.
    pub uri: Box<[u8]>,
    /// Priority; lower first (RFC 2782).
    pub priority: u16,
    /// Share of calls among members of the same priority (RFC 2782).
    pub weight: u16,
    /// Maximum number of simultaneous calls; `None` for no limit. Used by the balancer; routing ignores it.
    pub capacity: Option<u32>,
    /// Whether it takes calls. A disabled gateway keeps its row.
    pub enabled: bool,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway")
            .field("uri", &format_args!("{}", self.uri.escape_ascii()))
            .field("priority", &self.priority)
            .field("weight", &self.weight)
            .field("capacity", &self.capacity)
            .field("enabled", &self.enabled)
            .finish()
    }
}

/// Members, ordered by priority.
type Members = Arc<[Gateway]>;

/// All gateway sets with their members. Cloning copies a pointer.
#[derive(Clone, Debug, Default)]
pub struct Gateways {
    by_name: Arc<BTreeMap<Box<[u8]>, Members>>,
}

impl Gateways {
    /// Returns the members of a set, enabled or not, lower priorities first. Empty if there is no such set.
    #[must_use]
    pub fn members(&self, set: &[u8]) -> &[Gateway] {
        self.by_name.get(set).map_or(&[], |members| members)
    }

    /// Returns the sets by name, each with its members.
    pub fn sets(&self) -> impl Iterator<Item = (&[u8], &[Gateway])> {
        self.by_name.iter().map(|(name, members)| (&**name, &**members))
    }

    /// Replaces all members of a set atomically. An empty list removes the set.
    pub fn put(&mut self, set: Box<[u8]>, mut members: Vec<Gateway>) {
        // There are a few dozen sets, and changes are rare.
        let by_name = Arc::make_mut(&mut self.by_name);
        if members.is_empty() {
            by_name.remove(&set);
            return;
        }
        members.sort_by(|a, b| (a.priority, &a.uri).cmp(&(b.priority, &b.uri)));
        by_name.insert(set, members.into());
    }

    pub(crate) fn check_invariants(&self) {
        for (set, members) in self.sets() {
            assert!(!set.is_empty() && !members.is_empty(), "a set without a name or without a member");
            let in_order = members.windows(2).all(|pair| match pair {
                [a, b] => (a.priority, &a.uri) < (b.priority, &b.uri),
                _ => true,
            });
            assert!(in_order, "a set out of order, or with a member twice");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Directory, DirectoryChange};

    fn gateway(uri: &str, priority: u16) -> Gateway {
        Gateway { uri: uri.as_bytes().into(), priority, weight: 1, capacity: None, enabled: true }
    }

    fn put(set: &str, gateways: &[Gateway]) -> DirectoryChange {
        DirectoryChange::PutGateways { set: set.as_bytes().into(), gateways: gateways.to_vec() }
    }

    fn uris<'a>(directory: &'a Directory, set: &str) -> Vec<&'a [u8]> {
        directory.gateways().members(set.as_bytes()).iter().map(|gateway| &*gateway.uri).collect()
    }

    #[test]
    fn a_set_is_replaced_whole_and_ordered_by_priority() {
        let empty = Directory::empty(1);
        let first = empty.with_changes([put("pstn", &[gateway("sip:b", 1), gateway("sip:c", 0), gateway("sip:a", 1)])]);
        assert_eq!(uris(&first, "pstn"), [&b"sip:c"[..], b"sip:a", b"sip:b"]);
        assert!(uris(&first, "PSTN").is_empty(), "names are compared as they are");
        let second = first.with_changes([put("pstn", &[gateway("sip:d", 9)]), put("mobile", &[gateway("sip:e", 0)])]);
        assert_eq!((uris(&second, "pstn"), uris(&second, "mobile")), (vec![&b"sip:d"[..]], vec![&b"sip:e"[..]]));
        assert_eq!(uris(&first, "pstn").len(), 3, "the version before stays as it was");
        assert_eq!(second.gateways().sets().map(|(set, _)| set).collect::<Vec<_>>(), [&b"mobile"[..], b"pstn"]);
        second.check_invariants();
        let third = second.with_changes([put("pstn", &[])]);
        assert!(third.gateways().members(b"pstn").is_empty() && third.gateways().sets().count() == 1);
        assert!(empty.gateways().sets().next().is_none());
    }

    #[test]
    fn user_changes_do_not_touch_sets() {
        let before = Directory::empty(1).with_changes([put("pstn", &[gateway("sip:a", 0)])]);
        let after = before.with_changes([DirectoryChange::RemoveAlias((*b"nobody@example.com").into())]);
        assert!(std::ptr::eq(before.gateways().members(b"pstn"), after.gateways().members(b"pstn")));
    }

    #[test]
    fn debug_is_readable() {
        let shown = format!("{:?}", put("pstn", &[Gateway { capacity: Some(30), ..gateway("sip:a\n", 2) }]));
        assert_eq!(
            shown,
            r"PutGateways(pstn: [Gateway { uri: sip:a\n, priority: 2, weight: 1, capacity: Some(30), enabled: true }])"
        );
    }
}
