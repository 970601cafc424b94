//! What is to be done in a run.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::Transport;
use strowger_net::BufferSizes;

use super::activities::Activity;
use super::mix::Mix;
use super::phones::Avalanche;
use crate::arrival::Arrivals;
use crate::driver::{ConnectionLifetime, MAX_WAIT};
use crate::engine::activities::CallRole;
use crate::population::Users;
use crate::script::{MethodId, Script, Step};
use crate::service::ServiceLaw;

/// Why a plan cannot be carried out; the text names the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError(pub String);

impl std::fmt::Display for PlanError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PlanError {}

/// The scripts of an end.
#[derive(Clone, Debug)]
pub struct SideScripts {
    /// All of them.
    pub scripts: Arc<[Script]>,
    /// Which answers a request that begins a call.
    pub answers: Vec<(MethodId, u16)>,
}

/// The end that is called, where it is in this process.
#[derive(Clone, Debug)]
pub struct Callee {
    /// Its scripts.
    pub side: SideScripts,
    /// Where it listens; without one, at a free port for each thread. A call that comes to several of its addresses is one.
    pub listen: Vec<SocketAddr>,
    /// The server that it emulates; one behind each address.
    pub service: Option<ServiceLaw>,
}

/// When sessions begin.
#[derive(Clone, Debug)]
pub enum Load {
    /// When the law says, whatever the answers.
    Open(Arrivals),
    /// A new one for each that ends, so that so many are going on.
    Closed(usize),
    /// What each of the phase's callers does again and again, calling any of its callees.
    Activities(Arc<[Activity]>),
    /// Each of the phase's callers registers until it has.
    Avalanche(Arc<Avalanche>),
    /// None begin; the other end's are answered.
    None,
}

/// A part of a run.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Its name in reports.
    pub name: String,
    /// Which end begins sessions.
    pub role: CallRole,
    /// With which of its scripts.
    pub mix: Mix,
    /// When.
    pub load: Load,
    /// How many sessions; without limit where there is none.
    pub calls: Option<u64>,
    /// For how long; without limit where there is none.
    pub time: Option<Duration>,
    /// What is not counted, at the beginning.
    pub warm_up: Duration,
    /// How long sessions that have begun may take after the last one began.
    pub drain: Duration,
    /// Who begins them, in turn.
    pub callers: Range<u32>,
    /// Who is called, in turn.
    pub callees: Range<u32>,
    /// Whether it is what the run is about.
    pub is_measured: bool,
    /// Whether threads wait awake: each takes a processor of its own, and what a wake-up takes is in no time.
    pub is_busy_polling: bool,
}

/// Everything about a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where calls go; `None` goes straight to the called end in this process.
    pub remote: Option<SocketAddr>,
    /// By what.
    pub transport: Transport,
    /// How connections are used, and how many are shared at most on each thread.
    pub connection_lifetime: ConnectionLifetime,
    /// Shared connections of each thread.
    pub connections: usize,
    /// Our addresses; the sockets of the calling end are spread over them.
    pub addresses: Vec<IpAddr>,
    /// Sockets of the calling end on each thread, each with a port of its own.
    pub sockets: usize,
    /// Threads.
    pub threads: usize,
    /// The population.
    pub users: Arc<Users>,
    /// The calling end.
    pub caller: Option<SideScripts>,
    /// The called end.
    pub callee: Option<Callee>,
    /// Where the called end of each thread listens, where [`Callee::listen`] leaves it open: runs that follow one another use
    /// the same addresses, so that a registrar does not take each for another phone. Empty, ports are free ones.
    pub callees_at: Vec<SocketAddr>,
    /// What happens, one after the other.
    pub phases: Vec<Phase>,
    /// Whether messages are repeated until they are answered.
    pub retransmits: bool,
    /// T1.
    pub t1: Duration,
    /// How long an INVITE may ring.
    pub max_ring: Duration,
    /// How long a script waits at most where it sets no time itself: see [`Setup::max_wait`](crate::driver::Setup::max_wait).
    pub max_wait: Duration,
    /// Whether users keep nonces from one session to the next: see
    /// [`Setup::reuses_nonces`](crate::driver::Setup::reuses_nonces).
    pub reuses_nonces: bool,
    /// How often sessions try again that a 503 has put off: see [`Setup::retries`](crate::driver::Setup::retries).
    pub retries: u8,
    /// How long arrivals go on behind the time of a measured phase, so that the last calls that are counted find the server as the
    /// first did. These sessions are not counted.
    pub cool_down: Duration,
    /// Sessions at most, of each thread and end.
    pub max_sessions: usize,
    /// What randomness begins with.
    pub seed: u64,
    /// What makes the run's Call-IDs and branches unlike those of other runs.
    pub run: u64,
    /// The sockets' buffers.
    pub buffers: BufferSizes,
    /// Whether datagrams of one length that leave at once leave as one, which the kernel cuts apart (`UDP_SEGMENT`).
    pub has_segmentation: bool,
}

