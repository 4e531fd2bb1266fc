//! Parses the parameters of a large `turn/start` together with the message around them.
//!
//! A message is otherwise read twice: once to find its parts, and once by its method. The messages
//! of a long session are megabytes, so that is most of what a turn costs.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use jsonrpsee::Extensions;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::protocol::TurnStartParams;

/// Smaller messages are read the usual way.
const LARGE: usize = 16 * 1024;
const METHOD: &str = "turn/start";

/// Parsed parameters, for the method that takes them.
#[derive(Clone)]
pub(super) struct EarlyParams(Arc<Mutex<Option<Box<dyn Any + Send>>>>);

/// The parameters of a request.
pub(super) enum RequestParams<'a> {
    /// Their JSON, if there are any.
    Text(Option<&'a RawValue>),
    /// Parsed with the message.
    Parsed(EarlyParams),
}

/// A request whose parameters are parsed.
pub(super) struct EarlyRequest<'a> {
    /// The id in JSON.
    pub(super) id: &'a str,
    pub(super) method: &'static str,
    pub(super) params: EarlyParams,
}

impl EarlyParams {
    fn of(params: TurnStartParams) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(params)))))
    }

    /// Returns the parameters that came with a request, the first time.
    pub(super) fn take<Params: 'static>(extensions: &Extensions) -> Option<Params> {
        let Self(params) = extensions.get::<Self>()?;
        let params = params.lock().unwrap_or_else(PoisonError::into_inner).take();
        params?.downcast().ok().map(|params| *params)
    }
}

/// Reads a large `turn/start`; `None` if the message is anything else, unusual or invalid.
pub(super) fn read(body: &[u8]) -> Option<EarlyRequest<'_>> {
    if body.len() < LARGE {
        return None;
    }
    let StartMessage { id, params } = serde_json::from_slice(body).ok()?;
    Some(EarlyRequest {
        id: id.get(),
        method: METHOD,
        params: EarlyParams::of(params),
    })
}

struct StartMessage<'a> {
    id: &'a RawValue,
    params: TurnStartParams,
}

impl<'de> Deserialize<'de> for StartMessage<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(StartVisitor)
    }
}

struct StartVisitor;

impl<'de> Visitor<'de> for StartVisitor {
    type Value = StartMessage<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a turn/start request")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut id, mut is_start, mut params) = (None, false, None);
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            match &*key {
                "jsonrpc" => drop(map.next_value::<IgnoredAny>()?),
                "id" if id.is_none() => id = Some(map.next_value()?),
                "method" if !is_start => {
                    is_start = map.next_value::<Cow<'_, str>>()? == METHOD;
                    if !is_start {
                        return Err(A::Error::custom("another method"));
                    }
                }
                "params" if is_start && params.is_none() => params = Some(map.next_value()?),
                _ => return Err(A::Error::custom("an unusual message")),
            }
        }
        match (id, params) {
            (Some(id), Some(params)) => Ok(StartMessage { id, params }),
            _ => Err(A::Error::custom("an incomplete request")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    fn start() -> Json {
        json!({"jsonrpc": "2.0", "id": "t", "method": METHOD, "params": {
            "turnId": "t", "sessionId": "s", "model": {"id": "m"},
            "messages": [{"role": "user", "content": "x".repeat(LARGE)}]}})
    }

    fn is_read(message: &Json) -> bool {
        read(message.to_string().as_bytes()).is_some()
    }

    #[test]
    fn the_parameters_of_a_large_turn_are_parsed_once() {
        let body = start().to_string().into_bytes();
        let request = read(&body).unwrap();
        assert_eq!((request.id, request.method), ("\"t\"", METHOD));
        let mut extensions = Extensions::new();
        extensions.insert(request.params);
        assert!(EarlyParams::take::<TurnStartParams>(&Extensions::new()).is_none());
        let params: TurnStartParams = EarlyParams::take(&extensions).unwrap();
        let usual: TurnStartParams = serde_json::from_value(start()["params"].clone()).unwrap();
        assert!(params == usual);
        assert!(EarlyParams::take::<TurnStartParams>(&extensions).is_none());
    }

    #[test]
    fn other_messages_are_read_the_usual_way() {
        let changed = |name: &str, value: Json| {
            let mut message = start();
            message[name] = value;
            is_read(&message)
        };
        assert!(is_read(&start()) && changed("id", json!(7)));
        assert!(!changed("method", json!("turn/cancel")));
        assert!(!changed("result", json!({})));
        assert!(!changed("params", json!({"turnId": "x".repeat(LARGE)})));
        let mut notification = start();
        notification.as_object_mut().unwrap().remove("id");
        assert!(!is_read(&notification));
        let params = start()["params"].clone();
        assert!(!is_read(
            &json!({"params": params, "id": 1, "method": METHOD})
        ));
        let text = start().to_string();
        assert!(read(&text.as_bytes()[..text.len() - 1]).is_none());
        assert!(read(br#"{"id":1,"method":"turn/start"}"#).is_none());
    }
}
