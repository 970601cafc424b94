//! Distribution of arrivals on the wire, by the kernel's receive timestamps of the first message of each call.
//! Nothing answers, so only the calling end is measured, at a rate that it can sustain.
//!
//! Over loopback the kernel takes the timestamp while the message is being sent. The reader therefore need not be
//! fast, and must not compete: it has a buffer for the whole run, reads rarely, and runs at the lowest priority.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::setpriority_process;
use strowger_net::{BufferSizes, RecvBatch, UdpSocket};
use strowger_traffic::arrival::Arrivals;
use strowger_traffic::engine::Run;
use strowger_traffic::options::{CalleeLocation, Options, Target, workload};

use crate::register::rounds::median;

/// Length of a bin in seconds.
const BIN: f64 = 0.01;

/// Kolmogorov-Smirnov distance between the gaps and the exponential distribution.
#[derive(Clone, Copy, Debug)]
pub struct Distance {
    /// Measured distance.
    pub distance: f64,
    /// Critical value at the one percent level.
    pub limit: f64,
    /// Number of gaps.
    pub count: usize,
}

/// Measures the distance for Poisson arrivals at this rate.
#[must_use]
pub fn distance(rate: f64, calls: u64, threads: usize, seed: u64) -> Distance {
    let stamps = arrivals("poisson", rate, calls, threads, seed);
    let mut gaps: Vec<f64> = stamps.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e9).collect();
    gaps.sort_by(f64::total_cmp);
    let count = gaps.len() as f64;
    let distance = gaps.iter().enumerate().fold(0.0_f64, |most, (i, gap)| {
        let law = 1.0 - (-rate * gap).exp();
        most.max((law - i as f64 / count).abs()).max(((i + 1) as f64 / count - law).abs())
    });
    Distance { distance, limit: 1.628 / count.sqrt(), count: gaps.len() }
}

/// Index of dispersion of counts in bins of 10 ms: variance divided by mean, which is 1 for a Poisson process.
#[derive(Clone, Debug)]
pub struct Variance {
    /// Value per run, on the wire.
    pub wire: Vec<f64>,
    /// Value per run of threads that only poll the clock until a call is due: the disturbance by the machine alone.
    pub clock: Vec<f64>,
    /// Standard deviation of this ratio over one run of a Poisson process.
    pub error: f64,
    /// Bins per run.
    pub bins: usize,
}

/// Measures Poisson arrivals at this rate, one run per seed, alternating with the clock alone.
#[must_use]
pub fn variance(rate: f64, seconds: u64, threads: usize, seeds: Range<u64>) -> Variance {
    let calls = (rate * seconds as f64) as u64;
    // The last bin may be incomplete.
    let bins = (((seconds as f64 * 0.97) / BIN) as usize).max(1);
    let (wire, clock) = seeds
        .map(|seed| {
            let wire = dispersion(&arrivals("poisson", rate, calls, threads, seed), bins);
            (wire, dispersion(&by_the_clock(rate, calls, threads, seed), bins))
        })
        .unzip();
    Variance { wire, clock, error: (2.0 / bins as f64).sqrt(), bins }
}

/// Returns the variance of the counts in the bins divided by their mean.
fn dispersion(stamps: &[u64], bins: usize) -> f64 {
    let Some(first) = stamps.first() else { return f64::NAN };
    let mut counts = vec![0.0; bins];
    for stamp in stamps {
        if let Some(count) = counts.get_mut(((stamp - first) as f64 / 1e9 / BIN) as usize) {
            *count += 1.0;
        }
    }
    let mean = counts.iter().sum::<f64>() / bins as f64;
    counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / bins as f64 / mean
}

/// Runs the same arrivals in threads that only poll the clock until each is due, and returns the observed times in
/// nanoseconds.
fn by_the_clock(rate: f64, calls: u64, threads: usize, seed: u64) -> Vec<u64> {
    let law = Arrivals::parse("poisson", rate).expect("it is a law");
    let begin = Instant::now() + Duration::from_millis(50);
    let seen = |index: usize| -> Vec<u64> {
        let mine = (calls as usize).div_ceil(threads);
        law.times(seed, index, threads)
            .take(mine)
            .map(|at| {
                let at = Duration::from_nanos(at);
                loop {
                    let now = begin.elapsed();
                    if now >= at {
                        return now.as_nanos() as u64;
                    }
                }
            })
            .collect()
    };
    let mut stamps: Vec<u64> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|index| scope.spawn(move || seen(index))).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("it does not panic")).collect()
    });
    stamps.sort_unstable();
    stamps
}

/// Deviation of each message of a file of gaps from its scheduled time, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Offsets {
    /// Median deviation.
    pub median: f64,
    /// 99th percentile of the deviation.
    pub p99: f64,
    /// Number of messages.
    pub count: usize,
}

