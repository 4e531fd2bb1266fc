//! `GET /`: the status page. One page without external assets; everything on it arrives as
//! server-sent events and is inserted as text.

mod browser_access;
mod turn_board;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::sse::{Event, Sse};
use axum::response::{AppendHeaders, IntoResponse, Response};
use futures_util::{StreamExt as _, stream};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, LOCATION, SET_COOKIE};
use http::{HeaderMap, HeaderName, Method, StatusCode, Uri};
use serde_json::{Value as Json, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use self::browser_access::{BrowserAccess, random_text};
use self::turn_board::TurnBoard;
pub(super) use self::turn_board::{TurnOrigin, TurnOutcome, TurnReport};
use super::api_error::ApiError;
use super::client_config;
use super::event_stream::named;
use super::router::{GatewayState, MAX_TURNS, check_request_token};
use super::token::Token;
use agent_tools::local_http::access::HttpError;
use foundation::metrics::counters;

/// The path of the page.
pub(super) const PAGE: &str = "/";
/// The path of its events.
pub(super) const EVENTS: &str = "/status/events";
/// Exchanges the token for a cookie.
pub(super) const SIGN_IN: &str = "/status/sign-in";
/// Ends the access of a browser.
pub(super) const SIGN_OUT: &str = "/status/sign-out";
/// The parameter of a link that works once.
const LINK: &str = "link=";

/// How many pages may be open.
const MAX_PAGES: usize = 16;
/// How long changes are collected before they are sent.
const COLLECT: Duration = Duration::from_millis(150);
/// How often an open page is updated without a change, for what changes with time.
const UPDATE: Duration = Duration::from_secs(10);

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const BODY: &str = include_str!("page.html");
const SIGN_IN_SCRIPT: &str = include_str!("sign_in.js");
const SIGN_IN_BODY: &str = include_str!("sign_in.html");

/// What the status page needs.
pub(super) struct StatusPage {
    pub(super) board: Arc<TurnBoard>,
    access: BrowserAccess,
    /// The settings of clients, for the page.
    settings: Json,
    pages: Arc<Semaphore>,
}

impl StatusPage {
    /// Returns the page of a gateway that parks runs for `park`.
    pub(super) fn new(port: u16, token: &Token, park: Duration) -> Self {
        let settings = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "url": format!("http://127.0.0.1:{port}/v1"),
            "tokenFile": token.file.as_ref().map(|file| file.display().to_string()),
            "maxTurns": MAX_TURNS,
            "clients": client_config::all(port, token),
        });
        Self {
            board: Arc::new(TurnBoard::new(park)),
            access: BrowserAccess::new(port),
            settings,
            pages: Arc::new(Semaphore::new(MAX_PAGES)),
        }
    }

    /// Returns the path of a link to the page that works once.
    pub(super) fn link(&self) -> Result<String, getrandom::Error> {
        Ok(format!("{PAGE}?{LINK}{}", self.access.create_link()?))
    }

    /// Returns whether a browser may have this part of the page.
    pub(super) fn is_allowed(&self, request: &Request) -> bool {
        let is_page = matches!(request.uri().path(), PAGE | EVENTS | SIGN_OUT);
        is_page && self.access.is_signed_in(request.headers())
    }
}

/// Returns the response for a browser without access that asks for the page: a redirect with a
/// cookie if it has a link, else the form for the token. `None` for other requests.
pub(super) fn admit(status: &StatusPage, request: &Request) -> Option<Response> {
    let accept = request.headers().get(ACCEPT)?.to_str().ok()?;
    let is_page = request.uri().path() == PAGE && request.method() == Method::GET;
    if !is_page || !accept.contains("text/html") {
        return None;
    }
    let Some(code) = link_code(request.uri()) else {
        return html(StatusCode::UNAUTHORIZED, &sign_in_body(""), SIGN_IN_SCRIPT).ok();
    };
    if status.access.redeem(code)
        && let Ok(cookie) = status.access.sign_in()
    {
        let headers = [(LOCATION, PAGE.to_owned()), (SET_COOKIE, cookie)];
        let rest = AppendHeaders(private_headers());
        return Some((StatusCode::SEE_OTHER, headers, rest).into_response());
    }
    let problem = "This link was used already, or is older than ten minutes.";
    let body = sign_in_body(problem);
    html(StatusCode::UNAUTHORIZED, &body, SIGN_IN_SCRIPT).ok()
}

fn link_code(uri: &Uri) -> Option<&str> {
    uri.query()?
        .split('&')
        .find_map(|part| part.strip_prefix(LINK))
}

fn sign_in_body(problem: &str) -> String {
    SIGN_IN_BODY.replace("{problem}", problem)
}

/// Returns the page.
pub(super) async fn page() -> Result<Response, ApiError> {
    html(StatusCode::OK, BODY, SCRIPT)
}

/// Returns an HTML page with its style and script, which are the only ones that it may use.
fn html(status: StatusCode, body: &str, script: &str) -> Result<Response, ApiError> {
    let nonce = random_text().map_err(|_| ApiError::internal())?;
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>cursor-sidecar</title>\n<link rel=\"icon\" href=\"data:,\">\n<style nonce=\"{nonce}\">\n{STYLE}</style>\n</head>\n<body>\n{body}<script nonce=\"{nonce}\">\n{script}</script>\n</body>\n</html>\n"
    );
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (HeaderName::from_static("content-security-policy"), policy),
    ];
    let rest = AppendHeaders(private_headers());
    Ok((status, headers, rest, text).into_response())
}

