//! The same calls over each way, and what became of them.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use crate::sharing::phone::{PATIENCE as CALLERS_PATIENCE, Phone};
use crate::sharing::testbed::{PHONES, SERVERS, USERS};
use crate::sharing::{Deployment, Kind, Setup, Testbed};
use crate::{AnswerBehavior, PATIENCE, poll};

/// How many phones there are in most trials, and in those of a server that comes or goes.
const PHONES_AT_ONCE: usize = 12;
const PHONES_BEFORE: usize = 36;
/// How many calls are counted for the shares, and by how many threads.
const SHARED_CALLS: usize = 480;
const THREADS: usize = 8;
/// How long a caller waits then.
const SHARE_PATIENCE: Duration = Duration::from_millis(300);
/// The forty most common given names of the USA's last hundred years: whom calls are for, each with a number.
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

/// Of some calls, how many stayed at one server, and how many worked as a user expects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// At one server.
    pub kept: usize,
    /// Worked.
    pub worked: usize,
    /// Of so many.
    pub of: usize,
}

/// What a way did in each trial.
#[derive(Clone, Debug)]
pub struct Row {
    /// The way.
    pub kind: Kind,
    /// Calls at each of the first three servers.
    pub share: [usize; 3],
    /// INVITEs that were sent twice.
    pub retransmitted: Count,
    /// CANCELs of calls that ring.
    pub cancelled: Count,
    /// A re-INVITE and a BYE within a call.
    pub dialog: Count,
    /// The same after the phone's port has changed.
    pub rebound: Count,
    /// A call on one TCP connection.
    pub connection: Count,
    /// Calls to users who have registered by the same way, at servers that do not share registrations.
    pub registered_alone: Count,
    /// The same at servers that do.
    pub registered_members: Count,
    /// Requests within calls that there were when a server was added.
    pub calls_when_added: Count,
    /// Another call of each phone to the same user then.
    pub users_when_added: Count,
    /// BYEs of calls of a server that has died.
    pub calls_of_dead: Count,
    /// New calls while nobody has taken it out.
    pub new_while_dead: Count,
    /// New calls of phones that were there before, once it is taken out.
    pub new_without_dead: Count,
    /// Then, calls to users who have registered before, at servers that do not share registrations.
    pub users_alone: Count,
    /// The same at servers that do.
    pub users_members: Count,
}

impl Row {
    /// Tries it.
    ///
    /// # Panics
    /// When a program does not start, or does not do what it is told.
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

    /// What servers do that share no registrations: before the first one is dead and out, and then.
    fn of_servers_alone(kind: Kind) -> [Count; 2] {
        let mut way = kind.start(false);
        let registered = Trial::new(&mut *way).registered(false);
        way.site_mut().kill(0);
        way.serve_with(&(1..SERVERS - 1).collect::<Vec<_>>());
        [registered, Trial::new(&mut *way).call_users()]
    }
}

/// The trials of a way that has been started.
pub struct Trial<'a> {
    way: &'a mut dyn Deployment,
    patience: Duration,
}

impl<'a> Trial<'a> {
    /// With callers who give up soon, so that what fails does not take long.
    #[must_use]
    pub fn new(way: &'a mut dyn Deployment) -> Trial<'a> {
        Trial { way, patience: CALLERS_PATIENCE }
    }

    /// With callers who wait, for what is to work also on a busy machine.
    #[must_use]
    pub fn patient(way: &'a mut dyn Deployment) -> Trial<'a> {
        Trial { way, patience: PATIENCE }
    }

    /// Calls of many phones to many users, by their servers.
    #[must_use]
    pub fn share(&self) -> [usize; 3] {
        let mut phones = self.phones(SHARED_CALLS);
        let call = |(number, phone): (usize, &mut Phone)| {
            phone.patience = SHARE_PATIENCE;
            // Whether it works is another trial's matter.
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

    /// The servers stand still until each INVITE has been sent twice.
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

    /// Calls that ring are given up.
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

    /// Calls with a re-INVITE and a BYE.
    #[must_use]
    pub fn dialog(&self) -> Count {
        let site = self.way.site();
        let mut phones = self.phones(PHONES_AT_ONCE);
        let worked = each(&mut phones, |number, phone| is_whole_call(phone, number));
        count(site, &phones, |phone| at_one_server(site, phone, &["INVITE", "ACK", "BYE"]), worked)
    }

    /// Calls whose phone sends from another port after they were answered.
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

    /// Calls on a TCP connection each.
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

    /// Users register, and others call them.
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

    /// A fourth server is added: to calls that there are, and to another call of each phone to the same user.
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

    /// The first server dies: of calls that it had, of new ones before anybody has taken it out, and of new ones of the same
    /// phones afterwards.
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

    /// All users who have registered are called.
    #[must_use]
    pub fn call_users(&self) -> Count {
        let (_, answers) = self.callers_of_users();
        Count { kept: 0, worked: successes(&answers), of: USERS.len() }
    }

    /// Who called the users, from the last one to the first, and what they were answered.
    fn callers_of_users(&self) -> (Vec<Phone>, Vec<Option<u16>>) {
        let mut callers = self.phones(USERS.len());
        // In the order of their REGISTERs, whoever goes by turns would come around to the same servers.
        let user = |number: usize| USERS[USERS.len() - 1 - number];
        let answers = each(&mut callers, |number, phone| phone.call(&format!("sip:{}@example.com", user(number))));
        (callers, answers)
    }

    /// So many phones with sockets of their own.
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

    /// Where the INVITE of each of them arrived.
    fn servers_of(&self, phones: &[Phone]) -> Vec<Option<usize>> {
        let arrivals = &self.way.site().arrivals;
        arrivals.settle();
        phones.iter().map(|phone| arrivals.first(phone.call_id(), "INVITE")).collect()
    }
}

/// Somebody whom all servers send to a callee.
fn callee(number: usize) -> String {
    format!("sip:{}.{number}@{}", NAMES[number % NAMES.len()], Setup::domain(number))
}

fn is_whole_call(phone: &mut Phone, number: usize) -> bool {
    phone.call(&callee(number)) == Some(200)
        && phone.request("INVITE") == Some(200)
        && phone.request("BYE") == Some(200)
}

/// Does this with each of them at the same time.
fn each<T: Send>(phones: &mut [Phone], what: impl Fn(usize, &mut Phone) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let what = &what;
        let begin = |(number, phone)| scope.spawn(move || what(number, phone));
        let threads: Vec<_> = phones.iter_mut().enumerate().map(begin).collect();
        threads.into_iter().map(|thread| thread.join().expect("a phone does not panic")).collect()
    })
}

/// Whether all requests of a phone's call with these methods came to one server.
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
