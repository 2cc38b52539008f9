//! Exact decimals of any size.
//!
//! A decimal is an unscaled integer, as big-endian two's complement, and a scale: what Connect, Avro and the canonical row carry, so a value
//! passes from the source document to the store without arithmetic. Up to 38 digits everything runs in `i128`; only beyond that a big
//! integer is made. Nothing here rounds: what does not fit is `None`.

use std::fmt::Write as _;

use num_bigint::{BigInt, BigUint, Sign};

use crate::types::DECIMAL_PRECISION_MAX;

/// `unscaled / 10^scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal<'a> {
    /// Big-endian two's complement; empty means zero, as some writers emit it (case DEC-01).
    pub unscaled: &'a [u8],
    /// Digits behind the point; negative means trailing zeros in front of it.
    pub scale: i32,
}

/// The greatest magnitude of a scale that a source value may carry: Postgres' own bound, which keeps the text of any value small.
pub const SCALE_MAX: i32 = 16_383 + 131_072;

/// Bytes of an unscaled integer of [`DECIMAL_PRECISION_MAX`] digits, the most that a value may have: a digit is less than 3.33 bits.
pub const UNSCALED_BYTES_MAX: usize = DECIMAL_PRECISION_MAX as usize * 333 / 800 + 1;

/// Digits beyond which an integer is read in halves: reading them one after the other takes the square of their number.
const DIGITS_AT_ONCE: usize = 1_000;

impl<'a> Decimal<'a> {
    /// The unscaled integer of this value at another scale, where neither needs more than 128 bits and no digit is lost.
    #[inline]
    pub fn rescaled_i128(&self, scale: i32) -> Option<i128> {
        let value = self.unscaled_i128()?;
        if value == 0 || self.scale == scale {
            return Some(value);
        }
        let shift = i64::from(scale) - i64::from(self.scale);
        let power = 10_i128.checked_pow(u32::try_from(shift.unsigned_abs()).ok()?)?;
        if shift >= 0 { value.checked_mul(power) } else { (value % power == 0).then(|| value / power) }
    }

    /// The unscaled integer, where it has at most 128 bits.
    pub fn unscaled_i128(&self) -> Option<i128> {
        i128_from_be(self.unscaled)
    }

    /// The unscaled integer, whatever its size.
    pub fn unscaled_big(&self) -> BigInt {
        BigInt::from_signed_bytes_be(self.unscaled)
    }

    /// True for zero of any scale.
    pub fn is_zero(&self) -> bool {
        self.unscaled.iter().all(|b| *b == 0)
    }

    /// Appends the plain decimal text: as many digits behind the point as the scale says, never an exponent.
    pub fn write_text(&self, out: &mut String) {
        let (negative, digits) = self.digits();
        if negative {
            out.push('-');
        }
        push_scaled(out, &digits, self.scale);
    }

    /// The sign and the decimal digits of the unscaled integer, without leading zeros (`"0"` for zero).
    pub fn digits(&self) -> (bool, String) {
        match self.unscaled_i128() {
            Some(v) => (v < 0, v.unsigned_abs().to_string()),
            None => {
                let big = self.unscaled_big();
                (big.sign() == Sign::Minus, big.magnitude().to_string())
            }
        }
    }

    /// Appends the unscaled integer of this value at another scale, as minimal big-endian two's complement; false where digits would be lost.
    #[must_use]
    pub fn rescale_into(&self, scale: i32, out: &mut Vec<u8>) -> bool {
        if self.scale == scale {
            out.extend_from_slice(minimal(self.unscaled));
            return true;
        }
        let shift = i64::from(scale) - i64::from(self.scale);
        if shift.unsigned_abs() <= 38 {
            let power = 10_i128.checked_pow(shift.unsigned_abs() as u32);
            if let (Some(v), Some(power)) = (self.unscaled_i128(), power) {
                let moved = if shift > 0 { v.checked_mul(power) } else { (v % power == 0).then(|| v / power) };
                match moved {
                    Some(v) => {
                        push_i128(out, v);
                        return true;
                    }
                    None if shift < 0 => return false,
                    None => {}
                }
            }
        }
        if self.is_zero() {
            out.push(0);
            return true;
        }
        if shift.unsigned_abs() > SCALE_MAX as u64 * 2 {
            return false;
        }
        let power = BigInt::from(power_of_ten(shift.unsigned_abs() as u32));
        let big = self.unscaled_big();
        let moved = if shift > 0 {
            big * power
        } else {
            if &big % &power != BigInt::ZERO {
                return false;
            }
            big / power
        };
        out.extend_from_slice(&moved.to_signed_bytes_be());
        true
    }
}

