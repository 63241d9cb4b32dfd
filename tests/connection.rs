//! The cluster that a command calls: by the files of KUBECONFIG, and through a proxy.

#[allow(dead_code, reason = "other tests use the rest of it")]
mod command_folder;

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use command_folder::CommandFolder;

/// A server without a listener.
const CLOSED: &str = "server: 'http://127.0.0.1:1'";

/// A folder with a kubeconfig for this cluster.
fn folder(cluster: &str) -> CommandFolder {
    let folder = CommandFolder::new("connection");
    let kubeconfig = format!(
        "clusters: [{{name: c, cluster: {{{cluster}}}}}]\ncontexts: [{{name: x, context: {{cluster: c}}}}]\n\
         current-context: x\n"
    );
    folder.write("kubeconfig", &kubeconfig);
    folder
}

/// Returns the error of a recording.
fn refusal(folder: &CommandFolder, variables: &[(&str, &str)]) -> String {
    let (code, out, err) = folder.run_with(variables, &["record", "-n", "shop"], "");
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    err
}

#[test]
fn the_proxy_of_the_environment_is_not_for_loopback() {
    let proxy = ("HTTPS_PROXY", "http://u:secret@127.0.0.1:1");
    let variables = [("KUBECONFIG", "kubeconfig"), proxy, ("NO_PROXY", "127.0.0.1")];
    let err = refusal(&folder(CLOSED), &variables);
    assert!(err.contains("cannot list events in shop") && !err.contains("secret"), "{err}");
}

#[test]
fn the_proxy_of_a_kubeconfig_is_used() {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://u:secret@{}", proxy.local_addr().unwrap());
    let folder = folder(&format!(
        "server: 'https://api.example:6443', proxy-url: '{url}', insecure-skip-tls-verify: true"
    ));
    let (asked, requests) = mpsc::channel();
    std::thread::spawn(move || {
        let mut request = String::new();
        BufReader::new(proxy.accept().unwrap().0).read_line(&mut request).unwrap();
        asked.send(request).unwrap();
    });
    let err = refusal(&folder, &[("KUBECONFIG", "kubeconfig"), ("NO_PROXY", "127.0.0.1")]);
    let request = requests.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(request, "CONNECT api.example:6443 HTTP/1.1\r\n");
    assert!(err.contains("cannot list events in shop") && !err.contains("secret"), "{err}");
}

#[test]
fn a_missing_file_of_kubeconfig_is_skipped() {
    let folder = folder(CLOSED);
    let err = refusal(&folder, &[("KUBECONFIG", "missing:kubeconfig")]);
    assert!(err.contains("cannot list events in shop"), "{err}");
    let err = refusal(&folder, &[("KUBECONFIG", "missing:absent")]);
    assert!(err.contains("no cluster configured in missing, absent; "), "{err}");
    folder.write("broken", "clusters: [");
    let err = refusal(&folder, &[("KUBECONFIG", "broken:kubeconfig")]);
    assert!(err.contains("cannot read the kubeconfig broken"), "{err}");
}
