package emitters;

import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.Version;
import java.util.Map;

/**
 * Events with fabric8's Kubernetes client for Java. It has no recorder, and its documentation shows
 * no Event that counts its occurrences: the program does what the documentation shows for any
 * resource. {@code --write} selects the calls:
 *
 * <ul>
 *   <li>create: {@code resource(event).create()} with generateName, for each occurrence
 *   <li>edit (default): {@code create()}, then {@code withName(name).edit(event -> ...)}
 *   <li>patch: {@code get()}, and {@code create()} or {@code patch(event)}
 *   <li>replace: {@code get()}, and {@code createOrReplace()}
 *   <li>apply: {@code serverSideApply()} with the program's own count
 * </ul>
 *
 * <p>{@code --api} selects {@code client.v1().events()} (core, the default) or {@code
 * client.events().v1().events()} (events).
 */
public final class Fabric8 {
  private Fabric8() {}

  public static void main(String[] arguments) throws InterruptedException {
    Options options =
        Options.parse("fabric8", Map.of("--api", "core", "--write", "edit"), arguments);
    Run run = new Run(options);
    try {
      KubernetesClient client = run.client();
      String uid = options.uid().isEmpty() ? uidOf(options, client) : options.uid();
      EventWriter<?> writer = EventWriter.of(options, client);
      Thread emitter = new Thread(() -> emit(options, run, writer, uid), "emitter");
      emitter.setDaemon(true);
      emitter.start();
    } catch (RuntimeException e) {
      Run.fail(options.program(), e);
    }
    run.finish("fabric8 kubernetes-client " + Version.clientVersion());
  }

  private static void emit(Options options, Run run, EventWriter<?> writer, String uid) {
    while (!run.finished()) {
      try {
        writer.write(uid, run.next());
        run.answered();
      } catch (RuntimeException e) {
        run.failed(e);
      }
      pause(options.interval());
    }
  }

  private static String uidOf(Options options, KubernetesClient client) {
    var object =
        client.configMaps().inNamespace(options.namespace()).withName(options.object()).get();
    if (object == null) {
      throw new IllegalStateException(
          "there is no ConfigMap " + options.namespace() + "/" + options.object());
    }
    return object.getMetadata().getUid();
  }

  private static void pause(int milliseconds) {
    try {
      Thread.sleep(milliseconds);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}
