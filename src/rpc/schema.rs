//! The protocol as JSON Schema.

use serde_json::{Value as Json, json};

use super::methods::{MethodSpec, host_requests, methods, notifications};
use super::protocol::PROTOCOL_VERSION;

/// Returns every method with the schemas of its parameters and result: requests of the host,
/// `notifications` to it and `requests` to it.
pub fn schema() -> Json {
    let all = |methods: Vec<MethodSpec>| -> serde_json::Map<String, Json> {
        let methods = methods.into_iter();
        methods
            .map(|method| (method.name.to_owned(), (method.schema)()))
            .collect()
    };
    let ours = methods().into_iter().map(|method| method.spec).collect();
    json!({
        "protocolVersion": PROTOCOL_VERSION,
        "methods": all(ours),
        "notifications": all(notifications()),
        "requests": all(host_requests()),
    })
}

#[cfg(test)]
mod tests {
    use super::super::typescript;

    /// Rewrites or compares a generated file.
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
