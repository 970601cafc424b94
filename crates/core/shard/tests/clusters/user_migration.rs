//! Users who move from one cluster to another: servers learn of it one after the other, and phones register again one
//! by one. Calls succeed meanwhile, and no phone is called twice.

use std::time::Duration;

use crate::network::{A, B, C, Network, Plan, S1, S2, Weights, address, user};
use crate::phone::{Phone, only, requests, statuses, summary};

/// A cluster that is added, one that is removed, and one with a higher weight, each with the old and new cluster of
/// the user.
const MOVES: [(Weights, usize, Weights, usize); 3] = [
    ([100, 100, 0], A, [100, 100, 100], C),
    ([100, 100, 100], C, [100, 100, 0], B),
    ([100, 100, 100], B, [100, 100, 300], C),
];

/// The servers that know of the move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NotifiedServers {
    first: bool,
    old: bool,
    new: bool,
}

impl NotifiedServers {
    const ALL: Self = Self { first: true, old: true, new: true };

    fn combinations() -> impl Iterator<Item = Self> {
        (0..8_u8).map(|bits| Self { first: bits & 1 != 0, old: bits & 2 != 0, new: bits & 4 != 0 })
    }
}

/// A user who moves, with two phones.
struct Move {
    network: Network,
    plans: [Plan; 2],
    old: usize,
    new: usize,
    desk_phone: Phone,
    soft_phone: Phone,
    caller: Phone,
}

impl Move {
    /// Starts before any server knows of the move.
    fn new((before, old, now, new): (Weights, usize, Weights, usize)) -> Self {
        let plans = [Plan::settled(before), Plan::moving(before, now)];
        let name = user(before, old, now, new);
        let network = Network::new(plans[0], |_, _| ());
        let caller = Phone::new(&user(before, A, now, A), 10);
        Self { network, plans, old, new, desk_phone: Phone::new(&name, 20), soft_phone: Phone::new(&name, 21), caller }
    }

    fn tell(&mut self, told: NotifiedServers) {
        let Self { network, plans, old, new, .. } = self;
        for (servers, told) in [(&[S1, S2][..], told.first), (&[*old][..], told.old), (&[*new][..], told.new)] {
            network.replan(servers, plans[usize::from(told)]);
        }
    }

    /// Calls the user. All phones that ring are busy; returns which of the two rang, and the caller's responses.
    fn call(&mut self) -> ([bool; 2], Vec<u16>) {
        let uri = format!("sip:{}@example.com", self.desk_phone.user);
        let mut arrived = self.caller.call(&mut self.network, S1, &uri);
        let mut told = statuses(&arrived, &self.caller);
        let rung = [&self.desk_phone, &self.soft_phone].map(|phone| requests(&arrived, "INVITE", phone).len());
        assert!(rung.iter().all(|count| *count <= 1), "a phone is called twice: {}", summary(&arrived));
        arrived.retain(|arrived| arrived.sent.method() == "INVITE");
        assert_eq!(arrived.len(), rung.iter().sum::<usize>(), "nobody else is called: {}", summary(&arrived));
        for invite in &arrived {
            let more = self.network.answer(invite, 486, "");
            assert!(more.iter().all(|more| more.sent.method() != "INVITE"), "called again: {}", summary(&more));
            told.extend(statuses(&more, &self.caller));
        }
        // The ACKs are not forwarded further; the caller's are not tested here.
        (rung.map(|count| count == 1), told)
    }
}

/// The events before a call.
struct Case {
    name: &'static str,
    /// Events before any server knows of the move, or after all do.
    begin: fn(&mut Move),
    /// Events once some servers know.
    go_on: fn(&mut Move),
    /// Which phones ring: the desk phone and the soft phone.
    rings: [bool; 2],
    /// Combinations in which this cannot hold.
    except: fn(NotifiedServers) -> bool,
}

const fn never(_: NotifiedServers) -> bool {
    false
}

/// Whether the cluster asked first, or the one that it asks, takes the old owner for the owner, and that one does not
/// know the new one.
const fn nobody_knows_the_new_owner(told: NotifiedServers) -> bool {
    !told.old && (!told.first || !told.new)
}

