//! The states of all addresses, copied while the table changes.

mod common;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use common::{at_s, read, register, source};
use strowger_foundation::{ShardId, Timestamp};
use strowger_registrar::{Locations, Policy, Record};

const ADDRESSES: u32 = 3000;

fn aor(number: u32) -> Vec<u8> {
    format!("u{number}@example.com").into_bytes()
}

fn bind(locations: &Locations, now: Timestamp, number: u32, cseq: u32, contacts: &str) {
    read(&register("a", cseq, contacts), |update| {
        let update = update.expect("valid");
        locations.apply(now, &aor(number), &Policy::default(), &source("192.0.2.1:5060"), &update).expect("applied");
    });
}

/// Two contacts for every address, one of which expires long before the other.
fn table() -> Locations {
    let address: SocketAddr = "192.0.2.100:5060".parse().expect("an address");
    let locations = Locations::new(3, 7).with_listeners([(strowger_foundation::Transport::Udp, address)]);
    for (cseq, name, expires) in [(1, "long", 7200), (2, "short", 60)] {
        for number in 0..ADDRESSES {
            bind(&locations, at_s(0), number, cseq, &format!("Contact: <sip:{name}@192.0.2.1>;expires={expires}"));
        }
    }
    locations
}

/// Returns how often each address comes up, and its last state; `between` is called after each.
fn states(
    locations: &Locations,
    now: Timestamp,
    mut between: impl FnMut(usize),
) -> BTreeMap<Vec<u8>, (usize, Vec<u8>)> {
    let (mut found, mut count) = (BTreeMap::<Vec<u8>, (usize, Vec<u8>)>::new(), 0);
    locations.for_each_state(now, |state| {
        let aor = Record::parse(state).expect("a record").aor().to_vec();
        let entry = found.entry(aor).or_default();
        (entry.0, entry.1) = (entry.0 + 1, state.to_vec());
        count += 1;
        between(count);
    });
    found
}

#[test]
fn an_idle_table_is_listed_fully() {
    let locations = table();
    let found = states(&locations, at_s(1), |_| {});
    assert_eq!(found.len(), ADDRESSES as usize);
    assert!(found.values().all(|(_, state)| {
        state.windows(4).any(|word| word == b"long") && state.windows(5).any(|word| word == b"short")
    }));
    assert!(states(&locations, at_s(7200), |_| {}).is_empty(), "what has expired is not shown");
}

#[test]
fn the_next_process_takes_over_all_states_with_their_connections() {
    let locations = table();
    let address: SocketAddr = "192.0.2.100:5060".parse().expect("an address");
    let connection = strowger_foundation::ConnId::new(0, 1, 1);
    let flow = strowger_foundation::Flow {
        connection: Some(connection),
        ..strowger_foundation::Flow::new(
            strowger_foundation::ListenerId(0),
            strowger_foundation::Transport::Tcp,
            "192.0.2.9:7000".parse().expect("an address"),
        )
    };
    let phone = aor(ADDRESSES);
    read(&register("phone", 1, "Contact: <sip:phone@192.0.2.9>;expires=600"), |update| {
        let source = strowger_registrar::Source { flow, ..source("192.0.2.9:7000") };
        locations.apply(at_s(0), &phone, &Policy::default(), &source, &update.expect("valid")).expect("applied");
    });
    let next = Locations::new(3, 7).with_listeners([(strowger_foundation::Transport::Udp, address)]);
    next.set_store_origin(locations.store_origin());
    locations.for_each_state(at_s(100), |state| {
        next.take_over(at_s(100), &Policy::default(), &Record::parse(state).expect("a record"));
    });
    next.check_invariants();
    assert_eq!(next.addresses(), ADDRESSES as usize + 1, "each has the contact that has not expired");
    let targets = |locations: &Locations, aor: &[u8]| {
        let mut found = Vec::new();
        locations.lookup(at_s(100), aor, &mut found);
        found
    };
    for number in [0, 1, ADDRESSES - 1, ADDRESSES] {
        assert_eq!(targets(&next, &aor(number)), targets(&locations, &aor(number)));
    }
    assert_eq!(targets(&next, &phone).first().and_then(|target| target.flow.connection), Some(connection));
    // An update in order goes on where the other process was.
    read(&register("phone", 1, "Contact: <sip:phone@192.0.2.9>;expires=600"), |update| {
        let source = strowger_registrar::Source { flow, ..source("192.0.2.9:7000") };
        let update = update.expect("valid");
        assert!(next.apply(at_s(101), &phone, &Policy::default(), &source, &update).is_err(), "it is not newer");
    });
}

#[test]
fn unchanged_bindings_are_listed_despite_other_changes() {
    let locations = table();
    let mut forgotten = Vec::new();
    // The table can be used in between: bindings expire and users come and go, which moves all others.
    let found = states(&locations, at_s(100), |count| {
        for shard in 0..3 {
            locations.expire(at_s(100), ShardId(shard), 2);
        }
        let number = u32::try_from(count).expect("few") * 7 % ADDRESSES;
        if count % 3 == 0 {
            locations.remove_address(at_s(100), &aor(number), &mut Vec::new());
            forgotten.push(aor(number));
        } else if count % 3 == 1 {
            let cseq = u32::try_from(count).expect("few");
            bind(&locations, at_s(100), ADDRESSES + number, cseq, "Contact: <sip:new@192.0.2.1>");
        }
    });
    locations.check_invariants();
    let stayed: Vec<Vec<u8>> = (0..ADDRESSES).map(aor).filter(|aor| !forgotten.contains(aor)).collect();
    assert!(stayed.len() > 1000 && forgotten.len() > 500);
    for aor in stayed {
        let (_, state) = found.get(&aor).unwrap_or_else(|| panic!("{} is missing", String::from_utf8_lossy(&aor)));
        assert!(state.windows(4).any(|word| word == b"long"));
    }
}
