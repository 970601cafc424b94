//! The reader of /proc on a folder that looks like it.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::symlink;
use std::path::Path;

use strowger_timing::proc::{Host, QueueSampler, TargetError, UsageSampler};
use strowger_timing::{Protocol, Target, TimingReport};
use tempfile::TempDir;

const UDP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n";
const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

/// A host with a program of a parent and two children, which share a UDP socket at port 5060, and another program.
struct FakeHost(TempDir);

impl FakeHost {
    fn new() -> Self {
        let host = Self(tempfile::tempdir().expect("a folder"));
        for (pid, parent, name) in
            [(100, 1, "kamailio"), (101, 100, "kamailio"), (102, 100, "(odd) S"), (200, 1, "sshd")]
        {
            host.write(&format!("{pid}/stat"), &format!("{pid} ({name}) S {parent} 1 1 0 -1 0\n"));
            host.write(&format!("{pid}/comm"), &format!("{name}\n"));
            fs::create_dir_all(host.path().join(format!("{pid}/fd"))).expect("a folder");
            host.run(pid, 1_000, 10, 1);
        }
        for pid in [100, 101] {
            symlink("socket:[555]", host.path().join(format!("{pid}/fd/5"))).expect("a link");
        }
        symlink("socket:[777]", host.path().join("200/fd/3")).expect("a link");
        host.network(0, 0, 0, 0);
        host
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, file: &str, text: &str) {
        let file = self.path().join(file);
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        fs::write(file, text).expect("a file");
    }

    /// Sets what the only thread of a process has used.
    fn run(&self, pid: u32, cpu_ns: u64, runnable_ns: u64, slices: u64) {
        let thread = format!("{pid}/task/{pid}");
        self.write(&format!("{thread}/comm"), "worker\n");
        self.write(&format!("{thread}/schedstat"), &format!("{cpu_ns} {runnable_ns} {slices}\n"));
        let switches = format!("voluntary_ctxt_switches:\t{slices}\nnonvoluntary_ctxt_switches:\t0\n");
        self.write(&format!("{thread}/status"), &switches);
    }

    /// Sets the queue and the drops of the socket, and the counters of the namespace.
    fn network(&self, queue: u64, drops: u64, received: u64, overflows: u64) {
        for folder in ["net", "100/net", "200/net"] {
            let socket = format!(
                "100: 0100007F:13C4 00000000:0000 07 00000000:{queue:08X} 00:00000000 00000000 0 0 555 2 0000 {drops}\n"
            );
            self.write(&format!("{folder}/udp"), &format!("{UDP}{socket}"));
            self.write(
                &format!("{folder}/tcp"),
                &format!(
                    "{TCP}0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 777 1 0 0\n"
                ),
            );
            let counters =
                format!("Udp: InDatagrams RcvbufErrors InCsumErrors MemErrors\nUdp: {received} {overflows} 0 0\n");
            self.write(&format!("{folder}/snmp"), &counters);
        }
    }
}

#[test]
fn a_port_leads_to_the_whole_program() {
    let fake = FakeHost::new();
    let program = Host::at(fake.path()).find(Target::Port(5060), None).expect("bound");
    assert_eq!(program.pids, [100, 101, 102], "the child without the socket too");
    assert_eq!(program.sockets.len(), 1, "shared sockets count once");
    assert_eq!(program.name, "kamailio (process 100 and 2 more), port 5060/udp");
    let same = Host::at(fake.path()).find(Target::Process(100), None).expect("it runs");
    assert_eq!(same, program);
}

#[test]
fn errors_say_what_is_missing() {
    let fake = FakeHost::new();
    let error = |target: Target, protocol: Option<Protocol>| {
        Host::at(fake.path()).find(target, protocol).expect_err("an error")
    };
    assert_eq!(error(Target::Process(4711), None), TargetError::NoProcess(4711));
    let said = error(Target::Port(5061), None).to_string();
    assert!(said.starts_with("no program is bound to UDP or TCP port 5061; start the program first"), "{said}");
    let said = error(Target::Process(100), Some(Protocol::Tcp)).to_string();
    assert!(said.starts_with("process 100 has no TCP socket; give the process"), "{said}");
}

#[test]
fn sockets_of_another_user_are_measured_without_the_processes() {
    let fake = FakeHost::new();
    for pid in [100, 101, 102, 200] {
        fs::remove_dir_all(fake.path().join(format!("{pid}/fd"))).expect("it was there");
    }
    let program = Host::at(fake.path()).find(Target::Port(5060), None).expect("bound");
    assert!(program.pids.is_empty() && program.is_hidden);
    assert_eq!(program.name, "port 5060/udp");
}

