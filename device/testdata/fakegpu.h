// A GPU made of host memory, for testing what the Go drivers pass to a vendor's
// library: it records the device of each address, stream and event, and
// fails calls made on a thread whose current device is another.
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef DEVICES
#define DEVICES 2
#endif
#ifndef INIT_ERROR
#define INIT_ERROR 0
#endif
#define EXPORT __attribute__((visibility("default")))

enum { OK = 0, INVALID = 1, NO_MEMORY = 2, NO_DEVICE = 100, BAD_DEVICE = 101, BAD_CONTEXT = 201, BAD_HANDLE = 400, LOST = 719, NOT_READY = 600, IN_CAPTURE = 900, BAD_CAPTURE = 901, WRONG_THREAD = 902 };
enum kind { NOTHING, MEMORY, PINNED, STREAM, EVENT, GRAPH, EXEC, POOL };
struct op { void* to; const void* from; size_t n; struct op* next; };  // a copy in a graph
struct work;
struct thing {
  enum kind kind; int device; char* at; size_t size; double ms; struct thing* next;
  struct op* ops;             // of a stream in capture, a graph or an executable graph, the last one first
  struct work *head, *tail;   // of a stream: its work that has not run, see fakequeue.h
  long issued, done;          // of an event: the serial numbers of the last record that was queued, and of the last that has run
  int untimed;                // of an event: it has no time
  int capturing, broken, of;  // of a stream: its capture, a call that cannot be recorded, the thread (see self)
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct thing* things;
static double clock_ms;
static int synced[DEVICES ? DEVICES : 1];  // waits for the default stream, by device
static __thread int current = -1;
static int threads;
static __thread int thread;
static int self(void) { return thread ? thread : (thread = __atomic_add_fetch(&threads, 1, __ATOMIC_SEQ_CST)); }

static struct thing* add(enum kind k, size_t n) {
  struct thing* t = calloc(1, sizeof *t);
  t->kind = k; t->device = current; t->size = n ? n : 1;
  t->at = malloc(t->size); memset(t->at, 0xcd, t->size);
  pthread_mutex_lock(&mu);
  t->next = things; things = t;
  pthread_mutex_unlock(&mu);
  return t;
}

// find returns the thing of kind k that holds [p, p+n).
static struct thing* find(enum kind k, const void* p, size_t n) {
  const char* c = p;
  struct thing* t;
  pthread_mutex_lock(&mu);
  for (t = things; t; t = t->next)
    if (t->kind == k && c >= t->at && c + n <= t->at + t->size) break;
  pthread_mutex_unlock(&mu);
  return t;
}

static int drop(enum kind k, void* p, int anyDevice) {
  pthread_mutex_lock(&mu);
  struct thing** at = &things;
  while (*at && !((*at)->kind == k && (*at)->at == p)) at = &(*at)->next;
  struct thing* t = *at;
  int code = !t ? BAD_HANDLE : !anyDevice && t->device != current ? BAD_CONTEXT : OK;
  if (code == OK) *at = t->next;
  pthread_mutex_unlock(&mu);
  if (code == OK) { free(t->at); free(t); }
  return code;
}

static int make(enum kind k, void** out, size_t n) {
  if (current < 0) return BAD_CONTEXT;
  if (n > ((size_t)1 << 40)) return NO_MEMORY;
  *out = add(k, n)->at;
  return OK;
}

// here reports whether [p, p+n) is memory of the current device.
static int here(const void* p, size_t n) {
  struct thing* t = find(MEMORY, p, n);
  return t && t->device == current;
}
static int device_memory(const void* p) { return find(MEMORY, p, 1) != NULL; }

static int to_device(void* d, const void* s, size_t n) {
  if (!here(d, n) || device_memory(s)) return INVALID;
  memcpy(d, s, n); return OK;
}
static int to_host(void* d, const void* s, size_t n) {
  if (!here(s, n) || device_memory(d)) return INVALID;
  memcpy(d, s, n); return OK;
}
static int within(void* d, const void* s, size_t n) {
  if (!here(d, n) || !here(s, n)) return INVALID;
  memcpy(d, s, n); return OK;
}
static int across(void* d, const void* s, size_t n) {
  if (!here(d, n) || !find(MEMORY, s, n) || here(s, n)) return INVALID;
  memcpy(d, s, n); return OK;
}
#include "fakequeue.h"

static int valid_stream(void* s) {
  if (current < 0) return 0;
  if (!s) return 1;
  struct thing* t = find(STREAM, s, 1);
  return t && t->device == current;
}
static int async_copy(void* d, const void* s, size_t n, void* stream) {
  if (!valid_stream(stream)) return BAD_HANDLE;
  if ((device_memory(d) && !here(d, n)) || (device_memory(s) && !here(s, n))) return INVALID;
  struct thing* t = stream ? find(STREAM, stream, 1) : NULL;
  if (t && !t->capturing && queue_copy(t, d, s, n)) return OK;
  if (t && t->capturing) {
    struct op* o = malloc(sizeof *o);
    *o = (struct op){d, s, n, t->ops};
    t->ops = o;
    return OK;
  }
  memcpy(d, s, n); return OK;
}
static int copies_of_rows;
EXPORT int fake_copies_of_rows(void) { return copies_of_rows; }
static int async_rows(char* d, size_t dpitch, const char* s, size_t spitch, size_t width, size_t height, void* stream) {
  if (dpitch < width || spitch < width || dpitch > INT32_MAX || spitch > INT32_MAX) return INVALID;
  __atomic_add_fetch(&copies_of_rows, 1, __ATOMIC_SEQ_CST);
  for (size_t i = 0; i < height; i++) {
    int code = async_copy(d + i * dpitch, s + i * spitch, width, stream);
    if (code != OK) return code;
  }
  return OK;
}
static void free_ops(struct op* o) {
  while (o) { struct op* next = o->next; free(o); o = next; }
}
// The calls of graphs since the last fake_steps, a digit each, and the one that fails next, once.
enum step { BEGIN = 1, END, INSTANTIATE, DESTROY_GRAPH, LAUNCH, DESTROY_EXEC };
static int steps, failing;
static int fails(enum step s) {
  int now = failing == (int)s;
  steps = steps * 10 + (int)s;
  if (now) failing = 0;
  return now;
}
EXPORT int fake_steps(void) { int all = steps; steps = 0; return all; }
EXPORT int fake_fail(int step) { failing = step; return OK; }

static int begin_capture(void* s, int mode) {
  if (fails(BEGIN)) return NO_MEMORY;
  struct thing* t = s && valid_stream(s) ? find(STREAM, s, 1) : NULL;
  if (!t || mode < 0 || mode > 2) return BAD_HANDLE;
  if (t->capturing) return BAD_CAPTURE;
  t->capturing = 1; t->broken = 0; t->of = self();
  return OK;
}
static int end_capture(void* s, void** graph) {
  *graph = NULL;
  int fail = fails(END);
  struct thing* t = s && valid_stream(s) ? find(STREAM, s, 1) : NULL;
  if (!t || !t->capturing) return BAD_HANDLE;
  if (t->of != self()) return WRONG_THREAD;
  struct op* ops = t->ops;
  t->capturing = 0; t->ops = NULL;
  if (t->broken || fail) { free_ops(ops); return fail ? NO_MEMORY : BAD_CAPTURE; }
  struct thing* g = add(GRAPH, 1);
  g->ops = ops; *graph = g->at;
  return OK;
}
static int instantiate(void** exec, void* graph) {
  if (fails(INSTANTIATE)) return NO_MEMORY;
  struct thing *g = find(GRAPH, graph, 1), *e;
  if (!g || g->device != current) return BAD_HANDLE;
  e = add(EXEC, 1);
  struct op** end = &e->ops;
  for (struct op* o = g->ops; o; o = o->next) {
    *end = malloc(sizeof **end);
    **end = (struct op){o->to, o->from, o->n, NULL};
    end = &(*end)->next;
  }
  *exec = e->at;
  return OK;
}
static void run_ops(const struct op* o) {
  if (o) { run_ops(o->next); memcpy(o->to, o->from, o->n); }
}
static int launch_exec(void* exec, void* s) {
  if (fails(LAUNCH)) return NO_MEMORY;
  struct thing* e = find(EXEC, exec, 1);
  if (!e || e->device != current || !valid_stream(s)) return BAD_HANDLE;
  run_ops(e->ops);
  return OK;
}
static int drop_graph(enum kind k, void* p) {
  if (fails(k == GRAPH ? DESTROY_GRAPH : DESTROY_EXEC)) return NO_MEMORY;
  struct thing* t = find(k, p, 1);
  if (t) { free_ops(t->ops); t->ops = NULL; }
  return drop(k, p, 0);
}
static int fill(void* d, int v, size_t n) {
  if (!here(d, n)) return INVALID;
  memset(d, v, n); return OK;
}
static int sync_stream(void* s) {
  if (!valid_stream(s)) return BAD_HANDLE;
  struct thing* t = s ? find(STREAM, s, 1) : NULL;
  if (t && t->capturing) { t->broken = 1; return IN_CAPTURE; }
  if (!s) __atomic_add_fetch(&synced[current], 1, __ATOMIC_SEQ_CST);
  run_stream(t);
  return OK;
}
static struct thing* event(void* e) { return find(EVENT, e, 1); }
static int make_event(void** e, unsigned flags) {
  if (flags & ~2u) return INVALID;
  int code = make(EVENT, e, 1);
  if (code == OK) event(*e)->untimed = flags == 2;
  return code;
}
static int record_event(void* e, void* s) {
  struct thing* t = event(e);
  if (!t || t->device != current || !valid_stream(s)) return BAD_HANDLE;
  pthread_mutex_lock(&mu);
  t->ms = clock_ms += 1.5;
  pthread_mutex_unlock(&mu);
  queue_record(s ? find(STREAM, s, 1) : NULL, t);
  return OK;
}
static int elapsed(float* ms, void* a, void* b) {
  struct thing *x = event(a), *y = event(b);
  if (x && y && (x->untimed || y->untimed)) return BAD_HANDLE;
  if (!x || !y || x->ms == 0 || y->ms == 0) return NOT_READY;
  *ms = (float)(y->ms - x->ms); return OK;
}
static int wait_event(void* s, void* e, unsigned flags) {
  if (!valid_stream(s) || !event(e) || flags != 0) return BAD_HANDLE;
  queue_wait(s ? find(STREAM, s, 1) : NULL, event(e));
  return OK;
}

// For the tests: the number of objects that are not destroyed, and waits for a default stream.
EXPORT int fake_alive(void) {
  int n = 0;
  pthread_mutex_lock(&mu);
  for (struct thing* t = things; t; t = t->next) n++;
  pthread_mutex_unlock(&mu);
  return n;
}
// fake_size returns the bytes of the allocation that begins at p, -1 if there is none.
EXPORT int fake_size(void* p) {
  int n = -1;
  pthread_mutex_lock(&mu);
  for (struct thing* t = things; t; t = t->next)
    if (t->at == p) n = (int)t->size;
  pthread_mutex_unlock(&mu);
  return n;
}
EXPORT int fake_synced(int device) { return __atomic_load_n(&synced[device], __ATOMIC_SEQ_CST); }
static int sync_event(void* e) {
  struct thing* t = event(e);
  if (!t) return BAD_HANDLE;
  run_event(t);
  return OK;
}
