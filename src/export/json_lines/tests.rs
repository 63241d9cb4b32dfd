use std::io::{BufRead as _, BufReader};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::*;
use crate::export::tests::record;

/// A new folder, which is removed.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("squelch-export-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn lines(path: &Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_line_has_the_names_of_opentelemetry() {
    insta::assert_snapshot!(line(&record(7, "Back-off \"restarting\"\nfailed container"), "i"));
}

#[tokio::test]
async fn a_renamed_file_is_opened_again() {
    let folder = Folder::new("renamed");
    let (path, rotated) = (folder.0.join("events"), folder.0.join("events.1"));
    fs::write(&path, "{}\n").unwrap();
    let file = JsonLines::open(&path, "i".into()).unwrap();
    assert_eq!(file.send(&[record(1, "a"), record(2, "b")]).await, Outcome::Delivered { refused: 0 });
    fs::rename(&path, &rotated).unwrap();
    assert_eq!(file.send(&[record(3, "c")]).await, Outcome::Delivered { refused: 0 });
    let bodies = |path: &Path| lines(path).iter().map(|line| line["body"].to_string()).collect::<Vec<_>>();
    assert_eq!(bodies(&rotated), ["null", "\"a\"", "\"b\""], "appended");
    assert_eq!(bodies(&path), ["\"c\""]);
}

#[tokio::test]
async fn a_named_pipe_needs_no_reader_at_the_start() {
    let folder = Folder::new("pipe");
    let path = folder.0.join("events");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let opened = tokio::task::spawn_blocking({
        let path = path.clone();
        move || JsonLines::open(&path, "i".into())
    });
    let file = tokio::time::timeout(Duration::from_secs(60), opened).await.expect("opened").unwrap().unwrap();
    assert_eq!(file.send(&[record(1, "a")]).await, Outcome::Delivered { refused: 0 });
    // The first reader comes after the line.
    let mut reader = BufReader::new(File::open(&path).unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["body"], "a");
    // And the next one after another line.
    drop(reader);
    assert_eq!(file.send(&[record(2, "b")]).await, Outcome::Delivered { refused: 0 });
    line.clear();
    BufReader::new(File::open(&path).unwrap()).read_line(&mut line).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["body"], "b");
}

#[tokio::test]
async fn a_full_disk_is_a_failure_that_may_pass() {
    let full = JsonLines::open(Path::new("/dev/full"), "i".into()).unwrap();
    let outcome = full.send(&[record(1, "a")]).await;
    assert!(
        matches!(&outcome, Outcome::Failed { error, .. } if error.contains("No space left")),
        "{outcome:?}"
    );
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error_at_the_start() {
    let missing = Path::new("/nonexistent/events");
    assert_eq!(JsonLines::open(missing, "i".into()).err().unwrap().kind(), io::ErrorKind::NotFound);
}

/// The first half of the next text is written, as by a disk that became full.
fn half_written(target: &mut LinesTarget) {
    target.file.write_all(b"tw").unwrap();
    target.written = 2;
}

#[test]
fn a_file_that_was_deleted_on_a_full_disk_is_created_again() {
    let folder = Folder::new("deleted");
    let path = folder.0.join("events");
    let mut target = LinesTarget::open(&path).unwrap();
    half_written(&mut target);
    fs::remove_file(&path).unwrap();
    target.write(b"two\n").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
}

#[test]
fn the_unfinished_line_of_an_earlier_process_damages_no_other() {
    let folder = Folder::new("torn");
    for (found, expected) in [("", "one\ntwo\n"), ("zero\n", "zero\none\ntwo\n"), ("ze", "ze\none\ntwo\n")] {
        let path = folder.0.join("events");
        fs::write(&path, found).unwrap();
        let mut target = LinesTarget::open(&path).unwrap();
        target.write(b"one\n").unwrap();
        target.write(b"two\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    }
}

#[test]
fn a_write_continues_where_it_has_stopped() {
    let folder = Folder::new("stopped");
    let path = folder.0.join("events");
    let mut target = LinesTarget::open(&path).unwrap();
    target.write(b"one\n").unwrap();
    half_written(&mut target);
    target.write(b"two\n").unwrap();
    target.write(b"three\n").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\nthree\n");
}
