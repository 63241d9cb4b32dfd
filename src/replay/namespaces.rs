//! The namespaces of a replay with their labels, from the output of `kubectl get namespaces -o json`.

use serde_json::Value;

use super::policies::{BadPolicy, PolicyFile, documents};
use crate::policy::{Labels, Namespaces};

/// Reads the namespaces of a file. Other objects are skipped.
pub(super) fn namespaces(file: &PolicyFile) -> Result<Namespaces, BadPolicy> {
    let mut namespaces = Namespaces::new();
    for (_, value) in documents(file)? {
        let Some(name) = value["metadata"]["name"].as_str().filter(|_| value["kind"] == "Namespace") else {
            continue;
        };
        namespaces.insert(name.into(), labels(&value["metadata"]["labels"]));
    }
    if namespaces.is_empty() {
        let reason = "the file contains no Namespace; provide the output of `kubectl get namespaces -o json`"
            .to_owned();
        return Err(BadPolicy { file: file.name.clone(), place: String::new(), reason });
    }
    Ok(namespaces)
}

fn labels(labels: &Value) -> Labels {
    let labels = labels.as_object().into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Namespaces, String> {
        let file = PolicyFile { name: "namespaces.json".to_owned(), text: text.to_owned() };
        namespaces(&file).map_err(|bad| bad.to_string())
    }

    #[test]
    fn the_labels_of_a_list_are_read() {
        let read = read(
            r#"{"kind": "List", "apiVersion": "v1", "items": [
                {"kind": "Namespace", "metadata": {"name": "ci", "labels": {"team": "shop"}}},
                {"kind": "Namespace", "metadata": {"name": "bare"}},
                {"kind": "Pod", "metadata": {"name": "p", "labels": {"team": "bank"}}}
            ]}"#,
        );
        let expected =
            [("bare", Labels::new()), ("ci", Labels::from([("team".to_owned(), "shop".to_owned())]))];
        assert_eq!(read.unwrap(), Namespaces::from(expected.map(|(name, labels)| (name.into(), labels))));
    }

    #[test]
    fn a_file_without_namespaces_is_an_error() {
        for text in ["kind: Pod\nmetadata: {name: p}", "{}", ""] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with("namespaces.json: the file contains no Namespace"), "{error}");
        }
        assert!(read("a: [").unwrap_err().starts_with("namespaces.json, line "));
    }
}
