//! Error codes and responses.

use jsonrpsee::types::{ErrorObjectOwned, Params};
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use super::frame::{self, MAX_BODY};
use agent::run::AssembleError;
use agent::turn::too_long;
use cursor_client::account::KeyError;
use foundation::presentable;
use foundation::terminal_text::clean;

pub(super) const PARSE: i32 = -32700;
pub(super) const INVALID_REQUEST: i32 = -32600;
pub(super) const METHOD_NOT_FOUND: i32 = -32601;
pub(super) const INVALID_PARAMS: i32 = -32602;
pub(super) const INTERNAL: i32 = -32603;
/// As in LSP.
pub(super) const NOT_INITIALIZED: i32 = -32002;
/// Overloaded: retry later.
pub(super) const OVERLOADED: i32 = -32001;
/// The message is too large to read; its sender sees a parse error.
pub(super) const TOO_LARGE: i32 = PARSE;
/// As in LSP.
pub(super) const CANCELLED: i32 = -32800;

/// The hint for a user of a host, who signs in there.
pub(super) const NO_KEY: &str = "no Cursor API key: sign in with /login, start with --api-key, or \
     set CURSOR_API_KEY. Keys are created in Cursor's dashboard, under Integrations";

/// Returns the text for a host's user of an error in the account or the endpoints.
pub(super) fn for_host(error: &AssembleError) -> String {
    match error {
        AssembleError::Key(KeyError::Missing) => NO_KEY.to_owned(),
        error => error.to_string(),
    }
}

/// Returns a whole error response. `id` is raw JSON.
pub(super) fn answer(id: Option<&str>, code: i32, problem: &str) -> Vec<u8> {
    let id: Json = id
        .and_then(|id| serde_json::from_str(id).ok())
        .unwrap_or(Json::Null);
    let message = clean(problem);
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
        .to_string()
        .into_bytes()
}

/// Parses a method's parameters; the error names the field.
pub(super) fn params<Wanted: DeserializeOwned>(
    params: &Params<'_>,
) -> Result<Wanted, ErrorObjectOwned> {
    let text = params.as_str().unwrap_or("{}");
    // Only an error needs the path.
    if let Ok(wanted) = serde_json::from_str(text) {
        return Ok(wanted);
    }
    let reader = &mut serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(reader).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.inner().to_string();
        // The position within one line of JSON is no help.
        let inner = inner.split(" at line ").next().unwrap_or_default();
        let message = match path.as_str() {
            "." => inner.to_owned(),
            path => format!("{path}: {inner}"),
        };
        ErrorObjectOwned::owned(INVALID_PARAMS, message, None::<()>)
    })
}

/// Returns why a request of that many bytes is refused.
pub(super) fn too_large(method: &str, bytes: u64) -> String {
    match method {
        // The session is too long: the host may be able to shorten it.
        "turn/start" => {
            let mib = |bytes: u64| bytes as f64 / (1024.0 * 1024.0);
            too_long(&format!(
                "the session takes {:.1} MiB with its pictures and what tools left in it, and cursor-sidecar reads {:.0} MiB at most; compact it, or go back to before they came",
                mib(bytes),
                mib(MAX_BODY)
            ))
        }
        _ => frame::too_large(bytes),
    }
}

pub(super) fn internal(problem: &str) -> ErrorObjectOwned {
    ErrorObjectOwned::owned(INTERNAL, presentable(problem), None::<()>)
}
