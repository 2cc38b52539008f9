//! What a record may cost (RELIABILITY.md D 13): 64 MiB and 100 ms, for any record of up to 1 MiB.
//!
//! Time is the thread's own, so that other tests beside it do not count; the crate of the decoders is optimised in the profile of the tests
//! (`opt-level = 2`), with overflow checks. A clock is cheap and the kernel's account of a thread is not, so the account is asked for only where
//! the clock says that it took too long, and the best of three counts.

#![allow(clippy::disallowed_methods, reason = "how long a record takes is what is tested")]

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::allocations;

/// The longest record of which the limits are promised.
pub(crate) const RECORD_BYTES_MAX: usize = 1 << 20;
/// What a record may hold at once.
const BYTES_MAX: usize = 64 << 20;
/// What one without bytes may, so that a short one that takes too much for its length is found as well: the schema of a table of as many columns
/// as may be is worked out with the first record, however short it is.
const BYTES_FIXED: usize = 16 << 20;
/// The processor time that a record may take.
const TIME_MAX: Duration = Duration::from_millis(100);

/// Processor time of this thread so far; where the kernel keeps no account, time.
pub(crate) fn cpu() -> Duration {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let account = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = account.and_then(|text| text.split(' ').next()?.parse().ok());
    nanos.map_or_else(|| BEGAN.elapsed(), Duration::from_nanos)
}

/// Does what a record of so many bytes asks for, and says what of it is too much. It may be done again.
pub(crate) fn within<T>(bytes: usize, mut work: impl FnMut() -> T) -> Result<T, String> {
    let began = Instant::now();
    let (mut done, allocated) = allocations::during(&mut work);
    let mut took = began.elapsed();
    for _ in 0..3 {
        if took <= TIME_MAX {
            break;
        }
        let before = cpu();
        done = work();
        took = cpu() - before;
    }
    let most = BYTES_FIXED + bytes.min(RECORD_BYTES_MAX) * (BYTES_MAX - BYTES_FIXED) / RECORD_BYTES_MAX;
    if allocated.peak > most {
        return Err(format!("{bytes} bytes hold {} bytes of memory, more than {most}", allocated.peak));
    }
    if took > TIME_MAX {
        return Err(format!("{bytes} bytes take {took:?} of the processor's time, more than {TIME_MAX:?}"));
    }
    Ok(done)
}

#[test]
fn what_is_too_much_is_said() {
    assert_eq!(within(0, || vec![0_u8; 15 << 20].len()), Ok(15 << 20));
    assert!(within(0, || vec![0_u8; 17 << 20].len()).is_err());
    assert!(within(1 << 20, || vec![0_u8; 60 << 20].len()).is_ok());
    assert!(within(1 << 20, || vec![0_u8; 65 << 20].len()).is_err());
    let spin = || {
        let began = cpu();
        while cpu() - began < Duration::from_millis(150) {}
    };
    assert!(within(1 << 20, spin).is_err());
}
