// SPDX-License-Identifier: Apache-2.0
// Part of libcgp_sample.so: gives each function of CPython 3.9 to 3.11 a few bytes of machine code of its own that it runs
// through, and writes their names to /tmp/perf-PID.map, as CPython does itself from 3.12 on (`-X perf`). The
// interpreter is told by its frame evaluation function (PEP 523). Calls between functions of Python go through C then.
//   CGP_SAMPLE_PYTHON  set: do so
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
namespace {

using Object = void*;
using Evaluate = Object (*)(Object thread, Object frame, int throwing);
/// Calls `evaluate` with the same arguments.
using Stub = Object (*)(Object thread, Object frame, int throwing, Evaluate evaluate);

/// What is used of CPython, by its names.
struct Python {
  const char* (*version)();
  int (*is_initialized)();
  int (*add_pending_call)(int (*)(void*), void*);
  Object (*interpreter)();
  void (*set_evaluate)(Object interpreter, Evaluate);
  Evaluate evaluate;
  long (*new_extra)(void (*)(void*));
  int (*get_extra)(Object code, long index, void** extra);
  int (*set_extra)(Object code, long index, void* extra);
  Object (*attribute)(Object, const char*);
  const char* (*utf8)(Object);
  void (*fetch_error)(Object*, Object*, Object*);
  void (*restore_error)(Object, Object, Object);
  void (*release)(Object);
  Object (*code_of)(Object frame);  // before 3.11
  Object code_type;
} python;
int minor = 0;
long extra = -1;

constexpr std::size_t kStub = 16, kPage = 1 << 16;
constexpr unsigned char kCode[kStub] = {0x55, 0x48,
                                        0x89, 0xe5,   // push rbp; mov rbp, rsp: callers are found by it
                                        0xff, 0xd1,   // call rcx
                                        0x5d, 0xc3};  // pop rbp; ret
char* page = nullptr;
std::size_t used = kPage;
int map_file = -1;
char map_name[64];

void name_map() { std::snprintf(map_name, sizeof map_name, "/tmp/perf-%d.map", int(getpid())); }

/// Nothing where memory may not become code.
char* new_stub() {
  if (used == kPage) {
    void* p = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    for (std::size_t i = 0; i < kPage; i += kStub) std::memcpy(static_cast<char*>(p) + i, kCode, kStub);
    if (mprotect(p, kPage, PROT_READ | PROT_EXEC) != 0) {
      munmap(p, kPage);
      return nullptr;
    }
    page = static_cast<char*>(p), used = 0;
  }
  used += kStub;
  return page + used - kStub;
}

/// An attribute that is text, into `out`.
void text_of(Object code, const char* name, char* out, std::size_t size) {
  const Object value = python.attribute(code, name);
  const char* text = value ? python.utf8(value) : nullptr;
  std::snprintf(out, size, "%s", text ? text : "?");
  for (char* p = out; *p; ++p)
    if (*p == '\n') *p = ' ';
  if (value) python.release(value);
}

char* stub_of(Object code) {
  char* stub = new_stub();
  if (!stub) return nullptr;
  Object type = nullptr, value = nullptr, trace = nullptr;
  python.fetch_error(&type, &value, &trace);
  char function[512], path[1024], line[1600];
  text_of(code, minor >= 11 ? "co_qualname" : "co_name", function, sizeof function);
  text_of(code, "co_filename", path, sizeof path);
  python.restore_error(type, value, trace);
  const int n = std::snprintf(line, sizeof line, "%lx %zx py::%s:%s\n", reinterpret_cast<unsigned long>(stub),
                              kStub, function, path);
  if (map_file < 0 || write(map_file, line, std::size_t(n)) != n) return nullptr;
  python.set_extra(code, extra, stub);
  return stub;
}

Object evaluate(Object thread, Object frame, int throwing) {
  Object code = nullptr;
  if (minor >= 11) {
    code = static_cast<Object*>(frame)[4];  // _PyInterpreterFrame::f_code
  } else {
    code = python.code_of(frame);
    python.release(code);  // the frame keeps it
  }
  void* stub = nullptr;
  if (!code || static_cast<Object*>(code)[1] != python.code_type)
    return python.evaluate(thread, frame, throwing);
  python.get_extra(code, extra, &stub);
  if (!stub) stub = stub_of(code);
  if (!stub) return python.evaluate(thread, frame, throwing);
  return reinterpret_cast<Stub>(stub)(thread, frame, throwing, python.evaluate);
}

/// A child that was forked has the same code, and a map of its own.
void in_child() {
  const int before = open(map_name, O_RDONLY | O_CLOEXEC);
  name_map();
  close(map_file);
  map_file = open(map_name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  char bytes[4096];
  for (ssize_t n; before >= 0 && (n = read(before, bytes, sizeof bytes)) > 0;)
    if (write(map_file, bytes, std::size_t(n)) != n) break;
  close(before);
}

/// On the main thread, with the interpreter's lock.
int install(void*) {
  name_map();
  map_file = open(map_name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  extra = python.new_extra(nullptr);
  if (map_file < 0 || extra < 0) return 0;
  pthread_atfork(nullptr, nullptr, in_child);
  python.set_evaluate(python.interpreter(), evaluate);
  return 0;
}

void* wait_for_python(void*) {
  const timespec moment{0, 200000};
  while (!python.is_initialized()) nanosleep(&moment, nullptr);
  python.add_pending_call(install, nullptr);
  return nullptr;
}

template <class T>
bool find(T& into, const char* name) {
  into = reinterpret_cast<T>(dlsym(RTLD_DEFAULT, name));
  return into != nullptr;
}

__attribute__((constructor)) void start() {
  if (!std::getenv("CGP_SAMPLE_PYTHON") || !find(python.version, "Py_GetVersion") ||
      std::sscanf(python.version(), "3.%d", &minor) != 1 || minor < 9 || minor > 11)
    return;
  if (!find(python.is_initialized, "Py_IsInitialized") ||
      !find(python.add_pending_call, "Py_AddPendingCall") ||
      !find(python.interpreter, "PyInterpreterState_Get") ||
      !find(python.set_evaluate, "_PyInterpreterState_SetEvalFrameFunc") ||
      !find(python.evaluate, "_PyEval_EvalFrameDefault") ||
      !find(python.new_extra, "_PyEval_RequestCodeExtraIndex") ||
      !find(python.get_extra, "_PyCode_GetExtra") || !find(python.set_extra, "_PyCode_SetExtra") ||
      !find(python.attribute, "PyObject_GetAttrString") || !find(python.utf8, "PyUnicode_AsUTF8") ||
      !find(python.fetch_error, "PyErr_Fetch") || !find(python.restore_error, "PyErr_Restore") ||
      !find(python.release, "Py_DecRef") || !find(python.code_of, "PyFrame_GetCode") ||
      !find(python.code_type, "PyCode_Type"))
    return;
  pthread_t waiting;
  if (pthread_create(&waiting, nullptr, wait_for_python, nullptr) == 0) pthread_detach(waiting);
}

}  // namespace
#endif
