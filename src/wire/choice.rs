//! HTTP/2 or HTTP/1.1: by setting, by the server's word, by what has worked.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::endpoint::BaseUrl;
use super::error::{TransportError, WireError};
use super::headers::HttpVersion;
use super::proto::aiserver::v1::Http2Config;

/// The user's setting (`PI_CURSOR_HTTP`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preference {
    /// Find out.
    #[default]
    Auto,
    /// Always this one.
    Always(HttpVersion),
}

/// What is known of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Experience {
    /// What `GetServerConfig` said.
    told: Option<HttpVersion>,
    /// HTTP/2 streams have been accepted here.
    http2_works: bool,
    /// HTTP/2 is known not to get through here.
    http2_failed: bool,
    /// HTTP/2 failed in a way that may have been chance; HTTP/1.1 is being tried.
    suspected: bool,
    /// The server was asked for advice.
    asked: bool,
}

/// Remembers, host by host, for the life of the process.
#[derive(Debug, Default)]
pub struct Choice {
    preference: Preference,
    hosts: Mutex<HashMap<String, Experience>>,
}

impl Choice {
    /// A choice under a setting.
    pub fn new(preference: Preference) -> Self {
        Self {
            preference,
            hosts: Mutex::default(),
        }
    }

    /// Whether asking the server could change anything.
    pub fn wants_advice(&self, base: &BaseUrl) -> bool {
        let host = self.experience(base);
        self.preference == Preference::Auto
            && !host.asked
            && !host.http2_works
            && !host.http2_failed
    }

    /// Notes what `GetServerConfig` said.
    pub fn advised(&self, base: &BaseUrl, config: Http2Config) {
        let told = match config {
            Http2Config::ForceAllDisabled | Http2Config::ForceBidiDisabled => {
                Some(HttpVersion::Http1)
            }
            Http2Config::ForceAllEnabled | Http2Config::ForceBidiEnabled => {
                Some(HttpVersion::Http2)
            }
            Http2Config::Unspecified => None,
        };
        self.update(base, |host| {
            host.told = told;
            host.asked = true;
        });
    }

    /// The version to open the next run with.
    pub fn version(&self, base: &BaseUrl) -> HttpVersion {
        let host = self.experience(base);
        match self.preference {
            Preference::Always(version) => version,
            Preference::Auto if host.http2_works && host.told.is_none() => HttpVersion::Http2,
            Preference::Auto if host.http2_failed || host.suspected => HttpVersion::Http1,
            Preference::Auto => host.told.unwrap_or(if base.is_tls() {
                HttpVersion::Http2
            } else {
                HttpVersion::Http1
            }),
        }
    }

    /// Notes that the server accepted a stream.
    pub fn accepted(&self, base: &BaseUrl, version: HttpVersion) {
        self.update(base, |host| match version {
            HttpVersion::Http2 => host.http2_works = true,
            // Where the one fails and the other works, that settles it.
            HttpVersion::Http1 => host.http2_failed |= host.suspected,
        });
    }

    /// Whether a stream that failed before it was accepted should be tried over HTTP/1.1,
    /// and from then on every other one to this host.
    pub fn falls_back(&self, base: &BaseUrl, version: HttpVersion, error: &WireError) -> bool {
        let WireError::Transport(error) = error else {
            return false;
        };
        let host = self.experience(base);
        if version == HttpVersion::Http1 {
            // Neither gets through: it was not HTTP/2 that failed.
            self.update(base, |host| host.suspected = false);
            return false;
        }
        // Who refuses a stream speaks HTTP/2.
        if self.preference != Preference::Auto || host.http2_works || error.is_refusal() {
            return false;
        }
        match error {
            TransportError::NoHttp2 { .. } => self.update(base, |host| host.http2_failed = true),
            // Some middleboxes just hang up on the HTTP/2 preface.
            TransportError::Lost(_) | TransportError::GoAway(_) | TransportError::Reset(_) => {
                self.update(base, |host| host.suspected = true);
            }
            _ => return false,
        }
        true
    }

