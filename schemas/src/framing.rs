//! How a change stands in its log: in Avro's single-object encoding, or in the frame of a schema registry (ARCHITECTURE.md, The log).
//!
//! A registry's id means something only to who asks that registry. So a framed record names its contract in the header [`SCHEMA`] as well: whoever
//! folds the log needs no registry, and a log that goes from one frame to the other folds to the same. Only the bytes in front of the body differ.

use crate::avro::IdBytes;
use crate::contract::Fingerprint;

/// Name of the header of a framed record: the fingerprint of its contract, big-endian, and the length of the frame in one byte.
pub const SCHEMA: &str = "landfall.schema";

/// Length of what a single object begins with.
const OBJECT_BYTES: usize = 10;

/// Length of a registry's frame.
const fn frame_bytes(width: IdBytes) -> usize {
    match width {
        IdBytes::Four => 5,
        IdBytes::Eight => 9,
    }
}

/// Puts a change, a single object, into the frame of a registry: `out` is the record's value then. False for what is no single object, or an id that
/// the frame cannot hold.
#[must_use]
pub fn frame(object: &[u8], id: u64, width: IdBytes, out: &mut Vec<u8>) -> bool {
    let Some(body) = object.get(OBJECT_BYTES..) else { return false };
    out.clear();
    out.push(0);
    match (width, u32::try_from(id)) {
        (IdBytes::Four, Ok(id)) => out.extend_from_slice(&id.to_be_bytes()),
        (IdBytes::Eight, _) => out.extend_from_slice(&id.to_be_bytes()),
        (IdBytes::Four, Err(_)) => return false,
    }
    out.extend_from_slice(body);
    true
}

/// The header of a framed record.
pub fn header(fingerprint: Fingerprint, width: IdBytes) -> [u8; 9] {
    let mut header = [0; 9];
    header[..8].copy_from_slice(&fingerprint.0.to_be_bytes());
    header[8] = frame_bytes(width) as u8;
    header
}

/// The single object of a record of a log, whatever frame it stands in; `object` is where it is put together. What is neither stays as it is, and is
/// found to be damaged by whoever reads it.
pub fn object<'v>(value: &'v [u8], header: impl FnOnce() -> Option<&'v [u8]>, object: &'v mut Vec<u8>) -> &'v [u8] {
    if value.first() != Some(&0) {
        return value;
    }
    let Some([fingerprint @ .., length]) = header().and_then(|header| <&[u8; 9]>::try_from(header).ok()) else { return value };
    let Some(body) = value.get(usize::from(*length)..) else { return value };
    let fingerprint = fingerprint.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    object.clear();
    crate::change::put_fingerprint(Fingerprint(fingerprint), object);
    object.extend_from_slice(body);
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_comes_out_of_any_frame_as_it_went_in() {
        let mut change = Vec::new();
        crate::change::put_fingerprint(Fingerprint(0x0123_4567_89AB_CDEF), &mut change);
        change.extend_from_slice(b"the body");
        assert_eq!(object(&change, || None, &mut Vec::new()), change);
        for (width, id, front) in [(IdBytes::Four, 7, &[0, 0, 0, 0, 7][..]), (IdBytes::Eight, 1 << 40, &[0, 0, 0, 1, 0, 0, 0, 0, 0])] {
            let mut framed = Vec::new();
            assert!(frame(&change, id, width, &mut framed));
            assert_eq!(framed, [front, b"the body"].concat());
            let header = header(Fingerprint(0x0123_4567_89AB_CDEF), width);
            assert_eq!(object(&framed, || Some(&header), &mut Vec::new()), change);
        }
        assert!(!frame(&change, 1 << 40, IdBytes::Four, &mut Vec::new()), "an id of more bytes than there are");
    }

    #[test]
    fn what_has_no_header_stays_as_it_is() {
        let header = header(Fingerprint(1), IdBytes::Four);
        for (value, header) in
            [(&b""[..], Some(&header[..])), (b"\0", Some(&header)), (b"\0\0\0\0\x07x", None), (b"\0\0\0\0\x07x", Some(&header[..8]))]
        {
            assert_eq!(object(value, || header, &mut Vec::new()), value);
        }
    }
}
