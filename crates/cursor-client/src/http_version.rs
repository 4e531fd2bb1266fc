//! Chooses HTTP/2 or HTTP/1.1: by setting, by the server's advice, by what has worked.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::endpoint::BaseUrl;
use super::error::{TransportError, WireError};
use super::headers::HttpVersion;
use cursor_proto::aiserver::v1::Http2Config;
use cursor_proto::connect_code::Code;

/// How long HTTP/1.1 is used after HTTP/2 failed once and HTTP/1.1 worked. Limited, because the
/// failure may have been temporary and trying HTTP/2 again costs little.
const AVOID_HTTP2: Duration = Duration::from_secs(300);

/// The user's setting (`PI_CURSOR_HTTP`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preference {
    /// Choose automatically.
    #[default]
    Auto,
    /// Always use this version.
    Always(HttpVersion),
}

/// What is known about a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct HostState {
    /// The version `GetServerConfig` advised.
    advised: Option<HttpVersion>,
    /// An HTTP/2 stream has been accepted.
    http2_works: bool,
    /// HTTP/2 is known not to work.
    http2_failed: bool,
    /// HTTP/2 failed in a way that may be temporary; HTTP/1.1 is being tried.
    suspected: bool,
    /// HTTP/1.1 worked after such a failure, so HTTP/2 is avoided until then.
    avoided_until: Option<Instant>,
    /// The server does not support runs over HTTP/1.1.
    http1_missing: bool,
    /// The server was asked for advice.
    asked: bool,
}

/// The choice for each host, kept for the lifetime of the process.
#[derive(Debug, Default)]
pub struct Choice {
    preference: Preference,
    hosts: Mutex<HashMap<String, HostState>>,
}

impl Choice {
    /// Returns a choice with this preference.
    pub fn new(preference: Preference) -> Self {
        Self {
            preference,
            hosts: Mutex::default(),
        }
    }

    /// Returns whether the server's advice could change the choice.
    pub fn wants_advice(&self, base: &BaseUrl) -> bool {
        let host = self.host(base);
        self.preference == Preference::Auto
            && !host.asked
            && !host.http2_works
            && !host.http2_failed
    }

    /// Records what `GetServerConfig` advised.
    pub fn advised(&self, base: &BaseUrl, config: Http2Config) {
        let advised = match config {
            Http2Config::ForceAllDisabled | Http2Config::ForceBidiDisabled => {
                Some(HttpVersion::Http1)
            }
            Http2Config::ForceAllEnabled | Http2Config::ForceBidiEnabled => {
                Some(HttpVersion::Http2)
            }
            Http2Config::Unspecified => None,
        };
        self.update(base, |host| {
            host.advised = advised;
            host.asked = true;
        });
    }

    /// Returns the version to open the next run with.
    pub fn version(&self, base: &BaseUrl, now: Instant) -> HttpVersion {
        let host = self.host(base);
        let avoided = host.avoided_until.is_some_and(|until| now < until);
        match self.preference {
            Preference::Always(version) => version,
            Preference::Auto if host.advised == Some(HttpVersion::Http1) => HttpVersion::Http1,
            Preference::Auto if host.http2_works => HttpVersion::Http2,
            Preference::Auto if host.http2_failed => HttpVersion::Http1,
            Preference::Auto if host.http1_missing => HttpVersion::Http2,
            Preference::Auto if host.suspected || avoided => HttpVersion::Http1,
            Preference::Auto => host.advised.unwrap_or(if base.is_tls() {
                HttpVersion::Http2
            } else {
                HttpVersion::Http1
            }),
        }
    }

    /// Records that the server accepted a stream.
    pub fn accepted(&self, base: &BaseUrl, version: HttpVersion, now: Instant) {
        self.update(base, |host| match version {
            HttpVersion::Http2 => {
                host.http2_works = true;
                host.suspected = false;
            }
            // HTTP/2 failed and HTTP/1.1 works, so use HTTP/1.1 for a while.
            HttpVersion::Http1 if host.suspected => {
                host.suspected = false;
                host.avoided_until = Some(now + AVOID_HTTP2);
            }
            HttpVersion::Http1 => {}
        });
    }

