//! The content of a prompt.

use agent_client_protocol::v1::schema::{ContentBlock, EmbeddedResourceResource};

use super::AcpError;
use super::history::StoredContent;

/// Converts the blocks of a prompt. Files that the user mentions become text.
pub(super) fn convert(blocks: Vec<ContentBlock>) -> Result<Vec<StoredContent>, AcpError> {
    let invalid = |index: usize, problem: &str| {
        Err(AcpError::new(-32602, format!("prompt[{index}]: {problem}")))
    };
    let mut content = Vec::new();
    for (index, block) in blocks.into_iter().enumerate() {
        content.push(match block {
            ContentBlock::Text(text) => StoredContent::Text(text.text),
            ContentBlock::Image(image) => StoredContent::Image {
                data: image.data,
                mime_type: image.mime_type,
            },
            ContentBlock::ResourceLink(link) => {
                StoredContent::Text(format!("[@{}]({})", link.name, link.uri))
            }
            ContentBlock::Resource(resource) => match resource.resource {
                EmbeddedResourceResource::TextResourceContents(text) => StoredContent::Text(
                    format!("<context uri=\"{}\">\n{}\n</context>", text.uri, text.text),
                ),
                _ => return invalid(index, "only text can be embedded"),
            },
            _ => return invalid(index, "this kind of content is not supported"),
        });
    }
    if content.is_empty() {
        return Err(AcpError::new(-32602, "prompt: it is empty"));
    }
    Ok(content)
}
