//! Addresses as the file writes them: no password in them but by reference, and HTTP addresses of a host and a port.

use crate::secret::{Part, parts};

/// Stands for a reference while an address is looked at.
const REFERENCE: char = '\u{1}';

/// True if a password is written into an address, be it `user:password@` or `password=…`.
pub(super) fn holds_literal_password(text: &str) -> bool {
    let Ok(parts) = parts(text) else {
        // Reported when it is resolved; until then it is not shown to anybody.
        return false;
    };
    let address: String = parts
        .iter()
        .map(|part| match part {
            Part::Literal(literal) => literal.replace(REFERENCE, " "),
            Part::Reference(_) => REFERENCE.to_string(),
        })
        .collect();
    let userinfo = address.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@')).and_then(|(userinfo, _)| userinfo.split_once(':'));
    if let Some((_, password)) = userinfo
        && password.chars().ne([REFERENCE])
    {
        return true;
    }
    let lower = address.to_ascii_lowercase();
    lower.match_indices("password").any(|(place, word)| {
        let after = lower.get(place + word.len()..).unwrap_or_default().trim_start();
        after.strip_prefix('=').is_some_and(|value| !value.trim_start().trim_start_matches('\'').starts_with(REFERENCE))
    })
}

/// An `http(s)://host[:port]` address without login. The error is a fragment that never quotes the address.
pub(super) fn http_address(url: &str) -> Result<(), &'static str> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")).ok_or("does not start with http:// or https://")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if rest.contains('@') {
        return Err("holds a login; write user and password instead");
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let port_legal = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    if host.is_empty() || host.chars().any(|c| c.is_whitespace() || c.is_control()) || !port_legal {
        return Err("has no proper host and port");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{holds_literal_password, http_address};

    #[test]
    fn literal_passwords_are_seen() {
        for literal in [
            "postgresql://u:pw@h/db",
            "postgresql://u:p@w@h/db",
            "postgresql://u:${env:A}x@h/db",
            "postgresql://${env:U}:pw@h/db",
            "postgresql://u@h/db?password=pw",
            "postgresql://u@h/db?sslpassword=pw",
            "host=h user=u password = 'pw'",
            "http://u:pw@h",
            "postgresql://u:@h",
        ] {
            assert!(holds_literal_password(literal), "{literal}");
        }
        for fine in [
            "${env:URL}",
            "postgresql://u@h:5432/db",
            "postgresql://u:${env:PW}@h/db",
            "postgresql://u@h/db?password=${file:/run/pw}",
            "host=h user=u password='${env:PW}'",
            "http://h:8123",
        ] {
            assert!(!holds_literal_password(fine), "{fine}");
        }
    }

    #[test]
    fn http_addresses() {
        for good in ["http://h", "https://h:8443", "http://[::1]:8123", "http://[::1]", "http://h:1/path?x=1"] {
            assert_eq!(http_address(good), Ok(()), "{good}");
        }
        for bad in ["h:8123", "http://", "http://:1", "http://h:0", "http://h:x", "http://u@h", "ftp://h", "http://h h"] {
            assert!(http_address(bad).is_err(), "{bad}");
        }
    }
}
