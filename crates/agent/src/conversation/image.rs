//! Images of the user's latest turn: found, validated, decoded.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;

use super::flat_message::ImageHandling;
use crate::message::{Content, Message};

/// The limits of Cursor's own clients, for one image and for all images of a message.
const LARGEST: usize = 5 * 1024 * 1024;
const MOST: usize = 20 * 1024 * 1024;

/// Sent to the model where an image of an earlier message is missing.
pub const NOTE: &str = "ImageHandling are sent only with the message they were attached to. Where \
the conversation says [image omitted from transcript], the picture itself is not available: if it \
matters, ask the user to attach it again or to describe it.";

/// An image, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedImage {
    /// Its bytes.
    pub data: Bytes,
    /// Its type, detected from its bytes and not taken from the host.
    pub mime_type: &'static str,
}

/// Why an image cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The image is too large.
    #[error(
        "image {number} of the message has {size}; Cursor takes at most 5 MiB an image: make it smaller"
    )]
    TooLarge {
        /// Its number in the message, from 1.
        number: usize,
        /// Its size.
        size: String,
    },
    /// The images are too large together.
    #[error(
        "the images of the message have {size} together; at most 20 MiB can be sent: attach fewer"
    )]
    TooMany {
        /// Their total size.
        size: String,
    },
    /// Not one of the types that Cursor reads.
    #[error(
        "image {number} of the message is {found}; Cursor takes PNG, JPEG, GIF and WebP: convert it"
    )]
    Unsupported {
        /// Its number in the message, from 1.
        number: usize,
        /// Its actual type.
        found: String,
    },
    /// The data is not base64.
    #[error("image {number} of the message is damaged: its data is not base64")]
    Damaged {
        /// Its number in the message, from 1.
        number: usize,
    },
}

/// Returns the range of the user's latest turn: the last user message and those before it since
/// the model's last answer. What other programs add to it, such as pi's extensions, are user
/// messages too.
fn latest_turn(messages: &[Message]) -> std::ops::Range<usize> {
    let end = messages.iter().rposition(Message::is_user);
    let end = end.map_or(0, |at| at + 1);
    let answer = messages[..end].iter().rposition(Message::is_answer);
    answer.map_or(0, |at| at + 1)..end
}

/// Returns the images of the user's latest turn.
pub fn latest(messages: &[Message]) -> Result<Vec<DecodedImage>, ImageError> {
    let turn = messages[latest_turn(messages)].iter();
    of_all(turn.filter(|message| message.is_user()))
}

/// Returns how many images the user's latest turn has.
pub fn count_latest(messages: &[Message]) -> usize {
    let turn = messages[latest_turn(messages)].iter();
    let users = turn.filter(|message| message.is_user());
    users.flat_map(image_data).count()
}

/// Returns the valid images of these messages in order, as many as fit, and for each message
/// whether all of its images are included.
pub fn decode_fitting<'a>(
    messages: impl Iterator<Item = &'a Message>,
) -> (Vec<DecodedImage>, Vec<ImageHandling>) {
    let (mut all, mut room) = (Vec::new(), MOST);
    let sent = messages.map(|message| {
        let decoded = of_all(std::iter::once(message)).unwrap_or_default();
        let size: usize = decoded.iter().map(|image| image.data.len()).sum();
        if decoded.is_empty() || size > room {
            return ImageHandling::Omitted;
        }
        room -= size;
        all.extend(decoded);
        ImageHandling::Attached
    });
    let sent = sent.collect();
    (all, sent)
}

/// Returns the images of messages that are sent as one.
fn of_all<'a>(
    messages: impl Iterator<Item = &'a Message>,
) -> Result<Vec<DecodedImage>, ImageError> {
    decode(messages.flat_map(image_data))
}

