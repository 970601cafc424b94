//! eBPF programs and memory that they share with this process: `bpf(2)`.

use std::ffi::{CStr, c_int, c_long};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU64;

/// Commands, map types and program types: linux/bpf.h.
const MAP_CREATE: c_int = 0;
const PROG_LOAD: c_int = 5;
const MAP_TYPE_ARRAY: u32 = 2;
const MAP_IS_MAPPABLE: u32 = 1 << 10;
const PROG_TYPE_SOCKET_FILTER: u32 = 1;
/// Maximum attempts to load a program when interrupted.
const LOADS: u32 = 8;
const LICENCE: &CStr = c"Apache-2.0";

/// Argument of `BPF_MAP_CREATE`.
#[repr(C)]
#[derive(Default)]
struct MapAttributes {
    map_type: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

/// Argument of `BPF_PROG_LOAD`.
#[repr(C)]
struct ProgramAttributes {
    program_type: u32,
    instructions: u32,
    code: u64,
    licence: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
}

/// Array of words shared with programs in the kernel.
#[derive(Debug)]
pub(crate) struct SharedWords {
    map: OwnedFd,
    words: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the mapping belongs to this value alone and is read and written only through atomics.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Creates the given number of zero words.
    ///
    /// # Errors
    /// When the kernel refuses: without `CAP_BPF`, or if it is too old.
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        let bytes = count.checked_mul(size_of::<AtomicU64>()).ok_or(io::ErrorKind::InvalidInput)?;
        let value_bytes = u32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let attributes =
            MapAttributes { map_type: MAP_TYPE_ARRAY, key_bytes: 4, value_bytes, entries: 1, flags: MAP_IS_MAPPABLE };
        let map = bpf(MAP_CREATE, &attributes)?;
        // SAFETY: a new mapping at an address chosen by the kernel, of an open descriptor.
        let address = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, map.as_raw_fd(), 0)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let words = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { map, words, count })
    }

    /// Returns all words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has `count` words, is page-aligned and lives as long as this value.
        unsafe { slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }

    /// Returns the descriptor by which a program refers to the words.
    pub(crate) fn number(&self) -> c_int {
        self.map.as_raw_fd()
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: the mapping has this length, and no reference into it remains.
        unsafe { libc::munmap(self.words.as_ptr().cast(), self.count * size_of::<AtomicU64>()) };
    }
}

/// Loads an eBPF program that filters what a socket receives.
///
/// # Errors
/// When the kernel rejects it, or this process lacks the privilege.
pub(crate) fn load_socket_filter(code: &[u64]) -> io::Result<OwnedFd> {
    let attributes = ProgramAttributes {
        program_type: PROG_TYPE_SOCKET_FILTER,
        instructions: u32::try_from(code.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        code: code.as_ptr().addr() as u64,
        licence: LICENCE.as_ptr().addr() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
    };
    let mut tries = LOADS;
    loop {
        match bpf(PROG_LOAD, &attributes) {
            // The kernel verifies the whole program and aborts on a signal.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) && tries > 1 =>
            {
                tries -= 1;
            }
            loaded => return loaded,
        }
    }
}

/// Runs a command that returns a descriptor.
fn bpf<T>(command: c_int, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the pointer is to live attributes of that size, which the kernel only reads; whatever they point to
    // lives as long.
    let result: c_long = unsafe { libc::syscall(libc::SYS_bpf, command, ptr::from_ref(attributes), size_of::<T>()) };
    let descriptor = c_int::try_from(result).unwrap_or(-1);
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}