const CASES: [Case; 9] = [
    Case {
        name: "registered before",
        begin: |case| drop(case.desk_phone.is_registered(&mut case.network, S2)),
        go_on: |_| (),
        rings: [true, false],
        except: never,
    },
    Case {
        name: "registered before and again",
        begin: |case| drop(case.desk_phone.is_registered(&mut case.network, S2)),
        go_on: |case| drop(case.desk_phone.is_registered(&mut case.network, S2)),
        rings: [true, false],
        except: never,
    },
    Case {
        name: "registered now",
        begin: |_| (),
        go_on: |case| drop(case.desk_phone.is_registered(&mut case.network, S2)),
        rings: [true, false],
        except: never,
    },
    Case {
        name: "one phone registered before, the other now",
        begin: |case| drop(case.desk_phone.is_registered(&mut case.network, S2)),
        go_on: |case| drop(case.soft_phone.is_registered(&mut case.network, S2)),
        rings: [true, true],
        except: never,
    },
    Case {
        name: "one of two phones registered again",
        begin: |case| {
            case.desk_phone.is_registered(&mut case.network, S2);
            case.soft_phone.is_registered(&mut case.network, S1);
        },
        go_on: |case| drop(case.soft_phone.is_registered(&mut case.network, S2)),
        rings: [true, true],
        except: never,
    },
    Case {
        name: "registered before and unregistered",
        begin: |case| drop(case.desk_phone.is_registered(&mut case.network, S2)),
        go_on: |case| case.desk_phone.unregister(&mut case.network, S2),
        rings: [false, false],
        except: never,
    },
    Case {
        name: "registered before, again, and unregistered",
        begin: |case| {
            case.desk_phone.is_registered(&mut case.network, S2);
            case.soft_phone.is_registered(&mut case.network, S2);
        },
        go_on: |case| {
            case.desk_phone.is_registered(&mut case.network, S2);
            case.desk_phone.unregister(&mut case.network, S1);
        },
        rings: [false, true],
        except: never,
    },
    Case {
        name: "moved to another address with the instance that it had",
        begin: |case| {
            case.desk_phone.params = ";+sip.instance=\"<urn:uuid:desk-phone>\"".to_owned();
            case.desk_phone.is_registered(&mut case.network, S2);
        },
        go_on: |case| {
            case.desk_phone.address = "192.0.2.29:5060".to_owned();
            case.desk_phone.is_registered(&mut case.network, S2);
        },
        rings: [true, false],
        except: never,
    },
    Case {
        name: "registered when all had been told, and some have forgotten",
        begin: |case| {
            case.tell(NotifiedServers::ALL);
            case.desk_phone.is_registered(&mut case.network, S2);
        },
        go_on: |_| (),
        rings: [true, false],
        except: nobody_knows_the_new_owner,
    },
];

#[test]
fn calls_succeed_while_only_some_servers_are_notified() {
    for this in MOVES {
        for Case { name, begin, go_on, rings, except } in &CASES {
            for told in NotifiedServers::combinations() {
                let mut case = Move::new(this);
                begin(&mut case);
                case.network.wait(Duration::from_secs(40));
                case.tell(told);
                go_on(&mut case);
                let found = case.call();
                let rings = if except(told) { [false, false] } else { *rings };
                let status = if rings == [false, false] { 480 } else { 486 };
                assert_eq!(found, (rings, vec![status]), "{name}; {this:?}; {told:?}");
            }
        }
    }
}

/// If both owners know, for every server of the first stage and every member.
#[test]
fn any_member_reaches_a_user_who_has_moved() {
    for this in MOVES {
        for through in [A, B, C, S1] {
            let mut case = Move::new(this);
            case.desk_phone.is_registered(&mut case.network, S2);
            case.tell(NotifiedServers::ALL);
            case.network.replan(&[A, B, C], case.plans[1]);
            case.soft_phone.is_registered(&mut case.network, through);
            let uri = format!("sip:{}@example.com", case.desk_phone.user);
            let arrived = case.caller.call(&mut case.network, through, &uri);
            for phone in [&case.desk_phone, &case.soft_phone] {
                assert_eq!(requests(&arrived, "INVITE", phone).len(), 1, "{this:?} {through}: {}", summary(&arrived));
            }
        }
    }
}

/// The old owner is dead, and nothing has told the new one.
#[test]
fn a_dead_old_owner_delays_no_call() {
    for this in MOVES {
        let mut case = Move::new(this);
        case.desk_phone.is_registered(&mut case.network, S2);
        case.tell(NotifiedServers::ALL);
        let old = case.old;
        case.network.kill(old);
        let uri = format!("sip:{}@example.com", case.desk_phone.user);
        if old == A {
            // It would serve the caller too, who has not moved.
            case.caller.user = user(this.0, B, this.2, B);
        }
        let arrived = case.caller.call(&mut case.network, S1, &uri);
        assert_eq!(requests(&arrived, "INVITE", &case.desk_phone).len(), 0);
        let arrived = case.network.wait(Duration::from_secs(3));
        assert_eq!(statuses(&arrived, &case.caller), [480], "{}", summary(&arrived));

        case.desk_phone.is_registered(&mut case.network, S2);
        let arrived = case.caller.call(&mut case.network, S1, &uri);
        let invite = only(&arrived, "INVITE", &case.desk_phone);
        let arrived = case.network.answer(&invite, 200, &format!("Contact: <{}>\r\n", case.desk_phone.contact()));
        assert_eq!(statuses(&arrived, &case.caller), [200], "at once");
        let arrived = case.caller.call(&mut case.network, S1, &uri);
        let invite = only(&arrived, "INVITE", &case.desk_phone);
        let mut arrived = case.network.answer(&invite, 486, "");
        arrived.extend(case.network.wait(Duration::from_secs(5)));
        assert_eq!(statuses(&arrived, &case.caller).first(), Some(&486), "{}", summary(&arrived));
        assert!(arrived.iter().all(|arrived| arrived.sent.to != address(old)));
    }
}

/// A phone removes its bindings at two clusters.
#[test]
fn a_removal_is_passed_on_only_once() {
    for told in NotifiedServers::combinations() {
        let mut case = Move::new(MOVES[0]);
        case.desk_phone.is_registered(&mut case.network, S2);
        case.tell(told);
        case.desk_phone.unregister(&mut case.network, S2);
        let passed: u64 = case.network.servers.iter().map(|world| world.shard.counters().removals_forwarded).sum();
        assert!(passed <= 1, "{told:?}: {passed}");
        case.network.settle();
    }
}
