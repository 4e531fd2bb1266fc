//! `google.protobuf.Value` ↔ JSON.
//!
//! Written by hand because key order matters to tool schemas (a generated map loses it)
//! and because arguments that do not decode must still reach the tool as text.

use bytes::Bytes;
use serde_json::{Map, Number, Value as Json};

use super::raw_fields::{FieldError, Value as Raw, fields, put_bytes, put_varint};

const NULL: u32 = 1;
const NUMBER: u32 = 2;
const STRING: u32 = 3;
const BOOL: u32 = 4;
const STRUCT: u32 = 5;
const LIST: u32 = 6;

/// Values nested deeper than this are refused, because they could exhaust the stack.
const MAX_DEPTH: usize = 100;

/// Why a value cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Not a protobuf message.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A field with the wrong wire type.
    #[error("protobuf value with a field of the wrong type")]
    Shape,
    /// Nested too deeply.
    #[error("value is nested over {MAX_DEPTH} levels deep")]
    TooDeep,
}

/// Encodes JSON as a `google.protobuf.Value`, keys in their order.
pub fn encode(json: &Json) -> Bytes {
    let mut out = Vec::new();
    put_value(&mut out, json);
    out.into()
}

/// Encodes a JSON object as a `google.protobuf.Struct`.
pub fn encode_struct(object: &Map<String, Json>) -> Bytes {
    let mut out = Vec::new();
    put_struct(&mut out, object);
    out.into()
}

fn put_value(out: &mut Vec<u8>, json: &Json) {
    match json {
        Json::Null => {
            put_varint(out, u64::from(NULL) << 3);
            out.push(0);
        }
        Json::Number(number) => {
            put_varint(out, u64::from(NUMBER) << 3 | 1);
            // Never NaN: without arbitrary precision every JSON number converts to f64.
            out.extend_from_slice(&number.as_f64().unwrap_or(f64::NAN).to_le_bytes());
        }
        Json::String(text) => put_bytes(out, STRING, text.as_bytes()),
        Json::Bool(flag) => {
            put_varint(out, u64::from(BOOL) << 3);
            out.push(u8::from(*flag));
        }
        Json::Object(object) => {
            let mut inner = Vec::new();
            put_struct(&mut inner, object);
            put_bytes(out, STRUCT, &inner);
        }
        Json::Array(items) => {
            let mut inner = Vec::new();
            for item in items {
                let mut value = Vec::new();
                put_value(&mut value, item);
                put_bytes(&mut inner, 1, &value);
            }
            put_bytes(out, LIST, &inner);
        }
    }
}

fn put_struct(out: &mut Vec<u8>, object: &Map<String, Json>) {
    for (key, item) in object {
        let mut entry = Vec::new();
        put_bytes(&mut entry, 1, key.as_bytes());
        let mut value = Vec::new();
        put_value(&mut value, item);
        put_bytes(&mut entry, 2, &value);
        put_bytes(out, 1, &entry);
    }
}

/// Decodes a `google.protobuf.Value`.
pub fn decode(bytes: &Bytes) -> Result<Json, ValueError> {
    get_value(bytes, 0)
}

/// Decodes a `google.protobuf.Value`; bytes that are not a value, or that contain none of its
/// fields, become text.
pub fn decode_or_text(bytes: &Bytes) -> Json {
    let holds_one = fields(bytes.clone())
        .any(|field| field.is_ok_and(|field| (NULL..=LIST).contains(&field.number)));
    match decode(bytes) {
        Ok(json) if holds_one => json,
        _ => Json::String(String::from_utf8_lossy(bytes).into_owned()),
    }
}

/// Decodes a `google.protobuf.Struct`.
pub fn decode_struct(bytes: &Bytes) -> Result<Map<String, Json>, ValueError> {
    get_struct(bytes, 0)
}

