//! Removes secrets from text before it is logged or shown.
//!
//! Two passes, each linear in the text: registered secrets in the usual encodings, then
//! everything that looks like a secret. In doubt, text is redacted, except in prose ("the bearer
//! of bad news").

mod known;

use std::borrow::Cow;
use std::sync::{LazyLock, PoisonError, RwLock};

use regex::{Captures, Regex};
use secrecy::{ExposeSecret as _, SecretString};

use known::KnownSecrets;

/// Replaces a secret.
pub const REDACTED: &str = "[redacted]";
/// Replaces the URL of a tool bridge, because its path is a password.
pub const REDACTED_BRIDGE: &str = "[redacted-bridge-endpoint]";

/// Redacts registered secrets and text that looks like a secret.
#[derive(Default)]
pub struct Scrubber {
    known: RwLock<KnownSecrets>,
}

impl std::fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scrubber").finish_non_exhaustive()
    }
}

impl Scrubber {
    /// Returns a scrubber that knows these secrets.
    pub fn new(secrets: impl IntoIterator<Item = SecretString>) -> Self {
        let scrubber = Self::default();
        for secret in secrets {
            scrubber.learn(&secret);
        }
        scrubber
    }

    /// Registers a secret, which is redacted from now on.
    pub fn learn(&self, secret: &SecretString) {
        let text = secret.expose_secret().trim();
        if !REDACTED.contains(text) && !REDACTED_BRIDGE.contains(text) {
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            known.learn(text);
        }
    }

    /// Removes a registered secret.
    pub fn forget(&self, secret: &SecretString) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.forget(secret.expose_secret().trim());
    }

    /// Returns the text with its secrets redacted; borrowed if it has none.
    pub fn scrub<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let text = self.hide_known(text);
        match shapes(&text) {
            Some(scrubbed) => Cow::Owned(scrubbed),
            None => text,
        }
    }

    /// Returns the text with registered secrets redacted; borrowed if it has none. For our own
    /// texts, in which something like `session: 3` is not a secret.
    pub fn hide_known<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.hide(text)
    }
}

/// Matches everything that may be a secret or precede one. Alternatives that start at the same
/// place are tried in this order.
static SUSPECT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let bridge = r#"(?P<bridge>(?:(?:https?://)?(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?)?(?:/cursor-pi-tool-bridge/[^/\s"'<>]+/mcp|/mcp/[0-9a-fA-F-]{32,36}))"#;
    let url = r#"(?P<scheme>\b[a-z][a-z0-9+.-]*://)(?P<userinfo>[^\s/?\#"'<>]+)@"#;
    let login =
        r#"(?P<user>[^\s/:@"'<>(){}\[\],;=]+):(?P<password>[^\s/:@"'<>]+)@(?P<host>[a-z0-9])"#;
    let cookie = r#"(?P<cookie>(?:set-)?cookie2?(?P<cookie_quote>\\*["'])?\s*[:=]\s*)"#;
    let key = r#"(?P<key>(?P<authorization>authorization)|api[_-]?key|token|session(?:[_-]?id)?|passw(?:or)?d|passphrase|secret(?:[_-]?key)?|(?:access|private|encryption)[_-]?key|(?-i:_PASS|SSHPASS))(?P<key_quote>\\*["'])?(?:\s*[:=]\s*|,\s*(?P<pair>\\*["']))"#;
    let pem = r"(?P<pem>-----BEGIN [a-z0-9 ]{0,40}PRIVATE KEY-----)";
    let bearer = r"(?P<bearer>\bbearer\s+)";
    let jwt = r"(?P<jwt>\beyJ[a-z0-9_-]{6,}\.[a-z0-9_-]{6,}(?:\.[a-z0-9_-]+)*)";
    let shape = r"(?P<shape>\b(?:crsr_[a-z0-9_-]{4,}|key_[a-z0-9]{24,}|sk-[a-z0-9_-]{8,}|gh[pousr]_[a-z0-9]{16,}|github_pat_[a-z0-9_]{16,}|xox[abprs]-[a-z0-9-]{8,}|AKIA[0-9A-Z]{16}))";
    let all = [bridge, url, pem, cookie, key, bearer, jwt, shape, login].join("|");
    Regex::new(&format!("(?i){all}")).ok()
});

