//! The calls with one request and one reply, in protobuf and in JSON.

use serde_json::{Value, json};

use super::backend::Backend;
use super::connect::{Code, ConnectError};
use super::exchange::{Answer, RequestHead};
use super::schema::{self, Detail};

/// One call.
pub(super) struct Method {
    path: &'static str,
    /// Message of the request; without one any body will do.
    request: Option<&'static str>,
    /// Message of the reply; without one it is empty.
    response: Option<&'static str>,
    answer: fn(&Backend, &Value) -> Result<Value, ConnectError>,
}

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Codec {
    Proto,
    Json,
}

const METHODS: &[Method] = &[
    Method {
        path: "/agent.v1.AgentService/GetUsableModels",
        request: Some("agent.v1.GetUsableModelsRequest"),
        response: Some("agent.v1.GetUsableModelsResponse"),
        answer: |backend, _| Ok(backend.catalogue().usable()),
    },
    Method {
        path: "/aiserver.v1.AiService/GetUsableModels",
        request: Some("agent.v1.GetUsableModelsRequest"),
        response: Some("agent.v1.GetUsableModelsResponse"),
        answer: |backend, _| Ok(backend.catalogue().usable()),
    },
    Method {
        path: "/agent.v1.AgentService/GetDefaultModelForCli",
        request: Some("agent.v1.GetDefaultModelForCliRequest"),
        response: Some("agent.v1.GetDefaultModelForCliResponse"),
        answer: |backend, _| Ok(backend.catalogue().default_model()),
    },
    Method {
        path: "/aiserver.v1.AiService/AvailableModels",
        request: Some("aiserver.v1.AvailableModelsRequest"),
        response: Some("aiserver.v1.AvailableModelsResponse"),
        answer: |backend, _| Ok(backend.catalogue().available()),
    },
    Method {
        path: "/aiserver.v1.ServerConfigService/GetServerConfig",
        request: Some("aiserver.v1.GetServerConfigRequest"),
        response: Some("aiserver.v1.GetServerConfigResponse"),
        answer: |backend, _| Ok(backend.server_config()),
    },
    Method {
        path: "/aiserver.v1.DashboardService/GetUserPrivacyMode",
        request: Some("aiserver.v1.GetUserPrivacyModeRequest"),
        response: Some("aiserver.v1.GetUserPrivacyModeResponse"),
        answer: |backend, _| Ok(json!({ "privacyMode": backend.privacy_mode() })),
    },
    Method {
        path: "/aiserver.v1.DashboardService/GetTeamAdminSettingsOrEmptyIfNotInTeam",
        request: Some("aiserver.v1.GetTeamAdminSettingsRequest"),
        response: None,
        answer: |_, _| Ok(json!({})),
    },
    Method {
        path: "/aiserver.v1.DashboardService/GetTeamReposOrEmptyIfNotInTeam",
        request: Some("aiserver.v1.GetTeamReposRequest"),
        response: Some("aiserver.v1.GetTeamReposResponse"),
        answer: |_, _| Ok(json!({})),
    },
    Method {
        path: "/aiserver.v1.DashboardService/GetMe",
        request: Some("aiserver.v1.GetMeRequest"),
        response: Some("aiserver.v1.GetMeResponse"),
        answer: |_, _| {
            Ok(json!({
                "authId": "simulated|user_1",
                "userId": 1,
                "email": "person@example.invalid",
                "firstName": "Simulated",
                "lastName": "Person",
            }))
        },
    },
    Method {
        path: "/aiserver.v1.DashboardService/GetPlanInfo",
        request: Some("aiserver.v1.GetPlanInfoRequest"),
        response: Some("aiserver.v1.GetPlanInfoResponse"),
        answer: |_, _| {
            Ok(json!({ "planInfo": {
                "planName": "Simulated Pro",
                "includedAmountCents": 2000,
                "price": "$20/mo",
                "planOwner": "PLAN_OWNER_STRIPE",
            }}))
        },
    },
    Method {
        path: "/aiserver.v1.DashboardService/GetCurrentPeriodUsage",
        request: Some("aiserver.v1.GetCurrentPeriodUsageRequest"),
        response: Some("aiserver.v1.GetCurrentPeriodUsageResponse"),
        answer: |_, _| {
            Ok(json!({
                "billingCycleStart": 1_793_500_000_000_i64,
                "billingCycleEnd": 1_796_100_000_000_i64,
                "planUsage": { "totalSpend": 250, "includedSpend": 250, "remaining": 1750, "limit": 2000, "totalPercentUsed": 12.5 },
                "enabled": true,
                "displayMessage": "You have used 12% of your simulated plan",
            }))
        },
    },
    Method {
        path: "/aiserver.v1.DashboardService/CreateUserApiKey",
        request: Some("aiserver.v1.CreateUserApiKeyRequest"),
        response: Some("aiserver.v1.CreateUserApiKeyResponse"),
        answer: |_, _| Ok(json!({ "apiKey": format!("crsr_{}", uuid::Uuid::new_v4().simple()) })),
    },
    Method {
        path: "/aiserver.v1.AnalyticsService/TrackEvents",
        request: Some("aiserver.v1.TrackEventsRequest"),
        response: Some("aiserver.v1.TrackEventsResponse"),
        answer: |_, _| Ok(json!({})),
    },
    Method {
        path: "/aiserver.v1.AnalyticsService/BootstrapStatsig",
        request: Some("aiserver.v1.BootstrapStatsigRequest"),
        response: Some("aiserver.v1.BootstrapStatsigResponse"),
        answer: |_, _| Ok(json!({ "config": "{}" })),
    },
    Method {
        path: "/aiserver.v1.BidiService/BidiAppend",
        request: Some("aiserver.v1.BidiAppendRequest"),
        response: Some("aiserver.v1.BidiAppendResponse"),
        answer: append,
    },
];

