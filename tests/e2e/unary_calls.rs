//! Unary calls, in protobuf and JSON, against the simulator.

use std::time::Duration;

use cursor_client::headers::HttpVersion;
use cursor_client::unary::Call;
use cursor_proto::agent::v1::{GetUsableModelsRequest, GetUsableModelsResponse};
use cursor_proto::aiserver::v1::{
    AvailableModelsRequest, AvailableModelsResponse, GetUserPrivacyModeRequest,
    GetUserPrivacyModeResponse,
};
use cursor_proto::available_models;
use http::Method;
use prost::Message as _;
use secrecy::SecretString;
use serde_json::json;

use test_support::run_client::RunClient;
use test_support::simulator::{Simulator, TRANSPORTS, Transport};

fn version(transport: Transport) -> HttpVersion {
    match transport {
        Transport::Tls | Transport::H2c => HttpVersion::Http2,
        Transport::Http1 => HttpVersion::Http1,
    }
}

fn call<'a>(
    ours: &'a RunClient,
    path: &'a str,
    token: &SecretString,
    transport: Transport,
) -> Call<'a> {
    Call {
        base: &ours.backend.endpoints.backend,
        path,
        headers: ours.backend.identity.unary(token),
        version: version(transport),
        deadline: Duration::from_secs(10),
    }
}

#[tokio::test]
async fn models_in_protobuf_and_json() {
    for transport in TRANSPORTS {
        let simulator = Simulator::start(transport);
        let ours = RunClient::new(&simulator, transport);
        let (http, account) = (&ours.backend.http, &ours.backend.account);
        let path = "/agent.v1.AgentService/GetUsableModels";
        let usable: GetUsableModelsResponse = account
            .authorized(|token| {
                let call = call(&ours, path, &token, transport);
                async move { http.call(call, &GetUsableModelsRequest::default()).await }
            })
            .await
            .unwrap();
        assert!(
            usable
                .models
                .iter()
                .any(|model| model.model_id == "composer-2")
        );
        let recording = simulator.recording().await;
        let length = &recording.requests(path)[0]["headers"]["content-length"];
        assert_eq!(length, "0", "an empty request states its length");
        let token = account.token().await.unwrap().token;
        let answer = http
            .call_json(call(&ours, path, &token, transport), &json!({}))
            .await
            .unwrap();
        let ids: Vec<_> = answer["models"]
            .as_array()
            .unwrap()
            .iter()
            .map(|m| m["modelId"].clone())
            .collect();
        assert_eq!(ids.len(), usable.models.len());

        let request = AvailableModelsRequest {
            use_model_parameters: Some(true),
            do_not_use_markdown: Some(true),
            ..AvailableModelsRequest::default()
        };
        assert_eq!(request.encode_to_vec(), [0x28, 1, 0x38, 1]);
        let path = "/aiserver.v1.AiService/AvailableModels";
        let mut raw = call(&ours, path, &token, transport);
        raw.headers
            .insert("content-type", "application/proto".parse().unwrap());
        let body = http
            .exchange(Method::POST, raw, request.encode_to_vec().into())
            .await
            .unwrap();
        let lenient = available_models::decode(body.clone()).unwrap();
        let strict = AvailableModelsResponse::decode(body).unwrap();
        assert!(!lenient.is_empty());
        assert_eq!(lenient.len(), strict.models.len());

        let mut rest = call(&ours, "/v1/models", &token, transport);
        rest.base = &ours.backend.endpoints.rest;
        rest.version = HttpVersion::Http1;
        rest.headers = ours.backend.identity.rest(&SecretString::from("crsr_test"));
        let items = http.get_json(rest).await.unwrap();
        assert!(
            items["items"]
                .as_array()
                .unwrap()
                .iter()
                .any(|item| item["id"] == "composer-2")
        );
    }
}

#[tokio::test]
async fn a_rejected_token_is_exchanged_and_the_call_repeated_once() {
    let simulator = Simulator::start(Transport::Http1);
    let ours = RunClient::new(&simulator, Transport::Http1);
    let http = &ours.backend.http;
    let path = "/aiserver.v1.DashboardService/GetUserPrivacyMode";
    let wrong = SecretString::from("h.e30.forged");
    let tries = std::sync::atomic::AtomicU32::new(0);
    let _: GetUserPrivacyModeResponse = ours
        .backend
        .account
        .authorized(|token| {
            let first = tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
            let call = call(
                &ours,
                path,
                if first { &wrong } else { &token },
                Transport::Http1,
            );
            async move { http.call(call, &GetUserPrivacyModeRequest::default()).await }
        })
        .await
        .unwrap();
    let recording = simulator.recording().await;
    let statuses: Vec<_> = recording
        .requests(path)
        .iter()
        .map(|request| request["status"].as_u64().unwrap())
        .collect();
    assert_eq!(statuses, [401, 200]);
    assert_eq!(recording.requests("/auth/exchange_user_api_key").len(), 2);
}

#[tokio::test]
async fn an_unknown_call_is_unimplemented() {
    let simulator = Simulator::start(Transport::Http1);
    let ours = RunClient::new(&simulator, Transport::Http1);
    let token = ours.backend.account.token().await.unwrap().token;
    let call = call(
        &ours,
        "/agent.v1.AgentService/NoSuchCall",
        &token,
        Transport::Http1,
    );
    let error = ours
        .backend
        .http
        .call_json(call, &json!({}))
        .await
        .unwrap_err();
    assert!(error.to_string().starts_with("[unimplemented]"), "{error}");
}
