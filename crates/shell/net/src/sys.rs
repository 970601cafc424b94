//! System calls that std, socket2 and mio do not offer, except the receive, which is in
//! [`RecvArena`](crate::recv_arena::RecvArena).
//!
//! Every function has a safe interface. Pointers passed to the kernel are created here and do not outlive the call.

pub(crate) mod map;
pub(crate) mod scheduling;

use std::ffi::c_int;
use std::io;
use std::mem::{self, MaybeUninit};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use crate::address::{self, RAW_BYTES};
use crate::control_message::{self, Queued};
use crate::send::{MAX_SEGMENT_BYTES, MAX_SEGMENTS, SEND_BATCH};

/// Room for an extended error with the router's address (64 bytes), a timestamp and future additions.
const ERROR_CONTROL_BYTES: usize = 256;

#[repr(C, align(8))]
struct Control([u8; ERROR_CONTROL_BYTES]);

type Name = MaybeUninit<[u8; RAW_BYTES]>;

/// Sets a socket option whose value is an `int`.
pub(crate) fn set_option(socket: BorrowedFd<'_>, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    let length = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the pointer is to a live `c_int` and `length` is its size; the descriptor is open while it is borrowed.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Attaches a classic BPF program to a socket, by the option `name`.
pub(crate) fn attach_program(socket: BorrowedFd<'_>, name: c_int, program: &[libc::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    let size = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: the pointer is to a live `sock_fprog` of that size, which holds the length of the live instructions it
    // points to. The kernel only reads both, and verifies the program.
    let result = unsafe {
        let value = (&raw const program).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, value, size)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Control messages of a sent message. The kernel is given both, only the second, or only the first.
#[repr(C)]
struct SendControl {
    stamp: MaybeUninit<StampRequest>,
    cut: MaybeUninit<SegmentSize>,
}

/// Control message that requests a timestamp of when the message reaches the device (`SO_TIMESTAMPING`).
#[repr(C)]
struct StampRequest {
    header: libc::cmsghdr,
    flags: u32,
    _to_the_next: [u8; 4],
}

impl StampRequest {
    fn new() -> Self {
        // SAFETY: a `cmsghdr` consists of integers, for which zero is valid.
        let mut header: libc::cmsghdr = unsafe { mem::zeroed() };
        header.cmsg_len = (mem::offset_of!(Self, flags) + size_of::<u32>()) as _;
        header.cmsg_level = libc::SOL_SOCKET;
        header.cmsg_type = libc::SO_TIMESTAMPING;
        Self { header, flags: libc::SOF_TIMESTAMPING_TX_SOFTWARE, _to_the_next: [0; 4] }
    }
}

/// Control message that makes the kernel split a message into datagrams of one length (`UDP_SEGMENT`).
#[repr(C)]
struct SegmentSize {
    header: libc::cmsghdr,
    length: u16,
    _to_the_next: [u8; 6],
}

/// A message that may carry several datagrams.
struct SegmentedMessage<'b> {
    header: &'b mut libc::mmsghdr,
    control: &'b mut SendControl,
    /// Whether the message requests a timestamp.
    is_stamped: bool,
    count: &'b mut u8,
    length: usize,
    peer: SocketAddr,
}

impl SegmentedMessage<'_> {
    /// Adds a datagram whose iovec follows those already in the message; returns whether it was added.
    fn try_push(&mut self, length: usize, peer: SocketAddr) -> bool {
        let fits = length == self.length
            && (1..=MAX_SEGMENT_BYTES).contains(&length)
            && *self.count < MAX_SEGMENTS
            && peer == self.peer;
        if !fits {
            return false;
        }
        if *self.count == 1 {
            self.control.cut.write(SegmentSize::into_datagrams(length));
            let (control, bytes) = if self.is_stamped {
                ((&raw mut *self.control).cast(), size_of::<SendControl>())
            } else {
                ((&raw mut self.control.cut).cast(), size_of::<SegmentSize>())
            };
            self.header.msg_hdr.msg_control = control;
            self.header.msg_hdr.msg_controllen = bytes as _;
        }
        self.header.msg_hdr.msg_iovlen += 1;
        *self.count += 1;
        true
    }
}

