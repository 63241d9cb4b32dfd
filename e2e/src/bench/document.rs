//! The sections of docs/benchmarks/results.md, between their markers.

use std::path::Path;

use anyhow::{Context, Result};

/// Replaces the section of this name, such as "bench-cluster storm".
///
/// # Errors
/// If the file cannot be read or written, or has no such section.
pub fn write(file: &Path, name: &str, section: &str) -> Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let text = replaced(&text, name, section)
        .with_context(|| format!("{} has no section {name}", file.display()))?;
    Ok(std::fs::write(file, text)?)
}

fn replaced(text: &str, name: &str, section: &str) -> Option<String> {
    let [begin, end] = ["begin", "end"].map(|word| format!("<!-- {name}: {word} -->\n"));
    let (before, rest) = text.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{section}\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a\n<!-- a x: begin -->\nold\n<!-- a x: end -->\n\
                        <!-- a y: begin -->\nkept\n<!-- a y: end -->\n";

    #[test]
    fn a_section_replaces_only_the_section_of_its_name() {
        let text = replaced(TEXT, "a x", "new").unwrap();
        assert_eq!(text, TEXT.replace("old", "\nnew"));
        assert_eq!(replaced(&text, "a x", "newer").unwrap(), TEXT.replace("old", "\nnewer"));
        assert_eq!(replaced(TEXT, "a z", "new"), None);
    }
}
