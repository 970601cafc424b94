//! An emulated server of known capacity: messages wait in one queue, first come first served, for one of c servers. A
//! service takes a time drawn from a law. After its service a message is handled as if it had just arrived. With
//! several addresses, each has its own queue and servers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::SeedableRng as _;
use strowger_foundation::{BufPool, Timestamp};

use crate::law::{Law, LawError, Rng};
use crate::script::MethodId;

/// Messages that need service, of those that no law names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AppliesTo {
    /// Requests that begin something: all outside dialogs except ACK and CANCEL.
    #[default]
    New,
    /// All requests.
    Requests,
    /// All messages.
    All,
}

/// Service times: laws of methods, and one for all others.
#[derive(Clone, Debug)]
pub struct ServiceTimes {
    of_method: Vec<(MethodId, Law)>,
    /// Law of the other messages; with `None` they need no service.
    others: Option<Law>,
}

impl From<Law> for ServiceTimes {
    fn from(law: Law) -> Self {
        Self { of_method: Vec::new(), others: Some(law) }
    }
}

impl ServiceTimes {
    /// Parses a law, or laws of methods: `exp(mean=1ms)`, `INVITE=exp(mean=2ms),BYE=1ms`, or with a law for all
    /// others `INVITE=2ms,1ms`.
    ///
    /// # Errors
    /// What is wrong, and the syntax.
    pub fn parse(text: &str) -> Result<Self, LawError> {
        let mut times = Self { of_method: Vec::new(), others: None };
        for part in parts(text) {
            let named = part.split_once('=').filter(|(name, _)| !name.contains('('));
            let Some((name, law)) = named else {
                if times.others.replace(Law::parse(part)?).is_some() {
                    return Err(LawError(format!("'{text}' has two distributions for the same messages")));
                }
                continue;
            };
            let name = name.trim();
            let verb = MethodId::ALL.into_iter().find(|verb| *verb != MethodId::Other && verb.as_str() == name);
            let verb = verb.ok_or_else(|| {
                LawError(format!("'{name}' is not a method; write it as INVITE=exp(mean=2ms),BYE=exp(mean=1ms)"))
            })?;
            if times.of_method.iter().any(|(other, _)| *other == verb) {
                return Err(LawError(format!("'{text}' has two distributions for {name}")));
            }
            times.of_method.push((verb, Law::parse(law)?));
        }
        Ok(times)
    }
}

impl std::str::FromStr for ServiceTimes {
    type Err = LawError;

    fn from_str(text: &str) -> Result<Self, LawError> {
        Self::parse(text)
    }
}

impl fmt::Display for ServiceTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for (verb, law) in &self.of_method {
            write!(f, "{comma}{}={law}", verb.as_str())?;
            comma = ",";
        }
        self.others.as_ref().map_or(Ok(()), |law| write!(f, "{comma}{law}"))
    }
}

/// Splits a text at commas outside brackets.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

/// Parameters of the emulated server.
#[derive(Clone, Debug)]
pub struct ServiceLaw {
    /// Service times.
    pub times: ServiceTimes,
    /// Number of servers.
    pub servers: usize,
    /// Maximum number of waiting messages, without those in service; more are dropped.
    pub queue: usize,
    /// Messages that need service.
    pub applies: AppliesTo,
}

/// A message in service.
#[derive(Debug, PartialEq, Eq)]
pub struct Job {
    /// Departure time.
    pub at: Timestamp,
    number: u64,
    /// Socket or connection on which it came.
    pub link: u32,
    /// Sender.
    pub peer: SocketAddr,
    /// Message.
    pub bytes: Vec<u8>,
}

