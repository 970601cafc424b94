//! Programs of other shapes: several threads, processes, batches, streams.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use strowger_timing::{MessageType, MethodName, PacketRecord, Part, Probe, ProbeOptions, Protocol, Target};

use crate::support::{PATIENCE, assert_close, median_us, skip, start, stop, work};

/// Work for a packet whose first byte is `digit`, so that a record shows by its length which packet it is of.
fn work_of(length: usize) -> Duration {
    Duration::from_micros(100 * length as u64)
}

/// Sends packets of 1 to 4 bytes, with some in flight, to a server on `port`, and waits for the answers.
fn exchange(port: u16, packets: usize) {
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(("127.0.0.1", port)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let send = |number: usize| client.send(&[b'x'; 4][..1 + number % 4]).unwrap();
    (0..6).for_each(|number| assert!(send(number) > 0));
    for number in 6..packets + 6 {
        client.recv(&mut [0; 10]).expect("an answer comes");
        if number < packets {
            send(number);
        }
    }
}

/// Asserts that each packet has a record, and the time in the program that its length tells.
fn assert_each_has_its_own(records: &[PacketRecord], packets: usize) {
    assert!(records.len() + 8 >= packets, "{} records of {packets} packets", records.len());
    for length in 1..=4_usize {
        let own: Vec<_> = records.iter().filter(|record| record.length == length as u32).cloned().collect();
        assert_close("T_app", median_us(&own, Part::Application), work_of(length).as_micros() as f64);
    }
    let paired = records.iter().filter(|record| record.times.get(Part::Receive).is_some()).count();
    assert!(paired + 12 >= records.len(), "{paired} of {} have K_rcv", records.len());
}

#[test]
fn several_threads_on_one_socket_have_the_times_of_their_own_packets() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let Some(probe) = start(Target::Process(std::process::id())) else { return };
    let packets = 600;
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                server.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
                let mut buffer = [0; 10];
                while let Ok((length, peer)) = server.recv_from(&mut buffer) {
                    work(work_of(length));
                    server.send_to(&buffer[..length], peer).unwrap();
                }
            });
        }
        exchange(port, packets);
    });
    let records: Vec<_> = stop(probe).into_iter().filter(|record| record.port == port).collect();
    assert_each_has_its_own(&records, packets);
    let mut threads: Vec<_> = records.iter().map(|record| record.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    assert_eq!(threads.len(), 3);
}

/// A server of two processes that share a socket, as Kamailio's; the second begins after the probe.
const FORKING_SERVER: &str = r#"
import os, socket, sys, time
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
sys.stdin.readline()
os.fork()
while True:
    packet, peer = server.recvfrom(100)
    end = time.perf_counter() + 100e-6 * len(packet)
    while time.perf_counter() < end:
        pass
    server.sendto(packet, peer)
"#;

/// A child that ends with the test, and its children with it.
struct Server(Child, u16);

impl Server {
    fn start() -> Option<Self> {
        let mut child = Command::new("python3")
            .args(["-c", FORKING_SERVER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut()?), &mut line).ok()?;
        let port = line.trim().parse().ok()?;
        Some(Self(child, port))
    }

    fn go(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.0.id()));
        for child in children.unwrap_or_default().split_whitespace() {
            let _ = Command::new("kill").arg(child).status();
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn processes_that_share_a_socket_are_all_measured() {
    for by_port in [false, true] {
        let Some(mut server) = Server::start() else {
            skip("python3 is not installed");
            return;
        };
        let target = if by_port { Target::Port(server.1) } else { Target::Process(server.0.id()) };
        let Some(probe) = start(target) else { return };
        server.go();
        let packets = 400;
        exchange(server.1, packets);
        let processes = probe.processes();
        let ports = probe.ports();
        let records = stop(probe);
        assert_eq!((processes.len(), ports), (2, vec![server.1]));
        assert!(records.len() + 12 >= packets, "{} records of {packets} packets", records.len());
        let fours: Vec<_> = records.iter().filter(|record| record.length == 4).cloned().collect();
        let measured = median_us(&fours, Part::Application);
        assert!((400.0..440.0).contains(&measured), "{measured} µs");
    }
}

/// Receives up to four packets with recvmmsg and returns their number.
fn receive_batch(socket: &UdpSocket) -> usize {
    let mut buffers = [[0_u8; 100]; 4];
    let mut vectors =
        buffers.each_mut().map(|buffer| libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: 100 });
    let mut headers = vectors.each_mut().map(|vector| {
        // SAFETY: all-zero headers are valid.
        let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        header.msg_hdr.msg_iov = vector;
        header.msg_hdr.msg_iovlen = 1;
        header
    });
    // SAFETY: four headers, each with one buffer of 100 bytes, outlive the call.
    let count = unsafe {
        libc::recvmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), 4, libc::MSG_WAITFORONE, std::ptr::null_mut())
    };
    usize::try_from(count).expect("packets come")
}

