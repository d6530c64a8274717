// Work for several threads. A process has one pool for each loaded module. Its threads start when first needed, sleep in between,
// and take no signals.
//
// No more threads run at once than settings() allows, unless there are more callers: each caller works on its own job, and idle
// threads join the job with the fewest, while processors are free. Only the first call in a process allocates memory. Idle
// threads do not spin; a caller that is done polls for its helpers briefly before it sleeps. After fork the child makes its
// own pool when it needs one. The module must not be unloaded (-z nodelete), since threads sleep in its code.
#pragma once

#include <signal.h>
#include <time.h>

#include "cpu_settings.h"

namespace aiter::cpu {

// FloatMode is a thread's rounding mode and its flushing of subnormals. A job's helpers take its caller's, so that results do
// not depend on the thread.
class FloatMode {
 public:
#if defined(__x86_64__)
  static FloatMode get() { return {__builtin_ia32_stmxcsr()}; }
  void set() const { __builtin_ia32_ldmxcsr(value); }
#elif defined(__aarch64__)
  static FloatMode get() {
    FloatMode m;
    asm volatile("mrs %0, fpcr" : "=r"(m.value));
    return m;
  }
  void set() const { asm volatile("msr fpcr, %0" : : "r"(value)); }
#else
  static FloatMode get() { return {0}; }
  void set() const {}
#endif
#if defined(__aarch64__)
  uint64_t value;
#else
  uint32_t value;
#endif
};

// Job is a caller's work. It lives on the caller's stack.
struct Job {
  void (*run)(const void* context, int64_t part);
  const void* context;
  int64_t parts, next;  // next is claimed atomically
  FloatMode mode;
  int helpers;  // threads of the pool in the job; written under the lock, atomically
  int64_t most;  // helpers at once
  Job* after;

  // helped reports whether all helpers have left; their writes are then visible.
  bool helped() const { return __atomic_load_n(&helpers, __ATOMIC_ACQUIRE) == 0; }
  bool pending() const { return __atomic_load_n(&next, __ATOMIC_RELAXED) < parts; }
  bool admits() const { return pending() && helpers < most; }
  void work() {
    for (;;) {
      const int64_t part = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);
      if (part >= parts) return;
      run(context, part);
    }
  }
};

class Pool {
 public:
  // of_process returns the process's pool, null without memory for one.
  static Pool* of_process();

  // run does all parts of the job before it returns.
  void run(Job* job) {
    pthread_mutex_lock(&lock_);
    running_++;
    job->after = jobs_, jobs_ = job;
    const int awake = invite(job->parts - 1 < job->most ? job->parts - 1 : job->most);
    pthread_mutex_unlock(&lock_);
    for (int i = 0; i < awake; i++) pthread_cond_signal(&wake_);  // outside of the lock, which would stop them again
    job->work();
    pthread_mutex_lock(&lock_);
    running_--;
    remove(job);
    if (idle_ && running_ < limit_ && neediest()) pthread_cond_signal(&wake_);
    pthread_mutex_unlock(&lock_);
    if (!job->helped() && !soon(job)) sleep(job);
  }

 private:
  static void* enter(void* pool) {
    static_cast<Pool*>(pool)->serve();
    return nullptr;
  }

