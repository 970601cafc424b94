//! Packet logs of `strowger probe --log` as measurements.
//!
//! The service time X of a packet is what the thread is occupied with because of it: from the moment at which it took
//! the packet until it was ready for the next one. That includes the receive call, the program, and all send calls.
//! The time that a sleeping thread needs to wake up is not part of X, because a busy server has none; it is the setup
//! time S of the queue, and K_sockq of a packet that found the server asleep.

use std::collections::BTreeMap;

use super::error::FitError;
use super::linear::count as float;
use super::observation::{MessageObservation, Observation};
use super::timing_report::is_full_queue;

/// Beginning of the first line of a log.
const TITLE: &str = "# strowger packet log ";
/// Version of the format.
const VERSION: &str = "1";
/// Packets below which a log says nothing.
const LEAST: usize = 100;
/// Parts of a log in a fit.
const PARTS: usize = 3;
/// Packets below which a part of a log says nothing.
const LEAST_PART: usize = 1_000;
/// Packets that found the server asleep below which their time is not used.
const LEAST_SLEEPERS: usize = 30;
/// Share of the packets below which a thread does not count as one that serves.
const LEAST_SHARE: f64 = 0.01;

/// Whether a text is a packet log.
#[must_use]
pub fn is_packet_log(text: &str) -> bool {
    text.starts_with(TITLE)
}

/// Reads a packet log in [`PARTS`] parts of equal length, so that the fit sees how much the service time varies at one
/// rate; a short log, or one of several threads, is one part. `name` is the file's name.
///
/// # Errors
/// As [`from_packet_log`].
pub fn from_packet_log_in_parts(name: &str, text: &str) -> Result<Vec<Observation>, FitError> {
    let log = read_log(name, text)?;
    let whole = log.observation(name).ok_or_else(|| without_times(name))?;
    let size = log.packets.len() / PARTS;
    if whole.servers != 1 || size < LEAST_PART {
        return Ok(vec![whole]);
    }
    let parts = log.packets.chunks(size).take(PARTS).filter_map(|packets| {
        let part = Log { packets: packets.to_vec(), seconds: log.seconds, drops: log.drops, cpu: log.cpu };
        let own = part.measured()?;
        // All parts are of one rate, and share what was counted once.
        let (name, service_s) = (whole.name.clone(), Some(own.service.mean()?));
        Some(Observation {
            name,
            service_s,
            scv: own.service.scv(),
            sockq_s: own.sockq.mean(),
            wait_s: own.wait_s(),
            messages: own.messages,
            ..whole.clone()
        })
    });
    Ok(parts.collect())
}

/// Reads a packet log; `name` is the file's name.
///
/// # Errors
/// The file is cut or of another version, it has too few packets, or it lacks the times that the fit needs. The text
/// says what to do.
pub fn from_packet_log(name: &str, text: &str) -> Result<Observation, FitError> {
    read_log(name, text)?.observation(name).ok_or_else(|| without_times(name))
}

fn without_times(name: &str) -> FitError {
    FitError(format!(
        "{name}: no packet has K_sockq and the time at which its thread was ready again; measure with eBPF, not from /proc"
    ))
}

fn read_log<'a>(name: &str, text: &'a str) -> Result<Log<'a>, FitError> {
    let wrong = |what: &str| FitError(format!("{name}: {what}"));
    let version = text.lines().next().and_then(|line| line.strip_prefix(TITLE)).unwrap_or_default();
    if version.trim() != VERSION {
        return Err(wrong(&format!(
            "this log has format {version}, and this program reads {VERSION}; use the same release"
        )));
    }
    let seconds = remark(text, "seconds").filter(|seconds| *seconds > 0.0);
    let seconds = seconds.ok_or_else(|| {
        wrong("the log is cut: its end is missing (the disk was full, or the probe was killed); measure again")
    })?;
    let mut packets = read(text).map_err(|what| wrong(&what))?;
    if packets.len() < LEAST {
        return Err(wrong(&format!("the log has only {} packets; measure longer, or with more load", packets.len())));
    }
    let lost = remark(text, "lost events").unwrap_or(0.0);
    if lost > 0.01 * float(packets.len()) {
        return Err(wrong(&format!(
            "the probe lost {lost:.0} events, more than 1 % of the packets; repeat it with less load"
        )));
    }
    // Only those for which the queue had no room belong to its load.
    let full = text.lines().filter_map(drops_by).filter(|(cause, _)| is_full_queue(cause));
    let drops = full.fold(0.0, |sum, (_, count)| sum + count);
    let cpu = remark(text, "cpu").filter(|cpu| *cpu > 0.0);
    packets.sort_by_key(|packet| (packet.received, packet.thread));
    Ok(Log { packets, seconds, drops, cpu })
}

