use clap::CommandFactory;
use jiff::SignedDuration;

use super::*;
use crate::telemetry::LogFormat;

fn run(flags: &[&str]) -> Result<RunOptions, String> {
    let words = ["squelch", "run"].iter().chain(flags);
    match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
        Command::Run(options) => Ok(*options),
        _ => unreachable!("the arguments begin with run"),
    }
}

#[test]
fn the_command_line_definition_is_valid() {
    Cli::command().debug_assert();
}

#[test]
fn the_defaults_are_as_documented() {
    let options = run(&[]).unwrap();
    assert!(!options.disarm);
    assert_eq!(options.webhook_url, None);
    assert_eq!(options.webhook_bind_address.to_string(), "0.0.0.0:9443");
    assert_eq!(options.http_bind_address.to_string(), "0.0.0.0:8080");
    assert_eq!(options.status_interval, Duration::from_secs(10));
    assert_eq!((options.report_interval, options.report_qps), (Duration::from_secs(30), 5));
    assert_eq!(options.receipt_interval, Duration::from_secs(600));
    assert_eq!((options.install_namespace, options.webhook_service, options.secret), (None, None, None));
    assert_eq!(options.certificate_lifetime, Duration::from_secs(90 * 24 * 3600));
    assert_eq!(options.token_lifetime, Duration::from_secs(3600));
    assert_eq!((options.cert_dir, options.clock_offset), (None, SignedDuration::ZERO));
    assert_eq!((options.status_qps, options.flush_qps, options.shutdown_flush_qps), (5, 20, 500));
    assert_eq!(options.shutdown_timeout, Duration::from_secs(30));
    assert_eq!((options.max_series, options.max_pending_series), (1_000_000, 100_000));
    assert_eq!((options.log_format, options.log_level.as_str()), (LogFormat::Text, "info"));
}

#[test]
fn disarm_is_a_switch_that_can_be_set_to_false() {
    assert!(run(&["--disarm"]).unwrap().disarm && run(&["--disarm=true"]).unwrap().disarm);
    assert!(!run(&["--disarm=false"]).unwrap().disarm);
    assert!(run(&["--disarm", "--secret=keys"]).unwrap().disarm);
}

#[test]
fn labels_and_annotations_of_the_webhook_configuration_are_repeatable() {
    let options =
        run(&["--webhook-annotation=admissions.enforcer/disabled=true", "--webhook-annotation=a=b=c, d"]);
    let expected = [("admissions.enforcer/disabled", "true"), ("a", "b=c, d")];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(options.unwrap().webhook_annotation, expected);
    assert_eq!(run(&["--webhook-label=team="]).unwrap().webhook_label, [("team".to_owned(), String::new())]);
}

#[test]
fn client_subjects_require_a_client_ca_file() {
    assert!(run(&["--client-subject=kube-apiserver"]).unwrap_err().contains("--client-ca-file"));
    let options = run(&["--client-ca-file=ca.crt", "--client-subject=a,b", "--client-subject=c"]).unwrap();
    assert_eq!(options.client_subject, ["a", "b", "c"]);
    assert_eq!(run(&[]).unwrap().client_ca_file, None);
}

#[test]
fn every_flag_of_run_has_a_help_text_and_a_variable() {
    let command = Cli::command();
    let run = command.find_subcommand("run").unwrap();
    for flag in run.get_arguments().filter(|flag| flag.get_id() != "help") {
        let long = flag.get_long().unwrap();
        let variable = format!("SQUELCH_{}", long.replace('-', "_").to_uppercase());
        assert_eq!(flag.get_env().unwrap().to_str(), Some(&*variable));
        assert!(flag.get_help().is_some(), "--{long}");
    }
}

#[test]
fn every_command_selects_its_cluster_in_the_same_order() {
    let command = Cli::command();
    let flags = command.get_subcommands().flat_map(clap::Command::get_arguments);
    let flags: Vec<_> = flags.filter(|flag| flag.get_long() == Some("kubeconfig")).collect();
    assert_eq!(flags.len(), 7);
    for flag in flags {
        let help = flag.get_help().unwrap().to_string();
        assert!(
            help.ends_with("[default: KUBECONFIG, else ~/.kube/config, else the ServiceAccount of the pod]")
        );
    }
}

#[test]
fn a_webhook_url_has_no_path_and_loses_its_trailing_slash() {
    for (text, expected) in [
        ("https://127.0.0.1:9443", "https://127.0.0.1:9443"),
        ("https://squelch.example/", "https://squelch.example"),
        ("https://[::1]:9443", "https://[::1]:9443"),
    ] {
        assert_eq!(run(&["--webhook-url", text]).unwrap().webhook_url.unwrap().as_str(), expected);
    }
}

