//! A temporary certificate authority and a server certificate for loopback names.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::SimError;

/// Names and addresses the certificate is valid for.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The server's TLS configuration and the authority clients must trust.
pub(super) struct Certificate {
    /// The server's configuration, with ALPN for h2 and HTTP/1.1.
    pub(super) config: Arc<ServerConfig>,
    /// The authority, as PEM.
    pub(super) ca_pem: String,
}

/// Generates an authority and a certificate signed by it.
pub(super) fn generate() -> Result<Certificate, SimError> {
    let tls = |error: &dyn std::fmt::Display| SimError::Tls(error.to_string());

    let ca_key = KeyPair::generate().map_err(|error| tls(&error))?;
    let mut ca_params = CertificateParams::default();
    ca_params
        .distinguished_name
        .push(DnType::CommonName, "cursor-sidecar simulator CA");
    ca_params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca_params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let ca = ca_params
        .self_signed(&ca_key)
        .map_err(|error| tls(&error))?;
    let issuer = Issuer::new(ca_params, ca_key);

    let key = KeyPair::generate().map_err(|error| tls(&error))?;
    let mut params =
        CertificateParams::new(NAMES.map(String::from)).map_err(|error| tls(&error))?;
    params
        .distinguished_name
        .push(DnType::CommonName, "cursor-sidecar simulator");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params
        .signed_by(&key, &issuer)
        .map_err(|error| tls(&error))?;

    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| tls(&error))?
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .map_err(|error| tls(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Certificate {
        config: Arc::new(config),
        ca_pem: ca.pem(),
    })
}
