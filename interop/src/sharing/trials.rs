//! The same calls over each kind of load sharing, and their outcome.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use crate::sharing::phone::{PATIENCE as CALLERS_PATIENCE, Phone};
use crate::sharing::testbed::{PHONES, SERVERS, USERS};
use crate::sharing::{Deployment, Kind, Setup, Testbed};
use crate::{AnswerBehavior, PATIENCE, poll};

/// Number of phones in most trials. The next constant is for trials that add or remove a server.
const PHONES_AT_ONCE: usize = 12;
const PHONES_BEFORE: usize = 36;
/// Number of calls counted for the shares, followed by the number of threads that make them.
const SHARED_CALLS: usize = 480;
const THREADS: usize = 8;
/// Time allowed for the answer to each of these calls.
const SHARE_PATIENCE: Duration = Duration::from_millis(300);
/// The forty most common given names in the USA over the last hundred years. Each callee is one of them with a
/// number.
const NAMES: [&str; 40] = [
    "james",
    "mary",
    "michael",
    "patricia",
    "robert",
    "jennifer",
    "john",
    "linda",
    "david",
    "elizabeth",
    "william",
    "barbara",
    "richard",
    "susan",
    "joseph",
    "jessica",
    "thomas",
    "karen",
    "christopher",
    "sarah",
    "charles",
    "lisa",
    "daniel",
    "nancy",
    "matthew",
    "sandra",
    "anthony",
    "ashley",
    "mark",
    "emily",
    "steven",
    "kimberly",
    "donald",
    "betty",
    "andrew",
    "margaret",
    "joshua",
    "donna",
    "paul",
    "michelle",
];

/// Number of calls that stayed at one server, and that worked as a user expects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Calls that stayed at one server.
    pub kept: usize,
    /// Calls that worked.
    pub worked: usize,
    /// All calls.
    pub of: usize,
}

/// Results of one kind of load sharing in all trials.
#[derive(Clone, Debug)]
pub struct Row {
    /// Kind of load sharing.
    pub kind: Kind,
    /// Calls at each of the first three servers.
    pub share: [usize; 3],
    /// Retransmitted INVITEs.
    pub retransmitted: Count,
    /// CANCELs of ringing calls.
    pub cancelled: Count,
    /// Makes calls with a re-INVITE and a BYE.
    pub dialog: Count,
    /// The same after the phone's source port has changed.
    pub rebound: Count,
    /// Calls on one TCP connection each.
    pub connection: Count,
    /// Calls to registered users, with servers that do not share registrations.
    pub registered_alone: Count,
    /// Calls to registered users, with servers that share registrations.
    pub registered_members: Count,
    /// Requests within calls that were in progress when a server was added.
    pub calls_when_added: Count,
    /// The next call of each phone to the same user after a server was added.
    pub users_when_added: Count,
    /// BYEs of calls at a dead server.
    pub calls_of_dead: Count,
    /// New calls while the dead server is still in use.
    pub new_while_dead: Count,
    /// New calls of earlier phones after the dead server has been removed.
    pub new_without_dead: Count,
    /// Calls to users registered before that, with servers that do not share registrations.
    pub users_alone: Count,
    /// Calls to users registered before that, with servers that share registrations.
    pub users_members: Count,
}

impl Row {
    /// Runs all trials.
    ///
    /// # Panics
    /// If a program does not start or a command fails.
    #[must_use]
    pub fn of(kind: Kind) -> Row {
        let [registered_alone, users_alone] = Row::of_servers_alone(kind);
        let mut way = kind.start(true);
        let mut trial = Trial::new(&mut *way);
        let share = trial.share();
        let [retransmitted, cancelled] = [trial.retransmitted(), trial.cancelled()];
        let [dialog, rebound, connection] = [trial.dialog(), trial.rebound(), trial.connection()];
        let registered_members = trial.registered(true);
        let [calls_when_added, users_when_added] = trial.added();
        let [calls_of_dead, new_while_dead, new_without_dead] = trial.dies();
        let users_members = trial.call_users();
        Row {
            kind,
            share,
            retransmitted,
            cancelled,
            dialog,
            rebound,
            connection,
            registered_alone,
            registered_members,
            calls_when_added,
            users_when_added,
            calls_of_dead,
            new_while_dead,
            new_without_dead,
            users_alone,
            users_members,
        }
    }