    /// Returns whether a stream that failed before it was accepted should be retried immediately
    /// over the other version. Records the failure.
    pub fn switches(&self, base: &BaseUrl, version: HttpVersion, error: &WireError) -> bool {
        self.preference == Preference::Auto
            && match version {
                HttpVersion::Http1 => self.leaves_http1(base, error),
                HttpVersion::Http2 => self.leaves_http2(base, error),
            }
    }

    fn leaves_http1(&self, base: &BaseUrl, error: &WireError) -> bool {
        let host = self.host(base);
        let missing = is_missing(error)
            && host.advised != Some(HttpVersion::Http1)
            && !host.http2_failed
            && !host.http1_missing;
        self.update(base, |host| {
            // HTTP/1.1 failed too, so HTTP/2 was not the cause.
            host.suspected = false;
            host.avoided_until = None;
            host.http1_missing |= missing;
        });
        missing
    }

    fn leaves_http2(&self, base: &BaseUrl, error: &WireError) -> bool {
        let host = self.host(base);
        let WireError::Transport(error) = error else {
            return false;
        };
        if host.http2_works {
            return false;
        }
        match error {
            TransportError::NoHttp2 { .. } => self.update(base, |host| host.http2_failed = true),
            // Some middleboxes close the connection at the HTTP/2 preface. RST_STREAM and GOAWAY
            // do not count, because a peer that sends them supports HTTP/2.
            TransportError::Lost(_) => self.update(base, |host| {
                host.suspected = !host.http1_missing;
                host.http1_missing = false;
            }),
            _ => return false,
        }
        !host.http1_missing
    }

    fn host(&self, base: &BaseUrl) -> HostState {
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.get(&base.authority()).copied().unwrap_or_default()
    }

    fn update(&self, base: &BaseUrl, change: impl FnOnce(&mut HostState)) {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        change(hosts.entry(base.authority()).or_default());
    }
}

/// Returns whether the server reports that it does not have this call.
fn is_missing(error: &WireError) -> bool {
    let WireError::Remote(remote) = error else {
        return false;
    };
    remote.code == Code::Unimplemented || matches!(remote.status, Some(405 | 415 | 501 | 505))
}

#[cfg(test)]
mod tests {
    use super::super::connect_error::RemoteError;
    use super::*;

    fn base(text: &str) -> BaseUrl {
        BaseUrl::parse("test", text).unwrap()
    }

    fn now() -> Instant {
        Instant::now()
    }

    fn no_http2() -> WireError {
        TransportError::NoHttp2 {
            host: "h".into(),
            cause: "c".into(),
        }
        .into()
    }

    fn lost() -> WireError {
        TransportError::Lost("x".into()).into()
    }

    fn status(status: u16) -> WireError {
        RemoteError::from_status(status).into()
    }

    #[test]
    fn the_scheme_decides_if_nothing_else_does() {
        let choice = Choice::default();
        let version = |host| choice.version(&base(host), now());
        assert_eq!(version("https://h"), HttpVersion::Http2);
        assert_eq!(version("http://localhost:1"), HttpVersion::Http1);
    }

