//! Memory and headers for `recvmmsg`, allocated once, so that unused slots cost nothing per receive.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::slice;

use crate::address::RAW_BYTES;

//= rfc3261#18.1.1:largest-datagram
/// Maximum size of a UDP datagram. Jumbograms are larger, but SIP does not use them.
pub(crate) const SLOT_BYTES: usize = 65_535;
/// Distance between slots. Not a multiple of the page size, so that the starts of the slots, which are read most,
/// fall into different cache sets. The first 1 KiB of a slot lies within one page.
const STRIDE_BYTES: usize = 65 * 1024;
/// Part of each slot that is pre-faulted when the arena is created. Most SIP messages fit, so the first ones after
/// startup incur no page faults. The rest of a slot uses no memory until a datagram fills it.
const PREFAULT_BYTES: usize = 2048;
/// Room for a timestamp (32 bytes) and a drop count (24).
const CONTROL_BYTES: usize = 64;

/// Headers, segments, names and control buffers shared with the kernel.
#[repr(C)]
struct Block {
    headers: [libc::mmsghdr; RECV_BATCH],
    segments: [libc::iovec; RECV_BATCH],
    controls: [Control; RECV_BATCH],
    names: [Name; RECV_BATCH],
}

#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

#[repr(C, align(4))]
struct Name([u8; RAW_BYTES]);

/// A datagram received into a slot.
pub(crate) struct ReceivedSlot<'a> {
    /// Index of the slot.
    pub(crate) slot: usize,
    /// Number of bytes written by the kernel.
    pub(crate) length: usize,
    /// Whether the datagram was larger than the slot.
    pub(crate) is_truncated: bool,
    /// Source address, as returned by `recvmsg`.
    pub(crate) name: &'a [u8],
    /// The control messages.
    pub(crate) control: &'a [u8],
}

/// [`RECV_BATCH`] slots for datagrams.
///
/// Both pointers own their memory. Each header points to its segment, control buffer and name in the same block, and
/// each segment to its slot in the arena. No reference to any of them is held between calls.
pub(crate) struct RecvArena {
    block: NonNull<Block>,
    arena: NonNull<[u8]>,
    slot_bytes: usize,
    owned: PhantomData<(Box<Block>, Box<[u8]>)>,
}

// SAFETY: an arena owns everything it points to, and none of it is tied to a thread.
unsafe impl Send for RecvArena {}

impl RecvArena {
    /// Creates an arena whose slots take datagrams of up to `slot_bytes`, at most [`SLOT_BYTES`].
    pub(crate) fn new(slot_bytes: usize) -> Self {
        let slot_bytes = slot_bytes.min(SLOT_BYTES);
        // For zeroed memory of this size the allocator uses pages from the kernel, which are provided on first write.
        let mut arena = vec![0; RECV_BATCH * STRIDE_BYTES].into_boxed_slice();
        for slot in arena.chunks_exact_mut(STRIDE_BYTES) {
            slot.split_at_mut(PREFAULT_BYTES).0.fill(b'\n');
        }
        // SAFETY: a block consists of integers, bytes and raw pointers, for all of which zero is a valid value.
        let block = unsafe { Box::<Block>::new_zeroed().assume_init() };
        let arena = NonNull::from(Box::leak(arena));
        let block = NonNull::from(Box::leak(block));
        let inbox = Self { block, arena, slot_bytes, owned: PhantomData };
        for slot in 0..RECV_BATCH {
            // SAFETY: `slot` is in range.
            unsafe { inbox.write_header(slot) };
        }
        inbox
    }