    /// Calls registered users at servers that share no registrations, before and after the first server has died and
    /// been removed.
    fn of_servers_alone(kind: Kind) -> [Count; 2] {
        let mut way = kind.start(false);
        let registered = Trial::new(&mut *way).registered(false);
        way.site_mut().kill(0);
        way.serve_with(&(1..SERVERS - 1).collect::<Vec<_>>());
        [registered, Trial::new(&mut *way).call_users()]
    }
}

/// Trials of a running deployment.
pub struct Trial<'a> {
    way: &'a mut dyn Deployment,
    patience: Duration,
}

impl<'a> Trial<'a> {
    /// Creates trials whose callers give up soon, so that failures take little time.
    #[must_use]
    pub fn new(way: &'a mut dyn Deployment) -> Trial<'a> {
        Trial { way, patience: CALLERS_PATIENCE }
    }

    /// Creates trials whose callers wait longer, for calls that must succeed on a busy machine.
    #[must_use]
    pub fn patient(way: &'a mut dyn Deployment) -> Trial<'a> {
        Trial { way, patience: PATIENCE }
    }

    /// Makes calls from many phones to many users and returns the number at each server.
    #[must_use]
    pub fn share(&self) -> [usize; 3] {
        let mut phones = self.phones(SHARED_CALLS);
        let call = |(number, phone): (usize, &mut Phone)| {
            phone.patience = SHARE_PATIENCE;
            // Another trial checks whether the call succeeds.
            let _ = phone.call(&callee(number));
        };
        let size = SHARED_CALLS / THREADS;
        thread::scope(|scope| {
            for (turn, some) in phones.chunks_mut(size).enumerate() {
                scope.spawn(move || (turn * size..).zip(some).for_each(call));
            }
        });
        let servers = self.servers_of(&phones);
        [0, 1, 2].map(|server| servers.iter().filter(|one| **one == Some(server)).count())
    }

    /// Stops the servers until each INVITE has been sent twice.
    #[must_use]
    pub fn retransmitted(&self) -> Count {
        let site = self.way.site();
        let before = site.arrivals.count("INVITE");
        site.members.iter().for_each(|member| member.server.stop());
        let mut phones = self.phones(PHONES_AT_ONCE);
        let answers = thread::scope(|scope| {
            let calls = scope.spawn(|| each(&mut phones, |number, phone| phone.call(&callee(number))));
            let wanted = before + 2 * PHONES_AT_ONCE;
            let all_came = poll(PATIENCE, || (site.arrivals.count("INVITE") >= wanted).then_some(()));
            site.members.iter().for_each(|member| member.server.go_on());
            assert!(all_came.is_some(), "not every INVITE came twice");
            calls.join().expect("a phone does not panic")
        });
        let kept = |phone: &Phone| at_one_server(site, phone, &["INVITE"]);
        count(site, &phones, kept, answers.into_iter().map(|answer| answer == Some(200)))
    }

    /// Cancels ringing calls.
    #[must_use]
    pub fn cancelled(&self) -> Count {
        let site = self.way.site();
        let rings = AnswerBehavior { ring: 2 * PATIENCE, ..AnswerBehavior::default() };
        site.callees.iter().for_each(|callee| callee.behave(rings.clone()));
        let mut phones = self.phones(PHONES_AT_ONCE);
        let answers = each(&mut phones, |number, phone| phone.ring(&callee(number)).then(|| phone.cancel()).flatten());
        site.callees.iter().for_each(|callee| callee.behave(AnswerBehavior::default()));
        let kept = |phone: &Phone| at_one_server(site, phone, &["INVITE", "CANCEL"]);
        count(site, &phones, kept, answers.into_iter().map(|answer| answer == Some(487)))
    }

    /// Makes calls with a re-INVITE and a BYE.
    #[must_use]
    pub fn dialog(&self) -> Count {
        let site = self.way.site();
        let mut phones = self.phones(PHONES_AT_ONCE);
        let worked = each(&mut phones, |number, phone| is_whole_call(phone, number));
        count(site, &phones, |phone| at_one_server(site, phone, &["INVITE", "ACK", "BYE"]), worked)
    }

    /// Makes calls whose phone changes its source port after the answer.
    #[must_use]
    pub fn rebound(&self) -> Count {
        let site = self.way.site();
        let mut phones = self.phones(PHONES_AT_ONCE);
        let worked = each(&mut phones, |number, phone| {
            let is_answered = phone.call(&callee(number)) == Some(200);
            phone.rebind(&site.clients);
            is_answered && phone.request("INVITE") == Some(200) && phone.request("BYE") == Some(200)
        });
        count(site, &phones, |phone| at_one_server(site, phone, &["INVITE", "BYE"]), worked)
    }

    /// Makes calls on one TCP connection each.
    #[must_use]
    pub fn connection(&self) -> Count {
        let (site, patience) = (self.way.site(), self.patience);
        let call = |number: usize, entry: SocketAddr| {
            let mut phone = Phone::tcp(&site.clients, entry)?;
            phone.patience = patience;
            let worked = is_whole_call(&mut phone, number);
            site.arrivals.settle();
            Some((at_one_server(site, &phone, &["INVITE", "ACK", "BYE"]), worked))
        };
        let entries: Vec<_> = (0..PHONES_AT_ONCE).map(|number| (number, self.way.entry(number))).collect();
        let calls: Vec<_> = thread::scope(|scope| {
            let begin = |(number, entry)| scope.spawn(move || call(number, entry));
            let threads: Vec<_> = entries.into_iter().map(begin).collect();
            threads.into_iter().filter_map(|thread| thread.join().expect("a phone does not panic")).collect()
        });
        let [kept, worked] =
            [calls.iter().filter(|(kept, _)| *kept).count(), calls.iter().filter(|(_, worked)| *worked).count()];
        Count { kept, worked, of: PHONES_AT_ONCE }
    }

    /// Registers users and calls them.
    #[must_use]
    pub fn registered(&self, members: bool) -> Count {
        let site = self.way.site();
        let contact = |number: usize| site.callees[number % site.callees.len()].address();
        let mut phones = self.phones(USERS.len());
        let answers = each(&mut phones, |number, phone| phone.register(USERS[number], contact(number)));
        assert!(answers.iter().all(|answer| *answer == Some(200)), "not all could register: {answers:?}");
        if members {
            assert!(site.all_know(USERS.len() as u64), "members do not share what was registered");
        }
        site.arrivals.settle();
        let before: Vec<_> = phones.iter().map(|phone| site.arrivals.first(phone.call_id(), "REGISTER")).collect();
        let (callers, answers) = self.callers_of_users();
        site.arrivals.settle();
        let after = callers.iter().map(|phone| site.arrivals.first(phone.call_id(), "INVITE"));
        let kept = after.zip(before.into_iter().rev()).filter(|(after, before)| after == before).count();
        Count { kept, worked: successes(&answers), of: USERS.len() }
    }

    /// Adds a fourth server. Returns the counts of calls in progress, and of the next call of each phone to the same
    /// user.
    #[must_use]
    pub fn added(&mut self) -> [Count; 2] {
        let mut phones = self.phones(PHONES_BEFORE);
        each(&mut phones, |number, phone| phone.call(&callee(number)));
        let before: Vec<_> = self.servers_of(&phones);
        self.way.serve_with(&[0, 1, 2, 3]);
        let site = self.way.site();
        let worked = each(&mut phones, |_, phone| phone.request("INVITE") == Some(200));
        site.arrivals.settle();
        let now = phones.iter().map(|phone| site.arrivals.last(phone.call_id(), "INVITE"));
        let kept = now.zip(&before).filter(|(now, before)| now == *before).count();
        let calls = Count { kept, worked: worked.iter().filter(|one| **one).count(), of: PHONES_BEFORE };
        each(&mut phones, |_, phone| phone.request("BYE"));
        let answers = each(&mut phones, |number, phone| phone.call(&callee(number)));
        let kept = self.servers_of(&phones).iter().zip(&before).filter(|(now, before)| now == before).count();
        let worked = successes(&answers);
        self.way.serve_with(&[0, 1, 2]);
        [calls, Count { kept, worked, of: PHONES_BEFORE }]
    }

    /// Kills the first server. Returns the counts of its calls, of new calls while it is still in use, and of new
    /// calls of the same phones after it has been removed.
    #[must_use]
    pub fn dies(&mut self) -> [Count; 3] {
        let mut phones = self.phones(PHONES_BEFORE);
        each(&mut phones, |number, phone| phone.call(&callee(number)));
        let servers = self.servers_of(&phones);
        self.way.site_mut().kill(0);
        let worked = each(&mut phones, |number, phone| {
            let was_there = servers[number] == Some(0);
            was_there.then(|| phone.request("BYE") == Some(200))
        });
        let of_dead: Vec<bool> = worked.into_iter().flatten().collect();
        let calls = Count { kept: 0, worked: of_dead.iter().filter(|one| **one).count(), of: of_dead.len() };
        let mut others = self.phones(PHONES_BEFORE);
        let answers = each(&mut others, |number, phone| phone.call(&callee(number)));
        let new = Count { kept: 0, worked: successes(&answers), of: PHONES_BEFORE };
        self.way.serve_with(&(1..SERVERS - 1).collect::<Vec<_>>());
        let answers = each(&mut phones, |number, phone| phone.call(&callee(number)));
        [calls, new, Count { kept: 0, worked: successes(&answers), of: PHONES_BEFORE }]
    }

    /// Calls all registered users.
    #[must_use]
    pub fn call_users(&self) -> Count {
        let (_, answers) = self.callers_of_users();
        Count { kept: 0, worked: successes(&answers), of: USERS.len() }
    }

    /// Calls the users, the last one first. Returns the callers and the status of each call.
    fn callers_of_users(&self) -> (Vec<Phone>, Vec<Option<u16>>) {
        let mut callers = self.phones(USERS.len());
        // The order is reversed, since round robin would meet the same servers again in the order of the REGISTERs.
        let user = |number: usize| USERS[USERS.len() - 1 - number];
        let answers = each(&mut callers, |number, phone| phone.call(&format!("sip:{}@example.com", user(number))));
        (callers, answers)
    }

    /// Creates this many phones with separate sockets.
    #[must_use]
    pub fn phones(&self, count: usize) -> Vec<Phone> {
        let follows_route = self.way.follows_route();
        let phone = |number| {
            let mut phone = Phone::udp(&self.way.site().clients, PHONES, self.way.entry(number));
            phone.follows_route = follows_route;
            phone.patience = self.patience;
            phone
        };
        (0..count).map(phone).collect()
    }

    /// Returns the server at which each phone's INVITE arrived.
    fn servers_of(&self, phones: &[Phone]) -> Vec<Option<usize>> {
        let arrivals = &self.way.site().arrivals;
        arrivals.settle();
        phones.iter().map(|phone| arrivals.first(phone.call_id(), "INVITE")).collect()
    }
}

/// Returns the URI of a user whom all servers forward to a callee.
fn callee(number: usize) -> String {
    format!("sip:{}.{number}@{}", NAMES[number % NAMES.len()], Setup::domain(number))
}

fn is_whole_call(phone: &mut Phone, number: usize) -> bool {
    phone.call(&callee(number)) == Some(200)
        && phone.request("INVITE") == Some(200)
        && phone.request("BYE") == Some(200)
}

/// Runs a closure for all phones concurrently.
fn each<T: Send>(phones: &mut [Phone], what: impl Fn(usize, &mut Phone) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let what = &what;
        let begin = |(number, phone)| scope.spawn(move || what(number, phone));
        let threads: Vec<_> = phones.iter_mut().enumerate().map(begin).collect();
        threads.into_iter().map(|thread| thread.join().expect("a phone does not panic")).collect()
    })
}

/// Returns whether all requests of a phone's call with these methods arrived at one server.
fn at_one_server(site: &Testbed, phone: &Phone, methods: &[&str]) -> bool {
    let mut servers: Vec<usize> = methods
        .iter()
        .flat_map(|method| site.arrivals.of(phone.call_id(), method))
        .map(|arrival| arrival.server)
        .collect();
    servers.dedup();
    servers.len() == 1
}

fn count(
    site: &Testbed,
    phones: &[Phone],
    kept: impl Fn(&Phone) -> bool,
    worked: impl IntoIterator<Item = bool>,
) -> Count {
    site.arrivals.settle();
    let kept = phones.iter().filter(|phone| kept(phone)).count();
    Count { kept, worked: worked.into_iter().filter(|worked| *worked).count(), of: phones.len() }
}

fn successes(answers: &[Option<u16>]) -> usize {
    answers.iter().filter(|answer| **answer == Some(200)).count()
}
