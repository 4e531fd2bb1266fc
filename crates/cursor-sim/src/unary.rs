//! Unary calls, in protobuf and in JSON.

use serde_json::{Value, json};

use super::backend::SimBackend;
use super::connect::{Code, ConnectError};
use super::exchange::{FullResponse, RequestHead};
use super::schema::{self, Detail};

/// A unary call.
pub(super) struct UnaryMethod {
    path: &'static str,
    /// Message of the request; if `None`, any body is accepted.
    request: Option<&'static str>,
    /// Message of the response; if `None`, the response is empty.
    response: Option<&'static str>,
    respond: fn(&SimBackend, &Value) -> Result<Value, ConnectError>,
}

/// The encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Codec {
    Proto,
    Json,
}

const METHODS: &[UnaryMethod] = &[
    UnaryMethod {
        path: "/agent.v1.AgentService/GetUsableModels",
        request: Some("agent.v1.GetUsableModelsRequest"),
        response: Some("agent.v1.GetUsableModelsResponse"),
        respond: |backend, _| Ok(backend.models().usable()),
    },
    UnaryMethod {
        path: "/aiserver.v1.AiService/GetUsableModels",
        request: Some("agent.v1.GetUsableModelsRequest"),
        response: Some("agent.v1.GetUsableModelsResponse"),
        respond: |backend, _| Ok(backend.models().usable()),
    },
    UnaryMethod {
        path: "/agent.v1.AgentService/GetDefaultModelForCli",
        request: Some("agent.v1.GetDefaultModelForCliRequest"),
        response: Some("agent.v1.GetDefaultModelForCliResponse"),
        respond: |backend, _| Ok(backend.models().default_model()),
    },
    UnaryMethod {
        path: "/aiserver.v1.AiService/AvailableModels",
        request: Some("aiserver.v1.AvailableModelsRequest"),
        response: Some("aiserver.v1.AvailableModelsResponse"),
        respond: |backend, _| Ok(backend.models().available()),
    },
    UnaryMethod {
        path: "/aiserver.v1.ServerConfigService/GetServerConfig",
        request: Some("aiserver.v1.GetServerConfigRequest"),
        response: Some("aiserver.v1.GetServerConfigResponse"),
        respond: |backend, _| Ok(backend.server_config()),
    },
    UnaryMethod {
        path: "/aiserver.v1.DashboardService/GetUserPrivacyMode",
        request: Some("aiserver.v1.GetUserPrivacyModeRequest"),
        response: Some("aiserver.v1.GetUserPrivacyModeResponse"),
        respond: |backend, _| Ok(json!({ "privacyMode": backend.privacy_mode() })),
    },
    UnaryMethod {
        path: "/aiserver.v1.DashboardService/GetTeamAdminSettingsOrEmptyIfNotInTeam",
        request: Some("aiserver.v1.GetTeamAdminSettingsRequest"),
        response: None,
        respond: |_, _| Ok(json!({})),
    },
    UnaryMethod {
        path: "/aiserver.v1.DashboardService/GetTeamReposOrEmptyIfNotInTeam",
        request: Some("aiserver.v1.GetTeamReposRequest"),
        response: Some("aiserver.v1.GetTeamReposResponse"),
        respond: |_, _| Ok(json!({})),
    },
    UnaryMethod {
        path: "/aiserver.v1.DashboardService/GetMe",
        request: Some("aiserver.v1.GetMeRequest"),
        response: Some("aiserver.v1.GetMeResponse"),
        respond: |_, _| {
            Ok(json!({
                "authId": "simulated|user_1",
                "userId": 1,
                "email": "person@example.invalid",
                "firstName": "Simulated",
                "lastName": "Person",
            }))
        },
    },
    UnaryMethod {
        path: "/aiserver.v1.DashboardService/GetPlanInfo",
        request: Some("aiserver.v1.GetPlanInfoRequest"),
        response: Some("aiserver.v1.GetPlanInfoResponse"),
        respond: |_, _| {
            Ok(json!({ "planInfo": {
                "planName": "Simulated Pro",
                "includedAmountCents": 2000,
                "price": "$20/mo",
                "planOwner": "PLAN_OWNER_STRIPE",
            }}))
        },
    },
    UnaryMethod {
        path: "/aiserver.v1.DashboardService/GetCurrentPeriodUsage",
        request: Some("aiserver.v1.GetCurrentPeriodUsageRequest"),
        response: Some("aiserver.v1.GetCurrentPeriodUsageResponse"),
        respond: |_, _| {
            Ok(json!({
                "billingCycleStart": 1_793_500_000_000_i64,
                "billingCycleEnd": 1_796_100_000_000_i64,
                "planUsage": { "totalSpend": 250, "includedSpend": 250, "remaining": 1750, "limit": 2000, "totalPercentUsed": 12.5 },
                "enabled": true,
                "displayMessage": "You have used 12% of your simulated plan",
            }))
        },
    },
    UnaryMethod {
        path: "/aiserver.v1.DashboardService/CreateUserApiKey",
        request: Some("aiserver.v1.CreateUserApiKeyRequest"),
        response: Some("aiserver.v1.CreateUserApiKeyResponse"),
        respond: |_, _| Ok(json!({ "apiKey": format!("crsr_{}", uuid::Uuid::new_v4().simple()) })),
    },
    UnaryMethod {
        path: "/aiserver.v1.AnalyticsService/TrackEvents",
        request: Some("aiserver.v1.TrackEventsRequest"),
        response: Some("aiserver.v1.TrackEventsResponse"),
        respond: |_, _| Ok(json!({})),
    },
    UnaryMethod {
        path: "/aiserver.v1.AnalyticsService/BootstrapStatsig",
        request: Some("aiserver.v1.BootstrapStatsigRequest"),
        response: Some("aiserver.v1.BootstrapStatsigResponse"),
        respond: |_, _| Ok(json!({ "config": "{}" })),
    },
    UnaryMethod {
        path: "/aiserver.v1.BidiService/BidiAppend",
        request: Some("aiserver.v1.BidiAppendRequest"),
        response: Some("aiserver.v1.BidiAppendResponse"),
        respond: append,
    },
];

