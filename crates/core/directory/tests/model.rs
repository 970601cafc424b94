//! The directory against a simple model, over many versions.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use strowger_directory::{Directory, DirectoryChange, Gateway, Ha1s, User};

/// A few addresses, so that changes collide; one is not valid text.
const ADDRESSES: [&[u8]; 8] = [
    b"alice@example.com",
    b"bob@example.com",
    b"bob@example.org",
    b"Bob@example.com",
    b"+4312345@[2001:db8::1]",
    b"reception@example.com",
    b"\xff\x00@example.com",
    b"@",
];

const SETS: [&[u8]; 3] = [b"pstn", b"PSTN", b"mobile"];

/// Set, priority and URI.
type Rank = (Box<[u8]>, u16, Box<[u8]>);

#[derive(Clone, Default)]
struct Model {
    users: BTreeMap<Box<[u8]>, User>,
    aliases: BTreeMap<Box<[u8]>, Box<[u8]>>,
    gateways: BTreeMap<Rank, Gateway>,
}

impl Model {
    fn apply(&mut self, change: DirectoryChange) {
        match change {
            DirectoryChange::PutUser(user) => drop(self.users.insert(user.aor.clone(), user)),
            DirectoryChange::RemoveUser(aor) => drop(self.users.remove(&aor)),
            DirectoryChange::PutAlias { alias, aor } => drop(self.aliases.insert(alias, aor)),
            DirectoryChange::RemoveAlias(alias) => drop(self.aliases.remove(&alias)),
            DirectoryChange::PutGateways { set, gateways } => {
                self.gateways.retain(|(name, ..), _| *name != set);
                let rows = gateways.into_iter();
                self.gateways
                    .extend(rows.map(|gateway| ((set.clone(), gateway.priority, gateway.uri.clone()), gateway)));
            }
        }
    }

    fn check(&self, directory: &Directory) {
        directory.check_invariants();
        assert_eq!(directory.users(), self.users.len());
        assert_eq!(directory.aliases(), self.aliases.len());
        for address in ADDRESSES {
            assert_eq!(directory.user(address), self.users.get(address));
            assert_eq!(directory.resolve(address), self.aliases.get(address).map_or(address, |aor| &**aor));
        }
        for set in SETS {
            let members = self.gateways.iter().filter(|((name, ..), _)| **name == *set).map(|(_, gateway)| gateway);
            assert!(members.eq(directory.gateways().members(set)));
        }
        let rows = directory.gateways().sets().map(|(_, members)| members.len()).sum::<usize>();
        assert_eq!(rows, self.gateways.len());
    }
}

fn address() -> impl Strategy<Value = Box<[u8]>> {
    (0..ADDRESSES.len()).prop_map(|index| ADDRESSES[index].into())
}

fn change() -> impl Strategy<Value = DirectoryChange> {
    let user = (address(), any::<u8>(), any::<bool>()).prop_map(|(aor, byte, enabled)| {
        DirectoryChange::PutUser(User { aor, ha1: Ha1s { md5: Some([byte; 16]), ..Ha1s::default() }, enabled })
    });
    let gateway = |(index, priority, enabled): (u8, u16, bool)| {
        let uri = format!("sip:192.0.2.{index}").into_bytes().into();
        Gateway { uri, priority, weight: 1, capacity: None, enabled }
    };
    let members = proptest::collection::btree_map(any::<u8>(), (0..3_u16, any::<bool>()), 0..4);
    let set = ((0..SETS.len()), members).prop_map(move |(set, members)| DirectoryChange::PutGateways {
        set: SETS[set].into(),
        gateways: members.into_iter().map(|(index, (priority, enabled))| gateway((index, priority, enabled))).collect(),
    });
    prop_oneof![
        3 => user,
        2 => set,
        2 => address().prop_map(DirectoryChange::RemoveUser),
        3 => (address(), address()).prop_map(|(alias, aor)| DirectoryChange::PutAlias { alias, aor }),
        2 => address().prop_map(DirectoryChange::RemoveAlias),
    ]
}

proptest! {
    #[test]
    fn each_version_matches_its_model(seed: u64, batches in vec(vec(change(), 0..12), 1..12)) {
        let mut versions = vec![(Directory::empty(seed), Model::default())];
        for batch in batches {
            let (directory, model) = versions.last().expect("never empty");
            let next = directory.with_changes(batch.iter().cloned());
            let mut model = model.clone();
            batch.into_iter().for_each(|change| model.apply(change));
            versions.push((next, model));
        }
        for (directory, model) in &versions {
            model.check(directory);
        }
    }
}

#[test]
fn an_alias_is_followed_once() {
    let leads = |alias: &[u8], aor: &[u8]| DirectoryChange::PutAlias { alias: alias.into(), aor: aor.into() };
    let directory =
        Directory::empty(9).with_changes([leads(b"a@x", b"b@x"), leads(b"b@x", b"a@x"), leads(b"c@x", b"c@x")]);
    assert_eq!(directory.resolve(b"a@x"), b"b@x");
    assert_eq!(directory.resolve(b"b@x"), b"a@x");
    assert_eq!(directory.resolve(b"c@x"), b"c@x");
    assert_eq!(directory.resolve(b"d@x"), b"d@x");
}
