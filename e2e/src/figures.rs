//! Figures of measurements and their format.

/// The median. NaN for no values; comparisons with it are false.
#[must_use]
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)])
}

/// A quantile, such as 0.99; 0 for no values.
#[must_use]
pub fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// A number rounded to a whole number, with thousands separators.
#[must_use]
pub fn grouped(number: f64) -> String {
    by_threes(&format!("{number:.0}"))
}

/// The digits of a whole number, with or without a sign, with thousands separators.
#[must_use]
pub fn by_threes(whole: &str) -> String {
    let digits = whole.trim_start_matches('-');
    let mut text = whole[..whole.len() - digits.len()].to_owned();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A table in Markdown, the first column left-aligned, the others right-aligned.
#[must_use]
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let length = |text: &str| text.chars().count();
    let widths: Vec<usize> = (0..head.len())
        .map(|at| {
            let cells = rows.iter().chain([&head]).filter_map(|row| row.get(at));
            cells.map(|cell| length(cell)).max().unwrap_or_default().max(3)
        })
        .collect();
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let padded = |row: &[String]| {
        let cells = widths.iter().enumerate().map(|(at, width)| {
            let cell = row.get(at).map_or("", String::as_str);
            if at == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        line(cells.collect())
    };
    let rule = widths
        .iter()
        .enumerate()
        .map(|(at, width)| if at == 0 { "-".repeat(*width) } else { format!("{}:", "-".repeat(width - 1)) });
    let body: String = rows.iter().map(|row| padded(row)).collect();
    padded(&head) + &line(rule.collect()) + &body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value() {
        assert!(median(&[]).is_nan());
        let middle = [&[3.0, 1.0, 200.0][..], &[4.0, 1.0, 2.0, 3.0], &[4.0, 1.0], &[7.0]].map(median);
        assert!(
            middle.iter().zip([3.0, 2.5, 2.5, 7.0]).all(|(is, wanted)| (is - wanted).abs() < f64::EPSILON)
        );
    }

    #[test]
    fn quantiles_come_from_the_measured_values() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!([0.5, 0.99, 1.0].map(|part| quantile(&hundred, part) as i64), [50, 99, 100]);
        assert!(quantile(&[], 0.5).abs() < f64::EPSILON);
    }

    #[test]
    fn digits_are_grouped_by_three() {
        assert_eq!([0.0, 999.0, 1000.0, 1_234_567.4].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([7.0, 999.6, 12_345.0, 1e6].map(grouped), ["7", "1,000", "12,345", "1,000,000"]);
        assert_eq!([-7.0, -123.0, -1234.0].map(grouped), ["-7", "-123", "-1,234"]);
    }

    #[test]
    fn a_table_is_as_wide_as_its_widest_cells() {
        let rows = [vec!["é".to_owned(), "12,345".to_owned()], vec!["long".to_owned()]];
        let shown = "|      | rate/s |\n| ---- | -----: |\n| é    | 12,345 |\n| long |        |\n";
        assert_eq!(table(&["", "rate/s"], &rows), shown);
    }
}
