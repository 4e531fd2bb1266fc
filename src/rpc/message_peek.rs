//! The kind and id of a message, read from its start alone, for one that is too large to read.

use std::fmt;
use std::io::Read;

use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::Value as Json;

/// How much of a message is read. One with its id after the parameters is answered without the id.
pub(super) const PEEKED_BYTES: u64 = 4096;

/// The kind and id of a message. Ids are JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageHeader {
    /// A request.
    Request {
        /// Its id.
        id: String,
        /// Its method.
        method: String,
    },
    /// A response to one of our requests.
    Answer {
        /// The id of that request.
        id: String,
    },
}

impl MessageHeader {
    /// Reads the start of a message, and no more than needed.
    pub(super) fn read(input: impl Read) -> Option<Self> {
        let mut seen = PeekVisitor::default();
        // The input ends in the middle, which is an error; what was read by then counts.
        let _ = serde_json::Deserializer::from_reader(input).deserialize_map(&mut seen);
        let id = seen.id.filter(|id| !id.is_null())?.to_string();
        match seen.method {
            Some(method) => Some(Self::Request { id, method }),
            None => seen.answered.then_some(Self::Answer { id }),
        }
    }
}

#[derive(Default)]
struct PeekVisitor {
    id: Option<Json>,
    method: Option<String>,
    answered: bool,
}

impl<'de> Visitor<'de> for &mut PeekVisitor {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "id" => self.id = Some(map.next_value()?),
                "method" => self.method = Some(map.next_value()?),
                "result" | "error" => self.answered = true,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
            if self.answered || self.id.is_some() && self.method.is_some() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io;

    use super::*;

    /// Returns its bytes and fails the test if more are read.
    pub(in crate::rpc) struct ExactBytes<'a>(pub(in crate::rpc) &'a [u8]);

    impl Read for ExactBytes<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            assert!(!self.0.is_empty(), "waits for what may never come");
            self.0.read(into)
        }
    }

    #[test]
    fn a_request_is_identified_before_its_parameters() {
        let asked = |text: &str| match MessageHeader::read(ExactBytes(text.as_bytes())) {
            Some(MessageHeader::Request { id, method }) => format!("{id} {method}"),
            other => panic!("{text}: {other:?}"),
        };
        let ours = r#"{"jsonrpc":"2.0","id":7,"method":"turn/start","#;
        assert_eq!(asked(ours), "7 turn/start");
        let spaced = "\n{ \"method\" : \"a\\\"b\" ,\"x\":{\"id\":1}, \"id\" : \"q\\u0031\" }";
        assert_eq!(asked(spaced), r#""q1" a"b"#);
    }

    #[test]
    fn a_response_is_identified_before_its_result() {
        for text in [
            r#"{"id":3,"result":"#,
            r#"{"jsonrpc":"2.0","id":3,"error":"#,
        ] {
            let wanted = MessageHeader::Answer { id: "3".into() };
            assert_eq!(
                MessageHeader::read(ExactBytes(text.as_bytes())),
                Some(wanted),
                "{text}"
            );
        }
    }

    #[test]
    fn an_incomplete_heading_is_not_guessed() {
        for text in [
            "",
            "hello",
            "[1]",
            r#"{"jsonrpc":"2.0","method":"exit","params":{}}"#,
            r#"{"id":null,"method":"m"}"#,
            r#"{"id":1}"#,
            r#"{"id":1,"method":7}"#,
            r#"{"result":1,"id":1}"#,
        ] {
            assert_eq!(MessageHeader::read(text.as_bytes()), None, "{text}");
        }
    }
}