    #[test]
    fn the_servers_advice_overrides_the_scheme() {
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
            assert_eq!(choice.version(&host, now()), version);
            assert!(!choice.wants_advice(&host));
        }
    }

    #[test]
    fn a_failure_is_remembered_for_that_host_only() {
        let choice = Choice::default();
        let (bad, good) = (base("https://bad"), base("https://good"));
        assert!(choice.switches(&bad, HttpVersion::Http2, &no_http2()));
        assert_eq!(choice.version(&bad, now()), HttpVersion::Http1);
        assert_eq!(choice.version(&good, now()), HttpVersion::Http2);
        // HTTP/1.1 has no fallback, even if the server does not support it.
        for error in [no_http2(), status(404)] {
            assert!(!choice.switches(&bad, HttpVersion::Http1, &error));
            assert_eq!(choice.version(&bad, now()), HttpVersion::Http1);
        }
    }

    #[test]
    fn a_failure_after_http2_worked_does_not_switch() {
        let choice = Choice::default();
        let host = base("https://h");
        choice.accepted(&host, HttpVersion::Http2, now());
        for error in [no_http2(), lost()] {
            assert!(!choice.switches(&host, HttpVersion::Http2, &error));
            assert_eq!(choice.version(&host, now()), HttpVersion::Http2);
        }
    }

    #[test]
    fn a_temporary_failure_of_http2_is_not_remembered_for_long() {
        let choice = Choice::default();
        let host = base("https://h");
        // HTTP/1.1 fails as well, in any way: back to HTTP/2.
        for error in [lost(), status(503), status(401)] {
            assert!(choice.switches(&host, HttpVersion::Http2, &lost()));
            assert_eq!(choice.version(&host, now()), HttpVersion::Http1);
            assert!(!choice.switches(&host, HttpVersion::Http1, &error));
            assert_eq!(choice.version(&host, now()), HttpVersion::Http2);
        }
        // HTTP/1.1 works after HTTP/2 failed: it is used for a while.
        let then = now();
        assert!(choice.switches(&host, HttpVersion::Http2, &lost()));
        choice.accepted(&host, HttpVersion::Http1, then);
        assert_eq!(choice.version(&host, then), HttpVersion::Http1);
        assert_eq!(
            choice.version(&host, then + AVOID_HTTP2),
            HttpVersion::Http2
        );
    }

    #[test]
    fn a_reset_or_goaway_does_not_switch_from_http2() {
        let (choice, host) = (Choice::default(), base("https://h"));
        for error in [
            TransportError::Reset(7),
            TransportError::Reset(2),
            TransportError::GoAway(11),
        ] {
            assert!(!choice.switches(&host, HttpVersion::Http2, &error.into()));
            assert_eq!(choice.version(&host, now()), HttpVersion::Http2);
        }
    }

    #[test]
    fn a_server_without_runs_over_http1_is_tried_over_http2() {
        for code in [404, 405, 415, 501, 505] {
            let (choice, host) = (Choice::default(), base("http://localhost:1"));
            assert_eq!(choice.version(&host, now()), HttpVersion::Http1);
            assert!(choice.switches(&host, HttpVersion::Http1, &status(code)));
            assert_eq!(choice.version(&host, now()), HttpVersion::Http2);
        }
        // Other errors do not depend on the HTTP version.
        let (choice, host) = (Choice::default(), base("http://localhost:1"));
        for code in [400, 401, 403, 429, 500, 503] {
            assert!(!choice.switches(&host, HttpVersion::Http1, &status(code)));
        }
        choice.advised(&host, Http2Config::ForceBidiDisabled);
        assert!(!choice.switches(&host, HttpVersion::Http1, &status(404)));
    }

    /// The number of immediate switches in a row is bounded.
    #[test]
    fn immediate_switches_do_not_loop() {
        for address in ["https://h", "http://localhost:1"] {
            for broken in [lost(), no_http2()] {
                let (choice, host) = (Choice::default(), base(address));
                for _ in 0..10 {
                    let at_once = (0..10).take_while(|_| {
                        let version = choice.version(&host, now());
                        let error = match version {
                            HttpVersion::Http1 => status(404),
                            HttpVersion::Http2 => broken.clone(),
                        };
                        choice.switches(&host, version, &error)
                    });
                    assert!(at_once.count() <= 2, "{address}: {broken}");
                }
            }
        }
    }

    #[test]
    fn a_fixed_preference_is_never_overridden() {
        let choice = Choice::new(Preference::Always(HttpVersion::Http2));
        let host = base("http://localhost:1");
        assert!(!choice.wants_advice(&host));
        assert!(!choice.switches(&host, HttpVersion::Http2, &no_http2()));
        assert_eq!(choice.version(&host, now()), HttpVersion::Http2);
    }
}
