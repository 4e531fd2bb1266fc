//! `AvailableModels`: the account's model list, decoded leniently.
//!
//! Its schema is known from other clients only, so one malformed name or one field of a new type
//! must not hide every model: invalid UTF-8 in names is replaced, models without a name are
//! omitted, and fields of an unexpected type are ignored.

use bytes::Bytes;

use super::raw_fields::{FieldError, Value, fields};

/// One model of the list.
#[derive(Debug, Clone, PartialEq, Default)]
#[allow(missing_docs)]
pub struct AvailableModel {
    pub name: String,
    pub default_on: Option<bool>,
    pub supports_agent: Option<bool>,
    pub supports_thinking: Option<bool>,
    pub supports_images: Option<bool>,
    pub supports_max_mode: Option<bool>,
    pub supports_non_max_mode: Option<bool>,
    pub context_token_limit: Option<u32>,
    pub context_token_limit_for_max_mode: Option<u32>,
    pub client_display_name: Option<String>,
    pub server_model_name: Option<String>,
    pub is_hidden: Option<bool>,
    pub id_aliases: Vec<String>,
    /// The parameters that can be chosen: their ids and values.
    pub parameters: Vec<(String, Vec<String>)>,
    pub variants: Vec<Variant>,
}

/// One predefined combination of parameters.
#[derive(Debug, Clone, PartialEq, Default)]
#[allow(missing_docs)]
pub struct Variant {
    pub parameters: Vec<(String, String)>,
    pub display_name: Option<String>,
    pub is_max_mode: bool,
    pub is_default_max_config: Option<bool>,
    pub is_default_non_max_config: Option<bool>,
    pub display_name_outside_picker: Option<String>,
    pub variant_string_representation: Option<String>,
}

/// Decodes an `AvailableModelsResponse`.
pub fn decode(response: Bytes) -> Result<Vec<AvailableModel>, FieldError> {
    let mut models = Vec::new();
    for field in fields(response) {
        let field = field?;
        if let (2, Value::Bytes(inner)) = (field.number, field.value) {
            let model = model(inner)?;
            if !model.name.is_empty() {
                models.push(model);
            }
        }
    }
    Ok(models)
}

fn model(message: Bytes) -> Result<AvailableModel, FieldError> {
    let mut model = AvailableModel::default();
    for field in fields(message) {
        let field = field?;
        let value = field.value;
        match field.number {
            1 => put(&mut model.name, value.text()),
            2 => keep(&mut model.default_on, value.flag()),
            5 => keep(&mut model.supports_agent, value.flag()),
            9 => keep(&mut model.supports_thinking, value.flag()),
            10 => keep(&mut model.supports_images, value.flag()),
            14 => keep(&mut model.supports_max_mode, value.flag()),
            15 => keep(&mut model.context_token_limit, limit(&value)),
            16 => keep(&mut model.context_token_limit_for_max_mode, limit(&value)),
            17 => keep(&mut model.client_display_name, value.text()),
            18 => keep(&mut model.server_model_name, value.text()),
            19 => keep(&mut model.supports_non_max_mode, value.flag()),
            29 => {
                // This field is newer than the others, so an unreadable one is ignored.
                if let Value::Bytes(inner) = value {
                    model.parameters.extend(definition(inner));
                }
            }
            30 => {
                if let Value::Bytes(inner) = value {
                    model.variants.push(variant(inner)?);
                }
            }
            35 => keep(&mut model.is_hidden, value.flag()),
            37 => model.id_aliases.extend(value.text()),
            _ => {}
        }
    }
    Ok(model)
}

fn variant(message: Bytes) -> Result<Variant, FieldError> {
    let mut variant = Variant::default();
    for field in fields(message) {
        let field = field?;
        let value = field.value;
        match field.number {
            1 => {
                if let Value::Bytes(inner) = value {
                    variant.parameters.push(parameter(inner)?);
                }
            }
            2 => keep(&mut variant.display_name, value.text()),
            3 => put(&mut variant.is_max_mode, value.flag()),
            4 => keep(&mut variant.is_default_max_config, value.flag()),
            5 => keep(&mut variant.is_default_non_max_config, value.flag()),
            8 => keep(&mut variant.display_name_outside_picker, value.text()),
            9 => keep(&mut variant.variant_string_representation, value.text()),
            _ => {}
        }
    }
    Ok(variant)
}

fn definition(message: Bytes) -> Result<(String, Vec<String>), FieldError> {
    let (mut id, mut values) = (String::new(), Vec::new());
    for field in fields(message) {
        let field = field?;
        match field.number {
            1 => put(&mut id, field.value.text()),
            2 => values.extend(field.value.text()),
            _ => {}
        }
    }
    Ok((id, values))
}

fn parameter(message: Bytes) -> Result<(String, String), FieldError> {
    let (mut id, mut value) = (String::new(), String::new());
    for field in fields(message) {
        let field = field?;
        match field.number {
            1 => put(&mut id, field.value.text()),
            2 => put(&mut value, field.value.text()),
            _ => {}
        }
    }
    Ok((id, value))
}

fn limit(value: &Value) -> Option<u32> {
    value.number().and_then(|number| u32::try_from(number).ok())
}

/// Replaces the target unless the value could not be read: as in protobuf, the last value of a
/// field applies.
fn put<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

/// Like [`put`], for an optional target.
fn keep<T>(target: &mut Option<T>, value: Option<T>) {
    *target = value.or(target.take());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_an_unexpected_type_is_ignored() {
        // Name, images and limit, each followed by the same field with a wrong type.
        let model = b"\x0a\x01x\x08\x05\x50\x01\x52\x01y\x78\x07\x7a\x01z";
        let response = [&[0x12, model.len() as u8][..], model, b"\x10\x03"].concat();
        let models = decode(response.into()).unwrap();
        assert_eq!(models.len(), 1);
        assert_eq!(models[0].name, "x");
        assert_eq!(models[0].supports_images, Some(true));
        assert_eq!(models[0].context_token_limit, Some(7));
    }
}
