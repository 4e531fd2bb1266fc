//! What an account is used with: an API key, or the tokens of a login.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderValue;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use super::claims;
use super::key::{ApiKey, KeyError};

/// Separates the two tokens of a login in the one text that a host can store and send.
const SEPARATOR: char = '|';
/// A token counts as expired this long before it expires.
pub(super) const RENEW_EARLY: Duration = Duration::from_secs(5 * 60);
/// Assumed by a host for a token without a readable expiry.
const ASSUMED_LIFETIME: Duration = Duration::from_secs(60 * 60);

/// The credential of an account. `Debug` does not print it.
#[derive(Debug, Clone)]
pub enum Credential {
    /// An API key, which is exchanged for tokens.
    Key(ApiKey),
    /// The tokens of a login.
    Login(LoginTokens),
}

/// The tokens of a login. `Debug` does not print them.
#[derive(Debug, Clone)]
pub struct LoginTokens {
    /// The access token.
    pub access: SecretString,
    /// The token that a new access token is requested with; without it, the login ends with the
    /// access token.
    pub refresh: Option<SecretString>,
}

impl Credential {
    /// Parses what a host sends: an API key, an access token, or both tokens of a login.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        if let Some((access, refresh)) = text.split_once(SEPARATOR) {
            return Ok(Self::Login(LoginTokens::parse(access, Some(refresh))?));
        }
        if claims::claims(text).is_some() {
            return Ok(Self::Login(LoginTokens::parse(text, None)?));
        }
        Ok(Self::Key(ApiKey::parse(text)?))
    }

    /// A short hash that identifies the account without revealing the credential. It stays the
    /// same when the tokens of a login are renewed.
    pub fn fingerprint(&self) -> String {
        match self {
            Self::Key(key) => key.fingerprint(),
            Self::Login(tokens) => tokens.fingerprint(),
        }
    }

    /// Whether two credentials are equal. Two pairs of tokens of one account are not.
    pub fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Key(one), Self::Key(other)) => one.same(other),
            (Self::Login(one), Self::Login(other)) => one.same(other),
            (Self::Key(_), Self::Login(_)) | (Self::Login(_), Self::Key(_)) => false,
        }
    }

    /// Registers the secrets, so that no log contains them.
    pub fn learn(&self) {
        match self {
            Self::Key(key) => foundation::secrets().learn(key.secret()),
            Self::Login(tokens) => tokens.learn(),
        }
    }
}

impl LoginTokens {
    /// Validates tokens.
    pub fn parse(access: &str, refresh: Option<&str>) -> Result<Self, KeyError> {
        let valid = |text: &str| {
            if text.trim().is_empty() {
                return Err(KeyError::Missing);
            }
            let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
            let fits = visible && HeaderValue::from_str(text).is_ok() && !text.contains(SEPARATOR);
            if fits {
                Ok(SecretString::from(text))
            } else {
                Err(KeyError::Token)
            }
        };
        Ok(Self {
            access: valid(access)?,
            refresh: refresh
                .filter(|text| !text.is_empty())
                .map(valid)
                .transpose()?,
        })
    }

    /// Registers the tokens, so that no log contains them.
    pub fn learn(&self) {
        foundation::secrets().learn(&self.access);
        if let Some(refresh) = &self.refresh {
            foundation::secrets().learn(refresh);
        }
    }

    /// Returns both tokens as one text, which [`Credential::parse`] reads.
    pub fn for_host(&self) -> String {
        let access = self.access.expose_secret();
        match &self.refresh {
            Some(refresh) => format!("{access}{SEPARATOR}{}", refresh.expose_secret()),
            None => access.to_owned(),
        }
    }

    /// Returns when the access token expires, if it says so.
    pub fn expires(&self) -> Option<SystemTime> {
        claims::expiry(self.access.expose_secret())
    }

    /// Returns when a host should ask for new tokens, in milliseconds since 1970.
    pub fn renew_at_ms(&self, now: SystemTime) -> u64 {
        let renew = match self.expires() {
            Some(expiry) => {
                let left = expiry.duration_since(now).unwrap_or_default();
                now + left.saturating_sub(RENEW_EARLY).max(left / 2)
            }
            None => now + ASSUMED_LIFETIME,
        };
        renew
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as u64)
    }

    pub(super) fn fingerprint(&self) -> String {
        let access = self.access.expose_secret();
        let refresh = self.refresh.as_ref().map(|token| token.expose_secret());
        let account = claims::subject(access);
        let account = account.unwrap_or_else(|| refresh.unwrap_or(access).to_owned());
        let digest = Sha256::digest(format!("login {account}").as_bytes());
        let digits = digest.iter().take(8).map(|byte| format!("{byte:02x}"));
        digits.collect()
    }

    fn same(&self, other: &Self) -> bool {
        let refresh = |tokens: &Self| {
            let token = tokens.refresh.as_ref();
            token.map(|token| token.expose_secret().to_owned())
        };
        self.access.expose_secret() == other.access.expose_secret()
            && refresh(self) == refresh(other)
    }

    /// Whether both tokens name a user, and not the same.
    pub(super) fn is_of_another_account(&self, other: &Self) -> bool {
        let user = |tokens: &Self| claims::subject(tokens.access.expose_secret());
        match (user(self), user(other)) {
            (Some(one), Some(other)) => one != other,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    fn jwt(user: &str, number: u32) -> String {
        let claims = serde_json::json!({"sub": user, "exp": 4_000_000_000_u64, "n": number});
        format!("h.{}.s", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    #[test]
    fn keys_and_tokens_are_distinguished() {
        assert!(matches!(
            Credential::parse("crsr_1"),
            Ok(Credential::Key(_))
        ));
        assert!(matches!(
            Credential::parse("crsr.a.b"),
            Ok(Credential::Key(_))
        ));
        let Ok(Credential::Login(alone)) = Credential::parse(&jwt("u", 1)) else {
            panic!("a token is no key");
        };
        assert!(alone.refresh.is_none());
        let Ok(Credential::Login(pair)) = Credential::parse(&format!("{}|r", jwt("u", 1))) else {
            panic!("a pair is no key");
        };
        assert_eq!(pair.refresh.unwrap().expose_secret(), "r");
        assert_eq!(Credential::parse("|").unwrap_err(), KeyError::Missing);
        assert_eq!(Credential::parse("a b|c").unwrap_err(), KeyError::Token);
    }

    #[test]
    fn an_account_keeps_its_fingerprint_when_its_tokens_are_renewed() {
        let of = |text: String| Credential::parse(&text).unwrap();
        let (one, renewed) = (
            of(format!("{}|a", jwt("u", 1))),
            of(format!("{}|b", jwt("u", 2))),
        );
        assert_eq!(one.fingerprint(), renewed.fingerprint());
        assert!(!one.same(&renewed));
        assert_ne!(one.fingerprint(), of(jwt("other", 1)).fingerprint());
    }

    #[test]
    fn a_host_renews_five_minutes_early() {
        let tokens = LoginTokens::parse(&jwt("u", 1), None).unwrap();
        let now = UNIX_EPOCH + Duration::from_secs(3_999_999_000);
        assert_eq!(tokens.renew_at_ms(now), 3_999_999_700_000);
        let now = UNIX_EPOCH + Duration::from_secs(3_999_999_900);
        assert_eq!(tokens.renew_at_ms(now), 3_999_999_950_000);
    }
}
