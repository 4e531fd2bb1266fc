//! The protocol as JSON Schema.

use serde_json::{Value as Json, json};

use super::methods::table;
use super::protocol::PROTOCOL_VERSION;

/// Every method with the schemas of its parameters and result.
pub fn schema() -> Json {
    let methods: serde_json::Map<String, Json> = table()
        .into_iter()
        .map(|entry| (entry.name.to_owned(), (entry.schema)()))
        .collect();
    json!({"protocolVersion": PROTOCOL_VERSION, "methods": methods})
}

#[cfg(test)]
mod tests {
    use super::super::typescript;

    /// Rewrites or compares a file made from the types.
    fn check(path: &str, fresh: &str) {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            std::fs::write(&file, fresh).unwrap();
        }
        let current = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(current == fresh, "{path} is stale: run `make schema`");
    }

    #[test]
    fn the_checked_in_schema_is_fresh() {
        check(
            "schema/rpc/protocol.json",
            &format!("{:#}\n", super::schema()),
        );
    }

    #[test]
    fn the_checked_in_typescript_is_fresh() {
        check("js-shim/src/protocol.ts", &typescript::write());
    }
}
