//! The claims of an access token. Signatures are not checked: only Cursor decides whether a token
//! is valid.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value as Json;

/// Returns the claims of a JWT; `None` if the text is not one.
pub(super) fn claims(token: &str) -> Option<Json> {
    let mut parts = token.split('.');
    let (_, payload, _) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let payload = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
    let claims: Json = serde_json::from_slice(&payload).ok()?;
    claims.is_object().then_some(claims)
}

/// Returns when a token expires, if it says so.
pub(super) fn expiry(token: &str) -> Option<SystemTime> {
    let seconds = claims(token)?.get("exp")?.as_f64()?;
    UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)
}

/// Returns the user a token belongs to, if it says so.
pub(super) fn subject(token: &str) -> Option<String> {
    let claims = claims(token)?;
    let subject = claims.get("sub")?.as_str()?;
    (!subject.is_empty()).then(|| subject.to_owned())
}
