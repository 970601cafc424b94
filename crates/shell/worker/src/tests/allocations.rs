//! In steady state no message costs an allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use super::single::Alone;
use super::{options, phone};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is left to the system's allocator; counting touches a thread-local without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_warm_loop_allocates_nothing() {
    let mut alone = Alone::new(4);
    let phone = phone(alone.address);
    let (request, mut buffer) = (options("2-hello"), [0; 2048]);
    let mut round = || {
        for _ in 0..20 {
            phone.send(&request).expect("loopback takes it");
        }
        alone.step();
        for _ in 0..20 {
            phone.recv(&mut buffer).expect("an answer in time");
        }
    };
    round();
    round();
    let before = ALLOCATIONS.get();
    (0..100).for_each(|_| round());
    assert_eq!(ALLOCATIONS.get() - before, 0);
}
