//! Registered secrets, found in plain and in the usual encodings.

use std::borrow::Cow;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret as _, SecretString};

use super::REDACTED;

/// Shorter texts are not treated as secrets, because redacting them would damage ordinary words.
const MIN_SECRET: usize = 4;
/// Maximum number of registered secrets; the oldest is removed first. Tokens change about every
/// hour.
pub(super) const MAX_SECRETS: usize = 64;
/// Lengths of secrets that are also searched for in other encodings. The encoded form of a
/// shorter one may be an ordinary word, and longer ones are tokens, which are recognised by
/// shape.
const ENCODED: std::ops::RangeInclusive<usize> = 12..=128;

/// The secrets, longest first, because replacing a shorter one first would leave the tail of a
/// longer one.
#[derive(Default)]
pub(super) struct KnownSecrets(Vec<KnownSecret>);

struct KnownSecret {
    plain: SecretString,
    encoded: Vec<SecretString>,
    /// The order of registration; the smallest number is the oldest.
    order: u64,
}

impl KnownSecrets {
    pub(super) fn learn(&mut self, text: &str) {
        let is_known = |old: &KnownSecret| old.plain.expose_secret() == text;
        if text.len() < MIN_SECRET || self.0.iter().any(is_known) {
            return;
        }
        let order = self.0.iter().map(|old| old.order + 1).max().unwrap_or(0);
        if self.0.len() >= MAX_SECRETS
            && let Some(oldest) = self.0.iter().map(|old| old.order).min()
        {
            self.0.retain(|old| old.order != oldest);
        }
        self.0.push(KnownSecret {
            plain: text.into(),
            encoded: encodings(text),
            order,
        });
        let length = |secret: &KnownSecret| secret.plain.expose_secret().len();
        self.0
            .sort_by_key(|secret| std::cmp::Reverse(length(secret)));
    }

    pub(super) fn forget(&mut self, text: &str) {
        self.0.retain(|old| old.plain.expose_secret() != text);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the text with these secrets redacted; borrowed if it contains none.
    pub(super) fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for secret in &self.0 {
            replace(&mut text, &secret.plain);
        }
        // Most texts have no word this long, so the search for every encoding is skipped.
        if has_long_word(&text) {
            for encoded in self.0.iter().flat_map(|secret| &secret.encoded) {
                replace(&mut text, encoded);
            }
        }
        text
    }
}

fn replace(text: &mut Cow<'_, str>, secret: &SecretString) {
    let secret = secret.expose_secret();
    if text.contains(secret) {
        *text = Cow::Owned(text.replace(secret, REDACTED));
    }
}

fn has_long_word(text: &str) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/_-%".contains(byte);
    let mut words = text.as_bytes().split(|byte| !is_letter(byte));
    words.any(|word| word.len() >= *ENCODED.start())
}

/// Returns a secret in base64 (both alphabets, at every alignment within a longer text), in hex
/// and percent-encoded.
fn encodings(secret: &str) -> Vec<SecretString> {
    if !ENCODED.contains(&secret.len()) {
        return Vec::new();
    }
    let mut hex = String::new();
    let mut percent = String::new();
    for byte in secret.bytes() {
        let _ = write!(hex, "{byte:02x}");
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                percent.push(byte.into());
            }
            _ => {
                let _ = write!(percent, "%{byte:02X}");
            }
        }
    }
    let mut forms = vec![hex.to_uppercase(), hex];
    if percent != secret {
        forms.push(percent.to_lowercase());
        forms.push(percent);
    }
    for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
        for before in 0..3 {
            let mut bytes = vec![0; before];
            bytes.extend_from_slice(secret.as_bytes());
            let encoded = engine.encode(&bytes);
            // Characters at either end are cut, because they depend on the neighbouring bytes.
            let from = (before * 8).div_ceil(6);
            let until = bytes.len() * 8 / 6;
            forms.push(encoded[from..until].to_owned());
        }
    }
    forms.dedup();
    forms.into_iter().map(SecretString::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hidden(secret: &str, text: &str) -> String {
        let mut known = KnownSecrets::default();
        known.learn(secret);
        known.hide(text).into_owned()
    }

    #[test]
    fn a_secret_is_redacted_in_every_encoding() {
        let secret = "plainkey otters+99";
        for text in [
            "say plainkey otters+99.",
            "plainkey%20otters%2B99",
            "plainkey%20otters%2b99",
            "706c61696e6b6579206f74746572732b3939",
        ] {
            let hidden = hidden(secret, text);
            assert!(hidden.contains(REDACTED), "{hidden}");
            assert!(!hidden.contains("otters") && !hidden.contains("6f7474"));
        }
    }

    #[test]
    fn short_secrets_are_not_searched_for_in_encodings() {
        assert_eq!(hidden("test", "dGVzdA 74657374"), "dGVzdA 74657374");
    }

    proptest! {
        #[test]
        fn a_secret_inside_base64_is_redacted(before in ".{0,9}", after in ".{0,9}") {
            let secret = "crsr_0123456789-canary";
            for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
                let text = engine.encode(format!("{before}{secret}{after}"));
                prop_assert!(hidden(secret, &text).contains(REDACTED), "{}", text);
            }
        }
    }
}
