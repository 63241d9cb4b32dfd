package emitters;

import io.fabric8.kubernetes.api.model.MicroTime;
import io.fabric8.kubernetes.api.model.ObjectMeta;
import io.fabric8.kubernetes.api.model.ObjectReference;
import io.fabric8.kubernetes.api.model.events.v1.Event;
import io.fabric8.kubernetes.api.model.events.v1.EventBuilder;
import io.fabric8.kubernetes.api.model.events.v1.EventList;
import io.fabric8.kubernetes.client.dsl.NonNamespaceOperation;
import io.fabric8.kubernetes.client.dsl.Resource;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;

/** Events of events.k8s.io/v1: {@code series}, from the second occurrence on. */
final class NewEvents extends EventWriter<Event> {
  /** The format of a MicroTime, with exactly six digits of the second. */
  private static final DateTimeFormatter MICROSECONDS =
      DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'").withZone(ZoneOffset.UTC);

  NewEvents(Options options, NonNamespaceOperation<Event, EventList, Resource<Event>> events) {
    super(options, events);
  }

  @Override
  protected Event first(ObjectMeta metadata, ObjectReference regarding, String message) {
    return new EventBuilder()
        .withMetadata(metadata)
        .withRegarding(regarding)
        .withType(options.type())
        .withReason(options.reason())
        .withAction("Sync")
        .withNote(message)
        .withEventTime(now())
        .withReportingController("example.com/" + options.program())
        .withReportingInstance(options.program() + "-0")
        .build();
  }

  @Override
  protected Event repeated(Event event) {
    int count = event.getSeries() == null ? 1 : event.getSeries().getCount();
    return new EventBuilder(event)
        .withNewSeries()
        .withCount(count + 1)
        .withLastObservedTime(now())
        .endSeries()
        .build();
  }

  private static MicroTime now() {
    return new MicroTime(MICROSECONDS.format(Instant.now()));
  }
}
