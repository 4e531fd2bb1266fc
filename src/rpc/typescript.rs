//! The protocol as TypeScript, for the extension in `js-shim`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ts_rs::{Config, TS, TypeVisitor};

use super::method_types::{notifications, requests};
use super::protocol::PROTOCOL_VERSION;

/// Named types, each declared once.
pub(super) struct TypeScript {
    config: Config,
    declared: BTreeMap<String, String>,
}

impl TypeScript {
    /// Returns a type's name, and declares it with all types it uses.
    pub(super) fn name<T: TS + 'static + ?Sized>(&mut self) -> String {
        self.visit::<T>();
        T::name(&self.config)
    }
}

impl TypeVisitor for TypeScript {
    fn visit<T: TS + 'static + ?Sized>(&mut self) {
        // Only types with a file of their own need declaring; the rest is built in.
        if T::output_path().is_none() || self.declared.contains_key(&T::ident(&self.config)) {
            return;
        }
        let docs = T::docs().unwrap_or_default();
        let declaration = format!("{docs}export {}\n", T::decl(&self.config));
        self.declared.insert(T::ident(&self.config), declaration);
        T::visit_dependencies(self);
    }
}

/// Returns the whole file.
pub(super) fn write() -> String {
    let mut types = TypeScript {
        // Our counters stay far below 2^53.
        config: Config::new().with_large_int("number"),
        declared: BTreeMap::new(),
    };
    let mut lines = String::new();
    for entry in requests() {
        let (params, result) = (entry.typescript)(&mut types);
        let _ = writeln!(
            lines,
            "  {:?}: {{ params: {params}; result: {result} }};",
            entry.name
        );
    }
    let mut sent = String::new();
    for entry in notifications() {
        let (params, _) = (entry.typescript)(&mut types);
        let _ = writeln!(sent, "  {:?}: {params};", entry.name);
    }
    let declared: String = types.declared.into_values().collect();
    format!(
        "// Generated from src/rpc/protocol by `make schema`. Do not edit.\n\n\
         export const PROTOCOL_VERSION = {PROTOCOL_VERSION};\n\n\
         /** Requests of a host, and their results. */\n\
         export interface Methods {{\n{lines}}}\n\n\
         /** Notifications of the sidecar. */\n\
         export interface Notifications {{\n{sent}}}\n\n\
         {declared}"
    )
}
