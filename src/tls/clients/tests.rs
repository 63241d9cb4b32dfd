use super::testing::{Shown, Signer, Written};
use super::*;

fn authorities(file: &Written, subjects: &[&str]) -> ClientAuthorities {
    let subjects = subjects.iter().map(|name| (*name).to_owned()).collect();
    ClientAuthorities::load(file.0.clone(), subjects).unwrap()
}

fn takes(authorities: &ClientAuthorities, (chain, _): &Shown) -> bool {
    authorities.verify_client_cert(&chain[0], &chain[1..], UnixTime::now()).is_ok()
}

#[test]
fn a_caller_needs_the_authority_and_one_of_the_names() {
    let (own, other) = (Signer::new(), Signer::new());
    let file = Written::new(&own.pem);
    let any = authorities(&file, &[]);
    assert!(takes(&any, &own.sign("kube-apiserver", None)));
    assert!(!takes(&any, &other.sign("kube-apiserver", None)));

    let named = authorities(&file, &["kube-apiserver", "spiffe://cluster/apiserver"]);
    assert!(takes(&named, &own.sign("kube-apiserver", None)));
    assert!(takes(&named, &own.sign("", Some("spiffe://cluster/apiserver"))));
    assert!(!takes(&named, &own.sign("kube-apiserver2", Some("spiffe://cluster/other"))));
    assert!(!takes(&named, &other.sign("kube-apiserver", None)));
}

#[test]
fn a_file_that_changes_is_read_again_and_a_bad_one_changes_nothing() {
    let (first, second) = (Signer::new(), Signer::new());
    let file = Written::new(&first.pem);
    let authorities = authorities(&file, &[]);
    let (of_first, of_second) = (first.sign("a", None), second.sign("a", None));
    assert!(takes(&authorities, &of_first) && !takes(&authorities, &of_second));
    file.swap("no certificate");
    assert!(takes(&authorities, &of_first));
    file.swap(&format!("{}{}", first.pem, second.pem));
    assert!(takes(&authorities, &of_first) && takes(&authorities, &of_second));
    file.swap(&second.pem);
    assert!(!takes(&authorities, &of_first) && takes(&authorities, &of_second));
    std::fs::remove_file(&file.0).unwrap();
    assert!(takes(&authorities, &of_second));
}

#[test]
fn what_cannot_be_used_is_told() {
    let none = Written::new("nothing");
    let refused = |file: PathBuf| ClientAuthorities::load(file, Vec::new()).unwrap_err();
    assert!(matches!(refused(none.0.clone()), BadAuthorities::Tls(_)));
    assert!(matches!(refused("/nonexistent".into()), BadAuthorities::Read(_)));
}