impl Plan {
    /// A plan over UDP with one thread and nothing to do.
    #[must_use]
    pub fn new(users: Users, seed: u64) -> Self {
        Self {
            remote: None,
            transport: Transport::Udp,
            connection_lifetime: ConnectionLifetime::default(),
            connections: 1,
            addresses: vec![IpAddr::from([127, 0, 0, 1])],
            sockets: 1,
            threads: 1,
            users: Arc::new(users),
            caller: None,
            callee: None,
            callees_at: Vec::new(),
            phases: Vec::new(),
            retransmits: true,
            t1: Duration::from_millis(500),
            max_ring: Duration::from_secs(180),
            max_wait: MAX_WAIT,
            reuses_nonces: false,
            retries: 0,
            cool_down: Duration::ZERO,
            max_sessions: 4_000_000,
            seed,
            run: entropy(),
            buffers: BufferSizes { receive: BUFFER_BYTES, send: BUFFER_BYTES },
            has_segmentation: false,
        }
    }

    /// Sessions of a thread and end that may be going on at once, should nothing be answered any more.
    pub(super) fn expected(&self) -> usize {
        let of_phase = |phase: &Phase| match &phase.load {
            Load::Open(arrivals) => {
                let all = arrivals.rate().unwrap_or(0.0) * self.t1.as_secs_f64() * 64.0;
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
                let all = all as usize;
                all.min(usize::try_from(phase.calls.unwrap_or(u64::MAX)).unwrap_or(usize::MAX)) / self.threads.max(1)
            }
            Load::Closed(all) => all / self.threads.max(1),
            Load::Activities(habits) => {
                let users = f64::from(phase.callers.end.saturating_sub(phase.callers.start));
                let gaps = habits.iter().filter_map(|habit| habit.gap.mean()).filter(|gap| *gap > 0.0);
                let all = gaps.map(|gap| users / gap).sum::<f64>() * self.t1.as_secs_f64() * 64.0;
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
                let all = all as usize;
                all / self.threads.max(1)
            }
            Load::Avalanche(_) => {
                let phones = phase.callers.end.saturating_sub(phase.callers.start);
                usize::try_from(phones).unwrap_or(usize::MAX) / self.threads.max(1)
            }
            Load::None => 0,
        };
        self.phases.iter().map(of_phase).max().unwrap_or(0).min(MAX_EXPECTED)
    }

    /// Whether it can be carried out at all.
    pub(super) fn check(&self) -> Result<(), PlanError> {
        let wrong = |what: &str| Err(PlanError(what.to_owned()));
        if self.addresses.is_empty() {
            return wrong("there is no local address to send from; give one (--from)");
        }
        if self.phases.is_empty() {
            return wrong("there is nothing to do: the plan has no phase");
        }
        if self.remote.is_none() && self.callee.is_none() {
            return wrong("there is nobody to call; give the server's address (--to)");
        }
        if !matches!(self.transport, Transport::Udp | Transport::Tcp) {
            return wrong("only udp and tcp are spoken so far");
        }
        if self.transport.is_reliable() && self.callee.as_ref().is_some_and(|callee| callee.listen.len() > 1) {
            return wrong("over tcp, one process answers at one address (--listen); start another one for the next");
        }
        for phase in &self.phases {
            let side = match phase.role {
                CallRole::Caller => self.caller.as_ref(),
                CallRole::Callee => self.callee.as_ref().map(|callee| &callee.side),
            };
            let is_there = |script: &u16| side.is_some_and(|side| usize::from(*script) < side.scripts.len());
            if let Load::Activities(habits) = &phase.load
                && habits.iter().any(|habit| habit.who == CallRole::Callee)
                && self.callee.is_none()
            {
                return wrong("those who are called are not in this process and cannot register here");
            }
            let has_script = phase.mix.scripts().iter().all(is_there);
            if !has_script && !matches!(phase.load, Load::None) {
                return Err(PlanError(format!("the phase '{}' has no script", phase.name)));
            }
            if let Load::Closed(all) = phase.load
                && phase.is_measured
                && all.div_ceil(self.threads.max(1)) > self.max_sessions
            {
                let most = self.max_sessions.saturating_mul(self.threads.max(1));
                return Err(PlanError(format!(
                    "{all} sessions at once (--outstanding) are more than the limit of {most} (-l); lower the one or raise \
                     the other"
                )));
            }
            if phase.callers.is_empty() || phase.callees.is_empty() {
                return Err(PlanError(format!("the phase '{}' has no users", phase.name)));
            }
        }
        Ok(())
    }
}

/// What no session is waited for any longer.
const LONGEST: Duration = Duration::from_secs(86_400);

/// How long sessions of these scripts may pause, or wait for what may not come, by their own laws.
pub(crate) fn longest(scripts: &[Script]) -> Duration {
    let of_script = |script: &Script| {
        let law_of = |step: &Step| match step {
            Step::Pause { law } | Step::Wait { timeout: Some((law, _)), .. } => script.laws.get(usize::from(*law)),
            _ => None,
        };
        let times = script.steps.iter().filter_map(law_of).map(crate::law::Law::longest);
        times.fold(Duration::ZERO, Duration::saturating_add).min(LONGEST)
    };
    scripts.iter().map(of_script).max().unwrap_or_default()
}

/// Sessions for which room is made beforehand, at most: some 40 MB.
const MAX_EXPECTED: usize = 1_000_000;

/// The sockets' buffers: a generator that is kept from its core for some milliseconds must not lose what comes meanwhile.
const BUFFER_BYTES: usize = 16 * 1024 * 1024;

/// A number that no other run has.
#[must_use]
pub fn entropy() -> u64 {
    // Where the system has none, the time and the process tell runs apart just as well.
    getrandom::u64().unwrap_or_else(|_| {
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        crate::driver::mix(u64::from(std::process::id()) << 32 ^ u64::from(time.subsec_nanos()) ^ time.as_secs())
    })
}
