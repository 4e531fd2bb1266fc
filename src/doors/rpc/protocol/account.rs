//! `login/*` and `account/*`: who the person is to Cursor.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// `login/start`: nothing to say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoginStartParams {}

/// A login that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct LoginStartResult {
    /// What `login/wait` takes.
    pub login_id: String,
    /// The page the person signs in on.
    pub url: String,
}

/// `login/wait`: answered when the person has signed in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoginWaitParams {
    /// The login, by `login/start`.
    pub login_id: String,
}

/// A login that is done. Its key stays with the sidecar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct LoginWaitResult {
    /// Who signed in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Until when the login is good, in milliseconds since 1970.
    #[ts(type = "number")]
    pub expires_at: u64,
}

/// `account/status`: who the person is to Cursor, asked now.
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
    /// Where the key comes from; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_source: Option<KeyOrigin>,
    /// The person's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Their name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What they pay for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<AccountPlan>,
    /// Why this is not all that could be told, worded for a person.
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

/// A plan and what of it is used. What Cursor does not tell is absent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct AccountPlan {
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Cents used in this period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_cents: Option<i32>,
    /// Cents that are included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_cents: Option<i32>,
    /// The share that is used, of a hundred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent_used: Option<f64>,
    /// When the period ends, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(type = "number")]
    pub period_ends_at: Option<i64>,
    /// Cursor's own words about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
