//! Whom we trust beyond the system's store.
//!
//! A certificate that the user names is trusted itself, not only what it signed: most
//! self-signed ones call themselves an authority, and TLS libraries then refuse them as a
//! server's. Its name, its dates and its key are checked like any other's.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::headers::HttpVersion;
use super::http::SetupError;

/// What the TLS library says of a server's certificate that calls itself an authority.
const AUTHORITY_AS_SERVER: &str = "CaUsedAsEndEntity";

/// Whom we trust beyond the system's store.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// `SSL_CERT_FILE`: replaces the system's store. Read by the TLS library; checked here.
    pub bundle: Option<PathBuf>,
    /// `NODE_EXTRA_CA_CERTS`: added to it, so that one setting serves pi and us.
    pub extra: Option<PathBuf>,
}

impl Trust {
    /// Reads the two variables.
    pub fn from_env(env: impl Fn(&str) -> Option<String>) -> Self {
        let path = |name: &str| env(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        Self {
            bundle: path("SSL_CERT_FILE"),
            extra: path("NODE_EXTRA_CA_CERTS"),
        }
    }

    /// TLS that trusts what the user names; nothing if nothing is named. Says now, not at the
    /// first handshake, that a file is bad.
    pub(super) fn config(&self, version: HttpVersion) -> Result<Option<ClientConfig>, SetupError> {
        let read = |setting, path: &Option<PathBuf>| match path {
            Some(path) => read_pem(setting, path),
            None => Ok(Vec::new()),
        };
        let bundle = read("SSL_CERT_FILE", &self.bundle)?;
        let extra = read("NODE_EXTRA_CA_CERTS", &self.extra)?;
        if bundle.is_empty() && extra.is_empty() {
            return Ok(None);
        }
        let failed = |error: Error| SetupError::Tls(error.to_string());
        let provider = Arc::new(aws_lc_rs::default_provider());
        let system = rustls_platform_verifier::Verifier::new_with_extra_roots(
            extra.iter().cloned(),
            Arc::clone(&provider),
        );
        let named = bundle.into_iter().chain(extra).collect();
        let verifier = Verifier::new(system.map_err(failed)?, named, &provider);
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.alpn_protocols = match version {
            HttpVersion::Http1 => vec![b"http/1.1".to_vec()],
            HttpVersion::Http2 => vec![b"h2".to_vec()],
        };
        Ok(Some(config))
    }
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
        return Err(fail("no certificate in it".into()));
    }
    Ok(certificates)
}

/// The system's judgement, and a second look at servers whose very certificate was named.
#[derive(Debug)]
struct Verifier<System = rustls_platform_verifier::Verifier> {
    system: System,
    named: Vec<CertificateDer<'static>>,
    /// Trusts the named ones alone; none if none of them is of use.
    own: Option<Arc<WebPkiServerVerifier>>,
}

impl<System> Verifier<System> {
    fn new(
        system: System,
        named: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(named.iter().cloned());
        let own =
            WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(provider)).build();
        Self {
            system,
            named,
            own: own.ok(),
        }
    }

    /// Checks a server whose certificate was named.
    fn second_look(
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
            // Said after the dates were looked at, and before the name is.
            Err(Error::InvalidCertificate(CertificateError::Other(reason)))
                if reason.0.to_string() == AUTHORITY_AS_SERVER =>
            {
                let parsed = ParsedCertificate::try_from(server).ok()?;
                verify_server_name(&parsed, name).ok()?;
                Some(ServerCertVerified::assertion())
            }
            Err(_) => None,
        }
    }
}

impl<System: ServerCertVerifier> ServerCertVerifier for Verifier<System> {
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
            .or_else(|error| self.second_look(server, name, ocsp, now).ok_or(error))
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

    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;

    /// A system that trusts nobody.
    #[derive(Debug)]
    struct Nobody;

    impl ServerCertVerifier for Nobody {
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
    fn a_named_certificate_is_a_good_server_under_its_name_and_in_its_time() {
        let provider = Arc::new(aws_lc_rs::default_provider());
        for authority in [IsCa::Ca(BasicConstraints::Unconstrained), IsCa::NoCa] {
            let (named, other) = (self_signed(authority), self_signed(authority));
            let verifier = Verifier::new(Nobody, vec![named.clone()], &provider);
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
}
