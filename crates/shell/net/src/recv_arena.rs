//! The memory that `recvmmsg` fills, and its headers: made once, so that a receive costs nothing for what it did not use.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::slice;

use crate::address::RAW_BYTES;
use crate::batch::RECV_BATCH;

/// No UDP datagram is larger, jumbograms apart, which are not for SIP.
pub(crate) const SLOT_BYTES: usize = 65_535;
/// From one slot to the next. Not a multiple of the page, so that the heads of the slots, which are what is read most,
/// fall on different cache sets; heads of up to 1 KiB lie within one page.
const STRIDE_BYTES: usize = 65 * 1024;
/// The part of each slot that is touched when the inbox is made: most SIP messages fit, so the first of them after the
/// start do not pay for page faults. The rest of a slot costs no memory until a datagram fills it.
const PREFAULT_BYTES: usize = 2048;
/// Room for a time stamp (32 bytes) and a drop count (24).
const CONTROL_BYTES: usize = 64;

/// What the kernel reads and writes beside the datagrams.
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

/// A datagram that the kernel has put into a slot.
pub(crate) struct ReceivedSlot<'a> {
    /// Which of the slots.
    pub(crate) slot: usize,
    /// How many bytes of the slot the kernel has written.
    pub(crate) length: usize,
    /// Whether the datagram was larger than the slot.
    pub(crate) is_truncated: bool,
    /// The sender, as `recvmsg` names it.
    pub(crate) name: &'a [u8],
    /// The control messages.
    pub(crate) control: &'a [u8],
}

/// [`RECV_BATCH`] slots for datagrams.
///
/// Both pointers own their memory. Each header points to its segment, control buffer and name in the same block, each
/// segment to its slot in the arena; no reference to any of that is held from one call to the next.
pub(crate) struct RecvArena {
    block: NonNull<Block>,
    arena: NonNull<[u8]>,
    slot_bytes: usize,
    owned: PhantomData<(Box<Block>, Box<[u8]>)>,
}

// SAFETY: an inbox owns all that it points to, and nothing of it belongs to one thread.
unsafe impl Send for RecvArena {}

impl RecvArena {
    /// An inbox whose slots take datagrams of up to `slot_bytes`, at most [`SLOT_BYTES`].
    pub(crate) fn new(slot_bytes: usize) -> Self {
        let slot_bytes = slot_bytes.min(SLOT_BYTES);
        // The allocator takes zeroed memory of this size from the kernel, which provides a page when it is written.
        let mut arena = vec![0; RECV_BATCH * STRIDE_BYTES].into_boxed_slice();
        for slot in arena.chunks_exact_mut(STRIDE_BYTES) {
            slot.split_at_mut(PREFAULT_BYTES).0.fill(b'\n');
        }
        // SAFETY: a block is integers, bytes and raw pointers, for all of which zero is a value.
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

    /// Receives up to [`RECV_BATCH`] datagrams, one into each slot, without waiting; `on_arrival` sees them in order.
    pub(crate) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        mut on_arrival: impl FnMut(ReceivedSlot<'_>),
    ) -> io::Result<usize> {
        let block = self.block.as_ptr();
        // SAFETY: the headers were written when the inbox was made and restored after each use, and point to live memory
        // of the sizes that they tell, of which no reference exists now; a null time-out means none.
        let received = unsafe {
            let headers = (&raw mut (*block).headers).cast();
            let (count, flags) = (RECV_BATCH as _, libc::MSG_DONTWAIT as _);
            libc::recvmmsg(socket.as_raw_fd(), headers, count, flags, ptr::null_mut())
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        debug_assert!(received <= RECV_BATCH);
        for slot in 0..received.min(RECV_BATCH) {
            // SAFETY: `slot` is in range. The references cover one header, one name and one control buffer, which nobody
            // else touches before the next call, and end within the loop.
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

    /// The first `length` bytes of a slot; none where there is no such slot, or it is not that long.
    pub(crate) fn bytes(&self, slot: usize, length: usize) -> &[u8] {
        let is_whole = slot < RECV_BATCH && length <= self.slot_bytes;
        debug_assert!(is_whole, "the kernel writes within the slots that it was given");
        if !is_whole {
            return &[];
        }
        // SAFETY: the range was just checked to be in the arena, whose bytes have all been values since it was made; the
        // kernel writes only while the inbox is borrowed exclusively.
        unsafe { slice::from_raw_parts(self.arena.as_ptr().cast::<u8>().add(slot * STRIDE_BYTES), length) }
    }

    /// Tells the kernel in a slot's header where there is room.
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

    /// Tells the kernel in a slot's header how much room there is beside the datagram. It must be told anew each time, for that
    /// is also where it answers; the rest of the header it only reads.
    ///
    /// # Safety
    /// As [`write_header`](Self::write_header), which has written this one.
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
        // SAFETY: both were leaked boxes, are owned by this inbox alone and used for the last time.
        unsafe {
            drop(Box::from_raw(self.block.as_ptr()));
            drop(Box::from_raw(self.arena.as_ptr()));
        }
    }
}

/// The first `length` bytes, or all where `length` is more.
fn head(bytes: &[u8], length: impl TryInto<usize>) -> &[u8] {
    let length = length.try_into().unwrap_or(0);
    bytes.get(..length).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn an_inbox_works_the_same_after_moving_to_another_thread() {
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        receiver.connect(sender.local_addr().expect("bound")).expect("loopback");
        sender.connect(receiver.local_addr().expect("bound")).expect("loopback");
        let mut inbox = RecvArena::new(SLOT_BYTES);
        for round in 1..=3_u8 {
            sender.send(&[round; 9]).expect("loopback takes it");
            // Waits for the datagram without taking it.
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
