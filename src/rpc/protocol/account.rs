//! `login/*` and `account/*`: the user's Cursor account.

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
#[cfg(test)]
use ts_rs::TS;

/// `login/start`: no parameters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoginStartParams {}

/// A login that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct LoginStartResult {
    /// The id for `login/wait`.
    pub login_id: String,
    /// The page where the user signs in.
    pub url: String,
    /// What the user has to do, for the host to display.
    pub instructions: String,
}

/// `login/wait`: answered when the user has signed in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoginWaitParams {
    /// The id from `login/start`.
    pub login_id: String,
    /// Whether the host stores the login. Otherwise the sidecar stores it, and the result contains
    /// no tokens.
    #[serde(default)]
    pub return_tokens: bool,
}

/// `login/cancel`: ends a login; an open `login/wait` fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoginCancelParams {
    /// The id from `login/start`.
    pub login_id: String,
}

/// The answer to `login/cancel`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct LoginCancelResult {
    /// Whether there was such a login.
    pub found: bool,
}

/// `login/refresh`: renews a login that the host stores.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoginRefreshParams {
    /// The stored text that the host sends as `apiKey`.
    pub access: String,
    /// The refresh token.
    pub refresh: String,
}

impl std::fmt::Debug for LoginRefreshParams {
    /// Does not show the tokens.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginRefreshParams").finish_non_exhaustive()
    }
}

/// The tokens of a login, for a host that stores them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct HostLogin {
    /// What the host sends as `apiKey`. It contains both tokens, so that a run can outlive the first.
    pub access: String,
    /// The refresh token; empty if the login cannot be renewed.
    pub refresh: String,
    /// When the host should renew them with `login/refresh`, in milliseconds since 1970.
    #[cfg_attr(test, ts(type = "number"))]
    pub expires: u64,
}

impl std::fmt::Debug for HostLogin {
    /// Does not show the tokens.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostLogin").finish_non_exhaustive()
    }
}

/// A completed login.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct LoginWaitResult {
    /// The email address of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// When the access token should be renewed, in milliseconds since 1970. The side that stores the
    /// login does it.
    #[cfg_attr(test, ts(type = "number"))]
    pub expires_at: u64,
    /// The tokens, if the host stores the login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<HostLogin>,
}

/// `account/status`: the user's Cursor account, requested from Cursor now.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccountStatusParams {
    /// The Cursor API key, if the host has one; else `CURSOR_API_KEY`, else the login's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
}

impl std::fmt::Debug for AccountStatusParams {
    /// Does not show the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccountStatusParams")
            .finish_non_exhaustive()
    }
}

/// The answer to `account/status`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct AccountStatus {
    /// Where the key comes from; absent without a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_source: Option<KeyOrigin>,
    /// The user's email address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// The user's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The user's plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<AccountPlan>,
    /// Why the information is incomplete, as text for the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Where a key comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub enum KeyOrigin {
    /// From the host.
    Host,
    /// From `CURSOR_API_KEY`.
    Environment,
    /// From `CURSOR_ACCESS_TOKEN`.
    AccessToken,
    /// From a browser login on this machine.
    Login,
    /// From the login of the Cursor CLI.
    CursorCli,
}

/// A plan and its usage. What Cursor does not report is absent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct AccountPlan {
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Cents used in this period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_cents: Option<i32>,
    /// Cents included in the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_cents: Option<i32>,
    /// The used share, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent_used: Option<f64>,
    /// The used share of models that Cursor chooses, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_percent_used: Option<f64>,
    /// The used share of models that the user chooses, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named_percent_used: Option<f64>,
    /// Cents spent beyond the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_demand_cents: Option<i32>,
    /// Cents that may be spent beyond the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_demand_limit_cents: Option<i32>,
    /// When the period ends, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(type = "number"))]
    pub period_ends_at: Option<i64>,
    /// Cursor's own message about the usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
