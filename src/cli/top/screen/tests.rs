use kube::runtime::watcher::Event;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::fixture::{at, cluster, drops, list, now, object, report};
use super::super::plain;
use super::super::snapshot::TopFailure;
use super::*;

/// The lines of the screen, without blanks at their ends.
fn drawn(screen: &TopScreen, model: &TopModel, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen.draw(frame, model, now())).unwrap();
    let buffer = terminal.backend().buffer();
    let lines = buffer.content().chunks(width.into()).map(|cells| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        format!("{}\n", line.trim_end())
    });
    lines.collect()
}

fn screen() -> TopScreen {
    TopScreen::new(TopOrder::Suppressed, 100, true)
}

fn press(screen: &mut TopScreen, model: &TopModel, keys: &[KeyCode]) -> bool {
    keys.iter().fold(false, |_, code| screen.press(KeyEvent::from(*code), model, now()))
}

fn after(keys: &[KeyCode], width: u16, height: u16) -> String {
    let (mut screen, model) = (screen(), cluster());
    press(&mut screen, &model, keys);
    drawn(&screen, &model, width, height)
}

const ENTER: KeyCode = KeyCode::Enter;
const TAB: KeyCode = KeyCode::Tab;

fn letter(char: char) -> KeyCode {
    KeyCode::Char(char)
}

/// The lines of a view at this size, after a check of their number, their widths and the line of keys.
fn view(keys: &[KeyCode], width: u16, height: u16) -> Vec<String> {
    let lines: Vec<String> = after(keys, width, height).lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), usize::from(height));
    assert!(lines.iter().all(|line| width_of(line) <= usize::from(width)), "{lines:#?}");
    assert!(lines[usize::from(height) - 1].contains("? help"), "{lines:#?}");
    lines
}

#[test]
fn the_views_fit_a_narrow_terminal() {
    let namespaces = view(&[letter('1')], 80, 24);
    assert_eq!(namespaces[1], "[1 Namespaces]   2 Policies    3 Offenders   order: suppressed");
    assert_eq!(namespaces[3], "  NAMESPACE    SUPPRESSED  DROPPED  WARNINGS  RATE/S  AGE  TOP POLICY");
    assert_eq!(namespaces[4], "> ci               50,695    2,625         0    20.0  20s  compact-repeats");
    let policies = view(&[letter('2')], 80, 24);
    let head = "  POLICY            MODE    ACC EFF  RECV ADMIT  COMP AGGR FILT THROT MUTED WARN";
    assert_eq!(policies[3], head);
    let row = "> ci/compact-repea… Enforce yes yes 51.9k  1204 39.0k 9120 2210   415     0    0";
    assert_eq!(policies[4], row);
    let offenders = view(&[letter('3')], 80, 24);
    let head = "  COUNT NAMESPACE  TYPE REASON       KIND       COMPONENT  BY    LAST OBJECT";
    assert_eq!(offenders[3], head);
}

#[test]
fn the_views_are_complete_in_a_wide_terminal() {
    let policies = view(&[letter('2')], 140, 40);
    assert!(policies[3].ends_with("AGGREGATED  FILTERED  THROTTLED  MUTED  WARNINGS"), "{policies:#?}");
    assert!(policies[4].contains("  51,902     1,204     38,950       9,120  "), "{policies:#?}");
    let offenders = view(&[letter('3')], 140, 40);
    assert!(
        offenders[4].starts_with("> 5,760  flux-system  Normal   ReconciliationSucceeded"),
        "{offenders:#?}"
    );
    assert_eq!(view(&[letter('1')], 140, 40).len(), 40);
}

#[test]
fn details_and_help_fit_a_narrow_terminal() {
    let namespace = view(&[ENTER], 80, 24);
    assert_eq!(namespace[3], "Namespace ci");
    assert_eq!(namespace[4], "suppressed 50,695, dropped 2,625, Warnings 0, rate 20.0/s, report 20s old");
    assert!(namespace[7].starts_with("ci/compact-repeats"), "{namespace:#?}");
    let policy = view(&[TAB, letter('G'), ENTER], 80, 24);
    assert_eq!(policy[3], "EventPolicy ci/old-limits");
    assert_eq!(policy[5], "Accepted True, Effective False (Overridden)");
    assert_eq!(policy[6], "ci/compact-repeats governs every Event that this policy matches");
    let help = view(&[letter('?')], 80, 24).join("\n");
    assert!(HELP.iter().all(|line| help.contains(line)), "{help}");
}

