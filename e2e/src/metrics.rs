//! Parsed metrics of squelch.

/// The samples of one scrape.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    samples: Vec<Sample>,
}

#[derive(Clone, Debug)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl Samples {
    /// Parses Prometheus' text format.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self { samples: lines.filter_map(sample).collect() }
    }

    /// The sum of the samples of a metric with these labels; 0 without samples.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        // Starts at 0.0: the sum of no f64 is -0.0.
        self.matching(name, labels).fold(0.0, |sum, sample| sum + sample.value)
    }

    /// The sum of the occurrences that policies in both modes received, by these labels.
    pub fn occurrences(&self, labels: &[(&str, &str)]) -> f64 {
        let of = |metric| self.sum(metric, labels);
        of("squelch_occurrences_total") + of("squelch_observed_occurrences_total")
    }

    /// The number of reviews with this result.
    pub fn reviews(&self, result: &str) -> f64 {
        self.sum("squelch_reviews_total", &[("result", result)])
    }

    /// Whether the webhook is armed.
    pub fn is_armed(&self) -> bool {
        self.sum("squelch_armed", &[]) > 0.0
    }

    /// Whether squelch has disarmed the webhook.
    pub fn was_disarmed(&self) -> bool {
        self.sum("squelch_arm_transitions_total", &[("to", "disarmed")]) > 0.0
    }

    /// The number of samples of a metric with these labels.
    pub fn count(&self, name: &str, labels: &[(&str, &str)]) -> usize {
        self.matching(name, labels).count()
    }

    /// The samples of a metric in text form, for messages.
    pub fn show(&self, name: &str) -> String {
        let shown = self.matching(name, &[]).map(|sample| format!("{:?} {}", sample.labels, sample.value));
        shown.collect::<Vec<_>>().join("\n")
    }

    fn matching(&self, name: &str, labels: &[(&str, &str)]) -> impl Iterator<Item = &Sample> {
        let has = move |sample: &Sample, label: &str, value: &str| {
            sample.labels.iter().any(|(found, attached)| found == label && attached == value)
        };
        self.samples.iter().filter(move |sample| {
            sample.name == name && labels.iter().all(|(label, value)| has(sample, label, value))
        })
    }
}

/// `name{label="value",...} number`, with `\\`, `\"` and `\n` in values.
fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(mut inside) = rest.strip_prefix('{') {
        while !inside.starts_with('}') {
            let (label, after) = inside.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.push((label.to_owned(), value));
            inside = after.strip_prefix(',').unwrap_or(after);
        }
        rest = inside.strip_prefix('}')?;
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { name: name.to_owned(), labels, value })
}

/// The text up to the closing quote, and the rest.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                escaped => value.push(escaped),
            },
            plain => value.push(plain),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_by_their_labels() {
        let text = "# HELP a b\na{x=\"1\",y=\"q\\\"},\"} 2\na{x=\"1\",y=\"z\"} 3\na{x=\"2\"} 5\nb 0.5 1700000000000\n";
        let samples = Samples::parse(text);
        assert!((samples.sum("a", &[("x", "1")]) - 5.0).abs() < f64::EPSILON);
        assert!((samples.sum("a", &[("y", "q\"},")]) - 2.0).abs() < f64::EPSILON);
        assert!((samples.sum("b", &[]) - 0.5).abs() < f64::EPSILON);
        assert_eq!(samples.count("a", &[]), 3);
        assert_eq!(samples.count("c", &[]), 0);
    }
}