impl Ord for Job {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl PartialOrd for Job {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The servers and their queues from the view of one thread. Each thread handles the messages that it enqueued.
#[derive(Debug)]
pub struct Service {
    applies: AppliesTo,
    /// Methods with a law of their own, in the order of the laws.
    methods: Vec<MethodId>,
    /// Whether a law for other messages follows those.
    has_others: bool,
    /// Servers of each address; a single entry serves all addresses.
    servers: Vec<Arc<Mutex<Servers>>>,
    jobs: BinaryHeap<Reverse<Job>>,
    number: u64,
    pool: BufPool,
    /// Messages that found the queue full.
    pub dropped: u64,
    /// Served messages.
    pub served: u64,
    /// Total busy time of the servers.
    pub busy: Duration,
}

/// State shared by all threads.
#[derive(Debug)]
struct Servers {
    laws: Vec<Law>,
    queue: usize,
    rng: Rng,
    /// Time at which each server becomes free.
    free_at: BinaryHeap<Reverse<Timestamp>>,
    /// Service start of the waiting messages, in order, because the queue is first come first served.
    begins: VecDeque<Timestamp>,
}

impl Servers {
    /// Returns when a message that came at `arrived` leaves, and its service time; `None` if the queue is full.
    fn take(&mut self, arrived: Timestamp, law: usize) -> Option<(Timestamp, Duration)> {
        while self.begins.front().is_some_and(|begin| *begin <= arrived) {
            self.begins.pop_front();
        }
        if self.begins.len() > self.queue
            || (self.begins.len() == self.queue && self.free_at.peek().is_some_and(|Reverse(free)| *free > arrived))
        {
            return None;
        }
        let free = self.free_at.pop().map_or(Timestamp::ZERO, |Reverse(free)| free);
        let begin = free.max(arrived);
        let time = self.laws.get(law).map_or(Duration::ZERO, |law| law.sample(&mut self.rng));
        let at = begin + time;
        self.free_at.push(Reverse(at));
        if begin > arrived {
            self.begins.push_back(begin);
        }
        Some((at, time))
    }
}

impl Service {
    /// Creates idle servers with one queue.
    #[must_use]
    pub fn new(law: ServiceLaw, seed: u64) -> Self {
        Self::of_addresses(law, 1, seed)
    }

    /// Creates servers with a queue of their own for each of this many addresses.
    #[must_use]
    pub fn of_addresses(law: ServiceLaw, addresses: usize, seed: u64) -> Self {
        let ServiceLaw { times, servers, queue, applies } = law;
        let has_others = times.others.is_some();
        let (methods, mut laws): (Vec<_>, Vec<_>) = times.of_method.into_iter().unzip();
        laws.extend(times.others);
        let behind_each = (0..addresses.max(1)).map(|address| {
            let free_at = (0..servers.max(1)).map(|_| Reverse(Timestamp::ZERO)).collect();
            let rng = Rng::seed_from_u64(seed.wrapping_add(address as u64));
            Arc::new(Mutex::new(Servers { laws: laws.clone(), queue, rng, free_at, begins: VecDeque::new() }))
        });
        let servers = behind_each.collect();
        Self::of(applies, (methods, has_others), servers)
    }

    /// Returns a view of the same servers and queues for another thread.
    #[must_use]
    pub fn sibling(&self) -> Self {
        Self::of(self.applies, (self.methods.clone(), self.has_others), self.servers.clone())
    }

    fn of(applies: AppliesTo, (methods, has_others): (Vec<MethodId>, bool), servers: Vec<Arc<Mutex<Servers>>>) -> Self {
        Self {
            applies,
            methods,
            has_others,
            servers,
            jobs: BinaryHeap::new(),
            number: 0,
            pool: BufPool::new(),
            dropped: 0,
            served: 0,
            busy: Duration::ZERO,
        }
    }

    /// Returns whether there are several independent servers. Something is then due at nearly all times.
    #[must_use]
    pub const fn is_cluster(&self) -> bool {
        self.servers.len() > 1
    }

    /// Returns whether a message needs service.
    #[must_use]
    pub fn applies(&self, bytes: &[u8]) -> bool {
        self.law_of(bytes).is_some()
    }

    /// Returns the index of a message's law.
    fn law_of(&self, bytes: &[u8]) -> Option<usize> {
        let is_of =
            |verb: &MethodId| bytes.strip_prefix(verb.as_str().as_bytes()).is_some_and(|rest| rest.starts_with(b" "));
        let named = self.methods.iter().position(is_of);
        named.or_else(|| (self.has_others && self.is_of_others(bytes)).then_some(self.methods.len()))
    }

