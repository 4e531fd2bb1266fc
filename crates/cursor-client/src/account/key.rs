//! API keys.

use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

/// An API key that is valid in an HTTP header. `Debug` does not print it.
#[derive(Debug, Clone)]
pub struct ApiKey(SecretString);

/// Why there is no usable key. Never contains the key itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// There is no key.
    #[error(
        "no Cursor API key: run `cursor-sidecar login`, or set CURSOR_API_KEY to a key from Cursor's dashboard (under Integrations)"
    )]
    Missing,
    /// The key contains a line break, as if two lines of a file were pasted.
    #[error("the Cursor API key contains a line break; give the key alone, on one line")]
    LineBreak,
    /// The key contains something other than visible ASCII.
    #[error("the Cursor API key contains a character that no key has; copy it again")]
    Character,
    /// An access token that no header can carry.
    #[error("the Cursor access token is damaged; sign in again")]
    Token,
    /// The stored login cannot be used, and there is no other credential.
    #[error("the stored Cursor login cannot be used: {0}")]
    StoredLogin(String),
}

impl ApiKey {
    /// Validates a key.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        if text.trim().is_empty() {
            return Err(KeyError::Missing);
        }
        if text.contains(['\n', '\r']) {
            return Err(KeyError::LineBreak);
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(KeyError::Character);
        }
        Ok(Self(text.into()))
    }

    /// Returns the key, for the request header.
    pub fn secret(&self) -> &SecretString {
        &self.0
    }

    /// A short hash that identifies the key without revealing it.
    pub fn fingerprint(&self) -> String {
        let digest = Sha256::digest(self.0.expose_secret().as_bytes());
        digest
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// Whether two keys are the same.
    pub fn same(&self, other: &Self) -> bool {
        self.0.expose_secret() == other.0.expose_secret()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_checked_and_never_printed() {
        let key = ApiKey::parse("crsr_0123").unwrap();
        assert!(!format!("{key:?}").contains("0123"));
        for (text, error) in [
            ("", KeyError::Missing),
            (" \t", KeyError::Missing),
            ("crsr_1\ncrsr_2", KeyError::LineBreak),
            ("crsr_1\r\n", KeyError::LineBreak),
            ("crsr 1", KeyError::Character),
            ("crsr_ü", KeyError::Character),
            ("crsr_\u{7f}", KeyError::Character),
        ] {
            assert_eq!(ApiKey::parse(text).unwrap_err(), error);
        }
    }
}
