//! Description of a run.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::Transport;
use strowger_net::{BufferSizes, TlsContext};

use super::activities::Activity;
use super::mix::Mix;
use super::phones::Avalanche;
use crate::arrival::Arrivals;
use crate::driver::{ConnectionLifetime, MAX_WAIT};
use crate::engine::activities::CallRole;
use crate::population::Users;
use crate::script::{MethodId, Script, Step};
use crate::service::ServiceLaw;

/// Why a plan cannot be run; the text names the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError(pub String);

impl std::fmt::Display for PlanError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PlanError {}

/// Scripts of an end.
#[derive(Clone, Debug)]
pub struct SideScripts {
    /// All scripts.
    pub scripts: Arc<[Script]>,
    /// Scripts that answer requests that begin a call, by method.
    pub answers: Vec<(MethodId, u16)>,
}

/// Called end, if it is in this process.
#[derive(Clone, Debug)]
pub struct Callee {
    /// Scripts.
    pub side: SideScripts,
    /// Addresses to listen at; if empty, each thread listens at a free port. A call that comes to several of the
    /// addresses is one call.
    pub listen: Vec<SocketAddr>,
    /// Emulated server; one behind each address.
    pub service: Option<ServiceLaw>,
}

/// When sessions begin.
#[derive(Clone, Debug)]
pub enum Load {
    /// By an arrival law, independent of answers.
    Open(Arrivals),
    /// A new session for each that ends, so that this many are in progress.
    Closed(usize),
    /// Recurring activities of each of the phase's callers, who call any of its callees.
    Activities(Arc<[Activity]>),
    /// Each of the phase's callers registers, and retries until it succeeds.
    Avalanche(Arc<Avalanche>),
    /// None begin; this process only answers.
    None,
}

/// Part of a run.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Name in reports.
    pub name: String,
    /// End that begins sessions.
    pub role: CallRole,
    /// Scripts of that end.
    pub mix: Mix,
    /// Load.
    pub load: Load,
    /// Number of sessions; `None` for no limit.
    pub calls: Option<u64>,
    /// Duration; `None` for no limit.
    pub time: Option<Duration>,
    /// Time at the beginning that is not counted.
    pub warm_up: Duration,
    /// Time that sessions in progress may take after the last one began.
    pub drain: Duration,
    /// Users that begin sessions, in turn.
    pub callers: Range<u32>,
    /// Users that are called, in turn.
    pub callees: Range<u32>,
    /// Whether this is a measured phase.
    pub is_measured: bool,
    /// Whether threads poll instead of sleeping: each takes a CPU of its own, and no measured time includes a
    /// wake-up.
    pub is_busy_polling: bool,
}

/// Complete description of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Destination of calls; with `None` they go directly to the called end in this process.
    pub remote: Option<SocketAddr>,
    /// Transport of calls.
    pub transport: Transport,
    /// Certificates and sessions, for secure transports.
    pub tls: Option<Arc<TlsContext>>,
    /// Name of the server, which its certificate must have; `None` if only the address is known.
    pub server_name: Option<Arc<str>>,
    /// How connections are used.
    pub connection_lifetime: ConnectionLifetime,
    /// Shared connections of each thread.
    pub connections: usize,
    /// Our addresses; the sockets of the calling end are spread over them.
    pub addresses: Vec<IpAddr>,
    /// Sockets of the calling end on each thread, each with its own port.
    pub sockets: usize,
    /// Number of threads.
    pub threads: usize,
    /// Users.
    pub users: Arc<Users>,
    /// Calling end.
    pub caller: Option<SideScripts>,
    /// Called end.
    pub callee: Option<Callee>,
    /// Addresses of the called end of each thread if [`Callee::listen`] is empty. Successive runs use the same ones,
    /// so that a registrar does not take them for different phones. If this is empty too, ports are free ones.
    pub callees_at: Vec<SocketAddr>,
    /// Phases, in order.
    pub phases: Vec<Phase>,
    /// Whether messages are retransmitted until they are answered.
    pub retransmits: bool,
    /// T1.
    pub t1: Duration,
    /// Longest time that an INVITE may ring.
    pub max_ring: Duration,
    /// Longest wait of a script that sets no time itself: see [`Setup::max_wait`](crate::driver::Setup::max_wait).
    pub max_wait: Duration,
    /// Whether users reuse nonces in later sessions: see
    /// [`Setup::reuses_nonces`](crate::driver::Setup::reuses_nonces).
    pub reuses_nonces: bool,
    /// How often sessions deferred by a 503 retry: see [`Setup::retries`](crate::driver::Setup::retries).
    pub retries: u8,
    /// How long arrivals continue after the time of a measured phase, so that the last counted calls meet the same
    /// server as the first. These sessions are not counted.
    pub cool_down: Duration,
    /// Maximum number of sessions of each thread and end.
    pub max_sessions: usize,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Number that distinguishes the run's Call-IDs and branches from those of other runs.
    pub run: u64,
    /// Socket buffers.
    pub buffers: BufferSizes,
    /// Whether datagrams of equal length that leave together are sent as one packet that the kernel segments
    /// (`UDP_SEGMENT`).
    pub has_segmentation: bool,
}