/// Returns the value of a line `# name: value`.
fn remark(text: &str, name: &str) -> Option<f64> {
    let mut lines = text.lines().rev();
    lines.find_map(|line| line.strip_prefix("# ")?.strip_prefix(name)?.strip_prefix(": ")?.trim().parse().ok())
}

/// Reads a line `# drops by CAUSE: COUNT`.
fn drops_by(line: &str) -> Option<(&str, f64)> {
    let (cause, count) = line.strip_prefix("# drops by ")?.rsplit_once(": ")?;
    Some((cause, count.trim().parse().ok()?))
}

/// A packet; times in ns.
#[derive(Clone, Copy, Debug, Default)]
struct Packet<'a> {
    message: &'a str,
    thread: u32,
    received: u64,
    /// When it came into the socket's queue.
    queued: Option<u64>,
    /// When a thread took it.
    dequeued: Option<u64>,
    ready: Option<u64>,
    sockq: Option<u64>,
    /// Number of packets that its receive call returned.
    batch: usize,
    /// Whether it woke the receiver.
    is_waker: bool,
}

fn read(text: &str) -> Result<Vec<Packet<'_>>, String> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.is_empty());
    let (_, head) = lines.next().ok_or("the log has no table; measure again")?;
    let names: Vec<&str> = head.split(',').collect();
    let column = |name: &str| names.iter().position(|own| *own == name);
    let needed = |name: &str| column(name).ok_or_else(|| format!("the table has no column {name}; measure again"));
    let (message, thread, received) = (needed("message")?, needed("thread")?, needed("received_ns")?);
    let (arrived, ready, stack) = (needed("arrived_ns")?, needed("ready_ns")?, needed("k_stack_ns")?);
    let (sockq, waker) = (needed("k_sockq_ns")?, needed("wake_up_ns")?);
    let batch = needed("batch")?;
    let mut packets = Vec::new();
    let mut cells: Vec<&str> = Vec::with_capacity(names.len());
    for (index, line) in lines {
        cells.clear();
        cells.extend(line.split(','));
        if cells.len() != names.len() {
            return Err(format!(
                "line {} has {} cells, not {}; the file is damaged",
                index + 1,
                cells.len(),
                names.len()
            ));
        }
        let cell = |at: usize| cells.get(at).copied().unwrap_or_default();
        let number = |at: usize| match cell(at) {
            "" => Ok(None),
            digits => {
                digits.parse::<u64>().map(Some).map_err(|_| format!("line {}: '{digits}' is not a number", index + 1))
            }
        };
        let (stack, sockq) = (number(stack)?, number(sockq)?);
        let later = |moment: Option<u64>, time: Option<u64>| {
            let sum = moment.zip(time).map(|(moment, time)| moment.checked_add(time));
            let too_large = || format!("line {}: its times are too large to add; the file is damaged", index + 1);
            sum.map(|sum| sum.ok_or_else(too_large)).transpose()
        };
        let queued = later(number(arrived)?, stack)?;
        packets.push(Packet {
            message: cell(message),
            thread: u32::try_from(number(thread)?.unwrap_or(0)).unwrap_or(0),
            received: number(received)?.unwrap_or(0),
            queued,
            dequeued: later(queued, sockq)?,
            ready: number(ready)?,
            sockq,
            batch: usize::try_from(number(batch)?.unwrap_or(1)).unwrap_or(1).max(1),
            is_waker: number(waker)?.is_some(),
        });
    }
    Ok(packets)
}

struct Log<'a> {
    packets: Vec<Packet<'a>>,
    seconds: f64,
    drops: f64,
    cpu: Option<f64>,
}

/// Sums of a time, in s and s².
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    count: f64,
    sum: f64,
    squares: f64,
    /// Whether each value is of one packet, so that the squares count.
    is_single: bool,
}

impl Moments {
    fn new() -> Self {
        Self { is_single: true, ..Self::default() }
    }

    fn add(&mut self, seconds: f64) {
        self.count += 1.0;
        self.sum += seconds;
        self.squares += seconds * seconds;
    }

    fn mean(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }

    fn second(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.squares / self.count)
    }

    /// Returns Var\[X\]/E\[X\]².
    fn scv(&self) -> Option<f64> {
        let (mean, second) = (self.mean()?, self.second()?);
        (self.is_single && mean > 0.0).then(|| (second / (mean * mean) - 1.0).max(0.0))
    }
}