/// The shortest two's complement that stands for the same integer; zero is one byte.
pub fn minimal(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    while let [first, second, ..] = rest {
        let redundant = (*first == 0 && second & 0x80 == 0) || (*first == 0xFF && second & 0x80 != 0);
        if !redundant {
            break;
        }
        rest = &rest[1..];
    }
    if rest.is_empty() { &[0] } else { rest }
}

/// Reads big-endian two's complement of up to 128 significant bits; empty is zero.
pub fn i128_from_be(bytes: &[u8]) -> Option<i128> {
    let bytes = minimal(bytes);
    if bytes.len() > 16 {
        return None;
    }
    let negative = bytes.first().is_some_and(|b| b & 0x80 != 0);
    let mut full = [if negative { 0xFF } else { 0 }; 16];
    full[16 - bytes.len()..].copy_from_slice(bytes);
    Some(i128::from_be_bytes(full))
}

/// Appends the minimal big-endian two's complement of an integer.
pub fn push_i128(out: &mut Vec<u8>, value: i128) {
    out.extend_from_slice(minimal(&value.to_be_bytes()));
}

/// Appends the unscaled integer of a decimal number written as text (`-12.30`, `1E+5`, `+7`) and returns its scale; `None` for anything
/// else. The scale is that of the text: trailing zeros are kept. An exponent may not leave [`SCALE_MAX`].
pub fn parse_into(text: &str, out: &mut Vec<u8>) -> Option<i32> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (mantissa, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], rest[at + 1..].parse::<i32>().ok()?),
        None => (rest, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    if !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    let scale = i32::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
    if scale.unsigned_abs() > SCALE_MAX as u32 {
        return None;
    }
    if whole.len() + fraction.len() <= 38 {
        let mut v: i128 = 0;
        for b in whole.bytes().chain(fraction.bytes()) {
            v = v * 10 + i128::from(b - b'0');
        }
        push_i128(out, if negative { -v } else { v });
    } else {
        let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        let magnitude = magnitude(&digits)?;
        let big = BigInt::from_biguint(if negative { Sign::Minus } else { Sign::Plus }, magnitude);
        out.extend_from_slice(&big.to_signed_bytes_be());
    }
    Some(scale)
}

fn power_of_ten(exponent: u32) -> BigUint {
    BigUint::from(5_u32).pow(exponent) << exponent
}

fn magnitude(digits: &[u8]) -> Option<BigUint> {
    if digits.len() <= DIGITS_AT_ONCE {
        return BigUint::parse_bytes(digits, 10);
    }
    let (high, low) = digits.split_at(digits.len() / 2);
    Some(magnitude(high)? * power_of_ten(u32::try_from(low.len()).ok()?) + magnitude(low)?)
}

/// Whether an integer, big-endian two's complement, has more decimal digits than so many. Its length nearly always tells.
pub fn is_longer(unscaled: &[u8], digits: u32) -> bool {
    let unscaled = minimal(unscaled);
    let sign_bits = unscaled.first().map_or(0, |b| b.leading_zeros().max(b.leading_ones()));
    // Its magnitude has so many bits, or one more where it is negative.
    let bits = 8 * unscaled.len() as u64 - u64::from(sign_bits);
    // Ten is between 2 to the power of 3.321 and of 3.322.
    if (bits + 1) * 1_000 <= u64::from(digits) * 3_321 {
        return false;
    }
    bits.saturating_sub(1) * 1_000 > u64::from(digits) * 3_322 || *BigInt::from_signed_bytes_be(unscaled).magnitude() >= power_of_ten(digits)
}