impl Plan {
    /// Creates a plan over UDP with one thread and no phases.
    #[must_use]
    pub fn new(users: Users, seed: u64) -> Self {
        Self {
            remote: None,
            transport: Transport::Udp,
            tls: None,
            server_name: None,
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

    /// Returns how many sessions of a thread and end may be in progress if nothing is answered.
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
                let gaps = habits.iter().filter_map(|activity| activity.gap.mean()).filter(|gap| *gap > 0.0);
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

    /// Returns whether this process has a certificate of its own.
    fn has_certificate(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| !tls.certificates().is_empty())
    }

    /// Returns how the called end uses connections. Servers reach a phone over TLS or a WebSocket by the connection over
    /// which it registered, so that one stays open.
    pub(super) const fn lifetime_of_callees(&self) -> ConnectionLifetime {
        match self.transport {
            Transport::Udp | Transport::Tcp => self.connection_lifetime,
            Transport::Tls | Transport::Ws | Transport::Wss => ConnectionLifetime::Persistent,
        }
    }

    /// Checks whether the plan can be run.
    pub(super) fn check(&self) -> Result<(), PlanError> {
        let wrong = |what: &str| Err(PlanError(what.to_owned()));
        if self.addresses.is_empty() {
            return wrong("there is no local address to send from; give one (--from)");
        }
        if self.phases.is_empty() {
            return wrong("there is nothing to do: the plan has no phase");
        }
        if self.remote.is_none() && self.callee.is_none() {
            return wrong("there is no destination for calls; give the server's address (--to)");
        }
        if self.transport.is_secure() && self.tls.is_none() {
            return wrong("there are no settings of TLS");
        }
        if self.remote.is_none() && self.transport.is_secure() && !self.has_certificate() {
            return wrong("a callee over tls or wss needs a certificate; give --certificate and --key");
        }
        if self.transport.is_reliable() && self.callee.as_ref().is_some_and(|callee| callee.listen.len() > 1) {
            return wrong(
                "over connections, a process answers at one address only (--listen); start another process for each further address",
            );
        }
        for phase in &self.phases {
            let side = match phase.role {
                CallRole::Caller => self.caller.as_ref(),
                CallRole::Callee => self.callee.as_ref().map(|callee| &callee.side),
            };
            let is_there = |script: &u16| side.is_some_and(|side| usize::from(*script) < side.scripts.len());
            if let Load::Activities(habits) = &phase.load
                && habits.iter().any(|activity| activity.who == CallRole::Callee)
                && self.callee.is_none()
            {
                return wrong("the called users are not in this process and cannot register here");
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
                    "{all} sessions at once (--outstanding) are more than the limit of {most} (-l); lower the former or raise \
                     the latter"
                )));
            }
            if phase.callers.is_empty() || phase.callees.is_empty() {
                return Err(PlanError(format!("the phase '{}' has no users", phase.name)));
            }
        }
        Ok(())
    }
}

/// Longest time that is assumed for a session.
const LONGEST: Duration = Duration::from_secs(86_400);

/// Returns how long sessions of these scripts may pause, or wait for optional messages, by their own laws.
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

/// Maximum number of sessions to preallocate: some 40 MB.
const MAX_EXPECTED: usize = 1_000_000;

/// Size of socket buffers: a generator that loses its CPU for some milliseconds must not lose what arrives meanwhile.
const BUFFER_BYTES: usize = 16 * 1024 * 1024;

/// Returns a number that no other run has.
#[must_use]
pub fn entropy() -> u64 {
    // Without system entropy, time and process ID distinguish runs as well.
    getrandom::u64().unwrap_or_else(|_| {
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        crate::driver::mix(u64::from(std::process::id()) << 32 ^ u64::from(time.subsec_nanos()) ^ time.as_secs())
    })
}
