//! Masks: what stands in the place of a value that may not leave its source.
//!
//! A keyed hash (HMAC-SHA-256, RFC 2104) of the value's canonical text, in hexadecimal: the same value gives the same mask in every table,
//! encoding and store, so that masked columns still join; without the salt nobody finds values by trying them out.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::types::LogicalType;
use crate::value::{Value, push_hex};

/// Makes the masks of one salt.
#[derive(Clone)]
pub struct Mask(Hmac<Sha256>);

impl Mask {
    /// The masks of a salt of any length.
    pub fn new(salt: &[u8]) -> Self {
        Self(Hmac::new_from_slice(salt).expect("a key may have any length"))
    }

    /// Writes the mask of a value that is not NULL: 64 hexadecimal digits. `scratch` holds the clear text for a moment only.
    pub fn write(&self, ty: LogicalType, value: &Value<'_>, scratch: &mut String, out: &mut String) {
        scratch.clear();
        value.write_text(ty, scratch);
        let mut hash = self.0.clone();
        hash.update(scratch.as_bytes());
        scratch.clear();
        out.clear();
        push_hex(out, &hash.finalize().into_bytes());
    }
}

/// The salt never prints.
impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mask(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(salt: &str, ty: &str, value: Value<'_>) -> String {
        let (mut scratch, mut out) = (String::new(), String::new());
        Mask::new(salt.as_bytes()).write(ty.parse().expect(ty), &value, &mut scratch, &mut out);
        assert_eq!(scratch, "", "the clear text is gone");
        out
    }

    #[test]
    fn masks_are_those_of_the_specification() {
        // RFC 4231, test case 2.
        let text = Value::Text("what do ya want for nothing?");
        assert_eq!(mask("Jefe", "text", text), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        // printf 7 | openssl dgst -sha256 -hmac pepper
        assert_eq!(mask("pepper", "int32", Value::Int(7)), "86693d50efdc246c3c8d898667e7714b2d45096dd20a088aa7fd609d263cdcbd");
        assert_eq!(mask("pepper", "int64", Value::Int(7)), mask("pepper", "text", Value::Text("7")));
        assert_ne!(mask("pepper", "int32", Value::Int(7)), mask("salt", "int32", Value::Int(7)));
    }

    #[test]
    fn the_salt_does_not_print() {
        assert_eq!(format!("{:?}", Mask::new(b"secret")), "Mask(***)");
    }
}