impl SegmentSize {
    fn into_datagrams(length: usize) -> Self {
        // SAFETY: a `cmsghdr` consists of integers, for which zero is valid.
        let mut header: libc::cmsghdr = unsafe { mem::zeroed() };
        header.cmsg_len = (mem::offset_of!(Self, length) + size_of::<u16>()) as _;
        header.cmsg_level = libc::SOL_UDP;
        header.cmsg_type = libc::UDP_SEGMENT;
        Self { header, length: u16::try_from(length).unwrap_or(u16::MAX), _to_the_next: [0; 6] }
    }
}

/// What the kernel accepted of the offered datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SendResult {
    /// Number of accepted datagrams, from the front.
    pub(crate) datagrams: usize,
    /// Number of these that left in segmented messages.
    pub(crate) joined: usize,
}

/// Sends the first [`SEND_BATCH`] of `messages` in one call, without blocking, and returns how many the kernel
/// accepted.
///
/// If none were accepted, the error is about the first one or is a pending error of an earlier datagram. With
/// segmentation on, consecutive datagrams of one length to one peer leave as one message, and the error may be that
/// this is not possible. With `stamps_first`, the kernel reports when the first message reaches the device.
pub(crate) fn send<'a>(
    socket: BorrowedFd<'_>,
    messages: impl Iterator<Item = (&'a [u8], SocketAddr)>,
    joins: bool,
    stamps_first: bool,
) -> io::Result<SendResult> {
    let mut names = [const { MaybeUninit::<address::RawAddress>::uninit() }; SEND_BATCH];
    let mut segments = [const { MaybeUninit::<libc::iovec>::uninit() }; SEND_BATCH];
    let mut controls = [const { SendControl { stamp: MaybeUninit::uninit(), cut: MaybeUninit::uninit() } }; SEND_BATCH];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; SEND_BATCH];
    let mut counts = [0_u8; SEND_BATCH];
    // The iovecs of a message are adjacent, so one pointer covers them all.
    let mut segment = segments.as_mut_ptr().cast::<libc::iovec>();
    let mut rows = names.iter_mut().zip(&mut controls).zip(&mut headers).zip(&mut counts);
    let (mut used, mut last) = (0, None::<SegmentedMessage<'_>>);
    for (bytes, peer) in messages.take(SEND_BATCH) {
        let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: there is an iovec for each of the messages taken.
        let (own, next) = unsafe {
            segment.write(part);
            (segment, segment.add(1))
        };
        segment = next;
        if joins && last.as_mut().is_some_and(|last| last.try_push(bytes.len(), peer)) {
            continue;
        }
        let Some((((name, control), header), count)) = rows.next() else { break };
        let name = name.write(address::encode(peer));
        let mut message = empty_message();
        message.msg_name = name.bytes.as_mut_ptr().cast();
        message.msg_namelen = name.length;
        message.msg_iov = own;
        message.msg_iovlen = 1;
        let is_stamped = stamps_first && used == 0;
        if is_stamped {
            control.stamp.write(StampRequest::new());
            // Covers the segment size too, which may follow.
            message.msg_control = (&raw mut *control).cast();
            message.msg_controllen = size_of::<StampRequest>() as _;
        }
        let header = header.write(libc::mmsghdr { msg_hdr: message, msg_len: 0 });
        *count = 1;
        last = Some(SegmentedMessage { header, control, is_stamped, count, length: bytes.len(), peer });
        used += 1;
    }
    // SAFETY: `used` headers were written above. Each points to its own name, to as many own iovecs as it states,
    // possibly to written control messages, and through the iovecs to bytes borrowed for 'a. The kernel only reads all of
    // these and writes `msg_len` of the headers.
    let sent =
        unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr().cast(), used, libc::MSG_DONTWAIT as _) };
    let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
    let mut taken = SendResult::default();
    for count in counts.iter().take(sent).copied().map(usize::from) {
        taken.datagrams += count;
        taken.joined += if count > 1 { count } else { 0 };
    }
    Ok(taken)
}