    fn is_of_others(&self, bytes: &[u8]) -> bool {
        let is_request = !bytes.starts_with(b"SIP/2.0 ");
        match self.applies {
            AppliesTo::All => true,
            AppliesTo::Requests => is_request,
            AppliesTo::New => {
                let follows = [&b"ACK "[..], b"BYE ", b"CANCEL ", b"PRACK "];
                is_request && !follows.iter().any(|method| bytes.starts_with(method))
            }
        }
    }

    /// Handles a message [that needs service](Self::applies) and came at `arrived`, on the link of its address.
    pub fn handle_message(&mut self, arrived: Timestamp, (link, peer): (u32, SocketAddr), bytes: &[u8]) {
        let Some(law) = self.law_of(bytes) else { return };
        let place = if self.is_cluster() { link as usize } else { 0 };
        let Some(servers) = self.servers.get(place) else { return };
        let taken = servers.lock().unwrap_or_else(PoisonError::into_inner).take(arrived, law);
        let Some((at, time)) = taken else {
            self.dropped += 1;
            return;
        };
        self.busy += time;
        self.number += 1;
        let bytes = self.pool.copy_of(bytes);
        self.jobs.push(Reverse(Job { at, number: self.number, link, peer, bytes }));
    }

    /// Returns when the next service ends.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.jobs.peek().map(|Reverse(job)| job.at)
    }

    /// Returns a message whose service has ended by `now`. Pass it to [`recycle`](Self::recycle) afterwards.
    pub fn poll_done(&mut self, now: Timestamp) -> Option<Job> {
        if self.poll_timeout()? > now {
            return None;
        }
        self.served += 1;
        self.jobs.pop().map(|Reverse(job)| job)
    }

