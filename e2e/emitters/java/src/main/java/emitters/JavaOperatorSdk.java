package emitters;

import io.fabric8.kubernetes.api.model.ConfigMap;
import io.javaoperatorsdk.operator.Operator;
import io.javaoperatorsdk.operator.api.config.Utils;
import io.javaoperatorsdk.operator.api.reconciler.Context;
import io.javaoperatorsdk.operator.api.reconciler.ControllerConfiguration;
import io.javaoperatorsdk.operator.api.reconciler.Reconciler;
import io.javaoperatorsdk.operator.api.reconciler.UpdateControl;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * An operator with the Java Operator SDK: it reconciles the ConfigMaps of a namespace, and each
 * reconciliation of {@code --object} emits one occurrence and reschedules itself.
 *
 * <p>SDK 5.6.0 has a recorder, {@code context.eventRecorder()}. This program has 5.3.2, without a
 * recorder, and its documentation does not mention Events: a reconciler writes them with {@code
 * context.getClient()}. {@code --api} and {@code --write} are those of {@link Fabric8}. The default,
 * patch, is the sequence of calls of the recorder of 5.6.0.
 *
 * <p>With {@code --on-error throw} the reconciler does not catch the exception of a refused write:
 * the SDK logs it, and reconciles again after 2 s, 3 s, 4.5 s, ..., at most five times in sequence.
 */
@ControllerConfiguration(name = "java-operator-sdk")
public final class JavaOperatorSdk implements Reconciler<ConfigMap> {
  /** More than the last delay of the SDK's default retry, 10.1 s. */
  private static final long LONGEST_RETRY_SECONDS = 12;

  private final Options options;
  private final Run run;

  /** The reconciliation after the last occurrence: the SDK has logged the result of that one. */
  private final CountDownLatch another = new CountDownLatch(1);

  private EventWriter<?> writer;

  private JavaOperatorSdk(Options options, Run run) {
    this.options = options;
    this.run = run;
  }

  public static void main(String[] arguments) throws InterruptedException {
    Options options =
        Options.parse(
            "java-operator-sdk",
            Map.of("--api", "core", "--write", "patch", "--on-error", "continue"),
            arguments);
    Run run = new Run(options);
    JavaOperatorSdk reconciler = new JavaOperatorSdk(options, run);
    try {
      Operator operator = new Operator(overrider -> overrider.withKubernetesClient(run.client()));
      operator.register(
          reconciler, overrider -> overrider.settingNamespace(options.namespace()));
      operator.start();
    } catch (RuntimeException e) {
      Run.fail(options.program(), e);
    }
    if (run.awaitAnswers()) {
      reconciler.another.await(LONGEST_RETRY_SECONDS, TimeUnit.SECONDS);
    }
    run.finish("java-operator-sdk " + Utils.VERSION.getSdkVersion());
  }

  @Override
  public UpdateControl<ConfigMap> reconcile(ConfigMap object, Context<ConfigMap> context) {
    if (!object.getMetadata().getName().equals(options.object())) {
      return UpdateControl.noUpdate();
    }
    if (run.finished()) {
      another.countDown();
      return UpdateControl.noUpdate();
    }
    if (writer == null) {
      writer = EventWriter.of(options, context.getClient());
    }
    String uid = options.uid().isEmpty() ? object.getMetadata().getUid() : options.uid();
    try {
      writer.write(uid, run.next());
      run.answered();
    } catch (RuntimeException e) {
      run.failed(e);
      if (options.onError().equals("throw")) {
        throw e;
      }
    }
    return UpdateControl.<ConfigMap>noUpdate().rescheduleAfter(options.interval());
  }
}