/// Appends `digits` with the point moved `scale` places to the left.
fn push_scaled(out: &mut String, digits: &str, scale: i32) {
    if scale <= 0 {
        out.push_str(digits);
        if digits != "0" {
            out.extend(std::iter::repeat_n('0', scale.unsigned_abs() as usize));
        }
        return;
    }
    let scale = scale.unsigned_abs() as usize;
    match digits.len().checked_sub(scale).filter(|whole| *whole > 0) {
        Some(whole) => {
            write!(out, "{}.{}", &digits[..whole], &digits[whole..]).expect("a String takes every write");
        }
        None => {
            out.push_str("0.");
            out.extend(std::iter::repeat_n('0', scale - digits.len()));
            out.push_str(digits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(unscaled: &[u8], scale: i32) -> String {
        let mut out = String::new();
        Decimal { unscaled, scale }.write_text(&mut out);
        out
    }

    #[test]
    fn long_integers_are_read_in_halves() {
        for digits in [999, 1_000, 1_001, 2_003, 7_777] {
            let text: String = (0..digits).map(|n| char::from(b'0' + (n * n % 11 % 10) as u8)).collect();
            for text in [format!("-1{text}"), format!("0000{text}"), "9".repeat(digits)] {
                let mut bytes = Vec::new();
                assert_eq!(parse_into(&text, &mut bytes), Some(0));
                assert_eq!(Some(BigInt::from_signed_bytes_be(&bytes)), BigInt::parse_bytes(text.as_bytes(), 10), "{digits}");
            }
        }
    }

    #[test]
    fn the_length_of_an_integer_is_that_of_its_digits() {
        for digits in 0..400_u32 {
            let power = BigInt::from(power_of_ten(digits));
            for (value, of_power) in [(power.clone(), digits + 1), (power - 1, digits)] {
                for bytes in [value.to_signed_bytes_be(), (-value).to_signed_bytes_be()] {
                    for most in digits.saturating_sub(2)..digits + 3 {
                        assert_eq!(is_longer(&bytes, most), of_power > most, "{bytes:02x?} and {most} digits");
                    }
                }
            }
        }
        assert!(!is_longer(&[], 0) && !is_longer(&[0, 0, 0, 0], 0) && is_longer(&[0xFF, 0xFF, 0x80], 2));
    }

    #[test]
    fn case_dec_01_bytes_of_connect_decimals() {
        assert_eq!(text(&[0x80], 2), "-1.28");
        assert_eq!(text(&[0x00, 0x80], 2), "1.28");
        assert_eq!(text(&[0x00], 2), "0.00");
        assert_eq!(text(&[], 2), "0.00");
        assert_eq!(text(&[0x02, 0x54, 0x0B, 0xE3, 0xFF], 2), "99999999.99");
    }

    #[test]
    fn case_dec_02_scale_of_each_value() {
        assert_eq!(text(&[1, 0x2E, 0x0B], 3), "77.323");
        assert_eq!(text(&[1], -3), "1000");
        assert_eq!(text(&[4, 0xD2], 12), "0.000000001234");
    }

    #[test]
    fn text_goes_in_and_comes_out() {
        for t in ["0", "-0.001", "12.30", "99999999999999999999999999999999999999999999999999999999999.5", "-170141183460469231731687303715884105728"]
        {
            let mut bytes = Vec::new();
            let scale = parse_into(t, &mut bytes).expect(t);
            assert_eq!(text(&bytes, scale), t);
        }
        let mut bytes = Vec::new();
        assert_eq!(parse_into("1.5E+3", &mut bytes), Some(-2));
        assert_eq!(text(&bytes, -2), "1500");
        for t in ["", "-", ".", "1e", "NaN", "1_0", "0x1", "1.2.3", "1e999999999"] {
            assert_eq!(parse_into(t, &mut Vec::new()), None, "{t}");
        }
    }

    #[test]
    fn rescaling_never_loses_a_digit() {
        let mut out = Vec::new();
        assert!(Decimal { unscaled: &[0x7F], scale: 1 }.rescale_into(3, &mut out));
        assert_eq!(text(&out, 3), "12.700");
        out.clear();
        assert!(!Decimal { unscaled: &[0x7F], scale: 1 }.rescale_into(0, &mut out));
        let big = BigInt::from(10).pow(70).to_signed_bytes_be();
        out.clear();
        assert!(Decimal { unscaled: &big, scale: 10 }.rescale_into(0, &mut out));
        assert_eq!(text(&out, 0), format!("1{}", "0".repeat(60)));
    }
}
