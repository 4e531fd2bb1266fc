//! What a method's parameters and result have to be.

/// A type of a message. In tests it has a JSON Schema and a TypeScript type, from which the
/// reference and the extension's types are generated; the program contains no generators.
#[cfg(not(test))]
pub(super) trait MessageType: 'static {}

#[cfg(not(test))]
impl<T: 'static> MessageType for T {}

#[cfg(test)]
pub(super) trait MessageType: schemars::JsonSchema + ts_rs::TS + 'static {}

#[cfg(test)]
impl<T: schemars::JsonSchema + ts_rs::TS + 'static> MessageType for T {}
