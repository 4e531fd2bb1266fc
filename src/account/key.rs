//! API keys.

use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

/// A key that can stand in a header. `Debug` does not show it.
#[derive(Debug, Clone)]
pub struct ApiKey(SecretString);

/// Why there is no usable key. Never holds the key itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Nothing given.
    #[error(
        "no Cursor API key: give one with /login, with --api-key or in CURSOR_API_KEY (keys are made in Cursor's dashboard, under Integrations)"
    )]
    Missing,
    /// A key with a line break is two lines of a file, not a key.
    #[error("the Cursor API key contains a line break; give the key alone, on one line")]
    LineBreak,
    /// Spaces, control characters, anything that is no visible ASCII.
    #[error("the Cursor API key contains a character that no key has; copy it again")]
    Character,
}

/// What hosts put in the place of a key they do not have: the environment's is meant.
const PLACEHOLDERS: [&str; 4] = [
    "cursor-key-not-given-to-pi",
    "CURSOR_API_KEY",
    "$CURSOR_API_KEY",
    "${CURSOR_API_KEY}",
];

impl ApiKey {
    /// The key a host gives, else the environment's.
    pub fn given(
        key: Option<&str>,
        environment: impl FnOnce() -> Option<String>,
    ) -> Result<Self, KeyError> {
        match key.filter(|key| !PLACEHOLDERS.contains(key)) {
            Some(key) => Self::parse(key),
            None => Self::parse(&environment().unwrap_or_default()),
        }
    }

    /// Checks a key as given.
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

    /// The key, for the one header that carries it.
    pub fn secret(&self) -> &SecretString {
        &self.0
    }

    /// A short name for the key that does not give it away.
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
    fn a_placeholder_means_the_environments() {
        let same = |given: Option<&str>, wanted: &str| {
            let key = ApiKey::given(given, || Some("crsr_env".into())).unwrap();
            key.same(&ApiKey::parse(wanted).unwrap())
        };
        assert!(same(None, "crsr_env"));
        assert!(same(Some("${CURSOR_API_KEY}"), "crsr_env"));
        assert!(same(Some("crsr_given"), "crsr_given"));
        let missing = ApiKey::given(Some(PLACEHOLDERS[0]), || None);
        assert_eq!(missing.unwrap_err(), KeyError::Missing);
    }

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