/// Redacts what looks like a secret; `None` if nothing changed.
fn shapes(text: &str) -> Option<String> {
    // The expression is constant and tested; if it did not compile, redact everything.
    let Some(suspect) = &*SUSPECT else {
        return (!text.is_empty()).then(|| REDACTED.to_owned());
    };
    let mut out = String::new();
    let mut done = 0;
    let mut from = 0;
    while let Some(found) = suspect.captures_at(text, from) {
        let whole = found.get_match();
        let redaction = redaction(text, &found);
        if let Some(Redaction { at, until, put }) = redaction {
            out.push_str(&text[done..at]);
            out.push_str(put);
            done = until;
        }
        from = found
            .name("user")
            .map_or(whole.end(), |user| user.end() + 1);
        from = from.max(done);
    }
    if done == 0 {
        return None;
    }
    out.push_str(&text[done..]);
    Some(out)
}

/// A range of text and its replacement.
struct Redaction {
    at: usize,
    until: usize,
    put: &'static str,
}

/// Returns what to redact for a match; `None` if it is not a secret.
fn redaction(text: &str, found: &Captures<'_>) -> Option<Redaction> {
    let hide = |at, until| Redaction {
        at,
        until,
        put: REDACTED,
    };
    let (start, end) = (found.get_match().start(), found.get_match().end());
    if found.name("bridge").is_some() {
        return Some(Redaction {
            put: REDACTED_BRIDGE,
            ..hide(start, end)
        });
    }
    if let Some(userinfo) = found.name("userinfo") {
        return Some(hide(userinfo.start(), userinfo.end()));
    }
    if found.name("pem").is_some() {
        // A key without an end marker continues to the end of the text.
        let until = text[end..]
            .find("-----END")
            .map_or(text.len(), |at| end + at);
        return (until > end).then(|| hide(end, until));
    }
    if found.name("cookie").is_some() {
        return cookie(text, start, end, found.name("cookie_quote").is_some())
            .map(|until| hide(skip_quote(text, end), until));
    }
    if found.name("key").is_some() {
        // `"name", "value"`: the quote that opens the value has been read already.
        let at = match (found.name("pair"), found.name("key_quote")) {
            (Some(_), None) => return None,
            (Some(quote), Some(_)) => quote.start(),
            (None, _) => end,
        };
        let authorization = found.name("authorization").is_some();
        return value(
            text,
            at,
            if authorization {
                ValueKind::Header
            } else {
                ValueKind::Plain
            },
        );
    }
    if found.name("bearer").is_some() {
        let until = end + token_length(&text[end..]);
        let word = &text[end..until];
        if word.is_empty() || AFTER_BEARER.contains(&word.to_ascii_lowercase().as_str()) {
            return None;
        }
        return Some(Redaction {
            put: "Bearer [redacted]",
            ..hide(start, until)
        });
    }
    if found.name("jwt").is_some() {
        return Some(hide(start, end));
    }
    if let Some(shape) = found.name("shape") {
        // Ordinary words may start with `sk-` too, but keys contain digits.
        let word = shape.as_str();
        let prose = word.starts_with("sk-") && !word.bytes().any(|byte| byte.is_ascii_digit());
        return (!prose).then(|| hide(start, end));
    }
    let (user, password) = (found.name("user")?, found.name("password")?);
    let host = &text[password.end() + 1..];
    let host = &host[..host.find(|c: char| !is_host(c)).unwrap_or(host.len())];
    let host = host.to_ascii_lowercase();
    // `12:30@noon`, `image:tag@sha256`.
    let dotted = host.contains('.');
    let time = user.as_str().bytes().all(|byte| byte.is_ascii_digit());
    let other = !dotted && (time || DIGESTS.contains(&host.as_str()));
    let known = NO_LOGIN.contains(&user.as_str().to_ascii_lowercase().as_str());
    (!other && !known).then(|| hide(user.start(), password.end()))
}

