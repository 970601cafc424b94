//! Scheduling attributes of threads: `sched_getattr(2)`, `sched_setattr(2)`.

use std::io;

/// Returns the attributes of a thread; 0 is the calling one.
pub(crate) fn attributes(thread: i32) -> io::Result<libc::sched_attr> {
    let size = size_of::<libc::sched_attr>() as libc::c_uint;
    let mut attributes = libc::sched_attr {
        size,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the pointer is to a live `sched_attr` whose size is passed to the kernel, which fills it.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut attributes, size, 0) };
    if got == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
}

/// Sets the attributes of a thread; 0 is the calling one.
pub(crate) fn set_attributes(thread: i32, attributes: &libc::sched_attr) -> io::Result<()> {
    // SAFETY: the pointer is to a live `sched_attr` that contains its size; the kernel only reads it.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const *attributes, 0) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