fn get_value(bytes: &Bytes, depth: usize) -> Result<Json, ValueError> {
    if depth > MAX_DEPTH {
        return Err(ValueError::TooDeep);
    }
    let mut json = Json::Null;
    for field in fields(bytes.clone()) {
        let field = field?;
        json = match (field.number, field.value) {
            (NULL, Raw::Varint(_)) => Json::Null,
            (NUMBER, Raw::Fixed64(bits)) => number(f64::from_bits(bits)),
            (STRING, Raw::Bytes(text)) => Json::String(String::from_utf8_lossy(&text).into_owned()),
            (BOOL, Raw::Varint(flag)) => Json::Bool(flag != 0),
            (STRUCT, Raw::Bytes(inner)) => Json::Object(get_struct(&inner, depth + 1)?),
            (LIST, Raw::Bytes(inner)) => Json::Array(get_list(&inner, depth + 1)?),
            (NULL..=LIST, _) => return Err(ValueError::Shape),
            _ => json,
        };
    }
    Ok(json)
}

fn get_struct(bytes: &Bytes, depth: usize) -> Result<Map<String, Json>, ValueError> {
    let mut object = Map::new();
    for entry in fields(bytes.clone()) {
        let entry = entry?;
        if entry.number != 1 {
            continue;
        }
        let mut key = String::new();
        let mut item = Json::Null;
        for field in fields(entry.value.bytes().ok_or(ValueError::Shape)?.clone()) {
            let field = field?;
            match field.number {
                1 => key = field.value.text().ok_or(ValueError::Shape)?,
                2 => item = get_value(field.value.bytes().ok_or(ValueError::Shape)?, depth)?,
                _ => {}
            }
        }
        object.insert(key, item);
    }
    Ok(object)
}

fn get_list(bytes: &Bytes, depth: usize) -> Result<Vec<Json>, ValueError> {
    let mut items = Vec::new();
    for field in fields(bytes.clone()) {
        let field = field?;
        if field.number == 1 {
            items.push(get_value(
                field.value.bytes().ok_or(ValueError::Shape)?,
                depth,
            )?);
        }
    }
    Ok(items)
}

/// Returns whole numbers as JSON integers, because tools expect `7`, not `7.0`.
fn number(value: f64) -> Json {
    const MOST: f64 = 9_223_372_036_854_775_808.0;
    if value.fract() == 0.0 && value.abs() < MOST && !(value == 0.0 && value.is_sign_negative()) {
        return Json::Number(Number::from(value as i64));
    }
    Number::from_f64(value).map_or(Json::Null, Json::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn key_order_is_kept() {
        let schema = json!({"type": "object", "properties": {"z": {}, "a": {"b": [null, true]}}});
        let back = decode(&encode(&schema)).unwrap();
        assert_eq!(back.to_string(), schema.to_string());
    }

    #[test]
    fn whole_numbers_stay_whole() {
        for number in [json!(7), json!(-3), json!(1_000_000_000_000_000_000_i64)] {
            assert_eq!(decode(&encode(&number)).unwrap(), number);
        }
        assert_eq!(decode(&encode(&json!(1e21))).unwrap(), json!(1e21));
    }

    #[test]
    fn bytes_without_a_value_are_text() {
        let text = |bytes: &'static [u8]| decode_or_text(&Bytes::from_static(bytes));
        assert_eq!(text(b""), json!(""));
        assert_eq!(text(b"x\x01"), json!("x\u{1}"), "only an unknown field");
        assert_eq!(text(b"hello"), json!("hello"));
        assert_eq!(text(b"\x08\0"), Json::Null);
    }

    #[test]
    fn depth_is_bounded() {
        let mut deep = json!(1);
        for _ in 0..200 {
            deep = json!([deep]);
        }
        assert_eq!(decode(&encode(&deep)), Err(ValueError::TooDeep));
    }

    fn any_json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            any::<i32>().prop_map(Json::from),
            (-1e9..1e9_f64).prop_map(Json::from),
            ".*".prop_map(Json::from),
        ];
        leaf.prop_recursive(4, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Json::from),
                prop::collection::vec((".*", inner), 0..8)
                    .prop_map(|pairs| Json::Object(pairs.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn encoding_and_decoding_returns_the_same_value(json in any_json()) {
            let back = decode(&encode(&json)).unwrap();
            // 1.0 and 1 are the same protobuf number.
            let same = |a: &Json, b: &Json| a.to_string().replace(".0", "") == b.to_string().replace(".0", "");
            prop_assert!(same(&back, &json), "{back} != {json}");
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            decode_or_text(&Bytes::from(bytes));
        }
    }
}