fn is_host(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '-')
}

/// Words that follow "bearer" in prose.
const AFTER_BEARER: &[&str] = &[
    "of",
    "token",
    "tokens",
    "auth",
    "authentication",
    "authorization",
    "and",
    "or",
    "is",
    "in",
    "for",
    "to",
    "the",
    "a",
    "an",
    "with",
    "scheme",
    "header",
    "headers",
    "credential",
    "credentials",
    "was",
    "who",
    "has",
    "must",
    "from",
    "format",
    "prefix",
];

/// Names before a colon that do not start a login: `npm:react@18.0.0`, `mailto:jo@example.com`.
const NO_LOGIN: &[&str] = &[
    "mailto",
    "npm",
    "jsr",
    "email",
    "e-mail",
    "mail",
    "from",
    "to",
    "cc",
    "sip",
    "acct",
    "git",
    "file",
    "http",
    "https",
    "ssh",
    "workspace",
    "github",
];

/// Digest names in the position of a host, as in `image:tag@sha256:…`.
const DIGESTS: &[&str] = &["md5", "sha1", "sha256", "sha512"];

/// Schemes of `Authorization` whose credentials are one word.
const ONE_WORD: &[&str] = &[
    "bearer",
    "basic",
    "token",
    "negotiate",
    "ntlm",
    "apikey",
    "api-key",
];
/// Schemes whose credentials extend to the end of the line.
const MANY_WORDS: &[&str] = &["digest", "aws4-hmac-sha256", "hawk", "oauth", "signature"];

/// How a value is parsed.
#[derive(Clone, Copy, PartialEq)]
enum ValueKind {
    Plain,
    /// May start with the name of a scheme.
    Header,
}

/// Returns what to redact for the value of a key: a quoted text, a list, or one word.
fn value(text: &str, at: usize, kind: ValueKind) -> Option<Redaction> {
    let rest = &text[at..];
    let one = |at, until| Redaction {
        at,
        until,
        put: REDACTED,
    };
    if rest.starts_with('[') && !rest.starts_with(REDACTED) {
        return Some(one(at, at + list_length(rest)));
    }
    if rest.starts_with('{') {
        return None;
    }
    if let Some((open, close)) = quoted(rest) {
        let inner = &rest[open..close];
        if inner.is_empty() {
            return None;
        }
        let scheme = kind == ValueKind::Header && scheme(inner).is_some();
        let hidden = inner.starts_with("[redacted] [redacted]");
        let put = if scheme || (kind == ValueKind::Header && hidden) {
            "[redacted] [redacted]"
        } else {
            REDACTED
        };
        return Some(Redaction {
            put,
            ..one(at + open, at + close)
        });
    }
    let word = word_length(rest);
    if kind == ValueKind::Header
        && let Some(until) = scheme(rest)
    {
        return Some(Redaction {
            put: "[redacted] [redacted]",
            ..one(at, at + until)
        });
    }
    (word > 0).then(|| one(at, at + word))
}

/// Returns where scheme and credentials end, if `text` starts with a scheme.
fn scheme(text: &str) -> Option<usize> {
    // No scheme has a longer name, and searching further would make this quadratic.
    let name = text.bytes().take(20);
    let name = &text[..name
        .into_iter()
        .position(|byte| matches!(byte, b' ' | b'\t'))?];
    let rest = text[name.len()..].trim_start_matches([' ', '\t']);
    let start = text.len() - rest.len();
    let name = name.to_ascii_lowercase();
    let length = if ONE_WORD.contains(&name.as_str()) {
        word_length(rest)
    } else if MANY_WORDS.contains(&name.as_str()) {
        line_length(rest)
    } else {
        0
    };
    (length > 0).then_some(start + length)
}

