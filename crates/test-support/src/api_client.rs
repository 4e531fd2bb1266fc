//! A client of the gateway that sends any body to any path, and reads JSON or server-sent events.

use reqwest::header::HeaderMap;
use serde_json::{Value as Json, json};

use crate::gateway::GatewayProcess;

/// A client with a token.
pub struct ApiClient {
    http: reqwest::Client,
    root: String,
    token: String,
}

/// A response that was read to its end.
#[derive(Debug)]
pub struct ApiReply {
    pub status: u16,
    pub headers: HeaderMap,
    /// The body, if it is JSON.
    pub body: Json,
    /// The names and data of its events.
    pub events: Vec<(String, Json)>,
}

impl ApiClient {
    pub fn new(gateway: &GatewayProcess) -> Self {
        Self {
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            root: gateway.url.strip_suffix("/v1").unwrap().to_owned(),
            token: gateway.token.clone(),
        }
    }

    pub async fn post(&self, path: &str, body: &Json) -> ApiReply {
        self.post_with(path, &[], body).await
    }

    /// Sends a body with further headers. Without an `x-api-key` the token is a bearer token.
    pub async fn post_with(&self, path: &str, headers: &[(&str, &str)], body: &Json) -> ApiReply {
        let mut request = self.http.post(format!("{}{path}", self.root));
        if !headers.iter().any(|(name, _)| *name == "x-api-key") {
            request = request.bearer_auth(&self.token);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        ApiReply::read(request.body(body.to_string()).send().await.unwrap()).await
    }

    pub async fn get(&self, path: &str) -> ApiReply {
        let request = self.http.get(format!("{}{path}", self.root));
        ApiReply::read(request.bearer_auth(&self.token).send().await.unwrap()).await
    }
}

impl ApiReply {
    async fn read(answer: reqwest::Response) -> Self {
        let status = answer.status().as_u16();
        let headers = answer.headers().clone();
        let is_stream = headers["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/event-stream");
        let text = answer.text().await.unwrap();
        let (body, events) = if is_stream {
            (Json::Null, events(&text))
        } else {
            (serde_json::from_str(&text).unwrap(), Vec::new())
        };
        Self {
            status,
            headers,
            body,
            events,
        }
    }

    /// Returns the names of the events, each once in a row.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.events.iter().map(|(name, _)| name.as_str()).collect();
        names.dedup();
        names
    }

    /// Returns the data of the events with this name.
    pub fn all(&self, name: &str) -> Vec<&Json> {
        let events = self.events.iter().filter(|(event, _)| event == name);
        events.map(|(_, data)| data).collect()
    }

    /// Returns the last event's data.
    pub fn last(&self) -> &Json {
        self.events.last().map_or(&Json::Null, |(_, data)| data)
    }
}

fn events(text: &str) -> Vec<(String, Json)> {
    let mut events = Vec::new();
    for event in text.split_terminator("\n\n") {
        let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
        let Some(data) = field("data: ") else {
            continue;
        };
        let data = match data {
            "[DONE]" => json!("[DONE]"),
            data => serde_json::from_str(data).unwrap(),
        };
        let name = field("event: ").unwrap_or_default().to_owned();
        if let Some(kind) = data["type"].as_str().filter(|_| !name.is_empty()) {
            assert_eq!(kind, name, "an event is named after its type");
        }
        events.push((name, data));
    }
    events
}
