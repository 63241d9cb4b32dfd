use super::testing::{ClientCertificate, Signer, TempFile};
use super::*;

fn authorities(file: &TempFile, subjects: &[&str]) -> ClientAuthorities {
    let subjects = subjects.iter().map(|name| (*name).to_owned()).collect();
    ClientAuthorities::load(file.0.clone(), subjects).unwrap()
}

fn accepts(authorities: &ClientAuthorities, (chain, _): &ClientCertificate) -> bool {
    authorities.verify_client_cert(&chain[0], &chain[1..], UnixTime::now()).is_ok()
}

#[test]
fn a_client_needs_a_certificate_of_the_authority_and_an_accepted_subject() {
    let (own, other) = (Signer::new(), Signer::new());
    let file = TempFile::new(&own.pem);
    let any = authorities(&file, &[]);
    assert!(accepts(&any, &own.sign("kube-apiserver", None)));
    assert!(!accepts(&any, &other.sign("kube-apiserver", None)));

    let named = authorities(&file, &["kube-apiserver", "spiffe://cluster/apiserver"]);
    assert!(accepts(&named, &own.sign("kube-apiserver", None)));
    assert!(accepts(&named, &own.sign("", Some("spiffe://cluster/apiserver"))));
    assert!(!accepts(&named, &own.sign("kube-apiserver2", Some("spiffe://cluster/other"))));
    assert!(!accepts(&named, &other.sign("kube-apiserver", None)));
}

#[test]
fn a_changed_file_is_loaded_and_an_invalid_one_is_ignored() {
    let (first, second) = (Signer::new(), Signer::new());
    let file = TempFile::new(&first.pem);
    let authorities = authorities(&file, &[]);
    let (of_first, of_second) = (first.sign("a", None), second.sign("a", None));
    assert!(accepts(&authorities, &of_first) && !accepts(&authorities, &of_second));
    file.swap("no certificate");
    assert!(accepts(&authorities, &of_first));
    file.swap(&format!("{}{}", first.pem, second.pem));
    assert!(accepts(&authorities, &of_first) && accepts(&authorities, &of_second));
    file.swap(&second.pem);
    assert!(!accepts(&authorities, &of_first) && accepts(&authorities, &of_second));
    std::fs::remove_file(&file.0).unwrap();
    assert!(accepts(&authorities, &of_second));
}

#[test]
fn an_unusable_file_is_an_error() {
    let none = TempFile::new("nothing");
    let refused = |file: PathBuf| ClientAuthorities::load(file, Vec::new()).unwrap_err();
    assert!(matches!(refused(none.0.clone()), ClientAuthoritiesError::Tls(_)));
    assert!(matches!(refused("/nonexistent".into()), ClientAuthoritiesError::Read(_)));
}