#[test]
fn the_documents_show_the_screens_and_the_output() {
    let document = include_str!("../../../../docs/kubectl-squelch.md");
    let model = cluster();
    let once = plain::render(&model, TopOrder::Suppressed, 100, now());
    let screens = ['1', '2', '3'].map(|view| after(&[letter(view)], 100, 12));
    let blocks = screens.into_iter().chain([once]).map(|text| format!("```text\n{text}```\n"));
    let missing: String = blocks.filter(|block| !document.contains(block)).collect();
    assert!(missing.is_empty(), "the document lacks:\n{missing}");
}

#[test]
fn every_size_can_be_drawn() {
    for width in 1..100 {
        for height in 1..12 {
            for keys in [&[][..], &[TAB], &[letter('3')], &[ENTER], &[letter('?')]] {
                after(keys, width, height);
            }
        }
    }
}

#[test]
fn keys_change_the_view_and_quit() {
    let model = cluster();
    let mut screen = screen();
    assert!(!press(&mut screen, &model, &[TAB]));
    assert_eq!(screen.view, TopView::Policies);
    press(&mut screen, &model, &[KeyCode::BackTab, KeyCode::BackTab]);
    assert_eq!(screen.view, TopView::Offenders);
    press(&mut screen, &model, &[ENTER]);
    assert_eq!(screen.details, Some(TopDetails::Namespace("flux-system".to_owned())));
    assert!(!press(&mut screen, &model, &[KeyCode::Esc]) && screen.details.is_none());
    assert!(!press(&mut screen, &model, &[letter('?'), KeyCode::Esc]) && !screen.shows_help);
    press(&mut screen, &model, &[letter('s'), letter('s')]);
    assert_eq!(screen.order, TopOrder::Warnings);
    assert!(
        press(&mut screen.clone(), &model, &[letter('q')])
            && press(&mut screen.clone(), &model, &[KeyCode::Esc])
    );
    let interrupt = KeyEvent::new(letter('c'), KeyModifiers::CONTROL);
    assert!(screen.press(interrupt, &model, now()) && !press(&mut screen, &model, &[letter('c')]));
}

/// The name of the selected row.
fn selected(screen: &TopScreen, model: &TopModel) -> String {
    let drawn = drawn(screen, model, 100, 10);
    let line = drawn.lines().find_map(|line| line.strip_prefix("> "));
    line.and_then(|line| line.split(' ').next()).unwrap_or_default().to_owned()
}

#[test]
fn the_selection_follows_its_row() {
    let mut model = cluster();
    let mut screen = screen();
    assert_eq!(selected(&screen, &model), "ci");
    press(&mut screen, &model, &[letter('j')]);
    assert_eq!(selected(&screen, &model), "shop");
    press(&mut screen, &model, &[letter('s')]);
    assert_eq!(selected(&screen, &model), "shop", "after a change of the order");
    model.apply(TopSource::Reports, Event::Delete(object(report("shop", 0, &[], &[]))), now());
    assert_eq!(selected(&screen, &model), "ci", "the row at its place");
    press(&mut screen, &model, &[letter('G'), letter('k'), letter('k'), letter('k'), letter('k')]);
    assert_eq!(selected(&screen, &model), "flux-system");
}