/// Measures the deviations for a file with this many gaps of 0.5 to 2.5 ms.
///
/// # Panics
/// If the file cannot be written.
#[must_use]
pub fn offsets(gaps: u64) -> Offsets {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("gaps.txt");
    let wanted: Vec<u64> = (0..gaps).map(|i| 500 + (i * 7919) % 2_000).collect();
    std::fs::write(&file, wanted.iter().map(|gap| format!("{gap}\n")).collect::<String>()).expect("it can be written");
    let stamps = arrivals(&format!("file({},unit=us)", file.display()), 0.0, gaps, 1, 1);
    let mut at = 0;
    let moments: Vec<u64> = wanted
        .iter()
        .map(|gap| {
            at += gap * 1_000;
            at
        })
        .collect();
    let differences: Vec<f64> =
        stamps.iter().zip(&moments).map(|(stamp, at)| (*stamp as f64 - *at as f64) / 1e3).collect();
    // The start of the run is not on the wire; the median difference serves as the start.
    let begin = median(differences.clone());
    let mut off: Vec<f64> = differences.iter().map(|difference| (difference - begin).abs()).collect();
    off.sort_by(f64::total_cmp);
    Offsets { median: off[off.len() / 2], p99: off[off.len() * 99 / 100], count: off.len() }
}

/// Receive buffer for a whole run: 400,000 messages, at some 1,300 bytes of kernel memory each.
const BUFFERS: BufferSizes = BufferSizes { receive: 512 << 20, send: 1 << 20 };
/// Read interval with the full buffer.
const LOOKS: Duration = Duration::from_millis(50);
/// Read interval if the kernel grants less (net.core.rmem_max, without the privilege to exceed it).
const LOOKS_IN_NARROW: Duration = Duration::from_millis(1);
/// Lowest scheduling priority.
const LAST: i32 = 19;

/// Sends the first messages of `calls` calls to a socket that does not answer, and returns the arrival times in
/// nanoseconds.
fn arrivals(law: &str, rate: f64, calls: u64, threads: usize, seed: u64) -> Vec<u64> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = UdpSocket::bind(any, BUFFERS).expect("a port");
    let mut options = Options::new(workload("proxy-200").expect("it is built in"), None, seed);
    options.to = Some(Target::parse(&format!("udp:{}", socket.local_addr())).expect("it is a target"));
    options.callee_location = CalleeLocation::Remote;
    options.arrivals = law.to_owned();
    (options.rate, options.calls, options.threads, options.retransmits) = (rate, Some(calls), threads, false);
    options.drain = Some(Duration::ZERO);
    let (plan, _) = options.plan().expect("the options fit together");
    let run = Run::prepare(plan).expect("sockets can be opened");
    let is_over = AtomicBool::new(false);
    let (report, mut stamps) = std::thread::scope(|threads| {
        let reader = threads.spawn(|| stamps_of(socket, &is_over));
        let report = {
            let _over = StopGuard(&is_over);
            run.go().expect("it runs")
        };
        (report, reader.join().expect("it does not panic"))
    });
    let accounts = report.measured().expect("a phase is measured").caller.began;
    assert!(accounts.add_up(), "the accounts are exact: {accounts:?}");
    assert_eq!(stamps.len() as u64, calls, "each call sent one message, and each arrived");
    stamps.sort_unstable();
    stamps
}

/// Reports on drop that the run has ended, also after a panic; otherwise the reader would wait forever.
struct StopGuard<'a>(&'a AtomicBool);

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Returns the arrival times at `socket` until the run has ended.
fn stamps_of(mut socket: UdpSocket, is_over: &AtomicBool) -> Vec<u64> {
    // Affects this thread only. Lowering the priority needs no privilege.
    setpriority_process(None, LAST).expect("it may be nice");
    let is_roomy = socket.buffers().receive >= BUFFERS.receive;
    let looks = if is_roomy { LOOKS } else { LOOKS_IN_NARROW };
    let (mut stamps, mut batch) = (Vec::new(), RecvBatch::new());
    loop {
        let is_last = is_over.load(Ordering::Acquire);
        loop {
            socket.recv(&mut batch).expect("the socket works");
            stamps.extend(batch.iter().filter_map(|datagram| datagram.arrival).map(|stamp| stamp.0));
            if !batch.is_full() {
                break;
            }
        }
        if is_last {
            return stamps;
        }
        std::thread::sleep(looks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reader_ends_when_the_run_panics() {
        let socket = UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), BufferSizes::DEFAULT).expect("a port");
        let sender = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        sender.send_to(b"first", socket.local_addr()).expect("there is room");
        let is_over = AtomicBool::new(false);
        let stamps = std::thread::scope(|threads| {
            let reader = threads.spawn(|| stamps_of(socket, &is_over));
            let run = threads.spawn(|| {
                let _over = StopGuard(&is_over);
                panic!("as a run that cannot go on");
            });
            assert!(run.join().is_err());
            reader.join().expect("it does not panic")
        });
        assert_eq!(stamps.len(), 1);
    }
}
