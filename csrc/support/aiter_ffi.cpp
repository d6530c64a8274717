// The functions of libtvm_ffi that operator modules call, for processes without that
// library, and one function for callers that cannot stay on an OS thread between C calls.
//
// Modules import two symbols, TVMFFIErrorSetRaisedFromCStr and TVMFFIEnvGetStream. In
// Python libtvm_ffi defines them. In other processes this library does, with the same
// meaning and the same object layout. If a process has them, modules that allocate memory also
// use aiter_memory_pool, and those with launch parameters aiter_launch_params. The library depends
// only on libc.

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define AITER_API extern "C" __attribute__((visibility("default")))

namespace {

struct Bytes {
  const char* data;
  size_t size;
};

// Object is the header of every heap object: strong count in the low half of
// count, weak count in the high half.
struct Object {
  uint64_t count;
  int32_t type_index;
  uint32_t padding;
  void (*deleter)(void* self, int flags);
};
static_assert(sizeof(Object) == 24, "TVM FFI's layout");

constexpr uint64_t kStrong = 1, kWeak = uint64_t(1) << 32, kStrongMask = kWeak - 1;
constexpr int kDeleteStrong = 1, kDeleteWeak = 2;  // the deleter's flags
constexpr int32_t kErrorType = 67;

struct Error {
  Object object;
  Bytes kind, message, backtrace;
  void (*update_backtrace)(void* self, const Bytes* backtrace, int32_t mode);
  Object* cause;
  Object* context;
};
static_assert(offsetof(Error, kind) == 24 && offsetof(Error, message) == 40 && offsetof(Error, backtrace) == 56,
              "TVM FFI's layout");

void delete_error(void* self, int flags) {
  if (flags & kDeleteWeak) free(self);
}

void keep_backtrace(void*, const Bytes*, int32_t) {}

// The error that is raised if there is no memory for an error. It is never freed: its
// count does not reach zero.
const char kMemoryKind[] = "MemoryError", kMemoryText[] = "out of memory while reporting an error";
Error out_of_memory = {{(uint64_t(1) << 30) | kWeak, kErrorType, 0, nullptr},
                       {kMemoryKind, sizeof kMemoryKind - 1},
                       {kMemoryText, sizeof kMemoryText - 1},
                       {"", 0},
                       keep_backtrace,
                       nullptr,
                       nullptr};

char* copy(char* to, Bytes from, Bytes* out) {
  if (from.size) memcpy(to, from.data, from.size);
  to[from.size] = 0;
  *out = {to, from.size};
  return to + from.size + 1;
}

// new_error allocates one block of memory for the object and, behind it, the texts.
Error* new_error(Bytes kind, Bytes message, Bytes backtrace) {
  auto* e = static_cast<Error*>(malloc(sizeof(Error) + kind.size + message.size + backtrace.size + 3));
  if (!e) {
    __atomic_fetch_add(&out_of_memory.object.count, kStrong, __ATOMIC_RELAXED);
    return &out_of_memory;
  }
  e->object = {kStrong | kWeak, kErrorType, 0, delete_error};
  char* text = reinterpret_cast<char*>(e + 1);
  text = copy(text, kind, &e->kind);
  text = copy(text, message, &e->message);
  copy(text, backtrace, &e->backtrace);
  e->update_backtrace = keep_backtrace, e->cause = nullptr, e->context = nullptr;
  return e;
}

void release(Object* o) {
  const uint64_t before = __atomic_fetch_sub(&o->count, kStrong, __ATOMIC_ACQ_REL);
  if ((before & kStrongMask) != kStrong) return;
  if (o->deleter) o->deleter(o, kDeleteStrong);
  if (__atomic_fetch_sub(&o->count, kWeak, __ATOMIC_ACQ_REL) >> 32 == 1 && o->deleter) o->deleter(o, kDeleteWeak);
}

Bytes bytes_of(const char* s) { return s ? Bytes{s, strlen(s)} : Bytes{"", 0}; }

// State of a thread. It is __thread and not thread_local, which would need the C++
// runtime: that is not linked.
struct Stream {
  int32_t type, id;
  void* handle;
};
constexpr int kMostStreams = 64;
__thread Error* raised;
__thread Stream streams[kMostStreams];
__thread int stream_count;
__thread const void* launch_params;  // of the running call, null for none

// raise takes ownership of e, which may be null.
void raise(Error* e) {
  if (raised) release(&raised->object);
  raised = e;
}

// set_stream sets the stream of a device. A null handle removes it.
int set_stream(int32_t type, int32_t id, void* handle, void** old) {
  int i = 0;
  while (i < stream_count && (streams[i].type != type || streams[i].id != id)) i++;
  if (old) *old = i < stream_count ? streams[i].handle : nullptr;
  if (!handle) {
    if (i < stream_count) streams[i] = streams[--stream_count];
    return 0;
  }
  if (i == kMostStreams) return -1;
  if (i == stream_count) stream_count++;
  streams[i] = {type, id, handle};
  return 0;
}

struct Any {
  int32_t type_index;
  uint32_t padding;
  uint64_t value;
};

}  // namespace

