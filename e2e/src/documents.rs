//! The commands of the documents, run as a reader pastes them: by bash, in the root of the checkout.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::Cluster;
use crate::cluster::{checkout, given};
use crate::process::run_with_input;

/// Runs a text unchanged and returns its output; `squelch` is the tested binary. A warning of bash, such as an
/// unterminated here-document, is an error.
///
/// # Errors
/// If a command fails, with its output.
pub async fn pasted(cluster: &Cluster, text: &str) -> Result<String> {
    let binary = given("SQUELCH_BIN")?;
    let folder = binary.parent().context("SQUELCH_BIN has no folder")?.display();
    let mut command = Command::new("bash");
    command.env("PATH", format!("{folder}:{}", std::env::var("PATH")?));
    command.args(["-euo", "pipefail", "-c", text]).current_dir(checkout("."));
    command.env("KUBECONFIG", &cluster.kubeconfig);
    let output = tokio::task::spawn_blocking(move || run_with_input(&mut command, "")).await??;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success() && !errors.contains("bash: "), "pasted:\n{text}\nanswered:\n{errors}");
    Ok(String::from_utf8(output.stdout)?)
}

/// The blocks of shell commands in a document.
///
/// # Errors
/// If the document does not exist.
pub fn blocks(file: &str) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(checkout(file))?;
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split_once("```"));
    Ok(blocks.map(|(block, _)| block.to_owned()).collect())
}

/// The only block of a document that contains this text.
///
/// # Errors
/// If there is not exactly one.
pub fn block_with(file: &str, part: &str) -> Result<String> {
    let found: Vec<_> = blocks(file)?.into_iter().filter(|block| block.contains(part)).collect();
    let [block] = &found[..] else { bail!("{} blocks of {file} have {part:?}", found.len()) };
    Ok(block.clone())
}

/// Compares `block` with what a document has between the line `begin` and the next line [`END`]; with `SQUELCH_WRITE` in
/// the environment, writes it there. `command` does so.
///
/// # Errors
/// If the document has no such lines, or if it differs.
pub fn replace_block(file: &str, begin: &str, block: &str, command: &str) -> Result<()> {
    let path = checkout(file);
    let text = std::fs::read_to_string(&path)?;
    let (before, rest) = text.split_once(begin).with_context(|| format!("{file} has no line {begin}"))?;
    let (current, after) = rest.split_once(END).with_context(|| format!("{file} has no line {END}"))?;
    if current == block {
        return Ok(());
    }
    ensure!(
        std::env::var_os("SQUELCH_WRITE").is_some(),
        "{file} differs; compare, and write it with `{command}`:\n{block}"
    );
    Ok(std::fs::write(&path, [before, begin, block, END, after].concat())?)
}

/// The line after a block that a test writes.
const END: &str = "<!-- end -->";

/// The lines of a block with this prefix.
pub fn lines(block: &str, beginning: &str) -> Vec<String> {
    block.lines().filter(|line| line.trim_start().starts_with(beginning)).map(str::to_owned).collect()
}