#[test]
fn queue_rate_drops_and_processor_time_are_reported() {
    let fake = FakeHost::new();
    let host = Host::at(fake.path());
    let program = host.find(Target::Port(5060), None).expect("bound");
    let mut usage = UsageSampler::start(&host, &program.pids);
    // Of five samples, four see 2, 1, 1 and 4 packets of 1,280 bytes.
    let mut queue = QueueSampler::start(&host, &program);
    for bytes in [2_560, 1_280, 1_280, 5_120] {
        fake.network(bytes, 7, 10_000, 5);
        queue.sample();
    }
    fake.run(100, 600_001_000, 20_010, 21);
    // A new child has used all of its time since the start.
    fake.write("103/stat", "103 (kamailio) S 100 1 1 0 -1 0\n");
    fake.run(103, 400_000_000, 0, 0);
    usage.sample();
    let mut report = TimingReport { seconds: 2.0, ..TimingReport::default() };
    queue.fill(&mut report);
    assert_eq!((report.method.as_str(), report.packets_per_s), ("proc", 5_000.0));
    let depth = report.queue.expect("counted");
    assert_eq!((depth.mean, depth.max), (1.6, 4));
    // 1.6 packets / 5,000 packets/s.
    assert!((report.all.parts["k_sockq"].mean_us - 320.0).abs() < 1e-9);
    let drops: Vec<(&str, u64)> = report.drops.iter().map(|(cause, count)| (cause.as_str(), *count)).collect();
    assert_eq!(drops, [("RcvbufErrors (socket buffer full)", 5), ("other causes", 2)]);
    assert_eq!(usage.cpu(2.0), Some(0.5));
    let notes = report.notes.join("\n");
    assert!(notes.contains("an estimate: mean queue / rate (Little's law)"), "{notes}");
    let scheduling = usage.scheduling(2.0).expect("known");
    assert!(scheduling.contains("waited 1.0 µs for a processor each time"), "{scheduling}");
    let busiest = &usage.threads()[0];
    assert_eq!((busiest.pid, busiest.name.as_str(), busiest.cpu_ns), (100, "worker", 600_000_000));
}

/// Returns the report of a host whose queue has these lengths, bytes.
fn report_of(lengths: &[u64]) -> TimingReport {
    let fake = FakeHost::new();
    let host = Host::at(fake.path());
    let program = host.find(Target::Port(5060), None).expect("bound");
    fake.network(lengths[0], 0, 0, 0);
    let mut queue = QueueSampler::start(&host, &program);
    for bytes in &lengths[1..] {
        fake.network(*bytes, 0, 10_000, 0);
        queue.sample();
    }
    let mut report = TimingReport { seconds: 2.0, ..TimingReport::default() };
    queue.fill(&mut report);
    report
}

#[test]
fn a_queue_that_is_never_empty_is_counted_by_its_changes() {
    let report = report_of(&[12_800, 14_080, 11_520, 12_800]);
    let depth = report.queue.expect("counted");
    assert_eq!((depth.mean, depth.max), (10.0, 11));
    let notes = report.notes.join("\n");
    assert!(notes.contains("1280 bytes, the smallest change of the queue, which was never empty"), "{notes}");
}

#[test]
fn a_queue_that_never_changes_is_not_counted() {
    let report = report_of(&[212_992; 4]);
    assert_eq!((report.queue, report.all.parts.len()), (None, 0));
    let notes = report.notes.join("\n");
    assert!(notes.contains("212992 bytes in all 4 samples") && notes.contains("does not receive"), "{notes}");
}

#[test]
fn load_is_the_share_of_what_the_receiving_threads_can_use() {
    let fake = FakeHost::new();
    let host = Host::at(fake.path());
    let usage_with = |processors: &str, receivers: &[u32]| {
        for pid in [100, 101, 102] {
            fake.run(pid, 0, 0, 1);
        }
        let mut usage = UsageSampler::start(&host, &[100]);
        for pid in [100, 101, 102] {
            fake.run(pid, 450_000_000, 0, 1);
            let status = format!("Cpus_allowed_list:\t{processors}\n");
            fake.write(&format!("{pid}/task/{pid}/status"), &status);
        }
        usage.sample();
        usage.load(&receivers.iter().copied().collect(), 1.0).map(|load| (load * 100.0).round())
    };
    assert_eq!(usage_with("0-7", &[100, 101]), Some(45.0), "two of three threads receive");
    assert_eq!(usage_with("0-7", &[]), Some(45.0), "three threads are busy");
    assert_eq!(usage_with("0,2", &[100]), Some(68.0), "1.35 of the 2 processors for all are in use");
    assert_eq!(usage_with("5", &[100]), Some(135.0), "more than one processor is not there");
}

#[test]
fn a_port_in_the_network_of_a_container_is_found() {
    let fake = FakeHost::new();
    for (pid, network) in [(100, 2), (101, 2), (102, 2), (200, 1)] {
        fs::create_dir_all(fake.path().join(format!("{pid}/ns"))).expect("a folder");
        symlink(format!("net:[{network}]"), fake.path().join(format!("{pid}/ns/net"))).expect("a link");
    }
    for folder in ["net", "200/net"] {
        fake.write(&format!("{folder}/udp"), UDP);
    }
    let program = Host::at(fake.path()).find(Target::Port(5060), None).expect("bound in the container");
    assert_eq!(program.pids, [100, 101, 102]);
    // The process that started the container is in the network of the host.
    fake.write("100/stat", "100 (kamailio) S 200 1 1 0 -1 0\n");
    let ports = Host::at(fake.path()).ports_of(&[200, 100, 101, 102], None, true);
    assert!(ports.contains(&5060), "{ports:?}");
}

#[test]
fn ports_of_processes_are_those_on_which_they_receive() {
    let bind = || UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let (open, connected, listener) = (bind(), bind(), TcpListener::bind("127.0.0.1:0").expect("a socket"));
    connected.connect(open.local_addr().expect("an address")).expect("loopback");
    let [open, connected, listener] = [open.local_addr(), connected.local_addr(), listener.local_addr()]
        .map(|address| address.expect("bound").port());
    let (host, me) = (Host::default(), [std::process::id()]);
    let ports = host.ports_of(&me, None, false);
    assert!(ports.contains(&open) && ports.contains(&listener) && !ports.contains(&connected));
    let datagrams = host.ports_of(&me, Some(Protocol::Udp), true);
    assert!(datagrams.contains(&connected) && !datagrams.contains(&listener));
}