#[test]
fn packets_of_one_receive_call_share_the_time_after_it() {
    let [server, client] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    client.connect(server.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let peer = client.local_addr().unwrap();
    let Some(probe) = start(Target::Port(server.local_addr().unwrap().port())) else { return };
    let (queued, wait_for_queue) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..=200 {
                for payload in [b"BYE sip:a SIP/2.0\r\n".as_slice(), b"ACK sip:ab SIP/2.0\r\n", b"\r\n"] {
                    client.send(payload).unwrap();
                }
                queued.send(()).unwrap();
                client.recv(&mut [0; 10]).expect("an answer comes");
            }
        });
        while wait_for_queue.recv().is_ok() {
            work(Duration::from_micros(100));
            assert_eq!(receive_batch(&server), 3);
            work(Duration::from_micros(150));
            server.send_to(b"done", peer).unwrap();
        }
    });
    let records = stop(probe);
    assert!(records.len() >= 600, "{} records", records.len());
    assert!(records.iter().all(|record| record.batch == 3));
    let of = |message| records.iter().filter(|record| record.message == message).cloned().collect::<Vec<_>>();
    let bye = of(MessageType::Request(MethodName::Bye));
    let keep_alive = of(MessageType::KeepAlive);
    assert_close("T_app", median_us(&bye, Part::Application), 50.0);
    assert_close("T_app", median_us(&keep_alive, Part::Application), 50.0);
    assert_close("receive batch", median_us(&keep_alive, Part::ReceiveBatch), 100.0);
    assert_close("send batch", median_us(&bye, Part::SendBatch), 100.0);
    assert!(median_us(&bye, Part::ReceiveBatch) < 10.0);
    assert!(median_us(&bye, Part::SocketQueue) >= 100.0);
    assert_eq!(of(MessageType::Request(MethodName::Ack)).len(), bye.len());
}

#[test]
fn a_stream_has_the_parts_too() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.set_nodelay(true).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    server.set_nodelay(true).unwrap();
    let Some(probe) = start(Target::Port(port)) else { return };
    let mut buffer = [0; 1_000];
    for _ in 0..=200 {
        client.write_all(b"INVITE sip:a@b SIP/2.0\r\nContent-Length: 0\r\n\r\n").unwrap();
        work(Duration::from_micros(200));
        let length = server.read(&mut buffer).unwrap();
        work(Duration::from_micros(100));
        server.write_all(&buffer[..length]).unwrap();
        client.read_exact(&mut buffer[..length]).unwrap();
    }
    let records = stop(probe);
    assert!(records.len() >= 200, "{} records", records.len());
    let invite = MessageType::Request(MethodName::Invite);
    assert!(records.iter().all(|record| record.is_stream && record.message == invite && record.port == port));
    assert_close("K_sockq", median_us(&records, Part::SocketQueue), 201.0);
    assert_close("T_app", median_us(&records, Part::Application), 100.0);
    assert!(median_us(&records, Part::Stack) > 0.0 && median_us(&records, Part::Send) > 0.0);
}

#[test]
fn drops_are_counted_by_the_kernels_reason() {
    let [server, client] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    socket2::SockRef::from(&server).set_recv_buffer_size(4_096).unwrap();
    client.connect(server.local_addr().unwrap()).unwrap();
    let Some(probe) = start(Target::Port(server.local_addr().unwrap().port())) else { return };
    (0..100).for_each(|_| drop(client.send(&[0; 500])));
    server.set_nonblocking(true).unwrap();
    let received = std::iter::from_fn(|| server.recv(&mut [0; 500]).ok()).count() as u64;
    let drops = probe.drops();
    assert_eq!(drops.values().sum::<u64>(), 100 - received, "{drops:?}");
    assert!(drops.contains_key("SOCKET_RCVBUFF") || drops.contains_key("reason 0"), "{drops:?}");
    assert_eq!(probe.lost_events(), 0);
}

#[test]
fn the_port_of_a_closed_socket_is_no_longer_watched() {
    let [closed, open] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let [closed_port, open_port] = [&closed, &open].map(|socket| socket.local_addr().unwrap().port());
    let Some(mut probe) = start(Target::Process(std::process::id())) else { return };
    assert!([closed_port, open_port].iter().all(|port| probe.ports().contains(port)));
    drop(closed);
    let begun = Instant::now();
    while probe.ports().contains(&closed_port) {
        assert!(begun.elapsed() < PATIENCE, "the port is still watched");
        probe.poll(Duration::from_millis(100), &mut Vec::new());
    }
    assert!(probe.ports().contains(&open_port));
}

