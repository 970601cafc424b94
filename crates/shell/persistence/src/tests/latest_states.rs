//! Merging of journal records.

use super::*;
use crate::latest_states::{AtomicBitSet, LatestStates};
use strowger_registrar::record;

/// Returns a record that removes all bindings of an address.
fn removal(aor: &str) -> Vec<u8> {
    let len = u16::try_from(aor.len()).expect("short").to_be_bytes();
    [&[1], &len[..], aor.as_bytes(), &[0, 0]].concat()
}

#[test]
fn each_of_many_addresses_is_found() {
    let mut newest = LatestStates::default();
    assert_eq!((newest.len(), newest.get(b"a"), newest.contains(b"a")), (0, None, false));
    assert!(!newest.add(b"no record"));
    let aor = |number: usize| format!("{number}{}@example.com", "x".repeat(number * 7919 % 90));
    let count = 30_000;
    for number in 0..count {
        assert!(newest.add(&removal(&aor(number))));
    }
    assert_eq!(newest.len(), count);
    for number in 0..count {
        let aor = aor(number);
        assert_eq!(newest.get(aor.as_bytes()), Some((number, &*removal(&aor))));
    }
    assert!(!newest.contains(b"somebody@example.com"));
    assert!(newest.iter().map(|(aor, _)| aor.to_vec()).eq((0..count).map(|number| aor(number).into_bytes())));
    let place = |aor: &[u8]| aor[0] % 3;
    let sorted: Vec<_> = newest.sorted_by(place).collect();
    assert_eq!(sorted.len(), count);
    assert!(sorted.is_sorted_by_key(|(aor, _)| (place(aor), *aor)));
    assert!(sorted.iter().all(|(aor, state)| Record::parse(state).is_ok_and(|record| record.aor() == *aor)));
}

#[test]
fn latest_states_equal_the_sum_of_their_records() {
    let site = Site::new(Mode::WriteThrough);
    let server = site.start();
    let (mut newest, mut model) = (LatestStates::default(), BTreeMap::<Vec<u8>, Vec<u8>>::new());
    let mut kinds = BTreeSet::new();
    for step in 0..3_000_u32 {
        let mixed = u64::from(step + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let user = format!("u{}", mixed % 40);
        let headers = match mixed / 40 % 8 {
            0 => "Contact: *|Expires: 0".to_owned(),
            other => contact(u32::try_from(other * 1_000_000_u64.pow((other % 3) as u32)).unwrap_or(7)),
        };
        let record = server.stage(&user, step + 1, &headers);
        server.apply(&record);
        let parsed = Record::parse(&record).expect("a record");
        // The first records of some addresses are refreshes of states elsewhere.
        if model.is_empty() && !parsed.is_refresh() {
            continue;
        }
        kinds.insert((parsed.is_refresh(), parsed.is_removal()));
        assert!(newest.add(&record));
        let mut merged = Vec::new();
        let aor = parsed.aor().to_vec();
        record::merge(model.get(&aor).map(Vec::as_slice), &record, &mut merged);
        model.insert(aor, merged);
    }
    assert_eq!(kinds.len(), 3, "states, refreshes and removals");
    assert_eq!(newest.len(), model.len());
    for (aor, state) in &model {
        assert_eq!(newest.get(aor).expect("there").1, state);
    }
}

#[test]
fn bits_are_independent() {
    let marks = AtomicBitSet::new(130);
    [0, 63, 64, 129].into_iter().for_each(|number| marks.set(number));
    let marked: Vec<_> = (0..130).filter(|number| marks.has(*number)).collect();
    assert_eq!(marked, [0, 63, 64, 129]);
}