#[test]
fn the_selection_passes_offenders_that_differ_only_in_their_type_or_kind_of_policy() {
    let mut model = TopModel::new(None, &[TopSource::Reports], Vec::new());
    let entry = |event_type: &str, policy_kind: &str, count| {
        let mut entry = drops([event_type, "BackOff", "Pod", "kubelet", "muted"], count, 0, "web");
        entry["policyKind"] = policy_kind.into();
        entry
    };
    let entries = [
        entry("Warning", "EventPolicy", 9_000),
        entry("Normal", "EventPolicy", 8_000),
        entry("Normal", "ClusterEventPolicy", 7_000),
        drops(["Normal", "Pulled", "Pod", "kubelet", "muted"], 6_000, 0, "web"),
    ];
    list(&mut model, TopSource::Reports, vec![report("n", 0, &[], &entries)], now());
    let mut screen = screen();
    press(&mut screen, &model, &[letter('3')]);
    for expected in ["9,000", "8,000", "7,000", "6,000"] {
        assert_eq!(selected(&screen, &model), expected);
        press(&mut screen, &model, &[letter('j')]);
    }
}

#[test]
fn a_long_list_scrolls_and_says_what_it_leaves_out() {
    let mut model = TopModel::new(None, &[TopSource::Reports], Vec::new());
    let policy = |number| [("EventPolicy", "p", [0, number, 0, 0, 0, 0, 0, 0, 0])];
    let reports = (0..300).map(|at| report(&format!("n{at:03}"), 0, &policy(1_000 - at), &[])).collect();
    list(&mut model, TopSource::Reports, reports, now());
    let mut screen = screen();
    let first = drawn(&screen, &model, 80, 24);
    assert!(first.contains("> n000") && first.contains("n017") && !first.contains("n019"), "{first}");
    press(&mut screen, &model, &[letter('G')]);
    let last = drawn(&screen, &model, 80, 24);
    assert!(last.contains("> n099") && last.contains("(200 more; --limit 300 shows them)"), "{last}");
}

#[test]
fn notes_are_above_the_table_and_old_data_stays() {
    let mut model = cluster();
    model.missing.push(TopSource::ClusterPolicies.forbidden("list", None, TopSource::ClusterPolicies.loss()));
    model.failed(TopSource::Reports, TopFailure::Disconnected("connection refused".to_owned()), at(240));
    let drawn = drawn(&screen(), &model, 80, 24);
    assert!(drawn.contains("\n! you may not list clustereventpolicies.squelch.dev: no"), "{drawn}");
    assert!(
        drawn.contains("\n! not connected since 14:04:00 UTC, retrying: connection refused\n"),
        "{drawn}"
    );
    assert!(drawn.contains("> ci  ") && drawn.contains("50,695"), "{drawn}");
}

#[test]
fn an_empty_table_says_why() {
    let mut model = TopModel::new(None, &[TopSource::Reports], Vec::new());
    assert!(drawn(&screen(), &model, 80, 24).contains("reading ..."));
    list(&mut model, TopSource::Reports, Vec::new(), now());
    assert!(drawn(&screen(), &model, 80, 24).contains("no report: squelch has suppressed nothing here"));
}

#[test]
fn colours_only_supplement_the_text() {
    let model = cluster();
    let cells = |has_colour| {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        let screen = TopScreen::new(TopOrder::Suppressed, 100, has_colour);
        terminal.draw(|frame| screen.draw(frame, &model, now())).unwrap();
        terminal.backend().buffer().clone()
    };
    let (coloured, plain) = (cells(true), cells(false));
    let text = |buffer: &ratatui::buffer::Buffer| -> String {
        buffer.content().iter().map(ratatui::buffer::Cell::symbol).collect()
    };
    assert_eq!(text(&coloured), text(&plain));
    assert!(coloured.content().iter().any(|cell| cell.fg == Color::Yellow));
    assert!(plain.content().iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
}

#[test]
fn wide_and_combining_characters_stay_in_their_line() {
    let mut model = TopModel::new(None, &[TopSource::Reports], Vec::new());
    let reason = "日本e\u{301}".repeat(20);
    let entry = drops(["Normal", &reason, "Pod", &reason, "filtered"], 7, 0, &reason);
    list(&mut model, TopSource::Reports, vec![report("n", 0, &[], &[entry])], now());
    let mut screen = screen();
    press(&mut screen, &model, &[letter('3')]);
    let drawn = drawn(&screen, &model, 80, 8);
    assert_eq!(drawn.lines().count(), 8);
    assert!(drawn.lines().all(|line| width_of(line) <= 100), "{drawn}");
}
