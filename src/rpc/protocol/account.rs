//! `login/*` and `account/*`: the user's Cursor account.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// `login/start`: no parameters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoginStartParams {}

/// A login that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct LoginStartResult {
    /// The id for `login/wait`.
    pub login_id: String,
    /// The page where the user signs in.
    pub url: String,
}

/// `login/wait`: answered when the user has signed in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoginWaitParams {
    /// The id from `login/start`.
    pub login_id: String,
}

/// A completed login. The sidecar keeps its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct LoginWaitResult {
    /// The email address of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// When the login expires, in milliseconds since 1970.
    #[ts(type = "number")]
    pub expires_at: u64,
}

/// `account/status`: the user's Cursor account, requested from Cursor now.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, TS)]
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
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema, TS)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "lowercase")]
pub enum KeyOrigin {
    /// From the host.
    Host,
    /// From `CURSOR_API_KEY`.
    Environment,
    /// From a browser login on this machine.
    Login,
}

/// A plan and its usage. What Cursor does not report is absent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema, TS)]
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
    /// When the period ends, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(type = "number")]
    pub period_ends_at: Option<i64>,
    /// Cursor's own message about the usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
