//! How a browser gets access to the status page: with the token, or with a link that works once. It
//! then has a cookie, which opens the page and nothing else.
//!
//! Browsers send the cookies of 127.0.0.1 to every port of it. The cookie is therefore not the
//! token, and requests that a page of another port has caused do not count.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::COOKIE;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

/// How long a link works.
const LINK_LIFE: Duration = Duration::from_secs(10 * 60);
/// How long a browser has access.
const COOKIE_LIFE: Duration = Duration::from_secs(12 * 60 * 60);
/// How many browsers may have access; a further one replaces the oldest.
const MAX_BROWSERS: usize = 16;

type SecretDigest = [u8; 32];

/// The browsers that have access. Secrets are kept as digests only.
#[derive(Debug)]
pub(in crate::gateway) struct BrowserAccess {
    /// Contains the port, because all ports share their cookies.
    cookie: String,
    state: Mutex<AccessState>,
}

#[derive(Debug, Default)]
struct AccessState {
    links: HashMap<SecretDigest, Instant>,
    browsers: HashMap<SecretDigest, Instant>,
}

impl BrowserAccess {
    /// Returns the access to a gateway on this port.
    pub(super) fn new(port: u16) -> Self {
        Self {
            cookie: format!("cursor-sidecar-{port}"),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, AccessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the code of a new link.
    pub(super) fn create_link(&self) -> Result<String, getrandom::Error> {
        let code = random_text()?;
        foundation::secrets().learn(&code.as_str().into());
        let mut state = self.state();
        state.links.retain(|_, since| since.elapsed() < LINK_LIFE);
        state.links.insert(digest(&code), Instant::now());
        Ok(code)
    }

    /// Uses up a link. Returns whether it gives access.
    pub(super) fn redeem(&self, code: &str) -> bool {
        let since = self.state().links.remove(&digest(code));
        since.is_some_and(|since| since.elapsed() < LINK_LIFE)
    }

    /// Gives a browser access and returns the cookie for it.
    pub(super) fn sign_in(&self) -> Result<String, getrandom::Error> {
        let secret = random_text()?;
        let mut state = self.state();
        if state.browsers.len() >= MAX_BROWSERS {
            let oldest = state.browsers.iter().min_by_key(|(_, since)| **since);
            if let Some(oldest) = oldest.map(|(digest, _)| *digest) {
                state.browsers.remove(&oldest);
            }
        }
        state.browsers.insert(digest(&secret), Instant::now());
        let (name, life) = (&self.cookie, COOKIE_LIFE.as_secs());
        Ok(format!(
            "{name}={secret}; Path=/; HttpOnly; SameSite=Strict; Max-Age={life}"
        ))
    }

    /// Ends the access of the browser that sent these headers, and returns the cookie that removes
    /// its cookie.
    pub(super) fn sign_out(&self, headers: &HeaderMap) -> String {
        for secret in self.secrets(headers) {
            self.state().browsers.remove(&digest(secret));
        }
        let name = &self.cookie;
        format!("{name}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0")
    }

    /// Returns whether the request comes from our own page, or from the user, in a browser that has
    /// access.
    pub(in crate::gateway) fn is_signed_in(&self, headers: &HeaderMap) -> bool {
        let mut sites = headers.get_all("sec-fetch-site").iter();
        if !sites.all(|site| site == "same-origin" || site == "none") {
            return false;
        }
        let state = self.state();
        self.secrets(headers).any(|secret| {
            let since = state.browsers.get(&digest(secret));
            since.is_some_and(|since| since.elapsed() < COOKIE_LIFE)
        })
    }

    fn secrets<'a>(&'a self, headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> {
        let lines = headers.get_all(COOKIE).iter();
        let lines = lines.filter_map(|line| line.to_str().ok());
        lines.flat_map(|line| line.split(';')).filter_map(|cookie| {
            let (name, value) = cookie.trim().split_once('=')?;
            (name == self.cookie).then_some(value)
        })
    }
}

/// Returns 256 random bits as text.
pub(super) fn random_text() -> Result<String, getrandom::Error> {
    let mut random = [0; 32];
    getrandom::fill(&mut random)?;
    Ok(URL_SAFE_NO_PAD.encode(random))
}

fn digest(secret: &str) -> SecretDigest {
    Sha256::digest(secret.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(cookie: &str, site: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let cookie = cookie.split(';').next().unwrap();
        let others = format!("a=b; {cookie}; c");
        headers.insert(COOKIE, others.parse().unwrap());
        if let Some(site) = site {
            headers.insert("sec-fetch-site", site.parse().unwrap());
        }
        headers
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_works_once_and_not_for_long() {
        let access = BrowserAccess::new(4141);
        let code = access.create_link().unwrap();
        assert!(!access.redeem("another") && access.redeem(&code) && !access.redeem(&code));
        let late = access.create_link().unwrap();
        tokio::time::advance(LINK_LIFE).await;
        assert!(!access.redeem(&late));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cookie_counts_for_our_own_page_until_it_is_too_old() {
        let access = BrowserAccess::new(4141);
        let cookie = access.sign_in().unwrap();
        assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
        for (site, is_ours) in [
            (None, true),
            (Some("same-origin"), true),
            (Some("none"), true),
            (Some("same-site"), false),
            (Some("cross-site"), false),
        ] {
            assert_eq!(access.is_signed_in(&headers(&cookie, site)), is_ours);
        }
        let other_port = BrowserAccess::new(4142);
        assert!(!other_port.is_signed_in(&headers(&cookie, None)));
        assert!(!access.is_signed_in(&headers("cursor-sidecar-4141=x", None)));
        let second = access.sign_in().unwrap();
        access.sign_out(&headers(&cookie, None));
        assert!(!access.is_signed_in(&headers(&cookie, None)));
        assert!(access.is_signed_in(&headers(&second, None)));
        tokio::time::advance(COOKIE_LIFE).await;
        assert!(!access.is_signed_in(&headers(&second, None)));
    }

    #[test]
    fn a_further_browser_replaces_the_oldest() {
        let access = BrowserAccess::new(1);
        let cookies: Vec<String> = (0..=MAX_BROWSERS)
            .map(|_| access.sign_in().unwrap())
            .collect();
        assert_eq!(access.state().browsers.len(), MAX_BROWSERS);
        assert!(access.is_signed_in(&headers(&cookies[MAX_BROWSERS], None)));
    }
}