/// The call at this path.
pub(super) fn method(path: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.path == path)
}

/// A Connect error as a unary reply.
pub(super) fn error(error: &ConnectError) -> Answer {
    Answer::json(error.code.http_status(), &error.to_json())
}

/// The error for a path nobody serves.
pub(super) fn unimplemented(path: &str) -> Answer {
    error(&ConnectError::new(
        Code::Unimplemented,
        format!("{path} is not implemented by the simulator"),
    ))
}

impl Method {
    /// Reads the body for the recording and for the answer.
    pub(super) fn read(&self, head: &RequestHead, body: &[u8]) -> Result<Value, Box<Answer>> {
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

    /// Answers a request.
    pub(super) fn answer(&self, backend: &Backend, head: &RequestHead, request: &Value) -> Answer {
        match (self.answer)(backend, request) {
            Ok(reply) => self.write(head, 200, &reply),
            Err(failure) => error(&failure),
        }
    }

    /// Writes a reply in the codec of its request.
    pub(super) fn write(&self, head: &RequestHead, status: u16, reply: &Value) -> Answer {
        let encoded = match self.response {
            Some(name) => schema::encode(name, reply),
            None => Ok(bytes::Bytes::new()),
        };
        match (codec(head), encoded) {
            (Err(answer), _) => *answer,
            (Ok(_), Err(failure)) => error(&ConnectError::new(Code::Internal, failure.to_string())),
            (Ok(Codec::Json), Ok(_)) => Answer::json(status, reply),
            (Ok(Codec::Proto), Ok(bytes)) => Answer::new(status, "application/proto", bytes),
        }
    }
}

fn codec(head: &RequestHead) -> Result<Codec, Box<Answer>> {
    let content_type = head.header("content-type").unwrap_or_default();
    match content_type.split(';').next().unwrap_or_default().trim() {
        "application/proto" => Ok(Codec::Proto),
        "application/json" => Ok(Codec::Json),
        other => Err(Box::new(Answer::json(
            415,
            &json!({ "code": "unknown", "message": format!("unsupported content type {other:?}") }),
        ))),
    }
}

fn append(backend: &Backend, request: &Value) -> Result<Value, ConnectError> {
    let invalid = |reason: &str| ConnectError::new(Code::InvalidArgument, reason);
    let id = request["requestId"]["requestId"]
        .as_str()
        .filter(|id| !id.is_empty())
        .ok_or_else(|| invalid("request_id is missing"))?;
    let seqno = match &request["appendSeqno"] {
        Value::Null => 0,
        Value::String(text) => text
            .parse()
            .map_err(|_| invalid("append_seqno is no number"))?,
        other => other
            .as_i64()
            .ok_or_else(|| invalid("append_seqno is no number"))?,
    };
    let message = match (request["data"].as_str(), request["dataBinary"].as_str()) {
        (Some(hex), None) => schema::from_hex(hex).ok_or_else(|| invalid("data is not hex"))?,
        (None, Some(base64)) => {
            schema::from_base64(base64).ok_or_else(|| invalid("data_binary is not base64"))?
        }
        _ => return Err(invalid("one of data and data_binary is needed")),
    };
    backend
        .appends()
        .append(id, seqno, message.into())
        .map_err(|error| ConnectError::new(Code::NotFound, error.to_string()))?;
    Ok(json!({}))
}