/// Returns the call at this path.
pub(super) fn method(path: &str) -> Option<&'static UnaryMethod> {
    METHODS.iter().find(|method| method.path == path)
}

/// Returns a Connect error as a unary response.
pub(super) fn error(error: &ConnectError) -> FullResponse {
    FullResponse::json(error.code.http_status(), &error.to_json())
}

/// Returns the error for an unknown path.
pub(super) fn unimplemented(path: &str) -> FullResponse {
    error(&ConnectError::new(
        Code::Unimplemented,
        format!("{path} is not implemented by the simulator"),
    ))
}

impl UnaryMethod {
    /// Decodes the body; returns the error response if it is invalid.
    pub(super) fn read(&self, head: &RequestHead, body: &[u8]) -> Result<Value, Box<FullResponse>> {
        let invalid =
            |reason: String| Box::new(error(&ConnectError::new(Code::InvalidArgument, reason)));
        match codec(head)? {
            Codec::Json if body.is_empty() => Ok(json!({})),
            Codec::Json => {
                let value: Value = serde_json::from_slice(body)
                    .map_err(|error| invalid(format!("the body is not JSON: {error}")))?;
                if let Some(name) = self.request {
                    schema::encode(name, &value).map_err(|error| invalid(error.to_string()))?;
                }
                Ok(value)
            }
            Codec::Proto => match self.request {
                Some(name) => schema::decode(name, body)
                    .map(|message| schema::to_json(&message, Detail::Present))
                    .map_err(|error| invalid(error.to_string())),
                None => Ok(json!({})),
            },
        }
    }

    /// Returns the response to a request.
    pub(super) fn respond(
        &self,
        backend: &SimBackend,
        head: &RequestHead,
        request: &Value,
    ) -> FullResponse {
        match (self.respond)(backend, request) {
            Ok(message) => self.write(head, 200, &message),
            Err(failure) => error(&failure),
        }
    }

    /// Encodes a response in the codec of its request.
    pub(super) fn write(&self, head: &RequestHead, status: u16, message: &Value) -> FullResponse {
        let encoded = match self.response {
            Some(name) => schema::encode(name, message),
            None => Ok(bytes::Bytes::new()),
        };
        match (codec(head), encoded) {
            (Err(response), _) => *response,
            (Ok(_), Err(failure)) => error(&ConnectError::new(Code::Internal, failure.to_string())),
            (Ok(Codec::Json), Ok(_)) => FullResponse::json(status, message),
            (Ok(Codec::Proto), Ok(bytes)) => FullResponse::new(status, "application/proto", bytes),
        }
    }
}

fn codec(head: &RequestHead) -> Result<Codec, Box<FullResponse>> {
    let content_type = head.header("content-type").unwrap_or_default();
    match content_type.split(';').next().unwrap_or_default().trim() {
        "application/proto" => Ok(Codec::Proto),
        "application/json" => Ok(Codec::Json),
        other => Err(Box::new(FullResponse::json(
            415,
            &json!({ "code": "unknown", "message": format!("unsupported content type {other:?}") }),
        ))),
    }
}

fn append(backend: &SimBackend, request: &Value) -> Result<Value, ConnectError> {
    let invalid = |reason: &str| ConnectError::new(Code::InvalidArgument, reason);
    let id = request["requestId"]["requestId"]
        .as_str()
        .filter(|id| !id.is_empty())
        .ok_or_else(|| invalid("request_id is missing"))?;
    let seqno = match &request["appendSeqno"] {
        Value::Null => 0,
        Value::String(text) => text
            .parse()
            .map_err(|_| invalid("append_seqno is not a number"))?,
        other => other
            .as_i64()
            .ok_or_else(|| invalid("append_seqno is not a number"))?,
    };
    let message = match (request["data"].as_str(), request["dataBinary"].as_str()) {
        (Some(hex), None) => schema::from_hex(hex).ok_or_else(|| invalid("data is not hex"))?,
        (None, Some(base64)) => {
            schema::from_base64(base64).ok_or_else(|| invalid("data_binary is not base64"))?
        }
        _ => return Err(invalid("one of data and data_binary is required")),
    };
    backend
        .appends()
        .append(id, seqno, message.into())
        .map_err(|error| ConnectError::new(Code::NotFound, error.to_string()))?;
    Ok(json!({}))
}