  // soon polls for the helpers' last parts for less time than a wake-up takes.
  static bool soon(const Job* job) {
    timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
      for (int i = 0; i < 16; i++) {
        if (job->helped()) return true;
        pause();
      }
      clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000000000 + now.tv_nsec - start.tv_nsec < kMoment);
    return false;
  }

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  void sleep(const Job* job) {
    pthread_mutex_lock(&lock_);
    while (!job->helped()) pthread_cond_wait(&done_, &lock_);
    pthread_mutex_unlock(&lock_);
  }

  // serve is a thread's loop.
  void serve() {
    Processors mask = {};
    if (mask.of_process()) mask.apply();  // not the mask of the thread that started it
    pthread_mutex_lock(&lock_);
    for (;;) {
      Job* job = running_ < limit_ ? neediest() : nullptr;
      if (job) {
        help(job);
        continue;
      }
      idle_++;
      pthread_cond_wait(&wake_, &lock_);
      idle_--;
    }
  }

  void help(Job* job) {
    running_++;
    __atomic_fetch_add(&job->helpers, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&lock_);
    job->mode.set();
    job->work();
    pthread_mutex_lock(&lock_);
    running_--;
    if (__atomic_sub_fetch(&job->helpers, 1, __ATOMIC_RELEASE) == 0) pthread_cond_broadcast(&done_);  // the job may be gone
  }

  // invite starts up to n threads, while processors are free, and returns how many to wake.
  int invite(int64_t n) {
    const int64_t free = limit_ - running_;
    if (n > free) n = free;
    const int awake = n < idle_ ? int(n) : idle_;
    for (n -= awake; n > 0 && threads_ < limit_ - 1 && start(); n--) threads_++;
    return awake;
  }

  // start makes a thread that takes no signals except its own faults: a Go program's handlers must not run on threads that are not Go's.
  bool start() {
    sigset_t all, before;
    sigfillset(&all);
    const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    for (int fault : faults) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, kStack);
    pthread_t thread;
    const bool made = pthread_create(&thread, &attr, enter, this) == 0;
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return made;
  }

  // neediest returns the job with parts left and the fewest threads, of those that take one more.
  Job* neediest() const {
    Job* found = nullptr;
    for (Job* j = jobs_; j; j = j->after)
      if (j->admits() && (!found || j->helpers < found->helpers)) found = j;
    return found;
  }

  void remove(const Job* job) {
    Job** p = &jobs_;
    while (*p != job) p = &(*p)->after;
    *p = job->after;
  }

  static constexpr size_t kStack = 512 << 10;  // a kernel uses less than 128 KiB
  static constexpr long kMoment = 30000;       // ns

  pid_t process_;
  int limit_;  // threads at work at once, callers included
  pthread_mutex_t lock_;
  pthread_cond_t wake_, done_;
  int threads_, idle_, running_;
  Job* jobs_;
};

inline Pool* current_pool = nullptr;  // read and written atomically

inline Pool* Pool::of_process() {
  const pid_t self = getpid();
  Pool* p = __atomic_load_n(&current_pool, __ATOMIC_ACQUIRE);
  if (p && p->process_ == self) return p;
  // There is no pool, or the parent's, whose threads do not exist in this process. The parent's pool stays as it is.
  Pool* fresh = static_cast<Pool*>(calloc(1, sizeof(Pool)));
  if (!fresh) return nullptr;
  fresh->process_ = self, fresh->limit_ = settings().threads;
  pthread_mutex_init(&fresh->lock_, nullptr);
  pthread_cond_init(&fresh->wake_, nullptr), pthread_cond_init(&fresh->done_, nullptr);
  if (__atomic_compare_exchange_n(&current_pool, &p, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return fresh;
  free(fresh);
  return p;
}

// drain ends a series of stores that bypass the caches.
inline void drain() {
#if defined(__x86_64__)
  asm volatile("sfence" : : : "memory");
#endif
}

// parallel calls f(0) to f(parts-1), in any order, on several threads at once, at most threads. Their writes are visible when it
// returns.
template <class F> void parallel(int64_t parts, const F& f, int64_t threads = kMostThreads) {
  Pool* pool = parts > 1 && threads > 1 && settings().threads > 1 ? Pool::of_process() : nullptr;
  if (!pool) {
    for (int64_t i = 0; i < parts; i++) f(i);
    return;
  }
  Job job{[](const void* c, int64_t part) { (*static_cast<const F*>(c))(part); }, &f, parts, 0, FloatMode::get(), 0, threads - 1, nullptr};
  pool->run(&job);
}

}  // namespace aiter::cpu
