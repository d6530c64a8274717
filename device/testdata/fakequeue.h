// Streams that run their work later, pools of memory, and calls that fail. After fake_shuffle(seed) with a seed other than 0, a
// stream's work waits in a queue. Each call of the library runs some of the work that may run, in an order that the seed
// decides: work on another stream without a wait for an event then runs too early or too late.
enum task { COPY, RECORD, WAIT, KERNEL, RELEASE, POISON };
struct work {
  enum task task;
  void* to; const void* from; size_t n;
  struct thing* event; long serial;
  float *out, *state; const float *x, *w; long rows, cols;
  struct work* next;
};
static pthread_mutex_t queue_mu = PTHREAD_MUTEX_INITIALIZER;
static unsigned long shuffle;
static long serials;
static int pageable, pool_allocs;

static unsigned random_below(unsigned n) {
  shuffle = shuffle * 6364136223846793005ul + 1442695040888963407ul;
  return (unsigned)(shuffle >> 33) % n;
}

// Blocks that pools have, in use or not. The stream on which a block was freed may use it again before that is done; others may not.
static struct block { char* at; size_t size; int device, used; long turn; void* freed_on; struct block* next; } *blocks;
static size_t reserved[DEVICES ? DEVICES : 1];

static void release(void* p, long turn);
static void perform(struct work* k) {
  switch (k->task) {
    case COPY: memmove(k->to, k->from, k->n); break;
    case POISON: memset(k->to, 0xcd, k->n); break;
    case RECORD: if (k->serial > k->event->done) k->event->done = k->serial; break;
    case RELEASE: release(k->to, k->serial); break;
    case WAIT: break;
    case KERNEL:
      for (long r = 0; r < k->rows; r++) {
        float s = k->state ? k->state[r] : 0;
        if (k->state) k->state[r] = s + k->x[r * k->cols];
        for (long c = 0; c < k->cols; c++) k->out[r * k->cols + c] = 3 * k->x[r * k->cols + c] + k->w[c] + s;
      }
  }
}

// run_one runs the first work of a stream that may run, beginning at a random one. It returns 0 if there is none.
static int run_one(void) {
  struct thing* ready[64];
  unsigned n = 0;
  pthread_mutex_lock(&mu);
  for (struct thing* t = things; t; t = t->next)
    if (t->kind == STREAM && t->head && n < 64 && !(t->head->task == WAIT && t->head->event->done < t->head->serial)) ready[n++] = t;
  pthread_mutex_unlock(&mu);
  if (!n) return 0;
  struct thing* t = ready[random_below(n)];
  struct work* k = t->head;
  if (!(t->head = k->next)) t->tail = NULL;
  perform(k);
  free(k);
  return 1;
}
static void some(void) { for (unsigned n = random_below(4); n && run_one(); n--) {} }

static int queue(struct thing* stream, struct work k) {
  if (!shuffle || !stream) { perform(&k); return 0; }
  struct work* w = malloc(sizeof *w);
  *w = k; w->next = NULL;
  if (stream->tail) stream->tail->next = w; else stream->head = w;
  stream->tail = w;
  some();
  return 1;
}
#define LOCKED(body) do { pthread_mutex_lock(&queue_mu); body; pthread_mutex_unlock(&queue_mu); } while (0)

static void run_stream(struct thing* stream) {
  LOCKED(if (stream) { while (stream->head && run_one()) {} } else while (run_one()) {});
}
static void run_event(struct thing* e) { LOCKED(while (e->done < e->issued && run_one()) {}); }

// A copy from or to memory that is not pinned waits for the stream, and runs at once.
static int queue_copy(struct thing* stream, void* d, const void* s, size_t n) {
  if (!shuffle) return 0;
  int direct = (device_memory(d) || find(PINNED, d, n)) && (device_memory(s) || find(PINNED, s, n));
  if (!direct) {
    __atomic_add_fetch(&pageable, 1, __ATOMIC_SEQ_CST);
    run_stream(stream);
    return 0;
  }
  LOCKED(queue(stream, (struct work){.task = COPY, .to = d, .from = s, .n = n}));
  return 1;
}
static void queue_record(struct thing* stream, struct thing* e) {
  LOCKED(e->issued = ++serials; queue(stream, (struct work){.task = RECORD, .event = e, .serial = e->issued}));
}
static void queue_wait(struct thing* stream, struct thing* e) {
  LOCKED(queue(stream, (struct work){.task = WAIT, .event = e, .serial = e->issued}));
}