    /// Takes back the buffer of a handled message.
    pub fn recycle(&mut self, job: Job) {
        self.pool.recycle(job.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrival::Arrivals;

    /// Returns the mean time in the system and the share of dropped messages.
    fn run(rate: f64, law: &str, servers: usize, queue: usize, count: usize) -> (f64, f64) {
        let times = ServiceTimes::parse(law).expect("a law");
        let law = ServiceLaw { times, servers, queue, applies: AppliesTo::All };
        let mut service = Service::new(law, 5);
        let mut total = 0.0;
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        for at in Arrivals::poisson(rate).times(9, 0, 1).take(count) {
            let now = Timestamp::from_nanos(at);
            while let Some(job) = service.poll_done(now) {
                let came = u64::from_be_bytes(*job.bytes.first_chunk().expect("eight bytes"));
                total += (job.at.as_nanos() - came) as f64 / 1e9;
                service.recycle(job);
            }
            service.handle_message(now, (0, peer), &at.to_be_bytes());
        }
        (total / service.served as f64, service.dropped as f64 / count as f64)
    }

    #[test]
    fn one_server_is_an_mm1_queue() {
        let (time, dropped) = run(700.0, "exp(mean=1ms)", 1, usize::MAX, 400_000);
        assert!((time * 1e3 / (1.0 / 0.3) - 1.0).abs() < 0.05, "{time}");
        assert!(dropped == 0.0);
    }

    #[test]
    fn threads_share_the_servers_and_the_queue() {
        let times = Law::constant(Duration::from_secs(1)).into();
        let law = ServiceLaw { times, servers: 1, queue: 1, applies: AppliesTo::All };
        let mut first = Service::new(law, 5);
        let mut second = first.sibling();
        let (peer, at) = (SocketAddr::from(([127, 0, 0, 1], 1)), Timestamp::from_millis);
        first.handle_message(at(0), (0, peer), b"a");
        second.handle_message(at(100), (0, peer), b"b");
        assert_eq!((first.poll_timeout(), second.poll_timeout()), (Some(at(1_000)), Some(at(2_000))));
        first.handle_message(at(200), (0, peer), b"c");
        assert_eq!((first.dropped, second.dropped), (1, 0));
        assert!(first.poll_done(at(3_000)).is_some_and(|job| job.bytes == b"a"));
        assert!(second.poll_done(at(3_000)).is_some_and(|job| job.bytes == b"b"));
    }

    #[test]
    fn methods_take_their_own_time_and_none_without_a_law() {
        let times = ServiceTimes::parse("INVITE=constant(30ms), BYE=10ms").expect("laws");
        assert_eq!(times.to_string(), "INVITE=constant(30ms),BYE=10ms");
        let mut service = Service::new(ServiceLaw { times, servers: 1, queue: 9, applies: AppliesTo::All }, 5);
        let (peer, at) = (SocketAddr::from(([127, 0, 0, 1], 1)), Timestamp::from_millis);
        for bytes in [&b"ACK sip:a SIP/2.0"[..], b"SIP/2.0 200 OK", b"BYEBYE sip:a SIP/2.0", b"BYE", b"\r\n"] {
            assert!(!service.applies(bytes), "{}", bytes.escape_ascii());
        }
        for (came, message) in [(0, "INVITE sip:a SIP/2.0"), (5, "BYE sip:a SIP/2.0"), (100, "BYE sip:b SIP/2.0")] {
            assert!(service.applies(message.as_bytes()));
            service.handle_message(at(came), (0, peer), message.as_bytes());
        }
        let done: Vec<_> = std::iter::from_fn(|| service.poll_done(at(200)).map(|job| job.at)).collect();
        assert_eq!(done, [30, 40, 110].map(at));
    }

    #[test]
    fn a_law_without_a_method_covers_the_others() {
        let times = ServiceTimes::parse("INVITE=uniform(min=1ms,max=3ms),5ms").expect("laws");
        let mut service = Service::new(ServiceLaw { times, servers: 1, queue: 9, applies: AppliesTo::New }, 5);
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        assert!(service.applies(b"OPTIONS sip:a SIP/2.0") && !service.applies(b"BYE sip:a SIP/2.0"));
        service.handle_message(Timestamp::ZERO, (0, peer), b"OPTIONS sip:a SIP/2.0");
        assert_eq!(service.poll_timeout(), Some(Timestamp::from_millis(5)));
    }

    #[test]
    fn method_law_errors_name_the_cause() {
        for (text, said) in [
            ("INVIT=1ms", "'INVIT' is not a method"),
            ("BYE=1ms,BYE=2ms", "two distributions for BYE"),
            ("1ms,2ms", "two distributions for the same messages"),
            ("INVITE=soon", "there is no distribution of this name"),
            ("other=1ms", "is not a method"),
            ("", ""),
        ] {
            let error = ServiceTimes::parse(text).expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn each_address_has_its_own_queue_and_servers() {
        let times = Law::constant(Duration::from_secs(1)).into();
        let law = ServiceLaw { times, servers: 1, queue: 0, applies: AppliesTo::All };
        let mut service = Service::of_addresses(law, 2, 5);
        let mut other = service.sibling();
        let (peer, at) = (SocketAddr::from(([127, 0, 0, 1], 1)), Timestamp::from_millis);
        service.handle_message(at(0), (0, peer), b"a");
        service.handle_message(at(100), (1, peer), b"b");
        other.handle_message(at(200), (1, peer), b"c");
        assert_eq!((service.dropped, other.dropped), (0, 1), "the second address is busy, for all threads");
        let done: Vec<_> = std::iter::from_fn(|| service.poll_done(at(5_000)).map(|job| (job.at, job.link))).collect();
        assert_eq!(done, [(at(1_000), 0), (at(1_100), 1)]);
    }

    #[test]
    fn several_servers_and_a_bounded_queue_follow_erlang() {
        // M/M/2 at rho 0.7: W = 1/(mu(1-rho²)).
        let (time, _) = run(1_400.0, "exp(mean=1ms)", 2, usize::MAX, 400_000);
        assert!((time * 1e3 / (1.0 / (1.0 - 0.49)) - 1.0).abs() < 0.05, "{time}");
        // Erlang's loss formula, two servers, two erlangs: B = 0.4.
        let (_, dropped) = run(2_000.0, "exp(mean=1ms)", 2, 0, 200_000);
        assert!((dropped - 0.4).abs() < 0.01, "{dropped}");
        // M/M/1/5 (four waiting) at rho 2.
        let (_, dropped) = run(2_000.0, "exp(mean=1ms)", 1, 4, 200_000);
        let rho: f64 = 2.0;
        let expected = (1.0 - rho) * rho.powi(5) / (1.0 - rho.powi(6));
        assert!((dropped - expected).abs() < 0.01, "{dropped} for {expected}");
    }
}
