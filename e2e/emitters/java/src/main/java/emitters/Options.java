package emitters;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The command line, the same for both programs. */
record Options(
    String program,
    String kubeconfig,
    String namespace,
    String object,
    String uid,
    String type,
    String reason,
    String message,
    boolean distinct,
    int count,
    int interval,
    String api,
    String write,
    String onError) {

  /** Values of a flag that accepts only these. */
  private static final Map<String, List<String>> CHOICES =
      Map.of(
          "--messages", List.of("identical", "distinct"),
          "--api", List.of("core", "events"),
          "--write", List.of("create", "edit", "patch", "replace", "apply"),
          "--on-error", List.of("continue", "throw"));

  /**
   * Parses the flags of a program; {@code own} has its own flags with their defaults. Exits with
   * status 2 and a message for a wrong flag.
   */
  static Options parse(String program, Map<String, String> own, String[] arguments) {
    Map<String, String> values = new LinkedHashMap<>();
    for (String flag : List.of("--kubeconfig", "--namespace", "--object", "--uid", "--count")) {
      values.put(flag, "");
    }
    values.put("--type", "Warning");
    values.put("--reason", "SyncFailed");
    values.put("--message", "could not sync: connection refused");
    values.put("--messages", "identical");
    values.put("--interval", "200");
    values.putAll(own);

    List<String> given = new ArrayList<>();
    for (String argument : arguments) {
      // Both --flag VALUE and --flag=VALUE.
      boolean joined = argument.startsWith("--") && argument.contains("=") && given.size() % 2 == 0;
      given.addAll(joined ? List.of(argument.split("=", 2)) : List.of(argument));
    }
    for (int i = 0; i < given.size(); i += 2) {
      String flag = given.get(i);
      if (!values.containsKey(flag)) {
        throw wrong(program, "unknown flag " + flag);
      }
      if (i + 1 == given.size()) {
        throw wrong(program, flag + " needs a value");
      }
      String value = given.get(i + 1);
      if (CHOICES.containsKey(flag) && !CHOICES.get(flag).contains(value)) {
        throw wrong(program, flag + " " + value + ": expected one of " + CHOICES.get(flag));
      }
      values.put(flag, value);
    }
    for (String flag : List.of("--kubeconfig", "--namespace", "--object", "--count")) {
      if (values.get(flag).isEmpty()) {
        throw wrong(program, flag + " is required");
      }
    }
    return new Options(
        program,
        values.get("--kubeconfig"),
        values.get("--namespace"),
        values.get("--object"),
        values.get("--uid"),
        values.get("--type"),
        values.get("--reason"),
        values.get("--message"),
        values.get("--messages").equals("distinct"),
        number(program, "--count", values.get("--count"), 1),
        number(program, "--interval", values.get("--interval"), 0),
        values.get("--api"),
        values.get("--write"),
        values.getOrDefault("--on-error", "continue"));
  }

  /** The message of an occurrence, counted from 1. */
  String messageOf(int occurrence) {
    return distinct ? message + " #" + occurrence : message;
  }

  private static int number(String program, String flag, String value, int minimum) {
    try {
      int number = Integer.parseInt(value);
      if (number >= minimum) {
        return number;
      }
    } catch (NumberFormatException e) {
      // Reported below.
    }
    throw wrong(program, flag + " " + value + ": expected a number of at least " + minimum);
  }

  private static Error wrong(String program, String message) {
    System.err.println(program + ": " + message);
    System.exit(2);
    return new AssertionError("unreachable");
  }
}
