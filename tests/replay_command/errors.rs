//! What cannot be read is reported with its place and a remedy.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::*;

#[test]
fn an_unreadable_entry_is_reported_with_its_place_and_a_remedy() {
    let folder = Folder::new();
    let good = line(1.0, "CREATE", &event("a", 1), None);
    let with = |text: &str| folder.refusal(&(good.clone() + text));
    for (second, expected) in [
        (
            "{\"at\": 2, \"operation\": \"CREATE\", \"object\": {]}",
            ", line 2, column 45: key must be a string",
        ),
        ("{\"at\": 2", ", line 2, column 8: EOF while parsing an object; repair it, or skip such"),
        ("{\"operation\": \"CREATE\", \"object\": {}}", ", line 2, column 37: missing field `at`"),
        (
            "\n{\"at\": \"x\", \"operation\": \"CREATE\", \"object\": {}}",
            ", line 3: at must be a number of seconds",
        ),
        (
            &line(0.5, "CREATE", &event("a", 1), None),
            ", line 2: at goes back from 1 to 0.5; sort the lines by at",
        ),
        (&line(2.0, "PATCH", &event("a", 1), None), ", line 2: operation must be CREATE or UPDATE"),
        (&line(2.0, "UPDATE", &event("a", 2), None), ", line 2: an UPDATE must have an oldObject"),
        (
            &line(2.0, "CREATE", &json!({"kind": "Pod", "apiVersion": "v1"}), None),
            ", line 2: object is not an Event of v1",
        ),
        (
            &line(2.0, "CREATE", &json!({"kind": "Event"}), None),
            ", line 2: object is not an Event of v1 or events.k8s.io/v1: no metadata",
        ),
    ] {
        let error = with(second);
        assert!(error.starts_with(expected), "{second}: {error}");
        assert!(error.contains("--skip-bad"), "{error}");
    }
    assert!(folder.refusal("").starts_with(": the input is empty"));
    assert!(
        folder
            .refusal("apiVersion: v1")
            .starts_with(": the input is not a JSON object; provide the output of `kubectl")
    );
    assert!(folder.refusal("{\"x\": 1}").contains("set --format"));
    let list = "{\n \"items\": [\n  {\"kind\": \"Pod\", \"apiVersion\": \"v1\"}\n ]\n}";
    assert!(folder.refusal(list).starts_with(", item 1: the item is not an Event"));
    assert!(folder.refusal("{\n \"items\": [\n  {]}").starts_with(", line 3, column 4: "));
}

#[test]
fn bad_lines_can_be_skipped_and_are_counted() {
    let folder = Folder::new();
    let trace = [
        line(1.0, "CREATE", &event("a", 1), None),
        "{\n".to_owned(),
        line(0.5, "CREATE", &event("b", 1), None),
        line(2.0, "CREATE", &event("b", 1), None),
    ]
    .concat();
    let (report, decisions) = folder.report(&["--skip-bad"], &trace);
    assert_eq!((decisions.len(), &report["input"]["bad"]), (2, &json!(2)));
    assert!(report["notes"].to_string().contains("2 unreadable entries were skipped"));
}

#[test]
fn decisions_overwrite_no_input() {
    let folder = Folder::new();
    let trace = line(1.0, "CREATE", &event("a", 1), None);
    folder.write("trace", &trace);
    for (decisions, input) in [("trace", "trace"), ("./policy.yaml", "trace")] {
        let arguments = ["--policy", "policy.yaml", "-n", "shop", "--decisions", decisions, input];
        let (code, out, err) = folder.replay(&arguments, "");
        assert_eq!((code, out.as_str()), (1, ""));
        assert!(err.contains("--decisions would overwrite the input"), "{err}");
        assert_eq!((folder.read("trace"), folder.read("policy.yaml")), (trace.clone(), POLICY.to_owned()));
    }
    for (content, policy, input) in [(&*trace, "policy.yaml", "-"), (POLICY, "-", "trace")] {
        folder.write("stdin", content);
        let [policy, input, decisions] = [policy, input, "stdin"]
            .map(|name| if name == "-" { PathBuf::from(name) } else { folder.path(name) });
        let mut replay = Command::new(env!("CARGO_BIN_EXE_squelch"));
        replay.arg("replay").arg("--policy").arg(policy).arg("--decisions").arg(&decisions).arg(input);
        let refused = replay.stdin(File::open(&decisions).unwrap()).output().unwrap();
        let err = String::from_utf8(refused.stderr).unwrap();
        assert!(err.contains("--decisions would overwrite the input standard input"), "{err}");
        assert_eq!(folder.read("stdin"), content);
    }
    folder.write("d", "of another run");
    let (code, ..) = folder.replay(&["--policy", "policy.yaml", "--decisions", "d", "missing"], "");
    assert_eq!((code, folder.read("d").as_str()), (1, "of another run"));
}

#[test]
fn an_invalid_policy_is_reported_before_the_input_is_read() {
    let folder = Folder::new();
    folder.write("bad.yaml", &POLICY.replace("spec: {}", "spec: {series: {idleTimeout: 1ms}}"));
    let both = ["--policy", "policy.yaml", "--policy", "bad.yaml", "-"];
    let (code, out, err) = folder.replay(&both, "");
    assert_eq!((code, out.as_str()), (1, ""));
    assert_eq!(
        err,
        "squelch: bad.yaml, document 1 (EventPolicy team), spec.series.idleTimeout: idleTimeout must be between 1s \
         and 8760h, such as 6m\n"
    );
    let (code, _, err) = folder.replay(&["--policy", "gone.yaml", "-"], "");
    assert_eq!((code, err.starts_with("squelch: cannot read gone.yaml: ")), (1, true), "{err}");
    let (code, _, err) = folder.replay(&["--policy", "-", "-"], "");
    assert_eq!((code, err.starts_with("squelch: standard input (-)")), (1, true), "{err}");
    let (code, _, err) = folder.replay(&["-"], "");
    assert_eq!((code, err.contains("--policy <FILE>")), (2, true), "{err}");
}

#[test]
fn the_exit_code_does_not_depend_on_who_reads() {
    let squelch = || Command::new(env!("CARGO_BIN_EXE_squelch"));
    for (arguments, code) in
        [(&["replay", "--policy", "gone", "-"][..], 1), (&["doctor", "--kubeconfig", "/gone"], 3)]
    {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let status = squelch().args(arguments).stdin(Stdio::null()).stderr(full).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
    let mut crds = squelch().arg("crds").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    crds.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    let ended = crds.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]));
}