/// Returns where a cookie ends; `None` if this is prose.
fn cookie(text: &str, start: usize, end: usize, quoted_key: bool) -> Option<usize> {
    let rest = &text[end..];
    let before = text[..start].chars().next_back();
    // `mycookie: 1` is another word.
    if rest.is_empty() || before.is_some_and(char::is_alphanumeric) {
        return None;
    }
    let around = before.filter(|c| matches!(c, '"' | '\''));
    if quoted_key || around.is_some() {
        if rest.starts_with('[') && !rest.starts_with(REDACTED) {
            return Some(end + list_length(rest));
        }
        if let Some((_, close)) = quoted(rest) {
            return Some(end + close);
        }
        // `'Cookie: a=1'`: the quote around the header ends it.
        let stop = |c: char| matches!(c, '\n' | '\r') || Some(c) == around;
        return Some(end + rest.find(stop).unwrap_or(rest.len())).filter(|until| *until > end);
    }
    let first = &rest[..rest.find(char::is_whitespace).unwrap_or(rest.len())];
    let header = match before {
        None | Some('\n' | '\r' | '{' | ',' | '-') => true,
        Some(_) => {
            // In a list or an object, or at the start of a line.
            let line = text[..start].trim_end_matches([' ', '\t']);
            let first = line.trim_end_matches([' ', '\t', '<', '>', '*', ',', '{']);
            line.ends_with([',', '{']) || first.is_empty() || first.ends_with(['\n', '\r'])
        }
    };
    let equals = text[start..end].contains('=');
    let word = !first.is_empty()
        && first
            .chars()
            .all(|c| c.is_alphabetic() || matches!(c, '.' | ',' | '!' | '?'));
    if word && !header && !equals {
        return None;
    }
    Some(end + line_length(rest)).filter(|until| *until > skip_quote(text, end))
}

/// Returns the position after an opening quote, if one is at `at`.
fn skip_quote(text: &str, at: usize) -> usize {
    let rest = &text[at..];
    let bare = rest.trim_start_matches('\\');
    if bare.starts_with(['"', '\'']) {
        at + (rest.len() - bare.len()) + 1
    } else {
        at
    }
}

/// Returns where the content of a quoted text starts and ends; it ends with the line if the
/// closing quote is missing.
fn quoted(text: &str) -> Option<(usize, usize)> {
    let bare = text.trim_start_matches('\\');
    let level = text.len() - bare.len();
    let quote = bare
        .bytes()
        .next()
        .filter(|byte| matches!(byte, b'"' | b'\''))?;
    let open = level + 1;
    let mut slashes = 0;
    for (at, byte) in text.bytes().enumerate().skip(open) {
        match byte {
            b'\\' => {
                slashes += 1;
                continue;
            }
            b'\n' | b'\r' => return Some((open, at)),
            byte if byte == quote => {
                let closes = match level {
                    0 => slashes % 2 == 0,
                    _ => slashes <= level,
                };
                if closes {
                    return Some((open, at - slashes.min(level)));
                }
            }
            _ => {}
        }
        slashes = 0;
    }
    Some((open, text.len()))
}

/// Returns the length up to the closing bracket and the word directly after it, or to the end of
/// the line.
fn list_length(text: &str) -> usize {
    match text.find([']', '\n', '\r']) {
        Some(at) if text[at..].starts_with(']') => at + 1 + word_length(&text[at + 1..]),
        Some(at) => at,
        None => text.len(),
    }
}

fn line_length(text: &str) -> usize {
    text.find(['\n', '\r']).unwrap_or(text.len())
}

/// Returns the length of an unquoted value.
fn word_length(text: &str) -> usize {
    text.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ';' | '}' | '\\'))
        .unwrap_or(text.len())
}

/// Returns the length of a `Bearer` credential.
fn token_length(text: &str) -> usize {
    text.find(|c: char| {
        c.is_whitespace()
            || matches!(
                c,
                '"' | '\'' | ',' | ';' | '}' | '\\' | '<' | '>' | ')' | '`'
            )
    })
    .unwrap_or(text.len())
}

#[cfg(test)]
mod tests;
