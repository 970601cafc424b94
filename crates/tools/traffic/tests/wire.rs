//! What arrives, by the time-stamps of the kernel that receives it: the law of arrivals is kept on the wire, not only in
//! the plan.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use strowger_net::{BufferSizes, RecvBatch, UdpSocket};
use strowger_traffic::engine::Run;
use strowger_traffic::options::{Answering, Options, Target, workload};

/// Sends `calls` first messages to a socket that answers nothing; when each arrived, in nanoseconds.
fn arrivals(arrivals: &str, rate: f64, calls: u64, threads: usize) -> Vec<u64> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let buffers = BufferSizes { receive: 64 << 20, send: 1 << 20 };
    let mut socket = UdpSocket::bind(any, buffers).expect("a port");
    let mut options = Options::new(workload("proxy-200").expect("built in"), None, 11);
    options.to = Some(Target::parse(&format!("udp:{}", socket.local_addr())).expect("a target"));
    options.answering = Answering::There;
    options.arrivals = arrivals.to_owned();
    (options.rate, options.calls, options.threads, options.repeats) = (rate, Some(calls), threads, false);
    options.drain = Some(Duration::ZERO);
    let (plan, _) = options.plan().expect("a plan");
    let run = Run::prepare(plan).expect("sockets");
    let runner = std::thread::spawn(move || run.go().expect("a run"));
    let mut stamps = Vec::new();
    let mut batch = RecvBatch::new();
    loop {
        let is_over = runner.is_finished();
        loop {
            socket.recv(&mut batch).expect("a socket");
            stamps.extend(batch.iter().filter_map(|datagram| datagram.arrival).map(|stamp| stamp.0));
            if !batch.is_full() {
                break;
            }
        }
        if is_over {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let report = runner.join().expect("no panic");
    let accounts = report.measured().expect("a phase").caller.began;
    assert!(accounts.add_up(), "{accounts:?}");
    assert_eq!((accounts.offered, accounts.sent), (calls, calls));
    assert_eq!(stamps.len() as u64, calls, "each call sent one message");
    stamps.sort_unstable();
    stamps
}

fn gaps(stamps: &[u64]) -> Vec<f64> {
    stamps.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e9).collect()
}

#[test]
#[ignore = "it measures the machine: run it with --ignored where nothing else runs"]
fn poisson_arrivals_pass_kolmogorov_and_smirnov_on_the_wire() {
    for threads in [1, 2] {
        let mut gaps = gaps(&arrivals("poisson", 1_000.0, 2_001, threads));
        gaps.sort_by(f64::total_cmp);
        let n = gaps.len() as f64;
        let distance = gaps.iter().enumerate().fold(0.0_f64, |most, (i, gap)| {
            let law = 1.0 - (-1_000.0 * gap).exp();
            most.max((law - i as f64 / n).abs()).max(((i + 1) as f64 / n - law).abs())
        });
        // The 1 % point for n = 2,000.
        assert!(distance < 1.628 / n.sqrt(), "{distance} with {threads} threads");
    }
}

#[test]
#[ignore = "it measures the machine: run it with --ignored where nothing else runs"]
fn a_file_of_gaps_is_met_on_the_wire() {
    let folder = std::env::temp_dir().join(format!("strowger-gaps-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("gaps.txt");
    let wanted: Vec<u64> = (0..600).map(|i| 500 + (i * 7919) % 2_000).collect();
    std::fs::write(&file, wanted.iter().map(|gap| format!("{gap}\n")).collect::<String>()).expect("a file");
    let stamps = arrivals(&format!("file({},unit=us)", file.display()), 0.0, 600, 1);
    let _ = std::fs::remove_dir_all(&folder);
    let offset = stamps[0] as i64 - wanted[0] as i64 * 1_000;
    let (mut at, mut late) = (0_i64, Vec::new());
    for (stamp, gap) in stamps.iter().zip(&wanted) {
        at += *gap as i64 * 1_000;
        late.push((*stamp as i64 - offset - at).abs());
    }
    late.sort_unstable();
    // Twenty microseconds on an idle machine; tests run beside others.
    assert!(late[late.len() / 2] < 200_000, "{} ns at the median", late[late.len() / 2]);
}

/// Takes half a minute and a core of its own: `cargo test --release -p strowger-traffic --test wire -- --ignored`.
#[test]
#[ignore = "half a minute, and it needs a core of its own"]
fn poisson_counts_have_the_variance_of_their_mean_on_the_wire() {
    let stamps = arrivals("poisson", 20_000.0, 700_000, 1);
    let first = stamps[0];
    let mut counts = vec![0_f64; 3_400];
    for stamp in &stamps {
        if let Some(count) = counts.get_mut(((stamp - first) / 10_000_000) as usize) {
            *count += 1.0;
        }
    }
    let mean = counts.iter().sum::<f64>() / counts.len() as f64;
    let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
    // Six deviations off: the machine, or the generator, stood still there.
    let odd: Vec<_> = (0..).zip(&counts).filter(|(_, count)| (**count - mean).abs() > 6.0 * mean.sqrt()).collect();
    assert!((variance / mean - 1.0).abs() < 0.05, "variance {variance} of counts with mean {mean}, odd bins {odd:?}");
}