    fn experience(&self, base: &BaseUrl) -> Experience {
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.get(&base.authority()).copied().unwrap_or_default()
    }

    fn update(&self, base: &BaseUrl, change: impl FnOnce(&mut Experience)) {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        change(hosts.entry(base.authority()).or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(text: &str) -> BaseUrl {
        BaseUrl::parse("test", text).unwrap()
    }

    fn no_http2() -> WireError {
        TransportError::NoHttp2 {
            host: "h".into(),
            cause: "c".into(),
        }
        .into()
    }

    #[test]
    fn the_scheme_decides_where_nothing_else_does() {
        let choice = Choice::default();
        assert_eq!(choice.version(&base("https://h")), HttpVersion::Http2);
        assert_eq!(
            choice.version(&base("http://localhost:1")),
            HttpVersion::Http1
        );
    }

    #[test]
    fn the_server_decides_over_the_scheme() {
        for (config, version) in [
            (Http2Config::ForceAllDisabled, HttpVersion::Http1),
            (Http2Config::ForceBidiDisabled, HttpVersion::Http1),
            (Http2Config::ForceAllEnabled, HttpVersion::Http2),
            (Http2Config::ForceBidiEnabled, HttpVersion::Http2),
        ] {
            let choice = Choice::default();
            let host = base("http://localhost:1");
            assert!(choice.wants_advice(&host));
            choice.advised(&host, config);
            assert_eq!(choice.version(&host), version);
            assert!(!choice.wants_advice(&host));
        }
    }

    #[test]
    fn a_failure_is_remembered_for_that_host_only() {
        let choice = Choice::default();
        let (bad, good) = (base("https://bad"), base("https://good"));
        assert!(choice.falls_back(&bad, HttpVersion::Http2, &no_http2()));
        assert_eq!(choice.version(&bad), HttpVersion::Http1);
        assert_eq!(choice.version(&good), HttpVersion::Http2);
        // HTTP/1.1 has nothing to fall back to.
        assert!(!choice.falls_back(&bad, HttpVersion::Http1, &no_http2()));
    }

    #[test]
    fn where_http2_worked_a_failure_is_just_a_failure() {
        let choice = Choice::default();
        let host = base("https://h");
        choice.accepted(&host, HttpVersion::Http2);
        assert!(!choice.falls_back(&host, HttpVersion::Http2, &no_http2()));
        assert_eq!(choice.version(&host), HttpVersion::Http2);
    }

    #[test]
    fn a_chance_failure_settles_nothing() {
        let choice = Choice::default();
        let host = base("https://h");
        let lost = TransportError::Lost("x".into()).into();
        assert!(choice.falls_back(&host, HttpVersion::Http2, &lost));
        assert_eq!(choice.version(&host), HttpVersion::Http1);
        // HTTP/1.1 fails as well: back to where we were.
        assert!(!choice.falls_back(&host, HttpVersion::Http1, &lost));
        assert_eq!(choice.version(&host), HttpVersion::Http2);
        // HTTP/1.1 works where HTTP/2 failed: that is how it is here.
        assert!(choice.falls_back(&host, HttpVersion::Http2, &lost));
        choice.accepted(&host, HttpVersion::Http1);
        assert_eq!(choice.version(&host), HttpVersion::Http1);
    }

    #[test]
    fn a_full_connection_is_no_reason_to_leave_http2() {
        let (choice, host) = (Choice::default(), base("https://h"));
        let refused = TransportError::Reset(7).into();
        assert!(!choice.falls_back(&host, HttpVersion::Http2, &refused));
        assert_eq!(choice.version(&host), HttpVersion::Http2);
    }

    #[test]
    fn a_setting_is_a_setting() {
        let choice = Choice::new(Preference::Always(HttpVersion::Http2));
        let host = base("http://localhost:1");
        assert!(!choice.wants_advice(&host));
        assert!(!choice.falls_back(&host, HttpVersion::Http2, &no_http2()));
        assert_eq!(choice.version(&host), HttpVersion::Http2);
    }
}
