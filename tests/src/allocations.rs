//! How much a thread allocates: the system's allocator, counted.
//!
//! Two additions to a thread's own counters for each allocation, so it costs the other tests nothing that shows. Threads do not see each other,
//! so tests may run side by side. What libraries in C and C++ allocate is not counted.

#![allow(unsafe_code, reason = "an allocator cannot be written without; every call is handed on as it came")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counted by thread.
#[derive(Debug)]
pub struct Counting;

/// Bytes came and others went. A thread that is ending counts no more.
fn note(came: usize, went: usize) {
    let live = LIVE.try_with(|live| {
        live.set(live.get().wrapping_add_unsigned(came).wrapping_sub_unsigned(went));
        live.get()
    });
    if let (Ok(live), true) = (live, came > 0) {
        COUNT.try_with(|count| count.set(count.get() + 1)).ok();
        PEAK.try_with(|peak| peak.set(peak.get().max(live))).ok();
    }
}

// SAFETY: the system's allocator does the work, and is called exactly as this one was.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller keeps the rules of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller keeps the rules of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size, layout.size());
        // SAFETY: the caller keeps the rules of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(0, layout.size());
        // SAFETY: the caller keeps the rules of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// What a piece of work allocated, by its own thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocated {
    /// How many times.
    pub count: u64,
    /// The most bytes that it held at once, beyond what was held when it began.
    pub peak: usize,
}

/// Does a piece of work and tells what it allocated.
pub fn during<T>(work: impl FnOnce() -> T) -> (T, Allocated) {
    let (count, live) = (COUNT.get(), LIVE.get());
    PEAK.set(live);
    let done = work();
    (done, Allocated { count: COUNT.get() - count, peak: usize::try_from(PEAK.get() - live).unwrap_or(0) })
}