/// What the packets of a log say.
struct Measured {
    service: Moments,
    messages: Vec<MessageObservation>,
    /// K_sockq.
    sockq: Moments,
    /// Median of K_sockq of packets that found the server asleep, s.
    setup_s: Option<f64>,
}

impl Measured {
    /// Returns W: K_sockq without the setup time, as the thesis subtracts K_sockq^{s,base}. The median, because a
    /// few late wake-ups are waiting.
    fn wait_s(&self) -> Option<f64> {
        Some((self.sockq.mean()? - self.setup_s.unwrap_or(0.0)).max(0.0))
    }
}

impl<'a> Log<'a> {
    /// Returns what the packets say; `None` if they lack the times.
    fn measured(&self) -> Option<Measured> {
        let (service, messages) = self.service();
        service.mean()?;
        let (mut sockq, mut setup) = (Moments::new(), Vec::new());
        for packet in &self.packets {
            let Some(time) = packet.sockq else { continue };
            sockq.add(seconds_of(time));
            if packet.is_waker {
                setup.push(time);
            }
        }
        sockq.mean()?;
        setup.sort_unstable();
        let median = setup.get(setup.len() / 2).filter(|_| setup.len() >= LEAST_SLEEPERS);
        let setup_s = median.map(|median| seconds_of(*median));
        Some(Measured { service, messages, sockq, setup_s })
    }

    fn observation(&self, name: &str) -> Option<Observation> {
        let measured = self.measured()?;
        let received = float(self.packets.len());
        let servers = self.servers();
        let mean = measured.service.mean()?;
        let served = received / self.seconds;
        let service_s = match self.cpu {
            // Threads on one core slow each other down: each is taken as busy for all of it.
            Some(cpu) if servers > 1 => cpu * f64::from(servers) / served,
            _ => mean,
        };
        Some(Observation {
            name: name.to_owned(),
            rate_per_s: (received + self.drops) / self.seconds,
            servers,
            service_s: Some(service_s),
            scv: measured.service.scv(),
            sockq_s: measured.sockq.mean(),
            wait_s: measured.wait_s().filter(|_| servers == 1),
            drops: Some(self.drops / (received + self.drops)),
            cpu: self.cpu,
            messages: measured.messages,
            ..Observation::default()
        })
    }

    /// Returns the number of threads that receive.
    fn servers(&self) -> u32 {
        let mut threads: BTreeMap<u32, usize> = BTreeMap::new();
        for packet in &self.packets {
            *threads.entry(packet.thread).or_default() += 1;
        }
        let least = LEAST_SHARE * float(self.packets.len());
        let count = threads.values().filter(|packets| float(**packets) >= least).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Returns the service time of all packets and of each type. Packets of one receive call share the time of all.
    fn service(&self) -> (Moments, Vec<MessageObservation>) {
        let mut threads: BTreeMap<u32, Vec<&Packet<'a>>> = BTreeMap::new();
        for packet in &self.packets {
            threads.entry(packet.thread).or_default().push(packet);
        }
        let mut all = Moments::new();
        let mut types: BTreeMap<&str, (f64, Moments)> = BTreeMap::new();
        for packets in threads.values() {
            for (index, packet) in packets.iter().enumerate() {
                let Some(ready) = packet.ready else { continue };
                // Packets before these are of a call after which the thread was not seen to be ready again.
                let begin = (index + 1).saturating_sub(packet.batch);
                let (call, next) = (packets.get(begin..=index).unwrap_or_default(), packets.get(index + 1));
                let Some(taken) = call.first().and_then(|first| first.dequeued) else { continue };
                // If the next packet was there already, the thread was busy until it took that.
                let end = next
                    .filter(|next| next.queued.is_some_and(|queued| queued <= ready))
                    .and_then(|next| next.dequeued)
                    .map_or(ready, |taken| taken.max(ready));
                let Some(length) = end.checked_sub(taken) else { continue };
                let each = seconds_of(length) / float(call.len());
                for packet in call {
                    all.add(each);
                    all.is_single &= call.len() == 1;
                    let own = &mut types.entry(packet.message).or_insert_with(|| (0.0, Moments::new())).1;
                    own.add(each);
                    own.is_single &= call.len() == 1;
                }
            }
        }
        for packet in &self.packets {
            types.entry(packet.message).or_insert_with(|| (0.0, Moments::new())).0 += 1.0;
        }
        let messages = types.into_iter().map(|(message, (weight, moments))| MessageObservation {
            message: message.to_owned(),
            weight,
            service_s: moments.mean(),
            scv: moments.scv(),
        });
        (all, messages.collect())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a time of 100 days is exact")]
fn seconds_of(nanos: u64) -> f64 {
    nanos as f64 * 1e-9
}
