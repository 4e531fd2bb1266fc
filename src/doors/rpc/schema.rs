//! The protocol as JSON Schema.

use serde_json::{Value as Json, json};

use super::methods::table;
use super::protocol::PROTOCOL_VERSION;

/// Every method with the schemas of its parameters and result.
pub fn schema() -> Json {
    let methods: serde_json::Map<String, Json> = table()
        .into_iter()
        .map(|entry| {
            let shapes = json!({"params": entry.params, "result": entry.result});
            (entry.name.to_owned(), shapes)
        })
        .collect();
    json!({"protocolVersion": PROTOCOL_VERSION, "methods": methods})
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_checked_in_schema_is_fresh() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/rpc/protocol.json");
        let text = format!("{:#}\n", super::schema());
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let current = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            current == text,
            "schema/rpc/protocol.json is stale: run `make schema`"
        );
    }
}