// Pools. A block is memory of the device while it is in use.
static void release(void* p, long turn) {
  for (struct block* b = blocks; b; b = b->next)
    if (b->at == p && b->turn == turn) b->used = 0;
}
static int pool_create(void** pool, const void* props) {
  const int* p = props;  // type, handle types, type of the location, device
  if (p[0] != 1 || p[1] != 0 || p[2] != 1 || p[3] != current) return INVALID;
  *pool = add(POOL, 1)->at;
  return OK;
}
static int pool_set(void* pool, int attribute, const void* value) {
  return find(POOL, pool, 1) && attribute == 4 && *(const uint64_t*)value == UINT64_MAX ? OK : INVALID;
}
static int pool_get(void* pool, int attribute, void* value) {
  struct thing* t = find(POOL, pool, 1);
  if (!t || attribute != 5) return INVALID;
  *(uint64_t*)value = reserved[t->device];
  return OK;
}
static int pool_alloc(void** out, size_t n, void* pool, void* stream) {
  struct thing* t = find(POOL, pool, 1);
  if (!t || t->device != current || n % 16) return INVALID;
  if (n > ((size_t)1 << 40)) return NO_MEMORY;
  struct block* b;
  pthread_mutex_lock(&queue_mu);
  for (b = blocks; b; b = b->next)
    if ((!b->used || b->freed_on == stream) && b->size >= n && b->device == current) break;
  if (!b) {
    b = calloc(1, sizeof *b);
    *b = (struct block){.at = malloc(n), .size = n, .device = current, .next = blocks};
    blocks = b;
    reserved[current] += n;
    pool_allocs++;
  }
  b->used = 1; b->turn++; b->freed_on = (void*)-1;
  struct thing* m = calloc(1, sizeof *m);
  *m = (struct thing){.kind = MEMORY, .device = current, .at = b->at, .size = n, .of = -1};
  pthread_mutex_lock(&mu);
  m->next = things; things = m;
  pthread_mutex_unlock(&mu);
  queue(stream ? find(STREAM, stream, 1) : NULL, (struct work){.task = POISON, .to = b->at, .n = n});
  pthread_mutex_unlock(&queue_mu);
  *out = b->at;
  return OK;
}
// pool_free returns a block to the pool after the work on the stream. Later calls must not use the block.
static int pool_free(void* p, void* stream) {
  pthread_mutex_lock(&mu);
  struct thing** at = &things;
  while (*at && !((*at)->kind == MEMORY && (*at)->at == p && (*at)->of == -1)) at = &(*at)->next;
  struct thing* t = *at;
  if (t) *at = t->next;
  pthread_mutex_unlock(&mu);
  if (!t) return INVALID;
  free(t);
  pthread_mutex_lock(&queue_mu);
  for (struct block* b = blocks; b; b = b->next)
    if (b->at == p) {
      b->freed_on = stream;
      queue(stream ? find(STREAM, stream, 1) : NULL, (struct work){.task = RELEASE, .to = p, .serial = b->turn});
      break;
    }
  pthread_mutex_unlock(&queue_mu);
  return OK;
}
static int pool_trim(void* pool, size_t keep) {
  struct thing* t = find(POOL, pool, 1);
  if (!t || keep) return INVALID;
  pthread_mutex_lock(&queue_mu);
  for (struct block** at = &blocks; *at;) {
    struct block* b = *at;
    if (b->used || b->device != t->device) { at = &b->next; continue; }
    *at = b->next; reserved[b->device] -= b->size;
    free(b->at); free(b);
  }
  pthread_mutex_unlock(&queue_mu);
  return OK;
}
// free_memory frees memory of any kind, after all work.
static int free_memory(void* p) {
  struct thing* t = find(MEMORY, p, 1);
  run_stream(NULL);
  return t && t->of == -1 ? pool_free(p, NULL) : drop(MEMORY, p, 0);
}

// fake_kernel queues out = 3x + w + state by rows, and state += x[0].
EXPORT int fake_kernel(void* stream, float* out, const float* x, const float* w, float* state, long rows, long cols) {
  struct thing* t = find(STREAM, stream, 1);
  LOCKED(queue(t, (struct work){.task = KERNEL, .out = out, .x = x, .w = w, .state = state, .rows = rows, .cols = cols}));
  return t ? OK : BAD_HANDLE;
}
EXPORT int fake_shuffle(unsigned seed) { shuffle = seed; return OK; }
EXPORT int fake_pageable(void) { return pageable; }
EXPORT int fake_pool_allocs(void) { return pool_allocs; }

// The number of the next call, and the call that fails: it alone, or it and all after it.
static int calls, fail_at, lost;
static __attribute__((unused)) int faulty(void) {
  int n = __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
  return fail_at && (n == fail_at || (lost && n > fail_at));
}
EXPORT int fake_calls(void) { return calls; }
EXPORT int fake_fail_at(int n, int stays) { calls = 0; fail_at = n; lost = stays; return OK; }
