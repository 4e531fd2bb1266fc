//! Client of Cursor's `DashboardService`: the user's profile, their plan and its usage.

use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use secrecy::SecretString;

use super::token::{Account, AuthorizedError};
use crate::endpoint::BaseUrl;
use crate::headers::{HttpVersion, Identity};
use crate::http_clients::Http;
use crate::unary::{Call, CallError};
use cursor_proto::aiserver::v1::{
    GetCurrentPeriodUsageRequest, GetCurrentPeriodUsageResponse, GetMeRequest, GetMeResponse,
    GetPlanInfoRequest, GetPlanInfoResponse,
};

const SERVICE: &str = "/aiserver.v1.DashboardService/";
const DEADLINE: Duration = Duration::from_secs(15);

/// A client of `DashboardService`.
#[derive(Debug, Clone)]
pub struct Dashboard {
    http: Arc<Http>,
    backend: BaseUrl,
    identity: Identity,
}

/// The user an account belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserProfile {
    /// The email address.
    pub email: Option<String>,
    /// First and last name.
    pub name: Option<String>,
}

/// The plan of an account and its usage in the current billing period.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SubscriptionPlan {
    /// The name of the plan.
    pub name: Option<String>,
    /// Cents used in this billing period.
    pub used_cents: Option<i32>,
    /// Cents included in the plan.
    pub limit_cents: Option<i32>,
    /// Usage in percent of the limit.
    pub percent_used: Option<f64>,
    /// Usage of models that Cursor chose, in percent of their limit.
    pub auto_percent_used: Option<f64>,
    /// Usage of models that the user chose, in percent of their limit.
    pub named_percent_used: Option<f64>,
    /// Cents spent beyond the plan.
    pub on_demand_cents: Option<i32>,
    /// Cents that may be spent beyond the plan.
    pub on_demand_limit_cents: Option<i32>,
    /// End of the billing period, in milliseconds since 1970.
    pub period_ends_ms: Option<i64>,
    /// Cursor's usage message for the user.
    pub message: Option<String>,
}

impl Dashboard {
    /// Creates a client for the service at `backend`.
    pub fn new(http: Arc<Http>, backend: BaseUrl, identity: Identity) -> Self {
        Self {
            http,
            backend,
            identity,
        }
    }

    /// The server this client talks to.
    pub fn backend(&self) -> &BaseUrl {
        &self.backend
    }

    pub(super) fn http(&self) -> &Http {
        &self.http
    }

    /// Returns the user the account belongs to.
    pub async fn user(&self, account: &Account) -> Result<UserProfile, AuthorizedError> {
        account
            .authorized(async |token| self.user_with(&token).await)
            .await
    }

    pub(super) async fn user_with(&self, token: &SecretString) -> Result<UserProfile, CallError> {
        let user: GetMeResponse = self.call("GetMe", token, &GetMeRequest::default()).await?;
        let names = [user.first_name, user.last_name];
        let name: Vec<String> = names.into_iter().flatten().collect();
        Ok(UserProfile {
            email: user.email.filter(|email| !email.is_empty()),
            name: Some(name.join(" ").trim().to_owned()).filter(|name| !name.is_empty()),
        })
    }

    /// Returns the account's plan. Fields that Cursor does not send are `None`.
    pub async fn plan(&self, account: &Account) -> Result<SubscriptionPlan, AuthorizedError> {
        let info = account
            .authorized(async |token| {
                let request = GetPlanInfoRequest::default();
                let response = self.call("GetPlanInfo", &token, &request).await;
                response.map(|response: GetPlanInfoResponse| response.plan_info)
            })
            .await?;
        let usage: GetCurrentPeriodUsageResponse = account
            .authorized(async |token| {
                let request = GetCurrentPeriodUsageRequest::default();
                self.call("GetCurrentPeriodUsage", &token, &request).await
            })
            .await?;
        let used = usage.plan_usage;
        let beyond = usage.spend_limit_usage;
        Ok(SubscriptionPlan {
            name: info
                .map(|info| info.plan_name)
                .filter(|name| !name.is_empty()),
            used_cents: used.as_ref().map(|used| used.total_spend),
            limit_cents: used
                .as_ref()
                .map(|used| used.limit)
                .filter(|limit| *limit > 0),
            auto_percent_used: used.as_ref().and_then(|used| used.auto_percent_used),
            named_percent_used: used.as_ref().and_then(|used| used.api_percent_used),
            percent_used: used.and_then(|used| used.total_percent_used),
            on_demand_cents: beyond.as_ref().map(|beyond| beyond.individual_used),
            on_demand_limit_cents: beyond
                .and_then(|beyond| beyond.individual_limit.or(beyond.pooled_limit)),
            period_ends_ms: Some(usage.billing_cycle_end).filter(|end| *end > 0),
            message: Some(usage.display_message).filter(|message| !message.is_empty()),
        })
    }

    async fn call<Response: Message + Default>(
        &self,
        method: &str,
        token: &SecretString,
        request: &impl Message,
    ) -> Result<Response, CallError> {
        let path = format!("{SERVICE}{method}");
        let call = Call {
            base: &self.backend,
            path: &path,
            headers: self.identity.unary(token),
            version: HttpVersion::Http1,
            deadline: DEADLINE,
        };
        self.http.call(call, request).await
    }
}