/// Offset of the TCP header in a frame of the loopback device without IP options.
const TCP_HEADER: usize = 34;

/// A socket that receives and sends whole frames of the loopback device.
fn frames_of_loopback() -> socket2::Socket {
    let protocol = u16::to_be(0x0800);
    let socket = socket2::Socket::new(
        socket2::Domain::PACKET,
        socket2::Type::RAW,
        Some(socket2::Protocol::from(i32::from(protocol))),
    );
    let socket = socket.expect("root may have it");
    // SAFETY: the storage is zeroed, and large enough for the address, whose size is given.
    let (_, address) = unsafe {
        socket2::SockAddr::try_init(|storage, size| {
            let address = storage.cast::<libc::sockaddr_ll>();
            (*address).sll_family = libc::AF_PACKET as u16;
            (*address).sll_protocol = protocol;
            (*address).sll_ifindex = libc::if_nametoindex(c"lo".as_ptr()) as i32;
            *size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            Ok(())
        })
    }
    .unwrap();
    socket.bind(&address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sets the checksum of a TCP segment, which the loopback device leaves out.
fn set_checksum(frame: &mut [u8]) {
    frame[TCP_HEADER + 16..TCP_HEADER + 18].fill(0);
    let length = (frame.len() - TCP_HEADER) as u32;
    let mut sum = length + 6;
    for pair in frame[TCP_HEADER - 8..].chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from);
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    frame[TCP_HEADER + 16..TCP_HEADER + 18].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

#[test]
fn a_segment_that_comes_twice_is_no_drop() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let Some(probe) = start(Target::Port(port)) else { return };
    let mut frames = frames_of_loopback();
    for _ in 0..20 {
        client.write_all(b"x").unwrap();
        server.read_exact(&mut [0]).unwrap();
        let mut frame = [0; 2_000];
        let length = loop {
            let length = frames.read(&mut frame).expect("the segment is seen");
            let is_tcp = frame[23] == 6 && frame[TCP_HEADER + 2..TCP_HEADER + 4] == port.to_be_bytes();
            let header = TCP_HEADER + usize::from(frame[TCP_HEADER + 12] >> 4) * 4;
            if is_tcp && length == header + 1 {
                break length;
            }
        };
        set_checksum(&mut frame[..length]);
        frames.write_all(&frame[..length]).unwrap();
    }
    assert_eq!(probe.drops().values().sum::<u64>(), 0, "{:?}", probe.drops());
    let notes = probe.notes().join("\n");
    assert!(notes.contains("TCP repeated 20 segments"), "{notes}");
}

#[test]
fn a_process_that_does_not_exist_is_no_target() {
    let Some(_) = start(Target::Process(std::process::id())) else { return };
    let error = Probe::start(Target::Process(u32::MAX >> 1), &Default::default()).unwrap_err();
    assert!(error.to_string().contains("there is no process"), "{error}");
}

#[test]
fn another_protocol_is_left_out() {
    let [server, client] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    client.connect(server.local_addr().unwrap()).unwrap();
    let target = Target::Port(server.local_addr().unwrap().port());
    let Some(probe) = start(target) else { return };
    let streams = Probe::start(target, &ProbeOptions { protocol: Some(Protocol::Tcp) }).unwrap();
    for _ in 0..10 {
        client.send(b"x").unwrap();
        server.recv(&mut [0; 10]).unwrap();
    }
    assert!(stop(probe).len() >= 9);
    assert_eq!(stop(streams), []);
}

#[test]
fn looking_at_a_packet_and_reading_errors_receives_nothing() {
    let [server, client] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    client.connect(server.local_addr().unwrap()).unwrap();
    // Closed at once.
    let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let on: libc::c_int = 1;
    // SAFETY: the value outlives the call and has the given size.
    let set = unsafe {
        let (value, size) = ((&raw const on).cast(), size_of_val(&on) as libc::socklen_t);
        libc::setsockopt(server.as_raw_fd(), libc::IPPROTO_IP, libc::IP_RECVERR, value, size)
    };
    assert_eq!(set, 0);
    let Some(probe) = start(Target::Port(server.local_addr().unwrap().port())) else { return };
    let mut buffer = [0; 10];
    for _ in 0..10 {
        client.send(b"x").unwrap();
        server.peek(&mut buffer).unwrap();
        server.recv(&mut buffer).unwrap();
        // Loopback reports at once that nobody is there.
        server.send_to(b"error", closed).unwrap();
        let mut error = [std::mem::MaybeUninit::uninit(); 10];
        socket2::SockRef::from(&server).recv_with_flags(&mut error, libc::MSG_ERRQUEUE).unwrap();
    }
    let records = stop(probe);
    assert_eq!(records.len(), 10);
    assert!(records.iter().all(|record| record.length == 1 && record.times.get(Part::Receive).is_some()));
}