    /// Receives up to [`RECV_BATCH`] datagrams, one per slot, without blocking. Calls `on_arrival` for each in order.
    pub(crate) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        mut on_arrival: impl FnMut(ReceivedSlot<'_>),
    ) -> io::Result<usize> {
        let block = self.block.as_ptr();
        // SAFETY: the headers were written when the arena was created and restored after each use. They point to live
        // memory of the sizes they state, to which no reference exists at this point; a null timeout means none.
        let received = unsafe {
            let headers = (&raw mut (*block).headers).cast();
            let (count, flags) = (RECV_BATCH as _, libc::MSG_DONTWAIT as _);
            libc::recvmmsg(socket.as_raw_fd(), headers, count, flags, ptr::null_mut())
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        debug_assert!(received <= RECV_BATCH);
        for slot in 0..received.min(RECV_BATCH) {
            // SAFETY: `slot` is in range. The references cover one header, one name and one control buffer, which
            // nothing else accesses before the next call, and end within the loop.
            unsafe {
                let header = &*(&raw const (*block).headers).cast::<libc::mmsghdr>().add(slot);
                let name = &*(&raw const (*block).names).cast::<Name>().add(slot);
                let control = &*(&raw const (*block).controls).cast::<Control>().add(slot);
                on_arrival(ReceivedSlot {
                    slot,
                    length: header.msg_len as usize,
                    is_truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
                    name: head(&name.0, header.msg_hdr.msg_namelen),
                    control: head(&control.0, header.msg_hdr.msg_controllen),
                });
                self.restore_header(slot);
            }
        }
        Ok(received)
    }

    /// Returns the first `length` bytes of a slot; empty if the slot does not exist or is shorter.
    pub(crate) fn bytes(&self, slot: usize, length: usize) -> &[u8] {
        let is_whole = slot < RECV_BATCH && length <= self.slot_bytes;
        debug_assert!(is_whole, "the kernel writes within the slots that it was given");
        if !is_whole {
            return &[];
        }
        // SAFETY: the range was just checked to be in the arena, whose bytes have been initialized since it was
        // created; the kernel writes only while the arena is borrowed exclusively.
        unsafe { slice::from_raw_parts(self.arena.as_ptr().cast::<u8>().add(slot * STRIDE_BYTES), length) }
    }

    /// Sets the pointers and lengths in a slot's header.
    ///
    /// # Safety
    /// `slot` is less than [`RECV_BATCH`], and no reference to the block or the slot exists.
    unsafe fn write_header(&self, slot: usize) {
        let block = self.block.as_ptr();
        // SAFETY: all offsets are within the block's arrays and the arena, since `slot` is in range.
        unsafe {
            let segment = (&raw mut (*block).segments).cast::<libc::iovec>().add(slot);
            let start = self.arena.as_ptr().cast::<u8>().add(slot * STRIDE_BYTES);
            segment.write(libc::iovec { iov_base: start.cast(), iov_len: self.slot_bytes });
            let header = (&raw mut (*block).headers).cast::<libc::mmsghdr>().add(slot);
            let message = &raw mut (*header).msg_hdr;
            (*message).msg_name = (&raw mut (*block).names).cast::<Name>().add(slot).cast();
            (*message).msg_iov = segment;
            (*message).msg_iovlen = 1;
            (*message).msg_control = (&raw mut (*block).controls).cast::<Control>().add(slot).cast();
            self.restore_header(slot);
        }
    }

    /// Restores the lengths of the name and control buffers in a slot's header. The kernel overwrites them on each
    /// receive; it only reads the rest of the header.
    ///
    /// # Safety
    /// As [`write_header`](Self::write_header), which must have written this header before.
    unsafe fn restore_header(&self, slot: usize) {
        let block = self.block.as_ptr();
        // SAFETY: the offset is within the block's array, since `slot` is in range.
        unsafe {
            let header = (&raw mut (*block).headers).cast::<libc::mmsghdr>().add(slot);
            let message = &raw mut (*header).msg_hdr;
            (*message).msg_namelen = RAW_BYTES as libc::socklen_t;
            (*message).msg_controllen = CONTROL_BYTES as _;
            (*message).msg_flags = 0;
        }
    }
}

impl Drop for RecvArena {
    fn drop(&mut self) {
        // SAFETY: both are leaked boxes, owned by this arena alone and not used again.
        unsafe {
            drop(Box::from_raw(self.block.as_ptr()));
            drop(Box::from_raw(self.arena.as_ptr()));
        }
    }
}

/// Returns the first `length` bytes, or all if `length` exceeds the slice.
fn head(bytes: &[u8], length: impl TryInto<usize>) -> &[u8] {
    let length = length.try_into().unwrap_or(0);
    bytes.get(..length).unwrap_or(bytes)
}

/// Maximum number of datagrams received per system call.
pub const RECV_BATCH: usize = 64;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_recv_arena_works_after_moving_to_another_thread() {
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        receiver.connect(sender.local_addr().expect("bound")).expect("loopback");
        sender.connect(receiver.local_addr().expect("bound")).expect("loopback");
        let mut inbox = RecvArena::new(SLOT_BYTES);
        for round in 1..=3_u8 {
            sender.send(&[round; 9]).expect("loopback takes it");
            // Blocks until the datagram is there, without consuming it.
            receiver.peek(&mut [0; 16]).expect("a datagram");
            let socket = receiver.try_clone().expect("a descriptor");
            let thread = std::thread::spawn(move || {
                let mut lengths = Vec::new();
                let received = inbox.receive(socket.as_fd(), |arrived| {
                    assert!(!arrived.is_truncated);
                    assert_eq!(arrived.name.len(), 16);
                    lengths.push((arrived.slot, arrived.length));
                });
                assert_eq!((received.expect("a datagram waits"), lengths), (1, vec![(0, 9)]));
                inbox
            });
            inbox = thread.join().expect("no panic");
            assert_eq!(inbox.bytes(0, 9), [round; 9]);
        }
    }
}