/// Sends one message without blocking. An error is about this message or is a pending error of an earlier datagram.
pub(crate) fn send_one(socket: BorrowedFd<'_>, bytes: &[u8], peer: SocketAddr) -> io::Result<()> {
    let name = address::encode(peer);
    // SAFETY: the pointers are to live bytes and a live name of the given lengths; the kernel only reads them.
    let sent = unsafe {
        let (start, length) = (bytes.as_ptr().cast(), bytes.len());
        let (to, to_length) = (name.bytes.as_ptr().cast(), name.length);
        libc::sendto(socket.as_raw_fd(), start, length, libc::MSG_DONTWAIT, to, to_length)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes one message from the socket's error queue: the destination of a lost datagram, `None` if the kernel did not
/// provide it, and what the message says.
pub(crate) fn take_queued(socket: BorrowedFd<'_>) -> io::Result<(Option<SocketAddr>, Queued)> {
    let mut name = Name::uninit();
    let mut control = MaybeUninit::<Control>::uninit();
    let mut message = empty_message();
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_namelen = RAW_BYTES as libc::socklen_t;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = ERROR_CONTROL_BYTES as _;
    // SAFETY: the message points to a live name and control buffer of the given sizes, and to no iovec, since the
    // lost datagram's bytes are not requested.
    let result =
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel wrote `msg_namelen` bytes of the name.
    let name = unsafe { written(&name, message.msg_namelen) };
    // SAFETY: the kernel wrote `msg_controllen` bytes of the control buffer.
    let control = unsafe { written(&control, message.msg_controllen) };
    Ok((address::decode(name), control_message::read_queued(control)))
}

/// Lets the allocator of the program collect the memory that the calling thread has freed, and with `is_eager` return
/// to the system what all threads have.
pub(crate) fn collect_freed(is_eager: bool) {
    unsafe extern "C" {
        fn mi_collect(force: bool);
    }
    // SAFETY: the function takes no pointers and may be called by any thread at any time.
    unsafe { mi_collect(is_eager) };
}

/// Raises the soft limit on open files to the hard limit and returns it.
pub(crate) fn raise_open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live `rlimit`, which the kernel fills.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the pointer is to a live `rlimit`, which the kernel only reads.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(limit.rlim_cur)
}

/// Calls `on_address` with the flags (`IFF_*`) and the raw IPv4 or IPv6 address of each interface address.
pub(crate) fn for_each_interface_address(mut on_address: impl FnMut(u32, &[u8])) -> io::Result<()> {
    struct List(*mut libc::ifaddrs);
    impl Drop for List {
        fn drop(&mut self) {
            // SAFETY: the list came from `getifaddrs`, and nothing that points into it outlives this guard.
            unsafe { libc::freeifaddrs(self.0) };
        }
    }
    let mut head = ptr::null_mut();
    // SAFETY: the pointer is to a live variable; on success the guard owns the kernel's list.
    if unsafe { libc::getifaddrs(&raw mut head) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let list = List(head);
    let mut entry = list.0;
    // SAFETY: `entry` is null or an entry of the list, which the guard keeps alive through the loop.
    while let Some(interface) = unsafe { entry.as_ref() } {
        entry = interface.ifa_next;
        // SAFETY: `ifa_addr` is null or a socket address within the list, which contains at least its family.
        let Some(family) = (unsafe { interface.ifa_addr.as_ref() }).map(|address| c_int::from(address.sa_family))
        else {
            continue;
        };
        let length = match family {
            libc::AF_INET => size_of::<libc::sockaddr_in>(),
            libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
            _ => continue,
        };
        // SAFETY: an address of that family is that long, and the guard keeps it alive and unchanged.
        on_address(interface.ifa_flags, unsafe { std::slice::from_raw_parts(interface.ifa_addr.cast(), length) });
    }
    Ok(())
}

fn empty_message() -> libc::msghdr {
    // SAFETY: a `msghdr` consists of integers and pointers, for which zero is valid.
    unsafe { mem::zeroed() }
}

/// Returns the first `length` bytes of a buffer, or all of it if `length` is larger.
///
/// # Safety
/// The first `length` bytes must have been written.
unsafe fn written<T>(buffer: &MaybeUninit<T>, length: impl TryInto<usize>) -> &[u8] {
    let length = length.try_into().unwrap_or(0).min(size_of::<T>());
    // SAFETY: the range is within the buffer, borrowed for the same lifetime, and initialized as the caller
    // guarantees.
    unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast(), length) }
}
