//! Decimals in the binary form of `numeric`: digits of base 10 000, aligned to the point.
//!
//! Sixteen-bit words: count of digits, weight (power of 10 000 of the first digit), sign, display scale, digits; no zero digits at either end
//! (`numeric_send` in the server's sources). Up to 38 decimal digits nothing is allocated and everything runs in machine integers; longer
//! ones go through their decimal text.

use bytes::{BufMut, BytesMut};
use landfall_schemas::Decimal;
use landfall_schemas::value::NotFinite;

const BASE: u64 = 10_000;
const BASE_DIGITS: i64 = 4;
const NEGATIVE: u16 = 0x4000;

/// Most digits of base 10 000 in a `u128`.
const SMALL_GROUPS: usize = 10;

/// Appends the length and the value. The value must fit a `numeric` (`landfall_schemas::store::postgres::numeric`).
pub(super) fn put(value: &Decimal<'_>, out: &mut BytesMut) {
    let scale = i64::from(value.scale);
    let pad = (-scale).rem_euclid(BASE_DIGITS);
    match value.unscaled_i128() {
        Some(unscaled) => match unscaled.unsigned_abs().checked_mul(10_u128.pow(pad as u32)) {
            Some(aligned) => put_small(aligned, unscaled < 0, scale, pad, out),
            None => put_large(value, out),
        },
        None => put_large(value, out),
    }
}

/// Appends an unsigned integer as `numeric`.
pub(super) fn put_u64(value: u64, out: &mut BytesMut) {
    put_small(value.into(), false, 0, 0, out);
}

/// Appends what is no number: no digits, and a sign of its own. Infinities are known to Postgres 14 and later.
pub(super) fn put_not_finite(value: NotFinite, out: &mut BytesMut) {
    let sign = match value {
        NotFinite::Nan => 0xC000,
        NotFinite::Infinity => 0xD000,
        NotFinite::NegativeInfinity => 0xF000,
    };
    out.put_i32(8);
    for word in [0, 0, sign, 0] {
        out.put_u16(word);
    }
}

/// `aligned` is the magnitude times 10^pad, so that its last base-10 000 digit ends at the point or a multiple of four places from it.
fn put_small(mut aligned: u128, negative: bool, scale: i64, pad: i64, out: &mut BytesMut) {
    let mut groups = [0_u16; SMALL_GROUPS];
    let mut at = SMALL_GROUPS;
    while let Err(_too_large) = u64::try_from(aligned) {
        at -= 1;
        groups[at] = (aligned % u128::from(BASE)) as u16;
        aligned /= u128::from(BASE);
    }
    let mut low = aligned as u64;
    while low > 0 {
        at -= 1;
        groups[at] = (low % BASE) as u16;
        low /= BASE;
    }
    put_groups(&groups[at..], negative, scale, (scale + pad) / BASE_DIGITS, out);
}

fn put_large(value: &Decimal<'_>, out: &mut BytesMut) {
    let scale = i64::from(value.scale);
    let pad = (-scale).rem_euclid(BASE_DIGITS);
    let (negative, mut digits) = value.digits();
    digits.extend(std::iter::repeat_n('0', pad as usize));
    // The first group may have fewer than four digits.
    let groups: Vec<u16> = digits
        .as_bytes()
        .rchunks(BASE_DIGITS as usize)
        .rev()
        .map(|group| group.iter().fold(0, |v, digit| v * 10 + u16::from(digit - b'0')))
        .collect();
    put_groups(&groups, negative, scale, (scale + pad) / BASE_DIGITS, out);
}

/// `fraction` is how many of the groups stand behind the point; negative where zeros follow them in front of it.
fn put_groups(groups: &[u16], negative: bool, scale: i64, fraction: i64, out: &mut BytesMut) {
    let first = groups.iter().position(|g| *g != 0).unwrap_or(groups.len());
    let last = groups.iter().rposition(|g| *g != 0).map_or(first, |at| at + 1);
    let digits = &groups[first..last];
    let weight = if digits.is_empty() { 0 } else { groups.len() as i64 - first as i64 - 1 - fraction };
    out.put_i32(8 + 2 * digits.len() as i32);
    out.put_u16(digits.len() as u16);
    out.put_i16(weight as i16);
    out.put_u16(if negative { NEGATIVE } else { 0 });
    out.put_u16(scale.max(0) as u16);
    for digit in digits {
        out.put_u16(*digit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words behind the length: count, weight, sign, scale, digits.
    fn words(text: &str) -> Vec<i32> {
        let mut unscaled = Vec::new();
        let scale = landfall_schemas::decimal::parse_into(text, &mut unscaled).expect(text);
        let mut out = BytesMut::new();
        put(&Decimal { unscaled: &unscaled, scale }, &mut out);
        let length = u32::from_be_bytes(out[..4].try_into().expect("four bytes")) as usize;
        assert_eq!(length, out.len() - 4, "{text}");
        out[4..].chunks(2).map(|w| i32::from(i16::from_be_bytes([w[0], w[1]]))).collect()
    }

    /// What the server itself sends for these (`SELECT numeric_send('…')`).
    #[test]
    fn as_the_server_writes_them() {
        for (text, expected) in [
            ("0", &[0, 0, 0, 0][..]),
            ("0.00", &[0, 0, 0, 2]),
            ("1", &[1, 0, 0, 0, 1]),
            ("-1", &[1, 0, 0x4000, 0, 1]),
            ("10000", &[1, 1, 0, 0, 1]),
            ("12345.678", &[3, 1, 0, 3, 1, 2345, 6780]),
            ("0.0001", &[1, -1, 0, 4, 1]),
            ("0.00001", &[1, -2, 0, 5, 1000]),
            ("1.10", &[2, 0, 0, 2, 1, 1000]),
            ("1E+9", &[1, 2, 0, 0, 10]),
            ("99999999", &[2, 1, 0, 0, 9999, 9999]),
        ] {
            assert_eq!(words(text), expected, "{text}");
        }
    }

    #[test]
    fn both_ways_agree_where_they_meet() {
        for text in ["0", "1", "-99999.9999", "123456789012345678901234567890.12345678", "0.000000000000000000001", "5E+7", "-1E+30"] {
            let mut unscaled = Vec::new();
            let scale = landfall_schemas::decimal::parse_into(text, &mut unscaled).expect(text);
            let value = Decimal { unscaled: &unscaled, scale };
            let (mut small, mut large) = (BytesMut::new(), BytesMut::new());
            put(&value, &mut small);
            put_large(&value, &mut large);
            assert_eq!(small, large, "{text}");
        }
    }

    #[test]
    fn the_widest_machine_integers_fit_their_buffer() {
        for unscaled in [i128::MIN, i128::MAX] {
            for scale in [-3, 0, 1, 2, 3, 4, 37, 38] {
                let bytes = unscaled.to_be_bytes();
                let value = Decimal { unscaled: &bytes, scale };
                let (mut one, mut other) = (BytesMut::new(), BytesMut::new());
                put(&value, &mut one);
                put_large(&value, &mut other);
                assert_eq!(one, other, "{unscaled} {scale}");
            }
        }
        let mut out = BytesMut::new();
        put_u64(u64::MAX, &mut out);
        assert_eq!(&out[4..12], [0, 5, 0, 4, 0, 0, 0, 0]);
    }
}
