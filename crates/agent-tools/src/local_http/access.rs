//! Access rules of the local server: pure functions of a request's head.

use axum::response::{AppendHeaders, IntoResponse, Response};
use http::header::{AUTHORIZATION, HOST, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;

/// Why a request is rejected before it is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The `Host` header names another host.
    #[error("this server answers to 127.0.0.1 and localhost only")]
    ForeignHost,
    /// The request comes from a web page of another origin.
    #[error("web pages have no business here")]
    ForeignOrigin,
    /// The path is unknown.
    #[error("there is nothing here")]
    NotFound,
    /// The path belongs to a run that has ended.
    #[error("the run these tools belong to is over")]
    Gone,
    /// The token is missing or wrong.
    #[error("the token of this endpoint is needed: Authorization: Bearer <token>")]
    Unauthorized,
    /// The body is larger than this many bytes.
    #[error("a request may have at most {0} bytes")]
    TooLarge(usize),
    /// The body did not arrive in time.
    #[error("the request did not arrive in time")]
    TooSlow,
    /// The body ended early or its length is invalid.
    #[error("the request broke off")]
    Broken,
    /// The server has no capacity left.
    #[error("too much is waiting here already; come back later")]
    Busy,
}

impl HttpError {
    /// Returns the HTTP status.
    pub fn status(self) -> StatusCode {
        match self {
            Self::ForeignHost | Self::ForeignOrigin => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Gone => StatusCode::GONE,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Broken => StatusCode::BAD_REQUEST,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns the header that clients need beside the status, if any.
    pub fn header(self) -> Option<(HeaderName, HeaderValue)> {
        match self {
            Self::Unauthorized => Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            Self::Busy => Some((RETRY_AFTER, HeaderValue::from_static("1"))),
            _ => None,
        }
    }
}

/// A response to a request that is rejected before it is handled.
pub trait RejectionResponse: IntoResponse + Send + 'static {
    /// Returns the response for a request of this address.
    fn reject(error: HttpError, uri: &Uri) -> Self;
}

impl RejectionResponse for HttpError {
    fn reject(error: HttpError, _uri: &Uri) -> Self {
        error
    }
}

/// The response is the error's text.
impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        tracing::debug!(status = self.status().as_u16(), "http.rejected");
        (
            self.status(),
            AppendHeaders(self.header()),
            self.to_string(),
        )
            .into_response()
    }
}

/// Rejects requests that a web page may have sent through the user's browser: under a host name
/// that points to this machine (`Host`), or from any page but our own (`Origin`). Our own origin
/// is `http://` and the `Host` of the request; a page on another port of this machine is foreign.
pub fn check_local(uri: &Uri, headers: &HeaderMap, port: u16) -> Result<(), HttpError> {
    let ours = |name: &str| {
        let bare = name.strip_suffix(&format!(":{port}"));
        matches!(bare, Some("127.0.0.1" | "localhost"))
    };
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(HttpError::ForeignHost);
    };
    let named = uri.authority().is_none_or(|named| ours(named.as_str()));
    let Some(host) = host.to_str().ok().filter(|host| named && ours(host)) else {
        return Err(HttpError::ForeignHost);
    };
    let own = format!("http://{host}");
    let is_foreign = |origin: &http::HeaderValue| origin != own.as_str();
    if headers.get_all(ORIGIN).iter().any(is_foreign) {
        return Err(HttpError::ForeignOrigin);
    }
    Ok(())
}

/// Checks the bearer token. The comparison takes constant time.
pub fn check_token(headers: &HeaderMap, token: &SecretString) -> Result<(), HttpError> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (given.next(), given.next()) else {
        return Err(HttpError::Unauthorized);
    };
    let (scheme, sent) = value
        .to_str()
        .ok()
        .and_then(|value| value.split_once(' '))
        .ok_or(HttpError::Unauthorized)?;
    let same = sent
        .trim()
        .as_bytes()
        .ct_eq(token.expose_secret().as_bytes());
    if scheme.eq_ignore_ascii_case("bearer") && bool::from(same) {
        Ok(())
    } else {
        Err(HttpError::Unauthorized)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn asked(uri: &str, pairs: &[(&'static str, &str)]) -> Result<(), HttpError> {
        check_local(&uri.parse().unwrap(), &heads(pairs), 4000)
    }

    #[test]
    fn only_our_own_host_name_is_accepted() {
        for host in ["127.0.0.1:4000", "localhost:4000"] {
            assert_eq!(asked("/mcp", &[("host", host)]), Ok(()));
        }
        for host in [
            "evil.com",
            "evil.com:4000",
            "127.0.0.1",
            "127.0.0.1:4001",
            "localhost:4000.evil.com",
            "127.0.0.1:4000@evil.com",
            "",
        ] {
            let refused = asked("/mcp", &[("host", host)]);
            assert_eq!(refused, Err(HttpError::ForeignHost), "{host:?}");
        }
        assert_eq!(asked("/mcp", &[]), Err(HttpError::ForeignHost));
        let two = [("host", "127.0.0.1:4000"), ("host", "evil.com")];
        assert_eq!(asked("/mcp", &two), Err(HttpError::ForeignHost));
        let absolute = asked("http://evil.com/mcp", &[("host", "127.0.0.1:4000")]);
        assert_eq!(absolute, Err(HttpError::ForeignHost));
    }

    #[test]
    fn requests_from_other_origins_are_refused() {
        let from = |origin| asked("/mcp", &[("host", "localhost:4000"), ("origin", origin)]);
        assert_eq!(from("http://localhost:4000"), Ok(()), "our own page");
        for origin in [
            "http://127.0.0.1:4000",
            "https://localhost:4000",
            "http://localhost:6274",
            "http://localhost",
            "http://127.0.0.1",
            "http://[::1]:4000",
            "http://localhost:4000/",
            "HTTP://LOCALHOST:4000",
            "https://evil.com",
            "http://evil.com:4000",
            "http://localhost.evil.com",
            "http://localhost:4000@evil.com",
            "vscode-webview://0b2c",
            "null",
            "file://",
            "",
        ] {
            assert_eq!(from(origin), Err(HttpError::ForeignOrigin), "{origin:?}");
        }
        let own = ("origin", "http://localhost:4000");
        let two = [("host", "localhost:4000"), own, ("origin", "null")];
        assert_eq!(asked("/mcp", &two), Err(HttpError::ForeignOrigin));
    }

    #[test]
    fn only_the_right_token_is_accepted() {
        let token: SecretString = "secret-token".into();
        let with = |value| check_token(&heads(&[("authorization", value)]), &token);
        assert_eq!(with("Bearer secret-token"), Ok(()));
        assert_eq!(with("bearer secret-token"), Ok(()));
        for wrong in [
            "Bearer",
            "Bearer ",
            "Bearer secret-tokem",
            "Bearer secret-token2",
            "Basic secret-token",
            "secret-token",
        ] {
            assert_eq!(with(wrong), Err(HttpError::Unauthorized), "{wrong:?}");
        }
        assert_eq!(
            check_token(&HeaderMap::new(), &token),
            Err(HttpError::Unauthorized)
        );
        let twice = heads(&[
            ("authorization", "Bearer secret-token"),
            ("authorization", "Bearer x"),
        ]);
        assert_eq!(check_token(&twice, &token), Err(HttpError::Unauthorized));
    }
}
