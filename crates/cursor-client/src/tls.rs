//! Certificates trusted in addition to, or instead of, the system's store.
//!
//! A certificate in the user's files is accepted as a server certificate too, not only as an
//! issuer. This is needed because most self-signed certificates are marked as a CA, which TLS
//! libraries refuse as a server certificate. Its name, validity period and key are still checked.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme, WantsVerifier,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::headers::HttpVersion;
use super::http_clients::SetupError;

/// The TLS library's error for a CA certificate used as a server certificate.
const CA_AS_SERVER: &str = "CaUsedAsEndEntity";

/// Files with trusted certificates besides the system's store.
#[derive(Debug, Clone, Default)]
pub struct TrustRoots {
    /// `SSL_CERT_FILE`: replaces the system's store.
    pub bundle: Option<PathBuf>,
    /// `NODE_EXTRA_CA_CERTS`: added to it, so that one setting works for pi and for us.
    pub extra: Option<PathBuf>,
}

impl TrustRoots {
    /// Returns a TLS configuration that trusts the system's certificates and the user's files.
    /// Reports an invalid file here instead of at the first handshake.
    pub(super) fn config(&self, version: HttpVersion) -> Result<ClientConfig, SetupError> {
        let read = |setting, path: &Option<PathBuf>| match path {
            Some(path) => read_pem(setting, path),
            None => Ok(Vec::new()),
        };
        let bundle = read("SSL_CERT_FILE", &self.bundle)?;
        let extra = read("NODE_EXTRA_CA_CERTS", &self.extra)?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let system = system_verifier(&bundle, &extra, &provider).map_err(failed)?;
        let named = bundle.into_iter().chain(extra).collect();
        let verifier = Verifier::new(system, named, &provider);
        let mut config = builder(provider)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.alpn_protocols = match version {
            HttpVersion::Http1 => vec![b"http/1.1".to_vec()],
            HttpVersion::Http2 => vec![b"h2".to_vec()],
        };
        Ok(config)
    }
}

/// Returns a TLS configuration that accepts no server, for clients that do not use TLS.
pub(super) fn trust_nothing() -> Result<ClientConfig, SetupError> {
    Ok(builder(Arc::new(aws_lc_rs::default_provider()))?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth())
}

fn builder(
    provider: Arc<CryptoProvider>,
) -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, SetupError> {
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)
}

fn failed(error: Error) -> SetupError {
    SetupError::Tls(error.to_string())
}

