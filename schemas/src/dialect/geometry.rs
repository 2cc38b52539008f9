//! Geometries: well-known binary with the number of its reference system inside, as PostGIS writes it (EWKB).
//!
//! Debezium sends a struct of `wkb` and `srid`; the binary may hold the number itself or not (case DEC-15). Put inside, nothing of a value is
//! lost and one column of bytes holds it; a point's `x` and `y` are in the binary, too.

use super::reject::Fault;
use crate::json::{JsonStr, Scanner, Token};

/// The bit of a geometry's type that says that a reference system follows.
const HAS_SRID: u32 = 0x2000_0000;

/// The members `wkb` and `srid` of a struct; `None` where it has no binary.
pub(super) fn members<'a>(token: &Token<'a>) -> Result<Option<(JsonStr<'a>, Option<i64>)>, Fault> {
    let Token::Object(object) = token else { return Err(Fault::Kind) };
    let mut scanner = Scanner::new(object);
    let (mut wkb, mut srid) = (None, None);
    let mut first = true;
    scanner.enter_object().map_err(|_| Fault::Kind)?;
    while let Some(name) = scanner.member(first).map_err(|_| Fault::Kind)? {
        first = false;
        match (name.raw, scanner.value().map_err(|_| Fault::Kind)?) {
            ("wkb", Token::String(s)) if wkb.is_none() => wkb = Some(s),
            ("srid", Token::Number(digits)) if srid.is_none() => srid = Some(digits.parse().map_err(|_| Fault::Kind)?),
            ("srid", Token::Null) | ("x" | "y", Token::Number(_) | Token::Null) => {}
            _ => return Err(Fault::Kind),
        }
    }
    Ok(wkb.map(|wkb| (wkb, srid)))
}

/// Puts the number of the reference system into the binary, where it is not there already; another one there is a contradiction.
pub(super) fn extend(wkb: &mut Vec<u8>, srid: Option<i64>) -> Result<(), Fault> {
    let Some((&[order, ref kind @ ..], rest)) = wkb.split_first_chunk::<5>() else { return Err(Fault::Kind) };
    let read: fn([u8; 4]) -> u32 = match order {
        0 => u32::from_be_bytes,
        1 => u32::from_le_bytes,
        _ => return Err(Fault::Kind),
    };
    let write = |v: u32| if order == 0 { v.to_be_bytes() } else { v.to_le_bytes() };
    let kind = read(*kind);
    let Some(srid) = srid else { return Ok(()) };
    let srid = i32::try_from(srid).map_err(|_| Fault::Range)?.cast_unsigned();
    if kind & HAS_SRID != 0 {
        let inside = rest.first_chunk::<4>().ok_or(Fault::Kind)?;
        return if read(*inside) == srid { Ok(()) } else { Err(Fault::Kind) };
    }
    wkb[1..5].copy_from_slice(&write(kind | HAS_SRID));
    drop(wkb.splice(5..5, write(srid)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::push_hex;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hex")).collect()
    }

    fn extended(hex: &str, srid: Option<i64>) -> Result<String, Fault> {
        let mut wkb = bytes(hex);
        extend(&mut wkb, srid)?;
        let mut out = String::new();
        push_hex(&mut out, &wkb);
        Ok(out)
    }

    /// The texts are those of PostGIS' manual: `ST_AsEWKB` of SRID=4326;POINT(1.5 -2.25) is the plain one with flag and number behind the type.
    #[test]
    fn case_dec_15_the_reference_system_goes_inside() {
        let (plain, extended_text) = ("0101000000000000000000f83f00000000000002c0", "0101000020e6100000000000000000f83f00000000000002c0");
        assert_eq!(extended(plain, Some(4326)).as_deref(), Ok(extended_text));
        assert_eq!(extended(extended_text, Some(4326)).as_deref(), Ok(extended_text));
        assert_eq!(extended(extended_text, None).as_deref(), Ok(extended_text));
        assert_eq!(extended(plain, None).as_deref(), Ok(plain));
        assert_eq!(extended(extended_text, Some(3857)), Err(Fault::Kind));
        let big_endian = "00000000013ff8000000000000c002000000000000";
        assert_eq!(extended(big_endian, Some(4326)).as_deref(), Ok("0020000001000010e63ff8000000000000c002000000000000"));
    }

    #[test]
    fn what_is_no_geometry_is_refused() {
        for hex in ["", "01", "0101000020e610", "0201000000", "5f5f646562657a69756d"] {
            assert!(extended(hex, Some(4326)).is_err(), "{hex}");
        }
        for text in [r#"{"srid":1}"#, r#"{"wkb":"AQ==","wkb":"AQ=="}"#, r#"{"wkb":"AQ==","z":1}"#, r#""AQ==""#] {
            let token = Scanner::new(text).value().expect("JSON");
            assert!(!matches!(members(&token), Ok(Some(_))), "{text}");
        }
    }
}
