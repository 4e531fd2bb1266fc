//! Results of the host's tools, converted for Cursor and MCP clients.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use serde_json::{Value as Json, json};

use cursor_proto::agent::v1::{McpImageContent, McpTextContent, mcp_tool_result_content_item};

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// One content block of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Plain text.
    Text(String),
    /// An image.
    Image {
        /// Its bytes in base64, exactly as the tool returned them.
        data: String,
        /// Its MIME type.
        mime_type: String,
    },
}

impl Content {
    /// Parses a result's `content`. Text blocks, bare strings and images are kept; anything else
    /// becomes its JSON as text; an empty list becomes one empty text.
    pub fn read(content: &Json) -> Vec<Self> {
        let Json::Array(blocks) = content else {
            return vec![match content {
                Json::String(text) => Self::Text(text.clone()),
                other => Self::Text(other.to_string()),
            }];
        };
        if blocks.is_empty() {
            return vec![Self::Text(String::new())];
        }
        blocks.iter().map(Self::read_block).collect()
    }

    /// Parses one block.
    pub fn read_block(block: &Json) -> Self {
        if let Json::String(text) = block {
            return Self::Text(text.clone());
        }
        let field = |name: &str| block[name].as_str();
        match (
            field("type"),
            field("text"),
            field("data"),
            field("mimeType"),
        ) {
            (Some("text"), Some(text), ..) => Self::Text(text.into()),
            (Some("image"), _, Some(data), Some(mime_type)) => Self::Image {
                data: data.into(),
                mime_type: mime_type.into(),
            },
            _ => Self::Text(block.to_string()),
        }
    }

    /// Returns this as an MCP content block.
    pub fn json(&self) -> Json {
        match self {
            Self::Text(text) => json!({"type": "text", "text": text}),
            Self::Image { data, mime_type } => {
                json!({"type": "image", "data": data, "mimeType": mime_type})
            }
        }
    }

    pub(super) fn proto(self) -> mcp_tool_result_content_item::Content {
        use mcp_tool_result_content_item::Content as Item;
        match self {
            Self::Text(text) => Item::Text(McpTextContent {
                text,
                ..McpTextContent::default()
            }),
            Self::Image {
                ref data,
                ref mime_type,
            } => match bytes(data) {
                Some(data) => Item::Image(McpImageContent {
                    data,
                    mime_type: mime_type.clone(),
                }),
                // Not a valid image: send the block as text so that the model can see what is
                // wrong.
                None => Self::Text(self.json().to_string()).proto(),
            },
        }
    }
}

/// Decodes base64 image data. Missing padding and line breaks are accepted because tools produce
/// them.
pub fn bytes(data: &str) -> Option<Bytes> {
    let compact: String = data.split_ascii_whitespace().collect();
    LENIENT.decode(compact).ok().map(Bytes::from)
}

/// Returns arguments a host can accept: the object itself, or an empty one for anything else.
pub fn arguments(arguments: Json) -> Json {
    match arguments {
        Json::Object(_) => arguments,
        _ => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_passed_on_unchanged() {
        let content = json!([{"type": "image", "data": "QUI", "mimeType": "image/png"}]);
        let [picture] = &Content::read(&content)[..] else {
            panic!("one picture")
        };
        assert_eq!(picture.json(), content[0]);
        let mcp_tool_result_content_item::Content::Image(sent) = picture.clone().proto() else {
            panic!("{picture:?}")
        };
        assert_eq!(sent.data, "AB");
        let no_picture = json!([{"type": "image", "data": "?!", "mimeType": "image/png"}]);
        let sent = Content::read(&no_picture)[0].clone().proto();
        assert!(matches!(
            sent,
            mcp_tool_result_content_item::Content::Text(_)
        ));
    }

    #[test]
    fn bare_text_in_a_list_stays_text() {
        let read = Content::read(&json!(["a", 1, null]));
        let texts = ["a", "1", "null"].map(|text| Content::Text(text.into()));
        assert_eq!(read, texts);
    }
}