/// Returns a verifier that trusts the extra certificates, and besides them the bundle if there is
/// one, else the system's store.
fn system_verifier(
    bundle: &[CertificateDer<'static>],
    extra: &[CertificateDer<'static>],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    // Elsewhere the TLS library reads the bundle itself, with `SSL_CERT_DIR`.
    let asks_the_system = cfg!(any(windows, target_vendor = "apple"));
    if asks_the_system && !bundle.is_empty() {
        let verifier = only_trusting(bundle.iter().chain(extra), provider);
        return Ok(verifier.map_err(invalid_bundle)?);
    }
    let system = rustls_platform_verifier::Verifier::new_with_extra_roots(
        extra.iter().cloned(),
        Arc::clone(provider),
    )?;
    Ok(Arc::new(system))
}

/// Fails if none of the certificates is usable.
fn only_trusting<'a>(
    roots: impl IntoIterator<Item = &'a CertificateDer<'static>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, VerifierBuilderError> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(roots.into_iter().cloned());
    WebPkiServerVerifier::builder_with_provider(store.into(), Arc::clone(provider)).build()
}

fn invalid_bundle(error: VerifierBuilderError) -> Error {
    Error::General(error.to_string())
}

fn read_pem(
    setting: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, SetupError> {
    let fail = |problem: String| SetupError::CaFile {
        setting,
        path: path.to_owned(),
        problem,
    };
    let pem = std::fs::read(path).map_err(|error| fail(error.to_string()))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.map_err(|_| fail("not PEM".into()))?;
    if certificates.is_empty() {
        return Err(fail("it contains no certificate".into()));
    }
    Ok(certificates)
}

/// Verifies with the system's verifier, and accepts servers whose own certificate is in the
/// user's files.
#[derive(Debug)]
struct Verifier {
    system: Arc<dyn ServerCertVerifier>,
    named: Vec<CertificateDer<'static>>,
    /// Trusts only the named certificates; `None` if none of them is usable.
    own: Option<Arc<WebPkiServerVerifier>>,
}

impl Verifier {
    fn new(
        system: Arc<dyn ServerCertVerifier>,
        named: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Self {
        let own = only_trusting(&named, provider).ok();
        Self { system, named, own }
    }

    /// Verifies a server whose own certificate is one of the named ones; `None` if it is not, or is
    /// invalid.
    fn verify_named(
        &self,
        server: &CertificateDer<'_>,
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Option<ServerCertVerified> {
        if !self.named.iter().any(|named| named == server) {
            return None;
        }
        match self
            .own
            .as_ref()?
            .verify_server_cert(server, &[], name, ocsp, now)
        {
            Ok(verified) => Some(verified),
            // This error comes after the validity period was checked but before the name, so check
            // the name here.
            Err(Error::InvalidCertificate(CertificateError::Other(reason)))
                if reason.0.to_string() == CA_AS_SERVER =>
            {
                let parsed = ParsedCertificate::try_from(server).ok()?;
                verify_server_name(&parsed, name).ok()?;
                Some(ServerCertVerified::assertion())
            }
            Err(_) => None,
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.system
            .verify_server_cert(server, between, name, ocsp, now)
            .or_else(|error| self.verify_named(server, name, ocsp, now).ok_or(error))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.system.verify_tls12_signature(message, server, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.system.verify_tls13_signature(message, server, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.system.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

    use super::*;

    /// A system verifier that trusts no certificate.
    #[derive(Debug)]
    struct TrustsNothing;

    impl ServerCertVerifier for TrustsNothing {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            Err(CertificateError::UnknownIssuer.into())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            unreachable!()
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            unreachable!()
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            Vec::new()
        }
    }

    fn self_signed(authority: IsCa) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.is_ca = authority;
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        certificate.der().clone()
    }

    #[test]
    fn a_named_certificate_is_accepted_for_its_name_and_validity_period() {
        let provider = Arc::new(aws_lc_rs::default_provider());
        for authority in [IsCa::Ca(BasicConstraints::Unconstrained), IsCa::NoCa] {
            let (named, other) = (self_signed(authority), self_signed(authority));
            let verifier = Verifier::new(Arc::new(TrustsNothing), vec![named.clone()], &provider);
            let verdict = |server: &CertificateDer<'_>, name: &'static str, now: UnixTime| {
                let name = ServerName::try_from(name).unwrap();
                verifier.verify_server_cert(server, &[], &name, &[], now)
            };
            let now = UnixTime::now();
            let long_ago = UnixTime::since_unix_epoch(Duration::ZERO);
            assert!(verdict(&named, "localhost", now).is_ok());
            assert!(verdict(&named, "elsewhere.example", now).is_err());
            assert!(verdict(&named, "localhost", long_ago).is_err());
            assert!(verdict(&other, "localhost", now).is_err());
        }
    }

    /// What Windows and macOS use for a bundle.
    #[test]
    fn a_bundle_replaces_the_systems_store() {
        let issuer = |name: &str| {
            let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
        };
        let (named, other) = (issuer("named"), issuer("other"));
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = only_trusting([named.der()], &provider).unwrap();
        let verdict = |issuer: &CertifiedIssuer<'_, KeyPair>| {
            let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            let server = params.signed_by(&KeyPair::generate().unwrap(), issuer);
            let name = ServerName::try_from("localhost").unwrap();
            verifier.verify_server_cert(server.unwrap().der(), &[], &name, &[], UnixTime::now())
        };
        assert!(verdict(&named).is_ok());
        assert!(verdict(&other).is_err());
    }
}