/// Decodes images that are sent with one message, each in base64.
pub fn decode<'a>(images: impl Iterator<Item = &'a str>) -> Result<Vec<DecodedImage>, ImageError> {
    let mut decoded = Vec::new();
    for (number, text) in (1..).zip(images) {
        // Base64 is a third longer than its content, so this is too large without decoding it.
        if text.len() / 4 * 3 > LARGEST + 3 {
            return Err(ImageError::TooLarge {
                number,
                size: size(text.len() / 4 * 3),
            });
        }
        let data = BASE64
            .decode(text.trim())
            .map_err(|_| ImageError::Damaged { number })?;
        if data.len() > LARGEST {
            return Err(ImageError::TooLarge {
                number,
                size: size(data.len()),
            });
        }
        let kind = infer::get(&data).map(|kind| kind.mime_type());
        let mime_type = match kind {
            Some(known @ ("image/png" | "image/jpeg" | "image/gif" | "image/webp")) => known,
            other => {
                let found = other.map_or("of an unknown type".into(), str::to_owned);
                return Err(ImageError::Unsupported { number, found });
            }
        };
        decoded.push(DecodedImage {
            data: data.into(),
            mime_type,
        });
    }
    let all: usize = decoded.iter().map(|image| image.data.len()).sum();
    if all > MOST {
        return Err(ImageError::TooMany { size: size(all) });
    }
    Ok(decoded)
}

/// Returns whether the latest turn, or the history before it, has an image that is not sent.
pub fn has_unsent(messages: &[Message]) -> bool {
    let turn = latest_turn(messages);
    let until = if turn.is_empty() {
        messages.len()
    } else {
        turn.end
    };
    let sent = |at: usize, message: &Message| turn.contains(&at) && message.is_user();
    let mut messages = messages[..until].iter().enumerate();
    messages.any(|(at, message)| !sent(at, message) && message.has_images())
}

/// Returns the images of a message, in base64.
fn image_data(message: &Message) -> impl Iterator<Item = &str> {
    message.content().iter().filter_map(|part| match part {
        Content::Image { data, .. } => Some(data.as_str()),
        Content::Text(_) => None,
    })
}

fn size(bytes: usize) -> String {
    format!("{:.1} MiB", bytes as f64 / (1024.0 * 1024.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::MessageKind;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

    fn image(data: String) -> Content {
        Content::Image {
            data,
            mime_type: "image/jpeg".into(),
        }
    }

    fn user(images: &[&[u8]]) -> Message {
        let images = images.iter().map(|data| image(BASE64.encode(data)));
        Message::new(MessageKind::User(images.collect()))
    }

    #[test]
    fn only_images_of_the_latest_turn_are_sent_and_types_are_detected() {
        let answer = || Message::answer(Vec::new());
        let messages = [user(&[PNG, PNG]), answer(), user(&[PNG]), answer()];
        let found = latest(&messages).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].mime_type, &found[0].data[..]), ("image/png", PNG));
        assert!(has_unsent(&messages) && !has_unsent(&messages[..1]));
        let after = [user(&[PNG]), answer(), Message::user("and?")];
        assert_eq!(latest(&after), Ok(Vec::new()));
        assert!(has_unsent(&after));
        // Another program adds a message after the user's.
        let added = [user(&[PNG]), Message::user("by the way")];
        assert_eq!(latest(&added).map(|found| found.len()), Ok(1));
        assert!(!has_unsent(&added));
        assert_eq!(latest(&[]), Ok(Vec::new()));
    }

    #[test]
    fn errors_name_the_image_and_the_reason() {
        let mut large = PNG.to_vec();
        large.resize(LARGEST + 1, 0);
        let mut fits = PNG.to_vec();
        fits.resize(LARGEST, 0);
        let error = |images: &[&[u8]]| latest(&[user(images)]).unwrap_err().to_string();
        insta::assert_snapshot!(error(&[PNG, &large]), @"image 2 of the message has 5.0 MiB; Cursor takes at most 5 MiB an image: make it smaller");
        insta::assert_snapshot!(error(&[&fits, &fits, &fits, &fits, PNG]), @"the images of the message have 20.0 MiB together; at most 20 MiB can be sent: attach fewer");
        insta::assert_snapshot!(error(&[b"%PDF-1.7"]), @"image 1 of the message is application/pdf; Cursor takes PNG, JPEG, GIF and WebP: convert it");
        insta::assert_snapshot!(error(&[b"<svg/>"]), @"image 1 of the message is of an unknown type; Cursor takes PNG, JPEG, GIF and WebP: convert it");
        let damaged = Message::new(MessageKind::User(vec![image("!!".into())]));
        insta::assert_snapshot!(latest(&[damaged]).unwrap_err(), @"image 1 of the message is damaged: its data is not base64");
    }
}