/// Headers that keep a response out of caches, frames, other pages and the `Referer`.
fn private_headers() -> [(HeaderName, &'static str); 6] {
    let name = HeaderName::from_static;
    [
        (CACHE_CONTROL, "no-store"),
        (name("referrer-policy"), "no-referrer"),
        (name("x-content-type-options"), "nosniff"),
        (name("x-frame-options"), "DENY"),
        (name("cross-origin-resource-policy"), "same-origin"),
        (name("cross-origin-opener-policy"), "same-origin"),
    ]
}

/// Gives a browser that sent the token a cookie.
pub(super) async fn sign_in(
    State(state): State<Arc<GatewayState>>,
) -> Result<impl IntoResponse, ApiError> {
    let cookie = state.status.access.sign_in();
    let cookie = cookie.map_err(|_| ApiError::internal())?;
    let rest = AppendHeaders(private_headers());
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, cookie)], rest))
}

/// Ends the access of a browser, and its open pages.
pub(super) async fn sign_out(
    State(state): State<Arc<GatewayState>>,
    headers: HeaderMap,
) -> impl IntoResponse {
    let cookie = state.status.access.sign_out(&headers);
    state.status.board.notify();
    (StatusCode::NO_CONTENT, [(SET_COOKIE, cookie)])
}

/// Sends the settings, then the status now and after each change.
pub(super) async fn events(
    State(state): State<Arc<GatewayState>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let permit = Arc::clone(&state.status.pages).try_acquire_owned();
    let permit = permit.map_err(|_| HttpError::Busy)?;
    let settings = named("settings", &state.status.settings);
    let open = OpenPage {
        changes: state.status.board.changes(),
        state,
        headers,
        is_new: true,
        _permit: permit,
    };
    let updates = stream::unfold(open, |mut page| async move {
        let event = page.next().await?;
        Some((event, page))
    });
    let events = stream::iter([settings])
        .chain(updates)
        .map(Ok::<_, Infallible>);
    let kind = [(CONTENT_TYPE, "text/event-stream; charset=utf-8")];
    let rest = AppendHeaders(private_headers());
    Ok((kind, rest, Sse::new(events)).into_response())
}

/// A page that is open in a browser.
struct OpenPage {
    state: Arc<GatewayState>,
    changes: watch::Receiver<()>,
    /// The head of the request, which is checked before every update.
    headers: HeaderMap,
    is_new: bool,
    _permit: OwnedSemaphorePermit,
}

impl OpenPage {
    /// Waits for a change and returns the status; `None` if the page has no access any more or the
    /// gateway ends.
    async fn next(&mut self) -> Option<Event> {
        if !self.is_new {
            let changed = async {
                let _ = tokio::time::timeout(UPDATE, self.changes.changed()).await;
                tokio::time::sleep(COLLECT).await;
            };
            tokio::select! {
                () = changed => {}
                () = self.state.shutdown.cancelled() => return None,
            }
        }
        self.is_new = false;
        self.changes.mark_unchanged();
        let is_allowed = self.state.status.access.is_signed_in(&self.headers)
            || check_request_token(&self.headers, &self.state.token).is_ok();
        is_allowed.then(|| named("status", &status(&self.state)))
    }
}

/// Returns what the page displays.
fn status(state: &GatewayState) -> Json {
    let drift = state.backends.in_use();
    let drift = drift.map(|backend| backend.drift.counts());
    json!({
        "board": state.status.board.snapshot(),
        "activeTurns": MAX_TURNS - state.turn_permits.available_permits(),
        "counters": counters().counts(),
        "drift": drift.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn ask(status: &StatusPage, path: &str, accept: &str) -> Option<Response> {
        let request = Request::get(path).header(ACCEPT, accept);
        admit(status, &request.body(Body::empty()).unwrap())
    }

    #[tokio::test]
    async fn a_link_is_exchanged_for_a_cookie_once() {
        let token = Token {
            secret: "0123456789abcdef".into(),
            file: None,
        };
        let status = StatusPage::new(4141, &token, Duration::from_secs(1));
        let link = status.link().unwrap();
        assert!(ask(&status, &link, "application/json").is_none());
        let answer = ask(&status, &link, "text/html,*/*").unwrap();
        assert_eq!(answer.status(), StatusCode::SEE_OTHER);
        let headers = answer.headers();
        assert_eq!(
            headers[LOCATION], "/",
            "the code is not in the next address"
        );
        assert_eq!(headers["referrer-policy"], "no-referrer");
        let cookie = headers[SET_COOKIE].to_str().unwrap();
        let cookie = cookie.split(';').next().unwrap();
        let with_cookie = |path: &str| {
            let request = Request::get(path).header("cookie", cookie);
            status.is_allowed(&request.body(Body::empty()).unwrap())
        };
        assert!(with_cookie("/") && with_cookie(EVENTS));
        assert!(!with_cookie("/v1/models") && !with_cookie(SIGN_IN));
        for path in [link.as_str(), "/?link=", "/"] {
            let answer = ask(&status, path, "text/html").unwrap();
            assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{path}");
            assert!(answer.headers().get(SET_COOKIE).is_none(), "{path}");
        }
    }
}
