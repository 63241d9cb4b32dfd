package emitters;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.io.File;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** One run of a program: its occurrences, its lines on standard output, and its end. */
final class Run {
  /** Maximum time from the moment at which the last occurrence is due to its answer. */
  private static final long ANSWER_SECONDS = 60;

  private static final ObjectMapper JSON = new ObjectMapper();

  private final Options options;
  private final long deadline;
  private final CountDownLatch answers;
  private final AtomicInteger errors = new AtomicInteger();

  Run(Options options) {
    long occurrences = TimeUnit.MILLISECONDS.toNanos((long) options.count() * options.interval());
    this.options = options;
    this.deadline = System.nanoTime() + occurrences + TimeUnit.SECONDS.toNanos(ANSWER_SECONDS);
    this.answers = new CountDownLatch(options.count());
  }

  KubernetesClient client() {
    Config config = Config.fromKubeconfig(new File(options.kubeconfig()));
    return new KubernetesClientBuilder().withConfig(config).build();
  }

  /** The number of the next occurrence: one more than the answered ones. */
  int next() {
    return options.count() - (int) answers.getCount() + 1;
  }

  boolean finished() {
    return answers.getCount() == 0;
  }

  /** Records that the write of the next occurrence succeeded. */
  void answered() {
    answers.countDown();
  }

  /** Records that the write of the next occurrence failed, and prints the error line. */
  void failed(Exception e) {
    errors.incrementAndGet();
    print("error", "occurrence", next(), "error", describe(e));
    answers.countDown();
  }

  /** Waits for all answers until the deadline, and returns whether they have arrived. */
  boolean awaitAnswers() throws InterruptedException {
    return answers.await(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
  }

  /** Waits for all answers, prints the summary, and exits. */
  void finish(String library) throws InterruptedException {
    boolean complete = awaitAnswers();
    int answered = next() - 1;
    if (!complete) {
      System.err.printf(
          "%s: %d of %d occurrences had no answer until the deadline%n",
          options.program(), options.count() - answered, options.count());
    }
    print("summary", "emitter", library, "occurrences", answered, "errors", errors.get());
    System.exit(complete ? 0 : 1);
  }

  /** Ends a program that could not start. */
  static void fail(String program, Exception e) {
    System.err.println(program + ": " + describe(e));
    System.exit(1);
  }

  private static String describe(Exception e) {
    String text = String.valueOf(e.getMessage());
    if (e instanceof KubernetesClientException refused && refused.getStatus() != null) {
      var status = refused.getStatus();
      text = refused.getCode() + " " + status.getReason() + ": " + status.getMessage();
    }
    return e.getClass().getSimpleName() + ": " + text;
  }

  private static void print(String line, Object... fields) {
    Map<String, Object> object = new LinkedHashMap<>();
    object.put("line", line);
    for (int i = 0; i < fields.length; i += 2) {
      object.put((String) fields[i], fields[i + 1]);
    }
    try {
      System.out.println(JSON.writeValueAsString(object));
    } catch (JsonProcessingException e) {
      throw new IllegalStateException(e);
    }
  }
}