AITER_API int TVMFFIErrorCreate(const Bytes* kind, const Bytes* message, const Bytes* backtrace, void** out) {
  *out = new_error(*kind, *message, backtrace ? *backtrace : Bytes{"", 0});
  return 0;
}

AITER_API void TVMFFIErrorSetRaised(void* error) {
  if (error) __atomic_fetch_add(&static_cast<Object*>(error)->count, kStrong, __ATOMIC_RELAXED);
  raise(static_cast<Error*>(error));
}

AITER_API void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message) {
  raise(new_error(bytes_of(kind), bytes_of(message), {"", 0}));
}

AITER_API void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** parts, int32_t n) {
  char text[1024];
  size_t used = 0;
  for (int32_t i = 0; i < n; i++) {
    const Bytes part = bytes_of(parts[i]);
    const size_t room = sizeof text - used, size = part.size < room ? part.size : room;
    memcpy(text + used, part.data, size);
    used += size;
  }
  raise(new_error(bytes_of(kind), {text, used}, {"", 0}));
}

// The caller owns *result, which is null if nothing was raised.
AITER_API void TVMFFIErrorMoveFromRaised(void** result) {
  *result = raised;
  raised = nullptr;
}

AITER_API int TVMFFIObjectIncRef(void* object) {
  __atomic_fetch_add(&static_cast<Object*>(object)->count, kStrong, __ATOMIC_RELAXED);
  return 0;
}

AITER_API int TVMFFIObjectDecRef(void* object) {
  release(static_cast<Object*>(object));
  return 0;
}

AITER_API int TVMFFIEnvSetStream(int32_t type, int32_t id, void* stream, void** old) {
  if (set_stream(type, id, stream, old) == 0) return 0;
  TVMFFIErrorSetRaisedFromCStr("RuntimeError", "TVMFFIEnvSetStream: streams of more than 64 devices in one thread");
  return -1;
}

AITER_API void* TVMFFIEnvGetStream(int32_t type, int32_t id) {
  for (int i = 0; i < stream_count; i++)
    if (streams[i].type == type && streams[i].id == id) return streams[i].handle;
  return nullptr;
}

// AiterCall is one operator call. The caller sets the members before result. error is
// null or an error object that the caller must release with TVMFFIObjectDecRef.
struct AiterCall {
  int32_t (*fn)(void* handle, const Any* args, int32_t n, Any* result);
  const Any* args;
  int32_t nargs;
  int32_t has_stream;
  int32_t device_type;
  int32_t device_id;
  void* stream;
  const void* params;  // LaunchParams of aiter/tuning.h, or null

  Any result;
  void* error;
};
static_assert(sizeof(AiterCall) == 72, "internal/ffi has the same layout");

AITER_API const void* aiter_launch_params() { return launch_params; }
AITER_API void aiter_set_launch_params(const void* params) { launch_params = params; }

// A process may contain several copies of this library, or libtvm_ffi as well. The dynamic linker binds modules to the first
// one, so calls must use the thread state of that one. These pointers are bound in the same way. Volatile prevents direct calls.
static int (*volatile env_set_stream)(int32_t, int32_t, void*, void**) = TVMFFIEnvSetStream;
static void (*volatile error_move_from_raised)(void**) = TVMFFIErrorMoveFromRaised;
static void (*volatile set_launch_params)(const void*) = aiter_set_launch_params;

// aiter_ffi_call sets the stream and the launch parameters, calls the operator, restores both and moves the error to c, all on the
// calling thread.
// It returns the operator's status.
AITER_API int32_t aiter_ffi_call(AiterCall* c) {
  c->result = Any{};
  c->error = nullptr;
  void* old = nullptr;
  int32_t status = 0;
  if (c->has_stream) status = env_set_stream(c->device_type, c->device_id, c->stream, &old);
  if (status == 0) {
    if (c->params) set_launch_params(c->params);
    status = c->fn(nullptr, c->args, c->nargs, &c->result);
    if (c->params) set_launch_params(nullptr);
    if (c->has_stream) env_set_stream(c->device_type, c->device_id, old, nullptr);
  }
  if (status != 0) error_move_from_raised(&c->error);
  return status;
}

// aiter_memory_pool returns where the modules of a process keep the memory pool of a GPU, which the first one of them
// makes. Modules of several operators, and the versions of a reloaded module, then share the memory. device_type is
// DLPack's: 2 for CUDA, 10 for ROCm. The result is null if id is not below 64.
AITER_API void** aiter_memory_pool(int32_t device_type, int32_t id) {
  constexpr int32_t kMostDevices = 64;
  static void *cuda[kMostDevices], *rocm[kMostDevices];
  return id >= 0 && id < kMostDevices ? &(device_type == 10 ? rocm : cuda)[id] : nullptr;
}

// The version of AiterCall's layout. A caller for another version must not call aiter_ffi_call.
AITER_API int32_t aiter_ffi_version() { return 2; }
