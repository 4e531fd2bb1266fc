//! Ids of tool calls as clients see them: `sess_<session>__call_<id of the call>`.
//!
//! A result repeats the id of its call, so it names its session even after a restart of the
//! gateway. The bridge's own ids are shortened, because some clients limit ids to 64 characters.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

const SESSION: &str = "sess_";
const PLAIN: &str = "__call_";
/// The id follows in base64, because it has characters that clients refuse in an id.
const ENCODED: &str = "__call64_";
/// The ids of the bridge: this, the hexadecimal id of a run, and the number of the call in it.
const BRIDGE: &str = "cursor-pi-bridge-run-";
const NUMBER: &str = "-tool-";

/// Returns the id for a client.
pub(super) fn to_client(session_token: &str, id: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if let Some((run, number)) = id.strip_prefix(BRIDGE).and_then(|id| id.split_once(NUMBER))
        && is_short(run, number)
    {
        format!("{SESSION}{session_token}{PLAIN}{run}-{number}")
    } else if id.bytes().all(is_plain) && !id.split_once('-').is_some_and(|(a, b)| is_short(a, b)) {
        format!("{SESSION}{session_token}{PLAIN}{id}")
    } else {
        let id = URL_SAFE_NO_PAD.encode(id);
        format!("{SESSION}{session_token}{ENCODED}{id}")
    }
}

/// Returns the session and the id of the call; `None` for an id that is not ours.
pub(super) fn from_client(id: &str) -> Option<(&str, String)> {
    let rest = id.strip_prefix(SESSION)?;
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric())?;
    let (session, rest) = rest.split_at(end);
    if let Some(id) = rest.strip_prefix(PLAIN) {
        let id = match id.split_once('-') {
            Some((run, number)) if is_short(run, number) => {
                format!("{BRIDGE}{run}{NUMBER}{number}")
            }
            _ => id.to_owned(),
        };
        return Some((session, id));
    }
    let id = URL_SAFE_NO_PAD.decode(rest.strip_prefix(ENCODED)?).ok()?;
    Some((session, String::from_utf8(id).ok()?))
}

/// Returns whether these are the run and the number of one of the bridge's ids.
fn is_short(run: &str, number: &str) -> bool {
    let is_hex = run
        .bytes()
        .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    run.len() == 32 && is_hex && is_number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_contains_its_session_and_cursors_id() {
        let run = "0123456789abcdef0123456789abcdef";
        let own = format!("cursor-pi-bridge-run-{run}-tool-12");
        let sent = to_client("u0123456789abcdef", &own);
        assert_eq!(sent, format!("sess_u0123456789abcdef__call_{run}-12"));
        assert!(sent.len() <= 64, "{}", sent.len());
        let alike = format!("{run}-12");
        for id in [
            "toolu_01-a",
            "call_a\nfc_b",
            "x__call_y",
            "",
            "ä",
            &own,
            &alike,
        ] {
            let sent = to_client("u0123", id);
            let is_safe = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            assert!(sent.chars().all(is_safe), "{sent}");
            assert_eq!(from_client(&sent), Some(("u0123", id.to_owned())));
        }
        assert_eq!(to_client("u0", "c1"), "sess_u0__call_c1");
        for other in [
            "call_1",
            "sess_",
            "sess_u0",
            "sess_u0__",
            "sess_u0__call64_!",
        ] {
            assert_eq!(from_client(other), None, "{other}");
        }
    }
}