#[test]
fn an_invalid_value_is_refused_with_a_valid_example() {
    for (flag, value, expected) in [
        ("--install-namespace", "Squelch", "lower case letters, digits and dashes"),
        ("--secret", "-a", "lower case letters, digits and dashes"),
        ("--webhook-service", "squelch:0", "such as squelch or squelch:443"),
        ("--webhook-service", "squelch.squelch.svc", "such as squelch or squelch:443"),
        ("--certificate-lifetime", "1s", "between 5s and 87600h, such as 2160h"),
        ("--certificate-lifetime", "87601h", "between 5s and 87600h, such as 2160h"),
        ("--token-lifetime", "30s", "between 1m and 168h, such as 1h"),
        ("--token-lifetime", "169h", "between 1m and 168h, such as 1h"),
        ("--clock-offset", "-400d", "such as 6m or 1h30m"),
        ("--webhook-label", "team", "must be KEY=VALUE, such as example.com/team=platform"),
        ("--webhook-label", "team=a b", "at most 63 letters, digits"),
        ("--webhook-annotation", "a/b/c=d", "KEY must be a name with an optional domain"),
        ("--webhook-annotation", "squelch.dev/disarm=x", "reserved for squelch itself"),
        ("--webhook-url", "http://127.0.0.1:9443", "https only"),
        ("--webhook-url", "https://127.0.0.1:9443/events", "chooses the path itself"),
        ("--webhook-url", "https://127.0.0.1:9443?x=1", "chooses the path itself"),
        ("--webhook-url", "https://me@127.0.0.1:9443", "with a user"),
        ("--webhook-url", "127.0.0.1:9443", "such as https://127.0.0.1:9443"),
        ("--webhook-url", "https://", "such as https://127.0.0.1:9443"),
        ("--webhook-bind-address", ":9443", "such as 0.0.0.0:8080"),
        ("--status-interval", "10", "such as 6m or 1h30m"),
        ("--status-interval", "0s", "between 1s and 1h, such as 10s"),
        ("--shutdown-timeout", "2h", "between 0s and 1h, such as 30s"),
        ("--status-qps", "0", "1..=1000"),
        ("--report-interval", "30", "such as 6m or 1h30m"),
        ("--report-interval", "0s", "between 1s and 1h, such as 30s"),
        ("--report-qps", "1001", "1..=1000"),
        ("--max-series", "1", "1000..=100000000"),
        ("--log-format", "xml", "possible values: text, json"),
        ("--log-level", "squelch=loud", "such as info,squelch=debug"),
        ("--disarm", "maybe", "possible values: true, false"),
    ] {
        let answer = run(&[&format!("{flag}={value}")]).unwrap_err();
        assert!(answer.contains(expected) && answer.contains(flag), "{flag} {value}: {answer}");
    }
}

#[test]
fn webhook_service_and_webhook_url_exclude_each_other() {
    let service = |text| run(&["--webhook-service", text]).unwrap().webhook_service.unwrap();
    assert_eq!(service("squelch"), WebhookService { name: "squelch".to_owned(), port: 443 });
    assert_eq!(service("squelch:9443").port, 9443);
    let both = run(&["--webhook-service", "squelch", "--webhook-url", "https://127.0.0.1:1"]).unwrap_err();
    assert!(both.contains("cannot be used with"), "{both}");
}

#[test]
fn a_clock_offset_may_be_negative() {
    let offset = |text| run(&["--clock-offset", text]).unwrap().clock_offset;
    assert_eq!(offset("9600h"), SignedDuration::from_hours(9600));
    assert_eq!(offset("-9600h"), SignedDuration::from_hours(-9600));
}

#[test]
fn as_a_plugin_of_kubectl_the_help_names_the_command_to_type() {
    let usage = |program: &str, words: &[&str]| {
        let arguments = std::iter::once(&program).chain(words);
        let error = Cli::command_for(program).try_get_matches_from(arguments).unwrap_err();
        error.to_string().lines().find(|line| line.starts_with("Usage:")).unwrap().to_owned()
    };
    assert_eq!(usage("/krew/bin/kubectl-squelch", &["--help"]), "Usage: kubectl squelch <COMMAND>");
    assert_eq!(usage("kubectl-squelch", &["doctor", "--help"]), "Usage: kubectl squelch doctor [OPTIONS]");
    assert_eq!(usage("kubectl-squelch", &["crds", "--bad"]), "Usage: kubectl squelch crds [OPTIONS]");
    assert_eq!(usage("/squelch", &["doctor", "--help"]), "Usage: squelch doctor [OPTIONS]");
}
